"""Open files, to read and write parts of their fields in place."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pencils.array.allocation import Array, HaloLike, as_halo
from pencils.array.operands import check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.failure import CollectiveBlock
from pencils.comm.file import SharedFile
from pencils.comm.topology import as_comm, congruent, topology_of
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError
from pencils.io.commit import WriterLock, check_seen, describe_seen, seen_alike
from pencils.io.describe import describer_of, reader_of
from pencils.io.direct import add_up, checksum, longest_runs
from pencils.io.file_info import Access, DatasetInfo, FileInfo, Identity
from pencils.io.formats import is_url, is_zarr
from pencils.io.manifest import reseal
from pencils.io.options import as_path
from pencils.io.reading import Target
from pencils.io.slabs import FileMoves
from pencils.layout import Selection
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI
    from pencils.comm.topology import Topology


def open(  # noqa: A001 - as in h5py, netCDF4, zarr, and used as ``pencils.open``
    path: str | os.PathLike[str],
    mode: Literal["r", "r+"] = "r",
    comm: MPI.Intracomm | None = None,
    *,
    edited: bool = False,
    external: bool = False,
) -> OpenFile:
    """Open a file to read or write parts of its fields. *Collective*.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0.
    mode : {"r", "r+"}, optional
        "r" to read, "r+" also to write into existing fields: of HDF5 those that are neither chunked
        nor compressed, of a Zarr folder all but those of a series.
    comm : mpi4py.MPI.Intracomm, optional
        The processes that use it. Default: all.
    edited, external : bool, optional
        As in `load`.

    Returns
    -------
    OpenFile
        Its fields by name; use it in a ``with`` block.

    Raises
    ------
    CheckpointError
        On every rank, if the file is not complete, or `load` would refuse it.
    OSError
        On every rank, if the file cannot be opened.
    ArgumentError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks.

    Examples
    --------
    >>> import tempfile, pencils
    >>> pencil = pencils.Pencil((4, 6))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pencils.save(f"{folder}/run.h5", {"u": pencils.ones(pencil, components=3)})
    ...     with pencils.open(f"{folder}/run.h5", "r+") as file:
    ...         file["u"].write(pencils.zeros(pencil), key=2)
    ...         every_second = ..., slice(None, None, 2), slice(None, None, 2)
    ...         coarse = file["u"].read(pencils.Pencil((2, 3)), every_second)
    >>> coarse.shape, coarse.sum()
    ((3, 2, 3), np.float64(12.0))
    """
    topology = topology_of(as_comm(comm, "open"))
    with agreed(topology.comm, "open") as agree:
        given = as_path(path)
        if mode not in ("r", "r+"):
            raise ArgumentError(
                f"mode={mode!r} must be 'r' to read, or 'r+' to write into fields, too"
            )
        if mode != "r" and is_url(given):
            raise ArgumentError(
                f"{given} is a store without locks, where another program may write meanwhile; "
                "use 'r', or a folder of a file system"
            )
        access = Access(edited=bool(edited), external=bool(external))
        agree(path=given, mode=mode, edited=access.edited, external=access.external)
    lock = WriterLock()

    def look(real: str) -> FileInfo:
        if mode == "r+":
            lock.take(Path(real))
            if is_zarr(real):
                _editor().check_editable(real)
        found: FileInfo = describer_of(real).describe_fields(real, access)
        return found

    try:
        file = describe_seen(topology, given, look)
        with seen_alike(topology, file):
            return OpenFile(file, topology, lock, writable=mode == "r+")
    except BaseException:
        lock.release()
        raise


class StoredField:
    """One field of an open file, in whole or in part; made by `pencils.open`."""

    def __init__(self, dataset: DatasetInfo, file: OpenFile) -> None:
        self.dataset = dataset
        self._file = file
        self.change = 0  # of the checksum, by this rank's writes
        self.written = False  # by any rank

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape, components first; with boundary points, if they were stored."""
        return self.dataset.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.dataset.dtype

    def read(self, pencil: Pencil, key: Any = ..., *, halo: HaloLike = 0) -> PencilArray:
        """Read the field, or a global selection of it. *Collective* over the pencil.

        Every rank reads its own part, and nothing else. Checksums are not compared, because they
        are those of the whole field.

        Parameters
        ----------
        pencil : Pencil
            Where the selected points go: it has the shape of the selection. Leading axes beyond
            its dimensions become components.
        key : int, slice, Ellipsis or tuple of these, optional
            Global indices, as in NumPy: ``(..., slice(None, None, 4))`` for every fourth point.
        halo : int, sequence of int, or sequence of (int, int), optional
            Halo widths of the field; halo points are zero.

        Returns
        -------
        PencilArray
            The selected points.

        Raises
        ------
        CheckpointError
            On every rank, if the selection does not fit the pencil, the file is damaged there, or
            another file has taken its name.
        ArgumentError, IndexError, OSError, RankDisagreementError, TypeError
            On every rank, if an argument is not allowed or differs between ranks, or the file
            cannot be read.
        """
        comm, path = topology_among(pencil).comm, self._file.path
        with agreed(comm, "read") as agree:
            check_type("pencil", pencil, Pencil)
            selection = Selection.from_key(key, self.shape)
            target = Target(pencil, as_halo(halo, pencil.ndim))
            agree(path=path, name=self.dataset.name, key=selection, pencil=target)
            part = DatasetInfo(self.dataset.name, selection.shape, self.dtype)
            u = target.make(part, None, path)
            try:
                if u.local.size:
                    u.local[...] = self._read_box(selection, u)
            finally:  # a replaced file can be the reason of an error, too
                self._file.info.identity.check_in_place(path)
        return u

    def write(self, u: PencilArray, key: Any = ...) -> None:
        """Write a field over the stored one, or over a global selection of it. *Collective*.

        This cannot be undone: a process that dies while it writes leaves old values next to new
        ones; in a Zarr folder each chunk, or shard, has either all of them or none, and one rank
        writes it. What is written is on the disk when the call returns. The checksum is corrected
        when the file is closed; until then `verify` finds that it does not match.

        Parameters
        ----------
        u : PencilArray
            The values, on the processes that have opened the file.
        key : int, slice, Ellipsis or tuple of these, optional
            Global indices, as in NumPy; the selection has the shape of `u`, in which dimensions
            with an integer may have extent 1, as in sections: ``write(u[3], 3)``. Rows that are
            selected in whole are written in one piece, elements that are not neighbours one by one.

        Raises
        ------
        ArgumentError, CheckpointError, IndexError, PencilMismatchError, RankDisagreementError
            On every rank, if an argument is not allowed or differs between ranks, or the stored
            field is chunked or compressed.
        OSError
            On every rank, if the file cannot be written. Then nothing more can be written to it
            before it is opened again, and `verify` names the field.
        TypeError
            On every rank, if `u` is not a PencilArray, or has another element type.
        """
        with agreed(self._file.comm, "write") as agree:
            selection = self._check(u, key)
            writer = self._file.writer()
            agree(name=self.dataset.name, key=selection, pencil=u.pencil, dtype=u.dtype)
            moves, editor = FileMoves(), self._file.editor
            if not editor:
                moves.prepare(agree, [(u, ())])
        with closing(moves):
            slab = editor.bring(u, selection, self.dataset.chunks) if editor else moves.of(u)
            self.written = True
            try:
                with agreed(self._file.comm, "write"):  # one rank may have no memory for it
                    if slab.local.size and slab.extent.layout.is_first_replica(slab.pencil.rank):
                        self._write_box(writer, selection, slab)
                    writer.sync()  # so that later reads and writes by any rank find it
                    writer.raise_error()
            except Exception:  # the checksum in the file stays, and does not match
                self.dataset = replace(self.dataset, checksum=None)
                raise

    def _check(self, u: PencilArray, key: object) -> Selection:
        check_type("u", u, PencilArray)
        selection = Selection.from_key(key, self.shape)
        if u.ndim == len(self.shape):  # as sections, it has all axes
            selection = replace(selection, dropped=(False,) * u.ndim)
        name, path = self.dataset.name, self._file.path
        if not congruent(u.pencil.topology.comm, self._file.comm):
            raise PencilMismatchError(
                f"the field is on other processes than those that opened {path}; pass comm there"
            )
        if u.shape != selection.shape:
            raise ArgumentError(
                f"the field has shape {u.shape}, but the selection of {name!r} has shape "
                f"{selection.shape}"
            )
        if u.dtype != self.dtype:
            raise TypeError(
                f"{name!r} in {path} has dtype {self.dtype}, the field {u.dtype}; use astype"
            )
        if self.dataset.offset is None and self.dataset.nbytes and not self._file.editor:
            raise CheckpointError(
                f"{name!r} in {path} is chunked or compressed; such fields can only be read"
            )
        return selection

    def _read_box(self, selection: Selection, u: PencilArray) -> Array:
        reader = reader_of(self._file.path)
        ranges = own_ranges(selection, u.local_slices)
        rising = [kept if kept.step > 0 else kept[::-1] for kept in ranges]
        box = tuple(slice(kept.start, kept.stop, kept.step) for kept in rising)
        with reader.opened(self._file.path) as file:
            found: Array = reader.read_box(file, self.dataset.name, box, summed=False)
        turned = tuple(slice(None, None, 1 if kept.step > 0 else -1) for kept in ranges)
        return found[turned].reshape(u.local_shape)

    def _write_box(self, writer: SharedFile, selection: Selection, slab: PencilArray) -> None:
        ranges = own_ranges(selection, slab.local_slices)
        if editor := self._file.editor:
            path, values = self._file.path, slab.local.reshape([*map(len, ranges)])
            edit = partial(editor.write_box, path, self.dataset.name, ranges, values, writer)
            self.change = (self.change + (writer.attempt(edit) or 0)) % 2**64
            return
        box = slab.local.reshape([*map(len, ranges), 1])
        for first, key in longest_runs(ranges, self.shape):
            new = np.ascontiguousarray(box[key])
            at = (self.dataset.offset or 0) + first * self.dtype.itemsize
            if self.dataset.checksum is not None:
                old = np.empty_like(new)
                writer.read(at, old)
                self.change += checksum(new, first) - checksum(old, first)
                self.change %= 2**64
            writer.write(at, new)


