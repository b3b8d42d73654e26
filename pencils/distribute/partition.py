"""partition: fields from global data, as views of replicated arrays or streamed by one rank.

A rank that has the data tells the others their shape and type, and streams them: `_Sender`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from pencils.array.allocation import (
    Array,
    HaloLike,
    Widths,
    arrange,
    as_dtype,
    as_halo,
    frame_of,
    is_masked_array,
    plain_array,
)
from pencils.array.operands import check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import VALUES, PreparedAgreement, agreed
from pencils.comm.memory import LINE, address
from pencils.comm.pool import empty_bytes
from pencils.comm.stream import SlabRoom, copy_now
from pencils.distribute.slabs import RootSlabs
from pencils.errors import ArgumentError
from pencils.layout import Box
from pencils.layout import scatter as scatter_messages
from pencils.layout.integers import as_dims, as_rank
from pencils.pencil import Bounded, Pencil

T = TypeVar("T")

_TOO_LONG = b"?"
# Blocks of at least this many bytes that are sent without packing begin at the byte of a cache line
# at which they do on root: between processes, the system copies them a third faster.
ALIKE = 2**20


class ArrayLike(Protocol):
    """What `partition` reads: a NumPy array, a memmap, an HDF5 or netCDF variable, a zarr array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""

    def __getitem__(self, key: Any, /) -> Any:
        """Read a box of slices."""


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

    With ``root=None`` every rank passes the same global data and gets a field that *views* its part
    of it: writing to the field writes to the data. Nothing is communicated. With ``root=r`` rank r
    passes the data, and sends each block to its owner (*Collective*); data of other ranks are
    ignored and may be None.

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
    if root is not None:
        field, move, header = _prepare(pencil, data, root, dims, halo)
        fault = move()
        if header.lazy:
            with agreed(field.pencil.topology.comm, "partition"):
                if fault is not None:
                    raise fault
        return field
    check_type("pencil", pencil, Pencil)
    source = readable(data)
    place = place_data(pencil, source, dims)
    own = pencil.extent(place.singletons).box
    box = Box((0,) * len(place.components) + own.start, place.components + own.stop)
    block = place.expand(read_part(source, place, box), pencil.ndim)
    widths = as_halo(halo, pencil.ndim, place.singletons)
    if not copy and not any(map(any, widths)):
        return PencilArray.from_block(pencil, block, place.singletons)
    field = _maker(pencil, dtype_of(source), place, widths)()
    field.local[...] = block
    return field


# ---- data, as all ranks know them ----


class Placement(NamedTuple):
    """Which axes of global data are components, and the dimensions of the others."""

    components: tuple[int, ...]
    dims: tuple[int, ...]
    singletons: frozenset[int]

    def axes(self, each: tuple[T, ...]) -> tuple[T, ...]:
        """Select what belongs to each axis of the data, of components and dimensions."""
        lead = len(self.components)
        return (*each[:lead], *(each[lead + dim] for dim in self.dims))

    def expand(self, part: Array, ndim: int) -> Array:
        """View data axes as components followed by all dimensions of the pencil."""
        if self.dims == tuple(range(ndim)):
            return part
        lead = len(self.components)
        axes = (*range(lead), *(lead + int(axis) for axis in np.argsort(self.dims)))
        missing = tuple(lead + dim for dim in range(ndim) if dim not in self.dims)
        return np.expand_dims(part.transpose(axes), missing)


def place_data(pencil: Pencil, data: ArrayLike, dims: Sequence[int] | int | None) -> Placement:
    """Find the dimensions of the axes of data, which must fit the pencil."""
    shape = tuple(data.shape)
    axes = tuple(range(pencil.ndim)) if dims is None else as_dims("dims", dims, pencil.ndim)
    lead = len(shape) - len(axes)
    if lead < 0:
        hint = "" if dims is not None else "; name the dimensions of fewer axes with dims="
        hint = hint if shape else "; pencils.full(pencil, value) makes a field of one value"
        raise ArgumentError(
            f"data of shape {shape} have too few axes for dimensions {axes} of {pencil!r}{hint}"
        )
    singletons = set(range(pencil.ndim)) - set(axes)
    for dim, extent in zip(axes, shape[lead:], strict=True):
        if extent == 1 != pencil.shape[dim]:
            singletons.add(dim)
        elif extent != pencil.shape[dim]:
            raise ArgumentError(
                f"data of shape {shape} do not fit {pencil!r}: dimension {dim} must have extent "
                f"{pencil.shape[dim]}, or 1 for a singleton, not {extent}"
            )
    return Placement(shape[:lead], axes, frozenset(singletons))


def readable(data: Any) -> ArrayLike:
    """Check that data can be read by boxes; lists become arrays."""
    if isinstance(data, PencilArray):
        raise TypeError(
            "data are distributed already; use transpose() to move them to another pencil"
        )
    if data is None:
        raise TypeError(
            "data is None; pass the global data on every rank, or on rank r only with root=r"
        )
    by_boxes = all(hasattr(data, name) for name in ("shape", "__getitem__"))
    source: ArrayLike = data if by_boxes else np.asarray(data)
    return source


