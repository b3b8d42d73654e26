"""gather: collect a field into one NumPy array; the inverse of partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pencils.array.allocation import Array, as_singletons
from pencils.array.operands import check_type, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm import pool
from pencils.comm.agree import agreed
from pencils.comm.stream import SlabStream, bcast_array, copy_now
from pencils.distribute.slabs import Slabs, after, in_turn
from pencils.errors import ArgumentError
from pencils.layout import Layout, Selection
from pencils.layout import gather as gather_messages
from pencils.layout.integers import as_dims, as_rank


def gather(
    u: PencilArray,
    root: int | None = 0,
    *,
    key: Any = ...,
    dims: Sequence[int] | int | None = None,
) -> Array | None:
    """Collect a field, or a part of it, into one NumPy array; the inverse of `partition`.

    *Collective*.

    Parameters
    ----------
    u : PencilArray
        The field; its halo is left out, replicas count once.
    root : int or None, optional
        The rank that gets the array, default 0; None for all ranks.
    key : basic index, optional
        Integers, slices and Ellipsis in global indices of ``u.shape``: only this part is sent.
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
    comm = topology_among(u).comm
    found = None
    with agreed(comm, "gather") as agree:
        check_type("u", u, PencilArray)
        receiver = None if root is None else as_rank("root", root, comm.size)
        selection = Selection.from_key(key, u.shape)
        axes = _gathered_axes(u, dims, whole=key is Ellipsis)
        if receiver is None or receiver == comm.rank:
            found = pool.empty(tuple(map(len, selection.ranges)), u.dtype)
            view = _view(found, selection, axes, u)
            result = view if view.flags.c_contiguous else np.empty(view.shape, view.dtype)
        collect = _collector(u, selection.rising(), receiver or 0, found)
        agree(
            root=receiver,
            **signature(u),
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
    found: Array, selection: Selection, axes: tuple[int, ...] | None, u: PencilArray
) -> Array:
    """View points in rising order along all axes as the key and `dims` ask for."""
    flips = tuple(slice(None, None, -1 if kept.step < 0 else 1) for kept in selection.ranges)
    drops = tuple(axis for axis, drop in enumerate(selection.dropped) if drop)
    view: Array = np.squeeze(found[flips], drops)
    return view if axes is None else _reorder(view, axes, u)


def _collector(
    u: PencilArray, selection: Selection, root: int, found: Array | None
) -> Callable[[], None]:
    """Prepare to collect the selected points in `found` on root, which has all axes of the field.

    The returned function is *Collective*.
    """
    topology, rank, lead = u.pencil.topology, u.pencil.rank, len(u.components)
    whole = Selection(selection.ranges, (False,) * u.ndim)
    layout: Layout = u.extent.layout.select(selection.ranges[lead:])
    components = tuple(map(len, selection.ranges[:lead]))
    slabs = Slabs(components, layout, u.dtype.itemsize, contiguous=True)
    here, mine = slabs.box(rank), u.local[whole.local(u.global_box)]
    sends = layout.is_first_replica(rank)
    if rank != root:
        room = slabs.room(mine, [here] if sends else [], here.start)
    else:
        assert found is not None
        senders = [message.source for message in gather_messages(layout, root)]
        room = slabs.room(found, [slabs.box(sender) for sender in senders if sender != root])

    def send() -> None:
        stream = SlabStream(topology, root, room, through_slots=slabs.through_slots)
        for box in slabs.of(rank) if sends else ():
            stream.send(root, mine[box.slices(here.start)])
        stream.finish()

    def receive() -> None:
        assert found is not None
        stream = SlabStream(topology, root, room, through_slots=slabs.through_slots)
        for sender, box in in_turn(slabs.labelled(sender) for sender in after(root, senders)):
            if sender == root:
                copy_now(found[box.slices()], mine[box.slices(here.start)], found.nbytes)
            else:
                stream.recv(sender, found[box.slices()], found.nbytes)
        stream.finish()

    return receive if rank == root else send


def _gathered_axes(
    u: PencilArray, dims: Sequence[int] | int | None, *, whole: bool
) -> tuple[int, ...] | None:
    if dims is None:
        return None
    axes = as_dims("dims", dims, u.pencil.ndim)
    varying = as_singletons(u.pencil.ndim, axes) - u.singletons
    if varying or not whole:
        msg = f"dims={axes} drops dimensions {sorted(varying)}, along which the field varies"
        if not whole:
            msg = "dims= and key= cannot be combined; drop dimensions by integers in key="
        raise ArgumentError(msg)
    return axes


def _reorder(result: Array, dims: tuple[int, ...], u: PencilArray) -> Array:
    lead = len(u.components)
    dropped = tuple(lead + dim for dim in range(u.pencil.ndim) if dim not in dims)
    ranks = np.argsort(np.argsort(dims))
    return np.squeeze(result, dropped).transpose(*range(lead), *(lead + int(r) for r in ranks))
