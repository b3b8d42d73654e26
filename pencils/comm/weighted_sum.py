"""Weighted sums of arrays in one pass: each element is read and written once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.comm.line_program import LineProgram, Rows, Step, Term, prepare_lines
from pencils.comm.pack import compiled

Array = NDArray[Any]

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
