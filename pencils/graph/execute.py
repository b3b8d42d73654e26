"""Execute partitions: steps are computed while messages are under way."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from heapq import heappop, heappush
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.operands import check_type
from pencils.comm import pool
from pencils.comm.agree import agreed
from pencils.comm.mailbox import Mailbox, Receive
from pencils.comm.mpi import is_simulated
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError
from pencils.graph.array import Array, Placeholder
from pencils.graph.partition import DistributedGraphPart, DistributedGraphPartition, ExecutionError
from pencils.graph.program import (
    GraphProgram,
    PartProgram,
    evaluate,
    program_of_nodes,
    program_of_parts,
    programs,
)
from pencils.graph.rules import DType, name_of

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

POLL = 20e-6  # seconds between two polls for messages, while there are steps to compute


def execute_distributed_partition(
    partition: DistributedGraphPartition,
    prg_per_partition: Mapping[Hashable, PartProgram] | None,
    queue: Any,
    mpi_communicator: MPI.Intracomm,
    *,
    allocator: Any = None,
    input_args: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Compute the outputs of a graph. *Collective*: every rank executes its partition.

    Without programs, elementwise operations between messages are computed in one pass over memory,
    with the bits of NumPy, which computes the others: values that other ranks wait for come first,
    and those that need no message of their part are computed while messages are under way. Values
    are freed after their last use, and memory for messages is allocated shortly before they are
    due. Messages use a private communicator. A partition may be executed any number of times. Many
    MPI libraries move data only when they are called: between two functions, and parts of a pass.

    If one rank fails, all ranks that wait for its messages raise `ExecutionError`; the partition
    can be executed again. The first time, all ranks agree that their partitions can be executed;
    a partition that is changed later on some ranks only has to be verified by all.

    Parameters
    ----------
    partition : DistributedGraphPartition
        From the same call of `find_distributed_partition` on all ranks. Ranks do not agree on each
        execution: if one passes the partition of another call, they may wait for each other.
    prg_per_partition : mapping of pid to callable, or None
        ``program(queue, allocator=allocator, **inputs)`` returns an event, which is ignored, and
        a dict of all outputs of the part. Each is called when all earlier parts are computed, and
        all messages for it have arrived. None: NumPy.
    queue, allocator : object
        Passed to the programs.
    mpi_communicator : mpi4py.MPI.Intracomm
        The communicator for which the partition was made.
    input_args : mapping of str to array_like, optional
        A value for every `Placeholder`, of its shape and type. Others are ignored.

    Returns
    -------
    dict of str to numpy.ndarray
        The outputs, by name. They may share memory with inputs and with each other, and those that
        hold one value everywhere, like `zeros`, cannot be written to.

    Raises
    ------
    ArgumentError, TypeError
        If an input is missing or has another shape or type than its placeholder, or a program does
        not return all outputs. On every rank, if a partition cannot be executed.
    ExecutionError
        If another rank failed, or no progress is possible.

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> from pencils.graph import find_distributed_partition, make_placeholder
    >>> x = make_placeholder("x", (3,))
    >>> partition = find_distributed_partition(MPI.COMM_SELF, {"y": np.sqrt(x) + 1})
    >>> inputs = {"x": np.array([0.0, 4.0, 9.0])}
    >>> execute_distributed_partition(partition, None, None, MPI.COMM_SELF, input_args=inputs)
    {'y': array([1., 3., 4.])}
    """
    topology = topology_of(mpi_communicator)
    known = programs(topology)
    if partition not in known:
        with agreed(topology.comm, "execute_distributed_partition"):
            check_type("partition", partition, DistributedGraphPartition)
            program = program_of_nodes(partition, topology.rank)
        known[partition] = program
    program = known[partition]
    if prg_per_partition is not None:
        given = prg_per_partition, queue, allocator
        program = program_of_parts(partition, topology.rank, *given)
    inputs = {} if input_args is None else input_args
    return _Execution(program, Mailbox(mpi_communicator)).run(inputs)


def generate_code_for_partition(
    partition: DistributedGraphPartition,
) -> dict[Hashable, Callable[..., tuple[None, dict[str, Any]]]]:
    """Make a NumPy program of every part, for ``prg_per_partition``.

    A program made by other means computes ``partition.name_to_output[name]`` for all
    ``output_names`` of its part.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from pencils.graph import find_distributed_partition, make_placeholder
    >>> x = make_placeholder("x", ())
    >>> partition = find_distributed_partition(MPI.COMM_SELF, {"y": 2 * x})
    >>> generate_code_for_partition(partition)[0](None, x=21.0)
    (None, {'y': np.float64(42.0)})
    """

    def program_of(part: DistributedGraphPart) -> Callable[..., tuple[None, dict[str, Any]]]:
        outputs = {name: partition.name_to_output[name] for name in sorted(part.output_names)}
        nodes = partition.nodes_of(part)

        def compute(
            _queue: Any, /, *, allocator: Any = None, **inputs: Any
        ) -> tuple[None, dict[str, Any]]:
            del allocator
            values: dict[Array, Any] = {
                node: inputs[node.name] for node in nodes if isinstance(node, Placeholder)
            }
            evaluate(nodes, values)
            return None, {name: values[node] for name, node in outputs.items()}

        return compute

    return {pid: program_of(part) for pid, part in partition.parts.items()}


# One execution.


