"""NumPy functions of whole lines, against NumPy on the global array."""

from contextlib import nullcontext

import numpy as np
import pytest
from fields import assert_holds, both, draw, in_memory_order, spread
from mpi_helpers import all_raise, ranks_at_fault

import pencils
from pencils.errors import ArgumentError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("dtype", ["f8", "f4", "?", ">i2", "u1", "c16", "m8[s]"])
def test_sort(pencil, dtype):
    a = draw((3, *pencil.shape), "i4" if dtype == "m8[s]" else dtype).astype(dtype)
    if a.dtype.kind == "f":
        a.reshape(-1)[::5] = np.nan
    u = spread(pencil, a, halo=1)
    for axis in range(a.ndim):
        result = np.sort(u, axis)
        assert_holds(result, np.sort(a, axis))
        assert result.pencil == pencil
        assert in_memory_order(result)
        order = np.argsort(u, axis=axis, kind="stable")
        assert_holds(order, np.argsort(a, axis=axis, kind="stable"))
        assert_holds(u.argsort(axis, stable=True), np.argsort(a, axis, stable=True))
        v = u.copy()
        assert v.sort(axis) is None
        assert_holds(v, np.sort(a, axis))
        assert_holds(np.sort(u, axis - a.ndim), np.sort(a, axis))


def test_arguments_of_sort(pencil):
    u = pencils.ones(pencil, components=2)
    for call in (np.sort, np.argsort):
        with pytest.raises(TypeError, match="give one axis"):
            call(u, axis=None)
        with pytest.raises(ArgumentError, match="outside"):
            call(u, axis=9)
        for axis in range(u.ndim):
            with pytest.raises(ValueError, match=r"kind|sort"):
                call(u, axis=axis, kind="bogo")


def test_partition_and_take_along_axis(pencil):
    u, a = both(pencil, draw((3, *pencil.shape)))
    for axis in range(a.ndim):
        kth = a.shape[axis] // 2
        for function in (np.partition, np.argpartition):
            assert_holds(function(u, kth, axis), function(a, kth, axis))
        numbers = np.argsort(u, axis), np.argsort(a, axis)
        for found, expected in (
            numbers,
            *([(np.argmin(u, axis), np.argmin(a, axis, keepdims=True))] if axis else []),
        ):
            taken = np.take_along_axis(u, found, axis)
            assert taken.pencil == pencil
            assert_holds(taken, np.take_along_axis(a, expected, axis))
    assert_holds(np.take_along_axis(u, np.argsort(u, 0)[:2], 0), np.sort(a, 0)[:2])
    for error, text, call in (
        (ValueError, "out of bounds", lambda: np.partition(u, 99, -1)),
        (IndexError, "out of bounds", lambda: np.take_along_axis(u, np.argsort(u, 0) + 5, 0)),
        (ArgumentError, "must have that of", lambda: np.take_along_axis(u, np.argsort(u)[:2], -1)),
        (TypeError, "must be a PencilArray", lambda: np.take_along_axis(u, np.argsort(a), -1)),
    ):
        all_raise(pencil.comm, error, text, call)


def test_singletons_are_whole(pencil):
    u = spread(pencil, draw(pencil.shape)).mean(axis=0)
    assert_holds(np.sort(u, 0), pencils.gather(u, root=None))
    assert np.sort(u, 0).singletons == u.singletons


def test_unwrap(pencil):
    u, a = both(pencil, draw((2, *pencil.shape)))
    for axis in range(a.ndim):
        assert_holds(np.unwrap(u, axis=axis), np.unwrap(a, axis=axis))
        found = np.unwrap(u.astype("i4"), 2, axis, period=4)
        assert_holds(found, np.unwrap(a.astype("i4"), 2, axis, period=4))


@pytest.mark.parallel([2, 3, 4, 6])
def test_one_rank_sorts_otherwise(comm):
    u = pencils.ones(pencils.Pencil((comm.size, 3), comm))
    for bad in ranks_at_fault(comm):
        here = comm.rank == bad
        for error, text, axis, options in (
            (ArgumentError, "outside", 5, {}),
            (TypeError, "axis", 0.5, {}),
            (ValueError, "kind", 0, {"kind": "bogo"}),
            (TypeError, "give one axis", None, {}),
        ):
            wrong, given = (axis, options) if here else (0, {})
            all_raise(comm, error, text, lambda: np.sort(u, wrong, **given))  # noqa: B023
        with pytest.raises(TypeError) if here else nullcontext():  # local along whole lines
            np.sort(u, 1, kind=5 if here else None)
        all_raise(comm, ArgumentError, "outside", np.apply_over_axes, np.sum, u, 9 if here else 0)
    assert_holds(np.sort(u, 0), np.ones(u.shape))


@pytest.mark.parametrize("dtype", ["f8", "i4", "c8"])
def test_apply_along_axis(pencil, dtype):
    u, a = both(pencil, draw((3, *pencil.shape), dtype), halo=1)
    for axis in range(a.ndim):
        flat = np.apply_along_axis(np.ptp, axis, a) if dtype != "c8" else None
        if flat is not None:
            result = np.apply_along_axis(np.ptp, axis, u)
            assert_holds(result, flat if axis == 0 else np.expand_dims(flat, axis))
            assert in_memory_order(result)
        for function in (np.cumsum, lambda line: line[::-1].astype("f4")):
            with np.errstate(all="ignore"):
                expected = np.apply_along_axis(function, axis, a.real)
                assert_holds(np.apply_along_axis(function, axis, u.real), expected, rtol=1e-6)
        assert_holds(
            np.apply_along_axis(np.clip, axis, u.real, 0, a_max=1),
            np.apply_along_axis(np.clip, axis, a.real, 0, a_max=1),
        )
    two = lambda line: np.outer(line, line[:2])  # noqa: E731
    assert_holds(np.apply_along_axis(two, 0, u), np.apply_along_axis(two, 0, a))


def test_what_is_not_applied(pencil):
    u = pencils.ones(pencil, components=2)
    for axis in range(1, u.ndim):
        with pytest.raises(ArgumentError, match="as many values, or one"):
            np.apply_along_axis(lambda line: np.ones(line.size + 1), axis, u)
    with pytest.raises(TypeError, match="not objects"):
        np.apply_along_axis(lambda line: np.array([{}, line], object), 0, u)
    with pytest.raises(ArgumentError, match="it has no lines"):
        np.apply_along_axis(
            np.sum, 0, pencils.ones(pencil.with_(shape=(0,) * pencil.ndim), components=2)
        )


@pytest.mark.parallel([2, 3, 4, 6])
def test_functions_that_differ_between_ranks(comm):
    pencil = pencils.Pencil((comm.size, 3), comm)
    u = pencils.ones(pencil)
    mixed = np.apply_along_axis(lambda line: line * (1 if comm.rank else 1j), 1, u)
    assert mixed.dtype == complex
    for bad in ranks_at_fault(comm):
        here = comm.rank == bad

        def fail(line, here=here):
            return line / 0 if here else line

        with np.errstate(all="raise"):
            all_raise(comm, FloatingPointError, f"rank {bad}", np.apply_along_axis, fail, 1, u)
        all_raise(
            comm,
            ArgumentError,
            "different ranks",
            lambda here=here: np.apply_along_axis(lambda line: line[:1] if here else line, 1, u),
        )
        all_raise(
            comm,
            RankDisagreementError,
            "",
            lambda here=here: np.apply_along_axis(
                np.sum, 1, u.component() if not here else np.stack([u])
            ),
        )
    assert np.apply_along_axis(np.sum, 1, u).shape == (comm.size, 1)
