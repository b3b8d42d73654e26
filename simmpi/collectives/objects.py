"""Collectives of Python objects: the part of a rank in each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from simmpi.collectives import slots as each
from simmpi.collectives.slots import Call, Caller
from simmpi.types.buffers import local
from simmpi.types.operations import SUM

if TYPE_CHECKING:
    from simmpi.world import Context


def bcast_object(comm: Caller, context: Context, obj: Any = None, root: int = 0) -> Call:
    """Return the object of one rank on all."""
    context.check_rank(root, "root")
    given = each.pickled(obj) if comm._me == root else None
    finish = partial(each.load_from, source=root)
    return Call("", finish, given, (root,), (f"root={root}",))


def gather_objects(comm: Caller, context: Context, sendobj: Any, root: int = 0) -> Call:
    """Return the objects of all ranks on one."""
    context.check_rank(root, "root")
    same = (f"root={root}",)
    if comm._me != root:
        return Call("", each.nothing, each.pickled(sendobj), (), same)
    return Call("", each.load_each, each.pickled(sendobj), None, same)


def scatter_objects(comm: Caller, context: Context, sendobj: Any = None, root: int = 0) -> Call:
    """Return on each rank its object of those that one rank has."""
    context.check_rank(root, "root")
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
    context.check_rank(root, "root")
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
