"""Histograms, and counts of distinct values, are those of NumPy over the global array."""

import functools

import numpy as np
import pytest
from agreement import assert_agrees, outcome
from checks import assert_mistake_raises_on_all, assert_same_outcome
from fields import both, draw, lay, spread
from mpi_helpers import all_raise, everywhere

import pencils
from pencils.errors import ArgumentError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

DTYPES = ["?", "i1", "u2", "i8", "u8", "f2", "f4", "f8", "g", ">f8", ">i2"]


@pytest.fixture(params=["few", "plane", "four"])
def pencil(request, comm):
    """Fewer layouts than elsewhere: here every line is many collectives."""
    return lay(comm, request.param)


@pytest.mark.parametrize("dtype", DTYPES)
def test_histograms(pencil, dtype):
    u, a = both(pencil, draw((2, *pencil.shape), dtype), halo=1)
    assert_same_outcome(np.histogram, u, a)
    for bins in (1, 7, [0, 1, 2], [-5.0, -0.5, 0.5, 0.5, 9.0], np.array([3])):
        for limits in (None, (0, 4), (-2.5, 1.5)):
            call = functools.partial(np.histogram, bins=bins, range=limits)
            assert_same_outcome(lambda x, call=call: call(x), u, a)
    assert_same_outcome(lambda x: np.histogram(x, 5, density=True), u, a)
    assert_same_outcome(lambda x: np.histogram_bin_edges(x, 6), u, a)


def test_values_on_edges(pencil):
    a = np.resize(np.linspace(0, 1, 11), pencil.shape)
    for b in (a, a.astype("f4"), np.full(pencil.shape, 0.1), a / 3 + 7):
        u = spread(pencil, b)
        for bins in (10, 49, np.linspace(0, 1, 11)):
            assert_same_outcome(lambda x, bins=bins: np.histogram(x, bins), u, b)
            assert_same_outcome(lambda x, bins=bins: np.histogram(x, bins, (0.1, 0.8)), u, b)


@pytest.mark.parametrize("kind", ["f8", "f4", "i4", "c16", "?"])
def test_weighted_histograms(pencil, kind):
    a, weights = draw((2, *pencil.shape)), np.round(draw((2, *pencil.shape), kind, 1))
    weights = weights.astype(kind)
    u = spread(pencil, a)
    for bins in (4, [-3, 0, 1, 5.5]):
        expected, _, error = outcome(lambda: np.histogram(a, bins, weights=weights))  # noqa: B023
        for given in (weights, spread(pencil, weights)):
            result, _, raised = outcome(lambda: np.histogram(u, bins, weights=given))  # noqa: B023
            assert isinstance(raised, TypeError if error else type(None))
            if error is None:
                assert_agrees(result[0], expected[0], rtol=1e-5)
                assert_agrees(result[1], expected[1])
    if kind == "f8":
        profile = spread(pencil, weights[0])
        expected = np.histogram(a, 4, weights=np.broadcast_to(weights[0], a.shape))
        assert_agrees(np.histogram(u, 4, weights=profile)[0], expected[0], rtol=1e-12)
        call = functools.partial(np.histogram, density=True)
        expected, _ = call(a, 4, weights=np.abs(weights))
        assert_agrees(call(u, 4, weights=np.abs(weights))[0], expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["f8", "i4", "?"])
def test_estimators(comm, dtype):
    a = (np.random.default_rng(0).random((9, 8, 7)) * 30).astype(dtype)
    u = spread(pencils.Pencil(a.shape, comm), a)
    for bins in ("auto", "doane", "fd", "rice", "scott", "sqrt", "sturges"):
        for limits in (None, (1, 5), (5, 5)):
            old = np.lib.NumpyVersion(np.__version__) < "2.4.0"
            if old and limits and a.dtype.kind != "f":
                continue  # which has bins of integers that are narrower than 1
            call = functools.partial(np.histogram_bin_edges, bins=bins, range=limits)
            assert_same_outcome(lambda x, call=call: call(x), u, a, rtol=1e-6)
    few = pencils.ones(pencils.Pencil((2,), comm))
    for bins in ("auto", "doane", "fd"):
        assert_same_outcome(lambda x, bins=bins: np.histogram(x, bins), few, np.ones(2))
    all_raise(comm, ArgumentError, "or one of auto", np.histogram, u, "stone")
    all_raise(comm, TypeError, "takes no weights", np.histogram, u, "auto", weights=u)


