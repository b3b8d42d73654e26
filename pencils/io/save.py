"""Write fields to one HDF5 file, all ranks together.

`save` checks its arguments on all ranks; rank 0 lays the file out under a temporary name
(`TempFile`, `create`); all ranks write their points (`HDF5Writer`); rank 0 adds the checksums and
the list of contents and gives the file its name (`TempFile.finish`, `seal`, `commit`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, overload

from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.distribute.localgrid import LocalGrid
from pencils.io.chunks import read_chunking
from pencils.io.commit import discard, make_temporary
from pencils.io.contents import Contents, gather_contents, whole_grid
from pencils.io.file_access import on_root, shown
from pencils.io.file_info import RESERVED
from pencils.io.hdf5_writer import HDF5Writer
from pencils.io.options import read_align, read_attrs, read_facts, read_grid, read_path
from pencils.io.saving import Saving
from pencils.io.slabs import Slabs
from pencils.io.temp_file import Header, TempFile
from pencils.io.writers import write_each
from pencils.pencil import Pencil

Compression = str | int | Mapping[str, Any] | None
Chunks = int | Sequence[int] | Mapping[str, Sequence[int]] | None


@overload
def save(
    path: str | os.PathLike[str],
    fields: Mapping[str, Any],
    *,
    grid: LocalGrid | Sequence[PencilArray] | None = ...,
    attrs: Mapping[str, Any] | None = ...,
    step: int | None = ...,
    time: float | None = ...,
    halo: bool = ...,
    align: int | None = ...,
    checksum: bool = ...,
    compression: Compression = ...,
    chunks: Chunks = ...,
    wait: Literal[True] = ...,
) -> None: ...


@overload
def save(
    path: str | os.PathLike[str],
    fields: Mapping[str, Any],
    *,
    grid: LocalGrid | Sequence[PencilArray] | None = ...,
    attrs: Mapping[str, Any] | None = ...,
    step: int | None = ...,
    time: float | None = ...,
    halo: bool = ...,
    align: int | None = ...,
    checksum: bool = ...,
    compression: Compression = ...,
    chunks: Chunks = ...,
    wait: Literal[False],
) -> Saving: ...


def save(
    path: str | os.PathLike[str],
    fields: Mapping[str, Any],
    *,
    grid: LocalGrid | Sequence[PencilArray] | None = None,
    attrs: Mapping[str, Any] | None = None,
    step: int | None = None,
    time: float | None = None,
    halo: bool = False,
    align: int | None = None,
    checksum: bool = True,
    compression: Compression = None,
    chunks: Chunks = None,
    wait: bool = True,
) -> Saving | None:
    """Write fields, and what belongs to them, to a new HDF5 file that any tool reads. *Collective*.

    The global arrays are stored in logical order, whatever the decomposition and memory order;
    halos are left out, singleton dimensions have extent 1. The file takes its name when it is
    whole and on disk: until then, and after any failure, a file of that name stays as it was.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0.
    fields : mapping of str to PencilArray, number, str, numpy.ndarray or random generator
        Fields over the same processes, by name; ``"fluid/u"`` is in a group. Other values are
        values that all ranks have alike: Python's and NumPy's numbers, text, small arrays,
        `numpy.random.Generator` and `numpy.random.BitGenerator`.
    grid : LocalGrid or sequence of PencilArray, optional
        Coordinates to store as dimension scales of all fields with as many points, so that xarray
        and netCDF tools find them; also as the fields ``(x, y)`` that a LocalGrid yields.
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
        stripe size of the file system. So do chunks, if they have as many bytes when compressed.
    checksum : bool, optional
        Whether to store checksums, by which `load` and `verify` find damage.
    compression : str, int or mapping of str to object, optional
        How to compress all fields: what h5py's ``create_dataset`` takes, that is "gzip", "lzf",
        "szip", a level of gzip from 0 to 9, or a mapping of the keywords `compression`,
        `compression_opts`, `shuffle`, `fletcher32` and `scaleoffset`. Objects of hdf5plugin are
        such mappings: ``hdf5plugin.Zstd()``. Every rank compresses its share. With filters that
        lose digits, checksums are those of what can be read.
    chunks : sequence of int or mapping of str to sequence of int, optional
        Extents of chunks, one for each dimension, for all fields or by name. Components are in
        chunks of their own. Default: about 1 MiB, near to cubes, if there is compression; else
        fields are stored in one piece, which is faster to write and to read.
    wait : bool, optional
        Whether to return only when the file is there. Otherwise the fields are copied, so that
        they may change at once, a thread writes them, and the file takes its name in
        `Saving.wait`.

    Returns
    -------
    Saving or None
        What there is to wait for; None with ``wait=True``.

    Raises
    ------
    ArgumentError, PencilMismatchError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks, or HDF5 does not
        have the filters on one.
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
    grid = whole_grid(comm, "save", grid)
    with agreed(comm, "save") as same:
        target = read_path(path)
        same(path=target)
        given, facts = read_attrs(attrs, RESERVED), read_facts(step, time)
        room = read_align(align)
        same(attrs=sorted(given), **facts, align=room, halo=bool(halo), checksum=bool(checksum))
        same(wait=bool(wait))
        chunking = read_chunking(compression, chunks)
        same(compression=chunking.compression)
        contents = gather_contents(fields, read_grid(grid), comm.size, chunking)
        same(**contents.facts)
    if halo:
        contents = contents.with_boundary()
    if any(entry.chunks for entry in contents.entries):
        with agreed(comm, "save"):
            _check_filters(contents)
    header = Header(given, facts, room, summed=bool(checksum))
    with TempFile(comm, target, contents, header) as temp_file:
        if not wait:
            return Saving(comm, temp_file, contents.fields)
        share = sum(entry.nbytes for entry in temp_file.entries) // comm.size
        with (
            shown("save", target, share, rank=comm.rank) as moved,
            SharedFile(comm, temp_file.path, write=True) as file,
            closing(HDF5Writer(file, temp_file, Slabs(), moved)) as writer,
        ):
            sums = write_each(comm, writer, contents.fields, temp_file.entries)
        temp_file.finish(sums)
    return None


def check_target(path: str) -> None:
    """Raise OSError on every rank if `save` cannot create a file. *Collective*."""

    def work() -> None:
        discard(make_temporary(Path(os.path.realpath(path))))

    on_root(Pencil(1).comm, "check_target", work)


def _check_filters(contents: Contents) -> None:
    from pencils.io.filters import check_filters  # for this every rank needs h5py

    check_filters(contents.entries, contents.chunking.compression)


def _values(fields: object) -> Iterable[object]:
    return (
        (one for one in fields.values() if isinstance(one, PencilArray))
        if isinstance(fields, Mapping)
        else ()
    )
