"""What one rank gets wrong raises on all, nothing is written, and the next call works."""

import threading

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import everywhere, named, raise_together, ranks_at_fault

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
    for rank in ranks_at_fault(comm):
        mine = index if comm.rank == rank else [0]
        raise_together(
            comm,
            kind,
            named(comm, rank),
            text,
            call=lambda mine=mine: GlobalIndexer(cuts_for(comm), mine, comm),
        )


@pytest.mark.parametrize("lists", [None, 3, "ab", {0: [1]}])
def test_bad_lists_of_indices(comm, lists):
    for rank in ranks_at_fault(comm):
        mine = lists if comm.rank == rank else [[0]]
        raise_together(
            comm,
            TypeError,
            named(comm, rank),
            "g_idx_l must be a list",
            call=lambda mine=mine: GlobalMultiIndexer(cuts_for(comm), mine, comm),
        )


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (lambda cuts: cuts[:-1], ArgumentError, "entries"),
        (lambda cuts: [*cuts, cuts[-1]], ArgumentError, "entries"),
        (lambda cuts: [cut + 1 for cut in cuts], ArgumentError, "start at 0"),
        (lambda cuts: [0, *(-cut for cut in cuts[1:])], ArgumentError, "never decrease"),
        (lambda cuts: [cut + 0.5 for cut in cuts], TypeError, "integers"),
        (lambda _: None, ArgumentError, "one-dimensional"),
    ],
    ids=["short", "long", "begins late", "falls", "fractions", "nothing"],
)
def test_bad_distributions(comm, change, kind, text):
    for rank in ranks_at_fault(comm):
        cuts = cuts_for(comm)
        mine = change(cuts) if comm.rank == rank else cuts
        raise_together(
            comm,
            kind,
            named(comm, rank),
            text,
            call=lambda mine=mine: GlobalIndexer(mine, [0], comm),
        )


@pytest.mark.parametrize("rows", [ROWS, 100])
def test_different_distributions(comm, rows):
    if comm.size == 1:
        return
    cuts = [rows * rank for rank in range(comm.size + 1)]
    mine = [*cuts[:-1], cuts[-1] + 1] if comm.rank == 1 else cuts
    raise_together(
        comm,
        RankDisagreementError,
        "distri",
        call=lambda: GlobalIndexer(mine, [0], comm),
    )


@pytest.mark.parametrize("nothing", [3, "x", None])
def test_a_communicator_that_is_none(comm, nothing):
    topology_of(comm)  # of the world, so that ranks know where to meet
    if nothing is None:
        with GlobalIndexer(cuts_for(comm), [0], nothing) as plan:  # means the world
            assert everywhere(comm, plan.Take(ones(ROWS)).tolist() == [1])
        return
    for rank in ranks_at_fault(comm):
        mine = nothing if comm.rank == rank else comm
        raise_together(
            comm,
            TypeError,
            named(comm, rank),
            "intra-communicator",
            call=lambda mine=mine: GlobalIndexer(cuts_for(comm), [0], mine),
        )


def ones(count, kind=float):
    return np.ones(count, kind)


def read_only(count):
    values = np.ones(count)
    values.flags.writeable = False
    return values


LOCK = threading.Lock()  # cannot be pickled

