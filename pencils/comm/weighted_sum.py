"""Weighted sums of arrays in one pass: each element is read and written once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm.line_program import LineProgram, Rows, Step, Term, prepare_lines
from pencils.comm.pack import compiled

Array = NDArray[Any]


def weighted_sum(target: Array, sources: Sequence[Array], weights: Sequence[complex]) -> None:
    """Set an array to the sum of other arrays, each times its weight.

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
    program = LineProgram(count + 1, [Step(count, terms)])
    rows = [Rows(row, source[np.newaxis]) for row, source in enumerate(sources)]
    prepare_lines(program, rows, [Rows(count, target[np.newaxis])], 0)()
