"""Output over time: snapshots of fields, which all ranks append to one file.

Rank 0 keeps the `SeriesFile`, everything but the points of fields: it finds room for a snapshot,
where all ranks write their points, and brings the file to its next state.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pencils.array.operands import check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.failure import CollectiveBlock
from pencils.comm.file import SharedFile
from pencils.comm.topology import congruent, user_comm
from pencils.distribute.localgrid import LocalGrid
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError
from pencils.io.commit import check_folder
from pencils.io.contents import are_fields, whole_grid
from pencils.io.direct import FileBlocks, add_up, write_part
from pencils.io.file_access import from_root
from pencils.io.file_info import RESERVED, TIME, Stored, encode
from pencils.io.formats import is_zarr
from pencils.io.options import (
    as_attrs,
    as_field_names,
    as_local,
    as_mode,
    as_step_and_time,
    check_groups,
)
from pencils.io.save import Chunks, Compression
from pencils.io.slabs import FileMoves
from pencils.layout import Selection
from pencils.layout.box import as_slice
from pencils.layout.drawing import card
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI
    from pencils.io.series_file import SeriesFile

_NUMBERS = ("bool", "int", "float", "complex", "numpy")  # kinds of values

# Fields by name, with the points to store.
_Selected = Mapping[str, tuple[PencilArray, Selection]]


class TimeSeries(CollectiveBlock):
    """Fields and values over time, as ``u(time, ...)`` in HDF5 or Zarr. *Collective*.

    Every `append` adds one snapshot along the unlimited first axis of every dataset. A process that
    is killed at any moment leaves the snapshots that were appended: pencils reads them at once,
    other programs when a TimeSeries has opened the file again. Other programs open the file between
    two appends. Besides the data, the file grows by a few kB with each snapshot. A file that
    another program has changed is continued with ``edited=True`` only.

    If a ``with`` block fails on any rank, all ranks raise at its end and the series is closed:
    appended snapshots stay. Without any, the file that ``mode="w"`` would replace stays.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0. A name that ends in
        ``.zarr`` is that of a Zarr folder, in which each snapshot has chunks of its own.
    mode : {"a", "w", "x"}, optional
        As of `open`: "a" continues a file, on any number of processes and any decomposition; "w"
        replaces it; "x" fails if it exists. The old file stays until the first snapshot of the new
        one, or `close`, takes its place.
    grid : LocalGrid or sequence of PencilArray, optional
        Coordinates to store as dimension scales, which xarray and netCDF tools find; also as the
        fields ``(x, y)`` that a LocalGrid yields.
    comm : mpi4py.MPI.Intracomm, optional
        The processes that append. Default: those of `grid`, or else all.
    attrs : mapping of str to object, optional
        Numbers, strings and small arrays to store with a new series; those of rank 0 count. A
        mapping under the name of a field, value or coordinate has the attributes of that, as of
        `save`: ``{"u": {"units": "m s-1"}, "time": {"units": "seconds since 2026-01-01"}}``.
    edited : bool, optional
        Whether to continue a series that another program has changed since.
    compression : str, int or mapping of str to object, optional
        How to compress the fields of a new series, as `save` does. Zarr only.
    chunks : sequence of int or mapping of str to sequence of int, optional
        Extents of chunks of a new series, one for each dimension that a snapshot of the field has,
        for all fields or by name. Default: as of `save`. Zarr only.

    Raises
    ------
    CheckpointError
        On every rank, if there is a file that is no series, is damaged, or was changed by another
        program, or a folder of snapshots by an older version.
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
        attrs: Mapping[str, Any] | None = None,
        edited: bool = False,
        compression: Compression = None,
        chunks: Chunks = None,
    ) -> None:
        self._ranks: Pencil | None = None
        if grid is None:
            self._ranks = Pencil(1, comm)
        elif are_fields(grid):
            self._ranks = grid[0].pencil
        elif isinstance(grid, LocalGrid):
            self._ranks = grid.pencil
        topology = self._ranks.topology if self._ranks else topology_among()
        self._comm = topology.comm
        grid = whole_grid(self._comm, "TimeSeries", grid)
        with agreed(self._comm, "TimeSeries") as agree:
            given = as_local(path)
            of_file, of_datasets = as_attrs(attrs)
            self._mode = as_mode(mode)
            storage = _as_storage(given, compression, chunks)
            if grid is not None:
                check_type("grid", grid, LocalGrid)
            self._grid = grid
            found = grid and (grid.pencil, grid.names, grid.axes)
            if found and comm is not None and not congruent(user_comm(comm), found[0].comm):
                raise PencilMismatchError(
                    "comm holds other processes than the grid; leave one of them out"
                )
            agree(path=given, mode=mode, grid=found, attrs=sorted(attrs or ()), edited=bool(edited))
            agree(storage=storage)
        check_folder(topology, given)
        self._path: str = from_root(self._comm, lambda: os.path.realpath(given))
        self._file: SeriesFile | None = None  # on rank 0
        self._failed = False  # whether the last append was not completed
        self._closed = False

        def find_contents() -> tuple[list[float], list[str]]:
            file = self._file
            return ([*map(float, file.times)], file.names) if file else ([], [])

        try:
            with agreed(self._comm, "TimeSeries"):
                if self._comm.rank == 0:
                    both = of_file, of_datasets
                    open_file = partial(_file_type(given), Path(self._path), mode, *both)
                    self._file = open_file(edited=bool(edited), storage=storage)
            self._times, self._names = from_root(self._comm, find_contents)
        except BaseException:
            if self._file is not None:
                self._file.abandon()
            raise

    @property
    def times(self) -> NDArray[np.float64]:
        """Times of all snapshots."""
        return np.array(self._times, float)

    @property
    def path(self) -> str:
        """The file."""
        return self._path

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
            On every rank, if an argument is not allowed or differs between ranks or from the
            series; nothing is changed then.
        CheckpointError
            On every rank, if another process has written to the file.
        OSError
            On every rank, if the file cannot be written.
        """
        with agreed(self._comm, "append") as agree:
            self._check_open()
            now = _read_number(time)
            if math.isinf(now):
                raise ArgumentError(f"time={time!r} must be finite")
            if self._times and now <= self._times[-1]:
                raise ArgumentError(
                    f"time={now} is not later than the last snapshot, at {self._times[-1]}, in "
                    f"{self.path}. Call truncate(time) before a resumed run appends, or replace "
                    "the file by TimeSeries(path, mode='w')"
                )
            agree(time=now, series=self._path)
            selected, values = _read_samples(fields, self._ranks or Pencil(1))
            agree(names=sorted([*selected, *values]))
            agree(**{f"fields[{name!r}]": (value,) for name, value in values.items()})
            for name, (u, selection) in selected.items():
                signature = u.pencil, u.shape, u.dtype, sorted(u.singletons), selection
                agree(**{f"fields[{name!r}]": signature})
            taken = {name: _take(*pair) for name, pair in selected.items()}
            if self._file is not None:
                self._file.compare(selected, taken, values, self._grid)
            moves = FileMoves()
            if not is_zarr(self._path):
                moves.prepare(agree, ((taken[name], ()) for name in sorted(taken)))

        def find_places() -> tuple[str, dict[str, Any]]:
            assert self._file is not None
            return self._file.path, self._file.extend()

        self._failed = True
        path, places = from_root(self._comm, find_places)
        works: dict[str, Callable[..., Callable[[], int]]] = {}
        for name in sorted(places):
            u, place, count = taken[name], places[name], len(self._times)
            if is_zarr(self._path):
                from pencils.io.zarr_series import bring  # HDF5 needs no zarr

                full, selection = selected[name]
                dropped = selection.dropped[len(full.components) :]
                works[name] = partial(bring, u, (name, place, dropped, count), path=path)
            else:
                works[name] = partial(_bring, u, place, count)
        sums = _write(self._comm, path, works, moves)
        with agreed(self._comm, "append"):
            if self._file is not None:
                self._file.commit(now, values, sums, places)
        self._failed = False
        self._times.append(now)
        self._names = sorted([*selected, *values])

    def truncate(self, time: float) -> None:
        """Drop the snapshots that are later than a time. *Collective*.

        Call it before a run that resumes from a checkpoint of that time appends again. The space of
        dropped snapshots is not used again.

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
            agree(time=last, series=self._path)
        count = sum(one <= last for one in self._times)
        if count == len(self._times):
            return
        with agreed(self._comm, "truncate"):
            if self._file is not None:
                self._file.cut(count)
        del self._times[count:]

    def set_aside(self) -> None:
        """Keep all snapshots under another name, and go on without any. *Collective*.

        The name of the file gets the ending ``.abandoned``, as a warning in the logger ``pencils``
        tells. `CheckpointSeries.resume` does this if the run died before its first checkpoint.

        Raises
        ------
        ArgumentError, RankDisagreementError
            On every rank, if the series is closed, or ranks pass different series.
        OSError
            On every rank, if that fails.
        """
        with agreed(self._comm, "set_aside") as agree:
            self._check_open()
            agree(series=self._path)
        if not self._times:
            return
        with agreed(self._comm, "set_aside"):
            if self._file is not None:
                self._file.set_aside()
        del self._times[:]

    def close(self) -> None:
        """End appending; a new series now replaces an old one. *Collective*.

        Raises
        ------
        OSError
            On every rank, if that fails.
        """
        if self._closed:
            return
        self._closed = True
        with agreed(self._comm, "close"):
            if self._file is not None:
                if self._failed and not self._times:
                    self._file.abandon()
                self._file.close()

    def _block_comm(self) -> MPI.Intracomm:
        return self._comm

    def _end_block(self) -> None:
        self.close()

    def _give_up(self, _error: BaseException, /) -> None:
        self._closed = True
        if self._file is not None:
            self._file.abandon()

    def __len__(self) -> int:
        return len(self._times)

    def __repr__(self) -> str:
        span = f" from {self._times[0]} to {self._times[-1]}" if self._times else ""
        plural = "" if len(self._times) == 1 else "s"
        return f"<TimeSeries of {len(self._times)} snapshot{plural}{span} in {self.path}>"

    def _repr_html_(self) -> str:
        """Return a table for notebooks; local."""
        times = f"{self._times[0]:g} to {self._times[-1]:g}" if self._times else "none"
        state = "closed" if self._closed else f"open, mode {self._mode!r}"
        rows = [("file", self.path), ("snapshots", str(len(self._times))), ("times", times)]
        rows += [("fields", ", ".join(self._names) or "none"), ("state", state)]
        return card("TimeSeries", rows)

    def _check_open(self) -> None:
        if self._closed:
            raise ArgumentError(f"{self!r} is closed; make a new TimeSeries to continue it")
        if self._file is not None and not self._file.whole:
            raise CheckpointError(
                f"writing to {self.path} failed before; make a new TimeSeries to continue it"
            )


