"""Work of a rank does not grow with the number of ranks, only with that of its messages."""

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import calls_of
from tiers import up_to

import pencils
from pencils.layout import redistribution
from simmpi import Simulation

POINTS = 32
FEW, MANY = 72, up_to(256, 128)  # ranks, which agree in the same way: see `pencils.comm.agree`
# Calls of functions that a rank may make more often for each further message, and for each further
# rank: a loop over all ranks would make at least one.
PER_MESSAGE, PER_RANK = 150, 0.5
# Decomposed dimensions before and after a transpose, by axes of the process grid.
DIMENSIONS = {1: ((0,), (1,)), 2: ((0, 1), (0, 2)), 3: ((0, 1, 2), (1, 2, 0))}


def work(size, axes):
    """Count calls by verb, for one rank on average, and messages that it sends to transpose."""
    decomp, other = DIMENSIONS[axes]
    grid = MPI.Compute_dims(size, axes)

    def program():
        source = pencils.Pencil((POINTS,) * 3, decomp=decomp, grid=grid, periodic=True)
        target = source.with_(decomp=other)
        u = pencils.zeros(source, halo=1)
        # Of this rank and the next two: so many messages whatever the number of ranks.
        owners = [(source.rank + step) % size for step in range(3)]
        starts = [source.layout.box(owner).start for owner in owners]
        points = np.minimum(np.transpose(starts), POINTS - 1)
        plans = []
        verbs = {
            "pencil": lambda: source.with_(periodic=False),
            "reduce": u.sum,
            "transposition": lambda: plans.append(pencils.Transposition(source, target)),
            "transpose": lambda: plans[0](u),
            "halo": lambda: plans.append(pencils.HaloExchange(u)),
            "exchange": lambda: plans[1](u),
            "indexer": lambda: plans.append(pencils.indexer.PointIndexer(source, points)),
            "take": lambda: plans[2].take(u),
        }
        sends, _ = redistribution(source.layout, target.layout, source.rank, target.rank)
        found = {name: calls_of(verb) for name, verb in verbs.items()}
        for plan in plans:
            plan.free()
        return found, len(sends)

    simulation = Simulation(size, strict=False)
    with simulation.installed():
        results = simulation.run(program)
        simulation.close()
    calls, messages = zip(*results, strict=True)
    return {name: np.mean([one[name] for one in calls]) for name in calls[0]}, np.mean(messages)


@pytest.mark.parallel([1])
@pytest.mark.parametrize(
    "axes", [2, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 3))]
)
def test_work_grows_no_faster_than_messages(axes):
    few, messages = work(FEW, axes)
    many, more = work(MANY, axes)
    most = PER_RANK * (MANY - FEW) + PER_MESSAGE * max(0, more - messages)
    grown = {name: many[name] - few[name] for name in few}
    assert all(calls < most for calls in grown.values()), (grown, most)