def test_nan_and_infinity(comm, pencil):
    a = draw(pencil.shape)
    a.reshape(-1)[-1] = np.nan
    u = spread(pencil, a)
    assert_same_outcome(np.histogram, u, a)
    assert_same_outcome(lambda x: np.histogram(x, [-1, 0, 1]), u, a)
    assert_same_outcome(lambda x: np.histogram(x, 5, (-1, 1)), u, a)
    all_raise(comm, ValueError, "not finite", np.histogram, u)


def test_fields_without_points(comm):
    a = np.zeros((4, 0, 3))
    u = pencils.zeros(pencils.Pencil(a.shape, comm))
    for bins in (3, [0, 1, 2], "auto"):
        assert_same_outcome(lambda x, bins=bins: np.histogram(x, bins), u, a)
    v, b = u.astype(int), a.astype(int)
    assert_same_outcome(lambda x: np.bincount(x.ravel() if x is b else x, minlength=2), v, b)
    assert_same_outcome(np.unique, u, a)


def test_replicas_count_once(comm):
    pencil = lay(comm, "pencils")
    u, a = both(pencil, draw((2, pencil.shape[0], 1, 1), "u1"), dims=0)
    assert_same_outcome(np.histogram, u, a)
    assert_same_outcome(lambda x: np.unique(x, return_counts=True), u, a)
    assert_agrees(np.bincount(u), np.bincount(a.ravel()))
    v, whole = both(pencil, draw(pencil.shape))
    profile = u.component(0)
    expected = np.histogram2d(whole.ravel(), np.broadcast_to(a[0], whole.shape).ravel(), 4)
    for mine, theirs in zip(np.histogram2d(v, profile, 4), expected, strict=True):
        assert_agrees(mine, theirs)


def test_several_fields(pencil):
    a, b, c = (draw(pencil.shape, kind, n) for n, kind in enumerate(("f8", "i4", "f4")))
    us = [spread(pencil, x) for x in (a, b, c)]
    flat = [x.ravel() for x in (a, b, c)]
    weights = np.abs(draw(pencil.shape, seed=5))
    for bins in (2, [2, 3, 4], [3, [-3, 0, 2.5], 2], [[0, 1], [-2, 0, 2], [-5, 5]]):
        for limits in (None, [None, (-4, 4), (0, 1)]):
            call = functools.partial(np.histogramdd, bins=bins, range=limits)
            assert_same_outcome(lambda x, call=call: call(x), us, flat)
    assert_same_outcome(lambda x: np.histogramdd(x[:1], 3), us, flat)
    expected, _, _ = outcome(lambda: np.histogramdd(flat, 2, weights=weights.ravel(), density=True))
    for given in (weights, spread(pencil, weights)):
        result, _, _ = outcome(lambda: np.histogramdd(us, 2, weights=given, density=True))  # noqa: B023
        assert_agrees(result[0], expected[0], rtol=1e-12)
    for bins in (3, [2, 3], [-1, 0, 1], [4, [-1, 0, 1]], np.linspace(-3, 3, 4)):
        assert_same_outcome(lambda x, bins=bins: np.histogram2d(*x[:2], bins), us, flat)
    assert_same_outcome(lambda x: np.histogram2d(*x[:2], range=[[-2, 2], [-5, 5]]), us, flat)
    result = np.histogram2d(us[0], b, 3)[0]  # one of them the same on all ranks
    assert_agrees(result, np.histogram2d(flat[0], flat[1], 3)[0])


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8", "u8", "f8", ">i2"])
def test_bincount(pencil, dtype):
    a = np.abs(draw((2, *pencil.shape), dtype)) if dtype != "?" else draw((2, *pencil.shape), "?")
    u = spread(pencil, a, halo=1)
    for options in ({}, {"minlength": 20}, {"minlength": np.int8(3)}):
        assert_same_outcome(lambda x, o=options: np.bincount(flattened(x), **o), u, a)
    weights = draw(a.shape, "f4", 1)
    if dtype in {"i1", "u2", "i8"}:
        expected = np.bincount(a.ravel(), weights.ravel())
        for given in (weights, spread(pencil, weights)):
            assert_agrees(np.bincount(u, given), expected, rtol=1e-6)
    if a.dtype.kind == "i":
        assert_same_outcome(lambda x: np.bincount(flattened(x)), u - 9, a - np.int8(9))


def flattened(x):
    return x.ravel() if isinstance(x, np.ndarray) else x


