"""Elliptic equations with variable coefficients, by cycles over grids: `Multigrid`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf, isfinite, prod, sqrt
from typing import Any, TypeAlias, cast

import numpy as np

from pencils.array.creation import empty, zeros
from pencils.array.operands import FieldSpec, check_out, check_source, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import PreparedAgreement, agreed
from pencils.comm.recording import makes_plan
from pencils.errors import ArgumentError, ConvergenceError
from pencils.graph.fused import fused
from pencils.layout.integers import as_dim, as_int, items_of
from pencils.pencil import Pencil
from pencils.plans import Agreement, Plan
from pencils.solvers.ends import DIRICHLET, NEUMANN, PERIODIC
from pencils.solvers.result import Callback, SolverResult, attempt, history
from pencils.solvers.smoothers import (
    LINE,
    PASSES,
    RED_BLACK,
    Coefficient,
    DirectSolve,
    Level,
    Operator,
    Smoother,
    coarse_face,
    faces_of,
)
from pencils.solvers.transfer import Boundary, prolong, restrict

# The cycles on the next grid that a cycle consists of.
_CYCLES = {"V": "V", "W": "WW", "F": "FV"}
# Grids with as many points are solved directly; with up to more if they cannot be halved.
_SMALL, _MOST = 512, 1024
# Dimensions are halved together if their couplings differ by less than this factor.
_STRONG = 0.3
# Right sides of singular equations may have as large a mean, relative to their norm.
_INCOMPATIBLE = 0.01
_REAL = "iuf"

Walls: TypeAlias = "str | Sequence[str | Sequence[str]] | None"


class Multigrid(Plan[Any]):
    """Reusable plan that solves ``div(a grad u) + c u = f`` on cells. Making it is *Collective*.

    Differences are of second order: fluxes between neighbouring cells, with `a` on their faces.

    Parameters
    ----------
    pencil : Pencil
        The cells. Extents should be a small number times a power of two.
    a : number, PencilArray, or sequence of these fields, optional
        Positive: a number; or a field on `pencil`, of which faces get the harmonic mean of both
        cells; or a field on ``pencil.staggered(dim)`` for each dimension.
    c : number or PencilArray, optional
        Should not be positive: waves are not damped by smoothers, so that cycles may diverge.
    spacing : float or sequence of float, optional
        Width of the cells, for all dimensions or for each.
    boundary : str or sequence, optional
        "dirichlet" (`u` is 0 on the wall) or "neumann" (no flux), for all dimensions that are not
        periodic; or for each dimension, with "periodic" for those of the pencil, or a pair of both
        walls. Default: "dirichlet". For a value ``g`` on a wall, subtract ``2 a g / spacing**2``
        from `f` in the cells beside it; for a flux ``a du/dn = q`` outwards, ``q / spacing``.
    cycle : {"V", "W", "F"}, optional
        How often coarser grids are visited.
    smoother : {"red-black", "jacobi", "chebyshev", "line"} or callable, optional
        Gauss-Seidel for points whose indices have an even sum, then for others; weighted steps of
        Jacobi; Chebyshev polynomials of these; or weighted steps for lines along `axis`. Or a
        function ``smoother(level, u, f, reverse)`` that improves `u`, a field with a halo, in
        place; `reverse` after the coarser grid, where the adjoint is called for.
    axis : int, optional
        Dimension of the lines. It is halved last.
    pre, post : int, optional
        Smoothing steps before and after the coarser grid.
    levels : int, optional
        Number of grids at most. Default: until 512 points are left.
    operator : callable, optional
        ``operator(level, u)`` returns the field ``A u`` for a field `u` with a halo, in lines that
        `pencils.fused` takes, with any components, instead of the differences. Smoothers divide by
        the diagonal that follows from `a` and `c`.
    check : bool, optional
        Whether all ranks agree on the arguments of every call.

    Attributes
    ----------
    pencil : Pencil
        The cells.
    levels : list of Level
        The grids, the finest first, with `number`, `pencil`, `spacing`, `faces`, `diagonal`, and
        ``apply(u)``, which returns ``A u`` for a field with a halo.

    Raises
    ------
    ArgumentError, PencilMismatchError, TypeError, RankDisagreementError
        On every rank, if an argument does not fit, coefficients are not finite, `a` is not
        positive, or the extents cannot be halved often enough.

    Notes
    -----
    The method is that of Briggs, Henson and McCormick, *A Multigrid Tutorial* (2000). Right sides
    are averaged over cells and corrections are constant in them. So coefficients may jump: no
    correction is interpolated across a jump, as Alcouffe, Brandt, Dendy and Painter, SIAM J. Sci.
    Stat. Comput. 2 (1981) 430-454, avoid by weights that depend on `a`. On a coarse face, `a` is
    the mean of the fine faces in it. Along halved dimensions, this is half the product of
    transfers and operator, with which corrections would be too small: Braess, Computing 55 (1995)
    379-393.

    Cycles are symmetric, and `solve` combines them by conjugate gradients. On 128³ cells and with
    V(2,2) cycles, residuals then decrease to 0.05 in each cycle for constant `a`, and to 0.17 if it
    is 1000 in a ball and 1 elsewhere. Only dimensions of strong coupling are halved, so that point
    smoothers suit flat cells, too: 0.13 if an extent is a tenth of the others. Coefficients that
    jump from cell to cell, or at corners of a checkerboard, need more cycles. "W" makes their
    number independent of the extents, but coarse grids wait for messages more often. With "F", or
    an `operator` that is not symmetric, pass ``accelerate=False`` if residuals grow.

    If `u` is determined up to a constant (no Dirichlet walls, and `c` is 0), the mean of `f` is
    subtracted, and `u` has mean 0.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> pen = pencils.Pencil((32, 32))
    >>> f = pencils.ones(pen)
    >>> with pencils.solvers.Multigrid(pen, spacing=1 / 32) as mg:
    ...     u = mg.solve(f).solution
    >>> abs(u).max().round(3)
    np.float64(0.074)
    """

    @makes_plan
    def __init__(
        self,
        pencil: Pencil,
        a: Coefficient = 1.0,
        c: float | PencilArray = 0.0,
        *,
        spacing: float | Sequence[float] = 1.0,
        boundary: Walls = None,
        cycle: str = "V",
        smoother: str | Smoother = RED_BLACK,
        axis: int | None = None,
        pre: int = 2,
        post: int = 2,
        levels: int | None = None,
        operator: Operator | None = None,
        check: bool = True,
    ) -> None:
        with agreed(topology_among(pencil).comm, "Multigrid") as agree:
            check_type("pencil", pencil, Pencil)
            if not prod(pencil.shape):
                raise ArgumentError(f"a grid of shape {pencil.shape} has no cells to solve for")
            widths = _read_spacing(spacing, pencil.ndim)
            walls = _read_walls(boundary, pencil)
            self._cycle, self._smoother, self._axis = _read_cycle(cycle, smoother, axis, pencil)
            self._steps = as_int("pre", pre, least=0), as_int("post", post, least=0)
            if not any(self._steps):
                raise ArgumentError("pre=0 and post=0: one of them must be at least 1")
            most = None if levels is None else as_int("levels", levels, least=1)
            kinds = [_kind(a, pencil, several=True), _kind(c, pencil)]
            agree(pencil=pencil, spacing=widths, boundary=walls, cycle=cycle, pre=pre, post=post)
            agree(smoother=self._smoother if isinstance(smoother, str) else "", axis=self._axis)
            agree(levels=most, coefficients=kinds, check=bool(check), operator=operator is None)
        a, c = _checked(pencil, a, c)
        self.pencil, self._widths, self._walls = pencil, widths, walls
        self.levels = self._make_levels(a, c, most)
        self._meeting = PreparedAgreement(pencil.topology.comm, "a function passed to Multigrid")
        if not isinstance(smoother, str):
            smoother = partial(attempt, self._meeting, smoother)
        try:
            for level in self.levels:
                level.prepare(operator, smoother, self._axis, last=level is self.levels[-1])
            self._direct = DirectSolve(self.levels[-1])
        except BaseException:
            self._release()
            raise
        self._advance, self._update = fused(self._advanced), fused(_updated)
        super().__init__(pencil.topology, check=bool(check))

    def __call__(self, f: PencilArray, out: PencilArray | None = None) -> PencilArray:
        """Do one cycle for a right side, from 0 on. *Collective*.

        It is linear and symmetric: a preconditioner.

        Parameters
        ----------
        f : PencilArray
            The right side, of float64 numbers; a halo is ignored.
        out : PencilArray, optional
            Field to fill, which may be `f`; default: a new one without halo.

        Returns
        -------
        PencilArray
            `out`, an approximate solution.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            If a field does not fit the plan; on every rank, unless the plan does not check.
        """
        out = self._prepare("__call__", partial(self._bind, f, out))
        out[...] = self._visit(0, f, self._cycle, start=True)
        return out

    apply = __call__

    def solve(
        self,
        f: PencilArray,
        out: PencilArray | None = None,
        *,
        rtol: float = 1e-8,
        maxiter: int = 50,
        full: bool = False,
        accelerate: bool = True,
        callback: Callback | None = None,
        progress: bool = True,
    ) -> SolverResult:
        """Solve by as many cycles as needed. *Collective*.

        Parameters
        ----------
        f : PencilArray
            The right side, of float64 numbers; a halo is ignored.
        out : PencilArray, optional
            Field to fill, which may be `f`; default: a new one without halo.
        rtol : float, optional
            The norm of the residual is to be at most as large, relative to that of `f`.
        maxiter : int, optional
            Number of cycles at most.
        full : bool, optional
            Whether to begin with the solution of the coarsest grid, improved by one cycle on each
            finer one (full multigrid), instead of 0. Its error is about that of the differences.
        accelerate : bool, optional
            Whether cycles are combined by conjugate gradients.
        callback : callable, optional
            Called as ``callback(cycles, residual)`` after each cycle, on all ranks.
        progress : bool, optional
            Whether rank 0 shows on its terminal how far it has come.

        Returns
        -------
        SolverResult
            Solution, history of residuals, and whether it has converged: as by `cg`, nothing is
            raised after `maxiter` cycles. ``mg.solve(f).check()`` raises, or returns the solution.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            If an argument does not fit; on every rank, unless the plan does not check.
        ConvergenceError
            On every rank, if residuals grow; or if `u` is determined up to a constant, and the mean
            of `f` is more than 0.01 of its norm.
        """

        def bind(agree: Agreement) -> PencilArray:
            numbers = float(rtol), as_int("maxiter", maxiter, least=0)
            if not 0 <= numbers[0] < inf:
                raise ArgumentError(f"rtol={rtol!r} must be a positive number, such as 1e-8")
            agree(rtol=numbers[0], maxiter=numbers[1], accelerate=bool(accelerate), full=bool(full))
            return self._bind(f, out, agree)

        u = self._prepare("solve", bind)
        r = self._right_side(f)
        target = rtol * sqrt((r * r).sum())
        if full:
            u[...] = self._nest(r)
            self.levels[0].residual(self.levels[0].u, r, out=r)
        else:
            u.fill(0)
        with history("Multigrid", self.pencil.rank, target, maxiter, progress=progress) as past:
            for number, residual in enumerate(self._iterate(u, r, accelerate=accelerate)):
                if number:  # ranks may have no callback
                    attempt(self._meeting, callback, number, residual)
                if past.add(residual):
                    break
            result = past.result(u)
        if self._direct.singular:
            u -= u.mean()
        return result

    def _iterate(self, u: PencilArray, r: PencilArray, *, accelerate: bool) -> Any:
        """Improve a solution, of which `r` is the residual; yield its norm after each cycle.

        Cycles are added as they are, or combined by conjugate gradients. *Collective*.
        """
        p, q = zeros(self.pencil, halo=1), empty(self.pencil)
        alpha, beta, before = 1.0, 0.0, 0.0
        yield sqrt((r * r).sum())
        while True:
            z = self._visit(0, r, self._cycle, start=True)
            if accelerate:
                product = float((z * r).sum())
                beta, before = product / before if before else 0.0, product
            curvature = float(self._advance(p, z, q, beta))
            if accelerate and curvature:
                alpha = before / curvature
                if alpha <= 0 or not isfinite(alpha):
                    raise ConvergenceError(
                        f"cycles are not definite: step {alpha:.3g} of conjugate gradients. Use "
                        "accelerate=False if the operator or smoother is not symmetric; c may be "
                        "too large, or coefficients are not finite"
                    )
            yield sqrt(self._update(u, r, p, q, alpha))

    def _advanced(self, p: PencilArray, z: PencilArray, q: PencilArray, beta: float) -> PencilArray:
        """Set the direction and what the operator makes of it; return their product."""
        p *= beta
        p += z
        q[...] = self.levels[0].operator(p)
        product: PencilArray = (p * q).sum()
        return product

    def _right_side(self, f: PencilArray) -> PencilArray:
        """Copy a right side, without its mean if equations are singular. *Collective*."""
        r = f.copy()
        if not (r * r).sum() and abs(r).max(initial=0):
            raise ConvergenceError("squares of the numbers of f underflow; scale it")
        if self._direct.singular:
            mean, norm = float(r.mean()), sqrt((r * r).mean())
            if abs(mean) > _INCOMPATIBLE * norm:
                raise ConvergenceError(
                    f"the mean of f is {mean:.3g}, of norm {norm:.3g}: without Dirichlet walls, "
                    "and with c=0, there is no solution unless it is 0; subtract f.mean(), or "
                    "correct the fluxes through walls"
                )
            r -= mean
        return r

    def _bind(self, f: Any, out: PencilArray | None, _: Agreement) -> PencilArray:
        """Check the fields of a call; return the one to fill."""
        spec = FieldSpec(np.dtype(float), (), frozenset())
        check_source(f, self.pencil, spec, "f")
        check_out(out, self.pencil, spec)
        return PencilArray.allocated(self.pencil, *spec) if out is None else out

    def _visit(self, number: int, f: PencilArray, cycle: str, *, start: bool) -> PencilArray:
        """Do a cycle from one grid on, and return the solution there. *Collective*."""
        level, (pre, post) = self.levels[number], self._steps
        if number == len(self.levels) - 1:
            return self._direct(f)
        level.smooth(f, pre, reverse=False, start=start)
        coarse = self.levels[number + 1]
        level.residual(level.u, f, out=level.r)
        restrict(level.r, coarse.pencil, method="average", out=coarse.f)
        is_last = number == len(self.levels) - 2
        for visit, kind in enumerate("V" if is_last else _CYCLES[cycle]):
            self._visit(number + 1, coarse.f, kind, start=visit == 0)
        prolong(coarse.u, level.pencil, method="constant", out=level.u, add=True)
        level.smooth(f, post, reverse=True, start=False)
        return level.u

    def _nest(self, f: PencilArray) -> PencilArray:
        """Solve on the coarsest grid, and do a cycle on each finer one. *Collective*."""
        sides = [f, *(level.f for level in self.levels[1:])]
        for level, fine, coarse in zip(self.levels[1:], sides, sides[1:], strict=False):
            restrict(fine, level.pencil, method="average", out=coarse)
        found = self._direct(sides[-1])
        boundary: list[Boundary] = ["odd" if DIRICHLET in each else "edge" for each in self._walls]
        for number in range(len(self.levels) - 2, -1, -1):
            level = self.levels[number]
            prolong(found, level.pencil, boundary=boundary, out=level.u)
            found = self._visit(number, sides[number], self._cycle, start=False)
        return found

    def _make_levels(self, a: Coefficient, c: Any, most: int | None) -> list[Level]:
        """Halve the grid until it is small. *Collective*."""
        spacing, pencil = self._widths, self.pencil
        made = [Level(0, pencil, spacing, faces_of(pencil, a, spacing, self._walls), c)]
        while (points := prod(pencil.shape)) > _SMALL and (most is None or len(made) < most):
            factors = _factors(pencil.shape, spacing, self._axis)
            if max(factors) == 1:
                break
            pencil = pencil.coarsen(factors)
            spacing = tuple(h * factor for h, factor in zip(spacing, factors, strict=True))
            if isinstance(a, float):
                faces = faces_of(pencil, a, spacing, self._walls)
            else:
                faces = [coarse_face(made[-1], pencil, dim) for dim in range(pencil.ndim)]
            c = restrict(c, pencil, method="average") if isinstance(c, PencilArray) else c
            made.append(Level(len(made), pencil, spacing, faces, c))
        if points > _MOST:
            raise ArgumentError(_too_large(self.pencil.shape, pencil.shape, most))
        return made

    def _describe(self) -> str:
        pre, post = self._steps
        name = self._smoother if isinstance(self._smoother, str) else "custom"
        text = f"<Multigrid of {self._cycle}({pre},{post}) cycles, {name} smoother"
        grids = " to ".join(map(str, dict.fromkeys(each.pencil.shape for each in self.levels)))
        if name in PASSES and len(self.levels) > 1:
            passes = PASSES[name] * (pre + post) + 3
            text += f", {passes} passes over the finest grid for each cycle"
        return f"{text}\n  {grids}\n  on {self.pencil!r}>"

    def _release(self) -> None:
        for level in self.levels:
            level.free()


def _updated(
    u: PencilArray, r: PencilArray, p: PencilArray, q: PencilArray, alpha: float
) -> PencilArray:
    """Do a step of a solution and its residual; return the square of the residual's norm."""
    u += alpha * p
    r -= alpha * q
    square: PencilArray = (r * r).sum()
    return square


