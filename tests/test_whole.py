"""Whole lines: pencils and fields that have them, and functions along them, against NumPy."""

import numpy as np
import pytest
from fields import assert_holds, draw, in_memory_order, pencil, spread
from mpi_helpers import all_raise, everywhere, random_pencil, ranks_at_fault

import pencils
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])
__all__ = ["pencil"]  # a fixture


def has_whole_lines(field, axis):
    """Whether every rank has all points of its lines, or none of them. *Collective*."""
    shape = field.local.shape
    return everywhere(field.pencil.comm, shape[axis] == field.shape[axis] or 0 in shape)


def test_pencils(pencil):
    for dim in range(pencil.ndim):
        whole = pencil.whole(dim)
        assert whole is pencil.whole(dim - pencil.ndim)
        assert whole.whole(dim) is whole
        assert (whole is pencil) == (dim not in pencil.decomp)
        assert (whole.shape, whole.periodic, whole.order) == (
            pencil.shape,
            pencil.periodic,
            pencil.order,
        )
        assert pencil.ndim == 1 or dim not in whole.decomp
        assert has_whole_lines(pencils.empty(whole), dim)
        assert sum(pencil.comm.allgather(whole.box().volume)) == np.prod(pencil.shape)


def test_pencils_without_the_axis(pencil):
    for axis in (pencil.ndim, -pencil.ndim - 1):
        with pytest.raises(ArgumentError, match="outside"):
            pencil.whole(axis)
    with pytest.raises(TypeError, match="axis"):
        pencil.whole("x")


def test_pencils_of_other_communicators(comm):
    for part in (comm.Split(comm.rank % 2, -comm.rank), pencils.Pencil(2).topology.comm):
        pen = pencils.Pencil((4, 3, 5), part)
        a = draw(pen.shape)
        u = spread(pen, a)
        for axis in range(3):
            v = u.whole(axis)
            assert v.pencil.comm is pen.comm
            assert_holds(v, a)
            assert has_whole_lines(v, axis)
        if part is not pencils.Pencil(2).topology.comm:
            part.Free()


@pytest.mark.parametrize("dtype", ["f8", "c8", "i2", "?"])
@pytest.mark.parametrize("shared", [False, True])
def test_fields(pencil, dtype, shared):
    a = draw((2, *pencil.shape), dtype)
    u = pencils.empty(pencil, components=2, dtype=dtype, halo=1, shared=shared)
    u.local = a[u.local_slices]
    for axis in range(-a.ndim, a.ndim):
        for _ in range(2):
            v = u.whole(axis)
            assert_holds(v, a)
            assert has_whole_lines(v, axis)
            number = axis % a.ndim
            if number == 0 or number - 1 not in pencil.decomp:
                assert v is u
            else:
                assert v.pencil is pencil.whole(number - 1)
                assert v.whole(axis) is v
                assert_holds(pencils.transpose(v, pencil), a)


def test_lines_of_numpy_on_any_number_of_ranks(pencil):
    a = draw((2, *pencil.shape))
    u = spread(pencil, a)
    pencils.transpose(u, pencil.whole(0), pencils.empty(pencil.whole(0), components=2))
    for axis in range(a.ndim):
        v = u.whole(axis)
        assert_holds(np.sort(v, axis), np.sort(a, axis))
        assert_holds(np.argsort(v, axis), np.argsort(a, axis))
        for f in (np.cumsum, np.ptp, lambda line: line[:1]):
            expected = np.apply_along_axis(f, axis, a)
            if expected.ndim < a.ndim and axis:
                expected = np.expand_dims(expected, axis)
            assert_holds(np.apply_along_axis(f, axis, v), expected)


def test_singletons(pencil):
    a = draw((2, *pencil.shape))
    for dim in range(pencil.ndim):
        b = a[(slice(None),) * (dim + 1) + (slice(0, 1),)]
        u = spread(pencil, b, dims=[other for other in range(pencil.ndim) if other != dim])
        full = spread(pencil, a)
        for axis in range(1, a.ndim):
            v = u.whole(axis)
            assert_holds(v, b)
            assert v.singletons == u.singletons
            assert_holds(v + full.whole(axis), b + a)  # on the same pencil


