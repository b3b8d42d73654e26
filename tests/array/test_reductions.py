"""Reductions over the ranks are those of NumPy over the global array."""

import functools

import numpy as np
import pytest
from agreement import assert_agrees, bits_of, identical, kept
from fields import assert_holds, assert_same, both, draw, lay, spread
from mpi_helpers import all_raise, collectives, everywhere, named, ranks_at_fault

import pencils
from pencils.comm import agree
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture(params=["few", "plane", "thin", "pencils", "four"])
def pencil(request, comm):
    """Fewer layouts than elsewhere: here every line is a collective."""
    return lay(comm, request.param)


EXACT = ["min", "max", "any", "all", "count_nonzero", "ptp"]
ROUNDED = ["sum", "prod", "mean", "var", "std"]
ARGS = ["argmin", "argmax"]
NUMBERS = ["i1", "u8", "f4", "f8", ">f8", "c16"]


def tolerance(dtype):
    return 1e-4 if dtype == "f4" else 1e-10


def reduced(name, u, axis=None, *, rtol=0, given=None, **options):
    """Check a reduction of a field by NumPy; `given` are options of the field instead of these."""
    function = getattr(np, name)
    result = function(u.field, axis=axis, **(given or options))
    expected = kept(u.data, axis, u.field.pencil.ndim, function, **options)
    assert_agrees(result, expected, rtol=rtol)
    return result


@pytest.mark.parametrize("dtype", NUMBERS)
def test_the_whole_field(comm, pencil, dtype):
    a = draw((2, *pencil.shape), dtype)
    if dtype == "f4":
        a /= 3  # whose product does not overflow
    u = both(pencil, a, halo=1)
    for name in EXACT + ROUNDED + ARGS:
        if name != "ptp" or dtype != "i1":
            result = reduced(name, u, rtol=tolerance(dtype) if name in ROUNDED else 0)
            assert identical(comm, result)
            if hasattr(u.field, name):
                assert bits_of(getattr(u.field, name)()) == bits_of(result)


@pytest.mark.parametrize("name", EXACT + ROUNDED)
def test_axes(pencil, name):
    a = draw((2, 3, *pencil.shape))
    u = both(pencil, a)
    last = a.ndim - 1
    for axis in (0, 2, -1, (0, 1), (1, last), (2, -1), tuple(range(2, a.ndim)), ()):
        if len(set(np.atleast_1d(axis) % a.ndim)) == np.size(axis):
            reduced(name, u, axis, rtol=1e-11)
    for axis in (None, 1, (0, -1)):
        result = getattr(np, name)(u.field, axis=axis, keepdims=True)
        assert_agrees(result, getattr(np, name)(a, axis=axis, keepdims=True), rtol=1e-11)


@pytest.mark.parametrize("name", ARGS)
@pytest.mark.parametrize("dtype", ["i1", "f8", "c16", "?"])
def test_positions(pencil, name, dtype):
    a = draw((2, *pencil.shape), dtype)
    u, function = both(pencil, a), getattr(np, name)
    assert np.unravel_index(function(u.field), a.shape) == np.unravel_index(function(a), a.shape)
    for axis in range(-a.ndim, a.ndim):
        reduced(name, u, axis)
        assert_agrees(function(u.field, axis, keepdims=True), function(a, axis, keepdims=True))
    assert_agrees(function(u.field, keepdims=True), function(a, keepdims=True))


def test_the_first_of_equals_wins(pencil):
    for values in (0.0, np.nan, -0.0):
        u = pencils.full(pencil, values)
        assert u.argmin() == u.argmax() == 0
    a, b = np.zeros((2, *pencil.shape))
    a.reshape(-1)[1:] = np.nan
    b[..., -1] = 1
    assert spread(pencil, a).argmin() == spread(pencil, a).argmax() == 1
    assert spread(pencil, b).argmax() == np.argmax(b)
    assert_holds(spread(pencil, b).argmax(0), np.argmax(b, 0, keepdims=True))


def test_special_values(comm, pencil):
    for values in ([np.nan], [np.inf], [-np.inf, np.inf], [np.nan, np.inf]):
        a = draw(pencil.shape)
        a.reshape(-1)[-len(values) :] = values
        for name in ("min", "max", "sum", "argmin", "argmax", "any", "all"):
            with np.errstate(invalid="ignore"):
                assert identical(comm, reduced(name, both(pencil, a), rtol=1e-12))


