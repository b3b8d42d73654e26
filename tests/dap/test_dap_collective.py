"""Every rule for all processes together: exports that break it, and such that just do not."""

import pickle

import numpy as np
import pytest
from dap_cases import block, cyclic, errors, export, exports, old, undistributed, worlds, wrap
from dap_cases import unstructured as free
from hypothesis import given
from hypothesis import strategies as st

from pencils.dap import (
    BlockMap,
    CollectiveError,
    DAPWarning,
    GlobalDimMap,
    iter_collective_issues,
    iter_issues,
    metadata,
    validate_collective,
)
from pencils.errors import PencilsError


def pair(left, right, version="0.10.0"):
    """Make exports of two dictionaries of one dimension; the buffers are as long as these say."""
    return [wrap(dim, shape=length(dim, version), version=version) for dim in (left, right)]


def length(dim, version):
    if dim["dist_type"] == "u":
        return len(dim["indices"])
    if dim["dist_type"] == "c":
        return 5
    lo, hi = dim.get("padding", (0, 0)) if version == "0.9.0" else (0, 0)
    if not dim.get("periodic"):  # then boundary points are inside
        lo, hi = lo * (dim["proc_grid_rank"] == 1), hi * (dim["proc_grid_rank"] == 0)
    return lo + dim["stop"] - dim["start"] + hi


def grid_of_two(first, second):
    """Make exports of 2 x 2 processes, of which rank 1 has another first dimension than rank 0."""
    rows = [first, second, block(1, 5, 10), block(1, 5, 10)]
    columns = [block(rank % 2, 5 * (rank % 2), 5 + 5 * (rank % 2)) for rank in range(4)]
    return [
        wrap(row, column, shape=(row["stop"] - row["start"], 5))
        for row, column in zip(rows, columns, strict=True)
    ]


def lists(one, two, **other):
    return pair(free(one, **other), free(two, 1, **other))


PAIR = pair(block(), block(1, 5, 10))
OLD_PAIR = pair(block(), block(1, 5, 10), "0.9.0")
CELLS = grid_of_two(block(), block())
ALONE = wrap({})
SCALAR = wrap(shape=())


def halves(lower, upper, version="0.10.0", **other):
    """Cut 10 points in halves with this padding below and above the cut."""
    grow = (upper, lower) if version == "0.10.0" else (0, 0)
    left = block(0, 0, 5 + grow[0], padding=(0, upper), **other)
    right = block(1, 5 - grow[1], 10, padding=(lower, 0), **other)
    return pair(left, right, version)


def wrapped(below, above, version="0.9.0"):
    """Put 3 and 7 points on two processes, with ghosts beyond the ends of a periodic dimension."""
    left = block(0, 0, 3, padding=(below, 0), periodic=True)
    return pair(left, block(1, 3, 10, padding=(0, above), periodic=True), version)


def distinct(indices):
    """Put points 0 to 4 on one process and others on the other one, each point once."""
    return lists(range(5), indices, one_to_one=True)


LONGER, FIVES = block(1, 5, 11, size=11), cyclic(1, start=5, block_size=5)
ODD = [-9, 4, 77, 98, 99]
APERIODIC = pair(block(periodic=False), block(1, 5, 10))

