"""Assertions about fields: equal verdicts and texts on all ranks."""

import numpy as np
import pytest
from fields import both, draw, lay, spread
from mpi4py import MPI
from mpi_helpers import ranks_at_fault

import pencils
from pencils.errors import RankDisagreementError
from pencils.tools.testing import assert_allclose, assert_equal

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def text_of(call):
    """Return the text of an AssertionError, which must be the same on all ranks."""
    with pytest.raises(AssertionError) as caught:
        call()
    texts = set(MPI.COMM_WORLD.allgather(str(caught.value)))
    assert len(texts) == 1
    return texts.pop()


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "g", "c16", "i8", "u1", "?"])
@pytest.mark.parametrize("components", [(), (2,)])
def test_fields_that_agree(pencil, dtype, components):
    u, a = both(pencil, draw((*components, *pencil.shape), dtype), halo=1)
    for other in (u.copy(), a, a.tolist()):
        assert_allclose(u, other)
        assert_allclose(other, u)
        assert_equal(u, other)
        assert_equal(other, u)
    if a.dtype.kind in "fc":
        assert_allclose(u, a * (1 + 1e-2), rtol=0.1)
        assert_allclose(u, a + 1e-2, rtol=0, atol=0.1)
    assert_equal(u * 0, 0)
    assert_allclose(np.zeros_like(u), np.False_)


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ms]", "S3", "U4", [("a", "f4"), ("b", "i2")]])
def test_elements_of_any_type(pencil, dtype):
    a = draw(pencil.shape, int).astype(dtype)
    b = a.copy()
    u, v = spread(pencil, a), spread(pencil, b)
    assert_equal(u, v)
    assert_equal(u, a)
    index = tuple(n - 1 for n in pencil.shape)
    b[index] = np.array(11).astype(dtype)
    v[index] = b[index]
    for other in (v, b):
        text = text_of(lambda other=other: assert_equal(u, other))
        assert f"1 of {a.size} elements differ" in text
        assert f"global index {index} on rank {pencil.owner(index)}:" in text


def test_the_worst_point(pencil):
    a = draw((2, *pencil.shape))
    b, index = a.copy(), (1, *(n // 2 for n in pencil.shape))
    b += np.where(np.arange(a.size).reshape(a.shape) == 0, 0.25, 0)
    b[index] = a[index] + 0.5
    u, v = spread(pencil, a, halo=2), spread(pencil, b)
    wrong = np.count_nonzero(a != b)
    for one, other in ((u, v), (u, b), (a, v)):
        for check in (assert_allclose, assert_equal):
            text = text_of(lambda f=check, x=one, y=other: f(x, y, err_msg="at step 7"))
            assert text.startswith("at step 7\n")
            assert f"{wrong} of {a.size} elements differ" in text
            assert f"global index {index} on rank {pencil.owner(index[1:])}" in text
            assert f"actual {a[index]}, desired {b[index]}" in text
            assert f"greatest absolute difference {np.abs(a - b).max()}" in text
            relative = (np.abs(a - b) / np.abs(b))[b != 0].max()
            assert f"greatest relative difference {relative}" in text


def test_the_first_of_equal_points(pencil):
    u = pencils.zeros(pencil)
    text = text_of(lambda: assert_equal(u, 1))
    assert f"{u.size} of {u.size}" in text
    assert f"global index {(0,) * u.ndim} on rank {pencil.owner((0,) * u.ndim)}" in text


@pytest.mark.parametrize("dtype", ["f8", "c8", "f2", "M8[D]"])
def test_nan(pencil, dtype):
    a = draw(pencil.shape, int).astype(dtype)
    missing = "NaT" if dtype == "M8[D]" else np.nan
    flat = a.reshape(-1)
    flat[::2] = missing
    b, index = a.copy(), tuple(n - 1 for n in pencil.shape)
    u = spread(pencil, a)
    assert_equal(u, a)
    if dtype != "M8[D]":
        assert_allclose(u, a)
        text = text_of(lambda: assert_allclose(u, a, equal_nan=False))
        assert f"{np.isnan(a).sum()} of {a.size}" in text
        assert "NaN in one" not in text
    b[index] = np.array(1).astype(dtype) if np.isnan(a[index]) else missing
    text = text_of(lambda: assert_equal(u, b))
    assert f"1 of {a.size} elements differ" in text
    assert f"global index {index}" in text
    assert "1 elements are NaN in one of them only" in text


def test_integers_do_not_overflow(pencil):
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    u = pencils.full(pencil, low, dtype=np.int64)
    assert f"greatest absolute difference {2**64 - 1}" in text_of(lambda: assert_equal(u, high))
    u = pencils.full(pencil, 3, dtype="u1")
    assert "greatest absolute difference 1" in text_of(lambda: assert_equal(u, np.uint8(4)))
    u = pencils.zeros(pencil, dtype=bool)
    assert "greatest absolute difference 1" in text_of(lambda: assert_equal(u, np.True_))


def test_replicas_count_once(comm):
    pen = lay(comm, "pencils")
    u = pencils.zeros(pen, dims=0)
    text = text_of(lambda: assert_equal(u, np.ones(u.shape)))
    assert f"{pen.shape[0]} of {pen.shape[0]} elements" in text
    one = pencils.Pencil((1, 4), comm)
    mixed = (pencils.zeros(one), pencils.ones(one, dims=1))
    assert "4 of 4 elements" in text_of(lambda: assert_equal(*mixed))


def test_shapes_and_pencils(comm, pencil):
    u = pencils.zeros(pencil)
    with_components = pencils.zeros(pencil, components=2)
    assert "shapes differ" in text_of(lambda: assert_equal(u, with_components))
    assert "shapes differ" in text_of(lambda: assert_allclose(u, np.zeros((9, *pencil.shape))))
    square = pencils.Pencil((4, 4), comm, decomp=0)
    fields = pencils.zeros(square), pencils.zeros(square.with_(decomp=1))
    if comm.size == 1:
        assert_equal(*fields)
    else:
        assert "transpose" in text_of(lambda: assert_equal(*fields))


def test_what_cannot_be_compared(pencil):
    u = pencils.zeros(pencil)
    with pytest.raises(TypeError, match="must be a PencilArray"):
        assert_equal(u.local, u.local)
    with pytest.raises(TypeError, match="Python objects"):
        assert_equal(u, None)
    with pytest.raises(TypeError):
        assert_allclose(u, np.full(pencil.shape, "text"))
    empty = pencils.zeros(pencil.with_(shape=(0,) * pencil.ndim))
    assert_allclose(empty, 1)


@pytest.mark.parallel([2, 3, 4, 6])
def test_one_rank_that_differs(comm):
    u = pencils.zeros(lay(comm, "pencils"))
    for bad in ranks_at_fault(comm):
        here = comm.rank == bad
        with pytest.raises(RankDisagreementError, match="rtol"):
            assert_allclose(u, u, rtol=0.1 if here else 0.2)
        with pytest.raises((ValueError, RankDisagreementError)):
            assert_allclose(u, u, rtol="much" if here else 0.2)
        data = np.zeros(u.shape)
        if here:
            data += 1
        text = text_of(lambda here=here: assert_equal(u, 1.0 * here, err_msg=f"from {comm.rank}"))
        assert text.startswith(f"from {bad}\n")
        with pytest.raises(RankDisagreementError):
            assert_equal(u, np.zeros(u.shape)[: None if here else 1])
