"""Where the ranks of a group tell each other from where their sources can be read."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np
from numpy.typing import NDArray

from pencils.comm.buffers import Buffers
from pencils.comm.group import group_with
from pencils.comm.memory import Bytes
from pencils.comm.topology import Topology

# What a rank says about its source: it wants a staging block, lies in place, or was packed.
WANTS, IN_PLACE, STAGED = range(3)
# Columns of the board; strides follow.
STATE, WINDOW, OFFSET, STRIDES = range(4)


class Board:
    """Where the sources of all ranks of a group can be read: a row for each rank and array.

    Parameters
    ----------
    rows : numpy.ndarray
        The same memory on all ranks.
    block : numpy.ndarray
        As long as it lives, so does the memory.
    window : int
        Number of the window of the group in which it lies.
    """

    __slots__ = ("arrays", "block", "rows", "staging", "window", "writer")

    def __init__(self, rows: NDArray[np.int64], block: Bytes, window: int) -> None:
        self.rows = rows
        self.arrays = rows.shape[1]
        self.block = block
        self.window = window
        self.staging: Bytes | None = None  # of this rank, for the call under way
        self.writer: object = None  # token for what the own row says


class Meeting:
    """The group of ranks that exchange data, their boards and staging blocks.

    Parameters
    ----------
    topology : Topology
        Whose node the group is on. *Collective* over the node.
    peers : iterable of int
        Ranks on the node that this one ever exchanges anything with.
    axes : int
        Number of axes of the arrays.
    buffers : Buffers
        Where to take staging blocks from.
    """

    def __init__(
        self, topology: Topology, peers: Iterable[int], axes: int, buffers: Buffers
    ) -> None:
        self.topology = topology
        self.group = group_with(topology, peers)
        # Known alike on all ranks of the group, which have read it on a board.
        self.stages = False
        self._columns = STRIDES + axes
        self._buffers = buffers
        self._idle: dict[int, list[Board]] = {}  # by number of arrays

    def take_board(self, arrays: int) -> Board | None:
        """Return a board nobody uses. *Collective* over the group if there is none.

        None on every rank if there is no room for one.
        """
        idle = self._idle.get(arrays)
        return idle.pop() if idle else self._make_board(arrays)

    def give_board(self, board: Board) -> None:
        """Take back a board, and the staging block that goes with it."""
        if board.staging is not None:
            self._buffers.give_shared(self.group.shared, board.staging)
            board.staging = None
        self._idle.setdefault(board.arrays, []).append(board)

    def take_staging(self, nbytes: int) -> Bytes | None:
        """Return a block of at least `nbytes`, the same on all ranks. *Collective*."""
        return self._buffers.take_shared(self.group.shared, nbytes)

    def has_room(self) -> bool:
        """Whether all ranks of the topology have shared memory at all. *Collective*."""
        board = self.take_board(1)
        if board is not None:
            self.give_board(board)
        return not self.topology.any_of([board is None])[0]

    def _make_board(self, arrays: int) -> Board | None:
        """Put a board into the memory of the first rank. *Collective* over the group."""
        pool, comm = self.group.shared, self.group.comm
        shape = comm.size, arrays, self._columns
        nbytes = prod(shape) * np.dtype(np.int64).itemsize
        block = pool.allocate(nbytes if comm.rank == 0 else 0)
        if block is None:
            return None
        peers, place = pool.peers(block), pool.place(block)
        assert peers is not None
        assert place is not None
        return Board(peers[0].view(np.int64).reshape(shape), block, place.window)
