"""Pencil: a layout over a communicator, frozen, compared by value, made on all ranks or none."""

import copy

import numpy as np
import pytest
from mpi_helpers import all_raise, everywhere, random_pencil

import pencils
from pencils import Pencil
from pencils.errors import ArgumentError, NotLocalError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)


def owners(pen):
    """Mark every point of a global array with the number of ranks that say they own it."""
    counts = np.zeros(pen.shape, int)
    counts[pen.local_slices] += 1
    return pen.comm.allreduce(counts)


def test_defaults_cut_all_dimensions_but_the_last(comm):
    pen = Pencil(SHAPE)
    assert (pen.shape, pen.ndim, pen.decomp, pen.order) == (SHAPE, 3, (0, 1), (0, 1, 2))
    assert pen.comm == comm
    assert (pen.size, np.prod(pen.grid), pen.periodic) == (comm.size, comm.size, (False,) * 3)
    assert everywhere(comm, pen.rank == comm.rank)
    assert pen.process_shape == (*pen.grid, 1)
    assert np.all(owners(pen) == 1)
    assert Pencil(9).decomp == (0,)
    assert Pencil(9).grid == (comm.size,)
    # Lists, NumPy integers and negative numbers mean the same as tuples of plain ones.
    odd = comm.rank % 2
    pen = Pencil(
        np.array(SHAPE) if odd else list(SHAPE),
        comm,
        decomp=range(2) if odd else (-3, np.int64(1)),
        periodic=[False] * 3 if odd else np.False_,
        order=np.arange(3) if odd else None,
        splits="first" if odd else ["first", None, "first"],
    )
    assert everywhere(comm, pen == Pencil(SHAPE, comm))


def test_any_pencil_owns_every_point_once(comm):
    """Also of fewer points than there are processes."""
    rng, few = np.random.default_rng(1), [(2, 1), (1, 1), (0, 4), (3, 0, 2), (0,), (1,)]
    pens = [Pencil(shape, decomp=range(len(shape))) for shape in few]
    shapes = [rng.integers(0, 8, rng.integers(1, 5)).tolist() for _ in range(15)]
    for pen in pens + [random_pencil(rng, comm, shape) for shape in shapes]:
        assert np.all(owners(pen) == 1)
        boxes = comm.allgather(pen.box())
        assert everywhere(comm, boxes == [pen.box(rank) for rank in range(comm.size)])
        assert sum(box.volume for box in boxes) == np.prod(pen.shape)
        assert everywhere(comm, pen.local_shape == pen.box().shape)
        assert everywhere(comm, str(pen) and repr(pen))
    pen = Pencil(SHAPE, decomp=(2, 0), grid=(comm.size, 1))
    expected = np.array_split(np.arange(5), comm.size)[comm.rank]
    assert everywhere(comm, np.array_equal(np.arange(5)[pen.local_slices[2]], expected))
    assert everywhere(comm, pen.coords == (comm.rank, 0))


def test_owner_local_and_global_indices(comm):
    pen = Pencil(SHAPE, decomp=(1, 2))
    ok = True
    for index in np.ndindex(SHAPE):
        owner = pen.owner(index)
        inside = all(s.start <= i < s.stop for i, s in zip(index, pen.local_slices, strict=True))
        ok &= inside == (owner == comm.rank)
        if inside:
            ok &= pen.to_global(pen.to_local(index)) == index
    assert everywhere(comm, ok)
    stranger = next(index for index in np.ndindex(SHAPE) if pen.owner(index) == 0)
    if comm.rank > 0:
        with pytest.raises(NotLocalError, match=f"rank 0, not by rank {comm.rank}"):
            pen.to_local(stranger)
    for wrong in ((7, 0, 0), (0, -1, 0), (0, 0)):
        with pytest.raises(IndexError):
            pen.owner(wrong)
        with pytest.raises(IndexError):
            pen.to_global(wrong)


def test_neighbors_meet_and_wrap(comm):
    pen = Pencil((12, 6), decomp=(0,), periodic=(True, False))
    assert everywhere(comm, pen.neighbor((1, 0)) == (comm.rank + 1) % comm.size)
    assert everywhere(comm, pen.neighbor((-1, 0)) == (comm.rank - 1) % comm.size)
    assert pen.neighbor((0, 1)) is None
    edge = pen.with_(periodic=False).neighbor((1, 0))
    assert everywhere(comm, edge == (comm.rank + 1 if comm.rank + 1 < comm.size else None))
    with pytest.raises(ArgumentError, match="2 dimensions"):
        pen.neighbor((1,))
    for rank in (-1, comm.size):
        with pytest.raises(ArgumentError, match=f"0..{comm.size - 1}"):
            pen.box(rank)


