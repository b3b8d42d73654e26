"""Normalize arguments that describe fields: element types, components, halo widths, dimensions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import Widths
from pencils.errors import ArgumentError
from pencils.layout.integers import as_dims, as_ints, to_int

HaloLike = int | Sequence[int] | Sequence[tuple[int, int]]


def as_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Normalise an element type; it must have a fixed size and hold no Python objects.

    Raises
    ------
    TypeError
        For object types, whose elements are addresses that mean nothing on another rank.
    """
    normal = np.dtype(dtype)
    if normal.subdtype is not None:
        msg = f"dtype {dtype!r} has a shape of its own; use components= for that"
        raise TypeError(msg)
    if normal.hasobject or normal.itemsize == 0:
        msg = f"dtype {normal} cannot be distributed; use one of fixed size without Python objects"
        raise TypeError(msg)
    return normal


def as_value(name: str, value: object, dtype: np.dtype[Any]) -> Any:
    """Convert one value to an element type.

    Raises
    ------
    ArgumentError
        If it is an array of several.
    """
    one = np.asarray(value, dtype)
    if one.ndim:
        msg = f"{name}={value!r} must be one value; assign arrays with u[...] = values"
        raise ArgumentError(msg)
    return one[()]


def as_components(components: int | Sequence[int]) -> tuple[int, ...]:
    """Normalise the shape of the component axes, like ``3`` or ``(3, 3)``."""
    shape = as_ints("components", components)
    if any(extent < 0 for extent in shape):
        msg = f"components={shape} must not be negative"
        raise ArgumentError(msg)
    return shape


def as_halo(halo: HaloLike, ndim: int, singletons: Collection[int] = ()) -> Widths:
    """Normalise halo widths to ``(lo, hi)`` for every dimension.

    Parameters
    ----------
    halo : int, sequence of int, or sequence of (int, int)
        One width for all dimensions that are not singletons, one for each dimension, or a pair
        for each dimension.
    ndim : int
        Number of dimensions.
    singletons : collection of int, optional
        Dimensions of extent 1, which have no halo.

    Raises
    ------
    ArgumentError, TypeError
        If the widths are negative, do not fit `ndim`, or lie along a singleton.
    """
    width = to_int(halo)
    if width is not None:
        halo = [0 if dim in singletons else width for dim in range(ndim)]
    given: object = halo
    if isinstance(given, str) or not isinstance(given, Iterable):
        msg = f"halo={halo!r} must be a width, a sequence of widths, or one of (lo, hi) pairs"
        raise TypeError(msg)
    entries = list(given)
    if len(entries) != ndim:
        msg = f"halo={halo!r} must be one width or one entry for each of {ndim} dimensions"
        raise ArgumentError(msg)
    pairs = [as_ints("halo", width) for width in entries]
    widths = [pair * 2 if len(pair) == 1 else pair for pair in pairs]
    if any(len(pair) != 2 or min(pair) < 0 for pair in widths):  # noqa: PLR2004
        msg = f"halo={halo!r} must hold widths >= 0 or (lo, hi) pairs of them"
        raise ArgumentError(msg)
    for dim in singletons:
        if widths[dim] != (0, 0):
            msg = f"halo={halo!r} is wider than 0 along singleton dimension {dim}; use 0 there"
            raise ArgumentError(msg)
    return tuple((lo, hi) for lo, hi in widths)


def as_singletons(ndim: int, dims: Sequence[int] | int | None) -> frozenset[int]:
    """Dimensions left over as singletons when a field varies along `dims` only."""
    if dims is None:
        return frozenset()
    return frozenset(range(ndim)) - set(as_dims("dims", dims, ndim))
