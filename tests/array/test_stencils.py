"""Weighted sums of shifted fields, against sums of rolled global arrays."""

import warnings
from itertools import product

import numpy as np
import pytest
from fields import assert_holds, draw, in_memory_order, lay
from test_halo_storage import fill_padded

import pencils
from pencils.errors import ArgumentError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

NUMBERS = {
    "floats": [0.5, -1.25, 3.0],
    "integers": [2, -3, 1],
    "complex": [0.5, 1j, -2 + 1j],
    "doubles": [np.float64(0.5), np.float64(-2), np.float64(1)],
    "singles": [np.float32(0.5), np.int8(-2), True],
}


def with_ghosts(pencil, a, widths):
    components = a.shape[: a.ndim - pencil.ndim]
    u = pencils.empty(pencil, dtype=a.dtype, components=components, halo=widths)
    fill_padded(u, a)
    return u


def draw_weights(rng, widths, numbers):
    steps = list(product(*(range(-lo, hi + 1) for lo, hi in widths)))
    chosen = rng.permutation(len(steps))[: rng.integers(1, len(steps) + 1)]
    return {steps[i]: numbers[n % len(numbers)] for n, i in enumerate(chosen)}


def expected_sum(a, weights, lead):
    axes = tuple(range(lead, a.ndim))
    terms = [np.roll(a, [-step for step in steps], axes) * w for steps, w in weights.items()]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8", "f2", ">f8", "i4", "?", "g"])
def test_stencil_is_a_sum_of_shifts(pencil, dtype, numbers):
    rng = np.random.default_rng(1)
    widths = [(1 + dim % 2, 1) for dim in range(pencil.ndim)]
    for lead in (0, 1):
        a = draw((2,) * lead + pencil.shape, dtype)
        u = with_ghosts(pencil, a, widths)
        weights = draw_weights(rng, widths, NUMBERS[numbers])
        if dtype == "?" and numbers == "singles":
            weights = dict.fromkeys(weights, True)
        expected = expected_sum(a, weights, lead)
        tolerance = {"e": 2e-2, "f": 1e-4, "F": 1e-4}.get(expected.dtype.char, 1e-12)
        found = pencils.stencil(u, weights)
        assert_holds(found, expected, rtol=tolerance)
        assert in_memory_order(found)
        assert found.halo == ((0, 0),) * pencil.ndim
        out = pencils.zeros(pencil, dtype=expected.dtype, components=u.components, halo=1)
        assert pencils.stencil(u, weights, out=out) is out
        assert_holds(out, expected, rtol=tolerance)


def test_out_of_another_type(pencil):
    a = draw(pencil.shape)
    widths = [(1, 1)] * pencil.ndim
    weights = dict(zip(product((-1, 0, 1), repeat=pencil.ndim), range(3), strict=False))
    u = with_ghosts(pencil, a, widths)
    for dtype in ("f4", "c16", "f2"):
        out = pencils.stencil(u, weights, out=pencils.zeros(pencil, dtype=dtype))
        expected = expected_sum(a, weights, 0)
        assert_holds(out, expected.astype(dtype), rtol=1e-2 if dtype == "f2" else 1e-6)
    with pytest.raises(TypeError, match="same_kind"):
        pencils.stencil(u, weights, out=pencils.zeros(pencil, dtype=int))


def test_boundary_points_are_those_of_the_halo(comm):
    u = pencils.full(pencils.Pencil((9, 4), comm), 1.0, halo=1)
    u.exchange_halo()
    u.fill_boundary("constant", value=10.0)
    found = pencils.stencil(u, {(1, 0): 1.0, (-1, 0): 1.0})
    expected = np.full((9, 4), 2.0)
    expected[[0, -1]] = 11
    assert_holds(found, expected)


