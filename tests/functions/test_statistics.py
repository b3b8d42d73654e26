"""Reductions without NaN, and weighted averages, are those of NumPy over the global array."""

import functools

import numpy as np
import pytest
from agreement import assert_agrees, identical, kept, outcome
from checks import assert_like_numpy, assert_mistake_raises_on_all
from fields import both, draw, lay, spread
from mpi_helpers import all_raise, everywhere, named, ranks_at_fault

import pencils
from pencils.errors import ArgumentError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

EXACT = ["nanmin", "nanmax"]
ROUNDED = ["nansum", "nanprod", "nanmean", "nanvar", "nanstd"]
ARGS = ["nanargmin", "nanargmax"]
DTYPES = ["?", "i1", "u8", "f2", "f4", "f8", "g", ">f8", "c8", "c16"]
TOLERANCE = {"f2": 2e-2, "f4": 1e-4, "c8": 1e-4}


@pytest.fixture(params=["few", "thin", "pencils", "four"])
def pencil(request, comm):
    """Fewer layouts than elsewhere: here every line is a collective."""
    return lay(comm, request.param)


def holes(shape, dtype=float, seed=0):
    """Draw data of which some are NaN, but not all."""
    a = draw(shape, dtype, seed)
    if a.dtype.kind in "fc":
        a[draw(shape, "?", seed + 1)] = np.nan
        a.reshape(-1)[-1] = 0.5
    return a


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_whole_field(comm, pencil, dtype):
    a = holes((2, *pencil.shape), dtype)
    if a.dtype.kind in "fc":
        a /= 3  # whose product does not overflow
    u = spread(pencil, a, halo=1)
    for name in EXACT + ROUNDED + ARGS:
        function = getattr(np, name)
        expected, texts, error = outcome(lambda function=function: function(a))
        result, found, raised = outcome(lambda function=function: function(u))
        assert (error is None) == (raised is None), (name, error, raised)
        if error is not None:
            assert isinstance(raised, type(error)), name
            continue
        if name != "nanprod":
            assert {t for t in found if "Mean" in t[1] or "NaN" in t[1]} == {
                t for t in texts if "Mean" in t[1] or "NaN" in t[1]
            }
        assert_agrees(result, expected, rtol=TOLERANCE.get(dtype, 1e-10) * (name in ROUNDED))
        assert identical(comm, result)


@pytest.mark.parametrize("name", EXACT + ROUNDED)
def test_axes(pencil, name):
    u, a = both(pencil, holes((2, 3, *pencil.shape)))
    function, last = getattr(np, name), a.ndim - 1
    for axis in (0, 2, -1, (0, 1), (1, last), tuple(range(2, a.ndim)), ()):
        assert_like_numpy(function, u, a, axis, rtol=1e-11)
    for axis in (None, (0, -1)):
        expected, _, _ = outcome(lambda axis=axis: function(a, axis=axis, keepdims=True))
        result, _, _ = outcome(lambda axis=axis: function(u, axis=axis, keepdims=True))
        assert_agrees(result, expected, rtol=1e-11)


@pytest.mark.parametrize("name", ARGS)
def test_positions(pencil, name):
    a = holes((2, *pencil.shape))
    a[0] = np.where(np.isnan(a[0]) & np.isnan(a[1]), 1.5, a[0])
    u, function = spread(pencil, a), getattr(np, name)
    for axis in (None, *range(-a.ndim, a.ndim)):
        assert_like_numpy(function, u, a, axis)


def test_nothing_but_nan(comm, pencil):
    shape = (2, *pencil.shape)
    a = np.full(shape, np.nan)
    u = spread(pencil, a)
    for name in EXACT + ROUNDED:
        function = getattr(np, name)
        for axis in (None, 0, -1):
            assert_like_numpy(function, u, a, axis)
    for name in ARGS:
        all_raise(comm, ArgumentError, "All-NaN", getattr(np, name), u)


def test_one_slice_of_nan_warns_on_all_ranks(comm, pencil):
    a = draw((2, *pencil.shape))
    a[..., -1] = np.nan
    a[..., -1].reshape(-1)[-1:] = 1.0
    a[(slice(None), *(-1,) * pencil.ndim)] = np.nan
    u = spread(pencil, a)
    for name in (*EXACT, "nanmean", "nanvar"):
        with pytest.warns(RuntimeWarning) as caught:
            getattr(np, name)(u, axis=0)
        assert len(caught) == 1
        assert caught[0].filename == __file__
    all_raise(comm, ArgumentError, "All-NaN", np.nanargmin, u, axis=0)


