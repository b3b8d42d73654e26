"""Exporting fields: their own memory, and dictionaries that say which part of the array it is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pencils.array.allocation import Array, Widths, padded_slices
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.dap.emit import check_version, emit
from pencils.dap.errors import UnsupportedError
from pencils.dap.maps import BlockMap, DimMap, UnstructuredMap
from pencils.dap.parse import is_old
from pencils.errors import ArgumentError
from pencils.layout import ProcessGrid, Split
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

Halo = Literal["none", "comm", "all"]
HALOS = ("none", "comm", "all")
_KEPT = 32  # kinds of field that are exported again and again


def export(
    field: PencilArray,
    version: str = "0.10.0",
    *,
    halo: Halo = "none",
    undistributed: Literal["n", "b"] | None = None,
) -> dict[str, Any]:
    """Describe the block of this process by the Distributed Array Protocol; copies nothing.

    What is written through the buffer is written to the field. Nothing is communicated: every
    process exports its own part. The protocol takes processes in the row-major order of their
    coordinates: `comm` gives the communicator that has them so.

    Parameters
    ----------
    field : PencilArray
        The field. Component axes come first, as dimensions that lie on one process; a singleton
        dimension that several processes hold is said to be unstructured, with index 0 on all.
    version : {"0.10.0", "0.9.0"}, optional
        Version of the protocol.
    halo : {"none", "comm", "all"}, optional
        ``"none"``: the own block. ``"comm"``: with its ghosts, as communication padding; beyond the
        ends of a periodic dimension only version 0.9 has any. ``"all"``: with boundary points, too,
        which count as points of the array: it grows, and indices shift by the width. Neither adds
        anything beyond the ends of dimensions along which the field is `trimmed`.
    undistributed : {"n", "b"}, optional
        What version 0.9 calls a dimension that lies on one process: of no distribution, the
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
        If the protocol has no words for it: times, halos that are wider than a neighbouring block
        or, in version 0.10, of different widths on both sides, wrapped ghosts with ``"all"`` in
        version 0.10. On every process alike.

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
    if halo not in HALOS:
        msg = f"halo={halo!r} must be one of {', '.join(map(repr, HALOS))}"
        raise ArgumentError(msg)
    if undistributed not in (None, "n", "b"):
        msg = f"undistributed={undistributed!r} must be 'n' or 'b'"
        raise ArgumentError(msg)
    check_elements(field, version)
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


def check_elements(field: PencilArray, version: str) -> None:
    """Check that the elements of a field can be exported.

    Raises
    ------
    UnsupportedError
        If there is no buffer for them.
    """
    if field.dtype.kind in "mM":
        msg = f"elements of type {field.dtype} have no buffer; export a view as integers"
        raise UnsupportedError(msg, code="E3", key="buffer", version=version)


def comm(field: PencilArray | Pencil) -> MPI.Intracomm:
    """Communicator whose ranks have coordinates in row-major order, as the protocol wants them.

    *Collective* the first time; that of the pencil, if its decomposed dimensions are in order.

    Parameters
    ----------
    field : PencilArray or Pencil
        What is exported, or its pencil.

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


@lru_cache(_KEPT)
def _space(
    pencil: Pencil,
    singletons: frozenset[int],
    widths: Widths,
    trimmed: frozenset[int],
    *,
    version: str,
    halo: Halo,
) -> tuple[list[DimMap], list[bool]]:
    """Say which points the exported view holds, and where all processes have to give a padding."""
    extent = pencil.extent(singletons)
    maps: list[DimMap] = []
    pads = []
    for dim, rank in enumerate(extent.layout.parts(pencil.rank)):
        split = extent.layout.splits[dim]
        periodic = pencil.periodic[dim] and dim not in singletons
        block = extent.box.start[dim], extent.box.stop[dim]
        if split.replicated and split.parts > 1:
            here = np.zeros(1, np.int64)
            here.flags.writeable = False  # all exports have it
            maps.append(UnstructuredMap(size=1, nprocs=split.parts, rank=rank, indices=here))
        else:
            wrapped = periodic and dim not in trimmed and is_old(version)
            side = _Side(dim, split, rank, widths[dim], periodic, wrapped, version)
            maps.append(side.block(block, whole=halo == "all" and dim not in trimmed))
        inside = split.parts > 1 or periodic or halo == "all"
        pads.append(is_old(version) and inside and any(widths[dim]))
    return maps, pads


class _Side(NamedTuple):
    """One dimension of a block to be exported."""

    dim: int
    split: Split
    rank: int
    width: tuple[int, int]
    periodic: bool
    wrapped: bool  # whether ghosts lie beyond the ends
    version: str

    def block(self, own: tuple[int, int], *, whole: bool) -> BlockMap:
        """Say which points are owned, ghosts and, if the whole halo counts, boundary points."""
        (lo, hi), (start, stop), size = self.width, own, self.split.points
        first, last = self.rank == 0, self.rank == self.split.parts - 1
        if lo or hi:
            _check_widths(
                self.split, self.width, wrapped=self.wrapped, old=is_old(self.version), dim=self.dim
            )
        boundary = (0, 0)
        if whole and (lo or hi) and not self.wrapped:
            if self.periodic:
                msg = "wrapped ghosts cannot be said; use version 0.9.0, or halo='comm'"
                raise UnsupportedError(
                    msg, code="K3", dim=self.dim, key="padding", version=self.version
                )
            boundary = lo * first, hi * last
            start, stop, size = start + lo * (not first), stop + lo + hi * last, size + lo + hi
        return BlockMap(
            size=size,
            nprocs=self.split.parts,
            rank=self.rank,
            periodic=self.periodic,
            ghosts=(lo if self.wrapped or not first else 0, hi if self.wrapped or not last else 0),
            boundary=boundary,
            start=start,
            stop=stop,
        )


def _check_widths(
    split: Split, width: tuple[int, int], *, wrapped: bool, old: bool, dim: int
) -> None:
    """Check that ghosts are what the protocol allows, on all processes (rules G6 and G7)."""
    (lo, hi), parts = width, split.parts
    if parts > 1 and lo != hi and not old:
        msg = f"halo {width} is given, required are equal widths; use version 0.9.0 or halo='none'"
        raise UnsupportedError(msg, code="G6", dim=dim, key="padding")
    counts = [stop - start for start, stop in map(split.bounds, range(parts))]
    below, above = (counts, counts) if wrapped else (counts[:-1], counts[1:])
    if min(below, default=lo) < lo or min(above, default=hi) < hi:
        msg = (
            f"halo {width} is given, required are widths of at most {min(counts)}, the points of "
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
