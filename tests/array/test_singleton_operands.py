"""Replicated dimensions beside arrays and fields, also where the pencil itself has extent 1."""

import itertools

import numpy as np
import pytest
from fields import draw
from mpi_helpers import all_raise, everywhere, holds, same

import pencils
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPES = [(7, 1), (7, 5), (1, 5), (1, 1)]
DECOMPS = [0, 1, (1, 0)]
LAYOUTS = list(itertools.product(SHAPES, DECOMPS))
DIMS = [(0, 1), (0,), (1,), ()]  # along which a field varies
layouts = pytest.mark.parametrize(
    ("shape", "decomp"),
    [
        pytest.param(*layout, id="{}x{} over {}".format(*layout[0], layout[1]), marks=marks)
        for layout, marks in zip(LAYOUTS, itertools.cycle([(), pytest.mark.thorough]), strict=False)
    ],
)


def make(pencil, dims, seed, components=()):
    """Make a field and the same global data, with extent 1 where the field is replicated."""
    shape = [n if dim in dims else 1 for dim, n in enumerate(pencil.shape)]
    data = draw((*components, *shape), seed=seed) + 10
    field = pencils.empty(pencil, dims=dims, components=components)
    field.local[...] = data[field.local_slices]
    return field, data


def arrays(shape):
    """Shapes that broadcast to that of the pencil, each once."""
    n, m = shape
    return sorted({(), (1,), (m,), (1, m), (n, 1), (1, 1), (n, m), (2, n, m), (2, 1, 1)})


def operands(pencil):
    """Yield fields and arrays, global data of each, and along which dimensions it is replicated."""
    for dims in DIMS:
        field, data = make(pencil, dims, 2)
        yield field, data, field.singletons
    for shape in arrays(pencil.shape):
        data = draw(shape, seed=3) + 10
        space = (1, 1, *shape)[-2:]
        yield data, data, {dim for dim in (0, 1) if space[dim] == 1}


def fits(data, singletons, out, pencil):
    """Whether the rank at hand could store global data by NumPy's rule, and has them at all."""
    apart = [dim for dim in out.singletons - singletons if dim in pencil.decomp]
    return np.broadcast_shapes(data.shape, out.shape) == out.shape and not apart


@layouts
def test_what_is_new_is_replicated_where_all_operands_are(comm, shape, decomp):
    pencil = pencils.Pencil(shape, comm, decomp=decomp)
    for dims in DIMS:
        u, a = make(pencil, dims, 1)
        for operand, data, singletons in operands(pencil):
            for result, expected in ((u * operand, a * data), (operand - u, data - a)):
                lead = (1, 1)[expected.ndim :]
                assert everywhere(comm, holds(result, expected.reshape(*lead, *expected.shape)))
                assert everywhere(comm, result.singletons == u.singletons & singletons)
            chosen = np.where(u > 10, operand, u)
            assert everywhere(comm, holds(chosen, np.where(a > 10, data, a)))
            assert everywhere(comm, chosen.singletons == u.singletons & singletons)


@layouts
def test_in_place_needs_room_for_all_that_comes_out(comm, shape, decomp):
    pencil = pencils.Pencil(shape, comm, decomp=decomp)
    for dims in DIMS:
        for operand, data, singletons in operands(pencil):
            u, a = make(pencil, dims, 1)
            before = u.local.copy()
            verbs = [
                lambda u=u, v=operand: np.multiply(u, v, out=u),
                lambda u=u, v=operand: np.copyto(u, v),
            ]
            for verb, expected in zip(verbs, (a * data, data), strict=True):
                if fits(data, singletons, u, pencil):
                    verb()
                    full = np.broadcast_to(expected, a.shape)
                    assert everywhere(comm, holds(u, full)), (dims, data.shape)
                    u.local[...] = before
                elif data.ndim == 2:
                    all_raise(comm, ArgumentError, f"field of shape {a.shape}", verb)
                else:
                    with pytest.raises(ValueError, match=r"broadcast|do not fit"):
                        verb()
                assert everywhere(comm, (u.local == before).all())


