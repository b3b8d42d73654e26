"""What the ranks that use an indexer agree on: the call, and the type of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import numpy as np

from pencils.comm.agree import agreed
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError
from pencils.storage import Array

DType = np.dtype[Any]


def same_type(dtype: DType) -> DType:
    """Element type of what comes out, if nothing is made of what goes in."""
    return dtype


class Unheard(AbstractContextManager["Unheard"]):
    """Stands where ranks would agree, if they do not: mistakes raise where they are made."""

    flagged = False

    def __call__(self, **_values: object) -> None:
        """Record nothing."""

    def dtype(self, dtype: DType | None) -> None:
        """Record nothing."""

    def flag(self, *, up: bool) -> None:
        """Tell nobody."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class Typed:
    """Buffers of a call on this rank, whose values have one type on all ranks.

    Buffers without values have no say on the type.

    Parameters
    ----------
    same : agreed
        Learns what this rank knows.
    inputs, outputs : sequence of numpy.ndarray
        What is read, and what is written if it was given.
    result : callable
        Element type that outputs must have for that of inputs.

    Raises
    ------
    TypeError
        If the buffers do not fit each other.
    """

    def __init__(
        self,
        same: agreed | Unheard,
        inputs: Sequence[Array],
        outputs: Sequence[Array] = (),
        result: Callable[[DType], DType] = same_type,
    ) -> None:
        self._outputs = outputs
        self._result = result
        telling = [*inputs, *(outputs if result is same_type else ())]
        self.dtype = next((array.dtype for array in telling if array.size), None)
        # What is better than no type at all, if no rank has a value.
        empty = [array.dtype for array in (*outputs, *inputs)]
        self.empty = next(filter(self._is_possible, empty), None)
        self.default = next(filter(self._is_possible, map(np.dtype, (float, int))))
        for array in telling:
            if array.size and array.dtype != self.dtype:
                msg = f"buffers of types {self.dtype} and {array.dtype} were passed to one call"
                raise TypeError(msg)
        if self.dtype is not None:
            self.check(self.dtype)
        same.dtype(self.dtype)
        same.flag(up=self.dtype is None)

    def check(self, dtype: DType) -> None:
        """Check the outputs, now that the type of the inputs is known.

        Raises
        ------
        ArgumentError, TypeError
            If nothing can be made of that type, or an output has another one than that.
        """
        wanted = self._result(dtype)
        for array in self._outputs:
            if array.size and array.dtype != wanted:
                msg = f"the output has type {array.dtype}, but values of type {wanted} come out"
                raise TypeError(msg)

    def _is_possible(self, dtype: DType) -> bool:
        try:
            self._result(dtype)
        except ArgumentError:
            return False
        return True


class Agreement:
    """The ranks of one indexer.

    Parameters
    ----------
    topology : Topology
        The ranks.
    number : int
        Tells indexers from each other, on all ranks alike.
    check : bool
        Whether ranks agree before they communicate.
    """

    def __init__(self, topology: Topology, number: int, *, check: bool) -> None:
        self._topology = topology
        self._number = number
        self.check = check
        self.closed = False

    @contextmanager
    def on(self, call: str) -> Iterator[agreed | Unheard]:
        """Run checks, then continue on all ranks or on none; see `agreed`.

        *Collective*, unless the ranks do not check.
        """
        with agreed(self._topology.comm, call) if self.check else Unheard() as same:
            same(indexer=self._number)
            if self.closed or self._topology.freed:
                msg = "this indexer, or its communicator, was freed; make a new one"
                raise ArgumentError(msg)
            yield same

    def settle(self, call: str, same: agreed | Unheard, typed: Typed) -> DType:
        """Learn the element type, also from other ranks. *Collective* if one does not know it.

        Raises
        ------
        ArgumentError, TypeError
            On every rank, if an output does not have the type that comes out.
        """
        if not self.check:
            return _known(typed)
        if not same.flagged:
            assert typed.dtype is not None
            return typed.dtype
        dtype = self._first(typed.dtype)
        if dtype is None:
            empty = self._first(typed.empty)
            return typed.default if empty is None else empty
        with self.on(call):
            typed.check(dtype)
        return dtype

    def _first(self, dtype: DType | None) -> DType | None:
        """Ask the first rank that knows a type. *Collective*."""
        first = self._topology.first_of(present=dtype is not None)
        if first is None:
            return None
        told: DType = self._topology.comm.bcast(dtype, first)
        return told


def _known(typed: Typed) -> DType:
    dtype = typed.empty if typed.dtype is None else typed.dtype
    if dtype is None:
        msg = "an indexer that does not check cannot learn the type of values; pass the output"
        raise TypeError(msg)
    return dtype
