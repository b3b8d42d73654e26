"""Making many of everything exhausts neither MPI nor memory."""

import contextlib
import gc
import sys
import tracemalloc

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import METHODS, everywhere, holds, numbered, spread
from tiers import up_to

from pencils import (
    Pencil,
    PencilArray,
    Transposition,
    alias,
    gather,
    localgrid,
    memory,
    partition,
    transpose,
    zeros,
)
from pencils.comm.methods import pull
from pencils.plans import MOST_PLANS, kept_plans

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (6, 5, 4)


def communicators_left():
    """Count the communicators that MPI still makes on this rank: MPICH about two thousand."""
    made = []
    with contextlib.suppress(MPI.Exception):
        while len(made) < 4000:
            made.append(MPI.COMM_SELF.Dup())
    for each in made:
        each.Free()
    return len(made)


def test_ten_thousand_pencils_and_arrays(comm):
    pen = Pencil(SHAPE, comm)
    topology = pen.topology
    alone = Pencil(SHAPE, MPI.COMM_SELF)
    assert alone.topology is not topology
    before, left = topology.communicators, communicators_left()
    for n in range(up_to(1_250, 150)):
        pencil = pen.with_(decomp=(n % 3, (n + 1) % 3)) if n % 2 else Pencil(SHAPE, comm)
        assert pencil.topology is topology
        for _ in range(8):
            u = zeros(pencil, halo=n % 2)
        u += 1
    # The other pencils are of one process each: they differ, and cost no communication.
    for n in range(up_to(8_750, 500)):
        pencil = alone.with_(order=(0, 2, 1) if n % 2 else (0, 1, 2), periodic=bool(n % 3))
    assert pencil.topology is alone.topology
    assert topology.communicators == before
    assert everywhere(comm, communicators_left() == left)


def windows_of(comm):
    """Count the windows of shared memory, and tell whether plans have anything in them."""
    gc.collect()
    topology = Pencil(SHAPE, comm).topology
    pools = [topology.shared, *(pool for _, pool in topology.groups.values())]
    for pool in pools:
        pool._slots.clear()  # what was allocated for the next plans
    staged = pull._staging(topology)._blocks  # of the communicator, for all its plans
    windows = [window for pool in pools for window in pool._windows]
    used = 0
    for window in windows:
        window._merge_released()
        used += window._whole[0][1] - sum(length for _, length in window._gaps)
    return len(windows), used == (
        pull.TURNS * pull.RANKS_STAGED * pull.MOST_STAGED if staged else 0
    )


def blocks_of_types():
    """Count the blocks of datatypes that exist, as handles of MPICH tell."""
    if "MPICH" not in MPI.Get_library_version():
        return 0
    made = [MPI.BYTE.Create_vector(3, 1, n).Commit() for n in range(2, 12)]
    handles = [MPI._handleof(each) for each in made]
    for each in made:
        each.Free()
    return max(handle >> 12 & 0x3FFF for handle in handles)


