"""partition: global data become fields, as views, as copies, or streamed from one rank."""

import tracemalloc
from functools import partial
from math import prod
from unittest.mock import ANY

import h5py
import numpy as np
import pytest
from failing_memory import memory
from mpi_helpers import (
    DTYPES,
    NODES,
    all_raise,
    collectives,
    everywhere,
    holds,
    named,
    numbered,
    on_nodes,
    one_is_wrong,
    random_pencil,
    ranks_at_fault,
    same,
)

from pencils import Pencil, empty, gather, partition, transpose
from pencils.comm import agree, stream
from pencils.comm.memory import LINE, address, aligned_empty
from pencils.distribute import slabs
from pencils.errors import ArgumentError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)

both_modes = pytest.mark.parametrize("mode", ["view", "root"])


def distribute(mode, pen, data, **kwargs):
    """Partition replicated data, or the same data from the last rank."""
    if mode == "view":
        return partition(pen, data, **kwargs)
    return rooted(pen, data, pen.size - 1, **kwargs)


def rooted(pen, data, root=0, **kwargs):
    """Partition data that only root has."""
    return partition(pen, data if pen.rank == root else None, root=root, **kwargs)


def gathers(u, expected, root=0, **kwargs):
    """Whether root, or everyone, gets what is expected."""
    found = gather(u, root, **kwargs)
    return found is None if root not in (None, u.pencil.rank) else same(found, expected)


class Counted:
    """An array-like that counts the elements read, and may break after some reads."""

    def __init__(self, data, breaks_at=None, error=OSError):
        self._data = data
        self.shape, self.dtype = data.shape, data.dtype
        self.read = 0
        self.reads = 0
        self._breaks_at, self._error = breaks_at, error

    def __getitem__(self, key):
        if self.reads == self._breaks_at:
            msg = "the disk is gone"
            raise self._error(msg)
        self.reads += 1
        part = self._data[key]
        self.read += part.size
        return part


def test_the_example_with_root(comm):
    """The argument is ignored on the other ranks, where it can be None or anything else."""
    pen = Pencil((65, 17, 21), comm)
    data = np.random.default_rng(0).random((65, 17, 21))
    wrong = [None, data + 1, data[:2], data.astype(object), "text", [[1], [1, 2]], empty(pen), 3j]
    for root in ranks_at_fault(comm):
        for turn, other in enumerate(wrong):
            mine = data if comm.rank == root else wrong[(turn + comm.rank) % len(wrong)]
            assert everywhere(comm, holds(partition(pen, mine, root), data))  # third, as there
            mine = data if comm.rank == root else other
            assert everywhere(comm, holds(partition(pen, mine, root=root, halo=1), data))


@pytest.mark.parallel([2, 3, 4, 6])
def test_data_everywhere_do_not_hide_different_roots(comm):
    pen = Pencil(SHAPE, comm)
    for kept in (False, True):
        if kept:
            partition(pen, numbered(SHAPE), 0)
            partition(pen, numbered(SHAPE), 1)
        call = partial(partition, pen, numbered(SHAPE), int(comm.rank == comm.size - 1))
        all_raise(comm, RankDisagreementError, "disagree on root", call)


# What comes out.


@both_modes
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element_type(comm, mode, dtype):
    data = numbered(SHAPE, dtype)
    u = distribute(mode, Pencil(SHAPE, comm), data)
    assert u.dtype == dtype
    assert everywhere(comm, holds(u, data))


@both_modes
@pytest.mark.parametrize("halo", [0, 2, ((1, 0), (0, 3), (2, 2))])
def test_any_pencil_with_and_without_halo(comm, mode, halo):
    rng = np.random.default_rng(2)
    for _ in range(6):
        shape = rng.integers(0, 7, 3).tolist()
        pen = random_pencil(rng, comm, shape)
        data = numbered((2, *shape))
        u = distribute(mode, pen, data, halo=halo)
        assert u.components == (2,)
        assert everywhere(comm, holds(u, data))
        ghosts = u.padded.sum() - u.local.sum()
        assert everywhere(comm, ghosts == 0)
        copied = mode == "root" or halo != 0
        memory = u.padded.transpose(0, *(1 + dim for dim in pen.order))
        assert everywhere(comm, memory.flags.c_contiguous or not copied)