# Method, arguments that are good everywhere, and bad ones with what they raise.
CALLS = {
    "Take": (
        lambda plan, *args, **rest: plan.Take(*args, **rest),
        (ones(ROWS), np.zeros(4)),
        [
            ((ones(4), None), {}, ArgumentError, "dist_data has 4 values, but 3 are needed"),
            ((ones(ROWS), ones(3)), {}, ArgumentError, "local_data has 3 values, but 4 are needed"),
            ((ones(6)[::2], None), {}, ArgumentError, "contiguous"),
            ((ones(ROWS), read_only(4)), {}, ArgumentError, "read-only"),
            ((ones(ROWS), ones(4, "f4")), {}, TypeError, "local_data have types"),
            ((np.array([1, 2, None]), None), {}, TypeError, "Python objects"),
            (([1, 2, 3], None), {}, TypeError, "must be a buffer"),
            ((None, None), {}, TypeError, "must be a buffer"),
            ((np.ma.array([1.0, 2, 3], mask=[0, 1, 0]), None), {}, TypeError, "masked"),
        ],
    ),
    "Take of two": (
        lambda plan, *args, **rest: plan.Take(*args, **({"count": 2} | rest)),
        (ones(2 * ROWS), None),
        [
            ((ones(ROWS), None), {}, ArgumentError, "has 3 values, but 6 are needed"),
            ((ones(2 * ROWS), None), {"count": 0}, ArgumentError, "at least 1"),
            ((ones(2 * ROWS), None), {"count": 1.5}, TypeError, "must be one integer"),
        ],
    ),
    "Take_start": (
        lambda plan, *args, **rest: plan.Take_start(*args, **rest).wait(),
        (ones(ROWS), np.zeros(4)),
        [((ones(4), None), {}, ArgumentError, "dist_data has 4 values")],
    ),
    "Put": (
        lambda plan, *args, **rest: plan.Put(*args, **rest),
        (ones(4), np.zeros(ROWS)),
        [
            ((ones(3), None), {}, ArgumentError, "has 3 values, but 4 are needed"),
            ((None, None), {}, TypeError, "must be a buffer"),
            ((ones(4), ones(4)), {}, ArgumentError, "has 4 values, but 3 are needed"),
            ((ones(4), read_only(3)), {}, ArgumentError, "read-only"),
            ((ones(4), ones(3, int)), {}, TypeError, "local_data and dist_data have types"),
            ((ones(4), ones(6)[::2]), {}, ArgumentError, "contiguous"),
            ((ones(4), bytes(3)), {}, ArgumentError, "read-only"),
        ],
    ),
    "Put of sums": (
        lambda plan, *args, **rest: plan.Put(*args, **({"reduce": ReduceOp.SUM} | rest)),
        (ones(4), np.zeros(ROWS)),
        [
            ((ones(4), ones(3, int)), {}, TypeError, "dist_data has type int64, but"),
            ((ones(4), None), {"reduce": "sum"}, TypeError, "must be a ReduceOp"),
        ],
    ),
    "Put of bits": (
        lambda plan, *args, **rest: plan.Put(*args, **({"reduce": ReduceOp.BAND} | rest)),
        (ones(4, int), None),
        [],
    ),
    "Take_v": (
        lambda plan, *args, **rest: plan.Take_v(*args, **rest),
        (([1, 0, 2], ones(3)), None),
        [
            ((([1, 0, 2], ones(4)), None), {}, ArgumentError, "has 4 values, but 3 are needed"),
            ((([1, 2], ones(3)), None), {}, ArgumentError, "has 2 counts, but 3 are needed"),
            ((([1, -1, 2], ones(2)), None), {}, ArgumentError, "negative count -1"),
            ((([1, 0.5, 2], ones(3)), None), {}, TypeError, "integers"),
            ((ones(3), None), {}, TypeError, "pair"),
            ((([1, 0, 2], ones(3)), ([1, 0, 2, 0], ones(3))), {}, ArgumentError, "count 0 for"),
            ((([1, 0, 2], ones(3)), ([1, 0, 2, 1], read_only(4))), {}, ArgumentError, "read-only"),
            ((([1, 0, 2], ones(3)), ([1, 0, 2, 1], ones(4, int))), {}, TypeError, "types"),
        ],
    ),
    "Put_v": (
        lambda plan, *args, **rest: plan.Put_v(*args, **rest),
        (([1, 0, 2, 1], ones(4)), None),
        [
            ((([1, 0, 2], ones(3)), None), {}, ArgumentError, "has 3 counts, but 4 are needed"),
            ((([1, 0, 2, 1], ones(4)), ([0, 0], ones(0))), {}, ArgumentError, "2 counts"),
            ((([1, 0, 2, 1], ones(4)), ([1, 0, 0], ones(1, int))), {}, TypeError, "types"),
            ((None, None), {}, TypeError, "pair"),
        ],
    ),
    "take": (
        lambda plan, *args, **rest: plan.take(*args, **rest),
        (["a", "b", "c"], None),
        [
            ((["a"], None), {}, ArgumentError, "has 1 entries, but 3 are needed"),
            ((3, None), {}, TypeError, "must be a list"),
            (("abc", None), {}, TypeError, "must be a list"),
            ((["a", "b", "c"], [0]), {}, ArgumentError, "has 1 entries, but 4 are needed"),
            ((["a", "b", "c"], (0, 0, 0, 0)), {}, TypeError, "can be filled"),
            ((["a", LOCK, "c"], None), {}, TypeError, "cannot be pickled"),
        ],
    ),
    "put": (
        lambda plan, *args, **rest: plan.put(*args, **rest),
        (["a", "b", "c", "d"], None),
        [
            ((["a"], None), {}, ArgumentError, "has 1 entries, but 4 are needed"),
            ((None, None), {}, TypeError, "must be a list"),
            ((["a", "b", "c", LOCK], None), {}, TypeError, "cannot be pickled"),
            ((["a", "b", "c", "d"], [1, 2]), {}, ArgumentError, "has 2 entries"),
        ],
    ),
}
BAD_CALLS = [(name, *bad) for name, (_, _, cases) in CALLS.items() for bad in cases]


