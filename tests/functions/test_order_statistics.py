"""Medians and quantiles are those of NumPy over the global array."""

import functools
from itertools import combinations

import numpy as np
import pytest
from agreement import assert_agrees, kept, outcome
from checks import assert_mistake_raises_on_all, assert_same_outcome
from fields import both, draw, lay, spread
from mpi_helpers import all_raise, collectives, everywhere

import pencils
from pencils.comm import agree
from pencils.errors import ArgumentError
from pencils.functions import selection
from pencils.functions.selection import places, room_for, select

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

METHODS = [
    *("inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf"),
    *("hazen", "weibull", "linear", "median_unbiased", "normal_unbiased"),
    *("lower", "higher", "midpoint", "nearest"),
]
DTYPES = ["?", "i1", "u2", "i8", "u8", "f2", "f4", "f8", "g", ">f8", ">i2", "c8", "m8[s]", "M8[D]"]


@pytest.fixture(params=["few", "thin", "pencils"])
def pencil(request, comm):
    """Fewer layouts than elsewhere: here every line is many collectives."""
    return lay(comm, request.param)


def times(shape, dtype):
    return draw(shape, "i4").astype(dtype) if np.dtype(dtype).kind in "mM" else draw(shape, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_whole_field(pencil, dtype):
    a = times((2, *pencil.shape), dtype)
    u = spread(pencil, a, halo=1)
    assert_same_outcome(np.median, u, a)
    assert_same_outcome(np.nanmedian, u, a)
    for q in (0.25, [0, 0.5, 1], np.float64(0.75), np.float32(0.5), np.array(0.5), np.int8(1)):
        assert_same_outcome(lambda x, q=q: np.quantile(x, q), u, a)
    assert_same_outcome(lambda x: np.quantile(x, 0.25, method="higher"), u, a)
    assert_same_outcome(lambda x: np.percentile(x, [[25], [50]]), u, a)


@pytest.mark.parametrize("method", METHODS)
def test_methods(pencil, method):
    for dtype in ("f8", "i4"):
        u, a = both(pencil, draw((3, *pencil.shape), dtype))
        for q in ([0, 0.21, 0.5, 0.83, 0.999, 1], 0, 1, 0.37, [0, 1], []):
            old = np.lib.NumpyVersion(np.__version__) < "2.4.0"
            if old and np.asarray(q).dtype.kind == "i" and method != "linear":
                continue  # its results have other types
            assert_same_outcome(lambda x, q=q: np.quantile(x, q, method=method), u, a)


def test_nan(pencil):
    a = draw((2, *pencil.shape))
    a.reshape(-1)[::3] = np.nan
    u = spread(pencil, a)
    for function in (np.median, np.nanmedian):
        assert_same_outcome(function, u, a)
    for q in (0.25, [0.5, 0.75]):
        for function in (np.quantile, np.nanquantile):
            assert_same_outcome(lambda x, f=function, q=q: f(x, q), u, a)
    b = np.full(a.shape, np.nan)
    v = spread(pencil, b)
    for call in (np.median, np.nanmedian, lambda x: np.nanpercentile(x, [10, 20])):
        assert_same_outcome(call, v, b)


def test_not_a_time(pencil):
    a = times(pencil.shape, "m8[s]")
    a.reshape(-1)[0] = "NaT"
    u = spread(pencil, a)
    assert np.isnat(np.median(u))
    assert np.isnat(np.quantile(u, 0.5))
    assert_same_outcome(np.nanmedian, u, a)


def test_special_values(pencil):
    for values in ([np.inf], [-np.inf, np.inf], [-0.0, 0.0], [1e-310, -1e-310], [1e300]):
        a = np.resize(values, pencil.shape)
        u = spread(pencil, a)
        for call in (np.median, lambda x: np.quantile(x, [0.0, 0.4, 1.0])):
            assert_same_outcome(call, u, a)


def test_axes(pencil):
    u, a = both(pencil, draw((3, 2, *pencil.shape)))
    every = tuple(range(a.ndim))
    space = range(2, a.ndim)
    for axis in (0, (0, 1), (1,), every, *space, *((1, dim) for dim in space)):
        for function in (np.median, np.nanmedian):
            assert_agrees(function(u, axis), kept(a, axis, pencil.ndim, function))
        for q, front in ((0.3, 0), ([0.3, 0.6], 1), ([[0.3], [0.6]], 2)):
            expected = kept(a, axis, pencil.ndim, np.quantile, q, front=front)
            assert_agrees(np.quantile(u, q, axis), expected)
    for axis in (None, 0, every):
        expected = np.percentile(a, [20, 30], axis=axis, keepdims=True)
        assert_agrees(np.percentile(u, [20, 30], axis=axis, keepdims=True), expected)
        assert_agrees(np.median(u, axis, keepdims=True), np.median(a, axis, keepdims=True))


def test_several_axes_that_are_cut(pencil):
    u, a = both(pencil, draw((2, *pencil.shape), "f4"))
    space = range(1, a.ndim)
    for count in range(1, a.ndim):
        for axes in (*combinations(space, count), *((0, *each) for each in combinations(space, 2))):
            assert_agrees(np.median(u, axes), kept(a, axes, pencil.ndim, np.median))
            for q in (0.3, [0.3, 0.6]):
                expected = kept(a, axes, pencil.ndim, np.quantile, q, front=np.ndim(q))
                assert_agrees(np.quantile(u, q, axes), expected)
            expected = np.median(a, axes, keepdims=True)
            assert_agrees(np.median(u, axes, keepdims=True), expected)


def test_planes_of_sections_and_nan(comm):
    pencil = pencils.Pencil((6, 5, 4), comm)
    a = draw((2, *pencil.shape))
    a[0, 1:, 2] = np.nan
    u, part = spread(pencil, a)[:, 1:, ::2], a[:, 1:, ::2]
    one, flat = spread(pencil, a[:, :, :1], dims=(0, 2)), a[:, :, :1]
    weights = np.abs(draw(part.shape, seed=1))
    for axes in ((1, 2), (1, 3), (2, 3), (1, 2, 3)):
        for function in (np.median, np.nanmedian):
            expected, texts, _ = outcome(lambda: kept(part, axes, 3, function))  # noqa: B023
            found, said, _ = outcome(lambda: function(u, axes))  # noqa: B023
            assert_agrees(found, expected)
            assert said == texts
            assert_agrees(function(one, axes), kept(flat, axes, 3, function))
        given = {"method": "inverted_cdf", "axis": axes}
        expected, *_ = outcome(lambda: np.quantile(part, 0.4, weights=weights, **given))  # noqa: B023
        found, *_ = outcome(lambda: np.quantile(u, 0.4, weights=weights, **given))  # noqa: B023
        assert_agrees(found, np.expand_dims(expected, axes))


def test_transposed_fields(comm):
    pencil = pencils.Pencil((6, 5, 4), comm)
    a = draw(pencil.shape)
    u = pencils.transpose(spread(pencil, a), pencil.with_(decomp=1))
    assert_agrees(np.median(u, axis=0), np.median(a, axis=0, keepdims=True))


def test_nan_along_axes(pencil):
    a = draw((3, *pencil.shape))
    a[0].reshape(-1)[::2] = np.nan
    a[:, ..., -1] = np.nan
    u = spread(pencil, a)
    for call in (np.median, np.nanmedian, lambda x, axis: np.nanquantile(x, 0.3, axis)):
        for axis in range(a.ndim):
            old = functools.partial(kept, a, axis, pencil.ndim, call_on(call))
            expected, texts, _ = outcome(old)
            result, found, _ = outcome(lambda: call(u, axis=axis))  # noqa: B023
            assert_agrees(result, expected)
            assert found == texts


def call_on(call):
    def with_axes(a, axis, keepdims):
        assert keepdims
        return np.expand_dims(call(a, axis=axis), axis)

    return with_axes


def test_replicas_count_once(comm):
    pencil = lay(comm, "pencils")
    u, a = both(pencil, draw((2, pencil.shape[0], 1, 1)), dims=0)
    assert_same_outcome(np.median, u, a)
    assert_agrees(np.median(u, axis=2), np.median(a, axis=2, keepdims=True))


def test_fields_without_points(comm):
    a = np.zeros((4, 0, 3))
    u = pencils.zeros(pencils.Pencil(a.shape, comm))
    for call in (np.median, np.nanmedian, lambda x: np.nanquantile(x, 0.5)):
        assert_same_outcome(call, u, a)
    all_raise(comm, IndexError, "", np.quantile, u, 0.5)


def test_weights(comm, pencil):
    a, weights = draw((4, *pencil.shape)), np.abs(draw((4, *pencil.shape), "i4", 1)) + 1
    u = spread(pencil, a)
    options = {"method": "inverted_cdf", "axis": 0}
    expected = np.quantile(a, [0.3, 0.8], weights=weights, **options)
    for given in (weights, spread(pencil, weights)):
        assert_agrees(np.quantile(u, [0.3, 0.8], weights=given, **options), expected)
    call = functools.partial(np.quantile, u, 0.5, weights=weights, method="inverted_cdf")
    all_raise(comm, TypeError, "takes no weights", call)


@pytest.mark.parametrize("dtype", ["f8", "g", "i4"])
def test_selection_of_many_values(comm, dtype):
    n = 1 << 20
    a = (np.random.default_rng(3).normal(size=n) * 1000).astype(dtype)
    if dtype == "g":
        a += np.longdouble(2) ** -60 * np.arange(n)
        a[:3] *= np.longdouble(10) ** 400
    u = spread(pencils.Pencil((n,), comm), a)
    in_order = np.sort(a)
    positions = np.array([0, 5, n // 3, n // 3 + 1, n - 1])
    with collectives() as calls:
        room = room_for(n, positions.size, u.dtype, comm.size)
        found = select(
            pencils.Pencil((n,), comm).topology.comm, "test", u.local, n, positions, room
        )
    np.testing.assert_array_equal(found, in_order[positions])
    assert len(calls) <= (5 if dtype == "g" else 4)
    assert np.median(u) == np.median(a)


@pytest.mark.parametrize("most", [0, 7, 50])
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_counted_until_few_are_left(comm, monkeypatch, dtype, most):
    monkeypatch.setattr(agree, "MOST_GATHERED", 1)
    monkeypatch.setattr(selection, "MOST_COLLECTED", most)
    a = times((2, 9, 7), dtype)
    u = spread(pencils.Pencil((9, 7), comm), a)
    assert_same_outcome(np.nanmedian, u, a)
    assert_same_outcome(lambda x: np.quantile(x, [0, 0.1, 0.12, 0.5, 0.9, 1]), u, a)
    if np.dtype(dtype).kind in "fc":
        a[0, ::2] = np.nan
        assert_same_outcome(np.nanmedian, spread(u.pencil, a), a)
        assert_same_outcome(np.median, spread(u.pencil, a), a)


def test_collectives_do_not_depend_on_the_data(comm):
    pencil = pencils.Pencil((64 * comm.size,), comm)
    alone = pencil.with_(shape=(3,))
    for u in (pencils.ones(pencil), pencils.random.normal(pencil, rng=1), pencils.ones(alone)):
        np.median(u)  # makes communicators
        with collectives() as calls:
            np.median(u)
        assert everywhere(comm, len(calls) <= 2 + 2 * 8 + 2)


@pytest.mark.parametrize("method", METHODS)
def test_places_are_those_of_numpy(method):
    if method == "closest_observation" and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("NumPy chooses other values at ties since 2.1")
    for n in (1, 2, 7):
        a = np.arange(n, dtype=float) ** 2
        for q in np.linspace(0, 1, 13):
            lower, upper, distance = places(method, n, np.asarray(q))
            mine = a[lower] + (a[upper] - a[lower]) * (0 if distance is None else distance)
            np.testing.assert_allclose(mine, np.quantile(a, q, method=method), rtol=1e-12)


BAD = {
    "median axis": (lambda u: np.median(u, axis=7), ArgumentError, "axis=(7,)"),
    "median out": (lambda u: np.median(u, out=u), TypeError, "takes no out="),
    "quantile q": (lambda u: np.quantile(u, 1.5), ValueError, "[0, 1]"),
    "quantile field": (lambda u: np.quantile(u, u), TypeError, "not a PencilArray"),
    "percentile q": (lambda u: np.percentile(u, [5, 101]), ValueError, "[0, 100]"),
    "nanquantile method": (lambda u: np.nanquantile(u, 0.5, method="best"), ValueError, "best"),
    "quantile type": (lambda u: np.quantile(u * 1j, 0.5), TypeError, "real"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_on_one_rank_raises_on_all(comm, name):
    function = getattr(np, name.split()[0])
    good = function if "median" in name else functools.partial(function, q=0.5)
    assert_mistake_raises_on_all(comm, BAD[name], good)


def test_results_of_all_ranks_have_one_type(comm):
    pencil = pencils.Pencil((4, 3), comm, decomp=1)
    for dtype in (">f4", "f4"):
        a = draw((4, 3), dtype)
        a[:, 0] = np.nan  # for which NumPy has other types
        u = spread(pencil, a)
        for q in (np.float32([0.1, 0.9]), np.float64(0.25)):
            found, _, _ = outcome(lambda q=q: np.nanquantile(u, q, axis=0))  # noqa: B023
            assert everywhere(comm, found.dtype == np.nanquantile(np.ones(4, "f4"), q).dtype)
            assert_agrees(np.isfinite(found).sum(), np.int64(2 * np.size(q)))