@pytest.mark.parametrize("name", EXACT + ROUNDED)
def test_where_and_initial(pencil, name):
    a, mask = holes((2, *pencil.shape)), draw(pencil.shape, "?", 2)
    u, function = spread(pencil, a), getattr(np, name)
    options = {"initial": 1.5} if name not in {"nanmean", "nanvar", "nanstd"} else {}
    for where in (mask, spread(pencil, mask)):
        for axis in (None, 1):
            theirs = {"where": mask}
            assert_like_numpy(
                function, u, a, axis, rtol=1e-11, where=where, theirs=theirs, **options
            )


def test_divisors_and_means(pencil):
    u, a = both(pencil, holes((3, *pencil.shape)))
    for options in ({"ddof": 1}, {"correction": 1}, {"correction": 0.5}, {"ddof": 2}):
        for axis in (None, 0):
            assert_like_numpy(np.nanvar, u, a, axis, rtol=1e-12, **options)
    center = np.arange(a.size / 3).reshape(1, *pencil.shape)
    expected, _, _ = outcome(lambda: np.nanstd(a, 0, mean=center))
    for mean in (center, spread(pencil, center), spread(pencil, center[0])):
        result, _, _ = outcome(lambda mean=mean: np.nanstd(u, 0, mean=mean))
        assert_agrees(result, expected, rtol=1e-12)
    whole = np.arange(a.size).reshape(a.shape)
    result = np.nanvar(spread(pencil, whole), mean=1.5, correction=1)
    assert_agrees(result, np.nanvar(whole, mean=1.5, correction=1), rtol=1e-12)


def test_result_types(pencil):
    u, a = both(pencil, holes(pencil.shape, "f4"))
    for name in ("nansum", "nanprod", "nanmean", "nanvar"):
        for dtype in ("f8", "c16")[: 1 if name == "nanvar" else 2]:
            result, expected = (getattr(np, name)(x, dtype=dtype) for x in (u, a))
            assert_agrees(result, expected, rtol=1e-3)


def test_times(pencil):
    a = draw(pencil.shape, "i4").astype("M8[D]")
    a.reshape(-1)[0] = "NaT"
    u = spread(pencil, a)
    assert np.nanmin(u) == np.nanmin(a)
    found, _, _ = outcome(lambda: np.nanmax(u, 0))
    expected, _, _ = outcome(lambda: np.nanmax(a, 0, keepdims=True))
    assert_agrees(found, expected)
    spans = a - a[(-1,) * a.ndim]
    assert np.isnat(np.nansum(spread(pencil, spans)))


def test_replicas_count_once(comm):
    pencil = lay(comm, "pencils")
    u, a = both(pencil, holes((2, pencil.shape[0], 1, 1)), dims=0)
    for name in EXACT + ROUNDED:
        assert_agrees(getattr(np, name)(u), getattr(np, name)(a), rtol=1e-12)
    for axis in (1, 2, (1, 3)):
        assert_like_numpy(np.nanmean, u, a, axis, rtol=1e-12)
    v, weights = both(pencil, draw(a.shape, seed=3), dims=0)
    assert_agrees(np.average(v, weights=v), np.average(weights, weights=weights), rtol=1e-12)


def test_fields_without_points(comm):
    a = np.zeros((4, 0, 3))
    u = pencils.zeros(pencils.Pencil(a.shape, comm))
    for name in ("nansum", "nanprod", "nanmean", "nanvar", "nanstd"):
        function = getattr(np, name)
        for axis in (None, 0, 1):
            assert_like_numpy(function, u, a, axis)
    for name in (*EXACT, *ARGS):
        all_raise(comm, ArgumentError, "without points", getattr(np, name), u)


@pytest.mark.parametrize("dtype", ["?", "i4", "f2", "f4", "f8", "c16"])
def test_averages(comm, pencil, dtype):
    u, a = both(pencil, draw((2, *pencil.shape), dtype), halo=1)
    rtol = TOLERANCE.get(dtype, 1e-10)
    for axis in (None, 0, -1, (0, 1)):
        assert_agrees(np.average(u, axis), kept(a, axis, pencil.ndim, np.average), rtol=rtol)
        for kind in ("f4", "i2") if axis is None else ("f8",):
            weights = np.abs(draw(a.shape, kind, 1)) + np.ones((), kind)
            expected = kept(a, axis, pencil.ndim, np.average, weights=weights)
            for given in (weights, spread(pencil, weights)):
                result = np.average(u, axis, given)
                assert_agrees(result, expected, rtol=max(rtol, TOLERANCE.get(kind, 0)))
        result, scale = np.average(u, axis, weights, returned=True)
        _, expected = kept_pair(a, axis, pencil.ndim, weights)
        assert_agrees(scale, expected, rtol=rtol)
        assert axis is not None or identical(comm, (result, scale))
        _, scale = np.average(u, axis, returned=True)
        _, expected = kept_pair(a, axis, pencil.ndim, None)
        assert_agrees(scale, expected)


