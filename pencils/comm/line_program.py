"""Line programs: weighted sums of rows, executed for all lines of arrays along one axis.

A program works on a buffer that has a row for each point of a line, and as many columns as lines
are treated at once. Solvers of banded systems, running sums and differences are such programs. The
same program is executed for all lines: they differ by data, and by coefficients if there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.comm import line_program_numpy
from pencils.comm.line_program_numpy import BUFFER_BYTES, FEWEST_LINES, MOST_LINES
from pencils.comm.pack import compiled

Array = NDArray[Any]


LONGEST = 128  # points of a piece: with 64 lines of them, a buffer has 64 KiB


class Term(NamedTuple):
    """A row of the buffer, times a weight, times a coefficient of each line if it has a number."""

    row: int
    weight: complex = 1.0
    coefficient: int = -1


class Step(NamedTuple):
    """Set a row of the buffer to the sum of terms, which may include the row itself.

    Real weights multiply both parts of complex elements. With `as_complex` they are complex numbers
    whose imaginary part is 0, as for NumPy: times an infinity or NaN, this is NaN.
    """

    target: int
    terms: Sequence[Term]
    as_complex: bool = False


class LineProgram:
    """Steps that are executed one after the other, on a buffer of `rows` rows.

    Attributes
    ----------
    targets, ends : ndarray of int64
        Row that each step sets, and where its terms end.
    rows_of, coefficients_of : ndarray of int64
        Row and coefficient of each term.
    weights : ndarray of float64 or complex128
        Weight of each term; real if all are.
    as_complex : ndarray of int64
        Whether real weights of each step multiply as complex numbers.

    Raises
    ------
    ValueError
        If a step has a row that the buffer does not have.
    """

    def __init__(self, rows: int, steps: Iterable[Step]) -> None:
        self.rows = rows
        steps = list(steps)
        terms = [term for step in steps for term in step.terms]
        self.targets = np.array([step.target for step in steps], np.int64)
        self.as_complex = np.array([step.as_complex for step in steps], np.int64)
        self.ends = np.cumsum([len(step.terms) for step in steps], dtype=np.int64)
        self.rows_of = np.array([term.row for term in terms], np.int64)
        self.coefficients_of = np.array([term.coefficient for term in terms], np.int64)
        weights = np.array([term.weight for term in terms], np.complex128)
        self.weights = weights if weights.imag.any() else weights.real.copy()
        used = np.concatenate([self.targets, self.rows_of])
        if len(used) and (used.min() < 0 or used.max() >= rows):
            raise ValueError(f"steps have rows from 0 to {rows - 1}")
        if self.coefficients_of.min(initial=-1) < -1:
            raise ValueError("coefficients are counted from 0, and -1 means none")

    @property
    def data(self) -> line_program_numpy.Program:
        """Everything, as the compiled kernels take it."""
        return (
            self.rows,
            self.targets,
            self.ends,
            self.rows_of,
            self.coefficients_of,
            self.weights,
            self.as_complex,
        )


class Rows(NamedTuple):
    """An array whose points along the axis of the lines are consecutive rows of the buffer."""

    first: int
    array: Array


def prepare_lines(
    program: LineProgram,
    sources: Sequence[Rows],
    targets: Sequence[Rows],
    axis: int,
    coefficients: Array | None = None,
    *,
    besides: int = 0,
) -> Callable[[], None]:
    """Return a function that executes a program for all lines along an axis.

    For some lines at once, it copies the rows of all sources to the buffer, executes the steps, and
    copies the rows of the targets out of it. So targets may share memory with sources, if the same
    lines lie at the same place.

    Parameters
    ----------
    program : LineProgram
        The steps.
    sources, targets : sequence of Rows
        Arrays of one type, float or complex, and of one shape except along the axis, with any
        strides; fastest are axes in the order of memory. At least one target.
    axis : int
        Axis of the lines, counted from 0.
    coefficients : ndarray, optional
        Contiguous, one row for each coefficient and one column for each line; lines are counted in
        C order over the other axes.
    besides : int, optional
        Bytes that other programs write before these targets are read. If all are too many for the
        cache, targets are written past it.

    Raises
    ------
    ValueError
        If the arrays do not fit each other or the program.
    """
    _check(program, sources, targets, axis, coefficients)
    kernels = _kernels_for(targets[0].array.dtype)
    if kernels is None:
        return line_program_numpy.prepare(program.data, sources, targets, axis, coefficients)
    prepared: Callable[[], None] = kernels.Lines(
        program.data,
        sources,
        targets,
        axis,
        coefficients,
        BUFFER_BYTES,
        FEWEST_LINES,
        MOST_LINES,
        besides,
    )
    return prepared


def _kernels_for(dtype: np.dtype[Any]) -> Any:
    """Return what was compiled, if it takes the type."""
    return compiled() if dtype.char in "fdFD" and dtype.isnative else None


def pieces(points: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of points to treat at once, so that many lines stay in the cache."""
    for start in range(0, points, LONGEST):
        yield start, min(points, start + LONGEST)


def planes(array: Array, axis: int, start: int, stop: int) -> Array:
    """View some planes of an array."""
    view: Array = array[(*(slice(None),) * axis, slice(start, stop))]
    return view


def _check(
    program: LineProgram,
    sources: Sequence[Rows],
    targets: Sequence[Rows],
    axis: int,
    coefficients: Array | None,
) -> None:
    if not targets:
        raise ValueError("there is no target")
    first = targets[0].array
    lines = first.shape[:axis] + first.shape[axis + 1 :]
    for begin, array in (*sources, *targets):
        if array.dtype != first.dtype or array.shape[:axis] + array.shape[axis + 1 :] != lines:
            raise ValueError(
                f"{array.shape} of {array.dtype} beside {first.shape} of {first.dtype}"
            )
        if begin < 0 or begin + array.shape[axis] > program.rows:
            raise ValueError(f"rows {begin}:{begin + array.shape[axis]} of {program.rows}")
    if program.weights.dtype.kind == "c" and first.dtype.kind != "c":
        raise ValueError(f"complex weights, but elements of {first.dtype}")
    wanted, count = program.coefficients_of.max(initial=-1) + 1, prod(lines)
    if coefficients is None:
        if wanted:
            raise ValueError(f"the program takes coefficients of shape {(wanted, count)}")
        return
    if len(coefficients) < wanted or coefficients.shape[1:] != (count,):
        raise ValueError(
            f"coefficients of shape {coefficients.shape}, but the program takes {(wanted, count)}"
        )
    if coefficients.dtype != first.dtype or not coefficients.flags.c_contiguous:
        raise ValueError(f"coefficients are contiguous, and of {first.dtype} as the arrays are")
