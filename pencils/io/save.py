"""Write fields to one HDF5 file, all ranks together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.io.arguments import read_attrs, read_name, read_path
from pencils.io.commit import commit, discard, make_temporary
from pencils.io.entry import RESERVED, Entry
from pencils.io.slabs import Slabs, runs
from pencils.operands import topology_among
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from mpi4py import MPI


def save(
    path: str | os.PathLike[str],
    fields: Mapping[str, PencilArray],
    *,
    attrs: Mapping[str, Any] | None = None,
) -> None:
    """Write fields to a new HDF5 file that any tool reads. *Collective*.

    The global arrays are stored in logical order, whatever the decomposition and memory order;
    halos are left out, singleton dimensions have extent 1. The file takes its name when it is
    whole and on disk: until then, and after any failure, a file of that name stays as it was.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0.
    fields : mapping of str to PencilArray
        Fields over the same processes, by name; ``"fluid/u"`` lies in a group.
    attrs : mapping of str to object, optional
        Numbers, strings and small arrays to store beside them; those of rank 0 count.

    Raises
    ------
    ArgumentError, PencilMismatchError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks.
    OSError
        On every rank, if the file cannot be written.

    Examples
    --------
    >>> import tempfile, h5py, pencils
    >>> pen = pencils.Pencil((4, 6))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pencils.save(f"{folder}/run.h5", {"u": pencils.ones(pen)}, attrs={"step": 3})
    ...     with h5py.File(f"{folder}/run.h5") as file:
    ...         print(file["u"].shape, file["u"][:].sum(), file.attrs["step"])
    (4, 6) 24.0 3
    """
    comm = topology_among(*_values(fields)).comm
    with agreed(comm, "save") as same:
        target = read_path(path)
        same(path=target)
        given = read_attrs(attrs, RESERVED)
        entries = _read_fields(fields, comm.size)
        same(names=[entry.name for entry in entries], attrs=sorted(given))
        same(**{f"fields[{entry.name!r}]": (fields[entry.name].pencil, entry) for entry in entries})
    made: tuple[Path, list[Entry]] | None = None
    with agreed(comm, "save"):
        if comm.rank == 0:
            made = _begin(Path(os.path.realpath(target)), entries, given)
    temporary, entries = comm.bcast(made)
    try:
        _write(comm, temporary, fields, entries)
        with agreed(comm, "save"):
            if comm.rank == 0:
                commit(temporary, Path(os.path.realpath(target)))
    except BaseException:
        if comm.rank == 0:
            discard(temporary)
        raise


def _values(fields: object) -> Iterable[object]:
    return fields.values() if isinstance(fields, Mapping) else ()


def _read_fields(fields: object, size: int) -> list[Entry]:
    """Describe the fields, in the same order on every rank."""
    if not isinstance(fields, Mapping):
        msg = f"fields must be a mapping like {{'u': u}}, not {type(fields).__name__}"
        raise TypeError(msg)
    if not fields:
        msg = "fields is empty; pass at least one, like {'u': u}"
        raise ArgumentError(msg)
    names = sorted(read_name(name) for name in fields)
    first: Pencil | None = None
    for name in names:
        field = fields[name]
        if not isinstance(field, PencilArray):
            msg = (
                f"fields[{name!r}] must be a PencilArray, not {type(field).__name__}; partition() "
                "distributes global data, attrs= takes scalars and small arrays"
            )
            raise TypeError(msg)
        groups = [other for other in names if name.startswith(other + "/")]
        if groups:
            msg = f"{groups[0]!r} is a field, so it cannot be the group of {name!r}; rename one"
            raise ArgumentError(msg)
        first = first or field.pencil
        if field.pencil.size != size or not field.pencil.same_ranks(first):
            msg = (
                f"fields[{name!r}] and fields[{names[0]!r}] lie over different processes:\n"
                f"{field.pencil!r}\n{first!r}\nsave them to files of their own"
            )
            raise PencilMismatchError(msg)
    return [Entry.of(name, fields[name]) for name in names]


def _begin(
    target: Path, entries: Sequence[Entry], attrs: Mapping[str, Any]
) -> tuple[Path, list[Entry]]:
    """Lay out the file under a temporary name."""
    from pencils.io import hdf5  # of all ranks, only this one needs h5py

    temporary = make_temporary(target)
    try:
        return temporary, hdf5.lay_out(str(temporary), entries, attrs, _version())
    except BaseException as error:
        discard(temporary)
        if isinstance(error, OSError | RuntimeError):  # h5py tells of a failed flush by the latter
            msg = f"cannot save {target}: {error}"
            raise OSError(msg) from error
        raise


def _version() -> str:
    try:
        return metadata.version("pencils")
    except metadata.PackageNotFoundError:
        return "not installed"


def _write(
    comm: MPI.Intracomm,
    path: Path,
    fields: Mapping[str, PencilArray],
    entries: Sequence[Entry],
) -> None:
    """Write all fields into the room that was laid out for them."""
    with closing(Slabs()) as slabs, SharedFile(comm, str(path), write=True) as file:
        for entry in entries:
            if entry.offset is not None:
                _write_slab(file, slabs.of(fields[entry.name]), entry.offset)
                file.check()


def _write_slab(file: SharedFile, slab: PencilArray, offset: int) -> None:
    if slab.extent.layout.is_first_replica(slab.pencil.rank):
        for run in runs(slab):
            file.write(offset + run.offset, np.ascontiguousarray(run.block))