def test_signs_of_zero_are_the_same_on_all_ranks(comm):
    pencil = pencils.Pencil((2 * comm.size,), comm)
    for mine in (-0.0, 0.0, [0.0, -0.0][comm.rank % 2]):
        u = pencils.full(pencil, mine)
        for name in ("min", "max", "sum"):
            assert identical(comm, getattr(u, name)())
    for sign in (-0.0, 0.0):
        u = pencils.full(pencil, sign)
        assert (np.signbit([u.max(), u.min()]) == np.signbit(sign)).all()


def test_complex_extrema_are_lexicographic(pencil):
    a = np.round(draw(pencil.shape, "c16"))
    for name in ("min", "max", "argmin", "argmax"):
        reduced(name, both(pencil, a))
    a.reshape(-1)[0] = complex(0, np.nan)
    assert np.isnan(spread(pencil, a).max())


def test_dates(pencil):
    a = draw(pencil.shape, "i4").astype("M8[D]")
    u = both(pencil, a)
    for name in ("min", "max", "argmin", "argmax"):
        reduced(name, u)
    for name in ("sum", "min", "max", "mean"):
        reduced(name, both(pencil, a - a.min()))
    with pytest.raises(TypeError):
        u.field.sum()
    a.reshape(-1)[-1] = "NaT"
    assert np.isnat(spread(pencil, a).max())


def test_booleans(pencil):
    for value in (False, True):
        a = np.full(pencil.shape, value)
        a.reshape(-1)[-1] = True
        for name in ("any", "all", "min", "max", "sum", "prod", "mean"):
            reduced(name, both(pencil, a))


@pytest.mark.parametrize("dtype", ["f2", "g", "?", "u2", "c8"])
def test_result_types(pencil, dtype):
    a = draw(pencil.shape, dtype)
    u = both(pencil, a)
    for name in ("sum", "prod", "min", "max", "mean", "var", "std", "any"):
        if dtype == "?" and name in {"var", "std"}:
            continue
        function = getattr(np, name)
        with np.errstate(over="ignore"):
            for axis in (None, 0):
                assert function(u.field, axis=axis).dtype == function(a, axis=axis).dtype, name
    for wanted in ("f8", "c16", "i8"):
        if np.dtype(dtype).kind != "c" or wanted == "c16":
            reduced("sum", u, dtype=wanted, rtol=1e-2)
            if wanted != "i8":
                assert np.mean(u.field, dtype=wanted).dtype == np.mean(a, dtype=wanted).dtype


def test_half_precision_means_do_not_overflow(comm):
    a = np.full((40, 60), 60000, "f2")
    u = both(pencils.Pencil(a.shape, comm), a)
    assert reduced("mean", u) == 60000
    reduced("mean", u, 0)
    assert u.field.var() == 0


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "any", "all", "mean", "var", "std"])
def test_where(pencil, name):
    u, mask = both(pencil, draw((2, *pencil.shape))), draw(pencil.shape, "?", 1)
    mask[0] = True
    options = {"initial": 1.5} if name in {"min", "max"} else {}
    for given, where in (
        *((mask, mask), (spread(pencil, mask), mask), (mask.tolist(), mask)),
        *((mask[:1], mask[:1]), (True, True)),
    ):
        for axis in (None, 1):
            more = {"where": given, **options}
            reduced(name, u, axis, given=more, where=where, rtol=1e-11, **options)


def test_where_on_another_pencil_raises(comm):
    reverse = comm.Split(0, -comm.rank)
    u = pencils.ones(pencils.Pencil((2 * comm.size, 3), comm))
    mask = pencils.ones(pencils.Pencil(u.shape, reverse), dtype=bool)
    if comm.size > 1:  # the blocks have equal shapes
        all_raise(comm, PencilMismatchError, "cannot be mixed", u.sum, where=mask)
    reverse.Free()


def test_initial(pencil):
    for dtype in ("i4", "f4", "c8"):
        u = both(pencil, draw(pencil.shape, dtype))
        for name in ("sum", "prod", "min", "max"):
            for axis in (None, 0):
                reduced(name, u, axis, initial=3, rtol=1e-4)
    reduced("max", both(pencil, draw(pencil.shape, int)), initial=99.5)


