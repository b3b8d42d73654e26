"""Shared memory of a node: readable by peers, reused, and never a reason to fail."""

import errno
import gc
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import collectives, everywhere
from tiers import up_to

import pencils
from pencils.comm import shared_memory
from pencils.comm.shared_memory import SharedPool
from pencils.comm.topology import private_class

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture(name="comm", scope="module")
def _comm():
    """Return a communicator of the ranks on this node."""
    node = MPI.Intracomm(MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED))
    yield node
    node.Free()


@pytest.fixture
def pool(comm):
    pool = SharedPool(comm)
    yield pool
    gc.collect()
    pool.free()


def test_peers_read_what_a_rank_writes(comm):
    """The blocks of all ranks of the node are visible, each with its own size and content."""
    pen = pencils.Pencil((7, 5), comm, order=(1, 0))
    u = pencils.zeros(pen, shared=True, components=2, halo=1)
    u.fill(comm.rank)
    shared = pen.topology.shared
    places = comm.allgather((shared.find(u.padded), u.padded.nbytes))
    for rank, ((window, start), nbytes) in enumerate(places):
        assert nbytes == 8 * 2 * np.prod(np.add(pen.box(rank).shape, 2))
        memory = shared.memory(rank, window)[start : start + nbytes]
        assert np.unique(np.frombuffer(memory, float)).tolist() == [rank]


def test_all_ranks_view_common_memory(pool, comm):
    """What one rank writes to its part, the other ones read, wherever free memory begins."""
    odd = [pool.allocate(100 * (comm.rank + 1)) for _ in range(3)]
    for nbytes in (8 * comm.size, 8 * comm.size * 300_000):  # the second needs another window
        own, common = pool.allocate_common(nbytes)
        comm.Barrier()
        common.view(np.int64)[comm.rank :: comm.size] = comm.rank
        comm.Barrier()
        assert common.nbytes == nbytes
        assert common.view(np.int64)[: comm.size].tolist() == list(range(comm.size))
        assert pool.find(own)[0] == pool.windows - 1
        comm.Barrier()
    assert len(odd) == 3


def test_all_ranks_view_the_block_of_each(pool, comm):
    blocks = pool.allocate_each(100 * (comm.rank + 1))
    blocks[comm.rank][:] = comm.rank
    comm.Barrier()
    for rank, block in enumerate(blocks):
        assert block.nbytes == 100 * (rank + 1)
        assert (block == rank).all()
    comm.Barrier()


def test_a_place_names_the_same_memory_on_all_ranks(pool, comm):
    """Where a rank says its array begins, its peers find the elements, whatever the strides."""
    keys = [slice(None), slice(3, None), slice(None, None, -1), slice(1, None, 2), slice(1, 2)]
    for size in (5, 300_000):  # the second one needs a window of its own
        array = pool.allocate(8 * (size + comm.rank)).view(float)
        array[...] = np.arange(size + comm.rank) + 1000 * comm.rank
        for key in keys:
            view = array[key]
            places = comm.allgather((pool.find(view), view.shape, view.strides))
            comm.Barrier()
            for rank, ((window, offset), shape, strides) in enumerate(places):
                found = np.ndarray(shape, float, pool.memory(rank, window), offset, strides)
                expected = np.arange(size + rank) + 1000.0 * rank
                assert np.array_equal(found, expected[key])
            comm.Barrier()
    assert pool.windows == 2


def test_what_others_cannot_read_is_not_found(pool):
    """Private memory, and an array that sticks out of the window."""
    block = pool.allocate(1000)
    assert pool.find(np.zeros(5)) is None
    assert pool.find(np.zeros((0, 3))) is None
    assert pool.find(block) is not None
    beyond = np.lib.stride_tricks.as_strided(block, (2,), (2 * shared_memory.FIRST_WINDOW,))
    assert pool.find(beyond) is None
    before = np.lib.stride_tricks.as_strided(block, (2,), (-2 * shared_memory.FIRST_WINDOW,))
    assert pool.find(before) is None


def test_shared_fields_compute_like_private_ones(comm):
    """zeros, ones and full fill shared memory, also memory that was used before."""
    pen = pencils.Pencil((9, 4), comm)
    pencils.full(pen, 7.0, shared=True)
    assert pencils.zeros(pen, shared=True).sum() == 0
    assert pencils.ones(pen, shared=True).sum() == 36
    assert (2 * pencils.full(pen, 1 + 1j, shared=True)).sum() == 72 + 72j


def test_memory_returns_with_the_last_view(pool):
    """A block lives as long as any view of it, then is used again; windows do not multiply."""
    first = pool.allocate(1000)
    address = first.__array_interface__["data"][0]
    tail = first[10:].view(np.int16)[3:]
    place = pool.find(first)
    pool.allocate(3_000_000)
    assert pool.find(first) == place
    del first
    second = pool.allocate(1000)
    assert second.__array_interface__["data"][0] != address
    tail[:] = 1
    del tail
    assert pool.allocate(1000).__array_interface__["data"][0] == address
    for size in range(1, 300):
        pool.allocate(size)
    assert pool.windows == 2


