"""partition: fields from global data, as views of replicated arrays or sent by one rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pencils.array.allocation import HaloLike, as_halo
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.distribute.placement import (
    ArrayLike,
    dtype_of,
    new_field,
    place_data,
    read_part,
    readable,
)
from pencils.distribute.scatter import scatter
from pencils.layout import Box
from pencils.pencil import Pencil


def partition(
    pencil: Pencil,
    data: ArrayLike | Sequence[Any] | None,
    root: int | None = None,
    *,
    dims: Sequence[int] | int | None = None,
    copy: bool = False,
    halo: HaloLike = 0,
) -> PencilArray:
    """Distribute global data over the processes of a pencil.

    With ``root=None`` every rank passes the same global data and gets a field that *views* its
    part of it: writing to the field writes to the data. Nothing is communicated. With ``root=r``
    rank r passes the data, and sends each block to its owner (*Collective*); what the other ranks
    pass is ignored, and may be None.

    Parameters
    ----------
    pencil : Pencil
        The decomposition of the result.
    data : array_like or None
        Global data with one axis per dimension, and component axes before them. Axes of extent 1
        become singleton dimensions, unless the pencil has extent 1 there, too. Any object with
        ``shape`` and ``__getitem__`` is accepted (``numpy.memmap``, HDF5, netCDF, zarr); only the
        parts that are needed are read.
    root : int, optional
        The rank whose data are distributed, the same on every rank.
    dims : int or sequence of int, optional
        For data with fewer axes: the dimension on which each of its last axes lies; the field is a
        singleton along the others.
    copy : bool, optional
        Whether to copy even where a view would do.
    halo : int, sequence of int, or sequence of (int, int), optional
        Halo widths of the result, which is then a copy; halo points are left at zero. Widths along
        singletons are ignored.

    Returns
    -------
    PencilArray
        The distributed field.

    Raises
    ------
    ArgumentError, TypeError
        If the data do not fit the pencil; with `root`, on every rank.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> pen = pencils.Pencil((65, 17, 21))
    >>> u = pencils.partition(pen, np.ones((65, 21)), dims=(0, 2))
    >>> u.shape
    (65, 1, 21)
    """
    if root is None:
        check_type("pencil", pencil, Pencil)
        return _view(pencil, data, dims, halo, copy=copy)
    return scatter(pencil, data, root, dims, halo)


def _view(
    pencil: Pencil, data: Any, dims: Sequence[int] | int | None, halo: HaloLike, *, copy: bool
) -> PencilArray:
    source = readable(data)
    place = place_data(pencil, source, dims)
    own = pencil.extent(place.singletons).box
    box = Box((0,) * len(place.components) + own.start, place.components + own.stop)
    block = place.expand(read_part(source, place, box), pencil.ndim)
    widths = as_halo(halo, pencil.ndim, place.singletons)
    if not copy and not any(map(any, widths)):
        return PencilArray.from_block(pencil, block, place.singletons)
    field = new_field(pencil, dtype_of(source), place, widths)
    field.local[...] = block
    return field
