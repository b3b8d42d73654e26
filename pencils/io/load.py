"""Read fields from an HDF5 file onto any pencil, all ranks together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pencils.array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.errors import CheckpointError
from pencils.io.arguments import read_name, read_path
from pencils.io.checkpoint import Checkpoint
from pencils.io.entry import Entry
from pencils.io.slabs import Slabs, runs
from pencils.operands import check_type, topology_among
from pencils.pencil import Pencil
from pencils.storage import HaloSpec, Widths, read_halo

if TYPE_CHECKING:
    from mpi4py import MPI

Pairs = Sequence[tuple[Entry, PencilArray]]


class Contents(NamedTuple):
    """What rank 0 found in a file; `identity` tells it from one that takes its name later."""

    path: str
    identity: tuple[int, ...]
    entries: list[Entry]
    attrs: dict[str, Any]


def load(
    path: str | os.PathLike[str],
    pencil: Pencil,
    names: str | Iterable[str] | None = None,
    *,
    halo: HaloSpec = 0,
) -> Checkpoint:
    """Read fields from an HDF5 file. *Collective*.

    The file may come from `save`, on any number of processes and any decomposition, or from other
    tools. Leading axes beyond the dimensions of the pencil become components; axes of extent 1
    where the pencil has more points become singleton dimensions.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0.
    pencil : Pencil
        Where the points go.
    names : str or iterable of str, optional
        The fields to read, like ``"u"`` or ``"fluid/u"``. Default: all.
    halo : int, sequence of int, or sequence of (int, int), optional
        Halo widths of the fields, along the dimensions that are not singletons; halo points are
        left at zero.

    Returns
    -------
    Checkpoint
        The fields by name, and ``.attrs``.

    Raises
    ------
    CheckpointError
        On every rank, if the file is not whole, lacks a name, or a field does not fit the pencil.
    OSError
        On every rank, if the file cannot be read; ``FileNotFoundError`` if there is none.
    ArgumentError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks.

    Examples
    --------
    >>> import tempfile, pencils
    >>> pen = pencils.Pencil((4, 6))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pencils.save(f"{folder}/run.h5", {"u": pencils.ones(pen)}, attrs={"time": 0.5})
    ...     state = pencils.load(f"{folder}/run.h5", pen.with_(decomp=1))
    >>> state["u"].sum(), state.attrs["time"]
    (np.float64(24.0), np.float64(0.5))
    """
    comm = topology_among(pencil).comm
    with agreed(comm, "load") as same:
        check_type("pencil", pencil, Pencil)
        given, wanted = read_path(path), _read_names(names)
        same(path=given, names=wanted)
        widths = read_halo(halo, pencil.ndim)
        same(pencil=pencil, halo=widths)
    found: Contents | None = None
    with agreed(comm, "load"):
        if comm.rank == 0:
            found = _inspect(os.path.realpath(given), wanted)
    contents: Contents = comm.bcast(found)
    with agreed(comm, "load"):
        pairs = [(e, _make_field(pencil, e, widths, contents.path)) for e in contents.entries]
    _read_raw(comm, contents.path, [pair for pair in pairs if pair[0].offset is not None])
    with agreed(comm, "load"):
        _read_boxes(contents.path, [pair for pair in pairs if pair[0].offset is None])
        if comm.rank == 0:
            _check_identity(contents)
    return Checkpoint(given, {entry.name: field for entry, field in pairs}, contents.attrs)


def _read_names(names: object) -> list[str] | None:
    if names is None:
        return None
    if not isinstance(names, Iterable):
        msg = f"names must be a str, several of them, or None for all fields, not {names!r}"
        raise TypeError(msg)
    return [read_name(name) for name in ([names] if isinstance(names, str) else names)]


def _inspect(path: str, names: list[str] | None) -> Contents:
    from pencils.io import hdf5  # ranks other than this one seldom need h5py

    entries, attrs = hdf5.inspect(path, names)
    return Contents(path, _identity(path), entries, attrs)


def _identity(path: str) -> tuple[int, ...]:
    found = Path(path).stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _check_identity(contents: Contents) -> None:
    if _identity(contents.path) != contents.identity:
        msg = f"{contents.path} was replaced or changed while it was being read; load it again"
        raise CheckpointError(msg)


def _make_field(pencil: Pencil, entry: Entry, widths: Widths, path: str) -> PencilArray:
    """Allocate the field for an entry, or say why it does not fit."""
    lead = len(entry.shape) - pencil.ndim
    if lead < 0 or lead != (entry.components if entry.components is not None else lead):
        axes = len(entry.shape) - (entry.components or 0)
        msg = (
            f"{entry.name!r} in {path} has shape {entry.shape}, {axes} dimensions without "
            f"components; the pencil has {pencil.ndim}: load it onto one with {axes} dimensions"
        )
        raise CheckpointError(msg)
    flags = entry.singletons or (False,) * pencil.ndim
    singletons = set()
    for dim, (extent, points) in enumerate(zip(entry.shape[lead:], pencil.shape, strict=True)):
        if extent == 1 and (points != 1 or flags[dim]):
            singletons.add(dim)
        elif extent != points:
            msg = (
                f"{entry.name!r} in {path} has shape {entry.shape}; on a pencil of shape "
                f"{pencil.shape} dimension {dim} must have extent {points}, or 1 for a singleton"
            )
            raise CheckpointError(msg)
    halo = tuple((0, 0) if dim in singletons else width for dim, width in enumerate(widths))
    kind = entry.dtype, entry.shape[:lead], frozenset(singletons), halo
    return PencilArray.allocated(pencil, *kind, zero=any(map(any, halo)))


def _read_raw(comm: MPI.Intracomm, path: str, pairs: Pairs) -> None:
    """Read fields whose bytes lie in one piece: slabs, then the exchange."""
    if not pairs:
        return
    with closing(Slabs()) as slabs, SharedFile(comm, path) as file:
        for entry, field in pairs:
            slab = slabs.into(field)
            _read_slab(file, slab, entry.offset or 0)
            file.check()
            slabs.spread(slab, field)


def _read_slab(file: SharedFile, slab: PencilArray, offset: int) -> None:
    for run in runs(slab):
        block = run.block
        landing = block if block.flags.c_contiguous else np.empty(block.shape, block.dtype)
        file.read(offset + run.offset, landing)
        if landing is not block:
            np.copyto(block, landing)


def _read_boxes(path: str, pairs: Pairs) -> None:
    """Read this rank's box of fields that only HDF5 can read: chunked, compressed, virtual."""
    if not any(entry.nbytes for entry, _ in pairs):
        return
    from pencils.io import hdf5

    with hdf5.open_file(path) as file:
        for entry, field in pairs:
            if field.local.size:
                field.local[...] = hdf5.read_box(file, entry.name, field.local_slices)
