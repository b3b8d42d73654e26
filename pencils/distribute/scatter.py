"""partition of data that one rank has: root tells what they are, and streams them to the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, HaloLike, as_halo
from pencils.array.operands import check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import Row
from pencils.comm.meeting import VALUES, Meeting
from pencils.comm.memory import LINE, address
from pencils.comm.stream import Room, SlabStream, copy_now
from pencils.distribute.placement import (
    ArrayLike,
    Placement,
    array_of,
    dtype_of,
    new_field,
    place_data,
    read_part,
    readable,
)
from pencils.distribute.slabs import Slabs, keep
from pencils.errors import ArgumentError
from pencils.layout import Box
from pencils.layout import scatter as scatter_messages
from pencils.layout.integers import as_dims, as_rank
from pencils.pencil import Pencil

_TEXT = np.dtype(f"S{VALUES}")
_TOO_LONG = b"?"
# Blocks of at least this many bytes that are sent without packing begin at the byte of a cache line
# at which they do on root: between processes, the system copies them a third faster.
ALIKE = 2**20


def scatter(
    pencil: Pencil, data: Any, root: Any, dims: Sequence[int] | int | None, halo: HaloLike
) -> PencilArray:
    """Distribute the data of rank `root`: see `partition`. *Collective*.

    What follows from arguments that are often the same is kept with the pencil. The ranks agree by
    the same collectives whether they have kept it or not.
    """
    topology = topology_among(pencil)
    keeps = type(root) is int and type(halo) is int and dims is None and not topology.freed
    key = "partition", root, halo
    kept = pencil.kept.get(key) if keeps and isinstance(pencil, Pencil) else None
    row = Row(topology.comm, "partition") if kept is None else kept
    header, source, axes, sender = None, None, None, root
    with row.block() as agree:
        if kept is None:
            check_type("pencil", pencil, Pencil)
            sender = as_rank("root", root, topology.comm.size)
            axes = None if dims is None else as_dims("dims", dims, pencil.ndim)
            facts = {"root": sender, "dims": axes, "halo": as_halo(halo, pencil.ndim)}
            agree(**facts, pencil=pencil)
        if topology.rank == sender:
            source = readable(data)
            header = _Header.of(pencil, source, axes)
        elif data is not None:
            raise ArgumentError(f"data must be None on every rank but root={root}")
        _write(row.meeting, header)
    if kept is None and keeps:
        keep(pencil, key, Row(topology.comm, "partition", **facts, pencil=pencil))
    told = _read(row.meeting, sender)
    if told is None:
        header = topology.comm.bcast(header, root=sender)
        keeps = False
    else:
        header = _header(told, pencil.ndim, axes)
    plan = pencil.kept.get((*key, told)) if keeps else None
    allocation = Row(topology.comm, "partition") if plan is None else plan.row
    with allocation.block():
        plan = plan or _Scatter(pencil, header, sender, halo, allocation)
        u, move = plan.prepare(source)
    if keeps:
        keep(pencil, (*key, told), plan)
    fault = move()
    if plan.lazy:
        with allocation.block():
            if fault is not None:
                raise fault
    return u


class _Header(NamedTuple):
    """What root tells the other ranks about its data."""

    place: Placement
    dtype: np.dtype[Any]
    lazy: bool  # whether reading a part may fail
    contiguous: bool  # whether they are a C-contiguous array with the axes of the field
    start: int = 0  # bytes of a cache line before their first element, if they are contiguous

    @classmethod
    def of(cls, pencil: Pencil, source: ArrayLike, dims: tuple[int, ...] | None) -> _Header:
        """Describe data of this rank, which must fit the pencil."""
        place = place_data(pencil, source, dims)
        array = array_of(source)
        if array is None:
            return cls(place, dtype_of(source), lazy=True, contiguous=False)
        contiguous = place.expand(array, pencil.ndim).flags.c_contiguous
        start = address(array) % LINE if contiguous and array.flags.aligned else 0
        return cls(place, dtype_of(array), lazy=False, contiguous=contiguous, start=start)

    def text(self) -> bytes:
        """Return a short text that tells all but the dimensions, or that there is none."""
        dtype, place = self.dtype, self.place
        if dtype.names is not None or np.dtype(dtype.str) != dtype:
            return _TOO_LONG
        numbers = [",".join(map(str, each)) for each in (place.components, place.singletons)]
        flags = f"{self.lazy:d}{self.contiguous:d}{self.start}"
        text = " ".join((dtype.str, flags, *numbers)).encode()
        return text if len(text) <= VALUES else _TOO_LONG


@lru_cache(maxsize=64)
def _header(text: bytes, ndim: int, dims: tuple[int, ...] | None) -> _Header:
    """Return what a text of root tells."""
    dtype, flags, *numbers = text.decode().split(" ")
    components, singletons = (tuple(map(int, filter(None, each.split(",")))) for each in numbers)
    place = Placement(
        components, tuple(range(ndim)) if dims is None else dims, frozenset(singletons)
    )
    lazy, contiguous = (flag == "1" for flag in flags[:2])
    return _Header(place, np.dtype(dtype), lazy, contiguous, int(flags[2:]))


def _write(meeting: Meeting, header: _Header | None) -> None:
    """Tell the other ranks in the next meeting what the data are; nothing on other ranks."""
    if meeting.gathers:
        mine, _ = meeting.values(_TEXT)
        mine[0] = b"" if header is None else header.text()


def _read(meeting: Meeting, root: int) -> bytes | None:
    """Return what root has told in the last meeting; None if it must tell more."""
    if not meeting.gathers:
        return None
    mine, rows = meeting.values(_TEXT)
    text: bytes = mine[0] if meeting.size == 1 else rows[root, 0]  # a single rank meets nobody
    return None if text == _TOO_LONG else text


class _Scatter:
    """Data of one kind that are streamed from root; follows from what all ranks know.

    Attributes
    ----------
    row : Row
        The agreement that every rank has its memory, or on an error of root afterwards.
    lazy : bool
        Whether root may fail to read them.
    """

    def __init__(
        self, pencil: Pencil, header: _Header, root: int, halo: HaloLike, row: Row
    ) -> None:
        place = header.place
        self.row, self.lazy = row, header.lazy
        self._pencil, self._header, self._root = pencil, header, root
        self._widths = as_halo(halo, pencil.ndim, place.singletons)
        extent = pencil.extent(place.singletons)
        self._slabs = Slabs(
            place.components, extent.layout, header.dtype.itemsize, contiguous=header.contiguous
        )
        self._box = self._slabs.box(pencil.rank)
        alike = self._slabs.in_runs and header.dtype.itemsize * self._box.volume >= ALIKE
        self._start = (header.start + self._slabs.start(pencil.rank)) % LINE if alike else 0
        every = scatter_messages(extent.layout, root)
        self._others = [message.dest for message in every if message.dest != root]
        self._steps = self._slabs.steps(pencil.rank, root, self._others)

    def prepare(
        self, source: ArrayLike | None
    ) -> tuple[PencilArray, Callable[[], Exception | None]]:
        """Allocate the field, and what moving takes. The returned function is *Collective*.

        It returns the error if reading failed, after which the field has meaningless values.
        """
        place = self._header.place
        u = new_field(self._pencil, self._header.dtype, place, self._widths, self._start)
        if source is None:
            return u, self._receive(u.local)
        array = array_of(source)
        if array is None:
            return u, self._read_and_send(u.local, source)
        return u, self._send(u.local, place.expand(array, self._pencil.ndim))

    def _receive(self, local: Array) -> Callable[[], None]:
        room = Room.of(*self._slabs.room(local, [self._pencil.rank], self._box.start))

        def receive() -> None:
            stream = self._stream(room)
            for root, key in self._steps:
                stream.recv(root, local[key], local.nbytes)
            stream.finish()

        return receive

    def _send(self, local: Array, data: Array) -> Callable[[], None]:
        room = Room.of(*self._slabs.room(data, self._others))

        def send() -> None:
            stream = self._stream(room)
            for peer, key in self._steps:
                stream.send(peer, data[key])
            copy_now(local, data[self._box.slices()], local.nbytes)
            stream.finish()

        return send

    def _read_and_send(self, local: Array, source: ArrayLike) -> Callable[[], Exception | None]:
        """Read one piece after the other, because each takes memory."""
        slabs, header = self._slabs, self._header
        room = Room(*slabs.room(None, self._others))
        most = max((slabs.box(rank).volume for rank in (*self._others, self._root)), default=0)
        garbage = np.empty(min(most, slabs.most_at_once), header.dtype)
        faults: list[Exception] = []

        def read(piece: Box) -> Array:
            if not faults:
                try:
                    part = read_part(source, header.place, piece)
                    return header.place.expand(part, self._pencil.ndim)
                except Exception as error:  # noqa: BLE001 - raised on all ranks afterwards
                    faults.append(error)
            return garbage[: piece.volume].reshape(piece.shape)

        def send() -> Exception | None:
            stream = self._stream(room)
            for peer in sorted((*self._others, self._root)):
                for piece in slabs.pieces(peer):
                    part = read(piece)
                    if peer == self._root:
                        copy_now(local[piece.slices(self._box.start)], part, local.nbytes)
                        continue
                    for slab in slabs.within(piece):
                        stream.send(peer, part[slab.slices(piece.start)])
            stream.finish()
            return faults[0] if faults else None

        return send

    def _stream(self, room: Room | None) -> SlabStream:
        through_slots = self._slabs.through_slots
        return SlabStream(self._pencil.topology, self._root, room, through_slots=through_slots)
