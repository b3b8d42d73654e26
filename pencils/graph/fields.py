"""Halo exchanges, transpositions and points of fields, as nodes of a graph.

The schedules are those of the same operations on fields, and so are the copies into messages and
out of them. A field in a graph is the node of its own block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.allocation import HaloLike, as_halo, as_singletons, memory_axes
from pencils.array.operands import check_type, topology_among
from pencils.comm.agree import agreed
from pencils.comm.pack import copy
from pencils.comm.rows import Ints
from pencils.comm.topology import topology_of, translate, user_comm
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.graph.array import Array, Call
from pencils.graph.messages import make_distributed_recv, staple_distributed_send
from pencils.graph.rules import Shape
from pencils.indexer.arguments import as_coords
from pencils.indexer.gather_scatter import GatherScatter
from pencils.indexer.requests import locate
from pencils.layout import redistribution
from pencils.layout.halo import direct, exchange, star
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

Key = tuple[slice, ...]
Keys = defaultdict[int, list[Key]]  # parts of a block, for each rank; both ranks list them alike


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

    All ranks of the pencil call this function in the same order; nothing is sent before the graph
    is executed. Each neighbour gets one message.

    Parameters
    ----------
    x : Array
        Own block of a field, of shape ``components + pen.local_shape``.
    pen : Pencil
        Pencil of the field.
    halo : int, sequence of int, or sequence of (int, int)
        Widths ``(lo, hi)`` along each dimension.
    corners : bool, optional
        Whether ghosts that are diagonal neighbours are filled; stencils shaped like a star do not
        read them.
    dims : int or sequence of int, optional
        Dimensions along which the field varies; along the others it is a singleton, of extent 1
        and without halo. Default: all.
    comm : mpi4py.MPI.Intracomm, optional
        Communicator on which the graph will be executed; all its ranks call this function.
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
    tag = "halo_exchange", _new_number(comm, pen)
    singletons = as_singletons(pen.ndim, dims)
    components = _components_of("halo_exchange", x, pen, singletons)
    widths = as_halo(halo, pen.ndim, singletons)
    layout, own = pen.extent(singletons)[:2]
    padded = own.grow(widths)
    wide = [dim for dim, width in enumerate(widths) if any(width)]
    sends, recvs = Keys(list), Keys(list)
    sends[pen.rank].append(own.slices(own.start))
    recvs[pen.rank].append(own.slices(padded.start))
    for faces in direct(wide) if corners else star(wide):
        leaving, arriving = exchange(layout, widths, pen.rank, faces)
        for ghosts in leaving:
            sends[ghosts.dest].append(ghosts.box.shift(ghosts.wrap).slices(own.start))
        for ghosts in arriving:
            recvs[ghosts.source].append(ghosts.box.slices(padded.start))
    shape = components + padded.shape
    return _redistributed(x, sends, recvs, shape, pen, ranks=_ranks_on(comm, pen), tag=tag)


def transpose(
    x: Array,
    pen: Pencil,
    pen2: Pencil,
    *,
    dims: Sequence[int] | int | None = None,
    comm: MPI.Intracomm | None = None,
) -> Array:
    """Move a field from one pencil to another of the same shape: a `pencils.transpose`.

    All ranks of the pencils call this function in the same order; nothing is sent before the graph
    is executed. Each rank that needs points of the own block gets one message.

    Parameters
    ----------
    x : Array
        Own block of a field on `pen`, of shape ``components + pen.local_shape``.
    pen : Pencil
        Pencil of the field.
    pen2 : Pencil
        Pencil of the result: same global shape and processes, anything else may differ.
    dims : int or sequence of int, optional
        Dimensions along which the field varies; along the others it is a singleton, of extent 1.
        Default: all.
    comm : mpi4py.MPI.Intracomm, optional
        Communicator on which the graph will be executed; all its ranks call this function.
        Default: that of the pencils.

    Returns
    -------
    Array
        Own block on `pen2`, contiguous in the memory order of that pencil.

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
    tag = "transpose", _new_number(comm, pen)
    singletons = as_singletons(pen.ndim, dims)
    components = _components_of("transpose", x, pen, singletons)
    if pen.shape != pen2.shape or not pen.same_ranks(pen2):
        msg = f"both pencils must have the same global shape and processes:\n{pen!r}\n{pen2!r}"
        raise PencilMismatchError(msg)
    here, there = pen.extent(singletons), pen2.extent(singletons)
    leaving, arriving = redistribution(here.layout, there.layout, pen.rank, pen2.rank)
    sends, recvs = Keys(list), Keys(list)
    for message in leaving:
        sends[message.dest].append(message.box.slices(here.box.start))
    for message in arriving:
        recvs[message.source].append(message.box.slices(there.box.start))
    shape = components + there.local_shape
    return _redistributed(x, sends, recvs, shape, pen2, ranks=_ranks_on(comm, pen), tag=tag)


