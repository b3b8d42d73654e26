"""Elliptic equations with variable coefficients, by cycles over grids: `Multigrid`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf, isfinite, prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import Array, as_components
from pencils.array.creation import empty, zeros
from pencils.array.operands import FieldSpec, check_out, check_source, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import PreparedAgreement, agreed
from pencils.comm.recording import makes_plan
from pencils.errors import ArgumentError, ConvergenceError
from pencils.graph.fused import fused
from pencils.layout.integers import as_dims, as_int
from pencils.layout.levels import CELL, LEAST
from pencils.pencil import Pencil
from pencils.plans import Agreement, Plan
from pencils.solvers.ends import DIRICHLET, PERIODIC, Boundary, Ends, Spacing, as_ends, as_type
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
    per,
    weights_of,
)
from pencils.solvers.transfer import prolong, restrict

# The cycles on the next grid that a cycle consists of.
_CYCLES = {"V": "V", "W": "WW", "F": "FV"}
# Grids with as many points are solved directly; with up to more if they cannot be halved.
_SMALL, _MOST = 512, 1024
# Dimensions are halved together if their couplings differ by less than this factor.
_STRONG = 0.3
# Right sides of singular equations may have as large a mean, relative to their norm.
_INCOMPATIBLE = 0.01
# Residuals follow from recurrences until they have decreased so far, in roundings.
_DIGITS = 64
_REAL = "iuf"


class Multigrid(Plan[Any]):
    """Reusable plan that solves ``div(a grad u) + c u = f``. Making it is *Collective*.

    Differences are fluxes between neighbouring points, with `a` on the faces between them. They are
    of second order, also on smoothly stretched grids.

    Parameters
    ----------
    pencil : Pencil
        The points. The number of intervals along a dimension should be a small number times a power
        of two: that of cells, or of distances between vertices, those to walls included.
    a : number, PencilArray, or sequence of these fields, optional
        Positive: a number; or a field on `pencil`, of which faces get the harmonic mean of both
        points; or a field on ``pencil.staggered(dim)`` for each dimension: its point ``i`` is the
        face before point ``i``. Those behind walls without flux are not used.
    c : number or PencilArray, optional
        Should not be positive: waves are not damped by smoothers, so that cycles may diverge.
    spacing : float, or sequence with one entry for each dimension, optional
        The distance of points, or coordinates of faces or vertices, as for `Poisson`, but along any
        number of dimensions.
    boundary : str, or sequence with one entry for each dimension, optional
        "dirichlet" (`u` is 0 on the wall) or "neumann" (no flux), for all dimensions that are not
        periodic; or for each dimension, with "periodic" for those of the pencil, or a pair of both
        walls. Default: "dirichlet". For a value ``g`` on a wall, subtract ``2 a g / spacing**2``
        from `f` in the cells beside it, ``a g / spacing**2`` from vertices beside it; for a flux
        ``a du/dn = q`` outwards, ``q / spacing`` in cells, ``2 q / spacing`` in vertices.
    centred : {"cell", "vertex"}, or sequence with one entry for each dimension, optional
        Where points are, as for `Poisson`: vertices on "dirichlet" walls do not belong to the
        pencil, those on "neumann" walls do.
    cycle : {"V", "W", "F"}, optional
        How often coarser grids are visited.
    smoother : {"red-black", "jacobi", "chebyshev", "line"} or callable, optional
        Gauss-Seidel for points whose indices have an even sum, then for others; weighted steps of
        Jacobi; Chebyshev polynomials of these; or weighted steps for lines along `axis`. Default:
        "line" if there are dimensions of unequal distances, "red-black" if there are none. Or a
        function ``smoother(level, u, f, reverse)`` that improves `u`, a field with a halo, in
        place; `reverse` after the coarser grid, where the adjoint is called for.
    axis : int or sequence of int, optional
        Dimension of the lines; or several, with steps for each in turn. They are halved last.
        Default: all dimensions of unequal distances.
    pre, post : int, optional
        Smoothing steps before and after the coarser grid.
    levels : int, optional
        Number of grids at most. Default: until 512 points are left.
    operator : callable, optional
        ``operator(level, u)`` returns the field ``A u`` for a field `u` with a halo, in lines that
        `pencils.fused` takes, with any components, instead of the differences. Smoothers divide by
        the diagonal that follows from `a` and `c`.
    dtype : dtype, optional
        Type of right sides and solutions: float or complex, of single or double precision.
    components : int or sequence of int, optional
        Shape of the component axes. Each component has equations of its own; all are solved in one
        go, until each has converged.
    check : bool, optional
        Whether all ranks agree on the arguments of every call.

    Attributes
    ----------
    pencil : Pencil
        The points.
    levels : list of Level
        The grids, the finest first, with `number`, `pencil`, `spacing` (mean distances), `weights`
        (volumes of points in units of these), `faces`, `diagonal`, and ``apply(u)``, which returns
        ``A u`` for a field with a halo, of which boundary points are 0.

    Raises
    ------
    ArgumentError, PencilMismatchError, TypeError, RankDisagreementError
        On every rank, if an argument does not fit, coefficients are not finite, `a` is not
        positive, or the extents cannot be halved often enough.

    Notes
    -----
    The method is that of Briggs, Henson and McCormick, *A Multigrid Tutorial* (2000). Right sides
    are averaged over cells and corrections are constant in them. So coefficients may jump there: no
    correction is interpolated across a jump, as Alcouffe, Brandt, Dendy and Painter, SIAM J. Sci.
    Stat. Comput. 2 (1981) 430-454, avoid by weights that depend on `a`. On a coarse face, `a` is
    the mean of the fine faces in it. Along halved dimensions, this is half the product of
    transfers and operator, with which corrections would be too small: Braess, Computing 55 (1995)
    379-393. Between vertices, corrections are linear, and averages are weighted accordingly.

    Equations are multiplied by the volumes of points. Then cycles are symmetric, and `solve`
    combines them by conjugate gradients. On 128³ cells and with V(2,2) cycles, residuals then
    decrease to 0.05 in each cycle for constant `a`, and to 0.17 if it is 1000 in a ball and 1
    elsewhere; on 32³ vertices to 0.05 and 0.3. If distances along one dimension have a ratio of 50,
    lines give 0.11 on 96³ cells and 0.05 on vertices; on 32³ cells 0.09, and point smoothers 0.35.
    Only dimensions of strong coupling are halved, so that point smoothers suit flat cells, too:
    0.13 if an extent is a tenth of the others. Coefficients that jump from cell to cell, or at
    corners of a checkerboard, need more cycles. "W" makes their number independent of the extents,
    but coarse grids wait for messages more often. With "F", or an `operator` that is not symmetric,
    pass ``accelerate=False`` if residuals grow.

    If `u` is determined up to a constant (no Dirichlet walls, and `c` is 0), the mean of `f` is
    subtracted, and `u` has mean 0. Means, and norms of residuals, weigh points by their volumes.

    Before `solve` returns, it computes the residual from the solution. Where this is too large, as
    recurrences have lost digits, it goes on from there. It stops without success where rounding
    allows no smaller residual: with single precision on fine grids, 1e-3 of the right side.

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
        spacing: Spacing = 1.0,
        boundary: Boundary | None = None,
        centred: str | Sequence[str] = CELL,
        cycle: str = "V",
        smoother: str | Smoother | None = None,
        axis: int | Sequence[int] | None = None,
        pre: int = 2,
        post: int = 2,
        levels: int | None = None,
        operator: Operator | None = None,
        dtype: DTypeLike = float,
        components: int | Sequence[int] = (),
        check: bool = True,
    ) -> None:
        with agreed(topology_among(pencil).comm, "Multigrid") as agree:
            check_type("pencil", pencil, Pencil)
            if not prod(pencil.shape):
                raise ArgumentError(f"a grid of shape {pencil.shape} has no points to solve for")
            ends = _read_ends(pencil, spacing, boundary, centred)
            self._spec = FieldSpec(as_type(dtype), as_components(components), frozenset())
            self._cycle, smoother, self._axes = _read_cycle(cycle, smoother, axis, ends)
            self._steps = as_int("pre", pre, least=0), as_int("post", post, least=0)
            if not any(self._steps):
                raise ArgumentError("pre=0 and post=0: one of them must be at least 1")
            most = None if levels is None else as_int("levels", levels, least=1)
            kinds = [_kind(a, pencil, several=True), _kind(c, pencil)]
            agree(pencil=pencil, ends=[tuple(each) for each in ends], **self._spec.signature)
            self._name = smoother if isinstance(smoother, str) else "custom"
            agree(smoother=self._name, axis=self._axes, cycle=cycle, pre=pre, post=post)
            agree(levels=most, coefficients=kinds, check=bool(check), operator=operator is None)
        a, c = _checked(pencil, a, c)
        self.pencil, self._ends = pencil, ends
        self._total = prod(float(each.volumes().sum()) / each.spacing for each in ends)
        lead = len(self._spec.components)
        self._space = tuple(range(lead, lead + pencil.ndim))
        self._kind: Any = {"dtype": self._spec.dtype, "components": self._spec.components}
        self.levels = self._make_levels(a, c, most)
        self._meeting = PreparedAgreement(pencil.topology.comm, "a function passed to Multigrid")
        if not isinstance(smoother, str):
            smoother = partial(attempt, self._meeting, smoother)
        try:
            for level in self.levels:
                level.prepare(operator, smoother, self._axes, last=level is self.levels[-1])
            self._direct = DirectSolve(self.levels[-1], self._meeting)
        except BaseException:
            self._release()
            raise
        self._advance, self._update = fused(self._advanced), fused(self._updated)
        weights = self.levels[0].weights  # norms of residuals weigh points by their volumes
        self._product, self._square = fused(self._dot), fused(lambda r: self._dot(r, r, weights))
        super().__init__(pencil.topology, check=bool(check))

    def __call__(self, f: PencilArray, out: PencilArray | None = None) -> PencilArray:
        """Do one cycle for a right side, from 0 on. *Collective*.

        It is linear, and symmetric if all points have the same volume: a preconditioner. Otherwise
        ``mg(f / mg.levels[0].weights)`` is symmetric, as ``weights * apply(u)`` is.

        Parameters
        ----------
        f : PencilArray
            The right side, with the dtype and components of the plan; a halo is ignored.
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
        weights = self.levels[0].weights
        f = f if isinstance(weights, float) else f * weights
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
        start: PencilArray | None = None,
        full: bool = False,
        accelerate: bool = True,
        callback: Callback | None = None,
        progress: bool = True,
    ) -> SolverResult:
        """Solve by as many cycles as needed. *Collective*.

        Parameters
        ----------
        f : PencilArray
            The right side, with the dtype and components of the plan; a halo is ignored.
        out : PencilArray, optional
            Field to fill, which may be `f`; default: a new one without halo.
        rtol : float, optional
            The norm of the residual is to be at most as large, relative to that of `f`; for each
            component.
        maxiter : int, optional
            Number of cycles at most.
        start : PencilArray, optional
            Field to begin with, which may be `out`, instead of 0.
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
            raised after `maxiter` cycles, or where rounding allows no smaller residual.
            ``mg.solve(f).check()`` raises, or returns the solution. Of components, residuals are
            those of the worst one relative to its right side, times the norm of the largest.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            If an argument does not fit; on every rank, unless the plan does not check.
        ConvergenceError
            On every rank, if residuals grow; if `u` is determined up to a constant, and the mean of
            `f` is more than 0.01 of its norm; if numbers of `f` are not finite, or their squares
            overflow or underflow.
        """

        def bind(agree: Agreement) -> PencilArray:
            numbers = float(rtol), as_int("maxiter", maxiter, least=0)
            if not 0 <= numbers[0] < inf:
                raise ArgumentError(f"rtol={rtol!r} must be a positive number, such as 1e-8")
            if full and start is not None:
                raise ArgumentError("full=True begins on the coarsest grid: it takes no start")
            if start is not None:
                check_source(start, self.pencil, self._spec, "start")
            agree(rtol=numbers[0], maxiter=numbers[1], accelerate=bool(accelerate), full=bool(full))
            agree(start=start is None)
            return self._bind(f, out, agree)

        u = self._prepare("solve", bind)
        right, sizes = self._right_side(f)
        r, level = right.copy(), self.levels[0]
        if full or start is not None:
            # Solutions are 0 where right sides are.
            first = self._nest(right) if start is None else start * self._factor(1.0 * (sizes > 0))
            u[...] = level.u[...] = first
            level.residual(level.u, right, out=r)
        else:
            u.fill(0)
        target = rtol * float(sizes.max())
        reason = f"{self._spec.dtype} allows no smaller residual than rounding"
        with history("Multigrid", self.pencil.rank, target, maxiter, progress=progress) as past:
            steps = self._iterate(u, r, right, sizes, target, accelerate=accelerate)
            for number, residual in enumerate(steps):
                if number:  # ranks may have no callback
                    attempt(self._meeting, callback, number, residual)
                if past.add(residual):
                    reason = ""
                    break
            result = past.result(u, reason)
        if self._direct.singular:
            u -= self._mean(u * level.weights)
        return result

    def _iterate(
        self,
        u: PencilArray,
        r: PencilArray,
        right: PencilArray,
        sizes: Array,
        target: float,
        *,
        accelerate: bool,
    ) -> Iterator[float]:
        """Improve a solution, of which `r` is the residual; yield its norm after each cycle.

        The norm is that of the worst component, relative to that of its right side in `sizes`.
        Residuals follow from recurrences. Where these have used up their digits, residuals are
        computed anew, and the solution is improved again, as long as that helps. *Collective*.
        """
        level, rounding = self.levels[0], _DIGITS * np.finfo(self._spec.dtype).eps
        last, residual = inf, _worst(self._square(r), sizes)
        if not isfinite(residual):
            raise ConvergenceError(
                f"the first residual is {residual}: numbers of start or of the operator are not "
                "finite, or so large that squares overflow"
            )
        yield residual
        while residual <= last / 2:
            last, least = residual, max(target, rounding * residual)
            for squares in self._combine(u, r, np.zeros_like(sizes), accelerate=accelerate):
                residual = _worst(squares, sizes)
                if residual <= least:
                    break
                yield residual
            level.u[...] = u
            level.residual(level.u, right, out=r)
            residual = _worst(self._square(r), sizes)
            yield residual

    def _combine(
        self, u: PencilArray, r: PencilArray, before: Array, *, accelerate: bool
    ) -> Iterator[Any]:
        """Add cycles as they are, or by conjugate gradients; yield squares of residuals.

        Each component has steps of its own; products `before` are 0. *Collective*.
        """
        p, q = zeros(self.pencil, halo=1, **self._kind), empty(self.pencil, **self._kind)
        alpha, beta = np.ones_like(before), before
        while True:
            z = self._visit(0, r, self._cycle, start=True)
            if accelerate:
                product = _numbers(self._product(z, r))
                beta, before = _ratio(product, before), product
            curvature = _numbers(self._advance(p, z, q, self._factor(beta)))
            if accelerate:
                alpha = _ratio(before, curvature)
                wrong = ~np.isfinite(alpha) | (alpha < 0)
                if wrong.any():
                    raise ConvergenceError(
                        f"cycles are not definite: step {alpha[wrong][0]:.3g} of conjugate "
                        "gradients. Use accelerate=False if the operator or smoother is not "
                        "symmetric; c may be too large, or coefficients are not finite"
                    )
            yield self._update(u, r, p, q, self._factor(alpha))

    def _factor(self, values: Array) -> Any:
        """Return numbers in a form that multiplies fields of any precision."""
        return values.astype(self.levels[0].main.dtype) if values.ndim else float(values)

    def _advanced(self, p: PencilArray, z: PencilArray, q: PencilArray, beta: Any) -> PencilArray:
        """Set the direction and what the operator makes of it; return their product."""
        p *= beta
        p += z
        q[...] = self.levels[0].operator(p)
        return self._dot(p, q)

    def _updated(
        self, u: PencilArray, r: PencilArray, p: PencilArray, q: PencilArray, alpha: Any
    ) -> PencilArray:
        """Do a step of a solution and its residual; return the square of the residual's norm."""
        u += alpha * p
        r -= alpha * q
        return self._dot(r, r, self.levels[0].weights)

    def _dot(self, p: PencilArray, q: PencilArray, weights: Any = 1.0) -> PencilArray:
        """Return products of fields, one for each component."""
        products = np.real(np.conj(p) * q) if self._spec.dtype.kind == "c" else p * q
        products = per(products, weights)
        return products.sum(axis=self._space if self._spec.components else None)

    def _mean(self, weighted: PencilArray) -> PencilArray:
        """Return means of components, of numbers times weights. *Collective*."""
        sums: PencilArray = weighted.sum(axis=self._space)
        return sums / self._total

    def _right_side(self, f: PencilArray) -> tuple[PencilArray, Array]:
        """Weight a right side, without its mean if equations are singular; and its norms.

        *Collective*.
        """
        weights = self.levels[0].weights
        right = empty(self.pencil, **self._kind)
        right[...] = f * weights
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            sizes = np.sqrt(_numbers(self._square(right)))
        if not (np.isfinite(sizes) & (sizes > 0)).all():
            peaks = _numbers(abs(right).max(axis=self._space)).reshape(sizes.shape)
            lost = ~np.isfinite(sizes) | (sizes == 0) & (peaks != 0)
            peak = float(np.max(peaks, where=lost, initial=0.0))
            if not isfinite(peak):
                raise ConvergenceError(f"f has numbers that are not finite, such as {peak}")
            if lost.any():
                how = "overflow" if peak > 1 else "underflow"
                raise ConvergenceError(
                    f"squares of the numbers of f {how}: the largest one is {peak:.3g}; scale f"
                )
        if self._direct.singular:
            mean = self._mean(right)
            means, norms = _numbers(abs(mean)).reshape(sizes.shape), sizes / self._total**0.5
            if (means > _INCOMPATIBLE * norms).any():
                raise ConvergenceError(
                    f"the mean of f is {means.max():.3g}, of norm {norms.max():.3g}: without "
                    "Dirichlet walls, and with c=0, there is no solution unless it is 0; subtract "
                    "f.mean(), weighted by volumes, or correct the fluxes through walls"
                )
            right -= mean * weights
        return right, sizes

    def _bind(self, f: Any, out: PencilArray | None, _: Agreement) -> PencilArray:
        """Check the fields of a call; return the one to fill."""
        check_source(f, self.pencil, self._spec, "f")
        check_out(out, self.pencil, self._spec)
        return PencilArray.allocated(self.pencil, *self._spec) if out is None else out

    def _visit(self, number: int, f: PencilArray, cycle: str, *, start: bool) -> PencilArray:
        """Do a cycle from one grid on, and return the solution there. *Collective*."""
        level, (pre, post) = self.levels[number], self._steps
        if number == len(self.levels) - 1:
            return self._direct(f)
        level.smooth(f, pre, reverse=False, start=start)
        coarse = self.levels[number + 1]
        level.residual(level.u, f, out=level.r)
        restrict(level.r, coarse.pencil, out=coarse.f)
        is_last = number == len(self.levels) - 2
        for visit, kind in enumerate("V" if is_last else _CYCLES[cycle]):
            self._visit(number + 1, coarse.f, kind, start=visit == 0)
        prolong(coarse.u, level.pencil, method=None, out=level.u, add=True)
        level.smooth(f, post, reverse=True, start=False)
        return level.u

    def _nest(self, f: PencilArray) -> PencilArray:
        """Solve on the coarsest grid, and do a cycle on each finer one. *Collective*."""
        sides = [f, *(level.f for level in self.levels[1:])]
        for level, fine, coarse in zip(self.levels[1:], sides, sides[1:], strict=False):
            restrict(fine, level.pencil, out=coarse)
        found = self._direct(sides[-1])
        boundary: list[Any] = ["edge" if each.is_free else "odd" for each in self._ends]
        for number in range(len(self.levels) - 2, -1, -1):
            level = self.levels[number]
            prolong(found, level.pencil, boundary=boundary, out=level.u)
            found = self._visit(number, sides[number], self._cycle, start=False)
        return found

    def _make_levels(self, a: Coefficient, c: Any, most: int | None) -> list[Level]:
        """Halve the grid until it is small. *Collective*."""
        ends, pencil, spec = self._ends, self.pencil, self._spec
        c = c * weights_of(pencil, ends, spec)
        made = [Level(0, pencil, ends, faces_of(pencil, a, ends, spec), c, spec=spec)]
        while (points := prod(pencil.shape)) > _SMALL and (most is None or len(made) < most):
            factors = _factors(ends, self._axes)
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
            made.append(Level(len(made), pencil, ends, faces, c, spec=spec))
        if points > _MOST:
            raise ArgumentError(_too_large(self._ends, pencil.shape, most))
        return made

    def _describe(self) -> str:
        pre, post = self._steps
        text = f"<Multigrid of {self._cycle}({pre},{post}) cycles, {self._name} smoother"
        grids = " to ".join(map(str, dict.fromkeys(each.pencil.shape for each in self.levels)))
        if self._name in PASSES and len(self.levels) > 1:
            passes = PASSES[self._name] * (pre + post) + 3
            text += f", {passes} passes over the finest grid for each cycle"
        return f"{text}\n  {grids}\n  on {self.pencil!r}>"

    def _release(self) -> None:
        for level in self.levels:
            level.free()


