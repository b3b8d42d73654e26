"""Arrays in any distribution: views of them, and the exchange of their points with fields."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pencils.array.allocation import Array, HaloLike, as_dtype, as_halo, memory_axes
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange
from pencils.comm.mpi import Uncopied
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.comm.reduce import ReduceOp, as_reduce_op
from pencils.comm.topology import Topology, topology_of, translate
from pencils.dap.collective import ExportHalo, Shown, check_elements, show, write
from pencils.dap.distributions import GlobalDimMap, GlobalDist, check_points
from pencils.dap.findings import UnsupportedError
from pencils.dap.maps import BlockMap, DimMap, Indices, UnstructuredMap, brief
from pencils.errors import PencilMismatchError
from pencils.layout import Layout, ProcessGrid, Split
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

VERSION = "0.10.0"


def fitting_pencil(
    comm: MPI.Intracomm, bounds: Sequence[tuple[int, ...]], periodic: Sequence[bool]
) -> Pencil:
    """Make the pencil with these bounds of blocks along each dimension. *Collective*."""
    grid = {dim: len(along) - 1 for dim, along in enumerate(bounds) if len(along) > 2}  # noqa: PLR2004
    return Pencil(
        [along[-1] for along in bounds],
        comm,
        decomp=list(grid) or None,
        grid=list(grid.values()) or None,
        periodic=periodic,
        splits=bounds if grid else None,
    )


def _fitting_bounds(dim: GlobalDimMap) -> tuple[int, ...]:
    """Bounds of the blocks of a dimension; of even ones if it does not consist of blocks."""
    if dim.kind == "block":
        return tuple(dim.bounds.tolist())
    lists = [part.indices for part in dim.parts if isinstance(part, UnstructuredMap)]
    largest = max((int(points.max()) for points in lists if len(points)), default=-1)
    split = Split(max(0, largest + 1) if lists else dim.size, dim.nprocs)
    return (0, *(split.bounds(part)[1] for part in range(dim.nprocs)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DistributedView(Uncopied):
    """The local part of an array in any distribution; copies nothing.

    Only `to_pencil` communicates.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        All processes of the array, in the order of the protocol.
    dist : GlobalDist
        The maps of all processes; the same on every rank.
    maps : tuple of DimMap
        The maps of this process, one for each dimension.
    buffer : numpy.ndarray
        Its elements, ghosts included.

    Examples
    --------
    >>> import pencils
    >>> from pencils.dap import CyclicMap, GlobalDimMap
    >>> comm = pencils.Pencil(5).comm
    >>> part = CyclicMap(size=5)
    >>> view = DistributedView(comm, GlobalDist((GlobalDimMap([part]),)), (part,), np.arange(5.0))
    >>> view
    <DistributedView of float64: global shape (5,), local shape (5,) on rank 0 of 1
      dimension 0: cyclic, owns 0..4 of 5 points>
    >>> view.to_pencil().sum()
    np.float64(10.0)
    """

    comm: MPI.Intracomm
    dist: GlobalDist
    maps: tuple[DimMap, ...]
    buffer: Array

    @property
    def local(self) -> Array:
        """The owned elements: a view of the buffer without ghosts."""
        view: Array = self.buffer[tuple(part.owned_slice for part in self.maps)]
        return view

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""
        return self.dist.global_shape

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of `local`."""
        return tuple(part.count for part in self.maps)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.maps)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.buffer.dtype

    @property
    def owned(self) -> tuple[range | Indices, ...]:
        """Global indices of the elements of `local` along every dimension."""
        return tuple(part.owned for part in self.maps)

    def owner(self, index: Sequence[ArrayLike]) -> tuple[Any, tuple[Any, ...]]:
        """Return the process that owns an element, and its local index: `GlobalDist.owner`."""
        return self.dist.owner(index)

    def to_pencil(
        self,
        pencil: Pencil | None = None,
        *,
        halo: HaloLike = 0,
        reduce: ReduceOp | str | None = None,
    ) -> PencilArray:
        """Copy the array to a new field on a pencil. *Collective*.

        Parameters
        ----------
        pencil : Pencil, optional
            Over the same processes, in any order. Its shape is that of the array, but it may be
            larger along unstructured dimensions. Dimensions before those of the pencil become
            components; each must be a block on one process. Default: a new pencil with the process
            grid of the array, its blocks where it has any, and along unstructured dimensions with
            just enough points for the largest index.
        halo : int, sequence of int, or sequence of (int, int), optional
            Widths of the halo of the field; it is not filled.
        reduce : ReduceOp or {"sum", "prod", "min", "max", "land", "lor", "band", "bor"}, optional
            How the values of a point that several processes own are combined; the element type
            stays. Only points of unstructured dimensions can have several owners. The value of the
            lowest rank is first, the others follow in the order of the ranks of the pencil.
            Default: the value of the highest rank.

        Returns
        -------
        PencilArray
            The field; 0 at points without an owner.

        Raises
        ------
        PencilMismatchError
            On every rank, if the pencil has another shape or other processes.
        UnsupportedError
            On every rank, if an index does not exist in the pencil.
        ArgumentError, TypeError
            On every rank, if another argument is not allowed.
        """
        if pencil is None:
            with agreed(topology_of(self.comm).comm, "DistributedView.to_pencil") as agree:
                agree(pencil=None)
            dims = self.dist.dims
            periodic = [dim.periodic for dim in dims]
            pencil = fitting_pencil(self.comm, list(map(_fitting_bounds, dims)), periodic)
        with agreed(topology_of(self.comm).comm, "DistributedView.to_pencil") as agree:
            check_type("pencil", pencil, Pencil)
            members = translate(self.comm, pencil.topology.comm)
            if members is None or len(members) != pencil.size:
                raise PencilMismatchError(
                    f"the pencil must have the {self.comm.size} processes of the array, in any "
                    f"order:\n{pencil!r}"
                )
            agree(pencil=pencil, ranks=members, dtype=self.dtype)
            widths = as_halo(halo, pencil.ndim)
            dtype = as_dtype(self.dtype)
            op = None if reduce is None else as_reduce_op(reduce, dtype)
            agree(halo=widths, reduce=op)
            components, dims = self._split_dims(pencil)
            lists = any(dim.kind == "unstructured" for dim in dims)
            field = PencilArray.allocated(pencil, dtype, components, halo=widths, zero=lists)
            values, single = self._without_shared(dims, last=op is None)
        move_points(pencil.topology, pencil.layout, single, members, part=values, block=field.local)
        if op is not None and single != list(dims) and 0 not in components:
            self._combine(field, dims, op)
        return field

    def _without_shared(
        self, dims: Sequence[GlobalDimMap], *, last: bool
    ) -> tuple[Array, list[GlobalDimMap]]:
        """Omit all owners of a point but the first, or the last."""
        values = self.local
        single = [dim.with_one_owner(last=last) for dim in dims]
        for axis, (dim, one) in enumerate(zip(dims, single, strict=True), -len(dims)):
            if one is not dim:
                values = values.compress(dim.owner_mask(self.maps[axis].rank, last=last), axis)
        return values, single

    def _combine(self, field: PencilArray, dims: Sequence[GlobalDimMap], op: ReduceOp) -> None:
        """Combine the values of all but the first owners with those of a field. *Collective*."""
        with agreed(field.pencil.topology.comm, "DistributedView.to_pencil"):
            parts = self.maps[-len(dims) :]
            masks = (
                dim.owner_mask(part.rank, last=False) for dim, part in zip(dims, parts, strict=True)
            )
            others = np.nonzero(~reduce(np.logical_and.outer, masks))
            owned = map(np.asarray, self.owned[-len(dims) :])
            points = [here[places] for here, places in zip(owned, others, strict=True)]
            key: tuple[Any, ...] = (..., *others)
            values = self.local[key]
        field.put_points(points, values, reduce=op)

    def _split_dims(self, pencil: Pencil) -> tuple[tuple[int, ...], tuple[GlobalDimMap, ...]]:
        """Separate components from space dimensions, and check that these fit a pencil."""
        lead = max(0, self.ndim - pencil.ndim)
        components, dims = self.dist.dims[:lead], self.dist.dims[lead:]
        whole = all(dim.kind == "block" and dim.nprocs == 1 for dim in components)
        fits = [
            dim.kind == "unstructured" or dim.size == points
            for dim, points in zip(dims, pencil.shape, strict=False)
        ]
        if not whole or len(fits) != pencil.ndim or not all(fits):
            raise PencilMismatchError(
                f"an array of shape {self.shape} does not fit the pencil; expected the shape of "
                "the pencil (any along unstructured dimensions), after components that are blocks "
                f"on one process:\n{pencil!r}"
            )
        for number, (dim, points) in enumerate(zip(dims, pencil.shape, strict=True), lead):
            for part in dim.parts:
                check_points(part, points, number)
        return tuple(dim.size for dim in components), dims

    def __distarray__(self) -> dict[str, Any]:
        """Export the local part by the Distributed Array Protocol 0.10; copies nothing.

        Only block dimensions can be periodic in that version. Ghosts are shown if it can represent
        them. `pencils.dap.export` has a choice.
        """
        check_elements(self.dtype, VERSION)
        maps = (
            replace(part, periodic=part.periodic and isinstance(part, BlockMap))
            for part in self.maps
        )
        view = replace(self, maps=tuple(maps))
        with suppress(UnsupportedError):
            return write(view.shown(VERSION, "comm"), self.buffer, VERSION)
        return write(view.shown(VERSION, "none"), self.buffer, VERSION)

    def shown(self, version: str, halo: ExportHalo) -> Shown:
        """Choose what to export; for the library."""
        return show([dim.parts for dim in self.dist.dims], self.maps, version, halo)

    def __repr__(self) -> str:
        text = f"<DistributedView of {self.dtype}: global shape {self.shape}, "
        text += f"local shape {self.local_shape} on rank {self.comm.rank} of {self.comm.size}"
        for number, part in enumerate(self.maps):
            owned = f"owns {brief(part.owned)} of {part.size} points"
            text += f"\n  dimension {number}: {part.kind}, {owned}"
        return f"{text}>"


