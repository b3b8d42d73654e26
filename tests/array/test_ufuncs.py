"""Ufuncs on fields are those of NumPy on the global array, whatever the layout."""

import operator
import warnings
from fractions import Fraction

import numpy as np
import pytest
from fields import (
    LARGE,
    LAYOUTS,
    assert_holds,
    assert_same,
    both,
    draw,
    in_memory_order,
    lay,
    spread,
)
from mpi_helpers import all_raise

import pencils
from pencils.errors import ArgumentError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture(params=[*LAYOUTS, *LARGE])
def pencil(request, comm):
    return lay(comm, request.param)


DTYPES = ["?", "i1", "i8", "u2", "f2", "f4", "f8", "g", "c8", "c16"]
BINARY = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv),
    *(operator.mod, operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge),
]


def test_operators_between_fields_arrays_and_scalars(pencil):
    u = both(pencil, draw(pencil.shape, seed=1))
    v = both(pencil, draw(pencil.shape, seed=2) + 10)
    for op in BINARY:
        assert_same(op, u, v, ordered=True)
        for left, right in ((u, v.data), (u.data, v), (u, 2.5), (2.5, v), (np.float64(2.5), v)):
            assert_same(op, left, right)
    for function in (operator.neg, operator.pos, abs, lambda x: abs(x) ** 2, lambda x: x**2):
        assert_same(function, u)
    assert_same(lambda x, y: abs(y) ** x, u, v)
    assert_same(lambda x: 2.0**x, u, rtol=1e-14)
    assert_same(np.sin, u, rtol=1e-14)
    assert_same(divmod, u, v)


def test_operators_on_integers_and_booleans(pencil):
    u, v = both(pencil, draw(pencil.shape, "i4", 1)), both(pencil, draw(pencil.shape, "?", 2))
    for op in (operator.and_, operator.or_, operator.xor):
        assert_same(op, u, 5)
        assert_same(op, v, v.data)
    for function, x in ((operator.invert, v), (lambda x: x << 2, u), (lambda x: 1 >> abs(x), u)):
        assert_same(function, x)


@pytest.mark.parametrize("left", DTYPES)
def test_promotion_is_that_of_numpy(comm, left):
    pencil = lay(comm, "plane")
    u = both(pencil, draw(pencil.shape, left))
    for right in DTYPES:
        v, scalar = both(pencil, draw(pencil.shape, right, 1)), np.dtype(right).type(3)
        assert_same(operator.add, u, v)
        for other in (v.data, scalar, np.array(3, right)):
            assert_same(operator.mul, u, other)
        assert_same(operator.mul, scalar, u)
    for scalar in (True, 3, 2.0, 2j):
        assert_same(operator.mul, u, scalar)
        assert_same(operator.mul, scalar, u)


def test_python_scalars_are_weak(pencil):
    single, small = (
        spread(pencil, draw(pencil.shape, "f4")),
        spread(pencil, draw(pencil.shape, "u1")),
    )
    assert (single * 2.0).dtype == np.float32
    assert (single * np.float64(2)).dtype == np.float64
    assert (single * 2j).dtype == np.complex64
    assert (small + 3).dtype == np.uint8
    with pytest.raises(OverflowError):
        small + 300


def test_dates(pencil):
    u = both(pencil, draw(pencil.shape, "i4").astype("M8[D]"))
    assert_same(operator.add, u, np.timedelta64(2, "D"))
    assert_same(operator.sub, u, u.data)
    assert_same(operator.gt, u, np.datetime64("1970-01-01"))


def test_records_compare(pencil):
    a = np.zeros(pencil.shape, [("mass", "f4"), ("charge", "i2")])
    a["charge"] = draw(pencil.shape, "i2")
    u = both(pencil, a)
    assert_same(operator.eq, u, a)
    assert_same(operator.ne, u, np.zeros_like(a))
    with pytest.raises(TypeError):
        u.field + u.field


def test_in_place(pencil):
    a = draw(pencil.shape)
    for halo in (0, 2):
        u = spread(pencil, a, halo=halo)
        same = u
        u += 1
        u *= a
        u -= u
        u += spread(pencil, a)
        u **= 2
        assert u is same
        assert_holds(u, a**2, rtol=1e-15)  # NumPy 2.0 squares arrays, but not by its ufunc
        assert u.halo == ((halo, halo),) * pencil.ndim
    with pytest.raises(TypeError, match="out= must be a PencilArray"):
        a += u


