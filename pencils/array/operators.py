"""Operators on fields: those of NumPy's mixin, but for three that arrays do better than ufuncs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from numpy.lib.mixins import NDArrayOperatorsMixin

from pencils.array.numpy_api import elementwise


class Operators(NDArrayOperatorsMixin):
    """The operators of a field, elementwise and without communication."""

    __slots__ = ()

    # Comparisons of records are not ufuncs, and ``block**2`` is faster than ``np.power(block, 2)``.

    def __eq__(self, other: object) -> Any:
        return _on_blocks(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        return _on_blocks(operator.ne, self, other)

    def __pow__(self, other: object) -> Any:
        return _on_blocks(operator.pow, self, other)

    __hash__ = None  # type: ignore[assignment]


def _on_blocks(operation: Callable[..., Any], field: Operators, other: object) -> Any:
    if getattr(other, "__array_ufunc__", operation) is None:  # it wants to do this by itself
        return NotImplemented
    return elementwise(operation, (field, other), {})
