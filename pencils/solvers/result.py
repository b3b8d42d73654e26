"""What iterative solvers share: results, histories of residuals, progress, errors of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite, log
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pencils.array.pencil_array import PencilArray
from pencils.bars import OnProgress, shown
from pencils.comm.agree import FLAGGED, PreparedAgreement
from pencils.errors import ConvergenceError, RankDisagreementError

# What is called after each iteration, with its number and the residual.
Callback: TypeAlias = Callable[[int, float], object]

_PERCENT = 100
_GROWN = 1e8  # times the first residual: no solver comes back from there
_CAUSES = (
    "the equations are singular and have no solution, or the operator or the preconditioner is not "
    "of the kind that the solver needs"
)


@dataclass(frozen=True, slots=True, eq=False)
class SolverResult:
    """What an iterative solver has found, the same on all ranks but for the blocks of the solution.

    Attributes
    ----------
    solution : PencilArray
        The solution, or the last iterate.
    residuals : ndarray of float
        Norms of the residual ``b - A u``, absolute: of the guess, then after each iteration.
    iterations : int
        Number of iterations.
    converged : bool
        Whether the last residual is below the tolerance.
    reason : str
        Why the solver has stopped, in words.

    Examples
    --------
    >>> import pencils
    >>> b = pencils.ones(pencils.Pencil((4, 6)))
    >>> result = pencils.solvers.SolverResult(b, [6.0, 0.0], 1, True, "the residual is zero")
    >>> result
    SolverResult(converged after 1 iteration, residual 0.0: the residual is zero)
    >>> result.check() is b
    True
    """

    solution: PencilArray
    residuals: NDArray[np.float64]
    iterations: int
    converged: bool
    reason: str

    def __repr__(self) -> str:
        how = "converged" if self.converged else "not converged"
        plural = "" if self.iterations == 1 else "s"
        text = f"{how} after {self.iterations} iteration{plural}"
        return f"{type(self).__name__}({text}, residual {self.residuals[-1]:.3}: {self.reason})"

    def check(self) -> PencilArray:
        """Return the solution, or raise if the solver has not converged; local.

        Raises
        ------
        ConvergenceError
            On every rank, with the reason.
        """
        if not self.converged:
            raise ConvergenceError(str(self))
        return self.solution


class History:
    """The residuals of a solver, and when it has to stop; local, the same on all ranks.

    `name` is that of the solver, `target` the residual that is small enough.
    """

    def __init__(self, name: str, target: float, maxiter: int, progress: OnProgress) -> None:
        self.name, self.target, self.maxiter = name, target, maxiter
        self.residuals: list[float] = []
        self._progress, self._shown = progress, 0

    @property
    def iterations(self) -> int:
        """Number of iterations that are done."""
        return len(self.residuals) - 1

    def add(self, residual: float) -> bool:
        """Add the residual of the guess, or after an iteration; whether the solver has to stop.

        Raises a ConvergenceError if it is not finite, or so large that the solver has diverged.
        """
        self.residuals.append(residual)
        first = self.residuals[0]
        if not isfinite(residual) or residual > _GROWN * max(first, self.target):
            raise self.error(
                f"the residual has grown from {first:.3g} to {residual:.3g}: {_CAUSES}"
            )
        if first > residual > 0 and first > self.target > 0:
            done = min(_PERCENT, int(_PERCENT * log(first / residual) / log(first / self.target)))
            self._progress(max(0, done - self._shown))
            self._shown = max(done, self._shown)
        return residual <= self.target or self.iterations >= self.maxiter

    def error(self, why: str) -> ConvergenceError:
        """Make the error of a solver that cannot go on."""
        return ConvergenceError(f"{self.name}, iteration {max(0, self.iterations)}: {why}")

    def result(self, solution: PencilArray, reason: str = "") -> SolverResult:
        """Return what was found; `reason` if it is another one than the tolerance or `maxiter`."""
        last = self.residuals[-1]
        converged = last <= self.target
        if converged:
            reason = f"the residual is at most {self.target:.3g}"
        residuals = np.array(self.residuals)
        reason = reason or f"maxiter={self.maxiter}, {self._trend(residuals)}"
        return SolverResult(solution, residuals, self.iterations, converged, reason)

    def _trend(self, residuals: NDArray[np.float64]) -> str:
        best = int(residuals.argmin())
        if 2 * best >= self.iterations and residuals[-1] <= 2 * residuals[best]:
            return f"while the residual still decreased towards {self.target:.3g}"
        return (
            f"and the residual has stagnated at {residuals[best]:.3g} since iteration {best}: "
            f"{_CAUSES}, or the target {self.target:.3g} is below rounding"
        )


@contextmanager
def history(
    name: str, rank: int, target: float, maxiter: int, *, progress: bool = True
) -> Iterator[History]:
    """Make the history of a solver; rank 0 shows on its terminal how far it has come. Local."""
    with shown(name, _PERCENT, rank=rank if progress else -1, unit="%") as update:
        yield History(name, target, maxiter, update)


def attempt(row: PreparedAgreement, work: Callable[..., Any] | None, *arguments: Any) -> Any:
    """Call a function of the user, if any, which may communicate, and `meet`. *Collective*.

    Return the result.
    """
    result = error = None
    try:
        if work is not None:
            result = work(*arguments)
    except Exception as mistake:  # noqa: BLE001 - raised on all ranks
        error = mistake
    meet(row, error)
    return result


def meet(row: PreparedAgreement, error: Exception | None) -> None:
    """Raise on all ranks if a rank has failed. *Collective*.

    A rank that fails in a function that communicates meets the others there first: these learn that
    the calls differ, and come here with that error, which is no mistake of theirs.
    """
    knows = isinstance(error, RankDisagreementError)
    try:
        flags = row.meet(None if knows else error, FLAGGED if knows else 0)
    except RankDisagreementError:
        if error is None or knows:
            raise
        flags = FLAGGED
    if flags:
        row.meet(error)
