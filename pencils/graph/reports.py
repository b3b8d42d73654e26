"""What every rank tells the others about its graph, and what follows from all reports together.

Nothing here communicates: the reports of any number of ranks can be looked at in one process. All
ranks do so for themselves, and come to the same verdict.
"""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pencils.graph.errors import (
    DistributedPartitionVerificationError,
    DuplicateRecvError,
    DuplicateSendError,
    MessageMismatchError,
    MissingRecvError,
    MissingSendError,
)
from pencils.graph.messages import CommunicationOpIdentifier
from pencils.graph.rules import DType, Node, Shape

Step = Hashable
Place = tuple[int, Step]  # a step of a rank


class End(NamedTuple):
    """One end of a message.

    Parameters
    ----------
    message : CommunicationOpIdentifier
        Which one.
    shape, dtype
        Of what is sent, or to be received.
    step : hashable
        Step of this rank after which it leaves, or that it is needed for.
    text : str
        The message in words, for errors that read the same on all ranks: the order of a set in
        its tag, or an address, is another one on each.
    """

    message: CommunicationOpIdentifier
    shape: Shape
    dtype: DType
    step: Step
    text: str


def end_of(message: CommunicationOpIdentifier, array: Node, step: Step) -> End:
    """Describe an end of a message, given what is sent or received."""
    return End(message, array.shape, array.dtype, step, str(message))


@dataclass(frozen=True, slots=True)
class Report:
    """What one rank sends and receives, and which of its steps needs which others."""

    sends: Sequence[End]
    recvs: Sequence[End]
    needs: Mapping[Step, Sequence[Step]]

    def ends(self) -> list[End]:
        """List all ends of messages."""
        return [*self.sends, *self.recvs]


def pack(report: Report) -> bytes:
    """Pickle a report, and check that its tags survive that.

    Raises
    ------
    TypeError
        If a tag cannot be pickled, or is equal to nothing but itself: nobody else could have it.
    """
    try:
        text = pickle.dumps(report)
        copy: Report = pickle.loads(text)  # noqa: S301 - our own
    except Exception as error:
        msg = f"a comm_tag of this graph cannot be pickled: {error}"
        raise TypeError(msg) from error
    for one, other in zip(report.ends(), copy.ends(), strict=True):
        if one.message != other.message or hash(one.message) != hash(other.message):
            msg = f"the comm_tag of message {one.text} must be equal to what it is pickled to"
            raise TypeError(msg)
    return text


def check_messages(reports: Sequence[Report]) -> None:
    """Check that sends and receives of all ranks make pairs.

    Raises
    ------
    DistributedPartitionVerificationError
        One of its children, which names all messages that have the same fault.
    """
    sends = [end for report in reports for end in report.sends]
    recvs = [end for report in reports for end in report.recvs]
    sent = {end.message: end for end in sends}
    received = {end.message: end for end in recvs}
    _complain(DuplicateSendError, "sent more than once", _duplicates(sends))
    hint = "received more than once; make one node for each, and use it wherever it is needed"
    _complain(DuplicateRecvError, hint, _duplicates(recvs))
    unsent = [end.text for message, end in received.items() if message not in sent]
    unreceived = [end.text for message, end in sent.items() if message not in received]
    _complain(MissingSendError, "received, but not sent", unsent)
    _complain(MissingRecvError, "sent, but not received", unreceived)
    differ = [
        f"{end.text} (sent: {_kind(end)}, to be received: {_kind(received[message])})"
        for message, end in sent.items()
        if (end.shape, end.dtype) != (received[message].shape, received[message].dtype)
    ]
    _complain(MessageMismatchError, "sent and received with different shapes or types", differ)


def _duplicates(ends: Sequence[End]) -> list[str]:
    texts = {end.message: end.text for end in ends}
    counts = Counter(end.message for end in ends)
    return [texts[message] for message, count in counts.items() if count > 1]


def _kind(end: End) -> str:
    return f"{end.dtype} of shape {end.shape}"


def _complain(
    kind: type[DistributedPartitionVerificationError], what: str, culprits: Sequence[str]
) -> None:
    if culprits:
        listed = "".join(f"\n  {culprit}" for culprit in culprits)
        msg = f"messages are {what}:{listed}"
        raise kind(msg)


def levels(reports: Sequence[Report]) -> tuple[dict[Place, int], list[Place]]:
    """Count the messages that have to arrive, one after the other, before each step of each rank.

    Returns
    -------
    levels : dict
        For every step that can take place.
    stuck : list
        Steps that wait for each other in a circle, or lie between such; empty if all is well.
    """
    needs, users = _edges(reports)
    waiting = {place: len(needed) for place, needed in needs.items()}
    found: dict[Place, int] = {}
    ready = deque(place for place, count in waiting.items() if count == 0)
    while ready:
        place = ready.popleft()
        found[place] = max((found[need] + cost for need, cost in needs[place]), default=0)
        ready.extend(_freed(users[place], waiting))
    return found, _circles([place for place in needs if place not in found], needs, users)


Edges = dict[Place, list[tuple[Place, int]]]


def _edges(reports: Sequence[Report]) -> tuple[Edges, dict[Place, list[Place]]]:
    """Which places each one needs, with the number of messages between; and the other way round."""
    needs: Edges = {}
    for rank, report in enumerate(reports):
        for step, needed in report.needs.items():
            needs[rank, step] = [((rank, need), 0) for need in needed]
        for end in report.sends:
            needs.setdefault((rank, end.step), [])
    left = {end.message: end.step for report in reports for end in report.sends}
    for rank, report in enumerate(reports):
        for end in report.recvs:
            source = end.message.src_rank, left[end.message]
            needs.setdefault((rank, end.step), []).append((source, 1))
    users: dict[Place, list[Place]] = {place: [] for place in needs}
    for place, needed in needs.items():
        for need, _ in needed:
            users[need].append(place)
    return needs, users


def _freed(users: Sequence[Place], waiting: dict[Place, int]) -> Iterator[Place]:
    for user in users:
        waiting[user] -= 1
        if waiting[user] == 0:
            yield user


def _circles(
    stuck: Sequence[Place], needs: Edges, users: Mapping[Place, Sequence[Place]]
) -> list[Place]:
    """Leave out what waits for a circle, but is not waited for by one."""
    left = set(stuck)
    waiting = {place: sum(user in left for user in users[place]) for place in stuck}
    ready = [place for place, count in waiting.items() if count == 0]
    while ready:
        place = ready.pop()
        left.discard(place)
        ready.extend(_freed([need for need, _ in needs[place] if need in left], waiting))
    return [place for place in stuck if place in left]


def numbered(
    reports: Sequence[Report], key: Callable[[CommunicationOpIdentifier], Hashable]
) -> dict[CommunicationOpIdentifier, int]:
    """Give each message the number of those before it with an equal key."""
    counts: Counter[Hashable] = Counter()
    numbers = {}
    for report in reports:
        for end in report.sends:
            pair = key(end.message)
            numbers[end.message] = counts[pair]
            counts[pair] += 1
    return numbers
