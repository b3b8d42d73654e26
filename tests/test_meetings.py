"""How often the ranks meet: collective calls of MPI that make plans, and that plans make."""

import numpy as np
import pytest
from mpi_helpers import METHODS, ON_ONE_NODE, collectives

import pencils
from pencils.comm.topology import topology_of
from pencils.fft import PencilFFT

pytestmark = [
    pytest.mark.parallel([1, 2, 3, 4, 6]),
    pytest.mark.mpiexec("counts calls of the MPI library"),
]


@pytest.fixture
def counted(comm):
    """Make a communicator whose private ones list their collective calls."""
    with collectives() as made:
        own = comm.Dup()
        topology_of(own)
        # Windows of shared memory, communicators of rows: made with the first plans.
        make_plans(own)
        yield own, made
        own.Free()


def make_plans(comm):
    pencil = pencils.Pencil((32, 32, 64), comm)
    across = pencil.with_(decomp=(0, 2))
    field = pencils.zeros(pencil, halo=1)
    makers = {
        "transpose": lambda: pencils.Transposition(pencil, across),
        "methods": lambda: pencils.Transposition(pencil, across, method=METHODS[0]),
        "halo": lambda: pencils.HaloExchange(field),
        "transform": lambda: PencilFFT(pencil, backend="scipy"),
    }
    for make in makers.values():
        make().free()
    return makers


@pytest.mark.parametrize(
    ("name", "most"),
    [("transpose", 4), ("methods", 4 if ON_ONE_NODE else 5), ("halo", 4), ("transform", 14)],
)
def test_plans_are_made_in_few_meetings(counted, name, most):
    comm, made = counted
    make = make_plans(comm)[name]
    counts = []
    for _ in range(3):
        made.clear()
        with make():
            counts.append(len(made))
    assert min(counts) <= most  # from time to time memory is allocated for several


def test_a_transform_needs_one_agreement_and_a_barrier_for_each_transpose(counted):
    comm, made = counted
    pencil = pencils.Pencil((32, 64, 64), comm)
    u = pencils.random.uniform(pencil, rng=1)
    with PencilFFT(pencil, backend="scipy") as plan:
        waves = plan.forward(u)
        back = plan.backward(waves)
        made.clear()
        waves = plan.forward(u)
        there = list(made)
        again = plan.backward(waves)
    assert np.allclose(again, u)
    assert np.array_equal(again.local, back.local)
    ranked = [name for name in there if name != "Ibarrier"]
    transposes = sum(processes > 1 for processes in pencil.grid)
    assert len(ranked) <= 2 + transposes  # the last barrier is before the next call, or of this one
    assert made.count("Barrier") <= 4
