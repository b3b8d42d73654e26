"""Layouts against loops over all ranks and all indices; build_layout and what it refuses."""

import re
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from pencils.comm.agree import token
from pencils.errors import ArgumentError
from pencils.layout import Box, Layout, build_layout
from pencils.layout.build import change_layout, factorizations
from pencils.layout.integers import as_dims, as_ints
from pencils.layout.split import RULES, Split

shapes = st.lists(st.integers(0, 6), min_size=1, max_size=4).map(tuple)
ranks_ = st.integers(1, 64)


def volume(shape):
    return int(np.prod(shape, dtype=int))


@given(shapes, ranks_, st.data())
def test_every_index_lies_in_the_box_of_its_owner_only(any_layout, shape, ranks, data):
    """The boxes of all ranks tile the grid, and `owner` names the rank whose box holds an index.

    A rank's position along every dimension lies in the process shape and leads back to it.
    """
    layout = any_layout(data.draw, shape, ranks)
    holder = np.full(shape, -1)
    for rank in range(ranks):
        block = holder[layout.box(rank).slices()]
        assert block.shape == layout.box(rank).shape
        assert (block == -1).all()
        block[...] = rank
    assert (holder >= 0).all()
    for index in np.ndindex(shape):
        assert layout.owner(index) == holder[index]
    assert layout.size == ranks == volume(layout.process_shape)
    seen = [layout.parts(rank) for rank in range(ranks)]
    assert [layout.rank(parts) for parts in seen] == list(range(ranks))
    assert sorted(seen) == sorted(np.ndindex(layout.process_shape))


@examples(50)
@given(shapes, ranks_, st.data())
def test_neighbor_moves_by_blocks_along_dimensions(any_layout, shape, ranks, data):
    """The neighbour sits at the shifted position, wraps only if periodic, else there is none."""
    layout = any_layout(data.draw, shape, ranks)
    at = {layout.parts(rank): rank for rank in range(ranks)}
    offset = data.draw(st.tuples(*[st.integers(-2, 2)] * len(shape)))
    for parts, rank in at.items():
        there = tuple(
            (part + step) % processes if wrap else part + step
            for part, step, processes, wrap in zip(
                parts, offset, layout.process_shape, layout.periodic, strict=True
            )
        )
        assert layout.neighbor(rank, offset) == at.get(there)


@given(shapes, ranks_, st.data())
def test_singletons_are_whole_on_every_rank_along_them(any_layout, shape, ranks, data):
    """A singleton has extent 1, on all ranks; the other dimensions keep their boxes."""
    full = any_layout(data.draw, shape, ranks)
    dims = data.draw(st.sets(st.integers(0, len(shape) - 1)))
    layout = full.with_singletons(dims)
    assert layout.shape == tuple(1 if d in dims else n for d, n in enumerate(shape))
    speakers = {}
    for rank in range(ranks):
        box, old = layout.box(rank), full.box(rank)
        for dim in range(len(shape)):
            expected = (0, 1) if dim in dims else (old.start[dim], old.stop[dim])
            assert (box.start[dim], box.stop[dim]) == expected
        others = tuple(part for d, part in enumerate(layout.parts(rank)) if d not in dims)
        speakers.setdefault(others, []).append(layout.is_first_replica(rank))
    assert all(speaks.count(True) == 1 for speaks in speakers.values())
    for index in np.ndindex(layout.shape):
        owner = layout.owner(index)
        assert index in layout.box(owner)
        assert layout.is_first_replica(owner)


def every_layout(shape, ranks):
    """All ways to cut a grid, by grids of up to three axes."""
    dims = range(len(shape))
    for count in range(1, len(shape) + 1):
        for decomp in permutations(dims, count):
            for grid in factorizations(ranks, (0,) * count):
                for rule in RULES:
                    yield build_layout(shape, ranks, decomp=decomp, grid=grid, splits=rule)


@pytest.mark.parametrize(("shape", "ranks"), [((4, 6), 6), ((5, 1), 4), ((3, 2, 4), 4)])
def test_layouts_have_the_same_blocks_if_every_rank_has_the_same(shape, ranks):
    made = [(x, [x.box(rank) for rank in range(ranks)]) for x in every_layout(shape, ranks)]
    for one, blocks in made:
        for other, others in made:
            assert one.same_blocks(other) == (blocks == others)