def test_uneven_sizes_and_growth(pool, comm):
    """Ranks may want different sizes; what does not fit opens one more, larger window."""
    blocks = [pool.allocate(comm.rank * 3_000_000 // comm.size) for _ in range(4)]
    for number, block in enumerate(blocks):
        block[:] = number
    assert all((block == number).all() for number, block in enumerate(blocks))
    assert pool.windows <= 4


def test_gaps_merge_when_blocks_return_in_any_order(pool):
    """After everything is given back, the whole window is one gap again."""
    rng = np.random.default_rng(0)
    blocks = [pool.allocate(int(size)) for size in rng.integers(1, 5000, 50)]
    for number in rng.permutation(50):
        blocks[number] = None
    gc.collect()
    assert all(window.idle for window in pool._windows)


@pytest.mark.mpiexec("counts calls of the MPI library")
def test_the_first_memory_takes_four_collectives(comm):
    with collectives() as calls:
        pool = SharedPool(private_class()(comm))
        kept = []
        for expected in (["allreduce", "bcast", "allreduce", "allreduce"], ["Allreduce"]):
            del calls[:]
            kept.append(pool.allocate(10))
            assert everywhere(comm, calls == expected), calls
    del kept
    gc.collect()
    pool.free()


def test_no_room_falls_back_to_private_memory(pool, monkeypatch, comm):
    """Where the node has no shared memory left, all ranks get None and one warns."""
    monkeypatch.setattr(shared_memory, "_has_room", lambda _: False)
    if comm.rank == 0:
        with pytest.warns(RuntimeWarning, match="private memory"):
            block = pool.allocate(10)
    else:
        block = pool.allocate(10)
    assert block is None


def test_pools_that_ask_at_once_leave_room_for_each_other(comm, monkeypatch):
    """Rows of a process grid look for room at the same time, and each counts for all."""
    asked = []
    monkeypatch.setattr(shared_memory, "_has_room", lambda nbytes: asked.append(nbytes) or True)
    alone, several = SharedPool(comm), SharedPool(comm, 3)
    for pool in (alone, several):
        pool.allocate(10_000_000)
        pool.free()
    assert asked == (
        [10_000_000 // 64 * 64 * comm.size * factor for factor in (1, 3)] if comm.rank == 0 else []
    )


def test_a_field_survives_its_communicator(comm):
    """Freeing the communicator keeps the window of a field that is still in use."""
    part = comm.Split(comm.rank % 2, comm.rank)
    u = pencils.ones(pencils.Pencil((4, 4), part), shared=True)
    local = u.local
    part.Free()
    del u
    assert local.sum() == local.size


def mapped():
    """Bytes of shared memory in use by this process, and how many windows and files it has open."""
    gc.collect()
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    maps = Path("/proc/self/maps").read_text().splitlines()
    windows = sum("/pencils-" in line for line in maps)
    return (
        int(status["RssShmem"].split()[0]) * 1024,
        windows,
        len(list(Path("/proc/self/fd").iterdir())),
    )


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
@pytest.mark.mpiexec("measures the memory of one process")
def test_memory_goes_with_the_last_field_of_a_freed_communicator(comm):
    """The field lives longer than its communicator, again and again."""
    comm.Barrier()
    before = None
    for n in range(up_to(200, 50)):
        private = comm.Dup()
        u = pencils.full(pencils.Pencil((6, 5), private), n, shared=True)
        local = u.local
        private.Free()
        assert (u.local == n).all()
        before = before or mapped()
        del u, local
    now = mapped()
    assert now[0] < before[0] + 4 * shared_memory.FIRST_WINDOW
    assert now[1:] < before[1:]


@pytest.fixture
def folder(comm, mpi_tmp_path, monkeypatch):
    """Where files of shared memory are made, which is empty whenever a rank of the node looks."""
    folder = mpi_tmp_path / str(comm.bcast(MPI.COMM_WORLD.rank))
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(shared_memory, "_folder", lambda: str(folder))
    return folder


def test_files_of_shared_memory_have_no_name(pool, folder, comm):
    """So nothing can be left of them, whatever ends the job."""
    for size in (10, 3_000_000):
        block = pool.allocate(size)
        assert block is not None
        assert list(folder.iterdir()) == []
        comm.Barrier()
    assert block.nbytes == size


def refuse(*_args, **_options):
    raise OSError(errno.ENOSPC, "there is no room")


@pytest.mark.parametrize("step", ["statvfs", "truncate", "open", "posix_fallocate"])
@pytest.mark.parametrize("where", [0, -1])
def test_what_fails_on_one_rank_is_no_room_for_all(pool, folder, monkeypatch, step, where):
    """No rank hangs, and no file is left; afterwards there is room."""
    comm = pool._node
    at_fault = comm.rank == where % comm.size
    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if at_fault:
            patch.setattr(os, step, refuse)
        block = pool.allocate(1000)
    by_rank_0 = step in ("statvfs", "truncate")
    assert (block is None) == (not by_rank_0 or where % comm.size == 0)
    assert bool(caught) == (block is None and comm.rank == 0)
    assert list(folder.iterdir()) == []
    comm.Barrier()
    assert pool.allocate(1000) is not None
