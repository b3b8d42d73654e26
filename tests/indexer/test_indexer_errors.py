"""What one rank gets wrong raises on all, nothing is written, and the next call works."""

import threading
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import all_raise, everywhere, one_is_wrong, ranks_at_fault

from pencils import GlobalIndexer, GlobalMultiIndexer
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError, RankDisagreementError, TypeDisagreementError
from pencils.indexer import ReduceOp

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

ROWS = 3


def cuts_for(comm):
    return [ROWS * rank for rank in range(comm.size + 1)]


@pytest.fixture(scope="module")
def indexer(comm):
    """Three own rows; the own ones are asked for, and one of the next rank."""
    cuts = cuts_for(comm)
    here, there = ROWS * comm.rank, ROWS * ((comm.rank + 1) % comm.size)
    with GlobalIndexer(cuts, [here, here + 1, here + 2, there], comm) as plan:
        yield plan


@pytest.fixture(scope="module")
def multi(comm):
    with GlobalMultiIndexer(cuts_for(comm), [[0], [1, 2]], comm) as plan:
        yield plan


BAD_LISTS = [
    ([ROWS * 99], IndexError, "not in [0, "),
    ([0, -1], IndexError, "index -1 is not in [0, "),
    (np.array([2**63 + 1], "u8"), IndexError, "not in [0, "),
    (np.array([0, -1], "i1"), IndexError, "index -1 is not in [0, "),
    (np.array([0, -1], ">i2"), IndexError, "index -1 is not in [0, "),
    (np.array([0, -1], ">i8"), IndexError, "index -1 is not in [0, "),
    ([0.5], TypeError, "must hold integers"),
    ([True], TypeError, "must hold integers"),
    (["x"], TypeError, "must hold integers"),
    ([[0, 1]], ArgumentError, "one-dimensional"),
    (3, ArgumentError, "one-dimensional"),
]


@pytest.mark.parametrize(("index", "kind", "text"), BAD_LISTS, ids=range(len(BAD_LISTS)))
def test_bad_indices(comm, index, kind, text):
    make = partial(GlobalIndexer, cuts_for(comm), comm=comm)
    one_is_wrong(comm, kind, text, call=make, bad=index, good=[0])
    with pytest.raises(kind, match="g_idx") as caught:
        make(index)
    assert not [words for words in OTHER_WORDS if words in str(caught.value)]


@pytest.mark.parametrize("lists", [None, 3, "ab", {0: [1]}])
def test_bad_lists_of_indices(comm, lists):
    make = partial(GlobalMultiIndexer, cuts_for(comm), comm=comm)
    one_is_wrong(comm, TypeError, "g_idx_l must be a list", call=make, bad=lists, good=[[0]])


BAD_CUTS = {
    "short": (lambda cuts: cuts[:-1], ArgumentError, "entries"),
    "long": (lambda cuts: [*cuts, cuts[-1]], ArgumentError, "entries"),
    "begins late": (lambda cuts: [cut + 1 for cut in cuts], ArgumentError, "start at 0"),
    "falls": (lambda cuts: [0, *(-cut for cut in cuts[1:])], ArgumentError, "never decrease"),
    "fractions": (lambda cuts: [cut + 0.5 for cut in cuts], TypeError, "integers"),
    "nothing": (lambda _: None, ArgumentError, "one-dimensional"),
}


@pytest.mark.parametrize("case", BAD_CUTS)
def test_bad_distributions(comm, case):
    change, kind, text = BAD_CUTS[case]
    make, cuts = partial(GlobalIndexer, g_idx=[0], comm=comm), cuts_for(comm)
    one_is_wrong(comm, kind, text, call=make, bad=change(cuts), good=cuts)


@pytest.mark.parametrize("rows", [ROWS, 100])
def test_different_distributions(comm, rows):
    if comm.size == 1:
        return
    cuts = [rows * rank for rank in range(comm.size + 1)]
    mine = [*cuts[:-1], cuts[-1] + 1] if comm.rank == 1 else cuts
    all_raise(comm, RankDisagreementError, "distri", GlobalIndexer, mine, [0], comm)


