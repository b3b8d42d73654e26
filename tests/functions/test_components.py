"""NumPy functions along component axes, against NumPy on the global array."""

import numpy as np
import pytest
from fields import assert_holds, both, draw, in_memory_order, lay, spread
from mpi_helpers import all_raise, ranks_at_fault

import pencils
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError
from pencils.functions import components

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def test_stack(pencil):
    (u, a), (v, b) = both(pencil, draw(pencil.shape)), both(pencil, draw(pencil.shape, seed=1))
    assert_holds(np.stack([u, v]), np.stack([a, b]))
    assert_holds(np.stack([u, b, v], axis=0), np.stack([a, b, b]))
    w = np.stack([u, v, u])
    assert in_memory_order(w)
    assert_holds(np.stack([w, w], axis=1), np.stack([np.stack([a, b, a])] * 2, axis=1))


def test_stack_of_singletons(comm):
    pencil = lay(comm, "pencils")
    x, y = draw((*pencil.shape[:1], 1, 1)), draw((1, pencil.shape[1], 1))
    u, v = spread(pencil, x, dims=0), spread(pencil, y, dims=1)
    assert_holds(np.stack([u, v]), np.stack(np.broadcast_arrays(x, y)))


def test_einsum(pencil):
    t, v = draw((2, 3, *pencil.shape)), draw((3, *pencil.shape), seed=1)
    tensor, vector = spread(pencil, t), spread(pencil, v)
    for text, fields, arrays in (
        ("ij...,j...->i...", (tensor, vector), (t, v)),
        ("i..., i... -> ...", (vector, vector), (v, v)),
        ("ij...->ji...", (tensor,), (t,)),
        ("ij...,j...->i...", (tensor, v), (t, v)),
    ):
        result = np.einsum(text, *fields)
        assert_holds(result, np.einsum(text, *arrays), rtol=1e-13)
        assert in_memory_order(result)
    out = pencils.empty(pencil)
    assert np.einsum("i...,i...->...", vector, vector, out=out) is out
    for text in ("ij,j->i", "i...,i...", "i..."):
        with pytest.raises(ArgumentError, match="Letters name component axes"):
            np.einsum(text, *[vector] * (1 + text.count(",")))
    with pytest.raises(ArgumentError, match="one letter for each"):
        np.einsum("i...->...", spread(pencil, v[0]))
    with pytest.raises(ArgumentError, match="Letters name component axes"):
        np.einsum(vector, [0, ...], [...])


def test_stack_converts(pencil):
    u, a = both(pencil, draw(pencil.shape, "f4"), halo=1)
    assert_holds(np.stack([u, u], dtype="f8"), np.stack([a, a], dtype="f8"))
    assert_holds(np.stack([u, a], axis=-1 - pencil.ndim), np.stack([a, a]))


def test_einsum_with_constants(pencil):
    matrix, vector = draw((2, 3)), draw((3,))
    t, v = draw((2, 3, *pencil.shape)), draw((3, *pencil.shape), "f4", seed=1)
    tensor, field = spread(pencil, t), spread(pencil, v, halo=1)
    row = draw((3, pencil.shape[-1]))
    for text, fields, arrays in (
        ("ij,j...->i...", (matrix, field), (matrix, v)),
        ("ij...,j->i...", (tensor, vector), (t, vector)),
        ("ij, j..., i -> ...", (matrix, field, [1, 2]), (matrix, v, [1, 2])),
        ("ij,ij...->...", (matrix.tolist(), tensor), (matrix, t)),
        (",j...->j...", (2.5, field), (2.5, v)),
        ("j...,j...->...", (vector, field), (vector.reshape(3, *(1,) * pencil.ndim), v)),
        ("j...,ij...->i...", (row, tensor), (row, t)),
    ):
        result = np.einsum(text, *fields)
        assert_holds(result, np.einsum(text, *arrays), rtol=1e-6)
        assert in_memory_order(result)
    for text, operands in (
        ("ij,j->i", (matrix, field)),
        ("ij,j...->i", (matrix, field)),
        ("ij,j...", (matrix, field)),
        ("ij->j...", (matrix, field)),
    ):
        with pytest.raises(ArgumentError, match=r"for space"):
            np.einsum(text, *operands)
    for text, operands in (
        ("i,j...->i...", (matrix, field)),
        ("ijk...,j...->i...", (vector, field)),
    ):
        with pytest.raises(ArgumentError, match="does not fit an array of shape"):
            np.einsum(text, *operands)
    with pytest.raises(ValueError, match=r"einsum|dimension|broadcast"):
        np.einsum("ij,i...->j...", matrix, field)


