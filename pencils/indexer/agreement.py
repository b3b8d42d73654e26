"""What the ranks that use an indexer agree on: the call, and the type of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self, TypeVar

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.agree import agreed
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError

DType = np.dtype[Any]
T = TypeVar("T")
Named = tuple[str, Array]


def same_type(dtype: DType) -> DType:
    """Element type of what comes out, if nothing is made of what goes in."""
    return dtype


class Unheard(AbstractContextManager["Unheard"]):
    """Stands where ranks would agree, if they do not: mistakes raise where they are made."""

    flagged = False
    deferred = False

    def __call__(self, **_values: object) -> None:
        """Record nothing."""

    def dtype(self, dtype: DType | None) -> None:
        """Record nothing."""

    def flag(self, *, up: bool) -> None:
        """Tell nobody."""

    def defer(self, *, up: bool) -> None:
        """Remember what this rank has to do."""
        self.deferred = up

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
    inputs, outputs : sequence of (str, numpy.ndarray)
        What is read, and what is written if it was given, with their names.
    result : callable
        Element type that an output has that is made for inputs of another one.

    Raises
    ------
    TypeError
        If the buffers do not fit each other.
    """

    def __init__(
        self,
        same: agreed | Unheard,
        inputs: Sequence[Named],
        outputs: Sequence[Named] = (),
        result: Callable[[DType], DType] = same_type,
    ) -> None:
        self._outputs = outputs
        self._result = result
        telling = [*inputs, *(outputs if result is same_type else ())]
        full = [(name, array.dtype) for name, array in telling if array.size]
        self.dtype = full[0][1] if full else None
        # What is better than no type at all, if no rank has a value.
        empty = [array.dtype for _, array in (*outputs, *inputs)]
        self.empty = next(filter(self._is_possible, empty), None)
        self.default = next(filter(self._is_possible, map(np.dtype, (float, int))))
        # What is right without values only if ranks that do not check are told so.
        self.promised = inputs[0][1].dtype if inputs else self.empty
        for name, dtype in full[1:]:
            if dtype != self.dtype:
                msg = (
                    f"{full[0][0]} and {name} have types {self.dtype} and {dtype}; their types "
                    "must be the same"
                )
                raise TypeError(msg)
        if self.dtype is not None:
            self.check(self.dtype)
        same.dtype(self.dtype)
        same.flag(up=self.dtype is None)

    def ready(self, make: Callable[[DType], T]) -> T | None:
        """Make what a call takes for values of their type, if that is known here."""
        return None if self.dtype is None else make(self.dtype)

    def check(self, dtype: DType) -> None:
        """Check the outputs, now that the type of the inputs is known.

        Raises
        ------
        ArgumentError, TypeError
            If nothing can be made of that type, or an output has neither that nor the one that a
            new output would have.
        """
        allowed = list(dict.fromkeys([dtype, self._result(dtype)]))
        for name, array in self._outputs:
            if array.size and array.dtype not in allowed:
                wanted = " or ".join(map(str, allowed))
                msg = f"{name} has type {array.dtype}, but values of type {dtype} need {wanted}"
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

    def settle(
        self,
        call: str,
        same: agreed | Unheard,
        typed: Typed,
        ready: T | None,
        make: Callable[[DType], T],
    ) -> T:
        """Make what a call takes, for the element type that others may know. *Collective* then.

        Parameters
        ----------
        call, same, typed
            What was agreed on.
        ready : object
            What `Typed.ready` made, where the type is known.
        make : callable
            Makes it otherwise.

        Raises
        ------
        ArgumentError, TypeError
            On every rank, if an output does not have the type that comes out.
        """
        if ready is not None and not (self.check and same.flagged):
            return ready
        if not self.check:
            return make(self._promised(call, typed))
        dtype = self._first(typed.dtype)
        likely = self._first(typed.empty) or typed.default if dtype is None else dtype
        with self.on(call):
            if dtype is not None:
                typed.check(dtype)
            return make(likely) if ready is None else ready

    def _first(self, dtype: DType | None) -> DType | None:
        """Ask the first rank that knows a type. *Collective*."""
        first = self._topology.first_of(present=dtype is not None)
        if first is None:
            return None
        told: DType = self._topology.comm.bcast(dtype, first)
        return told

    def _promised(self, call: str, typed: Typed) -> DType:
        """Return the element type where nobody is asked for it."""
        dtype = typed.promised if typed.dtype is None else typed.dtype
        if dtype is None:
            msg = (
                f"{self._owner}.{call} with check=False cannot learn the type of values where "
                "there are no lists; pass the output"
            )
            raise TypeError(msg)
        return dtype
