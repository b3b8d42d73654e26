"""What every method of an exchange is given, and what it has to offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pencils.comm.buffers import Buffers
from pencils.comm.memory import LINE, Bytes
from pencils.comm.pack import Copies
from pencils.comm.topology import Topology

Array = NDArray[Any]
T = TypeVar("T")

# Prepares to put pieces, the second of each pair, where they belong.
Arrival = Callable[[Sequence[tuple[Array, Array]]], Callable[[], None]]


class Piece(NamedTuple):
    """The part `key` of a local array that goes to, or comes from, rank `peer`.

    `start` is where that part begins in the array of the peer. Of an exchange in several turns,
    the piece travels in number `turn`. If it is `straight`, which both sides know, a message takes
    it from one contiguous part of private memory to another, and sharing memory saves nothing.
    """

    peer: int
    key: tuple[slice, ...]
    start: tuple[int, ...]
    turn: int = 0
    straight: bool = False


class Cargo(NamedTuple):
    """What travels of one kind of array.

    Parameters
    ----------
    sends, recvs : sequence of Piece
        What this rank sends and receives; pieces for itself stand in both, in the same order.
    lead : tuple of int
        Shape of the axes before the sliced ones; they travel whole.
    dtype : numpy.dtype
        Element type; any of fixed size without Python objects.
    """

    sends: Sequence[Piece]
    recvs: Sequence[Piece]
    lead: tuple[int, ...]
    dtype: np.dtype[Any]


class Packing:
    """Pieces of one direction of one kind of array, and their shapes.

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

    Parameters
    ----------
    topology : Topology
        The ranks.
    away, home : sequence of Packing
        What leaves and what arrives, for each array of a call; one serves any number of arrays.
    axes : int
        Most axes that an array has, the same on all ranks.
    buffers : Buffers
        Where to take memory from.
    arrive : Arrival
        What is made of pieces that arrive.
    """

    topology: Topology
    away: Sequence[Packing]
    home: Sequence[Packing]
    axes: int
    buffers: Buffers
    arrive: Arrival = Copies

    def leaving(self, arrays: Sequence[Array]) -> list[tuple[Packing, Array]]:
        """Pair the sources of a call with what leaves of them."""
        return list(zip(each_of(self.away, arrays), arrays, strict=True))

    def arriving(self, arrays: Sequence[Array]) -> list[tuple[Packing, Array]]:
        """Pair the targets of a call with what arrives in them."""
        return list(zip(each_of(self.home, arrays), arrays, strict=True))


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

    nbytes = 0  # of the larger one of two buffers that messages take, if any

    def reserve(self) -> None:  # noqa: B027 - most of what shared memory needs is there
        """Allocate what `start` needs, while ranks can still give up together; local."""

    def run(self, own: Callable[[], None]) -> None:
        """Start, run `own` meanwhile, and complete. *Collective*."""
        complete = self.start()
        own()
        complete()


class Method(ABC):
    """How pieces travel between ranks. Making one is *Collective*."""

    name: ClassVar[str]
    # Whether arrays may differ from each other, and what arrives need not be copied.
    versatile: ClassVar[bool] = True

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


def each_of(kinds: Sequence[T], arrays: Sequence[Array]) -> Sequence[T]:
    """Give each array its own: there is one for each, or one for all."""
    return list(kinds) * len(arrays) if len(kinds) == 1 else kinds


def nothing() -> None:
    """Do nothing, where something may be done meanwhile."""
