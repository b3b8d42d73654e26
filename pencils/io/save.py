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
from pencils.comm.reduce import allreduce
from pencils.io.arguments import read_align, read_attrs, read_facts, read_grid, read_path
from pencils.io.checksum import checksum as checksum_of
from pencils.io.commit import clean, commit, discard, make_temporary
from pencils.io.contents import Contents, gather_contents
from pencils.io.entry import RESERVED, Entry
from pencils.io.slabs import Slabs, runs
from pencils.localgrid import LocalGrid
from pencils.operands import is_field, topology_among

if TYPE_CHECKING:
    from mpi4py import MPI


def save(
    path: str | os.PathLike[str],
    fields: Mapping[str, Any],
    *,
    grid: LocalGrid | None = None,
    attrs: Mapping[str, Any] | None = None,
    step: int | None = None,
    time: float | None = None,
    halo: bool = False,
    align: int | None = None,
    checksum: bool = True,
) -> None:
    """Write fields, and what belongs to them, to a new HDF5 file that any tool reads. *Collective*.

    The global arrays are stored in logical order, whatever the decomposition and memory order;
    halos are left out, singleton dimensions have extent 1. The file takes its name when it is
    whole and on disk: until then, and after any failure, a file of that name stays as it was.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0.
    fields : mapping of str to PencilArray, number, str, numpy.ndarray or random generator
        Fields over the same processes, by name; ``"fluid/u"`` lies in a group. The others are
        values that all ranks have alike: Python's and NumPy's numbers, text, small arrays,
        `numpy.random.Generator` and `numpy.random.BitGenerator`.
    grid : LocalGrid, optional
        Coordinates to store as dimension scales of all fields with as many points, so that xarray
        and netCDF tools find them.
    attrs : mapping of str to object, optional
        Numbers, strings and small arrays to store beside them; those of rank 0 count.
    step : int, optional
        Number of the time step.
    time : float, optional
        Time of the run.
    halo : bool, optional
        Whether to store boundary points, too: halo points beyond the ends of dimensions that do
        not wrap. The dataset is larger by them. Ghosts are never stored.
    align : int, optional
        Datasets of at least that many bytes begin at multiples of it in the file: the block or
        stripe size of the file system.
    checksum : bool, optional
        Whether to store checksums, by which `load` and `verify` find damage.

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
    ...     pencils.save(f"{folder}/run.h5", {"u": pencils.ones(pen), "dt": 0.01}, step=3)
    ...     with h5py.File(f"{folder}/run.h5") as file:
    ...         print(file["u"].shape, file["u"][:].sum(), file["dt"][()])
    (4, 6) 24.0 0.01
    """
    comm = topology_among(*_values(fields)).comm
    with agreed(comm, "save") as same:
        target = read_path(path)
        same(path=target)
        given, facts = read_attrs(attrs, RESERVED), read_facts(step, time)
        room = read_align(align)
        same(attrs=sorted(given), **facts, align=room, halo=bool(halo), checksum=bool(checksum))
        contents = gather_contents(fields, read_grid(grid), comm.size)
        same(**contents.facts)
    if halo:
        contents = contents.with_boundary()
    made: tuple[Path, list[Entry]] | None = None
    with agreed(comm, "save"):
        if comm.rank == 0:
            made = _begin(
                Path(os.path.realpath(target)), contents, given, facts, room, summed=bool(checksum)
            )
    temporary, entries = comm.bcast(made)
    try:
        sums = _write(comm, temporary, contents.fields, entries, summed=bool(checksum))
        with agreed(comm, "save"):
            if comm.rank == 0:
                _finish(temporary, Path(os.path.realpath(target)), sums)
    except BaseException:
        if comm.rank == 0:
            discard(temporary)
        raise


def _values(fields: object) -> Iterable[object]:
    return filter(is_field, fields.values()) if isinstance(fields, Mapping) else ()


def _begin(
    target: Path,
    contents: Contents,
    attrs: Mapping[str, Any],
    facts: Mapping[str, Any],
    align: int,
    *,
    summed: bool,
) -> tuple[Path, list[Entry]]:
    """Lay out the file under a temporary name."""
    from pencils.io import create  # of all ranks, only this one needs h5py

    clean(target)
    temporary = make_temporary(target)
    versions = {"version": _version(), "h5py": metadata.version("h5py")}
    plan = create.Plan(
        contents.entries, contents.values, contents.scales, attrs, {**versions, **facts}
    )
    try:
        return temporary, create.lay_out(str(temporary), plan, align=align, summed=summed)
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
    *,
    summed: bool,
) -> dict[str, int]:
    """Write all fields into the room that was laid out for them; return their checksums."""
    sums = np.zeros(len(entries), np.uint64)
    with closing(Slabs()) as slabs, SharedFile(comm, str(path), write=True) as file:
        for number, entry in enumerate(entries):
            if entry.offset is None:
                continue
            slab = slabs.of(fields[entry.name])
            if slab.extent.layout.is_first_replica(slab.pencil.rank):
                sums[number] = _write_slab(file, slab, entry.offset, summed=summed)
            file.check()
    if not summed:
        return {}
    totals = allreduce(comm, sums, np.add)
    return {entry.name: int(total) for entry, total in zip(entries, totals, strict=True)}


def _write_slab(file: SharedFile, slab: PencilArray, offset: int, *, summed: bool) -> int:
    total = 0
    for run in runs(slab):
        block = np.ascontiguousarray(run.block)
        file.write(offset + run.offset, block)
        if summed:
            total += checksum_of(block, run.offset // block.dtype.itemsize)
    return total % 2**64


def _finish(temporary: Path, target: Path, sums: Mapping[str, int]) -> None:
    from pencils.io import create

    create.seal(str(temporary), sums)
    commit(temporary, target)