@both_modes
@pytest.mark.parametrize(
    ("shape", "dims", "full"),
    [
        ((7, 6, 5), None, (7, 6, 5)),
        ((7, 1, 5), None, (7, 1, 5)),
        ((1, 1, 1), None, (1, 1, 1)),
        ((7, 6, 5), (0, 1, 2), (7, 6, 5)),
        ((5, 7, 6), (2, 0, 1), (7, 6, 5)),
        ((7, 5), (0, 2), (7, 1, 5)),
        ((5, 7), (2, 0), (7, 1, 5)),
        ((5, 7), (-1, -3), (7, 1, 5)),
        ((6,), 1, (1, 6, 1)),
        ((6,), (1,), (1, 6, 1)),
        ((1, 5), (0, 2), (1, 1, 5)),
        ((), (), (1, 1, 1)),
        ((2, 3), (), (2, 3, 1, 1, 1)),
        ((2, 3, 5), 2, (2, 3, 1, 1, 5)),
        ((4, 5, 7), (2, 0), (4, 7, 1, 5)),
        ((0, 7, 6, 5), None, (0, 7, 6, 5)),
    ],
)
def test_data_of_fewer_dimensions(comm, mode, shape, dims, full):
    pen = Pencil(SHAPE, comm, decomp=(2, 0))
    data = numbered(shape)
    axes = range(3) if dims is None else np.atleast_1d(np.array(dims, int)) % 3
    lead = len(full) - 3
    rising = (*range(lead), *(lead + np.argsort(axes)))
    u = distribute(mode, pen, data, dims=dims)
    assert u.shape == full
    assert everywhere(comm, holds(u, data.transpose(rising).reshape(full)))
    if mode == "view":
        assert everywhere(comm, u.local.size == 0 or np.shares_memory(u.local, data))


@both_modes
@pytest.mark.parametrize(("shape", "dims"), [((7,), (0,)), ((7, 1, 5), None), ((), ())])
def test_the_halo_of_a_full_field_is_that_of_one_with_singletons(comm, mode, shape, dims):
    pen = Pencil(SHAPE, comm)
    full = empty(pen, halo=((1, 2), (0, 1), (2, 2)))
    u = distribute(mode, pen, numbered(shape), dims=dims, halo=full.halo)
    widths = [(0, 0) if dim in u.singletons else full.halo[dim] for dim in range(3)]
    assert u.halo == tuple(widths)
    assert everywhere(comm, holds(u, numbered(shape).reshape(u.shape)))


@both_modes
def test_arrays_of_any_strides(comm, mode):
    pen = Pencil(SHAPE, comm, order=(2, 0, 1))
    data = numbered(SHAPE)
    for source in (
        np.asfortranarray(data),
        data[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1],
        np.repeat(data, 3, axis=1)[:, ::3],
        np.broadcast_to(data[:1], SHAPE),
        np.ma.masked_array(data),
    ):
        u = distribute(mode, pen, source)
        assert everywhere(comm, holds(u, np.asarray(source)))


@both_modes
def test_lists_and_scalars(comm, mode):
    pen = Pencil((2, 3), comm)
    u = distribute(mode, pen, [[1, 2, 3], [4, 5, 6]])
    assert everywhere(comm, holds(u, np.array([[1, 2, 3], [4, 5, 6]])))
    assert everywhere(comm, holds(distribute(mode, pen, 2.5, dims=()), np.full((1, 1), 2.5)))


# Views.


def test_a_view_writes_to_the_data_and_sees_what_is_written(comm):
    pen = Pencil(SHAPE, comm)
    data = numbered(SHAPE)
    u = partition(pen, data)
    assert everywhere(comm, u.local.size == 0 or np.shares_memory(u.local, data))
    u.local[...] = -1
    expected = numbered(SHAPE)
    expected[pen.local_slices] = -1
    assert everywhere(comm, np.array_equal(data, expected))
    data[...] = 7
    assert everywhere(comm, (u.local == 7).all())


