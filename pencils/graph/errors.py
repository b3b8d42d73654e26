"""What can be wrong with the messages of a graph, seen over all ranks."""

from __future__ import annotations

from pencils.errors import PencilsError


class DistributedPartitionVerificationError(PencilsError, ValueError):
    """The graphs of all ranks do not fit together."""


class DuplicateSendError(DistributedPartitionVerificationError):
    """Several sends have the same source, destination and tag."""


class DuplicateRecvError(DistributedPartitionVerificationError):
    """Several receives that differ otherwise have the same source, destination and tag."""


class MissingSendError(DistributedPartitionVerificationError):
    """Nobody sends what is to be received."""


class MissingRecvError(DistributedPartitionVerificationError):
    """Nobody receives what is sent."""


class MessageMismatchError(DistributedPartitionVerificationError):
    """What is sent has another shape or type than what is to be received."""


class CycleError(DistributedPartitionVerificationError):
    """Messages wait for each other, so that none of them can be sent."""


class PartitionInducedCycleError(CycleError, AssertionError):
    """Parts wait for each other, so that none of them can be executed."""


class ExecutionError(PencilsError, RuntimeError):
    """A rank could not finish, because another one failed or its own graph makes no progress."""
