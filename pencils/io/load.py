"""Read fields from an HDF5 file onto any pencil, all ranks together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.debug import checks
from pencils.array.normalize import HaloLike, as_dtype
from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.comm.reduce import allreduce
from pencils.io.boundary import copy_common, has_room, widened, with_boundary
from pencils.io.checkpoint import Checkpoint
from pencils.io.checksum import checksum, checksum_box
from pencils.io.dataset_info import DatasetInfo, damaged
from pencils.io.file_info import FileInfo, inspect_on_root
from pencils.io.options import read_names, read_path
from pencils.io.progress import Told, shown
from pencils.io.slabs import PIECE_BYTES, Slabs, runs
from pencils.io.targets import read_targets
from pencils.io.values import decode
from pencils.layout import Box
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI
    from pencils.io.hdf5 import Found


class Landing(NamedTuple):
    """One field on its way: what the file says, what its bytes fill, what the user gets.

    The last two are one unless points or elements have to be converted.
    """

    entry: DatasetInfo
    raw: PencilArray
    field: PencilArray


def load(
    path: str | os.PathLike[str],
    template: Pencil | Mapping[str, Any] | None = None,
    names: str | Iterable[str] | None = None,
    *,
    halo: HaloLike | None = None,
    dtype: DTypeLike | None = None,
    into: PencilArray | Mapping[str, PencilArray] | None = None,
    verify: bool = True,
    edited: bool = False,
    external: bool = False,
) -> Checkpoint:
    """Read fields, and what belongs to them, from an HDF5 file. *Collective*.

    The file may come from `save`, on any number of processes and any decomposition, or from other
    tools. Leading axes beyond the dimensions of the pencil become components; axes of extent 1
    where the pencil has more points become singleton dimensions.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0.
    template : Pencil or mapping of str to PencilArray or Pencil, optional
        Where the points go. Fields by name also say what is expected: components, singletons,
        dtype, periodicity and shape must be theirs, and so are halo widths by default. Values in
        the mapping are passed over, so that what was given to `save` will do.
    names : str or iterable of str, optional
        What to read, like ``"u"`` or ``"fluid/u"``. Default: all values, and all fields for which
        there is a place.
    halo : int, sequence of int, or sequence of (int, int), optional
        Halo widths of new fields, along the dimensions that are not singletons. Boundary points
        that were stored are filled in; other halo points are zero.
    dtype : dtype, optional
        Element type of all fields, converted where necessary; real values do not become integers,
        nor complex ones real. Default: as in the file.
    into : PencilArray or mapping of str to PencilArray, optional
        Fields to be filled in place; a single one goes with a single name. Ghosts keep their
        values. After an error they may hold anything.
    verify : bool, optional
        Whether to compare the file with its list of contents, before HDF5 looks into it, and with
        its checksums, if it has them.
    edited : bool, optional
        Whether to read a file of pencils that another program has changed or rewritten since, and
        which has lost its list of contents by that. Checksums are compared all the same.
    external : bool, optional
        Whether to read data that lie in other files: external links, external storage, virtual
        datasets. The index of a `TimeSeries` refers to the snapshots beside it without that.

    Returns
    -------
    Checkpoint
        Fields and values by name, and ``.step``, ``.time``, ``.attrs``.

    Raises
    ------
    CheckpointError
        On every rank, if the file is not whole or not a regular file, was changed by another
        program, has data in other files, lacks a name, or a field does not fit its place.
    OSError
        On every rank, if the file cannot be read; ``FileNotFoundError`` if there is none.
    ArgumentError, PencilMismatchError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks.

    Examples
    --------
    >>> import tempfile, pencils
    >>> pen = pencils.Pencil((4, 6))
    >>> v = pencils.zeros(pen)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pencils.save(f"{folder}/run.h5", {"u": pencils.ones(pen), "dt": 0.1}, time=0.5)
    ...     state = pencils.load(f"{folder}/run.h5", pen.with_(decomp=1))
    ...     _ = pencils.load(f"{folder}/run.h5", names="u", into=v)
    >>> state["u"].sum(), state["dt"], state.time, v.sum()
    (np.float64(24.0), 0.1, 0.5, np.float64(24.0))
    """
    comm = topology_among(*_pencils(template), *_pencils(into)).comm
    with agreed(comm, "load") as same:
        given, wanted = read_path(path), read_names(names)
        kind = None if dtype is None else as_dtype(dtype)
        same(path=given, names=wanted, dtype=kind, verify=bool(verify))
        same(edited=bool(edited), external=bool(external))
        places = read_targets(template, into, wanted, halo, comm.size)
        same(template=places)
    look = partial(
        _look,
        names=wanted,
        among=places.names,
        verify=bool(verify),
        access=(bool(edited), bool(external)),
    )
    file = inspect_on_root(comm, "load", given, look)
    with agreed(comm, "load"):
        fields = [places.make(entry, kind, file.path) for entry in file.found.fields]
        values = {name: decode(value) for name, value in file.found.values.items()}
    landings = [_land(*pair) for pair in zip(file.found.fields, fields, strict=True)]
    sums = _read_raw(comm, file, [one for one in landings if one.entry.offset is not None])
    with agreed(comm, "load"):
        try:
            sums |= _read_boxes(file.path, [one for one in landings if one.entry.offset is None])
        finally:  # also the reason, if that failed
            if comm.rank == 0:
                file.identity.check_unchanged(file.path)
    _check_sums(comm, file.path, landings, sums)
    for landing in landings:
        _settle(landing)
    results = {landing.entry.name: landing.field for landing in landings}
    return Checkpoint(
        given,
        {**results, **values},
        file.found.attrs,
        step=file.found.step,
        time=file.found.time,
    )


def _pencils(where: object) -> list[object]:
    found = [where]
    if isinstance(where, Mapping):
        found = [where[name] for name in sorted(where, key=str)]  # each rank may have its own order
    return [thing for thing in found if isinstance(thing, PencilArray | Pencil)]


def _look(
    path: str,
    names: list[str] | None,
    among: list[str] | None,
    *,
    verify: bool,
    access: tuple[bool, bool],
) -> Found:
    from pencils.io import hdf5  # ranks other than this one seldom need h5py

    return hdf5.inspect(path, names, among, verify=verify, access=hdf5.Access(*access))


def _land(entry: DatasetInfo, field: PencilArray) -> Landing:
    """Find memory for the bytes of a field: its own, if they need no conversion. *Collective*."""
    pencil = field.pencil
    if entry.boundary:
        pencil = widened(pencil, entry.boundary)
        if entry.dtype == field.dtype and has_room(field, entry.boundary):
            return Landing(entry, with_boundary(field, pencil, entry.boundary), field)
    elif entry.dtype == field.dtype:
        return Landing(entry, field, field)
    with agreed(pencil.topology.comm, "load"):  # one rank may have no memory for it
        raw = PencilArray.allocated(pencil, entry.dtype, field.components, field.singletons)
    return Landing(entry, raw, field)


def _settle(landing: Landing) -> None:
    """Convert what has not been read into place."""
    entry, raw, field = landing
    if raw is not field and not np.may_share_memory(raw.local, field.padded):
        if entry.boundary:
            copy_common(raw, field, entry.boundary)
        else:
            np.copyto(field.local, raw.local, casting="same_kind")
    if checks.on:
        field.mark_written()


def _read_raw(
    comm: MPI.Intracomm, file: FileInfo[Found], landings: Sequence[Landing]
) -> dict[str, int]:
    """Read fields whose bytes lie in one piece: slabs, then the exchange. Return checksums."""
    sums: dict[str, int] = {}
    if not landings:
        return sums
    share = sum(landing.entry.nbytes for landing in landings) // comm.size
    with (
        shown("load", file.path, share, rank=comm.rank) as moved,
        closing(Slabs()) as slabs,
        SharedFile(comm, file.path) as shared,
    ):
        file.check_in_place(comm, "load")
        for entry, raw, _ in landings:
            slab = slabs.into(raw)
            with agreed(comm, "load"):  # one rank may have no memory for it
                sums[entry.name] = _read_slab(shared, slab, entry, moved)
                shared.complain()
            slabs.spread(slab, raw)
    return sums


def _read_slab(file: SharedFile, slab: PencilArray, entry: DatasetInfo, moved: Told) -> int:
    total, most = 0, max(1, PIECE_BYTES // entry.dtype.itemsize)
    summed = _is_summed(entry, slab)
    for run in runs(slab):
        offset = run.offset
        for box in Box.of_shape(run.block.shape).pieces(most):
            index: tuple[Any, ...] = (*box.slices(), ...)  # an array even of a single element
            part = run.block[index]
            piece = part if part.flags.c_contiguous else np.empty(part.shape, part.dtype)
            file.read((entry.offset or 0) + offset, piece)
            if summed:
                total += checksum(piece, offset // piece.dtype.itemsize)
            if piece is not part:
                np.copyto(part, piece)
            moved(piece.nbytes)
            offset += piece.nbytes
    return total % 2**64


def _read_boxes(path: str, landings: Sequence[Landing]) -> dict[str, int]:
    """Read this rank's box of fields that only HDF5 can read: chunked, compressed, virtual."""
    sums: dict[str, int] = {}
    if not any(landing.entry.nbytes for landing in landings):
        return sums
    from pencils.io import hdf5

    with hdf5.opened(path) as file:
        for entry, raw, _ in landings:
            if raw.local.size:
                raw.local[...] = hdf5.read_box(file, entry.name, raw.local_slices)
            if _is_summed(entry, raw):
                start = [part.start for part in raw.local_slices]
                sums[entry.name] = checksum_box(raw.local, start, entry.shape)
    return sums


def _is_summed(entry: DatasetInfo, field: PencilArray) -> bool:
    """Whether what this rank reads of a field counts in its checksum."""
    return entry.checksum is not None and field.extent.layout.is_first_replica(field.pencil.rank)


def _check_sums(
    comm: MPI.Intracomm, path: str, landings: Sequence[Landing], sums: Mapping[str, int]
) -> None:
    """Compare checksums with those in the file. *Collective*."""
    entries = [one.entry for one in landings if one.entry.checksum is not None]
    if not entries:
        return
    mine = np.array([sums.get(entry.name, 0) for entry in entries], np.uint64)
    pairs = zip(entries, allreduce(comm, mine, np.add), strict=True)
    bad = [entry.name for entry, total in pairs if entry.checksum != total]
    if bad:
        raise damaged(path, bad)