def kept_pair(a, axis, ndim, weights):
    def part(n):
        return lambda *args, **options: np.average(*args, **options, returned=True)[n]

    return [kept(a, axis, ndim, part(n), weights=weights) for n in range(2)]


def test_weights_along_axes(pencil):
    u, a = both(pencil, draw((2, *pencil.shape)))
    for axis in range(a.ndim):
        weights = np.arange(1.0, a.shape[axis] + 1)
        expected = kept(a, axis, pencil.ndim, np.average, weights=weights)
        assert_agrees(np.average(u, axis, weights.tolist()), expected, rtol=1e-12)
    weights = draw((a.shape[-1], a.shape[0])) ** 2
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        expected = kept(a, (-1, 0), pencil.ndim, np.average, weights=weights)
        assert_agrees(np.average(u, (-1, 0), weights), expected, rtol=1e-12)
    profile = draw(pencil.shape) ** 2
    expected = np.average(a, weights=np.broadcast_to(profile, a.shape))
    assert_agrees(np.average(u, weights=spread(pencil, profile)), expected, rtol=1e-12)
    plane = np.average(spread(pencil, profile), axis=0)
    expected = np.average(a, weights=np.broadcast_to(profile.mean(0, keepdims=True), a.shape))
    assert_agrees(np.average(u, weights=plane), expected, rtol=1e-12)


BAD = {
    "nansum axis": (lambda u: np.nansum(u, axis=7), ArgumentError, "axis=(7,)"),
    "nanmax out": (lambda u: np.nanmax(u, out=u), TypeError, "takes no out="),
    "nanmin where": (lambda u: np.nanmin(u, where=np.ones(3, bool)), ArgumentError, "initial="),
    "nanmean dtype": (lambda u: np.nanmean(u, dtype=int), TypeError, "hold a mean"),
    "nanstd ddof": (lambda u: np.nanstd(u, ddof=1, correction=1), ArgumentError, "give one"),
    "nanvar mean": (lambda u: np.nanvar(u, mean=np.ones(7)), ArgumentError, "global"),
    "average weights": (lambda u: np.average(u, weights=[1, 2]), TypeError, "give axis="),
    "average returned": (lambda u: np.average(u, returned=np.ones(2)), ValueError, "truth value"),
    "average axis": (lambda u: np.average(u, 0, [1, 2]), ArgumentError, "along axes (0,)"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_on_one_rank_raises_on_all(comm, name):
    assert_mistake_raises_on_all(comm, BAD[name], getattr(np, name.split()[0]))


def test_a_first_argument_that_is_no_field(comm):
    u = pencils.ones(pencils.Pencil((4, 3), comm))
    all_raise(
        comm, TypeError, "average: a must be a PencilArray", np.average, np.ones((4, 3)), weights=u
    )
    for rank in ranks_at_fault(comm):
        first = np.ones((4, 3)) if comm.rank == rank else u
        all_raise(comm, TypeError, named(comm, rank), np.average, first, weights=u)


def test_weights_that_cannot_be_used(comm):
    u = pencils.ones(pencils.Pencil((4, 3), comm))
    for weights in (u - 1, np.zeros(u.shape)):
        all_raise(comm, ZeroDivisionError, "sum to zero", np.average, u, weights=weights)
    zero = np.ones((4, 3))
    zero[-1] = 0
    all_raise(comm, ZeroDivisionError, "sum to zero", np.average, u, axis=1, weights=zero)
    none = pencils.ones(pencils.Pencil((0, 3), comm))
    all_raise(comm, ZeroDivisionError, "sum to zero", np.average, none, axis=1, weights=[1, 0, -1])
    assert np.average(none, axis=1, weights=[1, 0, 1]).shape == (0, 1)
    other = pencils.ones(pencils.Pencil((4, 5), comm))
    all_raise(comm, PencilMismatchError, "cannot be mixed", np.average, u, weights=other)


def test_times_have_no_weighted_average(comm):
    u = pencils.ones(pencils.Pencil((1, 3), comm, decomp=0), dtype="m8[s]", components=2)
    for weights in ([1, 2], [0.5, 1]):
        call = functools.partial(np.average, u, axis=0, weights=weights)
        assert everywhere(comm, isinstance(outcome(call)[2], TypeError))
    assert int(np.sum(u).astype(int)) == u.size


def test_an_average_without_points(comm):
    u = pencils.zeros(pencils.Pencil((2, 0), comm, decomp=0))
    all_raise(comm, ZeroDivisionError, "weights sum to zero", np.average, u, axis=1, weights=u)
    assert u.sum() == 0