def test_a_copy_does_not(comm):
    pen = Pencil(SHAPE, comm, order=(1, 2, 0))
    for kwargs in ({"copy": True}, {"halo": 1}, {"copy": True, "halo": 1}):
        data = numbered(SHAPE)
        u = partition(pen, data, **kwargs)
        u.local[...] = -1
        assert everywhere(comm, np.array_equal(data, numbered(SHAPE)))
        assert not np.shares_memory(u.padded, data)


def test_root_keeps_its_own_data(comm):
    data = numbered(SHAPE)
    u = distribute("root", Pencil(SHAPE, comm), data)
    u.local[...] = -1
    assert everywhere(comm, np.array_equal(data, numbered(SHAPE)))


# Array-likes.


@pytest.mark.parametrize("dims", [None, (0, 2)])
def test_a_view_reads_only_the_own_block(comm, dims):
    pen = Pencil(SHAPE, comm)
    data = Counted(numbered(SHAPE if dims is None else (7, 5)))
    u = partition(pen, data, dims=dims)
    assert everywhere(comm, data.read == u.local.size)


def test_root_reads_each_point_once_for_everyone_who_needs_it(comm, monkeypatch):
    monkeypatch.setattr(stream, "SLAB_BYTES", 100)
    pen = Pencil(SHAPE, comm)
    data = Counted(numbered(SHAPE))
    assert everywhere(comm, holds(rooted(pen, data), numbered(SHAPE)))
    assert everywhere(comm, data.read == (numbered(SHAPE).size if comm.rank == 0 else 0))


@both_modes
def test_files(comm, mode, mpi_tmp_path):
    data = numbered(SHAPE, "f4")
    if comm.rank == 0:
        np.save(mpi_tmp_path / "data.npy", data)
        with h5py.File(mpi_tmp_path / "data.h5", "w") as file:
            file.create_dataset("u", data=data, chunks=(2, 3, 4), compression="gzip")
    comm.barrier()
    pen = Pencil(SHAPE, comm, decomp=(1, 2))
    mapped = np.load(mpi_tmp_path / "data.npy", mmap_mode="r")
    assert everywhere(comm, holds(distribute(mode, pen, mapped), data))
    with h5py.File(mpi_tmp_path / "data.h5") as file:
        assert everywhere(comm, holds(distribute(mode, pen, file["u"]), data))
        assert everywhere(comm, holds(distribute(mode, pen, file["u"], halo=1), data))


def test_a_view_of_a_memmap_writes_to_the_file(comm, mpi_tmp_path):
    path = mpi_tmp_path / "data.npy"
    if comm.rank == 0:
        np.save(path, np.zeros(SHAPE))
    comm.barrier()
    mapped = np.load(path, mmap_mode="r+")
    u = partition(Pencil(SHAPE, comm), mapped)
    u.local[...] = numbered(SHAPE)[u.local_slices]
    mapped.flush()
    comm.barrier()
    assert everywhere(comm, np.array_equal(np.load(path), numbered(SHAPE)))


@both_modes
def test_zarr(comm, mode, mpi_tmp_path):
    zarr = pytest.importorskip("zarr")
    data = numbered(SHAPE)
    if comm.rank == 0:
        zarr.save_array(str(mpi_tmp_path / "data.zarr"), data)
    comm.barrier()
    source = zarr.open_array(str(mpi_tmp_path / "data.zarr"), mode="r")
    assert everywhere(comm, holds(distribute(mode, Pencil(SHAPE, comm), source), data))


# Scattering.


@pytest.mark.parametrize("block_bytes", [1, 50, 333, 2**24])
def test_every_root_and_any_size_of_blocks(comm, block_bytes, monkeypatch):
    monkeypatch.setattr(stream, "SLAB_BYTES", block_bytes)
    shape = (3, 4, 5)
    data = numbered((2, *shape), "i2")
    pen = Pencil(shape, comm, order=(1, 0, 2))
    for root in range(comm.size):
        assert everywhere(comm, holds(rooted(pen, data, root, halo=1), data))


