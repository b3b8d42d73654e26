"""Collective methods of communicators, blocking, nonblocking and persistent.

Each function here makes the part of a rank in one collective; `forms` makes the methods of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from simmpi.collectives import slots as each
from simmpi.collectives.slots import Call, Caller, Collective
from simmpi.messages.requests import Prequest, Request
from simmpi.types.buffers import (
    Buffer,
    as_buffer,
    as_parts,
    as_vector,
    as_whole,
    as_wide,
    is_in_place,
    local,
)
from simmpi.types.operations import SUM, Op

if TYPE_CHECKING:
    from simmpi.world import Context

Method = Callable[..., Any]
Part = Callable[..., Call]
_Read = Callable[..., list[Buffer]]


def forms(part: Part, name: str) -> tuple[Method, Method, Method]:
    """Make the blocking, the nonblocking and the persistent method of a collective."""

    def start(
        comm: Caller, called: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Collective:
        context = comm._enter(called)
        call = part(comm, context, *args, **kwargs)._replace(name=called)
        return Collective(context, call, starts=called != name)

    def blocking(comm: Caller, *args: Any, **kwargs: Any) -> None:
        start(comm, name, args, kwargs).wait()

    def nonblocking(comm: Caller, *args: Any, **kwargs: Any) -> Request:
        return Request.of(start(comm, f"I{name.lower()}", args, kwargs))

    def persistent(comm: Caller, *args: Any, **kwargs: Any) -> Prequest:
        return Prequest.starting(partial(start, comm, f"{name}_init", args, kwargs))

    made = blocking, nonblocking, persistent
    for method, called in zip(made, (name, f"I{name.lower()}", f"{name}_init"), strict=True):
        method.__name__ = called
        method.__doc__ = part.__doc__
    return made


def objects(part: Part, name: str) -> Method:
    """Make the method of a collective of Python objects, which has a result."""

    def method(comm: Caller, *args: Any, **kwargs: Any) -> Any:
        context = comm._enter(name)
        call = part(comm, context, *args, **kwargs)._replace(name=name)
        return Collective(context, call).wait()

    method.__name__ = name
    method.__doc__ = part.__doc__
    return method


def _root(context: Context, root: int) -> int:
    return context.check_rank(root, "root")


def barrier(comm: Caller, context: Context) -> Call:  # noqa: ARG001
    """Wait for all ranks."""
    return Call("", each.nothing)


def bcast(comm: Caller, context: Context, buf: Any, root: int = 0) -> Call:
    """Send the buffer of one rank to all."""
    _root(context, root)
    buffer = as_buffer(buf, writes=comm._me != root)
    same = (f"root={root}", f"{buffer.nbytes} bytes")
    if comm._me == root:
        return Call("", each.nothing, buffer.pack(), (), same, [buffer])
    finish = partial(each.unpack, parts={root: buffer})
    return Call("", finish, None, (root,), same, receives=[buffer])


def _to_root(comm: Caller, context: Context, read: _Read, send: Any, recv: Any, root: int) -> Call:
    _root(context, root)
    same = (f"root={root}",)
    if comm._me != root:
        mine = as_buffer(send)
        return Call("", each.nothing, mine.pack(), (), same, [mine])
    found: list[Buffer | None] = list(read(recv, context.size, writes=True))
    if is_in_place(send):
        found[root] = None
    finish = partial(each.unpack, parts=dict(enumerate(found)))
    if is_in_place(send):
        return Call("", finish, np.empty(0, np.uint8), None, same, receives=found)
    mine = as_buffer(send)
    return Call("", finish, mine.pack(), None, same, [mine], found)


def gather(comm: Caller, context: Context, sendbuf: Any, recvbuf: Any, root: int = 0) -> Call:
    """Collect equal parts of all ranks on one."""
    return _to_root(comm, context, as_parts, sendbuf, recvbuf, root)


def gatherv(comm: Caller, context: Context, sendbuf: Any, recvbuf: Any, root: int = 0) -> Call:
    """Collect parts of all ranks on one."""
    return _to_root(comm, context, as_vector, sendbuf, recvbuf, root)


def _from_root(
    comm: Caller, context: Context, read: _Read, send: Any, recv: Any, root: int
) -> Call:
    _root(context, root)
    same = (f"root={root}",)
    buffer = None
    if not (comm._me == root and is_in_place(recv)):
        buffer = as_buffer(recv, writes=True)
    finish = partial(each.unpack_mine, parts={root: buffer})
    if comm._me != root:
        return Call("", finish, None, (root,), same, receives=[buffer])
    sends = read(send, context.size)
    return Call("", finish, [part.pack() for part in sends], (root,), same, sends, [buffer])


def scatter(comm: Caller, context: Context, sendbuf: Any, recvbuf: Any, root: int = 0) -> Call:
    """Divide the buffer of one rank into equal parts for all."""
    return _from_root(comm, context, as_parts, sendbuf, recvbuf, root)


def scatterv(comm: Caller, context: Context, sendbuf: Any, recvbuf: Any, root: int = 0) -> Call:
    """Divide the buffer of one rank into parts for all."""
    return _from_root(comm, context, as_vector, sendbuf, recvbuf, root)


def allgather(comm: Caller, context: Context, sendbuf: Any, recvbuf: Any) -> Call:
    """Collect equal parts of all ranks on all."""
    whole = as_whole(recvbuf, context.size, writes=True)
    own = is_in_place(sendbuf)
    mine = as_parts(recvbuf, context.size)[comm._me] if own else as_buffer(sendbuf)
    finish = partial(each.unpack_row, whole=whole)
    return Call("", finish, mine.pack(), None, (), [mine], [whole], in_place=own)


def allgatherv(comm: Caller, context: Context, sendbuf: Any, recvbuf: Any) -> Call:
    """Collect parts of all ranks on all."""
    parts = as_vector(recvbuf, context.size, writes=True)
    own = is_in_place(sendbuf)
    mine = parts[comm._me] if own else as_buffer(sendbuf)
    finish = partial(each.unpack, parts=dict(enumerate(parts)))
    return Call("", finish, mine.pack(), None, (), [mine], parts, in_place=own)


def alltoall(comm: Caller, context: Context, sendbuf: Any, recvbuf: Any) -> Call:  # noqa: ARG001
    """Send equal parts to all ranks."""
    size = context.size
    whole = as_whole(recvbuf, size, writes=True)
    mine = whole if is_in_place(sendbuf) else as_whole(sendbuf, size)
    finish = partial(each.unpack_column, whole=whole)
    own = mine is whole
    return Call("", finish, mine.pack(), None, (), [mine], [whole], in_place=own)


def _to_each(context: Context, read: _Read, sendbuf: Any, recvbuf: Any) -> Call:
    parts = read(recvbuf, context.size, writes=True)
    sends = parts if is_in_place(sendbuf) else read(sendbuf, context.size)
    finish = partial(each.unpack_mine, parts=dict(enumerate(parts)))
    given = [part.pack() for part in sends]
    return Call("", finish, given, None, (), sends, parts, in_place=sends is parts)


def alltoallv(comm: Caller, context: Context, sendbuf: Any, recvbuf: Any) -> Call:  # noqa: ARG001
    """Send parts to all ranks."""
    return _to_each(context, as_vector, sendbuf, recvbuf)


def alltoallw(comm: Caller, context: Context, sendbuf: Any, recvbuf: Any) -> Call:  # noqa: ARG001
    """Send parts of other types to all ranks."""
    return _to_each(context, as_wide, sendbuf, recvbuf)


def _op(op: Any) -> Op:
    """Take an operation on buffers."""
    found = local(op)
    if not isinstance(found, Op):
        raise TypeError(
            f"op={op!r} must be an MPI.Op for buffers; lowercase methods take functions"
        )
    return found


def _contribution(sendbuf: Any, recvbuf: Any, op: Op) -> Buffer:
    """Return what a rank contributes to a reduction."""
    buffer = as_buffer(recvbuf if is_in_place(sendbuf) else sendbuf)
    op.check(buffer)
    return buffer


def _same(op: Any, buffer: Buffer) -> tuple[Any, ...]:
    return f"op={op}", f"{buffer.nbytes} bytes of {buffer.datatype.name}"


def reduce(
    comm: Caller, context: Context, sendbuf: Any, recvbuf: Any, op: Any = SUM, root: int = 0
) -> Call:
    """Reduce the buffers of all ranks on one."""
    _root(context, root)
    op = _op(op)
    mine = _contribution(sendbuf, recvbuf, op)
    same = (f"root={root}", *_same(op, mine))
    if comm._me != root:
        return Call("", each.nothing, mine.pack(), (), same, [mine])
    result = as_buffer(recvbuf, writes=True)
    finish = partial(each.unpack_reduced, op=op, buffer=result)
    own = is_in_place(sendbuf)
    return Call("", finish, mine.pack(), None, same, [mine], [result], in_place=own)


def allreduce(comm: Caller, context: Context, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Call:  # noqa: ARG001
    """Reduce the buffers of all ranks on all."""
    op = _op(op)
    result = as_buffer(recvbuf, writes=True)
    mine = result if is_in_place(sendbuf) else as_buffer(sendbuf)
    op.check(mine)
    finish = partial(each.unpack_reduced, op=op, buffer=result)
    own = mine is result
    return Call("", finish, mine.pack(), None, _same(op, mine), [mine], [result], in_place=own)


def scan(comm: Caller, context: Context, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Call:
    """Reduce the buffers of this rank and those before it."""
    return _scan(comm._me + 1, context, sendbuf, recvbuf, op)


def exscan(comm: Caller, context: Context, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Call:
    """Reduce the buffers of the ranks before this one."""
    return _scan(comm._me, context, sendbuf, recvbuf, op)


def _scan(stop: int, context: Context, sendbuf: Any, recvbuf: Any, op: Any) -> Call:  # noqa: ARG001
    op = _op(op)
    mine = _contribution(sendbuf, recvbuf, op)
    result = as_buffer(recvbuf, writes=True)
    finish = partial(each.unpack_scanned, op=op, buffer=result, stop=stop)
    own, same = is_in_place(sendbuf), _same(op, mine)
    return Call("", finish, mine.pack(), range(stop), same, [mine], [result], in_place=own)


def reduce_scatter_block(
    comm: Caller,  # noqa: ARG001
    context: Context,
    sendbuf: Any,
    recvbuf: Any,
    op: Any = SUM,
) -> Call:
    """Reduce, and divide the result into equal parts for all ranks."""
    op = _op(op)
    in_place = is_in_place(sendbuf)
    whole = as_whole(recvbuf if in_place else sendbuf, context.size)
    op.check(whole)
    if in_place:
        mine = as_parts(recvbuf, context.size, writes=True)[0]
    else:
        mine = as_buffer(recvbuf, writes=True)
    ends = [mine.nbytes * (rank + 1) for rank in range(context.size)]
    return _scatter(whole, mine, op, ends, own=is_in_place(sendbuf))


def reduce_scatter(
    comm: Caller,
    context: Context,
    sendbuf: Any,
    recvbuf: Any,
    recvcounts: Any = None,
    op: Any = SUM,
) -> Call:
    """Reduce, and divide the result into parts for all ranks."""
    op = _op(op)
    whole = _contribution(sendbuf, recvbuf, op)
    out = as_buffer(recvbuf, writes=True)
    if recvcounts is None:
        counts = [whole.count // context.size] * context.size
        if not is_in_place(sendbuf):
            counts = comm.allgather(out.count)
    else:
        counts = list(recvcounts)
    size = whole.datatype.size
    ends = np.cumsum([count * size for count in counts]).tolist()
    mine = Buffer(out.address, counts[comm._me], out.datatype, out.kind, out.owner)
    return _scatter(whole, mine, op, ends, own=is_in_place(sendbuf))


def _scatter(whole: Buffer, mine: Buffer, op: Any, ends: list[int], *, own: bool) -> Call:
    finish = partial(each.unpack_scattered, op=op, whole=whole, mine=mine, ends=ends)
    return Call("", finish, whole.pack(), None, _same(op, whole), [whole], [mine], in_place=own)


# ---- of Python objects ----


def bcast_object(comm: Caller, context: Context, obj: Any = None, root: int = 0) -> Call:
    """Return the object of one rank on all."""
    _root(context, root)
    given = each.pickled(obj) if comm._me == root else None
    finish = partial(each.load_from, source=root)
    return Call("", finish, given, (root,), (f"root={root}",))


def gather_objects(comm: Caller, context: Context, sendobj: Any, root: int = 0) -> Call:
    """Return the objects of all ranks on one."""
    _root(context, root)
    same = (f"root={root}",)
    if comm._me != root:
        return Call("", each.nothing, each.pickled(sendobj), (), same)
    return Call("", each.load_each, each.pickled(sendobj), None, same)


def scatter_objects(comm: Caller, context: Context, sendobj: Any = None, root: int = 0) -> Call:
    """Return on each rank its object of those that one rank has."""
    _root(context, root)
    given = None
    if comm._me == root:
        given = [each.pickled(one) for one in _one_for_each(sendobj, context.size)]
    finish = partial(each.load_mine, source=root)
    return Call("", finish, given, (root,), (f"root={root}",))


def allgather_objects(comm: Caller, context: Context, sendobj: Any) -> Call:  # noqa: ARG001
    """Return the objects of all ranks on all."""
    return Call("", each.load_each, each.pickled(sendobj))


def alltoall_objects(comm: Caller, context: Context, sendobj: Any) -> Call:  # noqa: ARG001
    """Return the objects that all ranks have for this one."""
    given = [each.pickled(one) for one in _one_for_each(sendobj, context.size)]
    return Call("", each.load_all_mine, given)


def _one_for_each(values: Any, size: int) -> list[Any]:
    try:
        found = list(values)
    except TypeError:
        raise TypeError(
            f"{values!r:.60} was given; pass a sequence of {size} objects, one for each rank"
        ) from None
    if len(found) != size:
        raise ValueError(f"{len(found)} objects were given; pass {size}, one for each rank")
    return found


def reduce_objects(
    comm: Caller, context: Context, sendobj: Any, op: Any = SUM, root: int = 0
) -> Call:
    """Return the reduction of the objects of all ranks on one."""
    _root(context, root)
    same = (f"root={root}",)
    if comm._me != root:
        return Call("", each.nothing, each.pickled(sendobj), (), same)
    finish = partial(each.load_reduced, op=local(op), stop=context.size)
    return Call("", finish, each.pickled(sendobj), None, same)


def allreduce_objects(comm: Caller, context: Context, sendobj: Any, op: Any = SUM) -> Call:  # noqa: ARG001
    """Return the reduction of the objects of all ranks on all."""
    finish = partial(each.load_reduced, op=local(op), stop=context.size)
    return Call("", finish, each.pickled(sendobj))


def scan_objects(comm: Caller, context: Context, sendobj: Any, op: Any = SUM) -> Call:  # noqa: ARG001
    """Return the reduction of the objects of this rank and those before it."""
    stop = comm._me + 1
    finish = partial(each.load_reduced, op=local(op), stop=stop)
    return Call("", finish, each.pickled(sendobj), range(stop))


def exscan_objects(comm: Caller, context: Context, sendobj: Any, op: Any = SUM) -> Call:  # noqa: ARG001
    """Return the reduction of the objects of the ranks before this one."""
    stop = comm._me
    finish = partial(each.load_reduced, op=local(op), stop=stop)
    return Call("", finish, each.pickled(sendobj), range(stop))


class Collectives:
    """Collective methods of an intra-communicator."""

    Barrier, Ibarrier, Barrier_init = forms(barrier, "Barrier")
    Bcast, Ibcast, Bcast_init = forms(bcast, "Bcast")
    Gather, Igather, Gather_init = forms(gather, "Gather")
    Gatherv, Igatherv, Gatherv_init = forms(gatherv, "Gatherv")
    Scatter, Iscatter, Scatter_init = forms(scatter, "Scatter")
    Scatterv, Iscatterv, Scatterv_init = forms(scatterv, "Scatterv")
    Allgather, Iallgather, Allgather_init = forms(allgather, "Allgather")
    Allgatherv, Iallgatherv, Allgatherv_init = forms(allgatherv, "Allgatherv")
    Alltoall, Ialltoall, Alltoall_init = forms(alltoall, "Alltoall")
    Alltoallv, Ialltoallv, Alltoallv_init = forms(alltoallv, "Alltoallv")
    Alltoallw, Ialltoallw, Alltoallw_init = forms(alltoallw, "Alltoallw")
    Reduce, Ireduce, Reduce_init = forms(reduce, "Reduce")
    Allreduce, Iallreduce, Allreduce_init = forms(allreduce, "Allreduce")
    Reduce_scatter, Ireduce_scatter, Reduce_scatter_init = forms(reduce_scatter, "Reduce_scatter")
    Reduce_scatter_block, Ireduce_scatter_block, Reduce_scatter_block_init = forms(
        reduce_scatter_block, "Reduce_scatter_block"
    )
    Scan, Iscan, Scan_init = forms(scan, "Scan")
    Exscan, Iexscan, Exscan_init = forms(exscan, "Exscan")

    barrier = objects(barrier, "barrier")
    bcast = objects(bcast_object, "bcast")
    gather = objects(gather_objects, "gather")
    scatter = objects(scatter_objects, "scatter")
    allgather = objects(allgather_objects, "allgather")
    alltoall = objects(alltoall_objects, "alltoall")
    reduce = objects(reduce_objects, "reduce")
    allreduce = objects(allreduce_objects, "allreduce")
    scan = objects(scan_objects, "scan")
    exscan = objects(exscan_objects, "exscan")