def test_ddof(pencil):
    a = draw((2, *pencil.shape))
    for name in ("var", "std"):
        for axis, ddof in ((None, 1), (0, 0.5)):
            reduced(name, both(pencil, a), axis, ddof=ddof, rtol=1e-12)
    np.testing.assert_allclose(spread(pencil, a + 1e9).var(), a.var(), rtol=1e-5)


def test_results_broadcast_back(pencil):
    a = draw(pencil.shape)
    assert_same(lambda u: u - u.mean(axis=-1, keepdims=True), both(pencil, a), rtol=1e-12)
    total = spread(pencil, a).sum(axis=0)
    assert total.singletons == {0}
    pencils.debug.verify_replicas(total)
    np.testing.assert_allclose(total.sum(), a.sum(), rtol=1e-11)


def test_replicas_count_once(comm):
    pencil = lay(comm, "pencils")
    a = draw((2, pencil.shape[0], 1, 1))
    u = both(pencil, a, dims=0)
    for name in EXACT + ROUNDED + ARGS:
        reduced(name, u, rtol=1e-12)
    for axis in (0, 1, 2, 3, (0, 2), (1, 3)):
        for name in ("sum", "max"):
            pencils.debug.verify_replicas(reduced(name, u, axis, rtol=1e-12))
    reduced("argmin", u, 1)
    np.testing.assert_allclose(u.field.norm(), np.linalg.norm(a), rtol=1e-13)
    np.testing.assert_allclose(u.field.vdot(u.field), np.vdot(a, a), rtol=1e-13)


def test_fields_without_points(comm):
    pencil = pencils.Pencil((4, 0, 3), comm)
    u = pencils.zeros(pencil)
    for name in ("sum", "prod", "any", "all", "count_nonzero"):
        assert_agrees(getattr(np, name)(u), np.asarray(getattr(np, name)(np.zeros((4, 0, 3)))))
    assert_holds(u.sum(axis=1), np.zeros((4, 1, 3)))
    assert_holds(u.max(axis=0), np.zeros((1, 0, 3)))
    assert u.max(initial=2.0) == 2
    for name in ("min", "max", *ARGS):
        all_raise(comm, ArgumentError, "without points", getattr(u, name))
    with pytest.raises(ArgumentError, match="initial="):
        u.min(axis=1)
    texts = "of a field without points", "pass a field with points"
    kept = functools.partial
    for call in (kept(np.ptp, u), kept(np.ptp, u, 1), kept(u.norm, np.inf)):
        all_raise(comm, ArgumentError, texts, call)
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        assert np.isnan(u.mean())
    with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        assert np.isnan(u.std(axis=1).local).all()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_no_rank_alone_raises_where_nothing_is_averaged(comm, dtype):
    pencil = pencils.Pencil((6, 6), comm, decomp=(0, 1))
    whole, mask = draw(pencil.shape, dtype), np.arange(6) > 0
    whole = whole.astype(whole.dtype.newbyteorder("="))
    u = spread(pencil, whole)
    with np.errstate(all="raise"):
        with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
            mean = u.mean(axis=0, where=mask)
        for name in ("var", "std"):
            with pytest.warns(RuntimeWarning, match="Degrees of freedom") as caught:
                spread_of = getattr(u, name)(axis=0, where=spread(pencil, np.tile(mask, (6, 1))))
            assert everywhere(comm, len(caught) == 1)
            assert_holds(np.isnan(spread_of), ~mask[np.newaxis])
    expected = whole[:, 1:].mean(axis=0, keepdims=True)
    assert_holds(mean[:, 1:], expected, rtol=1e-6 if whole.dtype.itemsize < 8 else 1e-12)
    assert_holds(np.isnan(mean), ~mask[np.newaxis])


def test_divisors_and_means_that_are_given(comm, pencil):
    a = draw((3, *pencil.shape))
    u, center = spread(pencil, a), np.arange(a.size / 3).reshape(1, *pencil.shape)
    for name in ("var", "std"):
        of_field = getattr(u, name)
        of_array = functools.partial(getattr(np, name), a)
        np.testing.assert_allclose(of_field(correction=0.5), of_array(correction=0.5), rtol=1e-12)
        expected = of_array(axis=0, mean=center, correction=1)
        for mean in (center, spread(pencil, center), spread(pencil, center[0])):
            assert_holds(of_field(axis=0, mean=mean, correction=1), expected, rtol=1e-12)
    all_raise(comm, ArgumentError, "give one", u.var, ddof=1, correction=1)
    for rank in ranks_at_fault(comm):
        with pytest.raises((ArgumentError, RankDisagreementError)):
            u.std(ddof=1, correction=1) if comm.rank == rank else u.std()
        with pytest.raises((ArgumentError, RankDisagreementError)):
            u.std(mean=np.ones(99) if comm.rank == rank else center)


