"""Execution of line programs by NumPy, where nothing was compiled; see `line_program`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Rows, and lists of targets, ends, rows of terms, coefficients of terms, weights, and whether these
# multiply as complex numbers.
Program = tuple[int, Array, Array, Array, Array, Array, Array]

# Bytes of a buffer, so that it stays in the second-level cache; and the fewest and most lines that
# are treated at once. They are those of the compiled programs, too.
BUFFER_BYTES = 2**17
FEWEST_LINES, MOST_LINES = 8, 64


def prepare(
    program: Program,
    sources: Sequence[tuple[int, Array]],
    targets: Sequence[tuple[int, Array]],
    axis: int,
    coefficients: Array | None,
) -> Callable[[], None]:
    """Prepare what `line_program.prepare_lines` describes, with all memory that it takes."""
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
