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
from pencils.comm.agree import PreparedAgreement
from pencils.distribute.gather import gather
from pencils.errors import ArgumentError
from pencils.graph.fused import fused
from pencils.layout.levels import CELL
from pencils.lines.solver import LineSolver
from pencils.pencil import Pencil
from pencils.solvers.ends import Ends
from pencils.solvers.result import attempt
from pencils.solvers.transfer import restrict

RED_BLACK, JACOBI, CHEBYSHEV, LINE = "red-black", "jacobi", "chebyshev", "line"
# Smoothers, and how often a step of each passes over memory.
PASSES = {RED_BLACK: 2, JACOBI: 1, CHEBYSHEV: 1, LINE: 3}

# Weights of Jacobi's steps for points and for lines; and the part of the spectrum of the operator
# divided by its diagonal, at most 2, that Chebyshev polynomials damp.
_POINTS, _LINES, _DAMPED = 0.85, 0.8, (0.5, 2.0)
# Sums of a row, relative to its largest element, that are rounding, in units of it.
_ZERO = 64

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
        The points.
    spacing : tuple of float
        Their mean distance along each dimension.
    weights : PencilArray or float
        The volumes that belong to points, in units of the product of `spacing`; 1.0 if all are
        equal. Equations are multiplied by them: then they are symmetric.
    faces : list of PencilArray
        For each dimension, `a` between each point and the one before, divided by their distance and
        `spacing`, times the weights of other dimensions; 0 on walls without flux. Behind the last
        point, the halo has that of the high wall. So there is no need to fill boundary points of
        solutions: they are 0.
    diagonal : PencilArray
        The diagonal of the operator.
    """

    def __init__(
        self,
        number: int,
        pencil: Pencil,
        ends: Sequence[Ends],
        faces: Sequence[PencilArray],
        c: PencilArray | float,
        *,
        spec: FieldSpec,
    ) -> None:
        self.number, self.pencil, self.ends, self.spec = number, pencil, ends, spec
        self.spacing, self.faces = tuple(each.spacing for each in ends), list(faces)
        self.weights = weights_of(pencil, ends, spec)
        self.main = empty(pencil, dtype=faces[0].dtype)  # the diagonal of weighted equations
        self.main[...] = c
        for axis, k in enumerate(faces):
            self.main -= k + k.shift(offset(axis, pencil.ndim))
        self.diagonal = per(self.main, self.weights)
        if not self.main.max() < 0:
            raise ArgumentError(
                f"c is so large that the operator is not negative on the grid {pencil.shape}; it "
                "should not be positive"
            )
        self._kind: Any = {"dtype": spec.dtype, "components": spec.components}
        self.u, self._spare = (zeros(pencil, halo=1, **self._kind) for _ in range(2))
        self.r = empty(pencil, **self._kind)
        # Right sides of the finest grid are those that are given.
        self.f = empty(pencil, **self._kind) if number else self.r
        self._weights: list[PencilArray] = []
        self._lines: list[LineSolver] = []
        self._smoother: Smoother | None = None

    def prepare(
        self,
        operator: Operator | None,
        smoother: str | Smoother,
        axes: Sequence[int],
        *,
        last: bool,
    ) -> None:
        """Make the functions of fields, and what the smoother needs. *Collective*.

        Each level has its own functions: a function keeps few traces. The last one has no smoother.
        """
        weights = self.weights
        apply: Callable[[PencilArray], PencilArray] = partial(operator or _differences, self)
        if operator is not None and not isinstance(weights, float):
            apply = lambda u: weights * operator(self, u)  # noqa: E731
        self.operator = apply  # of weighted equations
        self.apply = fused(lambda u: per(apply(u), weights))
        self.residual = fused(lambda u, f: f - apply(u))
        self._step = fused(lambda u, f, weight: u + weight * (f - apply(u)))
        self._start = fused(lambda f, weight: weight * f)
        self._add = fused(lambda u, z: u + _LINES * z)
        self._chebyshev = fused(self._chebyshev_step)
        if last:
            return
        if smoother == RED_BLACK:
            colour = from_function(self.pencil, lambda *index: sum(index) % 2)
            self._weights = [(colour == which) / self.main for which in (0, 1)]
        elif smoother == JACOBI:
            self._weights = [_POINTS / self.main]
        elif smoother == CHEBYSHEV:
            self._direction = zeros(self.pencil, **self._kind)
        elif smoother == LINE:
            for axis in axes:
                k = self.faces[axis]
                bands = k, self.main, k.shift(offset(axis, self.pencil.ndim))
                # Lines of one dimension may be as singular as the equations are.
                options: Any = {"singular": "pin", "check": False} | self._kind
                wraps = self.pencil.periodic[axis]
                made = LineSolver(self.pencil, axis, bands, periodic=wraps, **options)
                self._lines.append(made)
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
        if not self._lines and self._smoother is None:
            self._smooth_by_polynomial(f, steps)
            return
        plain = f if self._lines else per(f, self.weights)
        for _ in range(steps):
            for line in self._lines[:: -1 if reverse else 1]:
                self.residual(self.u, f, out=self.r)
                line(self.r, out=self.r)
                self._add(self.u, self.r, out=self.u)
            if self._smoother is not None:
                self._smoother(self, self.u, plain, reverse)

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
        change = ahead * (f - self.operator(u)) / self.main
        if not first:  # else the direction is an old one, which may be NaN
            change = change + back * direction
        direction[...] = change
        return u + change

    def free(self) -> None:
        """Free the plans of line solves, and drop fields and functions, which refer to each other.

        *Collective* if a solve is under way.
        """
        for line in self._lines:
            line.free()
        vars(self).clear()


def offset(axis: int, ndim: int, step: int = 1) -> tuple[int, ...]:
    """Return a step along one dimension."""
    return tuple(step * (dim == axis) for dim in range(ndim))


def _differences(level: Level, u: PencilArray) -> PencilArray:
    """Return ``div(a grad u) + c u``, of second order and weighted; exchanges the halo."""
    u.exchange_halo(corners=False)
    total = level.main * u
    for axis, k in enumerate(level.faces):
        up, down = offset(axis, u.pencil.ndim), offset(axis, u.pencil.ndim, -1)
        total = total + k.shift(up) * u.shift(up) + k * u.shift(down)
    return total


def per(u: PencilArray, weights: PencilArray | float) -> PencilArray:
    """Divide by weights, unless all are 1."""
    return u if isinstance(weights, float) else u / weights


def weights_of(
    pencil: Pencil, ends: Sequence[Ends], spec: FieldSpec, axis: int | None = None
) -> PencilArray | float:
    """Return the weights of points, without those of an axis; local."""
    found: PencilArray | float = 1.0
    for each in ends:
        weights = each.volumes() / each.spacing
        if each.dim != axis and (weights != 1).any():
            ones = full(pencil, 1.0, dims=(each.dim,), dtype=_real(spec))
            found = ones * _along(weights.astype(ones.dtype), each.dim, pencil.ndim) * found
    return found


def faces_of(
    pencil: Pencil, a: Coefficient, ends: Sequence[Ends], spec: FieldSpec
) -> list[PencilArray]:
    """Return the coefficients of low faces; see `Level`. *Collective*."""
    found, ndim = [], pencil.ndim
    resistance = _haloed(1 / a) if isinstance(a, PencilArray) else None
    for axis, line in enumerate(ends):
        up, down = offset(axis, ndim), offset(axis, ndim, -1)
        lower: Any
        upper: Any
        if resistance is not None:
            low, high = _along_both(line.shares(), axis, ndim)
            lower = 1 / (resistance * low + resistance.shift(down) * (1 - low))
            upper = 1 / (resistance * (1 - high) + resistance.shift(up) * high)
        elif isinstance(a, float):
            lower = upper = full(pencil, a, dims=(axis,))
        else:
            given = _haloed(a[axis])
            lower, upper = (given.shift(each, onto=pencil) for each in ((0,) * ndim, up))
        low, high = _along_both(line.fluxes() / line.spacing, axis, ndim)
        weights = weights_of(pencil, ends, spec, axis)
        found.append(_joined(lower * low * weights, upper * high * weights, axis, _real(spec)))
    return found


def coarse_face(fine: Level, coarse: Pencil, ends: Sequence[Ends], axis: int) -> PencilArray:
    """Return the mean of fine faces in each coarse one, for wider distances. *Collective*.

    Of the faces between two vertices the mean is that of the two between these, as for the product
    of transfers and operator.
    """
    ndim, k = coarse.ndim, fine.faces[axis]
    up, down = offset(axis, ndim), offset(axis, ndim, -1)
    factor, centred = coarse.coarsened[axis]
    lower, upper, ratio = k, k.shift(up), np.ones(coarse.shape[axis] + 1)
    method: list[Any] = [None] * ndim
    if factor != 1 and centred == CELL:
        first = np.arange(fine.pencil.shape[axis]) % 2 == 0
        lower, upper = (u * _along(w, axis, ndim) for u, w in ((lower, first), (upper, ~first)))
        # Of one face, where two are averaged; a quarter, as the square of the spacing grows.
        wide, narrow = (each.fluxes() / each.spacing for each in (ends[axis], fine.ends[axis]))
        np.divide(2 * wide, narrow[::2], out=ratio, where=narrow[::2] != 0)
    elif factor != 1:
        both = _haloed((lower + upper) / 8)
        lower, upper = both.shift(down), both.shift(up)
        method[axis] = "injection"
    low, high = (restrict(each, coarse, method=method) for each in (lower, upper))
    below, above = _along_both(ratio, axis, ndim)
    return _joined(low * below, high * above, axis, k.dtype)


def _haloed(u: PencilArray) -> PencilArray:
    """Return a copy with a halo, of which boundary points are 0. *Collective*."""
    dims = sorted(set(range(u.pencil.ndim)) - u.singletons)
    copy = zeros(u.pencil, halo=1, dims=dims, dtype=u.dtype)
    copy[...] = u
    copy.exchange_halo(corners=False)
    return copy


def _joined(lower: PencilArray, upper: PencilArray, axis: int, dtype: Any) -> PencilArray:
    """Return a field of low faces, with the high ones on the wall in its halo. *Collective*."""
    pencil = lower.pencil
    k = _haloed(lower.astype(dtype))
    if not pencil.periodic[axis]:
        last = (slice(None),) * axis + (slice(-1, None),)
        k.shift(offset(axis, pencil.ndim))[last] = upper[last]
    return k


def _real(spec: FieldSpec) -> Any:
    return np.empty(0, spec.dtype).real.dtype


def _along_both(values: Array, axis: int, ndim: int) -> tuple[Array, Array]:
    """Return what belongs to the low and to the high faces of points."""
    return _along(values[:-1], axis, ndim), _along(values[1:], axis, ndim)


def _along(values: Array, axis: int, ndim: int) -> Array:
    return values.reshape([-1 if dim == axis else 1 for dim in range(ndim)])


class DirectSolve:
    """Solves the equations of a small grid by its inverse, of which each rank has its own rows.

    The operator is applied to unit vectors, all at once: they are components of a field. If it
    vanishes for constants, it is `singular`, and the solution of mean 0 is found. Making it is
    *Collective*.
    """

    def __init__(self, level: Level, meeting: PreparedAgreement) -> None:
        self._level = level
        shape = level.pencil.shape
        points = prod(shape)
        real = _real(level.spec)
        units = zeros(level.pencil, components=points, halo=1, dtype=real)
        units[...] = np.eye(points, dtype=real).reshape(points, *shape)
        columns = attempt(meeting, self._apply, units)
        matrix = gather(columns, root=None).reshape(points, points).T.astype(float)
        sums, largest = abs(matrix.sum(axis=1)), abs(matrix).max(axis=1)
        self.singular = bool((sums <= _ZERO * np.finfo(real).eps * largest).all())
        if self.singular:
            matrix = matrix + np.trace(matrix) / points**2
        own = np.arange(points).reshape(shape)[level.pencil.local_slices]
        self._rows = self._inverse(matrix)[own.ravel()].astype(real)

    def _apply(self, units: PencilArray) -> PencilArray:
        columns: PencilArray = fused(self._level.operator)(units)
        check_source(columns, units.pencil, FieldSpec.of(units), "what the operator returns")
        return columns

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
        right = gather(f, root=None).reshape(-1, self._rows.shape[1]).T
        if self.singular:
            right = right - right.mean(axis=0)
        u = self._level.u
        u.local[...] = (self._rows @ right).T.reshape(u.local.shape)
        return u