def test_initial_times(comm):
    u = pencils.full(pencils.Pencil((4, 3), comm), 5, dtype="m8[s]")
    assert u.min(initial=np.timedelta64(3, "s")) == np.timedelta64(3, "s")
    assert u.sum(initial=3) == np.timedelta64(63, "s")
    assert u.astype("M8[s]").max(initial=np.datetime64(3, "s")) == np.datetime64(5, "s")


def test_no_rank_alone_raises_where_results_are_infinite(comm):
    pencil = pencils.Pencil((2, 8), comm, decomp=1)
    u = spread(pencil, np.full((2, 8), np.inf))
    with np.errstate(all="raise"):
        assert np.isnan(np.ptp(u, axis=0).local).all()
        v = pencils.zeros(pencil, dtype="f2")
        v[0, -1] = 40000
        total = v.sum(axis=0, initial=60000)
    assert_holds(np.isinf(total), np.arange(8)[np.newaxis] == 7)


def test_norm(pencil):
    for dtype in ("f8", "c16", "i1"):
        a = draw((2, *pencil.shape), dtype)
        a.reshape(-1)[0] = -128 if dtype == "i1" else 0
        u, flat = spread(pencil, a), a.astype(float if dtype == "i1" else a.dtype).ravel()
        for p in (None, 2, 1, np.inf, -np.inf, 0, 3):
            expected = np.linalg.norm(flat, p)
            np.testing.assert_allclose(u.norm(p), expected, rtol=1e-12)
            assert u.norm(p).dtype == expected.dtype
        np.testing.assert_allclose(np.linalg.norm(u), np.linalg.norm(flat), rtol=1e-12)
    assert pencils.full(pencil, 3, dtype="f4").norm().dtype == np.float32


def test_vdot(comm, pencil):
    for dtype in ("f8", "c16", "i4"):
        a, b = draw((2, *pencil.shape), dtype), draw((2, *pencil.shape), dtype, 1)
        u, v = spread(pencil, a), spread(pencil, b, halo=1)
        for result in (np.vdot(u, v), u.vdot(v), u.vdot(b), np.vdot(a, v)):
            assert_agrees(result, np.vdot(a, b), rtol=1e-12)
            assert identical(comm, result)
    with pytest.raises(ArgumentError, match="must be equal"):
        u.vdot(pencils.zeros(pencil))
    with pytest.raises(ArgumentError, match="must be equal"):
        u.vdot(2)


@pytest.mark.parametrize("halo", [0, 1])
def test_half_precision(comm, halo):
    """It is added up in single precision where NumPy does that, and where ranks add up together."""
    a = draw((2, 30, 4 * comm.size, 20), "f2") / np.float16(8)
    u = spread(pencils.Pencil(a.shape[1:], comm, decomp=1), a, halo=halo)
    v, b = np.exp(u / 64), np.exp(a / 64)
    for name in ("sum", "mean"):
        assert_agrees(getattr(u, name)(), getattr(a, name)())
        assert_agrees(getattr(u, name)(axis=3), getattr(a, name)(axis=3, keepdims=True))
    for _ in range(2):
        assert_agrees(v.prod(), b.prod())
    if comm.size > 1:
        assert_agrees(u.sum(axis=2), a.sum(2, np.float32, keepdims=True).astype("f2"))
    assert_agrees(np.vdot(u, u), np.vdot(a, a))
    assert_agrees(u.norm(), np.linalg.norm(a.ravel()))


@pytest.mark.parametrize("halo", [0, 1])
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_many_products_round_as_few_do(comm, dtype, halo):
    """Where they are added one after the other, as by the BLAS, 1e-5 of their sum is lost."""
    pencil = pencils.Pencil((64, 64, 64), comm, order=(1, 0, 2))
    u = pencils.full(pencil, 0.1, dtype=dtype, halo=halo)
    exact = u.size * float(np.float32(0.1)) ** 2
    np.testing.assert_allclose(np.vdot(u, u), exact, rtol=2e-6)


