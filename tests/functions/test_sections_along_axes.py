"""Functions along axes of sections, whose blocks are uneven and often empty."""

import numpy as np
import pytest
from fields import assert_holds, draw, spread

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

KEYS = [np.s_[1:-1], np.s_[::2], np.s_[1], np.s_[..., 1:], np.s_[:0], np.s_[-1:, ...]]


def kept(key):
    """Return the key with slices of one point instead of integers."""
    keys = key if isinstance(key, tuple) else (key,)
    return tuple(slice(one, one + 1) if isinstance(one, int) else one for one in keys)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_functions_of_sections(pencil, key):
    whole = draw(pencil.shape)
    u = spread(pencil, whole, halo=1)[key]
    part = whole[kept(key)]
    for axis, points in enumerate(part.shape):
        assert_holds(np.cumsum(u, axis), np.cumsum(part, axis), rtol=1e-13)
        assert_holds(np.roll(u, 2, axis), np.roll(part, 2, axis))
        assert_holds(np.flip(u, axis), np.flip(part, axis))
        assert_holds(np.diff(u, axis=axis), np.diff(part, axis=axis))
        assert np.cumsum(u, axis).pencil is np.roll(u, 2, axis).pencil is u.pencil
        area = np.expand_dims(np.trapezoid(part, axis=axis), axis)
        assert_holds(np.trapezoid(u, axis=axis), area, rtol=1e-13)
        for order in (1, 2):
            if points > order:
                given = {"axis": axis, "edge_order": order}
                expected = np.gradient(part, **given)
                assert_holds(np.gradient(u, **given), expected, rtol=1e-13)
    if u.size:
        v = np.flip(np.roll(u, 1, 0)) + u
        assert_holds(v, np.flip(np.roll(part, 1, 0)) + part)


def test_sections_of_results(pencil):
    whole = draw(pencil.shape)
    u = spread(pencil, whole)
    assert_holds(np.cumsum(u, 0)[::2] - u[::2], np.cumsum(whole, 0)[::2] - whole[::2], rtol=1e-13)
    if pencil.shape[0] > 1:
        assert_holds(np.diff(u[1:], axis=0), np.diff(whole[1:], axis=0))
        assert_holds(
            np.gradient(u, axis=0)[1:-1] * u[1:-1], np.gradient(whole, axis=0)[1:-1] * whole[1:-1]
        )
