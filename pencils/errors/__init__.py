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
    ... except pencils.errors.PencilsError as error:
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
    """An attribute of arrays, or of another library, is missing; the text names a replacement."""


class MissingLibraryError(PencilsError, ImportError):
    """A library is not installed; the text names the command that installs it."""


class NotLocalError(PencilsError, IndexError):
    """A single element was asked for on a rank that does not own it."""


class ReplicaError(PencilsError, RuntimeError):
    """Copies of a singleton dimension, which must be equal, have diverged."""


class ConvergenceError(PencilsError, ArithmeticError):
    """A solver diverged, or the equations have no solution; the text names the reason."""


class RanksLostError(PencilsError, RuntimeError):
    """Processes of a communicator have died, or too many of them to go on."""


class CheckpointError(PencilsError, ValueError):
    """A file is damaged, or lacks the requested data."""
