"""Krylov methods with one or two reductions for each iteration: `cg`, `minres` and `bicgstab`."""

from __future__ import annotations

from collections.abc import Callable
from math import hypot, inf, isfinite, sqrt
from typing import Any

import numpy as np

from pencils.array.operands import signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError
from pencils.graph.fused import fused
from pencils.layout.integers import as_int
from pencils.solvers.krylov_space import INVERSE_GAVE, OPERATOR_GAVE, KrylovSpace, LinearMap
from pencils.solvers.result import Callback, SolverResult, history

_MOST_ITERATIONS = 10_000
# Relative differences of products that are equal for symmetric operators and preconditioners.
_UNLIKE, _UNLIKE_INVERSE = 1e-3, 0.1
_FLAT = 20  # times rounding: the quotient of a vector that is in the null space, relative to others

_ROUNDED = "rounding keeps the residual of the solution above the tolerance {:.3g}"
_INCOMPATIBLE = (
    "the equations are singular and have no solution, and the residual has stagnated at {:.3g}: "
    "subtract from b what lies in the null space of the operator, such as its mean"
)


def cg(
    operator: LinearMap,
    b: PencilArray,
    out: PencilArray | None = None,
    *,
    preconditioner: LinearMap | None = None,
    mask: Any = None,
    rtol: float = 1e-8,
    atol: float = 0.0,
    maxiter: int | None = None,
    callback: Callback | None = None,
    progress: bool = True,
) -> SolverResult:
    """Solve ``A u = b`` by conjugate gradients, for a positive definite operator. *Collective*.

    Parameters
    ----------
    operator : callable or object
        The operator `A`, symmetric (Hermitian) and positive definite: a function ``f(u, out)`` that
        fills the own points of the field `out`, an object with such a method ``apply(u, out)``, or
        a function of one field made by `pencils.fused`. An object with ``matvec``, like the
        `LinearOperator` of SciPy, works on the own block of each rank, ``u.local``, flattened.
    b : PencilArray
        Right side, of float or complex numbers, with any components and singletons.
    out : PencilArray, optional
        The guess, replaced by the solution; default: a new field, from zero.
    preconditioner : callable or object, optional
        An approximate inverse of the operator, symmetric and positive definite, of the same forms:
        a plan like `LineSolver`, for example.
    mask : PencilArray or array_like, optional
        0 at points that are switched off, and 1 elsewhere; it broadcasts to `b`. The former keep
        their values in `out`, or 0; the equations of the others are solved.
    rtol, atol : float, optional
        Tolerances: the norm of the residual is at most ``max(rtol * norm(b), atol)`` at the end.
        With a mask, `b` is the right side after known values were subtracted.
    maxiter : int, optional
        Most iterations. Default: ten for each unknown, but at most 10,000.
    callback : callable, optional
        Called on all ranks after each iteration, with its number and the norm of the residual.
    progress : bool, optional
        Whether rank 0 shows progress if the solve takes long, and tqdm is installed.

    Returns
    -------
    SolverResult
        Solution, history of residuals, and whether it has converged: as in SciPy, nothing is raised
        after `maxiter` iterations. ``cg(...).check()`` raises, or returns the solution.

    Raises
    ------
    ConvergenceError
        On every rank, if the operator or the preconditioner is not symmetric or not definite,
        returns NaN, or is singular, and `b` not in its range. `out` has the last iterate then.
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if an argument does not fit; nothing has changed. An error that an operator
        raises on some ranks is raised on all.

    Notes
    -----
    Operators and preconditioners get fields with the halo of `out`, or of `b` if that has none.
    Their boundary points are 0, and operators may fill their ghosts: ``u.exchange_halo()``.

    There is one reduction for each iteration, as in the method of G. Meurant, Parallel Computing 5
    (1987) 267-280: the preconditioner is applied to ``A p``. It must be linear.

    Examples
    --------
    >>> import pencils
    >>> @pencils.fused
    ... def laplacian(u):
    ...     u.exchange_halo()
    ...     return 2 * u - u.shift((1, 0)) - u.shift((-1, 0))
    >>> b = pencils.ones(pencils.Pencil((6, 4)), halo=1)
    >>> result = pencils.solvers.cg(laplacian, b)
    >>> result.converged, result.iterations
    (True, 3)
    >>> result.solution.local[:, 0].round(6)
    array([3., 5., 6., 6., 5., 3.])
    """
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "maxiter": maxiter, "progress": progress}
    options |= {"preconditioner": preconditioner, "mask": mask, "callback": callback}
    return _solve("cg", _cg, operator, b, out, **options)


