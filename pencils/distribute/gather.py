"""From fields to global arrays: the inverse of partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.normalize import as_singletons
from pencils.array.operands import check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.stream import bcast_array, recv_stream, send_stream
from pencils.distribute.blocks import block_points, inside, read_root, room_for
from pencils.errors import ArgumentError
from pencils.layout import Box, Layout, Selection
from pencils.layout import gather as gather_messages
from pencils.layout.integers import as_dims


def gather(
    field: PencilArray,
    root: int | None = 0,
    *,
    key: Any = ...,
    dims: Sequence[int] | int | None = None,
) -> Array | None:
    """Collect a field, or a part of it, into one NumPy array; the inverse of `partition`.

    *Collective*.

    Parameters
    ----------
    field : PencilArray
        The field; its halo is left out, replicas count once.
    root : int or None, optional
        The rank that gets the array, default 0; None for all ranks.
    key : basic index, optional
        Integers, slices and Ellipsis in global indices of ``field.shape``: only this part travels.
    dims : int or sequence of int, optional
        The dimensions that remain as the last axes of the result, in this order; the field must be
        a singleton along all others. The counterpart of `dims` in `partition`.

    Returns
    -------
    numpy.ndarray or None
        The array ``global[key]``, in C order; None on ranks other than `root`.

    Raises
    ------
    ArgumentError, IndexError, TypeError
        On every rank, if an argument is not allowed.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 6)), lambda i, j: 10 * i + j)
    >>> pencils.gather(u, key=np.s_[1, ::2])
    array([10, 12, 14])
    """
    comm = topology_among(field).comm
    found = None
    with agreed(comm, "gather") as agree:
        check_type("field", field, PencilArray)
        receiver = None if root is None else read_root(root, comm.size)
        selection = Selection.from_key(key, field.shape)
        axes = _gathered_axes(field, dims, whole=key is Ellipsis)
        if receiver is None or receiver == comm.rank:
            found = np.empty(tuple(map(len, selection.ranges)), field.dtype)
            view = _view(found, selection, axes, field)
            result = view if view.flags.c_contiguous else np.empty(view.shape, view.dtype)
        collect = _collector(field, selection.rising(), receiver or 0, found)
        agree(
            root=receiver,
            field=field.pencil,
            shape=field.shape,
            singletons=sorted(field.singletons),
            dtype=field.dtype,
            key=selection,
            dims=axes,
        )
    collect()
    if found is None:
        return None
    if receiver is None:
        bcast_array(comm, found, 0)
    if result is not view:
        result[...] = view
    return result


def _view(
    found: Array, selection: Selection, axes: tuple[int, ...] | None, field: PencilArray
) -> Array:
    """View what rises along all axes as it was asked for."""
    flips = tuple(slice(None, None, -1 if kept.step < 0 else 1) for kept in selection.ranges)
    drops = tuple(axis for axis, drop in enumerate(selection.dropped) if drop)
    view: Array = np.squeeze(found[flips], drops)
    return view if axes is None else _reorder(view, axes, field)


def _collector(
    field: PencilArray, selection: Selection, root: int, found: Array | None
) -> Callable[[], None]:
    """Prepare to bring the selected points into `found` on root, which has all axes of the field.

    What is returned is *Collective*.
    """
    comm, rank = field.pencil.topology.comm, field.pencil.rank
    lead = len(field.components)
    whole = Selection(selection.ranges, (False,) * field.ndim)
    layout: Layout = field.extent.layout.select(selection.ranges[lead:])
    box = field.extent.box
    mine = field.local[whole.local(Box((0,) * lead + box.start, field.components + box.stop))]
    here = layout.box(rank)
    most = block_points(field)
    if found is None or rank != root:
        if layout.is_first_replica(rank):
            parts = ((root, mine[inside(piece, here.start)]) for piece in here.pieces(most))
            room = room_for(mine, [here], most, here.start)
            return lambda: send_stream(comm, parts, room)
        return lambda: None

    messages = [message for message in gather_messages(layout, root) if message.source != root]
    room = room_for(found, [message.box for message in messages], most)

    def blocks() -> Iterator[tuple[int, Array]]:
        for message in messages:
            for piece in message.box.pieces(most):
                yield message.source, found[inside(piece)]

    def receive() -> None:
        if layout.is_first_replica(root):
            found[inside(here)] = mine
        recv_stream(comm, blocks(), room)

    return receive


def _gathered_axes(
    field: PencilArray, dims: Sequence[int] | int | None, *, whole: bool
) -> tuple[int, ...] | None:
    if dims is None:
        return None
    axes = as_dims("dims", dims, field.pencil.ndim)
    varying = as_singletons(field.pencil.ndim, axes) - field.singletons
    if varying or not whole:
        msg = f"dims={axes} drops dimensions {sorted(varying)}, along which the field varies"
        if not whole:
            msg = "dims= and key= cannot be combined; drop dimensions by integers in key="
        raise ArgumentError(msg)
    return axes


def _reorder(result: Array, dims: tuple[int, ...], field: PencilArray) -> Array:
    lead = len(field.components)
    dropped = tuple(lead + dim for dim in range(field.pencil.ndim) if dim not in dims)
    ranks = np.argsort(np.argsort(dims))
    return np.squeeze(result, dropped).transpose(*range(lead), *(lead + int(r) for r in ranks))