def test_out(pencil):
    a, b = draw(pencil.shape, seed=1), draw(pencil.shape, seed=2)
    u, v = spread(pencil, a), spread(pencil, b)
    other = pencil.with_(order=pencil.order[::-1])
    for target in (pencils.empty(pencil), pencils.zeros(pencil, halo=1), pencils.empty(other)):
        for call, expected in (
            (lambda out: np.add(u, v, out=out), a + b),
            (lambda out: np.subtract(u, v, out), a - b),
            (lambda out: np.multiply(a, b, out=(out,)), a * b),
            (lambda out: np.add(u, out, out=out), a + a * b),
            (lambda out: np.add(2, v, out=out), 2 + b),
            (lambda out: np.negative(u, out=out), -a),
        ):
            assert call(target) is target
            assert_holds(target, expected)
    with pytest.raises(TypeError, match="out= must be a PencilArray"):
        np.add(u, v, out=np.empty(pencil.shape))
    with pytest.raises(TypeError, match="Cannot cast"):
        np.add(u, 1j, out=pencils.empty(pencil))
    untouched = pencils.zeros(pencil, halo=1)
    np.add(u, 1, out=untouched)
    untouched.local[...] = 0
    assert not untouched.padded.any()
    assert_holds(spread(other, a) - v, a - b)
    assert in_memory_order(v - spread(other, a))