def test_sections(pencil):
    a = draw(pencil.shape)
    u = spread(pencil, a)
    for key in (np.s_[1:], np.s_[..., ::-1], np.s_[..., 1:2], np.s_[1::2], np.s_[2:2]):
        if key == np.s_[..., ::-1] and pencil.ndim - 1 in pencil.decomp:
            continue
        for axis in range(a.ndim):
            v = u[key].whole(axis)
            assert_holds(v, a[key])
            assert has_whole_lines(v, axis)
            assert u[key].pencil.whole(axis) is v.pencil
            assert_holds(pencils.functions.along(np.cumsum, u[key], axis), np.cumsum(a[key], axis))


def test_staggered_pencils(pencil):
    for dim in range(pencil.ndim):
        faces = pencil.staggered(dim)
        a = draw(faces.shape)
        for axis in range(pencil.ndim):
            assert_holds(spread(faces, a).whole(axis), a)
        whole = pencil.whole(dim).staggered(dim)
        assert whole.whole(dim) is whole


def test_any_pencil(comm):
    rng = np.random.default_rng(5)
    for _ in range(12):
        shape = rng.integers(0, 7, rng.integers(1, 5)).tolist()
        pen = random_pencil(rng, comm, shape)
        a = draw((2, *shape))
        u = spread(pen, a)
        for axis in range(a.ndim):
            v = u.whole(axis)
            assert_holds(v, a)
            assert has_whole_lines(v, axis)
            assert_holds(np.argsort(v, axis), np.argsort(a, axis))
            assert_holds(pencils.functions.along(np.cumsum, u, axis), np.cumsum(a, axis))


def test_mistakes_in_whole(comm):
    pen = pencils.Pencil((4, 3, 2), comm)
    u = pencils.ones(pen)
    for rank in ranks_at_fault(comm):
        wrong = comm.rank == rank
        all_raise(comm, ArgumentError, "outside", u.whole, 9 if wrong else 0)
        all_raise(comm, TypeError, "axis", u.whole, "x" if wrong else 0)
        if comm.size > 1:
            kind = RankDisagreementError
            all_raise(comm, kind, "axis", u.whole, 2 if wrong else 0)
            other = pencils.ones(pen.with_(decomp=2))
            v = other if wrong != (pen.decomp == (2,)) else u
            all_raise(comm, kind, "pencil", v.whole, 1)
    assert_holds(u.whole(0), np.ones(pen.shape))


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i4"])
def test_along(pencil, dtype):
    a = draw((2, *pencil.shape), dtype)
    u = spread(pencil, a, halo=1)
    functions = [
        np.cumsum,
        np.sort,
        np.flip,
        lambda block, axis: np.roll(block, 1, axis).astype("c8"),
        lambda block, _: block,
        lambda block, axis: np.fft.fft(np.asfortranarray(block), axis=axis),
        lambda block, axis: np.broadcast_to(block.sum(axis, keepdims=True), block.shape),
    ]
    for axis in range(-1, a.ndim):
        for f in functions:
            expected = f(a, axis)
            v = pencils.functions.along(f, u, axis)
            assert_holds(v, expected, rtol=1e-5 if dtype == "f4" else 1e-12)
            assert v.pencil == pencil
            assert in_memory_order(v)
            assert not np.may_share_memory(v.local, u.local)
            assert v.local.flags.writeable
            v.local[...] = 0
        assert_holds(u, a)


