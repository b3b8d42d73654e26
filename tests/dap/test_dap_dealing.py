"""Who sends which box to whom between blocks and hands, with all ranks played in one process."""

from functools import reduce
from itertools import product

import numpy as np
import pytest
from dap_cases import deal as dealt_like_cards
from hypothesis import given
from hypothesis import strategies as st

from pencils.comm.combining import ReduceOp, read_combining
from pencils.dap import BlockMap, CyclicMap, UnstructuredMap, make_global
from pencils.dap.dealing import make_deal
from pencils.dap.lists import every_point, last_holders
from pencils.dap.redistribute import Side, combined
from pencils.errors import ArgumentError
from pencils.layout import make_layout


@st.composite
def hands(draw, points):
    """Draw what every process along a dimension owns."""
    nprocs = draw(st.integers(1, 4))
    kind = draw(st.sampled_from("bcu"))
    if kind == "c":
        size = draw(st.integers(1, 5))
        return [
            CyclicMap(size=points, nprocs=nprocs, rank=r, block_size=size) for r in range(nprocs)
        ]
    if kind == "b":
        inner = draw(st.lists(st.integers(0, points), min_size=nprocs - 1, max_size=nprocs - 1))
        bounds = [0, *sorted(inner), points]
        return [
            BlockMap(size=points, nprocs=nprocs, rank=r, start=bounds[r], stop=bounds[r + 1])
            for r in range(nprocs)
        ]
    some = st.lists(st.sampled_from(range(points)), unique=True) if points else st.just([])
    lists = [draw(some) for _ in range(nprocs)]
    return [
        UnstructuredMap(
            size=sum(map(len, lists)), nprocs=nprocs, rank=r, indices=np.array(one, np.int64)
        )
        for r, one in enumerate(lists)
    ]


@st.composite
def layouts(draw, ndim):
    shape = [draw(st.integers(0, 30 if ndim == 1 else 9)) for _ in range(ndim)]
    decomp = draw(st.permutations(range(ndim)))[: draw(st.integers(1, ndim))]
    grid = [draw(st.integers(1, 4)) for _ in decomp]
    parts = dict(zip(decomp, grid, strict=True))
    splits = [
        [0, *sorted(draw(st.integers(0, n)) for _ in range(parts.get(dim, 1) - 1)), n]
        for dim, n in enumerate(shape)
    ]
    order = draw(st.permutations(range(ndim)))
    size = int(np.prod(grid))
    return make_layout(shape, size, decomp=decomp, grid=grid, order=order, splits=splits)


@st.composite
def cases(draw):
    layout = draw(layouts(draw(st.integers(1, 3))))
    return layout, [make_global(draw(hands(points))) for points in layout.shape]


def make_hands(deal, dims, data):
    """Deal global data, index by index."""
    owned = [
        [dim.parts[c].owned for dim, c in zip(dims, deal.hands.coords(rank), strict=True)]
        for rank in range(deal.hands.size)
    ]
    return [data[np.ix_(*(np.asarray(along, int) for along in one))] for one in owned]


def make_blocks(layout, data):
    return [data[layout.box(rank).slices()].copy() for rank in range(layout.size)]


def move(sources, targets):
    """Move what ranks share from one side to the other, as the ranks say, and compare both."""
    for (here, away), (there, home) in product(enumerate(sources), enumerate(targets)):
        for number, (source, target) in enumerate(zip(away.views, home.views, strict=True)):
            sends = [share for share in away.shares[number] if share.peer == there]
            recvs = [share for share in home.shares[number] if share.peer == here]
            assert len(sends) == len(recvs)
            for send, recv in zip(sends, recvs, strict=True):
                assert send.start == tuple(part.start for part in recv.key)
                assert recv.start == tuple(part.start for part in send.key)
                assert source[send.key].size
                target[recv.key] = source[send.key]


class Rank:
    """What one rank of either side has: a part of a deal, and an array."""

    def __init__(self, part, array, *, leaves):
        self.side = Side(array, part.places)
        self.travels = self.side.leaving() if leaves else self.side.arriving()
        self.shares = part.shares
        self.views = part.views(self.travels)
        assert all(np.shares_memory(view, self.travels) for view in self.views if view.size)


def play(deal, blocks, hands, *, back):
    """Fill the blocks from the hands, or the hands from the blocks, by all ranks."""
    of_blocks = [Rank(deal.block(r), one, leaves=back) for r, one in enumerate(blocks)]
    of_hands = [Rank(deal.hand(r), one, leaves=not back) for r, one in enumerate(hands)]
    sources, targets = (of_blocks, of_hands) if back else (of_hands, of_blocks)
    move(sources, targets)
    for rank in targets:
        rank.side.store(rank.travels)


