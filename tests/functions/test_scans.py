"""Running sums and products against NumPy."""

import warnings

import numpy as np
import pytest
from fields import assert_holds, both, draw, spread

import pencils
from pencils.functions import scans

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

DTYPES = ("f8", "f4", "f2", "g", "c16", "i1", "u4", "?", ">f8", "m8[s]")
SCANS = {name: getattr(np, name) for name in ("cumsum", "cumprod", "nancumsum", "nancumprod")}
SCANS |= {"add.accumulate": np.add.accumulate, "multiply.accumulate": np.multiply.accumulate}
if hasattr(np, "cumulative_sum"):
    SCANS |= {"cumulative_sum": np.cumulative_sum, "cumulative_prod": np.cumulative_prod}


def close(dtype):
    """Tolerance for sums that are added up in another order; integers and halves are not."""
    kind = np.dtype(dtype)
    return 200 * float(np.finfo(kind).eps) if kind.kind in "fc" and kind.char != "e" else 0.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums(pencil, dtype):
    whole = draw(pencil.shape, dtype if dtype != "m8[s]" else "i8").astype(dtype)
    u = spread(pencil, whole, halo=1)
    for axis in range(-1, pencil.ndim):
        expected = np.cumsum(whole, axis)
        assert_holds(np.cumsum(u, axis), expected, rtol=close(expected.dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_parts_that_are_scanned_in_turn(pencil, name, dtype, monkeypatch):
    if (name, dtype) == ("cumprod", "m8[s]"):
        return
    monkeypatch.setattr(scans, "_PART", 1)
    monkeypatch.setattr(scans, "_PARTS_FOR_EACH", 0)
    function = SCANS[name]
    whole = draw((2, *pencil.shape), dtype if dtype != "m8[s]" else "i8").astype(dtype)
    u = spread(pencil, whole, halo=1)
    with np.errstate(all="ignore"):
        for axis in range(whole.ndim):
            expected = function(whole, axis)
            assert_holds(function(u, axis=axis), expected, rtol=close(expected.dtype))


@pytest.mark.parametrize("name", SCANS)
def test_every_function(pencil, name):
    function = SCANS[name]
    whole = draw((2, *pencil.shape)) / 3
    whole.flat[::5] = np.nan
    u = spread(pencil, whole)
    for axis in range(whole.ndim):
        assert_holds(function(u, axis=axis), function(whole, axis=axis), rtol=1e-13)


@pytest.mark.parametrize("wanted", ["f4", "i2", "c16", "?"])
def test_types_that_are_asked_for(pencil, wanted):
    u, whole = both(pencil, draw(pencil.shape, "i1"))
    for axis in range(pencil.ndim):
        assert_holds(np.cumsum(u, axis, wanted), np.cumsum(whole, axis, wanted))
        assert_holds(np.cumprod(u, axis, bool), np.cumprod(whole, axis, bool))


@pytest.mark.parametrize("dtype", ["f8", "f2", "i1", "?"])
def test_large_planes(comm, dtype):
    pencil = pencils.Pencil((5, 24, 18), comm, decomp=1, order=(0, 2, 1))
    u, whole = both(pencil, draw(pencil.shape, dtype))
    for axis in (0, 2):
        assert_holds(np.cumsum(u, axis), np.cumsum(whole, axis))
        assert_holds(np.cumsum(u, axis, bool), np.cumsum(whole, axis, bool))
    expected = np.cumprod(whole[..., ::3], 1, "f8")
    assert_holds(np.cumprod(u[..., ::3], 1, "f8"), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["f4", "c16", "i4"])
def test_long_lines(comm, dtype):
    for axis, order in ((0, (0, 1, 2)), (1, (1, 2, 0)), (2, (2, 0, 1)), (2, (0, 1, 2))):
        shape = [12, 13, 11]
        shape[axis] = 150 * comm.size + 7
        pencil = pencils.Pencil(shape, comm, decomp=axis, order=order)
        whole = np.abs(draw(shape, dtype)).astype(dtype)
        u = spread(pencil, whole, halo=1)
        expected = np.cumsum(whole, axis)
        assert_holds(np.cumsum(u, axis), expected, rtol=close(expected.dtype))
        ones = np.where(whole > 1, 1 + whole / 1000, 1).astype(dtype)
        found, expected = np.cumprod(spread(pencil, ones), axis), np.cumprod(ones, axis)
        assert_holds(found, expected, rtol=2 * close(expected.dtype))


def test_running_sums_of_positive_numbers_rise(comm):
    pencil = pencils.Pencil((257,), comm)
    whole = np.random.default_rng(5).random(257) * 10.0 ** np.arange(257)[::-1] * 1e-200
    found = pencils.gather(np.cumsum(spread(pencil, whole)), root=None)
    assert (np.diff(found) >= 0).all()
    assert found[0] == whole[0]


def test_infinities_and_negative_zeros(comm):
    pencil = pencils.Pencil((9,), comm)
    for whole in ([-0.0] * 9, [1, 2, np.inf, 3, 4, 5, -np.inf, 6, 7]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = np.cumsum(whole)
            found = np.cumsum(spread(pencil, np.array(whole)))
        assert_holds(found, expected)
        assert np.array_equal(np.signbit(found.local), np.signbit(expected[found.local_slices]))
    whole = np.array([1, complex(np.inf, 1), *[1j] * 7])
    with np.errstate(all="ignore"):
        expected = np.cumprod(whole)
        found = np.cumprod(spread(pencil, whole))
    assert_holds(found, expected)


def test_fields_without_points(comm):
    pencil = pencils.Pencil((0, 3), comm)
    for axis in (0, 1):
        assert_holds(np.cumsum(pencils.zeros(pencil), axis), np.zeros((0, 3)))
