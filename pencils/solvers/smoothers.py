"""Smoothers of multigrid cycles, and the fields that they work on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pencils.array.creation import from_function
from pencils.array.pencil_array import PencilArray
from pencils.graph.fused import fused
from pencils.lines.solver import LineSolver
from pencils.solvers.equations import Level, moved, per

RED_BLACK, JACOBI, CHEBYSHEV, LINE = "red-black", "jacobi", "chebyshev", "line"
# Smoothers, and how often a step of each passes over memory.
PASSES = {RED_BLACK: 2, JACOBI: 1, CHEBYSHEV: 1, LINE: 3}

# Weights of Jacobi's steps for points and for lines; and the part of the spectrum of the operator
# divided by its diagonal, at most 2, that Chebyshev polynomials damp.
_POINTS, _LINES, _DAMPED = 0.85, 0.8, (0.35, 2.0)
# Overrelaxation of Gauss-Seidel steps: that of I. Yavneh, SIAM J. Sci. Comput. 17 (1996) 180-192,
# for three dimensions; and more on coarse grids, which saves cycles where coefficients jump.
_OVER, _OVER_COARSE = 1.15, 1.25

# See `pencils.solvers.Multigrid`.
OwnSmoother: TypeAlias = "Callable[[Level, PencilArray, PencilArray, bool], object]"


class Smoother:
    """Improves the solution `u` of the equations of a level, in place; making it is *Collective*.

    Other fields: `f` for the right side, if no field of the caller is it, `r` for the residual, and
    `spare`, with a halo.
    """

    def __init__(
        self, level: Level, kind: str | OwnSmoother, axes: Sequence[int], *, given: bool
    ) -> None:
        self.level = level
        self.u, self.spare = level.field(), level.field()
        self.r = level.field(halo=0)
        self.f = self.r if given else level.field(halo=0)
        self._weights: list[PencilArray] = []
        self._lines: list[LineSolver] = []
        self._own = None if isinstance(kind, str) else kind
        if kind == RED_BLACK:
            colour = from_function(level.pencil, lambda *index: sum(index) % 2)
            over = _OVER_COARSE if level.number else _OVER
            self._weights = [(colour == which) * (over / level.main) for which in (0, 1)]
        elif kind == JACOBI:
            self._weights = [_POINTS / level.main]
        elif kind == LINE:
            self._lines = [self._line(axis) for axis in axes]
        operator = level.operator
        self._step = level.fused(lambda u, f, weight: u + weight * (f - operator(u)))
        self._start = fused(lambda f, weight: weight * f)
        self._add = fused(lambda u, z: u + _LINES * z)
        self._chebyshev = level.fused(self._chebyshev_step)

    def _line(self, axis: int) -> LineSolver:
        pencil, k = self.level.pencil, self.level.faces[axis]
        bands = k, self.level.main, moved(k, axis)
        # Lines of one dimension may be as singular as the equations are.
        options: Any = {"singular": "pin", "check": False, "periodic": pencil.periodic[axis]}
        dtype, components, _ = self.level.spec
        return LineSolver(pencil, axis, bands, dtype=dtype, components=components, **options)

    def smooth(self, f: PencilArray, steps: int, *, reverse: bool, start: bool) -> None:
        """Improve `u` by some steps; from 0 on if it is the `start`. *Collective*.

        Steps in reverse are the adjoint of others, so that a cycle is symmetric.
        """
        order = slice(None, None, -1 if reverse else 1)
        weights, lines = self._weights[order] * steps, self._lines[order] * steps
        if start and lines:
            lines.pop(0)(f, out=self.r)
            self._start(self.r, _LINES, out=self.u)
        elif start and weights:
            self._start(f, weights.pop(0), out=self.u)
        elif start:
            self.u.fill(0)
        for weight in weights:
            self.u, self.spare = self._step(self.u, f, weight, out=self.spare), self.u
        for line in lines:
            self.level.residual(self.u, f, out=self.r)
            line(self.r, out=self.r)
            self._add(self.u, self.r, out=self.u)
        if self._own is not None:
            plain = per(f, self.level.weights)
            for _ in range(steps):
                self._own(self.level, self.u, plain, reverse)
        elif not (self._weights or self._lines):
            self._smooth_by_polynomial(f, steps)

    def _smooth_by_polynomial(self, f: PencilArray, steps: int) -> None:
        """Do so by the recurrence of Saad, Iterative Methods for Sparse Linear Systems, 12.3."""
        low, high = _DAMPED
        middle, half = (high + low) / 2, (high - low) / 2
        rho, ahead, back = half / middle, 1 / middle, 0.0
        for step in range(steps):
            self._chebyshev(self.u, f, self.r, ahead, back, step == 0, out=self.spare)
            self.u, self.spare = self.spare, self.u
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
        change = ahead * (f - self.level.operator(u)) / self.level.main
        if not first:  # else the field has no direction yet
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
