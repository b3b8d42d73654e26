"""gather: collect a field into one NumPy array; the inverse of partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, overload

import numpy as np

from pencils.array.allocation import Array, as_singletons
from pencils.array.operands import check_type, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.array.signatures import Indices
from pencils.comm import pool
from pencils.comm.agree import PreparedAgreement, agreed
from pencils.comm.stream import SlabRoom, SlabStream, bcast_array, copy_now
from pencils.distribute.slabs import Slabs
from pencils.errors import ArgumentError
from pencils.layout import Selection
from pencils.layout import gather as gather_messages
from pencils.layout.integers import as_dims, as_rank
from pencils.pencil import keep


@overload
def gather(
    u: PencilArray, root: None, *, key: Indices = ..., dims: Sequence[int] | int | None = None
) -> Array: ...
@overload
def gather(
    u: PencilArray,
    root: int | None = 0,
    *,
    key: Indices = ...,
    dims: Sequence[int] | int | None = None,
) -> Array | None: ...
def gather(
    u: PencilArray,
    root: int | None = 0,
    *,
    key: Indices = ...,
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
    kept = _find_kept(u, root) if key is Ellipsis and dims is None else None
    if kept is not None:
        plan, row = kept
        collect, _ = row.attempt(lambda: plan.prepare(u))
        return collect()
    comm = topology_among(u).comm
    with agreed(comm, "gather") as agree:
        check_type("u", u, PencilArray)
        receiver = None if root is None else as_rank("root", root, comm.size)
        selection = Selection.from_key(key, u.shape)
        axes = _gathered_axes(u, dims, whole=key is Ellipsis)
        plan = _Gather(u, receiver, selection, axes)
        collect = plan.prepare(u)
        agree(**plan.facts)
    if key is Ellipsis and axes is None:
        keep(u.pencil, _kind(u, receiver), (plan, PreparedAgreement(comm, "gather", **plan.facts)))
    return collect()


def _kind(u: PencilArray, root: int | None) -> tuple[object, ...]:
    return "gather", root, u.dtype, u.components, u.singletons


def _find_kept(u: object, root: Any) -> tuple[_Gather, PreparedAgreement] | None:
    """Find the plan for whole fields like this one, and the agreement on it; local."""
    if type(root) not in (int, NoneType) or not isinstance(u, PencilArray):
        return None
    if u.pencil.topology.freed:
        return None
    found: tuple[_Gather, PreparedAgreement] | None = u.pencil.kept.get(_kind(u, root))
    return found


class _Gather:
    """A gather of fields of one kind; follows from what all ranks agree on.

    Attributes
    ----------
    facts : dict
        On these all ranks must agree.
    """

    def __init__(
        self, u: PencilArray, root: int | None, selection: Selection, axes: tuple[int, ...] | None
    ) -> None:
        topology, lead = u.pencil.topology, len(u.components)
        self.facts = {"root": root, **signature(u), "key": selection, "dims": axes}
        self._topology = topology
        self._everywhere, self._root = root is None, root or 0
        self._selection, self._axes = selection, axes
        self._shape = tuple(map(len, selection.ranges))
        layout = u.extent.layout
        self._plain = axes is None and not any(selection.dropped)
        for kept, extent in zip(selection.ranges, u.shape, strict=True):
            self._plain = self._plain and kept == range(extent)
        rising = selection.rising()
        if not self._plain:
            layout = layout.section(rising.ranges[lead:])
        self._mine = Selection(rising.ranges, (False,) * u.ndim).local(u.global_box)
        slabs = Slabs(self._shape[:lead], layout, u.dtype.itemsize, contiguous=True)
        senders = [message.source for message in gather_messages(layout, self._root)]
        others = [sender for sender in senders if sender != self._root]
        self._slabs, self._others = slabs, others
        self._takes_part = topology.rank in senders
        self._box = slabs.box(topology.rank)
        self._steps = slabs.steps(topology.rank, self._root, others)
        self._room: tuple[int, int] | None = None  # of root

    def prepare(self, u: PencilArray) -> Callable[[], Array | None]:
        """Allocate what a call needs. The returned function is *Collective*."""
        rank, root = self._topology.rank, self._root
        found = None
        if self._everywhere or rank == root:
            found = pool.empty(self._shape, u.dtype)
            view = found if self._plain else self._view(found, u)
            result = view if view.flags.c_contiguous else np.empty(view.shape, view.dtype)
        move = self._send(u) if rank != root or found is None else self._receive(u, found)

        def collect() -> Array | None:
            move()
            if found is None:
                return None
            if self._everywhere:
                bcast_array(self._topology.comm, found, root)
            if result is not view:
                result[...] = view
            return result

        return collect

    def _send(self, u: PencilArray) -> Callable[[], None]:
        mine = u.local[self._mine]
        ranks = [self._topology.rank] if self._takes_part else []
        room = SlabRoom.of(*self._slabs.room(mine, ranks, self._box.start))

        def send() -> None:
            stream = self._stream(room)
            for peer, key in self._steps if ranks else ():
                stream.send(peer, mine[key])
            stream.finish()

        return send

    def _receive(self, u: PencilArray, found: Array) -> Callable[[], None]:
        if self._room is None:
            self._room = self._slabs.room(found, self._others)
        room = SlabRoom.of(*self._room)

        def receive() -> None:
            stream = self._stream(room)
            for peer, key in self._steps:
                stream.recv(peer, found[key], found.nbytes)
            if self._takes_part:
                copy_now(found[self._box.slices()], u.local[self._mine], found.nbytes)
            stream.finish()

        return receive

    def _stream(self, room: SlabRoom | None) -> SlabStream:
        through_slots = self._slabs.through_slots
        return SlabStream(self._topology, self._root, room, through_slots=through_slots)

    def _view(self, found: Array, u: PencilArray) -> Array:
        """View points in rising order along all axes as the key and `dims` ask for."""
        ranges, dropped = self._selection.ranges, self._selection.dropped
        flips = tuple(slice(None, None, -1 if kept.step < 0 else 1) for kept in ranges)
        drops = tuple(axis for axis, drop in enumerate(dropped) if drop)
        view: Array = np.squeeze(found[flips], drops)
        return view if self._axes is None else _reorder(view, self._axes, u)


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
