"""Counts the unsuccessful tests of simulated ranks, to find loops that never end."""

from __future__ import annotations

from time import monotonic

# Unsuccessful tests one after the other, without any other call, and seconds that they last, after
# which no rank can continue. A loop may also end by itself, after a time or a number of tests.
MOST_POLLS = 20_000
SECONDS = 10.0
_INTERVAL = 1_000  # tests after which the clock is read


class Polls:
    """Unsuccessful tests since a rank has made progress. Time changes nothing but their limit."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._number = 0
        self._start = 0.0

    def reset(self) -> None:
        """Begin to count again: a rank has made progress."""
        self._number = 0

    def most(self) -> int:
        """Return the number of tests that are possible in any time."""
        return max(MOST_POLLS, 100 * self._size)

    def add(self) -> bool:
        """Count a test; return whether there are too many."""
        self._number += 1
        if self._number == 1:
            self._start = monotonic()
        if self._number <= self.most() or self._number % _INTERVAL:
            return False
        return monotonic() - self._start >= SECONDS
