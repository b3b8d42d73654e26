"""Fields that are joined, padded and repeated, against NumPy on the global array."""

import numpy as np
import pytest
from fields import assert_holds, both, draw, in_memory_order, lay
from mpi_helpers import DTYPES, all_raise, everywhere, ranks_at_fault

import pencils
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError
from pencils.plans import kept_plans

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])
MODES = ["constant", "edge", "linear_ramp", "reflect", "symmetric", "wrap"]
STATISTICS = ["maximum", "mean", "median", "minimum"]


@pytest.mark.parametrize("dtype", ["f8", "u1"])
def test_pad_with_statistics_and_odd_reflections(pencil, dtype):
    u, a = both(pencil, draw((2, *pencil.shape), dtype), halo=1)
    rtol = 1e-12 if dtype == "f8" else 0
    lengths = {}, {"stat_length": 2}, {"stat_length": [(1, 9)] * a.ndim}, {"stat_length": (2, 1)}
    calls = [*zip(STATISTICS, lengths, strict=True), ("mean", {}), ("median", {})]
    calls += [(mode, {"reflect_type": "odd"}) for mode in ("reflect", "symmetric")]
    for mode, options in calls:
        for widths in ((2, 1), [(0, 7)] + [(5, 0)] * (a.ndim - 1)):
            found, expected = np.pad(u, widths, mode, **options), np.pad(a, widths, mode, **options)
            np.testing.assert_allclose(
                found.local, expected[found.local_slices], rtol=rtol, atol=rtol * 100
            )
            assert in_memory_order(found)
    assert_holds(np.pad(u[:, 1:], 2, "maximum"), np.pad(a[:, 1:], 2, "maximum"))


@pytest.mark.parametrize("mode", MODES)
def test_pad(pencil, mode):
    u, a = both(pencil, draw((2, *pencil.shape)), halo=1)
    rtol = 1e-13 if mode == "linear_ramp" else 0
    for widths in (0, 2, (1, 0), [(1, 9)] * a.ndim, [(0, 0)] * (a.ndim - 1) + [(7, 2)]):
        found = np.pad(u, widths, mode)
        assert_holds(found, np.pad(a, widths, mode), rtol=rtol)
        assert in_memory_order(found)
        assert found.pencil == pencil.with_(shape=found.shape[1:])
    name = {"constant": "constant_values", "linear_ramp": "end_values"}.get(mode)
    for value in (4, (3, -7.5), [[1, 2]] * a.ndim) if name else ():
        options = {name: value}
        assert_holds(np.pad(u, 3, mode, **options), np.pad(a, 3, mode, **options), rtol=rtol)


def test_widths_by_axis(pencil):
    u, a = both(pencil, draw(pencil.shape, int))
    assert_holds(np.pad(u, {-1: (1, 2), 0: 1}), np.pad(a, _pairs(a.ndim)))
    assert np.pad(u, 2, "empty").shape == tuple(n + 4 for n in a.shape)


def _pairs(ndim):
    pairs = [[0, 0] for _ in range(ndim)]
    pairs[-1] = [1, 2]
    pairs[0] = [1, 1]
    return pairs


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_types(pencil, dtype):
    u, a = both(pencil, draw(pencil.shape).astype(dtype))
    assert_holds(np.repeat(u, 2, 0), np.repeat(a, 2, 0))
    assert_holds(np.pad(u, 1, "wrap"), np.pad(a, 1, "wrap"))
    joined = np.concatenate([u, a, u], -1)
    np.testing.assert_array_equal(joined.local, np.concatenate([a, a, a], -1)[joined.local_slices])


def test_tile_and_repeat(pencil):
    u, a = both(pencil, draw((2, *pencil.shape)))
    for reps in (0, 1, 3, (2, 1), (3,) * a.ndim, (), (2, 3, *[1] * a.ndim), (2,) * (a.ndim + 1)):
        assert_holds(np.tile(u, reps), np.tile(a, reps))
    for axis in range(a.ndim):
        for repeats in (0, 1, 3, [2], range(a.shape[axis])):
            assert_holds(np.repeat(u, repeats, axis), np.repeat(a, repeats, axis))


def test_no_repeats_are_not_those_of_a_number(comm):
    """Kept calls tell an empty array from the number 0."""
    u = pencils.ones(pencils.Pencil((4, 3), comm))
    for _ in range(2):
        assert np.repeat(u, 0, 0).shape == (0, 3)
    all_raise(comm, ValueError, "broadcast", np.repeat, u, np.empty(0, int), 0)