@pytest.mark.parametrize("nothing", [3, "x", None])
def test_a_communicator_that_is_none(comm, nothing):
    topology_of(comm)  # of the world, so that ranks know where to meet
    if nothing is None:
        with GlobalIndexer(cuts_for(comm), [0], nothing) as plan:  # means the world
            assert everywhere(comm, plan.Take(ones(ROWS)).tolist() == [1])
        return
    make = partial(GlobalIndexer, cuts_for(comm), [0])
    one_is_wrong(comm, TypeError, "intra-communicator", call=make, bad=nothing, good=comm)


def ones(count, kind=float):
    return np.ones(count, kind)


def read_only(count):
    values = np.ones(count)
    values.flags.writeable = False
    return values


LOCK = threading.Lock()  # cannot be pickled

PAIR, PAIRS = ([1, 0, 2], ones(3)), ([1, 0, 2, 1], ones(4))
ABC = ["a", "b", "c"]
MASKED = np.ma.array([1.0, 2, 3], mask=[0, 1, 0])
ENTRIES = "has {} entries, but {} are needed".format
VALUES = "has {} values, but {} are needed".format
COUNTS = "has {} counts, but {} are needed".format


def waited(plan, *args):
    return plan.Take_start(*args).wait()


# Method and options, arguments that are good everywhere, and bad ones with what they raise.
CALLS = {
    "Take": (
        (GlobalIndexer.Take, {}),
        (ones(ROWS), np.zeros(4)),
        [
            ((ones(4), None), {}, ArgumentError, "dist_data " + VALUES(4, 3)),
            ((ones(ROWS), ones(3)), {}, ArgumentError, "local_data " + VALUES(3, 4)),
            ((ones(6)[::2], None), {}, ArgumentError, "contiguous"),
            ((ones(ROWS), read_only(4)), {}, ArgumentError, "read-only"),
            ((ones(ROWS), ones(4, "f4")), {}, TypeError, "local_data have types"),
            ((np.array([1, 2, None]), None), {}, TypeError, "Python objects"),
            (([1, 2, 3], None), {}, TypeError, "must be a buffer"),
            ((None, None), {}, TypeError, "must be a buffer"),
            ((MASKED, None), {}, TypeError, "masked"),
        ],
    ),
    "Take of two": (
        (GlobalIndexer.Take, {"count": 2}),
        (ones(2 * ROWS), None),
        [
            ((ones(ROWS), None), {}, ArgumentError, VALUES(3, 6)),
            ((ones(2 * ROWS), None), {"count": 0}, ArgumentError, "at least 1"),
            ((ones(2 * ROWS), None), {"count": 1.5}, TypeError, "must be one integer"),
        ],
    ),
    "Take_start": (
        (waited, {}),
        (ones(ROWS), np.zeros(4)),
        [((ones(4), None), {}, ArgumentError, "dist_data has 4 values")],
    ),
    "Put": (
        (GlobalIndexer.Put, {}),
        (ones(4), np.zeros(ROWS)),
        [
            ((ones(3), None), {}, ArgumentError, VALUES(3, 4)),
            ((None, None), {}, TypeError, "must be a buffer"),
            ((ones(4), ones(4)), {}, ArgumentError, VALUES(4, 3)),
            ((ones(4), read_only(3)), {}, ArgumentError, "read-only"),
            ((ones(4), ones(3, int)), {}, TypeError, "local_data and dist_data have types"),
            ((ones(4), ones(6)[::2]), {}, ArgumentError, "contiguous"),
            ((ones(4), bytes(3)), {}, ArgumentError, "read-only"),
        ],
    ),
    "Put of sums": (
        (GlobalIndexer.Put, {"reduce": ReduceOp.SUM}),
        (ones(4), np.zeros(ROWS)),
        [
            ((ones(4), ones(3, int)), {}, TypeError, "dist_data has type int64, but"),
            ((ones(4), None), {"reduce": "sum"}, TypeError, "must be a ReduceOp"),
        ],
    ),
    "Take_v": (
        (GlobalIndexer.Take_v, {}),
        (PAIR, None),
        [
            ((([1, 0, 2], ones(4)), None), {}, ArgumentError, VALUES(4, 3)),
            ((([1, 2], ones(3)), None), {}, ArgumentError, COUNTS(2, 3)),
            ((([1, -1, 2], ones(2)), None), {}, ArgumentError, "negative count -1"),
            ((([1, 0.5, 2], ones(3)), None), {}, TypeError, "integers"),
            (
                (([2**62, 2**62, 2**63 - 1], ones(0)), None),
                {},
                ArgumentError,
                "counts with a sum above",
            ),
            ((ones(3), None), {}, TypeError, "pair"),
            ((PAIR, ([1, 0, 2, 0], ones(3))), {}, ArgumentError, "count 0 for"),
            ((PAIR, ([1, 0, 2, 1], read_only(4))), {}, ArgumentError, "read-only"),
            ((PAIR, ([1, 0, 2, 1], ones(4, int))), {}, TypeError, "types"),
        ],
    ),
    "Put_v": (
        (GlobalIndexer.Put_v, {}),
        (PAIRS, None),
        [
            ((PAIR, None), {}, ArgumentError, COUNTS(3, 4)),
            ((PAIRS, ([0, 0], ones(0))), {}, ArgumentError, "2 counts"),
            ((PAIRS, ([1, 0, 0], ones(1, int))), {}, TypeError, "types"),
            ((None, None), {}, TypeError, "pair"),
        ],
    ),
    "take": (
        (GlobalIndexer.take, {}),
        (ABC, None),
        [
            ((["a"], None), {}, ArgumentError, ENTRIES(1, 3)),
            ((3, None), {}, TypeError, "must be a list"),
            (("abc", None), {}, TypeError, "must be a list"),
            ((ABC, [0]), {}, ArgumentError, ENTRIES(1, 4)),
            ((ABC, (0, 0, 0, 0)), {}, TypeError, "can be filled"),
            ((["a", LOCK, "c"], None), {}, TypeError, "cannot be pickled"),
        ],
    ),
    "put": (
        (GlobalIndexer.put, {}),
        ([*ABC, "d"], None),
        [
            ((["a"], None), {}, ArgumentError, ENTRIES(1, 4)),
            ((None, None), {}, TypeError, "must be a list"),
            (([*ABC, LOCK], None), {}, TypeError, "cannot be pickled"),
            (([*ABC, "d"], [1, 2]), {}, ArgumentError, "has 2 entries"),
        ],
    ),
}
BAD_CALLS = [(name, *bad) for name, (_, _, cases) in CALLS.items() for bad in cases]


