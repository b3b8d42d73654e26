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
# Rows, and lists of targets, ends, rows of terms, coefficients of terms, weights, and whether these
# multiply as complex numbers.
Program = tuple[int, Array, Array, Array, Array, Array, Array]

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
    def data(self) -> Program:
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
        return _prepare_by_numpy(program.data, sources, targets, axis, coefficients)
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


# ---- Execution by NumPy, where nothing was compiled. ----


def _prepare_by_numpy(
    program: Program,
    sources: Sequence[tuple[int, Array]],
    targets: Sequence[tuple[int, Array]],
    axis: int,
    coefficients: Array | None,
) -> Callable[[], None]:
    """Prepare what `prepare_lines` describes, with all memory that it takes."""
    first = targets[0][1]
    lines = first.shape[:axis] + first.shape[axis + 1 :]
    inputs = [(begin, np.moveaxis(array, axis, 0)) for begin, array in sources]
    outputs = [(begin, np.moveaxis(array, axis, 0)) for begin, array in targets]
    rows = program[0]
    memory = np.empty(rows * min(prod(lines), most_lines(rows, first.itemsize)), first.dtype)

    def run() -> None:
        with np.errstate(all="ignore"):
            for here, numbers in strips(lines, rows, first.itemsize):
                extents = outputs[0][1][(slice(0, 1), *here)].shape[1:]
                buffer = memory[: rows * prod(extents)].reshape(rows, *extents)
                for begin, array in inputs:
                    buffer[begin : begin + len(array)] = array[:, *here]
                factors = None if coefficients is None else coefficients[:, numbers]
                _execute(program, buffer, factors)
                for begin, array in outputs:
                    array[:, *here] = buffer[begin : begin + len(array)]

    return run


def _execute(program: Program, buffer: Array, factors: Array | None) -> None:
    targets, ends, rows, numbers, weights, as_complex = (part.tolist() for part in program[1:])
    real = buffer.real.dtype
    parts = buffer.view(real).reshape(*buffer.shape, buffer.itemsize // real.itemsize)
    begin = 0
    for target, end, is_complex in zip(targets, ends, as_complex, strict=True):
        total: Any = None  # 0 would lose the sign of -0.0
        terms = list(zip(rows[begin:end], weights[begin:end], numbers[begin:end], strict=True))
        whole = is_complex or any(weight.imag or number >= 0 for _, weight, number in terms)
        for row, weight, number in terms:
            if whole:
                term = weight * buffer[row]
            else:
                term = parts[row] if weight == 1 else weight.real * parts[row]
            if number >= 0:
                assert factors is not None
                term = term * factors[number].reshape(term.shape)
            total = term if total is None else total + term
        (buffer if whole else parts)[target] = 0 if total is None else total
        begin = end


def most_lines(rows: int, itemsize: int) -> int:
    """Return how many lines are treated at once, if there are so many."""
    return min(max(BUFFER_BYTES // max(1, rows * itemsize), FEWEST_LINES), MOST_LINES)


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
    most = most_lines(rows, itemsize)
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


# As in the compiled kernels.
_MOST_TERMS = _MOST_COLUMNS = 8


def weighted_sum(target: Array, sources: Sequence[Array], weights: Sequence[complex]) -> None:
    """Set an array to the sum of other arrays, each times its weight, as NumPy multiplies them.

    Parameters
    ----------
    target : ndarray
        Float or complex, with any strides; it shares no memory with the sources, which is not
        checked.
    sources : sequence of ndarray
        Of the shape and type of `target`, with any strides. Contiguous last axes are fastest.
    weights : sequence of complex
        One for each source.

    Raises
    ------
    ValueError
        If shapes or types differ, or weights are complex where the arrays are real.

    Examples
    --------
    >>> u = np.array([1.0, 4.0, 9.0, 16.0])
    >>> slopes = np.empty(2)
    >>> weighted_sum(slopes, [u[2:], u[:-2]], [0.5, -0.5])
    >>> slopes
    array([4., 6.])
    """
    kernels = compiled()
    real = all(type(weight) is not complex or not weight.imag for weight in weights)
    pairs = len(sources) == len(weights) > 0
    if kernels is not None and pairs and real and target.dtype.isnative and target.ndim:
        numbers = [float(weight.real) for weight in weights]
        if kernels.weighted_sum(target, *sources, *numbers):
            return
    # The sources are rows of lines that have as many points, and the target is one more.
    count = len(sources)
    terms = [Term(row, weight) for row, weight in zip(range(count), weights, strict=True)]
    program = LineProgram(count + 1, [Step(count, terms, as_complex=True)])
    rows = [Rows(row, source[np.newaxis]) for row, source in enumerate(sources)]
    prepare_lines(program, rows, [Rows(count, target[np.newaxis])], 0)()


class Column(NamedTuple):
    """Elements of all rows that are sums of other ones.

    Attributes
    ----------
    number : int
        Where they are in each row.
    terms : sequence of (ndarray, float)
        Arrays of an element for each row, in C order, and their weights.
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

    Rows lie along the last axis. They are treated as one, and never copied elsewhere in another
    order of memory.

    Parameters
    ----------
    target, source : ndarray
        Arrays of one shape and type, float or complex, that share no memory.
    terms : sequence of (int, float)
        Offset of each neighbour, and its weight.
    columns : sequence of Column
        Sums of their own, for elements at least whose neighbours are not all in the row.
    factor : float or complex, optional
        Times which all sums are taken, those of columns, too. It is real; as a complex number, it
        multiplies complex sums as such: see `Step`.

    Returns
    -------
    callable or None
        None if arrays are not contiguous, or those of columns not equally spaced, if rows are too
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