def test_several_outputs(pencil):
    a = draw(pencil.shape)
    u = both(pencil, a)
    for ufunc in (np.modf, np.frexp):
        assert_same(ufunc, u, ordered=True)
    whole = pencils.empty(pencil, halo=1)
    fraction, integer = np.modf(u.field, out=(None, whole))
    assert integer is whole
    assert_holds(whole, np.modf(a)[1])
    assert_holds(fraction, np.modf(a)[0])
    quotient, rest = pencils.empty(pencil), pencils.empty(pencil)
    found = np.divmod(u.field, 2.0, quotient, rest)
    assert found[0] is quotient
    assert found[1] is rest
    assert_holds(quotient, a // 2.0)
    assert_holds(rest, a % 2.0)


def test_where(pencil):
    a, mask = draw(pencil.shape), draw(pencil.shape, "?", 3)
    row, dims = mask[..., :1], range(pencil.ndim - 1)

    def added(x, where):
        out = np.zeros(pencil.shape) if isinstance(x, np.ndarray) else pencils.zeros(pencil)
        return np.add(x, 1, where=where, out=out)

    u = both(pencil, a)
    for where in (mask, both(pencil, mask), mask.tolist(), False, row):
        assert_same(added, u, where)
    if dims:
        assert_same(added, u, both(pencil, row, dims=dims))


def test_dtype_and_casting(pencil):
    a = draw(pencil.shape, "i4")
    u, single = spread(pencil, a), pencils.empty(pencil, dtype="f4")
    assert_holds(np.add(u, 1, dtype="f4"), np.add(a, 1, dtype="f4"))
    with pytest.raises(TypeError, match="Cannot cast"):
        np.add(u, 1.5, out=pencils.empty(pencil, dtype=int))
    with pytest.raises(TypeError, match="Cannot cast"):
        u += 0.5
    np.add(u, 0.5, out=single, casting="unsafe")
    assert_holds(single, (a + 0.5).astype("f4"))


def test_components(pencil):
    u, s = both(pencil, draw((3, *pencil.shape), seed=1)), both(pencil, draw(pencil.shape, seed=2))
    constants = draw((3, *(1,) * pencil.ndim), seed=3)
    tensor = both(pencil, draw((2, 3, *pencil.shape), seed=4))
    for left, right in ((u, s), (s, u), (u, constants), (s, constants), (tensor, u), (s, tensor)):
        assert_same(operator.mul, left, right)
        assert_same(operator.sub, left, right, ordered=True)
    vector, scalar = u.field, s.field
    vector += scalar
    assert_holds(vector, u.data + s.data)
    with pytest.raises(ValueError, match="broadcast"):
        scalar += vector
    with pytest.raises(ValueError, match="broadcast"):
        vector + spread(pencil, tensor.data[:, :2])


@pytest.mark.parametrize("pencil", ["pencils", *LARGE], indirect=True)
def test_singletons_broadcast(pencil):
    nx, ny, nz = pencil.shape
    x, yz = both(pencil, draw((nx, 1, 1), seed=1), dims=0), draw((1, ny, nz), seed=2)
    plane, full = both(pencil, yz, dims=(1, 2)), both(pencil, draw(pencil.shape, seed=3))
    for left, right in ((x, plane), (full, x), (x, full), (x, x), (x, np.ones((ny, 1)))):
        assert_same(operator.mul, left, right)
    u, ux, uyz = full.field, x.field, plane.field
    assert (ux * 2).singletons == {1, 2}
    assert (ux + yz[0, 0]).singletons == {1}
    u -= uyz
    assert_holds(u, full.data - yz)
    with pytest.raises(ArgumentError, match=r"replicated along dimensions \[0\]"):
        uyz += u
    with pytest.raises(ArgumentError, match=r"field of shape"):
        np.add(ux, uyz, out=ux)


def test_replicated_arrays_are_global(pencil):
    u, lead = both(pencil, draw(pencil.shape)), (1,) * pencil.ndim
    for shape in (pencil.shape[1:], pencil.shape[-1:], (1,), lead, (2, 1, *pencil.shape)):
        data = draw(shape, seed=5)
        assert_same(operator.add, u, data)
        assert_same(operator.sub, data.tolist(), u)
    assert_same(operator.add, u, np.array(2.0))


def test_local_shapes_are_refused(comm):
    pencil = pencils.Pencil((4 * comm.size + 2, 3), comm)
    u = pencils.ones(pencil)
    if comm.size > 1:
        with pytest.raises(ArgumentError, match=r"taken as global.*write u\.local"):
            u + u.local
    with pytest.raises(ArgumentError, match=r"shape \(5,\).*do not broadcast to the global shape"):
        u + np.ones(5)
    masked = np.ma.masked_array(np.ones(3), [True, False, False])
    with pytest.raises(TypeError, match="masked array"):
        u + masked


def test_other_pencils_are_refused(comm):
    pencil = pencils.Pencil((6, 8), comm, decomp=0)
    turned = pencil.with_(decomp=1)
    larger = pencil.with_(shape=(6, 9))
    u = pencils.zeros(pencil)
    refused = [(larger, "global shapes differ")]
    if comm.size > 1:  # one process has all points of any pencil
        refused.append((turned, r"transpose\(v, u\.pencil\)"))
    for other, hint in refused:
        v = pencils.zeros(other)
        for call in (lambda v=v: u + v, lambda v=v: np.add(u, 1, out=v)):
            with pytest.raises(PencilMismatchError, match=hint) as caught:
                call()
            assert repr(pencil) in str(caught.value)
            assert repr(other) in str(caught.value)
    equal = pencils.Pencil((6, 8), comm, decomp=0)
    assert_holds(u + pencils.ones(equal), np.ones((6, 8)))


def test_what_is_not_elementwise_is_refused(pencil):
    u = pencils.ones(pencil)
    for call, name in (
        (lambda: np.add.at(u, 0, 1), "numpy.add.at"),
        (lambda: np.subtract.accumulate(u), "numpy.subtract.accumulate"),
        (lambda: np.add.outer(u, u), "numpy.add.outer"),
        (lambda: np.add.reduceat(u, [0]), "numpy.add.reduceat"),
        (lambda: np.subtract.reduce(u), "numpy.subtract.reduce"),
        (lambda: u @ u, "numpy.matmul"),
        (lambda: np.ones(2) @ u, "numpy.matmul"),
    ):
        with pytest.raises(TypeError, match=f"{name} does not take a PencilArray"):
            call()


def test_python_objects_are_refused(pencil):
    u = pencils.ones(pencil)
    with pytest.raises(TypeError, match="Python objects"):
        np.frompyfunc(str, 1, 1)(u)
    with pytest.raises(TypeError):
        u + Fraction(1, 2)
    with pytest.raises(TypeError):
        u + "text"
    assert_holds(u == None, np.zeros(pencil.shape, bool))  # noqa: E711


@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.minimum, np.maximum])
def test_reduce_along_an_axis(pencil, ufunc):
    u, a = both(pencil, draw((2, *pencil.shape), "i8"))
    assert_holds(ufunc.reduce(u), ufunc.reduce(a))
    assert_holds(ufunc.reduce(u, 1), ufunc.reduce(a, 1, keepdims=True)[:, :])
    assert_holds(ufunc.reduce(u, axis=(0, -1)), ufunc.reduce(a, axis=(0, -1), keepdims=True)[0])
    assert ufunc.reduce(u, axis=None, initial=3) == ufunc.reduce(a, axis=None, initial=3)
    assert ufunc.reduce(u, axis=None, dtype="f4").dtype == np.float32
    with pytest.raises(TypeError, match="takes no out="):
        ufunc.reduce(u, axis=None, out=pencils.zeros(pencil))