@pytest.mark.parametrize("dtype", [*DTYPES, "c16", "M8[D]", "S2"])
def test_unique(comm, pencil, dtype):
    a = draw((2, *pencil.shape), "i1")
    a = a.astype(dtype) if dtype != "M8[D]" else a.astype("i8").astype(dtype)
    u = spread(pencil, a)
    assert_same_outcome(np.unique, u, a)
    assert_same_outcome(lambda x: np.unique(x, return_counts=True), u, a)
    result, expected = np.unique_counts(u), np.unique_counts(a)
    assert type(result) is type(expected)
    assert_agrees(result.values, expected.values)
    assert_agrees(result.counts, expected.counts)
    values = np.unique_values(u)
    assert_agrees(values, np.sort(np.unique_values(a)))
    assert everywhere(comm, values.flags.writeable)


def test_unique_nan(pencil):
    a = np.round(draw((2, *pencil.shape)))
    a.reshape(-1)[::2] = np.nan
    a.reshape(-1)[1::4] = -0.0
    u = spread(pencil, a)
    for options in ({}, {"equal_nan": False}):
        assert np.array_equal(np.unique(u, **options), np.unique(a, **options), equal_nan=True)
        both = (np.unique(x, return_counts=True, **options) for x in (u, a))
        for mine, theirs in zip(*both, strict=True):
            assert np.array_equal(mine, theirs, equal_nan=True)


BAD = {
    "histogram bins": (lambda u: np.histogram(u, 0), ValueError, "positive"),
    "histogram edges": (lambda u: np.histogram(u, [2, 1]), ValueError, "increase"),
    "histogram text": (lambda u: np.histogram(u, "best"), ArgumentError, "best"),
    "histogram field": (lambda u: np.histogram(u, u), TypeError, "bins must be numbers"),
    "unique counts": (lambda u: np.unique(u, return_counts=np.ones(2)), ValueError, "truth"),
    "histogram range": (lambda u: np.histogram(u, range=(2, 1)), ValueError, "larger"),
    "histogram weights": (lambda u: np.histogram(u, weights=[1, 2]), ArgumentError, "shape"),
    "histogram complex": (lambda u: np.histogram(u * 1j), TypeError, "u.real"),
    "histogramdd vector": (np.histogramdd, TypeError, "unstack"),
    "histogramdd bins": (lambda u: np.histogramdd([u, u], [1, 2, 3]), ValueError, "dimension"),
    "bincount float": (np.bincount, TypeError, "safe"),
    "bincount minlength": (
        lambda u: np.bincount(u.astype(int), minlength=-1),
        ValueError,
        "negative",
    ),
    "bincount negative": (lambda u: np.bincount(-u.astype(int)), ArgumentError, "not be negative"),
    "unique index": (lambda u: np.unique(u, return_index=True), TypeError, "no return_index="),
    "unique axis": (lambda u: np.unique(u, axis=0), TypeError, "no axis="),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_on_one_rank_raises_on_all(comm, name):
    good = {
        "histogramdd": lambda u: np.histogramdd([u, u]),
        "bincount": lambda u: np.bincount(u.astype(int)),
    }.get(name.split()[0], getattr(np, name.split()[0]))
    assert_mistake_raises_on_all(comm, BAD[name], good, shape=(12, 3))


def test_coordinates(comm):
    pencil = lay(comm, "pencils")
    grid = pencils.localgrid(pencil, [np.arange(n) ** 2 for n in pencil.shape])
    x, y, z = np.meshgrid(*(np.arange(n) ** 2 for n in pencil.shape), indexing="ij")
    expected = np.histogramdd([x.ravel(), y.ravel(), z.ravel()], 3)[0]
    assert_agrees(np.histogramdd(list(grid), 3)[0], expected)
    expected = np.histogram2d(x[..., 0].ravel(), y[..., 0].ravel(), 3)[0]
    assert_agrees(np.histogram2d(grid[0], grid[1], 3)[0], expected)
    u = pencils.ones(pencil)
    all_raise(
        comm,
        TypeError,
        "the sample must contain one",
        np.histogramdd,
        [np.ones(pencil.shape)],
        weights=u,
    )


def test_weights_on_another_pencil(comm):
    u = pencils.ones(pencils.Pencil((4, 3), comm))
    other = pencils.ones(pencils.Pencil((4, 5), comm))
    for call in (
        functools.partial(np.histogram, u, weights=other),
        functools.partial(np.bincount, u.astype(int), other),
    ):
        all_raise(comm, PencilMismatchError, "cannot be mixed", call)
