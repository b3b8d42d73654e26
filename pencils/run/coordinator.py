"""The thread that learns how all ranks end, and prints for all of them; it lives on rank 0."""

from __future__ import annotations

import os
import selectors
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep
from typing import NoReturn

from mpi4py import MPI

from pencils.run import report
from pencils.run.channel import Channel
from pencils.run.frames import CodePosition
from pencils.run.report import Ending

PATIENCE = 2.0  # seconds in which other ranks can fail, too, before the job is ended
PATIENCE_IF_AGREED = 10.0  # if the library has raised on all of them
_ANSWERS = 15.0  # seconds in which a rank has to answer where it is
_END = 30.0  # seconds in which the job has to end


@dataclass
class _Rank:
    """What is known of a rank."""

    channel: Channel
    ending: Ending | None = None
    place: CodePosition | str = report.SILENT

    @property
    def over(self) -> bool:
        """Whether it will not send any more."""
        return self.ending is not None or not self.channel.open


class Coordinator(threading.Thread):
    """Find out whether all ranks have failed, or some, or none, and print it once.

    Parameters
    ----------
    channels : dict of int to Channel
        To the ranks to hear of, the one in this process first.
    size : int
        Ranks of the job; if some are not heard of, a failure has to end the job for them.
    timeout : float or None
        What ranks report as too long a wait, in seconds.
    """

    def __init__(self, channels: dict[int, Channel], size: int, timeout: float | None) -> None:
        super().__init__(name="coordinator of ranks", daemon=True)
        self._ranks = {rank: _Rank(channel) for rank, channel in channels.items()}
        self._size = size
        self._timeout = timeout
        self._selector = selectors.DefaultSelector()
        for rank, channel in channels.items():
            self._selector.register(channel, selectors.EVENT_READ, rank)
        self._deadline: float | None = None  # of what is done next
        self._asked = False  # where the ranks are

    def run(self) -> None:
        """Serve until all ranks have ended, or the job has to be ended."""
        while not all(rank.over for rank in self._ranks.values()):
            if self._answered() or (self._deadline is not None and monotonic() >= self._deadline):
                if self._asked:
                    self._end_job()
                    return
                self._ask()
            wait = None if self._deadline is None else max(0.0, self._deadline - monotonic())
            for key, _ in self._selector.select(wait):
                self._read(self._ranks[key.data])
        self._leave()

    def _read(self, rank: _Rank) -> None:
        for message in rank.channel.receive():
            if "ended" in message:
                rank.ending = Ending(**message["ended"])
                if rank.ending.status:
                    patience = PATIENCE_IF_AGREED if rank.ending.agreed else PATIENCE
                    self._hurry(monotonic() + patience)
            else:
                rank.place = CodePosition(**message["place"])
                if message["stuck"]:
                    self._hurry(monotonic())
        if not rank.channel.open:
            self._selector.unregister(rank.channel)

    def _hurry(self, deadline: float) -> None:
        """Do what is next at a time, or as planned if that is earlier; answers have their time."""
        if self._asked:
            return
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline

    def _ask(self) -> None:
        """Ask the other ranks where they are; before they answer they flush what they print."""
        self._asked = True
        self._deadline = monotonic() + _ANSWERS
        for state in self._ranks.values():
            if not state.over:
                state.channel.send({"where": True})

    def _answered(self) -> bool:
        states = self._ranks.values()
        return self._asked and all(s.over or s.place != report.SILENT for s in states)

    def _endings(self) -> dict[int, Ending]:
        return {rank: s.ending for rank, s in self._ranks.items() if s.ending is not None}

    def _leave(self) -> None:
        """Let all ranks leave, each with its own status."""
        found = self._endings()
        if len(self._ranks) < self._size and any(ending.status for ending in found.values()):
            self._end_job()
            return
        _print(report.endings(found, self._size))
        # The rank in this process comes first there, and takes this thread with it when it leaves.
        for state in reversed(self._ranks.values()):
            if state.ending is not None:
                state.channel.send({"leave": state.ending.status})

    def _end_job(self) -> None:
        found = self._endings()
        places = {
            rank: state.place if state.channel.open else report.LOST
            for rank, state in self._ranks.items()
            if state.ending is None
        }
        failed = [rank for rank, ending in found.items() if ending.status]
        if not failed:
            _print(report.hang(found, places, self._timeout or 0.0))
            abort(1)
        _print(report.unfinished(found, places, self._size))
        # Its main thread is free to do it, which all MPI libraries allow.
        self._ranks[failed[0]].channel.send({"abort": found[failed[0]].status})
        sleep(_END)  # the other ranks wait as long as they are connected


def _print(text: str) -> None:
    if text and sys.__stderr__ is not None:
        with suppress(OSError, ValueError):
            sys.__stderr__.write(text)
            sys.__stderr__.flush()


def abort(status: int) -> NoReturn:
    """End the whole job."""
    if not MPI.Is_finalized():
        MPI.COMM_WORLD.Abort(status)
    os._exit(status)  # some libraries come back from there in a thread that is not the main one
