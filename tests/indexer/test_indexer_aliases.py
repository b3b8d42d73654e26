"""Arrays that overlap, change, or are too much: of points and of lists."""

import gc
import weakref

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import all_raise, everywhere, numbered, spread

import pencils
from pencils import GlobalIndexer, Pencil, PencilArray
from pencils.errors import ArgumentError
from pencils.indexer import Interpolation

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("shared", [False, True])
def test_coordinates_may_be_overwritten_by_what_is_found_there(comm, shared):
    pencil = Pencil((6, 7), comm)
    data = 10**12 + numbered((2, 6, 7), "i8")
    u = pencils.zeros(pencil, dtype="i8", components=2, shared=shared)
    u.local[...] = data[u.local_slices]
    coords = np.array([[4, 0], [5, 6]])
    expected = data[:, coords[0], coords[1]]
    assert u.take_points(coords, out=coords) is coords
    assert everywhere(comm, np.array_equal(coords, expected))


def test_what_is_found_may_overlap_another_component(comm):
    memory = np.arange(6).reshape(3, 2)
    u = PencilArray(Pencil(2, MPI.COMM_SELF), memory[:2])
    with pencils.indexer.PointIndexer(u.pencil, [[1, 0]], check=False) as plan:
        plan.take(u, memory[1:])
    assert everywhere(comm, memory.tolist() == [[0, 1], [1, 0], [3, 2]])


@pytest.mark.parametrize(("dtype", "value"), [("u1", 1), ("u8", 7), ("?", 1), ("i2", -3)])
def test_integers_of_python_fit_where_there_is_room(comm, dtype, value):
    u = pencils.zeros(Pencil(4, comm), dtype=dtype)
    u.put_points([[1]], value)
    assert u.sum() == value
    all_raise(comm, TypeError, "cannot be written", u.put_points, [[1]], 300.5)
    if dtype == "u1":
        all_raise(comm, TypeError, "cannot be written", u.put_points, [[1]], 256)


def test_rows_are_smaller_than_two_gibibytes(comm):
    indexer = GlobalIndexer([0] * (comm.size + 1), [], comm)
    all_raise(comm, ArgumentError, "exceed 2 GiB per index", indexer.Take, np.empty(0), count=2**28)
    indexer.free()


def test_a_type_that_changed_is_seen(comm):
    indexer = GlobalIndexer([2 * part for part in range(comm.size + 1)], [0, 1], comm, check=False)
    source, out = np.array([1.0, 2.0]), np.empty(2)
    indexer.Take(source, out)
    out.dtype = np.int64
    with pytest.raises(TypeError):
        indexer.Take(source, out)
    indexer.free()
    assert comm.size > 0


def test_deposits_use_one_array_again_and_again(comm):
    pencil = Pencil((4, 4), comm, periodic=True)
    u = pencils.zeros(pencil)
    with Interpolation(pencil, ([0.5], [1.25]), check=False) as plan:
        for _ in range(5):
            plan.deposit(u, 1.0)
        assert everywhere(comm, len(plan._indexer._remembered) == 1)
    assert np.isclose(u.sum(), 5.0 * comm.size)
    gone = weakref.ref(plan._sums)
    del plan
    gc.collect()
    assert everywhere(comm, gone() is None)


def test_coordinates_need_not_be_aligned(comm):
    data = numbered((5, 4))
    u = spread(Pencil((5, 4), comm), data)
    odd = np.frombuffer(b"x" + np.array([4, 0, 2]).tobytes(), "i8", offset=1)
    assert everywhere(comm, np.array_equal(u.take_points((odd, 1)), data[odd, 1]))
