"""Progress of long work, on the terminal of rank 0, if tqdm is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

# Work that takes no longer than this number of seconds needs no progress bar.
_PATIENCE = 1.0

# A function that is called with the number of units that a rank has done.
OnProgress = Callable[[int], object]

BYTES = "B"


def ignore(_done: int) -> None:
    """Show no progress."""


@contextmanager
def shown(text: str, total: int, *, rank: int, unit: str) -> Iterator[OnProgress]:
    """Show how much of about `total` units is done, if this is rank 0 and has a terminal. Local.

    Yields a function to be called with the number of units that were done since the last call.
    """
    bar: Any = None
    size = {"unit_scale": True, "unit_divisor": 1024} if unit == BYTES else {}
    with suppress(Exception):  # without tqdm or a terminal, or with one that fails
        if rank == 0 and sys.stderr.isatty():
            from tqdm import tqdm

            form = {"unit": unit, "leave": False, "delay": _PATIENCE, **size}
            bar = tqdm(total=total, desc=text, file=sys.stderr, **form)

    def update(done: int) -> None:
        with suppress(Exception):  # a terminal that is gone; no reason to leave other ranks alone
            bar.update(done)

    try:
        yield ignore if bar is None else update
    finally:
        with suppress(Exception):
            bar.close()
