"""What both indexers have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.indexer.access import Access
from pencils.plan import Freeable

VariableBuffer = tuple[Any, Any]


class Indexer(Freeable):
    """An object of MPI that is freed, around the lists of indices.

    Parameters
    ----------
    access : Access
        The lists.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    @property
    def access_counts(self) -> NDArray[np.int64]:
        """How often each item of the own section is in the lists of all processes; local."""
        return self._access.plan.times_wanted

    def free(self) -> None:
        """Complete what is under way, and release memory and MPI objects.

        *Collective* if anything is under way.
        """
        self._access.free()