def _write(
    comm: MPI.Intracomm,
    path: str,
    works: Mapping[str, Callable[..., Callable[[], int]]],
    moves: FileMoves,
) -> dict[str, int]:
    """Write fields at new places; return their checksums, as part of all snapshots."""
    file, sums = _open_to_write(path), dict.fromkeys(works, 0)
    with closing(file), closing(moves):
        for name, bring in works.items():
            sums[name] = file.attempt(bring(file=file, moves=moves)) or 0
        file.sync()

    def end_writing(_: object) -> dict[str, int]:
        file.raise_error()
        return sums

    return add_up(comm, "append", end_writing)


def _file_type(path: str) -> type[SeriesFile]:
    """Return the class of the file, which only rank 0 needs."""
    if is_zarr(path):
        from pencils.io.zarr_series import ZarrSeries as Found
    else:
        from pencils.io.series_file import SeriesFile as Found  # type: ignore[assignment]
    return Found


def _as_storage(path: str, compression: object, chunks: object) -> Mapping[str, Any]:
    if compression is None and chunks is None:
        return {}
    return _file_type(path).storage(compression, chunks)


def _open_to_write(path: str) -> SharedFile:
    if not Path(path).is_dir():
        return SharedFile(path, write=True)
    from pencils.io.zarr_write import WrittenObjects

    return WrittenObjects(path)


