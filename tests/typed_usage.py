"""A program with all that type checkers are to know of fields: see `test_types.py`.

It is checked in mypy's strict mode, and run, where `assert_type` looks at the value.

What NumPy's stubs do not permit, as they know arrays and array-likes only:

- ``np.sin(u)``, ``array * u``, ``u + np.sin(u)`` are `Any`. A function that returns such an
  expression names it first: `no-any-return` is part of the strict mode.
- ``np.maximum(u, v)`` is ``ndarray | Any``; ``np.where(u > 0, u, 0)``, ``np.roll(u, 1, 0)``,
  ``np.zeros_like(u)`` and ``array < u`` are arrays. They need `cast`, or ``u.clip(0)``,
  ``pencils.zeros_like(u)``, ``u > array``.
- ``out=u`` of a ufunc, and ``np.copyto(u, v)``, are errors.
- ``np.asarray(u)`` is none, though it raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type, cast

import numpy as np
from numpy.typing import NDArray

import pencils

Field = pencils.PencilArray

Vector = NDArray[np.float64]


def diffusion(a: Field, k: float) -> Field:
    return k * (a.shift((1, 0, 0)) - 2 * a + a.shift((-1, 0, 0))) * np.hanning(8) - a.mean(axis=0)


def rhs(a: Field, k: float) -> Field:
    result: Field = a * 2 + np.sin(a) + k * np.hanning(8) - a[1:-1].mean(axis=0)
    return result


def operators(u: Field, v: Field, array: Vector) -> None:
    assert_type([u + v, 2 * u - v / 3.0], list[Field])
    assert_type([np.float32(2) * u + np.int64(1), u * array], list[Field])
    assert_type([u * [float(i) for i in range(8)], 1j * u, u**2 + 2**u], list[Field])
    assert_type(u // 2 + u % 2, Field)
    assert_type(divmod(u, 2), tuple[Field, Field])
    assert_type([abs(-u) + (+u), u < v], list[Field])
    assert_type(0 >= u, Field)  # noqa: SIM300
    assert_type([u == v, u != 0], list[Field])
    assert_type(~((u > 0) & (v > 0) | (u > 1) ^ (v > 1)), Field)
    assert_type((u > 0) + (u.astype(int) << 1), Field)

    field: Field = array * u - array / u
    assert_type(u + np.maximum(u, 0), Field)
    assert_type(sum(u.shift(o) for o in [(1, 0, 0), (-1, 0, 0)]) - 2 * u, Field)
    field += v
    field -= 1
    field *= array
    field /= 2.0
    field **= 2
    assert_type(field, Field)


def functions(u: Field, v: Field) -> None:
    waves: Field = np.sin(u) * np.cos(v) + np.exp(-(u**2))
    root: Field = np.sqrt(np.abs(u)) * u
    assert_type(np.sin(u), Any)
    assert_type(u + np.isfinite(u), Any)
    assert_type(waves - root, Field)
    pencils.gather(np.abs(u))
    bounded = u.clip(0, 1)
    total: float = np.sum(bounded)
    profile: Field = np.mean(u, axis=0)
    scalar: float = np.vdot(u, v) + total
    assert_type(np.allclose(u, v), bool)
    assert_type(np.array_equal(u, v), bool)
    assert_type(np.ndim(profile), int)
    squares: Field = np.einsum("...,...->...", u, v) * scalar
    positive = cast("Field", np.where(u > 0, squares, 0))
    largest = cast("Field", np.maximum(positive, v))
    assert_type(largest.max(), Any)
    np.add(u, 0, out=u)  # type: ignore[call-overload, unused-ignore]
    assert_type(u.whole(0).pencil, pencils.Pencil)
    assert_type(pencils.functions.along(np.sort, u, 0), Field)
    assert_type(pencils.functions.along(lambda block, axis: block + axis, u, 0, out=v), Field)


def reductions(u: Field, velocity: Field) -> None:
    total: float = u.sum()
    total += u.norm() + u.vdot(u) + u.min() + u.max(initial=0.0) + u.prod() + u.std(ddof=1)
    assert_type([u.mean(axis=0), u.mean(0), u.sum((0, -1), np.float32)], list[Field])
    assert_type(velocity.max(axis=0, keepdims=True), Field)
    assert_type(u.min(axis=[1], where=u > 0, initial=1), Field)
    assert_type([u.prod(axis=2), u.var(axis=1, ddof=1), u.std(axis=1)], list[Field])
    assert_type([u.ptp(axis=1), u.sum(keepdims=True)], list[Field])
    assert_type(u.any(), np.bool)
    assert_type(u.all(where=u > 0), np.bool)
    assert_type([u.any(axis=0), u.all(axis=0)], list[Field])
    assert_type(u.argmin(), np.intp)
    assert_type(u.argmax(axis=2), Field)
    assert_type(u.item(0, 0, 0), Any)
    assert_type(u.sum(), Any)  # it follows the type of the elements, which is not known
    assert_type(u.mean(dtype=np.float32), Any)


def sections(u: Field, v: Field, velocity: Field) -> None:
    wall: Field = u[0]
    assert_type([u[1:-1], velocity[0, ..., np.int64(3)]], list[Field])
    assert_type(u[0].replicate(), Field)
    assert_type(u.component() + velocity.component(0), Field)
    assert_type(velocity.unstack(), list[Field])
    u[0] = 1.0
    u[0] = wall
    u[1:-1] += v[1:-1]
    u[-1, :, ::2] = np.arange(12.0)[:, np.newaxis]
    u[u > 2] = 2
    u[np.s_[1:3]] *= [2.0] * 8


def properties(u: Field) -> None:
    assert_type(u.pencil, pencils.Pencil)
    assert_type(u.shape, tuple[int, ...])
    assert_type(u.local_slices, tuple[slice, ...])
    assert_type(u.halo, tuple[tuple[int, int], ...])
    assert_type((u.ndim, u.size, u.nbytes, u.itemsize, len(u)), tuple[int, int, int, int, int])
    assert_type(u.dtype, np.dtype[Any])
    assert_type([u.local, u.padded], list[NDArray[Any]])
    assert_type([u.real, u.imag], list[Field])
    assert_type(u.interior, tuple[Any, ...])
    assert_type(u.shells, list[tuple[Any, ...]])
    u.local += 1


def methods(u: Field) -> None:
    assert_type([u.copy(), u.astype(np.complex64).conj(), u.clip(0, 1)], list[Field])
    assert_type([u.round(2), u.cumsum(axis=0), u.shift((0, 1, 0))], list[Field])
    assert_type(u.take_points(([1], [2], [3])), NDArray[Any])
    assert_type(u.take_points(np.ones((3, 4), int)), NDArray[Any])
    assert_type(u.take_points(pencils.functions.own_points(u > 1).T), NDArray[Any])
    u.fill(0.0)
    u.exchange_halo(corners=False)
    u.start_halo_exchange().wait()
    u.fill_boundary("constant", value=1.0, axis=1)


def verbs(u: Field, pen: pencils.Pencil) -> None:
    other = pen.with_(decomp=2)
    assert_type(other, pencils.Pencil)
    assert_type(pencils.transpose(u, other), Field)
    assert_type(pencils.gather(u), NDArray[Any] | None)
    assert_type(pencils.gather(u, root=None), NDArray[Any])
    assert_type(pencils.gather(u, None, key=np.s_[3, :, 5]), NDArray[Any])
    grid = pencils.localgrid(pen, [np.linspace(0, 1, n) for n in pen.shape])
    x, _, _ = grid
    assert_type(x, Field)
    assert_type(grid[0, 1, 2], tuple[Any, ...])
    assert_type(grid.x * grid[1], Field)
    assert_type(pencils.partition(pen, np.zeros(pen.shape)), Field)
    assert_type(pencils.indexer.interpolate(u, ([0.5], [0.5], [0.5])), NDArray[Any])


def creation(u: Field, pen: pencils.Pencil) -> None:
    assert_type(pencils.empty(pen, halo=1), Field)
    assert_type(pencils.zeros(pen, components=3), Field)
    assert_type(pencils.ones(pen, dtype=np.float32), Field)
    assert_type(pencils.full(pen, 2.0, dims=(0, 1)), Field)
    assert_type(pencils.zeros_like(u), Field)
    assert_type(pencils.from_function(pen, lambda i, j, k: i + j * k), Field)
    assert_type(pencils.random.normal(pen, rng=1), Field)
    assert_type(Field(pen, np.zeros(pen.local_shape)), Field)


# Each line raises an error, and is one to mypy: with `warn_unused_ignores`, part of the strict
# mode, a comment without an error is reported.
def mistakes(u: Field, pen: pencils.Pencil) -> list[Callable[[], object]]:
    return [
        lambda: u.nonsense,  # type: ignore[attr-defined]
        lambda: u.T,  # type: ignore[attr-defined]
        lambda: pencils.nonsense,  # type: ignore[attr-defined]
        lambda: pencils.zeros(3),  # type: ignore[arg-type]
        lambda: pencils.zeros("pencil"),  # type: ignore[arg-type]
        lambda: pencils.zeros(u),  # type: ignore[arg-type]
        lambda: pencils.transpose(u, (4, 4)),  # type: ignore[arg-type]
        lambda: pencils.transpose(np.ones(3), pen),  # type: ignore[arg-type]
        lambda: u + None,  # type: ignore[arg-type]
        lambda: u @ u,  # type: ignore[operator]
        lambda: u["x"],  # type: ignore[arg-type]
        lambda: u[None],  # type: ignore[arg-type]
        lambda: u[u > 0],  # type: ignore[arg-type]
        lambda: float(u),  # type: ignore[arg-type]
        lambda: list(u),  # type: ignore[call-overload]
        lambda: u.sum(axis="x"),  # type: ignore[arg-type]
        lambda: u.sum(out=u),  # type: ignore[call-overload]
        lambda: u.argmin(axis=(0, 1)),  # type: ignore[call-overload]
        lambda: u.shift("x"),  # type: ignore[arg-type]
        lambda: u.exchange_halo(True),  # type: ignore[call-arg]  # noqa: FBT003
    ]


def main() -> list[Callable[[], object]]:
    pen = pencils.Pencil((16, 12, 8), periodic=(True, False, False))
    u = pencils.random.normal(pen, rng=1, halo=1)
    v = pencils.random.normal(pen, rng=2)
    velocity = pencils.random.normal(pen, rng=3, components=3)
    u.exchange_halo()
    assert_type(diffusion(u, 0.1) + rhs(v, 2), Field)
    operators(u, v, np.hanning(8))
    functions(u, v)
    reductions(u, velocity)
    sections(u, v, velocity)
    properties(u)
    methods(u)
    verbs(u, pen)
    creation(u, pen)
    return mistakes(u, pen)
