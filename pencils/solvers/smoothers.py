"""Grids of multigrid cycles: the equations there, smoothers of their errors, and direct solves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from pencils.array.allocation import Array
from pencils.array.creation import empty, from_function, full, zeros
from pencils.array.operands import FieldSpec, check_source
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.distribute.gather import gather
from pencils.errors import ArgumentError
from pencils.graph.fused import fused
from pencils.lines.solver import LineSolver
from pencils.pencil import Pencil
from pencils.solvers.ends import DIRICHLET, NEUMANN, PERIODIC
from pencils.solvers.transfer import restrict

# Factors of the coefficient on a wall, from which the point is half a cell away.
_WALLS = {PERIODIC: 1.0, DIRICHLET: 2.0, NEUMANN: 0.0}
RED_BLACK, JACOBI, CHEBYSHEV, LINE = "red-black", "jacobi", "chebyshev", "line"
# Smoothers, and how often a step of each passes over memory.
PASSES = {RED_BLACK: 2, JACOBI: 1, CHEBYSHEV: 1, LINE: 3}

# Weights of Jacobi's steps for points and for lines; and the part of the spectrum of the operator
# divided by its diagonal, at most 2, that Chebyshev polynomials damp.
_POINTS, _LINES, _DAMPED = 0.85, 0.8, (0.5, 2.0)
# Sums of a row, relative to its largest element, that are rounding.
_ZERO = 1e-13

# A number, a field on cells, or a field on the faces of each dimension.
Coefficient: TypeAlias = "float | PencilArray | Sequence[PencilArray]"
# See `pencils.solvers.Multigrid`.
Operator: TypeAlias = "Callable[[Level, PencilArray], PencilArray]"
Smoother: TypeAlias = "Callable[[Level, PencilArray, PencilArray, bool], object]"


class Level:
    """One grid of `Multigrid`, with its equations, its smoother and fields to work with.

    Attributes
    ----------
    number : int
        0 for the finest grid.
    pencil : Pencil
        The cells.
    spacing : tuple of float
        Width of the cells along each dimension.
    faces : list of PencilArray
        For each dimension, `a` on the low faces of cells, divided by the square of the spacing; 0
        on walls without flux, doubled on walls with a value. Behind the last cell, the halo has
        that of the high wall. So there is no need to fill boundary points of solutions: they are 0.
    c : PencilArray or float
        The coefficient of the solution itself.
    diagonal : PencilArray
        The diagonal of the operator.
    """

    def __init__(
        self,
        number: int,
        pencil: Pencil,
        spacing: Sequence[float],
        faces: Sequence[PencilArray],
        c: PencilArray | float,
    ) -> None:
        self.number, self.pencil = number, pencil
        self.spacing, self.faces, self.c = tuple(spacing), list(faces), c
        self.diagonal = empty(pencil)
        self.diagonal[...] = c
        for axis, k in enumerate(faces):
            self.diagonal -= k + k.shift(offset(axis, pencil.ndim))
        if not self.diagonal.max() < 0:
            raise ArgumentError(
                f"c is so large that the operator is not negative on the grid {pencil.shape}; it "
                "should not be positive"
            )
        self.u, self._spare = (zeros(pencil, halo=1) for _ in range(2))
        self.r = empty(pencil)
        self.f = empty(pencil) if number else self.r  # of the finest grid, others are given
        self._weights: list[PencilArray] = []
        self._line: LineSolver | None = None
        self._smoother: Smoother | None = None

    def prepare(
        self, operator: Operator | None, smoother: str | Smoother, axis: int | None, *, last: bool
    ) -> None:
        """Make the functions of fields, and what the smoother needs. *Collective*.

        Each level has its own functions: a function keeps few traces. The last one has no smoother.
        """
        apply = self.operator = partial(operator or _differences, self)
        self.apply = fused(apply)
        self.residual = fused(lambda u, f: f - apply(u))
        self._step = fused(lambda u, f, weight: u + weight * (f - apply(u)))
        self._start = fused(lambda f, weight: weight * f)
        self._add = fused(lambda u, z: u + _LINES * z)
        self._chebyshev = fused(self._chebyshev_step)
        if last:
            return
        if smoother == RED_BLACK:
            colour = from_function(self.pencil, lambda *index: sum(index) % 2)
            self._weights = [(colour == which) / self.diagonal for which in (0, 1)]
        elif smoother == JACOBI:
            self._weights = [_POINTS / self.diagonal]
        elif smoother == CHEBYSHEV:
            self._direction = zeros(self.pencil)
        elif smoother == LINE:
            assert axis is not None
            k, wraps = self.faces[axis], self.pencil.periodic[axis]
            bands = k, self.diagonal, k.shift(offset(axis, self.pencil.ndim))
            # Lines of one dimension may be as singular as the equations are.
            options: Any = {"periodic": wraps, "singular": "pin", "check": False}
            self._line = LineSolver(self.pencil, axis, bands, **options)
        elif not isinstance(smoother, str):
            self._smoother = smoother

    def smooth(self, f: PencilArray, steps: int, *, reverse: bool, start: bool) -> None:
        """Improve `u` by some steps; from 0 on if it is the `start`. *Collective*.

        Steps in reverse are the adjoint of others, so that a cycle is symmetric.
        """
        weights = self._weights[:: -1 if reverse else 1] * steps
        if start and weights:
            self._start(f, weights.pop(0), out=self.u)
        elif start:
            self.u.fill(0)
        for weight in weights:
            self._swap(self._step(self.u, f, weight, out=self._spare))
        if self._weights:
            return
        if self._line is None and self._smoother is None:
            self._smooth_by_polynomial(f, steps)
            return
        for _ in range(steps):
            if self._line is not None:
                self.residual(self.u, f, out=self.r)
                self._line(self.r, out=self.r)
                self._add(self.u, self.r, out=self.u)
            elif self._smoother is not None:
                self._smoother(self, self.u, f, reverse)

    def _swap(self, new: PencilArray) -> None:
        self.u, self._spare = new, self.u

    def _smooth_by_polynomial(self, f: PencilArray, steps: int) -> None:
        """Do so by the recurrence of Saad, Iterative Methods for Sparse Linear Systems, 12.3."""
        low, high = _DAMPED
        middle, half = (high + low) / 2, (high - low) / 2
        rho, ahead, back = half / middle, 1 / middle, 0.0
        for step in range(steps):
            self._chebyshev(self.u, f, self._direction, ahead, back, step == 0, out=self._spare)
            self._swap(self._spare)
            new = 1 / (2 * middle / half - rho)
            ahead, back, rho = 2 * new / half, rho * new, new

    def _chebyshev_step(  # noqa: PLR0917
        self,
        u: PencilArray,
        f: PencilArray,
        direction: PencilArray,
        ahead: float,
        back: float,
        first: bool,  # noqa: FBT001 - a trace for each value
    ) -> PencilArray:
        change = ahead * (f - self.operator(u)) / self.diagonal
        if not first:  # else the direction is an old one, which may be NaN
            change = change + back * direction
        direction[...] = change
        return u + change

    def free(self) -> None:
        """Free the plan of line solves, and drop fields and functions, which refer to each other.

        *Collective* if a solve is under way.
        """
        if self._line is not None:
            self._line.free()
        vars(self).clear()


def offset(axis: int, ndim: int, step: int = 1) -> tuple[int, ...]:
    """Return a step along one dimension."""
    return tuple(step * (dim == axis) for dim in range(ndim))


def _differences(level: Level, u: PencilArray) -> PencilArray:
    """Return ``div(a grad u) + c u``, of second order; exchanges the halo."""
    u.exchange_halo(corners=False)
    total = level.diagonal * u
    for axis, k in enumerate(level.faces):
        up, down = offset(axis, u.pencil.ndim), offset(axis, u.pencil.ndim, -1)
        total = total + k.shift(up) * u.shift(up) + k * u.shift(down)
    return total


def faces_of(
    pencil: Pencil,
    a: Coefficient,
    spacing: Sequence[float],
    walls: Sequence[tuple[str, str]],
) -> list[PencilArray]:
    """Return the coefficients of low faces; see `Level`. *Collective*."""
    found = []
    if isinstance(a, PencilArray):
        resistance = empty(pencil, halo=1)
        resistance[...] = 0.5 / a
        resistance.exchange_halo(corners=False)
        resistance.fill_boundary("edge")
    for axis, h in enumerate(spacing):
        up, down = offset(axis, pencil.ndim), offset(axis, pencil.ndim, -1)
        lower: Any
        upper: Any
        if isinstance(a, PencilArray):
            lower = 1 / (resistance + resistance.shift(down))
            upper = 1 / (resistance + resistance.shift(up))
        elif isinstance(a, float):
            lower = upper = full(pencil, a, dims=(axis,))
        else:
            given = zeros(a[axis].pencil, halo=1)
            given[...] = a[axis]
            given.exchange_halo(corners=False)
            lower, upper = (given.shift(each, onto=pencil) for each in ((0,) * pencil.ndim, up))
        weights = np.ones((2, pencil.shape[axis]))
        weights[0, 0], weights[1, -1] = (_WALLS[each] for each in walls[axis])
        low, high = (_along(each / h**2, axis, pencil.ndim) for each in weights)
        found.append(_joined(lower * low, upper * high, axis))
    return found


def coarse_face(fine: Level, coarse: Pencil, axis: int) -> PencilArray:
    """Return the mean of fine faces in each coarse one, for the wider cells. *Collective*."""
    ndim = coarse.ndim
    lower, upper = fine.faces[axis], fine.faces[axis].shift(offset(axis, ndim))
    if fine.pencil.shape[axis] != coarse.shape[axis]:
        first = np.arange(fine.pencil.shape[axis]) % 2 == 0
        # A quarter, as the square of the spacing grows; of one face, where two are averaged.
        lower, upper = (u * _along(w / 2, axis, ndim) for u, w in ((lower, first), (upper, ~first)))
    low, high = (restrict(each, coarse, method="average") for each in (lower, upper))
    return _joined(low, high, axis)


def _joined(lower: PencilArray, upper: PencilArray, axis: int) -> PencilArray:
    """Return a field of low faces, with the high ones on the wall in its halo. *Collective*."""
    pencil = lower.pencil
    k = zeros(pencil, halo=1, dims=sorted(set(range(pencil.ndim)) - lower.singletons))
    k[...] = lower
    k.exchange_halo(corners=False)
    if not pencil.periodic[axis]:
        last = (slice(None),) * axis + (slice(-1, None),)
        k.shift(offset(axis, pencil.ndim))[last] = upper[last]
    return k


def _along(values: Array, axis: int, ndim: int) -> Array:
    return values.reshape([-1 if dim == axis else 1 for dim in range(ndim)])


class DirectSolve:
    """Solves the equations of a small grid by its inverse, of which each rank has its own rows.

    The operator is applied to unit vectors, all at once: they are components of a field. If it
    vanishes for constants, it is `singular`, and the solution of mean 0 is found. Making it is
    *Collective*.
    """

    def __init__(self, level: Level) -> None:
        self._level = level
        shape = level.pencil.shape
        points = prod(shape)
        units = zeros(level.pencil, components=points, halo=1)
        units[...] = np.eye(points).reshape(points, *shape)
        columns = level.apply(units)
        with agreed(level.pencil.topology.comm, "Multigrid"):
            check_source(columns, level.pencil, FieldSpec.of(units), "what the operator returns")
        matrix = gather(columns, root=None).reshape(points, points).T
        self.singular = bool(abs(matrix.sum(axis=1)).max() <= _ZERO * abs(matrix).max())
        if self.singular:
            matrix = matrix + np.trace(matrix) / points**2
        own = np.arange(points).reshape(shape)[level.pencil.local_slices]
        self._rows = self._inverse(matrix)[own.ravel()]

    @staticmethod
    def _inverse(matrix: Array) -> Array:
        try:
            return np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            raise ArgumentError(
                "the equations of the coarsest grid are singular; change c, or the boundaries"
            ) from None

    def __call__(self, f: PencilArray) -> PencilArray:
        """Solve; return the field `u` of the level. *Collective*."""
        right = gather(f, root=None).ravel()
        if self.singular:
            right = right - right.mean()
        u = self._level.u
        u.local[...] = (self._rows @ right).reshape(u.local.shape)
        return u