# code, illegal exports, legal exports, words of the error
ALL_PROCESSES = [
    ("G1", [PAIR[0], OLD_PAIR[1]], PAIR, "got '0.9.0', expected '0.10.0' as on rank 0"),
    ("G1", [PAIR[0], wrap(block(1, 5, 10), {}, shape=(5, 1))], PAIR, "got length 2"),
    ("G1", [PAIR[0], wrap(cyclic(1))], PAIR, "got 'c', expected 'b'"),
    ("G1", pair(block(), LONGER), pair(block(size=11), LONGER), "got 11"),
    ("G1", pair(block(), block(1, 5, 9, proc_grid_size=3)), PAIR, "got 3, expected 2"),
    ("G1", pair(cyclic(), FIVES), pair(cyclic(block_size=5), FIVES), "got 5, expected 1"),
    ("G1", pair(block(), block(1, 5, 10, periodic=True)), APERIODIC, "got True"),
    (
        "G1",
        pair(free(range(5)), free(range(5, 10), 1, one_to_one=True)),
        lists(range(5), range(5, 10), one_to_one=False),
        "got True",
    ),
    ("G2", PAIR[:1], PAIR, "has 2 processes, expected the 1 that export"),
    ("G2", [ALONE, ALONE], [ALONE], "has 1 processes"),
    ("G2", [SCALAR, SCALAR], [SCALAR], "has 1 processes"),
    ("G2", [old(undistributed())] * 2, [old(undistributed())], "has 1 processes"),
    ("G2", [], PAIR, "got no exports"),
    ("G3", PAIR[::-1], PAIR, r"got coordinates \(1,\), expected \(0,\)"),
    ("G3", [CELLS[0], CELLS[2], CELLS[1], CELLS[3]], CELLS, r"got coordinates \(1, 0\)"),
    ("G4", grid_of_two(block(), block(0, 0, 6)), CELLS, "as on the first process of this grid"),
    (
        "G4",
        grid_of_two(block(), block(padding=(0, 1))),
        grid_of_two(block(), block(padding=(1, 0))),
        "only boundary padding may differ",
    ),
    ("G5", pair(block(), block(1, 4, 10)), PAIR, "grid rank 0 ends at 5 and the next"),
    ("G5", pair(block(), block(1, 6, 10), "0.9.0"), OLD_PAIR, "starts at 6"),
    (
        "G5",
        pair(block(0, 0, 6, padding=(0, 1)), block(1, 5, 10, padding=(1, 0))),
        halves(1, 1),
        "ghosts on both sides",
    ),
    ("G6", halves(1, 2), halves(2, 2), "has 2 ghosts above and the next one 1 below"),
    ("G6", halves(0, 1), halves(0, 1, "0.9.0"), "expected equal widths"),
    ("G7", halves(6, 6, "0.9.0"), halves(5, 5, "0.9.0"), "expected at most 5"),
    (
        "G7",
        pair(block(0, 0, 10, padding=(0, 2)), block(1, 7, 10, padding=(2, 0))),
        pair(block(0, 0, 10, padding=(0, 1)), block(1, 8, 10, padding=(1, 0))),
        "has 2 ghosts above",
    ),
    ("G7", wrapped(0, 4), wrapped(7, 3), "has 4 ghosts above, expected at most 3"),
    ("G7", wrapped(8, 0), wrapped(4, 0), "has 8 ghosts below, expected at most 7"),
    ("G8", distinct(range(5, 9)), distinct(range(5, 10)), "expected the 9 points"),
    ("G8", lists(range(4), range(3, 8)), lists(range(5), range(3, 8)), "expected the 9 points"),
    ("G8", pair(block(), block(1, 6, 10)), PAIR, "expected the 9 points"),
    ("G9", distinct(ODD), lists(range(5), ODD), r"index 4 is on grid ranks \[0, 1\]"),
    (
        "G10",
        pair(block(padding=(0, 0)), block(1, 5, 10), "0.9.0"),
        pair(block(padding=(0, 0)), block(1, 5, 10)),
        "the key is missing",
    ),
    (
        "G10",
        pair(block(), block(1, 5, 10, padding=(1, 1)), "0.9.0"),
        halves(1, 0, "0.9.0"),
        r"\(0, 0\) is no padding",
    ),
]


def test_every_rule_has_a_case():
    assert {code for code, *_ in ALL_PROCESSES} == {f"G{number}" for number in range(1, 11)}


@pytest.mark.parametrize(("code", "illegal", "legal", "text"), ALL_PROCESSES)
def test_all_processes(code, illegal, legal, text):
    assert errors(iter_collective_issues(legal)) == []
    validate_collective(legal)
    found = errors(iter_collective_issues(illegal))
    assert code in [issue.code for issue in found]
    with pytest.raises(CollectiveError) as raised:
        validate_collective(illegal)
    assert str(raised.value) == str(found[0])
    mine = next(issue for issue in found if issue.code == code)
    with pytest.raises(CollectiveError, match=text):
        raise mine


def test_shared_indices_may_be_counted_once_or_every_time():
    everything = [lists(range(6), range(5, 10), size=size) for size in (9, 10, 11, 12)]
    codes = [[issue.code for issue in iter_collective_issues(those)] for those in everything]
    assert codes == [["G8"], [], [], ["G8"]]


def test_of_many_places_that_are_wrong_in_one_way_the_first_is_named():
    gaps = [block(rank, 3 * rank, 3 * rank + 2, proc_grid_size=3, size=8) for rank in range(3)]
    found = list(iter_collective_issues([wrap(gap, shape=2) for gap in gaps]))
    assert [issue.code for issue in found] == ["G5", "G8"]
    assert "grid rank 0 ends at 2" in str(found[0])
    assert [issue.code for issue in iter_collective_issues(PAIR[::-1])] == ["G3"]


