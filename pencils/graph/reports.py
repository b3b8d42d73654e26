"""Messages of all ranks, checked and put in order.

Nothing here communicates. Each rank describes its sends and receives in a `MessageReport`; every
rank gets all reports, computes the same from them, and raises the same errors.
"""

from __future__ import annotations

import graphlib
import pickle
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from pencils.graph.errors import (
    CycleError,
    DistributedPartitionVerificationError,
    DuplicateRecvError,
    DuplicateSendError,
    MessageMismatchError,
    MissingRecvError,
    MissingSendError,
)
from pencils.graph.messages import CommunicationOpIdentifier
from pencils.graph.rules import DType, Node, Shape

T = TypeVar("T", bound=Hashable)
Step = Hashable
RankStep = tuple[int, Step]
Numbers = dict[CommunicationOpIdentifier, int]


class Endpoint(NamedTuple):
    """The send or the receive of a message.

    Parameters
    ----------
    message : CommunicationOpIdentifier
        The message.
    shape, dtype
        Of the array that is sent or received.
    step : hashable
        Step of this rank after which the message is sent, or which needs it.
    text : str
        The message as text, for errors that read the same on all ranks: the text of a tag may
        contain the order of a set, or an address, which differ from rank to rank.
    """

    message: CommunicationOpIdentifier
    shape: Shape
    dtype: DType
    step: Step
    text: str


def endpoint(message: CommunicationOpIdentifier, array: Node, step: Step) -> Endpoint:
    """Describe the send or receive of an array."""
    return Endpoint(message, array.shape, array.dtype, step, str(message))


@dataclass(frozen=True, slots=True)
class MessageReport:
    """The sends and receives of one rank, and which of its steps needs which others."""

    sends: Sequence[Endpoint]
    recvs: Sequence[Endpoint]
    needs: Mapping[Step, Sequence[Step]]

    def endpoints(self) -> list[Endpoint]:
        """List all sends and receives."""
        return [*self.sends, *self.recvs]


def to_bytes(report: MessageReport) -> bytes:
    """Pickle a report, and check that its tags are equal to their copies.

    Raises
    ------
    TypeError
        If a tag cannot be pickled, or differs from its copy: no other rank could have an equal one.
    """
    try:
        data = pickle.dumps(report)
        copy: MessageReport = pickle.loads(data)  # noqa: S301 - our own
    except Exception as error:
        msg = f"a comm_tag of this graph cannot be pickled: {error}"
        raise TypeError(msg) from error
    for one, other in zip(report.endpoints(), copy.endpoints(), strict=True):
        if one.message != other.message or hash(one.message) != hash(other.message):
            msg = f"the comm_tag of message {one.text} must be equal to what it is pickled to"
            raise TypeError(msg)
    return data


def check_messages(reports: Sequence[MessageReport]) -> None:
    """Check that the sends and receives of all ranks form pairs.

    Raises
    ------
    DistributedPartitionVerificationError
        One of its subclasses, which names all messages that have the same fault.
    """
    sends = [end for report in reports for end in report.sends]
    recvs = [end for report in reports for end in report.recvs]
    sent = {end.message: end for end in sends}
    received = {end.message: end for end in recvs}
    _check_none(DuplicateSendError, "sent more than once", _duplicates(sends))
    hint = "received more than once; make one node for each, and use it wherever it is needed"
    _check_none(DuplicateRecvError, hint, _duplicates(recvs))
    unsent = [end.text for message, end in received.items() if message not in sent]
    unreceived = [end.text for message, end in sent.items() if message not in received]
    _check_none(MissingSendError, "received, but not sent", unsent)
    _check_none(MissingRecvError, "sent, but not received", unreceived)
    differ = [
        f"{end.text} (sent: {_type_of(end)}, to be received: {_type_of(received[message])})"
        for message, end in sent.items()
        if (end.shape, end.dtype) != (received[message].shape, received[message].dtype)
    ]
    _check_none(MessageMismatchError, "sent and received with different shapes or types", differ)


def _duplicates(ends: Sequence[Endpoint]) -> list[str]:
    texts = {end.message: end.text for end in ends}
    counts = Counter(end.message for end in ends)
    return [texts[message] for message, count in counts.items() if count > 1]


