"""Slabs of arrays between one rank and the others, in order, with few of them in memory at once.

Ranks of one node move slabs through slots in shared memory: the sender packs one while the receiver
unpacks another. All other slabs are messages, which go from and to arrays without packing where
these are contiguous.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm import pack
from pencils.comm.failure import wait_all
from pencils.comm.memory import Bytes, byte_chunks, fence
from pencils.comm.mpi import MPI
from pencils.comm.recording import timed
from pencils.comm.topology import Topology, attribute

Array = NDArray[Any]

# Bytes of a slab, at most, and the number of messages that may be on their way: those that need
# memory, and others.
SLAB_BYTES = 16 * 2**20
WINDOW, WIDE_WINDOW = 4, 64
# Slots of each rank in shared memory, and their bytes.
SLOTS = 4
SLOT_BYTES = 2**20
TAG = 2


class SlabRoom:
    """Memory for at most `slabs` slabs of `nbytes` on their way, allocated before the first."""

    def __init__(self, nbytes: int, slabs: int) -> None:
        # One more than are on their way: the next one is packed before the oldest has arrived.
        self._places = deque([np.empty(nbytes, np.uint8) for _ in range(min(slabs, WINDOW + 1))])

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array in the memory that was taken first."""
        place = self._places[0]
        self._places.rotate(-1)
        return _view(place, shape, dtype)


class _StagingSlots:
    """Slots in shared memory between this rank and one other, used in turn.

    An empty message announces a full slot, an empty message back a free one.
    """

    def __init__(self, comm: MPI.Intracomm, slots: list[Bytes]) -> None:
        self._comm = comm
        self._slots = slots
        self._sent: list[MPI.Request] = [MPI.REQUEST_NULL] * len(slots)
        self._moved = 0
        self._unread: deque[int] = deque()  # ranks that may still read a slot

    def send(self, peer: int, slab: Array) -> None:
        """Pack the slab when a slot is free."""
        if len(self._unread) == len(self._slots):
            self._await(self._unread.popleft())
        copy_now(self._slot(slab), slab)
        self._publish(peer)
        self._unread.append(peer)

    def recv(self, peer: int, slab: Array, whole: int) -> None:
        """Wait for the slab and unpack it."""
        self._await(peer)
        copy_now(slab, self._slot(slab), whole)
        self._publish(peer)

    def finish(self) -> None:
        """Wait until all slots are free."""
        while self._unread:
            self._await(self._unread.popleft())
        wait_all(self._sent)

    def _slot(self, slab: Array) -> Array:
        return _view(self._slots[self._moved % len(self._slots)], slab.shape, slab.dtype)

    def _publish(self, peer: int) -> None:
        fence()
        number = self._moved % len(self._slots)
        self._moved += 1
        # The peer has used the slot since, so it has received the last message about it.
        wait_all([self._sent[number]])
        self._sent[number] = self._comm.Isend(bytearray(), peer, TAG)

    def _await(self, peer: int) -> None:
        timed("wait", self._comm.Recv, bytearray(), peer, TAG)
        fence()


# Slots in shared memory of every rank on this node, once they were made; None without room.
_kept_slots = attribute(list["Sequence[Bytes] | None"])


def _slots_of(topology: Topology) -> Sequence[Bytes] | None:
    """Return the slots of all ranks of this node. *Collective*."""
    kept = _kept_slots(topology)
    if not kept:
        blocks = topology.shared.allocate_each(SLOTS * SLOT_BYTES)
        kept.append(None if topology.any_of([blocks is None])[0] else blocks)
    return kept[0]


