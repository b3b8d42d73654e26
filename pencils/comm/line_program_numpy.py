"""Execution of line programs by NumPy, where nothing was compiled; see `line_program`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Rows, and lists of targets, ends, rows of terms, coefficients of terms, and weights.
Program = tuple[int, Array, Array, Array, Array, Array]

# Bytes of a buffer, so that it stays in the second-level cache; and the fewest and most lines.
BUFFER_BYTES = 2**17
FEWEST_LINES, MOST_LINES = 8, 64


def run(
    program: Program,
    sources: Sequence[tuple[int, Array]],
    targets: Sequence[tuple[int, Array]],
    axis: int,
    coefficients: Array | None,
) -> None:
    """Execute a program as `pencils.comm.line_program.prepare_lines` says."""
    first = targets[0][1]
    lines = first.shape[:axis] + first.shape[axis + 1 :]
    inputs = [(begin, np.moveaxis(array, axis, 0)) for begin, array in sources]
    outputs = [(begin, np.moveaxis(array, axis, 0)) for begin, array in targets]
    with np.errstate(all="ignore"):
        for here, numbers in strips(lines, program[0], first.itemsize):
            shape = first[(*here[:axis], slice(0, 1), *here[axis:])].shape
            extents = shape[:axis] + shape[axis + 1 :]
            buffer = np.empty((program[0], *extents), first.dtype)
            for begin, array in inputs:
                buffer[begin : begin + len(array)] = array[:, *here]
            factors = None
            if coefficients is not None:
                factors = coefficients[:, numbers].reshape(len(coefficients), *extents)
            _execute(program, buffer, factors)
            for begin, array in outputs:
                array[:, *here] = buffer[begin : begin + len(array)]


def _execute(program: Program, buffer: Array, factors: Array | None) -> None:
    targets, ends, rows, numbers, weights = (part.tolist() for part in program[1:])
    begin = 0
    for target, end in zip(targets, ends, strict=True):
        total: Any = None  # 0 would lose the sign of -0.0
        for row, weight, number in zip(
            rows[begin:end], weights[begin:end], numbers[begin:end], strict=True
        ):
            term = buffer[row] if weight == 1 else weight * buffer[row]
            if number >= 0:
                assert factors is not None
                term = term * factors[number]
            total = term if total is None else total + term
        buffer[target] = 0 if total is None else total
        begin = end


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