@pytest.mark.parametrize(
    "case", BAD_CALLS, ids=[f"{name} {number}" for number, (name, *_) in enumerate(BAD_CALLS)]
)
def test_a_bad_argument_on_one_rank_raises_everywhere(comm, indexer, case):
    name, bad, rest, kind, text = case
    call, good, _ = CALLS[name]
    for rank in ranks_at_fault(comm):
        wrong = comm.rank == rank
        arguments, options = (bad, rest) if wrong else (good, {})
        raise_together(
            comm,
            kind,
            named(comm, rank),
            text,
            call=lambda a=arguments, o=options: call(indexer, *a, **o),
        )
        call(indexer, *good)


OTHER_WORDS = "GlobalMultiIndexer", "_l", "[0]", "list 0", "lists of indices"


@pytest.mark.parametrize(
    "case", BAD_CALLS, ids=[f"{name} {number}" for number, (name, *_) in enumerate(BAD_CALLS)]
)
def test_errors_speak_of_the_arguments_that_were_passed(indexer, case):
    name, bad, options, kind, _ = case
    call = CALLS[name][0]
    with pytest.raises(kind) as caught:
        call(indexer, *bad, **options)
    text = str(caught.value)
    assert not [words for words in OTHER_WORDS if words in text], text


@pytest.mark.parametrize(("index", "kind", "_text"), BAD_LISTS, ids=range(len(BAD_LISTS)))
def test_errors_of_the_indices_name_them(comm, index, kind, _text):
    with pytest.raises(kind) as caught:
        GlobalIndexer(cuts_for(comm), index, comm)
    text = str(caught.value)
    assert "g_idx" in text, text
    assert not [words for words in OTHER_WORDS if words in text], text


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
    raise_together(comm, ZeroDivisionError, call=lambda: indexer.take([1, Spiteful(), 3]))
    assert everywhere(comm, indexer.take([1, 2, 3])[1] == 2)


class Spiteful:
    def __reduce__(self):
        return fail, ()


def fail():
    return 1 / 0


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (lambda g: g.Take(ones(3)), lambda g: g.Put(ones(4)), "call"),
        (lambda g: g.Take(ones(3)), lambda g: g.Take_start(ones(3)), "call"),
        (lambda g: g.take([1, 2, 3]), lambda g: g.Take(ones(3)), "call"),
        (lambda g: g.Take(ones(3)), lambda g: g.Take(ones(6), count=2), "count"),
        (lambda g: g.Put(ones(4)), lambda g: g.Put(ones(4), reduce=ReduceOp.SUM), "reduce"),
        (
            lambda g: g.Put_v(([1] * 4, ones(4))),
            lambda g: g.Put_v(([1] * 4, ones(4)), extend=True),
            "extend",
        ),
    ],
    ids=["put", "start", "objects", "count", "reduce", "extend"],
)
def test_ranks_that_ask_for_different_things(comm, indexer, one, other, text):
    if comm.size == 1:
        return
    for rank in ranks_at_fault(comm):
        mine = other if comm.rank == rank else one
        raise_together(comm, RankDisagreementError, text, call=lambda mine=mine: mine(indexer))
        one(indexer)


