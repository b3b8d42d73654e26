"""Import arrays of other programs: their memory becomes fields, padding becomes the halo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from pencils.array.allocation import Array, as_dtype
from pencils.array.operands import check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.memory import array_interface
from pencils.comm.topology import Topology, as_comm, topology_of
from pencils.dap.collective import exchange_metadata
from pencils.dap.distributions import GlobalDimMap, GlobalDist, LocalDist
from pencils.dap.exports import comm as ordered_comm
from pencils.dap.findings import UnsupportedError, as_array
from pencils.dap.maps import BlockMap, UnstructuredMap, Widths
from pencils.dap.validate import metadata
from pencils.dap.view import DistributedView, fitting_pencil
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout import Split
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

ImportHalo = Literal["keep", "drop", "wrap"]
_HALOS: tuple[str, ...] = get_args(ImportHalo)


def import_array(
    obj: object,
    comm: MPI.Intracomm | None = None,
    *,
    halo: ImportHalo = "keep",
    lenient: bool = False,
) -> PencilArray | DistributedView:
    """Import an array by the Distributed Array Protocol; copies nothing. *Collective*.

    The field shares the memory of the exporter, which is kept alive as long as the field, and is
    read-only if the exporter has made it so. Only metadata are communicated, once.

    Parameters
    ----------
    obj : object
        An object with a method ``__distarray__``, or the dictionary that this method returned on
        this process; version 0.10 or 0.9.
    comm : mpi4py.MPI.Intracomm, optional
        All processes of the array, in the order of the protocol: row-major by their coordinates.
        Default: the world.
    halo : {"keep", "drop", "wrap"}, optional
        Treatment of padding. ``"keep"``: ghosts become a halo of the width that all processes have;
        beyond the ends of the array version 0.10 has none, and the field is ``trimmed`` there.
        ``"drop"``: the field has no halo. ``"wrap"``: as ``"keep"``, but boundary points at the
        ends of a periodic dimension become ghosts, too, so that the array has fewer points.
        Otherwise, boundary points are owned points.
    lenient : bool, optional
        Whether lists are accepted instead of tuples, and extents of the other version where only
        these fit; each with a warning. A list of indices is always accepted, with a warning.

    Returns
    -------
    PencilArray or DistributedView
        A field if all dimensions consist of blocks; a dimension of one point that several processes
        own becomes a singleton, an array without dimensions has one point. A view if any dimension
        is cyclic or unstructured: `DistributedView.to_pencil` copies it to a pencil.

    Raises
    ------
    DAPError
        If a rule of the protocol is broken; the same error on every rank.
    RankDisagreementError
        If element types differ between ranks, or arguments do.
    ArgumentError, TypeError
        On every rank, if an argument is not allowed, or elements are Python objects.

    Examples
    --------
    >>> theirs = np.arange(12.0).reshape(3, 4)
    >>> u = import_array({"__version__": "0.10.0", "buffer": theirs, "dim_data": ({}, {})})
    >>> u *= 2.0
    >>> u.sum(), theirs[2, 3]
    (np.float64(132.0), np.float64(22.0))
    """
    call = "dap.import_array"
    user = as_comm(comm, call)
    dist, mine, buffer = _read(call, topology_of(user), obj, halo=halo, lenient=lenient)
    lent = _lent(user, dist, mine, buffer, halo)
    dims = [imported_dim(whole, halo) for whole in dist.dims]
    blocks = [found for found in dims if found]
    if len(blocks) < len(dims):
        return DistributedView(user, dist, mine.dims, buffer)
    if not blocks:  # an array without dimensions, on one process
        blocks, buffer = [ImportedDim(bounds=(0, 1), periodic=False)], buffer[None]
    singletons = frozenset(dim for dim, found in enumerate(blocks) if found.singleton)
    periodic = [found.periodic for found in blocks]
    pencil = fitting_pencil(user, [found.bounds for found in blocks], periodic)
    return _field(pencil, buffer, blocks, singletons, lent)


def import_onto(
    pencil: Pencil, obj: object, *, halo: ImportHalo = "keep", lenient: bool = False
) -> PencilArray:
    """Import an array with the blocks of a pencil: see `PencilArray.from_distarray`."""
    call = "PencilArray.from_distarray"
    with agreed(topology_among(pencil).comm, call) as agree:
        check_type("pencil", pencil, Pencil)
        agree(pencil=pencil)
    ordered = topology_of(ordered_comm(pencil))
    dist, mine, buffer = _read(call, ordered, obj, halo=halo, lenient=lenient)
    lead = len(dist.dims) - pencil.ndim
    space = [imported_dim(whole, halo) for whole in dist.dims[max(0, lead) :]]
    singletons = _singletons(pencil, dist, space) if lead >= 0 else None
    if singletons is None:
        raise PencilMismatchError(
            f"an array of shape {dist.global_shape} over the process grid "
            f"{dist.grid_shape} does not have the blocks of\n{pencil!r}\n"
            "use dap.import_array(), and transpose() or to_pencil()"
        )
    blocks = [one for one in space if one]
    same = all(one.periodic == here for one, here in zip(blocks, pencil.periodic, strict=True))
    lent = _lent(ordered.comm, dist, mine, buffer, halo) if same else None
    return _field(pencil, buffer, blocks, singletons, lent)


def _read(
    call: str, topology: Topology, obj: object, *, halo: object, lenient: bool
) -> tuple[GlobalDist, LocalDist, Array]:
    """Validate all exports; return the distribution, and the export and buffer of this process."""
    with agreed(topology.comm, call) as agree:
        if halo not in _HALOS:
            raise ArgumentError(f"halo={halo!r} must be one of {', '.join(map(repr, _HALOS))}")
        agree(halo=halo, lenient=bool(lenient))
        export = obj.__distarray__() if hasattr(obj, "__distarray__") else obj
        read = metadata(export, lenient=bool(lenient))
    whole = exchange_metadata(topology, read)
    assert read.dist is not None
    assert isinstance(export, Mapping)
    with agreed(topology.comm, call) as agree:
        agree(dtype=as_dtype(read.dist.dtype))
        for number, here in enumerate(read.dist.dims if halo == "wrap" else ()):
            there = whole.dims[number].parts[here.rank]
            if here.periodic and here.boundary != there.boundary:
                msg = (
                    f"got {here.boundary} boundary points, expected {there.boundary} as on the "
                    "first process of this grid rank, to convert them to ghosts; use halo='keep'"
                )
                raise UnsupportedError(msg, code="K3", dim=number, key="padding")
        buffer = as_array(export["buffer"])
        assert buffer is not None
        # An array that keeps the exporter alive; raw bytes, because not every type is described.
        described = SimpleNamespace(
            __array_interface__=array_interface(buffer), owners=(buffer, obj, export)
        )
        owned = np.asarray(described).view(buffer.dtype)
    return whole, read.dist, owned


def _singletons(
    pencil: Pencil, whole: GlobalDist, dims: Sequence[ImportedDim | None]
) -> frozenset[int] | None:
    """Dimensions of a pencil along which an array has extent 1; None if its blocks differ."""
    for components in whole.dims[: len(whole.dims) - pencil.ndim]:
        alone = components.kind == "block" and components.nprocs == 1
        if not alone or components.parts[0].ghosts != (0, 0):
            return None
    singletons = set()
    for dim, (found, split) in enumerate(zip(dims, pencil.layout.splits, strict=True)):
        if found is None or len(found.bounds) != split.parts + 1:
            return None
        cut = Split.from_bounds(found.bounds)
        if cut == split and not found.singleton:
            continue
        one_point = (cut.points, cut.parts, found.width) == (1, 1, (0, 0))
        if not found.singleton and not one_point:
            return None
        singletons.add(dim)
    return frozenset(singletons)


def _lent(
    comm: MPI.Intracomm, dist: GlobalDist, mine: LocalDist, buffer: Array, halo: ImportHalo
) -> DistributedView | None:
    """Return all that was imported, which is exported again; None if padding was dropped."""
    if halo == "drop":
        return None
    dims = tuple(_wrapped(whole) if halo == "wrap" else whole for whole in dist.dims)
    maps = [
        own if new is old else new.parts[own.rank]
        for own, old, new in zip(mine.dims, dist.dims, dims, strict=True)
    ]
    return DistributedView(comm, GlobalDist(dims), tuple(maps), buffer)


def _field(
    pencil: Pencil,
    buffer: Array,
    dims: Sequence[ImportedDim],
    singletons: frozenset[int],
    lent: DistributedView | None,
) -> PencilArray:
    """Wrap the own points of a buffer and their halo."""
    along = zip(dims, pencil.layout.parts(pencil.rank), strict=True)
    inside: list[Any] = [found.inside(part) for found, part in along]
    field = PencilArray.from_block(
        pencil,
        buffer[(Ellipsis, *inside)],
        singletons,
        tuple(found.width for found in dims),
        frozenset(dim for dim, found in enumerate(dims) if found.trimmed),
    )
    field.lent = lent
    return field


class ImportedDim(NamedTuple):
    """One dimension of an imported array: its blocks, and its padding as a halo."""

    bounds: tuple[int, ...]  # grid rank r owns the points ``bounds[r] .. bounds[r + 1] - 1``
    periodic: bool
    singleton: bool = False  # whether all processes have the same single point
    width: Widths = (0, 0)  # of the halo on all processes
    trimmed: bool = False  # whether there is no halo at the ends of the array
    below: tuple[int, ...] = (0,)  # points below the own ones in the buffer of each grid rank

    def margins(self, part: int) -> Widths:
        """Width of the halo on one grid rank."""
        (lo, hi), last = self.width, len(self.bounds) - 2
        return lo * (not self.trimmed or part > 0), hi * (not self.trimmed or part < last)

    def inside(self, part: int) -> slice:
        """Slice of the own points and their halo in the buffer of one grid rank."""
        (lo, hi), own = self.margins(part), self.below[part]
        return slice(own - lo, own + self.bounds[part + 1] - self.bounds[part] + hi)


def imported_dim(whole: GlobalDimMap, halo: ImportHalo) -> ImportedDim | None:
    """Find the blocks of a dimension; None if it does not consist of blocks."""
    # As a singleton dimension is exported: several processes have point 0.
    if whole.nprocs > 1 == whole.size and all(
        isinstance(part, UnstructuredMap) and not part.one_to_one and part.indices.tolist() == [0]
        for part in whole.parts
    ):
        one_each = tuple(range(whole.nprocs + 1))
        return ImportedDim(one_each, periodic=False, singleton=True, below=(0,) * whole.nprocs)
    if halo == "wrap":
        whole = _wrapped(whole)
    blocks = [part for part in whole.parts if isinstance(part, BlockMap)]
    if not blocks:
        return None
    ghosts = tuple(block.ghosts for block in blocks)
    # The widest halo that all processes have; or all but those at the ends of the array.
    width, trimmed = (min(lo for lo, _ in ghosts), min(hi for _, hi in ghosts)), False
    if not any(width) and len(ghosts) > 1:
        width = min(lo for lo, _ in ghosts[1:]), min(hi for _, hi in ghosts[:-1])
        trimmed = any(width)
    if halo == "drop":
        width, trimmed = (0, 0), False
    return ImportedDim(
        bounds=(*(block.start for block in blocks), blocks[-1].stop),
        periodic=whole.periodic,
        width=width,
        trimmed=trimmed,
        below=tuple(below for below, _ in ghosts),
    )


def _wrapped(whole: GlobalDimMap) -> GlobalDimMap:
    """Convert the boundary points at both ends of a periodic dimension to ghosts of the other end.

    Version 0.9 has ghosts there already, and no boundary points.
    """
    blocks = [part for part in whole.parts if isinstance(part, BlockMap)]
    if not blocks or not whole.periodic:
        return whole
    lo, hi = blocks[0].boundary[0], blocks[-1].boundary[1]
    size, last = blocks[0].size - lo - hi, len(blocks) - 1
    return GlobalDimMap(
        [
            replace(
                block,
                size=size,
                start=max(block.start - lo, 0),
                stop=min(block.stop - lo, size),
                ghosts=(
                    block.ghosts[0] + (lo if block.rank == 0 else 0),
                    block.ghosts[1] + (hi if block.rank == last else 0),
                ),
                boundary=(0, 0),
            )
            for block in blocks
        ]
    )