@pytest.mark.parallel([2, 3, 4, 6])
def test_two_collectives(comm, monkeypatch):
    """Root describes its data in the agreement; the second one is on memory.

    It is left out where data are like those of the last call, for which all ranks have memory.
    There is another one if reading may fail, and a broadcast if the description is long, or there
    are many ranks.
    """
    for most in (agree.MOST_GATHERED, 1):
        monkeypatch.setattr(agree, "MOST_GATHERED", most)
        usual, more = ("Allgather", []) if most > 1 else ("Allreduce", ["bcast"])
        memory = [*more, usual]
        private = comm.Dup()
        with collectives() as calls:
            pen = Pencil(SHAPE, private)
            data, point = numbered(SHAPE), np.dtype([("a", "f8"), ("b", "i4")])
            for given, told, last in (
                (data, memory, []),
                (data, more and memory, []),
                (data[:, :1].astype("f4"), memory, []),
                (Counted(data), memory, [usual]),
                (Counted(data), more and memory, [usual]),
                (numbered(SHAPE, point), ["bcast", usual], []),
                (np.zeros((*range(2, 16), 0, *SHAPE)), ["bcast", usual], []),
                (Counted(data), more and memory, [usual]),
                (data, memory, []),
            ):
                calls.clear()
                u = rooted(pen, given)
                assert everywhere(comm, calls == [usual, *told, *last])
                if not isinstance(given, Counted):
                    assert everywhere(comm, holds(u, given))
        private.Free()


def test_what_is_kept_belongs_to_one_kind_of_data(comm):
    """One rank has lost what it kept: ranks may differ in this."""
    rng = np.random.default_rng(6)
    pen = Pencil(SHAPE, comm, order=(2, 0, 1))
    for turn in range(24):
        if turn % comm.size == comm.rank:
            pen.kept.clear()
        lead = [(), (2,), (3,)][rng.integers(3)]
        data = numbered((*lead, *SHAPE), ["f8", "f4", ">i2"][rng.integers(3)]) * (turn % 5 + 1)
        data = data[..., :1] if rng.integers(4) == 0 else data
        data = np.asfortranarray(data) if rng.integers(3) == 0 else data
        root, halo = int(rng.integers(comm.size)), int(rng.integers(2))
        given = Counted(data) if rng.integers(4) == 0 else data
        u = rooted(pen, given, root, halo=halo)
        assert u.dtype == data.dtype
        root = [None, 0, comm.size - 1][rng.integers(3)]
        key = [..., np.s_[..., ::-2]][rng.integers(2)]
        assert everywhere(comm, holds(u, data) and gathers(u, data[key], root, key=key))


@pytest.mark.parametrize("nodes", list(NODES))
@pytest.mark.parametrize("kind", ["array", "strided", "lazy"])
def test_through_shared_memory(nodes, kind, monkeypatch):
    comm = on_nodes(nodes)
    monkeypatch.setattr(slabs, "MUCH", 0)
    rng = np.random.default_rng(5)
    for slab_bytes in (40, 300, 2**24):
        monkeypatch.setattr(stream, "SLAB_BYTES", slab_bytes)
        for long_run in (0, 50, 2**20):
            monkeypatch.setattr(slabs, "LONG_RUN", long_run)
            shape = rng.integers(0, 6, rng.integers(1, 5)).tolist()
            pen = random_pencil(rng, comm, shape)
            data = numbered((2, *shape), "f4")
            root = int(rng.integers(comm.size))
            given = {"array": data, "strided": np.asfortranarray(data), "lazy": Counted(data)}
            u = rooted(pen, given[kind], root, halo=int(rng.integers(2)))
            assert everywhere(comm, holds(u, data))
            assert everywhere(comm, gathers(u, data, root))
            key = (slice(None, None, -1), slice(1, None, 2))[: data.ndim]
            assert everywhere(comm, gathers(u, data[key], root, key=key))


def test_several_long_runs_of_each_rank(comm):
    """Those that are on their way arrive in different places."""
    data = numbered((8, 32 * comm.size, 1024))
    u = rooted(Pencil(data.shape, comm, decomp=1), data, halo=1)
    assert everywhere(comm, holds(u, data) and gathers(u, data))


@pytest.mark.parametrize("shape", [(1, 2), (0, 3), (1, 1), (0, 0)])
def test_more_processes_than_points(comm, shape):
    for mode in ("view", "root"):
        data = numbered(shape)
        u = distribute(mode, Pencil(shape, comm, decomp=(0, 1)), data)
        assert everywhere(comm, holds(u, data) and gathers(u, data))
        assert everywhere(comm, gathers(u, data[::-1], comm.size - 1, key=np.s_[::-1]))