def _numbers(values: Any) -> Array:
    """Return sums as double numbers: of components, or the only one."""
    return np.asarray(values.local if isinstance(values, PencilArray) else values, dtype=float)


def _ratio(values: Array, others: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.divide(values, others, out=np.zeros_like(values), where=others != 0)


def _worst(squares: Any, sizes: Array) -> float:
    """Return the norm of the component whose one is largest, relative to its size."""
    return float(_ratio(np.sqrt(_numbers(squares)), sizes).max() * sizes.max())


def _read_ends(pencil: Pencil, spacing: Any, boundary: Any, centred: Any) -> list[Ends]:
    """Read what is given along dimensions; one text for walls is meant where there are some."""
    if boundary is None or isinstance(boundary, str):
        walls = DIRICHLET if boundary is None else boundary
        boundary = [PERIODIC if wraps else walls for wraps in pencil.periodic]
    ends = as_ends(pencil.shape, spacing, boundary, centred)
    for each, wraps in zip(ends, pencil.periodic, strict=True):
        if (each.low == PERIODIC) != wraps:
            raise ArgumentError(
                f"boundary of dimension {each.dim} is {each.low!r}, but the pencil is periodic in "
                f"{pencil.periodic}: both must agree"
            )
    return ends


def _read_cycle(
    cycle: Any, smoother: Any, axis: Any, ends: Sequence[Ends]
) -> tuple[str, Any, tuple[int, ...]]:
    if cycle not in list(_CYCLES):
        raise ArgumentError(f"cycle={cycle!r} must be one of {', '.join(_CYCLES)}")
    stretched = [each.dim for each in ends if each.edges is not None]
    if smoother is None:
        smoother = LINE if stretched or axis is not None else RED_BLACK
    if axis is None and smoother == LINE and stretched:
        axis = stretched
    if not callable(smoother) and smoother not in list(PASSES):
        raise ArgumentError(f"smoother={smoother!r} must be a function, or {', '.join(PASSES)}")
    if (axis is None) == (smoother == LINE):
        raise ArgumentError(
            f"axis={axis!r} is the dimension of lines: it goes with smoother='line', and only then"
        )
    return cycle, smoother, () if axis is None else as_dims("axis", axis, len(ends))


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
    number = np.asarray(None if isinstance(value, list | tuple) else value)
    is_good = number.ndim == 0 and number.dtype.kind in _REAL and bool(np.isfinite(number))
    if not is_good or (several and value <= 0):
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
