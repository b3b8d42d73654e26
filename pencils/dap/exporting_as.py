"""Exporting fields to programs that want them distributed in another way: these are copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pencils.array.operands import check_type, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.dap.emit import check_version, emit
from pencils.dap.errors import DAPError, SemanticError, UnsupportedError
from pencils.dap.exporting import check_elements
from pencils.dap.global_maps import GlobalDimMap, GlobalUnstructuredMap, check_points
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, UnstructuredMap
from pencils.dap.meeting import meet
from pencils.dap.transfer import ArrayTransfer, DimTransfer
from pencils.dap.validate import Metadata, metadata
from pencils.errors import ArgumentError
from pencils.layout import Layout, Split
from pencils.layout.integers import to_int


def export_as(
    u: PencilArray, dim_maps: Sequence[DimMap], version: str = "0.10.0"
) -> dict[str, Any]:
    """Copy a field to buffers that are distributed in any way, and export these. *Collective*.

    Parameters
    ----------
    u : PencilArray
        The field.
    dim_maps : sequence of DimMap
        What this process is to own along every dimension, components first, without padding; each
        of the components must be a block on one process. The processes lie in C order on their
        grid ranks. Indices of unstructured dimensions may be any that exist, on any number of
        processes.
    version : {"0.10.0", "0.9.0"}, optional
        Version of the protocol.

    Returns
    -------
    dict
        ``__version__``, ``buffer``, a new NumPy array, and ``dim_data``.

    Raises
    ------
    DAPError
        On every rank: the first rule that the maps of all processes break, with the rank at fault.
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
        check_elements(u, version)
        maps = _read_maps(dim_maps, u.ndim)
        said = _said(u, maps, version)
    dist = meet(topology, said)
    space = dist.dims[len(u.components) :]
    with agreed(topology.comm, "dap.export_as"):  # one rank may have no memory for it
        buffer = np.empty([part.extent for part in maps], u.dtype)
        coords = np.ix_(*(np.asarray(part.owned) for part in maps[len(u.components) :]))
        maps = [_counting_all(part, whole) for part, whole in zip(maps, dist.dims, strict=True)]
    if not any(isinstance(dim, GlobalUnstructuredMap) for dim in space):
        layout = _held_once(u)
        dims = [DimTransfer.of(split, dim) for split, dim in zip(layout.splits, space, strict=True)]
        transfer = ArrayTransfer(layout, dims, range(topology.comm.size))
        transfer.to_parts(topology, u.local, buffer)
    elif 0 not in u.components:
        u.take(coords, out=buffer)
    return {"__version__": version, "buffer": buffer, "dim_data": emit(maps, version)}


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


def _said(u: PencilArray, maps: Sequence[DimMap], version: str) -> Metadata:
    """Compare maps with a field, and read what this process is going to export as if it were given.

    What breaks a rule is told to all processes together with what they found.
    """
    try:
        for dim, part in enumerate(maps):
            _check_map(part, u, dim)
        # This stands for a buffer that is not there yet.
        buffer = np.broadcast_to(np.uint8(0), [_extent(part) for part in maps])
        said = {"__version__": version, "buffer": buffer, "dim_data": emit(maps, version)}
        return metadata(said)
    except DAPError as wrong:
        return Metadata(None, (wrong,))


def _extent(part: DimMap) -> int:
    """Points of the buffer along a dimension; any number, if the map breaks a rule."""
    if isinstance(part, UnstructuredMap):
        return part.count
    return min(max(0, part.count), part.size) if part.nprocs > 0 else 0


def _check_map(part: DimMap, u: PencilArray, dim: int) -> None:
    """Check that a field can be distributed so along one dimension."""
    points = u.shape[dim]
    if (part.ghosts, part.boundary) != ((0, 0), (0, 0)):
        msg = (
            f"{part.ghosts} ghosts and {part.boundary} boundary points are given, required are "
            "none; give blocks without padding"
        )
        raise UnsupportedError(msg, code="B5", dim=dim, key="padding")
    if dim < len(u.components) and not (isinstance(part, BlockMap) and part.nprocs == 1):
        msg = (
            f"the dimension is {part.kind} on {part.nprocs} processes, required of components is a "
            "block on one process"
        )
        raise UnsupportedError(msg, code="D3", dim=dim, key="proc_grid_size")
    if not isinstance(part, UnstructuredMap) and part.size != points:
        msg = f"{part.size} is given, required is {points}, the extent of the field"
        raise UnsupportedError(msg, code="D2", dim=dim, key="size")
    if isinstance(part, CyclicMap) and part.block_size < 1:
        msg = f"{part.block_size} is given, required is at least 1"
        raise SemanticError(msg, code="C2", dim=dim, key="block_size")
    check_points(part, points, dim)


def _counting_all(part: DimMap, whole: GlobalDimMap) -> DimMap:
    """Count points that several processes own for each of them, as exports of lists do (K5)."""
    if not isinstance(part, UnstructuredMap):
        return part
    return replace(part, size=int(whole.counts.sum()))


def _held_once(u: PencilArray) -> Layout:
    """Lay out a field as if only the first of replicas had the points of singleton dimensions."""
    splits = [
        Split(split.points, split.parts) if split.replicated else split
        for split in u.extent.layout.splits
    ]
    return replace(u.extent.layout, splits=tuple(splits))