def _bring(
    u: PencilArray, place: FileBlocks, step: int, file: SharedFile, moves: FileMoves
) -> Callable[[], int]:
    """Move a snapshot of a field to slabs; return the work that writes that of this rank."""
    slab = moves.of(u, check=file.raise_error)
    return partial(write_part, file, slab, place, first=step * slab.size)


def _read_number(time: object) -> float:
    if isinstance(time, bool | np.bool_):
        raise TypeError(f"time={time!r} must be a real number")
    try:
        number = as_step_and_time(None, time).get("time", math.nan)
    except OverflowError:
        number = math.nan
    if math.isnan(number):
        raise ArgumentError(f"time={time!r:.80} must be a real number in the range of float")
    return float(number)


def _read_samples(fields: Any, ranks: Pencil) -> tuple[_Selected, dict[str, Stored]]:
    """Read the argument of `append`: fields with selections, and values, sorted by name.

    Raises ArgumentError, IndexError, PencilMismatchError or TypeError if names, fields, selections
    or values are not what a series takes.
    """
    names = as_field_names(fields)
    for name in names:
        if name == TIME or name.startswith(RESERVED):
            raise ArgumentError(
                f"{name!r} cannot be the name of a field of a series; the series itself uses it"
            )
    check_groups(sorted([*names, TIME]))
    selected, values = {}, {}
    for name in names:
        thing = fields[name]
        is_pair = isinstance(thing, tuple) and len(thing) == 2  # noqa: PLR2004
        u, key = thing if is_pair else (thing, ...)
        if isinstance(u, PencilArray):
            if u.pencil.size != ranks.size or not u.pencil.same_ranks(ranks):
                raise PencilMismatchError(
                    f"fields[{name!r}] is on other processes than the series:\n{u.pencil!r}"
                )
            selection = Selection.from_key(key, u.shape)
            if any(kept.step < 0 for kept in selection.ranges):
                raise ArgumentError(f"fields[{name!r}] is selected backwards; use positive steps")
            selected[name] = u, selection
            continue
        stored = None
        with suppress(TypeError):
            stored = encode(thing)
        if stored is None or stored.kind not in _NUMBERS:
            raise TypeError(
                f"fields[{name!r}] is a {type(thing).__name__}; a series takes PencilArrays, "
                "(field, selection) pairs, numbers and NumPy arrays"
            )
        values[name] = stored
    return selected, values


def _take(u: PencilArray, selection: Selection) -> PencilArray:
    """View the selected points of a field where they are, without halo.

    Dimensions that were indexed by an integer keep one point.
    """
    lead = len(u.components)
    slices = tuple(map(as_slice, selection.ranges))
    drops = (
        one.start if drop else one for one, drop in zip(slices, selection.dropped, strict=True)
    )
    part = u[(*islice(drops, lead), *slices[lead:])]
    return PencilArray.from_block(part.pencil, part.local, part.singletons)