OTHER_WORDS = "GlobalMultiIndexer", "_l", "[0]", "list 0", "lists of indices"


@pytest.mark.parametrize(
    "case", BAD_CALLS, ids=[f"{name} {number}" for number, (name, *_) in enumerate(BAD_CALLS)]
)
def test_a_bad_argument_on_one_rank_raises_everywhere(comm, indexer, case):
    """The errors speak of the arguments that were passed."""
    name, bad, rest, kind, text = case
    (method, options), good, _ = CALLS[name]

    def call(given):
        arguments, more = given
        return method(indexer, *arguments, **(options | more))

    works = partial(call, (good, {}))
    one_is_wrong(comm, kind, text, call=call, bad=(bad, rest), good=(good, {}), after=works)
    with pytest.raises(kind) as caught:
        call((bad, rest))
    assert not [words for words in OTHER_WORDS if words in str(caught.value)]


def test_errors_name_the_class_and_the_method(comm, indexer, multi):
    for cls in (GlobalIndexer, GlobalMultiIndexer):
        owner = cls.__name__
        made = cls(cuts_for(comm), [], comm)
        made.free()
        with pytest.raises(ArgumentError, match=f"this {owner}, or its communicator, was freed"):
            made.Take(ones(ROWS))
        if comm.size == 1:
            continue
        cuts = [ROWS + (comm.rank > 0)] if comm.rank else [ROWS]
        with pytest.raises(RankDisagreementError, match=f"^{owner}: ranks disagree on distri"):
            cls([0] * comm.size + cuts, [], comm)
    if comm.size == 1:
        return
    count = 1 if comm.rank else 2
    with pytest.raises(RankDisagreementError, match=r"^GlobalIndexer\.Take: ranks disagree"):
        indexer.Take(ones(ROWS * count), count=count)
    with pytest.raises(RankDisagreementError, match=r"^GlobalMultiIndexer\.Take: ranks disagree"):
        multi.Take(ones(ROWS * count), count=count)
    with pytest.raises(TypeDisagreementError, match=r"^GlobalIndexer\.Put_v: ranks pass data"):
        indexer.Put_v(([1] * 4, ones(4, float if comm.rank else int)))


