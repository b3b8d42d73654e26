"""The verb `solve_banded`, which keeps its plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pencils.array.allocation import Array
from pencils.array.operands import FieldSpec, check_type
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError
from pencils.layout.integers import as_int
from pencils.lines.elimination import Row
from pencils.lines.methods import Lines
from pencils.lines.solver import LineCall, LineSolver, as_lines, dim_of, verb_agreement
from pencils.lines.system import System, plain_right


def solve_banded(
    l_and_u: tuple[int, int],
    ab: ArrayLike,
    b: PencilArray,
    *,
    axis: int,
    periodic: bool = False,
    out: PencilArray | None = None,
) -> PencilArray:
    """Solve one banded system for all lines along an axis. *Collective*.

    The arguments are those of `scipy.linalg.solve_banded`, but lines lie along any axis, and may be
    cut. Plans are kept, so that calls in a loop are cheap; `LineSolver` takes systems that differ
    between lines, too, and gives control over the method, overlap and checks.

    Parameters
    ----------
    l_and_u : (int, int)
        Number of diagonals below and above the main one.
    ab : array_like of shape (l + u + 1, n)
        The matrix, the same on all ranks, its diagonals aligned with columns and the highest
        first: ``ab[u + i - j, j]`` is element ``[i, j]``. `n` is the extent of the axis. What would
        lie outside the matrix is not read.
    b : PencilArray
        Right sides, of float or complex numbers; complex ones if `ab` is complex. A halo is
        ignored.
    axis : int
        An axis of space of ``b.shape``, components first, in ``[-b.ndim, b.ndim)``.
    periodic : bool, optional
        Whether the first point is beside the last one. What would lie outside the matrix is then in
        its corners: ``i - j`` above counts modulo `n`.
    out : PencilArray, optional
        Field to fill, of the type of `b`, which it may be itself; default: a new one without halo.

    Returns
    -------
    PencilArray
        `out`.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if an argument does not fit, or the matrix is singular.

    Examples
    --------
    >>> import pencils
    >>> b = pencils.ones(pencils.Pencil((6, 4)))
    >>> ab = [[-1] * 6, [2] * 6, [-1] * 6]
    >>> pencils.lines.solve_banded((1, 1), ab, b, axis=0).local[:, 0]
    array([3., 5., 6., 6., 5., 3.])
    """
    with verb_agreement("solve_banded", b, out) as agree:
        check_type("b", b, PencilArray)
        lines = as_lines(b.pencil, dim_of(b, axis), FieldSpec.of(b))
        bands = Bands(lines, l_and_u, ab, periodic=bool(periodic))
        matrix = str(bands)
        agree(axis=lines.dim, matrix=matrix)
        call = LineCall(agree, ("solve_banded", *lines, matrix), b, out)
    return call.run(lambda: LineSolver.kept(lines, bands))


class Bands:
    """Checked arguments: a matrix whose diagonals are aligned with columns.

    Parameters
    ----------
    lines : Lines
        The lines on which the matrix works.
    l_and_u : (int, int)
        Number of diagonals below and above the main one.
    ab : array_like
        The diagonals, the highest first.
    periodic : bool
        Whether lines close to rings.
    """

    reach = 0
    fields: Sequence[PencilArray] = ()

    def __init__(self, lines: Lines, l_and_u: Any, ab: Any, *, periodic: bool) -> None:
        self.points = lines.pencil.shape[lines.dim]
        self.periodic = periodic
        if not isinstance(l_and_u, Sequence) or len(l_and_u) != 2:  # noqa: PLR2004
            raise TypeError(
                f"l_and_u={l_and_u!r} must be a pair of integers: the numbers of diagonals below "
                "and above the main one"
            )
        self.lower = as_int("l_and_u[0]", l_and_u[0], least=0)
        self.upper = as_int("l_and_u[1]", l_and_u[1], least=0)
        self.width = max(self.lower, self.upper)
        if isinstance(ab, PencilArray):
            raise TypeError(
                "ab is global data, not a PencilArray: one matrix for all lines; LineSolver takes "
                "fields as diagonals"
            )
        array = np.asarray(ab)
        self._check(array, lines)
        self._entries = array.astype(complex if array.dtype.kind == "c" else float)
        if not periodic:
            equations = self._equations()
            self._entries[(equations < 0) | (equations >= self.points)] = 0
        if not np.isfinite(self._entries).all():
            raise ArgumentError("ab has elements that are not finite; they must be numbers")

    def _check(self, array: Any, lines: Lines) -> None:
        if array.dtype.kind not in "iufc":
            raise TypeError(f"ab has elements of dtype {array.dtype}; it must be numbers")
        if array.dtype.kind == "c" and lines.spec.dtype.kind != "c":
            raise TypeError(
                f"ab is complex, but b is of {lines.spec.dtype}; pass b.astype(complex)"
            )
        wanted = (self.lower + self.upper + 1, self.points)
        if array.shape != wanted:
            raise ArgumentError(
                f"ab has shape {array.shape}; with l_and_u=({self.lower}, {self.upper}) along "
                f"dimension {lines.dim} of {self.points} points it must be {wanted}"
            )

    def _equations(self) -> Array:
        """Return the equation of each element of `ab`; some are not among those of the lines."""
        rows = np.arange(self.lower + self.upper + 1)[:, np.newaxis]
        return rows - self.upper + np.arange(self.points)

    def __str__(self) -> str:
        """Describe the matrix: others have other texts."""
        digest = blake2b(self._entries.tobytes(), digest_size=16).hexdigest()
        rings = "periodic, " if self.periodic else ""
        kind = self._entries.dtype
        return f"{rings}{self.lower} + 1 + {self.upper} diagonals of {kind} {digest}"

    def system(self, _lines: Lines, _moved: Mapping[int, PencilArray]) -> System:
        """Return the equations, which are the same for all lines."""
        matrix: list[Row] = [{} for _ in range(self.points)]
        numbers = self._equations() % max(1, self.points)
        for equations, entries in zip(numbers.tolist(), self._entries.tolist(), strict=True):
            for column, (equation, entry) in enumerate(zip(equations, entries, strict=True)):
                if entry != 0:
                    matrix[equation][column] = matrix[equation].get(column, 0.0) + entry
        return System(matrix, plain_right(self.points))
