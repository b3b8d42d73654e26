"""Storage for halos: widths, own and padded blocks, shifted views."""

from itertools import product

import numpy as np
import pytest
from fields import assert_holds, draw, in_memory_order, lay

import pencils
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize(
    ("given", "widths"),
    [
        (0, ((0, 0), (0, 0))),
        (2, ((2, 2), (2, 2))),
        (np.int64(1), ((1, 1), (1, 1))),
        ((1, 2), ((1, 1), (2, 2))),
        ([(1, 2), (0, 3)], ((1, 2), (0, 3))),
        ([1, (0, 3)], ((1, 1), (0, 3))),
        (np.array([1, 0]), ((1, 1), (0, 0))),
    ],
)
def test_widths(comm, given, widths):
    pencil = lay(comm, "plane")
    u = pencils.zeros(pencil, halo=given, components=3)
    assert u.halo == widths
    sizes = [n + lo + hi for n, (lo, hi) in zip(pencil.local_shape, widths, strict=True)]
    assert u.padded.shape == (3, *sizes)
    assert u.local.shape == (3, *pencil.local_shape)
    padded = u.padded.transpose(0, *(1 + dim for dim in pencil.order))
    assert padded.flags.c_contiguous
    u.local[...] = 1
    assert u.padded.sum() == u.local.size


@pytest.mark.parametrize("halo", [2, (2, 2, 2), ((2, 2), (1, 3), (2, 2))])
def test_singletons_have_no_halo(comm, halo):
    """The halo of a full field is one for any field on its pencil."""
    pencil = lay(comm, "pencils")
    u = pencils.zeros(pencil, halo=halo, dims=(0, 2))
    assert u.halo == ((2, 2), (0, 0), (2, 2))
    again = pencils.PencilArray(pencil, u.padded, halo=halo, dims=(0, 2))
    assert (again.halo, again.singletons) == (u.halo, {1})


def fill_padded(field, a):
    """Fill own block and halo from the global array, wrapping around in all dimensions."""
    lead = len(field.components)
    at = [np.arange(n) for n in field.components]
    box = field.extent.box.grow(field.halo)
    for lo, hi, n in zip(box.start, box.stop, field.shape[lead:], strict=True):
        at.append(np.arange(lo, hi) % n)
    field.padded[...] = a[np.ix_(*at)]


@pytest.mark.parametrize("components", [(), (2,)])
def test_shift_is_roll(pencil, components):
    a = draw((*components, *pencil.shape))
    widths = [(1 + dim % 2, 1) for dim in range(pencil.ndim)]
    u = pencils.empty(pencil, components=components, halo=widths)
    fill_padded(u, a)
    axes = tuple(range(len(components), a.ndim))
    for steps in product(*(range(-lo, hi + 1) for lo, hi in widths)):
        moved = u.shift(steps)
        assert_holds(moved, np.roll(a, [-step for step in steps], axes))
        assert moved.halo == ((0, 0),) * pencil.ndim
        assert np.shares_memory(moved.local, u.padded) == (u.local.size > 0)
    ahead = (1,) + (0,) * (pencil.ndim - 1)
    behind = (-1,) + (0,) * (pencil.ndim - 1)
    second = u.shift(ahead) - 2 * u + u.shift(behind)
    axis = len(components)
    assert_holds(second, np.roll(a, -1, axis) - 2 * a + np.roll(a, 1, axis))
    assert in_memory_order(second)
    u[...] = u.shift(ahead)
    assert_holds(u, np.roll(a, -1, axis))


def test_shift_beyond_the_halo(comm):
    pencil = lay(comm, "plane")
    u = pencils.zeros(pencil, halo=[(1, 2), (0, 1)])
    for steps in ((-2, 0), (3, 0), (0, -1), (0, 2)):
        with pytest.raises(ArgumentError, match=r"leaves the halo.*wider halo"):
            u.shift(steps)
    with pytest.raises(ArgumentError, match="one entry for each of 2 dimensions"):
        u.shift((1,))
    with pytest.raises(TypeError, match="offsets"):
        u.shift((0.5, 0))


def test_shift_of_singletons(comm):
    pencil = lay(comm, "pencils")
    x = draw((pencil.shape[0], 1, 1))
    u = pencils.empty(pencil, halo=1, dims=0)
    fill_padded(u, x)
    assert_holds(u.shift((1, 0, 0)), np.roll(x, -1, 0))
    assert u.shift((1, 0, 0)).singletons == {1, 2}
    with pytest.raises(ArgumentError, match="leaves the halo"):
        u.shift((0, 1, 0))
