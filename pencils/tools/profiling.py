"""Where the time of a part of a program goes: phases of all ranks, and a trace of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pencils.comm.agree import agreed
from pencils.comm.mpi import MPI
from pencils.comm.recording import NUMBERS, PHASES, Recorder, current
from pencils.comm.topology import as_comm, topology_of
from pencils.errors import ArgumentError
from pencils.layout.integers import as_int
from pencils.tables import text_bytes, text_seconds, text_table

OWN_CODE, WHOLE = "own code", "whole"
_ROWS = (*PHASES, OWN_CODE, WHOLE)
_TAG = 5
_MICRO = 1e6


class Spread(NamedTuple):
    """A number that each rank has: the smallest, the mean and the largest one."""

    low: float
    mean: float
    high: float

    @property
    def imbalance(self) -> float:
        """The largest one divided by the mean; 1 if all are equal."""
        return self.high / self.mean if self.mean else 1.0


class Phase(NamedTuple):
    """A phase on all ranks."""

    calls: Spread
    nbytes: Spread
    seconds: Spread


class Profile(AbstractContextManager["Profile"]):
    """The record of a ``with`` block of `profile`.

    Attributes
    ----------
    phases : dict of str to Phase
        By name, on every rank, after the block: "agree", "pack", "wait", "copy", "unpack", "I/O",
        "plan", "import", "own code" and "whole". Empty if the block was left by an exception.
    recorder : pencils.comm.recording.Recorder
        The record of this rank.
    """

    def __init__(self, comm: MPI.Intracomm, most: int) -> None:
        self.phases: dict[str, Phase] = {}
        self._comm = comm
        self._most = most
        self.recorder = Recorder(most)

    def __enter__(self) -> Self:
        if current.recorder is not None:
            raise ArgumentError("a profile records already; leave its block before the next one")
        self.phases = {}
        self.recorder = current.recorder = Recorder(self._most)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        current.recorder = None
        self.recorder.stop()
        if kind is None:
            self._combine()

    def _combine(self) -> None:
        comm = topology_of(self._comm).comm
        with agreed(comm, "profile"):
            mine = np.array(list(_numbers(self.recorder)))
            low, total, high = mine.copy(), mine.copy(), mine.copy()
        for numbers, op in ((low, MPI.MIN), (total, MPI.SUM), (high, MPI.MAX)):
            comm.Allreduce(MPI.IN_PLACE, numbers, op=op)
        self._omitted = int(total[-1, 0])
        every = np.stack([low, total / comm.size, high], axis=-1).tolist()
        self.phases = {
            name: Phase(*(Spread(*numbers) for numbers in row))
            for name, row in zip(_ROWS, every, strict=False)
        }

    def __str__(self) -> str:
        """Return the table; local."""
        if not self.phases:
            return "<profile without a summary: its block has not ended, or raised an exception>"
        rows: list[tuple[str, ...]] = [
            ("phase", "calls", "bytes", "min", "mean", "max", "imbalance")
        ]
        for name, (calls, nbytes, seconds) in self.phases.items():
            counted = name in PHASES
            rows.append(
                (
                    name,
                    f"{calls.mean:.1f}".removesuffix(".0") if counted else "",
                    text_bytes(nbytes.mean) if counted else "",
                    *map(text_seconds, seconds),
                    f"{seconds.imbalance:.2f}",
                )
            )
        text = text_table(rows)
        if self._omitted:
            text += f"\n{self._omitted} events of all ranks are not in the trace: see events="
        return text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a trace with a lane for each rank, to open in Perfetto. *Collective*.

        Rank 0 writes one file in the Chrome trace format, and receives the events of one rank
        after the other. Lanes of different nodes are as aligned as the clocks of these.

        Parameters
        ----------
        path : path
            The file; it is replaced.

        Raises
        ------
        ArgumentError
            If there is no summary, because the block has not ended, or raised an exception.
        OSError
            On every rank, if the file cannot be written.
        """
        comm = topology_of(self._comm).comm
        with agreed(comm, "save") as agree:
            file = Path(path)
            agree(path=os.fspath(file))
            if not self.phases:
                raise ArgumentError("the profile has no summary; leave its block without an error")
            mine = np.frombuffer(self.recorder.events).reshape(-1, NUMBERS)
            text = file.open("w", encoding="utf-8") if comm.rank == 0 else None
        lengths = comm.gather((len(mine), self.recorder.started))
        fault: OSError | None = None
        if text is None or lengths is None:
            comm.Send(mine, 0, _TAG)
        else:
            fault = _write_all(comm, text, mine, lengths)
        with agreed(comm, "save"):
            if fault is not None:
                raise fault