def test_concatenate(pencil):
    u, a = both(pencil, draw((2, *pencil.shape)))
    v, b = both(pencil, draw(a.shape, "i4", 1), halo=1)
    for axis in range(1, a.ndim):
        key = (slice(None),) * axis
        found = np.concatenate([u, v[*key, 1:], 2 * u, b, v[*key, :1]], axis)
        assert_holds(found, np.concatenate([a, b[*key, 1:], 2 * a, b, b[*key, :1]], axis))
        assert found.pencil == pencil.with_(shape=found.shape[1:])
        assert in_memory_order(found)
        assert np.concatenate([u], axis).pencil is pencil
    assert_holds(np.concatenate([v, v], -1, dtype="f4"), np.concatenate([b, b], -1, dtype="f4"))


def test_other_blocks_are_joined(comm):
    pencil = pencils.Pencil((5, 4, 3), comm, order=(2, 0, 1))
    other = pencil.with_(order=(0, 1, 2), splits="last")
    u, a = both(pencil, draw(pencil.shape))
    v, b = both(other, draw(pencil.shape, seed=1))
    for axis in range(3):
        assert_holds(np.concatenate([u, v], axis), np.concatenate([a, b], axis))


def test_singletons(pencil):
    dims = range(1, pencil.ndim)
    u, a = both(pencil, draw((2, 1, *pencil.shape[1:])), dims=dims)
    for found, expected in (
        (np.repeat(u, 3, 1), np.repeat(a, 3, 1)),
        (np.pad(u, 2, "edge"), np.pad(a, 2, "edge")),
        (np.tile(u, 2), np.tile(a, 2)),
        (np.concatenate([u, 2 * u], 1), np.concatenate([a, 2 * a], 1)),
        (np.concatenate([u, 2 * u], -1), np.concatenate([a, 2 * a], -1)),
        (np.diff(u, axis=1, prepend=0), np.diff(a, axis=1, prepend=0)),
        (np.diff(u, append=u[..., :1]), np.diff(a, append=a[..., :1])),
        (np.pad(u, 2, "mean"), np.pad(a, 2, "mean")),
        (np.pad(u, 2, "reflect", reflect_type="odd"), np.pad(a, 2, "reflect", reflect_type="odd")),
    ):
        assert_holds(found, expected, rtol=1e-12)
    assert np.repeat(u, 3, 0).singletons == {0}


def test_nested_lists_are_joined(pencil):
    u, a = both(pencil, draw((2, *pencil.shape)))
    for one, other in (([u, 2 * u], [a, 2 * a]), ([[u, a], [a, u]], [[a, a], [a, a]])):
        assert_holds(np.block(one), np.block(other))


def test_stack_along_space(pencil):
    u, a = both(pencil, draw((2, *pencil.shape)))
    for axis in range(1, a.ndim + 1):
        found, expected = np.stack([u, 2 * u, a], axis), np.stack([a, 2 * a, a], axis)
        assert_holds(found, expected)
        assert in_memory_order(found)
        assert_holds(np.sort(found, -1), np.sort(expected, -1))
    assert_holds(np.stack([u[:, 1:]] * 2, -1), np.stack([a[:, 1:]] * 2, -1))


@pytest.mark.parametrize("dtype", ["f8", "u1", "c16", "?"])
def test_diff_with_ends(pencil, dtype):
    u, a = both(pencil, draw((2, *pencil.shape), dtype))
    for axis in range(a.ndim):
        for n in (0, 1, 3):
            for ends in ({"prepend": 0}, {"append": a, "prepend": 2.5}, {"append": True}):
                if dtype != "?" or ends == {"append": True}:
                    assert_holds(np.diff(u, n, axis, **ends), np.diff(a, n, axis, **ends))
        if dtype == "f8":
            assert np.diff(u, axis=axis, append=1.0).pencil is pencil or axis == 0
        key = (slice(None),) * axis
        for ends in ({"prepend": (*key, slice(1))}, {"append": (*key, slice(1, 3))}):
            fields, arrays = ({name: x[key] for name, key in ends.items()} for x in (u, a))
            for given in (fields, arrays):
                given.setdefault("prepend", 1)
            found, expected = np.diff(u, 1, axis, **fields), np.diff(a, 1, axis, **arrays)
            assert_holds(found, expected)
            assert found.pencil == pencil.with_(shape=found.shape[1:])


