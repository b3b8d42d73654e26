"""Save in the background while the program computes."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING

from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.fault import CollectiveBlock
from pencils.comm.file import SharedFile
from pencils.errors import ArgumentError
from pencils.io.hdf5_writer import HDF5Writer
from pencils.io.slabs import SlabCopies
from pencils.io.temp_file import TempFile
from pencils.io.writers import Part

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class Saving(CollectiveBlock):
    """A save in the background; made by `save` with ``wait=False``.

    The file takes its name in `wait`. Without it, and after any failure, a file of that name stays
    as it was. Of several savings to one file, the last to be waited for gives what stays. To leave
    a ``with`` block is to wait; if the block fails on any rank, all ranks raise and the saving is
    given up.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator. *Collective*.
    temp_file : TempFile
        The file, laid out.
    fields : mapping of str to PencilArray
        The fields; they are copied.

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
        self, comm: MPI.Intracomm, temp_file: TempFile, fields: Mapping[str, PencilArray]
    ) -> None:
        self._comm = comm
        self._temp_file = temp_file
        self._file = SharedFile(comm, temp_file.path, write=True)
        self._parts: dict[str, Part] = {}
        self._error: BaseException | None = None
        self._written: Future[None] = Future()
        self._written.set_result(None)  # as long as there is no thread
        stop = Event()
        try:
            with closing(HDF5Writer(self._file, temp_file, SlabCopies())) as writer:
                for entry in temp_file.entries:
                    if entry.nbytes:
                        self._parts[entry.name] = writer.take(fields[entry.name], entry)
            with agreed(comm, "save"):  # one rank may have no thread for it
                worker = ThreadPoolExecutor(1, "pencils-save")
                self._written = worker.submit(_write, tuple(self._parts.values()), self._file, stop)
                worker.shutdown(wait=False)
        except BaseException:
            _give_up(self._written, self._file, stop, temp_file)
            raise
        self._end = weakref.finalize(self, _give_up, self._written, self._file, stop, temp_file)

    @property
    def path(self) -> str:
        """The file that is to be."""
        return self._temp_file.target

    @property
    def done(self) -> bool:
        """Whether this rank has written its part, so that it will not keep others waiting."""
        return self._written.done()

    def wait(self) -> None:
        """Wait until all ranks have written, and give the file its name. *Collective*.

        To wait again does nothing, or raises again what went wrong.

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
        with agreed(self._comm, "wait") as same:
            same(path=self.path, temp_file=self._temp_file.path)
        try:
            self._finish()
        except BaseException as error:
            self._error = error
            self._end()
            raise
        self._end.detach()

    def give_up(self, error: BaseException) -> None:
        """Remove what was written, because of an error somewhere else. Local.

        Other ranks may never get to a `wait`, and must not.
        """
        if self._end() is not None:
            msg = f"the saving of {self.path} was given up, because of {error!r}"
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

    def _finish(self) -> None:
        with agreed(self._comm, "wait"):
            self._written.result()
        with self._file:
            sums = {name: part.finish() for name, part in self._parts.items()}
        self._temp_file.finish(sums)
        self._parts.clear()


def _write(parts: Iterable[Part], file: SharedFile, stop: Event) -> None:
    """Write all parts; the thread runs this."""
    for part in parts:
        if stop.is_set():
            return
        part.work()
    file.sync()


def _give_up(written: Future[None], file: SharedFile, stop: Event, temp_file: TempFile) -> bool:
    """End a saving without `Saving.wait`. Local."""
    stop.set()
    written.add_done_callback(lambda _: file.close())
    temp_file.discard()
    return True