def test_comparisons(comm, pencil):
    u, a = both(pencil, draw((2, *pencil.shape)))
    near, far = a + 1e-9, a.copy()
    far.reshape(-1)[-1] += 1
    for other, close, equal in ((a, True, True), (near, True, False), (far, False, False)):
        for one, two in ((u, spread(pencil, other)), (u, other), (other, u)):
            assert np.allclose(one, two) is close
            assert np.array_equal(one, two) is equal
    assert np.allclose(u, far, atol=2)
    assert np.allclose(u * 0, 0)
    holes = far.copy()
    holes[0] = np.nan
    v = spread(pencil, holes)
    assert not np.array_equal(v, v)
    assert np.array_equal(v, v, equal_nan=True)
    assert np.allclose(v, v, equal_nan=True)
    assert not np.array_equal(u, u.component(0))
    if comm.size > 1:
        mismatch = pencils.zeros(pencil.with_(splits="ceil" if pencil.ndim > 1 else "floor"))
        if not mismatch.pencil.same_blocks(pencil):
            with pytest.raises(PencilMismatchError):
                np.array_equal(u.component(0), mismatch)


def test_extent_1_may_be_a_singleton_or_not(comm):
    pencil = pencils.Pencil((1, 2 * comm.size), comm, decomp=0, splits="last")
    a = draw(pencil.shape)
    u, v = spread(pencil, a), spread(pencil, a, dims=1)
    assert np.array_equal(u, v)
    assert np.array_equal(v, u)
    np.testing.assert_allclose(u.vdot(v), np.vdot(a, a), rtol=1e-13)
    np.testing.assert_allclose(v.vdot(u), np.vdot(a, a), rtol=1e-13)


