"""Export fields: their own memory, or copies in another distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pencils.array.allocation import Array, Widths, padded_slices
from pencils.array.operands import check_type, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.dap.collective import exchange_metadata
from pencils.dap.emit import check_version, emit
from pencils.dap.errors import DAPError, SemanticError, UnsupportedError
from pencils.dap.global_maps import GlobalDimMap, check_points
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, UnstructuredMap
from pencils.dap.parse import is_old
from pencils.dap.transfer import ArrayTransfer
from pencils.dap.validate import Metadata, metadata
from pencils.errors import ArgumentError
from pencils.layout import Layout, ProcessGrid, Split
from pencils.layout.integers import to_int
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

ExportHalo = Literal["none", "comm", "all"]
_HALOS = ("none", "comm", "all")
_MOST_CACHED = 32


def export(
    field: PencilArray,
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
    field : PencilArray
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
    check_type("field", field, PencilArray)
    check_version(version)
    if halo not in _HALOS:
        msg = f"halo={halo!r} must be one of {', '.join(map(repr, _HALOS))}"
        raise ArgumentError(msg)
    if undistributed not in (None, "n", "b"):
        msg = f"undistributed={undistributed!r} must be 'n' or 'b'"
        raise ArgumentError(msg)
    _check_elements(field, version)
    widths = field.halo if halo != "none" else ((0, 0),) * field.pencil.ndim
    space, pads = _space(
        field.pencil, field.singletons, widths, field.trimmed, version=version, halo=halo
    )
    components = [BlockMap(size=n, start=0, stop=n) for n in field.components]
    padded = [*[False] * len(components), *pads]
    return {
        "__version__": version,
        "buffer": _view(field, space),
        "dim_data": emit(
            [*components, *space], version, padded=padded, undistributed=undistributed
        ),
    }


def export_as(
    u: PencilArray, dim_maps: Sequence[DimMap], version: str = "0.10.0"
) -> dict[str, Any]:
    """Copy a field to buffers in any distribution, and export these. *Collective*.

    Parameters
    ----------
    u : PencilArray
        The field.
    dim_maps : sequence of DimMap
        The points that this process gets along every dimension, components first, without padding;
        components must be blocks on one process. The processes are in C order of their grid ranks.
        Any existing index may be in an unstructured dimension, on any number of processes.
    version : {"0.10.0", "0.9.0"}, optional
        Version of the protocol.

    Returns
    -------
    dict
        ``__version__``, ``buffer``, a new NumPy array, and ``dim_data``.

    Raises
    ------
    DAPError
        On every rank: the first rule that a map breaks, with the rank at fault.
    ArgumentError, TypeError
        On every rank, if an argument is not allowed.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 2)), lambda i, j: 10 * i + j)
    >>> odd = UnstructuredMap(size=2, indices=np.array([3, 1]))
    >>> export_as(u, [odd, CyclicMap(size=2)])["buffer"]
    array([[30, 31],
           [10, 11]])
    """
    topology = topology_among(u)
    with agreed(topology.comm, "dap.export_as") as agree:
        check_type("u", u, PencilArray)
        agree(**signature(u), version=version)
        check_version(version)
        _check_elements(u, version)
        maps = _read_maps(dim_maps, u.ndim)
        found = _metadata(u, maps, version)
    dist = exchange_metadata(topology, found)
    space = dist.dims[len(u.components) :]
    with agreed(topology.comm, "dap.export_as"):  # one rank may have no memory for it
        buffer = np.empty([part.extent for part in maps], u.dtype)
        maps = [_with_total(part, whole) for part, whole in zip(maps, dist.dims, strict=True)]
    transfer = ArrayTransfer(_without_replicas(u), space, range(topology.comm.size))
    transfer.to_parts(topology, u.local, buffer)
    return {"__version__": version, "buffer": buffer, "dim_data": emit(maps, version)}


def comm(field: PencilArray | Pencil) -> MPI.Intracomm:
    """Communicator whose ranks have row-major coordinates, as the protocol requires.

    *Collective* the first time. It is that of the pencil if its decomposed dimensions are in order.

    Parameters
    ----------
    field : PencilArray or Pencil
        The field to export, or its pencil.

    Returns
    -------
    mpi4py.MPI.Intracomm
        Belongs to the library; do not free it.
    """
    if isinstance(field, Pencil):
        pencil = field
    else:
        check_type("field", field, PencilArray)
        pencil = field.pencil
    if pencil.decomp == tuple(sorted(pencil.decomp)):
        return pencil.comm
    place = ProcessGrid(pencil.process_shape).rank(pencil.layout.parts(pencil.rank))
    return pencil.topology.in_order((pencil.decomp, pencil.grid), place)


def _check_elements(field: PencilArray, version: str) -> None:
    """Raise UnsupportedError unless the elements of a field have a buffer."""
    if field.dtype.kind in "mM":
        msg = f"elements of type {field.dtype} have no buffer; export a view as integers"
        raise UnsupportedError(msg, code="E3", key="buffer", version=version)


@lru_cache(_MOST_CACHED)
def _space(
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


def _view(field: PencilArray, space: Sequence[DimMap]) -> Array:
    """View the part of the padded block that is exported."""
    widths = tuple(
        (dim.ghosts[0] + dim.boundary[0], dim.ghosts[1] + dim.boundary[1]) for dim in space
    )
    view: Array = field.padded[padded_slices(field.extent.local_shape, field.halo_room, widths)]
    return view


def _read_maps(dim_maps: object, ndim: int) -> list[DimMap]:
    if not isinstance(dim_maps, Sequence) or len(dim_maps) != ndim:
        msg = f"dim_maps must be a sequence of {ndim} maps, one for each dimension of the field"
        raise ArgumentError(msg)
    for number, part in enumerate(dim_maps):
        check_type(f"dim_maps[{number}]", part, DimMap)
        for name in ("size", "nprocs", "rank", "start", "stop", "block_size"):
            if to_int(getattr(part, name, 0)) is None:
                msg = f"dim_maps[{number}].{name} must be an integer, not {getattr(part, name)!r}"
                raise TypeError(msg)
    return list(dim_maps)


def _metadata(u: PencilArray, maps: Sequence[DimMap], version: str) -> Metadata:
    """Compare maps with a field, and make the metadata of the export to come."""
    try:
        for dim, part in enumerate(maps):
            _check_map(part, u, dim)
        # The buffer does not exist yet.
        buffer = np.broadcast_to(np.uint8(0), [_extent(part) for part in maps])
        export = {"__version__": version, "buffer": buffer, "dim_data": emit(maps, version)}
        return metadata(export)
    except DAPError as error:
        return Metadata(None, (error,))


def _extent(part: DimMap) -> int:
    """Points of the buffer along a dimension; any number if the map breaks a rule."""
    if isinstance(part, UnstructuredMap):
        return part.count
    return min(max(0, part.count), part.size) if part.nprocs > 0 else 0


def _check_map(part: DimMap, u: PencilArray, dim: int) -> None:
    """Check that a map fits one dimension of a field."""
    points = u.shape[dim]
    if (part.ghosts, part.boundary) != ((0, 0), (0, 0)):
        msg = (
            f"got {part.ghosts} ghosts and {part.boundary} boundary points, expected "
            "none; give blocks without padding"
        )
        raise UnsupportedError(msg, code="B5", dim=dim, key="padding")
    if dim < len(u.components) and not (isinstance(part, BlockMap) and part.nprocs == 1):
        msg = (
            f"got a {part.kind} dimension on {part.nprocs} processes, expected a block on one "
            "process for components"
        )
        raise UnsupportedError(msg, code="D3", dim=dim, key="proc_grid_size")
    if not isinstance(part, UnstructuredMap) and part.size != points:
        msg = f"got {part.size}, expected {points}, the extent of the field"
        raise UnsupportedError(msg, code="D2", dim=dim, key="size")
    if isinstance(part, CyclicMap) and part.block_size < 1:
        msg = f"got {part.block_size}, expected at least 1"
        raise SemanticError(msg, code="C2", dim=dim, key="block_size")
    check_points(part, points, dim)


def _with_total(part: DimMap, whole: GlobalDimMap) -> DimMap:
    """Count a point once for every owner in the size of unstructured dimensions (K5)."""
    if not isinstance(part, UnstructuredMap):
        return part
    return replace(part, size=int(whole.counts.sum()))


def _without_replicas(u: PencilArray) -> Layout:
    """Layout of a field in which only the first process has the replicated singletons."""
    splits = [
        Split(split.points, split.parts) if split.replicated else split
        for split in u.extent.layout.splits
    ]
    return replace(u.extent.layout, splits=tuple(splits))
