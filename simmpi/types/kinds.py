"""What the handles of one datatype share, and checks of the arguments of constructors."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

from simmpi.exceptions import ERR_ARG, ERR_COUNT, MPIError
from simmpi.types.typemaps import Typemap

_numbers = itertools.count(1)


class Kind:
    """What the handles of one datatype share."""

    def __init__(self, typemap: Typemap, combiner: str, **arguments: Any) -> None:
        self.typemap = typemap
        self.combiner = combiner
        self.arguments = arguments
        self.number = next(_numbers)
        self.is_committed = self.is_predefined = combiner == "NAMED"
        self.name = ""
        self.constant = ""  # name in mpi4py, if it is predefined
        self.char = ""  # code of NumPy of one character
        self.code = ""  # the same, with the size where MPI fixes it

    def original(self) -> Kind:
        """Return the datatype of which this one is a duplicate, or itself."""
        return self.arguments["datatype"].original() if self.combiner == "DUP" else self


def checked_count(count: int) -> int:
    """Check a count, or the length of a block."""
    number = operator.index(count)
    if number < 0:
        raise MPIError(ERR_COUNT, f"the count {number} was given; it is 0 or more")
    return number


def checked_counts(counts: Sequence[int]) -> list[int]:
    """Check counts."""
    return [checked_count(count) for count in counts]


def checked_integers(values: Sequence[int], length: int | None = None) -> list[int]:
    """Check integers, and how many there are."""
    found = [operator.index(value) for value in values]
    if length is not None and len(found) != length:
        raise ValueError(
            f"{len(found)} integers were given where {length} are needed; pass one for each"
        )
    return found


def checked_end(position: int, size: int, available: int) -> int:
    """Position after packed bytes, which have to fit."""
    end = operator.index(position) + size
    if position < 0 or end > available:
        raise MPIError(
            ERR_ARG,
            f"{size} bytes at position {position} do not fit into {available}; pass a larger "
            "buffer",
        )
    return end
