"""What can go wrong for a user of pencils.

Every error is also the built-in type a NumPy user would catch: a bad value is a ``ValueError``, an
index that is not here is an ``IndexError``. Wrong *types* raise the plain ``TypeError``.
"""

from __future__ import annotations


class PencilsError(Exception):
    """Base class of the errors that pencils defines.

    Examples
    --------
    >>> import pencils
    >>> try:
    ...     pencils.Pencil((4, 5), decomp=9)
    ... except pencils.PencilsError as error:
    ...     type(error).__name__
    'ArgumentError'
    """


class ArgumentError(PencilsError, ValueError):
    """An argument has a value that is not allowed."""


class PencilMismatchError(PencilsError, ValueError):
    """Arrays of different pencils were combined; ``transpose`` brings them together."""


class RankDisagreementError(PencilsError, ValueError):
    """Ranks passed different arguments to the same collective call."""


class TypeDisagreementError(RankDisagreementError, TypeError):
    """Ranks passed data of different element types to the same collective call."""


class MissingAttributeError(PencilsError, AttributeError, TypeError):
    """An attribute of NumPy arrays that fields do not have; the text names what to write."""


class NotLocalError(PencilsError, IndexError):
    """A single element was asked for on a rank that does not own it."""


class ReplicaError(PencilsError, RuntimeError):
    """Copies of a singleton dimension, which must be equal, have diverged."""


class RanksLostError(PencilsError, RuntimeError):
    """Processes of a communicator have died, or too many of them to go on."""


class CheckpointError(PencilsError, ValueError):
    """A file does not hold what was asked of it."""


class SimulationError(PencilsError, RuntimeError):
    """Simulated ranks cannot go on; `seed`, which the text names, repeats the run."""

    def __init__(self, text: str, seed: int | None = None) -> None:
        first, end, rest = text.partition("\n")
        super().__init__(text if seed is None else f"{first} (seed={seed}){end}{rest}")
        self.seed = seed


class DeadlockError(SimulationError):
    """All ranks wait for each other, or for one that has ended."""


class MismatchError(SimulationError):
    """Ranks called different collectives, or with different roots, counts or types."""


class UsageError(SimulationError):
    """MPI was used in a way that the standard forbids, though most libraries do not notice it."""


class StepLimitError(SimulationError):
    """The ranks made more calls of MPI than ``max_steps=`` allows."""


class RankKilledError(SimulationError):
    """A rank was killed by a fault, and all other ranks have returned."""