def test_plans_are_kept(comm):
    u, a = both(lay(comm, "pencils"), draw((5, 4, 6)))
    calls = (
        lambda u: np.pad(u, 1, "edge"),
        lambda u: np.tile(u, (2, 1, 1)),
        lambda u: np.repeat(u, 2, 0),
        lambda u: np.concatenate([u, u], 0),
        lambda u: np.diff(u, axis=0, prepend=0),
    )
    for call in calls:
        call(u)
        plans = kept_plans(u.pencil.topology)
        before = list(plans)
        for factor in (2, 3):
            assert_holds(call(factor * u), call(factor * a))
        assert everywhere(comm, len(plans) == len(before))


def test_kept_plans_are_of_equal_calls(comm):
    u, a = both(lay(comm, "pencils"), draw((5, 4, 6), "f4"))
    for first, second in ((0.0, np.float32(0)), (np.float32(1), 1.0), (2, np.int64(2))):
        for end in (first, second):
            assert_holds(np.diff(u, axis=0, append=end), np.diff(a, axis=0, append=end))
    for number in range(3):  # an array among fields of the same shape
        found, expected = [u, 2 * u], [a, 2 * a]
        found.insert(number, 3 * a)
        expected.insert(number, 3 * a)
        assert_holds(np.concatenate(found), np.concatenate(expected))


def test_bad_arguments(comm, pencil):
    u = pencils.ones(pencil)
    for error, text, call in (
        (ArgumentError, "not be negative", lambda: np.pad(u, -1)),
        (TypeError, "of integers", lambda: np.pad(u, 1.5)),
        (ArgumentError, "takes edge, empty", lambda: np.pad(u, 1, "best")),
        (ArgumentError, "does not take", lambda: np.pad(u, 1, "reflect", reflect_type="best")),
        (ValueError, "at least 1", lambda: np.pad(u, 1, "maximum", stat_length=0)),
        (TypeError, "is complex", lambda: np.pad(u, 1, constant_values=1j)),
        (ValueError, "extend empty axis", lambda: np.pad(u[:0], 1, "mean")),
        (ArgumentError, "takes nothing", lambda: np.pad(u, 1, "edge", end_values=1)),
        (ArgumentError, "reps=", lambda: np.tile(u, -1)),
        (ArgumentError, "outside", lambda: np.repeat(u, 2, 7)),
        (ValueError, "", lambda: np.repeat(u, [1] * 99, 0)),
        (ValueError, "", lambda: np.repeat(u, -1, 0)),
        (TypeError, "flattens", lambda: np.concatenate([u, u], None)),
        (TypeError, "takes no out", lambda: np.concatenate([u, u], out=u)),
        (TypeError, "takes no out", lambda: np.concatenate([np.ones(2)], out=u)),
        (ArgumentError, "shapes", lambda: np.concatenate([u, np.ones((9,) * (u.ndim + 1))])),
        (ArgumentError, "shape", lambda: np.diff(u, axis=0, prepend=np.ones((2,) * 9))),
        (ArgumentError, "shapes", lambda: np.diff(u, axis=0, append=np.stack([u]))),
        (TypeError, "a must be a PencilArray", lambda: np.diff(np.ones(3), append=u)),
    ):
        all_raise(comm, error, text, call)


@pytest.mark.parallel([2, 3, 4, 6])
def test_one_rank_is_wrong(comm):
    u = pencils.ones(pencils.Pencil((6, 5, 4), comm))
    across = pencils.transpose(u, u.pencil.with_(decomp=2))
    all_raise(comm, PencilMismatchError, "transpose", lambda: np.concatenate([u, across], 0))
    calls = {
        "pad": (lambda x: np.pad(u, x), 1, 2, ArgumentError, -1),
        "tile": (lambda x: np.tile(u, x), 2, 3, ArgumentError, -1),
        "repeat": (lambda x: np.repeat(u, x, 0), 2, 3, ValueError, -1),
        "join": (lambda x: np.concatenate([u, u], x), 0, 1, ArgumentError, 9),
        "diff": (lambda x: np.diff(u, axis=0, prepend=x), 0, 1, ArgumentError, [1]),
        "type": (lambda x: np.diff(u, axis=0, prepend=x), 0, np.longdouble(0), ArgumentError, [1]),
        "statistics": (lambda x: np.pad(u, 1, "mean", stat_length=x), 1, 2, ValueError, -1),
        "values": (lambda x: np.pad(u, 1, constant_values=x), 0, 1, ValueError, "a"),
    }
    for call, good, other, error, bad in calls.values():
        for _ in range(2):  # the second time, plans are kept
            for wrong in ranks_at_fault(comm):
                here = comm.rank == wrong
                given = other if here else good
                all_raise(comm, RankDisagreementError, "", call, given)
                all_raise(comm, error, "", call, bad if here else good)
            call(good)
