"""partition: fields from global data, as views of replicated arrays or sent by one rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from pencils.array.allocation import Array, HaloLike, Widths, as_dtype, as_halo
from pencils.array.operands import check_type, plain_array, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.stream import SlabStream, copy_now
from pencils.distribute.slabs import Slabs, after, in_turn
from pencils.errors import ArgumentError
from pencils.layout import Box, scatter
from pencils.layout.integers import as_dims, as_rank
from pencils.pencil import Pencil

T = TypeVar("T")


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


class Placement(NamedTuple):
    """Which axes of global data are components, and the dimensions of the others."""

    components: tuple[int, ...]
    dims: tuple[int, ...]
    singletons: frozenset[int]

    def key(self, box: Box) -> tuple[slice, ...]:
        """Index the data for the part inside a box of components and dimensions."""
        return self._axes(box.slices())

    def shape(self, box: Box) -> tuple[int, ...]:
        """Shape that the data have inside a box of components and dimensions."""
        return self._axes(box.shape)

    def _axes(self, each: tuple[T, ...]) -> tuple[T, ...]:
        """Select what belongs to each axis of the data."""
        lead = len(self.components)
        return (*each[:lead], *(each[lead + dim] for dim in self.dims))

    def expand(self, part: Array, ndim: int) -> Array:
        """View data axes as components followed by all dimensions of the pencil."""
        lead = len(self.components)
        axes = (*range(lead), *(lead + int(axis) for axis in np.argsort(self.dims)))
        missing = tuple(lead + dim for dim in range(ndim) if dim not in self.dims)
        return np.expand_dims(part.transpose(axes), missing)


def partition(
    pencil: Pencil,
    data: ArrayLike | Sequence[Any] | None,
    *,
    root: int | None = None,
    dims: Sequence[int] | int | None = None,
    copy: bool = False,
    halo: HaloLike = 0,
) -> PencilArray:
    """Distribute global data over the processes of a pencil.

    With ``root=None`` every rank passes the same global data and gets a field that *views* its
    part of it: writing to the field writes to the data. Nothing is communicated. With ``root=r``
    rank r passes the data, the others None, and root sends each block to its owner (*Collective*).

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
        The rank that has the data.
    dims : int or sequence of int, optional
        For data with fewer axes: the dimension on which each of its last axes lies; the field is a
        singleton along the others.
    copy : bool, optional
        Whether to copy even where a view would do.
    halo : int, sequence of int, or sequence of (int, int), optional
        Halo widths of the result, which is then a copy; halo points are left at zero.

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
    return _scatter(pencil, data, root, dims, halo)


# The dimensions of data.


def _place(pencil: Pencil, data: ArrayLike, dims: Sequence[int] | int | None) -> Placement:
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
            "data is None; every rank passes the global data, or root=r names the one that does"
        )
    by_boxes = all(hasattr(data, name) for name in ("shape", "__getitem__"))
    source: ArrayLike = data if by_boxes else np.asarray(data)
    return source


def _dtype_of(source: ArrayLike) -> np.dtype[Any]:
    """Element type of data, which netCDF variables of SciPy do not name."""
    if hasattr(source, "dtype"):
        return as_dtype(source.dtype)
    return as_dtype(np.asarray(source[(slice(0, 0),) * len(source.shape)]).dtype)


def _read(source: ArrayLike, place: Placement, box: Box) -> Array:
    """Read the part of data inside a box, which must have the announced shape and dtype."""
    part = plain_array(source[place.key(box) or ...])
    announced = place.shape(box), _dtype_of(source)
    if (part.shape, part.dtype) != announced:
        raise ArgumentError(
            f"data announce {announced[1]} of shape {announced[0]} for the part "
            f"{place.key(box)}, but reading gives {part.dtype} of shape {part.shape}; switch "
            "conversion on reading off (as of scaled netCDF variables), or pass a NumPy array"
        )
    return part


# Replicated data.


def _view(
    pencil: Pencil, data: Any, dims: Sequence[int] | int | None, halo: HaloLike, *, copy: bool
) -> PencilArray:
    source = readable(data)
    place = _place(pencil, source, dims)
    own = pencil.extent(place.singletons).box
    box = Box((0,) * len(place.components) + own.start, place.components + own.stop)
    block = place.expand(_read(source, place, box), pencil.ndim)
    widths = as_halo(halo, pencil.ndim, place.singletons)
    if not copy and not any(map(any, widths)):
        return PencilArray.from_block(pencil, block, place.singletons)
    field = _field(pencil, _dtype_of(source), place, widths)
    field.local[...] = block
    return field


def _field(pencil: Pencil, dtype: np.dtype[Any], place: Placement, widths: Widths) -> PencilArray:
    """Make the field for placed data: halo points zero, own points to be filled."""
    kind = dtype, place.components, place.singletons, widths
    return PencilArray.allocated(pencil, *kind, zero=any(map(any, widths)))


# Data on one rank.