def dtype_of(source: ArrayLike) -> np.dtype[Any]:
    """Element type of data, which netCDF variables of SciPy do not name."""
    if hasattr(source, "dtype"):
        return as_dtype(source.dtype)
    return as_dtype(np.asarray(source[(slice(0, 0),) * len(source.shape)]).dtype)


def read_part(source: ArrayLike, place: Placement, box: Box) -> Array:
    """Read the part of data inside a box, which must have the announced shape and dtype."""
    key = place.axes(box.slices())
    part = plain_array(source[key or ...])
    announced = place.axes(box.shape), dtype_of(source)
    if (part.shape, part.dtype) != announced:
        raise ArgumentError(
            f"data announce {announced[1]} of shape {announced[0]} for the part {key}, but return "
            f"{part.dtype} of shape {part.shape}. Switch off conversions on reading, such as "
            "scaling of netCDF variables, or pass a NumPy array"
        )
    return part


class _Header(NamedTuple):
    """What root tells the other ranks about its data."""

    place: Placement
    dtype: np.dtype[Any]
    lazy: bool  # whether reading a part may fail
    contiguous: bool  # whether they are a C-contiguous array with the axes of the field
    start: int = 0  # see `_start_of`

    @classmethod
    def of(cls, pencil: Pencil, source: ArrayLike, dims: tuple[int, ...] | None) -> _Header:
        """Describe data of this rank, which must fit the pencil."""
        place = place_data(pencil, source, dims)
        if not isinstance(source, np.ndarray) or is_masked_array(source):  # not in memory
            return cls(place, dtype_of(source), lazy=True, contiguous=False)
        array = np.asarray(source)
        whole = place.expand(array, pencil.ndim)
        kind = place, dtype_of(array), False, whole.flags.c_contiguous
        return cls(*kind, _start_of(whole))

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


# ---- data of one rank ----

# The field, the function that moves the data, and what they are. The function is *Collective*, and
# returns the error if root has failed to read them; the field has meaningless values then.
_Ready = tuple[PencilArray, Callable[[], Exception | None], _Header]


def _prepare(pencil: Any, data: Any, root: Any, dims: Any, halo: Any) -> _Ready:
    """Agree on a call, and prepare it. *Collective*.

    Root tells in the agreement what its data are, and every other rank for which data it has
    memory: for those of the last call. Only if they differ, the ranks allocate and agree again.
    """
    plain = type(pencil) is Pencil and type(root) is type(halo) is int and dims is None
    sender: _Sender | None = pencil.kept["partition"].get((root, halo)) if plain else None
    agreement = None if sender is None else sender.agreement
    ready, error = None, None
    if agreement is None:
        agreement = PreparedAgreement(topology_among(pencil).comm, "partition")
    try:
        if sender is None:
            sender = _Sender.of(pencil, root, dims, halo)
            agreement = sender.agreement
            if plain:
                pencil.kept["partition"].add((root, halo), sender)
        ready = sender.begin(data)
    except Exception as mistake:  # noqa: BLE001 - raised on all ranks
        error = mistake
    agreement.meet(error)
    assert sender is not None
    told = agreement.told(sender.root)
    if told is not None:
        header = sender.header(told, ready)
        if not sender.on_root:
            ready = None  # its memory, where other data were expected
        ready, _ = agreement.attempt(lambda: ready or sender.plan(header).prepare(None))
    assert ready is not None
    return ready


class _Sender:
    """The root of calls with the same arguments, and the plans for its data."""

    def __init__(
        self, pencil: Pencil, root: int, dims: tuple[int, ...] | None, widths: Widths
    ) -> None:
        self.agreement = PreparedAgreement(
            pencil.topology.comm, "partition", root=root, dims=dims, halo=widths, pencil=pencil
        )
        self.on_root = pencil.rank == root
        self.root = root
        self._pencil, self._dims, self._widths = pencil, dims, widths
        self._plans = Bounded()  # by headers
        self._last: _ScatterPlan | None = None
        self._said = b""  # what this rank tells in the agreement

    @classmethod
    def of(cls, pencil: Any, root: Any, dims: Any, halo: Any) -> _Sender:
        """Check the arguments that all ranks have; find what is kept for them, or make it."""
        check_type("pencil", pencil, Pencil)
        axes = None if dims is None else as_dims("dims", dims, pencil.ndim)
        key = as_rank("root", root, pencil.size), axes, as_halo(halo, pencil.ndim)
        found: _Sender | None = pencil.kept["partition"].get(key)
        if found is None:
            found = cls(pencil, *key)
            pencil.kept["partition"].add(key, found)
        return found

    def begin(self, data: Any) -> _Ready | None:
        """Allocate for the data of root, or for those of the last call, and tell which they are."""
        plan, ready = self._last, None
        if self.on_root:
            if plan is None or not plan.fits(data):
                data = readable(data)
                plan = self.plan(_Header.of(self._pencil, data, self._dims))
            ready = plan.prepare(data)
        elif plan is not None:
            try:  # takes less time than `suppress`
                ready = plan.prepare(None)
            except MemoryError:
                plan = None
        said = b"" if plan is None else plan.told
        if said is not self._said:
            self._said = said
            self.agreement.tell(said)
        return ready

    def header(self, told: bytes, ready: _Ready | None) -> _Header:
        """Learn what the data of root are. *Collective* if root has not told enough."""
        if told not in {_TOO_LONG, b""}:
            return _header(told, self._pencil.ndim, self._dims)
        mine = ready[-1] if ready and self.on_root else None
        header: _Header = self._pencil.topology.comm.bcast(mine, root=self.root)
        return header

    def plan(self, header: _Header) -> _ScatterPlan:
        """Find the plan for the data of root, or make it."""
        plan: _ScatterPlan | None = self._plans.get(header)
        if plan is None:
            plan = _ScatterPlan(self._pencil, header, self.root, self._widths)
            self._plans.add(header, plan)
        if plan.told != _TOO_LONG:
            self._last = plan
        return plan


