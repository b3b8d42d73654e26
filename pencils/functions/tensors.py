"""Products of fields with constant matrices and tensors, over component axes: local."""

from __future__ import annotations

from string import ascii_letters
from typing import Any

import numpy as np

from pencils.array.allocation import plain_array
from pencils.array.base import Field
from pencils.errors import ArgumentError
from pencils.functions.components import component_axis, einsum
from pencils.functions.refused import MATRICES
from pencils.layout.integers import as_dims, as_int

_REFUSED = (
    "numpy.{} does not take a PencilArray here, only beside a constant tensor and over component "
    f"axes: {MATRICES}"
)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Field:
    """Sum products of a constant tensor and a field, as `numpy.tensordot`; never communicates.

    Parameters
    ----------
    a, b : array_like and PencilArray
        A NumPy array that all ranks have, and a field, whose summed axes are component axes. If the
        field comes first, all axes of the array are summed.
    axes : int, or two sequences of int, optional
        The summed axes of `a` and of `b`; a number `n` for the last `n` of `a` and the first `n` of
        `b`.

    Returns
    -------
    PencilArray
        Its components are the other axes of both.

    Raises
    ------
    TypeError
        If space is summed over, or would not be last.

    Examples
    --------
    >>> import pencils
    >>> velocity = pencils.ones(pencils.Pencil((4, 6)), components=2)
    >>> np.tensordot([[0, -1], [1, 0], [1, 1]], velocity, axes=1).shape
    (3, 4, 6)
    """
    if isinstance(a, Field) and isinstance(b, Field):
        raise TypeError(_REFUSED.format("tensordot"))
    one, other = (x if isinstance(x, Field) else plain_array(x) for x in (a, b))
    first, second = _summed(axes, one.ndim, other.ndim)
    for operand, summed in ((one, first), (other, second)):
        if isinstance(operand, Field):
            for axis in summed:
                component_axis("tensordot", operand, axis)
        elif operand is other and len(summed) < operand.ndim:
            raise TypeError(_REFUSED.format("tensordot"))
    left = list(ascii_letters[: one.ndim])
    right = list(ascii_letters[one.ndim : one.ndim + other.ndim])
    for axis, mine in zip(second, first, strict=True):
        right[axis] = left[mine]
    return _contracted(one, other, left, right)


def matmul(x1: Any, x2: Any, /, **options: Any) -> Field:
    """Multiply a constant matrix and the components of a field on a line, as `numpy.matmul`.

    Fields have matrices in their last two axes only if space has one dimension and there is one
    component axis; `einsum` is for all others.
    """
    fits = isinstance(x2, Field) and x2.pencil.ndim == 1 and len(x2.components) == 1
    if options or not fits or isinstance(x1, Field) or np.ndim(x1) not in (1, 2):
        raise TypeError(_REFUSED.format("matmul"))
    return tensordot(x1, x2, axes=1)


def _summed(axes: Any, ndim: int, other: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the summed axes of both operands."""
    try:
        first, second = axes
    except TypeError:
        count = as_int("axes", axes, least=0)
        first, second = range(ndim - count, ndim), range(count)
    pair = as_dims("axes", first, ndim), as_dims("axes", second, other)
    if len(pair[0]) != len(pair[1]):
        raise ArgumentError(
            f"numpy.tensordot: axes={axes!r} must name as many axes of both operands"
        )
    return pair


def _contracted(one: Any, other: Any, left: list[str], right: list[str]) -> Field:
    """Apply `einsum`, by letters of all axes; those of space become `...`."""
    terms = []
    for operand, letters in ((one, left), (other, right)):
        if isinstance(operand, Field):
            terms.append("".join(letters[: len(operand.components)]) + "...")
        else:
            terms.append("".join(letters))
    both = terms[0].removesuffix("...") + terms[1].removesuffix("...")
    free = "".join(letter for letter in both if both.count(letter) == 1)
    found: Field = einsum(f"{terms[0]},{terms[1]}->{free}...", one, other)
    return found
