"""Fields of several pencils over one piece of memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import (
    allocate_bytes,
    arrange,
    as_components,
    as_dtype,
    as_singletons,
    padded_shape,
)
from pencils.array.operands import as_pencils, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.pencil import Pencil


def alias(
    pencils: Sequence[Pencil],
    dtype: DTypeLike = float,
    *,
    components: int | Sequence[int] = (),
    dims: Sequence[int] | int | None = None,
    shared: bool = False,
) -> tuple[PencilArray, ...]:
    """Make fields that lie in the same memory, one for each pencil, to transpose in place.

    What one of them holds is lost when another one is written. Transposing between two of them
    takes no second field; what leaves a rank is packed first.

    Parameters
    ----------
    pencils : sequence of Pencil
        Pencils over the same processes, such as the stages of a Fourier transform.
    dtype : dtype, optional
        Element type.
    components : int or sequence of int, optional
        Shape of the component axes.
    dims : int or sequence of int, optional
        Dimensions along which the fields vary; they are singletons along the others.
    shared : bool, optional
        Whether to put the memory where the other ranks of the node can read it. The call is then
        *Collective*.

    Returns
    -------
    tuple of PencilArray
        Fields whose values are not set. All begin at the same address; the largest block on this
        rank decides how much memory they have.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError
        If there is no pencil, pencils lie over different processes, or an argument is not allowed.

    Examples
    --------
    >>> import pencils
    >>> rows = pencils.Pencil((8, 6), decomp=0)
    >>> u, v = pencils.alias([rows, rows.with_(decomp=1)])
    >>> u[...] = 1
    >>> pencils.transpose(u, v.pencil, out=v).sum()
    np.float64(48.0)
    """
    if not shared:
        return _make(_read(pencils, dtype, components, dims), shared=False)
    with agreed(topology_among(pencils).comm, "alias") as agree:
        wanted = _read(pencils, dtype, components, dims)
        agree(pencils=wanted.pencils, dtype=wanted.dtype)
        agree(components=wanted.components, singletons=list(map(sorted, wanted.singletons)))
    return _make(wanted, shared=True)


class _Wanted(NamedTuple):
    pencils: list[Pencil]
    dtype: np.dtype[Any]
    components: tuple[int, ...]
    singletons: list[frozenset[int]]


def _read(
    pencils: Sequence[Pencil],
    dtype: DTypeLike,
    components: int | Sequence[int],
    dims: Sequence[int] | int | None,
) -> _Wanted:
    given = as_pencils(pencils)
    singletons = [as_singletons(pen.ndim, dims) for pen in given]
    return _Wanted(given, as_dtype(dtype), as_components(components), singletons)


def _make(wanted: _Wanted, *, shared: bool) -> tuple[PencilArray, ...]:
    no_halos = [((0, 0),) * pen.ndim for pen in wanted.pencils]
    shapes = [
        padded_shape(pen, wanted.components, singletons, halo)
        for pen, singletons, halo in zip(wanted.pencils, wanted.singletons, no_halos, strict=True)
    ]
    nbytes = wanted.dtype.itemsize * max(map(prod, shapes))
    memory = allocate_bytes(wanted.pencils[0], nbytes, shared=shared)
    return tuple(
        PencilArray.from_block(pen, arrange(memory, pen, wanted.dtype, shape), singletons)
        for pen, shape, singletons in zip(wanted.pencils, shapes, wanted.singletons, strict=True)
    )
