"""Between global arrays and fields: partition, localgrid, gather."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pencils.array import PencilArray, read_singletons
from pencils.comm.agree import agreed
from pencils.comm.stream import BLOCK_BYTES, bcast_array, recv_stream, send_stream
from pencils.creation import empty
from pencils.errors import ArgumentError
from pencils.layout import Box, Layout, Selection, scatter
from pencils.layout import gather as gather_messages
from pencils.layout.make import read_dims, read_ints
from pencils.pencil import Pencil
from pencils.storage import Array, HaloSpec, read_dtype, read_halo


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
    """How the axes of global data lie on the dimensions of a pencil."""

    components: tuple[int, ...]
    dims: tuple[int, ...]
    singletons: frozenset[int]

    def key(self, box: Box) -> tuple[slice, ...]:
        """Index the data for the part inside a box of the pencil."""
        slices = box.slices()
        return (*map(slice, self.components), *(slices[dim] for dim in self.dims))

    def shape(self, box: Box) -> tuple[int, ...]:
        """Shape that the data have inside a box of the pencil."""
        return (*self.components, *(box.shape[dim] for dim in self.dims))

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
    halo: HaloSpec = 0,
) -> PencilArray:
    """Distribute global data over the processes of a pencil.

    With ``root=None`` every rank passes the same global data and gets a field that *views* its
    part of it: writing to the field writes to the data. Nothing is communicated. With ``root=r``
    rank r passes the data, the others None, and blocks are streamed to their owners (*Collective*).

    Parameters
    ----------
    pencil : Pencil
        Where the points go.
    data : array_like or None
        Global data with one axis per dimension, and component axes before them. Axes of extent 1
        become singleton dimensions. Anything with ``shape``, ``dtype`` and ``__getitem__`` will do
        (``numpy.memmap``, HDF5, netCDF, zarr): only what is needed is read.
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
    _check_type("pencil", pencil, Pencil)
    if root is None:
        return _view(pencil, data, dims, halo, copy=copy)
    return _scatter(pencil, data, root, dims, halo)


def gather(
    field: PencilArray,
    root: int | None = 0,
    *,
    key: Any = ...,
    dims: Sequence[int] | int | None = None,
) -> Array | None:
    """Collect a field, or a part of it, into one NumPy array; the inverse of `partition`.

    *Collective*.

    Parameters
    ----------
    field : PencilArray
        The field; its halo is left out, replicas count once.
    root : int or None, optional
        The rank that gets the array, default 0; None for all ranks.
    key : basic index, optional
        Integers, slices and Ellipsis in global indices of ``field.shape``: only this part travels.
    dims : int or sequence of int, optional
        The dimensions that remain as the last axes of the result, in this order; the field must be
        a singleton along all others. The counterpart of `dims` in `partition`.

    Returns
    -------
    numpy.ndarray or None
        The array ``global[key]``, in C order; None on ranks other than `root`.

    Raises
    ------
    ArgumentError, IndexError, TypeError
        On every rank, if an argument is not allowed.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 6)), lambda i, j: 10 * i + j)
    >>> pencils.gather(u, key=np.s_[1, ::2])
    array([10, 12, 14])
    """
    _check_type("field", field, PencilArray)
    comm = field.pencil.topology.comm
    found = None
    with agreed(comm, "gather") as agree:
        receiver = None if root is None else _read_root(root, comm.size)
        selection = Selection.from_key(key, field.shape)
        axes = _gathered_axes(field, dims, whole=key is Ellipsis)
        if receiver is None or receiver == comm.rank:
            found = np.empty(tuple(map(len, selection.ranges)), field.dtype)
        agree(
            root=receiver,
            field=repr(field.pencil),
            shape=field.shape,
            singletons=sorted(field.singletons),
            dtype=field.dtype,
            key=selection,
            dims=axes,
        )
    _collect(field, selection.rising(), receiver or 0, found)
    if found is None:
        return None
    if receiver is None:
        bcast_array(comm, found, 0)
    flips = tuple(slice(None, None, -1 if kept.step < 0 else 1) for kept in selection.ranges)
    drops = tuple(axis for axis, drop in enumerate(selection.dropped) if drop)
    result = np.squeeze(found[flips], drops)
    return np.asarray(result if axes is None else _reorder(result, axes, field), order="C")


