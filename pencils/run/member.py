"""What a rank tells of itself, and what it is told to do at its end."""

from __future__ import annotations

import dataclasses
import os
import select
import sys
import threading
from contextlib import suppress

from mpi4py import MPI

from pencils.run.channel import Channel, Message
from pencils.run.coordinator import PATIENCE_IF_AGREED, abort
from pencils.run.report import INTERRUPTED, Ending
from pencils.run.watch import Watch

_VERDICT = PATIENCE_IF_AGREED + 20  # seconds after which a rank that failed decides by itself
_SOONEST, _LATEST = 0.001, 0.05  # seconds between two looks of a rank that has ended


class Member:
    """What a rank tells the coordinator, and is told by it.

    Parameters
    ----------
    channel : Channel
        To the coordinator.
    watch : Watch
        Knows where the program is.
    timeout : float or None
        After how many seconds in one call the rank reports that it waits.
    """

    def __init__(self, channel: Channel, watch: Watch, timeout: float | None) -> None:
        self._watch = watch
        self._timeout = timeout
        self._pid = os.getpid()
        self._rank = MPI.COMM_WORLD.rank
        self._told = threading.Event()
        self._verdict: Message = {}
        self._channel = channel
        threading.Thread(target=self._listen, name="watch", daemon=True).start()

    def end(self, ending: Ending) -> int:
        """Tell how the program has ended here, wait for what others do, and return the status.

        May end the job instead.
        """
        if os.getpid() != self._pid:  # forked: a process that is no rank
            sys.stderr.write(ending.text)
            return ending.status
        _flush()
        ended = dataclasses.asdict(ending) | {"collectives": self._watch.collectives}
        self._channel.send({"ended": ended})
        try:
            self._wait(_VERDICT if ending.status else float("inf"))
        except KeyboardInterrupt:
            abort(INTERRUPTED)
        if ending.status and "leave" not in self._verdict:
            if not self._verdict:  # the coordinator is gone, or cannot run
                sys.stderr.write(f"pencils run: {ending.kind} on rank {self._rank}:\n{ending.text}")
                _flush()
            abort(ending.status)
        return ending.status

    def _wait(self, longest: float) -> None:
        waited, pause = 0.0, _SOONEST
        while waited < longest and not self._told.wait(pause):
            waited += pause
            pause = min(2 * pause, _LATEST)
            if not MPI.Is_finalized():  # messages from here may not have left yet
                MPI.COMM_SELF.Iprobe()

    def _listen(self) -> None:
        interval = None if self._timeout is None else min(0.5, self._timeout / 8)
        while not self._told.is_set():
            ready, _, _ = select.select([self._channel], [], [], interval)
            for message in self._channel.receive() if ready else ():
                self._obey(message)
            if not self._channel.open:
                self._told.set()
            elif self._timeout is not None and self._watch.waited() >= self._timeout:
                self._report(stuck=True)
                interval = self._timeout = None

    def _obey(self, message: Message) -> None:
        if "where" in message:
            _flush()
            self._report(stuck=False)
        else:
            self._verdict = message
            self._told.set()

    def _report(self, *, stuck: bool) -> None:
        place = dataclasses.asdict(self._watch.place())
        self._channel.send({"place": place, "stuck": stuck})


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # none, broken, closed
            stream.flush()
