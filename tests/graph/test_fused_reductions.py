"""Reductions of fused functions: those of the same plain lines, bit by bit, and their warnings."""

import warnings

import numpy as np
import pytest
from mpi_helpers import all_raise, everywhere, ranks_at_fault

import pencils

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def results(function, *arguments):
    """Call a function; return its results as what can be compared."""
    with np.errstate(all="ignore"):
        found = function(*arguments)
    return [
        one.local.tobytes() if isinstance(one, pencils.PencilArray) else (type(one), repr(one))
        for one in (found if isinstance(found, tuple) else (found,))
    ]


NAMES = [
    *("sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "ptp", "argmin", "argmax"),
    *("count_nonzero", "average", "median", "nansum", "nanprod", "nanmin", "nanmax", "nanmean"),
    *("nanargmin", "nanargmax", "nanvar", "nanstd", "nanmedian", "linalg.norm"),
]
OTHERS = [
    "np.vdot(w, 2 * w)",
    "w.vdot(w)",
    "np.add.reduce(w, axis=None)",
    "w.sum(where=w > 0)",
    "w.mean(axis=0)",
    "np.quantile(w, 0.3)",
    "np.allclose(w, w + 1e-9)",
    "np.array_equal(w, w)",
    "w.norm(1)",
    "w.norm()",
]


@pytest.mark.parametrize("text", [f"np.{name}(w)" for name in NAMES] + OTHERS)
def test_reductions_are_those_of_plain_fields(comm, text):
    pen = pencils.Pencil((2 * comm.size, 10), comm=comm)  # each rank has points
    u = pencils.from_function(pen, lambda i, j: 2 + np.sin(i + 3 * j))

    def function(u, k):
        return eval(text, {"np": np, "w": 1 / (u * k)})

    fused = pencils.fused(function)
    for dtype in (float, np.float32):
        expected = results(function, u.astype(dtype), 1.0)
        for _ in range(2):
            assert everywhere(comm, results(fused, u.astype(dtype), 1.0) == expected)
    for rank in ranks_at_fault(comm):
        with np.errstate(all="raise"):
            all_raise(comm, FloatingPointError, "divide", fused, u, float(comm.rank != rank))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("shape", [(12, 10), (200, 130), (1, 5), (3, 1), (40, 4096)])
@pytest.mark.parametrize("components", [(), 2])
def test_passes_reduce(comm, shape, order, components):
    pen = pencils.Pencil(shape, order=order, periodic=True, comm=comm)
    u = pencils.zeros(pen, halo=1, components=components)
    u.padded[...] = np.random.default_rng(comm.rank).standard_normal(u.padded.shape)
    v = u.copy()

    def function(u, v, dt):
        w = u * dt + u.shift((1, 0))
        u[...] = w + v
        return w, w.sum(), w.mean(), w.norm(), np.max(w), w.min(), (w > 0).any(), np.all(w), w > 0

    fused = pencils.fused(function)
    for dt in (0.5, 3.0):
        expected = results(function, u.copy(), v, dt)
        assert everywhere(comm, results(fused, u.copy(), v, dt) == expected)
    if u.local.size:
        assert fused.explain().count("reduced in a pass") == 7


def test_sums_are_those_of_memory_with_gaps(comm):
    pen = pencils.Pencil((40 * comm.size, 30, 20), periodic=True, comm=comm)
    u = pencils.zeros(pen, halo=1)
    u.local[...] = np.random.default_rng(comm.rank).standard_normal(u.local.shape)

    def function(u, dt):
        early = u.sum(), u[1:].mean(), u.shift((0, 1, 0)).sum()
        u[...] = u * dt
        late = u.sum(), np.add.reduce(u, axis=None), u.norm()
        u[3] = dt
        v = u.copy()
        w = u * u
        return *early, *late, u.sum(), v.mean(), w.sum(), w[:, 1:].sum(), (w * 1j).imag.sum()

    expected = results(function, u.copy(), 0.3)
    assert everywhere(comm, results(pencils.fused(function), u.copy(), 0.3) == expected)


def test_reductions_warn_as_plain_lines(comm):
    u = pencils.ones(pencils.Pencil((2 * comm.size, 10), comm=comm))

    def function(u, k):
        return (k * u).sum(), (k * u).mean()

    fused = pencils.fused(function)
    for value in (1.7e308, np.inf, np.nan):
        with pytest.warns(RuntimeWarning) if value < np.inf else warnings.catch_warnings():
            warnings.simplefilter("always" if value < np.inf else "error")
            assert everywhere(comm, repr(fused(u, value)) == repr(function(u, value)))
    u[0] = -1

    def told(function):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(u, np.inf)
        return [str(one.message) for one in caught]

    assert everywhere(comm, told(fused) == told(function))
    with np.errstate(all="raise"):
        all_raise(comm, FloatingPointError, "overflow", fused, abs(u), 1.7e308)