def test_nothing_is_written_if_one_rank_is_wrong(comm, indexer):
    if comm.size == 1:
        return
    wrong = comm.rank == comm.size - 1
    out, slots, section = np.zeros(4), [0] * 4, np.zeros(ROWS)
    with pytest.raises(ArgumentError):
        indexer.Take(ones(4 if wrong else 3), out)
    with pytest.raises(ArgumentError):
        indexer.Put(ones(3 if wrong else 4), section)
    with pytest.raises(TypeError):
        indexer.take([1, LOCK if wrong else 2, 3], slots)
    pair = [1, 1, 1, 2 if wrong else 1], np.zeros(5 if wrong else 4)
    with pytest.raises(ArgumentError, match="has count 2 for its index 3"):
        indexer.Take_v(([1, 1, 1], ones(3)), pair)
    assert everywhere(comm, not (out.any() or section.any() or pair[1].any() or any(slots)))


def test_an_object_that_cannot_be_made_again(comm, indexer):
    all_raise(comm, ZeroDivisionError, "", lambda: indexer.take([1, Spiteful(), 3]))
    assert everywhere(comm, indexer.take([1, 2, 3])[1] == 2)


class Spiteful:
    def __reduce__(self):
        return fail, ()


def fail():
    return 1 / 0


FOUR = [1] * 4, ones(4)
# What most ranks ask for, and what one of them does.
DIFFERENT = {
    "put": (lambda g: g.Take(ones(3)), lambda g: g.Put(ones(4)), "call"),
    "start": (lambda g: g.Take(ones(3)), lambda g: g.Take_start(ones(3)), "call"),
    "objects": (lambda g: g.take([1, 2, 3]), lambda g: g.Take(ones(3)), "call"),
    "count": (lambda g: g.Take(ones(3)), lambda g: g.Take(ones(6), count=2), "count"),
    "reduce": (lambda g: g.Put(ones(4)), lambda g: g.Put(ones(4), reduce=ReduceOp.SUM), "reduce"),
    "extend": (lambda g: g.Put_v(FOUR), lambda g: g.Put_v(FOUR, extend=True), "extend"),
}
TYPES = {
    "Take": (lambda g: g.Take(ones(3)), lambda g: g.Take(ones(3, "f4"))),
    "Put": (lambda g: g.Put(ones(4, int)), lambda g: g.Put(ones(4, ">i8"))),
    "Take_v": (lambda g: g.Take_v(([1] * 3, ones(3))), lambda g: g.Take_v(([1] * 3, ones(3, int)))),
    "Put_v": (lambda g: g.Put_v(FOUR), lambda g: g.Put_v(([1] * 4, ones(4, int)))),
}


