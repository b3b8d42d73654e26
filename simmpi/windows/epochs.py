"""Windows as all their ranks see them: memory, locks, epochs, and accesses under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from simmpi.constants import LOCK_EXCLUSIVE, MODE_NOPRECEDE, MODE_NOSUCCEED, WIN_FLAVOR_DYNAMIC
from simmpi.errors import UsageError
from simmpi.exceptions import ERR_DISP, ERR_RMA_RANGE, ERR_RMA_SYNC, MPIError
from simmpi.ranks import Waiting
from simmpi.types.memory import address_of, buffer
from simmpi.windows.accesses import Access, OpenAccesses
from simmpi.world import Context

if TYPE_CHECKING:
    from simmpi.collectives.slots import Slot
    from simmpi.types.buffers import Buffer
    from simmpi.types.memory import Bytes

_ALIGNMENT = 64


class Region:
    """Memory of one rank in a window: its own bytes, or the buffer of a program."""

    def __init__(self, unit: int, bytes_of: Bytes | Buffer | None = None) -> None:
        self.unit = unit
        self.memory = bytes_of
        self.address = self.nbytes = 0
        if isinstance(bytes_of, np.ndarray):
            self.address, self.nbytes = address_of(bytes_of) if bytes_of.size else 0, bytes_of.size
        elif bytes_of is not None:
            self.address, self.nbytes = bytes_of.address, bytes_of.nbytes
        self.attached: list[Buffer] = []  # to a dynamic window

    def exported(self) -> buffer:
        """Export the bytes."""
        if isinstance(self.memory, np.ndarray):
            return buffer._of(self.memory, self.memory)
        made = buffer.fromaddress(self.address, self.nbytes)
        made.obj = None if self.memory is None else self.memory.owner
        return made

    def place(self, where: Buffer, disp: int, flavor: int) -> None:
        """Set the address of a buffer at a displacement; raise if it lies outside."""
        dynamic = flavor == WIN_FLAVOR_DYNAMIC
        if disp < 0:
            raise MPIError(ERR_DISP, f"displacement {disp} was given; it is 0 or more")
        where.address = disp if dynamic else self.address + disp * self.unit
        where.owner = self.memory
        if not where.nbytes:
            return
        low, high = where.typemap.bounds
        low, high = where.address + low, where.address + high
        if dynamic:
            if any(each.address <= low and high <= _end(each) for each in self.attached):
                return
            raise MPIError(ERR_RMA_RANGE, f"{high - low} bytes at {low:#x} were not attached")
        if not self.address <= low <= high <= self.address + self.nbytes:
            raise MPIError(
                ERR_RMA_RANGE,
                f"bytes {low - self.address} to {high - self.address} of {self.nbytes} "
                f"(displacement {disp} of {self.unit} bytes each)",
            )


def _end(memory: Buffer) -> int:
    return memory.address + memory.nbytes


def allocate(nbytes: int) -> Bytes:
    """Allocate aligned memory."""
    memory = np.zeros(nbytes + _ALIGNMENT, np.uint8)
    start = -address_of(memory) % _ALIGNMENT
    return memory[start : start + nbytes]


class Epochs:
    """What one rank may access in a window, and what it has accessed."""

    def __init__(self) -> None:
        self.fences = 0
        self.fenced = False  # whether the last synchronization was a fence that allows accesses
        self.locks: set[int] = set()
        self.all_locked = False
        self.started: tuple[int, ...] | None = None
        self.posted: tuple[int, ...] | None = None
        self.pending: dict[int, list[Access]] = {}  # by target
        self.last: tuple[Any, ...] = ()  # access with a result

    @property
    def passive(self) -> bool:
        """Whether this rank has locks."""
        return self.all_locked or bool(self.locks)


class Window:
    """A window as all its ranks see it; each rank has its own handle of it."""

    def __init__(self, context: Context, flavor: int, regions: Sequence[Region]) -> None:
        world = context.world
        self.flavor, self.regions = flavor, regions
        self.name = f"window {next(world.window_numbers)} of {context.name}"
        self.context = Context(world, context.ranks, self.name)
        self.epochs = [Epochs() for _ in regions]
        self.open = [OpenAccesses() for _ in regions]
        self.exclusive: dict[int, int] = {}  # holder of the exclusive lock, by target
        self.shared: dict[int, set[int]] = {}  # holders of shared locks, by target
        self.shared_by: set[int] = set()  # holders of shared locks of all targets
        self.waiting: set[int] = set()  # ranks that wait for a lock
        self.posts: Counter[tuple[int, int]] = Counter()  # by target and origin, not completed yet
        self.ends: Counter[tuple[int, int]] = Counter()  # by origin and target, not waited for yet
        self.scheduler = world.scheduler
        self.strict = world.strict
        world.windows[self] = None

    # ---- errors ----

    def refuse(self, call: str, text: str) -> NoReturn:
        """Raise what MPI libraries raise for wrong synchronization."""
        raise MPIError(ERR_RMA_SYNC, f"{call} on {self.name}: {text}")

    def fail(self, text: str) -> NoReturn:
        """End the simulation with an error of usage."""
        self.scheduler.fail_with(UsageError, f"{text} on {self.name}")

    # ---- accesses ----

    def begin(self, access: Access) -> None:
        """Begin an access: it happens now or later."""
        epochs = self.epochs[access.origin]
        now = self._may_happen(access, epochs)
        if self.strict:
            other = self.open[access.target].conflict(access)
            if other is not None:
                self.fail(
                    f"{access.text()} ({access.kind}) conflicts with {other.text()} "
                    f"({other.kind}), which is not complete: both use the same bytes"
                )
            access.protect()
        self.open[access.target].add(access)
        pending = epochs.pending.setdefault(access.target, [])
        in_order = access.change is None or all(each.applied for each in pending)
        pending.append(access)
        if now and in_order and self.scheduler.choose(2):
            access.apply()

    def _may_happen(self, access: Access, epochs: Epochs) -> bool:
        """Whether the target allows the access already; raise if it is outside of an epoch."""
        origin, target = access.origin, access.target
        if epochs.all_locked or target in epochs.locks:
            return True
        if epochs.started is not None and target in epochs.started:
            return self.posts[target, origin] > 0
        if not epochs.fenced:
            self.refuse(
                access.call,
                f"rank {origin} has no epoch for rank {target}; call Lock, Lock_all, Fence, or "
                "Start first",
            )
        return self.epochs[target].fences >= epochs.fences

    def complete(self, accesses: Sequence[Access]) -> None:
        """Complete accesses of one rank, in order."""
        for access in accesses:
            access.apply()
            self._note_progress(access)
            self._check(access, access.deliver())
        by_target: dict[int, list[Access]] = {}
        for access in accesses:
            by_target.setdefault(access.target, []).append(access)
        for target, some in by_target.items():
            self.open[target].remove(some)
            gone = set(map(id, some))
            pending = self.epochs[some[0].origin].pending
            left = [access for access in pending.pop(target, ()) if id(access) not in gone]
            if left:
                pending[target] = left

    def complete_all(self, origin: int, target: int | None = None) -> None:
        """Complete the accesses of a rank, to one target or to all."""
        self.complete(self.pending(origin, target))

    def pending(self, origin: int, target: int | None = None) -> list[Access]:
        """List the accesses of a rank that are not complete, to one target or to all."""
        pending = self.epochs[origin].pending
        if target is not None:
            return list(pending.get(target, ()))
        return [access for some in pending.values() for access in some]

    def release(self, access: Access) -> None:
        """Complete an access as far as its request requires: it has the result, and has sent."""
        if access.result is not None:
            self.complete([access])
        else:
            self._check(access, access.release())

    def _check(self, access: Access, wrong: str | None) -> None:
        if wrong is not None and self.strict:
            self.fail(f"{access.text()}: {wrong} before the access was complete")

    def _note_progress(self, access: Access) -> None:
        """Count as a test of memory an access that finds what the one before has found."""
        epochs = self.epochs[access.origin]
        if access.found is None:
            self.scheduler.note_progress()
            return
        now = access.call, access.target, access.low, access.found.tobytes()
        if now != epochs.last:
            self.scheduler.note_progress()
        epochs.last = now

    # ---- fences ----

    def leave_fence(self, call: str, me: int) -> None:
        """End the epoch of a fence, in which nothing may have been accessed."""
        epochs = self.epochs[me]
        if epochs.fenced and epochs.pending:
            self.refuse(call, f"rank {me} has accesses since its last Fence; call Fence first")
        epochs.fenced = False

    def finish_fence(self, slot: Slot, number: int, *, assertion: int) -> None:
        """Complete the accesses of all ranks, once."""
        if not assertion & MODE_NOPRECEDE:
            slot.once(partial(self._complete_every, slot))
        epochs = self.epochs[number]
        epochs.fences += 1
        epochs.fenced = not assertion & MODE_NOSUCCEED

    def _complete_every(self, slot: Slot) -> bool:
        ranks = [rank for rank in sorted(slot.given) if self.epochs[rank].pending]
        while ranks:
            self.complete_all(ranks.pop(self.scheduler.choose(len(ranks))))
        return True

    # ---- locks ----

    def lock(self, call: str, me: int, targets: Iterable[int], kind: int, *, wait: bool) -> None:
        """Wait for the locks of some targets, and take them."""
        every = list(targets)
        if not wait and self.strict and self._holders(me, every, kind):
            self.fail(f"{call}(MODE_NOCHECK) of rank {me}, though other ranks have the lock")
        ranks = self.context.ranks
        which = "exclusive" if kind == LOCK_EXCLUSIVE else "shared"
        of = f"rank {every[0]}" if len(every) == 1 else "all ranks"
        waiting = Waiting(
            call,
            lambda: f"{which} lock of {of} on {self.name}",
            lambda: sorted(ranks[other] for other in self._holders(me, every, kind)),
        )
        self.waiting.add(me)
        self.scheduler.wait(lambda: not self._holders(me, every, kind), waiting)
        self.waiting.discard(me)

    def _holders(self, me: int, targets: list[int], kind: int) -> set[int]:
        """Ranks with locks that exclude a new one."""
        if len(targets) > 1:
            found = set(self.exclusive.values())
        else:
            found = {self.exclusive[target] for target in targets if target in self.exclusive}
            if kind == LOCK_EXCLUSIVE:
                found |= self.shared.get(targets[0], set()) | self.shared_by
        return found - {me}

    def wake_waiting(self) -> None:
        """Have ranks that wait for a lock look again."""
        for number in sorted(self.waiting):
            self.context.wake(number)

    # ---- start, post, complete, wait ----

    def await_all(
        self, call: str, me: int, others: Sequence[int], found: Counter[tuple[int, int]]
    ) -> None:
        """Wait until each of other ranks is in `posts` for this one, or in `ends`."""

        def missing() -> list[int]:
            return [self.context.ranks[other] for other in others if not found[other, me]]

        waiting = Waiting(call, lambda: f"on {self.name}", missing)
        self.scheduler.wait(lambda: not missing(), waiting)

    def has_ended(self, me: int, origins: Sequence[int]) -> bool:
        """Whether ranks have completed their accesses to this one."""
        return all(self.ends[origin, me] for origin in origins)
