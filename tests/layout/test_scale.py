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


def some_ranks(layout):
    last = layout.size - 1
    return [0, 1, last // 3, last // 2, last - 1, last]


@layouts
def test_no_table_of_ranks_is_kept(arguments):
    """Nor is one needed to choose the grid, to compare layouts, or to make a section."""
    layout, peak = peak_kilobytes(million, arguments)
    assert layout.size == arguments.get("ranks", MILLION)
    assert peak < 100
    other = million(arguments | {"periodic": True})
    assert count_calls(layout.same_blocks, other) < (True, 100)
    ranges = [range(1, n - 1) for n in layout.shape]
    section, calls = count_calls(layout.section, ranges)
    assert calls < 100
    assert all(split.table == () for split in (*layout.splits, *section.splits))
    middle = [n // 2 for n in section.shape]
    box, calls = count_calls(section.box, section.owner(middle))
    assert calls < 300
    assert middle in box
    other = layout.section([range(n - 1) for n in layout.shape])
    assert count_calls(other.same_blocks, section) < (False, 100)
    assert len(str(section)) < 300


@layouts
def test_every_answer_is_right_and_small(arguments):
    """A rank's box, the owner of its corners and its neighbours agree, by a few hundred calls.

    Between equal layouts a rank finds itself, and looks at nobody else.
    """
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

    def send_to_itself(rank):
        sends, recvs = redistribution(layout, layout, rank, rank)
        assert len(sends) == len(recvs) == min(1, layout.box(rank).volume)

    for rank in some_ranks(layout):
        for call in (ask, send_to_itself):
            assert count_calls(call, rank)[1] < 500
            assert peak_kilobytes(call, rank)[1] < 20


def test_a_transpose_costs_the_ranks_of_one_line_of_the_grid():
    """Pencils along z to pencils along x: a thousand peers, a few calls and bytes for each."""
    source = build_layout((4096,) * 3, MILLION, decomp=(0, 1), grid=(1000, 1000))
    target = build_layout((4096,) * 3, MILLION, decomp=(2, 1), grid=(1000, 1000))
    for rank in some_ranks(source):
        (sends, recvs), calls = count_calls(redistribution, source, target, rank, rank)
        assert len(sends) == len(recvs) == 1000
        assert calls < 2000 * 10
        assert peak_kilobytes(redistribution, source, target, rank, rank)[1] < 2000
    # The first thousand of a million ranks hold one point each; the others send nothing.
    layout = build_layout((1000,), MILLION)
    assert [layout.box(rank).volume for rank in (0, 999, 1000, MILLION - 1)] == [1, 1, 0, 0]
    assert [layout.owner((i,)) for i in (0, 500, 999)] == [0, 500, 999]
    other = build_layout((1000,), MILLION, splits="floor")
    assert [other.owner((i,)) for i in (0, 999)] == [999, MILLION - 1]
    assert redistribution(layout, other, 5000, 5000)[0] == []
    assert [m.dest for m in redistribution(layout, other, 0, 0)[0]] == [999]
    assert [m.source for m in redistribution(layout, other, 999, 999)[1]] == [0]


def test_calls_grow_with_the_logarithm_of_the_number_of_ranks():
    """A thousand times more ranks, as many messages: at most three times the calls.

    With other bounds on the same grid, only the ranks next to a rank hear of it.
    """

    def calls(ranks):
        points = (10**8 + 1,)
        source, target = (build_layout(points, ranks, splits=rule) for rule in ("first", "last"))
        rank = ranks // 2
        (sends, recvs), count = count_calls(redistribution, source, target, rank, rank)
        assert [message.dest - rank for message in sends] == [0, 1]
        assert [message.source - rank for message in recvs] == [-1, 0]
        return count

    assert calls(10**6) < min(500, 3 * calls(10**3))


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
