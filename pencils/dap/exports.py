"""Export fields by the Distributed Array Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from pencils.array.allocation import Widths
from pencils.array.operands import check_type, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.mpi import PerProcess
from pencils.dap.collective import exchange_metadata
from pencils.dap.dim_data import (
    ExportHalo,
    Shown,
    Undistributed,
    check_elements,
    check_version,
    emit,
    show,
)
from pencils.dap.distributions import GlobalDimMap, check_points
from pencils.dap.findings import DAPError, SemanticError, UnsupportedError
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, UnstructuredMap
from pencils.dap.validate import Metadata, metadata
from pencils.dap.view import DistributedView, move_points
from pencils.errors import ArgumentError
from pencils.layout import Layout, ProcessGrid, Split
from pencils.layout.integers import to_int
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

_HALOS: tuple[str, ...] = get_args(ExportHalo)
_MOST_CACHED = 32


def export(
    u: PencilArray | DistributedView,
    version: str = "0.10.0",
    *,
    halo: ExportHalo = "none",
    undistributed: Undistributed | None = None,
) -> dict[str, Any]:
    """Describe the block of this process by the Distributed Array Protocol; copies nothing.

    The buffer is the memory of the field. Nothing is communicated: every process exports its own
    part. The protocol has processes in the row-major order of their coordinates: `comm` returns a
    communicator with this order.

    Parameters
    ----------
    u : PencilArray or DistributedView
        The field. Component axes come first, as dimensions on one process; a singleton dimension
        over several processes is exported as unstructured, with index 0 on all. What `import_array`
        has made is exported as it was imported, with padding of any width and its boundary points.
    version : {"0.10.0", "0.9.0"}, optional
        Version of the protocol.
    halo : {"none", "comm", "all"}, optional
        ``"none"``: the own block. ``"comm"``: with its ghosts, as communication padding; beyond the
        ends of a periodic dimension only version 0.9 has any. ``"all"``: with boundary points, too,
        which count as points of the array: it grows, and indices shift by the width. In version
        0.10 these are wrapped ghosts, too: import them with ``halo="wrap"``. Neither adds points
        beyond the ends of dimensions along which the field is `trimmed`.
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
        If the protocol cannot represent the field: times, or ghosts that are wider than the block
        of the neighbour (rule G7) or, in version 0.10, of different widths on the two sides of a
        boundary between processes (G6). The same on every process.

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
    if not isinstance(u, DistributedView):
        check_type("u", u, PencilArray)
    check_version(version)
    if halo not in _HALOS:
        raise ArgumentError(f"halo={halo!r} must be one of {', '.join(map(repr, _HALOS))}")
    if undistributed not in (None, "n", "b"):
        raise ArgumentError(f"undistributed={undistributed!r} must be 'n' or 'b'")
    check_elements(u.dtype, version)
    if isinstance(u, DistributedView):
        return u.shown(version, halo).write(u.buffer, version, undistributed)
    lent: DistributedView | None = getattr(u, "lent", None)
    if lent is not None:
        with suppress(UnsupportedError):  # then as any field with this halo
            return lent.shown(version, halo).write(lent.buffer, version, undistributed)
    block, widths = (u.local, ((0, 0),) * u.pencil.ndim) if halo == "none" else (u.padded, u.halo)
    space = _space()(u.pencil, u.singletons, widths, u.trimmed, version=version, halo=halo)
    components = [BlockMap(size=n, start=0, stop=n) for n in u.components]
    flags = (*[False] * len(components), *space.padded)
    return Shown((*components, *space.maps), space.key, flags).write(block, version, undistributed)


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


def _find_space(
    pencil: Pencil,
    singletons: frozenset[int],
    widths: Widths,
    trimmed: frozenset[int],
    *,
    version: str,
    halo: ExportHalo,
) -> Shown:
    """Show the space dimensions of a field: of its padded block, or of the own one."""
    extent = pencil.extent(singletons)
    lines: list[list[DimMap]] = []
    for dim, rank in enumerate(extent.layout.parts(pencil.rank)):
        split = extent.layout.splits[dim]
        if split.replicated and split.parts > 1:
            here = np.zeros(1, np.int64)
            here.flags.writeable = False  # all exports share it
            lines.append([UnstructuredMap(size=1, nprocs=split.parts, rank=rank, indices=here)])
            continue
        if halo == "all" and split.parts > 1 and dim not in trimmed:
            _check_ends(split, widths[dim], dim, version)
        ends = {"periodic": pencil.periodic[dim] and dim not in singletons, "trim": dim in trimmed}
        ranks = range(split.parts) if any(widths[dim]) else [rank]
        lines.append([_block(split, each, widths[dim], **ends) for each in ranks])
    coords = extent.layout.parts(pencil.rank)
    mine = [
        next(part for part in line if part.rank == rank)
        for line, rank in zip(lines, coords, strict=True)
    ]
    return show(lines, mine, version, halo)


_space = PerProcess(
    lambda: lru_cache(_MOST_CACHED)(_find_space)
)  # pencils of different simulated ranks are equal


def _check_ends(split: Split, width: tuple[int, int], dim: int, version: str) -> None:
    """Check that processes at the ends of a dimension have points; else they fill no boundary."""
    for rank, points in zip((0, split.parts - 1), width, strict=True):
        start, stop = split.bounds(rank)
        if points and start == stop:
            msg = (
                f"grid rank {rank} has no points beside its padding, which is not filled there; "
                "use fewer processes along the dimension, or halo='none'"
            )
            raise UnsupportedError(msg, code="G7", dim=dim, key="padding", version=version)


def _block(
    split: Split, rank: int, width: tuple[int, int], *, periodic: bool, trim: bool
) -> BlockMap:
    """Make the map of a block with its halo."""
    start, stop = split.bounds(rank)
    lo, hi = width
    ghosts = (min(lo, start), min(hi, split.points - stop)) if trim else width
    return BlockMap(
        size=split.points,
        nprocs=split.parts,
        rank=rank,
        periodic=periodic,
        start=start,
        stop=stop,
        ghosts=ghosts,
    )


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
        check_elements(u.dtype, version)
        maps = _read_maps(dim_maps, u.ndim)
        found = _metadata(u, maps, version)
    dist = exchange_metadata(topology, found)
    space = dist.dims[len(u.components) :]
    with agreed(topology.comm, "dap.export_as"):  # one rank may have no memory for it
        buffer = np.empty([part.extent for part in maps], u.dtype)
        maps = [_with_total(part, whole) for part, whole in zip(maps, dist.dims, strict=True)]
    members, layout = range(topology.comm.size), _without_replicas(u)
    move_points(topology, layout, space, members, part=buffer, block=u.local, back=True)
    return {"__version__": version, "buffer": buffer, "dim_data": emit(maps, version)}


def _read_maps(dim_maps: object, ndim: int) -> list[DimMap]:
    if not isinstance(dim_maps, Sequence) or len(dim_maps) != ndim:
        raise ArgumentError(
            f"dim_maps must be a sequence of {ndim} maps, one for each dimension of the field"
        )
    for number, part in enumerate(dim_maps):
        check_type(f"dim_maps[{number}]", part, DimMap)
        for name in ("size", "nprocs", "rank", "start", "stop", "block_size"):
            if to_int(getattr(part, name, 0)) is None:
                raise TypeError(
                    f"dim_maps[{number}].{name} must be an integer, not {getattr(part, name)!r}"
                )
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