# Copies between the blocks of a pencil and the parts of another distribution. Along each dimension
# every process arranges its points: those of a part in rising order, which is block by block; those
# of a block part by part. Then each block shares one box of the arranged arrays with each part.


class Arrangement(NamedTuple):
    """How one process arranges its array, with the axes in the memory order of the pencil."""

    order: tuple[int, ...]
    points: tuple[slice | Indices, ...]  # positions along each axis; a slice if consecutive
    boxes: list[MessageBlock]

    def gather(self, array: Array) -> Array:
        """Arrange an array, which is copied unless all points are consecutive."""
        found = self._view(array)
        for axis, points in self._lists().items():
            found = found.take(points, axis)
        return found

    def room(self, array: Array) -> Array:
        """Return what receives the points of an array, arranged: a view of it if possible."""
        found, lists = self._view(array), self._lists()
        if not lists:
            return found
        shape = list(found.shape)
        for axis, points in lists.items():
            shape[axis] = len(points)
        return np.empty(shape, found.dtype)

    def scatter(self, arranged: Array, array: Array) -> None:
        """Copy what `room` returned to the array, where it is not a view of it."""
        lists = self._lists()
        if lists:
            first = range(len(lists))
            target = np.moveaxis(self._view(array), [*lists], first)
            target[np.ix_(*lists.values())] = np.moveaxis(arranged, [*lists], first)

    def _view(self, array: Array) -> Array:
        """View an array with leading component axes: axes and consecutive points arranged."""
        along = (each if isinstance(each, slice) else slice(None) for each in self.points)
        key: tuple[Any, ...] = (..., *along)
        view: Array = array.transpose(memory_axes(self.order, array.ndim - len(self.order)))[key]
        return view

    def _lists(self) -> dict[int, Indices]:
        """Points that are not consecutive, by axes that are counted from the end."""
        along = enumerate(self.points, -len(self.points))
        return {axis: points for axis, points in along if not isinstance(points, slice)}