@pytest.mark.mpiexec("measures the memory of one process")
def test_root_holds_a_few_blocks_beyond_the_source_and_its_own_part(comm, monkeypatch):
    block = 2**20
    monkeypatch.setattr(stream, "SLAB_BYTES", block)
    shape = (128, 128, 256)  # 32 MiB
    pen = Pencil(shape, comm, decomp=(1, 2))
    source = np.asfortranarray(numbered(shape)) if comm.rank == 0 else None
    comm.barrier()
    tracemalloc.start()
    u = partition(pen, source, root=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert everywhere(comm, peak < u.local.nbytes + 8 * block)
    assert everywhere(comm, holds(u, numbered(shape)))


@pytest.mark.parametrize("reads", [0, 1, 5])
@pytest.mark.parametrize("error", [OSError, KeyError, MemoryError])
def test_a_source_that_breaks_midway_raises_on_all_ranks(comm, reads, error, monkeypatch):
    monkeypatch.setattr(stream, "SLAB_BYTES", 40)
    pen = Pencil(SHAPE, comm)
    for root in ranks_at_fault(comm):
        call = partial(rooted, pen, Counted(numbered(SHAPE), reads, error), root)
        all_raise(comm, error, (named(comm, root)[:-1], "the disk is gone"), call)
        assert everywhere(comm, holds(distribute("root", pen, numbered(SHAPE)), numbered(SHAPE)))


class Lying:
    """Announces 16-bit integers of some shape and gives what its subclass says."""

    shape = SHAPE
    dtype = np.dtype("i2")

    def __init__(self, convert):
        self._convert = convert

    def __getitem__(self, key):
        return self._convert(numbered(SHAPE, "i2")[key])


@both_modes
@pytest.mark.parametrize(
    "convert",
    [lambda part: part * 0.5, lambda part: part[None], lambda part: part.ravel()],
    ids=["scaled", "axis", "flat"],
)
def test_a_source_that_gives_something_else_than_announced(comm, mode, convert):
    """As netCDF variables with a scale factor do."""
    pen = Pencil(SHAPE, comm)
    call = partial(distribute, mode, pen, Lying(convert))
    all_raise(comm, ArgumentError, ("announce int16", "NumPy array"), call)


# Mistakes.


@pytest.mark.parametrize(
    ("data", "dims", "kind", "text"),
    [
        (np.ones((7, 6, 4)), None, ArgumentError, "dimension 2 must have extent 5"),
        (np.ones((7, 2, 5)), None, ArgumentError, "or 1 for a singleton, not 2"),
        (np.ones((7, 6)), None, ArgumentError, "dims="),
        (np.ones(7), (0, 1), ArgumentError, "too few axes"),
        (np.ones((7, 5)), (0, 1), ArgumentError, "dimension 1"),
        (np.array([[[None] * 5] * 6] * 7), None, TypeError, "object"),
        (None, None, TypeError, "None"),
        ("text", None, ArgumentError, "too few axes"),
        ([[1, 2], [3]], None, ValueError, ""),
    ],
)
def test_wrong_data(comm, data, dims, kind, text):
    pen = Pencil(SHAPE, comm)
    all_raise(comm, kind, text, partition, pen, data, dims=dims)
    for root in ranks_at_fault(comm):
        all_raise(comm, kind, (named(comm, root), text), rooted, pen, data, root, dims=dims)
        u = distribute("root", pen, numbered(SHAPE))
        assert everywhere(comm, holds(u, numbered(SHAPE)))


def test_data_where_none_belong(comm):
    pen = Pencil(SHAPE, comm)
    field = empty(pen)
    all_raise(comm, TypeError, "transpose", partition, pen, field)
    all_raise(comm, TypeError, "Pencil", partition, field, np.ones(SHAPE))
    all_raise(comm, TypeError, "Pencil", partition, SHAPE, None, root=0)


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        ({"root": 99}, ArgumentError, "root=99 is not one of the ranks"),
        ({"root": -1}, ArgumentError, "root=-1"),
        ({"root": "first"}, TypeError, "root"),
        ({"root": (0, 0)}, ArgumentError, "root"),
        ({"root": 0, "dims": (0, 0)}, ArgumentError, "twice"),
        ({"root": 0, "dims": 7}, ArgumentError, "dims"),
        ({"root": 0, "dims": "x"}, TypeError, "dims"),
        ({"root": 0, "halo": -1}, ArgumentError, "halo"),
        ({"root": 0, "halo": (1, 1)}, ArgumentError, "halo"),
        ({"root": 0, "halo": 0.5}, TypeError, "halo"),
    ],
)
def test_a_mistake_on_one_rank_raises_on_all(comm, wrong, kind, text):
    pen = Pencil(SHAPE, comm)
    data = numbered(SHAPE) if comm.rank == 0 else None

    def works():
        assert everywhere(comm, holds(partition(pen, data, root=0), numbered(SHAPE)))

    call = lambda kwargs: partition(pen, data, **kwargs)  # noqa: E731
    one_is_wrong(comm, kind, text, call=call, bad=wrong, good={"root": 0}, after=works)


