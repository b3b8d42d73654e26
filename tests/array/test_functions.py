"""The NumPy functions that know fields, and those that refuse them."""

import numpy as np
import pytest
from fields import assert_holds, draw, in_memory_order, spread

import pencils
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16"])
def test_one_operand(pencil, dtype):
    a = draw(pencil.shape, dtype)
    flat = a.reshape(-1)
    flat[0] = np.nan
    u = spread(pencil, a, halo=1)
    for function in (np.real, np.imag, np.angle, np.isreal, np.iscomplex, np.nan_to_num, np.copy):
        assert_holds(function(u), function(a))
    for function in (np.round, np.around):
        assert_holds(function(u), function(a))
        assert_holds(function(u, 1), function(a, 1))
        assert_holds(function(u, decimals=-1), function(a, decimals=-1))
    assert_holds(np.angle(u, deg=True), np.angle(a, deg=True))
    assert_holds(np.nan_to_num(u, nan=7), np.nan_to_num(a, nan=7))
    assert_holds(np.isnan(u), np.isnan(a))
    assert in_memory_order(np.round(u))


def test_real_functions(pencil):
    a = draw(pencil.shape)
    u = spread(pencil, a)
    for function in (np.sinc, np.i0, np.isposinf, np.isneginf):
        assert_holds(function(u), function(a), rtol=1e-13)
    xp, fp = np.linspace(-9, 9, 11), np.arange(11.0) ** 2
    assert_holds(np.interp(u, xp, fp), np.interp(a, xp, fp))
    assert_holds(np.interp(u, xp=xp, fp=fp, left=1), np.interp(a, xp, fp, left=1))


def test_where(pencil):
    a, b, mask = draw(pencil.shape), draw(pencil.shape, seed=1), draw(pencil.shape, "?", 2)
    u, v, m = spread(pencil, a), spread(pencil, b), spread(pencil, mask)
    expected = np.where(mask, a, b)
    for condition, x, y in ((m, u, v), (mask, u, b), (m, a, b), (m, a, v), (mask, a, v)):
        assert_holds(np.where(condition, x, y), expected)
    assert_holds(np.where(u > 0, u, 0), np.where(a > 0, a, 0))
    with pytest.raises(TypeError, match="two values to choose from"):
        np.where(m)


def test_clip(pencil):
    a, low = draw(pencil.shape, "f4"), draw(pencil.shape, "f4", 1)
    u, bound = spread(pencil, a), spread(pencil, low)
    assert_holds(np.clip(u, -1, 1), np.clip(a, -1, 1))
    assert_holds(np.clip(u, bound, low + 1), np.clip(a, low, low + 1))
    assert_holds(np.clip(u, a_min=bound, a_max=None), np.clip(a, low, None))
    assert_holds(np.clip(u, None, bound), np.clip(a, None, low))
    assert_holds(np.clip(a, bound, 2), np.clip(a, low, 2))
    out = pencils.empty(pencil, dtype="f4", halo=1)
    assert np.clip(u, 0, 1, out=out) is out
    assert np.clip(u, 0, 1, out) is out
    assert_holds(out, np.clip(a, 0, 1))


def test_out_of_functions(pencil):
    a = draw(pencil.shape)
    u, out = spread(pencil, a), pencils.empty(pencil)
    assert np.round(u, 1, out) is out
    assert_holds(out, np.round(a, 1))
    with pytest.raises(TypeError, match="out= must be a PencilArray"):
        np.round(u, out=np.empty(pencil.shape))


def test_isclose(pencil):
    a = draw(pencil.shape)
    b = a + np.where(draw(pencil.shape, "?"), 1e-7, 1)
    u, v = spread(pencil, a), spread(pencil, b)
    for one, other in ((u, v), (u, b), (a, v)):
        assert_holds(np.isclose(one, other), np.isclose(a, b))
        assert_holds(np.isclose(a=one, b=other, rtol=0, atol=1), np.isclose(a, b, 0, 1))


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
    a = draw((2, *pencil.shape), "c8")
    u = spread(pencil, a, halo=1)
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
