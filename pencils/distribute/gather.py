"""gather: collect a field into one NumPy array; the inverse of partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import eq
from types import NoneType
from typing import Any, overload

import numpy as np

from pencils.array.allocation import Array, as_singletons
from pencils.array.operands import check_type, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.array.signatures import Indices
from pencils.comm import pool
from pencils.comm.agree import PreparedAgreement, agreed
from pencils.comm.stream import bcast_array
from pencils.distribute.slabs import RootSlabs
from pencils.errors import ArgumentError
from pencils.layout import Selection
from pencils.layout import gather as gather_messages
from pencils.layout.integers import as_dims, as_rank


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
    kind, kept = None, None
    if key is Ellipsis and dims is None and isinstance(u, PencilArray):
        kind = u.dtype, u.components, u.singletons
        known = type(root) in (int, NoneType) and not u.pencil.topology.freed
        kept = u.pencil.kept.get(("gather", root, *kind)) if known else None
    if kept is not None:
        plan, row = kept
        collect, _ = row.attempt(lambda: plan.prepare(u))
        found: Array | None = collect()
        return found
    comm = topology_among(u).comm
    with agreed(comm, "gather") as agree:
        check_type("u", u, PencilArray)
        receiver = None if root is None else as_rank("root", root, comm.size)
        selection = Selection.from_key(key, u.shape)
        axes = _gathered_axes(u, dims, whole=key is Ellipsis)
        plan = _Gather(u, receiver, selection, axes)
        collect = plan.prepare(u)
        agree(**plan.facts)
    if kind is not None:  # by the rank: the root may have been given as a list
        prepared = PreparedAgreement(comm, "gather", **plan.facts)
        u.pencil.kept.add(("gather", receiver, *kind), (plan, prepared))
    return collect()


class _Gather:
    """A gather of fields of one kind; follows from `facts`, on which all ranks must agree."""

    def __init__(
        self, u: PencilArray, root: int | None, selection: Selection, axes: tuple[int, ...] | None
    ) -> None:
        layout, lead = u.extent.layout, len(u.components)
        self.facts = {"root": root, **signature(u), "key": selection, "dims": axes}
        self._topology = u.pencil.topology
        self._everywhere, self._root = root is None, root or 0
        self._selection, self._axes = selection, axes
        self._shape = tuple(map(len, selection.ranges))
        whole = all(map(eq, selection.ranges, map(range, u.shape)))
        self._plain = axes is None and whole and not any(selection.dropped)
        rising = selection.rising()
        if not self._plain:
            layout = layout.section(rising.ranges[lead:])
        self._mine = Selection(rising.ranges, (False,) * u.ndim).local(u.global_box)
        senders = [message.source for message in gather_messages(layout, self._root)]
        blocks: dict[str, Any] = {
            "lead": self._shape[:lead],
            "layout": layout,
            "itemsize": u.dtype.itemsize,
        }
        self._slabs = RootSlabs(self._topology, self._root, senders, **blocks, contiguous=True)

    def prepare(self, u: PencilArray) -> Callable[[], Array | None]:
        """Allocate what a call needs. The returned function is *Collective*."""
        on_root = self._topology.rank == self._root
        found = None
        if self._everywhere or on_root:
            found = pool.empty(self._shape, u.dtype)
            view = found if self._plain else self._view(found, u)
            result = view if view.flags.c_contiguous else np.empty(view.shape, view.dtype)
        move = self._slabs.mover(u.local[self._mine], found if on_root else None, to_root=True)

        def collect() -> Array | None:
            move()
            if found is None:
                return None
            if self._everywhere:
                bcast_array(self._topology.comm, found, self._root)
            if result is not view:
                result[...] = view
            return result

        return collect

    def _view(self, found: Array, u: PencilArray) -> Array:
        """View points in rising order along all axes as the key and `dims` ask for."""
        ranges, dropped = self._selection.ranges, self._selection.dropped
        flips = tuple(slice(None, None, -1 if kept.step < 0 else 1) for kept in ranges)
        drops = tuple(axis for axis, drop in enumerate(dropped) if drop)
        view: Array = np.squeeze(found[flips], drops)
        if self._axes is None:
            return view
        lead = len(u.components)
        missing = tuple(lead + dim for dim in range(u.pencil.ndim) if dim not in self._axes)
        places = [lead + int(place) for place in np.argsort(np.argsort(self._axes))]
        return np.squeeze(view, missing).transpose(*range(lead), *places)


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