def arrange(
    layout: Layout, dims: Sequence[GlobalDimMap], members: Sequence[int], rank: int, *, block: bool
) -> Arrangement:
    """Arrange the block of a rank of a pencil, or the part of a rank of the other array.

    `members` are the ranks on the pencil of the ranks of the other array, which are in C order.
    """
    grid = ProcessGrid(tuple(dim.nprocs for dim in dims))
    coords = layout.parts(rank) if block else grid.coords(rank)
    along = [
        _arrange_dim(split, dim, coord, block=block)
        for split, dim, coord in zip(layout.splits, dims, coords, strict=True)
    ]
    boxes = []
    for pieces in product(*(found for _, found in along)):
        peers = [peer for peer, _, _ in pieces]
        peer = members[grid.rank(peers)] if block else layout.rank(peers)
        ordered = [pieces[dim] for dim in layout.order]
        key, start = tuple(here for _, here, _ in ordered), tuple(there for *_, there in ordered)
        boxes.append(MessageBlock(peer, key, start))
    return Arrangement(layout.order, tuple(along[dim][0] for dim in layout.order), boxes)


def _arrange_dim(
    split: Split, whole: GlobalDimMap, number: int, *, block: bool
) -> tuple[slice | Indices, list[tuple[int, slice, int]]]:
    """Arrange one dimension: positions, and what is shared as peer, slice here, start there."""
    bounds = np.array([*(split.bounds(part)[0] for part in range(split.parts)), split.points])
    shared = np.diff([part.count_below(bounds) for part in whole.parts], axis=1)
    in_part, in_block = np.cumsum(shared, 1) - shared, np.cumsum(shared, 0) - shared
    if block:
        counts, here, there = shared[:, number], in_block[:, number], in_part[:, number]
        points = [
            part.local_to_global(part.rising(low, low + count) + part.ghosts[0])
            for part, low, count in zip(whole.parts, there.tolist(), counts.tolist(), strict=True)
        ]
        positions = np.concatenate(points, dtype=np.int64) - bounds[number]
    else:
        counts, here, there = shared[number], in_part[number], in_block[number]
        part = whole.parts[number]
        positions = part.rising(0, part.count)
    every = zip(counts.tolist(), here.tolist(), there.tolist(), strict=True)
    found = [
        (peer, slice(begin, begin + count), start)
        for peer, (count, begin, start) in enumerate(every)
        if count
    ]
    if len(positions) and (np.diff(positions) != 1).any():
        return positions, found
    begin = int(positions[0]) if len(positions) else 0
    return slice(begin, begin + len(positions)), found


def move_points(
    topology: Topology,
    layout: Layout,
    dims: Sequence[GlobalDimMap],
    members: Sequence[int],
    *,
    part: Array,
    block: Array,
    back: bool = False,
) -> None:
    """Fill the blocks of a pencil from the parts of an array, or the parts from the blocks.

    *Collective* over the topology of the pencil.
    """
    if 0 in layout.shape:
        return
    call = "redistribution"
    with agreed(topology.comm, call):  # one rank may have no memory for it
        number = members.index(topology.rank)
        parts = arrange(layout, dims, members, number, block=False), part
        blocks = arrange(layout, dims, members, topology.rank, block=True), block
        (sender, source), (receiver, target) = (blocks, parts) if back else (parts, blocks)
        received, sent = receiver.room(target), sender.gather(source)
    lead = received.shape[: received.ndim - len(dims)]
    spec = MessageSpec(sender.boxes, receiver.boxes, lead, received.dtype)
    exchange = Exchange(topology, [spec], axes=len(dims))
    try:
        with agreed(topology.comm, call):
            bound = exchange.prepare([sent], [received], disjoint=True)
            bound.reserve()
        bound.run()
    finally:
        exchange.free()
    receiver.scatter(received, target)
