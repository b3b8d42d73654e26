"""Checkpoints of a long run: save and verify them, keep the last ones, resume from the newest."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import signature
from math import inf, isnan
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.failure import CollectiveBlock
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError
from pencils.io.commit import LOG, WriterLock, check_folder, clean, discard, hide, set_aside, sync
from pencils.io.file_access import on_root
from pencils.io.load import Checkpoint, find_matches, load
from pencils.io.options import already_there, as_field_names, as_local, as_mode, as_names
from pencils.io.save import Saving, save
from pencils.io.signals import SIGNALS, SignalListener, as_signals
from pencils.layout.drawing import card
from pencils.layout.integers import as_int
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

T = TypeVar("T")

_SHOWN = 8  # steps
_NAME = re.compile(r"checkpoint-(\d{8,})\.(?:h5|zarr)")
_NEW = re.compile(r"checkpoint-\d{8,}\.(?:h5|zarr)\.new")
_TEMPORARY = re.compile(r"\.(checkpoint-\d{8,}\.(?:h5|zarr)(?:\.new)?)\..*\.tmp")
_ENDINGS = {"hdf5": "h5", "zarr": "zarr"}


class Truncatable(Protocol):
    """Output like a `TimeSeries`; it may have `closed`, `mode`, and `set_aside`."""

    def truncate(self, time: float) -> object:
        """Drop what is later than `time`. *Collective*."""


class CheckpointSeries(CollectiveBlock):
    """The last checkpoints of a run, in one directory. *Collective*.

    A checkpoint is named by its step, ``checkpoint-00000120.h5``. It is written and read back
    before older ones are removed. Signals of the batch system and the wall clock stop the run at
    the same step on all processes, and `resume` continues from the newest checkpoint that is as it
    was written. If a ``with`` block fails on any rank, all ranks raise at its end, and a save in
    the background is abandoned.

    Parameters
    ----------
    directory : str or path-like
        Created if it is missing; a relative path starts at the working directory of rank 0.
    mode : {"a", "w", "x"}, optional
        As of the built-in `open`: "a" continues an earlier run, by `resume`; "w" starts a new one:
        existing checkpoints do not count, and are removed after the first new one is verified;
        "x" is only allowed without existing checkpoints. Other files, and those that `resume` has
        renamed, stay.
    keep : int or None, optional
        How many checkpoints to keep; None for all.
    every : int, datetime.timedelta or None, optional
        Interval of `due`, in steps or in time since the last save. Default: never.
    stop_after : float, datetime.timedelta or None, optional
        Seconds from now after which `should_stop` is True. Default: never.
    signals : iterable of int, optional
        Signals that make `should_stop` True and do not end the process, until `close`. Handlers
        that the program has set before are called, too. Default: SIGTERM and SIGUSR1. Simulated
        ranks receive none.
    comm : mpi4py.MPI.Intracomm, optional
        The processes of the run. Default: all.
    format : {"hdf5", "zarr"}, optional
        Format of new checkpoints; earlier ones may have another.

    Raises
    ------
    OSError
        On every rank, if the directory cannot be made; ``FileExistsError`` if it holds checkpoints,
        with mode "x".
    ArgumentError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks, or `signals` is not
        empty outside the main thread.

    Examples
    --------
    >>> import tempfile, pencils
    >>> def run(folder, steps):
    ...     with pencils.CheckpointSeries(f"{folder}/run", keep=2, every=10) as checkpoints:
    ...         u = pencils.zeros(pencils.Pencil((4, 6)))
    ...         state = checkpoints.resume({"u": u})
    ...         u = state["u"] if state else u
    ...         for step in range(state.step + 1 if state else 1, steps + 1):
    ...             u += 1
    ...             stop = checkpoints.should_stop()
    ...             if stop or checkpoints.due(step):
    ...                 checkpoints.save(step, {"u": u}, time=0.1 * step)
    ...             if stop:
    ...                 break
    ...     return checkpoints.steps, u.max()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run(folder, steps=30), run(folder, steps=45)
    (([20, 30], np.float64(30.0)), ([30, 40], np.float64(45.0)))
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        mode: Literal["a", "w", "x"] = "a",
        *,
        keep: int | None = 3,
        every: int | timedelta | None = None,
        stop_after: float | timedelta | None = None,
        signals: Iterable[int] = SIGNALS,
        comm: MPI.Intracomm | None = None,
        format: Literal["hdf5", "zarr"] = "hdf5",  # noqa: A002 - as of other libraries
    ) -> None:
        self._ranks = Pencil(1, comm)
        self._comm = self._ranks.topology.comm
        with agreed(self._comm, "CheckpointSeries") as agree:
            given, self._mode = as_local(directory), as_mode(mode)
            if format not in _ENDINGS:
                raise ArgumentError(f"format={format!r} must be 'hdf5' or 'zarr'")
            self._ending = _ENDINGS[format]
            self._keep = None if keep is None else as_int("keep", keep, least=1)
            self._every = _as_every(every)
            seconds, numbers = _as_seconds("stop_after", stop_after), as_signals(signals)
            agree(format=format, directory=given, mode=mode, keep=self._keep, every=self._every)
            agree(stop_after=seconds, signals=numbers)
        check_folder(self._ranks.topology, given)
        self._directory: Path
        # The steps in `_old` are of another run: the first new checkpoint replaces them.
        self._directory, self._old = on_root(
            self._comm, "CheckpointSeries", lambda: _open_directory(given, self._mode)
        )
        self._find_steps()
        self._known: set[int] = set()  # steps that this run has written or loaded
        self._skipped: dict[str, str] = {}
        self._lock = WriterLock()  # on rank 0, from the first `resume` or `save` on
        self._stops = False
        self._pending: tuple[int, Saving] | None = None  # with its step
        self._interval = self._every.total_seconds() if isinstance(self._every, timedelta) else inf
        self._due, self._end = monotonic() + self._interval, monotonic() + seconds
        self._listener = SignalListener(numbers)  # last: nothing after it can raise

    @property
    def mode(self) -> str:
        """The mode in which it was opened: ``"a"``, ``"w"`` or ``"x"``."""
        return self._mode

    @property
    def directory(self) -> Path:
        """The directory of the checkpoints."""
        return self._directory

    @property
    def steps(self) -> list[int]:
        """Steps of all checkpoints in the directory, damaged or not, oldest first.

        The same on every rank: rank 0 looks when the series is opened, and in `save`, `wait`,
        `latest` and `resume`.
        """
        return list(self._steps)

    @property
    def skipped(self) -> dict[str, str]:
        """Files that the last `latest` or `resume` has skipped, and the reasons."""
        return dict(self._skipped)

    def due(self, step: int) -> bool:
        """Return whether to save after a step. *Collective* if `every` is a time, else local.

        Parameters
        ----------
        step : int
            Number of the step.

        Returns
        -------
        bool
            The same on every rank: True if the time is over on any.
        """
        if isinstance(self._every, timedelta):
            with agreed(self._comm, "due") as agree:
                as_int("step", step, least=0)
                agree.flag(up=monotonic() >= self._due)
            return agree.flagged
        number = as_int("step", step, least=0)
        return self._every is not None and number % self._every == 0

    def should_stop(self) -> bool:
        """Return whether the run should save and end. *Collective*.

        Returns
        -------
        bool
            True on every rank, from now on, if any has received a signal or its time is over.
        """
        mine = [*self._listener.received, *(["stop_after"] if monotonic() >= self._end else [])]
        with agreed(self._comm, "should_stop") as agree:
            agree.flag(up=bool(mine) or self._stops)
        if agree.flagged and not self._stops:
            self._stops = True
            reasons = sorted({reason for one in self._comm.allgather(mine) for reason in one})
            if self._comm.rank == 0:
                LOG.info("stop of the run requested: %s", ", ".join(reasons))
        return agree.flagged

    def save(
        self,
        step: int,
        fields: Mapping[str, Any],
        *,
        time: float | None = None,
        wait: bool = True,
        **options: Any,
    ) -> None:
        """Write the checkpoint of a step, verify it, remove the oldest. *Collective*.

        Steps must increase; only the last one can be saved again.

        Parameters
        ----------
        step : int
            Number of the step, not negative.
        fields : mapping of str to object
            As in `pencils.save`; at least one field over the processes of the series.
        time : float, optional
            Time of the run; `resume` needs it to truncate outputs.
        wait : bool, optional
            Whether to return only when the checkpoint is complete. Otherwise a thread writes a copy
            of the fields, and the next `save`, `wait`, `latest`, `resume` or `close` completes it
            or raises its error.
        **options : optional
            ``grid``, ``attrs`` and so on, as in `pencils.save`. Fields are exact without
            ``tolerance``, which suits output better than restarts.

        Raises
        ------
        CheckpointError
            On every rank, if the new file does not verify; no other is removed then.
        OSError
            On every rank, if the file cannot be written.
        ArgumentError, PencilMismatchError, RankDisagreementError, TypeError
            On every rank, if the directory has checkpoints that this run has neither written nor
            loaded, or of later steps, or an argument is not allowed or differs between ranks.
        """
        options["time"] = time
        with agreed(self._comm, "save") as agree:
            number = as_int("step", step, least=0)
            as_field_names(fields)
            _check_processes(self._ranks, fields)
            signature(save).bind("", fields, step=number, **options)
            agree(step=number, wait=bool(wait))
        self.wait()
        steps = self._find_steps("save", lock=True)
        others = [other for other in steps if other not in self._known]
        if others:
            raise ArgumentError(
                f"{self.directory} holds checkpoints of another run, the last of step "
                f"{others[-1]}. Continue them with resume(), replace them by "
                "CheckpointSeries(directory, mode='w'), or choose another directory"
            )
        if steps and number < steps[-1]:
            raise ArgumentError(
                f"step={number} is before the last checkpoint, step {steps[-1]}, in "
                f"{self.directory}; call resume(..., step=...) to go back, which sets later ones "
                "aside"
            )
        path = self._path(number)
        if self._old:  # it gets its name when it is verified
            path = path.with_name(f"{path.name}.new")
        self._known.add(number)
        self._due = monotonic() + self._interval
        if wait:
            save(path, fields, step=number, **options)
            self._settle(path, number)
        else:
            self._pending = number, save(path, fields, step=number, wait=False, **options)

    def wait(self) -> None:
        """Complete a save in the background, if there is one. *Collective*.

        Raises
        ------
        CheckpointError, OSError
            As `save` does.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            number, saving = pending
            saving.wait()
            self._settle(Path(saving.path), number)

    def latest(self) -> Path | None:
        """Return the newest undamaged checkpoint. *Collective*.

        Returns
        -------
        Path or None
            None if there is none; `skipped` and the logger ``pencils`` name damaged ones.

        Raises
        ------
        OSError
            On every rank, if the directory or a file cannot be read.
        """
        self.wait()
        found = self._read_newest(self._find_steps(), self._check)
        return None if found is None else self._path(found[0])

    def resume(
        self,
        template: Pencil | Mapping[str, Any] | None = None,
        names: str | Iterable[str] | None = None,
        *,
        step: int | None = None,
        outputs: Iterable[Truncatable] = (),
        **options: Any,
    ) -> Checkpoint | None:
        """Load the newest undamaged checkpoint, to continue the run. *Collective*.

        Later ones, which are damaged or of steps after `step`, get names that end in
        ``.abandoned``. A checkpoint that is as it was written but cannot be loaded is an error.

        Parameters
        ----------
        template, names, **options : optional
            As in `pencils.load`.
        step : int, optional
            The step to continue from. Default: the newest that can be loaded.
        outputs : iterable of TimeSeries, optional
            Outputs of the run, which are truncated to the time of the checkpoint. Without a
            checkpoint the run starts from nothing: the contents of an output get a name that ends
            in ``.abandoned``. Outputs that are no TimeSeries are truncated to ``-inf``.

        Returns
        -------
        Checkpoint or None
            None if the directory has no checkpoints, damaged or not, and `step` is None.

        Raises
        ------
        CheckpointError
            On every rank, if all checkpoints are damaged, the newest of the others does not fit,
            or there is none of `step`.
        ArgumentError
            On every rank, if an output is closed, or was opened with ``mode="w"`` although there
            are checkpoints, or the checkpoint has no time to truncate outputs to.
        OSError
            On every rank, if the directory or a file cannot be read, or an output not truncated.
        PencilMismatchError, RankDisagreementError, TypeError
            On every rank, if an argument is not allowed or differs between ranks.
        """
        with agreed(self._comm, "resume") as agree:
            wanted = None if step is None else as_int("step", step, least=0)
            cut = _as_outputs(outputs)
            chosen = as_names(names)  # an iterator would be empty at the second file
            _check_processes(self._ranks, template, options.get("into"))
            signature(load).bind("", template, chosen, **options)
            agree(step=wanted, outputs=len(cut))
        self.wait()
        steps = self._find_steps("resume", lock=True)
        if not steps and wanted is None:
            _set_back(cut, None)
            return None
        with agreed(self._comm, "resume"):
            for output in cut:
                if getattr(output, "mode", "a") == "w":
                    raise ArgumentError(
                        f"{output!r} was opened with mode='w', which drops earlier output, but the "
                        "run continues from a checkpoint. Use mode='a' for the output, or mode='w' "
                        "for both"
                    )
        wants = [number for number in steps if wanted in (None, number)]
        read = partial(load, template=template, names=chosen, **options)
        found = self._read_newest(wants, read)
        if found is None:
            msg = f"there is no checkpoint of step {wanted} in {self.directory}"
            if self._skipped:
                reasons = (f"\n{name}: {reason}" for name, reason in self._skipped.items())
                msg = f"no checkpoint in {self.directory} can be loaded:{''.join(reasons)}"
            raise CheckpointError(msg)
        number, state = found
        if cut and state.time is None:
            msg = f"{state.path} has no time to truncate outputs at; save checkpoints with time="
            raise ArgumentError(msg)
        with agreed(self._comm, "resume"):
            later = [self._path(one) for one in steps if one > number]
            if self._comm.rank == 0 and later:
                for path in reversed(later):
                    set_aside(path)
                sync(self.directory)
        self._steps = [one for one in steps if one <= number]
        self._known = set(self._steps)
        _set_back(cut, state.time)
        return state

    def close(self) -> None:
        """Complete a save in the background, and restore signal handlers. *Collective*.

        Raises
        ------
        CheckpointError, OSError
            As `save` does.
        """
        try:
            self.wait()
        finally:
            self._lock.release()
            self._listener.close()

    def _block_comm(self) -> MPI.Intracomm:
        return self._comm

    def _end_block(self) -> None:
        self.close()

    def _give_up(self, error: BaseException, /) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending[1].give_up(error)
        self._lock.release()
        self._listener.close()

    def __repr__(self) -> str:
        keep = "all" if self._keep is None else f"the last {self._keep}"
        every = "" if self._every is None else f", one every {self._every}{self._unit()}"
        return f"<CheckpointSeries {self.directory}, keeps {keep}{every}>"

    def _repr_html_(self) -> str:
        """Return a table for notebooks; local."""
        found = ", ".join(map(str, self._steps[-_SHOWN:])) or "none"
        rows = [
            ("directory", str(self.directory)),
            ("steps", f"{'..., ' * (len(self._steps) > _SHOWN)}{found}"),
            ("keeps", "all" if self._keep is None else f"the last {self._keep}"),
        ]
        if self._every is not None:
            rows.append(("every", f"{self._every}{self._unit()}"))
        return card("CheckpointSeries", rows)

    def _unit(self) -> str:
        return " steps" if isinstance(self._every, int) else ""

    def _path(self, step: int) -> Path:
        """Return the path of a checkpoint: as it is there, or else of the format of this series."""
        new = self.directory / f"checkpoint-{step:08}.{self._ending}"
        found = (new.with_suffix(f".{ending}") for ending in _ENDINGS.values())
        return next(filter(Path.exists, [new, *found]), new)

    def _find_steps(self, call: str = "list checkpoints", *, lock: bool = False) -> list[int]:
        """Return the steps that rank 0 finds, after it has locked the directory. *Collective*."""

        def find() -> list[int]:
            if lock:
                self._lock.take(self.directory / "checkpoints")
            return _list_steps(self.directory, self._old)

        self._steps = on_root(self._comm, call, find)
        return self._steps

    def _check(self, path: Path) -> None:
        """Verify a file; if it was saved without checksums, log that. *Collective*."""
        if find_matches(path, self._ranks.comm) is None and self._comm.rank == 0:
            LOG.warning("%s has no checksums: its data are not verified", path)

    def _read_newest(self, steps: Iterable[int], read: Callable[[Path], T]) -> tuple[int, T] | None:
        """Call `read` for the files of some steps, newest first, until one is valid. *Collective*.

        Notes why files were skipped: they are damaged or missing. Raises what `read` raises for
        other files, and OSError if the system cannot read one.
        """
        logs, self._skipped = self._comm.rank == 0, {}
        for step in sorted(steps, reverse=True):
            path = self._path(step)
            try:
                result = read(path)
            except (CheckpointError, OSError):
                reason = self._find_damage(path)
                if reason is None:
                    raise
                self._skipped[path.name] = reason
                if logs:
                    LOG.warning("%s is skipped: %s", path, reason)
                continue
            if logs:
                written = "at an unknown time"
                with contextlib.suppress(Exception):  # a time that no date can have
                    modified = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                    written = modified.isoformat(" ", "seconds")
                LOG.info("%s is taken: step %d, written %s", path, step, written)
            return step, result
        return None

    def _find_damage(self, path: Path) -> str | None:
        """Return why a file is damaged; None if it is as it was written. *Collective*."""
        try:
            find_matches(path, self._ranks.comm)
        except (CheckpointError, FileNotFoundError) as error:
            return str(error)
        except OSError as error:
            if error.errno is not None:  # of the system: the file may be valid
                raise
            return str(error)  # HDF5 cannot decode the bytes
        return None

    def _settle(self, path: Path, step: int) -> None:
        """Verify a file that was written, and remove old ones. *Collective*.

        Old and new checkpoints never count at the same time: the old ones are renamed first.
        """
        self._find_steps()
        self._check(path)
        with agreed(self._comm, "save"):  # no rank returns before old files are gone
            if self._comm.rank == 0:
                if self._old:
                    old = filter(Path.exists, map(self._path, sorted(self._old, reverse=True)))
                    aside = [set_aside(one, logs=False) for one in old]
                    path.rename(self._path(step))
                    sync(self.directory)
                    _remove(aside)
                self._rotate()
        self._old = frozenset()
        self._find_steps()

    def _rotate(self) -> None:
        """Remove all but the last files, and temporaries of dead processes; never raises."""
        try:
            names = [path.name for path in self.directory.iterdir()]
            for found in filter(None, map(_TEMPORARY.fullmatch, names)):
                clean(self.directory / found[1])
            dead = [self.directory / name for name in names if _NEW.fullmatch(name)]
            steps = _list_steps(self.directory, self._old)
        except OSError as error:
            LOG.warning("cannot look for old checkpoints: %s", error)
            return
        _remove([*dead, *map(self._path, steps[: -self._keep] if self._keep else ())])


def _open_directory(given: str, mode: str) -> tuple[Path, frozenset[int]]:
    """Make the directory, unless it exists, and find the checkpoints to replace; local."""
    path = Path(os.path.realpath(given))
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"cannot create {path}: {path.parent} is not a directory; create it first"
        )
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"cannot create {path}: it is a file; choose another name")
    if not path.exists():
        path.mkdir()
        with contextlib.suppress(OSError):  # not every file system synchronizes directories
            sync(path.parent)
    steps = _list_steps(path)
    if steps and mode == "x":
        raise already_there(min(path.glob(f"checkpoint-{steps[-1]:08}.*")))
    return path, frozenset(steps if mode == "w" else ())


def _list_steps(directory: Path, old: frozenset[int] = frozenset()) -> list[int]:
    """Return the steps that have a checkpoint, without the old ones, in order."""
    found = filter(None, (_NAME.fullmatch(path.name) for path in directory.iterdir()))
    steps = ((int(match[1]), match[1]) for match in found)
    return sorted(step for step, digits in steps if digits == f"{step:08}" and step not in old)


def _remove(paths: Iterable[Path]) -> None:
    """Remove files that no longer count; what cannot be removed is logged."""
    for path in paths:
        try:
            if path.is_dir():
                discard(hide(path))  # which the next save tries again
            path.unlink(missing_ok=True)
        except OSError as error:
            LOG.warning("cannot remove an old checkpoint: %s", error)


def _as_every(every: object) -> int | timedelta | None:
    """Return the interval of saves, in steps or time; None means never."""
    if every is None:
        return None
    if not isinstance(every, timedelta):
        return as_int("every", every, least=1)
    if every <= timedelta():
        raise ArgumentError(f"every={every!r} must be positive")
    return every


def _as_seconds(name: str, value: object) -> float:
    """Return a time span in seconds; None is endless. Raise TypeError or ArgumentError."""
    if value is None:
        return inf
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}={value!r} must be a number of seconds, a timedelta or None")
    seconds = float(value)
    if isnan(seconds):
        raise ArgumentError(
            f"{name} must not be NaN; pass a number of seconds, a timedelta or None"
        )
    return seconds


def _as_outputs(outputs: object) -> list[Truncatable]:
    """Return outputs; raise TypeError or ArgumentError if one cannot be truncated."""
    found: list[Any] = list(outputs) if isinstance(outputs, Iterable) else [None]
    if not all(callable(getattr(output, "truncate", None)) for output in found):
        raise TypeError(f"outputs={outputs!r:.80} must be a sequence of series, like [series]")
    closed = next((output for output in found if getattr(output, "closed", False)), None)
    if closed is not None:
        raise ArgumentError(f"{closed!r} is closed, so it cannot be truncated; open it again")
    return found


def _set_back(outputs: Iterable[Truncatable], time: float | None) -> None:
    """Drop what is later than a time; None: everything, which is kept if possible. *Collective*."""
    for output in outputs:
        if time is None and hasattr(output, "set_aside"):
            output.set_aside()
        else:
            output.truncate(-inf if time is None else time)


def _check_processes(ranks: Pencil, *given: object) -> None:
    """Raise an error unless the fields and pencils in `given` are on the processes of `ranks`."""
    groups = (one.values() if isinstance(one, Mapping) else [one] for one in given)
    things = (thing for group in groups for thing in group)
    pencils = (thing.pencil if isinstance(thing, PencilArray) else thing for thing in things)
    found = [pencil for pencil in pencils if isinstance(pencil, Pencil)]
    if not found:
        raise ArgumentError("pass at least one field of these processes, or a pencil to load onto")
    for pencil in found:
        if not pencil.same_ranks(ranks):
            raise PencilMismatchError(
                f"{pencil!r}\nis on other processes than the series of checkpoints; make a series "
                "with comm=pencil.comm"
            )