def profile(comm: MPI.Intracomm | None = None, *, events: int = 100_000) -> Profile:
    """Record the calls of the library in a ``with`` block, and their times.

    Recording is local. The end of the block is *Collective*: it sums up over ranks. Any rank may
    then print the result alone. If the block raises an exception, nothing is communicated, and
    there is no summary; a rank that ends the block while another one raises waits for that one, as
    in any collective call.

    Phases are exclusive: waiting inside of unpacking counts as waiting. "pack" includes starting
    messages, and its bytes are those that leave for other ranks, packed or in place; the bytes of
    "unpack" come from other ranks, those of "copy" stay on the rank. Small exchanges on one node
    copy both in one step: their time is in "unpack". "wait" contains barriers, messages and
    reductions. "I/O" is reading and writing in files, and waiting for the disk. "plan" is making
    plans, and "import" is importing modules: first calls do both. "own code" is the rest: the
    program, NumPy, and what the library computes. Other threads, such as saves in the background,
    are not recorded.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The ranks that end the block together; default: the world.
    events : int, optional
        Most events that each rank keeps for a trace, 32 bytes each. Later ones count in the table,
        and are not in the trace.

    Returns
    -------
    Profile
        To print, and to `save`.

    Raises
    ------
    ArgumentError, TypeError
        If an argument is not allowed. Blocks cannot be nested.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.ones(pencils.Pencil((8, 6), decomp=0))
    >>> columns = u.pencil.with_(decomp=1)
    >>> with pencils.profile() as p:
    ...     v = pencils.transpose(u, columns)
    >>> p.phases["copy"].nbytes.high  # on one process, all of them
    384.0
    >>> print(p)  # doctest: +SKIP
    """
    found = as_comm(comm, "profile")
    return Profile(found, as_int("events", events, least=0))


def _numbers(recorder: Recorder) -> Iterator[tuple[float, float, float]]:
    """Yield calls, bytes and seconds of each row of the table, then the events omitted."""
    for phase in PHASES:
        yield recorder.calls[phase], recorder.nbytes[phase], recorder.seconds[phase]
    yield 0, 0, max(0.0, recorder.whole - sum(recorder.seconds.values()))
    yield 0, 0, recorder.whole
    yield recorder.omitted, 0, 0


def _write_all(
    comm: MPI.Intracomm, file: IO[str], mine: NDArray[np.float64], lengths: list[tuple[int, float]]
) -> OSError | None:
    """Write the events of all ranks; return the first error, after all have been received."""
    fault: OSError | None = None
    first = min(started for _, started in lengths)
    lead = '{"displayTimeUnit": "ms", "traceEvents": [\n'
    for rank, (length, started) in enumerate(lengths):
        rows = mine
        if rank:
            rows = np.empty((length, NUMBERS))
            comm.Recv(rows, rank, _TAG)
        if fault is None:
            try:
                for event in _events(rank, rows, started - first):
                    file.write(lead + json.dumps(event))
                    lead = ",\n"
            except OSError as error:
                fault = error
    try:
        with file:
            file.write("\n]}\n")
    except OSError as error:
        fault = fault or error
    return fault


def _events(rank: int, rows: NDArray[np.float64], offset: float) -> Iterator[dict[str, object]]:
    """Yield the events of a rank: times in microseconds, from the start of the first rank."""
    lane: dict[str, object] = {"pid": 0, "tid": rank}
    yield lane | {"ph": "M", "name": "thread_name", "args": {"name": f"rank {rank}"}}
    yield lane | {"ph": "M", "name": "thread_sort_index", "args": {"sort_index": rank}}
    for phase, start, seconds, nbytes in rows.tolist():
        event = lane | {"ph": "X", "name": PHASES[int(phase)], "cat": "pencils"}
        event |= {"ts": (offset + start) * _MICRO, "dur": seconds * _MICRO}
        yield event | {"args": {"bytes": int(nbytes)}}