def test_the_same_blocks_in_other_words():
    """Memory order and edges do not matter; shapes and ranks do."""
    layout = build_layout((4, 6), 2)
    for other in (
        build_layout((4, 6), 2, order=(1, 0)),
        build_layout((4, 6), 2, periodic=True),
        build_layout((4, 6), 2, decomp=(1, 0), grid=(1, 2)),
        build_layout((4, 6), 2, splits=[(0, 2, 4), "first"]),
    ):
        assert layout.same_blocks(other)
        assert other.same_blocks(layout)
    for other in (
        build_layout((4, 7), 2),
        build_layout((4, 6, 1), 2),
        build_layout((4, 6), 3),
        build_layout((4, 6), 2, decomp=1),
        build_layout((4, 6), 2, splits=[(0, 1, 4), "first"]),
    ):
        assert not layout.same_blocks(other)
        assert not other.same_blocks(layout)


def test_layouts_are_values():
    """Equal arguments, however written, make equal layouts with equal hashes."""
    one = build_layout((4, 6, 8), 6, decomp=(0, -1), grid=(2, 3), periodic=True, order=(2, 1, 0))
    two = build_layout(
        np.array([4, 6, 8]),
        np.int64(6),
        decomp=[np.int32(0), 2],
        grid=np.array([0, 3]),
        periodic=np.ones(3, bool),
        order=iter([-1, 1, 0]),
        splits=["first", None, "first"],
    )
    assert one == two
    assert hash(one) == hash(two)
    assert all(type(n) is int for n in (*two.shape, *two.grid.shape, *two.decomp, *two.order))
    assert isinstance(one, Layout)


def test_defaults_and_bounds():
    """All but the last dimension are decomposed, dimension 0 of a line; C order; not periodic."""
    layout = build_layout((64, 64, 64), 6)
    assert (layout.decomp, layout.grid.shape) == ((0, 1), (3, 2))
    assert (layout.order, layout.periodic) == ((0, 1, 2), (False,) * 3)
    assert layout.box(5) == Box((43, 32, 0), (64, 64, 64))
    assert build_layout(7, 3).decomp == (0,)
    assert build_layout([7], 3, grid=3, decomp=0, order=0).box(2) == Box((5,), (7,))
    pieces = np.array_split(np.arange(64), 3)
    assert [layout.box(rank).start[0] for rank in (0, 2, 4)] == [piece[0] for piece in pieces]
    # The bounds of a line may stand alone or in a list, and fix the grid.
    for bounds in ((0, 1, 1, 7), np.array([0, 1, 1, 7])):
        for splits in (bounds, [bounds]):
            layout = build_layout(7, 3, splits=splits)
            found = [(box.start[0], box.stop[0]) for box in map(layout.box, range(3))]
            assert found == [(0, 1), (1, 1), (1, 7)]
    layout = build_layout((8, 8), 6, decomp=(0, 1), splits=["floor", (0, 8, 8)])
    assert layout.grid.shape == (3, 2)
    for splits in (5, [5], [], (0,), (1, 4), [(0, 3, 2)], {"a": 1}):
        with pytest.raises((ArgumentError, TypeError), match=r"bounds|integer"):
            build_layout(4, 2, splits=splits)
    # The choice of the grid knows the rule: five points do not fill four ceil blocks.
    layout = build_layout((5, 5, 8), 4, splits="ceil")
    assert all(layout.box(rank).volume for rank in range(4))


def test_integers_are_read():
    for value in (3, [3], (3,), np.int8(3), np.array(3), np.array([3]), range(3, 4)):
        assert as_ints("n", value) == (3,)
        assert type(as_ints("n", value)[0]) is int
    assert as_dims("dims", (-1, 0), 3) == (2, 0)
    assert [as_dims("dims", dim, 2) for dim in range(-2, 2)] == [(0,), (1,), (0,), (1,)]


def rising(kept):
    return kept if kept.step > 0 else kept[::-1]


