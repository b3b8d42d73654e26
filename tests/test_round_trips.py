"""Collectives of all ranks in each call, which must be as many as docs/scale.md lists."""

import re
import shutil
import tempfile
from pathlib import Path
from weakref import WeakSet

import numpy as np
import pytest
from mpi_helpers import ON_ONE_NODE, Called, collectives

import pencils
from pencils import fft
from pencils.comm.agree import PreparedAgreement
from pencils.comm.topology import topology_of

pytestmark = [
    pytest.mark.parallel([2, 3, 4, 6]),
    pytest.mark.mpiexec("counts calls of the MPI library"),
]

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
# A row of the table has calls, their number of collectives, and how many of them have no data.
ROW = re.compile(r"\| (?P<calls>`[^|]*`) +\| +(?P<count>\d+) \| +(?P<bare>\d+) \|")

# What is noted before an agreement that carries no data.
BARE = "without data"


def listed():
    """Return the calls that the page lists: numbers of collectives, and of those without data."""
    found = {}
    for row in ROW.finditer(PAGE.read_text()):
        for call in re.findall(r"`([^`]+)`", row["calls"]):
            found[call] = int(row["count"]), int(row["bare"])
    return found


LISTED = listed()


@pytest.fixture(scope="module")
def counted(comm):
    """Return a communicator, what calls name, and the list of collectives on communicators."""
    folder = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None))
    meet, carrying = PreparedAgreement._compare, WeakSet()

    def noted(self, mine):
        if self not in carrying:
            calls.append(Called(BARE, self.comm))
        return meet(self, mine)

    def carries(method):
        def carried(self, *args):
            carrying.add(self)
            return method(self, *args)

        return carried

    with collectives() as calls, pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreparedAgreement, "_compare", noted)
        patch.setattr(PreparedAgreement, "values", carries(PreparedAgreement.values))
        patch.setattr(PreparedAgreement, "tell", carries(PreparedAgreement.tell))
        own = comm.Dup()
        known = names(own, folder)
        yield topology_of(own).comm, known, calls
        known["file"].close()
        known["series"].close()
        own.Free()
    if comm.rank == 0:
        shutil.rmtree(folder)


def names(comm, folder):
    """Return what the calls of the page name. *Collective*."""
    pencil = pencils.Pencil((12, 10, 8), comm)
    u = pencils.random.uniform(pencil, rng=1)
    other = pencil.with_(decomp=(0, 2))
    places = np.arange(5)
    i = j = k = places
    x = y = z = places + 0.5
    path, opened = folder / "u.h5", folder / "opened.h5"
    for each in path, opened:
        pencils.save(each, {"u": u})
    bands = np.ones((3, 12))
    bands[1] = 4
    made = {
        "h": pencils.zeros(pencil, halo=1),
        "v": pencils.transpose(u, other),
        "step": 0,
        "u0": np.ones(pencil.shape),
        "data": np.ones(pencil.shape) if comm.rank == 0 else None,
        "packed": folder / "packed.h5",
        "file": pencils.open(opened, "r+", comm),
        "series": pencils.TimeSeries(folder / "series.h5", comm=comm),
        "plan": pencils.Transposition(pencil, other),
        "points": pencils.indexer.PointIndexer(pencil, (i, j, k)),
        "sample": pencils.indexer.Interpolation(pencil, (x, y, z)),
        "solver": pencils.lines.LineSolver(pencil, 0, (1, 4, 1)),
        "transform": fft.PencilFFT(pencil, backend="scipy"),
    }
    return locals() | made | {"np": np, "pencils": pencils, "fft": fft}


def test_the_page_lists_calls():
    assert len(LISTED) > 30


@pytest.mark.parametrize("call", LISTED)
def test_calls_meet_as_often_as_the_page_says(counted, call):
    comm, known, calls = counted
    code = compile(call, call, "exec")
    found = []
    for _ in range(3):  # what is kept is made at first
        known["step"] += 1
        calls.clear()
        exec(code, known)
        found = [name for name in calls if name.comm == comm]
    bare = found.count(BARE)
    counts = len(found) - bare, bare
    if ON_ONE_NODE and comm.size == 4:
        assert counts == LISTED[call], found
    elif ON_ONE_NODE:  # others cut other dimensions, and pull what 4 ranks send, or the reverse
        assert all(one <= listed + 2 for one, listed in zip(counts, LISTED[call], strict=True)), (
            found
        )