def test_along_into_a_field(pencil):
    a = draw(pencil.shape)
    for axis in range(a.ndim):
        u = spread(pencil, a, halo=1)
        wide = pencils.zeros(pencil, dtype="c16", halo=2)
        assert pencils.functions.along(np.cumsum, u, axis, out=wide) is wide
        assert_holds(wide, np.cumsum(a, axis).astype("c16"))
        assert not wide.padded[0].any()
        assert pencils.functions.along(np.flip, u, axis, out=u) is u
        assert_holds(u, np.flip(a, axis))


def test_along_singletons(pencil):
    a = draw((1, *pencil.shape[1:]))
    u = spread(pencil, a, dims=range(1, pencil.ndim))
    for axis in range(a.ndim):
        v = pencils.functions.along(np.cumsum, u, axis)
        assert_holds(v, np.cumsum(a, axis))
        assert v.singletons == u.singletons


def test_along_calls_once_with_lines(pencil):
    seen = []

    def f(block, axis):
        seen.append((block.shape, axis))
        return block

    u = pencils.ones(pencil, components=3)
    for axis in range(u.ndim):
        seen.clear()
        pencils.functions.along(f, u, axis)
        calls = [call for calls in pencil.comm.allgather(seen) for call in calls]
        assert len(seen) <= 1
        assert {number for _, number in calls} == {axis}
        assert {shape[axis] for shape, _ in calls} == {u.shape[axis]}
        assert sum(np.prod(shape) for shape, _ in calls) == u.size


def test_along_nothing(comm):
    pen = pencils.Pencil((3, 0, 2), comm)
    for axis in range(3):
        v = pencils.functions.along(np.cumsum, pencils.ones(pen, dtype="i2"), axis)
        assert_holds(v, np.cumsum(np.ones(pen.shape, "i2"), axis))


def test_mistakes_in_along(comm):
    pen = pencils.Pencil((4, 3, 6), comm)
    u, number = pencils.ones(pen), pencils.ones(pen, dtype=int)
    along = pencils.functions.along

    def failing(block, axis):
        if block.size and pen.rank == rank:
            raise ValueError(f"no solution along {axis}")
        return block

    for rank in ranks_at_fault(comm):
        wrong = comm.rank == rank
        for axis in (0, 2):
            if everywhere(comm, pen.whole(axis).box().volume):
                text = "no solution along"
                all_raise(comm, ValueError, text, along, failing, u, axis)

        def try_on_one(kind, text, good, bad, wrong=wrong):
            all_raise(comm, kind, text, along, *bad if wrong else good)

        try_on_one(ArgumentError, "outside", (np.sort, u, 0), (np.sort, u, 5))
        try_on_one(TypeError, "callable", (np.sort, u, 0), (3, u, 0))
        try_on_one(TypeError, "PencilArray", (np.sort, u, 0), (np.sort, np.ones(3), 0))
    for axis in (0, 2):
        cases = [
            (TypeError, "returned None", lambda *_: None, None),
            (ArgumentError, "returned shape", lambda block, axis: block.sum(axis), None),
            (TypeError, "objects", lambda block, _: block.astype(object), None),
            (TypeError, "does not fit into out", lambda block, _: block * 1.5, number),
            (ValueError, "read-only", lambda block, axis: block.sort(axis), None),
        ]
        for kind, text, f, out in cases:
            all_raise(comm, kind, text, along, f, u, axis, out=out)
    other = pencils.ones(pen.with_(shape=(4, 3, 7)))
    all_raise(comm, PencilMismatchError, "out", along, np.sort, u, 0, out=other)
    if comm.size > 1:
        all_raise(comm, RankDisagreementError, "axis", lambda: along(np.sort, u, min(1, comm.rank)))
    assert_holds(u, np.ones(pen.shape))


def test_types_must_be_equal(comm):
    pen = pencils.Pencil((comm.size, comm.size), comm, decomp=0)
    if comm.size > 1:
        kind, along = pencils.errors.TypeDisagreementError, pencils.functions.along
        mine = lambda block, _: block.astype("f4" if comm.rank == 0 else "f8")  # noqa: E731
        all_raise(comm, kind, "float32", along, mine, pencils.ones(pen), 0)
