"""What functions of fields have in common: checks of their arguments, and warnings of all ranks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.base import Field
from pencils.array.operands import check_field, signature, topology_among
from pencils.comm.agree import agreed

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


def any_of(u: Field, flags: Array | np.generic) -> bool:
    """Whether any flag is set, on any rank of a field. *Collective*."""
    return u.pencil.topology.any_of([bool(flags.any())])[0]


def warn(text: str, up: int = 0) -> None:
    """Warn the caller of a NumPy function. All ranks must do so, after they have communicated.

    `up` is the number of calls between this one and the function that replaces NumPy's.
    """
    warnings.warn(text, RuntimeWarning, stacklevel=_TO_USER + up)
