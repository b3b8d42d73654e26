"""The equations of grids of multigrid cycles: differences with coefficients on faces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from pencils.array.allocation import Array, real_type
from pencils.array.creation import empty, full, zeros
from pencils.array.operands import FieldSpec
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import PreparedAgreement
from pencils.errors import ArgumentError
from pencils.graph.fused import fused
from pencils.layout.levels import CELL
from pencils.pencil import Pencil
from pencils.solvers.ends import Ends
from pencils.solvers.result import attempt
from pencils.solvers.transfer import restrict

# A number, a field on cells, or a field on the faces of each dimension.
Coefficient: TypeAlias = "float | PencilArray | Sequence[PencilArray]"
# Part of the arithmetic mean. Without it, corrections at corners of a checkerboard are so large
# that W cycles diverge.
_ARITHMETIC = 0.05
# See `pencils.solvers.Multigrid`.
Operator: TypeAlias = "Callable[[Level, PencilArray], PencilArray]"


class Level:
    """One grid of `Multigrid`, with its equations.

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
    main : PencilArray
        The diagonal of the weighted equations.
    diagonal : PencilArray
        That of the operator.
    """

    def __init__(
        self,
        number: int,
        pencil: Pencil,
        ends: Sequence[Ends],
        faces: Sequence[PencilArray],
        main: PencilArray,
        *,
        spec: FieldSpec,
        operator: Operator | None = None,
        meeting: PreparedAgreement | None = None,
    ) -> None:
        self.number, self.pencil, self.ends, self.spec = number, pencil, ends, spec
        self.spacing, self.faces, self.main = tuple(each.spacing for each in ends), faces, main
        self.weights = weights = weights_of(pencil, ends, spec)
        self.diagonal = per(main, weights)
        apply: Callable[[PencilArray], PencilArray] = partial(operator or _differences, self)
        if operator is not None and not isinstance(weights, float):
            apply = lambda u: weights * operator(self, u)  # noqa: E731
        self._meeting = meeting
        # Each level has its own functions: a function keeps few traces.
        self.operator = apply  # of weighted equations
        self.apply = fused(lambda u: per(apply(u), weights))
        self.residual = self.fused(lambda u, f: f - apply(u))

    def fused(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Fuse a function that calls the operator, which may be that of the user.

        Then all ranks raise what it raises on one.
        """
        made, meeting = fused(function), self._meeting
        if meeting is None:
            return made
        return lambda *args, **options: attempt(meeting, partial(made, *args, **options))

    def field(self, halo: int = 1) -> PencilArray:
        """Make a field of zeros for solutions; local."""
        return zeros(self.pencil, self.spec.dtype, components=self.spec.components, halo=halo)

    def scaled(self, spec: FieldSpec, factor: float) -> Level:
        """Return the equations times a number, for fields of another precision; local."""
        every = [each.copy() for each in (*self.faces, self.main)]
        for each in every:
            each.padded[...] *= factor
        *faces, main = (each.astype(real_type(spec.dtype)) for each in every)
        return Level(self.number, self.pencil, self.ends, faces, main, spec=spec)

    def free(self) -> None:
        """Drop fields and functions, which refer to each other; local."""
        vars(self).clear()


def main_of(pencil: Pencil, faces: Sequence[PencilArray], c: PencilArray | float) -> PencilArray:
    """Return the diagonal of weighted equations. *Collective*."""
    main = empty(pencil, dtype=faces[0].dtype)
    main[...] = c
    for axis, k in enumerate(faces):
        main -= k + moved(k, axis)
    most = float(main.max())
    if not (most < 0 or (most == 0 and prod(pencil.shape) == 1)):  # 0: no other point, no wall
        raise ArgumentError(
            f"c is so large that the operator is not negative on the grid {pencil.shape}; it "
            "should not be positive"
        )
    return main


def moved(u: PencilArray, axis: int, step: int = 1, onto: Pencil | None = None) -> Any:
    """Return the own block, moved along one dimension."""
    return u.shift(tuple(step * (dim == axis) for dim in range(u.pencil.ndim)), onto)


def _differences(level: Level, u: PencilArray) -> PencilArray:
    """Return ``div(a grad u) + c u``, of second order and weighted; exchanges the halo."""
    u.exchange_halo(corners=False)
    total = level.main * u
    for axis, k in enumerate(level.faces):
        total = total + moved(k, axis) * moved(u, axis) + k * moved(u, axis, -1)
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
            ones = full(pencil, 1.0, dims=(each.dim,), dtype=real_type(spec.dtype))
            found = ones * _along(weights.astype(ones.dtype), each.dim, pencil) * found
    return found