def _type_of(end: Endpoint) -> str:
    return f"{end.dtype} of shape {end.shape}"


def _check_none(
    error: type[DistributedPartitionVerificationError], what: str, messages: Sequence[str]
) -> None:
    if messages:
        listed = "".join(f"\n  {message}" for message in messages)
        msg = f"messages are {what}:{listed}"
        raise error(msg)


# The order of steps.


def sort_steps(needs: Mapping[T, Iterable[T]]) -> list[T]:
    """List steps, each after those it needs; steps on or behind a cycle are left out."""
    sorter: graphlib.TopologicalSorter[T] = graphlib.TopologicalSorter()
    for step in needs:  # in this order, so that it does not depend on the order of sets
        sorter.add(step)
    for step, needed in needs.items():
        sorter.add(step, *needed)
    with suppress(graphlib.CycleError):  # all other steps can still be sorted
        sorter.prepare()
    found: list[T] = []
    while ready := sorter.get_ready():
        found += ready
        sorter.done(*ready)
    return found


def levels(reports: Sequence[MessageReport]) -> tuple[dict[RankStep, int], list[RankStep]]:
    """Count the messages that have to arrive, one after the other, before each step of each rank.

    Returns
    -------
    levels : dict
        For every step that can be executed.
    stuck : list
        Steps that wait for each other in a cycle, or lie between two cycles.
    """
    local, remote = _needs(reports)
    needs = {step: [*local[step], *remote[step]] for step in local}
    found: dict[RankStep, int] = {}
    for step in sort_steps(needs):
        before = [
            *(found[need] for need in local[step]),
            *(found[need] + 1 for need in remote[step]),
        ]
        found[step] = max(before, default=0)
    users: dict[RankStep, list[RankStep]] = {step: [] for step in needs if step not in found}
    for step in users:
        for need in needs[step]:
            if need in users:
                users[need].append(step)
    behind = set(sort_steps(users))  # they wait for a cycle, but no cycle waits for them
    return found, [step for step in users if step not in behind]


Needs = dict[RankStep, list[RankStep]]


def _needs(reports: Sequence[MessageReport]) -> tuple[Needs, Needs]:
    """List the steps of the same rank that each step needs, and those whose messages it needs."""
    local: Needs = {}
    remote: Needs = {}
    sent = {end.message: (rank, end.step) for rank, r in enumerate(reports) for end in r.sends}
    for rank, report in enumerate(reports):
        for step, needed in report.needs.items():
            local[rank, step] = [(rank, need) for need in needed]
        for end in report.endpoints():
            local.setdefault((rank, end.step), [])
        for end in report.recvs:
            remote.setdefault((rank, end.step), []).append(sent[end.message])
    return local, {step: remote.get(step, []) for step in local}


def order_messages(reports: Sequence[MessageReport]) -> tuple[Numbers, Numbers]:
    """Check the messages of all ranks, and put them in order.

    Returns
    -------
    batches : dict
        How many messages have to arrive, one after the other, before each message can be sent.
    numbers : dict
        The tag of each message for MPI.

    Raises
    ------
    DistributedPartitionVerificationError
        If they do not form pairs, or wait for each other.
    """
    check_messages(reports)
    found, stuck = levels(reports)
    if stuck:
        cycle = set(stuck)
        messages = [
            end.text
            for rank, report in enumerate(reports)
            for end in report.recvs
            if (rank, end.step) in cycle
        ]
        msg = "messages wait for each other:" + "".join(f"\n  {text}" for text in messages)
        raise CycleError(msg)
    batches = {
        end.message: found[rank, end.step]
        for rank, report in enumerate(reports)
        for end in report.sends
    }
    return batches, _numbered(reports)


def _numbered(reports: Sequence[MessageReport]) -> Numbers:
    """Give each message the number of messages before it between the same two ranks."""
    counts: Counter[tuple[int, int]] = Counter()
    numbers = {}
    for report in reports:
        for end in report.sends:
            ranks = end.message.src_rank, end.message.dest_rank
            numbers[end.message] = counts[ranks]
            counts[ranks] += 1
    return numbers
