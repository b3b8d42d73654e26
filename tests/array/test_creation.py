"""Creation functions, and what they refuse."""

import numpy as np
import pytest
from fields import assert_holds, in_memory_order, lay

import pencils
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("dtype", ["f4", "c16", "i1", "?", "S3", "M8[s]"])
def test_constant_fields(pencil, dtype):
    for components in ((), 3, (2, 0), [2, 3]):
        lead = (components,) if isinstance(components, int) else tuple(components)
        for make in (pencils.zeros, pencils.ones, pencils.empty):
            if dtype in {"S3", "M8[s]"} and make is pencils.ones:
                continue
            u = make(pencil, dtype=dtype, components=components, halo=1)
            assert (u.shape, u.dtype) == ((*lead, *pencil.shape), np.dtype(dtype))
            if make is not pencils.empty:
                expected = getattr(np, make.__name__)(u.padded.shape, dtype)
                np.testing.assert_array_equal(u.padded, expected)
            assert make(pencil, dtype).dtype == u.dtype  # by position, as in NumPy
    assert in_memory_order(pencils.empty(pencil, dtype=dtype))


def test_full(pencil):
    assert_holds(pencils.full(pencil, 2), np.full(pencil.shape, 2.0))
    assert_holds(pencils.full(pencil, 2, dtype=int), np.full(pencil.shape, 2))
    assert_holds(pencils.full(pencil, 2.5), np.full(pencil.shape, 2.5))
    assert_holds(pencils.full(pencil, 2.5, dtype="f4"), np.full(pencil.shape, 2.5, "f4"))
    assert_holds(pencils.full(pencil, 1j, components=2), np.full((2, *pencil.shape), 1j))
    assert_holds(pencils.full(pencil, 1, dtype=bool), np.ones(pencil.shape, bool))
    record = np.array((1.5, 2), [("mass", "f4"), ("charge", "i2")])[()]
    assert_holds(pencils.full(pencil, record), np.full(pencil.shape, record))
    with pytest.raises(ArgumentError, match="one value"):
        pencils.full(pencil, [1, 2], components=2)
    with pytest.raises(TypeError):
        pencils.full(pencil, 1j, dtype=float)


def test_like(pencil):
    u = pencils.full(pencil, 3, components=2, halo=1, dtype="f4")
    for make, value in ((pencils.zeros_like, 0), (pencils.ones_like, 1)):
        assert (make(u).padded == value).all()
        assert make(u).dtype == np.float32
        assert make(u, dtype=int).dtype == int
        assert (make(u).halo, make(u).shape) == (u.halo, u.shape)
    assert (pencils.full_like(u, 7, dtype="c8").padded == 7).all()
    assert pencils.empty_like(u).padded.shape == u.padded.shape


def test_like_keeps_singletons(comm):
    pencil = lay(comm, "pencils")
    u = pencils.ones_like(pencils.zeros(pencil, dims=(0, 1)))
    assert u.singletons == {2}
    assert_holds(u, np.ones((*pencil.shape[:2], 1)))


def test_from_function(pencil):
    def index(*indices):
        return sum(10**axis * i for axis, i in enumerate(indices))

    expected = index(*np.indices(pencil.shape))
    assert_holds(pencils.from_function(pencil, index), expected)
    single = pencils.from_function(pencil, index, dtype="f4", halo=2)
    assert_holds(single, expected.astype("f4"))
    assert single.padded.sum() == single.local.sum()
    assert in_memory_order(pencils.from_function(pencil, index))
    vector = pencils.from_function(pencil, lambda *i: np.stack([index(*i), -index(*i)]))
    assert_holds(vector, np.stack([expected, -expected]))
    assert_holds(pencils.from_function(pencil, lambda *_: 2.5), np.full(pencil.shape, 2.5))
    first = pencils.from_function(pencil, lambda *i: i[0])
    assert_holds(first, np.indices(pencil.shape)[0])


def test_from_function_says_what_does_not_fit(pencil):
    with pytest.raises(ArgumentError, match=r"returned shape.*on rank.*shape of the block"):
        pencils.from_function(pencil, lambda *_: np.zeros(pencil.local_shape[-1] + 2))
    with pytest.raises(TypeError, match="Python objects"):
        pencils.from_function(pencil, lambda *_: None)


BAD = {
    "dtype object": ({"dtype": object}, TypeError, "Python objects"),
    "dtype without size": ({"dtype": str}, TypeError, "fixed size"),
    "negative components": ({"components": -1}, ArgumentError, "components"),
    "fractional components": ({"components": 1.5}, TypeError, "components"),
    "negative halo": ({"halo": -1}, ArgumentError, "halo"),
    "too many halos": ({"halo": (1,) * 9}, ArgumentError, "halo"),
    "triple halo": ({"halo": [(1, 1, 1)] * 2}, ArgumentError, "halo"),
    "fractional halo": ({"halo": 1.5}, TypeError, "halo"),
    "true halo": ({"halo": True}, TypeError, "halo"),
    "halo in words": ({"halo": "one"}, TypeError, "halo"),
    "no such dims": ({"dims": 7}, ArgumentError, "dims"),
    "dims twice": ({"dims": (0, 0)}, ArgumentError, "dims"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(comm, name):
    pencil = lay(comm, "plane")
    options, kind, text = BAD[name]
    for make in (pencils.empty, pencils.zeros, pencils.ones):
        with pytest.raises(kind, match=text):
            make(pencil, **options)


def test_the_first_argument_is_a_pencil(comm):
    del comm
    for call in (pencils.zeros, pencils.ones, lambda shape: pencils.full(shape, 1)):
        with pytest.raises(TypeError, match="must be a Pencil, not tuple"):
            call((3, 4))
    with pytest.raises(TypeError, match="must be a Pencil"):
        pencils.from_function((3, 4), lambda i, _: i)


def test_like_needs_a_field_and_takes_any_value(comm):
    pen = pencils.Pencil((4, 3), comm)
    assert np.isnan(np.full_like(pencils.ones(pen), None).local).all()
    with pytest.raises(TypeError, match="must be a PencilArray"):
        pencils.zeros_like(np.ones(3))
    with pytest.raises(TypeError, match="shape of its own"):
        pencils.zeros(pen, dtype=("f8", (2,)))
