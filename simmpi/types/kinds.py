"""What the handles of one datatype share, and checks of the arguments of constructors."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

from simmpi.exceptions import ERR_ARG, ERR_COUNT, ERR_TYPE, MPIError
from simmpi.types.typemaps import Ints, Signature, Typemap

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


class Described:
    """A handle: the datatype that it names, its size and bounds."""

    __slots__ = ("_kind",)

    _kind: Kind | None

    @property
    def kind(self) -> Kind:
        """What the handles of the datatype share; null handles have nothing."""
        if self._kind is None:
            raise MPIError(ERR_TYPE, "the null datatype was given; pass another one")
        return self._kind

    @property
    def typemap(self) -> Typemap:
        """Where the bytes of an element are."""
        return self.kind.typemap

    @property
    def is_committed(self) -> bool:
        """Whether the datatype can be used for communication."""
        return self.kind.is_committed

    @property
    def runs(self) -> tuple[Ints, Ints]:
        """Offsets and lengths of runs of bytes in the order of the typemap."""
        return self.typemap.runs

    @property
    def signature(self) -> Signature:
        """Codes of the basic types in order, equal ones in sequence counted."""
        return self.typemap.signature

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Described):
            return NotImplemented
        return self._kind is other._kind

    def __hash__(self) -> int:
        return hash(self._kind)

    def __bool__(self) -> bool:
        return self._kind is not None

    def Get_size(self) -> int:
        """Bytes of data in an element."""
        return self.typemap.size

    def Get_extent(self) -> tuple[int, int]:
        """Lower bound and extent."""
        return self.typemap.lb, self.typemap.extent

    def Get_true_extent(self) -> tuple[int, int]:
        """Lower bound and extent of the bytes of data."""
        low, high = self.typemap.bounds
        return low, high - low

    @property
    def size(self) -> int:
        """Bytes of data in an element."""
        return self.typemap.size

    @property
    def extent(self) -> int:
        """Distance between elements that follow each other."""
        return self.typemap.extent

    @property
    def lb(self) -> int:
        """Lower bound."""
        return self.typemap.lb

    @property
    def ub(self) -> int:
        """Upper bound."""
        return self.typemap.ub

    @property
    def true_extent(self) -> int:
        """Extent of the bytes of data."""
        return self.Get_true_extent()[1]

    @property
    def true_lb(self) -> int:
        """Offset of the lowest byte of data."""
        return self.typemap.bounds[0]

    @property
    def true_ub(self) -> int:
        """Offset after the highest byte of data."""
        return self.typemap.bounds[1]


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
            f"{len(found)} integers were given where {length} are needed; pass as many"
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
