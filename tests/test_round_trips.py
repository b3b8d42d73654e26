"""Collectives of all ranks in each call, which must be as many as docs/scale.md lists."""

import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

import numpy as np
import pytest
from mpi_helpers import ON_ONE_NODE, Called, collectives
from tiers import up_to

import pencils
from pencils import fft
from pencils.comm.agree import PreparedAgreement
from pencils.comm.topology import topology_of
from simmpi.process import PerProcess

pytestmark = [
    pytest.mark.parallel([2, 3, 4, 6]),
    pytest.mark.mpiexec("counts calls of the MPI library"),
]

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
# A row of the table has calls, their number of collectives on one node, how many of them have no
# data, and the numbers on 64 nodes and on more.
ROW = re.compile(r"\| (?P<calls>`[^|]*`) +" + r"\| +(\d+) " * 4 + r"\|")
NODES = 64

# What is noted before an agreement that carries no data.
BARE = "without data"


def listed():
    """Return the calls that the page lists, with the numbers of their row."""
    found = {}
    for row in ROW.finditer(PAGE.read_text()):
        for call in re.findall(r"`([^`]+)`", row["calls"]):
            found[call] = tuple(map(int, row.groups()[1:]))
    return found


LISTED = listed()


@pytest.fixture(scope="module", autouse=True)
def _noted():
    """Note agreements without data among the collectives that are listed for this rank."""
    meet, carrying = PreparedAgreement._compare, WeakSet()

    def noted(self, mine):
        if self not in carrying:
            list_of_rank().append(Called(BARE, self.comm))
        return meet(self, mine)

    def carries(method):
        def carried(self, *args):
            carrying.add(self)
            return method(self, *args)

        return carried

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreparedAgreement, "_compare", noted)
        patch.setattr(PreparedAgreement, "values", carries(PreparedAgreement.values))
        patch.setattr(PreparedAgreement, "tell", carries(PreparedAgreement.tell))
        yield


list_of_rank = PerProcess(list)


@contextmanager
def counting(comm, folder):
    """Yield the function that counts the collectives of a call of the page. *Collective*."""
    with collectives() as calls:
        list_of_rank.replace(calls)
        own = comm.Dup()
        known = names(own, folder)

        def count(call):
            """Return the numbers in a call after the first: with data, and without."""
            code = compile(call, call, "exec")
            for _ in range(3):
                known["step"] += 1
                calls.clear()
                exec(code, known)
            found = [name for name in calls if name.comm == topology_of(own).comm]
            bare = found.count(BARE)
            return len(found) - bare, bare

        yield count
        known["file"].close()
        known["series"].close()
        own.Free()


@pytest.fixture(scope="module")
def counted(comm):
    """Return the function that counts the collectives of a call."""
    folder = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None))
    with counting(comm, folder) as count:
        yield count
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
        "large": pencils.random.uniform(pencil.with_(shape=(40, 40, 40)), rng=1),
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
def test_calls_meet_as_often_as_the_page_says(comm, counted, call):
    counts, most = counted(call), LISTED[call][:2]
    if ON_ONE_NODE and comm.size == 4:
        assert counts == most
    elif ON_ONE_NODE:  # others cut other dimensions, and pull what 4 ranks send, or the reverse
        assert all(one <= listed + 2 for one, listed in zip(counts, most, strict=True)), counts


@pytest.mark.parallel([1])
@pytest.mark.parametrize(
    "nodes",
    [20, *(pytest.param(n, marks=pytest.mark.thorough) for n in (NODES + 1, NODES)[: up_to(2, 1)])],
)
def test_ranks_of_many_nodes_meet_as_often_as_the_page_says(tmp_path, nodes):
    def program():
        from mpi4py import MPI

        with counting(MPI.COMM_WORLD, tmp_path) as count:
            return {call: count(call)[0] for call in LISTED}

    of_root, *others = pencils.simulate(nodes, program, nodes=nodes)
    assert all(of_rank == of_root for of_rank in others)
    # 20 nodes cut the same dimensions as 64.
    assert of_root == {call: row[3 if nodes > NODES else 2] for call, row in LISTED.items()}
