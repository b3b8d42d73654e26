"""Export fields by the Distributed Array Protocol, and write the ``dim_data`` of any export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pencils.array.allocation import Array, Widths, padded_slices
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.comm.mpi import PerProcess
from pencils.dap.findings import UnsupportedError, VersionError
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, UnstructuredMap
from pencils.dap.validate import is_old, split_padding
from pencils.errors import ArgumentError
from pencils.layout import ProcessGrid, Split
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

VERSIONS = ("0.9.0", "0.10.0")
ExportHalo = Literal["none", "comm", "all"]
_HALOS = ("none", "comm", "all")
_MOST_CACHED = 32


def export(
    u: PencilArray,
    version: str = "0.10.0",
    *,
    halo: ExportHalo = "none",
    undistributed: Literal["n", "b"] | None = None,
) -> dict[str, Any]:
    """Describe the block of this process by the Distributed Array Protocol; copies nothing.

    The buffer is the memory of the field. Nothing is communicated: every process exports its own
    part. The protocol has processes in the row-major order of their coordinates: `comm` returns a
    communicator with this order.

    Parameters
    ----------
    u : PencilArray
        The field. Component axes come first, as dimensions on one process; a singleton dimension
        over several processes is exported as unstructured, with index 0 on all.
    version : {"0.10.0", "0.9.0"}, optional
        Version of the protocol.
    halo : {"none", "comm", "all"}, optional
        ``"none"``: the own block. ``"comm"``: with its ghosts, as communication padding; beyond the
        ends of a periodic dimension only version 0.9 has any. ``"all"``: with boundary points, too,
        which count as points of the array: it grows, and indices shift by the width. Neither adds
        points beyond the ends of dimensions along which the field is `trimmed`.
    undistributed : {"n", "b"}, optional
        Distribution type in version 0.9 of a dimension on one process: no distribution, the
        default, or a block.

    Returns
    -------
    dict
        ``__version__``, ``buffer``, a NumPy view in logical order, and ``dim_data``.

    Raises
    ------
    VersionError, ArgumentError, TypeError
        If an argument is not allowed.
    UnsupportedError
        If the protocol cannot represent the field: times, halos that are wider than a neighbouring
        block or, in version 0.10, of different widths on both sides, wrapped ghosts with ``"all"``
        in version 0.10. The same on every process.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.zeros(pencils.Pencil((4, 6)), halo=1)
    >>> exported = export(u)
    >>> exported["buffer"][...] = 1.0
    >>> u.sum()
    np.float64(24.0)
    >>> export(u, "0.9.0")["dim_data"][1]
    {'dist_type': 'n', 'size': 6}
    """
    check_type("u", u, PencilArray)
    check_version(version)
    if halo not in _HALOS:
        raise ArgumentError(f"halo={halo!r} must be one of {', '.join(map(repr, _HALOS))}")
    if undistributed not in (None, "n", "b"):
        raise ArgumentError(f"undistributed={undistributed!r} must be 'n' or 'b'")
    check_elements(u, version)
    widths = u.halo if halo != "none" else ((0, 0),) * u.pencil.ndim
    space, pads = _space()(u.pencil, u.singletons, widths, u.trimmed, version=version, halo=halo)
    components = [BlockMap(size=n, start=0, stop=n) for n in u.components]
    padded = [*[False] * len(components), *pads]
    return {
        "__version__": version,
        "buffer": _view(u, space),
        "dim_data": emit(
            [*components, *space], version, padded=padded, undistributed=undistributed
        ),
    }


def comm(u: PencilArray | Pencil) -> MPI.Intracomm:
    """Communicator whose ranks have row-major coordinates, as the protocol requires.

    *Collective* the first time. It is that of the pencil if its decomposed dimensions are in order.

    Parameters
    ----------
    u : PencilArray or Pencil
        The field to export, or its pencil.

    Returns
    -------
    mpi4py.MPI.Intracomm
        Belongs to the library; do not free it.
    """
    if not isinstance(u, Pencil):
        check_type("u", u, PencilArray)
    pencil = u if isinstance(u, Pencil) else u.pencil
    if pencil.decomp == tuple(sorted(pencil.decomp)):
        return pencil.comm
    place = ProcessGrid(pencil.process_shape).rank(pencil.layout.parts(pencil.rank))
    return pencil.topology.in_order((pencil.decomp, pencil.grid), place)


def check_elements(u: PencilArray, version: str) -> None:
    """Raise UnsupportedError unless the elements of a field have a buffer."""
    if u.dtype.kind in "mM":
        msg = f"elements of type {u.dtype} have no buffer; export a view as integers"
        raise UnsupportedError(msg, code="E3", key="buffer", version=version)


def _find_space(
    pencil: Pencil,
    singletons: frozenset[int],
    widths: Widths,
    trimmed: frozenset[int],
    *,
    version: str,
    halo: ExportHalo,
) -> tuple[list[DimMap], list[bool]]:
    """Make the maps of the space dimensions, and list where all processes give a padding."""
    extent = pencil.extent(singletons)
    maps: list[DimMap] = []
    padded = []
    for dim, rank in enumerate(extent.layout.parts(pencil.rank)):
        split = extent.layout.splits[dim]
        periodic = pencil.periodic[dim] and dim not in singletons
        if split.replicated and split.parts > 1:
            here = np.zeros(1, np.int64)
            here.flags.writeable = False  # all exports share it
            maps.append(UnstructuredMap(size=1, nprocs=split.parts, rank=rank, indices=here))
        else:
            own = BlockMap(
                size=split.points,
                nprocs=split.parts,
                rank=rank,
                periodic=periodic,
                start=extent.box.start[dim],
                stop=extent.box.stop[dim],
            )
            if any(widths[dim]):
                wrapped = periodic and dim not in trimmed and is_old(version)
                _check_widths(split, widths[dim], wrapped=wrapped, version=version, dim=dim)
                own = _with_ghosts(own, widths[dim], wrapped=wrapped)
                if halo == "all" and dim not in trimmed and not wrapped:
                    own = _with_boundary(own, widths[dim], dim, version)
            maps.append(own)
        inside = split.parts > 1 or periodic or halo == "all"
        padded.append(is_old(version) and inside and any(widths[dim]))
    return maps, padded


_space = PerProcess(
    lambda: lru_cache(_MOST_CACHED)(_find_space)
)  # pencils of different simulated ranks are equal


def _with_ghosts(own: BlockMap, width: tuple[int, int], *, wrapped: bool) -> BlockMap:
    """Add ghosts, beyond the ends of the dimension only if they wrap around."""
    first, last = own.rank == 0, own.rank == own.nprocs - 1
    lo, hi = width
    return replace(own, ghosts=(lo * (wrapped or not first), hi * (wrapped or not last)))


def _with_boundary(own: BlockMap, width: tuple[int, int], dim: int, version: str) -> BlockMap:
    """Count the halo beyond the ends of the dimension as boundary points of the array."""
    if own.periodic:
        msg = "wrapped ghosts cannot be represented; use version 0.9.0, or halo='comm'"
        raise UnsupportedError(msg, code="K3", dim=dim, key="padding", version=version)
    (lo, hi), first, last = width, own.rank == 0, own.rank == own.nprocs - 1
    return replace(
        own,
        size=own.size + lo + hi,
        boundary=(lo * first, hi * last),
        start=own.start + lo * (not first),
        stop=own.stop + lo + hi * last,
    )


def _check_widths(
    split: Split, width: tuple[int, int], *, wrapped: bool, version: str, dim: int
) -> None:
    """Check the widths of ghosts on all processes (rules G6 and G7)."""
    (lo, hi), parts = width, split.parts
    if parts > 1 and lo != hi and not is_old(version):
        msg = f"got halo {width}, expected equal widths; use version 0.9.0 or halo='none'"
        raise UnsupportedError(msg, code="G6", dim=dim, key="padding")
    counts = [stop - start for start, stop in map(split.bounds, range(parts))]
    below, above = (counts, counts) if wrapped else (counts[:-1], counts[1:])
    if min(below, default=lo) < lo or min(above, default=hi) < hi:
        msg = (
            f"got halo {width}, expected widths of at most {min(counts)}, the points of "
            "the thinnest block; use fewer processes along the dimension, or halo='none'"
        )
        raise UnsupportedError(msg, code="G7", dim=dim, key="padding")


def _view(u: PencilArray, space: Sequence[DimMap]) -> Array:
    """View the part of the padded block that is exported."""
    widths = tuple(dim.padding for dim in space)
    view: Array = u.padded[padded_slices(u.extent.local_shape, u.halo_room, widths)]
    return view


def emit(
    dims: Sequence[DimMap],
    version: str = "0.10.0",
    *,
    padded: Sequence[bool] | None = None,
    undistributed: Literal["n", "b"] | None = None,
) -> tuple[dict[str, Any], ...]:
    """Write the dimension dictionaries of one process: the ``dim_data`` of an export.

    Parameters
    ----------
    dims : sequence of DimMap
        The map of every dimension.
    version : {"0.10.0", "0.9.0"}
        Version of the protocol.
    padded : sequence of bool, optional
        For each dimension, whether any process has padding; then version 0.9 wants the key on all
        processes. Default: whether this process has padding.
    undistributed : {"n", "b"}, optional
        Distribution type in version 0.9 of a dimension on one process. Default "n".

    Returns
    -------
    tuple of dict
        Python integers, booleans and tuples, and arrays of indices; keys with default values are
        omitted.

    Raises
    ------
    VersionError
        If the version does not exist.
    UnsupportedError
        If the version cannot represent the map: wrapped ghosts in 0.10, periodic boundary points
        in 0.9.

    Examples
    --------
    >>> block = BlockMap(size=10, nprocs=2, rank=1, start=5, stop=10, ghosts=(1, 0))
    >>> written = emit([block])[0]
    >>> written["dist_type"], written["start"], written["stop"], written["padding"]
    ('b', 4, 10, (1, 0))
    >>> emit([BlockMap(size=7, start=0, stop=7)], "0.9.0")
    ({'dist_type': 'n', 'size': 7},)
    """
    check_version(version)
    flags = padded or [False] * len(dims)
    return tuple(
        _emit_dim(dim, version, number, padded=flag, alone=undistributed or "n")
        for number, (dim, flag) in enumerate(zip(dims, flags, strict=True))
    )


def check_version(version: str) -> None:
    """Raise VersionError unless exports can be written in a version."""
    if version not in VERSIONS:
        msg = f"got {version!r}, expected one of {VERSIONS}"
        raise VersionError(msg, code="E2", key="__version__")


def _emit_dim(
    dim: DimMap, version: str, number: int, *, padded: bool, alone: str
) -> dict[str, Any]:
    entry: dict[str, Any] = {"size": dim.size}
    entry |= {"proc_grid_size": dim.nprocs, "proc_grid_rank": dim.rank}
    match dim:
        case BlockMap() if is_old(version) and dim.nprocs == 1 and alone == "n":
            entry = {"dist_type": "n", "size": dim.size}
        case BlockMap():
            lo, hi = (0, 0) if is_old(version) else dim.ghosts
            entry |= {"dist_type": "b", "start": dim.start - lo, "stop": dim.stop + hi}
        case CyclicMap():
            entry |= {"dist_type": "c", "start": dim.start}
            entry |= {"block_size": dim.block_size} if dim.block_size > 1 else {}
        case UnstructuredMap():
            entry |= {"dist_type": "u", "indices": dim.indices}
            entry |= {"one_to_one": True} if dim.one_to_one else {}
    if isinstance(dim, BlockMap):
        padding = _padding(dim, version, number)
        entry |= {"padding": padding} if padded or any(padding) else {}
    elif dim.periodic and not is_old(version):
        msg = f"a periodic {dim.kind} dimension cannot be represented; use version 0.9.0"
        raise UnsupportedError(msg, code="B7", dim=number, key="periodic", version=version)
    return entry | ({"periodic": True} if dim.periodic else {})


def _padding(dim: BlockMap, version: str, number: int) -> tuple[int, int]:
    """Add ghosts and boundary points, if a reader can separate them again."""
    wrapped = dim.periodic and is_old(version)
    found = split_padding(dim.padding, dim.rank, dim.nprocs, wrapped=wrapped)
    if found != (dim.ghosts, dim.boundary):
        msg = (
            f"ghosts {dim.ghosts} and boundary points {dim.boundary} on grid rank {dim.rank} of "
            f"{dim.nprocs} cannot be represented; expected ghosts "
            f"{'everywhere' if wrapped else 'inside'} and boundary points "
            f"{'nowhere' if wrapped else 'at the edges of the process grid'}: "
            "use the other version, or a view without the padding"
        )
        raise UnsupportedError(msg, code="K3", dim=number, key="padding", version=version)
    return dim.padding
