"""Elliptic equations with variable coefficients, by cycles over grids: `Multigrid`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf, isfinite, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import Array, as_components
from pencils.array.operands import FieldSpec, check_out, check_source, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import PreparedAgreement, agreed
from pencils.comm.recording import makes_plan
from pencils.errors import ArgumentError, ConvergenceError
from pencils.graph.fused import fused
from pencils.layout.integers import as_dims, as_int
from pencils.layout.levels import CELL
from pencils.pencil import Pencil
from pencils.plans import Agreement, Plan
from pencils.solvers.cycles import KINDS, Cycles, DirectSolve, make_levels
from pencils.solvers.ends import DIRICHLET, PERIODIC, Boundary, Ends, Spacing, as_ends, as_type
from pencils.solvers.equations import Coefficient, Operator, per
from pencils.solvers.result import Callback, SolverResult, attempt, history
from pencils.solvers.smoothers import LINE, PASSES, RED_BLACK, OwnSmoother

# Right sides of singular equations may have as large a mean, relative to their norm.
_INCOMPATIBLE = 0.01
# Residuals follow from recurrences until they have decreased so far, in roundings.
_DIGITS = 64
# Part of the diagonal that `c` must be at least, to be kept where coefficients are rounded.
_LOST = 1e-5
SINGLE, DOUBLE = "single", "double"
_SINGLE = str.maketrans("dD", "fF")  # types of numbers
_REAL = "iuf"


class _Fields(NamedTuple):
    """Those of a solve, and the norms of right sides."""

    u: PencilArray  # solution
    r: PencilArray  # residual
    right: PencilArray
    p: PencilArray  # direction
    q: PencilArray  # what the operator makes of it
    sizes: Array


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
        Gauss-Seidel, overrelaxed, for points whose indices have an even sum, then for others;
        weighted steps of Jacobi; Chebyshev polynomials of these; or weighted steps for lines along
        `axis`. Default: "line" if there are dimensions of unequal distances, "red-black" if there
        are none. Or a function ``smoother(level, u, f, reverse)`` that improves `u`, a field with a
        halo, in place; `reverse` after the coarser grid, where the adjoint is called for.
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
    precision : {"single", "double"}, optional
        Of the numbers in the cycles of `solve`, which take half as long in single precision: they
        are corrections that later cycles correct, and solutions are as accurate as `dtype` is.
        Default: "single", but "double" with an `operator` or smoother of your own, and where only a
        small `c` tells the mean of `u`.
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
    379-393. Between vertices, corrections are linear, and averages are weighted accordingly. If `a`
    is no number, this holds on the finest grid only. On others, the weight of each coarse vertex is
    multiplied by the root of the diagonal of `A` there, so that vertices of large `a` hardly get
    corrections of others; and the mean of two faces, one behind the other, is the harmonic one,
    with a twentieth of the arithmetic one.

    Equations are multiplied by the volumes of points. Then cycles are symmetric, and `solve`
    combines them by conjugate gradients. On 128³ points and with V(2,2) cycles, residuals then
    decrease to 0.04 in each cycle for constant `a`, and to 0.13 if it is 1000 in a ball and 1
    elsewhere; on vertices to 0.05, and to between 0.21 and 0.24, the latter between Neumann walls.
    If distances along one dimension have a ratio of 50, lines give 0.11 on 96³ cells and 0.05 on
    vertices; on 32³ cells 0.09, and point smoothers 0.35. Only dimensions of strong coupling are
    halved, so that point smoothers suit flat cells, too: 0.13 if an extent is a tenth of the
    others. Coefficients that jump from cell to cell, or at corners of a checkerboard, need more
    cycles, and residuals may grow there with ``accelerate=False``. "W" needs fewer, but coarse
    grids wait for messages more often. With "F", or an `operator` that is not symmetric, pass
    ``accelerate=False`` if residuals grow.

    Cycles in single precision, of equations and residuals that are scaled, do not change the number
    of cycles: Göddeke, Strzodka and Turek, Int. J. Parallel Emergent Distrib. Syst. 22 (2007)
    221-256.

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
        smoother: str | OwnSmoother | None = None,
        axis: int | Sequence[int] | None = None,
        pre: int = 2,
        post: int = 2,
        levels: int | None = None,
        operator: Operator | None = None,
        dtype: DTypeLike = float,
        precision: str | None = None,
        components: int | Sequence[int] = (),
        check: bool = True,
    ) -> None:
        with agreed(topology_among(pencil).comm, "Multigrid") as agree:
            check_type("pencil", pencil, Pencil)
            if not prod(pencil.shape):
                raise ArgumentError(f"a grid of shape {pencil.shape} has no points to solve for")
            ends = _read_ends(pencil, spacing, boundary, centred)
            self._spec = FieldSpec(as_type(dtype), as_components(components), frozenset())
            smoother, axes = _read_cycle(cycle, smoother, axis, ends)
            self._steps = as_int("pre", pre, least=0), as_int("post", post, least=0)
            if not any(self._steps):
                raise ArgumentError("pre=0 and post=0: one of them must be at least 1")
            most = None if levels is None else as_int("levels", levels, least=1)
            kinds = [_kind("a", a, pencil.ndim), _kind("c", c)]
            agree(pencil=pencil, ends=[tuple(each) for each in ends], **self._spec.signature)
            self._name = smoother if isinstance(smoother, str) else "custom"
            agree(smoother=self._name, axis=axes, cycle=cycle, pre=pre, post=post)
            own = operator is not None or not isinstance(smoother, str)
            agree(precision=_check_precision(precision, own=own), operator=operator is None)
            agree(levels=most, coefficients=kinds, check=bool(check))
        a, c = _checked(pencil, a, c)
        self.pencil, self._cycle = pencil, cycle
        self._total = prod(float(each.volumes().sum()) / each.spacing for each in ends)
        self._space = tuple(range(-pencil.ndim, 0))
        self._meeting = PreparedAgreement(pencil.topology.comm, "a function passed to Multigrid")
        if callable(smoother):
            smoother = partial(attempt, self._meeting, smoother)
        grids: Any = {"axes": axes, "most": most, "spec": self._spec}
        if operator is not None:
            grids |= {"operator": operator, "meeting": self._meeting}
        self.levels = make_levels(pencil, ends, a, c, **grids)
        direct = DirectSolve(self.levels[-1], self._meeting)
        self._singular, spec = direct.singular, self._spec
        if precision is None:
            is_single = not own and len(self.levels) > 1 and self._suits_single(ends, c)
            precision = SINGLE if is_single else DOUBLE
        if precision == SINGLE:
            spec = spec._replace(dtype=np.dtype(spec.dtype.char.translate(_SINGLE)))
        options: Any = {"smoother": smoother, "axes": axes, "kind": cycle, "steps": self._steps}
        self._make_cycles: Callable[[FieldSpec], Cycles] = partial(
            Cycles, self.levels, direct, weighted=not isinstance(a, float), **options
        )
        self._made: dict[FieldSpec, Cycles] = {}
        self._cycles = self._cycles_in(spec)  # of solves
        self._advance, self._update = self.levels[0].fused(self._advanced), fused(self._updated)
        weights = self.levels[0].weights  # norms of residuals weigh points by their volumes
        self._product, self._square = fused(self._dot), fused(lambda r: self._dot(r, r, weights))
        super().__init__(pencil.topology, check=bool(check))

    def __call__(self, f: PencilArray, out: PencilArray | None = None) -> PencilArray:
        """Do one cycle for a right side, from 0 on, in the precision of `dtype`. *Collective*.

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
        out[...] = self._cycles_in(self._spec)(f, 1.0)
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
        q = PencilArray.allocated(self.pencil, *self._spec)
        fields = _Fields(u, right.copy(), right, self.levels[0].field(), q, sizes)
        self._begin(fields, start, full=full)
        target = rtol * float(sizes.max())
        reason = f"{self._spec.dtype} allows no smaller residual than rounding"
        with history("Multigrid", self.pencil.rank, target, maxiter, progress=progress) as past:
            steps = self._iterate(fields, target, accelerate=accelerate)
            for number, residual in enumerate(steps):
                if number:  # ranks may have no callback
                    attempt(self._meeting, callback, number, residual)
                if past.add(residual):
                    reason = ""
                    break
            result = past.result(u, reason)
        if self._singular:
            u -= self._mean(u * self.levels[0].weights)
        return result

    def _begin(self, fields: _Fields, start: PencilArray | None, *, full: bool) -> None:
        """Set the first solution, and its residual. *Collective*."""
        u, sizes, cycles = fields.u, fields.sizes, self._cycles
        if start is not None:  # solutions are 0 where right sides are
            u[...] = start * self._factor(1.0 * (sizes > 0))
        elif full:
            scale = cycles.scales(sizes)
            u[...] = cycles.nest(fields.right, self._factor(scale))
            u *= self._factor(cycles.unit / scale)  # in the precision of solutions
        else:
            u.fill(0)
            return
        self._compute_residual(fields)

    def _compute_residual(self, fields: _Fields) -> None:
        fields.p[...] = fields.u
        self.levels[0].residual(fields.p, fields.right, out=fields.r)

    def _iterate(self, fields: _Fields, target: float, *, accelerate: bool) -> Iterator[float]:
        """Improve a solution; yield the norm of its residual after each cycle.

        The norm is that of the worst component, relative to that of its right side.
        Residuals follow from recurrences. Where these have used up their digits, residuals are
        computed anew, and the solution is improved again, as long as that helps. *Collective*.
        """
        rounding = _DIGITS * np.finfo(self._spec.dtype).eps
        norms = self._norms(fields.r)
        last, residual = inf, _worst(norms, fields.sizes)
        if not isfinite(residual):
            raise ConvergenceError(
                f"the first residual is {residual}: numbers of start or of the operator are not "
                "finite, or so large that squares overflow"
            )
        yield residual
        while residual <= last / 2:
            last, least = residual, max(target, rounding * residual)
            for found in self._combine(fields, norms, accelerate=accelerate):
                residual = _worst(found, fields.sizes)
                if residual <= least:
                    break
                yield residual
            self._compute_residual(fields)
            norms = self._norms(fields.r)
            residual = _worst(norms, fields.sizes)
            yield residual

    def _combine(self, fields: _Fields, norms: Array, *, accelerate: bool) -> Iterator[Array]:
        """Add cycles as they are, or by conjugate gradients; yield norms of residuals.

        Each component has steps of its own; `norms` are those of its residual. *Collective*.
        """
        u, r, _, p, q, _ = fields
        scale = self._cycles.scales(norms)
        alpha, beta, before = self._cycles.unit / scale, np.zeros_like(norms), np.zeros_like(norms)
        while True:
            z = self._cycles(r, self._factor(scale))
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
            yield np.sqrt(_numbers(self._update(u, r, p, q, self._factor(alpha))))

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
        products = np.real(np.conj(p) * q) if self._spec.dtype.kind == "c" else p * q
        return per(products, weights).sum(axis=self._space if self._spec.components else None)

    def _norms(self, r: PencilArray) -> Array:
        """Return the norms of components, which weigh points by their volumes. *Collective*."""
        return np.sqrt(_numbers(self._square(r)))

    def _mean(self, weighted: PencilArray) -> PencilArray:
        """Return means of components, of numbers times weights. *Collective*."""
        sums: PencilArray = weighted.sum(axis=self._space)
        return sums / self._total

    def _right_side(self, f: PencilArray) -> tuple[PencilArray, Array]:
        """Weight a right side, without its mean if equations are singular; and its norms.

        *Collective*.
        """
        weights = self.levels[0].weights
        right = PencilArray.allocated(self.pencil, *self._spec)
        right[...] = f * weights
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            sizes = self._norms(right)
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
        if self._singular:
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

    def _suits_single(self, ends: Sequence[Ends], c: float | PencilArray) -> bool:
        """Whether `c`, which alone holds solutions, is not lost by rounding. *Collective*."""
        is_free = all(each.is_free for each in ends)
        least = float(-c.max()) if isinstance(c, PencilArray) else -c
        return not is_free or self._singular or least > _LOST * -float(self.levels[0].main.min())

    def _cycles_in(self, spec: FieldSpec) -> Cycles:
        """Return the cycles in numbers of a type; the first time, this is *Collective*."""
        if spec not in self._made:
            self._made[spec] = self._make_cycles(spec)
        return self._made[spec]

    def _describe(self) -> str:
        pre, post = self._steps
        text = f"<Multigrid of {self._cycle}({pre},{post}) cycles, {self._name} smoother"
        grids = " to ".join(map(str, dict.fromkeys(each.pencil.shape for each in self.levels)))
        if self._name in PASSES and len(self.levels) > 1:
            passes = PASSES[self._name] * (pre + post) + 3
            text += f", {passes} passes over the finest grid for each cycle"
        text += ", in single precision" * self._cycles.converts
        return f"{text}\n  {grids}\n  on {self.pencil!r}>"

    def _release(self) -> None:
        for cycles in self._made.values():
            cycles.free()
        for level in self.levels:
            level.free()