def _read_spacing(spacing: Any, ndim: int) -> tuple[float, ...]:
    widths: list[Any] = items_of(spacing)
    if len(widths) not in {1, ndim} or not all(_is_number(each) and each > 0 for each in widths):
        raise ArgumentError(
            f"spacing={spacing!r} must be a positive number, or one for each of {ndim} dimensions"
        )
    return tuple(map(float, widths * (ndim // len(widths))))


def _read_walls(boundary: Any, pencil: Pencil) -> list[tuple[str, str]]:
    """Read what is given at the walls: a pair for each dimension."""
    if boundary is None or isinstance(boundary, str):
        name = boundary or DIRICHLET
        boundary = [PERIODIC if wraps else name for wraps in pencil.periodic]
    pairs = [tuple(items_of(each)) for each in items_of(boundary)]
    pairs = [each * 2 if len(each) == 1 else each for each in pairs]
    found = [
        each == (PERIODIC, PERIODIC)
        if wraps
        else all(wall in [DIRICHLET, NEUMANN] for wall in each)
        for each, wraps in zip(pairs, pencil.periodic, strict=False)
    ]
    if len(pairs) != pencil.ndim or not all(found) or any(len(each) != 2 for each in pairs):  # noqa: PLR2004
        raise ArgumentError(
            f"boundary={boundary!r} must be 'dirichlet' or 'neumann', or one of these for each of "
            f"{pencil.ndim} dimensions, or a pair of both walls; and 'periodic' for the dimensions "
            f"that are periodic in the pencil: {pencil.periodic}"
        )
    return cast("list[tuple[str, str]]", pairs)


def _read_cycle(cycle: Any, smoother: Any, axis: Any, pencil: Pencil) -> tuple[str, Any, Any]:
    if cycle not in list(_CYCLES):
        raise ArgumentError(f"cycle={cycle!r} must be one of {', '.join(_CYCLES)}")
    if not callable(smoother) and smoother not in list(PASSES):
        raise ArgumentError(f"smoother={smoother!r} must be a function, or {', '.join(PASSES)}")
    if (axis is None) == (smoother == LINE):
        raise ArgumentError(
            f"axis={axis!r} is the dimension of lines: it goes with smoother='line', and only then"
        )
    return cycle, smoother, None if axis is None else as_dim("axis", axis, pencil.ndim)


def _is_number(value: object) -> bool:
    array = np.asarray(value)
    return array.ndim == 0 and array.dtype.kind in _REAL and bool(np.isfinite(array))


def _kind(value: Any, pencil: Pencil, *, several: bool = False) -> object:
    """Check the type of a coefficient; return what ranks must agree on."""
    faces = several and isinstance(value, list | tuple) and len(value) == pencil.ndim
    if faces and all(isinstance(each, PencilArray) for each in value):
        return [_kind(each, pencil) for each in value]
    name = "a" if several else "c"
    if isinstance(value, PencilArray):
        if value.dtype.kind not in _REAL:
            raise TypeError(f"{name} has dtype {value.dtype}; it must be real numbers")
        return value.pencil
    if isinstance(value, list | tuple) or not _is_number(value) or (several and value <= 0):
        raise ArgumentError(
            f"{name}={value!r} must be a {'positive ' * several}number or a field"
            f"{', or a field on the faces of each dimension' * several}"
        )
    return float(value)


def _checked(pencil: Pencil, a: Any, c: Any) -> tuple[Any, Any]:
    """Check the fields among coefficients, and their values. *Collective*."""
    faces = isinstance(a, list | tuple)
    places = [pencil.staggered(dim) for dim in range(pencil.ndim)] if faces else [pencil]
    given = [("a", each, place) for each, place in zip(a if faces else [a], places, strict=True)]
    given = [each for each in [*given, ("c", c, pencil)] if isinstance(each[1], PencilArray)]
    with agreed(pencil.topology.comm, "Multigrid"):
        for name, u, place in given:
            check_source(u, place, FieldSpec(u.dtype, (), frozenset()), name)
    for name, u, _ in given:
        low, high = float(u.min()), float(u.max())
        if not (isfinite(low) and isfinite(high)) or (name == "a" and low <= 0):
            sign = "positive" if name == "a" else "finite"
            raise ArgumentError(f"{name} has values from {low} to {high}; they must be {sign}")
    a = list(a) if faces else a if isinstance(a, PencilArray) else float(a)
    return a, c if isinstance(c, PencilArray) else float(c)


def _factors(shape: Sequence[int], spacing: Sequence[float], axis: int | None) -> list[int]:
    """Tell which dimensions to halve: even ones of strong coupling, that of lines last."""
    even = [n % 2 == 0 and n > 2 for n in shape]  # noqa: PLR2004
    if axis is not None and any(each for dim, each in enumerate(even) if dim != axis):
        even[axis] = False
    strong = [is_even / h**2 for is_even, h in zip(even, spacing, strict=True)]
    return [1 + (each > 0 and each >= _STRONG * max(strong)) for each in strong]


def _too_large(shape: Sequence[int], reached: Sequence[int], levels: int | None) -> str:
    text = f"the grid {tuple(shape)} was halved to {tuple(reached)}, which is more than {_MOST}"
    text += " points, too many for a direct solve. "
    if levels is not None:
        return f"{text}levels={levels} must be larger"
    good = [
        min((m << k for k in range(32) for m in (1, 3, 5)), key=lambda n: abs(n - x)) for x in shape
    ]
    return f"{text}Use extents of a small number times a power of two, such as {tuple(good)}"
