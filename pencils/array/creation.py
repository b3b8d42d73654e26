"""Make fields: empty, zeros, ones, full, their ``_like`` forms, and from a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import (
    HaloLike,
    as_components,
    as_dtype,
    as_halo,
    as_singletons,
    as_value,
    plain_array,
)
from pencils.array.operands import check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError
from pencils.pencil import Pencil
from pencils.plans import NoAgreement


def empty(
    pencil: Pencil,
    dtype: DTypeLike = float,
    *,
    components: int | Sequence[int] = (),
    halo: HaloLike = 0,
    dims: Sequence[int] | int | None = None,
    shared: bool = False,
) -> PencilArray:
    """Make a field whose values are not set.

    Parameters
    ----------
    pencil : Pencil
        The decomposed grid.
    dtype : dtype, optional
        Element type; any of fixed size without Python objects.
    components : int or sequence of int, optional
        Shape of the component axes, which come first: ``3`` for a vector, ``(3, 3)`` for a tensor.
    halo : int, sequence of int, or sequence of (int, int), optional
        Halo width for all dimensions, for each, or ``(lo, hi)`` for each; ignored along singletons.
    dims : int or sequence of int, optional
        Dimensions along which the field varies; it is a singleton along the others.
    shared : bool, optional
        Whether to allocate the block in shared memory of the node, which saves copies in
        communication. The call is then *Collective*. If the node has too little shared memory, the
        memory is private, and a warning is given.

    Returns
    -------
    PencilArray
        The field; its own block is contiguous in the memory order of the pencil.

    Raises
    ------
    ArgumentError, TypeError
        If an argument is not allowed.

    Examples
    --------
    >>> import pencils
    >>> pencils.empty(pencils.Pencil((8, 6)), components=2).shape
    (2, 8, 6)
    """
    return _create(pencil, dtype, components, halo, dims, shared=shared)


def zeros(
    pencil: Pencil,
    dtype: DTypeLike = float,
    *,
    components: int | Sequence[int] = (),
    halo: HaloLike = 0,
    dims: Sequence[int] | int | None = None,
    shared: bool = False,
) -> PencilArray:
    """Make a field of zeros, halo included; parameters as in `empty`.

    Examples
    --------
    >>> import pencils
    >>> pencils.zeros(pencils.Pencil((8, 6)), halo=1).local.any()
    np.False_
    """
    return _create(pencil, dtype, components, halo, dims, zero=True, shared=shared)


def ones(
    pencil: Pencil,
    dtype: DTypeLike = float,
    *,
    components: int | Sequence[int] = (),
    halo: HaloLike = 0,
    dims: Sequence[int] | int | None = None,
    shared: bool = False,
) -> PencilArray:
    """Make a field of ones, halo included; parameters as in `empty`.

    Examples
    --------
    >>> import pencils
    >>> pencils.ones(pencils.Pencil((8, 6))).sum()
    np.float64(48.0)
    """
    return _create(pencil, dtype, components, halo, dims, fill_value=1, shared=shared)


def full(
    pencil: Pencil,
    fill_value: object,
    dtype: DTypeLike | None = None,
    *,
    components: int | Sequence[int] = (),
    halo: HaloLike = 0,
    dims: Sequence[int] | int | None = None,
    shared: bool = False,
) -> PencilArray:
    """Make a field of one value, halo included; parameters as in `empty`.

    Parameters
    ----------
    pencil, components, halo, dims, shared
        As in `empty`.
    fill_value : scalar
        The value.
    dtype : dtype, optional
        Element type; default float for numbers (complex for complex ones), else that of the value.

    Examples
    --------
    >>> import pencils
    >>> pencils.full(pencils.Pencil((8, 6)), 2.5).max()
    np.float64(2.5)
    """
    return _create(pencil, dtype, components, halo, dims, fill_value=fill_value, shared=shared)


def empty_like(u: PencilArray, dtype: DTypeLike | None = None) -> PencilArray:
    """Make a field like another one (pencil, components, halo, singletons), values not set.

    Parameters
    ----------
    u : PencilArray
        The pattern.
    dtype : dtype, optional
        Element type, default that of `u`.

    Raises
    ------
    TypeError
        If `u` is not a PencilArray, or the dtype is not allowed.

    Examples
    --------
    >>> import pencils
    >>> u = zeros(pencils.Pencil((4, 5)), components=2, halo=1)
    >>> v = empty_like(u, dtype="f4")
    >>> v.shape, v.dtype, v.halo == u.halo
    ((2, 4, 5), dtype('float32'), True)
    """
    check_type("u", u, PencilArray)
    return u.blank(dtype)


def zeros_like(u: PencilArray, dtype: DTypeLike | None = None) -> PencilArray:
    """Make a field of zeros like another one; parameters as in `empty_like`.

    Examples
    --------
    >>> import pencils
    >>> u = empty(pencils.Pencil((4, 5)), halo=1)
    >>> zeros_like(u, dtype=int).item(3, 4)
    0
    """
    check_type("u", u, PencilArray)
    return u.blank(dtype, zero=True)


def ones_like(u: PencilArray, dtype: DTypeLike | None = None) -> PencilArray:
    """Make a field of ones like another one; parameters as in `empty_like`.

    Examples
    --------
    >>> import pencils
    >>> u = empty(pencils.Pencil((4, 5)), halo=1)
    >>> ones_like(u).item(3, 4)
    1.0
    """
    return full_like(u, 1, dtype=dtype)


def full_like(u: PencilArray, fill_value: object, dtype: DTypeLike | None = None) -> PencilArray:
    """Make a field of one value like another one; parameters as in `empty_like`.

    Examples
    --------
    >>> import pencils
    >>> u = empty(pencils.Pencil((4, 5)), halo=1)
    >>> full_like(u, 3).item(3, 4)
    3.0
    """
    like = empty_like(u, dtype=dtype)
    like.fill(fill_value)
    return like


def from_function(
    pencil: Pencil,
    function: Callable[..., Any],
    *,
    dtype: DTypeLike | None = None,
    halo: HaloLike = 0,
) -> PencilArray:
    """Make a field from a function of the global indices, evaluated on the own block.

    Parameters
    ----------
    pencil : Pencil
        The decomposed grid.
    function : callable
        Called once as ``function(i, j, ...)`` with one integer array per dimension: the global
        indices of the own block, shaped to broadcast against each other. The result must broadcast
        to the block; leading axes beyond its dimensions become components.
    dtype : dtype, optional
        Element type, default that of the returned values.
    halo : int, sequence of int, or sequence of (int, int), optional
        Halo widths; halo points are left at zero.

    Returns
    -------
    PencilArray
        The field.

    Raises
    ------
    ArgumentError
        If the values do not broadcast to the block.

    Examples
    --------
    >>> import pencils
    >>> u = from_function(pencils.Pencil((4, 5)), lambda i, j: 10 * i + j)
    >>> u.item(3, 4)
    34
    """
    check_type("pencil", pencil, Pencil)
    box = pencil.box()
    indices = np.ix_(*(np.arange(lo, hi) for lo, hi in zip(box.start, box.stop, strict=True)))
    values = plain_array(function(*indices))
    components = values.shape[: max(0, values.ndim - pencil.ndim)]
    try:
        block = np.broadcast_to(values, components + box.shape)
    except ValueError:
        raise ArgumentError(
            f"the function returned shape {values.shape} on rank {pencil.rank}; it must broadcast "
            f"to the shape of the block, {box.shape}"
        ) from None
    kind = values.dtype if dtype is None else dtype
    u = zeros(pencil, dtype=kind, components=components, halo=halo)
    u.local[...] = block
    return u


def _create(
    pencil: Pencil,
    dtype: DTypeLike | None,
    components: int | Sequence[int],
    halo: HaloLike,
    dims: Sequence[int] | int | None,
    *,
    fill_value: object = None,
    zero: bool = False,
    shared: bool = False,
) -> PencilArray:
    """Make a field of zeros or of `fill_value`; without either its values are not set."""
    agreement = agreed(topology_among(pencil).comm, "shared field") if shared else NoAgreement()
    with agreement as agree:
        check_type("pencil", pencil, Pencil)
        if isinstance(fill_value, PencilArray):
            raise TypeError(
                "fill_value must be a number, not a field; write u.copy() for a copy, or v[...] "
                "= u to assign it"
            )
        singletons = as_singletons(pencil.ndim, dims)
        widths = as_halo(halo, pencil.ndim, singletons)
        if dtype is None:  # at least float for numbers
            dtype = np.asarray(fill_value).dtype
            dtype = np.result_type(float, dtype) if dtype.kind in "biufc" else dtype
        kind = as_dtype(dtype)
        value = None if fill_value is None else as_value("fill_value", fill_value, kind)
        lead = as_components(components)
        agree(pencil=pencil, dtype=kind, components=lead, halo=widths, fill_value=value)
        agree(singletons=sorted(singletons))
    u = PencilArray.allocated(pencil, kind, lead, singletons, widths, zero=zero, shared=shared)
    if value is not None:
        u.padded[...] = value
    return u
