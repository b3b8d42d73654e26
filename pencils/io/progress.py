"""A progress bar for long saves and loads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# What takes no longer than that many seconds needs no bar.
_PATIENCE = 1.0

# What is called with the number of bytes that a rank has moved.
OnProgress = Callable[[int], object]


def ignore(_nbytes: int) -> None:
    """Show nothing."""


@contextmanager
def shown(verb: str, path: str, nbytes: int, *, rank: int) -> Iterator[OnProgress]:
    """Show how many bytes this rank has moved, if it is rank 0 and has a terminal. Local.

    Parameters
    ----------
    verb : str
        What is done.
    path : str
        The file.
    nbytes : int
        How many bytes there are to be moved, about.
    rank : int
        Number of this rank.

    Yields
    ------
    callable
        To be called with the number of bytes that were moved since the last time.

    Examples
    --------
    >>> with shown("save", "run.h5", 10, rank=0) as moved:  # too short for a bar
    ...     moved(10)
    """
    bar = _make_bar(f"{verb} {Path(path).name}", nbytes) if rank == 0 else None
    if bar is None:
        yield ignore
        return

    def update(moved: int) -> None:
        with suppress(Exception):  # a terminal that is gone; no reason to leave other ranks alone
            bar.update(moved)

    try:
        yield update
    finally:
        with suppress(Exception):
            bar.close()


def _make_bar(text: str, nbytes: int) -> Any:
    """Make a bar; None without a terminal, or if the terminal fails."""
    with suppress(Exception):
        from tqdm import tqdm

        if sys.stderr.isatty():
            return tqdm(
                total=nbytes,
                desc=text,
                file=sys.stderr,
                delay=_PATIENCE,
                leave=False,
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
            )
    return None
