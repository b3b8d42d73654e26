"""What every method of an exchange is given, and what it has to offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.comm.buffers import Buffers
from pencils.comm.shared import LINE
from pencils.comm.topology import Topology

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

# One MPI call moves at most this many bytes, or units of a datatype: counts are 32-bit integers.
MOST_BYTES = 2**30
MOST_UNITS = 2**30


class Piece(NamedTuple):
    """The part `key` of a local array that goes to, or comes from, rank `peer`.

    `start` is where that part begins in the array of the peer. Of an exchange in several turns,
    the piece travels in number `turn`.
    """

    peer: int
    key: tuple[slice, ...]
    start: tuple[int, ...]
    turn: int = 0


class Packing:
    """Pieces of one direction and their shapes.

    Parameters
    ----------
    pieces : sequence of Piece
        The pieces, in the order in which they are packed.
    lead : tuple of int
        Shape of the axes before the sliced ones.
    dtype : numpy.dtype
        Element type.
    """

    def __init__(
        self, pieces: Sequence[Piece], lead: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.pieces = pieces
        self.peers = [piece.peer for piece in pieces]
        self.lead = lead
        self.dtype = dtype
        self.shapes = [(*lead, *(s.stop - s.start for s in piece.key)) for piece in pieces]
        self.nbytes = [int(np.prod(shape)) * dtype.itemsize for shape in self.shapes]
        # In one buffer, each beginning at a cache line.
        *starts, self.packed = (LINE * offset for offset in self.offsets())
        self.starts = starts

    def views(self, array: Array) -> list[Array]:
        """Every piece of an array."""
        keys: list[Any] = [(..., *piece.key) for piece in self.pieces]
        return [array[key] for key in keys]

    def offsets(self, unit: int = LINE) -> list[int]:
        """Start of every piece and the end of the last, as multiples of `unit` bytes."""
        ends = np.cumsum([0, *(-(-nbytes // unit) for nbytes in self.nbytes)])
        return [int(end) for end in ends]

    def window(self, buffer: Bytes, number: int, start: int) -> Array:
        """Bytes of piece `number`, which begins at byte `start`, as an array of its shape."""
        part = buffer[start : start + self.nbytes[number]]
        return part.view(self.dtype).reshape(self.shapes[number])


class Plan(NamedTuple):
    """What a method moves: pieces for the rank itself are copied by the exchange.

    `axes` counts the sliced axes of the arrays, also where there are no pieces.
    """

    topology: Topology
    away: Packing
    home: Packing
    axes: int
    buffers: Buffers


class Call(NamedTuple):
    """Arrays that are moved together: ``sources[i]`` to ``targets[i]``."""

    sources: Sequence[Array]
    targets: Sequence[Array]
    aliased: bool  # some target shares memory with some source


class Flow(ABC):
    """A method bound to the arrays of a call; holds views, so that starting costs little."""

    @abstractmethod
    def start(self) -> Callable[[], None]:
        """Start, and return the function that completes. *Collective*."""

    def run(self, own: Callable[[], None]) -> None:
        """Start, run `own` meanwhile, and complete. *Collective*."""
        complete = self.start()
        own()
        complete()


class Method(ABC):
    """How pieces travel between ranks. Making one is *Collective*."""

    name: ClassVar[str]

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @classmethod
    def for_turns(cls, plans: Sequence[Plan]) -> Sequence[Method]:
        """Make one for each turn. *Collective*."""
        return [cls(plan) for plan in plans]

    @abstractmethod
    def bind(self, call: Call) -> Flow:
        """Prepare to move these arrays; local."""

    def has_room(self) -> bool:
        """Whether the node has the shared memory that is needed, if any. *Collective*."""
        return True

    def free(self) -> None:  # noqa: B027 - most methods own nothing of MPI
        """Free what MPI made for the plan; local."""


def nothing() -> None:
    """Do nothing, where something may be done meanwhile."""


def byte_chunks(array: Array) -> list[Bytes]:
    """View a C-contiguous array as bytes, in pieces that one MPI call can move."""
    flat = array.reshape(-1).view(np.uint8)
    return [flat[at : at + MOST_BYTES] for at in range(0, flat.size, MOST_BYTES)]