def test_with_keeps_what_is_not_given(comm):
    pen = Pencil(SHAPE, comm, decomp=(2, 0), periodic=(True, False, False), order=(2, 1, 0))
    assert pen.with_() == pen
    other = pen.with_(decomp=(0, 1))
    assert (other.decomp, other.grid) == ((0, 1), pen.grid)
    assert (other.periodic, other.order) == (pen.periodic, pen.order)
    assert other.topology is pen.topology
    assert other.comm is comm
    assert pen.with_(decomp=1).grid == (comm.size,)
    larger = pen.with_(shape=(8, 9, 10))
    assert (larger.shape, larger.grid) == ((8, 9, 10), pen.grid)
    cut = pen.with_(splits="last")
    assert cut.with_(order=(0, 1, 2), periodic=True).layout.splits == cut.layout.splits
    assert cut.with_(splits="first") == pen
    assert np.all(owners(pen.with_(grid=(comm.size, 1))) == 1)


def test_staggered_pencils_own_every_face_once(comm):
    rng = np.random.default_rng(2)
    for _ in range(10):
        shape = rng.integers(0, 8, rng.integers(1, 4)).tolist()
        pen = random_pencil(rng, comm, shape)
        axis = int(rng.integers(len(shape)))
        faces = pen.staggered(axis)
        assert faces.shape == tuple(n + (dim == axis) for dim, n in enumerate(shape))
        assert np.all(owners(faces) == 1)
        assert faces.shares_blocks(pen)
        assert faces.topology is pen.topology
        assert faces == pen.staggered([axis - pen.ndim])
        assert (faces.order, faces.periodic, faces.grid) == (pen.order, pen.periodic, pen.grid)
    # Staggered in words.
    pen = Pencil((5, 4), comm, periodic=(False, True))
    assert pen.staggered(1) == pen
    assert pen.staggered(()) == pen
    assert pen.staggered((1, 0)) == pen.staggered(0)
    assert pen.staggered(0).shape == (6, 4)
    few = Pencil((1, 4), comm, decomp=0).staggered(0)
    assert [few.box(rank).shape[0] for rank in range(comm.size)] == [2] + [0] * (comm.size - 1)
    all_raise(comm, ArgumentError, "axis=(2,) names a dimension outside 0..1", pen.staggered, 2)
    all_raise(comm, ArgumentError, "names a dimension twice", pen.staggered, (0, -2))
    for axis in (None, "x"):
        all_raise(comm, TypeError, f"axis={axis!r} must be an integer", pen.staggered, axis)


def test_equal_by_value_and_frozen(comm):
    duplicate = comm.Dup()
    pen = Pencil(SHAPE, comm, periodic=True)
    for other in (Pencil(SHAPE, duplicate, periodic=True), copy.copy(pen), copy.deepcopy(pen)):
        assert pen == other
        assert hash(pen) == hash(other)
        assert pen.same_blocks(other)
    turned = pen.with_(order=(2, 1, 0))
    assert pen != turned
    assert pen.same_blocks(turned)
    assert pen != pen.with_(decomp=1)
    assert pen != "pencil"
    assert len({pen, turned, Pencil(SHAPE, comm, periodic=True)}) == 2
    duplicate.Free()
    for name in ("shape", "grid", "anything", "_layout"):
        with pytest.raises(AttributeError, match="with_"):
            setattr(pen, name, 1)


def test_str_draws_five_lines(comm):
    pen = Pencil(
        (max(7, comm.size), 6, 5), decomp=(2, 0), grid=(1, comm.size), periodic=(True, False, True)
    )
    lines = str(pen).splitlines()
    assert len(lines) == 5
    many = "es" if comm.size > 1 else ""
    assert lines[0] == f"Pencil of {pen.shape[0]} x 6 x 5 points on {comm.size} process{many}"
    assert lines[1] == f"  decomposed: dimension 2 over 1 and dimension 0 over {comm.size}"
    assert lines[2] == "  periodic:   dimension 0, dimension 2"
    assert lines[3] == "  in memory:  dimensions (0, 1, 2), slowest first"
    rows = np.array_split(np.arange(pen.shape[0]), comm.size)[comm.rank]
    owned = f"rank {comm.rank} at (0, {comm.rank}) owns [{rows[0]}:{rows[-1] + 1}, 0:6, 0:5]"
    assert everywhere(comm, lines[4] == f"  {owned}: {30 * len(rows)} points")
    assert "periodic:   nowhere" in str(Pencil(SHAPE))


def test_repr_tells_all_that_two_pencils_may_differ_in(comm):
    pen = Pencil(SHAPE, decomp=0)
    assert repr(pen) == f"Pencil((7, 6, 5), decomp=(0,), grid=({comm.size},))"
    bounds = (0, *[7] * comm.size)
    others = [
        pen,
        pen.with_(decomp=1),
        pen.with_(order=(2, 1, 0)),
        pen.with_(periodic=(True, False, False)),
        pen.with_(splits="last"),
        pen.with_(splits=(bounds, None, None)),
        pen.with_(shape=(7, 6, 6)),
    ]
    assert len(set(map(repr, others))) == len(others)
    assert "'last'" in repr(others[4])
    assert str(bounds) in repr(others[5])


# Mistakes on one rank are those of `test_one_rank_wrong`, and their texts those of `layout`.