@given(shapes, ranks_, st.data())
def test_points_of_a_section_stay_on_their_rank(any_layout, shape, ranks, data):
    """A rank's box of ``array[ranges]`` is where the points of its own block land in it."""
    layout = any_layout(data.draw, shape, ranks)
    singletons = data.draw(st.sets(st.integers(0, len(shape) - 1), max_size=2))
    layout = layout.with_singletons(singletons)
    ranges = [rising(range(n)[data.draw(st.slices(n))]) for n in layout.shape]
    section = layout.section(ranges)
    assert section.shape == tuple(map(len, ranges))
    assert section.size == ranks
    for rank in range(ranks):
        own, new = layout.box(rank), section.box(rank)
        for dim, kept in enumerate(ranges):
            here = [i for i, at in enumerate(kept) if own.start[dim] <= at < own.stop[dim]]
            assert list(range(new.start[dim], new.stop[dim])) == here
        assert section.is_first_replica(rank) == layout.is_first_replica(rank)
    for dim, (split, base) in enumerate(zip(section.splits, layout.splits, strict=True)):
        kept = ranges[dim]
        assert [split.owner(i) for i in range(len(kept))] == [base.owner(at) for at in kept]
        assert section.periodic[dim] == (layout.periodic[dim] and kept == range(base.points))
        if not split.replicated:
            assert split.cuts == (*(split.bounds(p)[0] for p in range(split.parts)), len(kept))
            explicit = Split.from_bounds(split.cuts)
            assert split == explicit
            assert (hash(split), token(split)) == (hash(explicit), token(explicit))
            assert (split.longest, split.filled) == (explicit.longest, explicit.filled)


@given(shapes, ranks_, st.data())
def test_sections_of_sections(any_layout, shape, ranks, data):
    """A section of a section is one of the whole: the same blocks, the same origins."""
    layout = any_layout(data.draw, shape, ranks)
    first = [rising(range(n)[data.draw(st.slices(n))]) for n in layout.shape]
    second = [rising(range(len(kept))[data.draw(st.slices(len(kept)))]) for kept in first]
    both = [kept[one.start : one.stop : one.step] for kept, one in zip(first, second, strict=True)]
    nested, flat = layout.section(first).section(second), layout.section(both)
    assert nested == flat
    assert nested.same_blocks(flat)
    for dim, kept in enumerate(both):
        origin = nested.origins[dim] if nested.origins else (0, 1)
        start, step = layout.origins[dim] if layout.origins else (0, 1)
        there = start + step * kept.start, step * kept.step if len(kept) > 1 else 1
        assert not kept or origin == there
        assert nested.splits[dim].base is None or nested.splits[dim].base.base is None


def test_texts_of_sections():
    """They name the whole and the points that are kept, and plans tell each other apart by them."""
    layout = build_layout((16, 12), 4, periodic=True).section([range(1, 15), range(12)])
    assert "splits=['first of 16[1:15:1]', 'first']" in str(layout)
    assert "splits=['first of 16[3:4:1]', 'first']" in str(layout.section([range(2, 3), range(12)]))
    layout = build_layout((6,), 2, splits=(0, 1, 6)).section([range(0, 4, 2)])
    assert "(0, 1, 6)[0:4:2]" in str(layout)
    early, late = (build_layout((9,), 2, splits=(0, cut, 9)) for cut in (3, 6))
    ranges = [range(7)], [range(2, 9)], [range(0, 9, 2)], [range(3, 4)], [range(5, 5)]
    found = [layout.section(part) for layout in (early, late) for part in ranges]
    found += [change_layout(layout, grid=2) for layout in found]
    assert all(one == other for one in found for other in found if str(one) == str(other))
    # Blocks are the same only if they are of the same points of the whole.
    layout = build_layout((8, 9), 1)
    low, high = layout.section([range(7), range(9)]), layout.section([range(1, 8), range(9)])
    even, odd = (layout.section([range(start, 8, 2), range(9)]) for start in (0, 1))
    for one, other in ((low, high), (even, odd), (even, build_layout((4, 9), 1))):
        assert one.splits == other.splits
        assert one != other
        assert not one.same_blocks(other)
        assert not one.shares_blocks(other)
    assert low == build_layout((7, 9), 1)  # it begins where the whole does
    assert layout.section([range(8), range(9)]) is layout


def test_layouts_along_some_dimensions():
    """Cuts, origins and edges of each dimension come from one of both layouts."""
    layout = build_layout((8, 9), 4, decomp=(0, 1), periodic=True)
    inner, outer = (
        layout.section([range(1, 7), range(9)]),
        layout.section([range(8), range(0, 9, 2)]),
    )
    both = layout.section([range(1, 7), range(0, 9, 2)])
    assert inner.along([1], outer) == both
    assert outer.along([0], inner) == both
    assert layout.along([], inner) == layout
    assert layout.along([0, 1], inner) == inner