def test_indices_of_one_grid_rank_come_in_the_same_order():
    """A second dimension puts grid rank 0 of the first one on two processes."""
    columns = [block(rank, 5 * rank, 5 + 5 * rank) for rank in range(2)]
    rows = [free(order, size=2, proc_grid_size=1) for order in ([7, 3], [3, 7])]
    swapped = [wrap(row, column, shape=(2, 5)) for row, column in zip(rows, columns, strict=True)]
    alike = [wrap(rows[0], column, shape=(2, 5)) for column in columns]
    assert validate_collective(alike).owner((3, 6)) == (1, (1, 1))
    with pytest.raises(CollectiveError, match=r"rank 1, .*: 3, 7 is owned.*expected 7, 3 with"):
        validate_collective(swapped)


junk = st.sampled_from(
    [None, -1, 0, 1, 3, 2.0, True, "b", (1, 2), [1], 2**64, np.array([1, 0]), {}]
)


@given(worlds().filter(lambda world: world[1]), junk, st.data())
def test_no_value_makes_the_search_raise_or_the_shape_wrong(world, value, data):
    everybody = exports(*world)
    rank = data.draw(st.integers(0, len(everybody) - 1))
    dims = list(everybody[rank]["dim_data"])
    spoilt = data.draw(st.integers(0, len(dims) - 1))
    dims[spoilt] = dims[spoilt] | {data.draw(st.sampled_from(sorted(dims[spoilt]))): value}
    everybody[rank] = everybody[rank] | {"dim_data": tuple(dims)}
    for lenient in (False, True):
        found = metadata(everybody[rank], lenient=lenient)
        assert (found.dist is None) == bool(errors(found.findings))
        if found.dist:
            assert found.dist.local_shape == everybody[rank]["buffer"].shape
        assert all(issue.code for issue in iter_collective_issues(everybody, lenient=lenient))


@given(worlds())
def test_what_is_emitted_is_legal(world):
    everybody = exports(*world)
    assert [issue for one in everybody for issue in iter_issues(one)] == []
    assert list(iter_collective_issues(everybody)) == []


@given(worlds())
def test_metadata_stand_for_exports(world):
    everybody = exports(*world)
    sent = [pickle.loads(pickle.dumps(metadata(one))) for one in everybody]
    assert validate_collective(sent) == validate_collective(everybody)
    assert validate_collective(sent).dims == tuple(map(GlobalDimMap, world[1]))


def test_an_error_tells_where_it_is_and_survives_the_journey():
    wrong = [PAIR[0], wrap(block(1, -1, 10))]
    with pytest.raises(PencilsError) as raised:
        validate_collective(pickle.loads(pickle.dumps([metadata(one) for one in wrong])))
    error = raised.value
    assert isinstance(error, ValueError)
    found = (error.code, error.rank, error.dim, error.key, error.version)
    assert found == ("B1", 1, 0, "start", "0.10.0")
    assert str(error) == (
        "rank 1, dimension 0, key 'start': got -1, expected an integer of at least 0 "
        "that fits in 64 bits "
        "[rule B1 of version 0.10.0]"
    )


def test_elements_of_other_types_are_worth_a_warning():
    mixed = [PAIR[0], wrap(block(1, 5, 10), dtype=int)]
    with pytest.warns(DAPWarning, match=r"rank 1, key 'buffer': got dtype\('int64'\).*G1"):
        validate_collective(mixed)


def test_a_warning_about_all_ranks_is_given_once():
    odd = [wrap(block(colour=1)), wrap(block(1, 5, 10, colour=1))]
    found = [(issue.rank, issue.code) for issue in iter_collective_issues(odd)]
    assert found == [(0, "unknown-key")]


def test_many_processes_are_checked_quickly():
    n = 2000
    parts = [BlockMap(size=n, nprocs=n, rank=r, start=r, stop=r + 1) for r in range(n)]
    found = validate_collective([export([part]) for part in parts])
    assert found.owner((n - 1,))[0] == n - 1


@pytest.mark.parametrize("junk", [None, 3, {}])
def test_nothing_makes_the_search_for_issues_raise(junk):
    found = errors(iter_collective_issues([wrap({}), junk, junk]))
    assert [(issue.code, issue.rank) for issue in found] == [("E1", 1)]
