"""Through memory that the ranks of a node share: everyone pulls what it needs from its peers.

Every rank says on a board, which lies in shared memory as well, where its source can be read: in
place if it lies in a shared window, else in a staging block into which it packs what is for others.
The board is read after a barrier, so ranks need not agree beforehand on whose array is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pencils.comm.group import Group
from pencils.comm.memory import Bytes, array_at, fence, round_up
from pencils.comm.methods.meeting import (
    IN_PLACE,
    STAGED,
    STATE,
    WANTS,
    Board,
    Meeting,
)
from pencils.comm.methods.messages import Messages
from pencils.comm.methods.method import (
    Array,
    Call,
    Flow,
    Method,
    Packing,
    Piece,
    Plan,
    each_of,
    nothing,
)
from pencils.comm.mpi import MPI
from pencils.comm.pack import Copies
from pencils.comm.shared import Place


class Shared(Method):
    """All pieces come from and go to ranks of this node.

    Parameters
    ----------
    plan : Plan
        What to move.
    meeting : Meeting
        Where the ranks meet.
    starts : sequence of sequence of int
        For each packing, where pieces for this rank begin in the staging block of their sender.
    staging_bytes : sequence of int
        For each packing, size of a staging block for one array, the same on all ranks of the group.
    """

    name = "shared"

    def __init__(
        self,
        plan: Plan,
        meeting: Meeting,
        starts: Sequence[Sequence[int]],
        staging_bytes: Sequence[int],
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
        packings = [packing for plan in plans for packing in (*plan.away, *plan.home)]
        peers = {peer for packing in packings for peer in packing.peers}
        meeting = Meeting(first.topology, peers, first.axes, first.buffers)
        nbytes = np.array([[away.packed for away in plan.away] for plan in plans], np.int64)
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

    def free(self) -> None:
        """Free what was used instead."""
        if self._instead is not None:
            self._instead.free()

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
        self._packings = method.plan.leaving(call.sources)
        # Where the staging block of each array begins in that of all of them, and where that ends.
        sizes = each_of(method.staging_bytes, call.sources)
        self._bases = np.cumsum([0, *sizes]).tolist()
        self._starts = each_of(method.starts, call.targets)
        self._token = object()  # stands for what the rows of this rank say
        # Valid as long as the board says what it said when they were made.
        self._seen = b""
        self._window = 0
        self._pull: Callable[[], None] = nothing
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
        fence()
        request = self._group.comm.Ibarrier()

        def complete() -> None:
            request.Wait()
            fence()
            self._finish(board)

        return complete

    def _publish(self, board: Board) -> None:
        if self._meeting.stages:
            board.staging = self._take_staging()
        self._write(board)

    def _meet(self) -> None:
        """Wait for the others; what was stored before it is seen after it."""
        fence()
        self._barrier()
        fence()

    def _write(self, board: Board) -> None:
        """Pack what does not lie in shared memory, and say where everything is."""
        if board.staging is not self._staging:
            self._staging = board.staging
            self._pack = self._packing(board.staging)
            self._token = object()
        self._pack()
        if board.writer is not self._token:
            board.writer = self._token
            rows = np.array(list(self._rows(board)), np.int64)
            board.rows[self._group.comm.rank] = rows.reshape(board.rows.shape[1:])

    def _take_staging(self) -> Bytes | None:
        return self._meeting.take_staging(self._bases[-1])

    def _packing(self, staging: Bytes | None) -> Copies:
        """Prepare to pack what leaves this rank, of every array that others cannot read."""
        if staging is None:
            return Copies([])
        pairs = []
        for base, place, (away, source) in self._sources():
            for piece, view in enumerate(away.views(source) if place is None else []):
                pairs.append((away.window(staging, piece, base + away.starts[piece]), view))
        return Copies(pairs)

    def _sources(self) -> Iterator[tuple[int, Place | None, tuple[Packing, Array]]]:
        """Where each source is staged, where it lies in shared memory if it does, and itself."""
        return zip(self._bases[:-1], self._places, self._packings, strict=True)

    def _rows(self, board: Board) -> Iterator[tuple[int, ...]]:
        """Tell what others have to know about each source."""
        staging = None if board.staging is None else self._group.shared.place(board.staging)
        for base, place, (away, source) in self._sources():
            strides = (*source.strides, *(0,) * (self._method.plan.axes - source.ndim))
            if not away.packed:
                yield STAGED, board.window, 0, *strides  # nobody will look
            elif place is not None:
                yield IN_PLACE, place.window, place.offset, *strides
            elif staging is None:
                yield WANTS, board.window, 0, *strides
            else:
                yield STAGED, staging.window, staging.offset + base, *strides

    def _finish(self, board: Board) -> None:
        """Pull what the peers offer, once all of them have come."""
        known = board.rows.tobytes() == self._seen and board.window == self._window
        pull = self._pull if known else self._prepare(board)
        pull()
        fence()
        self._barrier()  # all have read; nothing of others is looked at after it
        self._meeting.give_board(board)

    def _prepare(self, board: Board) -> Callable[[], None]:
        """Find the pieces in the memory of the peers, after a change."""
        method = self._method
        if (board.rows[..., STATE] == WANTS).any() and not self._stage(board):
            flow = method.instead.bind(self._call)
            return lambda: flow.run(nothing)
        pairs = []
        for number, (home, target) in enumerate(method.plan.arriving(self._call.targets)):
            rows = board.rows[:, number].tolist()
            for piece, view in enumerate(home.views(target)):
                if view.size:
                    start = self._starts[number][piece]
                    pairs.append((view, self._at_peer(home, piece, start, rows)))
        self._pull = method.plan.arrive(pairs)
        self._seen, self._window = board.rows.tobytes(), board.window
        return self._pull

    def _at_peer(self, home: Packing, piece: int, staged: int, rows: list[list[int]]) -> Array:
        """Piece number `piece` where its sender offers it; `staged` is its place if packed."""
        shape = home.shapes[piece]
        topology, group, peer = self._method.plan.topology, self._group, home.peers[piece]
        state, window, offset, *strides = rows[group.ranks[peer]]
        if state == STAGED:
            memory = group.shared.memory(group.ranks[peer], window)
            return array_at(memory, shape, home.dtype, offset + staged)
        memory = topology.shared.memory(topology.on_node[peer], window)
        strides = strides[: len(shape)]
        steps = zip(home.pieces[piece].start, strides[len(home.lead) :], strict=True)
        start = offset + sum(i * stride for i, stride in steps)
        return array_at(memory, shape, home.dtype, start, strides)

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

    def reserve(self) -> None:
        """Allocate what both need."""
        self._near.reserve()
        self._far.reserve()

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
    """Shared memory between ranks of a node, messages between nodes and for straight pieces."""

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

    def free(self) -> None:
        """Free both."""
        self._near.free()
        self._far.free()

    def bind(self, call: Call) -> Flow:
        """Bind the pieces of both kinds."""
        return _HybridFlow(self._near.bind(call), self._far.bind(call))


def is_near(piece: Piece, on_node: Collection[int]) -> bool:
    """Whether a piece goes through shared memory if there are messages, too."""
    return piece.peer in on_node and not piece.straight


def _part(plan: Plan, *, near: bool) -> Plan:
    """Pieces that go through shared memory, or those that do not."""
    on_node = plan.topology.on_node

    def select(packing: Packing) -> Packing:
        pieces = [piece for piece in packing.pieces if is_near(piece, on_node) == near]
        return Packing(pieces, packing.lead, packing.dtype)

    return plan._replace(away=list(map(select, plan.away)), home=list(map(select, plan.home)))


def _starts_at_peers(plans: Sequence[Plan], group: Group) -> list[list[list[int]]]:
    """For each turn, where pieces begin in the staging blocks of their senders. *Collective*."""
    first = np.zeros((group.comm.size, len(plans), len(plans[0].away)), np.int64)
    for turn, plan in enumerate(plans):
        for number, away in enumerate(plan.away):
            for peer, start in reversed(list(zip(away.peers, away.starts, strict=True))):
                first[group.ranks[peer], turn, number] = start  # those for one peer lie in a row
    ahead = np.empty_like(first)
    group.comm.Alltoall(first, ahead)
    return [
        [_places(home, group, ahead[:, turn, number]) for number, home in enumerate(plan.home)]
        for turn, plan in enumerate(plans)
    ]


def _places(home: Packing, group: Group, ahead: NDArray[np.int64]) -> list[int]:
    places = []
    for peer, nbytes in zip(home.peers, home.nbytes, strict=True):
        places.append(int(ahead[group.ranks[peer]]))
        ahead[group.ranks[peer]] += round_up(nbytes)
    return places
