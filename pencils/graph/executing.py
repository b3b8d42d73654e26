"""Partitions are executed, over and over."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from pencils.array.operands import check_type
from pencils.comm.agree import agreed
from pencils.comm.mailbox import Mailbox
from pencils.comm.topology import Topology, topology_of
from pencils.graph.array import Array, Call, DataWrapper, Placeholder
from pencils.graph.compiling import PartProgram, compile_nodes, compile_parts
from pencils.graph.partition import DistributedGraphPart, DistributedGraphPartition
from pencils.graph.program import Program
from pencils.graph.running import run

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


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

    Without programs, NumPy computes node by node: what other ranks wait for comes first, and
    whatever can be computed is, while messages are under way. Values are dropped after their last
    use, and memory for messages is taken shortly before they are due. Nothing of this lies on the
    user's communicator, and a partition may be executed any number of times. Many MPI libraries
    move data only when they are called, which is between two nodes: several short ones hide more
    than a long one.

    Where one rank fails, all ranks that wait for something from it raise `ExecutionError`, and the
    partition can be executed again. The first time all ranks agree that their partitions can be
    executed; one that is changed later on some ranks only has to be verified by all.

    Parameters
    ----------
    partition : DistributedGraphPartition
        From `find_distributed_partition`.
    prg_per_partition : mapping of pid to callable, or None
        ``program(queue, allocator=allocator, **inputs)`` returns an event, which is ignored, and
        a dict of all outputs of the part. Each is called once all parts before have been, and all
        messages for it have arrived. None: NumPy.
    queue, allocator : object
        Handed to the programs.
    mpi_communicator : mpi4py.MPI.Intracomm
        That for which the partition was made.
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
        If an input is missing or not what was announced, or a program does not return what it must.
        On every rank, if a partition cannot be executed.
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
    program = _prepared(partition, topology)
    if prg_per_partition is not None:
        options = {"queue": queue, "allocator": allocator}
        program = compile_parts(partition, topology.rank, prg_per_partition, **options)
    return run(program, Mailbox(mpi_communicator), {} if input_args is None else input_args)


def _prepared(partition: DistributedGraphPartition, topology: Topology) -> Program:
    """Prepare a partition for repeated execution node by node. *Collective* the first time."""
    if partition not in topology.programs:
        with agreed(topology.comm, "execute_distributed_partition"):
            check_type("partition", partition, DistributedGraphPartition)
            program = compile_nodes(partition, topology.rank)
        topology.programs[partition] = program
    prepared: Program = topology.programs[partition]
    return prepared


def generate_code_for_partition(
    partition: DistributedGraphPartition,
) -> dict[Hashable, Callable[..., tuple[None, dict[str, Any]]]]:
    """Make a NumPy program of every part, for ``prg_per_partition``.

    Those who compile parts by other means can start from here: what a part computes is
    ``partition.name_to_output[name]`` for its ``output_names``, in terms of its inputs.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from pencils.graph import find_distributed_partition, make_placeholder
    >>> x = make_placeholder("x", ())
    >>> partition = find_distributed_partition(MPI.COMM_SELF, {"y": 2 * x})
    >>> generate_code_for_partition(partition)[0](None, x=21.0)
    (None, {'y': np.float64(42.0)})
    """
    return {pid: _PartInNumPy(partition, part) for pid, part in partition.parts.items()}


class _PartInNumPy:
    """Computes a part node by node, in their order."""

    def __init__(self, partition: DistributedGraphPartition, part: DistributedGraphPart) -> None:
        self._outputs = {name: partition.name_to_output[name] for name in sorted(part.output_names)}
        self._nodes = partition.nodes_of(part)

    def __call__(
        self, _queue: Any, /, *, allocator: Any = None, **inputs: Any
    ) -> tuple[None, dict[str, Any]]:
        del allocator
        values: dict[Array, Any] = {}
        for node in self._nodes:
            if isinstance(node, Placeholder):
                values[node] = inputs[node.name]
            elif isinstance(node, DataWrapper):
                values[node] = node.data
            elif isinstance(node, Call):
                args = [values[arg] if isinstance(arg, Array) else arg for arg in node.args]
                values[node] = node.func(*args, **node.options)
        return None, {name: values[node] for name, node in self._outputs.items()}
