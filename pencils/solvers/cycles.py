"""Cycles over grids: each smooths errors, and corrects them on the next coarser grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import frexp, prod
from typing import Any

import numpy as np

from pencils.array.allocation import Array, real_type
from pencils.array.creation import zeros
from pencils.array.operands import FieldSpec, check_source
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import PreparedAgreement
from pencils.distribute.gather import gather
from pencils.errors import ArgumentError
from pencils.graph.fused import fused
from pencils.layout.levels import CELL, LEAST
from pencils.pencil import Pencil
from pencils.solvers.ends import Ends
from pencils.solvers.equations import (
    Coefficient,
    Level,
    coarse_face,
    faces_of,
    main_of,
    weights_of,
)
from pencils.solvers.result import attempt
from pencils.solvers.smoothers import OwnSmoother, Smoother
from pencils.solvers.transfer import prolong, restrict

# The cycles on the next grid that a cycle consists of.
KINDS = {"V": "V", "W": "WW", "F": "FV"}
# Grids with as many points are solved directly; with up to more if they cannot be halved.
_SMALL, _MOST = 512, 1024
# Dimensions are halved together if their couplings differ by less than this factor.
_STRONG = 0.3
# Sums of a row, relative to its largest element, that are rounding, in units of it.
_ZERO = 64


class Cycles:
    """Cycles of one kind over levels, in numbers of `spec`; making them is *Collective*.

    If these are of another precision than the equations of the levels, equations and right sides
    are scaled, so that numbers neither overflow nor underflow: `unit` is the factor of equations.
    `converts` tells so.
    """

    def __init__(
        self,
        levels: Sequence[Level],
        direct: DirectSolve,
        spec: FieldSpec,
        *,
        smoother: str | OwnSmoother,
        axes: Sequence[int],
        kind: str,
        steps: tuple[int, int],
        weighted: bool,
    ) -> None:
        self.unit, self._direct, self._kind, self._steps = 1.0, direct, kind, steps
        self.converts = spec.dtype != levels[0].spec.dtype
        if self.converts:
            self.unit = 0.5 ** frexp(float(abs(levels[0].main).max()))[1]
            levels = [level.scaled(spec, self.unit) for level in levels]
        self.levels = levels
        self._grids: list[Smoother] = []
        try:
            for level in levels:
                given = level.number == 0 and not self.converts
                own = smoother if level is not levels[-1] else ""
                self._grids.append(Smoother(level, own, axes, given=given))
            pairs = pairwise(self._grids)
            self._transfers = [GridTransfer(*each, weighted=weighted) for each in pairs]
        except BaseException:
            self.free()
            raise

    def scales(self, norms: Array) -> Array:
        """Return the numbers by which right sides of such norms are to be multiplied.

        They are powers of two, so that results do not depend on the roundings of norms.
        """
        return np.ldexp(1.0, -np.frexp(norms)[1]) if self.converts else np.ones_like(norms)

    def __call__(self, f: PencilArray, scale: Any) -> PencilArray:
        """Do one cycle, from 0 on, for a right side times a scale. *Collective*.

        Return the solution, times ``scale / unit``, in a field that the next cycle overwrites.
        """
        return self._visit(0, self._converted(f, scale), self._kind, start=True)

    def nest(self, f: PencilArray, scale: Any) -> PencilArray:
        """Solve on the coarsest grid, and do a cycle on each finer one. *Collective*.

        Return the solution as a cycle does.
        """
        sides = [self._converted(f, scale), *(grid.f for grid in self._grids[1:])]
        for level, fine, coarse in zip(self.levels[1:], sides, sides[1:], strict=False):
            restrict(fine, level.pencil, out=coarse)
        found = self._solve(sides[-1])
        ends = self.levels[0].ends
        boundary: list[Any] = ["edge" if each.is_free else "odd" for each in ends]
        for number in range(len(self.levels) - 2, -1, -1):
            grid = self._grids[number]
            prolong(found, grid.level.pencil, boundary=boundary, out=grid.u)
            found = self._visit(number, sides[number], self._kind, start=False)
        return found

    def _converted(self, f: PencilArray, scale: Any) -> PencilArray:
        if not self.converts:
            return f
        given = self._grids[0].f
        given[...] = f * scale
        return given

    def _visit(self, number: int, f: PencilArray, kind: str, *, start: bool) -> PencilArray:
        """Do a cycle from one grid on, and return the solution there. *Collective*."""
        if number == len(self.levels) - 1:
            return self._solve(f)
        grid, transfer, (pre, post) = self._grids[number], self._transfers[number], self._steps
        grid.smooth(f, pre, reverse=False, start=start)
        right = transfer.restrict(f)
        is_last = number == len(self.levels) - 2
        for visit, each in enumerate("V" if is_last else KINDS[kind]):
            self._visit(number + 1, right, each, start=visit == 0)
        transfer.correct()
        grid.smooth(f, post, reverse=True, start=False)
        return grid.u

    def _solve(self, f: PencilArray) -> PencilArray:
        """Solve the equations of the coarsest grid. *Collective*."""
        u = self._grids[-1].u
        u.local[...] = self._direct(f).reshape(u.local.shape) / self.unit
        return u

    def free(self) -> None:
        """Free the plans of line solves. *Collective* if a solve is under way."""
        self._transfers = []
        for grid in self._grids:
            grid.free()
        for level in self.levels if self.converts else ():
            level.free()


def make_levels(
    pencil: Pencil,
    ends: Sequence[Ends],
    a: Coefficient,
    c: Any,
    *,
    axes: Sequence[int],
    most: int | None,
    spec: FieldSpec,
    **own: Any,
) -> list[Level]:
    """Halve a grid until it is small; `own` is the operator of the user. *Collective*."""
    first, c = ends, c * weights_of(pencil, ends, spec)
    faces = faces_of(pencil, a, ends, spec)
    options: Any = {"spec": spec, **own}
    made = [Level(0, pencil, ends, faces, main_of(pencil, faces, c), **options)]
    while (points := prod(pencil.shape)) > _SMALL and (most is None or len(made) < most):
        factors = _factors(ends, axes)
        if max(factors) == 1:
            break
        pencil = pencil.level(factors, [each.centred for each in ends], LEAST)
        halved = zip(ends, factors, strict=True)
        ends = [each.halved() if factor > 1 else each for each, factor in halved]
        if isinstance(a, float):
            faces = faces_of(pencil, a, ends, spec)
        else:
            faces = [coarse_face(made[-1], pencil, ends, dim) for dim in range(pencil.ndim)]
        c = restrict(c, pencil) if isinstance(c, PencilArray) else c
        made.append(Level(len(made), pencil, ends, faces, main_of(pencil, faces, c), **options))
    if points > _MOST:
        raise ArgumentError(_too_large(first, pencil.shape, most))
    return made


def _factors(ends: Sequence[Ends], axes: Sequence[int]) -> list[int]:
    """Tell which dimensions to halve: even ones of strong coupling, those of lines last."""
    even = [each.intervals % 2 == 0 and each.intervals > 2 for each in ends]  # noqa: PLR2004
    if any(each for dim, each in enumerate(even) if dim not in axes):
        even = [each and dim not in axes for dim, each in enumerate(even)]
    strong = [is_even / each.spacing**2 for is_even, each in zip(even, ends, strict=True)]
    return [1 + (each > 0 and each >= _STRONG * max(strong)) for each in strong]


def _too_large(ends: Sequence[Ends], reached: Sequence[int], levels: int | None) -> str:
    shape = tuple(each.points for each in ends)
    text = f"the grid {shape} was halved to {tuple(reached)}, which is more than {_MOST}"
    text += " points, too many for a direct solve. "
    if levels is not None:
        return f"{text}levels={levels} must be larger"
    sizes = [m << k for k in range(32) for m in (1, 3, 5)]
    near = [min((abs(n - each.intervals), n) for n in sizes)[1] for each in ends]
    good = tuple(n + each.points - each.intervals for n, each in zip(near, ends, strict=True))
    more = ", plus or minus one" * any(each.points != each.intervals for each in ends)
    return f"{text}Use extents of a small number times a power of two{more}, such as {good}"


class GridTransfer:
    """Moves residuals of a grid to the next coarser one, and corrections back.

    If it is `weighted`, the linear weights of coarse vertices are multiplied by the roots of the
    diagonal there, and scaled so that their sums stay the same. So vertices of a large diagonal
    hardly get the corrections of others. Restriction is the transpose. On the finest grid, weights
    are linear: others save no cycles there. Making it is *Collective*.
    """

    def __init__(self, fine: Smoother, coarse: Smoother, *, weighted: bool) -> None:
        self._fine, self._coarse, level = fine, coarse, fine.level
        relation = coarse.level.pencil.coarsened
        vertices = any(factor > 1 and centred != CELL for factor, centred in relation)
        self._weights: PencilArray | None = None
        self._residual = level.residual
        if weighted and vertices and level.number > 0:
            method = ["average" if centred == CELL else "injection" for _, centred in relation]
            weights = restrict(abs(level.diagonal) ** 0.5, coarse.level.pencil, method=method)
            sums = prolong(weights, level.pencil, method=None)
            factors = prolong(weights**0, level.pencil, method=None) / sums
            operator, self._weights = level.operator, weights
            self._residual = level.fused(lambda u, f: factors * (f - operator(u)))
            self._add = fused(lambda u, v: u + factors * v)

    def restrict(self, f: PencilArray) -> PencilArray:
        """Return the right side of the coarser grid, for that of the finer one. *Collective*."""
        fine, coarse = self._fine, self._coarse
        self._residual(fine.u, f, out=fine.r)
        restrict(fine.r, coarse.level.pencil, out=coarse.f)
        if self._weights is not None:
            coarse.f *= self._weights
        return coarse.f

    def correct(self) -> None:
        """Add the solution of the coarser grid to that of the finer one. *Collective*."""
        fine, coarse = self._fine, self._coarse
        if self._weights is None:
            prolong(coarse.u, fine.level.pencil, method=None, out=fine.u, add=True)
        else:
            coarse.u *= self._weights
            v = prolong(coarse.u, fine.level.pencil, method=None, out=fine.spare)
            self._add(fine.u, v, out=fine.u)


class DirectSolve:
    """Solves the equations of a small grid by its inverse, of which each rank has its own rows.

    The operator is applied to unit vectors, all at once: they are components of a field. If it
    vanishes for constants, it is `singular`, and the solution of mean 0 is found. Making it is
    *Collective*.
    """

    def __init__(self, level: Level, meeting: PreparedAgreement) -> None:
        shape = level.pencil.shape
        points = prod(shape)
        real = real_type(level.spec.dtype)
        units = zeros(level.pencil, components=points, halo=1, dtype=real)
        units[...] = np.eye(points, dtype=real).reshape(points, *shape)
        columns = attempt(meeting, partial(self._apply, level), units)
        matrix = gather(columns, root=None).reshape(points, points).T.astype(float)
        sums, largest = abs(matrix.sum(axis=1)), abs(matrix).max(axis=1)
        self.singular = bool((sums <= _ZERO * np.finfo(real).eps * largest).all())
        if self.singular:
            matrix = matrix + (np.trace(matrix) or 1.0) / points**2
        own = np.arange(points).reshape(shape)[level.pencil.local_slices]
        try:
            self._rows = np.linalg.inv(matrix)[own.ravel()]
        except np.linalg.LinAlgError:
            raise ArgumentError(
                "the equations of the coarsest grid are singular; change c, or the boundaries"
            ) from None

    @staticmethod
    def _apply(level: Level, units: PencilArray) -> PencilArray:
        columns: PencilArray = fused(level.operator)(units)
        check_source(columns, units.pencil, FieldSpec.of(units), "what the operator returns")
        return columns

    def __call__(self, f: PencilArray) -> Array:
        """Solve; return the values of the own points, for each component. *Collective*."""
        right = gather(f, root=None).reshape(-1, self._rows.shape[1]).T
        if self.singular:
            right = right - right.mean(axis=0)
        return (self._rows @ right).T
