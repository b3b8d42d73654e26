"""What all nodes of an expression graph have, and what can be said about them without more."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np

Shape = tuple[int, ...]
DType = np.dtype[Any]


class Tag:
    """Base class of marks that users put on nodes; they have no effect on the result.

    Examples
    --------
    >>> from pencils.graph import make_placeholder
    >>> class Slow(Tag):
    ...     "Takes long."
    >>> x = make_placeholder("x", (3,), float, tags=frozenset({Slow()}))
    >>> [type(tag).__name__ for tag in x.tags]
    ['Slow']
    """

    __slots__ = ()


Tags = frozenset[Any]
NO_TAGS: Tags = frozenset()


class Node:
    """A value of known shape and type that nobody has computed yet."""

    __slots__ = ()
    shape: Shape
    dtype: DType


def is_node(value: object) -> TypeGuard[Node]:
    """Whether a value is still to be computed."""
    return isinstance(value, Node)
