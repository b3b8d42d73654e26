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

Array = NDArray[Any]

# Bytes of a buffer, so that it stays in the second-level cache; and the fewest and most lines.
BUFFER_BYTES = 2**17
FEWEST_LINES, MOST_LINES = 8, 64


class Term(NamedTuple):
    """A row of the buffer, times a weight, times a coefficient of each line if it has a number."""

    row: int
    weight: complex = 1.0
    coefficient: int = -1


class Step(NamedTuple):
    """Set a row of the buffer to the sum of terms, which may include the row itself."""

    target: int
    terms: Sequence[Term]


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
    """

    def __init__(self, rows: int, steps: Iterable[Step]) -> None:
        self.rows = rows
        steps = list(steps)
        terms = [term for step in steps for term in step.terms]
        self.targets = np.array([step.target for step in steps], np.int64)
        self.ends = np.cumsum([len(step.terms) for step in steps], dtype=np.int64)
        self.rows_of = np.array([term.row for term in terms], np.int64)
        self.coefficients_of = np.array([term.coefficient for term in terms], np.int64)
        weights = np.array([term.weight for term in terms], np.complex128)
        self.weights = weights if weights.imag.any() else weights.real.copy()


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

    Raises
    ------
    ValueError
        If the arrays do not fit each other or the program.
    """
    _check(program, sources, targets, axis, coefficients)
    return lambda: _run(program, sources, targets, axis, coefficients)


def strips(
    lines: Sequence[int], rows: int, itemsize: int
) -> Iterator[tuple[tuple[slice, ...], slice]]:
    """Divide lines in strips that are treated at once.

    Parameters
    ----------
    lines : sequence of int
        Extents of the axes that number the lines.
    rows, itemsize : int
        Rows of the buffer, and bytes of an element.

    Yields
    ------
    tuple of slice, slice
        Where a strip lies along these axes, and the numbers of its lines in C order.
    """
    most = min(max(BUFFER_BYTES // max(1, rows * itemsize), FEWEST_LINES), MOST_LINES)
    inner, cut = 1, len(lines)
    while cut > 0 and inner * lines[cut - 1] <= most:
        cut -= 1
        inner *= lines[cut]
    whole = (slice(None),) * (len(lines) - cut)
    if cut == 0:
        yield whole, slice(0, inner)
        return
    step = max(1, most // max(1, inner))
    number = 0
    for outer in np.ndindex(*lines[: cut - 1]):
        for start in range(0, lines[cut - 1], step):
            stop = min(start + step, lines[cut - 1])
            count = (stop - start) * inner
            here = (*(slice(i, i + 1) for i in outer), slice(start, stop), *whole)
            yield here, slice(number, number + count)
            number += count


def _check(
    program: LineProgram,
    sources: Sequence[Rows],
    targets: Sequence[Rows],
    axis: int,
    coefficients: Array | None,
) -> None:
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
    wanted = program.coefficients_of.max(initial=-1) + 1
    if wanted and (coefficients is None or coefficients.shape != (wanted, prod(lines))):
        raise ValueError(f"the program takes coefficients of shape {(wanted, prod(lines))}")


def _run(
    program: LineProgram,
    sources: Sequence[Rows],
    targets: Sequence[Rows],
    axis: int,
    coefficients: Array | None,
) -> None:
    """Execute a program with NumPy, on more lines at once."""
    first = targets[0].array
    lines = first.shape[:axis] + first.shape[axis + 1 :]
    inputs = [(begin, np.moveaxis(array, axis, 0)) for begin, array in sources]
    outputs = [(begin, np.moveaxis(array, axis, 0)) for begin, array in targets]
    with np.errstate(all="ignore"):
        for here, numbers in strips(lines, program.rows, first.itemsize):
            shape = first[(*here[:axis], slice(0, 1), *here[axis:])].shape
            extents = shape[:axis] + shape[axis + 1 :]
            buffer = np.empty((program.rows, *extents), first.dtype)
            for begin, array in inputs:
                buffer[begin : begin + len(array)] = array[:, *here]
            factors = None
            if coefficients is not None:
                factors = coefficients[:, numbers].reshape(-1, *extents)
            _execute(program, buffer, factors)
            for begin, array in outputs:
                array[:, *here] = buffer[begin : begin + len(array)]


def _execute(program: LineProgram, buffer: Array, factors: Array | None) -> None:
    rows, weights = program.rows_of.tolist(), program.weights.tolist()
    numbers = program.coefficients_of.tolist()
    begin = 0
    for target, end in zip(program.targets.tolist(), program.ends.tolist(), strict=True):
        total: Any = 0
        for row, weight, number in zip(
            rows[begin:end], weights[begin:end], numbers[begin:end], strict=True
        ):
            term = buffer[row] if weight == 1 else weight * buffer[row]
            if number >= 0:
                assert factors is not None
                term = term * factors[number]
            total = total + term
        buffer[target] = total
        begin = end