@pytest.mark.parametrize("dtype", ["f8", "f4", "?", ">i2", "c16", "M8[s]"])
def test_concatenate(pencil, dtype):
    a, b = draw((2, *pencil.shape), dtype), draw((1, *pencil.shape), dtype, seed=1)
    u, v = spread(pencil, a, halo=1), spread(pencil, b)
    for one in (np.concatenate([u, v]), np.concatenate((u, b), axis=-1 - pencil.ndim)):
        assert_holds(one, np.concatenate([a, b]))
        assert in_memory_order(one)
    w, c = np.stack([u, u]), np.stack([a, a])
    assert_holds(np.concatenate([w, w], 1), np.concatenate([c, c], 1))


def test_concatenate_singletons(comm):
    pencil = lay(comm, "pencils")
    x, y = draw((2, pencil.shape[0], 1, 1)), draw((3, 1, pencil.shape[1], 1))
    u, v = spread(pencil, x, dims=0), spread(pencil, y, dims=1)
    shape = (*pencil.shape[:2], 1)
    wide = [np.broadcast_to(z, (len(z), *shape)) for z in (x, y)]
    assert_holds(np.concatenate([u, v]), np.concatenate(wide))
    assert np.concatenate([u, u]).singletons == u.singletons


@pytest.mark.skipif(not hasattr(np, "unstack"), reason="NumPy 2.1 has it")
def test_unstack(pencil):
    u, a = both(pencil, draw((3, 2, *pencil.shape)), halo=1)
    for axis in (0, 1):
        found = np.unstack(u, axis=axis)
        assert found[0].halo == u.halo
        for one, other in zip(found, np.unstack(a, axis=axis), strict=True):
            assert_holds(one, other)
    with pytest.raises(TypeError, match="component axis"):
        np.unstack(u, axis=2)


@pytest.mark.parametrize("piece", [1, 2**18])
def test_cross(pencil, monkeypatch, piece):
    monkeypatch.setattr(components, "_CACHED", piece)
    a, b = draw((3, *pencil.shape)), draw((3, *pencil.shape), seed=1)
    u, v = spread(pencil, a, halo=1), spread(pencil, b)
    for one, other in ((u, v), (u, b), (a, v)):
        result = np.cross(one, other, axis=0)
        assert_holds(result, np.cross(a, b, axis=0))
        assert in_memory_order(result)
        assert_holds(np.linalg.cross(one, other, axis=0), np.cross(a, b, axis=0), rtol=1e-13)
    up = np.array([0, 0, 1])
    assert_holds(np.cross(up, u, axis=0), np.cross(up, a, 0, 0, 0), rtol=1e-13)
    assert_holds(np.cross(u, [1, 2, 3], 0, -1, 0), np.cross(a, [1, 2, 3], 0, -1, 0), rtol=1e-13)
    pair, data = np.stack([u, v]), np.stack([a, b])
    assert_holds(np.cross(pair, u, 1, 0, 0), np.cross(data, a, 1, 0, 0), rtol=1e-13)
    assert_holds(np.cross(pair, u, 1, 0, 1), np.cross(data, a, 1, 0, 1), rtol=1e-13)
    last = np.moveaxis(b, 0, -1)
    assert_holds(np.cross(u, last, 0, -1, 0), np.cross(a, last, 0, -1, 0), rtol=1e-13)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_cross_of_other_elements(pencil):
    integers, halves = draw((3, *pencil.shape), "i2"), draw((3, *pencil.shape), "f4", 1)
    infinite = draw((3, *pencil.shape), "c16")
    infinite[0] = complex(1, -np.inf)
    for a, b in ((integers, integers), (integers, halves), (infinite, halves), (halves, infinite)):
        u, v = spread(pencil, a), spread(pencil, b)
        assert_holds(np.cross(u, v, axis=0), np.cross(a, b, axis=0), rtol=1e-13)
    w, profile = both(pencil, draw((3, *pencil.shape[:1], *[1] * (pencil.ndim - 1))), dims=0)
    assert_holds(np.cross(w, u, axis=0), np.cross(profile, a, axis=0), rtol=1e-13)
    assert_holds(np.cross(w, w, axis=0), np.cross(profile, profile, axis=0))
    with pytest.raises(TypeError, match="boolean subtract"):
        np.cross(u > 0, v > 0, axis=0)