def _numbers(values: Any) -> Array:
    """Return sums as double numbers: of components, or the only one."""
    return np.asarray(values.local if isinstance(values, PencilArray) else values, dtype=float)


def _ratio(values: Array, others: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.divide(values, others, out=np.zeros_like(values), where=others != 0)


def _worst(norms: Array, sizes: Array) -> float:
    """Return the norm of the component whose one is largest, relative to its size."""
    return float(_ratio(norms, sizes).max() * sizes.max())


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
) -> tuple[Any, tuple[int, ...]]:
    if cycle not in list(KINDS):
        raise ArgumentError(f"cycle={cycle!r} must be one of {', '.join(KINDS)}")
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
    return smoother, () if axis is None else as_dims("axis", axis, len(ends))


def _check_precision(precision: Any, *, own: bool) -> Any:
    if precision not in [None, SINGLE, DOUBLE]:
        raise ArgumentError(f"precision={precision!r} must be {SINGLE!r}, {DOUBLE!r}, or None")
    if precision == SINGLE and own:
        raise ArgumentError(
            "precision='single' converts the equations of pencils, not those of an operator or a "
            "smoother of your own: omit it, or pass dtype='float32'"
        )
    return precision


def _kind(name: str, value: Any, several: int = 0) -> object:
    """Check the type of a coefficient, or `several`; return what ranks must agree on."""
    faces = several and isinstance(value, list | tuple) and len(value) == several
    if faces and all(isinstance(each, PencilArray) for each in value):
        return [_kind(name, each) for each in value]
    if isinstance(value, PencilArray):
        if value.dtype.kind not in _REAL:
            raise TypeError(f"{name} has dtype {value.dtype}; it must be real numbers")
        return value.pencil
    number = np.asarray(None if isinstance(value, list | tuple) else value)
    is_good = number.ndim == 0 and number.dtype.kind in _REAL and bool(np.isfinite(number))
    if not is_good or (name == "a" and value <= 0):
        raise ArgumentError(
            f"{name}={value!r} must be a {'positive ' * (name == 'a')}number or a field"
            f"{', or a field on the faces of each dimension' * (name == 'a')}"
        )
    return float(value)


def _checked(pencil: Pencil, a: Any, c: Any) -> tuple[Any, Any]:
    """Check the fields among coefficients, and their values. *Collective*."""
    a, c = (
        each if isinstance(each, PencilArray | list | tuple) else float(each) for each in (a, c)
    )
    given = [("a", a, pencil), ("c", c, pencil)]
    if isinstance(a, list | tuple):
        given[:1] = [("a", each, pencil.staggered(dim)) for dim, each in enumerate(a)]
    given = [each for each in given if isinstance(each[1], PencilArray)]
    with agreed(pencil.topology.comm, "Multigrid"):
        for name, u, place in given:
            check_source(u, place, FieldSpec(u.dtype, (), frozenset()), name)
    for name, u, _ in given:
        low, high = float(u.min()), float(u.max())
        if not (isfinite(low) and isfinite(high)) or (name == "a" and low <= 0):
            sign = "positive" if name == "a" else "finite"
            raise ArgumentError(f"{name} has values from {low} to {high}; they must be {sign}")
    return a, c