class _Execution:
    """The state of one execution of a program."""

    def __init__(self, program: GraphProgram, mailbox: Mailbox) -> None:
        self._program = program
        self._mailbox = mailbox
        self._values = program.values.copy()
        self._waiting = program.waiting.copy()
        self._uses = program.uses.copy()
        self._ready = program.ready.copy()
        self._unsent = program.sends.copy()
        self._locks = program.locks.copy()
        self._missing = list(map(len, program.recvs))
        self._closed = set(range(len(self._locks)))
        self._failure: ExecutionError | None = None

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Compute all outputs.

        If this fails, this rank sends a failure in place of each message that it has not sent, so
        that the receivers fail, too, and do not wait; and it receives all messages for it, so that
        none is left for a later execution.
        """
        try:
            check_type("input_args", inputs, Mapping)
            for name, (slot, placeholder) in self._program.inputs.items():
                self._values[slot] = _read_input(name, placeholder, inputs)
            for slot in self._program.early:  # before answers to others: see `_PreparedMessages`
                self._send(slot, self._values[slot])
            self._post([number for number, locks in enumerate(self._locks) if locks == 0])
            self._compute()
        except BaseException:  # also KeyboardInterrupt: other ranks must not wait
            self._give_up()
            raise
        self._mailbox.close()
        outputs = self._program.outputs
        return {name: np.asarray(self._values[slot]) for name, slot in outputs.items()}

    def _compute(self) -> None:
        """Execute all steps; between them, poll for messages."""
        steps, values, uses, ready = self._program.steps, self._values, self._uses, self._ready
        mailbox, requests = self._mailbox, self._mailbox.requests
        left = len(steps)
        due = 0.0
        pause = 0.0 if is_simulated() else POLL  # polls must not depend on the clock there
        while True:
            while ready:
                func, args, out = steps[heappop(ready)]
                try:
                    value = func(*[values[slot] for slot in args])
                except Exception as error:  # its traceback has not the line that made the node
                    shown = ", ".join(_shown(values[slot]) for slot in args)
                    error.add_note(f"in a node of a graph: {name_of(func)}({shown})")
                    raise
                for slot in args:
                    uses[slot] -= 1
                    if not uses[slot]:
                        values[slot] = None
                self._settle(out, value)
                left -= 1
                if requests and (not pause or perf_counter() > due):
                    self._take(mailbox.poll())
                    due = perf_counter() + pause
            if self._failure is not None:  # all messages that do not depend on it are sent
                raise self._failure
            if not mailbox.expected:
                break
            self._take(mailbox.wait())
        if left:
            raise ExecutionError(
                f"{left} steps of this graph wait for each other or for messages without a "
                "receive; verify_distributed_partition finds the cause"
            )

    def _settle(self, slot: int, value: Any) -> None:
        """Send a new value to other ranks, then mark the steps that wait for it."""
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
        for message in self._unsent[slot]:
            if (array.shape, array.dtype) != (message.shape, message.dtype):
                raise ArgumentError(
                    f"message {message.name!r} to rank {message.peer} has shape {array.shape} and "
                    f"dtype {array.dtype}, expected {message.shape} and {message.dtype}"
                )
        for message in self._unsent.pop(slot):
            self._mailbox.send(array, message.peer, message.number)

    def _post(self, numbers: list[int]) -> None:
        """Post the receives of parts, and of those that only wait for parts without any."""
        while numbers:
            number = numbers.pop()
            self._closed.discard(number)
            self._expect(number)
            if not self._missing[number]:
                numbers += self._complete(number)

    def _expect(self, number: int) -> None:
        for message in self._program.recvs[number]:
            array = pool.empty(message.shape, message.dtype)
            self._mailbox.expect(Receive((number, message), array, message.peer, message.number))

    def _complete(self, number: int) -> list[int]:
        """List the parts whose receives waited for those of this part last."""
        unlocks = self._program.unlocks[number]
        for other in unlocks:
            self._locks[other] -= 1
        return [other for other in unlocks if not self._locks[other]]

    def _take(self, receives: Sequence[Receive]) -> None:
        for receive in receives:
            number, message = receive.key
            if receive.failed:
                msg = (
                    f"message {message.name!r} was not sent, because rank {message.peer} failed; "
                    "see the error of that rank"
                )
                self._failure = ExecutionError(msg)
                continue
            self._settle(message.slot, receive.array)
            self._missing[number] -= 1
            if not self._missing[number]:
                self._post(self._complete(number))

    def _give_up(self) -> None:
        """Send failures in place of all messages that were not sent, and receive all others."""
        for messages in self._unsent.values():
            for message in messages:
                self._mailbox.send_failure(message.nbytes, message.peer, message.number)
        for number in self._closed:
            self._expect(number)
        self._mailbox.close()


def _shown(value: Any) -> str:
    return f"{value.dtype} of shape {value.shape}" if hasattr(value, "shape") else repr(value)


def _read_input(name: str, placeholder: Placeholder | None, inputs: Mapping[str, Any]) -> Any:
    if name not in inputs:
        raise ArgumentError(
            f"input_args has no {name!r}, which the graph needs; it has {sorted(inputs)}"
        )
    if placeholder is None:
        return inputs[name]
    array = np.asarray(_converted(inputs[name], placeholder.dtype))
    if (array.shape, array.dtype) != (placeholder.shape, placeholder.dtype):
        raise ArgumentError(
            f"input {name!r} has shape {array.shape} and dtype {array.dtype}, but was announced "
            f"with {placeholder.shape} and {placeholder.dtype}"
        )
    return array


def _converted(value: Any, dtype: DType) -> Any:
    """Convert a Python number or ``numpy.float64`` to a type that can represent it, or raise."""
    if not isinstance(value, int | float | complex) or dtype.kind not in "biufc":
        return value
    number = value.item() if isinstance(value, np.generic) else value
    if np.result_type(number, dtype).kind != dtype.kind:
        return value
    try:
        with np.errstate(over="raise"):
            return np.asarray(number, dtype)
    except (OverflowError, FloatingPointError) as error:
        raise ArgumentError(f"{number!r} is too large for {dtype}") from error