@pytest.mark.filterwarnings("ignore:Arrays of 2-dimensional vectors:DeprecationWarning")
def test_cross_of_planar_vectors(pencil):
    a, b = draw((2, *pencil.shape)), draw((2, *pencil.shape), seed=1)
    u, v = spread(pencil, a), spread(pencil, b)
    assert_holds(np.cross(u, v, 0, 0), np.cross(a, b, 0, 0), rtol=1e-13)
    assert_holds(np.cross(u, [0, 0, 1], axis=0), np.cross(a, [0, 0, 1], 0, 0, 0), rtol=1e-13)


@pytest.mark.parametrize("dtype", ["f8", "c16", "i4"])
def test_vecdot(pencil, dtype):
    a, b = draw((3, *pencil.shape), dtype), draw((3, *pencil.shape), dtype, seed=1)
    u, v = spread(pencil, a, halo=1), spread(pencil, b)
    expected = (np.conj(a) * b).sum(0, dtype=a.dtype)
    for one, other in ((u, v), (u, b), (a, v)):
        assert_holds(np.vecdot(one, other, axis=0), expected, rtol=1e-13)
    assert_holds(np.linalg.vecdot(u, v, axis=0), expected, rtol=1e-13)
    assert_holds(
        np.vecdot(u, a[:, *(0,) * pencil.ndim], axis=0),
        np.vecdot(a, a[:, *(0,) * pencil.ndim].reshape(3, *(1,) * pencil.ndim), axis=0),
        rtol=1e-13,
    )
    out = pencils.empty(pencil, dtype=dtype)
    assert np.vecdot(u, v, out, axis=0) is out
    assert_holds(out, expected, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i2"])
def test_norm_of_vectors(pencil, dtype):
    u, a = both(pencil, draw((3, 2, *pencil.shape), dtype), halo=1)
    for order in (None, 1, 2, np.inf, -np.inf, 0, 3):
        for axis in (0, 1):
            result = np.linalg.norm(u, order, axis)
            assert_holds(result, np.linalg.norm(a, order, axis), rtol=1e-6)
            assert in_memory_order(result)
    kept = np.linalg.norm(u, axis=1, keepdims=True)
    assert_holds(kept, np.linalg.norm(a, axis=1, keepdims=True), rtol=1e-6)
    for order in (None, "fro", 1, np.inf):
        expected = np.linalg.norm(a, order, (0, 1))
        assert_holds(np.linalg.norm(u, order, (0, 1)), expected, rtol=1e-6)


@pytest.mark.parallel([2, 3, 4, 6])
def test_norms_that_differ_between_ranks(comm):
    u = pencils.ones(lay(comm, "pencils"), components=2)
    for bad in ranks_at_fault(comm):
        here = comm.rank == bad
        for name, (value, other) in {"axis": (0, None), "ord": (2, 1)}.items():
            options = {"axis": 0, name: value if here else other}
            all_raise(comm, RankDisagreementError, name, np.linalg.norm, u, **options)
    assert np.linalg.norm(u, axis=0).shape == u.shape[1:]


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i4", "?"])
def test_tensordot(pencil, dtype):
    u, a = both(pencil, draw((3, 2, *pencil.shape), dtype), halo=1)
    matrix, tensor = draw((4, 3)), draw((2, 5, 3), "f4", 1)
    for constant, axes in (
        (matrix, 1),
        (matrix, ([1], [0])),
        (matrix[:2], ([0], [1])),
        (tensor, ([2, 0], [0, 1])),
        (tensor[:, 0], ([0, 1], [1, 0])),
        (matrix[0], 1),
        (matrix, ([-1], 0)),
        (np.float32(2), 0),
    ):
        assert_holds(np.tensordot(constant, u, axes), np.tensordot(constant, a, axes), rtol=1e-5)
    row, part = matrix[0], a[:, :, 1:]
    assert_holds(np.tensordot(u, row, (0, 0)), np.tensordot(a, row, (0, 0)), rtol=1e-5)
    assert_holds(np.tensordot(matrix, u[:, :, 1:], 1), np.tensordot(matrix, part, 1), rtol=1e-5)


def test_matmul(comm):
    pencil = pencils.Pencil(7, comm)
    a, matrix = draw((3, 7)), draw((2, 3))
    u = spread(pencil, a)
    assert_holds(matrix @ u, matrix @ a, rtol=1e-13)
    assert_holds(np.matmul(matrix[0], u), matrix[0] @ a, rtol=1e-13)
    assert_holds(u @ u, (a * a).sum(0), rtol=1e-13)
    with pytest.raises(ArgumentError, match="equal extents"):
        u @ matrix
    with pytest.raises(TypeError, match="axis"):
        np.matmul(matrix, u, axis=0)


def wider(u):
    """Return a field on another pencil."""
    pencil = u.pencil.with_(shape=[n + 1 for n in u.pencil.shape])
    return pencils.ones(pencil, components=u.components)


A, T, V = ArgumentError, TypeError, ValueError
# Kind, text, and a call with fields of two and of three components, and a matrix.
REFUSED = [
    (T, "Cannot cast", lambda u, *_: np.stack([u, u], dtype="i4")),
    (T, "takes no out=", lambda u, *_: np.stack([u, u], out=np.stack([u, u]))),
    (T, "flattens", lambda u, *_: np.concatenate([u, u], axis=None)),
    (T, "takes no out=", lambda u, *_: np.concatenate([u, u], out=u)),
    (A, "names a dimension outside", lambda u, *_: np.concatenate([u, u], axis=9)),
    (A, "as many axes", lambda u, *_: np.concatenate([u, pencils.ones(u.pencil)])),
    (PencilMismatchError, None, lambda u, *_: np.concatenate([u, wider(u)])),
    (T, "not axis -1 of space", lambda _, v, _m: np.cross(v, v)),
    (T, "axisc=-1 is an axis of space", lambda _, v, _m: np.cross(v, v, 0, 0)),
    (A, "outside", lambda _, v, _m: np.cross(v, v, axis=7)),
    (V, r"dimensions|3 components", lambda u, v, _: np.linalg.cross(u, v, axis=0)),
    (V, "incompatible", lambda u, v, _: np.cross(np.concatenate([u, u]), v, axis=0)),
    (T, "of space", lambda u, *_: np.vecdot(u, u)),
    (T, r"u\.norm", lambda u, *_: np.linalg.norm(u, np.inf)),
    (T, r"u\.norm", lambda u, *_: np.linalg.norm(u, "fro")),
    (T, r"u\.norm", lambda u, *_: np.linalg.norm(u, keepdims=True)),
    (T, "of space", lambda u, *_: np.linalg.norm(u, axis=1)),
    (A, "outside", lambda u, *_: np.linalg.norm(u, axis=9)),
    (V, "order", lambda u, *_: np.linalg.norm(u, "fro", 0)),
    (T, r"numpy\.einsum", lambda u, *_: np.tensordot(u, u, (0, 0))),
    (T, r"numpy\.einsum", lambda u, _, m: np.tensordot(u, m, (0, 0))),
    (T, "component axis", lambda u, _, m: np.tensordot(u, m, 1)),
    (T, "component axis", lambda u, *_: np.tensordot(np.ones(u.shape[1]), u, (0, 1))),
    (T, r"numpy\.einsum", lambda u, _, m: m @ pencils.ones(pencils.Pencil((4, 4), u.pencil.comm))),
    (A, "as many axes of both", lambda u, _, m: np.tensordot(m, u, ([0, 1], [0]))),
    (V, r"dimension|size|broadcast", lambda u, *_: np.tensordot(np.ones((2, 3)), u, 1)),
]


def test_refused(pencil):
    u, v = (pencils.ones(pencil, components=n) for n in (2, 3))
    for kind, text, call in REFUSED:
        with pytest.raises(kind, match=text):
            call(u, v, np.ones((2, 2)))
