"""Functions that keep what their first call has prepared: later calls have the same meaning."""

import gc
import weakref
from collections import Counter

import numpy as np
import pytest
from fields import both, draw, lay
from mpi_helpers import all_raise, collectives, everywhere, one_node, ranks_at_fault, same

import pencils
from pencils.comm.methods.pull import MOST_STAGED
from pencils.errors import ArgumentError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

MOVED = {
    "diff": lambda a: np.diff(a, axis=0),
    "diff last": np.diff,
    "second diff": lambda a: np.diff(a, 2, axis=0),
    "roll": lambda a: np.roll(a, 2, axis=0),
    "flip": lambda a: np.flip(a, 0),
    "flip all": np.flip,
}
ALONG = {
    "sum": lambda a: a.sum(axis=0),
    "sum last": lambda a: a.sum(axis=-1),
    "max": lambda a: a.max(axis=(0, 1)),
    "prod": lambda a: a.prod(axis=1),
    "mean": lambda a: a.mean(axis=0),
    "count": lambda a: np.count_nonzero(a, axis=0),
    "any": lambda a: (a > 0).any(axis=1),
}
WHOLE = {
    "argmax": lambda a: a.argmax(),
    "argmin": lambda a: a.argmin(),
    "var": lambda a: a.var(),
    "var, ddof": lambda a: a.var(ddof=1),
    "std": lambda a: a.std(),
}
SLOPES = {
    "gradient": lambda a: np.gradient(a, axis=0),
    "spacing": lambda a: np.gradient(a, 0.5, axis=0),
    "second order": lambda a: np.gradient(a, axis=0, edge_order=2),
}
CASES = MOVED | ALONG | WHOLE
LAYOUTS = ["slabs", "pencils", "blocks"]