def minres(
    operator: LinearMap,
    b: PencilArray,
    out: PencilArray | None = None,
    *,
    preconditioner: LinearMap | None = None,
    mask: Any = None,
    rtol: float = 1e-8,
    atol: float = 0.0,
    maxiter: int | None = None,
    callback: Callback | None = None,
    progress: bool = True,
) -> SolverResult:
    """Solve ``A u = b`` by minimal residuals, for a symmetric operator. *Collective*.

    The operator may be indefinite, or singular: if there is no solution, the result has the least
    residual and has not converged.

    Parameters
    ----------
    operator : callable or object
        The operator `A`, symmetric (Hermitian); its forms are those of `cg`.
    b, out, preconditioner, mask, rtol, atol, maxiter, callback, progress
        As in `cg`. The preconditioner `M` is positive definite; residuals and tolerances are then
        in its norm, ``sqrt((r, M r))``.

    Returns
    -------
    SolverResult
        As that of `cg`.

    Raises
    ------
    ConvergenceError, PencilMismatchError, ArgumentError, TypeError
        On every rank, as in `cg`.

    Notes
    -----
    The method of C. C. Paige and M. A. Saunders, SIAM Journal on Numerical Analysis 12 (1975)
    617-629. There is one reduction for each iteration: the operator is applied to vectors before
    their norms are known. Residuals follow from the recurrence, as in SciPy, but the last one is
    computed from the solution. If that is too large because of rounding, the method begins again.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> b = pencils.ones(pencils.Pencil((6, 4)))
    >>> signs = np.where(np.arange(4) % 2, -1.0, 2.0)
    >>> result = pencils.solvers.minres(lambda u, out: np.multiply(signs, u, out=out), b)
    >>> result.solution.local[0].round(6)
    array([ 0.5, -1. ,  0.5, -1. ])
    """
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "maxiter": maxiter, "progress": progress}
    options |= {"preconditioner": preconditioner, "mask": mask, "callback": callback}
    return _solve("minres", _minres, operator, b, out, weighted=True, **options)


def bicgstab(
    operator: LinearMap,
    b: PencilArray,
    out: PencilArray | None = None,
    *,
    preconditioner: LinearMap | None = None,
    mask: Any = None,
    rtol: float = 1e-8,
    atol: float = 0.0,
    maxiter: int | None = None,
    callback: Callback | None = None,
    progress: bool = True,
) -> SolverResult:
    """Solve ``A u = b`` by stabilized biconjugate gradients, for any operator. *Collective*.

    Parameters
    ----------
    operator : callable or object
        The operator `A`; its forms are those of `cg`.
    b, out, preconditioner, mask, rtol, atol, maxiter, callback, progress
        As in `cg`. The preconditioner need not be symmetric.

    Returns
    -------
    SolverResult
        As that of `cg`.

    Raises
    ------
    ConvergenceError
        On every rank, if the method breaks down: another guess or preconditioner may help.
    PencilMismatchError, ArgumentError, TypeError
        On every rank, as in `cg`.

    Notes
    -----
    The method of H. A. van der Vorst, SIAM Journal on Scientific and Statistical Computing 13
    (1992) 631-644, preconditioned from the right. There are two reductions for each iteration, and
    a third one for complex fields.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> def upwind(u, out):
    ...     u.exchange_halo()
    ...     out[...] = 2 * u - u.shift((-1, 0))
    >>> b = pencils.ones(pencils.Pencil((3, 4)), halo=1)
    >>> pencils.solvers.bicgstab(upwind, b).solution.local[:, 0].round(6)
    array([0.5  , 0.75 , 0.875])
    """
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "maxiter": maxiter, "progress": progress}
    options |= {"preconditioner": preconditioner, "mask": mask, "callback": callback}
    return _solve("bicgstab", _bicgstab, operator, b, out, **options)


# Improves a guess until its residual is small enough; returns why it has stopped, if not by that.
_Method = Callable[[KrylovSpace, PencilArray, PencilArray], str]
_Fields = tuple[Any, ...]


