"""Streams of blocks arrive complete, in order, and with few blocks in memory."""

import tracemalloc

import numpy as np
import pytest
from mpi_helpers import DTYPES, NODES, everywhere, numbered, same

from pencils.comm import memory
from pencils.comm.shared_memory import SharedPool
from pencils.comm.stream import SLOT_BYTES, SLOTS, SlabRoom, SlabStream, bcast_array
from pencils.comm.topology import topology_of

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture(name="topology")
def _topology(comm):
    return topology_of(comm)


carriers = pytest.mark.parametrize("through_slots", [False, True], ids=["messages", "slots"])


def send_all(topology, slabs, room=None, *, through_slots):
    """Rank 0 sends pairs of a rank and a slab. *Collective*."""
    stream = SlabStream(topology, 0, room, through_slots=through_slots)
    for peer, slab in slabs:
        stream.send(peer, slab)
    stream.finish()


def recv_all(topology, slabs, *, through_slots):
    """Other ranks fill slabs from rank 0. *Collective*."""
    stream = SlabStream(topology, 0, through_slots=through_slots)
    for slab in slabs:
        stream.recv(0, slab)
    stream.finish()


def scatter(topology, slabs, target, *, through_slots):
    """Rank 0 streams ``slabs(rank)`` to every other rank, which fills ``target(slab)``."""
    if topology.rank == 0:
        pairs = ((r, slab) for r in range(1, topology.comm.size) for slab in slabs(r))
        send_all(topology, pairs, through_slots=through_slots)
        return True
    landed = [target(slab) for slab in slabs(topology.rank)]
    recv_all(topology, landed, through_slots=through_slots)
    expected = slabs(topology.rank)
    return all(
        same(np.ascontiguousarray(a), np.ascontiguousarray(b))
        for a, b in zip(landed, expected, strict=True)
    )


@carriers
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_more_slabs_than_fit_in_the_window(comm, topology, dtype, through_slots):
    def slabs(rank):
        return [numbered((n + rank, 3), dtype) for n in range(3 * 4)]

    right = scatter(topology, slabs, np.zeros_like, through_slots=through_slots)
    assert everywhere(comm, right)


@carriers
def test_slabs_of_any_strides(comm, topology, through_slots):
    def slabs(rank):
        data = numbered((5, 6, rank + 2))
        return [
            data.T,
            data[::2],
            data[..., ::-1],
            data[:, :0],
            np.asfortranarray(data),
            data[2, 3, 1],
        ]

    def spaced(slab):
        return np.zeros((*slab.shape, 2), slab.dtype)[..., 0]

    for target in (np.empty_like, spaced):
        assert everywhere(comm, scatter(topology, slabs, target, through_slots=through_slots))


@pytest.mark.parametrize("most", [1, 5, 4096])
def test_slabs_larger_than_one_call_can_move(comm, topology, most, monkeypatch):
    monkeypatch.setattr(memory, "MOST_BYTES", most)

    def slabs(rank):
        return [numbered((rank + 2, 7), "c16"), numbered((3,), "i1")]

    assert everywhere(comm, scatter(topology, slabs, np.zeros_like, through_slots=False))
    data = numbered((4, 5), "c16")
    for root in range(comm.size):
        copy = data.copy() if comm.rank == root else np.zeros_like(data)
        bcast_array(topology.comm, copy, root)
        assert everywhere(comm, same(copy, data))


@carriers
def test_nothing_to_send(topology, through_slots):
    send_all(topology, (), through_slots=through_slots)
    recv_all(topology, (), through_slots=through_slots)
    bcast_array(topology.comm, np.zeros((0, 3)), 0)


@pytest.mark.parametrize("comm", list(NODES), indirect=True)
@pytest.mark.parametrize("root", ["first", "last"])
def test_several_nodes_and_both_directions(comm, topology, root):
    """Slots between ranks of one node, and messages between nodes, in one stream."""
    root = 0 if root == "first" else comm.size - 1
    slabs = [[numbered((r + 2, n + 1, 4)) * (r + 1) for n in range(11)] for r in range(comm.size)]
    found = [[np.zeros((*slab.shape, 2))[..., 0] for slab in each] for each in slabs]
    for forth in (True, False, True):
        stream = SlabStream(topology, root, through_slots=True)
        move = stream.send if forth == (comm.rank == root) else stream.recv
        others = [r for r in range(comm.size) if r != root] if comm.rank == root else [comm.rank]
        arrays = slabs if move == stream.send else found
        for n in range(11):
            for r in others:
                move(r if comm.rank == root else root, arrays[r][n])
        stream.finish()
        got = move == stream.send or all(
            same(np.ascontiguousarray(a), b)
            for r in others
            for a, b in zip(found[r], slabs[r], strict=True)
        )
        assert everywhere(comm, got)


def test_no_shared_memory(comm, monkeypatch):
    """One rank gets none: all send messages."""
    private = comm.Dup()
    topology = topology_of(private)
    monkeypatch.setattr(SharedPool, "allocate", lambda *_: None)

    def slabs(rank):
        return [numbered((4, rank + 1)).T for _ in range(7)]

    assert everywhere(comm, scatter(topology, slabs, np.empty_like, through_slots=True))
    private.Free()


def test_shared_memory_is_allocated_once(comm, monkeypatch):
    private = comm.Dup()
    topology = topology_of(private)
    sizes = []
    original = SharedPool.allocate

    def spy(pool, nbytes):
        sizes.append(nbytes)
        return original(pool, nbytes)

    monkeypatch.setattr(SharedPool, "allocate", spy)
    for _ in range(3):
        SlabStream(topology, 0, through_slots=True).finish()
    assert everywhere(comm, sizes == [SLOTS * SLOT_BYTES])
    private.Free()


@pytest.mark.mpiexec("measures the memory of one process")
@carriers
def test_the_sender_holds_a_window_of_slabs_at_most(comm, topology, through_slots):
    """Fresh slabs of 1 MiB, forty in all; only those under way may be alive."""
    nbytes = 2**20
    count = 40
    others = range(1, comm.size)
    tracemalloc.start()
    if comm.rank == 0:
        slabs = ((r, np.full(nbytes, r, np.uint8)) for _ in range(count) for r in others)
        send_all(topology, slabs, SlabRoom(0, 1), through_slots=through_slots)
        peak = tracemalloc.get_traced_memory()[1]
        right = True
    else:
        target = np.zeros((count, nbytes), np.uint8)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        recv_all(topology, target, through_slots=through_slots)
        peak = tracemalloc.get_traced_memory()[1] - before
        right = bool((target == comm.rank).all())
    tracemalloc.stop()
    assert everywhere(comm, right)
    assert everywhere(comm, peak < 8 * nbytes)
