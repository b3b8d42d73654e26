"""Errors in the messages of a graph, as all ranks see them."""

from __future__ import annotations

from pencils.errors import PencilsError


class DistributedPartitionVerificationError(PencilsError, ValueError):
    """The messages in the graphs of all ranks do not match."""


class DuplicateSendError(DistributedPartitionVerificationError):
    """Several sends have the same source, destination and tag."""


class DuplicateRecvError(DistributedPartitionVerificationError):
    """Several receives that differ otherwise have the same source, destination and tag."""


class MissingSendError(DistributedPartitionVerificationError):
    """A receive has no matching send."""


class MissingRecvError(DistributedPartitionVerificationError):
    """A send has no matching receive."""


class MessageMismatchError(DistributedPartitionVerificationError):
    """A send and its receive have different shapes or types."""


class CycleError(DistributedPartitionVerificationError):
    """Messages wait for each other, so that none of them can be sent."""


class PartitionInducedCycleError(CycleError, AssertionError):
    """Parts wait for each other, so that none of them can be executed."""


class ExecutionError(PencilsError, RuntimeError):
    """A rank could not finish, because another one failed or its own graph makes no progress."""
