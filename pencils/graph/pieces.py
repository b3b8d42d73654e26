"""What pencils do, as pieces of a graph: blocks that are exchanged, from the eager schedules."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.allocation import memory_axes
from pencils.array.normalize import HaloLike, as_halo, as_singletons
from pencils.array.operands import check_type
from pencils.errors import PencilMismatchError
from pencils.graph.array import Array
from pencils.graph.blocks import new_number, ranks_on, read_components
from pencils.graph.messages import make_distributed_recv, staple_distributed_send
from pencils.graph.nodes import call
from pencils.graph.rules import Shape
from pencils.layout import redistribution
from pencils.layout.halo import direct, exchange, star
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

Key = tuple[slice, ...]


def halo_exchange(
    x: Array,
    pen: Pencil,
    halo: HaloLike,
    *,
    corners: bool = True,
    dims: Sequence[int] | int | None = None,
    comm: MPI.Intracomm | None = None,
) -> Array:
    """Surround the own block by copies of its neighbours' points: a `PencilArray.exchange_halo`.

    All ranks of the pencil build the same pieces of graph in the same order; nothing is sent
    before the graph is executed. One message goes to each neighbour.

    Parameters
    ----------
    x : Array
        Own block of a field, of shape ``components + pen.local_shape``.
    pen : Pencil
        Where the field lives.
    halo : int, sequence of int, or sequence of (int, int)
        Widths ``(lo, hi)`` along each dimension.
    corners : bool, optional
        Whether ghosts that are diagonal neighbours are filled; stencils shaped like a star do not
        read them.
    dims : int or sequence of int, optional
        Dimensions along which the field varies; along the others it is a singleton, of extent 1
        and without halo. Default: all.
    comm : mpi4py.MPI.Intracomm, optional
        Communicator on which the graph will be executed, and whose ranks all build such pieces.
        Default: that of the pencil.

    Returns
    -------
    Array
        The padded block. Points outside of the domain, and corners that are not filled, are zero.

    Raises
    ------
    ArgumentError, TypeError
        If `x` does not have the shape of the own block, or the halo does not fit the pencil.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> from pencils import graph
    >>> pen = pencils.Pencil((4,), periodic=True)
    >>> x = graph.make_placeholder("x", pen.local_shape)
    >>> padded = graph.halo_exchange(x, pen, 1)
    >>> slope = (padded[2:] - padded[:-2]) / 2
    >>> partition = graph.find_distributed_partition(pen.comm, {"slope": slope})
    >>> inputs = {"x": np.array([0.0, 1.0, 4.0, 9.0])}
    >>> graph.execute_distributed_partition(partition, None, None, pen.comm, input_args=inputs)
    {'slope': array([-4.,  2.,  4., -2.])}
    """
    check_type("pen", pen, Pencil)
    tag = "halo_exchange", new_number(comm, pen)
    singletons = as_singletons(pen.ndim, dims)
    components = read_components("halo_exchange", x, pen, singletons)
    widths = as_halo(halo, pen.ndim, singletons)
    layout, own = pen.extent(singletons)[:2]
    padded = own.grow(widths)
    wide = [dim for dim, width in enumerate(widths) if any(width)]
    moves = _Moves()
    moves.put(pen.rank, own.slices(own.start), own.slices(padded.start))
    for faces in direct(wide) if corners else star(wide):
        sends, recvs = exchange(layout, widths, pen.rank, faces)
        for ghosts in sends:
            moves.leave(ghosts.dest, ghosts.box.shift(ghosts.wrap).slices(own.start))
        for ghosts in recvs:
            moves.arrive(ghosts.source, ghosts.box.slices(padded.start))
    shape = components + padded.shape
    return _moved(x, moves, shape=shape, pen=pen, ranks=ranks_on(comm, pen), tag=tag)


def transpose(
    x: Array,
    pen: Pencil,
    pen2: Pencil,
    *,
    dims: Sequence[int] | int | None = None,
    comm: MPI.Intracomm | None = None,
) -> Array:
    """Move a field from one pencil to another of the same shape: a `pencils.transpose`.

    All ranks of the pencils build the same pieces of graph in the same order; nothing is sent
    before the graph is executed. One message goes to each rank that shares points.

    Parameters
    ----------
    x : Array
        Own block of a field on `pen`, of shape ``components + pen.local_shape``.
    pen : Pencil
        Where the field lives.
    pen2 : Pencil
        Where it goes; same global shape and processes, anything else may differ.
    dims : int or sequence of int, optional
        Dimensions along which the field varies; along the others it is a singleton, of extent 1.
        Default: all.
    comm : mpi4py.MPI.Intracomm, optional
        Communicator on which the graph will be executed, and whose ranks all build such pieces.
        Default: that of the pencils.

    Returns
    -------
    Array
        Own block on `pen2`. Its value lies in the memory order of that pencil.

    Raises
    ------
    ArgumentError, TypeError
        If `x` does not have the shape of the own block.
    PencilMismatchError
        If the pencils do not have the same shape and processes.

    Examples
    --------
    >>> import pencils
    >>> from pencils import graph
    >>> rows = pencils.Pencil((4, 6), decomp=0)
    >>> x = graph.make_placeholder("x", rows.local_shape)
    >>> graph.transpose(x, rows, rows.with_(decomp=1)).shape
    (4, 6)
    """
    check_type("pen", pen, Pencil)
    check_type("pen2", pen2, Pencil)
    tag = "transpose", new_number(comm, pen)
    singletons = as_singletons(pen.ndim, dims)
    components = read_components("transpose", x, pen, singletons)
    if pen.shape != pen2.shape or not pen.same_ranks(pen2):
        msg = f"both pencils must have the same global shape and processes:\n{pen!r}\n{pen2!r}"
        raise PencilMismatchError(msg)
    here, there = pen.extent(singletons), pen2.extent(singletons)
    schedule = redistribution(here.layout, there.layout, pen.rank, pen2.rank)
    moves = _Moves()
    for message in schedule.sends:
        moves.leave(message.dest, message.box.slices(here.box.start))
    for message in schedule.recvs:
        moves.arrive(message.source, message.box.slices(there.box.start))
    shape = components + there.local_shape
    return _moved(x, moves, shape=shape, pen=pen2, ranks=ranks_on(comm, pen), tag=tag)


class _Moves:
    """Which parts of a block go to whom, and where what comes from others goes."""

    def __init__(self) -> None:
        self.leaving: dict[int, list[Key]] = {}
        self.arriving: dict[int, list[Key]] = {}

    def leave(self, peer: int, key: Key) -> None:
        """Send a part of the old block; between two ranks, both know the order."""
        self.leaving.setdefault(peer, []).append(key)

    def arrive(self, peer: int, key: Key) -> None:
        """Receive a part of the new block."""
        self.arriving.setdefault(peer, []).append(key)

    def put(self, rank: int, key: Key, there: Key) -> None:
        """Copy a part of the old block to the new one, on this rank itself."""
        self.leave(rank, key)
        self.arrive(rank, there)


def _moved(
    x: Array, moves: _Moves, *, shape: Shape, pen: Pencil, ranks: Sequence[int], tag: Hashable
) -> Array:
    """Pack for each rank, and unpack what each sends into a new block on `pen`."""
    lead = len(shape) - pen.ndim
    kept = _Kept(moves.leaving.pop(pen.rank, []), moves.arriving.pop(pen.rank, []))
    received = {
        peer: make_distributed_recv(ranks[peer], tag, prod(shape[:lead]) * _volume(keys), x.dtype)
        for peer, keys in moves.arriving.items()
    }
    filled = _volume(kept.there) + sum(map(_volume, moves.arriving.values()))
    assemble = _Assembly(
        shape,
        x.dtype,
        memory_axes(pen.order, lead),
        kept,
        tuple(moves.arriving.values()),
        gaps=filled < prod(shape[lead:]),
    )
    result = call(assemble, x, *received.values(), shape=shape, dtype=x.dtype)
    for peer, keys in moves.leaving.items():
        parcel = call(_Packing(keys), x, shape=prod(shape[:lead]) * _volume(keys), dtype=x.dtype)
        result = staple_distributed_send(parcel, ranks[peer], tag, result)
    return result


def _volume(keys: Iterable[Key]) -> int:
    return sum(prod(part.stop - part.start for part in key) for key in keys)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Parts that stay on this rank: where they are, and where they go."""

    here: Sequence[Key]
    there: Sequence[Key]


