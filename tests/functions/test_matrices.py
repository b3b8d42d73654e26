"""Linear algebra of component matrices, and reductions of ufuncs, against NumPy."""

import numpy as np
import pytest
from fields import assert_holds, draw, in_memory_order, lay, spread
from mpi_helpers import all_raise, everywhere, ranks_at_fault

import pencils
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

KINDS = ["f4", "f8", "c8", "c16", "i8"]


def last(a, count=2):
    return np.moveaxis(a, range(count), range(-count, 0))


def first(a, count=2):
    return np.moveaxis(a, range(-count, 0), range(count))


@pytest.mark.parametrize("dtype", KINDS)
def test_products(pencil, dtype):
    a, b = draw((3, 2, *pencil.shape), dtype), draw((2, 3, *pencil.shape), dtype, seed=1)
    x, c = draw((2, *pencil.shape), dtype, seed=2), draw((3, 3), dtype)
    m, n, v = spread(pencil, a, halo=1), spread(pencil, b), spread(pencil, x)
    rtol = 1e-4 if dtype in {"f4", "c8"} else 1e-12
    both = np.matmul(a, b, axes=[(0, 1)] * 3)
    for found, expected in (
        (m @ n, both),
        (m @ v, np.einsum("ij...,j...->i...", a, x)),
        (v @ n, np.einsum("j...,jk...->k...", x, b)),
        (v @ v, (x * x).sum(0, dtype=x.dtype)),
        (c @ m, np.einsum("ij,jk...->ik...", c, a)),
        (m @ b, both),
        (
            np.matmul(m, n, axes=[(1, 0), (1, 0), (0, 1)]),
            np.matmul(a, b, axes=[(1, 0), (1, 0), (0, 1)]),
        ),
        (np.matmul(np.stack([m, m], 2), n[:, :, ...]), np.stack([both, both], 2)),
        (np.stack([m, m], 2) @ np.stack([n], 2), np.stack([both, both], 2)),
    ):
        assert_holds(found, expected, rtol=rtol)
        assert in_memory_order(found)
    square = m @ n
    square @= square
    assert_holds(square, np.matmul(both, both, axes=[(0, 1)] * 3), rtol=rtol * 100)


@pytest.mark.parametrize("dtype", KINDS)
def test_solve_and_eigenvalues(pencil, dtype):
    a = draw((3, 3, *pencil.shape), dtype) + 9 * np.eye(3, dtype=dtype).reshape(
        3, 3, *[1] * pencil.ndim
    )
    a = a + np.conj(a.swapaxes(0, 1))
    x, b = draw((3, *pencil.shape), dtype), draw((3, 2, *pencil.shape), dtype, seed=1)
    m, c = spread(pencil, a), draw((3, 3), dtype) + 9 * np.eye(3, dtype=dtype)
    rtol = 1e-3 if dtype in {"f4", "c8"} else 1e-9
    solved = np.linalg.solve(last(a), last(x, 1)[..., np.newaxis])[..., 0]
    assert_holds(np.linalg.solve(m, spread(pencil, x)), first(solved, 1), rtol=rtol)
    assert_holds(
        np.linalg.solve(m, spread(pencil, b)), first(np.linalg.solve(last(a), last(b))), rtol=rtol
    )
    assert_holds(
        np.linalg.solve(c, spread(pencil, b)), first(np.linalg.solve(c, last(b))), rtol=rtol
    )
    values, vectors = np.linalg.eigh(m)
    assert_holds(values, first(np.linalg.eigvalsh(last(a)), 1), rtol=rtol)
    again = np.einsum("ij...,j...,kj...->ik...", vectors, values, np.conj(vectors))
    np.testing.assert_allclose(again.local, m.local, rtol=rtol, atol=rtol * 10)
    assert in_memory_order(vectors)
    raw = np.linalg.qr(m, mode="raw")[1]
    assert_holds(raw, first(np.linalg.qr(last(a), mode="raw")[1], 1), rtol=rtol)


def test_tolerances_and_products_of_many(comm):
    pencil = lay(comm, "blocks")
    a, cut = draw((3, 2, *pencil.shape)), np.abs(draw(pencil.shape, seed=1)) / 2
    m, tolerance = spread(pencil, a), spread(pencil, cut)
    for found, expected in (
        (np.linalg.pinv(m, tolerance), first(np.linalg.pinv(last(a), cut))),
        (np.linalg.pinv(m, rtol=tolerance), first(np.linalg.pinv(last(a), rtol=cut))),
        (np.linalg.matrix_rank(m, tolerance), np.linalg.matrix_rank(last(a), cut)),
        (
            np.linalg.multi_dot([np.ones(3), m, [[1], [2]]]),
            np.einsum("ij...,j->...", a, [1, 2])[None],
        ),
        (np.linalg.outer(m[0], [1, 2, 3]), np.einsum("i...,j->ij...", a[0], [1, 2, 3])),
    ):
        assert_holds(found, expected, rtol=1e-9)
    all_raise(comm, TypeError, "no out=", lambda: np.linalg.multi_dot([m, m], out=m))
    where = {"where": m > 0}
    for call in (np.fmax.reduce, np.max, np.nanmin):
        all_raise(comm, ArgumentError, "needs initial=", lambda: call(m, **where))  # noqa: B023
    assert_holds(np.fmax.reduce(m, initial=-9, **where), np.fmax.reduce(a, initial=-9, where=a > 0))