def assert_agree(found, expected):
    """Check a result of fields of three dimensions against that of the global data."""
    if not isinstance(found, pencils.PencilArray):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        return
    if expected.ndim < found.ndim:
        shape = tuple(1 if dim in found.singletons else n for dim, n in enumerate(found.shape))
        expected = np.reshape(expected, shape)
    assert found.dtype == expected.dtype
    assert found.frame.ordered(found.padded) is found.padded  # it is contiguous in memory order
    np.testing.assert_allclose(found.local, expected[found.local_slices], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_calls_in_a_loop_see_new_values(comm, layout):
    """Also if other fields, types and arguments come in between, and all results live."""
    pencil, results = lay(comm, layout), []
    for turn in range(3):
        for dtype in ("f8", "f4", "c16", "i4"):
            u, data = both(pencil, draw(pencil.shape, dtype, turn), halo=turn % 2)
            for name, function in (MOVED | ALONG | (WHOLE if dtype != "c16" else {})).items():
                if (dtype == "c16" and name in {"max", "any"}) or dtype == "f4":
                    continue
                results.append((function(u), function(data)))
    for found, expected in results:
        assert_agree(found, expected)


def test_slopes_in_a_loop(comm):
    pencil = lay(comm, "pencils")
    for turn in range(3):
        u, data = both(pencil, draw(pencil.shape, float, turn))
        for function in SLOPES.values():
            assert_agree(function(u), function(data))


def test_blocks_at_other_places(comm):
    """More fields than places are kept for; the first one afterwards is right again."""
    pencil = lay(comm, "slabs")
    fields = [both(pencil, draw(pencil.shape, float, seed)) for seed in range(70)]
    for u, data in [*fields, fields[0]]:
        found = np.diff(u, axis=1)
        assert everywhere(comm, same(found.local, np.diff(data, axis=1)[found.local_slices]))


def test_nan_and_ties_of_several_ranks(comm):
    """The first of equal extrema wins, and the first NaN, wherever they are."""
    pencil = lay(comm, "blocks")
    for dtype, points in (("f8", [np.nan, 9, 9]), ("i4", [7, 7]), ("?", [1, 1]), ("f2", [np.inf])):
        for seed in range(6):
            data = np.zeros(pencil.shape, dtype)
            places = np.random.default_rng(seed).choice(data.size, len(points), replace=False)
            data.flat[places] = points
            u, _ = both(pencil, data)
            for _ in range(2):
                assert everywhere(comm, u.argmax() == data.argmax())
                assert everywhere(comm, u.argmin() == data.argmin())


def test_arguments_of_other_types_are_checked(comm):
    """Equal numbers find a kept call only if they mean the same."""
    u, _ = both(lay(comm, "slabs"), draw((4, 5, 3)))
    np.diff(u, 1, 0)
    np.roll(u, 1, 0)
    u.sum(axis=1)
    u.sum(axis=(0, 1))
    all_raise(comm, TypeError, "n=", np.diff, u, 1.0, 0)
    all_raise(comm, TypeError, "axis=", np.diff, u, 1, 0.0)
    all_raise(comm, TypeError, "axis=", u.sum, axis=1.0)
    all_raise(comm, TypeError, "axis=", u.sum, axis=(0, 1.0))
    all_raise(comm, ArgumentError, "axis=", np.roll, u, 1, 3)
    slopes = [np.gradient(u, spacing, axis=1) for spacing in (1, 1.0, np.float32(1))]
    assert {slope.dtype for slope in slopes} == {np.dtype(float)}


@pytest.mark.parallel([2, 3, 4, 6])
def test_other_calls_on_one_rank_raise_on_all(comm):
    u, data = both(lay(comm, "slabs"), draw((4, 5, 3)))
    calls = {
        "diff": (lambda: np.diff(u, axis=0), lambda: np.diff(u, axis=1)),
        "roll": (lambda: np.roll(u, 1, 0), lambda: np.roll(u, 2, 0)),
        "sum": (lambda: u.sum(axis=0), lambda: u.sum(axis=1)),
        "argmax": (u.argmax, u.argmin),
        "var": (u.var, lambda: u.var(ddof=1)),
        "types": (u.argmax, u.astype("f4").argmax),
    }
    for right, wrong in calls.values():
        for _ in range(2):  # both are kept the second time
            right()
            wrong()
        for rank in ranks_at_fault(comm):
            all_raise(comm, RankDisagreementError, "", wrong if comm.rank == rank else right)
        right()
    assert_agree(np.diff(u, axis=0), np.diff(data, axis=0))


@pytest.mark.parametrize("name", CASES | SLOPES)
def test_fields_are_not_kept(comm, name):
    u, _ = both(lay(comm, "pencils"), draw((5, 4, 6)))
    found = [(CASES | SLOPES)[name](u) for _ in range(3)]
    living = [weakref.ref(each) for each in (u, *found) if isinstance(each, pencils.PencilArray)]
    del u, found
    gc.collect()
    assert everywhere(comm, not any(each() for each in living))


def test_plans_that_were_freed_are_made_again(comm):
    pencil = lay(comm, "slabs")
    u, data = both(pencil, draw(pencil.shape))
    for number in range(40):  # more kinds than plans are kept
        other, _ = both(pencil, np.zeros(pencil.shape, f"S{number + 1}"))
        np.roll(other, 1, 0)
        if number % 9 == 0:
            assert_agree(np.roll(u, 1, 1), np.roll(data, 1, 1))


@pytest.mark.parametrize("name", MOVED | SLOPES)
def test_older_exchanges_are_completed_first(comm, name):
    function = (MOVED | SLOPES)[name]
    u, data = both(lay(comm, "slabs"), draw((4, 5, 3)))
    plan = pencils.Transposition(u.pencil, u.pencil.with_(decomp=1), check=False)
    for _ in range(3):
        other = u.copy()
        handle = plan.start(other)
        assert_agree(function(u), function(data))
        other.local[...] = 0
        assert_agree(handle.wait(), data)
    plan.free()


def test_moves_of_more_than_is_staged(comm):
    pencil = pencils.Pencil((2 * comm.size, MOST_STAGED + 1), comm, decomp=0)
    u, data = both(pencil, np.arange(np.prod(pencil.shape)).reshape(pencil.shape).astype("i1"))
    for _ in range(3):
        found = np.roll(u, 1, axis=0)
        assert everywhere(comm, same(found.local, np.roll(data, 1, axis=0)[found.local_slices]))


@one_node
@pytest.mark.parallel([2, 3, 4, 6])
def test_collectives_of_a_call_in_a_loop(comm):
    """One agreement; results that do not fit into it take one more. Moves need no barrier."""
    private = comm.Dup()
    with collectives() as calls:
        u = pencils.ones(pencils.Pencil((12, 5, 4), private, decomp=0))
        twice = {"Allgather": 2}  # means before squares, or memory for further differences
        expected = dict.fromkeys(("var", "var, ddof", "std", "second diff"), twice)
        reduced = {"Allgather": 1, "Allreduce": 1}
        expected |= dict.fromkeys(("sum", "mean", "count"), reduced)
        for name, function in CASES.items():
            if name in {"max", "prod", "any"}:  # along axes that only some ranks share
                continue
            for _ in range(3):
                function(u)
                del calls[:]
            function(u)
            found = Counter(calls)
            assert everywhere(comm, found == expected.get(name, {"Allgather": 1})), (name, found)
    private.Free()
