"""Export fields by the Distributed Array Protocol."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from pencils.array.allocation import Widths
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.comm.mpi import PerProcess
from pencils.dap.dim_data import (
    ExportHalo,
    Shown,
    Undistributed,
    check_elements,
    check_version,
    show,
)
from pencils.dap.findings import UnsupportedError
from pencils.dap.maps import BlockMap, DimMap, UnstructuredMap
from pencils.dap.view import DistributedView
from pencils.errors import ArgumentError
from pencils.layout import ProcessGrid, Split
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