def test_ten_thousand_plans(comm):
    """Of all methods and options, used and not used, freed and forgotten."""
    private = comm.Dup()
    source = Pencil(SHAPE, private, decomp=(0, 1))
    target = source.with_(decomp=(1, 2))
    topology = source.topology
    values = numbered(SHAPE)
    u = spread(source, values)
    v = zeros(target)
    methods = [*METHODS, "auto"]
    held = None
    for n in range(up_to(350, 120)):
        method, way = methods[n % len(methods)], n // len(methods) % 5
        plan = Transposition(
            source, target, method=method, max_buffer_bytes=500 if way == 1 else None
        )
        if way == 0:
            plan(u, v)
        elif way == 1:
            plan.reversed().free()
        elif way == 2:
            plan.start(u, v).wait()
        elif way == 3:
            plan.batch([u, u])
            assert plan.buffers()[0].pencil is source
            plan(*alias([source, target], shared=True))
        if way != 4:
            plan.free()
        del plan
        if n == 90:
            held = topology.communicators, windows_of(private)
            left, types = communicators_left(), blocks_of_types()
    assert everywhere(comm, holds(v, values))
    assert (topology.communicators, windows_of(private)) == held
    assert everywhere(comm, communicators_left() == left)
    assert held[1][1]
    # The others are of one process each, and cost no communication.
    alone = Pencil(SHAPE, MPI.COMM_SELF, decomp=(0, 1))
    turned = alone.with_(decomp=(1, 2), order=(2, 0, 1))
    w = spread(alone, values)
    Transposition(alone, turned, method="shared").free()
    before = alone.topology.communicators, windows_of(MPI.COMM_SELF)[0]
    for n in range(up_to(9_650, 400)):
        with Transposition(alone, turned, method=methods[n % len(methods)]) as plan:
            x = plan(w) if n % 3 == 0 else None
        if x is not None:
            assert holds(x, values)
    assert alone.topology.communicators == before[0]
    assert windows_of(MPI.COMM_SELF)[0] <= before[1] + 1
    assert everywhere(comm, blocks_of_types() <= types + 1)
    private.Free()


def test_plans_of_transpose_come_and_go(comm):
    source = Pencil(SHAPE, comm, decomp=(0, 1))
    target = source.with_(decomp=(1, 2))
    u = spread(source, numbered(SHAPE))
    before = None
    for n in range(up_to(150, 70)):  # kept by transpose, thrown out and made again
        v = transpose(u, target.with_(order=(n % 3, (n + 1) % 3, (n + 2) % 3), splits="floor"))
        components = zeros(source, components=n % 40)
        transpose(components, target)
        if n == 50:
            before = source.topology.communicators, source.topology.shared.windows
            left = communicators_left()
    assert everywhere(comm, holds(v, numbered(SHAPE)))
    assert len(kept_plans(source.topology)) <= MOST_PLANS
    assert (source.topology.communicators, source.topology.shared.windows) == before
    assert everywhere(comm, communicators_left() == left)


@pytest.mark.mpiexec("measures the memory of one process")
def test_memory_does_not_grow(comm, monkeypatch):
    """A loop over everything that moves data leaves as much memory in use as it found."""
    # So many places of blocks are remembered, among others.
    monkeypatch.setattr(sys.modules["pencils.pencil"], "_MOST_KEPT", 4)
    pen = Pencil(SHAPE, comm)
    data = numbered(SHAPE)
    axes = [np.arange(extent) for extent in SHAPE]

    methods = [*METHODS, "auto"]

    def work(turn):
        u = partition(pen, data if comm.rank == 0 else None, root=0)
        v = transpose(u + localgrid(pen, axes).x, pen.with_(decomp=(2, 1)))
        with Transposition(pen, v.pencil) as plan:
            w = plan(u)
        handle = Transposition(pen, v.pencil).start(u)  # neither waited for by name nor freed
        handle.wait()
        with Transposition(pen, v.pencil, method=methods[turn % len(methods)]) as plan:
            plan.batch([u, *plan.buffers()[:1]])
            plan.start(*alias([pen, v.pencil], shared=True)).wait()
            plan.start(u)
        np.roll(np.diff(u, axis=1), 1, axis=0)
        return gather(w, None, key=np.s_[::2]), PencilArray(pen, u.local)

    for turn in range(6):
        work(turn)
    gc.collect()
    tracemalloc.start()
    for turn in range(6):
        work(turn)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for turn in range(up_to(18, 7)):
        work(turn)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert everywhere(comm, grown < 30_000), comm.allgather(grown)


@pytest.mark.mpiexec("measures the memory of one process")
def test_a_large_array_is_gone_when_nobody_holds_it(comm):
    pen = Pencil((64, 64, 64), comm)
    memory().empty()  # what waits there was not traced
    tracemalloc.start()
    u = zeros(pen)
    nbytes = u.local.nbytes
    held = tracemalloc.get_traced_memory()[0]
    del u
    memory().empty()
    left = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert everywhere(comm, held - left > nbytes - 1000)