class LocalGrid:
    """Coordinates of a rectilinear grid, each a field that varies along one dimension.

    They broadcast against each other and against full fields: ``u = grid.x + 2 * grid.y``.

    Parameters
    ----------
    pencil : Pencil
        The decomposed grid.
    axes : sequence of numpy.ndarray
        Global coordinates along each dimension.
    names : tuple of str
        Attribute names of the coordinates.
    """

    __slots__ = ("_axes", "_fields", "_names", "_pencil")

    def __init__(self, pencil: Pencil, axes: Sequence[Array], names: tuple[str, ...]) -> None:
        self._pencil = pencil
        self._axes = tuple(axes)
        self._names = names
        self._fields = tuple(partition(pencil, points, dims=dim) for dim, points in enumerate(axes))

    @property
    def pencil(self) -> Pencil:
        """The decomposed grid."""
        return self._pencil

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates, by dimension."""
        return self._names

    @property
    def axes(self) -> tuple[Array, ...]:
        """Global coordinates along each dimension, as given."""
        return self._axes

    def coords(self, index: Sequence[int]) -> tuple[Any, ...]:
        """Coordinates of the point with global `index`, which may live on any rank.

        Raises
        ------
        IndexError
            If the index lies outside the global shape.
        """
        here = read_ints("index", index)
        self._pencil.owner(here)
        return tuple(points[i] for points, i in zip(self._axes, here, strict=True))

    def __getattr__(self, name: str) -> PencilArray:
        if name.startswith("_"):  # not set yet, while copy or pickle makes this object
            raise AttributeError(name)
        if name not in self._names:
            msg = f"this grid has coordinates {', '.join(self._names)}, but no {name!r}"
            raise AttributeError(msg)
        return self._fields[self._names.index(name)]

    def __getitem__(self, key: int | tuple[int, ...]) -> Any:
        """Return the coordinate along one dimension, or with ``(i, j, k)`` those of one point."""
        return self.coords(key) if isinstance(key, tuple) else self._fields[key]

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> Iterator[PencilArray]:
        return iter(self._fields)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._names]

    def __repr__(self) -> str:
        ranges = ", ".join(
            f"{name} [{_short(points[0])} .. {_short(points[-1])}]" if len(points) else f"{name} []"
            for name, points in zip(self._names, self._axes, strict=True)
        )
        return f"<LocalGrid {ranges}>\n  on {self._pencil!r}"


def localgrid(
    pencil: Pencil, axes: Sequence[Any], *, names: Sequence[str] | None = None
) -> LocalGrid:
    """Distribute the coordinates of a rectilinear grid.

    Every rank passes the same global coordinates; nothing is communicated.

    Parameters
    ----------
    pencil : Pencil
        The decomposed grid.
    axes : sequence of array_like
        For each dimension its global coordinates, one number per point.
    names : sequence of str, optional
        Attribute names; default ``x, y, z, w``, or ``x0, x1, ...`` beyond four dimensions.

    Returns
    -------
    LocalGrid
        ``grid.x``, ``grid[0]`` and ``x, y, z = grid`` give the coordinates as fields,
        ``grid.coords((i, j, k))``, or ``grid[i, j, k]``, those of one point.

    Raises
    ------
    ArgumentError
        If the number of axes, their lengths or the names do not fit the pencil.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> pen = pencils.Pencil((5, 3))
    >>> grid = pencils.localgrid(pen, (np.linspace(0, 1, 5), np.linspace(-1, 1, 3)))
    >>> u = grid.x + 2 * grid.y
    >>> u.shape, grid.coords((4, 0))
    ((5, 3), (np.float64(1.0), np.float64(-1.0)))
    """
    points = [np.asarray(axis) for axis in axes]
    if [axis.shape for axis in points] != [(extent,) for extent in pencil.shape]:
        shapes = [axis.shape for axis in points]
        msg = f"axes of shapes {shapes} do not fit {pencil!r}: give one 1-D array per dimension"
        raise ArgumentError(msg)
    default = "xyzw" if pencil.ndim <= len("xyzw") else [f"x{dim}" for dim in range(pencil.ndim)]
    chosen = tuple(default[: pencil.ndim] if names is None else names)
    if len(set(chosen)) != pencil.ndim or not all(map(_may_be_name, chosen)):
        msg = (
            f"names={chosen} must be {pencil.ndim} different identifiers that do not start with _ "
            "and are not those of methods"
        )
        raise ArgumentError(msg)
    return LocalGrid(pencil, points, chosen)


def _may_be_name(name: object) -> bool:
    if not isinstance(name, str):
        return False
    return name.isidentifier() and name[0] != "_" and not hasattr(LocalGrid, name)


def _short(value: Any) -> str:
    return format(value, "g") if isinstance(value, np.inexact) else str(value)


# Placing data on dimensions.


def _place(pencil: Pencil, data: ArrayLike, dims: Sequence[int] | int | None) -> Placement:
    shape = tuple(data.shape)
    axes = tuple(range(pencil.ndim)) if dims is None else read_dims("dims", dims, pencil.ndim)
    lead = len(shape) - len(axes)
    if lead < 0:
        hint = "" if dims is not None else "; name the dimensions of fewer axes with dims="
        msg = f"data of shape {shape} have too few axes for dimensions {axes} of {pencil!r}{hint}"
        raise ArgumentError(msg)
    singletons = set(range(pencil.ndim)) - set(axes)
    for dim, extent in zip(axes, shape[lead:], strict=True):
        if extent == 1 != pencil.shape[dim]:
            singletons.add(dim)
        elif extent != pencil.shape[dim]:
            msg = (
                f"data of shape {shape} do not fit {pencil!r}: dimension {dim} must have extent "
                f"{pencil.shape[dim]}, or 1 for a singleton, not {extent}"
            )
            raise ArgumentError(msg)
    return Placement(shape[:lead], axes, frozenset(singletons))


def _check_type(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        msg = f"{name} must be a {kind.__name__}, not {type(value).__name__}"
        raise TypeError(msg)


def _readable(data: Any) -> ArrayLike:
    """Check that data can be read by boxes; lists become arrays."""
    if isinstance(data, PencilArray):
        msg = "data are distributed already; use transpose() to move them to another pencil"
        raise TypeError(msg)
    if data is None:
        msg = "data is None; every rank passes the global data, or root=r names the one that does"
        raise TypeError(msg)
    if not all(hasattr(data, name) for name in ("shape", "dtype", "__getitem__")):
        data = np.asarray(data)
    read_dtype(data.dtype)
    source: ArrayLike = data
    return source


def _read(source: ArrayLike, place: Placement, box: Box) -> Array:
    """Read the part of data inside a box; what comes back must be what `source` announced."""
    part = np.asarray(source[place.key(box) or ...])
    announced = place.shape(box), np.dtype(source.dtype)
    if (part.shape, part.dtype) != announced:
        msg = (
            f"data announce {announced[1]} of shape {announced[0]} for the part "
            f"{place.key(box)}, but reading gives {part.dtype} of shape {part.shape}; turn "
            "conversion on reading off (as of scaled netCDF variables), or pass a NumPy array"
        )
        raise ArgumentError(msg)
    return part


# Replicated data.


def _view(
    pencil: Pencil, data: Any, dims: Sequence[int] | int | None, halo: HaloSpec, *, copy: bool
) -> PencilArray:
    source = _readable(data)
    place = _place(pencil, source, dims)
    box = pencil.extent(place.singletons).box
    block = place.expand(_read(source, place, box), pencil.ndim)
    widths = read_halo(halo, pencil.ndim, place.singletons)
    if not copy and not any(map(any, widths)):
        return PencilArray.from_block(pencil, block, place.singletons)
    field = _empty(pencil, source.dtype, place, halo)
    field.local[...] = block
    return field


def _empty(pencil: Pencil, dtype: np.dtype[Any], place: Placement, halo: HaloSpec) -> PencilArray:
    varying = [dim for dim in range(pencil.ndim) if dim not in place.singletons]
    field = empty(pencil, dtype=dtype, components=place.components, halo=halo, dims=varying)
    if any(map(any, field.halo)):
        field.fill(np.zeros((), dtype))
    return field


# Data on one rank.


def _read_root(root: Any, size: int) -> int:
    ranks = read_ints("root", root)
    if len(ranks) != 1 or not 0 <= ranks[0] < size:
        msg = f"root={root} is not one of the ranks 0..{size - 1}"
        raise ArgumentError(msg)
    return ranks[0]


def _scatter(
    pencil: Pencil, data: Any, root: int, dims: Sequence[int] | int | None, halo: HaloSpec
) -> PencilArray:
    comm = pencil.topology.comm
    place, dtype, source = None, None, None
    with agreed(comm, "partition") as agree:
        sender = _read_root(root, comm.size)
        dims = None if dims is None else read_dims("dims", dims, pencil.ndim)
        widths = read_halo(halo, pencil.ndim)
        agree(root=sender, dims=dims, halo=widths, pencil=repr(pencil))
        if comm.rank == sender:
            source = _readable(data)
            place, dtype = _place(pencil, source, dims), np.dtype(source.dtype)
        elif data is not None:
            msg = f"data must be None on every rank but root={root}"
            raise ArgumentError(msg)
    place, dtype = comm.bcast((place, dtype), root=sender)
    with agreed(comm, "partition"):
        field = _empty(pencil, dtype, place, halo)
    fault = _stream_blocks(field, source, place, sender)
    with agreed(comm, "partition"):
        if fault is not None:
            raise fault
    return field


def _stream_blocks(
    field: PencilArray, source: ArrayLike | None, place: Placement, root: int
) -> Exception | None:
    """Send from root piece by piece; a piece that cannot be read is sent as garbage, and told."""
    comm, layout = field.pencil.topology.comm, field.extent.layout
    most = _most(field)
    own = field.extent.box
    if source is None:
        recv_stream(comm, ((root, field.local[_inside(p, own.start)]) for p in own.pieces(most)))
        return None
    faults: list[Exception] = []

    def read(piece: Box) -> Array:
        shape = field.components + piece.shape
        if not faults:
            try:
                return place.expand(_read(source, place, piece), layout.ndim)
            except Exception as error:  # noqa: BLE001 - told to all ranks once they are through
                faults.append(error)
        return np.empty(shape, field.dtype)

    def blocks() -> Iterator[tuple[int, Array]]:
        for message in scatter(layout, root):
            for piece in message.box.pieces(most):
                if message.dest == root:
                    field.local[_inside(piece, own.start)] = read(piece)
                else:
                    yield message.dest, read(piece)

    send_stream(comm, blocks())
    return faults[0] if faults else None


def _inside(box: Box, origin: tuple[int, ...] | None = None) -> Any:
    """Index an array that has component axes before the dimensions of the box."""
    return (..., *box.slices(origin))


def _most(field: PencilArray) -> int:
    """Points of one streamed piece."""
    per_point = field.dtype.itemsize * int(np.prod(field.components))
    return max(1, BLOCK_BYTES // max(1, per_point))


def _collect(field: PencilArray, selection: Selection, root: int, found: Array | None) -> None:
    """Bring the selected points into `found` on root, which has all axes of the field."""
    comm, rank = field.pencil.topology.comm, field.pencil.rank
    lead = len(field.components)
    whole = Selection(selection.ranges, (False,) * field.ndim)
    layout: Layout = field.extent.layout.select(selection.ranges[lead:])
    box = field.extent.box
    mine = field.local[whole.local(Box((0,) * lead + box.start, field.components + box.stop))]
    here = layout.box(rank)
    most = _most(field)
    if found is None or rank != root:
        if layout.is_first_replica(rank):
            pieces = here.pieces(most)
            send_stream(comm, ((root, mine[_inside(p, here.start)]) for p in pieces))
        return

    def blocks() -> Iterator[tuple[int, Array]]:
        for message in gather_messages(layout, root):
            if message.source == root:
                found[_inside(message.box)] = mine
                continue
            for piece in message.box.pieces(most):
                yield message.source, found[_inside(piece)]

    recv_stream(comm, blocks())


def _gathered_axes(
    field: PencilArray, dims: Sequence[int] | int | None, *, whole: bool
) -> tuple[int, ...] | None:
    if dims is None:
        return None
    axes = read_dims("dims", dims, field.pencil.ndim)
    varying = read_singletons(field.pencil, axes) - field.singletons
    if varying or not whole:
        msg = f"dims={axes} drops dimensions {sorted(varying)}, along which the field varies"
        if not whole:
            msg = "dims= and key= cannot be combined; drop dimensions by integers in key="
        raise ArgumentError(msg)
    return axes


def _reorder(result: Array, dims: tuple[int, ...], field: PencilArray) -> Array:
    lead = len(field.components)
    dropped = tuple(lead + dim for dim in range(field.pencil.ndim) if dim not in dims)
    ranks = np.argsort(np.argsort(dims))
    return np.squeeze(result, dropped).transpose(*range(lead), *(lead + int(r) for r in ranks))
