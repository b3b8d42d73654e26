"""partition: fields from global data, as views of replicated arrays or streamed by one rank.

A rank that has the data tells the others their shape and type, and streams them: `scatter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
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
from pencils.comm.agree import VALUES, PreparedAgreement
from pencils.comm.memory import LINE, address
from pencils.comm.pool import empty_bytes
from pencils.comm.stream import SlabRoom, copy_now
from pencils.distribute.slabs import RootSlabs
from pencils.errors import ArgumentError
from pencils.layout import Box
from pencils.layout import scatter as scatter_messages
from pencils.layout.integers import as_dims, as_rank
from pencils.pencil import Pencil

T = TypeVar("T")

_TEXT = np.dtype(f"S{VALUES}")
_TOO_LONG = b"?"
_LAST = "last"  # names the plan of the last call
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
    if root is not None:
        return scatter(pencil, data, root, dims, halo)
    check_type("pencil", pencil, Pencil)
    source = readable(data)
    place = place_data(pencil, source, dims)
    own = pencil.extent(place.singletons).box
    box = Box((0,) * len(place.components) + own.start, place.components + own.stop)
    block = place.expand(read_part(source, place, box), pencil.ndim)
    widths = as_halo(halo, pencil.ndim, place.singletons)
    if not copy and not any(map(any, widths)):
        return PencilArray.from_block(pencil, block, place.singletons)
    field = _new_field(pencil, dtype_of(source), place, widths)
    field.local[...] = block
    return field


def scatter(
    pencil: Pencil, data: Any, root: Any, dims: Sequence[int] | int | None, halo: HaloLike
) -> PencilArray:
    """Distribute the data of rank `root`: see `partition`. *Collective*.

    What follows from arguments that are often the same is kept with the pencil. In the first
    agreement root tells what its data are, and every other rank for which data it has memory, which
    are those of the last call. Only if they differ, the ranks allocate and agree again.
    """
    topology = topology_among(pencil)
    keeps = type(root) is int and type(halo) is int and dims is None and not topology.freed
    key = ("partition", root, halo) if keeps and isinstance(pencil, Pencil) else None
    kept = pencil.kept.get(key) if key else None
    first, second = kept or [PreparedAgreement(topology.comm, "partition") for _ in range(2)]
    header, axes, sender = None, None, root
    ready: tuple[_Scatter, PencilArray, Callable[[], Exception | None]] | None = None
    with first.block() as agree:
        if kept is None:
            check_type("pencil", pencil, Pencil)
            sender = as_rank("root", root, topology.comm.size)
            axes = None if dims is None else as_dims("dims", dims, pencil.ndim)
            facts = {"root": sender, "dims": axes, "halo": as_halo(halo, pencil.ndim)}
            agree(**facts, pencil=pencil)
        if topology.rank == sender:
            source = readable(data)
            header = _Header.of(pencil, source, axes)
            plan = _plan_of(key, pencil, header.text(), header, sender, halo)
            ready = plan, *plan.prepare(source)
        elif key and (last := pencil.kept.get((*key, _LAST))) is not None:
            with suppress(MemoryError):
                ready = last, *last.prepare(None)
        agree.carry(np.array([ready[0].told if ready else b""], _TEXT))
    if kept is None and key:
        first = PreparedAgreement(topology.comm, "partition", **facts, pencil=pencil)
        pencil.kept.add(key, (first, second))
    texts = [] if agree.carried is None else agree.carried[:, 0].tolist()
    told = texts[sender] if texts else _TOO_LONG
    if not texts or texts.count(told) < len(texts):
        if told == _TOO_LONG:
            header = topology.comm.bcast(header, root=sender)
        with second.block():
            if topology.rank != sender:
                ready = None  # its memory, where other data were expected
                header = header or _header(told, pencil.ndim, axes)
                plan = _plan_of(key, pencil, told, header, sender, halo)
                ready = plan, *plan.prepare(None)
    assert ready is not None
    plan, field, move = ready
    fault = move()
    if plan.lazy:
        with second.block():
            if fault is not None:
                raise fault
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


def array_of(source: ArrayLike) -> Array | None:
    """Return data that are in memory, or mapped, as a plain array; else None."""
    if isinstance(source, np.ndarray) and not is_masked_array(source):
        return np.asarray(source)
    return None


def readable(data: Any) -> ArrayLike:
    """Check that data can be read by boxes; lists become arrays."""
    if isinstance(data, PencilArray):
        raise TypeError(
            "data are distributed already; use transpose() to move them to another pencil"
        )
    if data is None:
        raise TypeError(
            "data is None; every rank passes the global data, or root=r names the one that does"
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
            f"data announce {announced[1]} of shape {announced[0]} for the part "
            f"{key}, but reading gives {part.dtype} of shape {part.shape}; switch "
            "conversion on reading off (as of scaled netCDF variables), or pass a NumPy array"
        )
    return part


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


# ---- the plan for data of one kind ----


class _Scatter:
    """Data that are streamed from root; follows from what all ranks know.

    `told` is the text of root, and `lazy` whether root may fail to read the data.
    """

    def __init__(
        self, pencil: Pencil, told: bytes, header: _Header, root: int, halo: HaloLike
    ) -> None:
        place, itemsize = header.place, header.dtype.itemsize
        self.told, self.lazy = told, header.lazy
        self._pencil, self._header = pencil, header
        self._widths = as_halo(halo, pencil.ndim, place.singletons)
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
        self._start = (header.start + slabs.start(pencil.rank)) % LINE if alike else 0

    def prepare(
        self, source: ArrayLike | None
    ) -> tuple[PencilArray, Callable[[], Exception | None]]:
        """Allocate the field, and what moving takes. The returned function is *Collective*.

        It returns the error if reading failed, after which the field has meaningless values.
        """
        place = self._header.place
        u = _new_field(self._pencil, self._header.dtype, place, self._widths, self._start)
        if source is None:
            return u, self._slabs.mover(u.local, None, to_root=False)
        array = array_of(source)
        if array is None:
            return u, self._read_and_send(u.local, source)
        whole = place.expand(array, self._pencil.ndim)
        return u, self._slabs.mover(u.local, whole, to_root=False)

    def _read_and_send(self, local: Array, source: ArrayLike) -> Callable[[], Exception | None]:
        """Read one piece after the other, because each takes memory."""
        slabs, header = self._slabs, self._header
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


def _plan_of(
    key: tuple[object, ...] | None, pencil: Pencil, told: bytes, *arguments: Any
) -> _Scatter:
    """Find the plan for data of which root has told the text, or make it."""
    if key is None or told == _TOO_LONG:
        return _Scatter(pencil, told, *arguments)
    plan: _Scatter = pencil.kept.get((*key, told)) or _Scatter(pencil, told, *arguments)
    pencil.kept.add((*key, told), plan)
    pencil.kept.add((*key, _LAST), plan)
    return plan


def _new_field(
    pencil: Pencil, dtype: np.dtype[Any], place: Placement, widths: Widths, start: int = 0
) -> PencilArray:
    """Make the field for placed data: halo points zero, own points to be filled.

    Without a halo its block begins `start` bytes after the beginning of a cache line.
    """
    zero = any(map(any, widths))
    if not start or zero:
        kind = dtype, place.components, place.singletons, widths
        return PencilArray.allocated(pencil, *kind, zero=zero)
    frame = frame_of(pencil, place.singletons)
    shape = frame.shape_of(place.components, dtype)
    memory = empty_bytes(start + dtype.itemsize * prod(shape))[start:]
    return PencilArray.in_frame(pencil, frame, arrange(memory, pencil, dtype, shape))