@pytest.mark.parametrize("index", [(4, 0), (-1, 0), (0, 6), (0,), (0, 0, 0)])
def test_owner_of_an_index_outside_raises(index):
    """The error repeats the index and the global shape."""
    layout = build_layout((4, 6), 2)
    with pytest.raises(IndexError, match=re.escape(f"{index} is outside the global shape (4, 6)")):
        layout.owner(index)


BAD = [
    # arguments that differ from build_layout((4, 6), 4), the error, what was given, what is allowed
    ({"shape": ()}, ArgumentError, "shape=()", "at least one dimension"),
    ({"shape": (4, -1)}, ArgumentError, "shape=(4, -1)", "no negative extent"),
    ({"shape": (4.0, 6)}, TypeError, "shape=(4.0, 6)", "must be an integer"),
    ({"shape": "46"}, TypeError, "shape='46'", "must be an integer"),
    ({"shape": None}, TypeError, "shape=None", "must be an integer"),
    ({"shape": (True, 6)}, TypeError, "not True", "must be an integer"),
    ({"shape": [[4, 6]]}, TypeError, "not [4, 6]", "must be an integer"),
    ({"shape": np.ones((2, 2), int)}, TypeError, "not array([1, 1])", "must be an integer"),
    ({"shape": np.array(4.0)}, TypeError, "not array(4.)", "must be an integer"),
    ({"ranks": 0}, ArgumentError, "ranks=0", "at least 1"),
    ({"ranks": -4}, ArgumentError, "ranks=-4", "at least 1"),
    ({"ranks": 4.0}, TypeError, "ranks=4.0", "one integer"),
    ({"ranks": (4,)}, TypeError, "ranks=(4,)", "one integer"),
    ({"ranks": True}, TypeError, "ranks=True", "one integer"),
    ({"decomp": 2}, ArgumentError, "decomp=(2,)", "outside 0..1"),
    ({"decomp": (0, -3)}, ArgumentError, "decomp=(0, -3)", "-2..-1, counted from the end"),
    ({"decomp": (1, -1)}, ArgumentError, "decomp=(1, -1)", "twice"),
    ({"decomp": ()}, ArgumentError, "decomp=()", "name at least one"),
    ({"decomp": "xy"}, TypeError, "decomp='xy'", "must be an integer"),
    ({"decomp": (0.5,)}, TypeError, "not 0.5", "must be an integer"),
    ({"grid": 3}, ArgumentError, "grid (3,)", "product of its entries must be 4"),
    ({"grid": -4}, ArgumentError, "grid=(-4,)", "0 = choose"),
    ({"grid": ()}, ArgumentError, "grid=()", "each of the 1 decomposed dimensions (0,)"),
    ({"grid": (2, 2)}, ArgumentError, "grid=(2, 2)", "each of the 1 decomposed dimensions (0,)"),
    ({"grid": (2, 3), "decomp": (0, 1)}, ArgumentError, "grid (2, 3)", "must be 4"),
    ({"grid": (0, 3), "decomp": (0, 1)}, ArgumentError, "grid (0, 3)", "0 leaves an entry open"),
    ({"grid": "4"}, TypeError, "grid='4'", "must be an integer"),
    ({"periodic": None}, ArgumentError, "periodic=None", "one boolean or one for each of 2"),
    ({"periodic": (True,)}, ArgumentError, "periodic=(True,)", "one for each of 2"),
    ({"periodic": "xy"}, ArgumentError, "periodic='xy'", "one boolean"),
    ({"periodic": (True, 2)}, ArgumentError, "periodic=(True, 2)", "one boolean"),
    ({"order": (0,)}, ArgumentError, "order=(0,)", "each of the 2 dimensions once"),
    ({"order": (0, 0)}, ArgumentError, "order=(0, 0)", "twice"),
    ({"order": (0, 2)}, ArgumentError, "order=(0, 2)", "outside 0..1"),
    ({"order": "C"}, TypeError, "order='C'", "must be an integer"),
    ({"splits": "even"}, ArgumentError, "'even' is unknown", "first, last, floor, ceil, or"),
    ({"splits": ""}, ArgumentError, "'' is unknown", "first, last, floor, ceil, or"),
    ({"splits": "bounds"}, ArgumentError, "'bounds' is unknown", "explicit bounds (0, ..."),
    ({"splits": ["first"]}, ArgumentError, "splits=['first']", "each of 2 dimensions"),
    ({"splits": 5}, ArgumentError, "splits=5", "each of 2 dimensions"),
    ({"splits": [5, 6]}, ArgumentError, "bounds (5,)", "must start at 0"),
    ({"splits": [(), "first"]}, ArgumentError, "bounds ()", "must start at 0"),
    ({"splits": [(0, 4), "first"]}, ArgumentError, "grid (1,)", "explicit splits fix it"),
    ({"splits": [(1, 2, 3, 3, 4), "first"]}, ArgumentError, "(1, 2, 3, 3, 4)", "start at 0"),
    ({"splits": [(0, 3, 2, 3, 4), "first"]}, ArgumentError, "(0, 3, 2, 3, 4)", "never decrease"),
    ({"splits": [(0, 1, 2, 3, 5), "first"]}, ArgumentError, "(0, 1, 2, 3, 5)", "from 0 to 4"),
    ({"splits": [(0, 4), None], "grid": 4}, ArgumentError, "(0, 4)", "5 bounds from 0 to 4"),
    ({"splits": [None, (0, 3, 6)]}, ArgumentError, "(0, 3, 6)", "2 bounds from 0 to 6"),
    ({"splits": [(0, 1.5, 4), None]}, TypeError, "not 1.5", "must be an integer"),
]