def _solve(
    name: str,
    method: _Method,
    operator: LinearMap,
    b: PencilArray,
    out: PencilArray | None,
    *,
    preconditioner: LinearMap | None,
    mask: Any,
    callback: Callback | None,
    rtol: Any,
    atol: Any,
    maxiter: Any,
    progress: Any,
    weighted: bool = False,
) -> SolverResult:
    """Check the arguments, and solve by a method. *Collective*."""
    with agreed(topology_among(b, out).comm, name) as agree:
        space = KrylovSpace(
            operator, b, out, preconditioner=preconditioner, mask=mask, callback=callback
        )
        for tolerance, value in (("rtol", rtol), ("atol", atol)):
            if not (isfinite(value) and value >= 0):
                raise ArgumentError(f"{tolerance}={value!r} must be a number that is at least 0")
        most = min(10 * b.size, _MOST_ITERATIONS)
        most = most if maxiter is None else as_int("maxiter", maxiter, least=0)
        agree(**signature(b), rtol=float(rtol), atol=float(atol), maxiter=most)
        parts = out is None, preconditioner is None, mask is None
        agree(**{"which of out, preconditioner and mask are None": parts})
    space.row = agree.prepared()
    with history(name, b.pencil.rank, 0.0, most, progress=bool(progress)) as space.history:
        x, r = space.start(float(rtol), float(atol), weighted=weighted)
        reason = method(space, x, r)
        space.meet()
        return space.history.result(x, reason)


def _cg(space: KrylovSpace, x: PencilArray, r: PencilArray) -> str:
    z = space.precondition(r, space.room())
    p, s, room = space.field(), space.field(), space.room()
    p.local[...] = z.local
    beta = direction = largest = 0.0
    while True:
        space.apply(p, s)
        q = space.precondition(s, room)
        weighted = () if z is r else ((r, z),)
        sums = space.sums((r, r), (p, s), (s, q), *weighted)
        names = (INVERSE_GAVE, z), (OPERATOR_GAVE, s), (INVERSE_GAVE, q)
        space.check_finite(sums, *names)
        square, curvature, change, gamma = (*sums, sums[0])[:4]
        if space.add(sqrt(square)):
            return ""
        if gamma <= 0:
            raise space.history.error(f"the preconditioner is not definite: (r, M r) = {gamma:.3g}")
        direction = gamma + beta**2 * direction  # (p, p) in the norm of the preconditioner
        quotient = curvature / direction  # lies between the eigenvalues
        largest = max(largest, abs(quotient))
        flat = _FLAT * float(np.finfo(space.b.dtype).eps) * largest
        if abs(quotient) <= flat:
            raise space.history.error(_INCOMPATIBLE.format(min(space.history.residuals)))
        if quotient < 0:
            raise space.history.error(
                f"the operator is not positive definite: (p, A p) = {curvature:.3g}; if it is "
                "negative definite, pass -A and -b, and use minres if it is neither"
            )
        if space.history.iterations == 1:
            one, other = space.sums((s, z), (q, r))
            _check_symmetric(space, "the operator", one, curvature)
            _check_symmetric(space, "the preconditioner", other, one, _UNLIKE_INVERSE)
        alpha = gamma / curvature
        beta = max(0.0, alpha**2 * change - gamma) / gamma
        _advance((x, r, p, s) if z is r else (x, r, p, s, z, q), alpha, beta)


@fused
def _advance(fields: _Fields, alpha: float, beta: float) -> None:
    x, r, p, s, *preconditioned = fields
    x += alpha * p
    r -= alpha * s
    z = r
    if preconditioned:
        z, q = preconditioned
        z -= alpha * q
    p[...] = z + beta * p


def _check_symmetric(
    space: KrylovSpace, name: str, one: float, other: float, unlike: float = _UNLIKE
) -> None:
    """Compare two products that are equal for symmetric operators, but for rounding."""
    first, *_, last = space.history.residuals
    rounding = float(np.finfo(space.b.dtype).eps) ** 0.5
    most = max(unlike, 30 * rounding) * max(abs(one), abs(other))
    if last > rounding * first and abs(one - other) > most:
        raise space.history.error(
            f"{name} is not symmetric: two products that are equal otherwise are {one:.6g} and "
            f"{other:.6g}; use bicgstab"
        )


