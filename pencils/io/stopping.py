"""When to stop: signals that this process was sent, and its clock."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Sequence
from time import monotonic
from types import FrameType
from typing import Any

from pencils.errors import ArgumentError
from pencils.layout.integers import to_int

# What batch systems send before they end a job; not every system has the second.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name))
_NEVER_CAUGHT = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}


class Clock:
    """Time that is over some seconds after it was started, by the clock of this process.

    Examples
    --------
    >>> Clock(0).over, Clock(3600).over, Clock(float("inf")).over
    (True, False, False)
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        """Begin anew."""
        self._end = monotonic() + self._seconds

    @property
    def over(self) -> bool:
        """Whether so many seconds have passed."""
        return monotonic() >= self._end


class Listener:
    """Notes signals instead of dying of them, until it is closed.

    Who listened before still hears them, except that Python's own SIGINT would interrupt this
    process in the middle of a step.

    Parameters
    ----------
    numbers : sequence of int
        The signals, as `read_signals` returns them.

    Examples
    --------
    >>> listener = Listener([signal.SIGTERM])
    >>> signal.raise_signal(signal.SIGTERM)
    >>> listener.close()
    >>> listener.heard
    ['SIGTERM']
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.heard: list[str] = []
        self.closed = False
        self._before: dict[int, Any] = {}
        for number in numbers:
            self._before[number] = signal.getsignal(number)
            signal.signal(number, self._hear)

    def close(self) -> None:
        """Give the signals back to who had them before."""
        self.closed = True
        for number in self._before:
            if signal.getsignal(number) == self._hear:  # else someone else listens by now
                signal.signal(number, self.heir(number))

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.heard.append(signal.Signals(number).name)
        before = self._before[number]
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)

    def heir(self, number: int) -> Any:
        """Who had a signal before, passing over listeners that were closed meanwhile."""
        before = self._before[number]
        owner = getattr(before, "__self__", None)
        if isinstance(owner, Listener) and owner.closed:
            return owner.heir(number)
        return signal.SIG_DFL if before is None else before  # Python cannot name C's


def read_signals(signals: object) -> list[int]:
    """Read which signals are to be caught.

    Raises
    ------
    TypeError, ArgumentError
        If they are no signals, cannot be caught, or this thread cannot catch any.
    """
    if not isinstance(signals, Iterable):
        msg = f"signals={signals!r} must be several, like (signal.SIGTERM,), or () for none"
        raise TypeError(msg)
    numbers = [_read_signal(number) for number in signals]
    if numbers and threading.current_thread() is not threading.main_thread():
        msg = "signals reach the main thread only: work there, or pass signals=()"
        raise ArgumentError(msg)
    return list(dict.fromkeys(numbers))


def _read_signal(signal_: object) -> int:
    number = to_int(signal_)
    if number not in signal.valid_signals() or number in _NEVER_CAUGHT:
        msg = f"{signal_!r} in signals is no signal that can be caught, like signal.SIGTERM"
        raise ArgumentError(msg)
    return number
