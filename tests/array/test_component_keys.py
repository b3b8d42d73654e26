"""Lists and masks of components: ``V[[0, 2]]``, as in NumPy; these axes are whole everywhere."""

import numpy as np
import pytest
from fields import assert_holds, both, draw, in_memory_order, lay, spread
from mpi_helpers import all_raise

import pencils
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

MASK = np.array([True, False, True])
KEYS = [
    *([0, 2], [[0, 1], [1, 2]], [-1], [], MASK, MASK.tolist(), np.ones((3, 2), bool)),
    slice(2, 0, -1),
    *(([2, 0, 2], [1, 1, 0]), (slice(None), [1]), ([0, 2], 0), (1, [1, 0]), (MASK, ...)),
    *((slice(None), [1], slice(1, None)), ([-1], ..., slice(None, None, 2)), ([1, 0], [0], ...)),
]


@pytest.mark.parametrize("dtype", [float, "c8", "i2"])
def test_components_are_selected_and_assigned(pencil, dtype):
    a = draw((3, 2, *pencil.shape), dtype)
    u = spread(pencil, a, halo=1)
    for key in KEYS:
        found, expected = u[key], a[key]
        assert_holds(found, expected)
        v, b = u.copy(), a.copy()
        for value, data in ((2, 2), (3 * expected, 3 * expected), (4 * found, 4 * expected)):
            v[key] = value
            b[key] = data
            assert_holds(v, b)
        v[key] += 1
        b[key] += 1
        assert_holds(v, b)
    assert_holds(u, a)


def test_values_have_the_shape_that_numpy_selects(comm):
    pencil = lay(comm, "pencils")
    u, a = both(pencil, draw((3, *pencil.shape)), halo=1)
    u[[2, 0], 1] = a[[2, 0], 1] = draw((2, 4, 6), seed=1)
    u[MASK, ..., 2] = a[MASK, ..., 2] = draw((5, 4), seed=2)
    u[[0, 1]], a[[0, 1]] = u[[1, 0]], a[[1, 0]]
    u[[0, 2], 1:] = u[[2, 1], :-1]  # moved
    a[[0, 2], 1:] = a[[2, 1], :-1]
    assert_holds(u, a)
    assert u[[0, 2]].halo == u.halo
    assert np.array_equal(u[[0, 2]].padded, u.padded[[0, 2]], equal_nan=True)
    v = u.copy()
    v[MASK] = spread(pencil, draw(pencil.shape))
    assert_holds(v, np.stack([draw(pencil.shape), a[1], draw(pencil.shape)]))


def test_take(pencil):
    u, a = both(pencil, draw((3, 2, *pencil.shape)))
    for indices in (1, -1, [0, 2], [[0, 1], [2, 2]], []):
        number = np.array(indices, int)
        assert_holds(np.take(u, number, axis=0), np.take(a, number, axis=0))
    assert_holds(np.take(u, [0, 5], 1, mode="wrap"), np.take(a, [0, 5], 1, mode="wrap"))
    out = pencils.empty(pencil, components=(1, 2))
    assert np.take(u, [1], axis=0, out=out) is out
    assert_holds(out, a[[1]])
    assert in_memory_order(np.take(u, [1], axis=1))
    assert_holds(np.round(u[[1]], 1), np.round(a[[1]], 1))
    for axis in (None, 2):
        with pytest.raises(TypeError, match=r"takes components.*u\.take_points"):
            np.take(u, [0], axis=axis)


def test_what_selects_no_components(comm):
    pencil = lay(comm, "pencils")
    u, v = pencils.zeros(pencil, components=3), pencils.zeros(pencils.Pencil(3, comm), components=3)
    all_raise(comm, IndexError, "out of bounds", u.__getitem__, [3])
    all_raise(comm, IndexError, "out of bounds", u.__setitem__, [3], 1.0)
    all_raise(comm, IndexError, "boolean index", u.__setitem__, (MASK[:2], ...), 1.0)
    for key in ([0.5], ([0], [1]), (slice(None), [0, 1]), ["x"], (None, [0])):
        all_raise(comm, TypeError, "global indices are integers", u.__getitem__, key)
    all_raise(comm, TypeError, "reading by a mask", u.__getitem__, v[0] > 0)
    all_raise(comm, ArgumentError, "fits the components", v.__setitem__, MASK, 1.0)
    all_raise(comm, ArgumentError, "do not broadcast", u.__setitem__, [0, 1], np.ones((3, 5, 4, 6)))
    v[MASK, ...] = 1
    assert_holds(v, np.where(MASK[:, np.newaxis], np.ones((3, 3)), 0))

    @pencils.fused
    def chosen(w):
        return w[[0, 2]]

    all_raise(comm, TypeError, "one by one", chosen, u)
