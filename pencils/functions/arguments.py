"""What functions of fields have in common: checks of their arguments, and warnings of all ranks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from pencils.array.allocation import Array, plain_array
from pencils.array.base import Field
from pencils.array.global_reduction import Reduction, own_part
from pencils.array.operands import check_field, signature, topology_among
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError

# From here through the function that NumPy calls, `apply_function` and ``__array_function__``.
_TO_USER = 5


def check_given(name: str, a: object, *others: object, parameter: str = "a") -> None:
    """Raise on all ranks if the first argument is no field, but others are."""
    if not isinstance(a, Field):
        with agreed(topology_among(a, *others).comm, name):
            check_field(f"{name}: {parameter}", a)


def facts_of(operand: Any) -> object:
    """Return what all ranks must agree on about a field, an array or a scalar, without values."""
    if isinstance(operand, Field):
        return signature(operand)
    array = np.asarray(operand)
    return array.shape, array.dtype


def own_values(u: Field, block: Array) -> Array:
    """Put the values of a block of a field into one row, a view if possible.

    There are none if another rank has the same values, as replicas of singletons.
    """
    if not Reduction.of("", u, None, None, False).contributes:
        return block.reshape(-1)[:0]
    return block.transpose(u.frame.axes(len(u.components))[0]).reshape(-1)


def weights_part(weights: Any, a: Field, axes: tuple[int, ...] | None) -> Array:
    """Own part of weights of a field, or of its extents along axes, in the given order."""
    if isinstance(weights, Field):
        return own_part(weights, a)
    array = plain_array(weights)
    if array.shape != a.shape:
        if axes is None:
            raise TypeError(
                f"weights of shape {array.shape} for a field of shape {a.shape}: give axis=, or "
                "weights of the same shape"
            )
        along = tuple(a.shape[i] for i in axes)
        if array.shape != along:
            raise ArgumentError(
                f"weights of shape {array.shape} must have the shape {a.shape} of the field, or "
                f"that along axes {axes}, {along}"
            )
        turned = array.transpose(np.argsort(axes))
        array = turned.reshape([n if i in axes else 1 for i, n in enumerate(a.shape)])
    return own_part(array, a)


def own_weights(weights: Any, u: Field) -> Array:
    """Own part of weights of each point of a field."""
    array = weights if isinstance(weights, Field) else plain_array(weights)
    if array.shape != u.shape and not isinstance(array, Field):
        raise ArgumentError(
            f"weights of shape {array.shape} must have the shape {u.shape} of the field"
        )
    return own_part(array, u)


def warn(text: str, up: int = 0) -> None:
    """Warn the caller of a NumPy function. All ranks must do so, after they have communicated.

    `up` is the number of calls between this one and the function that replaces NumPy's.
    """
    warnings.warn(text, RuntimeWarning, stacklevel=_TO_USER + up)