class SlabStream:
    """Slabs between `root` and all other ranks; both sides name them in the same order.

    Slabs that are not contiguous pass through `room` if they are messages. Without room there are
    none, and all slabs lie in memory that is there anyway.
    `through_slots`: ranks on the node of root use shared memory, if there is enough. Slabs have
    SLOT_BYTES at most then, and making a stream is *Collective*.
    """

    def __init__(
        self, topology: Topology, root: int, room: SlabRoom | None = None, *, through_slots: bool
    ) -> None:
        self._topology, self._comm = topology, topology.comm
        self._root = root
        self._room = room
        self._window = WIDE_WINDOW if room is None else WINDOW
        # Requests, the slab, the memory that they use, and bytes of the array of the slab.
        self._pending: deque[tuple[list[MPI.Request], Array, Array, int]] = deque()
        self._staged: dict[int, _StagingSlots] = {}
        self._blocks = _slots_of(topology) if through_slots else None

    def send(self, peer: int, slab: Array) -> None:
        """Send a slab to `peer`, packed if needed; wait for an older one if there are many."""
        if self._blocks is not None and peer in self._topology.on_node:
            self._slots(self._blocks, peer).send(peer, slab)
            return
        packed = slab
        if not slab.flags.c_contiguous:
            packed = self._unpacked(slab)
            copy_now(packed, slab)
        requests = [self._comm.Isend(part, peer, TAG) for part in byte_chunks(packed)]
        self._pending.append((requests, packed, packed, 0))
        if len(self._pending) > self._window:
            self._complete()

    def recv(self, peer: int, slab: Array, whole: int = 0) -> None:
        """Receive the next slab from `peer`, which is complete after `finish`.

        `whole`: bytes of all slabs of the array, see `pencils.comm.pack.copy`.
        """
        if self._blocks is not None and peer in self._topology.on_node:
            self._slots(self._blocks, peer).recv(peer, slab, whole)
            return
        received = slab if slab.flags.c_contiguous else self._unpacked(slab)
        requests = [self._comm.Irecv(part, peer, TAG) for part in byte_chunks(received)]
        self._pending.append((requests, slab, received, whole))
        if len(self._pending) > self._window:
            self._complete()

    def finish(self) -> None:
        """Wait until all slabs have been sent, or received."""
        for slots in self._staged.values():
            slots.finish()
        while self._pending:
            self._complete()

    def _complete(self) -> None:
        """Complete the oldest message."""
        requests, slab, received, whole = self._pending.popleft()
        wait_all(requests)
        if received is not slab:
            copy_now(slab, received, whole)

    def _unpacked(self, slab: Array) -> Array:
        """Return contiguous memory of the shape of a slab."""
        if self._room is None:
            return np.empty(slab.shape, slab.dtype)
        return self._room.take(slab.shape, slab.dtype)

    def _slots(self, blocks: Sequence[Bytes], peer: int) -> _StagingSlots:
        """Return the slots through which slabs from or to `peer` go."""
        topology = self._topology
        if peer not in self._staged:
            # Those of the other rank than root, whose slots are its own.
            owner = peer if topology.rank == self._root else topology.rank
            slots = np.split(blocks[topology.on_node[owner]], SLOTS)
            self._staged[peer] = _StagingSlots(topology.comm, slots)
        return self._staged[peer]


def start_messages(
    comm: MPI.Intracomm, slabs: Iterable[tuple[int, Array]], *, sends: bool
) -> list[MPI.Request]:
    """Send contiguous slabs of at most SLAB_BYTES to ranks, or receive them, all at once."""
    start = comm.Isend if sends else comm.Irecv
    return [start([slab, slab.nbytes, MPI.BYTE], peer, TAG) for peer, slab in slabs]


def bcast_array(comm: MPI.Intracomm, array: Array, root: int) -> None:
    """Broadcast a C-contiguous array in parts that one MPI call can move."""
    for part in byte_chunks(array):
        comm.Bcast(part, root)


def copy_now(target: Array, source: Array, whole: int = 0) -> None:
    """Copy without allocating memory: a rank that cannot would leave others waiting.

    `whole` is as in `pencils.comm.pack.copy`.
    """
    kernels = pack.compiled()
    if kernels is None:
        np.copyto(target, source)
    else:
        kernels.copy(target, source, whole)


def _view(memory: Bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return memory[: dtype.itemsize * prod(shape)].view(dtype).reshape(shape)
