"""What reading and writing points costs follows the points, whatever the blocks are."""

import tracemalloc

import numpy as np
import pytest
from mpi_helpers import everywhere

import pencils
import pencils.indexer.one_shot  # modules that are loaded when needed are no memory of points
from pencils import GlobalIndexer
from pencils.indexer import ReduceOp

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

FEW = 500_000  # bytes: much less than 8 for each point of a block, or one for each item


@pytest.fixture(name="u", scope="module")
def _u(comm):
    return pencils.zeros(pencils.Pencil((128, 128, 128), comm))


def peak(call):
    """Most bytes allocated at once."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("reduce", [None, ReduceOp.SUM])
@pytest.mark.mpiexec("measures the memory of one process")
def test_two_points_of_a_field(comm, u, reduce):
    coords = ([0, 127], [5, 5], [0, 127])

    def call():
        u.put_points(coords, [1.0, 2.0], reduce=reduce)
        u.take_points(coords)
        with pencils.indexer.PointIndexer(u.pencil, coords) as plan:
            plan.put(u, [3.0, 4.0], reduce=reduce)
            plan.take(u)
            plan.put_start(u, [3.0, 4.0], reduce=reduce).wait()
            plan.take_start(u).wait()

    assert everywhere(comm, peak(call) < FEW)


@pytest.mark.parametrize("reduce", [None, ReduceOp.MAX, "objects"])
@pytest.mark.mpiexec("measures the memory of one process")
def test_two_items_of_a_collection(comm, reduce):
    section = [None] * 2**20 if reduce == "objects" else np.zeros(2**20)
    cuts = len(section) * np.arange(comm.size + 1)

    def call():
        with GlobalIndexer(cuts, [3, cuts[-1] - 1], comm) as plan:
            if reduce == "objects":
                plan.put(["a", "b"], section)
                assert plan.take(section) == ["a", "b"]
            else:
                plan.Put(np.array([1.0, 2.0]), section, reduce=reduce)
                plan.Take(section, reduce=reduce)

    assert everywhere(comm, peak(call) < FEW)
