"""Importing arrays of other programs: their memory, as fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.array.normalize import as_dtype
from pencils.array.operands import check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed, read_comm
from pencils.comm.memory import array_interface
from pencils.comm.topology import Topology, topology_of
from pencils.dap.dist import GlobalDist, LocalDist
from pencils.dap.errors import UnsupportedError
from pencils.dap.exporting import comm as ordered_comm
from pencils.dap.global_maps import GlobalBlockMap, GlobalDimMap
from pencils.dap.landing import HALOS, Halo, Landing, land
from pencils.dap.meeting import meet
from pencils.dap.report import as_array
from pencils.dap.validate import metadata
from pencils.dap.view import DistributedView
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout import Split
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


def import_array(
    obj: object,
    comm: MPI.Intracomm | None = None,
    *,
    halo: Halo = "keep",
    lenient: bool = False,
) -> PencilArray | DistributedView:
    """Import an array by the Distributed Array Protocol; copies nothing. *Collective*.

    The field has the memory of the exporter, which lives as long as the field does: what is written
    to one is seen in the other, unless the exporter has made it read-only. Only what the exports
    say is communicated, once.

    Parameters
    ----------
    obj : object
        What has a method ``__distarray__``, or the dictionary that it returned on this process. Of
        version 0.10 or 0.9.
    comm : mpi4py.MPI.Intracomm, optional
        All processes of the array, in the order of the protocol: row-major by their coordinates.
        Default: the world.
    halo : {"keep", "drop", "wrap"}, optional
        What becomes of padding. ``"keep"``: ghosts become a halo, as wide as all processes have it;
        beyond the ends of the array version 0.10 has none, and the field is ``trimmed`` there.
        ``"drop"``: the field has no halo. ``"wrap"``: as ``"keep"``, and boundary points at the
        ends of a periodic dimension are taken for ghosts, too, so that the array has fewer points.
        Boundary points are owned otherwise.
    lenient : bool, optional
        Whether lists are read for tuples and buffers, and extents as in the other version where
        only that fits; each with a warning.

    Returns
    -------
    PencilArray or DistributedView
        A field if all dimensions are cut into blocks; a dimension whose only point several
        processes hold becomes a singleton, an array without dimensions has one point. A view if
        any dimension is cyclic or unstructured: `DistributedView.to_pencil` moves it to a pencil.

    Raises
    ------
    DAPError
        If a rule of the protocol is broken; with the same text on every rank.
    RankDisagreementError
        If element types differ between ranks, or arguments do.
    ArgumentError, TypeError
        On every rank, if an argument is not allowed, or elements are Python objects.

    Examples
    --------
    >>> import numpy as np
    >>> theirs = np.arange(12.0).reshape(3, 4)
    >>> u = import_array({"__version__": "0.10.0", "buffer": theirs, "dim_data": ({}, {})})
    >>> u *= 2.0
    >>> u.sum(), theirs[2, 3]
    (np.float64(132.0), np.float64(22.0))
    """
    call = "dap.import_array"
    user = read_comm(comm, call)
    found = _meet(call, topology_of(user), obj, halo=halo, lenient=lenient)
    landings = [land(whole, halo) for whole in found.whole.dims]
    blocks = [landing for landing in landings if landing]
    if len(blocks) < len(landings):
        return DistributedView(user, found.whole, found.mine.dims, found.buffer)
    buffer = found.buffer
    if not blocks:  # an array without dimensions, which lies on one process
        blocks, buffer = [Landing(bounds=(0, 1), periodic=False)], buffer[None]
    singletons = frozenset(dim for dim, landing in enumerate(blocks) if landing.singleton)
    return _field(_pencil(blocks, user), buffer, blocks, singletons)


def import_onto(
    pencil: Pencil, obj: object, *, halo: Halo = "keep", lenient: bool = False
) -> PencilArray:
    """Import an array that has the blocks of a pencil: see `PencilArray.from_distarray`."""
    call = "PencilArray.from_distarray"
    with agreed(topology_among(pencil).comm, call) as same:
        check_type("pencil", pencil, Pencil)
        same(pencil=pencil)
    found = _meet(call, topology_of(ordered_comm(pencil)), obj, halo=halo, lenient=lenient)
    lead = len(found.whole.dims) - pencil.ndim
    space = [land(whole, halo) for whole in found.whole.dims[max(0, lead) :]]
    singletons = _singletons(pencil, found.whole, space) if lead >= 0 else None
    if singletons is None:
        msg = (
            f"an array of shape {found.whole.global_shape} over the process grid "
            f"{found.whole.grid_shape} does not have the blocks of\n{pencil!r}\n"
            "use dap.import_array(), and transpose() or to_pencil()"
        )
        raise PencilMismatchError(msg)
    return _field(pencil, found.buffer, [one for one in space if one], singletons)


class _Found(NamedTuple):
    """What was imported: all that the exports say, what this one says, and its buffer."""

    whole: GlobalDist
    mine: LocalDist
    buffer: Array


class _Owned:
    """A buffer, and the exporter that it belongs to."""

    def __init__(self, buffer: Array, exporter: object) -> None:
        # The length of elements is enough: not every type can be described.
        self.__array_interface__ = array_interface(buffer)
        self.owners = buffer, exporter


def _meet(call: str, topology: Topology, obj: object, *, halo: object, lenient: bool) -> _Found:
    """Read what all processes import, and check it. *Collective*."""
    with agreed(topology.comm, call) as same:
        if halo not in HALOS:
            msg = f"halo={halo!r} must be one of {', '.join(map(repr, HALOS))}"
            raise ArgumentError(msg)
        same(halo=halo, lenient=bool(lenient))
        export = obj.__distarray__() if hasattr(obj, "__distarray__") else obj
        read = metadata(export, lenient=bool(lenient))
    whole = meet(topology, read)
    assert read.dist is not None
    assert isinstance(export, Mapping)
    with agreed(topology.comm, call) as same:
        same(dtype=as_dtype(read.dist.dtype))
        if halo == "wrap":
            _check_ends(read.dist, whole)
        buffer = as_array(export["buffer"])
        assert buffer is not None
        owned = np.asarray(_Owned(buffer, (obj, export))).view(buffer.dtype)
    return _Found(whole, read.dist, owned)


def _check_ends(mine: LocalDist, whole: GlobalDist) -> None:
    """Check that all processes at an end of the array have as many boundary points there."""
    for number, (here, all_of_them) in enumerate(zip(mine.dims, whole.dims, strict=True)):
        there = all_of_them.parts[here.rank]
        if here.periodic and here.boundary != there.boundary:
            msg = (
                f"{here.boundary} boundary points are given, required are {there.boundary} as on "
                "the first process of this grid rank, to be taken for ghosts; use halo='keep'"
            )
            raise UnsupportedError(msg, code="K3", dim=number, key="padding")


def _pencil(landings: Sequence[Landing], comm: MPI.Intracomm) -> Pencil:
    """Make the pencil that has these blocks. *Collective*."""
    far = [dim for dim, landing in enumerate(landings) if landing.nprocs > 1]
    return Pencil(
        [landing.bounds[-1] for landing in landings],
        comm,
        decomp=far or None,
        grid=[landings[dim].nprocs for dim in far] or None,
        periodic=[landing.periodic for landing in landings],
        splits=[landing.bounds for landing in landings] if far else None,
    )


def _singletons(
    pencil: Pencil, whole: GlobalDist, landings: Sequence[Landing | None]
) -> frozenset[int] | None:
    """Dimensions of a pencil along which an array has extent 1; None if other blocks differ."""
    lead = whole.dims[: len(whole.dims) - pencil.ndim]
    if not all(_is_whole(components) for components in lead):
        return None
    singletons = set()
    for dim, (landing, split) in enumerate(zip(landings, pencil.layout.splits, strict=True)):
        if landing is None or landing.nprocs != split.parts:
            return None
        cut = Split.from_bounds(landing.bounds)
        if cut == split and not landing.singleton:
            continue
        one_point = (cut.points, cut.parts, landing.width) == (1, 1, (0, 0))
        if not landing.singleton and not one_point:
            return None
        singletons.add(dim)
    return frozenset(singletons)


def _is_whole(dim: GlobalDimMap) -> bool:
    """Whether a dimension lies on one process, without ghosts."""
    return isinstance(dim, GlobalBlockMap) and dim.nprocs == 1 and dim.parts[0].ghosts == (0, 0)


def _field(
    pencil: Pencil, buffer: Array, landings: Sequence[Landing], singletons: frozenset[int]
) -> PencilArray:
    """Wrap the own points of a buffer and their halo."""
    parts = pencil.layout.parts(pencil.rank)
    along = zip(landings, parts, strict=True)
    inside: list[Any] = [landing.inside(part) for landing, part in along]
    return PencilArray.from_block(
        pencil,
        buffer[(Ellipsis, *inside)],
        singletons,
        tuple(landing.width for landing in landings),
        frozenset(dim for dim, landing in enumerate(landings) if landing.trimmed),
    )
