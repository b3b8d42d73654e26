"""When the messages of all ranks travel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pencils.graph.errors import CycleError
from pencils.graph.messages import CommunicationOpIdentifier
from pencils.graph.reports import Report, check_messages, levels, numbered


@dataclass(frozen=True, slots=True)
class Plan:
    """When each message travels, counted in batches; and the tag by which MPI knows it."""

    batches: Mapping[CommunicationOpIdentifier, int]
    numbers: Mapping[CommunicationOpIdentifier, int]


def plan(reports: Sequence[Report]) -> Plan:
    """Check the messages of all ranks and put them in order.

    Raises
    ------
    DistributedPartitionVerificationError
        If they do not make pairs, or wait for each other.
    """
    check_messages(reports)
    found, stuck = levels(reports)
    if stuck:
        circle = set(stuck)
        messages = [
            end.text
            for rank, report in enumerate(reports)
            for end in report.recvs
            if (rank, end.step) in circle
        ]
        msg = "messages wait for each other:" + "".join(f"\n  {text}" for text in messages)
        raise CycleError(msg)
    batches = {
        end.message: found[rank, end.step]
        for rank, report in enumerate(reports)
        for end in report.sends
    }
    return Plan(batches, numbered(reports, lambda message: message[:2]))
