"""Signals by which batch systems announce the end of a job: recorded, not obeyed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any

from pencils.comm.mpi import is_simulated
from pencils.errors import ArgumentError
from pencils.layout.integers import to_int

# Batch systems send them before they end a job; not every system has the second.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name))
_NEVER_CAUGHT = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}


class SignalListener:
    """Records signals, which would otherwise end the process, until it is closed.

    Handlers that the program has set before are called, too, except Python's own of SIGINT, which
    would interrupt a step. Simulated ranks are threads, which receive no signals: these end the
    process.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self.received: list[str] = []
        self.closed = False
        self._before: dict[int, Any] = {}
        for number in () if is_simulated() else numbers:
            self._before[number] = signal.getsignal(number)
            signal.signal(number, self._handle)

    def close(self) -> None:
        """Restore the handlers that were set before."""
        self.closed = True
        for number in self._before:
            if signal.getsignal(number) == self._handle:  # else a later one is set
                signal.signal(number, self.previous(number))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number).name)
        before = self._before[number]
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)

    def previous(self, number: int) -> Any:
        """Return the handler that was set before, except those of closed listeners."""
        before = self._before[number]
        owner = getattr(before, "__self__", None)
        if isinstance(owner, SignalListener) and owner.closed:
            return owner.previous(number)
        return signal.SIG_DFL if before is None else before  # None: one in C


def as_signals(signals: object) -> list[int]:
    """Return the numbers of signals; raise TypeError or ArgumentError if one cannot be caught."""
    if not isinstance(signals, Iterable):
        raise TypeError(
            f"signals={signals!r} must be a sequence, like (signal.SIGTERM,), or () for none"
        )
    numbers: dict[int, None] = {}
    for given in signals:
        number = to_int(given)
        if number is None or number not in signal.valid_signals() or number in _NEVER_CAUGHT:
            raise ArgumentError(
                f"{given!r} in signals cannot be caught; pass signals like signal.SIGTERM"
            )
        numbers[number] = None
    main = threading.current_thread() is threading.main_thread()
    if numbers and not main and not is_simulated():
        raise ArgumentError(
            "signals reach the main thread only; call this in the main thread, or pass signals=()"
        )
    return list(numbers)
