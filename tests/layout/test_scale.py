"""A million ranks: what a rank asks costs what its neighbours cost, by counts, not by time."""

import sys
import tracemalloc

import pytest

from pencils.layout import build_layout, redistribution

MILLION = 10**6

LAYOUTS = {
    "pencils of a cube": {"shape": (4096, 4096, 4096)},
    "blocks of a cube": {"shape": (4096, 4096, 4096), "decomp": (0, 1, 2)},
    "flat blocks": {"shape": (10**4, 10**4, 16), "decomp": (2, 1, 0), "splits": "floor"},
    "four dimensions": {"shape": (256, 256, 256, 256), "decomp": (3, 1, 2), "splits": "last"},
    "line": {"shape": (10**9,)},
    "ceil blocks": {"shape": (3 * 10**6 + 1,), "splits": "ceil"},
    "fewer points than ranks": {"shape": (1000,)},
    "floor and fewer points": {"shape": (1000,), "splits": "floor"},
    "given grid": {"shape": (4096, 4096, 4096), "decomp": (0, 1, 2), "grid": (100, 0, 50)},
    "a prime number of ranks": {"shape": (4096, 4096), "ranks": 999_983, "decomp": (0, 1)},
}

layouts = pytest.mark.parametrize("arguments", LAYOUTS.values(), ids=LAYOUTS.keys())


def million(arguments):
    arguments = {"ranks": MILLION} | arguments
    return build_layout(arguments.pop("shape"), arguments.pop("ranks"), **arguments)


def peak_kilobytes(function, *args):
    """Run a function; return its result and the memory that it had allocated at most."""
    tracemalloc.start()
    try:
        result = function(*args)
        return result, tracemalloc.get_traced_memory()[1] / 1024
    finally:
        tracemalloc.stop()


def count_calls(function, *args):
    """Run a function; return its result and how many Python functions that called."""
    calls = 0

    def count(_frame, event, _arg):
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = function(*args)
    finally:
        sys.setprofile(before)
    return result, calls


@layouts
def test_blocks_are_compared_without_looking_at_ranks(arguments):
    one, other = million(arguments), million(arguments | {"periodic": True})
    assert count_calls(one.same_blocks, other) < (True, 100)


