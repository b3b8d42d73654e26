"""Check the messages of all ranks against each other, and put them in order.

Each rank describes its sends and receives in a `MessageReport`; every rank gets all reports,
computes the same from them, and raises the same errors.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pencils.array.operands import check_type
from pencils.comm.agree import agreed
from pencils.comm.mailbox import largest_tag
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError
from pencils.graph.array import Array
from pencils.graph.messages import CommunicationOpIdentifier
from pencils.graph.partition import (
    CycleError,
    DistributedGraphPartition,
    DistributedPartitionVerificationError,
    DuplicateRecvError,
    DuplicateSendError,
    MessageMismatchError,
    MissingRecvError,
    MissingSendError,
    PartitionInducedCycleError,
    check_names,
    needs_of,
    sends_of,
    sort_steps,
)
from pencils.graph.program import program_of_nodes, programs
from pencils.graph.rules import DType, Shape

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

Step = Hashable
RankStep = tuple[int, Step]
Numbers = dict[CommunicationOpIdentifier, int]


class Endpoint(NamedTuple):
    """The send or the receive of a message."""

    message: CommunicationOpIdentifier
    shape: Shape
    dtype: DType
    step: Step  # of this rank: the message is sent after it, or it needs the message
    # The message as text, for errors that read the same on all ranks: the text of a tag may contain
    # the order of a set, or an address, which differ from rank to rank.
    text: str

    @classmethod
    def of(cls, message: CommunicationOpIdentifier, array: Array, step: Step) -> Endpoint:
        """Describe a message that carries an array."""
        return cls(message, array.shape, array.dtype, step, str(message))

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


class MessageReport(NamedTuple):
    """The sends and receives of one rank, and which of its steps needs which others."""

    rank: int
    sends: list[Endpoint]
    recvs: list[Endpoint]
    needs: dict[Step, list[Step]]


def gather_reports(
    comm: MPI.Intracomm, call: str, describe: Callable[[], MessageReport]
) -> list[MessageReport]:
    """Describe the messages of this rank, and return the reports of all ranks. *Collective*.

    Tags must be equal to their copies on other ranks.
    """
    with agreed(comm, call):
        report = describe()
        try:
            data = pickle.dumps(report)
            copy: MessageReport = pickle.loads(data)  # noqa: S301 - our own
        except Exception as error:
            raise TypeError(f"a comm_tag of this graph cannot be pickled: {error}") from error
        ends = zip([*report.sends, *report.recvs], [*copy.sends, *copy.recvs], strict=True)
        for one, other in ends:
            if one.message != other.message or hash(one.message) != hash(other.message):
                raise TypeError(
                    f"the comm_tag of message {one.text} must be equal to what it is pickled to"
                )
    every = comm.allgather(data)
    with agreed(comm, call):
        return [pickle.loads(data) for data in every]  # noqa: S301 - from our own ranks


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
    call = "verify_distributed_partition"
    check(gather_reports(comm, call, partial(describe, partition, comm.rank)))
    with agreed(comm, call):
        program = program_of_nodes(partition, comm.rank)
    programs(topology)[partition] = program


def describe(partition: DistributedGraphPartition, rank: int) -> MessageReport:
    """Describe the messages of a partition for the other ranks; the steps are its parts."""
    check_type("partition", partition, DistributedGraphPartition)
    check_names(partition)
    steps = {pid: (number, repr(pid)) for number, pid in enumerate(partition.parts)}
    needs: dict[Step, list[Step]] = {
        steps[pid]: [*sorted(steps[need] for need in needed)]
        for pid, needed in needs_of(partition).items()
    }
    report = MessageReport(rank, [], [], needs)
    for pid, part in partition.parts.items():
        for recv in part.name_to_recv_node.values():
            report.recvs.append(Endpoint.of(recv.identifier(rank), recv, steps[pid]))
        for send in sends_of(part):
            report.sends.append(Endpoint.of(send.identifier(rank), send.data, steps[pid]))
    return report


def check(reports: Sequence[MessageReport]) -> None:
    """Check the partitions of all ranks, given the report of each."""
    check_messages(reports)
    _, stuck = levels(reports)
    parts = [f"part {step[1]} of rank {rank}" for rank, step in stuck]  # type: ignore[index]
    _raise_if_any(PartitionInducedCycleError, "parts wait for each other", parts)


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
    call = "number_distributed_tags"
    with agreed(comm, call) as agree:
        check_type("base_tag", base_tag, int)
        agree(base_tag=base_tag)
    reports = gather_reports(comm, call, partial(describe, partition, comm.rank))
    ends = [end for report in reports for end in (*report.sends, *report.recvs)]
    tags = dict.fromkeys(end.message.comm_tag for end in ends)
    numbers = {tag: base_tag + number for number, tag in enumerate(tags)}
    next_tag = base_tag + len(numbers)
    if base_tag < 0 or next_tag - 1 > largest_tag():
        raise ArgumentError(
            f"tags {base_tag}..{next_tag - 1} exceed 0..{largest_tag()}, the range that MPI "
            "permits: use another base_tag"
        )
    parts = {}
    for pid, part in partition.parts.items():
        recvs = {
            name: replace(recv, comm_tag=numbers[recv.comm_tag])
            for name, recv in part.name_to_recv_node.items()
        }
        sends = {
            name: [replace(send, comm_tag=numbers[send.comm_tag]) for send in many]
            for name, many in part.name_to_send_nodes.items()
        }
        parts[pid] = replace(part, name_to_recv_node=recvs, name_to_send_nodes=sends)
    return replace(partition, parts=parts, numbers={}), next_tag


# The reports of all ranks.


def check_messages(reports: Sequence[MessageReport]) -> None:
    """Check that the sends and receives of all ranks form pairs; errors name all that do not."""
    sends = [end for report in reports for end in report.sends]
    recvs = [end for report in reports for end in report.recvs]
    sent = {end.message: end for end in sends}
    received = {end.message: end for end in recvs}
    _raise_if_any(DuplicateSendError, "messages are sent more than once", _duplicates(sends))
    hint = "messages are received more than once; make one node for each, and use it everywhere"
    _raise_if_any(DuplicateRecvError, hint, _duplicates(recvs))
    unsent = [end.text for message, end in received.items() if message not in sent]
    unreceived = [end.text for message, end in sent.items() if message not in received]
    _raise_if_any(MissingSendError, "messages are received, but not sent", unsent)
    _raise_if_any(MissingRecvError, "messages are sent, but not received", unreceived)
    differ = [
        f"{end.text} (sent: {end}, to be received: {received[message]})"
        for message, end in sent.items()
        if (end.shape, end.dtype) != (received[message].shape, received[message].dtype)
    ]
    _raise_if_any(MessageMismatchError, "messages differ in shape or type", differ)


def _duplicates(ends: Sequence[Endpoint]) -> list[str]:
    texts = {end.message: end.text for end in ends}
    counts = Counter(end.message for end in ends)
    return [texts[message] for message, count in counts.items() if count > 1]


def _raise_if_any(
    error: type[DistributedPartitionVerificationError], what: str, faults: Sequence[str]
) -> None:
    if faults:
        raise error(f"{what}:" + "".join(f"\n  {fault}" for fault in faults))


def levels(reports: Sequence[MessageReport]) -> tuple[dict[RankStep, int], list[RankStep]]:
    """Count the messages that have to arrive, one after the other, before each step of each rank.

    Returned, too, are steps that wait for each other in a cycle, or lie between two cycles.
    """
    # Steps that each step needs, and how many messages (0 or 1) arrive between both.
    needs: dict[RankStep, list[tuple[RankStep, int]]] = {}
    sent = {end.message: (report.rank, end.step) for report in reports for end in report.sends}
    for report in reports:
        for step, needed in report.needs.items():
            needs[report.rank, step] = [((report.rank, need), 0) for need in needed]
        for end in report.recvs:
            needs[report.rank, end.step].append((sent[end.message], 1))
    found: dict[RankStep, int] = {}
    for step in sort_steps({step: [need for need, _ in needs[step]] for step in needs}):
        found[step] = max((found[need] + count for need, count in needs[step]), default=0)
    users: dict[RankStep, list[RankStep]] = {step: [] for step in needs if step not in found}
    for step in users:
        for need, _ in needs[step]:
            if need in users:
                users[need].append(step)
    behind = set(sort_steps(users))  # they wait for a cycle, but no cycle waits for them
    return found, [step for step in users if step not in behind]


def order_messages(reports: Sequence[MessageReport]) -> tuple[Numbers, Numbers]:
    """Check the messages of all ranks, and put them in order: return batches and tags for MPI.

    The batch is how many messages have to arrive, one after the other, before a message can be
    sent; the tag is how many messages precede it between the same two ranks.
    """
    check_messages(reports)
    found, stuck = levels(reports)
    cycle = set(stuck)
    texts = [end.text for r in reports for end in r.recvs if (r.rank, end.step) in cycle]
    _raise_if_any(CycleError, "messages wait for each other", texts)
    sends = [end for report in reports for end in report.sends]
    batches = {end.message: found[end.message.src_rank, end.step] for end in sends}
    counts: Counter[tuple[int, int]] = Counter()
    numbers = {}
    for message in batches:
        ranks = message.src_rank, message.dest_rank
        numbers[message] = counts[ranks]
        counts[ranks] += 1
    return batches, numbers
