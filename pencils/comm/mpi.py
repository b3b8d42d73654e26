"""The one import of MPI, and the base class of what belongs to one process.

Every other file imports MPI from here. `pencils.run` is the exception, because it starts the
processes of a job.
"""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from mpi4py import MPI

__all__ = ["MPI", "Uncopied"]


class Uncopied:
    """Base class of what holds MPI objects, shared memory or files: neither pickled nor copied."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:  # pickle and copy call this
        raise TypeError(
            f"a {type(self).__name__} can be neither pickled nor copied: it belongs to this "
            "process; make another one from the same arguments"
        )
