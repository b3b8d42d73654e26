"""The one executor of schedules on raw NumPy arrays.

An `Exchange` knows which slices of a source array go to which rank and which slices of a target
array come from whom. How the bytes travel is a method from the table `METHODS`; a new method is a
class beside the ones here and a line in that table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pencils.errors import ArgumentError

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
T = TypeVar("T")

# One MPI call moves at most this many bytes, or units of a datatype: counts are 32-bit integers.
MOST_BYTES = 2**30
MOST_UNITS = 2**30
# Packed pieces start at multiples of this, so that every dtype is aligned.
ALIGNMENT = 64
TAG = 1


class Piece(NamedTuple):
    """The part `key` of a local array that goes to, or comes from, rank `peer`."""

    peer: int
    key: tuple[slice, ...]


class Handle(Generic[T]):
    """An exchange under way; `wait` completes it and returns its result."""

    __slots__ = ("_finish", "_result")

    def __init__(self, finish: Callable[[], None], result: T) -> None:
        self._finish: Callable[[], None] | None = finish
        self._result = result

    def wait(self) -> T:
        """Complete the exchange; a second call returns at once."""
        if self._finish is not None:
            self._finish()
            self._finish = None
        return self._result


# MPI writes into buffers until the wait, even if the user has dropped both handle and plan.
_UNDER_WAY: set[Handle[Any]] = set()


class Exchange:
    """Reusable plan that moves slices of a source array into slices of other ranks' targets.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator. Making, starting and waiting are *Collective* over it.
    sends, recvs : sequence of Piece
        What this rank sends and receives; pieces for itself stand in both, in the same order.
    lead : tuple of int
        Shape of the axes before the sliced ones; they travel whole.
    dtype : numpy.dtype
        Element type of both arrays; any of fixed size without Python objects.
    method : str
        A name from `METHODS`.

    Raises
    ------
    ArgumentError
        If there is no such method.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        sends: Sequence[Piece],
        recvs: Sequence[Piece],
        *,
        lead: tuple[int, ...],
        dtype: np.dtype[Any],
        method: str = "messages",
    ) -> None:
        rank, size = comm.rank, comm.size
        self._own: list[tuple[Any, Any]] = list(
            zip(
                [(..., *piece.key) for piece in sends if piece.peer == rank],
                [(..., *piece.key) for piece in recvs if piece.peer == rank],
                strict=True,
            )
        )
        # Everyone starts with another neighbour, so that no rank is flooded.
        away = [piece for piece in sends if piece.peer != rank]
        home = [piece for piece in recvs if piece.peer != rank]
        away.sort(key=lambda piece: (piece.peer - rank) % size)
        home.sort(key=lambda piece: (rank - piece.peer) % size)
        make = METHODS[check_method(method)]
        self._packings = Packing(away, lead, dtype), Packing(home, lead, dtype)
        self._method = make(comm, *self._packings)
        self._pending: set[Handle[Any]] = set()

    def start(self, source: Array, target: Array, result: T) -> Handle[T]:
        """Start moving; neither array may be touched before ``wait`` of the returned handle.

        Parameters
        ----------
        source, target : numpy.ndarray
            Arrays of any strides; they may share memory.
        result : object
            What ``wait`` returns.
        """
        aliased = np.may_share_memory(source, target)
        own = [(target[into], source[key]) for key, into in self._own]
        if aliased:
            own = [(into, part.copy()) for into, part in own]
        complete = self._method.start(source, target, aliased=aliased)

        def finish() -> None:
            if aliased:
                _copy_all(own)
            complete()
            self._pending.discard(handle)
            _UNDER_WAY.discard(handle)

        if not aliased:
            _copy_all(own)
        handle = Handle(finish, result)
        self._pending.add(handle)
        _UNDER_WAY.add(handle)
        return handle

    def free(self) -> None:
        """Wait for what is under way and release the buffers."""
        for handle in list(self._pending):
            handle.wait()
        for packing in self._packings:
            packing.idle.clear()


