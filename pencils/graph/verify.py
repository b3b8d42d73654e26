"""Check the partitions of all ranks against each other."""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pencils.array.operands import check_type
from pencils.comm.agree import agreed
from pencils.comm.mailbox import largest_tag
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError
from pencils.graph.errors import PartitionInducedCycleError
from pencils.graph.messages import CommunicationOpIdentifier
from pencils.graph.partition import (
    DistributedGraphPart,
    DistributedGraphPartition,
    check_names,
    needs_of,
)
from pencils.graph.program import program_of_nodes, programs
from pencils.graph.reports import (
    Endpoint,
    MessageReport,
    check_messages,
    endpoint,
    levels,
    to_bytes,
)

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


def verify_distributed_partition(
    mpi_communicator: MPI.Intracomm, partition: DistributedGraphPartition
) -> None:
    """Check that the partitions of all ranks can be executed together. *Collective*.

    This holds for results of `find_distributed_partition`; the check is for partitions that were
    changed or made by hand.

    Raises
    ------
    DuplicateSendError, DuplicateRecvError
        If two messages have the same source, destination and tag.
    MissingSendError, MissingRecvError
        If a receive has no send, or a send no receive.
    MessageMismatchError
        If a send and its receive differ in shape or type.
    PartitionInducedCycleError
        If parts wait for each other, on one rank or over several.
    ArgumentError, TypeError
        If parts, messages or results refer to a name that does not exist, or exists twice; if tags
        have no numbers that MPI permits; or if the argument is no partition.

    Every error is raised on all ranks alike, and names everything that has the same fault.
    """
    topology = topology_of(mpi_communicator)
    comm = topology.comm
    with agreed(comm, "verify_distributed_partition"):
        check_type("partition", partition, DistributedGraphPartition)
        data = to_bytes(describe(partition, comm.rank))
    every = comm.allgather(data)
    with agreed(comm, "verify_distributed_partition"):
        reports = [pickle.loads(data) for data in every]  # noqa: S301 - from our own ranks
    check(reports)
    with agreed(comm, "verify_distributed_partition"):
        program = program_of_nodes(partition, comm.rank)
    programs(topology)[partition] = program


def describe(partition: DistributedGraphPartition, rank: int) -> MessageReport:
    """Describe the messages of a partition for the other ranks; the steps are its parts."""
    check_names(partition)
    needed = needs_of(partition)
    steps = {pid: (number, repr(pid)) for number, pid in enumerate(partition.parts)}
    sends: list[Endpoint] = []
    recvs: list[Endpoint] = []
    needs: dict[Hashable, list[Hashable]] = {}
    for pid, part in partition.parts.items():
        step = steps[pid]
        needs[step] = [*sorted(steps[need] for need in needed[pid])]
        for recv in part.name_to_recv_node.values():
            message = CommunicationOpIdentifier(recv.src_rank, rank, recv.comm_tag)
            recvs.append(endpoint(message, recv, step))
        for many in part.name_to_send_nodes.values():
            for send in many:
                message = CommunicationOpIdentifier(rank, send.dest_rank, send.comm_tag)
                sends.append(endpoint(message, send.data, step))
    return MessageReport(sends, recvs, needs)


def check(reports: Sequence[MessageReport]) -> None:
    """Check the partitions of all ranks, given the report of each.

    Raises
    ------
    DistributedPartitionVerificationError
        One of its subclasses.
    """
    check_messages(reports)
    _, stuck = levels(reports)
    if stuck:
        places = "".join(f"\n  part {step[1]} of rank {rank}" for rank, step in stuck)  # type: ignore[index]
        msg = f"parts wait for each other:{places}"
        raise PartitionInducedCycleError(msg)


def number_distributed_tags(
    mpi_communicator: MPI.Intracomm, partition: DistributedGraphPartition, base_tag: int
) -> tuple[DistributedGraphPartition, int]:
    """Replace tags by numbers on which all ranks agree. *Collective*.

    Only partitions made by hand need that; other programs can match messages by numbers, too.

    Parameters
    ----------
    mpi_communicator : mpi4py.MPI.Intracomm
        The ranks of the partition.
    partition : DistributedGraphPartition
        Its tags may be any.
    base_tag : int
        The first number to use; the same on all ranks.

    Returns
    -------
    DistributedGraphPartition
        Its tags are numbers.
    int
        The first number that was not used.

    Raises
    ------
    ArgumentError
        On every rank, if a number would be larger than MPI permits.
    """
    comm = topology_of(mpi_communicator).comm
    with agreed(comm, "number_distributed_tags") as same:
        check_type("partition", partition, DistributedGraphPartition)
        check_type("base_tag", base_tag, int)
        same(base_tag=base_tag)
        data = to_bytes(describe(partition, comm.rank))
    reports = [pickle.loads(data) for data in comm.allgather(data)]  # noqa: S301 - as above
    tags = dict.fromkeys(end.message.comm_tag for report in reports for end in report.endpoints())
    numbers = {tag: base_tag + number for number, tag in enumerate(tags)}
    next_tag = base_tag + len(numbers)
    if base_tag < 0 or next_tag - 1 > largest_tag():
        msg = (
            f"tags {base_tag}..{next_tag - 1} exceed what MPI permits, 0..{largest_tag()}; use a "
            "smaller base_tag, not negative"
        )
        raise ArgumentError(msg)
    parts = {pid: _renumbered(part, numbers) for pid, part in partition.parts.items()}
    return replace(partition, parts=parts, numbers={}), next_tag


def _renumbered(
    part: DistributedGraphPart, numbers: Mapping[Hashable, int]
) -> DistributedGraphPart:
    recvs = {
        name: replace(recv, comm_tag=numbers[recv.comm_tag])
        for name, recv in part.name_to_recv_node.items()
    }
    sends = {
        name: [replace(send, comm_tag=numbers[send.comm_tag]) for send in many]
        for name, many in part.name_to_send_nodes.items()
    }
    return replace(part, name_to_recv_node=recvs, name_to_send_nodes=sends)
