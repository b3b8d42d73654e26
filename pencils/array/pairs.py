"""Scalar product and comparisons of two fields over all ranks. All are *Collective*."""

from __future__ import annotations

from typing import Any

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import Field
from pencils.array.global_reduction import Reduction
from pencils.array.operands import common_pencil, local_part, signature, topology_among
from pencils.array.whole_reduction import WholeReduction, keep_reduction, kept_reduction
from pencils.comm.agree import agreed
from pencils.comm.reduce import dot, fold, reducer
from pencils.errors import ArgumentError


def vdot(u: Any, other: Any) -> Any:
    """Sum of ``conj(field) * other`` over all elements and ranks. *Collective*.

    Parameters
    ----------
    u, other : PencilArray
        Fields of the same global shape; one of them may be a replicated NumPy array.

    Returns
    -------
    scalar
        A NumPy scalar, the same on every rank. Products are added pairwise over rows of 2048, so
        that rounding hardly grows with the field, and does not depend on threads of the BLAS.

    Raises
    ------
    PencilMismatchError, ArgumentError
        If pencils or shapes differ.
    """
    # `isinstance` may raise, on one rank only, for an object whose class is a property.
    fields = all(issubclass(type(operand), Field) for operand in (u, other))
    alike = fields and u.pencil is other.pencil
    kept = kept_reduction("vdot", u, other) if alike else None
    if kept is not None:
        return kept(u, other)
    made = None
    with agreed(topology_among(u, other).comm, "vdot") as agree:
        first = min(_fields(u, other), key=lambda field: len(field.singletons))
        same: dict[str, object] = {"u": _signature(u), "other": _signature(other)}
        agree(**same)
        left, right = _blocks(u, other)
        if np.shape(u) != np.shape(other):
            raise ArgumentError(
                f"vdot of shapes {np.shape(u)} and {np.shape(other)}; they must be equal"
            )
        same["dtypes"] = left.dtype, right.dtype
        agree(**same)
        task = Reduction.of("vdot", first, None, None, False)
        axes = memory_axes(first.pencil.order, len(first.components))
        part = np.asarray(dot(left.transpose(axes), right.transpose(axes)))
        if not task.contributes:
            part = np.zeros_like(part)
        agree.carry(part)
        reduce = reducer(part, np.add) if agree.carried is None else None
        result = np.result_type(left, right)
        if alike and u.singletons == other.singletons:
            made = WholeReduction(
                u,
                "vdot",
                same,
                ufunc=np.add,
                dtype=part.dtype,
                result=result,
                part=lambda left, right: dot(left.transpose(axes), right.transpose(axes)),
                neutral=None if task.contributes else part[()],
            )
    if made is not None:
        keep_reduction("vdot", [u, other], made)
    if reduce is None:
        assert agree.carried is not None
        total = fold(agree.carried, np.add)[0]
    else:
        total = reduce(task.comm)[()]
    with np.errstate(all="ignore"):  # as everywhere in `numpy.vdot`
        return total.astype(result, copy=False)


def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether two fields agree within tolerances on all ranks, as `numpy.allclose`. *Collective*.

    Parameters
    ----------
    a, b : PencilArray
        Fields of the same blocks; one of them may be a replicated NumPy array or a scalar.
    rtol, atol, equal_nan
        As in `numpy.isclose`.
    """
    comm = topology_among(a, b).comm
    with agreed(comm, "allclose") as agree:
        agree(a=_signature(a), b=_signature(b))
        agree(tolerances=(float(rtol), float(atol)), equal_nan=bool(equal_nan))
        left, right = _blocks(a, b)
        close = np.allclose(left, right, rtol=rtol, atol=atol, equal_nan=equal_nan)
        agree.flag(up=not close)
    return not agree.flagged


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Whether two fields have the same global shape and elements on all ranks. *Collective*."""
    comm = topology_among(a1, a2).comm
    with agreed(comm, "array_equal") as agree:
        agree(a1=_signature(a1), a2=_signature(a2), equal_nan=bool(equal_nan))
        equal = np.shape(a1) == np.shape(a2)
        if equal:
            equal = np.array_equal(*_blocks(a1, a2), equal_nan=equal_nan)
        agree.flag(up=not equal)
    return not agree.flagged


def _signature(operand: Any) -> object:
    """Return what all ranks must agree on about an operand, values excluded."""
    return signature(operand) if isinstance(operand, Field) else np.shape(operand)


def _blocks(one: Any, other: Any) -> tuple[Array, Array]:
    """Local parts of both operands, broadcast against each other."""
    pencil = common_pencil(_fields(one, other))
    left, right = np.broadcast_arrays(local_part(one, pencil)[0], local_part(other, pencil)[0])
    return left, right


def _fields(*operands: Any) -> list[Field]:
    return [operand for operand in operands if isinstance(operand, Field)]
