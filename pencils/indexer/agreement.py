"""The agreement of the ranks that use an indexer: all make the same call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import numpy as np

from pencils.comm.agree import agreed
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError


class Unheard(AbstractContextManager["Unheard"]):
    """Stands where ranks would agree, if they do not: mistakes raise where they are made."""

    flagged = False
    deferred = False

    def __call__(self, **_values: object) -> None:
        """Record nothing."""

    def dtype(self, dtype: np.dtype[Any] | None) -> None:
        """Record nothing."""

    def flag(self, *, up: bool) -> None:
        """Tell nobody."""

    def defer(self, *, up: bool) -> None:
        """Remember what this rank has to do."""
        self.deferred = up

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class Agreement:
    """The ranks of one indexer.

    Parameters
    ----------
    topology : Topology
        The ranks.
    number : int
        Tells indexers from each other, on all ranks alike.
    owner : str
        What errors call the indexer.
    check : bool
        Whether ranks agree before they communicate.
    """

    def __init__(self, topology: Topology, number: int, owner: str, *, check: bool) -> None:
        self._topology = topology
        self._number = number
        self._owner = owner
        self.check = check
        self.closed = False

    @contextmanager
    def on(self, call: str) -> Iterator[agreed | Unheard]:
        """Run checks, then continue on all ranks or on none; see `agreed`.

        *Collective*, unless the ranks do not check.
        """
        name = f"{self._owner}.{call}"
        with agreed(self._topology.comm, name) if self.check else Unheard() as same:
            same(indexer=self._number)
            if self.closed or self._topology.freed:
                msg = f"this {self._owner}, or its communicator, was freed; make a new one"
                raise ArgumentError(msg)
            yield same