def test_onto_faces(comm):
    pen = lay(comm, "slabs")
    u = pencils.empty(pen, halo=1)
    u.padded.fill(0)
    u[...] = draw(pen.shape)
    u.exchange_halo()
    for dim in range(3):
        faces = pen.staggered(dim)
        behind = tuple(-1 if each == dim else 0 for each in range(3))
        slope = pencils.stencil(u, {(0, 0, 0): 2.0, behind: -2.0}, onto=faces)
        difference = 2.0 * (u.shift((0, 0, 0), onto=faces) - u.shift(behind, onto=faces))
        assert slope.pencil is faces
        np.testing.assert_allclose(slope.local, difference.local)
        out = pencils.zeros(faces)
        assert pencils.stencil(u, {(0, 0, 0): 1.0}, onto=faces, out=out) is out
        with pytest.raises(PencilMismatchError, match="out lies on"):
            pencils.stencil(u, {(0, 0, 0): 1.0}, onto=faces, out=pencils.zeros(pen))


def test_singletons(comm):
    pen = lay(comm, "pencils")
    x = draw((pen.shape[0], 1, 1))
    u = pencils.empty(pen, halo=1, dims=0)
    fill_padded(u, x)
    found = pencils.stencil(u, {(1, 0, 0): 0.5, (-1, 0, 0): -0.5})
    assert_holds(found, 0.5 * (np.roll(x, -1, 0) - np.roll(x, 1, 0)), rtol=1e-14)
    assert found.singletons == {1, 2}


def test_ghosts_that_are_missing_show_and_those_of_results_are_marked(comm):
    pen = pencils.Pencil((4 * comm.size, 3), comm, decomp=0, periodic=True)
    u, out = pencils.zeros(pen, halo=1), pencils.zeros(pen, halo=1)
    weights = {(1, 0): 1.0, (-1, 0): 1.0}
    with pencils.debug.ghosts():
        u[...] = 1.0
        assert np.isnan(pencils.stencil(u, weights).local[[0, -1]]).all()
        u.exchange_halo()
        pencils.stencil(u, weights, out=out)
    assert (out.local == 2).all()
    assert np.isnan(out.padded[0]).all()


def test_it_keeps_infinities_and_does_not_warn(comm):
    u = pencils.full(pencils.Pencil(4, comm), 2.0, halo=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(pencils.stencil(u, {(0,): np.inf}).local).all()
        assert pencils.stencil(u.astype(int), {(0,): np.inf}).dtype == float


def test_bad_arguments(comm):
    pen = lay(comm, "plane")
    u = pencils.zeros(pen, halo=[1, 0])
    good = {(1, 0): 1.0}
    with pytest.raises(ArgumentError, match=r"leaves the halo.*wider halo"):
        pencils.stencil(u, {(2, 0): 1.0})
    with pytest.raises(ArgumentError, match="one entry for each of 2"):
        pencils.stencil(u, {(1,): 1.0})
    for weights in ({}, [1.0, 2.0], None):
        with pytest.raises(TypeError, match="dict of numbers by offsets"):
            pencils.stencil(u, weights)
    for weight in ("x", u, np.ones(3), None):
        with pytest.raises(TypeError, match=r"weight of \(1, 0\) must be a number"):
            pencils.stencil(u, {(1, 0): weight})
    with pytest.raises(TypeError, match="u must be a PencilArray"):
        pencils.stencil(np.zeros(pen.shape), good)
    with pytest.raises(TypeError, match="out must be a PencilArray"):
        pencils.stencil(u, good, out=np.zeros(pen.shape))
    with pytest.raises(ArgumentError, match="components"):
        pencils.stencil(u, good, out=pencils.zeros(pen, components=2))
    if u.local.size:
        for out in (u, u.shift((1, 0))):
            with pytest.raises(ArgumentError, match="shares memory with u"):
                pencils.stencil(u, good, out=out)
    readonly = pencils.zeros(pen)
    readonly.local.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        pencils.stencil(u, good, out=readonly)