def some_ranks(layout):
    last = layout.size - 1
    return [0, 1, last // 3, last // 2, last - 1, last]


@layouts
def test_a_section_keeps_no_table(arguments):
    """It is made, and answers for a rank, by a few calls."""
    layout = million(arguments)
    ranges = [range(1, n - 1) for n in layout.shape]
    section, calls = count_calls(layout.section, ranges)
    assert calls < 100
    assert all(split.table == () for split in section.splits)
    middle = [n // 2 for n in section.shape]
    rank = section.owner(middle)
    box, calls = count_calls(section.box, rank)
    assert calls < 300
    assert middle in box
    assert count_calls(
        layout.section([range(n - 1) for n in layout.shape]).same_blocks, section
    ) < (False, 100)
    assert len(str(section)) < 300


@layouts
def test_construction_takes_kilobytes(arguments):
    """A layout keeps no table of ranks, and choosing its grid needs none either."""
    layout, peak = peak_kilobytes(million, arguments)
    assert layout.size == arguments.get("ranks", MILLION)
    assert peak < 100
    assert all(split.table == () for split in layout.splits)


@layouts
def test_every_answer_is_right_and_small(arguments):
    """A rank's box, the owner of its corners and its neighbours agree, by a few hundred calls."""
    layout = million(arguments)

    def ask(rank):
        box = layout.box(rank)
        right = layout.neighbor(rank, [int(dim == layout.decomp[-1]) for dim in range(layout.ndim)])
        if box.volume:
            assert layout.owner(box.start) == rank
            assert layout.owner([stop - 1 for stop in box.stop]) == rank
        if right is not None:
            assert right == rank + 1
            assert layout.box(right).start[layout.decomp[-1]] == box.stop[layout.decomp[-1]]

    for rank in some_ranks(layout):
        _, calls = count_calls(ask, rank)
        _, peak = peak_kilobytes(ask, rank)
        assert calls < 500
        assert peak < 20


@layouts
def test_its_own_redistribution_is_one_message_to_itself(arguments):
    """Between equal layouts a rank finds itself, and looks at nobody else."""
    layout = million(arguments)
    for rank in some_ranks(layout):
        (sends, recvs), calls = count_calls(redistribution, layout, layout, rank, rank)
        assert len(sends) == len(recvs) == min(1, layout.box(rank).volume)
        assert calls < 500
        assert peak_kilobytes(redistribution, layout, layout, rank, rank)[1] < 20


def test_a_transpose_costs_the_ranks_of_one_line_of_the_grid():
    """Pencils along z to pencils along x: a thousand peers, a few calls and bytes for each."""
    source = build_layout((4096,) * 3, MILLION, decomp=(0, 1), grid=(1000, 1000))
    target = build_layout((4096,) * 3, MILLION, decomp=(2, 1), grid=(1000, 1000))
    for rank in some_ranks(source):
        (sends, recvs), calls = count_calls(redistribution, source, target, rank, rank)
        assert len(sends) == len(recvs) == 1000
        assert calls < 2000 * 10
        assert peak_kilobytes(redistribution, source, target, rank, rank)[1] < 2000


def test_a_shifted_cut_costs_two_messages():
    """Other bounds on the same grid: only the ranks next to a rank hear of it."""
    source = build_layout((10**7 + 1,), MILLION, splits="first")
    target = build_layout((10**7 + 1,), MILLION, splits="last")
    for rank in some_ranks(source)[1:-1]:
        (sends, recvs), calls = count_calls(redistribution, source, target, rank, rank)
        assert [message.dest - rank for message in sends] == [0, 1]
        assert [message.source - rank for message in recvs] == [-1, 0]
        assert calls < 500


def test_calls_grow_with_the_logarithm_of_the_number_of_ranks():
    """A thousand times more ranks, as many messages: at most three times the calls."""

    def calls(ranks):
        source = build_layout((10**8 + 1,), ranks, splits="first")
        target = build_layout((10**8 + 1,), ranks, splits="last")
        (sends, recvs), count = count_calls(redistribution, source, target, ranks // 2, ranks // 2)
        assert len(sends) == len(recvs) == 2
        return count

    assert calls(10**6) < 3 * calls(10**3)


@pytest.mark.parametrize("dims", [{0}, {1}, {0, 1}], ids=str)
def test_replicas_do_not_look_at_each_other(dims):
    """A singleton that a thousand or a million ranks hold costs its ranks nothing."""
    full = build_layout((4096, 4096, 16), MILLION, grid=(1000, 1000))
    layout = full.with_singletons(dims)
    target = build_layout((4096, 4096, 16), MILLION, grid=(1000, 1000), splits="last")
    for rank in some_ranks(layout):
        for goal in (layout, target.with_singletons(dims)):
            (sends, recvs), calls = count_calls(redistribution, layout, goal, rank, rank)
            assert 1 <= len(recvs) <= 2
            assert 1 <= len(sends) <= 2
            assert calls < 500
            assert peak_kilobytes(redistribution, layout, goal, rank, rank)[1] < 20


def test_more_ranks_than_points_leaves_the_rest_empty_and_silent():
    """The first thousand of a million ranks hold one point each; the others send nothing."""
    layout = build_layout((1000,), MILLION)
    assert [layout.box(rank).volume for rank in (0, 999, 1000, MILLION - 1)] == [1, 1, 0, 0]
    assert [layout.owner((i,)) for i in (0, 500, 999)] == [0, 500, 999]
    other = build_layout((1000,), MILLION, splits="floor")
    assert [other.owner((i,)) for i in (0, 999)] == [999, MILLION - 1]
    assert redistribution(layout, other, 5000, 5000)[0] == []
    assert [m.dest for m in redistribution(layout, other, 0, 0)[0]] == [999]
    assert [m.source for m in redistribution(layout, other, 999, 999)[1]] == [0]
