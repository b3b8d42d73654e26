"""gather: collect a field into one NumPy array; the inverse of partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import NoneType
from typing import Any, NamedTuple, overload

import numpy as np

from pencils.array.allocation import Array, as_singletons
from pencils.array.operands import check_type, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.array.signatures import Indices
from pencils.comm import pool
from pencils.comm.stream import bcast_array
from pencils.distribute.slabs import RootSlabs
from pencils.errors import ArgumentError
from pencils.layout import Selection
from pencils.layout import gather as gather_messages
from pencils.layout.integers import as_dims, as_rank
from pencils.plans import Agreement, LocalVerb, PlanKey


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
    plain = key is Ellipsis and dims is None and type(root) in _ROOTS and type(u) is PencilArray
    kept = u.pencil.kept["gather"].get((root, u.kind)) if plain else None
    if kept is None:
        return _Gather(u, root, key, dims).prepare()()
    plan, agreement = kept
    collect, _ = agreement.attempt(partial(plan.bind, u))
    found: Array | None = collect()
    return found


_ROOTS = frozenset({int, NoneType})  # of these types, equal values mean the same root


class _GatherPlan(NamedTuple):
    """A gather of fields of one kind."""

    slabs: RootSlabs
    keeps: bool  # whether this rank gets the points
    everywhere: bool  # whether all ranks do
    mine: Any  # index in the own block; None if nothing of it is asked for
    shape: tuple[int, ...]  # of all points, in rising order
    view: Callable[[Array], Array] | None  # of these, in the order of the caller

    def bind(self, u: PencilArray) -> Callable[[], Array | None]:
        """Allocate what the call needs. The returned function is *Collective*."""
        slabs, found = self.slabs, None
        if self.keeps:
            result = view = found = pool.empty(self.shape, u.dtype)
            if self.view is not None:
                view = self.view(found)
                result = view if view.flags.c_contiguous else np.empty(view.shape, view.dtype)
        whole = found if slabs.on_root else None
        move = slabs.mover(u.local[self.mine], whole, to_root=True)

        def collect() -> Array | None:
            move()
            if found is None:
                return None
            if self.everywhere:
                bcast_array(slabs.topology.comm, found, slabs.root)
            if result is not view:
                result[...] = view
            return result

        return collect


class _Gather(LocalVerb[_GatherPlan, Callable[[], Array | None]]):
    """A call of `gather`."""

    def __init__(self, u: Any, root: Any, key: Any, dims: Any) -> None:
        self._given = u, root, key, dims
        pencil = u.pencil if type(u) is PencilArray else None  # isinstance() may raise
        super().__init__("gather", topology_among(u), pencil)

    def signature(self, agree: Agreement) -> PlanKey:
        """Check the arguments."""
        u, root, key, dims = self._given
        check_type("u", u, PencilArray)
        self._root = None if root is None else as_rank("root", root, self.topology.comm.size)
        self._selection = Selection.from_key(key, u.shape)
        self._axes = _gathered_axes(u, dims, whole=key is Ellipsis)
        agree(root=self._root, **signature(u), key=self._selection, dims=self._axes)
        kind = self._root, u.kind
        return kind if key is Ellipsis and dims is None else (*kind, self._selection, self._axes)

    def make(self) -> _GatherPlan:
        """Find out which points leave which ranks."""
        u, layout = self._given[0], self._given[0].extent.layout
        lead, root, selection = len(u.components), self._root or 0, self._selection
        rising = selection.rising()
        view = None
        whole = selection.ranges == tuple(map(range, u.shape))
        if self._axes is not None or not whole or any(selection.dropped):
            layout = layout.section(rising.ranges[lead:])
            view = partial(_view, lead, u.pencil.ndim, selection, self._axes)
        shape = tuple(map(len, selection.ranges))
        slabs = RootSlabs(
            self.topology,
            root,
            [message.source for message in gather_messages(layout, root)],
            lead=shape[:lead],
            layout=layout,
            itemsize=u.dtype.itemsize,
            contiguous=True,
        )
        mine = Selection(rising.ranges, (False,) * u.ndim).local(u.global_box)
        everywhere = self._root is None
        return _GatherPlan(slabs, everywhere or slabs.on_root, everywhere, mine, shape, view)

    def bind(self, plan: _GatherPlan) -> Callable[[], Array | None]:
        """Allocate what the call needs."""
        return plan.bind(self._given[0])


def _view(
    lead: int, ndim: int, selection: Selection, axes: tuple[int, ...] | None, found: Array
) -> Array:
    """View points in rising order along all axes as the key and `dims` ask for."""
    ranges, dropped = selection.ranges, selection.dropped
    flips = tuple(slice(None, None, -1 if kept.step < 0 else 1) for kept in ranges)
    drops = tuple(axis for axis, drop in enumerate(dropped) if drop)
    view: Array = np.squeeze(found[flips], drops)
    if axes is None:
        return view
    missing = tuple(lead + dim for dim in range(ndim) if dim not in axes)
    places = [lead + int(place) for place in np.argsort(np.argsort(axes))]
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