@pytest.mark.parametrize(("changed", "error", "given", "allowed"), BAD)
def test_bad_arguments_raise_and_say_what_was_given_and_what_is_allowed(
    changed, error, given, allowed
):
    """Each argument is checked; the text repeats it and names what would do."""
    arguments = {"shape": (4, 6), "ranks": 4} | changed
    with pytest.raises(error) as caught:
        build_layout(arguments.pop("shape"), arguments.pop("ranks"), **arguments)
    assert given in str(caught.value)
    assert allowed in str(caught.value)


@given(shapes, ranks_, st.data())
def test_staggered_blocks_begin_where_the_points_do(any_layout, shape, ranks, data):
    """One more face than points where the dimension ends, in the last block; else the same."""
    layout = any_layout(data.draw, shape, ranks)
    dims = data.draw(st.sets(st.integers(0, len(shape) - 1)))
    faces = layout.staggered(dims)
    grows = [dim in dims and not wraps for dim, wraps in enumerate(layout.periodic)]
    assert faces.shape == tuple(n + grow for n, grow in zip(shape, grows, strict=True))
    for name in ("grid", "decomp", "order", "periodic"):
        assert getattr(faces, name) == getattr(layout, name)
    assert layout.shares_blocks(faces)
    assert faces.shares_blocks(layout)
    assert (faces == layout) == (not any(grows))
    for rank in range(ranks):
        points, sides = layout.box(rank), faces.box(rank)
        along = zip(points.start, points.stop, sides.start, sides.stop, shape, strict=True)
        for dim, (lo, hi, first, last, n) in enumerate(along):
            if n == 0:
                assert last - first == (grows[dim] and layout.parts(rank)[dim] == 0)
            elif lo < hi:
                assert (first, last) == (lo, hi + (grows[dim] and hi == n))
            else:
                assert first == last


def test_layouts_share_blocks_only_if_they_differ_at_the_end():
    """What moves blocks, processes or edges is seen; the order of memory does not matter."""
    layout = build_layout((8, 6), 4, decomp=(0, 1), grid=(2, 2))
    both = layout.staggered([0]), layout.staggered([1])
    assert both[0].shares_blocks(both[1])
    turned = build_layout(
        (8, 7), 4, decomp=(0, 1), grid=(2, 2), order=(1, 0), splits=[None, (0, 3, 7)]
    )
    assert turned.shares_blocks(layout)
    edges = build_layout((8, 7), 4, decomp=(0, 1), grid=(2, 2), periodic=(True, False))
    assert edges.shares_blocks(build_layout((8, 7), 4, decomp=(0, 1), grid=(2, 2)))
    for change in ({"grid": (4, 1)}, {"decomp": (1, 0)}, {"splits": [(0, 3, 8), None]}):
        other = build_layout((8, 6), 4, **({"decomp": (0, 1), "grid": (2, 2)} | change))
        assert not other.shares_blocks(layout)
        assert not layout.shares_blocks(other)
    assert not build_layout((9, 6), 4, decomp=(0, 1), grid=(2, 2)).shares_blocks(layout)
    assert not build_layout((8,), 4).shares_blocks(build_layout((8, 1), 4))