def faces_of(
    pencil: Pencil, a: Coefficient, ends: Sequence[Ends], spec: FieldSpec
) -> list[PencilArray]:
    """Return the coefficients of low faces; see `Level`. *Collective*."""
    lower: Any
    upper: Any
    found = []
    resistance = _haloed(1 / a) if isinstance(a, PencilArray) else None
    for axis, line in enumerate(ends):
        if resistance is not None:
            low, high = _along_both(line.shares(), axis, pencil)
            lower = 1 / (resistance * low + moved(resistance, axis, -1) * (1 - low))
            upper = 1 / (resistance * (1 - high) + moved(resistance, axis) * high)
        elif isinstance(a, float):
            lower = upper = full(pencil, a, dims=(axis,))
        else:
            given = _haloed(a[axis])
            lower, upper = (moved(given, axis, step, onto=pencil) for step in (0, 1))
        weights = {"weights": weights_of(pencil, ends, spec, axis), "dtype": real_type(spec.dtype)}
        found.append(_joined(lower, upper, line.fluxes() / line.spacing, axis, **weights))
    return found


def coarse_face(fine: Level, coarse: Pencil, ends: Sequence[Ends], axis: int) -> PencilArray:
    """Return the mean of fine faces in each coarse one, for wider distances. *Collective*.

    Of the faces between two vertices the mean is that of the two between these: of the finest ones
    as for the product of transfers and operator; of others, where `GridTransfer` has weights, the
    harmonic one but for a part.
    """
    k = fine.faces[axis]
    factor, centred = coarse.coarsened[axis]
    lower, upper, ratio = k, moved(k, axis), np.ones(coarse.shape[axis] + 1)
    method: list[Any] = [None] * coarse.ndim
    if factor != 1 and centred == CELL:
        first = np.arange(fine.pencil.shape[axis]) % 2 == 0
        lower, upper = (u * _along(w, axis, coarse) for u, w in ((lower, first), (upper, ~first)))
        # Of one face, where two are averaged; a quarter, as the square of the spacing grows.
        wide, narrow = (each.fluxes() / each.spacing for each in (ends[axis], fine.ends[axis]))
        np.divide(2 * wide, narrow[::2], out=ratio, where=narrow[::2] != 0)
    elif factor != 1:
        mean = (lower + upper) / 8
        if fine.number:
            harmonic = lower * (upper / (lower + upper)) / 2
            mean = _ARITHMETIC * mean + (1 - _ARITHMETIC) * harmonic
        both = _haloed(mean)
        lower, upper = moved(both, axis, -1), moved(both, axis)
        method[axis] = "injection"
    low, high = (restrict(each, coarse, method=method) for each in (lower, upper))
    return _joined(low, high, ratio, axis, dtype=k.dtype)


def _haloed(u: PencilArray) -> PencilArray:
    """Return a copy with a halo, of which boundary points are 0. *Collective*."""
    dims = sorted(set(range(u.pencil.ndim)) - u.singletons)
    copy = zeros(u.pencil, halo=1, dims=dims, dtype=u.dtype)
    copy[...] = u
    copy.exchange_halo(corners=False)
    return copy


def _joined(
    lower: Any, upper: Any, factors: Array, axis: int, *, weights: Any = 1.0, dtype: Any
) -> PencilArray:
    """Return low faces times factors, with high ones on the wall in the halo. *Collective*."""
    low, high = _along_both(factors, axis, lower.pencil)
    k = _haloed((lower * low * weights).astype(dtype))
    if not lower.pencil.periodic[axis]:
        last = (slice(None),) * axis + (slice(-1, None),)
        moved(k, axis)[last] = (upper * high * weights)[last]
    return k


def _along_both(values: Array, axis: int, pencil: Pencil) -> tuple[Array, Array]:
    """Return what belongs to the low and to the high faces of points."""
    return _along(values[:-1], axis, pencil), _along(values[1:], axis, pencil)


def _along(values: Array, axis: int, pencil: Pencil) -> Array:
    return values.reshape([-1 if dim == axis else 1 for dim in range(pencil.ndim)])