def test_ranks_that_use_different_indexers(comm, indexer):
    with GlobalIndexer(cuts_for(comm), [0], comm) as other:
        if comm.size == 1:
            return
        mine = other if comm.rank == 0 else indexer
        raise_together(comm, RankDisagreementError, "plan: ", call=lambda: mine.Take(ones(ROWS)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda g: g.Take(ones(3)), lambda g: g.Take(ones(3, "f4"))),
        (lambda g: g.Put(ones(4, int)), lambda g: g.Put(ones(4, ">i8"))),
        (lambda g: g.Take_v(([1] * 3, ones(3))), lambda g: g.Take_v(([1] * 3, ones(3, int)))),
        (lambda g: g.Put_v(([1] * 4, ones(4))), lambda g: g.Put_v(([1] * 4, ones(4, int)))),
    ],
    ids=["Take", "Put", "Take_v", "Put_v"],
)
def test_ranks_with_data_of_different_types(comm, indexer, one, other):
    if comm.size == 1:
        return
    for rank in ranks_at_fault(comm):
        mine = other if comm.rank == rank else one
        raise_together(
            comm, TypeDisagreementError, "different types", call=lambda mine=mine: mine(indexer)
        )
        one(indexer)
    assert issubclass(TypeDisagreementError, TypeError)


def test_an_output_is_checked_once_the_type_is_known(comm):
    """A rank that has no values learns their type from the others, and then is wrong."""
    if comm.size == 1:
        return
    with GlobalMultiIndexer(cuts_for(comm), [[0]] if comm.rank else [], comm) as plan:
        values = [np.array([True])] if comm.rank else []
        out = np.zeros(ROWS, int if comm.rank else float)
        raise_together(
            comm,
            TypeError,
            "rank 0: dist_data has type float64, but values of type bool need bool or int64",
            call=lambda: plan.Put(values, out, reduce=ReduceOp.SUM),
        )
        assert everywhere(comm, not out.any())


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        (ReduceOp.MIN, "c16"),
        (ReduceOp.MAX, "c8"),
        (ReduceOp.BAND, "f8"),
        (ReduceOp.BOR, "c8"),
        (ReduceOp.SUM, "S3"),
        (ReduceOp.SUM, [("x", "f8")]),
        (ReduceOp.LOR, "M8[s]"),
    ],
)
def test_what_cannot_be_combined(comm, indexer, operation, kind):
    raise_together(
        comm,
        ArgumentError,
        f"ReduceOp.{operation.name} does not combine values of type",
        call=lambda: indexer.Put(np.zeros(4, kind), reduce=operation),
    )


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
        raise_together(comm, kind, text, call=call)
    assert everywhere(comm, len(multi.Take(ones(3))) == 2)


def test_one_that_was_freed(comm):
    plan = GlobalIndexer(cuts_for(comm), [0], comm)
    plan.free()
    plan.free()
    raise_together(comm, ArgumentError, "freed", call=lambda: plan.Take(ones(ROWS)))
    private = comm.Dup()
    plan = GlobalIndexer(cuts_for(comm), [0], private)
    careless = GlobalIndexer(cuts_for(comm), [0], private, check=False)
    assert everywhere(comm, plan.Take(ones(ROWS)).tolist() == [1])
    private.Free()
    raise_together(comm, ArgumentError, "freed", call=lambda: plan.Take(ones(ROWS)))
    raise_together(comm, ArgumentError, "freed", call=lambda: careless.Take(ones(ROWS)))
    plan.free()
    careless.free()


def test_without_checks_mistakes_raise_where_they_are_made(comm):
    with GlobalMultiIndexer(cuts_for(comm), [], comm, check=False) as plan:
        with pytest.raises(TypeError, match="cannot find the type"):
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
    raise_together(
        comm,
        ArgumentError,
        "COMM_NULL",
        call=lambda: GlobalIndexer([0, 1], [0], MPI.COMM_NULL),
    )
