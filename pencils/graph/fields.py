"""Halo exchanges, transpositions and points of fields, as nodes of a graph.

Schedules and copies are those of the same operations on fields. A field in a graph is the node of
its own block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.allocation import HaloLike, as_halo, as_singletons, memory_axes
from pencils.array.operands import check_type, topology_among
from pencils.comm import pool
from pencils.comm.agree import agreed
from pencils.comm.pack import copy
from pencils.comm.rows import locate
from pencils.comm.topology import topology_of, translate, user_comm
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.graph.array import Array, Call
from pencils.graph.messages import make_distributed_recv, staple_distributed_send
from pencils.graph.rules import Padding, Shape, joined, keys_of_joined
from pencils.indexer.arguments import as_coords
from pencils.indexer.gather_scatter import GatherScatter
from pencils.indexer.requests import points_on
from pencils.layout import Extent, redistribution
from pencils.layout.halo import direct, exchange, star
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

Key = tuple[slice, ...]
Keys = defaultdict[int, list[Key]]  # parts of a block, for each rank; both ranks list them alike
Route = tuple[int, Sequence[int], Hashable]  # own rank, ranks on the graph's communicator, tag


def halo_exchange(
    x: Array,
    pencil: Pencil,
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
        Own block of a field, of shape ``components + pencil.local_shape``.
    pencil : Pencil
        Pencil of the field.
    halo : int, sequence of int, or sequence of (int, int)
        Widths ``(lo, hi)`` along each dimension.
    corners : bool, optional
        Whether ghosts that are diagonal neighbours are filled; stencils shaped like a star do not
        read them.
    dims : int or sequence of int, optional
        Dimensions along which the field varies; the others have extent 1 and no halo. Default: all.
    comm : mpi4py.MPI.Intracomm, optional
        Executes the graph; all its ranks call this function. Default: that of the pencil.

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
    check_type("pencil", pencil, Pencil)
    tag = "halo_exchange", _new_number(comm, pencil)
    singletons, (layout, own, _, _), components = _own_block("halo_exchange", x, pencil, dims)
    widths = as_halo(halo, pencil.ndim, singletons)
    padded = own.grow(widths)
    wide = [dim for dim, width in enumerate(widths) if any(width)]
    sends, recvs = Keys(list), Keys(list)
    for faces in direct(wide) if corners else star(wide):
        leaving, arriving = exchange(layout, widths, pencil.rank, faces)
        for ghosts in leaving:
            sends[ghosts.dest].append(ghosts.box.shift(ghosts.wrap).slices(padded.start))
        for ghosts in arriving:
            recvs[ghosts.source].append(ghosts.box.slices(padded.start))
    shape = components + padded.shape
    axes = memory_axes(pencil.order, len(components))
    filled = own.volume + _volume(chain(*recvs.values())) == padded.volume
    blocks, keys = _joined_blocks(x, len(components))
    padding: Any = Padding(
        tuple([shape[axis] for axis in axes]),
        tuple(np.argsort(axes)),
        [(*key, ..., *own.slices(padded.start)) for key in keys],
        [] if filled else [(..., *box.slices(padded.start)) for box in padded.without(own)],
    )
    node = Call(padding, blocks, {}, shape, x.dtype)
    route = pencil.rank, _ranks_on(comm, pencil), tag
    return _redistributed(node, (sends, recvs), shape, pencil, route, inside=True)


def transpose(
    x: Array,
    pencil: Pencil,
    pencil2: Pencil,
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
        Own block of a field on `pencil`, of shape ``components + pencil.local_shape``.
    pencil : Pencil
        Pencil of the field.
    pencil2 : Pencil
        Pencil of the result: same global shape and processes, anything else may differ.
    dims : int or sequence of int, optional
        Dimensions along which the field varies; the others have extent 1. Default: all.
    comm : mpi4py.MPI.Intracomm, optional
        Executes the graph; all its ranks call this function. Default: that of the pencils.

    Returns
    -------
    Array
        Own block on `pencil2`, contiguous in the memory order of that pencil.

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
    check_type("pencil", pencil, Pencil)
    check_type("pencil2", pencil2, Pencil)
    tag = "transpose", _new_number(comm, pencil)
    singletons, here, components = _own_block("transpose", x, pencil, dims)
    if pencil.shape != pencil2.shape or not pencil.same_ranks(pencil2):
        raise PencilMismatchError(
            f"pencils must have the same global shape and processes:\n{pencil!r}\n{pencil2!r}"
        )
    there = pencil2.extent(singletons)
    leaving, arriving = redistribution(here.layout, there.layout, pencil.rank, pencil2.rank)
    sends, recvs = Keys(list), Keys(list)
    for message in leaving:
        sends[message.dest].append(message.box.slices(here.box.start))
    for message in arriving:
        recvs[message.source].append(message.box.slices(there.box.start))
    shape = components + there.local_shape
    route = pencil.rank, _ranks_on(comm, pencil), tag
    return _redistributed(x, (sends, recvs), shape, pencil2, route)


def take(
    x: Array,
    pencil: Pencil,
    coords: Sequence[Any],
    *,
    dims: Sequence[int] | int | None = None,
    comm: MPI.Intracomm | None = None,
) -> Array:
    """Read points of a field by global coordinates: a `PencilArray.take_points`. *Collective*.

    Ranks exchange their requests now, so that an execution sends values only: one message from
    each owner of points to each rank that takes them.

    Parameters
    ----------
    x : Array
        Own block of a field, of shape ``components + pencil.local_shape``.
    pencil : Pencil
        Pencil of the field.
    coords : sequence of array_like of int
        Global coordinates along each space dimension, in ``[0, shape)``, which broadcast to each
        other. Each rank has its own ones, perhaps none; points may be repeated.
    dims : int or sequence of int, optional
        Dimensions along which the field varies; the others have coordinate 0 only. Default: all.
    comm : mpi4py.MPI.Intracomm, optional
        Executes the graph; all its ranks call this function. Default: that of the pencil.

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
    with agreed(topology_among(pencil).comm, "graph.take") as agree:
        check_type("pencil", pencil, Pencil)
        singletons, extent, components = _own_block("take", x, pencil, dims)
        agree(pencil=pencil, dims=sorted(singletons), components=components, dtype=x.dtype)
        ranks = _ranks_on(comm, pencil)
        shape, index = as_coords(coords, extent.shape, copy=False)
        wanted = points_on(extent.layout, index, extent.layout.parts(pencil.rank))
    plan = GatherScatter.locating(pencil.topology, partial(locate, wanted), extent.box.volume)
    plan.free()  # only its arrays are used; the messages are nodes of the graph
    requested, places, order = plan.requested, plan.places, pencil.order
    axes = memory_axes(order, len(components))

    def pick(rows: slice) -> Callable[[Any], Any]:
        """Read points of the block, given by their numbers in memory order."""

        def read(block: Any) -> Any:
            memory, points = block.transpose(axes), requested[rows]
            extents = memory.shape[len(components) :]
            if memory.flags.c_contiguous:
                return memory.reshape(*components, prod(extents)).take(points, -1)
            return memory[(..., *np.unravel_index(points, extents))]

        return read

    def arrange(block: Any, *messages: Any) -> Any:
        """Put the points of all owners, in the order of ranks, in that of the coordinates."""
        if not messages:
            return np.empty((*components, *shape), block.dtype)
        return np.concatenate(messages, -1).take(places, -1).reshape((*components, *shape))

    leaving, arriving = [
        [(peer, rows, (*components, rows.stop - rows.start)) for peer, rows in segments.ranges]
        for segments in (plan.to_requesters.leaving, plan.to_requesters.arriving)
    ]
    messages = {peer: _call(pick(rows), size, x) for peer, rows, size in leaving}
    shapes = {peer: size for peer, _, size in arriving}
    route = pencil.rank, ranks, ("take", _new_number(comm, pencil))
    return _exchanged(_call(arrange, (*components, *shape), x), messages, shapes, route)


