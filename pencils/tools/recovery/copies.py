"""Copies of fields in the memory of other ranks, from which those that are left go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pencils.array.operands import FieldSpec, check_field, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange
from pencils.comm.failure import wait_all
from pencils.comm.memory import Array, byte_chunks
from pencils.comm.methods import Messages
from pencils.comm.mpi import MPI, Uncopied
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError, PencilMismatchError, RanksLostError
from pencils.io.options import as_field_names
from pencils.layout import Box, Layout, redistribution
from pencils.layout.integers import as_int

TAG = 6


@dataclass(frozen=True)
class Copy:
    """The step, time and values that `BuddyCopies.resume` has restored.

    Attributes
    ----------
    step : int
        Number of the step.
    attrs : dict of str to object
        The further arguments of `BuddyCopies.save`.
    """

    step: int
    attrs: dict[str, Any] = field(default_factory=dict)


class _Blocks(NamedTuple):
    """Blocks of one field: of this rank (0), and of the one whose copies it keeps (1)."""

    layout: Layout
    spec: FieldSpec
    blocks: tuple[Array, Array]


class _Saved(NamedTuple):
    """Blocks of all fields after a step, the processes that saved them, and the way to the copy."""

    step: int
    attrs: dict[str, Any]
    fields: dict[str, _Blocks]
    processes: MPI.Group
    distance: int


class BuddyCopies(Uncopied):
    """The latest state of a run, in the memory of two ranks each.

    It is made before `recover` calls the program, and keeps what `save` has copied after processes
    have died. `resume` fills fields on fewer processes, and on any pencils. It fails if a process
    and the one that kept its copies have both died since the last `save`. If there are several
    nodes, that is on another one where possible.

    Examples
    --------
    >>> import pencils
    >>> copies = pencils.recovery.BuddyCopies()
    >>> u, v = pencils.ones(pencils.Pencil((4, 6))), pencils.zeros(pencils.Pencil((4, 6), decomp=1))
    >>> copies.save(3, {"u": u}, time=0.5)
    >>> copies.resume({"u": v}), v.sum()
    (Copy(step=3, attrs={'time': 0.5}), np.float64(24.0))
    """

    def __init__(self) -> None:
        # The last one is on all ranks; the one before it until all have it.
        self._saved: list[_Saved] = []
        self._complete = -1  # step of the last one that is known to be on all ranks

    @property
    def nbytes(self) -> int:
        """Bytes of this rank: two blocks for each field, and twice as many during `save`."""
        kept = (each for saved in self._saved for each in saved.fields.values())
        return sum(block.nbytes for each in kept for block in each.blocks)

    def save(self, step: int, fields: Mapping[str, PencilArray], **attrs: Any) -> None:
        """Copy fields to this rank and to another one, replacing previous copies. *Collective*.

        If a process dies during the call, the previous copies are kept.

        Parameters
        ----------
        step : int
            Number of the step, larger than before.
        fields : mapping of str to PencilArray
            Fields over the same processes. Ghosts and boundary points are not copied.
        **attrs : optional
            Values that `resume` returns, such as the time; the same on every rank, which is checked
            of numbers and texts. They are copied.

        Raises
        ------
        ArgumentError, PencilMismatchError, RankDisagreementError, TypeError
            On every rank, if an argument is not allowed or differs between ranks.
        """
        topology = _topology(fields)
        distance = _distance(topology)  # may communicate: not within the agreement
        blocks: dict[str, _Blocks] = {}
        with agreed(topology.comm, "BuddyCopies.save") as agree:
            names = _check(agree, fields, topology)
            number = as_int("step", step, least=0)
            if number <= self._complete:
                raise ArgumentError(
                    f"step={step} must be larger than {self._complete}, the step saved last"
                )
            # Other values may have another text on each rank.
            plain = bool, int, float, complex, str, np.generic
            told = {f"attrs[{k!r}]": one for k, one in attrs.items() if isinstance(one, plain)}
            agree(step=number, attrs=sorted(attrs), **told)
            origin = (topology.rank - distance) % topology.comm.size
            for name in names:
                u = fields[name]
                layout, spec = u.extent.layout, FieldSpec.of(u)
                copy = np.empty((*spec.components, *layout.box(origin).shape), spec.dtype)
                blocks[name] = _Blocks(layout, spec, (np.array(u.local, order="C"), copy))
            kept = deepcopy(attrs)
        comm, there = topology.comm, (topology.rank + distance) % topology.comm.size
        own, copies = (
            [part for each in blocks.values() for part in byte_chunks(each.blocks[number])]
            for number in range(2)
        )
        requests = [comm.Irecv([part, MPI.BYTE], origin, TAG) for part in copies]
        requests += [comm.Isend([part, MPI.BYTE], there, TAG) for part in own]
        wait_all(requests)
        self._saved.append(_Saved(number, kept, blocks, comm.Get_group(), distance))
        comm.Barrier()  # a rank that passes it knows that all have their copies
        self._keep(number)

    def resume(self, fields: Mapping[str, PencilArray]) -> Copy | None:
        """Fill fields with the latest copies. *Collective*.

        Parameters
        ----------
        fields : mapping of str to PencilArray
            Fields to fill, of the shapes, types and components that were saved, on any pencils over
            processes that took part in `save`. Ghosts keep their values.

        Returns
        -------
        Copy or None
            The step and the attributes; None if nothing was saved.

        Raises
        ------
        RanksLostError
            On every rank, if a process and the one with its copies have died.
        ArgumentError, PencilMismatchError, RankDisagreementError, TypeError
            On every rank, if an argument is not allowed or differs between ranks.
        """
        topology = _topology(fields)
        with agreed(topology.comm, "BuddyCopies.resume") as agree:
            names = _check(agree, fields, topology)
        # A rank that has passed the barrier in `save` vouches for all.
        step = topology.most(self._complete)
        if step < 0:
            return None
        with agreed(topology.comm, "BuddyCopies.resume"):
            saved = next((each for each in self._saved if each.step == step), None)
            if saved is None:
                raise ArgumentError(
                    f"this rank has no copies of step {step}: it took no part in save(); resume on "
                    "the communicator that recover() passes to the program"
                )
            for name in names:
                kept, u = saved.fields.get(name), fields[name]
                if kept is None:
                    known = ", ".join(saved.fields)
                    raise ArgumentError(f"{name!r} was not saved; there is {known}")
                spec, shape = FieldSpec.of(u), u.extent.layout.shape
                if (spec, shape) != (kept.spec, kept.layout.shape):
                    raise PencilMismatchError(
                        f"{name} has shape {shape}, {spec.dtype} and components {spec.components}; "
                        f"saved were {kept.layout.shape}, {kept.spec.dtype} and "
                        f"{kept.spec.components}; make them equal"
                    )
            hosts = _hosts(saved, topology)
            found = Copy(step, deepcopy(saved.attrs))
        _restore([(saved.fields[name], fields[name]) for name in names], hosts, topology)
        self._keep(step)
        return found

    def _keep(self, step: int) -> None:
        """Note that all ranks have the copies of a step, and drop the others."""
        self._complete = step
        for saved in self._saved:
            if saved.step != step:
                saved.processes.Free()
        self._saved = [saved for saved in self._saved if saved.step == step]


def _topology(fields: object) -> Topology:
    return topology_among(list(fields.values()) if isinstance(fields, Mapping) else [])


def _check(agree: agreed, fields: Mapping[str, PencilArray], topology: Topology) -> list[str]:
    """Check fields, record what all ranks must agree on about them, and return their names."""
    names = as_field_names(fields)
    for name, u in fields.items():
        check_field(name, u)
        if u.pencil.size != topology.comm.size or u.pencil.rank != topology.rank:
            raise PencilMismatchError(
                f"{name} is on other processes than the other fields; save it in other BuddyCopies"
            )
    specs = {name: FieldSpec.of(fields[name]) for name in names}
    agree(fields=str(specs), pencils=[fields[name].pencil for name in names])
    return names


def _distance(topology: Topology) -> int:
    """Ranks between the owner of a block and its copy: half of all, or to another node.

    The same on all ranks. *Collective* the first time.
    """
    size, nodes = topology.comm.size, topology.node_of
    widest = int(np.unique(nodes, return_counts=True)[1].max())  # ranks of a node
    ways = {max(1, size // 2): None, 1: None, min(widest, size - 1): None}
    return max(ways, key=lambda way: int((nodes != np.roll(nodes, -way)).sum()))


def _hosts(saved: _Saved, topology: Topology) -> list[tuple[int, int]]:
    """Find which rank has the block of each rank that saved: its own (0), or the copy (1); local.

    Raises a `RanksLostError` if there is none.
    """
    size = saved.processes.size
    here = topology.comm.Get_group()
    ranks = MPI.Group.Translate_ranks(saved.processes, None, here)
    here.Free()
    hosts = []
    for rank, owner in enumerate(ranks):
        buddy = ranks[(rank + saved.distance) % size]
        if owner == buddy == MPI.UNDEFINED:
            raise RanksLostError(
                f"rank {rank} of the {size} that saved step {saved.step} has died, and rank "
                f"{(rank + saved.distance) % size}, which kept its copies; resume from a file"
            )
        hosts.append((buddy, 1) if owner == MPI.UNDEFINED else (owner, 0))
    return hosts


def _restore(
    pairs: Sequence[tuple[_Blocks, PencilArray]],
    hosts: Sequence[tuple[int, int]],
    topology: Topology,
) -> None:
    """Fill fields: first with blocks of ranks that live, then with copies. *Collective*."""
    buffers, exchanges, prepared = Buffers(), [], []
    moves = [(kept, u, number) for kept, u in pairs for number in range(2)]
    for kept, u, number in moves:
        spec, axes = _messages(kept, u, number, hosts, topology.rank), u.extent.layout.ndim
        exchanges.append(
            Exchange(topology, [spec], axes=axes, method=Messages.name, buffers=buffers)
        )
    try:
        with agreed(topology.comm, "BuddyCopies.resume"):  # one rank may have no memory
            for exchange, (kept, u, number) in zip(exchanges, moves, strict=True):
                prepared.append(exchange.prepare([kept.blocks[number]], [u.local]))
            for each in prepared:
                each.reserve()
        for each in prepared:
            each.run()
    finally:
        for exchange in exchanges:
            exchange.free()
    for _, u in pairs:
        u.mark_written()


def _messages(
    kept: _Blocks, u: PencilArray, number: int, hosts: Sequence[tuple[int, int]], rank: int
) -> MessageSpec:
    """List what a rank sends of its block of this number, and receives of those of others."""

    def block(box: Box, own: Box, other: Box, peer: int) -> MessageBlock:
        starts = tuple(part.start for part in box.slices(other.start))
        return MessageBlock(peer, box.slices(own.start), starts)

    old, new = kept.layout, u.extent.layout
    source = next((owner for owner, host in enumerate(hosts) if host == (rank, number)), None)
    sends, recvs = redistribution(old, new, source, rank)
    sent = []
    if source is not None:
        sent = [block(m.box, old.box(source), new.box(m.dest), m.dest) for m in sends]
    received = [
        block(m.box, u.extent.box, old.box(m.source), hosts[m.source][0])
        for m in recvs
        if hosts[m.source][1] == number
    ]
    return MessageSpec(sent, received, kept.spec.components, kept.spec.dtype)