def _scatter(
    pencil: Pencil, data: Any, root: int, dims: Sequence[int] | int | None, halo: HaloLike
) -> PencilArray:
    topology = topology_among(pencil)
    comm = topology.comm
    source: ArrayLike | None = None
    header: Any = None
    with agreed(comm, "partition") as agree:
        check_type("pencil", pencil, Pencil)
        sender = as_rank("root", root, comm.size)
        dims = None if dims is None else as_dims("dims", dims, pencil.ndim)
        widths = as_halo(halo, pencil.ndim)
        agree(root=sender, dims=dims, halo=widths, pencil=pencil)
        if comm.rank == sender:
            source = readable(data)
            header = _Header.of(pencil, source, dims)
        elif data is not None:
            raise ArgumentError(f"data must be None on every rank but root={root}")
    header = comm.bcast(header, root=sender)
    place = header.place
    with agreed(comm, "partition"):
        u = _field(pencil, header.dtype, place, as_halo(halo, pencil.ndim, place.singletons))
        slabs = Slabs(
            place.components, u.extent.layout, u.dtype.itemsize, contiguous=header.contiguous
        )
        move = _receiver(u, slabs, sender) if source is None else _sender(u, slabs, source, place)
    fault = move()
    if header.lazy:
        with agreed(comm, "partition"):
            if fault is not None:
                raise fault
    return u


class _Header(NamedTuple):
    """What root tells the other ranks about its data."""

    place: Placement
    dtype: np.dtype[Any]
    lazy: bool  # whether reading a part may fail
    contiguous: bool  # whether they are a C-contiguous array with the axes of the field

    @classmethod
    def of(cls, pencil: Pencil, source: ArrayLike, dims: Sequence[int] | None) -> _Header:
        place = _place(pencil, source, dims)
        array = _array_of(source)
        if array is None:
            return cls(place, _dtype_of(source), lazy=True, contiguous=False)
        contiguous = place.expand(array, pencil.ndim).flags.c_contiguous
        return cls(place, _dtype_of(array), lazy=False, contiguous=contiguous)


def _array_of(source: ArrayLike) -> Array | None:
    """Return data that are in memory, or mapped, as a plain array; else None."""
    if isinstance(source, np.ndarray) and not isinstance(source, np.ma.MaskedArray):
        return np.asarray(source)
    return None


def _receiver(u: PencilArray, slabs: Slabs, root: int) -> Callable[[], None]:
    """Prepare to receive the own block from root. The returned function is *Collective*."""
    topology, here = u.pencil.topology, u.global_box
    room = slabs.room(u.local, [here], here.start)

    def receive() -> None:
        stream = SlabStream(topology, root, room, through_slots=slabs.through_slots)
        for box in slabs.of(topology.rank):
            stream.recv(root, u.local[box.slices(here.start)], u.local.nbytes)
        stream.finish()

    return receive


def _sender(
    u: PencilArray, slabs: Slabs, source: ArrayLike, place: Placement
) -> Callable[[], Exception | None]:
    """Prepare to send from this rank. The returned function is *Collective*.

    If reading a piece fails, meaningless values are sent in its place, and it returns the error.
    """
    topology, here = u.pencil.topology, u.global_box
    root, array = topology.rank, _array_of(source)
    ranks = after(root, [message.dest for message in scatter(slabs.layout, root)])
    boxes = [slabs.box(rank) for rank in ranks if rank != root]
    faults: list[Exception] = []
    if array is None:
        blocks = _read_slabs(source, place, slabs, ranks, faults)()
        room = slabs.room(None, boxes)
    else:
        data = place.expand(array, u.pencil.ndim)
        every = in_turn(slabs.labelled(rank) for rank in ranks)
        blocks = ((rank, box, data[box.slices()]) for rank, box in every)
        room = slabs.room(data, boxes)

    def send() -> Exception | None:
        stream = SlabStream(topology, root, room, through_slots=slabs.through_slots)
        for rank, box, block in blocks:
            if rank == root:
                copy_now(u.local[box.slices(here.start)], block, u.local.nbytes)
            else:
                stream.send(rank, block)
        stream.finish()
        return faults[0] if faults else None

    return send


def _read_slabs(
    source: ArrayLike, place: Placement, slabs: Slabs, ranks: list[int], faults: list[Exception]
) -> Callable[[], Iterator[tuple[int, Box, Array]]]:
    """Prepare to read slabs for ranks; a box and values for each.

    Pieces are read one after the other, because each takes memory. After an error, which is added
    to `faults`, values are meaningless.
    """
    largest = max((slabs.box(rank).volume for rank in ranks), default=0)
    garbage = np.empty(min(largest, slabs.most_at_once), _dtype_of(source))

    def read(piece: Box) -> Array:
        if not faults:
            try:
                return place.expand(_read(source, place, piece), slabs.layout.ndim)
            except Exception as error:  # noqa: BLE001 - raised on all ranks afterwards
                faults.append(error)
        return garbage[: piece.volume].reshape(piece.shape)

    def blocks() -> Iterator[tuple[int, Box, Array]]:
        for rank in ranks:
            for piece in slabs.pieces(rank):
                part = read(piece)
                for box in slabs.within(piece):
                    yield rank, box, part[box.slices(piece.start)]

    return blocks
