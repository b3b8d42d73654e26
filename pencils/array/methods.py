"""Methods of NumPy arrays that fields have, too: each is the function of NumPy of that name.

Methods that change an array, and those whose functions return fields, do the same to fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import numpy as np

from pencils.array import provided
from pencils.array.base import Field
from pencils.errors import MissingAttributeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike


F = TypeVar("F", bound=Field)

# What type checkers know of functions of NumPy is about arrays.
_np: Any = np


class Missing:
    """An attribute of NumPy arrays that fields do not have: the error names what to write."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, u: Field | None, kind: type | None = None) -> Missing:
        if u is None:
            return self
        name = self._name
        raise MissingAttributeError(provided("explain_attribute")(name), name=name, obj=u)


def nbytes(u: Field) -> int:
    """Global number of bytes of all elements, each replica counted once."""
    return u.size * u.dtype.itemsize


def itemsize(u: Field) -> int:
    """Bytes of one element."""
    return u.dtype.itemsize


def conj(u: F) -> F:
    """Complex conjugate."""
    return cast("F", _np.conjugate(u))


def clip(u: F, min: Any = None, max: Any = None, out: F | None = None, **options: Any) -> F:
    """Values moved into an interval, as `numpy.clip`; never communicates.

    Parameters
    ----------
    min, max : array_like or PencilArray, optional
        Ends of the interval; None for no end.
    out : PencilArray, optional
        Field to fill.
    **options
        Further arguments of `numpy.clip`.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil(4), lambda i: i)
    >>> u.clip(1, 2).local
    array([1, 1, 2, 2])
    """
    return cast("F", _np.clip(u, min, max, out=out, **options))


def round(u: F, decimals: int = 0, out: F | None = None) -> F:
    """Values rounded to some decimals, as `numpy.round`; never communicates."""
    return cast("F", _np.round(u, decimals, out))


def sort(
    u: Field,
    axis: int = -1,
    kind: Any = None,
    order: str | Sequence[str] | None = None,
    *,
    stable: bool | None = None,
) -> None:
    """Sort in place along an axis that is whole on each rank; never communicates.

    Parameters
    ----------
    axis : int, optional
        A component axis, or a dimension of space that is not decomposed.
    kind, order, stable
        As in `numpy.sort`.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((2, 3)), lambda i, j: i - j)
    >>> u.sort(axis=1)
    >>> u.local
    array([[-2, -1,  0],
           [-1,  0,  1]])
    """
    _np.copyto(u, _np.sort(u, axis, kind, order, stable=stable))


def argsort(
    u: F,
    axis: int = -1,
    kind: Any = None,
    order: str | Sequence[str] | None = None,
    *,
    stable: bool | None = None,
) -> F:
    """Positions that would sort along an axis that is whole on each rank, as `numpy.argsort`."""
    return cast("F", _np.argsort(u, axis, kind, order, stable=stable))


def cumsum(u: F, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> F:
    """Sum the elements up to each one along an axis, as `numpy.cumsum`. *Collective*."""
    return cast("F", _np.cumsum(u, axis, dtype, out))


def cumprod(u: F, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> F:
    """Multiply the elements up to each one along an axis, as `numpy.cumprod`. *Collective*."""
    return cast("F", _np.cumprod(u, axis, dtype, out))


def dlpack(u: Field, **_options: Any) -> NoReturn:  # noqa: ARG001 - the protocol passes them
    """Raise a BufferError: other libraries take the own block."""
    raise BufferError(
        "a PencilArray is not exported by DLPack: its blocks are on different ranks; pass u.local"
    )
