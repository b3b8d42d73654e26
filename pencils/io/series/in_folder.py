"""A series as a folder: a file for every snapshot, and an index that shows them as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pencils.array import PencilArray
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError, CheckpointError
from pencils.io.commit import clean, commit, discard, make_temporary
from pencils.io.save import save
from pencils.io.series.column import TIME
from pencils.io.series.ledger import Ledger
from pencils.io.step_files import LOG
from pencils.io.values import Stored, decode
from pencils.localgrid import LocalGrid

if TYPE_CHECKING:
    from mpi4py import MPI


class InFolder:
    """A series in a folder. Everything is *Collective*.

    A snapshot belongs to the series when the index, which takes its name when it is whole, names
    it.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator.
    path : str
        The folder, as all ranks find it.
    attrs : mapping of str to object
        Attributes of the files.
    grid : LocalGrid or None
        Coordinates for the snapshots.
    saving : mapping of str to object
        Other arguments of `save` for the snapshots.
    """

    summed = False

    def __init__(
        self,
        comm: MPI.Intracomm,
        path: str,
        attrs: Mapping[str, Any],
        grid: LocalGrid | None,
        saving: Mapping[str, Any],
    ) -> None:
        self._comm = comm
        self._folder = Path(path)
        self._saving = {"attrs": attrs, **saving}
        self._grid = grid
        self.ledger: Ledger | None = None
        self._seen: tuple[int, ...] = ()  # the index as rank 0 has read or written it
        with agreed(comm, "TimeSeries"):
            if comm.rank == 0:
                self.ledger = self._open(attrs)

    @property
    def path(self) -> str:
        """The index."""
        return str(self._folder / "index.h5")

    def append(
        self,
        time: float,
        step: int,
        fields: Mapping[str, PencilArray],
        values: Mapping[str, Stored],
    ) -> None:
        """Add a snapshot."""
        with agreed(self._comm, "append"):
            _check_names(fields)
            self._check_alone()
        contents = {**fields, **{name: decode(value) for name, value in values.items()}}
        if fields:
            save(self._folder / _name(step), contents, grid=self._grid, time=time, **self._saving)
        with agreed(self._comm, "append"):
            if self.ledger is not None:
                self._check_alone()
                row = {name: value.data for name, value in values.items()}
                with self.ledger.changing():
                    self.ledger.record({TIME: time, **row})
                    self._write_index(self.ledger)

    def truncate(self, count: int) -> None:
        """Keep the first snapshots only; the files of the others go when the index is written."""
        with agreed(self._comm, "truncate"):
            if self.ledger is not None:
                self._check_alone()
                surplus = [self._folder / _name(n) for n in range(count, len(self.ledger.times))]
                with self.ledger.changing():
                    self.ledger.cut(count)
                    self._write_index(self.ledger)
                _remove(surplus)

    def close(self) -> None:
        """End appending: there is nothing to do."""

    def _open(self, attrs: Mapping[str, Any]) -> Ledger:
        from pencils.io import hdf5  # of all ranks, only this one needs h5py
        from pencils.io.series.tree import read_tree

        if not self._folder.parent.is_dir():
            msg = f"cannot make {self._folder}: {self._folder.parent} is not a directory"
            raise FileNotFoundError(msg)
        self._folder.mkdir(exist_ok=True)
        if Path(self.path).exists():
            self._seen = _identity(self.path)
            with hdf5.open_file(self.path) as file:
                return read_tree(self.path, file)
        other = min(self._folder.glob("*.h5"), default=None)
        if other is not None:
            msg = (
                f"{self._folder} holds {other.name} but no index.h5, so it is no series; choose an "
                "empty folder"
            )
            raise CheckpointError(msg)
        ledger = Ledger(dict(attrs))
        self._write_index(ledger)
        return ledger

    def _write_index(self, ledger: Ledger) -> None:
        from pencils.io.series import tree

        target = Path(self.path)
        files = [_name(number) for number in range(len(ledger.times))]
        clean(target)
        temporary = make_temporary(target)
        try:
            tree.create_index(str(temporary), ledger, files)
            commit(temporary, target)
        except BaseException:
            discard(temporary)
            raise
        self._seen = _identity(self.path)

    def _check_alone(self) -> None:
        if self.ledger is not None and _identity(self.path) != self._seen:
            msg = (
                f"someone else has written to {self.path}; let one program at a time append to a "
                "series, and make a new TimeSeries to continue it"
            )
            raise CheckpointError(msg)


def _name(number: int) -> str:
    """Name the file of a snapshot; the folder may be renamed."""
    return f"snapshot-{number:06d}.h5"


def _identity(path: str) -> tuple[int, ...]:
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _check_names(fields: Mapping[str, PencilArray]) -> None:
    bad = next((name for name in fields if "%" in name), None)
    if bad is not None:  # virtual datasets put numbers there
        msg = f"{bad!r} cannot be the name of a field with storage='files'; leave out the '%'"
        raise ArgumentError(msg)


def _remove(files: Sequence[Path]) -> None:
    """Remove snapshots that the index no longer names; never fails."""
    for file in files:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            LOG.warning("cannot remove an old snapshot: %s", error)
