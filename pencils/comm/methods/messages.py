"""Nonblocking point-to-point messages between the ranks that have something to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mpi4py import MPI

from pencils.comm.methods import method as limits
from pencils.comm.methods.method import (
    Array,
    Arrival,
    Bytes,
    Call,
    Flow,
    Method,
    Packing,
    Plan,
    byte_chunks,
    nothing,
)
from pencils.comm.pack import Copies
from pencils.comm.shared import round_up

TAG = 1


class Messages(Method):
    """One message for each rank there is something for, and others for large pieces.

    Pieces travel together, packed into one buffer. One that is alone, or large, travels straight
    from the source and into the target where it is contiguous.
    """

    name = "messages"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.comm = plan.topology.comm

    def bind(self, call: Call) -> Flow:
        """Slice the arrays."""
        return _MessagesFlow(self, call)


class _Parcel(NamedTuple):
    """Pieces that travel together, each with its shape and place in the buffer."""

    peer: int
    views: list[Array]
    places: list[int]
    nbytes: int
    direct: bool


class _Wire(NamedTuple):
    """A parcel as MPI sees it, and what packs it before it leaves or unpacks what has arrived."""

    peer: int
    chunks: list[Bytes]
    copies: Callable[[], None]


class _Parcels:
    """All parcels of one direction; what does not travel straight has its place in a buffer."""

    def __init__(self, pairs: Sequence[tuple[Packing, Array]], *, direct: bool) -> None:
        self._parcels: list[_Parcel] = []
        self.nbytes = 0
        for peer, views in _together(pairs):
            straight = direct and len(views) == 1 and views[0].flags.c_contiguous
            self._add(peer, views, direct=straight)
        self._made: tuple[Bytes | None, list[_Wire]] = None, []

    def _add(self, peer: int, views: list[Array], *, direct: bool) -> None:
        places, end = [], 0
        for view in views:
            places.append(round_up(end))
            end = places[-1] + view.nbytes
        start, self.nbytes = self.nbytes, self.nbytes + (0 if direct else round_up(end))
        places = [start + place for place in places]
        self._parcels.append(_Parcel(peer, views, places, end, direct))

    def within(self, buffer: Bytes, arrive: Arrival | None) -> list[_Wire]:
        """Lay the parcels out in a buffer; found again while the same one is used.

        With `arrive` they come out of it and are unpacked by that; without, they go into it.
        """
        if self._made[0] is not buffer:
            self._made = buffer, [_wire(parcel, buffer, arrive) for parcel in self._parcels]
        return self._made[1]


def _wire(parcel: _Parcel, buffer: Bytes, arrive: Arrival | None) -> _Wire:
    if parcel.direct:
        return _Wire(parcel.peer, byte_chunks(parcel.views[0]), nothing)
    start = parcel.places[0]
    windows = [
        buffer[place : place + view.nbytes].view(view.dtype).reshape(view.shape)
        for place, view in zip(parcel.places, parcel.views, strict=True)
    ]
    if arrive is None:
        copies: Callable[[], None] = Copies(list(zip(windows, parcel.views, strict=True)))
    else:
        copies = arrive(list(zip(parcel.views, windows, strict=True)))
    return _Wire(parcel.peer, byte_chunks(buffer[start : start + parcel.nbytes]), copies)


def _together(pairs: Sequence[tuple[Packing, Array]]) -> list[tuple[int, list[Array]]]:
    """Parcel what goes to, or comes from, each rank; both sides decide alike, by sizes."""
    parcels: list[tuple[int, list[Array]]] = []
    small: dict[int, list[Array]] = {}
    for packing, array in pairs:
        for peer, view in zip(packing.peers, packing.views(array), strict=True):
            if view.nbytes >= limits.ALONE:
                parcels.append((peer, [view]))
                continue
            if peer not in small:
                small[peer] = []
                parcels.append((peer, small[peer]))
            small[peer].append(view)
    return parcels


class _MessagesFlow(Flow):
    def __init__(self, method: Messages, call: Call) -> None:
        plan = method.plan
        self._comm = method.comm
        self._buffers = plan.buffers
        self._arrive = plan.arrive
        direct = not call.aliased
        self._away = _Parcels(plan.leaving(call.sources), direct=direct)
        straight = direct and plan.arrive is Copies
        self._home = _Parcels(plan.arriving(call.targets), direct=straight)

    def start(self) -> Callable[[], None]:
        """Post all receives, pack and post all sends."""
        comm, buffers = self._comm, self._buffers
        inbox = buffers.take(self._home.nbytes)
        outbox = buffers.take(self._away.nbytes)
        arriving: list[tuple[Callable[[], None], list[MPI.Request]]] = []
        for wire in self._home.within(inbox, self._arrive):
            requests = [comm.Irecv(chunk, wire.peer, TAG) for chunk in wire.chunks]
            arriving.append((wire.copies, requests))
        leaving: list[MPI.Request] = []
        for wire in self._away.within(outbox, None):
            wire.copies()
            leaving += [comm.Isend(chunk, wire.peer, TAG) for chunk in wire.chunks]

        def complete() -> None:
            for unpack, requests in arriving:
                MPI.Request.Waitall(requests)
                unpack()
            MPI.Request.Waitall(leaving)
            buffers.give(outbox)
            buffers.give(inbox)

        return complete