@pytest.mark.parallel([2, 3, 4, 6])
def test_different_arguments_on_one_rank_are_named(comm):
    pen = Pencil(SHAPE, comm)
    others = [pen.with_(order=(2, 1, 0)), pen.with_(splits="last"), pen.with_(decomp=2)]
    data = numbered(SHAPE)
    mine = data if comm.rank == 0 else None
    good = {"pencil": pen, "data": mine, "root": 0, "halo": 2}
    wrong = [("root", 1), ("dims", (2, 1, 0)), ("halo", 1), *(("pencil", each) for each in others)]
    for rank in ranks_at_fault(comm):
        for name, value in wrong:
            kwargs = good | ({name: value} if comm.rank == rank else {})
            all_raise(comm, RankDisagreementError, f"disagree on {name}", partition, **kwargs)
    u = distribute("root", pen, data)
    assert everywhere(comm, holds(u, data))


def test_equal_arguments_may_look_different(comm):
    pen = Pencil(SHAPE, comm)
    odd = comm.rank % 2
    u = partition(
        pen,
        numbered((5, 7)) if comm.rank == 0 else None,
        root=np.int64(0) if odd else 0,
        dims=[2, 0] if odd else np.array([-1, -3]),
        halo=(1, 0, (0, 1)) if odd else ((1, 1), (0, 0), (0, 1)),
    )
    assert everywhere(comm, holds(u, numbered((5, 7)).T[:, None]))


def test_no_room_on_one_rank(comm):
    shape = (comm.size, 32, 32)  # blocks that are large enough to fail
    pen, data = Pencil(shape, comm, decomp=0), numbered(shape)
    for _ in range(2):
        for root in (0, comm.size - 1):
            call = partial(rooted, pen, data, root)
            with memory.watched(fails=ANY if comm.rank == comm.size - 1 else None):
                all_raise(comm, MemoryError, named(comm, comm.size - 1), call)
            u = call()
            assert everywhere(comm, holds(u, data))
            assert same(transpose(u, pen).local, u.local)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("halo", [0, 1])
@pytest.mark.parametrize("offset", [0, 8, 20, 48, 3])
def test_large_blocks_begin_in_a_cache_line_as_on_root(comm, order, halo, offset):
    pen = Pencil((2 * comm.size + 1, 256, 256), comm, decomp=0, order=order)
    memory = aligned_empty(8 * prod(pen.shape) + LINE)
    data = memory[offset : offset + 8 * prod(pen.shape)].view(np.float64).reshape(pen.shape)
    data[...] = numbered(pen.shape)
    u = distribute("root", pen, data, halo=halo)
    assert everywhere(comm, same(u.local, data[pen.local_slices]))
    assert everywhere(comm, u.local.flags.aligned)
    if offset and not halo and data.flags.aligned:
        assert everywhere(comm, address(u.local) % LINE == offset)


def test_masked_elements_are_not_unmasked(comm):
    """A mask that hides nothing is dropped; one that hides something raises."""
    pen = Pencil(SHAPE, comm)
    data = np.ma.masked_array(numbered(SHAPE), mask=False)
    assert everywhere(comm, same(partition(pen, data).local, numbered(SHAPE)[pen.local_slices]))
    data[...] = np.ma.masked
    all_raise(comm, TypeError, "masked", rooted, pen, data)