@dataclass(frozen=True, slots=True)
class _Packing:
    """Puts parts of a block one after the other."""

    keys: Sequence[Key]

    @property
    def __name__(self) -> str:
        return "pack"

    def __call__(self, block: Any) -> Any:
        lead = block.shape[: block.ndim - len(self.keys[0])]
        parcel = np.empty(prod(lead) * _volume(self.keys), block.dtype)
        for part, packed in _pairs(block, self.keys, parcel):
            packed[...] = part
        return parcel


@dataclass(frozen=True, slots=True)
class _Assembly:
    """Makes a new block of parts of the old one and of what others have packed."""

    shape: Shape
    dtype: np.dtype[Any]
    axes: tuple[int, ...]
    kept: _Kept
    keys: Sequence[Sequence[Key]]
    gaps: bool

    @property
    def __name__(self) -> str:
        return "assemble"

    def __call__(self, block: Any, *parcels: Any) -> Any:
        make = np.zeros if self.gaps else np.empty
        memory: Any = make([self.shape[axis] for axis in self.axes], self.dtype)
        new = memory.transpose(np.argsort(self.axes))
        for here, there in zip(self.kept.here, self.kept.there, strict=True):
            new[(Ellipsis, *there)] = block[(Ellipsis, *here)]
        for keys, parcel in zip(self.keys, parcels, strict=True):
            for part, packed in _pairs(new, keys, parcel):
                part[...] = packed
        return new


def _pairs(block: Any, keys: Iterable[Key], parcel: Any) -> Iterator[tuple[Any, Any]]:
    """Yield parts of a block, and where each of them lies in a parcel."""
    at = 0
    for key in keys:
        part = block[(Ellipsis, *key)]
        yield part, parcel[at : at + part.size].reshape(part.shape)
        at += part.size