class Packing:
    """Where each piece lies in one buffer of bytes.

    Parameters
    ----------
    pieces : sequence of Piece
        The pieces, in the order in which they are packed.
    lead : tuple of int
        Shape of the axes before the sliced ones.
    dtype : numpy.dtype
        Element type.
    """

    __slots__ = ("_dtype", "_shapes", "idle", "keys", "nbytes", "peers")

    def __init__(
        self, pieces: Sequence[Piece], lead: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.peers = [piece.peer for piece in pieces]
        self.keys: list[Any] = [(..., *piece.key) for piece in pieces]
        self._shapes = [(*lead, *(s.stop - s.start for s in piece.key)) for piece in pieces]
        self.nbytes = [int(np.prod(shape)) * dtype.itemsize for shape in self._shapes]
        self._dtype = dtype
        self.idle: list[Bytes] = []

    def offsets(self, unit: int) -> list[int]:
        """Start of every piece and the end of the last, as multiples of `unit` bytes."""
        ends = np.cumsum([0, *(-(-nbytes // unit) for nbytes in self.nbytes)])
        return [int(end) for end in ends]

    def take(self, nbytes: int) -> Bytes:
        """Return a buffer nobody uses; hand it back by appending it to `idle`."""
        return self.idle.pop() if self.idle else np.empty(nbytes, dtype=np.uint8)

    def window(self, buffer: Bytes, number: int, start: int) -> Array:
        """Bytes of piece `number`, which begins at byte `start`, as an array of its shape."""
        part = buffer[start : start + self.nbytes[number]]
        return part.view(self._dtype).reshape(self._shapes[number])


class Method(Protocol):
    """How pieces travel between ranks; pieces for the rank itself are copied by `Exchange`."""

    def __init__(self, comm: MPI.Intracomm, away: Packing, home: Packing) -> None: ...

    def start(self, source: Array, target: Array, *, aliased: bool) -> Callable[[], None]:
        """Start, and return the function that completes; all of `source` is read or pinned."""


class Messages:
    """Nonblocking point-to-point messages between the ranks that have something to say.

    Contiguous pieces travel straight from the source and into the target; others are packed.
    """

    def __init__(self, comm: MPI.Intracomm, away: Packing, home: Packing) -> None:
        self._comm = comm
        self._away = away
        self._home = home
        self._starts_away = [ALIGNMENT * offset for offset in away.offsets(ALIGNMENT)]
        self._starts_home = [ALIGNMENT * offset for offset in home.offsets(ALIGNMENT)]

    def start(self, source: Array, target: Array, *, aliased: bool) -> Callable[[], None]:
        """Post all receives, pack and post all sends."""
        away, home = self._away, self._home
        inbox = home.take(self._starts_home[-1])
        outbox = away.take(self._starts_away[-1])
        arriving: list[tuple[list[MPI.Request], Array, Array]] = []
        for number, peer in enumerate(home.peers):
            view = target[home.keys[number]]
            direct = view.flags.c_contiguous and not aliased
            landing = view if direct else home.window(inbox, number, self._starts_home[number])
            requests = [self._comm.Irecv(part, peer, TAG) for part in byte_chunks(landing)]
            arriving.append((requests, view, landing))
        leaving: list[MPI.Request] = []
        for number, peer in enumerate(away.peers):
            view = source[away.keys[number]]
            if aliased or not view.flags.c_contiguous:
                packed = away.window(outbox, number, self._starts_away[number])
                np.copyto(packed, view)
                view = packed
            leaving += [self._comm.Isend(part, peer, TAG) for part in byte_chunks(view)]

        def complete() -> None:
            for requests, view, landing in arriving:
                MPI.Request.Waitall(requests)
                if view is not landing:
                    np.copyto(view, landing)
            MPI.Request.Waitall(leaving)
            home.idle.append(inbox)
            away.idle.append(outbox)

        return complete


class Alltoallv:
    """One nonblocking collective over all ranks, from and into packed buffers."""

    def __init__(self, comm: MPI.Intracomm, away: Packing, home: Packing) -> None:
        self._comm = comm
        self._away = away
        self._home = home
        most = comm.allreduce(max(sum(away.nbytes), sum(home.nbytes)), op=MPI.MAX)
        self._unit = ALIGNMENT
        while most // self._unit + comm.size > MOST_UNITS:
            self._unit *= 2
        self._type = _bytes_type(self._unit)
        self._offsets_away = away.offsets(self._unit)
        self._offsets_home = home.offsets(self._unit)
        self._counts_away = self._by_rank(away, self._offsets_away)
        self._counts_home = self._by_rank(home, self._offsets_home)

    def start(self, source: Array, target: Array, *, aliased: bool) -> Callable[[], None]:  # noqa: ARG002
        """Pack everything and start the collective."""
        away, home, unit = self._away, self._home, self._unit
        outbox = away.take(unit * self._offsets_away[-1])
        inbox = home.take(unit * self._offsets_home[-1])
        for number, key in enumerate(away.keys):
            np.copyto(away.window(outbox, number, unit * self._offsets_away[number]), source[key])
        request = self._comm.Ialltoallv(
            [outbox, *self._counts_away, self._type], [inbox, *self._counts_home, self._type]
        )

        def complete() -> None:
            request.Wait()
            for number, key in enumerate(home.keys):
                start = unit * self._offsets_home[number]
                np.copyto(target[key], home.window(inbox, number, start))
            home.idle.append(inbox)
            away.idle.append(outbox)

        return complete

    def _by_rank(
        self, packing: Packing, offsets: list[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        counts = np.zeros(self._comm.size, dtype=np.int64)
        starts = np.zeros(self._comm.size, dtype=np.int64)
        for peer, start, stop in zip(packing.peers, offsets[:-1], offsets[1:], strict=True):
            if counts[peer] == 0:  # pieces for one peer lie one behind the other
                starts[peer] = start
            counts[peer] += stop - start
        return counts, starts


@cache
def _bytes_type(nbytes: int) -> MPI.Datatype:
    """Datatype of so many bytes: a few powers of two, kept, because plans come and go."""
    return MPI.BYTE.Create_contiguous(nbytes).Commit()


METHODS: dict[str, type[Method]] = {"messages": Messages, "alltoallv": Alltoallv}


def check_method(method: str) -> str:
    """Return `method` if it is a name from `METHODS`, or raise."""
    if method not in list(METHODS):  # a list takes what cannot be hashed for unknown, too
        msg = f"method {method!r} is unknown; methods are {', '.join(METHODS)}"
        raise ArgumentError(msg)
    return method


def byte_chunks(array: Array) -> list[Bytes]:
    """View a C-contiguous array as bytes, in pieces that one MPI call can move."""
    flat = array.reshape(-1).view(np.uint8)
    return [flat[at : at + MOST_BYTES] for at in range(0, flat.size, MOST_BYTES)]


def _copy_all(pairs: Sequence[tuple[Array, Array]]) -> None:
    for into, part in pairs:
        np.copyto(into, part)
