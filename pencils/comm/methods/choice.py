"""The choice of a method, on which all ranks agree."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pencils.comm.agree import agreed
from pencils.comm.methods import METHODS, Hybrid, Messages, Method, Shared
from pencils.comm.methods.method import ChunkPlan
from pencils.comm.methods.shared import is_near
from pencils.comm.pack import prepare_copies
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError


def make_methods(name: str, plans: Sequence[ChunkPlan]) -> Sequence[Method]:
    """Make the method of each chunk; messages if there is no shared memory. *Collective*."""
    if name == Messages.name:  # no agreement with other ranks is needed
        return Messages.for_chunks(plans)
    topology = plans[0].topology
    with agreed(topology.comm, "Exchange") as agree:
        on_node = topology.on_node
        _check_suitable(name, plans, on_node)
        blocks = [block for plan in plans for sends in plan.sends for block in sends.blocks]
        near = [is_near(block, on_node) for block in blocks]
        agree.flag(up=any(near))
        agree.defer(up=not all(near))
    kind = METHODS.get(name)
    if kind is None:
        kind = _fastest(topology, some_near=agree.flagged, some_far=agree.deferred)
    methods = kind.for_chunks(plans)
    return methods if methods[0].has_room() else Messages.for_chunks(plans)


def _fastest(topology: Topology, *, some_near: bool, some_far: bool) -> type[Method]:
    """Shared memory wherever possible: it saves a copy even if packing is needed. *Collective*."""
    if not some_near:
        return Messages
    return Hybrid if some_far or topology.nodes > 1 else Shared


def _check_suitable(name: str, plans: Sequence[ChunkPlan], on_node: Collection[int]) -> None:
    """Raise if the method does not reach all peers, or cannot move what is planned."""
    every = [pack_plan for plan in plans for pack_plan in (*plan.sends, *plan.recvs)]
    far = {peer for pack_plan in every for peer in pack_plan.peers if peer not in on_node}
    if name == Shared.name and far:
        raise ArgumentError(
            f"method 'shared' does not reach rank {min(far)} on another node; use 'hybrid'"
        )
    simple = all(len(plan.sends) == 1 and plan.unpack is prepare_copies for plan in plans)
    if name in METHODS and not (simple or METHODS[name].versatile):
        raise ArgumentError(f"method {name!r} copies, and treats all arrays alike; use another one")