class OpenFile(CollectiveBlock, Mapping[str, StoredField]):
    """The fields of a file, by name; made by `pencils.open`.

    Leaving a ``with`` block of a file that is open for writing is *Collective*. If the block fails
    on any rank, all ranks raise, and the checksums are not corrected: `verify` then names the
    fields that were written to, and the file is locked for other writers, until all ranks call
    `close`. If that fails, too, the lock goes with the object.
    """

    def __init__(
        self, file: FileInfo, topology: Topology, lock: WriterLock, *, writable: bool
    ) -> None:
        self.comm = topology.comm  # private, of the processes that have opened the file
        self._lock = lock  # taken on rank 0, if it is writable
        self._writable = self._is_collective = writable
        # The identity of this rank, because every machine numbers files in its own way.
        self.info = file._replace(identity=Identity.of(file.path))
        # To read, too: while it is open here, no other file gets the number of this one.
        # Of a Zarr folder, the module that writes into its chunks.
        self.editor: Any = _editor() if is_zarr(file.path) else None
        in_place = writable and not self.editor
        self._shared = SharedFile("" if is_url(file.path) else file.path, write=in_place)
        self._writer = self.editor.WrittenObjects(file.path) if self.editor else self._shared
        weakref.finalize(self, self._shared.close)
        with agreed(self.comm, "open"):
            if topology.rank == 0:  # before others find a file of another size in its place
                self._shared.raise_error()
                file.identity.check_in_place(file.path)
            check_seen(topology, file.path, file.identity.size)
            self._shared.raise_error()
        self._fields = {one.name: StoredField(one, self) for one in file.datasets}

    @property
    def path(self) -> str:
        """The file."""
        return self.info.path

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the file."""
        return self.info.attrs

    @property
    def step(self) -> int | None:
        """Number of the time step; None if the file has none."""
        return self.info.step

    @property
    def time(self) -> float | None:
        """Time of the run; None if the file has none."""
        return self.info.time

    def close(self) -> None:
        """Update the checksums of written fields, and close. *Collective*.

        The checksum of a field of which a `write` has failed is left: `verify` names the field.
        After an error the file is still open, and `close` can be called again.

        Raises
        ------
        CheckpointError
            On every rank, if another file has taken the name of this one, which is left alone.
        OSError
            On every rank, if that fails on any.
        """
        if self._writable:
            self._correct()
            self._writable = False
            self._lock.release()
        self._shared.close()  # this loses nothing: what was written is on the disk

    def writer(self) -> SharedFile:
        """Return the file, open for writing; raise ArgumentError if it is not."""
        if not self._writable:
            raise ArgumentError(
                f"{self.path} is not open for writing; use pencils.open(path, 'r+')"
            )
        return self._writer

    def _correct(self) -> None:
        """Correct the checksums of the fields that were written. *Collective*."""
        written = [one for one in self.values() if one.written]
        old = {one.dataset.name: one.dataset.checksum for one in written}
        known = {name: total for name, total in old.items() if total is not None}

        changes = add_up(self.comm, "close", lambda _: {name: self[name].change for name in known})
        with agreed(self.comm, "close"):
            if known and self.comm.rank == 0:
                self.info.identity.check_in_place(self.path)
                sums = {name: (known[name] + changes[name]) % 2**64 for name in known}
                (self.editor.reseal if self.editor else reseal)(self.path, sums)

    def _block_comm(self) -> MPI.Intracomm | None:
        return self.comm if self._is_collective else None

    def _end_block(self) -> None:
        self.close()

    def _give_up(self, _error: BaseException, /) -> None: ...  # `close` can still be called

    def __getitem__(self, name: str) -> StoredField:
        if name not in self._fields:
            raise KeyError(
                f"{self.path} has no field {name!r}; it has {', '.join(self._fields) or 'none'}"
            )
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        lines = [f"  {name}: {field.shape} {field.dtype}" for name, field in self.items()]
        return "\n".join([f"<OpenFile {self.path}", *lines]) + ">"


def _editor() -> Any:
    from pencils.io import zarr_edit  # HDF5 needs no zarr

    return zarr_edit


def own_ranges(selection: Selection, part: Sequence[slice]) -> list[range]:
    """Return the indices along every axis of the array that a part of a selection takes."""
    left = iter(part)
    pairs = zip(selection.ranges, selection.dropped, strict=True)
    return [kept if drop else kept[next(left)] for kept, drop in pairs]
