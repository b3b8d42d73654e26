"""partition: fields from global data, as views of replicated arrays or streamed by one rank.

A rank that has the data tells the others what they are, and streams them: `scatter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, HaloLike, as_halo
from pencils.array.operands import check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import VALUES, PreparedAgreement
from pencils.comm.memory import LINE, address
from pencils.comm.stream import SlabRoom, SlabStream, copy_now
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
from pencils.distribute.slabs import Slabs
from pencils.layout import Box
from pencils.layout import scatter as scatter_messages
from pencils.layout.integers import as_dims, as_rank
from pencils.pencil import Pencil, keep


def partition(
    pencil: Pencil,
    data: ArrayLike | Sequence[Any] | None,
    root: int | None = None,
    *,
    dims: Sequence[int] | int | None = None,
    copy: bool = False,
    halo: HaloLike = 0,
) -> PencilArray:
    """Distribute global data over the processes of a pencil.

    With ``root=None`` every rank passes the same global data and gets a field that *views* its
    part of it: writing to the field writes to the data. Nothing is communicated. With ``root=r``
    rank r passes the data, and sends each block to its owner (*Collective*); what the other ranks
    pass is ignored, and may be None.

    Parameters
    ----------
    pencil : Pencil
        The decomposition of the result.
    data : array_like or None
        Global data with one axis per dimension, and component axes before them. Axes of extent 1
        become singleton dimensions, unless the pencil has extent 1 there, too. Any object with
        ``shape`` and ``__getitem__`` is accepted (``numpy.memmap``, HDF5, netCDF, zarr); only the
        parts that are needed are read.
    root : int, optional
        The rank whose data are distributed, the same on every rank.
    dims : int or sequence of int, optional
        For data with fewer axes: the dimension on which each of its last axes lies; the field is a
        singleton along the others.
    copy : bool, optional
        Whether to copy even where a view would do.
    halo : int, sequence of int, or sequence of (int, int), optional
        Halo widths of the result, which is then a copy; halo points are left at zero. Widths along
        singletons are ignored.

    Returns
    -------
    PencilArray
        The distributed field.

    Raises
    ------
    ArgumentError, TypeError
        If the data do not fit the pencil; with `root`, on every rank.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> pen = pencils.Pencil((65, 17, 21))
    >>> u = pencils.partition(pen, np.ones((65, 21)), dims=(0, 2))
    >>> u.shape
    (65, 1, 21)
    """
    if root is None:
        check_type("pencil", pencil, Pencil)
        return _view(pencil, data, dims, halo, copy=copy)
    return scatter(pencil, data, root, dims, halo)


def _view(
    pencil: Pencil, data: Any, dims: Sequence[int] | int | None, halo: HaloLike, *, copy: bool
) -> PencilArray:
    source = readable(data)
    place = place_data(pencil, source, dims)
    own = pencil.extent(place.singletons).box
    box = Box((0,) * len(place.components) + own.start, place.components + own.stop)
    block = place.expand(read_part(source, place, box), pencil.ndim)
    widths = as_halo(halo, pencil.ndim, place.singletons)
    if not copy and not any(map(any, widths)):
        return PencilArray.from_block(pencil, block, place.singletons)
    field = new_field(pencil, dtype_of(source), place, widths)
    field.local[...] = block
    return field


_TEXT = np.dtype(f"S{VALUES}")
_TOO_LONG = b"?"
_LAST = "last"  # names the plan of the last call
# Blocks of at least this many bytes that are sent without packing begin at the byte of a cache line
# at which they do on root: between processes, the system copies them a third faster.
ALIKE = 2**20


def scatter(
    pencil: Pencil, data: Any, root: Any, dims: Sequence[int] | int | None, halo: HaloLike
) -> PencilArray:
    """Distribute the data of rank `root`: see `partition`. *Collective*.

    What follows from arguments that are often the same is kept with the pencil. In the first
    meeting root tells what its data are, and every other rank for which data it has memory, which
    are those of the last call. Only if they differ, the ranks allocate and meet again.
    """
    topology = topology_among(pencil)
    keeps = type(root) is int and type(halo) is int and dims is None and not topology.freed
    key = ("partition", root, halo) if keeps and isinstance(pencil, Pencil) else None
    kept = pencil.kept.get(key) if key else None
    first, second = kept or [PreparedAgreement(topology.comm, "partition") for _ in range(2)]
    header, ready, axes, sender = None, None, None, root
    with first.block() as agree:
        if kept is None:
            check_type("pencil", pencil, Pencil)
            sender = as_rank("root", root, topology.comm.size)
            axes = None if dims is None else as_dims("dims", dims, pencil.ndim)
            facts = {"root": sender, "dims": axes, "halo": as_halo(halo, pencil.ndim)}
            agree(**facts, pencil=pencil)
        call = _Call(pencil, sender, halo, key)
        if topology.rank == sender:
            source = readable(data)
            header = _Header.of(pencil, source, axes)
            ready = call.ready(header.text(), header, source)
        else:
            ready = call.ready_again()
        _write(first, ready)
    if kept is None and key:
        first_again = PreparedAgreement(topology.comm, "partition", **facts, pencil=pencil)
        keep(pencil, key, (first_again, second))
    told, all_ready = _read(first, sender)
    if not all_ready:
        if told == _TOO_LONG:
            header = topology.comm.bcast(header, root=sender)
        with second.block():
            if topology.rank != sender:
                ready = None  # its memory, where other data were expected
                header = header or _header(told, pencil.ndim, axes)
                ready = call.ready(told, header)
    assert ready is not None
    return ready.moved(second)


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


class _Ready(NamedTuple):
    """What a rank has allocated for data of one kind."""

    told: bytes
    plan: _Scatter
    field: PencilArray
    move: Callable[[], Exception | None]  # *Collective*

    def moved(self, row: PreparedAgreement) -> PencilArray:
        """Move the data. *Collective*."""
        fault = self.move()
        if self.plan.lazy:
            with row.block():
                if fault is not None:
                    raise fault
        return self.field


class _Call(NamedTuple):
    """Arguments that all ranks have, and the key of what is kept for them, if any is."""

    pencil: Pencil
    root: int
    halo: HaloLike
    key: tuple[object, ...] | None

    def ready(self, told: bytes, header: _Header, source: ArrayLike | None = None) -> _Ready:
        """Allocate for what root has told."""
        kept = self.pencil.kept
        key = (*self.key, told) if self.key and told != _TOO_LONG else None
        plan = kept.get(key) if key else None
        plan = plan or _Scatter(self.pencil, header, self.root, self.halo)
        if self.key and key:
            keep(self.pencil, key, plan)
            keep(self.pencil, (*self.key, _LAST), (told, plan))
        return _Ready(told, plan, *plan.prepare(source))

    def ready_again(self) -> _Ready | None:
        """Allocate for data like those of the last call, if there is memory."""
        last = self.pencil.kept.get((*self.key, _LAST)) if self.key else None
        if last is not None:
            told, plan = last
            with suppress(MemoryError):
                return _Ready(told, plan, *plan.prepare(None))
        return None


def _write(row: PreparedAgreement, ready: _Ready | None) -> None:
    """Tell the other ranks in the next meeting for which data this rank is ready."""
    if row.gathers:
        mine, _ = row.values(_TEXT)
        mine[0] = b"" if ready is None else ready.told


def _read(row: PreparedAgreement, root: int) -> tuple[bytes, bool]:
    """Return what root has told in the last meeting, and whether all ranks are ready for it."""
    if not row.gathers:
        return _TOO_LONG, False
    mine, rows = row.values(_TEXT)
    if row.size == 1:  # a single rank meets nobody
        return mine[0], True
    texts = rows[:, 0].tolist()
    return texts[root], texts.count(texts[root]) == len(texts)


class _Scatter:
    """Data of one kind that are streamed from root; follows from what all ranks know.

    Attributes
    ----------
    lazy : bool
        Whether root may fail to read them.
    """

    def __init__(self, pencil: Pencil, header: _Header, root: int, halo: HaloLike) -> None:
        place = header.place
        self.lazy = header.lazy
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
        self._room: tuple[int, int] | None = None

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
        if self._room is None:  # fields of one kind lie in memory alike
            self._room = self._slabs.room(local, [self._pencil.rank], self._box.start)
        room = SlabRoom.of(*self._room)

        def receive() -> None:
            stream = self._stream(room)
            for root, key in self._steps:
                stream.recv(root, local[key], local.nbytes)
            stream.finish()

        return receive

    def _send(self, local: Array, data: Array) -> Callable[[], None]:
        if self._room is None or not self._header.contiguous:
            self._room = self._slabs.room(data, self._others)
        room = SlabRoom.of(*self._room)

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
        room = SlabRoom(*slabs.room(None, self._others))
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

    def _stream(self, room: SlabRoom | None) -> SlabStream:
        through_slots = self._slabs.through_slots
        return SlabStream(self._pencil.topology, self._root, room, through_slots=through_slots)
