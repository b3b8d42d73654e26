"""Nonblocking point-to-point messages between the ranks that have something to say."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pencils.comm import limits
from pencils.comm.buffers import Buffers
from pencils.comm.memory import Bytes, byte_chunks, round_up
from pencils.comm.methods.method import (
    Array,
    Arrival,
    Call,
    Flow,
    Method,
    Packing,
    Plan,
    nothing,
)
from pencils.comm.mpi import MPI
from pencils.comm.pack import Copies

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
        self.wires: weakref.WeakSet[_Wires] = weakref.WeakSet()

    def bind(self, call: Call) -> Flow:
        """Slice the arrays."""
        return _MessagesFlow(self, call)

    def free(self) -> None:
        """Free all requests: MPI libraries want that before the communicator goes."""
        for wires in self.wires:
            wires.free()


class _Parcel(NamedTuple):
    """Pieces that travel together, each with its shape and place in the buffer."""

    peer: int
    views: list[Array]
    places: list[int]
    nbytes: int
    in_place: bool


class _Wire(NamedTuple):
    """A parcel as MPI sees it, and what packs it before it leaves or unpacks what has arrived."""

    requests: list[MPI.Prequest]
    copies: Callable[[], None]


class _Wires:
    """Parcels laid out in a buffer, with requests that can be started again and again.

    Small ones make one batch, which costs fewer calls. Each large one is a batch of its own: one
    is packed, or unpacked, while others are on their way.
    """

    def __init__(self, buffer: Bytes, wires: list[_Wire]) -> None:
        self.buffer = buffer
        self.requests = [request for wire in wires for request in wire.requests]
        self.batches = [(self.requests, wires)]
        if buffer.nbytes >= limits.ALONE:
            self.batches = [(wire.requests, [wire]) for wire in wires]
        self.free = weakref.finalize(self, _free, self.requests)

    def start(self) -> None:
        """Start all of them."""
        MPI.Prequest.Startall(self.requests)


class _Parcels:
    """All parcels of one direction; what does not travel straight has its place in a buffer.

    Parameters
    ----------
    pairs : sequence of (Packing, numpy.ndarray)
        What travels of each array.
    method : Messages
        Keeps an eye on the requests.
    init : callable
        Makes a request of a buffer, a rank and a tag.
    prepare : callable
        Makes what packs, or unpacks, of pairs of views and their places in the buffer.
    in_place : bool
        Whether contiguous pieces need no buffer.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[Packing, Array]],
        method: Messages,
        init: Callable[[Bytes, int, int], MPI.Prequest],
        prepare: Arrival,
        *,
        in_place: bool,
    ) -> None:
        self._method = method
        self._init = init
        self._prepare = prepare
        self.parcels: list[_Parcel] = []
        self.nbytes = 0
        for peer, views in _together(pairs):
            alone = in_place and len(views) == 1 and views[0].flags.c_contiguous
            self._add(peer, views, in_place=alone)
        self._made: _Wires | None = None

    def _add(self, peer: int, views: list[Array], *, in_place: bool) -> None:
        places, end = [], 0
        for view in views:
            places.append(round_up(end))
            end = places[-1] + view.nbytes
        start, self.nbytes = self.nbytes, self.nbytes + (0 if in_place else round_up(end))
        places = [start + place for place in places]
        self.parcels.append(_Parcel(peer, views, places, end, in_place))

    def lay_out(self, buffers: Buffers) -> _Wires:
        """Lay the parcels out in a buffer, the same one as before if that is idle."""
        buffer = buffers.take(self.nbytes, None if self._made is None else self._made.buffer)
        if self._made is None or self._made.buffer is not buffer:
            wires = [self._wire(parcel, buffer) for parcel in self.parcels]
            self._made = _Wires(buffer, wires)
            self._method.wires.add(self._made)
        return self._made

    def is_laid_out(self, buffers: Buffers) -> bool:
        """Whether nothing has to be allocated to lay the parcels out."""
        return self._made is not None and buffers.has(self._made.buffer)

    def _wire(self, parcel: _Parcel, buffer: Bytes) -> _Wire:
        memory, copies = parcel.views[0], nothing
        if not parcel.in_place:
            start = parcel.places[0]
            memory = buffer[start : start + parcel.nbytes]
            windows = [
                buffer[place : place + view.nbytes].view(view.dtype).reshape(view.shape)
                for place, view in zip(parcel.places, parcel.views, strict=True)
            ]
            copies = self._prepare(list(zip(parcel.views, windows, strict=True)))
        requests = [self._init(chunk, parcel.peer, TAG) for chunk in byte_chunks(memory)]
        return _Wire(requests, copies)


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


def _pack(pairs: Sequence[tuple[Array, Array]]) -> Callable[[], None]:
    return Copies([(window, view) for view, window in pairs])


def _free(requests: Sequence[MPI.Prequest]) -> None:
    """Free requests that are not under way; local."""
    if not MPI.Is_finalized():
        for request in requests:
            request.Free()


class _MessagesFlow(Flow):
    def __init__(self, method: Messages, call: Call) -> None:
        plan, comm = method.plan, method.comm
        self._buffers = plan.buffers
        in_place = not call.aliased
        self._away = _Parcels(
            plan.leaving(call.sources), method, comm.Send_init, _pack, in_place=in_place
        )
        in_place = in_place and plan.arrive is Copies
        arriving = plan.arriving(call.targets)
        self._home = _Parcels(arriving, method, comm.Recv_init, plan.arrive, in_place=in_place)
        self._idle = not (self._home.parcels or self._away.parcels)
        self.nbytes = max(self._home.nbytes, self._away.nbytes)

    def reserve(self) -> None:
        """Lay out all parcels."""
        directions = self._home, self._away
        if self._idle or all(parcels.is_laid_out(self._buffers) for parcels in directions):
            return
        for wires in [parcels.lay_out(self._buffers) for parcels in directions]:
            self._buffers.give(wires.buffer)

    def start(self) -> Callable[[], None]:
        """Post all receives, pack and post all sends.

        What is under way keeps its buffers, and requests belong to them: none is started again.
        """
        if self._idle:
            return nothing
        home, away = self._home.lay_out(self._buffers), self._away.lay_out(self._buffers)
        home.start()
        for requests, wires in away.batches:
            for wire in wires:
                wire.copies()
            MPI.Prequest.Startall(requests)

        def complete() -> None:
            for requests, wires in home.batches:
                MPI.Request.Waitall(requests)
                for wire in wires:
                    wire.copies()
            MPI.Request.Waitall(away.requests)
            self._buffers.give(away.buffer)
            self._buffers.give(home.buffer)

        return complete