@given(cases())
def test_hands_fill_blocks(case):
    layout, dims = case
    data = np.arange(1.0, 1 + np.prod(layout.shape)).reshape(layout.shape)
    held = np.zeros(layout.shape, bool)
    deal = make_deal(layout, dims, last_holders)
    for rank in range(deal.hands.size):
        coords = deal.hands.coords(rank)
        owned = (dim.parts[c].owned for dim, c in zip(dims, coords, strict=True))
        held[np.ix_(*(np.asarray(along, int) for along in owned))] = True
    blocks = make_blocks(layout, np.zeros_like(data))
    play(deal, blocks, make_hands(deal, dims, data), back=False)
    for block, expected in zip(blocks, make_blocks(layout, np.where(held, data, 0)), strict=True):
        assert np.array_equal(block, expected)


@given(cases())
def test_blocks_fill_hands(case):
    layout, dims = case
    data = np.arange(1.0, 1 + np.prod(layout.shape)).reshape(layout.shape)
    deal = make_deal(layout, dims, every_point)
    expected = make_hands(deal, dims, data)
    hands = [np.zeros_like(hand) for hand in expected]
    play(deal, make_blocks(layout, data), hands, back=True)
    for hand, right in zip(hands, expected, strict=True):
        assert np.array_equal(hand, right)


@given(cases())
def test_the_last_holder_wins(case):
    """Every hand holds its own number: a block gets the highest of those that have the point."""
    layout, dims = case
    deal = make_deal(layout, dims, last_holders)
    data = np.zeros(layout.shape)
    hands = make_hands(deal, dims, data)
    for rank, hand in enumerate(hands):
        hand[...] = rank + 1
        coords = deal.hands.coords(rank)
        owned = (dim.parts[c].owned for dim, c in zip(dims, coords, strict=True))
        data[np.ix_(*(np.asarray(along, int) for along in owned))] = rank + 1
    blocks = make_blocks(layout, np.zeros_like(data))
    play(deal, blocks, hands, back=False)
    for block, expected in zip(blocks, make_blocks(layout, data), strict=True):
        assert np.array_equal(block, expected)


@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 9), st.integers(1, 6))
def test_a_cyclic_dimension_takes_few_boxes(points, nprocs, size, parts):
    """At most one folded box and two runs for each pair, however many turns there are."""
    layout = make_layout((points,), parts)
    maps = [CyclicMap(size=points, nprocs=nprocs, rank=r, block_size=size) for r in range(nprocs)]
    deal = make_deal(layout, [make_global(maps)], every_point)
    for rank in range(parts):
        folded, row = deal.block(rank).shares
        for hand in range(nprocs):
            assert sum(share.peer == hand for share in folded) <= 1
            assert sum(share.peer == hand for share in row) <= 2
    expected = dealt_like_cards(points, nprocs, size)
    hands = [np.full(len(hand), -1) for hand in expected]
    play(deal, make_blocks(layout, np.arange(points)), hands, back=True)
    assert [hand.tolist() for hand in hands] == expected


def test_sorted_lists_travel_as_they_are():
    lists = [np.array([1, 4, 7]), np.array([0, 2])]
    maps = [UnstructuredMap(size=5, nprocs=2, rank=r, indices=one) for r, one in enumerate(lists)]
    deal = make_deal(make_layout((8,), 2), [make_global(maps)], every_point)
    buffer = np.zeros(3)
    assert Side(buffer, deal.hand(0).places).leaving() is buffer


@given(
    st.sampled_from([op.value for op in ReduceOp]),
    st.lists(st.integers(0, 4), max_size=8),
    st.lists(st.integers(0, 3), max_size=5),
    st.randoms(use_true_random=False),
)
def test_values_of_one_place_are_combined(name, rows, columns, random):
    values = np.array(
        [[[random.randrange(4)] * 2 for _ in columns] for _ in rows], np.int8
    ).reshape(len(rows), len(columns), 2)
    places = [np.array(rows, np.int64), np.array(columns, np.int64), None]
    ufunc = read_combining(name, values.dtype).ufunc
    found, (down, across, along) = combined(values, places, ufunc)
    assert along is None
    assert found.dtype == values.dtype
    assert (down.tolist(), across.tolist()) == (sorted(set(rows)), sorted(set(columns)))
    for (i, row), (j, column) in product(enumerate(down), enumerate(across)):
        same = np.ix_(np.array(rows) == row, np.array(columns) == column)
        one, *others = values[same].reshape(-1, 2)
        expected = reduce(ufunc, others, one)
        assert np.array_equal(found[i, j], expected)


def test_combinings_have_names_and_types():
    with pytest.raises(ArgumentError, match="'land'"):
        read_combining("mean", np.dtype(float))
    with pytest.raises(ArgumentError, match="or one of"):
        read_combining([], np.dtype(float))
    assert read_combining("sum", np.dtype(float)) is ReduceOp.SUM
    assert read_combining(ReduceOp.BOR, np.dtype(bool)) is ReduceOp.BOR
    for name, dtype in (("band", "f8"), ("sum", "S3"), ("min", "i4, f8"), ("prod", "m8[s]")):
        with pytest.raises(ArgumentError, match="does not combine"):
            read_combining(name, np.dtype(dtype))