@pytest.mark.parametrize(
    "case",
    [(*case, RankDisagreementError) for case in DIFFERENT.values()]
    + [(*case, "different types", TypeDisagreementError) for case in TYPES.values()],
    ids=[*DIFFERENT, *TYPES],
)
def test_ranks_that_ask_for_different_things(comm, indexer, case):
    if comm.size == 1:
        return
    one, other, text, kind = case
    for rank in ranks_at_fault(comm):
        mine = other if comm.rank == rank else one
        all_raise(comm, kind, text, mine, indexer)
        one(indexer)


def test_ranks_that_use_different_indexers(comm, indexer):
    with GlobalIndexer(cuts_for(comm), [0], comm) as other:
        if comm.size == 1:
            return
        mine = other if comm.rank == 0 else indexer
        all_raise(comm, RankDisagreementError, "plan: ", mine.Take, ones(ROWS))


def test_an_output_is_checked_once_the_type_is_known(comm):
    """A rank that has no values learns their type from the others, and then is wrong."""
    if comm.size == 1:
        return
    with GlobalMultiIndexer(cuts_for(comm), [[0]] if comm.rank else [], comm) as plan:
        values = [np.array([True])] if comm.rank else []
        out = np.zeros(ROWS, int if comm.rank else float)
        text = "rank 0: dist_data has type float64, but values of type bool need bool or int64"
        all_raise(comm, TypeError, text, plan.Put, values, out, reduce=ReduceOp.SUM)
        assert everywhere(comm, not out.any())


def test_lists_of_buffers_that_do_not_fit(comm, multi):
    cases = [
        (lambda: multi.Take(ones(3), [np.zeros(1)]), ArgumentError, "1 entries, but 2 are needed"),
        (lambda: multi.Take(ones(3), 5), TypeError, "local_data_l must be a list"),
        (lambda: multi.Put(None), TypeError, "local_data_l must be a list"),
        (lambda: multi.Put([ones(1), ones(3)]), ArgumentError, "local_data_l[1] has 3 values"),
        (lambda: multi.Put([ones(1), ones(2, int)]), TypeError, "local_data_l[1] have types"),
        (lambda: multi.put([["a"], "bc"]), TypeError, "local_data_l[1] must be a list"),
    ]
    for call, kind, text in cases:
        all_raise(comm, kind, text, call)
    assert everywhere(comm, len(multi.Take(ones(3))) == 2)


def test_one_that_was_freed(comm):
    plan = GlobalIndexer(cuts_for(comm), [0], comm)
    plan.free()
    plan.free()
    all_raise(comm, ArgumentError, "freed", plan.Take, ones(ROWS))
    private = comm.Dup()
    plans = [GlobalIndexer(cuts_for(comm), [0], private, check=check) for check in (True, False)]
    assert everywhere(comm, plans[0].Take(ones(ROWS)).tolist() == [1])
    private.Free()
    for plan in plans:
        all_raise(comm, ArgumentError, "freed", plan.Take, ones(ROWS))
        plan.free()


def test_without_checks_mistakes_raise_where_they_are_made(comm):
    with GlobalMultiIndexer(cuts_for(comm), [], comm, check=False) as plan:
        with pytest.raises(TypeError, match="cannot determine the type"):
            plan.Put([])
        if comm.rank == 0:
            with pytest.raises(ArgumentError, match="4 values"):
                plan.Take(ones(4))
        assert everywhere(comm, plan.Take(ones(ROWS)) == [])


def test_making_many_leaves_no_communicators_behind(comm):
    topology = topology_of(comm)
    before = topology.communicators
    for _ in range(50):
        GlobalIndexer(cuts_for(comm), [0], comm).Take(ones(ROWS))
    assert everywhere(comm, topology.communicators == before)


def test_what_is_under_way_is_completed_by_free(comm):
    plan = GlobalIndexer(cuts_for(comm), [0], comm)
    out = np.zeros(1)
    handle = plan.Take_start(ones(ROWS), out)
    plan.free()
    assert everywhere(comm, handle.wait() is out and out[0] == 1)


def test_a_null_communicator(comm):
    all_raise(comm, ArgumentError, "COMM_NULL", GlobalIndexer, [0, 1], [0], MPI.COMM_NULL)