@pytest.mark.parametrize("size", [2, 200_000])
def test_what_numpy_refuses_of_elements_raises_on_ranks_without_points_too(comm, size):
    u = pencils.ones(pencils.Pencil(size, comm, decomp=0), dtype=int)
    times = pencils.full(u.pencil, 1, dtype="M8[s]")
    cases = {
        "negative integer powers": (
            ValueError,
            lambda: u**-1,
            lambda: u**-2,
            lambda: u.__ipow__(-1),
            lambda: np.power(u, -1),
            lambda: np.power(u, -1, out=u),
            lambda: u ** np.array(-1),
            lambda: np.power(u, -1, dtype=int),
        ),
        "not supported": (
            TypeError,
            lambda: u < None,
            lambda: np.searchsorted([1, 2], times),
            lambda: np.digitize(times, [1.0, 2.0]),
        ),
    }
    for text, (kind, *calls) in cases.items():
        for call in calls:
            all_raise(comm, kind, text, call)
    assert_holds(u, np.ones(size, int))
    text = pencils.full(pencils.Pencil(1, comm, decomp=0), "abc", dtype="U3")
    assert_holds(
        np.strings.index(text, "b"), np.array([1])
    )  # refuses values, not types: tried nowhere
    nothing = pencils.ones(pencils.Pencil((3, 0), comm), dtype=int)  # as NumPy without elements
    assert_holds(np.power(nothing, -1), np.ones((3, 0), int) ** -1)
    assert_holds(nothing**-1, np.ones((3, 0), int) ** -1)
    with np.errstate(all="raise"):
        assert_holds(2 // u, np.full(size, 2))


def test_no_call_of_numpy_is_deprecated(comm):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (5, 200_000):
            u = pencils.ones(pencils.Pencil(size, comm, decomp=0))
            out = pencils.zeros_like(u)
            for ufunc in (np.maximum, np.minimum, np.add):
                assert_holds(ufunc(u, u), ufunc(np.ones(size), 1))
                assert_holds(ufunc(u, 0.5, out=out), ufunc(np.ones(size), 0.5))


def test_a_mask_is_never_lost(comm):
    u = pencils.ones(pencils.Pencil(8, comm, decomp=0))
    masked = np.ma.masked_greater(np.arange(8.0), 5)
    for call in (
        lambda: pencils.PencilArray(u.pencil, np.ma.masked_all(u.local.shape)),
        lambda: pencils.from_function(u.pencil, lambda _: np.ma.masked),
        lambda: u.__setitem__(np.ma.masked_array(masked > 3, masked.mask), 0),
        lambda: u.fill(np.ma.masked),
        lambda: np.digitize(u, masked),
        lambda: np.gradient(u, masked),
        lambda: np.trapezoid(u, masked),
    ):
        all_raise(comm, TypeError, "mask", call)
    assert_holds(u, np.ones(8))


def test_ghosts_that_are_not_set_raise_nothing_when_converted(comm):
    u = pencils.ones(pencils.Pencil(8, comm, periodic=True), halo=1)
    u.padded[...] = 1e-300  # what memory may hold
    u.local[...] = 1
    with np.errstate(all="raise"):
        assert_holds(u.astype("f4"), np.ones(8, "f4"))
