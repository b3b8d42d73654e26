"""Write fields to one HDF5 file, all ranks together: at once, or in the background (`Saving`)."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Literal, overload

from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.failure import CollectiveBlock
from pencils.distribute.localgrid import LocalGrid
from pencils.errors import ArgumentError
from pencils.io.commit import check_folder, discard, make_temporary
from pencils.io.contents import as_chunks, as_filters, gather_contents, whole_grid
from pencils.io.file_access import on_root
from pencils.io.formats import is_zarr
from pencils.io.options import as_attrs, as_path, as_step_and_time, check_known
from pencils.io.slabs import FileMoves, boundary_widths
from pencils.io.tolerance import Tolerance, as_tolerance
from pencils.io.writers import HDF5Writer, Part, Writer
from pencils.layout.integers import as_int
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

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
    shards: Chunks = ...,
    tolerance: Tolerance = ...,
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
    shards: Chunks = ...,
    tolerance: Tolerance = ...,
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
    shards: Chunks = None,
    tolerance: Tolerance = None,
    wait: bool = True,
) -> Saving | None:
    """Write fields and values to a new file that any tool reads: HDF5 or Zarr. *Collective*.

    The global arrays are stored in logical order, whatever the decomposition and memory order;
    halos are left out, singleton dimensions have extent 1. The file takes its name when it is
    whole and on disk: until then, and after any failure, a file of that name stays as it was.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0. A name that ends in
        ``.zarr`` is that of a Zarr folder, of version 3; it may be an address that fsspec knows,
        where nothing is replaced. Any other is that of an HDF5 file.
    fields : mapping of str to PencilArray, number, str, numpy.ndarray or random generator
        Fields over the same processes, by name; ``"fluid/u"`` is in a group. Other values are
        values that all ranks have alike: Python's and NumPy's numbers, text, small arrays,
        `numpy.random.Generator` and `numpy.random.BitGenerator`.
    grid : LocalGrid or sequence of PencilArray, optional
        Coordinates to store as dimension scales of all fields with as many points, which xarray and
        netCDF tools find; also as the fields ``(x, y)`` that a LocalGrid yields.
    attrs : mapping of str to object, optional
        Numbers, strings and small arrays to store beside them; those of rank 0 count. A mapping
        under the name of a field, value or coordinate has the attributes of that, for example
        ``{"u": {"units": "m s-1", "standard_name": "eastward_wind"}, "x": {"units": "m"}}``.
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
        HDF5 only.
    checksum : bool, optional
        Whether to store checksums, by which `load` and `verify` find damage.
    compression : str, int or mapping of str to object, optional
        How to compress all fields, as h5py's ``create_dataset``: "gzip", "lzf", "szip", a level of
        gzip from 0 to 9, or a mapping of the keywords `compression`, `compression_opts`, `shuffle`,
        `fletcher32` and `scaleoffset`. Objects of hdf5plugin are such mappings:
        ``hdf5plugin.Zstd()``. Every rank compresses its share. With filters that lose digits,
        checksums are those of the stored values. Zarr has "gzip", "zstd", "blosc", and codecs of
        ``zarr.codecs``.
    chunks : sequence of int or mapping of str to sequence of int, optional
        Extents of chunks, one for each dimension, for all fields or by name. Each component has
        separate chunks. Default: about 1 MiB, near to cubes, if there is compression; else fields
        are stored in one piece, which is faster to write and to read; of Zarr, up to 16 MiB.
    shards : sequence of int or mapping of str to sequence of int, optional
        Extents of shards, of whole chunks each: Zarr stores one in an object. One rank writes it,
        that which has most of its points. Default: chunks are objects, unless `chunks` is not given
        and there would be more than 8192. Zarr only.
    tolerance : float or mapping of str to float, optional
        Bound on the absolute error of each stored number, for all fields or by name: fields are
        compressed as far as it allows, by ZFP of hdf5plugin or by rounding. See Notes. Default:
        all numbers are stored exactly.
    wait : bool, optional
        Whether to return after the file is complete. Otherwise the fields are copied, so that they
        may change at once, a thread writes them, and the file takes its name in `Saving.wait`.

    Returns
    -------
    Saving or None
        The save to wait for; None with ``wait=True``.

    Raises
    ------
    ArgumentError, PencilMismatchError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks, or HDF5 does not
        have the filters on one, or there are `compression` and `tolerance`.
    MissingLibraryError
        On every rank, if `tolerance` needs hdf5plugin, which is not installed on one.
    OSError
        On every rank, if the file cannot be written.

    Notes
    -----
    With `tolerance`, each rank decodes the chunks that it has compressed, and compares them. The
    dataset has the attributes ``pencils_tolerance`` and ``pencils_largest_error``, which is never
    above the bound. ZFP compresses float32 and float64. Chunks for which it does not keep the bound
    are rounded to multiples of a power of two, and compressed by gzip: those with NaN or
    infinities, which stay as they are, or of a large range. So are float16, long double, and
    complex numbers, whose error is an absolute value. Integers, other types, and fields with a
    bound of zero stay exact, compressed by gzip. In Zarr folders all fields are rounded, and
    compressed by blosc.

    Examples
    --------
    >>> import tempfile, h5py, pencils
    >>> pencil = pencils.Pencil((4, 6))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pencils.save(f"{folder}/run.h5", {"u": pencils.ones(pencil), "dt": 0.01}, step=3)
    ...     with h5py.File(f"{folder}/run.h5") as file:
    ...         print(file["u"].shape, file["u"][:].sum(), file["dt"][()])
    (4, 6) 24.0 0.01
    """
    things: Any = fields  # before it is checked
    topology = topology_among(*(things.values() if isinstance(things, Mapping) else ()))
    comm, moves = topology.comm, FileMoves(direct=True)
    grid = whole_grid(comm, "save", grid)
    with agreed(comm, "save") as agree:
        target = as_path(path)
        agree(path=target)
        of_file, of_datasets = as_attrs(attrs)
        run = as_step_and_time(step, time)
        room = 1 if align is None else as_int("align", align, least=1)
        agree(attrs=sorted(attrs or ()), **run, align=room, halo=bool(halo))
        filters = _as_filters(target, compression, align, shards)
        bounds = as_tolerance(tolerance)
        if compression is not None and bounds is not None:
            raise ArgumentError(
                f"compression={compression!r:.80} and tolerance={tolerance!r:.80} both choose "
                "filters; pass one of them"
            )
        agree(checksum=bool(checksum), wait=bool(wait), compression=filters, tolerance=bounds)
        contents = gather_contents(
            fields,
            grid,
            comm.size,
            compression=filters,
            chunks=as_chunks(chunks),
            shards=as_chunks(shards, "shards") if is_zarr(target) else None,
            tolerance=bounds,
            attrs=of_file,
            dataset_attrs=of_datasets,
            step_and_time=run,
            align=room,
            summed=bool(checksum),
        )
        entries = [entry for entry in contents.entries if entry.nbytes]
        if is_zarr(target):
            _zarr().check_codecs(contents)
        elif any(entry.chunks for entry in entries):
            from pencils.io.create import check_filters  # most ranks never need h5py

            check_filters(entries, filters)
        agree(names=[*contents.fields, *contents.values])
        for entry in contents.entries:
            u = contents.fields[entry.name]
            agree(**{f"fields[{entry.name!r}]": (u.pencil, entry, boundary_widths(u))})
        for name, value in contents.values.items():
            agree(**{f"fields[{name!r}], which is not a PencilArray": value})
        check_known("attrs", of_datasets, [*contents.fields, *contents.values])
        if wait and not halo:
            moving = ((contents.fields[one.name], one.chunks[one.components :]) for one in entries)
            moves.prepare(agree, moving)
    if halo:
        contents = contents.with_boundary()
    kind = _zarr().ZarrWriter if is_zarr(target) else HDF5Writer
    writer: Writer = kind(topology, target, contents)
    if not wait:
        return Saving(comm, writer, contents.fields)
    writer.write(contents.fields, moves)
    return None


def _zarr() -> Any:
    from pencils.io import zarr_write  # HDF5 needs no zarr

    return zarr_write


def _as_filters(path: str, compression: object, align: object, shards: object) -> dict[str, Any]:
    """Return how fields are compressed; ArgumentError for options of the other format."""
    if is_zarr(path) and align is not None:
        raise ArgumentError(f"align is for HDF5 files; leave it out for {path!r}")
    if not is_zarr(path) and shards is not None:
        raise ArgumentError(f"shards are for Zarr folders like 'run.zarr'; {path!r} has none")
    found: dict[str, Any] = (_zarr().as_codecs if is_zarr(path) else as_filters)(compression)
    return found


def check_target(path: str) -> None:
    """Raise OSError on every rank if `save` cannot create a file. *Collective*."""
    topology = Pencil(1).topology
    target = Path(os.path.realpath(path))
    on_root(topology.comm, "check_target", lambda: discard(make_temporary(target)))
    check_folder(topology, path)


class Saving(CollectiveBlock):
    """A save in the background; made by `save` with ``wait=False``.

    The file takes its name in `wait`. Without it, and after any failure, a file of that name stays
    as it was. Of several saves to one file, the one that `wait` completes last stays. To leave a
    ``with`` block is to wait; if the block fails on any rank, all ranks raise and the saving is
    given up.

    Examples
    --------
    >>> import tempfile, pencils
    >>> u = pencils.ones(pencils.Pencil((4, 6)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with pencils.save(f"{folder}/run.h5", {"u": u}, wait=False) as saving:
    ...         u.fill(2.0)  # computes on
    ...     pencils.load(f"{folder}/run.h5", u.pencil)["u"].max()
    np.float64(1.0)
    """

    def __init__(
        self, comm: MPI.Intracomm, writer: Writer, fields: Mapping[str, PencilArray]
    ) -> None:
        self._comm = comm
        self._writer = writer
        self._parts: dict[str, Part] = {}
        self._error: BaseException | None = None
        self._written: Future[None] = Future()
        self._written.set_result(None)  # as long as there is no thread
        stop = Event()
        try:
            with writer.naming_hosts():
                with closing(FileMoves(copies=True)) as moves:
                    for entry in writer.entries:
                        if entry.nbytes:
                            self._parts[entry.name] = writer.part(fields[entry.name], entry, moves)
                with agreed(comm, "save"):  # one rank may have no thread for it
                    writer.file.raise_error()
                    worker = ThreadPoolExecutor(1, "pencils-save")
                    parts = tuple(self._parts.values())
                    self._written = worker.submit(_write, parts, writer, stop)
                    worker.shutdown(wait=False)
        except BaseException:
            _give_up(self._written, writer, stop)
            raise
        self._end = weakref.finalize(self, _give_up, self._written, writer, stop)

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._writer.path

    @property
    def done(self) -> bool:
        """Whether this rank has written its part."""
        return self._written.done()

    def wait(self) -> None:
        """Wait until all ranks have written, and give the file its name. *Collective*.

        A second call does nothing, or raises the same error.

        Raises
        ------
        OSError
            On every rank, if writing has failed on any.
        RankDisagreementError
            On every rank, if they wait for different files; all can still be waited for.
        ArgumentError
            If this rank has left a ``with`` block of the saving by an error.
        """
        if self._error is not None:
            raise self._error
        if not self._end.alive:
            return
        with agreed(self._comm, "wait") as agree:
            agree(path=self.path, temporary=self._writer.temporary)
        try:
            self._writer.file.attempt(self._written.result)
            self._writer.end({name: part.finish() for name, part in self._parts.items()})
            self._writer.close()
            self._parts.clear()
        except BaseException as error:
            self._error = error
            self._end()
            raise
        self._end.detach()

    def give_up(self, error: BaseException) -> None:
        """Remove what was written, because of an error on a rank that may never `wait`. Local."""
        if self._end() is not None:
            msg = f"saving {self.path} was abandoned because of {error!r}"
            self._error = ArgumentError(msg)

    def _block_comm(self) -> MPI.Intracomm:
        return self._comm

    def _end_block(self) -> None:
        self.wait()

    def _give_up(self, error: BaseException, /) -> None:
        self.give_up(error)

    def __repr__(self) -> str:
        if self._error is not None:
            state = "failed"
        elif not self._end.alive:
            state = "saved"
        else:
            state = "written, to be waited for" if self.done else "being written"
        return f"<Saving {self.path}: {state}>"


def _write(parts: Iterable[Part], writer: Writer, stop: Event) -> None:
    """Write all parts; the thread runs this."""
    for part in parts:
        if stop.is_set():
            return
        part.work()
    writer.file.sync()


def _give_up(written: Future[None], writer: Writer, stop: Event) -> bool:
    """End a saving without `Saving.wait`. Local."""
    stop.set()
    written.add_done_callback(lambda _: writer.close())
    writer.discard()
    return True
