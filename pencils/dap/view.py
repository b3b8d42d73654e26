"""Arrays in a cyclic or unstructured distribution, which no pencil has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pencils.array.allocation import Array, HaloLike, as_dtype, as_halo
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.mpi import Uncopied
from pencils.comm.reduce import ReduceOp, as_reduce_op
from pencils.comm.topology import topology_of, translate
from pencils.dap.emit import emit
from pencils.dap.global_maps import (
    GlobalDimMap,
    GlobalDist,
    check_points,
)
from pencils.dap.maps import BlockMap, DimMap, Indices, brief
from pencils.dap.transfer import ArrayTransfer
from pencils.errors import PencilMismatchError
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

VERSION = "0.10.0"


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
    >>> view.to_pencil(pencils.Pencil(5)).sum()
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
        self, pencil: Pencil, *, halo: HaloLike = 0, reduce: ReduceOp | str | None = None
    ) -> PencilArray:
        """Copy the array to a new field on a pencil. *Collective*.

        Parameters
        ----------
        pencil : Pencil
            Over the same processes, in any order. Its shape is that of the array, but it may be
            larger along unstructured dimensions. Dimensions before those of the pencil become
            components; each must be a block on one process.
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
        with agreed(topology_of(self.comm).comm, "DistributedView.to_pencil") as agree:
            check_type("pencil", pencil, Pencil)
            members = translate(self.comm, pencil.topology.comm)
            if members is None or len(members) != pencil.size:
                msg = (
                    f"the pencil must have the {self.comm.size} processes of the array, in any "
                    f"order:\n{pencil!r}"
                )
                raise PencilMismatchError(msg)
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
        field.put(points, values, reduce=op)

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
            msg = (
                f"an array of shape {self.shape} does not fit the pencil; expected the shape of "
                "the pencil (any along unstructured dimensions), after components that are blocks "
                f"on one process:\n{pencil!r}"
            )
            raise PencilMismatchError(msg)
        for number, (dim, points) in enumerate(zip(dims, pencil.shape, strict=True), lead):
            for part in dim.parts:
                check_points(part, points, number)
        return tuple(dim.size for dim in components), dims

    def __distarray__(self) -> dict[str, Any]:
        """Export the local part by the Distributed Array Protocol 0.10; copies nothing.

        Only block dimensions can be periodic in that version.
        """
        dims = [
            replace(part, ghosts=(0, 0), periodic=part.periodic and isinstance(part, BlockMap))
            for part in self.maps
        ]
        return {"__version__": VERSION, "buffer": self.local, "dim_data": emit(dims, VERSION)}

    def __repr__(self) -> str:
        text = f"<DistributedView of {self.dtype}: global shape {self.shape}, "
        text += f"local shape {self.local_shape} on rank {self.comm.rank} of {self.comm.size}"
        for number, part in enumerate(self.maps):
            owned = f"owns {brief(part.owned)} of {part.size} points"
            text += f"\n  dimension {number}: {part.kind}, {owned}"
        return f"{text}>"
