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
from pencils.dap.collective import ExportHalo, Shown, check_elements, exchange_metadata, show, write
from pencils.dap.distributions import check_points
from pencils.dap.findings import DAPError, SemanticError, UnsupportedError
from pencils.dap.maps import (
    BlockMap,
    CyclicMap,
    DimMap,
    Undistributed,
    UnstructuredMap,
    check_version,
    emit,
)
from pencils.dap.validate import Metadata, metadata
from pencils.dap.view import DistributedView, move_points
from pencils.errors import ArgumentError
from pencils.layout import ProcessGrid
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
        over several processes is exported as unstructured, with index 0 on all. Results of
        `import_array` are exported as they were imported, with padding of any width and its
        boundary points.
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
        return write(u.shown(version, halo), u.buffer, version, undistributed)
    lent: DistributedView | None = getattr(u, "lent", None)
    if lent is not None:
        with suppress(UnsupportedError):  # then as any field with this halo
            return write(lent.shown(version, halo), lent.buffer, version, undistributed)
    block, widths = (u.local, ((0, 0),) * u.pencil.ndim) if halo == "none" else (u.padded, u.halo)
    space, key, padded = _space()(
        u.pencil, u.singletons, widths, u.trimmed, version=version, halo=halo
    )
    maps = (*(BlockMap(size=n, start=0, stop=n) for n in u.components), *space)
    flags = (*[False] * len(u.components), *padded)
    return write((maps, key, flags), block, version, undistributed)


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
    layout = pencil.extent(singletons).layout
    coords = layout.parts(pencil.rank)
    lines: list[list[DimMap]] = []
    for dim, (rank, split) in enumerate(zip(coords, layout.splits, strict=True)):
        place: dict[str, Any] = {"size": split.points, "nprocs": split.parts}
        if split.replicated and split.parts > 1:
            here = np.zeros(1, np.int64)
            here.flags.writeable = False  # all exports share it
            lines.append([UnstructuredMap(rank=rank, indices=here, **place)])
            continue
        lo, hi = widths[dim]
        shown = halo == "all" and split.parts > 1 and dim not in trimmed
        for end, points in ((0, lo), (split.parts - 1, hi)) if shown else ():
            start, stop = split.bounds(end)
            if points and start == stop:
                msg = (
                    f"grid rank {end} has no points beside its padding, which is not filled there; "
                    "use fewer processes along the dimension, or halo='none'"
                )
                raise UnsupportedError(msg, code="G7", dim=dim, key="padding", version=version)
        place["periodic"] = pencil.periodic[dim] and dim not in singletons
        line: list[DimMap] = []
        for each in range(split.parts) if lo or hi else [rank]:
            start, stop = split.bounds(each)
            ghosts = (min(lo, start), min(hi, split.points - stop)) if dim in trimmed else (lo, hi)
            line.append(BlockMap(rank=each, start=start, stop=stop, ghosts=ghosts, **place))
        lines.append(line)
    mine = [
        next(part for part in line if part.rank == rank)
        for line, rank in zip(lines, coords, strict=True)
    ]
    return show(lines, mine, version, halo)


# Pencils of different simulated ranks are equal.
_space = PerProcess(lambda: lru_cache(_MOST_CACHED)(_find_space))


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
        maps = _as_maps(dim_maps, u.ndim)
        found = _metadata(u, maps, version)
    dist = exchange_metadata(topology, found)
    space = dist.dims[len(u.components) :]
    with agreed(topology.comm, "dap.export_as"):  # one rank may have no memory for it
        buffer = np.empty([part.extent for part in maps], u.dtype)
        for dim, part in enumerate(maps):  # whose size counts a point once for every owner (K5)
            if isinstance(part, UnstructuredMap):
                maps[dim] = replace(part, size=int(dist.dims[dim].counts.sum()))
    # Only the first process has the replicated singletons.
    splits = tuple(
        replace(split, rule="first") if split.replicated else split
        for split in u.extent.layout.splits
    )
    layout, members = replace(u.extent.layout, splits=splits), range(topology.comm.size)
    move_points(topology, layout, space, members, part=buffer, block=u.local, back=True)
    return {"__version__": version, "buffer": buffer, "dim_data": emit(maps, version)}


def _as_maps(dim_maps: object, ndim: int) -> list[DimMap]:
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
    points, lists = u.shape[dim], isinstance(part, UnstructuredMap)
    alone = isinstance(part, BlockMap) and part.nprocs == 1
    padding = (
        f"got {part.ghosts} ghosts and {part.boundary} boundary points, expected "
        "none; give blocks without padding"
    )
    components = (
        f"got a {part.kind} dimension on {part.nprocs} processes, expected a block on one "
        "process for components"
    )
    size = f"got {part.size}, expected {points}, the extent of the field"
    for broken, code, key, text in (
        ((part.ghosts, part.boundary) != ((0, 0), (0, 0)), "B5", "padding", padding),
        (dim < len(u.components) and not alone, "D3", "proc_grid_size", components),
        (not lists and part.size != points, "D2", "size", size),
    ):
        if broken:
            raise UnsupportedError(text, code=code, dim=dim, key=key)
    if isinstance(part, CyclicMap) and part.block_size < 1:
        text = f"got {part.block_size}, expected at least 1"
        raise SemanticError(text, code="C2", dim=dim, key="block_size")
    check_points(part, points, dim)