def test_singletons(comm):
    pencil = lay(comm, "pencils")
    a = draw((2, 2, pencil.shape[0], 1, 1))
    m = spread(pencil, a, dims=0)
    assert_holds(np.linalg.inv(m), first(np.linalg.inv(last(a))), rtol=1e-10)
    x = draw((2, *pencil.shape))
    assert_holds(m @ spread(pencil, x), np.einsum("ij...,j...->i...", a, x), rtol=1e-12)


@pytest.mark.parametrize("name", ["inv", "solve", "cholesky"])
def test_a_singular_matrix_of_one_rank_raises_on_all(comm, name):
    pencil = lay(comm, "slabs")
    a = np.broadcast_to(np.eye(2).reshape(2, 2, 1, 1, 1), (2, 2, *pencil.shape)).copy()
    a[..., 1, 2, 1] = 0
    m = spread(pencil, a)
    given = (m, m) if name == "solve" else (m,)
    text, call = "definite" if name == "cholesky" else "Singular", getattr(np.linalg, name)
    all_raise(comm, np.linalg.LinAlgError, text, lambda u: call(*u), given)


def test_eigenvalues_are_complex_on_all_ranks_or_none(comm):
    pencil = lay(comm, "slabs")
    a = np.broadcast_to(np.eye(2).reshape(2, 2, 1, 1, 1), (2, 2, *pencil.shape)).copy()
    assert np.linalg.eigvals(spread(pencil, a)).dtype == float
    a[..., 1, 2, 1] = [[0, 1], [-1, 0]]
    found = np.linalg.eig(spread(pencil, a))
    assert_holds(found.eigenvalues, first(np.linalg.eigvals(last(a)), 1), rtol=1e-12)
    assert found.eigenvectors.dtype == complex


def test_what_is_no_matrix_is_refused(comm):
    u = pencils.ones(lay(comm, "plane"), components=(2, 3))
    all_raise(comm, np.linalg.LinAlgError, "square", np.linalg.inv, u)
    all_raise(comm, TypeError, "component axes", np.linalg.inv, u[0])
    all_raise(comm, ArgumentError, "equal extents", lambda m: m @ m, u)
    all_raise(comm, TypeError, "component axes", lambda m: m @ m, u[0, 0])
    all_raise(comm, ValueError, "axes", lambda m: np.matmul(m, m, axes=[(0, 1)]), u)


def test_results_that_depend_on_all_values(comm):
    pencil = lay(comm, "slabs")
    a = draw(pencil.shape) + 0j
    assert_holds(np.real_if_close(spread(pencil, a)), a.real)
    a[1, 2, 1] += 1e-3j
    assert_holds(np.real_if_close(spread(pencil, a)), a)
    assert_holds(np.real_if_close(spread(pencil, a), 0.1), a.real)
    ends = np.abs(a) + 1, np.abs(a) + 2
    u, v = (spread(pencil, end) for end in ends)
    assert_holds(np.geomspace(u, v, 4), np.geomspace(*ends, 4), rtol=1e-12)
    v[1, 2, 1] = 0
    all_raise(comm, ValueError, "zero", lambda: np.geomspace(u, v, 4))


FLOATS = (np.logaddexp, np.logaddexp2, np.hypot, np.fmax, np.fmin, np.logical_xor)
INTEGERS = (np.gcd, np.bitwise_and, np.bitwise_or, np.bitwise_xor)


@pytest.mark.parametrize("ufunc", FLOATS + INTEGERS)
def test_reductions_of_ufuncs(pencil, ufunc):
    for dtype in ("i8", "u2") if ufunc in INTEGERS else ("f4", "f8"):
        a = draw((2, *pencil.shape), dtype)
        u = spread(pencil, a)
        rtol = 0 if ufunc in INTEGERS else 1e-4
        last_axis = ufunc.reduce(a, axis=-1, keepdims=True)
        assert_holds(ufunc.reduce(u, axis=-1), last_axis, rtol=rtol)
        assert_holds(ufunc.reduce(u), ufunc.reduce(a), rtol=rtol)
        expected = ufunc.reduce(a, axis=None)
        found = ufunc.reduce(u, axis=None)
        assert found.dtype == expected.dtype
        assert everywhere(pencil.comm, np.allclose(found, expected, rtol=1e-4))


def test_errors_of_python_say_what_to_write(comm):
    u = pencils.ones(lay(comm, "plane"))
    for call, text in (
        (lambda: 1.0 in u, r"\(u == value\)\.any"),
        (lambda: hash(u), "unhashable.*id"),
        (lambda: format(u, ".2f"), "u.item"),
        (lambda: np.cumsum(u), "axis="),
    ):
        with pytest.raises((TypeError, ArgumentError), match=text):
            call()
    with pytest.raises((TypeError, BufferError)):
        memoryview(u)
    with pytest.raises(BufferError, match=r"u\.local"):
        u.__buffer__(0)


@pytest.mark.parallel([2, 3, 4, 6])
def test_one_rank_is_wrong(comm):
    u = pencils.ones(pencils.Pencil((6, 5), comm), components=(2, 2)) + np.eye(2)[..., None, None]
    for bad in ranks_at_fault(comm):
        here = comm.rank == bad
        for call in (
            lambda: np.linalg.solve(u, u[0, 0] if here else u[0]),  # noqa: B023
            lambda: np.linalg.vector_norm(u, axis=(0, 1) if here else 0),  # noqa: B023
        ):
            all_raise(comm, TypeError, "component ax", call)