@pytest.mark.parallel([2, 3, 4, 6])
def test_what_ranks_disagree_on_is_named(comm):
    pen, odd = Pencil(SHAPE, comm), comm.rank == 0
    for other, name in (
        ({"shape": (7, 6, 4)}, "shape"),
        ({"decomp": (1, 0)}, "decomp"),
        ({"decomp": 0, "grid": 0}, "decomp"),
        ({"periodic": True}, "periodic"),
        ({"order": (2, 1, 0)}, "order"),
        ({"splits": "last"}, "splits"),
    ):
        mine, text = other if odd else {}, f"disagree on {name}"
        all_raise(
            comm, RankDisagreementError, text, Pencil, **{"shape": SHAPE, "comm": comm, **mine}
        )
        all_raise(comm, RankDisagreementError, text, pen.with_, **mine)
    grid = (1, comm.size) if odd else (comm.size, 1)
    all_raise(comm, RankDisagreementError, "disagree on grid", Pencil, SHAPE, comm, grid=grid)
    assert pen.with_() == Pencil(SHAPE, comm)


def test_sections(comm):
    """A section is a pencil of some of the points, made without communication."""
    pen = Pencil((8, 6), comm, periodic=True, order=(1, 0))
    inner = pen.section(np.s_[1:-1])
    assert (inner.shape, inner.periodic, inner.order) == ((6, 6), (False, True), (1, 0))
    assert inner is pen.section((slice(1, 7), ...))
    assert pen.section(...) is pen
    assert pen.section(3).shape == (1, 6)
    assert inner.section(slice(1, None)) == pen.section(slice(2, -1))
    assert hash(inner.section(slice(1, None))) == hash(pen.section(slice(2, -1)))
    assert "section:    [1:7, 0:6] of the whole" in str(inner)
    assert "first of 8[1:7:1]" in repr(inner)
    assert [inner.owner((i, 0)) for i in range(6)] == [pen.owner((i + 1, 0)) for i in range(6)]
    for key in (9, (1, 2, 3), (..., ...)):
        with pytest.raises(IndexError):
            pen.section(key)
    for key in (None, [1], 1.0):
        with pytest.raises(TypeError, match="global indices are"):
            pen.section(key)
    with pytest.raises(ArgumentError, match=r"np\.flip\(u, 0\)"):
        pen.section(slice(None, None, -1))
    assert pen.section(np.s_[:, ::-1]).shape == (8, 6)
    # They know which points they have: until the shape changes.
    pen = Pencil((8, 6), comm, periodic=True)
    inner, high = pen.section(np.s_[1:-1]), pen.section(np.s_[2:])
    for one in (inner.with_(order=(1, 0)), inner.with_(periodic=False)):
        assert one.same_blocks(inner)
        assert not one.same_blocks(high)
    assert inner.with_(decomp=1) != high.with_(decomp=1)
    assert inner.with_(shape=(6, 6)) == high.with_(shape=(6, 6))
    assert inner.staggered(0).shape == (7, 6)
    assert inner.staggered(0).shares_blocks(inner)
    assert not inner.staggered(0).shares_blocks(high)


def test_what_is_kept_for_later_calls_is_bounded_and_shown(comm):
    pencil = pencils.Pencil((200, 6), comm)
    other = pencil.with_(decomp=1)
    pencils.transpose(pencils.ones(pencil), other)
    assert all(pencil.section(i) is pencil.section(i) for i in range(200))
    shown = str(pencil.kept)
    assert "1 transpose" in shown
    assert 0 < len(pencil.kept["section"]) <= 64
    pencil.kept.clear()
    assert str(pencil.kept) == "kept for later calls: nothing"
    pencils.transpose(pencils.ones(pencil), other)


AT = [1, 7], [3, 2]
LOCAL_PLANS = {
    "gather": lambda u: pencils.gather(u, None),
    "gather a part": lambda u: pencils.gather(u, None, key=np.s_[1, ::-2]),
    "partition": lambda u: pencils.partition(u.pencil, np.arange(48.0).reshape(8, 6), 0).local,
    "take": lambda u: u.take_points(AT),
    "put": lambda u: (u.put_points(AT, [1, 2], reduce=pencils.indexer.ReduceOp.MAX), u.sum())[1],
    "cumsum": lambda u: np.cumsum(u, axis=0).local,
    "nancumsum": lambda u: np.nancumsum(u, axis=1, dtype=complex).local,
    "sum": lambda u: u.sum(),
}


@pytest.mark.parametrize("name", LOCAL_PLANS)
def test_ranks_that_have_lost_their_plans_agree_with_others(comm, name):
    u = pencils.from_function(Pencil((8, 6), comm), lambda i, j: 10.0 * i - j)
    expected = LOCAL_PLANS[name](u)
    for turn in range(2 * comm.size):
        if turn % comm.size == comm.rank:
            u.pencil.kept.clear()
        assert everywhere(comm, np.array_equal(LOCAL_PLANS[name](u), expected))
