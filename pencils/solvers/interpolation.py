"""Transfers of multigrid cycles, with weights where coefficients jump between vertices."""

from __future__ import annotations

from pencils.array.pencil_array import PencilArray
from pencils.graph.fused import fused
from pencils.layout.levels import CELL
from pencils.solvers.smoothers import Smoother
from pencils.solvers.transfer import prolong, restrict


class Interpolation:
    """Moves residuals of a grid to the next coarser one, and corrections back.

    If it is `weighted`, the linear weights of coarse vertices are multiplied by the roots of the
    diagonal there, and divided by their sums. So vertices of large coefficients hardly get the
    corrections of others. Restriction is the transpose. On the finest grid, weights are linear:
    others save no cycles there. Making it is *Collective*.
    """

    def __init__(self, fine: Smoother, coarse: Smoother, *, weighted: bool) -> None:
        self._fine, self._coarse, level = fine, coarse, fine.level
        relation = coarse.level.pencil.coarsened
        vertices = any(factor > 1 and centred != CELL for factor, centred in relation)
        self._weighted = weighted and vertices and level.number > 0
        self._residual = level.residual
        if self._weighted:
            method = ["average" if centred == CELL else "injection" for _, centred in relation]
            weights = restrict(abs(level.diagonal) ** 0.5, coarse.level.pencil, method=method)
            ones, sums = (
                prolong(each, level.pencil, method=None) for each in (weights**0, weights)
            )
            factors, operator = ones / sums, level.operator
            self._residual = level.fused(lambda u, f: factors * (f - operator(u)))
            self._weigh = fused(lambda v: weights * v)
            self._add = fused(lambda u, v: u + factors * v)

    def restrict(self, f: PencilArray) -> PencilArray:
        """Return the right side of the coarser grid, for that of the finer one. *Collective*."""
        fine, coarse = self._fine, self._coarse
        self._residual(fine.u, f, out=fine.r)
        restrict(fine.r, coarse.level.pencil, out=coarse.f)
        if self._weighted:
            self._weigh(coarse.f, out=coarse.f)
        return coarse.f

    def correct(self) -> None:
        """Add the solution of the coarser grid to that of the finer one. *Collective*."""
        fine, coarse = self._fine, self._coarse
        if self._weighted:
            v = self._weigh(coarse.u, out=coarse.spare)
            prolong(v, fine.level.pencil, method=None, out=fine.spare)
            self._add(fine.u, fine.spare, out=fine.u)
        else:
            prolong(coarse.u, fine.level.pencil, method=None, out=fine.u, add=True)