class _ScatterPlan:
    """Data of one kind that are streamed from root; follows from what all ranks know."""

    def __init__(self, pencil: Pencil, header: _Header, root: int, halo: HaloLike) -> None:
        place, itemsize = header.place, header.dtype.itemsize
        self.told = header.text()
        self.header = header
        self._pencil = pencil
        layout = pencil.extent(place.singletons).layout
        self._slabs = slabs = RootSlabs(
            pencil.topology,
            root,
            [message.dest for message in scatter_messages(layout, root)],
            lead=place.components,
            layout=layout,
            itemsize=itemsize,
            contiguous=header.contiguous,
        )
        alike = slabs.in_runs and itemsize * slabs.own.volume >= ALIKE
        start = (header.start + slabs.start(pencil.rank)) % LINE if alike else 0
        widths = as_halo(halo, pencil.ndim, place.singletons)
        self._new_field = _maker(pencil, header.dtype, place, widths, start)
        # Of arrays that are found to be such data without describing them again.
        in_order = place.dims == tuple(range(pencil.ndim)) and not header.lazy
        self._shape = place.components + layout.shape if in_order else None

    def fits(self, data: object) -> bool:
        """Whether the plan is known to be that for these data."""
        return (
            type(data) is np.ndarray
            and data.shape == self._shape
            and data.dtype == self.header.dtype
            and data.flags.c_contiguous == self.header.contiguous
            and (data.nbytes < ALIKE or _start_of(data) == self.header.start)
        )

    def prepare(self, source: ArrayLike | None) -> _Ready:
        """Allocate the field, and what moving takes."""
        header, whole = self.header, None
        u = self._new_field()
        if source is not None:
            if header.lazy:
                return u, self._read_and_send(u.local, source), header
            whole = np.asarray(source)
            if self._shape is None:
                whole = header.place.expand(whole, self._pencil.ndim)
        return u, self._slabs.mover(u.local, whole, to_root=False), header

    def _read_and_send(self, local: Array, source: ArrayLike) -> Callable[[], Exception | None]:
        """Read one piece after the other, because each takes memory."""
        slabs, header = self._slabs, self.header
        ranks = sorted({*slabs.others, slabs.root})
        room = SlabRoom(*slabs.room(None, slabs.others))
        most = max(slabs.box(rank).volume for rank in ranks)
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
            stream = slabs.stream(room)
            for peer in ranks:
                for piece in slabs.pieces(peer):
                    part = read(piece)
                    if peer == slabs.root:
                        copy_now(local[piece.slices(slabs.own.start)], part, local.nbytes)
                        continue
                    for slab in slabs.within(piece):
                        stream.send(peer, part[slab.slices(piece.start)])
            stream.finish()
            return faults[0] if faults else None

        return send


def _start_of(array: Array) -> int:
    """Bytes of a cache line before the first element of an array, if many bytes are contiguous."""
    flags = array.flags
    if array.nbytes < ALIKE or not (flags.c_contiguous and flags.aligned):
        return 0
    return address(array) % LINE


def _maker(
    pencil: Pencil, dtype: np.dtype[Any], place: Placement, widths: Widths, start: int = 0
) -> Callable[[], PencilArray]:
    """Return a function that makes fields for placed data: halo points zero, own points not set.

    Without a halo their blocks begin `start` bytes after the beginning of a cache line.
    """
    kind = pencil, dtype, place.components, place.singletons, widths
    if not start or any(map(any, widths)):
        return PencilArray.maker(*kind)
    frame = frame_of(pencil, place.singletons)
    shape = frame.shape_of(place.components, dtype)
    nbytes = start + dtype.itemsize * prod(shape)

    def make() -> PencilArray:
        block = arrange(empty_bytes(nbytes)[start:], pencil, dtype, shape)
        return PencilArray.in_frame(pencil, frame, block)

    return make
