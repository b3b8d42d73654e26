"""Through memory that the ranks of a node share: everyone pulls what it needs from its peers.

Every rank says on a board, which lies in shared memory as well, where its source can be read: in
place if it lies in a shared window, else in a staging block into which it packs what is for others.
The board is read after a barrier, so ranks need not agree beforehand on whose array is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pencils.comm.buffers import Bytes, round_up
from pencils.comm.group import Group, group_with
from pencils.comm.methods.messages import Messages
from pencils.comm.methods.method import Array, Call, Flow, Method, Packing, Plan
from pencils.comm.pack import Copies

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

    __slots__ = ("block", "rows", "staging", "window", "writer")

    def __init__(self, rows: NDArray[np.int64], block: Bytes, window: int) -> None:
        self.rows = rows
        self.block = block
        self.window = window
        self.staging: Bytes | None = None  # of this rank, for the call under way
        self.writer: object = None  # token for what the own row says


class Shared(Method):
    """All pieces come from and go to ranks of this node."""

    name = "shared"

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.group = group_with(plan.topology, (*plan.away.peers, *plan.home.peers))
        self.starts = _starts_at_peers(plan, self.group)
        self.staging_bytes = self.group.comm.allreduce(plan.away.packed, op=MPI.MAX)
        # Known alike on all ranks of the group, which have read it on a board.
        self.stages = False
        self._instead: Messages | None = None
        self._idle: list[Board] = []

    def bind(self, call: Call) -> Flow:
        """Find where the sources lie."""
        return _SharedFlow(self, call)

    @property
    def instead(self) -> Messages:
        """What is used where there is no room for staging."""
        if self._instead is None:
            self._instead = Messages(self.plan)
        return self._instead

    def take_board(self, arrays: int) -> Board | None:
        """Return a board nobody uses. *Collective* over the group if there is none.

        None on every rank if there is no room for one.
        """
        for number, board in enumerate(self._idle):
            if board.rows.shape[1] == arrays:
                return self._idle.pop(number)
        return _make_board(self.group, arrays, STRIDES + len(self.plan.away.lead) + self.plan.axes)

    def give_board(self, board: Board) -> None:
        """Take back a board, and the staging block that goes with it."""
        if board.staging is not None:
            self.plan.buffers.give_shared(self.group.shared, board.staging)
            board.staging = None
        self._idle.append(board)

    def has_room(self) -> bool:
        """Whether there is shared memory at all; the same on all ranks. *Collective*."""
        board = self.take_board(1)
        if board is not None:
            self.give_board(board)
        return not self.plan.topology.any_of([board is None])[0]

    def take_staging(self, arrays: int) -> Bytes | None:
        """Return a block to pack so many arrays into. *Collective* over the group."""
        return self.plan.buffers.take_shared(self.group.shared, arrays * self.staging_bytes)

    def syncs(self, board: Board | None = None) -> list[Callable[[], None]]:
        """Memory barriers for all windows, or for those of which a board tells."""
        here, there = self.plan.topology.shared, self.group.shared
        if board is None:
            return [*here.syncs, *(there.syncs if there is not here else [])]
        rows = board.rows.reshape(-1, board.rows.shape[2])
        in_place = rows[:, STATE] == IN_PLACE
        windows = {(here, number) for number in rows[in_place, WINDOW].tolist()}
        windows |= {(there, number) for number in rows[~in_place, WINDOW].tolist()}
        windows.add((there, board.window))
        return [pool.syncs[number] for pool, number in windows]


class _SharedFlow(Flow):
    def __init__(self, method: Shared, call: Call) -> None:
        pool = method.plan.topology.shared
        self._method = method
        self._call = call
        self._places = [None if call.aliased else pool.place(s) for s in call.sources]
        self._arrays = len(self._places)
        self._token = object()  # stands for what the rows of this rank say
        # Valid as long as the board says what it said when they were made.
        self._seen = b""
        self._pull = Copies([])
        self._syncs: list[Callable[[], None]] = []
        # Valid for one staging block.
        self._staging: Bytes | None = None
        self._pack = Copies([])

    def run(self, own: Callable[[], None]) -> None:
        """Publish, meet, pull, meet again."""
        board = self._method.take_board(self._arrays)
        if board is None:
            self._method.instead.bind(self._call).run(own)
            return
        own()
        self._publish(board)
        self._method.group.comm.Barrier()
        self._finish(board)

    def start(self) -> Callable[[], None]:
        """Publish; the peers are waited for when it is completed."""
        board = self._method.take_board(self._arrays)
        if board is None:
            return self._method.instead.bind(self._call).start()
        self._publish(board)
        request = self._method.group.comm.Ibarrier()

        def complete() -> None:
            request.Wait()
            self._finish(board)

        return complete

    def _publish(self, board: Board) -> None:
        if self._method.stages:
            board.staging = self._method.take_staging(self._arrays)
        self._write(board)
        for sync in self._syncs:
            sync()

    def _write(self, board: Board) -> None:
        """Pack what does not lie in shared memory, and say where everything is."""
        if board.staging is not self._staging:
            self._staging = board.staging
            self._pack = self._packing(board.staging)
            self._token = object()
        self._pack()
        if board.writer is not self._token:
            board.writer = self._token
            self._syncs = self._method.syncs()
            rows = np.array(list(self._rows(board)), np.int64)
            board.rows[self._method.group.comm.rank] = rows.reshape(board.rows.shape[1:])

    def _packing(self, staging: Bytes | None) -> Copies:
        """Prepare to pack what leaves this rank, of every array that others cannot read."""
        if staging is None:
            return Copies([])
        away, pairs = self._method.plan.away, []
        for number, (source, place) in enumerate(
            zip(self._call.sources, self._places, strict=True)
        ):
            start = number * self._method.staging_bytes
            for piece, view in enumerate(away.views(source) if place is None else []):
                pairs.append((away.window(staging, piece, start), view))
                start += round_up(away.nbytes[piece])
        return Copies(pairs)

    def _rows(self, board: Board) -> Iterator[tuple[int, ...]]:
        """Tell what others have to know about each source."""
        staging = board.staging
        base = None if staging is None else self._method.group.shared.place(staging)
        for number, (source, place) in enumerate(
            zip(self._call.sources, self._places, strict=True)
        ):
            if not self._method.plan.away.packed:
                yield STAGED, board.window, 0, *source.strides  # nobody will look
            elif place is not None:
                yield IN_PLACE, place.window, place.offset, *source.strides
            elif base is None:
                yield WANTS, board.window, 0, *source.strides
            else:
                offset = base.offset + number * self._method.staging_bytes
                yield STAGED, base.window, offset, *source.strides

    def _finish(self, board: Board) -> None:
        """Pull what the peers offer, once all of them have come."""
        for sync in self._syncs:
            sync()
        pull = self._pull if board.rows.tobytes() == self._seen else self._prepare(board)
        pull()
        for sync in self._syncs:
            sync()
        self._method.group.comm.Barrier()
        for sync in self._syncs:
            sync()
        self._method.give_board(board)

    def _prepare(self, board: Board) -> Callable[[], None]:
        """Find the pieces in the memory of the peers, after a change."""
        method = self._method
        if (board.rows[..., STATE] == WANTS).any() and not self._stage(board):
            flow = method.instead.bind(self._call)
            return lambda: flow.run(_nothing)
        self._syncs = method.syncs(board)
        pairs = []
        for number, target in enumerate(self._call.targets):
            rows = board.rows[:, number].tolist()
            for piece, view in enumerate(method.plan.home.views(target)):
                if view.size:
                    pairs.append((view, self._at_peer(piece, rows)))
        self._pull = Copies(pairs)
        self._seen = board.rows.tobytes()
        return self._pull

    def _at_peer(self, piece: int, rows: list[list[int]]) -> Array:
        """Piece number `piece` where its sender offers it."""
        method, home = self._method, self._method.plan.home
        topology, group, peer = method.plan.topology, method.group, home.peers[piece]
        state, window, offset, *strides = rows[group.ranks[peer]]
        if state == STAGED:
            memory = group.shared.memory(group.ranks[peer], window)
            start = offset + method.starts[piece]
            return np.ndarray(home.shapes[piece], home.dtype, memory, start)
        memory = topology.shared.memory(topology.on_node[peer], window)
        steps = zip(home.pieces[piece].start, strides[len(home.lead) :], strict=True)
        start = offset + sum(i * stride for i, stride in steps)
        return np.ndarray(home.shapes[piece], home.dtype, memory, start, strides)

    def _stage(self, board: Board) -> bool:
        """Give every rank a staging block, now that some rank wants one; False without room."""
        method = self._method
        board.staging = method.take_staging(self._arrays)
        if board.staging is None:
            return False
        method.stages = True
        method.group.comm.Barrier()  # all have read the board; now it may change
        self._write(board)
        for sync in self._syncs:
            sync()
        method.group.comm.Barrier()
        for sync in self._syncs:
            sync()
        return True


class _HybridFlow(Flow):
    def __init__(self, near: Flow, far: Flow) -> None:
        self._near = near
        self._far = far

    def run(self, own: Callable[[], None]) -> None:
        """Send, serve the own node meanwhile, and complete."""
        complete = self._far.start()
        self._near.run(own)
        complete()

    def start(self) -> Callable[[], None]:
        """Start both."""
        far, near = self._far.start(), self._near.start()

        def complete() -> None:
            near()
            far()

        return complete


class Hybrid(Method):
    """Shared memory between ranks of a node, messages between nodes."""

    name = "hybrid"

    def __init__(self, plan: Plan) -> None:
        self._near = Shared(_part(plan, near=True))
        self._far = Messages(_part(plan, near=False))

    def has_room(self) -> bool:
        """Whether there is shared memory on all nodes. *Collective*."""
        return self._near.has_room()

    def bind(self, call: Call) -> Flow:
        """Bind the pieces of both kinds."""
        return _HybridFlow(self._near.bind(call), self._far.bind(call))


def _nothing() -> None:
    pass


def _make_board(group: Group, arrays: int, columns: int) -> Board | None:
    """Put a board into the memory of the first rank. *Collective* over the group."""
    pool, shape = group.shared, (group.comm.size, arrays, columns)
    nbytes = prod(shape) * np.dtype(np.int64).itemsize
    block = pool.allocate(nbytes if group.comm.rank == 0 else 0)
    if block is None:
        return None
    peers, place = pool.peers(block), pool.place(block)
    assert peers is not None
    assert place is not None
    return Board(peers[0].view(np.int64).reshape(shape), block, place.window)


def _part(plan: Plan, *, near: bool) -> Plan:
    """Pieces that stay on the node, or those that leave it."""
    on_node = plan.topology.on_node

    def select(packing: Packing) -> Packing:
        pieces = [piece for piece in packing.pieces if (piece.peer in on_node) == near]
        return Packing(pieces, packing.lead, packing.dtype)

    return plan._replace(away=select(plan.away), home=select(plan.home))


def _starts_at_peers(plan: Plan, group: Group) -> list[int]:
    """Where each piece for this rank begins in the staging block of its sender. *Collective*."""
    first = np.zeros(group.comm.size, np.int64)
    offset = plan.away.packed
    for peer, nbytes in reversed(list(zip(plan.away.peers, plan.away.nbytes, strict=True))):
        offset -= round_up(nbytes)
        first[group.ranks[peer]] = offset  # pieces for one peer lie one behind the other
    ahead = np.empty_like(first)
    group.comm.Alltoall(first, ahead)
    starts = []
    for peer, nbytes in zip(plan.home.peers, plan.home.nbytes, strict=True):
        starts.append(int(ahead[group.ranks[peer]]))
        ahead[group.ranks[peer]] += round_up(nbytes)
    return starts
