"""Making many of everything exhausts neither MPI nor memory."""

import gc
import tracemalloc

import numpy as np
import pytest
from mpi4py import MPI
from together import everywhere, holds, numbered, spread

from pencils import (
    Pencil,
    PencilArray,
    Transposition,
    gather,
    localgrid,
    partition,
    transpose,
    zeros,
)

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (6, 5, 4)


def communicators_left(comm):
    """Tell whether MPI still makes communicators: when ids leak, it runs out of them soon."""
    made = [comm.Dup() for _ in range(5)]
    for each in made:
        each.Free()
    return True


def test_ten_thousand_pencils_and_arrays(comm):
    pen = Pencil(SHAPE, comm)
    topology = pen.topology
    before = topology.communicators
    for n in range(1_250):
        pencil = pen.with_(decomp=(n % 3, (n + 1) % 3)) if n % 2 else Pencil(SHAPE, comm)
        assert pencil.topology is topology
        for _ in range(8):
            u = zeros(pencil, halo=n % 2)
        u += 1
    # The other 8,750 pencils are of one process each: they differ, and cost no communication.
    alone = Pencil(SHAPE, MPI.COMM_SELF)
    for n in range(8_750):
        pencil = alone.with_(order=(0, 2, 1) if n % 2 else (0, 1, 2), periodic=bool(n % 3))
    assert pencil.topology is alone.topology
    assert topology.communicators == before
    assert communicators_left(comm)


def test_a_thousand_plans(comm):
    source = Pencil(SHAPE, comm, decomp=(0, 1))
    target = source.with_(decomp=(1, 2))
    before = source.topology.communicators
    u = spread(source, numbered(SHAPE))
    for n in range(500):
        with Transposition(source, target, method="alltoallv" if n % 2 else "messages") as plan:
            v = plan(u)
    assert everywhere(comm, holds(v, numbered(SHAPE)))
    for n in range(500):  # kept by transpose, thrown out and made again
        v = transpose(u, target.with_(order=(n % 3, (n + 1) % 3, (n + 2) % 3)))
    assert everywhere(comm, holds(v, numbered(SHAPE)))
    assert len(source.topology.plans) <= 8
    assert source.topology.communicators == before
    assert communicators_left(comm)


def test_memory_does_not_grow(comm):
    """A loop over everything that moves data leaves as much memory in use as it found."""
    pen = Pencil(SHAPE, comm)
    data = numbered(SHAPE)
    axes = [np.arange(extent) for extent in SHAPE]

    def work():
        u = partition(pen, data if comm.rank == 0 else None, root=0)
        v = transpose(u + localgrid(pen, axes).x, pen.with_(decomp=(2, 1)))
        with Transposition(pen, v.pencil) as plan:
            w = plan(u)
        handle = Transposition(pen, v.pencil).start(u)  # neither waited for by name nor freed
        handle.wait()
        return gather(w, None, key=np.s_[::2]), PencilArray(pen, u.local)

    for _ in range(10):
        work()
    gc.collect()
    tracemalloc.start()
    for _ in range(10):
        work()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(30):
        work()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert everywhere(comm, grown < 30_000), comm.allgather(grown)


def test_a_large_array_is_gone_when_nobody_holds_it(comm):
    pen = Pencil((64, 64, 64), comm)
    tracemalloc.start()
    u = zeros(pen)
    nbytes = u.local.nbytes
    held = tracemalloc.get_traced_memory()[0]
    del u
    left = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert everywhere(comm, held - left > nbytes - 1000)