@layouts
def test_another_field_takes_what_it_has_room_for(comm, shape, decomp):
    pencil = pencils.Pencil(shape, comm, decomp=decomp)
    u, a = make(pencil, (0,), 1)
    for dims in DIMS:
        for operand, data, singletons in operands(pencil):
            out, before = make(pencil, dims, 4, components=(2,))
            expected = np.broadcast_shapes((a * data).shape, out.shape) == out.shape
            if expected and fits(a * data, u.singletons & singletons, out, pencil):
                assert np.add(u, operand, out=out) is out
                assert everywhere(comm, holds(out, np.broadcast_to(a + data, out.shape)))
            else:
                with pytest.raises(
                    ArgumentError,
                    match=r"do not fit into a field of shape|only on the ranks that own",
                ):
                    np.add(u, operand, out=out)
                assert everywhere(comm, holds(out, before))


def test_what_would_grow_names_both_shapes_and_what_to_write(comm):
    pencil = pencils.Pencil((8, 3), comm)
    m = pencils.ones(pencil, dims=0)
    text = r"shape \(8, 3\) do not fit into a field of shape \(8, 1\).*write u = u \* v"
    with pytest.raises(ArgumentError, match=text):
        m *= np.ones((8, 3))
    with pytest.raises(ArgumentError, match=text):
        m += pencils.ones(pencil)
    assert everywhere(comm, m.local.tolist() == np.ones(m.local_shape).tolist())


def test_where_the_pencil_has_extent_1_replicated_fields_stay_so(comm):
    pencil = pencils.Pencil((8, 1), comm, decomp=1)
    m = pencils.ones(pencil, dims=0)
    m *= np.full((8, 1), 3.0)
    assert everywhere(comm, m.local.tolist() == [[3.0]] * 8)
    assert everywhere(comm, (m + np.ones((8, 1))).local.shape == (8, 1))
    u = pencils.ones(pencil)  # whose points are on one rank
    text = r"only on the ranks that own their point along dimensions \[1\]"
    with pytest.raises(ArgumentError, match=text):
        m *= u
    u *= m
    assert u.sum() == m.sum() == 24


def test_a_new_output_beside_a_larger_one_is_as_large(comm):
    pencil = pencils.Pencil((6, 5), comm, decomp=1)
    m, a = make(pencil, (0,), 1)
    out = pencils.empty(pencil)
    rest, whole = np.modf(m, out=(None, out))
    expected = [np.broadcast_to(part, (6, 5)) for part in np.modf(a)]
    assert whole is out
    assert everywhere(comm, holds(rest, expected[0]) and holds(out, expected[1]))
    with pytest.raises(ArgumentError, match="do not fit"):
        np.modf(m, out=(pencils.empty(pencil, dims=0), out))


@layouts
def test_masks_and_comparisons_follow_the_same_rule(comm, shape, decomp):
    pencil = pencils.Pencil(shape, comm, decomp=decomp)
    for dims in DIMS:
        u, a = make(pencil, dims, 1)
        for operand, data, singletons in operands(pencil):
            if data.ndim > 2:
                continue
            mask = data > 10
            given = operand > 10
            if fits(data, singletons, u, pencil):
                found = u.sum(where=given)
                expected = a.sum(where=np.broadcast_to(mask, a.shape))
                assert everywhere(comm, np.isclose(found, expected, rtol=1e-12))
            else:
                all_raise(comm, ArgumentError, f"{a.shape}", u.sum, where=given)
            assert everywhere(comm, np.allclose(u, operand) == np.allclose(a, data))
        assert everywhere(comm, np.array_equal(u, a))
        assert everywhere(comm, same(pencils.gather(u, root=None), a))


@layouts
def test_assignment_follows_the_same_rule(comm, shape, decomp):
    pencil = pencils.Pencil(shape, comm, decomp=decomp)
    for dims in DIMS:
        for operand, data, singletons in operands(pencil):
            u, a = make(pencil, dims, 1)
            if fits(data, singletons, u, pencil):
                u[...] = operand
                assert everywhere(comm, holds(u, np.broadcast_to(data, a.shape).copy()))
            else:
                with pytest.raises(ArgumentError):
                    u[...] = operand
                assert everywhere(comm, holds(u, a))
