"""Copies of fields in the memory of other ranks, from which those that are left go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError, PencilMismatchError, RanksLostError
from pencils.io.options import read_fields
from pencils.layout import Box, Layout, redistribution
from pencils.layout.integers import as_int

TAG = 6


@dataclass(frozen=True)
class Copy:
    """What `BuddyCopies.resume` has restored, besides the fields.

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
    """Blocks of one field: of this rank, and of the one whose copies it keeps."""

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
    """The latest state of a run in memory, twice: on the ranks that own it, and on other ones.

    It is made before `recover` calls the program, and keeps what `save` has copied after processes
    have died. `resume` fills fields on fewer processes, and on any pencils. It fails if a process
    has died together with the one that kept its copies. If there are several nodes, that is on
    another one where possible.

    Examples
    --------
    >>> import pencils
    >>> copies = pencils.BuddyCopies()
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
        return sum(
            block.nbytes
            for saved in self._saved
            for each in saved.fields.values()
            for block in each.blocks
        )

    def save(self, step: int, fields: Mapping[str, PencilArray], **attrs: Any) -> None:
        """Copy fields to this rank and to another one, in place of those before. *Collective*.

        If a process dies meanwhile, those before are kept.

        Parameters
        ----------
        step : int
            Number of the step, larger than before.
        fields : mapping of str to PencilArray
            Fields over the same processes. Ghosts and boundary points are not copied.
        **attrs : optional
            What `resume` returns, such as the time; the same on every rank.

        Raises
        ------
        ArgumentError, PencilMismatchError, RankDisagreementError, TypeError
            On every rank, if an argument is not allowed or differs between ranks.
        """
        topology = _topology(fields)
        with agreed(topology.comm, "BuddyCopies.save") as agree:
            names = read_fields(fields)
            _check_fields(fields, topology)
            number = as_int("step", step, least=0)
            if number <= self._complete:
                raise ArgumentError(
                    f"step={step} must be larger than {self._complete}, the step saved last"
                )
            own = {name: np.array(fields[name].local, order="C") for name in names}
            specs = {name: FieldSpec.of(fields[name]) for name in names}
            agree(step=number, fields=str(specs), attrs=sorted(attrs))
        distance = _distance(topology)
        layouts = {name: fields[name].extent.layout for name in names}
        kept = _exchange(topology, distance, [(layouts[name], own[name]) for name in names])
        blocks = {
            name: _Blocks(layouts[name], specs[name], (own[name], copy))
            for name, copy in zip(names, kept, strict=True)
        }
        processes = topology.comm.Get_group()
        self._saved.append(_Saved(number, attrs, blocks, processes, distance))
        topology.comm.Barrier()  # a rank that passes it knows that all have their copies
        self._complete = number
        self._drop(number)

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
            names = read_fields(fields)
            _check_fields(fields, topology)
            agree(fields=names)
        # A rank that has passed the barrier in `save` vouches for all.
        step = topology.most(self._complete)
        if step < 0:
            return None
        with agreed(topology.comm, "BuddyCopies.resume"):
            saved = self._find(step)
            for name in names:
                _check_fit(name, fields[name], saved)
            hosts = _hosts(saved, topology)
        for name in names:
            _restore(saved.fields[name], fields[name], hosts, topology)
        self._complete = step
        self._drop(step)
        return Copy(step, dict(saved.attrs))

    def _find(self, step: int) -> _Saved:
        for saved in self._saved:
            if saved.step == step:
                return saved
        raise ArgumentError(
            f"this rank has no copies of step {step}: it took no part in save(); resume on the "
            "communicator that recover() passes to the program"
        )

    def _drop(self, step: int) -> None:
        """Keep the copies of one step only."""
        for saved in self._saved:
            if saved.step != step:
                saved.processes.Free()
        self._saved = [saved for saved in self._saved if saved.step == step]


def _topology(fields: object) -> Topology:
    values = list(fields.values()) if isinstance(fields, Mapping) else []
    return topology_among(values)


def _check_fields(fields: Mapping[str, PencilArray], topology: Topology) -> None:
    for name, u in fields.items():
        check_field(name, u)
        if u.pencil.size != topology.comm.size or u.pencil.rank != topology.rank:
            raise PencilMismatchError(
                f"{name} is on other processes than the other fields; save it in other BuddyCopies"
            )


def _check_fit(name: str, u: PencilArray, saved: _Saved) -> None:
    """Raise if there are no copies for a field."""
    kept = saved.fields.get(name)
    if kept is None:
        raise ArgumentError(f"{name!r} was not saved; there is {', '.join(saved.fields)}")
    spec, shape = FieldSpec.of(u), u.extent.layout.shape
    if (spec, shape) != (kept.spec, kept.layout.shape):
        raise PencilMismatchError(
            f"{name} has shape {shape}, {spec.dtype} and components {spec.components}; saved were "
            f"{kept.layout.shape}, {kept.spec.dtype} and {kept.spec.components}; make them equal"
        )


def _distance(topology: Topology) -> int:
    """Ranks between the owner of a block and its copy: half of all, or to another node."""
    size, nodes = topology.comm.size, topology.node_of
    ways = {max(1, size // 2): None, 1: None, min(len(topology.on_node), size - 1): None}
    return max(ways, key=lambda way: int((nodes != np.roll(nodes, -way)).sum()))


def _exchange(
    topology: Topology, distance: int, blocks: Sequence[tuple[Layout, Array]]
) -> list[Array]:
    """Send all blocks to the rank at a distance, and receive those of another one. *Collective*."""
    comm, rank, size = topology.comm, topology.rank, topology.comm.size
    there, origin = (rank + distance) % size, (rank - distance) % size
    requests, kept = [], []
    for layout, block in blocks:
        lead = block.shape[: block.ndim - layout.ndim]
        copy = np.empty((*lead, *layout.box(origin).shape), block.dtype)
        kept.append(copy)
        requests += [comm.Irecv([part, MPI.BYTE], origin, TAG) for part in byte_chunks(copy)]
    for _, block in blocks:
        requests += [comm.Isend([part, MPI.BYTE], there, TAG) for part in byte_chunks(block)]
    wait_all(requests)
    return kept


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
    kept: _Blocks, u: PencilArray, hosts: Sequence[tuple[int, int]], topology: Topology
) -> None:
    """Fill a field: first with blocks of ranks that live, then with copies. *Collective*."""
    target, mine, lead = u.extent.layout, u.extent.box, kept.spec.components
    for number, block in enumerate(kept.blocks):
        held = [r for r, host in enumerate(hosts) if host == (topology.rank, number)]
        source = held[0] if held else None
        sends, recvs = redistribution(kept.layout, target, source, topology.rank)
        home = None if source is None else kept.layout.box(source)
        spec = MessageSpec(
            [_block(m.box, home, target.box(m.dest), m.dest) for m in sends if home is not None],
            [
                _block(m.box, mine, kept.layout.box(m.source), hosts[m.source][0])
                for m in recvs
                if hosts[m.source][1] == number
            ],
            lead,
            kept.spec.dtype,
        )
        exchange = Exchange(topology, [spec], axes=target.ndim, method=Messages.name)
        exchange.prepare([block], [u.local]).run()
        exchange.free()
    u.mark_written()


def _block(box: Box, own: Box, other: Box, peer: int) -> MessageBlock:
    starts = tuple(part.start for part in box.slices(other.start))
    return MessageBlock(peer, box.slices(own.start), starts)