BAD = {
    "sum axis": (lambda u: u.sum(axis=7), ArgumentError, "axis=(7,)"),
    "max axis": (lambda u: u.max(axis=(0, 0)), ArgumentError, "twice"),
    "argmin axes": (lambda u: u.argmin(axis=(0, 1)), ArgumentError, "give one axis"),
    "mean out": (lambda u: u.mean(out=u), TypeError, "takes no out="),
    "sum where": (lambda u: u.sum(where=np.ones(3)), TypeError, "must be boolean"),
    "sum long where": (lambda u: u.sum(where=np.ones((2, 1, 1), bool)), ValueError, "dimensions"),
    "sum wrong where": (lambda u: u.sum(where=[True] * 5), ArgumentError, "global"),
    "sum initial": (lambda u: u.sum(initial=[1, 2]), ArgumentError, "one value"),
    "max initial": (lambda u: u.max(initial=1j), TypeError, "complex"),
    "sum dtype": (lambda u: u.sum(dtype="S3"), TypeError, ""),
    "norm ord": (lambda u: u.norm("fro"), TypeError, ""),
    "vdot": (lambda u: u.vdot(np.ones(5)), ArgumentError, "global"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_on_one_rank_raises_on_all(comm, name):
    call, kind, text = BAD[name]
    u = pencils.ones(pencils.Pencil((4, 3), comm))
    good = {"argmin": u.argmin, "mean": u.mean, "vdot": lambda: u.vdot(u), "norm": u.norm}
    other = good.get(name.split()[0], getattr(u, name.split()[0]))
    all_raise(comm, kind, text, call, u)
    for rank in ranks_at_fault(comm):
        mine = (lambda: call(u)) if comm.rank == rank else other
        differs = name.split()[-1] in {"ord", "where", "vdot"}  # before anything is wrong
        if differs and comm.size > 1:
            all_raise(comm, RankDisagreementError, "ranks disagree on", mine)
        else:
            all_raise(comm, kind, named(comm, rank), mine)
    assert u.sum() == u.size


def test_different_calls_are_told_apart(comm):
    u = pencils.ones(pencils.Pencil((4, 3), comm))
    calls = [(u.sum, u.max), (u.sum, lambda: u.sum(axis=0)), (u.argmin, u.argmax)]
    calls += [(u.max, lambda: u.max(initial=3)), (u.sum, lambda: u.sum(dtype="f4"))]
    calls += [(lambda: np.allclose(u, u), lambda: np.allclose(u, u, rtol=1))]
    for one, other in calls:
        if comm.size > 1:
            call = one if comm.rank else other
            all_raise(comm, RankDisagreementError, "rank 0 has", call)
        assert everywhere(comm, u.sum() == u.size)


def test_warnings_as_errors_on_one_rank_raise_on_all(comm):
    u = pencils.ones(pencils.Pencil((2 * comm.size,), comm))
    if comm.rank == comm.size - 1:
        u.local[...] = 1e300, np.finfo(float).max
    with np.errstate(over="raise"):
        all_raise(comm, FloatingPointError, "overflow", u.prod)
        all_raise(comm, FloatingPointError, "overflow", u.norm)
    assert u.max() == np.finfo(float).max


WHOLE = ["min", "max", "any", "all", "count_nonzero", "sum", "prod", "mean", "norm", "vdot"]


def whole(name, u):
    if name == "vdot":
        return np.vdot(u, u)
    return getattr(np, name)(u) if name == "count_nonzero" else getattr(u, name)()


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("pencil", ["few", "pencils"], indirect=True)
@np.errstate(over="ignore")
def test_calls_again_have_the_same_bits(comm, pencil, name):
    """The first call agrees on all arguments, later ones are prepared."""
    times = {"min", "max", "sum", "count_nonzero"}
    for dtype in (*NUMBERS, "f2", "g", "G", "?", *(["m8[s]"] if name in times else [])):
        a = draw((2, *pencil.shape), "i1" if dtype == "m8[s]" else dtype).astype(dtype)
        for u in (spread(pencil, a), spread(pencil, a, halo=1), spread(pencil, a[0])):
            bits = {bits_of(whole(name, u)) for _ in range(3)}
            assert everywhere(comm, len(bits) == 1)
            assert identical(comm, whole(name, u))


def test_calls_again_keep_units_and_do_not_warn(comm):
    pencil = pencils.Pencil((4, 5 * comm.size), comm, decomp=1)
    seconds = pencils.full(pencil, 3).astype("m8[s]")
    large = pencils.full(pencil, 300, dtype="f2")
    for call in (lambda: np.vdot(seconds, seconds), lambda: np.vdot(large, large), large.sum):
        results = [bits_of(call()) for _ in range(3)]
        assert everywhere(comm, len(set(results)) == 1), results


def test_ranks_with_something_prepared_meet_those_without(comm):
    one, other = (pencils.Pencil((4, 3 * comm.size), comm, decomp=1) for _ in range(2))
    data = draw(one.shape)
    expected = [whole(name, spread(one, data)) for name in WHOLE]
    first = comm.rank == 0
    u = spread(other if first else one, data)
    assert first == ("sum" not in str(u.pencil.kept))
    for name, value in zip(WHOLE, expected, strict=True):
        result = whole(name, u)
        assert everywhere(comm, bits_of(result) == bits_of(value))


@pytest.mark.parallel([2, 3, 4, 6])
def test_a_reduction_is_one_collective(comm):
    private = comm.Dup()
    with collectives() as calls:
        pencil = pencils.Pencil((4, 3 * comm.size), private, decomp=1)
        u = pencils.ones(pencil)
        v = pencils.ones(pencil, components=3)
        verbs = {name: functools.partial(whole, name, u) for name in WHOLE}
        verbs |= {
            "allclose": lambda: np.allclose(u, u),
            "array_equal": lambda: np.array_equal(u, u),
            "axis": lambda: v.mean(axis=(1, 2)),
            "initial": lambda: u.max(initial=3),
            "argmax": u.argmax,
            "argmin": u.argmin,
        }
        for name, verb in verbs.items():
            for _ in range(3):
                del calls[:]
                verb()
                assert everywhere(comm, calls == ["Allgather"]), (name, calls)
    private.Free()


@pytest.mark.parallel([2, 3, 4, 6])
@pytest.mark.mpiexec("counts calls of the MPI library")
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_many_ranks_add_up_while_they_agree(comm, monkeypatch, dtype):
    monkeypatch.setattr(agree, "MOST_GATHERED", 1)
    with collectives() as calls:
        private = comm.Dup()
        u, data = both(pencils.Pencil((5, 3), private), draw((5, 3), np.dtype(dtype)))
        for verb, value in (
            (u.sum, data.sum()),
            (u.mean, data.mean()),
            (u.norm, np.linalg.norm(data)),
        ):
            for _ in range(3):
                del calls[:]
                found = verb()
            assert everywhere(comm, calls == ["Allreduce"]), (verb, calls)
            assert_agrees(found, value, rtol=tolerance(np.dtype(dtype)))
    private.Free()


@pytest.mark.parallel([2, 3, 4, 6])
def test_many_ranks_reduce_after_they_agree(comm, monkeypatch):
    monkeypatch.setattr(agree, "MOST_GATHERED", 1)
    pencil = pencils.Pencil((5, 3), comm.Dup())
    for dtype in NUMBERS:
        u, data = both(pencil, draw(pencil.shape, dtype))
        for _ in range(2):
            assert_agrees(u.sum(), data.sum(), rtol=tolerance(dtype))
            assert_agrees(u.max(), data.max())
            assert_agrees(u.vdot(u), np.vdot(data, data), rtol=tolerance(dtype))
            assert u.argmax() == data.argmax()
    with np.errstate(over="raise"):
        u = pencils.full(pencil, 1e300)
        all_raise(comm, FloatingPointError, "overflow", u.prod)
    pencil.comm.Free()
    all_raise(comm, ArgumentError, "freed", u.sum)


def test_prepared_calls_fail_together(comm):
    u = pencils.ones(pencils.Pencil((2 * comm.size,), comm))
    for _ in range(2):
        assert everywhere(comm, u.prod() == 1)
        assert everywhere(comm, u.sum() == u.size)
    for rank in ranks_at_fault(comm):
        u.local[...] = (1e300, np.finfo(float).max) if comm.rank == rank else 1
        with np.errstate(over="raise"):
            all_raise(comm, FloatingPointError, (named(comm, rank), "overflow"), u.prod)
        if comm.size > 1:
            call = u.sum if comm.rank == rank else u.max
            all_raise(comm, RankDisagreementError, "rank 0 has", call)
        assert everywhere(comm, u.max() == np.finfo(float).max)


def test_ranks_that_overflow_together_do_not_warn(comm):
    u = pencils.full(pencils.Pencil((4 * comm.size,), comm), 3e38, dtype="f4")
    if comm.rank:
        u.local[...] = 0
        u.local[0] = 3e38
    else:
        u.local[1:] = 0
    for _ in range(2):
        with np.errstate(over="raise" if comm.rank else "ignore"):
            total = u.sum()
        assert everywhere(comm, np.isinf(total) == (comm.size > 1))


def test_records_have_no_sum(pencil):
    u = pencils.zeros(pencil, dtype=[("mass", "f4")])
    for name in ("sum", "max", "argmin", "mean"):
        with pytest.raises(TypeError):
            getattr(u, name)()


def test_fields_come_first(pencil):
    u = pencils.ones(pencil)
    for call in (lambda: np.sum(a=u), lambda: np.sum(np.ones(3), out=u)):
        with pytest.raises(TypeError, match="give the PencilArray first"):
            call()


@pytest.mark.parametrize("kind", ["c8", "c16"])
def test_products_of_a_complex_infinity(comm, kind):
    for data in ([complex(np.inf, 0)], [1, 1, 1, 1, 1, complex(0, np.inf)]):
        array = np.array(data, kind)
        u = pencils.partition(pencils.Pencil(array.shape, comm), array)
        for _ in range(2):  # with what the first call has prepared
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(np.prod(u), np.prod(array))
                np.testing.assert_array_equal(u.prod(axis=0).local[0], np.prod(array))


def test_norms_have_all_digits_of_the_type(pencil):
    a = draw(pencil.shape, "g")
    expected = np.linalg.norm(a.reshape(-1), 3)
    assert abs(spread(pencil, a).norm(3) - expected) <= 20 * np.finfo("g").eps * expected


def test_half_precision_that_overflows_raises_on_all_ranks_or_on_none(comm):
    u = pencils.zeros(pencils.Pencil((8, 6), comm, decomp=(0, 1)), dtype=np.float16)
    u[:, 0] = 60000
    raised = False
    try:
        with np.errstate(all="raise"):
            u.sum(axis=0)
    except FloatingPointError:
        raised = True
    assert len(set(comm.allgather(raised))) == 1
