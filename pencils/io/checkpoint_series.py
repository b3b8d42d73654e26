"""Checkpoints of a long run: save and verify them, keep the last ones, resume from the newest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from inspect import signature
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from pencils.comm.agree import agreed
from pencils.comm.failure import CollectiveBlock
from pencils.errors import ArgumentError
from pencils.io.checkpoint_files import check_file, nothing_good, open_files, read_newest
from pencils.io.commit import LOG
from pencils.io.file_access import on_root
from pencils.io.load import Checkpoint, load
from pencils.io.options import (
    Truncatable,
    as_path,
    check_continued,
    check_processes,
    read_every,
    read_fields,
    read_mode,
    read_names,
    read_outputs,
    read_seconds,
    set_back,
)
from pencils.io.save import Saving, save
from pencils.io.stopping import SIGNALS, Listener, read_signals
from pencils.io.writer_lock import WriterLock
from pencils.layout.integers import as_int
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class CheckpointSeries(CollectiveBlock):
    """The last checkpoints of a run, in a directory of their own. *Collective*.

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
    ) -> None:
        self._ranks = Pencil(1, comm)
        self._comm = self._ranks.topology.comm
        with agreed(self._comm, "CheckpointSeries") as agree:
            given, self._mode = as_path(directory), read_mode(mode)
            self._keep = None if keep is None else as_int("keep", keep, least=1)
            self._every = read_every(every)
            seconds, numbers = read_seconds("stop_after", stop_after), read_signals(signals)
            agree(directory=given, mode=mode, keep=self._keep, every=self._every)
            agree(stop_after=seconds, signals=numbers)
        self._files = open_files(self._ranks.topology, given, self._mode)
        self._find_steps()
        self._known: set[int] = set()  # steps that this run has written or loaded
        self._skipped: dict[str, str] = {}
        self._lock = WriterLock()  # on rank 0, from the first `resume` or `save` on
        self._stops = False
        self._pending: tuple[int, Saving] | None = None  # with its step
        self._interval = self._every.total_seconds() if isinstance(self._every, timedelta) else inf
        self._due, self._end = monotonic() + self._interval, monotonic() + seconds
        self._listener = Listener(numbers)  # last: nothing after it can raise

    @property
    def mode(self) -> str:
        """The mode in which it was opened: ``"a"``, ``"w"`` or ``"x"``."""
        return self._mode

    @property
    def directory(self) -> Path:
        """The directory of the checkpoints."""
        return self._files.directory

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
        """Whether to save after a step. *Collective* if `every` is a time, else local.

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
        """Whether the run should save and end. *Collective*.

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
                LOG.info("the run should stop: %s", ", ".join(reasons))
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
            ``grid``, ``attrs`` and so on, as in `pencils.save`.

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
            read_fields(fields)
            check_processes(self._ranks, fields)
            signature(save).bind("", fields, step=number, **options)
            agree(step=number, wait=bool(wait))
        self.wait()
        on_root(self._comm, "save", lambda: self._lock.take(self._files.locked))
        self._files.check_next(number, self._find_steps(), self._known)
        path = self._files.target(number)
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
        """Return the newest checkpoint that is as it was written. *Collective*.

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
        check = partial(check_file, comm=self._ranks.comm)
        found, self._skipped = read_newest(self._files, self._find_steps(), check, self._ranks.comm)
        return None if found is None else self._files.path(found[0])

    def resume(
        self,
        template: Pencil | Mapping[str, Any] | None = None,
        names: str | Iterable[str] | None = None,
        *,
        step: int | None = None,
        outputs: Iterable[Truncatable] = (),
        **options: Any,
    ) -> Checkpoint | None:
        """Load the newest checkpoint that is as it was written, to continue it. *Collective*.

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
            checkpoint the run starts anew: what an output holds gets a name that ends in
            ``.abandoned``, or by `truncate` to ``-inf``, if it is no TimeSeries, is dropped.

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
            cut = read_outputs(outputs)
            chosen = read_names(names)  # an iterator would be empty at the second file
            check_processes(self._ranks, template, options.get("into"))
            signature(load).bind("", template, chosen, **options)
            agree(step=wanted, outputs=len(cut))
        self.wait()
        steps = on_root(self._comm, "resume", self._begin)
        if not steps and wanted is None:
            set_back(cut, None)
            return None
        with agreed(self._comm, "resume"):
            check_continued(cut)
        wants = [number for number in steps if wanted in (None, number)]
        read = partial(load, template=template, names=chosen, **options)
        found, self._skipped = read_newest(self._files, wants, read, self._ranks.comm)
        if found is None:
            raise nothing_good(self.directory, wanted, self._skipped)
        number, state = found
        if cut and state.time is None:
            msg = f"{state.path} has no time to cut off outputs at; save(..., time=...)"
            raise ArgumentError(msg)
        with agreed(self._comm, "resume"):
            if self._comm.rank == 0:
                self._files.set_aside(number)
        self._steps = [one for one in steps if one <= number]
        self._known = set(self._steps)
        set_back(cut, state.time)
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
        unit = " steps" if isinstance(self._every, int) else ""
        every = "" if self._every is None else f", one every {self._every}{unit}"
        return f"<CheckpointSeries {self.directory}, keeps {keep}{every}>"

    def _begin(self) -> list[int]:
        """Lock the directory, and return the steps that are there; on rank 0."""
        self._lock.take(self._files.locked)
        return self._files.steps()

    def _find_steps(self) -> list[int]:
        """Return the steps that rank 0 finds. *Collective*."""
        self._steps = on_root(self._comm, "list checkpoints", self._files.steps)
        return self._steps

    def _settle(self, path: Path, step: int) -> None:
        """Verify a file that was written, and remove old ones. *Collective*."""
        self._find_steps()
        check_file(path, self._ranks.comm)
        with agreed(self._comm, "save"):  # no rank returns before old files are gone
            if self._comm.rank == 0:
                self._files.replace(step)
                self._files.rotate(self._keep)
        self._files.settle()
        self._find_steps()
