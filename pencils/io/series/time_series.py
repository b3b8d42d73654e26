"""Output over time: snapshots of fields, appended one after the other."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pencils.array.allocation import Array
from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.fault import CollectiveBlock
from pencils.comm.topology import congruent, user_comm
from pencils.distribute.localgrid import LocalGrid
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError
from pencils.io.common import check_folder
from pencils.io.contents import are_fields, whole_grid
from pencils.io.file_access import from_root
from pencils.io.file_info import RESERVED
from pencils.io.options import (
    read_attrs,
    read_facts,
    read_grid,
    read_mode,
    read_path,
    split_attrs,
)
from pencils.io.save import save
from pencils.io.series.in_file import InFile
from pencils.io.series.in_folder import InFolder
from pencils.io.series.state import Column, describe_columns, read_samples, take
from pencils.io.writer_lock import WriterLock
from pencils.io.xdmf import write_sidecar
from pencils.layout import Selection
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

# A sidecar lists all snapshots; it is written again when their number has grown by this factor.
_GROWTH = 1.1
# Arguments of `save` that the series passes on or decides on itself.
_OWN = {"grid", "attrs", "step", "time", "wait"}


class TimeSeries(CollectiveBlock):
    """Fields and values over time, as ``u(time, ...)`` in HDF5. *Collective*.

    Every `append` adds one snapshot along the unlimited first axis of every dataset. A process that
    is killed at any moment leaves the snapshots that were appended: pencils reads them at once,
    other programs when a TimeSeries has opened the file again. Programs that read the series while
    it grows need ``storage="files"``. Besides the data, the file grows by a few kB with each
    snapshot. A file that another program has changed is continued with ``edited=True`` only.

    If a ``with`` block fails on any rank, all ranks raise at its end and the series is closed: what
    was appended stays; if that is nothing, so does what ``mode="w"`` was to replace.

    Parameters
    ----------
    path : str or path-like
        The file, or the folder; a relative path starts at the working directory of rank 0.
    mode : {"a", "w", "x"}, optional
        As of `open`: "a" continues what is there, on any number of processes and any decomposition;
        "w" starts anew, whatever file is there, or series in the folder; "x" starts only where
        there is nothing yet. The old file or series stays until the first snapshot of the new one,
        or `close`, takes its place; of a folder only the index and the snapshots that it names go.
    grid : LocalGrid or sequence of PencilArray, optional
        Coordinates to store as dimension scales, so that xarray and netCDF tools find them; also as
        the fields ``(x, y)`` that a LocalGrid yields.
    comm : mpi4py.MPI.Intracomm, optional
        The processes that append. Default: those of `grid`, or else all.
    storage : {"file", "files"}, optional
        Everything in one file, or a folder with a file for each snapshot, made by `save`, and
        ``index.h5``, in which virtual datasets show them as one.
    attrs : mapping of str to object, optional
        Numbers, strings and small arrays to store with a new series; those of rank 0 count. A
        mapping under the name of a field, value or coordinate has the attributes of that, as of
        `save`: ``{"u": {"units": "m s-1"}, "time": {"units": "seconds since 2026-01-01"}}``.
    xdmf : bool, optional
        Whether to keep a sidecar for old versions of ParaView (see `write_xdmf`) beside the file.
        It is written when snapshots have become a tenth more, and at the end.
    saving : mapping of str to object, optional
        Arguments of `save` for the files of snapshots, other than those given here.
    edited : bool, optional
        Whether to continue a series that another program has changed since.

    Raises
    ------
    CheckpointError
        On every rank, if there is a file that is no series, is damaged, or was changed by another
        program, or a folder with other ``.h5`` files.
    OSError
        On every rank, if the file can be neither opened nor made; ``FileExistsError`` by mode "x".
    ArgumentError, PencilMismatchError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks.

    Examples
    --------
    >>> import tempfile, h5py, numpy as np, pencils
    >>> u = pencils.ones(pencils.Pencil((4, 6)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with pencils.TimeSeries(f"{folder}/out.h5") as series:
    ...         for time in (0.0, 0.5):
    ...             fields = {"u": u, "line": (u, np.s_[2]), "energy": u.norm()}
    ...             series.append(time, fields)
    ...     with h5py.File(f"{folder}/out.h5") as file:
    ...         print(file["u"].shape, file["line"].shape, file["energy"][-1], file["time"][:])
    (2, 4, 6) (2, 6) 4.898979485566356 [0.  0.5]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: Literal["a", "w", "x"] = "a",
        *,
        grid: LocalGrid | Sequence[PencilArray] | None = None,
        comm: MPI.Intracomm | None = None,
        storage: Literal["file", "files"] = "file",
        attrs: Mapping[str, Any] | None = None,
        xdmf: bool = False,
        saving: Mapping[str, Any] | None = None,
        edited: bool = False,
    ) -> None:
        self._ranks = _find_ranks(grid, comm)
        topology = self._ranks.topology if self._ranks else topology_among()
        self._comm = topology.comm
        grid = whole_grid(self._comm, "TimeSeries", grid)
        with agreed(self._comm, "TimeSeries") as agree:
            given, both = read_path(path), read_attrs(attrs, RESERVED)
            known, notes = split_attrs(both)
            self._mode = read_mode(mode)
            self._grid = read_grid(grid)
            _check_comm(self._grid, comm)
            options = _read_saving(saving, storage)
            found = self._grid and (self._grid.pencil, self._grid.names, self._grid.axes)
            agree(path=given, mode=mode, grid=found, attrs=sorted(both), storage=storage)
            agree(xdmf=bool(xdmf), saving=sorted(options), edited=bool(edited))
        check_folder(topology, given)
        real: str = from_root(self._comm, lambda: os.path.realpath(given))
        self._lock = WriterLock()  # taken on rank 0
        way: dict[str, Any] = {"lock": self._lock, "mode": mode, "edited": bool(edited)}
        self._storage: InFile | InFolder
        try:
            if storage == "file":
                self._storage = InFile(self._comm, real, known, **way)
            else:
                self._storage = InFolder(self._comm, real, known, self._grid, options, **way)
            self._times: list[float] = from_root(self._comm, self._find_times)
        except BaseException:
            self._lock.release()
            raise
        self._notes = notes
        self._note()
        self._xdmf = bool(xdmf)
        self._listed = 0  # snapshots in the sidecar
        self._failed = False  # whether the last append was not completed
        self._closed = False

    @property
    def times(self) -> NDArray[np.float64]:
        """Times of all snapshots."""
        return np.array(self._times, float)

    @property
    def path(self) -> str:
        """The file that shows all snapshots: the series itself, or the index of its folder."""
        return self._storage.path

    @property
    def mode(self) -> str:
        """Whether it continues what was there, ``"a"``, or was started anew, ``"w"`` or ``"x"``."""
        return self._mode

    @property
    def closed(self) -> bool:
        """Whether `close` has ended appending."""
        return self._closed

    def append(self, time: float, fields: Mapping[str, Any]) -> None:
        """Add a snapshot. *Collective*.

        Parameters
        ----------
        time : float
            Its time, later than that of the last one.
        fields : mapping of str to PencilArray, (PencilArray, key), number or numpy.ndarray
            Fields, which are stored without halos; selections of fields by global indices, like
            the plane ``(u, np.s_[:, :, 5])`` or every fourth point ``(u, np.s_[..., ::4, ::4])``;
            and numbers and small arrays that all ranks have alike. Names, shapes and element types
            are those of the first snapshot.

        Raises
        ------
        ArgumentError, IndexError, PencilMismatchError, RankDisagreementError, TypeError
            On every rank, if an argument is not allowed or differs between ranks or from what the
            series holds; nothing has changed then.
        CheckpointError
            On every rank, if another process has written to the file.
        OSError
            On every rank, if the file cannot be written.
        """
        with agreed(self._comm, "append") as agree:
            self._check_open()
            now = self._read_time(time)
            agree(time=now, series=self._storage.path)
            selected, values = read_samples(fields, self._ranks or Pencil(1))
            agree(names=sorted([*selected, *values]))
            agree(**{f"fields[{name!r}]": (value,) for name, value in values.items()})
            agree(**{f"fields[{name!r}]": _signature(*pair) for name, pair in selected.items()})
            taken = {name: take(*pair) for name, pair in selected.items()}
            if self._storage.state is not None:
                self._compare(*describe_columns(selected, taken, values, self._grid))
            ready = self._storage.prepare(agree, taken)
        self._failed = True
        with self._changing():
            self._storage.append(now, len(self._times), taken, values, ready)
        self._failed = False
        self._times.append(now)
        if self._xdmf and len(self._times) >= _GROWTH * self._listed:
            self._write_sidecar(len(self._times))

    def truncate(self, time: float) -> None:
        """Drop the snapshots that are later than a time. *Collective*.

        So that a run which goes on from a checkpoint of that time does not have them twice. The
        space of dropped snapshots in a file is not used again.

        Parameters
        ----------
        time : float
            The last time to keep; ``-inf`` drops all.

        Raises
        ------
        ArgumentError, RankDisagreementError, TypeError
            On every rank, if `time` is no number or differs between ranks.
        OSError
            On every rank, if the file cannot be written.
        """
        with agreed(self._comm, "truncate") as agree:
            self._check_open()
            last = _read_number(time)
            agree(time=last, series=self._storage.path)
        count = sum(one <= last for one in self._times)
        if count == len(self._times):
            return
        if self._xdmf:  # first: it may list what will be gone
            self._write_sidecar(count)
        with self._changing():
            self._storage.truncate(count)
        del self._times[count:]

    def set_aside(self) -> None:
        """Keep all snapshots under another name, and go on without any. *Collective*.

        The name of the file, or of the index of the folder, gets the ending ``.abandoned``, as a
        warning in the logger ``pencils`` tells. `CheckpointSeries.resume` does this if the run
        died before its first checkpoint.

        Raises
        ------
        ArgumentError, RankDisagreementError
            On every rank, if the series is closed, or ranks pass different series.
        OSError
            On every rank, if that fails.
        """
        with agreed(self._comm, "set_aside") as agree:
            self._check_open()
            agree(series=self._storage.path)
        if not self._times:
            return
        if self._xdmf:  # first: it may list what will be gone
            self._write_sidecar(0)
        with self._changing():
            self._storage.set_aside()
        self._note()
        del self._times[:]

    def close(self) -> None:
        """End appending, and write the sidecar, if there is to be one. *Collective*.

        Raises
        ------
        OSError
            On every rank, if that fails.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._failed and not self._times:
                self._storage.abandon()
            self._storage.close()
            if self._xdmf and self._listed != len(self._times):
                self._write_sidecar(len(self._times))
        finally:
            self._lock.release()

    def _block_comm(self) -> MPI.Intracomm:
        return self._comm

    def _end_block(self) -> None:
        self.close()

    def _give_up(self, _error: BaseException, /) -> None:
        self._closed = True
        try:
            self._storage.abandon()
        finally:
            self._lock.release()

    def __len__(self) -> int:
        return len(self._times)

    def __repr__(self) -> str:
        span = f" from {self._times[0]} to {self._times[-1]}" if self._times else ""
        plural = "" if len(self._times) == 1 else "s"
        return f"<TimeSeries of {len(self._times)} snapshot{plural}{span} in {self.path}>"

    def _check_open(self) -> None:
        if self._closed:
            raise ArgumentError(f"{self!r} is closed; make a new TimeSeries to continue it")
        state = self._storage.state
        if state is not None and not state.whole:
            raise CheckpointError(
                f"writing to {self.path} failed before; make a new TimeSeries to continue it"
            )

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let another series write after a failure with which this one cannot go on."""
        try:
            yield
        finally:
            state = self._storage.state
            if state is not None and not state.whole:
                self._lock.release()

    def _find_times(self) -> list[float]:
        """Return the times of all snapshots, on rank 0."""
        state = self._storage.state
        return [] if state is None else [*map(float, state.times)]

    def _note(self) -> None:
        """Let what the first snapshot will make have the attributes that were given."""
        state = self._storage.state
        if state is not None and not state.times:
            state.notes = self._notes

    def _read_time(self, time: object) -> float:
        now = _read_number(time)
        if math.isinf(now):
            raise ArgumentError(f"time={time!r} must be finite")
        if self._times and now <= self._times[-1]:
            raise ArgumentError(
                f"time={now} is not later than the last snapshot, at {self._times[-1]}, in "
                f"{self.path}: TimeSeries(path, mode='w') starts anew, and truncate(time) drops "
                "what a resumed run writes again"
            )
        return now

    def _compare(self, columns: Sequence[Column], coordinates: Mapping[str, Array]) -> None:
        """Fix what the series holds, or compare with it; on rank 0."""
        state = self._storage.state
        if state is None:
            return
        if state.times:
            state.check(columns, coordinates)
        else:
            state.start(columns, coordinates, summed=self._storage.summed)

    def _write_sidecar(self, count: int) -> None:
        with agreed(self._comm, "TimeSeries"):
            if self._comm.rank == 0:
                write_sidecar(self._storage.path, count)
        self._listed = count


def _find_ranks(grid: object, comm: MPI.Intracomm | None) -> Pencil | None:
    if grid is None:
        return Pencil(1, comm)
    if are_fields(grid):
        return grid[0].pencil
    return grid.pencil if isinstance(grid, LocalGrid) else None


def _check_comm(grid: LocalGrid | None, comm: MPI.Intracomm | None) -> None:
    if grid is not None and comm is not None and not congruent(user_comm(comm), grid.pencil.comm):
        raise PencilMismatchError("comm holds other processes than the grid; leave one of them out")


def _read_saving(saving: object, storage: str) -> dict[str, Any]:
    if storage not in ("file", "files"):
        raise ArgumentError(
            f"storage={storage!r} must be 'file', or 'files' for one of each snapshot"
        )
    if saving is None:
        return {}
    if not isinstance(saving, Mapping) or storage == "file":
        raise ArgumentError(
            f"saving={saving!r} must be a mapping, of arguments of save() for storage='files'"
        )
    taken = sorted(_OWN & saving.keys())
    if taken:
        raise ArgumentError(
            f"saving={saving!r} may not have {taken[0]!r}, which the series itself decides on"
        )
    signature(save).bind("", {}, **saving)
    return dict(saving)


def _read_number(time: object) -> float:
    if isinstance(time, bool | np.bool_):
        raise TypeError(f"time={time!r} must be a real number")
    try:
        number = read_facts(None, time).get("time", math.nan)
    except OverflowError:
        number = math.nan
    if math.isnan(number):
        raise ArgumentError(f"time={time!r:.80} must be a real number that float can hold")
    return float(number)


def _signature(u: PencilArray, selection: Selection) -> tuple[object, ...]:
    """Return what all ranks must agree on."""
    return u.pencil, u.shape, u.dtype, sorted(u.singletons), selection
