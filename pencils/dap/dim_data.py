"""Write the ``dim_data`` of an export: which padding is shown, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.dap.collective import check_neighbours
from pencils.dap.findings import UnsupportedError, VersionError
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, UnstructuredMap, Widths
from pencils.dap.validate import is_old, split_padding

VERSIONS = ("0.9.0", "0.10.0")
ExportHalo = Literal["none", "comm", "all"]
Undistributed = Literal["n", "b"]


class Shown(NamedTuple):
    """The part of a buffer that is exported."""

    maps: tuple[DimMap, ...]
    key: tuple[Any, ...]  # a slice for each dimension of the buffer
    padded: tuple[bool, ...]  # along which dimensions any process has padding

    def write(
        self, buffer: Array, version: str, undistributed: Undistributed | None = None
    ) -> dict[str, Any]:
        """Write the export of a buffer."""
        dims = emit(self.maps, version, padded=self.padded, undistributed=undistributed)
        return {"__version__": version, "buffer": buffer[self.key], "dim_data": dims}


def show(
    lines: Sequence[Sequence[DimMap]], mine: Sequence[DimMap], version: str, halo: ExportHalo
) -> Shown:
    """Choose the padding to export, of that which the buffers of all processes have.

    `lines` has the maps of all processes along each dimension; their ghosts may be beyond its ends,
    too: of one that is periodic, or points that can become boundary points. `mine` are the maps of
    this process, whose boundary points may differ. All processes raise UnsupportedError alike if
    the version cannot represent ghosts that are shown.
    """
    maps: list[DimMap] = []
    key: list[slice] = []
    padded: list[bool] = []
    for dim, (line, own) in enumerate(zip(lines, mine, strict=True)):
        if not isinstance(own, BlockMap):
            maps.append(own)
            key.append(slice(None))
            padded.append(False)
            continue
        blocks = [part for part in line if isinstance(part, BlockMap)]
        beyond = blocks[0].ghosts[0], blocks[-1].ghosts[1]
        shown = [_show_block(block, beyond, version, halo) for block in blocks]
        _check_ghosts(shown, version, dim)
        padded.append(is_old(version) and any(any(block.padding) for block in shown))
        if is_old(version):  # whose key is on all processes or on none, which `line` tells
            own = next(block for block in blocks if block.rank == own.rank)  # noqa: PLW2901
        part = _show_block(own, beyond, version, halo)
        below = own.ghosts[0] - part.ghosts[0] - max(0, part.boundary[0] - own.boundary[0])
        maps.append(part)
        key.append(slice(below, below + part.extent))
    return Shown(tuple(maps), (..., *key), tuple(padded))


def _show_block(own: BlockMap, beyond: Widths, version: str, halo: ExportHalo) -> BlockMap:
    """Show the padding of a block; `beyond` is the width of that beyond the ends of the array."""
    if halo == "none":
        return replace(own, ghosts=(0, 0), boundary=(0, 0))
    if own.periodic and is_old(version):  # all padding is ghosts
        return replace(own, boundary=(0, 0))
    lo, hi = beyond if halo == "all" else (0, 0)
    first, last = own.rank == 0, own.rank == own.nprocs - 1
    return replace(
        own,
        size=own.size + lo + hi,
        start=own.start + lo * (not first),
        stop=own.stop + lo + hi * last,
        ghosts=(own.ghosts[0] * (not first), own.ghosts[1] * (not last)),
        boundary=(own.boundary[0] + lo * first, own.boundary[1] + hi * last),
    )


def _check_ghosts(blocks: Sequence[BlockMap], version: str, dim: int) -> None:
    """Check the ghosts between the processes along a dimension (rules B6, G6 and G7)."""
    for error in check_neighbours(blocks, old=is_old(version)):
        hint = "version 0.9.0" if error.code == "G6" else "fewer processes along the dimension"
        msg = f"{error.text}; use {hint}, or halo='none'"
        raise UnsupportedError(msg, code=error.code, dim=dim, key="padding", version=version)
    for block in blocks if is_old(version) else ():
        if block.start == block.size and any(block.ghosts):
            msg = (
                f"grid rank {block.rank} has no points, expected no ghosts there; use version "
                "0.10.0, fewer processes along the dimension, or halo='none'"
            )
            raise UnsupportedError(msg, code="B6", dim=dim, key="padding", version=version)


def check_elements(dtype: np.dtype[Any], version: str) -> None:
    """Raise UnsupportedError unless elements of a type have a buffer."""
    if dtype.kind in "mM":
        msg = f"elements of type {dtype} have no buffer; export a view as integers"
        raise UnsupportedError(msg, code="E3", key="buffer", version=version)


def emit(
    dims: Sequence[DimMap],
    version: str = "0.10.0",
    *,
    padded: Sequence[bool] | None = None,
    undistributed: Undistributed | None = None,
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
    old = is_old(version)
    entry: dict[str, Any] = {"size": dim.size}
    entry |= {"proc_grid_size": dim.nprocs, "proc_grid_rank": dim.rank}
    match dim:
        case BlockMap() if old and dim.nprocs == 1 and alone == "n":
            entry = {"dist_type": "n", "size": dim.size}
        case BlockMap():
            lo, hi = (0, 0) if old else dim.ghosts
            entry |= {"dist_type": "b", "start": dim.start - lo, "stop": dim.stop + hi}
        case CyclicMap():
            entry |= {"dist_type": "c", "start": dim.start}
            entry |= {"block_size": dim.block_size} if dim.block_size > 1 else {}
        case UnstructuredMap():
            entry |= {"dist_type": "u", "indices": dim.indices}
            entry |= {"one_to_one": True} if dim.one_to_one else {}
    if isinstance(dim, BlockMap):
        wrapped = dim.periodic and old
        # A reader must be able to separate ghosts and boundary points again.
        found = split_padding(dim.padding, dim.rank, dim.nprocs, wrapped=wrapped)
        if found != (dim.ghosts, dim.boundary):
            msg = (
                f"ghosts {dim.ghosts} and boundary points {dim.boundary} on grid rank {dim.rank} "
                f"of {dim.nprocs} cannot be represented; expected ghosts "
                f"{'everywhere' if wrapped else 'inside'} and boundary points "
                f"{'nowhere' if wrapped else 'at the edges of the process grid'}: "
                "use the other version, or a view without the padding"
            )
            raise UnsupportedError(msg, code="K3", dim=number, key="padding", version=version)
        entry |= {"padding": dim.padding} if padded or any(dim.padding) else {}
    elif dim.periodic and not old:
        msg = f"a periodic {dim.kind} dimension cannot be represented; use version 0.9.0"
        raise UnsupportedError(msg, code="B7", dim=number, key="periodic", version=version)
    return entry | ({"periodic": True} if dim.periodic else {})