def _redistributed(
    x: Array,
    traffic: tuple[Keys, Keys],
    shape: Shape,
    pencil: Pencil,
    route: Route,
    *,
    inside: bool = False,
) -> Array:
    """Send parts of a block, and assemble those that arrive to a new one on `pencil`, or inside."""
    (sends, recvs), rank, lead = traffic, route[0], len(shape) - pencil.ndim
    axes = memory_axes(pencil.order, lead)
    kept = list(zip(sends.pop(rank, []), recvs.pop(rank, []), strict=True))

    def size_of(keys: Sequence[Key]) -> Shape:
        return (prod(shape[:lead]) * _volume(keys),)

    def pack(keys: Sequence[Key]) -> Callable[[Any], Any]:
        """Copy parts of the block into a message, one after the other."""

        def packed(block: Any) -> Any:
            message = pool.empty(size_of(keys), block.dtype)
            for part, place in _packed_parts(block, keys, message):
                copy(place, part)
            return message

        return packed

    def assemble(block: Any, *messages: Any) -> Any:
        """Put parts of a block, and messages, where they belong."""
        new: Any = block if block.flags.writeable else block.copy("K")
        if not inside:
            memory = pool.empty(tuple([shape[axis] for axis in axes]), block.dtype)
            new = memory.transpose(np.argsort(axes))
        for here, there in kept:
            copy(new[(Ellipsis, *there)], block[(Ellipsis, *here)])
        for keys, message in zip(recvs.values(), messages, strict=True):
            for part, place in _packed_parts(new, keys, message):
                copy(part, place)
        return new

    messages = {peer: _call(pack(keys), size_of(keys), x) for peer, keys in sends.items()}
    shapes = {peer: size_of(keys) for peer, keys in recvs.items()}
    return _exchanged(_call(assemble, shape, x), messages, shapes, route)


