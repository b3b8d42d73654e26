"""The NumPy functions that know fields, and those that refuse them."""

import numpy as np
import pytest
from fields import assert_holds, assert_same, both, draw, spread

import pencils
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16"])
def test_one_operand(pencil, dtype):
    a = draw(pencil.shape, dtype)
    a.reshape(-1)[0] = np.nan
    u = both(pencil, a, halo=1)
    for function, *argument in (
        *((f,) for f in (np.real, np.imag, np.angle, np.isreal, np.iscomplex, np.copy, np.isnan)),
        *((np.round,), (np.around,), (np.round, 1), (np.around, 1), (np.nan_to_num,)),
    ):
        assert_same(function, u, *argument)
    for function in (np.round, np.around):
        assert_same(function, u, decimals=-1, ordered=True)
    assert_same(np.angle, u, deg=True)
    assert_same(np.nan_to_num, u, nan=7)


def test_real_functions(pencil):
    u = both(pencil, draw(pencil.shape))
    for function in (np.sinc, np.i0, np.isposinf, np.isneginf):
        assert_same(function, u, rtol=1e-13)
    xp, fp = np.linspace(-9, 9, 11), np.arange(11.0) ** 2
    assert_same(np.interp, u, xp, fp)
    assert_same(np.interp, u, xp=xp, fp=fp, left=1)


def test_where(pencil):
    u, v = both(pencil, draw(pencil.shape)), both(pencil, draw(pencil.shape, seed=1))
    m = both(pencil, draw(pencil.shape, "?", 2))
    for operands in (
        *((m, u, v), (m.data, u, v.data), (m, u.data, v.data), (m, u.data, v)),
        *((m.data, u.data, v), (u, u, 0)),
    ):
        assert_same(np.where, *operands)
    with pytest.raises(TypeError, match="two values to choose from"):
        np.where(m.field)


def test_clip(pencil):
    u, low = both(pencil, draw(pencil.shape, "f4")), both(pencil, draw(pencil.shape, "f4", 1))
    for operands in ((u, -1, 1), (u, low, low.data + 1), (u, None, low), (u.data, low, 2)):
        assert_same(np.clip, *operands)
    assert_same(np.clip, u, a_min=low, a_max=None)
    out = pencils.empty(pencil, dtype="f4", halo=1)
    assert np.clip(u.field, 0, 1, out=out) is out
    assert np.clip(u.field, 0, 1, out) is out
    assert_holds(out, np.clip(u.data, 0, 1))


def test_out_of_functions(pencil):
    u, out = both(pencil, draw(pencil.shape)), pencils.empty(pencil)
    assert np.round(u.field, 1, out) is out
    assert_holds(out, np.round(u.data, 1))
    with pytest.raises(TypeError, match="out= must be a PencilArray"):
        np.round(u.field, out=np.empty(pencil.shape))


def test_isclose(pencil):
    u = both(pencil, draw(pencil.shape))
    v = both(pencil, u.data + np.where(draw(pencil.shape, "?"), 1e-7, 1))
    for one, other in ((u, v), (u, v.data), (u.data, v)):
        assert_same(np.isclose, one, other)
        assert_same(np.isclose, a=one, b=other, rtol=0, atol=1)


def test_copyto(pencil):
    a, b, mask = draw(pencil.shape), draw(pencil.shape, seed=1), draw(pencil.shape, "?", 2)
    for source in (b, spread(pencil, b)):
        for where in (mask, spread(pencil, mask)):
            u = spread(pencil, a, halo=1)
            np.copyto(u, source, where=where)
            assert_holds(u, np.where(mask, b, a))
    np.copyto(u, 3)
    assert_holds(u, np.full(pencil.shape, 3.0))
    with pytest.raises(TypeError, match="Cannot cast"):
        np.copyto(u, 1j)
    with pytest.raises(TypeError, match=r"copy u\.local"):
        np.copyto(a, u)


def test_like(pencil):
    u = spread(pencil, draw((2, *pencil.shape), "f4"), halo=1)
    for make, value in ((np.zeros_like, 0), (np.ones_like, 1)):
        for like in (make(u), make(u, dtype=int), make(u, "c8")):
            assert (like.shape, like.halo, like.pencil) == (u.shape, u.halo, u.pencil)
            assert (like.padded == value).all()
    assert np.zeros_like(u).dtype == np.float32
    assert np.ones_like(u, dtype=int).dtype == int
    assert np.empty_like(u).padded.shape == u.padded.shape
    for like in (np.full_like(u, 2.5), np.full_like(u, fill_value=2.5, dtype="f8")):
        assert (like.padded == 2.5).all()
    with pytest.raises(TypeError):
        np.zeros_like(u, shape=(3,))
    with pytest.raises(ArgumentError, match="one value"):
        np.full_like(u, [1, 2])


def test_questions(pencil):
    u, a = both(pencil, draw((2, *pencil.shape), "c8"), halo=1)
    assert np.shape(u) == a.shape
    assert np.ndim(u) == a.ndim
    assert np.size(u) == a.size
    assert np.size(u, 0) == np.size(u, axis=0) == 2
    assert np.iscomplexobj(u)
    assert not np.isrealobj(u)
    assert np.result_type(u, np.float64) == np.complex128
    assert np.result_type(u, 1.0) == np.complex64


def test_real_can_be_set(pencil):
    u = spread(pencil, draw(pencil.shape, "c16"))
    u.real.local[...] = 2
    u.imag[...] = 3
    assert_holds(u, np.full(pencil.shape, 2 + 3j))
