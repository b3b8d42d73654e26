"""Fields of several pencils that share the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

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
from pencils.plans import NoAgreement


def alias(
    pencils: Sequence[Pencil],
    dtype: DTypeLike = float,
    *,
    components: int | Sequence[int] = (),
    dims: Sequence[int] | int | None = None,
    shared: bool = False,
) -> tuple[PencilArray, ...]:
    """Make fields that share the same memory, one for each pencil, to transpose in place.

    Writing one of them overwrites the others. Transposing between two of them needs no second
    field: each rank packs what it sends first.

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
        Whether the other ranks of the node can read the memory. The call is then *Collective*.

    Returns
    -------
    tuple of PencilArray
        Fields whose values are not set. All begin at the same address, in memory of the size of the
        largest block on this rank.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError
        If there is no pencil, pencils have different processes, or an argument is not allowed.

    Examples
    --------
    >>> import pencils
    >>> rows = pencils.Pencil((8, 6), decomp=0)
    >>> u, v = pencils.alias([rows, rows.with_(decomp=1)])
    >>> u[...] = 1
    >>> pencils.transpose(u, v.pencil, out=v).sum()
    np.float64(48.0)
    """
    with agreed(topology_among(pencils).comm, "alias") if shared else NoAgreement() as agree:
        given = as_pencils(pencils)
        element, lead = as_dtype(dtype), as_components(components)
        singletons = [as_singletons(pencil.ndim, dims) for pencil in given]
        agree(pencils=given, dtype=element)
        agree(components=lead, singletons=list(map(sorted, singletons)))
    shapes = [
        padded_shape(pencil, lead, along, ((0, 0),) * pencil.ndim)
        for pencil, along in zip(given, singletons, strict=True)
    ]
    nbytes = element.itemsize * max(map(prod, shapes))
    memory = allocate_bytes(given[0], nbytes, shared=shared)
    return tuple(
        PencilArray.from_block(pencil, arrange(memory, pencil, element, shape), along)
        for pencil, shape, along in zip(given, shapes, singletons, strict=True)
    )
