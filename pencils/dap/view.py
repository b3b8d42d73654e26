"""Arrays in any distribution: views of them, and copies from and to fields."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pencils.array.allocation import Array, HaloLike, as_dtype, as_halo
from pencils.array.operands import check_type, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.mpi import Uncopied
from pencils.comm.reduce import ReduceOp, as_reduce_op
from pencils.comm.topology import topology_of, translate
from pencils.dap.collective import exchange_metadata
from pencils.dap.dim_data import ExportHalo, Shown, check_elements, check_version, emit, show
from pencils.dap.distributions import GlobalDimMap, GlobalDist, check_points
from pencils.dap.findings import DAPError, SemanticError, UnsupportedError
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, Indices, UnstructuredMap, brief
from pencils.dap.transfer import ArrayTransfer
from pencils.dap.validate import Metadata, metadata
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout import Layout, Split
from pencils.layout.integers import to_int
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

VERSION = "0.10.0"


def fitting_pencil(
    comm: MPI.Intracomm, bounds: Sequence[tuple[int, ...]], periodic: Sequence[bool]
) -> Pencil:
    """Make the pencil with these bounds of blocks along each dimension. *Collective*."""
    grid = {dim: len(along) - 1 for dim, along in enumerate(bounds) if len(along) > 2}  # noqa: PLR2004
    return Pencil(
        [along[-1] for along in bounds],
        comm,
        decomp=list(grid) or None,
        grid=list(grid.values()) or None,
        periodic=periodic,
        splits=bounds if grid else None,
    )


def _fitting_bounds(dim: GlobalDimMap) -> tuple[int, ...]:
    """Bounds of the blocks of a dimension; of even ones if it does not consist of blocks."""
    if dim.kind == "block":
        return tuple(dim.bounds.tolist())
    lists = [part.indices for part in dim.parts if isinstance(part, UnstructuredMap)]
    largest = max((int(points.max()) for points in lists if len(points)), default=-1)
    split = Split(max(0, largest + 1) if lists else dim.size, dim.nprocs)
    return (0, *(split.bounds(part)[1] for part in range(dim.nprocs)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DistributedView(Uncopied):
    """The local part of an array in any distribution; copies nothing.

    Only `to_pencil` communicates.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        All processes of the array, in the order of the protocol.
    dist : GlobalDist
        The maps of all processes; the same on every rank.
    maps : tuple of DimMap
        The maps of this process, one for each dimension.
    buffer : numpy.ndarray
        Its elements, ghosts included.

    Examples
    --------
    >>> import pencils
    >>> from pencils.dap import CyclicMap, GlobalDimMap
    >>> comm = pencils.Pencil(5).comm
    >>> part = CyclicMap(size=5)
    >>> view = DistributedView(comm, GlobalDist((GlobalDimMap([part]),)), (part,), np.arange(5.0))
    >>> view
    <DistributedView of float64: global shape (5,), local shape (5,) on rank 0 of 1
      dimension 0: cyclic, owns 0..4 of 5 points>
    >>> view.to_pencil().sum()
    np.float64(10.0)
    """

    comm: MPI.Intracomm
    dist: GlobalDist
    maps: tuple[DimMap, ...]
    buffer: Array

    @property
    def local(self) -> Array:
        """The owned elements: a view of the buffer without ghosts."""
        view: Array = self.buffer[tuple(part.owned_slice for part in self.maps)]
        return view

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""
        return self.dist.global_shape

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of `local`."""
        return tuple(part.count for part in self.maps)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.maps)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.buffer.dtype

    @property
    def owned(self) -> tuple[range | Indices, ...]:
        """Global indices of the elements of `local` along every dimension."""
        return tuple(part.owned for part in self.maps)

    def owner(self, index: Sequence[ArrayLike]) -> tuple[Any, tuple[Any, ...]]:
        """Find the process that owns an element, and its local index there: `GlobalDist.owner`."""
        return self.dist.owner(index)

    def to_pencil(
        self,
        pencil: Pencil | None = None,
        *,
        halo: HaloLike = 0,
        reduce: ReduceOp | str | None = None,
    ) -> PencilArray:
        """Copy the array to a new field on a pencil. *Collective*.

        Parameters
        ----------
        pencil : Pencil, optional
            Over the same processes, in any order. Its shape is that of the array, but it may be
            larger along unstructured dimensions. Dimensions before those of the pencil become
            components; each must be a block on one process. Default: a new pencil with the process
            grid of the array, its blocks where it has any, and along unstructured dimensions with
            just enough points for the largest index.
        halo : int, sequence of int, or sequence of (int, int), optional
            Widths of the halo of the field; it is not filled.
        reduce : ReduceOp or {"sum", "prod", "min", "max", "land", "lor", "band", "bor"}, optional
            How the values of a point that several processes own are combined; the element type
            stays. Only points of unstructured dimensions can have several owners. The value of the
            lowest rank is first, the others follow in the order of the ranks of the pencil.
            Default: the value of the highest rank.

        Returns
        -------
        PencilArray
            The field; 0 at points without an owner.

        Raises
        ------
        PencilMismatchError
            On every rank, if the pencil has another shape or other processes.
        UnsupportedError
            On every rank, if an index does not exist in the pencil.
        ArgumentError, TypeError
            On every rank, if another argument is not allowed.
        """
        if pencil is None:
            with agreed(topology_of(self.comm).comm, "DistributedView.to_pencil") as agree:
                agree(pencil=None)
            dims = self.dist.dims
            periodic = [dim.periodic for dim in dims]
            pencil = fitting_pencil(self.comm, list(map(_fitting_bounds, dims)), periodic)
        with agreed(topology_of(self.comm).comm, "DistributedView.to_pencil") as agree:
            check_type("pencil", pencil, Pencil)
            members = translate(self.comm, pencil.topology.comm)
            if members is None or len(members) != pencil.size:
                raise PencilMismatchError(
                    f"the pencil must have the {self.comm.size} processes of the array, in any "
                    f"order:\n{pencil!r}"
                )
            agree(pencil=pencil, ranks=members, dtype=self.dtype)
            widths = as_halo(halo, pencil.ndim)
            dtype = as_dtype(self.dtype)
            op = None if reduce is None else as_reduce_op(reduce, dtype)
            agree(halo=widths, reduce=op)
            components, dims = self._split_dims(pencil)
            lists = any(dim.kind == "unstructured" for dim in dims)
            field = PencilArray.allocated(pencil, dtype, components, halo=widths, zero=lists)
            values, single = self._without_shared(dims, last=op is None)
        transfer = ArrayTransfer(pencil.layout, single, members)
        transfer.to_blocks(pencil.topology, values, field.local)
        if op is not None and single != list(dims) and 0 not in components:
            self._combine(field, dims, op)
        return field

    def _without_shared(
        self, dims: Sequence[GlobalDimMap], *, last: bool
    ) -> tuple[Array, list[GlobalDimMap]]:
        """Omit all owners of a point but the first, or the last."""
        values = self.local
        single = [dim.with_one_owner(last=last) for dim in dims]
        for axis, (dim, one) in enumerate(zip(dims, single, strict=True), -len(dims)):
            if one is not dim:
                values = values.compress(dim.owner_mask(self.maps[axis].rank, last=last), axis)
        return values, single

    def _combine(self, field: PencilArray, dims: Sequence[GlobalDimMap], op: ReduceOp) -> None:
        """Combine the values of all but the first owners with those of a field. *Collective*."""
        with agreed(field.pencil.topology.comm, "DistributedView.to_pencil"):
            parts = self.maps[-len(dims) :]
            masks = (
                dim.owner_mask(part.rank, last=False) for dim, part in zip(dims, parts, strict=True)
            )
            others = np.nonzero(~reduce(np.logical_and.outer, masks))
            owned = map(np.asarray, self.owned[-len(dims) :])
            points = [here[places] for here, places in zip(owned, others, strict=True)]
            key: tuple[Any, ...] = (..., *others)
            values = self.local[key]
        field.put_points(points, values, reduce=op)

    def _split_dims(self, pencil: Pencil) -> tuple[tuple[int, ...], tuple[GlobalDimMap, ...]]:
        """Separate components from space dimensions, and check that these fit a pencil."""
        lead = max(0, self.ndim - pencil.ndim)
        components, dims = self.dist.dims[:lead], self.dist.dims[lead:]
        whole = all(dim.kind == "block" and dim.nprocs == 1 for dim in components)
        fits = [
            dim.kind == "unstructured" or dim.size == points
            for dim, points in zip(dims, pencil.shape, strict=False)
        ]
        if not whole or len(fits) != pencil.ndim or not all(fits):
            raise PencilMismatchError(
                f"an array of shape {self.shape} does not fit the pencil; expected the shape of "
                "the pencil (any along unstructured dimensions), after components that are blocks "
                f"on one process:\n{pencil!r}"
            )
        for number, (dim, points) in enumerate(zip(dims, pencil.shape, strict=True), lead):
            for part in dim.parts:
                check_points(part, points, number)
        return tuple(dim.size for dim in components), dims

    def __distarray__(self) -> dict[str, Any]:
        """Export the local part by the Distributed Array Protocol 0.10; copies nothing.

        Only block dimensions can be periodic in that version. Ghosts are shown if it can represent
        them. `pencils.dap.export` has a choice.
        """
        check_elements(self.dtype, VERSION)
        maps = (
            replace(part, periodic=part.periodic and isinstance(part, BlockMap))
            for part in self.maps
        )
        view = replace(self, maps=tuple(maps))
        with suppress(UnsupportedError):
            return view.shown(VERSION, "comm").write(self.buffer, VERSION)
        return view.shown(VERSION, "none").write(self.buffer, VERSION)

    def shown(self, version: str, halo: ExportHalo) -> Shown:
        """Choose what to export; for the library."""
        return show([dim.parts for dim in self.dist.dims], self.maps, version, halo)

    def __repr__(self) -> str:
        text = f"<DistributedView of {self.dtype}: global shape {self.shape}, "
        text += f"local shape {self.local_shape} on rank {self.comm.rank} of {self.comm.size}"
        for number, part in enumerate(self.maps):
            owned = f"owns {brief(part.owned)} of {part.size} points"
            text += f"\n  dimension {number}: {part.kind}, {owned}"
        return f"{text}>"


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
    transfer = ArrayTransfer(_without_replicas(u), space, range(topology.comm.size))
    transfer.to_parts(topology, u.local, buffer)
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
