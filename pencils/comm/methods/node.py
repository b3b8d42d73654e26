"""Through memory that the ranks of a node share: everyone pulls what it needs from its peers.

Every rank says on a board, which lies in shared memory as well, where its source can be read: in
place if it lies in a shared window, else in a staging block into which it packs what is for others.
The board is read after a barrier, so ranks need not agree beforehand on whose array is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pencils.comm.group import Group
from pencils.comm.methods.meeting import (
    IN_PLACE,
    STAGED,
    STATE,
    WANTS,
    Board,
    Meeting,
)
from pencils.comm.methods.messages import Messages
from pencils.comm.methods.method import Array, Call, Flow, Method, Packing, Plan, nothing
from pencils.comm.pack import Copies
from pencils.comm.shared import Bytes, round_up


class Shared(Method):
    """All pieces come from and go to ranks of this node.

    Parameters
    ----------
    plan : Plan
        What to move.
    meeting : Meeting
        Where the ranks meet.
    starts : sequence of int
        Where each piece for this rank begins in the staging block of its sender.
    staging_bytes : int
        Size of a staging block for one array, the same on all ranks of the group.
    """

    name = "shared"

    def __init__(
        self, plan: Plan, meeting: Meeting, starts: Sequence[int], staging_bytes: int
    ) -> None:
        super().__init__(plan)
        self.meeting = meeting
        self.starts = starts
        self.staging_bytes = staging_bytes
        self._instead: Messages | None = None

    @classmethod
    def for_turns(cls, plans: Sequence[Plan]) -> list[Shared]:
        """Make one for each turn; the ranks meet in one place for all of them. *Collective*."""
        first = plans[0]
        peers = {peer for plan in plans for peer in (*plan.away.peers, *plan.home.peers)}
        axes = len(first.away.lead) + first.axes
        meeting = Meeting(first.topology, peers, axes, first.buffers)
        nbytes = np.array([plan.away.packed for plan in plans], np.int64)
        meeting.group.comm.Allreduce(MPI.IN_PLACE, nbytes, op=MPI.MAX)
        starts = _starts_at_peers(plans, meeting.group)
        made = zip(plans, starts, nbytes.tolist(), strict=True)
        return [cls(plan, meeting, places, most) for plan, places, most in made]

    def bind(self, call: Call) -> Flow:
        """Find where the sources lie."""
        return _SharedFlow(self, call)

    def has_room(self) -> bool:
        """Whether there is shared memory at all; the same on all ranks. *Collective*."""
        return self.meeting.has_room()

    @property
    def instead(self) -> Messages:
        """What is used where there is no room for staging."""
        if self._instead is None:
            self._instead = Messages(self.plan)
        return self._instead


class _SharedFlow(Flow):
    def __init__(self, method: Shared, call: Call) -> None:
        pool = method.plan.topology.shared
        self._method = method
        self._meeting = method.meeting
        self._group = method.meeting.group
        self._barrier = method.meeting.group.comm.Barrier
        self._call = call
        self._places = [None if call.aliased else pool.place(s) for s in call.sources]
        self._arrays = len(self._places)
        self._token = object()  # stands for what the rows of this rank say
        # Valid as long as the board says what it said when they were made.
        self._seen = b""
        self._window = 0
        self._pull = Copies([])
        self._syncs: list[Callable[[], None]] = []
        # Valid for one staging block.
        self._staging: Bytes | None = None
        self._pack = Copies([])

    def run(self, own: Callable[[], None]) -> None:
        """Publish, meet, pull, meet again."""
        board = self._meeting.take_board(self._arrays)
        if board is None:
            self._method.instead.bind(self._call).run(own)
            return
        own()
        self._publish(board)
        self._meet()
        self._finish(board)

    def start(self) -> Callable[[], None]:
        """Publish; the peers are waited for when it is completed."""
        board = self._meeting.take_board(self._arrays)
        if board is None:
            return self._method.instead.bind(self._call).start()
        self._publish(board)
        self._sync()
        request = self._group.comm.Ibarrier()

        def complete() -> None:
            request.Wait()
            self._sync()
            self._finish(board)

        return complete

    def _publish(self, board: Board) -> None:
        if self._meeting.stages:
            board.staging = self._take_staging()
        self._write(board)

    def _sync(self) -> None:
        for sync in self._syncs:
            sync()

    def _meet(self) -> None:
        """Wait for the others; what was stored before it is seen after it."""
        self._sync()
        self._barrier()
        self._sync()

    def _write(self, board: Board) -> None:
        """Pack what does not lie in shared memory, and say where everything is."""
        if board.staging is not self._staging:
            self._staging = board.staging
            self._pack = self._packing(board.staging)
            self._token = object()
        self._pack()
        if board.writer is not self._token:
            board.writer = self._token
            self._syncs = self._meeting.syncs()
            rows = np.array(list(self._rows(board)), np.int64)
            board.rows[self._group.comm.rank] = rows.reshape(board.rows.shape[1:])

    def _take_staging(self) -> Bytes | None:
        return self._meeting.take_staging(self._arrays * self._method.staging_bytes)

    def _packing(self, staging: Bytes | None) -> Copies:
        """Prepare to pack what leaves this rank, of every array that others cannot read."""
        if staging is None:
            return Copies([])
        away, pairs = self._method.plan.away, []
        for number, (source, place) in enumerate(
            zip(self._call.sources, self._places, strict=True)
        ):
            base = number * self._method.staging_bytes
            for piece, view in enumerate(away.views(source) if place is None else []):
                pairs.append((away.window(staging, piece, base + away.starts[piece]), view))
        return Copies(pairs)

    def _rows(self, board: Board) -> Iterator[tuple[int, ...]]:
        """Tell what others have to know about each source."""
        staging = board.staging
        base = None if staging is None else self._group.shared.place(staging)
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
        known = board.rows.tobytes() == self._seen and board.window == self._window
        pull = self._pull if known else self._prepare(board)
        pull()
        self._meet()
        self._meeting.give_board(board)

    def _prepare(self, board: Board) -> Callable[[], None]:
        """Find the pieces in the memory of the peers, after a change."""
        method = self._method
        if (board.rows[..., STATE] == WANTS).any() and not self._stage(board):
            flow = method.instead.bind(self._call)
            return lambda: flow.run(nothing)
        self._syncs = self._meeting.syncs(board)
        pairs = []
        for number, target in enumerate(self._call.targets):
            rows = board.rows[:, number].tolist()
            for piece, view in enumerate(method.plan.home.views(target)):
                if view.size:
                    pairs.append((view, self._at_peer(piece, rows)))
        self._pull = Copies(pairs)
        self._seen, self._window = board.rows.tobytes(), board.window
        return self._pull

    def _at_peer(self, piece: int, rows: list[list[int]]) -> Array:
        """Piece number `piece` where its sender offers it."""
        method, home = self._method, self._method.plan.home
        topology, group, peer = method.plan.topology, self._group, home.peers[piece]
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
        board.staging = self._take_staging()
        if board.staging is None:
            return False
        self._meeting.stages = True
        self._barrier()  # all have read the board; now it may change
        self._write(board)
        self._meet()
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

    def __init__(self, plan: Plan, near: Shared, far: Messages) -> None:
        super().__init__(plan)
        self._near = near
        self._far = far

    @classmethod
    def for_turns(cls, plans: Sequence[Plan]) -> list[Hybrid]:
        """Make one for each turn. *Collective*."""
        near = Shared.for_turns([_part(plan, near=True) for plan in plans])
        return [
            cls(plan, shared, Messages(_part(plan, near=False)))
            for shared, plan in zip(near, plans, strict=True)
        ]

    def has_room(self) -> bool:
        """Whether there is shared memory on all nodes. *Collective*."""
        return self._near.has_room()

    def bind(self, call: Call) -> Flow:
        """Bind the pieces of both kinds."""
        return _HybridFlow(self._near.bind(call), self._far.bind(call))


def _part(plan: Plan, *, near: bool) -> Plan:
    """Pieces that stay on the node, or those that leave it."""
    on_node = plan.topology.on_node

    def select(packing: Packing) -> Packing:
        pieces = [piece for piece in packing.pieces if (piece.peer in on_node) == near]
        return Packing(pieces, packing.lead, packing.dtype)

    return plan._replace(away=select(plan.away), home=select(plan.home))


def _starts_at_peers(plans: Sequence[Plan], group: Group) -> list[list[int]]:
    """For each turn, where pieces begin in the staging blocks of their senders. *Collective*."""
    first = np.zeros((group.comm.size, len(plans)), np.int64)
    for turn, plan in enumerate(plans):
        for peer, start in reversed(list(zip(plan.away.peers, plan.away.starts, strict=True))):
            first[group.ranks[peer], turn] = start  # pieces for one peer lie in a row
    ahead = np.empty_like(first)
    group.comm.Alltoall(first, ahead)
    return [_places(plan.home, group, ahead[:, turn]) for turn, plan in enumerate(plans)]


def _places(home: Packing, group: Group, ahead: NDArray[np.int64]) -> list[int]:
    places = []
    for peer, nbytes in zip(home.peers, home.nbytes, strict=True):
        places.append(int(ahead[group.ranks[peer]]))
        ahead[group.ranks[peer]] += round_up(nbytes)
    return places
