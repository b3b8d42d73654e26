"""Line programs: weighted sums of rows, executed for all lines of arrays along one axis.

A program works on a buffer that has a row for each point of a line, and as many columns as lines
are treated at once. Solvers of banded systems, running sums and differences are such programs. The
same program is executed for all lines: they differ by data, and by coefficients if there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.comm.pack import compiled

Array = NDArray[Any]

# Bytes of a buffer, so that it stays in the second-level cache; and the fewest and most lines that
# are treated at once. They are those of the compiled programs, too.
BUFFER_BYTES = 2**17
FEWEST_LINES, MOST_LINES = 8, 64

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
    """Steps that are executed one after the other, on a buffer of `rows` rows, as lists of numbers.

    These are the targets of steps and where their terms end; rows, coefficients and weights of
    terms; and whether the weights of each step multiply as complex numbers. A `ValueError` is
    raised if a step has a row that the buffer does not have.
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
        self.as_complex = np.array([step.as_complex for step in steps], np.int64)
        used = np.concatenate([self.targets, self.rows_of])
        if len(used) and (used.min() < 0 or used.max() >= rows):
            raise ValueError(f"steps have rows from 0 to {rows - 1}")
        if self.coefficients_of.min(initial=-1) < -1:
            raise ValueError("coefficients are counted from 0, and -1 means none")
        # As the compiled kernels take it.
        self.data = (
            rows,
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
    """Return a function that executes a program for all lines along an axis, counted from 0.

    For some lines at once, it copies the rows of all sources to the buffer, executes the steps, and
    copies the rows of the targets out of it. So targets may share memory with sources, if the same
    lines lie at the same place. Arrays are of one type, float or complex, and of one shape except
    along the axis, with any strides; fastest are axes in the order of memory.

    Coefficients are contiguous, with a row for each, and a column for each line in C order of the
    other axes. Other programs write `besides` bytes before these targets are read: if all are too
    many for the cache, targets are written past it. What does not fit raises a `ValueError`.
    """
    _check(program, sources, targets, axis, coefficients)
    dtype = targets[0].array.dtype
    kernels = compiled() if dtype.char in "fdFD" and dtype.isnative else None
    if kernels is None:
        return _prepare_by_numpy(program, sources, targets, axis, coefficients)
    options = BUFFER_BYTES, FEWEST_LINES, MOST_LINES, besides
    prepared: Callable[[], None] = kernels.Lines(
        program.data, sources, targets, axis, coefficients, *options
    )
    return prepared


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
    given = (0, count) if coefficients is None else coefficients.shape
    if given[0] < wanted or given[1:] != (count,):
        raise ValueError(f"coefficients of shape {given}, but the program takes {(wanted, count)}")
    plain = coefficients is None or coefficients.flags.c_contiguous
    if not plain or (coefficients is not None and coefficients.dtype != first.dtype):
        raise ValueError(f"coefficients are contiguous, and of {first.dtype} as the arrays are")


# ---- Execution by NumPy, where nothing was compiled. ----


def _prepare_by_numpy(
    program: LineProgram,
    sources: Sequence[Rows],
    targets: Sequence[Rows],
    axis: int,
    coefficients: Array | None,
) -> Callable[[], None]:
    """Prepare what `prepare_lines` describes, with all memory that it takes."""
    inputs, outputs = (
        [(begin, np.moveaxis(array[np.newaxis], axis + 1, 0)) for begin, array in each]
        for each in (sources, targets)
    )
    _, *lines = outputs[0][1].shape
    outer = int(np.argmax(lines))  # axis along which lines are divided
    dtype, rows, each = outputs[0][1].dtype, program.rows, prod(lines) // max(1, lines[outer])
    most = min(max(BUFFER_BYTES // max(1, rows * dtype.itemsize), FEWEST_LINES), MOST_LINES)
    step = max(1, most // max(1, each))
    lines[outer] = min(step, lines[outer])
    memory = np.empty((rows, *lines), dtype)
    numbers = None
    if coefficients is not None:
        numbers = coefficients.reshape(len(coefficients), *outputs[0][1].shape[1:])

    def run() -> None:
        with np.errstate(all="ignore"):
            for start in range(0, outputs[0][1].shape[1 + outer], step):
                here = (slice(None),) * (1 + outer) + (slice(start, start + step),)
                count = outputs[0][1][here].shape[1 + outer]
                buffer = memory[(slice(None),) * (1 + outer) + (slice(count),)]
                for begin, array in inputs:
                    buffer[begin : begin + len(array)] = array[here]
                _execute(program, buffer, None if numbers is None else numbers[here])
                for begin, array in outputs:
                    array[here] = buffer[begin : begin + len(array)]

    return run


def _execute(program: LineProgram, buffer: Array, factors: Array | None) -> None:
    targets, ends, rows, numbers, weights, as_complex = (part.tolist() for part in program.data[1:])
    begin = 0
    for target, end, is_complex in zip(targets, ends, as_complex, strict=True):
        total: Any = None  # 0 would lose the sign of -0.0
        terms = list(zip(rows[begin:end], weights[begin:end], numbers[begin:end], strict=True))
        whole = is_complex or any(weight.imag or number >= 0 for _, weight, number in terms)
        for row, weight, number in terms:
            # Without imaginary weights, sums are of real numbers, of both parts of complex ones.
            term = weight * buffer[row] if whole else _times(buffer[row], weight.real)
            if number >= 0:
                assert factors is not None
                term = term * factors[number]
            total = term if total is None else total + term
        buffer[target] = 0 if total is None else total
        begin = end


def _times(row: Array, weight: float) -> Array:
    product = row.copy()
    if weight != 1:
        product.real *= weight
        if row.dtype.kind == "c":
            product.imag *= weight
    return product


# As in the compiled kernels.
_MOST_TERMS = _MOST_COLUMNS = 8


class Column(NamedTuple):
    """Elements of all rows, at `number`, that are sums of other ones.

    Terms are arrays of an element for each row, in C order, and their weights.
    """

    number: int
    terms: Sequence[tuple[Array, float]]


def prepare_weighted_rows(
    target: Array,
    source: Array,
    terms: Sequence[tuple[int, float]],
    columns: Sequence[Column],
    factor: complex = 1.0,
) -> Callable[[], object] | None:
    """Return a function that sets elements of rows to weighted sums of their neighbours, or None.

    Rows lie along the last axis of two arrays of one shape and type, which share no memory. They
    are treated as one, and never copied elsewhere in another order of memory. Terms are the offset
    and the weight of each neighbour; `columns` are elements with sums of their own, at least those
    whose neighbours are not all in the row. All sums are taken times the real `factor`; as a
    complex number, it multiplies complex sums as such: see `Step`.

    It is None if arrays are not contiguous, or those of columns not equally spaced, if rows are too
    short, there are too many terms or columns, or nothing was compiled.

    Examples
    --------
    >>> u, slopes = np.array([[1.0, 4.0, 9.0]]), np.empty((1, 3))
    >>> ends = [Column(0, [(u[:, 0], 0.0)]), Column(2, [(u[:, 2], 1.0), (u[:, 1], -1.0)])]
    >>> run = prepare_weighted_rows(slopes, u, [(1, 0.5), (-1, -0.5)], ends)
    >>> run and run()
    >>> slopes if run else np.array([[0.0, 4.0, 5.0]])
    array([[0., 4., 5.]])
    """
    kernels = compiled()
    plain = all(each.flags.c_contiguous and each.flags.aligned for each in (target, source))
    longest = max(len(sums) for sums in (terms, *(column.terms for column in columns)))
    few = longest <= _MOST_TERMS and len(columns) <= _MOST_COLUMNS
    if kernels is None or not plain or not few or not target.ndim:
        return None
    if any(abs(offset) >= target.shape[-1] for offset, _ in terms):
        return None
    if not all(_is_viewed(array) for column in columns for array, _ in column.terms):
        return None
    sums = (factor, *(number for term in terms for number in term))
    others = tuple(
        (number, *(each for array, weight in given for each in (array.reshape(-1), weight)))
        for number, given in columns
    )
    return partial(kernels.weighted_rows, target, source, sums, others)


def _is_viewed(array: Array) -> bool:
    """Whether reshaping to one axis makes no copy, which would keep the present values."""
    return not array.size or np.may_share_memory(array.reshape(-1), array)
