"""Nonblocking point-to-point messages between the ranks that have something to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mpi4py import MPI

from pencils.comm.methods.method import Array, Bytes, Call, Flow, Method, Packing, Plan, byte_chunks
from pencils.comm.pack import copy
from pencils.comm.shared import round_up

TAG = 1


class Messages(Method):
    """One message for each piece.

    Contiguous pieces travel straight from the source and into the target; others are packed, and
    unpacked while later ones are still on their way.
    """

    name = "messages"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.comm = plan.topology.comm

    def bind(self, call: Call) -> Flow:
        """Slice the arrays."""
        return _MessagesFlow(self, call)


class _Parcel(NamedTuple):
    """A piece on its way: `view` of the array, and the contiguous `wire` MPI sees."""

    peer: int
    view: Array
    wire: Array
    chunks: list[Bytes]

    @property
    def packed(self) -> bool:
        return self.wire is not self.view


class _Parcels:
    """All pieces of one direction; what is not contiguous has its place in a buffer."""

    def __init__(self, packing: Packing, arrays: list[Array], *, direct: bool) -> None:
        self._places: list[tuple[Array, int, int | None]] = []  # view, piece number, place
        self.nbytes = 0
        for array in arrays:
            for number, view in enumerate(packing.views(array)):
                place = None
                if not (direct and view.flags.c_contiguous):
                    place = self.nbytes
                    self.nbytes += round_up(packing.nbytes[number])
                self._places.append((view, number, place))
        self._packing = packing
        self._made: tuple[Bytes | None, list[_Parcel]] = None, []

    def within(self, buffer: Bytes) -> list[_Parcel]:
        """Lay the pieces out in a buffer; found again while the same one is used."""
        if self._made[0] is not buffer:
            parcels = []
            for view, number, place in self._places:
                peer = self._packing.peers[number]
                wire = view if place is None else self._packing.window(buffer, number, place)
                parcels.append(_Parcel(peer, view, wire, byte_chunks(wire)))
            self._made = buffer, parcels
        return self._made[1]


class _MessagesFlow(Flow):
    def __init__(self, method: Messages, call: Call) -> None:
        plan = method.plan
        self._comm = method.comm
        self._buffers = plan.buffers
        self._away = _Parcels(plan.away, list(call.sources), direct=not call.aliased)
        self._home = _Parcels(plan.home, list(call.targets), direct=not call.aliased)

    def start(self) -> Callable[[], None]:
        """Post all receives, pack and post all sends."""
        comm, buffers = self._comm, self._buffers
        inbox = buffers.take(self._home.nbytes)
        outbox = buffers.take(self._away.nbytes)
        arriving: list[tuple[_Parcel, list[MPI.Request]]] = []
        for parcel in self._home.within(inbox):
            requests = [comm.Irecv(chunk, parcel.peer, TAG) for chunk in parcel.chunks]
            arriving.append((parcel, requests))
        leaving: list[MPI.Request] = []
        for parcel in self._away.within(outbox):
            if parcel.packed:
                copy(parcel.wire, parcel.view)
            leaving += [comm.Isend(chunk, parcel.peer, TAG) for chunk in parcel.chunks]

        def complete() -> None:
            for parcel, requests in arriving:
                MPI.Request.Waitall(requests)
                if parcel.packed:
                    copy(parcel.view, parcel.wire)
            MPI.Request.Waitall(leaving)
            buffers.give(outbox)
            buffers.give(inbox)

        return complete