def take(
    x: Array,
    pen: Pencil,
    coords: Sequence[Any],
    *,
    dims: Sequence[int] | int | None = None,
    comm: MPI.Intracomm | None = None,
) -> Array:
    """Read points of a field by global coordinates: a `PencilArray.take`. *Collective*.

    Ranks exchange their requests now, so that an execution sends values only: one message from
    each owner of points to each rank that takes them.

    Parameters
    ----------
    x : Array
        Own block of a field, of shape ``components + pen.local_shape``.
    pen : Pencil
        Pencil of the field.
    coords : sequence of array_like of int
        Global coordinates along each space dimension, in ``[0, shape)``, which broadcast to each
        other. Each rank has its own ones, perhaps none; points may be repeated.
    dims : int or sequence of int, optional
        Dimensions along which the field varies; along the others it is a singleton, and the only
        coordinate is 0. Default: all.
    comm : mpi4py.MPI.Intracomm, optional
        Communicator on which the graph will be executed; all its ranks call this function.
        Default: that of the pencil.

    Returns
    -------
    Array
        The values, of shape ``components`` + what the coordinates of this rank broadcast to.

    Raises
    ------
    IndexError, ArgumentError, TypeError, PencilMismatchError, RankDisagreementError
        On every rank of the pencil, if an argument does not fit on any.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> from pencils import graph
    >>> pen = pencils.Pencil((4, 6))
    >>> x = graph.make_placeholder("x", pen.local_shape)
    >>> twice = 2 * graph.take(x, pen, ([3, 0], [1, 5]))
    >>> partition = graph.find_distributed_partition(pen.comm, {"twice": twice})
    >>> inputs = {"x": np.arange(24.0).reshape(4, 6)}
    >>> graph.execute_distributed_partition(partition, None, None, pen.comm, input_args=inputs)
    {'twice': array([38., 10.])}
    """
    with agreed(topology_among(pen).comm, "graph.take") as same:
        check_type("pen", pen, Pencil)
        singletons = as_singletons(pen.ndim, dims)
        components = _components_of("take", x, pen, singletons)
        same(pencil=pen, dims=sorted(singletons), components=components, dtype=x.dtype)
        ranks = _ranks_on(comm, pen)
        extent = pen.extent(singletons)
        shape, index = as_coords(coords, extent.shape, copy=False)
    find = partial(locate, extent.layout, index, extent.layout.parts(pen.rank))
    plan = GatherScatter(pen.topology, find, extent.box.volume)
    plan.free()  # only its arrays are used; the messages are nodes of the graph
    tag = "take", _new_number(comm, pen)
    picked = {
        peer: _call(
            partial(_pick, points=plan.requested[rows], order=pen.order),
            (*components, _count(rows)),
            x,
        )
        for peer, rows in plan.to_requesters.leaving.ranges
    }
    kept = picked.pop(pen.rank, None)
    arriving = [
        kept
        if peer == pen.rank
        else make_distributed_recv(ranks[peer], tag, (*components, _count(rows)), x.dtype)
        for peer, rows in plan.to_requesters.arriving.ranges
    ]
    # x is needed even where nothing is taken: other ranks may wait for sends that it holds.
    shape = (*components, *shape)
    arrange = partial(_arrange, places=plan.places, shape=shape)
    found: Array = _call(arrange, shape, x, *arriving)
    for peer, message in picked.items():
        found = staple_distributed_send(message, ranks[peer], tag, found)
    return found


def _redistributed(
    x: Array,
    sends: Keys,
    recvs: Keys,
    shape: Shape,
    pen: Pencil,
    *,
    ranks: Sequence[int],
    tag: Hashable,
) -> Array:
    """Send parts of the own block to each rank, and assemble those that arrive to a block on `pen`.

    `sends` are parts of the own block, `recvs` those of the new block, which has `shape`.
    """
    lead = len(shape) - pen.ndim
    components = prod(shape[:lead])
    kept = list(zip(sends.pop(pen.rank, []), recvs.pop(pen.rank, []), strict=True))
    received = [
        make_distributed_recv(ranks[peer], tag, components * _volume(keys), x.dtype)
        for peer, keys in recvs.items()
    ]
    filled = _volume(there for _, there in kept) + sum(map(_volume, recvs.values()))
    assemble = partial(
        _assemble,
        shape=shape,
        axes=memory_axes(pen.order, lead),
        kept=kept,
        parts=list(recvs.values()),
        complete=filled == prod(shape[lead:]),
    )
    result: Array = _call(assemble, shape, x, *received)
    for peer, keys in sends.items():
        message = _call(partial(_pack, keys=keys), (components * _volume(keys),), x)
        result = staple_distributed_send(message, ranks[peer], tag, result)
    return result


