"""A series as a folder: a file for every snapshot, and an index that shows them as one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.distribute.localgrid import LocalGrid
from pencils.errors import ArgumentError, CheckpointError
from pencils.io.commit import LOG, made, make_directory, remove_old, set_aside
from pencils.io.file_info import TIME, Access, Stored, decode
from pencils.io.options import already_there
from pencils.io.ready import ReadyMoves
from pencils.io.save import save
from pencils.io.series.state import SeriesState
from pencils.io.writer_lock import WriterLock

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


_NAME = re.compile(r"snapshot-(?:(?P<run>\d+)-)?\d{6,}\.h5")


class InFolder:
    """A series in a folder. Everything but `abandon` is *Collective*.

    A snapshot belongs to the series when the index, which takes its name when it is whole, names
    it. Parameters are a private communicator, the folder as all ranks find it, attributes of the
    files, coordinates and other arguments of `save` for the snapshots, the lock to take on rank 0,
    and the arguments `mode` and `edited` of `TimeSeries`.
    """

    summed = False

    def __init__(
        self,
        comm: MPI.Intracomm,
        path: str,
        attrs: Mapping[str, Any],
        grid: LocalGrid | None,
        saving: Mapping[str, Any],
        *,
        lock: WriterLock,
        mode: str,
        edited: bool = False,
    ) -> None:
        self._comm = comm
        self._edited = edited
        self._folder = Path(path)
        self._saving = {"attrs": attrs, **saving}
        self._grid = grid
        self.state: SeriesState | None = None
        self._seen: tuple[int, ...] = ()  # the index as rank 0 has read or written it
        self._run = 0  # distinguishes its snapshots from those it replaces
        self._replaced: list[str] | None = None  # snapshots of that, until this one has an index
        with agreed(comm, "TimeSeries"):
            if comm.rank == 0:
                make_directory(self._folder)
                lock.take(Path(self.path))
                self.state = self._open(mode)
        self._run = comm.bcast(self._run)

    @property
    def path(self) -> str:
        """The index."""
        return str(self._folder / "index.h5")

    def prepare(self, _: agreed, fields: Mapping[str, PencilArray]) -> ReadyMoves:
        """Check what is to be appended, within the agreement about that; local."""
        bad = next((name for name in fields if "%" in name), None)
        if bad is not None:  # virtual datasets put numbers there
            raise ArgumentError(
                f"{bad!r} cannot name a field with storage='files'; leave out the '%'"
            )
        self._check_alone()
        return ReadyMoves()  # `save` prepares what it moves

    def append(
        self,
        time: float,
        step: int,
        fields: Mapping[str, PencilArray],
        values: Mapping[str, Stored],
        _: ReadyMoves,
    ) -> None:
        """Add a snapshot."""
        contents = {**fields, **{name: decode(value) for name, value in values.items()}}
        if fields:
            path = self._folder / _name(self._run, step)
            save(path, contents, grid=self._grid, time=time, **self._saving)
        with agreed(self._comm, "append"):
            if self.state is not None:
                self._check_alone()
                row = {name: value.data for name, value in values.items()}
                with self.state.changing():
                    self.state.record({TIME: time, **row})
                    self._write_index(self.state)

    def truncate(self, keep: int) -> None:
        """Keep the first snapshots only; the files of the others go when the index is written."""
        with agreed(self._comm, "truncate"):
            if self.state is not None:
                self._check_alone()
                surplus = self._names[keep:]
                with self.state.changing():
                    self.state.cut(keep)
                    self._write_index(self.state)
                self._drop(surplus)

    def set_aside(self) -> None:
        """Copy the index, and go on with an empty one; later snapshots have other names."""
        with agreed(self._comm, "set_aside"):
            if self.state is not None:
                self._check_alone()
                self.state, self._run = self._new_state(), self._unused_run()
                with self.state.changing():
                    set_aside(Path(self.path), _copy)
                    self._write_index(self.state)
        self._run = self._comm.bcast(self._run)

    def close(self) -> None:
        """End appending: a new series without snapshots, too, now replaces the old one."""
        with agreed(self._comm, "close"):
            if self.state is not None and self._replaced is not None and self.state.whole:
                self._check_alone()
                self._write_index(self.state)

    def abandon(self) -> None:
        """Leave what was there before, if there is nothing to replace it. Local."""
        self._replaced = None

    def _open(self, mode: str) -> SeriesState:
        if Path(self.path).exists():
            if mode == "x":
                raise already_there(self._folder)
            self._seen = _identity(self.path)
            return self._start_beside() if mode == "w" else self._continue()
        other = min(self._folder.glob("*.h5"), default=None)
        if other is not None:
            raise CheckpointError(
                f"{self._folder} holds {other.name} but no index.h5, so it is no series; choose an "
                "empty folder"
            )
        state = self._new_state()
        self._write_index(state)
        return state

    def _new_state(self) -> SeriesState:
        return SeriesState(dict(self._saving["attrs"]))

    def _unused_run(self) -> int:
        """Return the number of a run that has no snapshots in the folder."""
        runs = {_run_of(path.name) for path in self._folder.iterdir()}
        return next(run for run in count() if run not in runs)

    def _continue(self) -> SeriesState:
        from pencils.io import hdf5  # of all ranks, only this one needs h5py
        from pencils.io.series import tree

        with hdf5.open_whole(self.path, Access(edited=self._edited)) as source:
            state = tree.read_tree(self.path, source.file)
            named = next(filter(None, map(_run_of, tree.sources(source.file))), 0)
            self._run = int(source.file.attrs.get(tree.RUN, named))
        return state

    def _start_beside(self) -> SeriesState:
        """Start a series whose snapshots have other names than those that there are."""
        from pencils.io import hdf5
        from pencils.io.series import tree

        self._replaced, self._run = [], self._unused_run()
        try:
            with hdf5.open_whole(self.path, Access(edited=True)) as source:
                is_series = tree.SERIES in source.file.attrs
                self._replaced = [*filter(_NAME.fullmatch, tree.sources(source.file))]
        except CheckpointError as error:
            LOG.warning("the snapshots of a damaged series are not removed: %s", error)
        else:
            if not is_series:
                raise tree.no_series(self.path)
        return self._new_state()

    def _write_index(self, state: SeriesState) -> None:
        from pencils.io.series import tree

        target = Path(self.path)
        with made(target, alone=True) as temporary:
            tree.create_index(str(temporary), state, self._names, self._run)
        self._seen = _identity(self.path)
        replaced, self._replaced = self._replaced, None
        self._drop(replaced or ())

    @property
    def _names(self) -> list[str]:
        """Names of the files of all snapshots, on rank 0."""
        times = () if self.state is None else self.state.times
        return [_name(self._run, number) for number in range(len(times))]

    def _drop(self, names: Iterable[str]) -> None:
        """Remove snapshots that the index no longer names; never fails."""
        remove_old([self._folder / name for name in names], "snapshot")

    def _check_alone(self) -> None:
        if self.state is not None and _identity(self.path) != self._seen:
            raise CheckpointError(
                f"another process has written to {self.path}; let one program at a time append "
                "to a series, and make a new TimeSeries to continue it"
            )


def _copy(path: Path, copy: Path) -> None:
    with made(copy) as temporary:
        shutil.copyfile(path, temporary)


def _name(run: int, number: int) -> str:
    """Name the file of a snapshot; the folder may be renamed."""
    return f"snapshot-{run}-{number:06d}.h5" if run else f"snapshot-{number:06d}.h5"


def _run_of(name: str) -> int | None:
    """Return the number of the run that has such snapshots."""
    found = _NAME.fullmatch(name)
    return int(found["run"] or 0) if found else None


def _identity(path: str) -> tuple[int, ...]:
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size