def _exchanged(
    result: Call, messages: Mapping[int, Array], shapes: Mapping[int, Shape], route: Route
) -> Array:
    """Send a message to each rank, and pass those that arrive, in order, to the call `result`.

    Its first argument is always the own block: other ranks may wait for sends that this depends on.
    """
    rank, ranks, tag = route
    arrived = [
        messages[peer]
        if peer == rank
        else make_distributed_recv(ranks[peer], tag, shape, result.dtype)
        for peer, shape in shapes.items()
    ]
    found: Array = replace(result, args=(*result.args, *arrived))
    for peer, message in messages.items():
        if peer != rank:
            found = staple_distributed_send(message, ranks[peer], tag, found)
    return found


def _joined_blocks(x: Array, lead: int) -> tuple[tuple[Array, ...], list[tuple[Any, ...]]]:
    """Return the blocks whose components a block consists of, and their keys."""
    if not isinstance(x, Call) or x.func is not joined or x.options.keys() != {"func", "axis"}:
        return (x,), [()]
    if x.options["axis"] >= lead or not all(isinstance(block, Array) for block in x.args):
        return (x,), [()]
    return x.args, list(keys_of_joined(x.args, **x.options))


def _volume(keys: Iterable[Key]) -> int:
    return sum(prod(part.stop - part.start for part in key) for key in keys)


def _packed_parts(block: Any, keys: Iterable[Key], message: Any) -> Iterator[tuple[Any, Any]]:
    """Yield parts of a block, and their places in a message."""
    start = 0
    for key in keys:
        part = block[(Ellipsis, *key)]
        yield part, message[start : start + part.size].reshape(part.shape)
        start += part.size


def _call(func: Any, shape: Shape, x: Array) -> Call:
    """Make a node of the element type of `x`, whose result is not checked when it is executed."""
    return Call(func, (x,), {}, shape, x.dtype)


def _own_block(
    name: str, x: Array, pencil: Pencil, dims: Sequence[int] | int | None
) -> tuple[frozenset[int], Extent, Shape]:
    """Check that a node is an own block; return singletons, extent and shape of components."""
    check_type("x", x, Array)
    singletons = as_singletons(pencil.ndim, dims)
    extent = pencil.extent(singletons)
    lead = max(0, x.ndim - pencil.ndim)
    if x.shape[lead:] != extent.local_shape:
        raise ArgumentError(
            f"{name}: a node of shape {x.shape} is not the block of rank {pencil.rank}, which has "
            f"shape {extent.local_shape} after components:\n{pencil!r}"
        )
    return singletons, extent, x.shape[:lead]


def _ranks_on(comm: MPI.Intracomm | None, pencil: Pencil) -> Sequence[int]:
    """Find the ranks of a pencil on the communicator of the graph; None: that of the pencil."""
    other = pencil.topology.comm if comm is None else user_comm(comm)
    ranks = translate(pencil.topology.comm, other)
    if ranks is None:
        raise PencilMismatchError(f"comm does not have all processes of the pencil:\n{pencil!r}")
    return ranks


def _new_number(comm: MPI.Intracomm | None, pencil: Pencil) -> int:
    """Count the calls on the communicator of the graph, before checks that some ranks may fail."""
    topology = pencil.topology if comm is None else topology_of(comm)
    return next(topology.graph_numbers)