def _volume(keys: Iterable[Key]) -> int:
    return sum(prod(part.stop - part.start for part in key) for key in keys)


def _call(func: Any, shape: Shape, x: Array, *others: Any) -> Call:
    """Make a node of the element type of `x`, whose result is not checked when it is executed."""
    return Call(func, (x, *others), {}, shape, x.dtype)


# What the nodes compute.


def _pack(block: Any, *, keys: Sequence[Key]) -> Any:
    """Copy parts of a block into a message, one after the other."""
    lead = block.shape[: block.ndim - len(keys[0])]
    message = np.empty(prod(lead) * _volume(keys), block.dtype)
    for part, packed in _packed_parts(block, keys, message):
        copy(packed, part)
    return message


def _assemble(
    block: Any,
    *messages: Any,
    shape: Shape,
    axes: tuple[int, ...],
    kept: Sequence[tuple[Key, Key]],
    parts: Sequence[Sequence[Key]],
    complete: bool,
) -> Any:
    """Make a new block of parts of the old one and of messages; all other points are zero."""
    make = np.empty if complete else np.zeros
    memory: Any = make([shape[axis] for axis in axes], block.dtype)
    new = memory.transpose(np.argsort(axes))
    for here, there in kept:
        copy(new[(Ellipsis, *there)], block[(Ellipsis, *here)])
    for keys, message in zip(parts, messages, strict=True):
        for part, packed in _packed_parts(new, keys, message):
            copy(part, packed)
    return new


def _packed_parts(block: Any, keys: Iterable[Key], message: Any) -> Iterator[tuple[Any, Any]]:
    """Yield parts of a block, and their places in a message."""
    start = 0
    for key in keys:
        part = block[(Ellipsis, *key)]
        yield part, message[start : start + part.size].reshape(part.shape)
        start += part.size


def _pick(block: Any, *, points: Ints, order: tuple[int, ...]) -> Any:
    """Read points of a block, given by their numbers in memory order."""
    lead = block.ndim - len(order)
    memory = block.transpose(memory_axes(order, lead))
    components, extents = memory.shape[:lead], memory.shape[lead:]
    if memory.flags.c_contiguous:
        return memory.reshape(*components, prod(extents)).take(points, -1)
    return memory[(..., *np.unravel_index(points, extents))]


def _arrange(block: Any, *messages: Any, places: Ints, shape: Shape) -> Any:
    """Put the points of all owners, in the order of ranks, in the order of the coordinates."""
    if not messages:
        return np.empty(shape, block.dtype)
    rows = np.concatenate(messages, -1)
    return rows.take(places, -1).reshape(shape)


def _count(rows: slice) -> int:
    return int(rows.stop - rows.start)


# Arguments.


def _components_of(name: str, x: Array, pen: Pencil, singletons: frozenset[int]) -> Shape:
    """Check that a node is an own block; return the shape of its components."""
    check_type("x", x, Array)
    local_shape = pen.extent(singletons).local_shape
    lead = max(0, x.ndim - pen.ndim)
    if x.shape[lead:] != local_shape:
        along = f" if it is a singleton along {sorted(singletons)}" if singletons else ""
        msg = (
            f"{name}: a node of shape {x.shape} is no own block of rank {pen.rank}, which has "
            f"shape {local_shape} after components{along}:\n{pen!r}"
        )
        raise ArgumentError(msg)
    return x.shape[:lead]


def _ranks_on(comm: MPI.Intracomm | None, pen: Pencil) -> Sequence[int]:
    """Find the ranks of a pencil on the communicator of the graph; None: that of the pencil."""
    other = pen.topology.comm if comm is None else user_comm(comm)
    ranks = translate(pen.topology.comm, other)
    if ranks is None:
        msg = f"comm does not have all processes of the pencil:\n{pen!r}"
        raise PencilMismatchError(msg)
    return ranks


def _new_number(comm: MPI.Intracomm | None, pen: Pencil) -> int:
    """Count the calls on the communicator of the graph, for tags that are equal on all ranks.

    To be called before any check that can fail on some ranks only.
    """
    topology = pen.topology if comm is None else topology_of(comm)
    return next(topology.numbers)
