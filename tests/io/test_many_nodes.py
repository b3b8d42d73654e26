"""Collectives of many simulated ranks, each on a node of its own: as docs/scale.md lists."""

import pytest
from mpi_helpers import collectives
from test_round_trips import LISTED
from tiers import up_to

import pencils
import simmpi

pytestmark = pytest.mark.parallel([1])

CALLS = (
    "pencils.save(path, {'u': u})",
    "pencils.load(path, pencil)",
    "pencils.verify(path, comm)",
    "pencils.open(path, 'r+', comm)",
    "file['u'].read(pencil)",
    "file['u'].write(u)",
    "series.append(step, {'u': u})",
)


def count(folder):
    """Count the collectives of the third of equal calls, by call. *Collective*."""
    from mpi4py import MPI

    with collectives() as calls:
        comm = MPI.COMM_WORLD.Dup()
        pencil = pencils.Pencil((16, 16, 16), comm)
        u, path = pencils.ones(pencil), folder / "a.h5"
        for name in ("a.h5", "opened.h5"):
            pencils.save(folder / name, {"u": u})
        file = pencils.open(folder / "opened.h5", "r+", comm)
        series = pencils.TimeSeries(folder / "series.h5", comm=comm)
        known = {**locals(), "pencils": pencils, "step": 0}
        found = {}
        for call in CALLS:
            for _ in range(3):
                known["step"] += 1
                calls.clear()
                opened = eval(call, known)
                found[call] = len(calls)
                if "open" in call:
                    opened.close()
        file.close()
        series.close()
        comm.Free()
    return found


@pytest.mark.parametrize(
    "ranks", [66, *(pytest.param(n, marks=pytest.mark.thorough) for n in up_to((64, 512), (64,)))]
)
def test_many_nodes(tmp_path, ranks):
    found = simmpi.simulate(ranks, count, tmp_path, nodes=ranks)
    expected = {call: LISTED[call][0] for call in CALLS}
    assert found[0] == found[-1] == expected
