"""Runs a program: whatever can be computed is, while messages are under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from time import perf_counter
from typing import Any

import numpy as np

from pencils.array.operands import check_type
from pencils.comm.mailbox import Letter, Mailbox
from pencils.errors import ArgumentError
from pencils.graph.array import Placeholder
from pencils.graph.errors import ExecutionError
from pencils.graph.program import Parcel, Program
from pencils.graph.rules import DType, Function, name_of

POLL = 20e-6  # seconds between looks at the messages, while there is something to compute


def run(program: Program, mailbox: Mailbox, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run a program once.

    Where it fails, ranks that wait for something from here are told, so that they fail too
    instead of waiting for ever; and what they send here is received, so that it does not meet a
    later run.
    """
    execution = _Execution(program, mailbox)
    try:
        return execution.results(inputs)
    except BaseException:  # also when somebody interrupts it: others must not wait
        execution.give_up()
        raise


class _Execution:
    """What changes while a program runs."""

    def __init__(self, program: Program, mailbox: Mailbox) -> None:
        self._program = program
        self._mailbox = mailbox
        self._values = program.values.copy()
        self._waiting = program.waiting.copy()
        self._uses = program.uses.copy()
        self._ready = program.ready.copy()
        self._unsent = program.sends.copy()
        self._locks = [batch.locks for batch in program.batches]
        self._missing = [len(batch.recvs) for batch in program.batches]
        self._closed = set(range(len(self._locks)))
        self._refusal: ExecutionError | None = None

    def results(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Compute all outputs."""
        check_type("input_args", inputs, Mapping)
        for name, (slot, kind) in self._program.inputs.items():
            self._values[slot] = _read_input(name, kind, inputs)
        self._open([number for number, locks in enumerate(self._locks) if locks == 0])
        for slot in self._program.early:
            self._send(slot, self._values[slot])
        self._compute()
        self._mailbox.close()
        outputs = self._program.outputs
        return {name: np.asarray(self._values[slot]) for name, slot in outputs.items()}

    def _compute(self) -> None:
        """Do all steps; between them, see what has arrived."""
        steps, values, uses, ready = self._program.steps, self._values, self._uses, self._ready
        mailbox, requests = self._mailbox, self._mailbox.requests
        left = len(steps)
        due = 0.0
        while True:
            while ready:
                func, args, out = steps[heappop(ready)]
                try:
                    value = func(*[values[slot] for slot in args])
                except Exception as error:
                    error.add_note(_call_of(func, [values[slot] for slot in args]))
                    raise
                for slot in args:
                    uses[slot] -= 1
                    if not uses[slot]:
                        values[slot] = None
                self._settle(out, value)
                left -= 1
                if requests and perf_counter() > due:
                    self._take(mailbox.poll())
                    due = perf_counter() + POLL
            if self._refusal is not None:  # others have got what does not depend on it
                raise self._refusal
            if not mailbox.expected:
                break
            self._take(mailbox.wait())
        if left:
            msg = (
                f"{left} steps of this graph wait for each other or for messages that were never "
                "asked for; verify_distributed_partition tells more"
            )
            raise ExecutionError(msg)

    def _settle(self, slot: int, value: Any) -> None:
        """Pass on a new value: to other ranks first, then to the steps that wait for it."""
        if slot in self._unsent:
            self._send(slot, value)
        if self._uses[slot]:
            self._values[slot] = value
        waiting = self._waiting
        for step in self._program.users[slot]:
            waiting[step] -= 1
            if not waiting[step]:
                heappush(self._ready, step)

    def _send(self, slot: int, value: Any) -> None:
        array = np.asarray(value)
        for parcel in self._unsent[slot]:
            if (array.shape, array.dtype) != (parcel.shape, parcel.dtype):
                msg = (
                    f"message {parcel.name!r} to rank {parcel.peer} has shape {array.shape} and "
                    f"dtype {array.dtype}, but {parcel.shape} and {parcel.dtype} were promised"
                )
                raise ArgumentError(msg)
        for parcel in self._unsent.pop(slot):
            self._mailbox.send(array, parcel.peer, parcel.number)

    def _open(self, numbers: Sequence[int]) -> None:
        """Ask for the messages of batches, and of those that only wait for batches without any."""
        todo = list(numbers)
        while todo:
            number = todo.pop()
            self._closed.discard(number)
            for parcel in self._program.batches[number].recvs:
                self._expect(number, parcel)
            if not self._missing[number]:
                todo += self._complete(number)

    def _expect(self, number: int, parcel: Parcel) -> None:
        array = np.empty(parcel.shape, parcel.dtype)
        self._mailbox.expect(Letter((number, parcel), array, parcel.peer, parcel.number))

    def _complete(self, number: int) -> list[int]:
        """List the batches for which this one was the last to wait for."""
        opened = []
        for other in self._program.batches[number].opens:
            self._locks[other] -= 1
            if not self._locks[other]:
                opened.append(other)
        return opened

    def _take(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            number, parcel = letter.key
            if letter.refused:
                msg = (
                    f"message {parcel.name!r} does not come, because rank {parcel.peer} failed; "
                    "its own error says why"
                )
                self._refusal = ExecutionError(msg)
                continue
            self._settle(parcel.slot, letter.array)
            self._missing[number] -= 1
            if not self._missing[number]:
                self._open(self._complete(number))

    def give_up(self) -> None:
        """Refuse what was not sent, and receive what is still to come."""
        for parcels in self._unsent.values():
            for parcel in parcels:
                self._mailbox.refuse(parcel.nbytes, parcel.peer, parcel.number)
        for number in self._closed:
            for parcel in self._program.batches[number].recvs:
                self._expect(number, parcel)
        self._mailbox.close()


def _call_of(func: Function, args: Sequence[Any]) -> str:
    """Say which node failed; the line that made it is long gone."""
    called = func.func if isinstance(func, partial) else func
    shown = (f"{x.dtype} of shape {x.shape}" if hasattr(x, "shape") else repr(x) for x in args)
    return f"in a node of a graph: {name_of(called)}({', '.join(shown)})"


def _read_input(name: str, kind: Placeholder | None, inputs: Mapping[str, Any]) -> Any:
    if name not in inputs:
        msg = f"input_args has no {name!r}, which the graph needs; it has {sorted(inputs)}"
        raise ArgumentError(msg)
    if kind is None:
        return inputs[name]
    value = inputs[name]
    array = np.asarray(_converted(value, kind.dtype) if _is_number(value) else value)
    if (array.shape, array.dtype) != (kind.shape, kind.dtype):
        msg = (
            f"input {name!r} has shape {array.shape} and dtype {array.dtype}, but was announced "
            f"with {kind.shape} and {kind.dtype}"
        )
        raise ArgumentError(msg)
    return array


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | complex)


def _converted(value: Any, dtype: DType) -> Any:
    """Convert a Python number to a type that can hold it; NumPy alone would cut off the rest.

    ``numpy.float64`` is such a number too.
    """
    number = value.item() if isinstance(value, np.generic) else value
    if dtype.kind not in "biufc" or np.result_type(number, dtype).kind != dtype.kind:
        return value
    try:
        with np.errstate(over="raise"):
            return np.asarray(number, dtype)
    except (OverflowError, FloatingPointError) as error:
        msg = f"{number!r} is too large for {dtype}"
        raise ArgumentError(msg) from error