def _minres(space: KrylovSpace, x: PencilArray, r: PencilArray) -> str:
    w, v, before, d, last, room = *(space.field() for _ in range(5)), space.room()
    flat = float(np.finfo(space.b.dtype).eps) ** 0.5 / 4  # it hardly becomes smaller
    # Numbers of Paige and Saunders: of the Lanczos process, and of the rotations.
    alpha = beta = dbar = epsln = sine = squares = 0.0
    cosine = -1.0
    residual = None
    computed = inf  # from the solution, when the method began again
    while True:
        z = space.precondition(r, room)
        space.apply(z, w)
        sums = space.sums((r, z), (z, w))
        space.check_finite(sums, (INVERSE_GAVE, z), (OPERATOR_GAVE, w))
        gamma, delta = sums
        if gamma < 0:
            raise space.history.error(f"the preconditioner is not definite: (r, M r) = {gamma:.3g}")
        old, beta = beta, sqrt(gamma)
        if residual is None:
            residual = beta
        else:
            oldeps, dlt = epsln, cosine * dbar + sine * alpha
            gbar, epsln, dbar = sine * dbar - cosine * alpha, sine * beta, -cosine * beta
            squares += alpha**2 + beta**2 + old**2
            if hypot(gbar, dbar) <= flat * sqrt(squares):  # A r, relative to r
                return _INCOMPATIBLE.format(residual)
            length = hypot(gbar, beta)
            cosine, sine = gbar / length, beta / length
            _descend((x, d, last, v), (oldeps, dlt, length, cosine * residual))
            d, last = last, d
            residual *= sine
            if residual <= space.history.target:
                residual = space.set_residual(r, x, (v, w, room))
                if space.history.target < residual < computed / 2:
                    alpha = beta = dbar = epsln = sine = squares = 0.0
                    cosine, computed, residual = -1.0, residual, None
                    continue
                space.add(residual)
                above = residual > space.history.target
                return _ROUNDED.format(space.history.target) if above else ""
        if space.add(residual):
            return ""
        if space.history.iterations == 1:
            _check_symmetric(space, "the operator", space.sums((w, v))[0], gamma)
        alpha = delta / gamma
        _orthogonalize((v, before, z, w, r), alpha, beta, beta / old if old else 0.0)
        r, before = before, r


@fused
def _descend(fields: _Fields, numbers: tuple[float, ...]) -> None:
    x, d, last, v = fields
    oldeps, dlt, length, phi = numbers
    d[...] = (v - oldeps * d - dlt * last) / length
    x += phi * d


@fused
def _orthogonalize(fields: _Fields, alpha: float, beta: float, ratio: float) -> None:
    v, before, z, w, r = fields
    v[...] = z / beta
    before[...] = (w - alpha * r) / beta - ratio * before


def _bicgstab(space: KrylovSpace, x: PencilArray, r: PencilArray) -> str:
    shadow, p, v, t = (space.field() for _ in range(4))
    rooms = space.room(), space.room()
    shadow.local[...] = p.local[...] = r.local
    (rho,) = first = space.sums((r, r))
    least = float(np.finfo(space.b.dtype).eps) ** 2
    while True:
        u = space.precondition(p, rooms[0])
        space.apply(u, v)
        sums = space.sums((shadow, v), (r, r), real=False)
        space.check_finite(sums, (INVERSE_GAVE, u), (OPERATOR_GAVE, v))
        slope, square = sums
        if space.add(sqrt(square.real)):
            return ""
        if abs(rho) <= least * sqrt(first[0] * square.real) or slope == 0:
            raise space.history.error(
                "the residual has become orthogonal to the first one, or to what the operator made "
                "of it; begin with another guess, or use a preconditioner, if there is a solution"
            )
        alpha = rho / slope
        _subtract(r, alpha, v)
        y = space.precondition(r, rooms[1])
        space.apply(y, t)
        sums = space.sums((t, r), (shadow, t), (t, t), (r, r), real=False)
        space.check_finite(sums, (INVERSE_GAVE, y), (OPERATOR_GAVE, t))
        along, product, square, rest = sums
        if sqrt(rest.real) <= space.history.target:
            x += alpha * u
            space.add(sqrt(rest.real))
            return ""
        if along == 0:
            raise space.history.error(
                f"the operator is singular or skew: (A s, s) = 0, where the residual s is "
                f"{sqrt(rest.real):.3g}; use a preconditioner, or minres"
            )
        omega = along / square.real
        old, rho = rho, -omega * product
        beta = rho / old * alpha / omega
        _stabilize((x, r, p, u, y, v, t), alpha, omega, beta)


@fused
def _subtract(r: Any, factor: complex, v: Any) -> None:
    r -= factor * v


@fused
def _stabilize(fields: _Fields, alpha: complex, omega: complex, beta: complex) -> None:
    x, r, p, u, y, v, t = fields
    x[...] = x + alpha * u + omega * y
    r -= omega * t
    p[...] = r + beta * (p - omega * v)
