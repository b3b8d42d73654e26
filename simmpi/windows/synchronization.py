"""Methods of windows that begin and end epochs: fences, locks, and start and post."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from simmpi.collectives.slots import Call, Collective
from simmpi.constants import (
    LOCK_EXCLUSIVE,
    LOCK_SHARED,
    MODE_NOCHECK,
    MODE_NOPRECEDE,
    MODE_NOSUCCEED,
    PROC_NULL,
)
from simmpi.exceptions import ERR_LOCKTYPE, ERR_RANK, MPIError

if TYPE_CHECKING:
    from simmpi.groups import Group
    from simmpi.windows.epochs import Epochs, Window


class Synchronization:
    """Methods of a window that synchronize."""

    _me: int
    _enter: Callable[..., Window]

    def Fence(self, assertion: int = 0) -> None:
        """End the epochs of all ranks, and begin the next ones."""
        window = self._enter("Win.Fence")
        epochs = window.epochs[self._me]
        if epochs.passive or epochs.started is not None or epochs.posted is not None:
            window.refuse("Win.Fence", f"rank {self._me} is in another epoch; end it first")
        if assertion & MODE_NOPRECEDE and epochs.pending and window.strict:
            window.fail(f"Win.Fence(MODE_NOPRECEDE) of rank {self._me}, after accesses")
        modes = {"NOPRECEDE": MODE_NOPRECEDE, "NOSUCCEED": MODE_NOSUCCEED}
        same = tuple(name for name, mode in modes.items() if assertion & mode)
        finish = partial(window.finish_fence, assertion=assertion)
        Collective(window.context, Call("Win.Fence", finish, same=same)).wait()

    # ---- locks ----

    def Lock(self, rank: int, lock_type: int = LOCK_EXCLUSIVE, assertion: int = 0) -> None:
        """Lock the memory of a rank: begin to access it."""
        call = "Win.Lock"
        window, epochs = self._unless_started(call)
        if lock_type not in {LOCK_EXCLUSIVE, LOCK_SHARED}:
            raise MPIError(
                ERR_LOCKTYPE, f"lock_type={lock_type}; allowed are LOCK_EXCLUSIVE and LOCK_SHARED"
            )
        if rank == PROC_NULL:
            return
        window.context.check_rank(rank, "rank")
        if epochs.all_locked or rank in epochs.locks:
            window.refuse(call, f"rank {self._me} has a lock of rank {rank}; unlock it first")
        window.leave_fence(call, self._me)
        window.lock(call, self._me, [rank], lock_type, wait=not assertion & MODE_NOCHECK)
        epochs.locks.add(rank)
        if lock_type == LOCK_EXCLUSIVE:
            window.exclusive[rank] = self._me
        else:
            window.shared.setdefault(rank, set()).add(self._me)

    def Unlock(self, rank: int) -> None:
        """Complete all accesses to a rank, and end its lock."""
        window = self._enter("Win.Unlock", progress=False)
        epochs = window.epochs[self._me]
        if rank == PROC_NULL:
            return
        if rank not in epochs.locks:
            window.refuse("Win.Unlock", f"rank {self._me} has no lock of rank {rank}")
        window.complete_all(self._me, rank)
        epochs.locks.discard(rank)
        if window.exclusive.get(rank) == self._me:
            del window.exclusive[rank]
        else:
            window.shared[rank].discard(self._me)
        window.wake_waiting()
        window.scheduler.poll("Win.Unlock")

    def Lock_all(self, assertion: int = 0) -> None:
        """Lock the memory of all ranks, shared with others: begin to access it."""
        call = "Win.Lock_all"
        window, epochs = self._unless_started(call)
        if epochs.passive:
            window.refuse(call, f"rank {self._me} has a lock; unlock it first")
        window.leave_fence(call, self._me)
        every = range(window.context.size)
        window.lock(call, self._me, every, LOCK_SHARED, wait=not assertion & MODE_NOCHECK)
        epochs.all_locked = True
        window.shared_by.add(self._me)

    def Unlock_all(self) -> None:
        """Complete all accesses, and end the lock of all ranks."""
        window = self._enter("Win.Unlock_all", progress=False)
        epochs = window.epochs[self._me]
        if not epochs.all_locked:
            window.refuse("Win.Unlock_all", f"rank {self._me} has not called Lock_all")
        window.complete_all(self._me)
        epochs.all_locked = False
        window.shared_by.discard(self._me)
        window.wake_waiting()
        window.scheduler.poll("Win.Unlock_all")

    def _unless_started(self, call: str) -> tuple[Window, Epochs]:
        window = self._enter(call, progress=False)
        epochs = window.epochs[self._me]
        if epochs.started is not None:
            window.refuse(call, f"rank {self._me} has called Start; call Complete first")
        return window, epochs

    # ---- completion within locks ----

    def Flush(self, rank: int) -> None:
        """Complete all accesses to a rank."""
        self._flush("Win.Flush", rank, local=False)

    def Flush_all(self) -> None:
        """Complete all accesses."""
        self._flush("Win.Flush_all", None, local=False)

    def Flush_local(self, rank: int) -> None:
        """Complete all accesses to a rank, as far as buffers of this one are concerned."""
        self._flush("Win.Flush_local", rank, local=True)

    def Flush_local_all(self) -> None:
        """Complete all accesses, as far as buffers of this rank are concerned."""
        self._flush("Win.Flush_local_all", None, local=True)

    def _flush(self, call: str, rank: int | None, *, local: bool) -> None:
        window = self._passive(call, rank)
        if rank == PROC_NULL:
            return
        if local:
            for access in window.pending(self._me, rank):
                window.release(access)
        else:
            window.complete_all(self._me, rank)
        window.scheduler.poll(call)

    def Sync(self) -> None:
        """Make what was stored in memory visible; other ranks may run before."""
        call = "Win.Sync"
        window = self._passive(call, None)
        calls = window.scheduler.running(call).calls
        if calls[-2:] == [call, call]:  # nothing else since the last one: a loop that waits
            window.scheduler.poll(call)

    def _passive(self, call: str, rank: int | None) -> Window:
        window = self._enter(call, progress=False)
        epochs = window.epochs[self._me]
        if rank is not None and rank != PROC_NULL:
            window.context.check_rank(rank, "rank")
        any_rank = rank in {None, PROC_NULL}
        if not (epochs.all_locked or rank in epochs.locks or (any_rank and epochs.locks)):
            window.refuse(call, f"rank {self._me} has no lock; call Lock or Lock_all first")
        return window

    # ---- start, complete, post, wait ----

    def Start(self, group: Group, assertion: int = 0) -> None:  # noqa: ARG002
        """Begin to access the memory of some ranks, which they post."""
        call = "Win.Start"
        window, epochs = self._unless_started(call)
        if epochs.passive:
            window.refuse(call, f"rank {self._me} has a lock; unlock it first")
        window.leave_fence(call, self._me)
        epochs.started = _numbers(window, group)
        if window.scheduler.choose(2):
            window.await_all(call, self._me, epochs.started, window.posts)

    def Complete(self) -> None:
        """Complete all accesses since `Start`."""
        call = "Win.Complete"
        window = self._enter(call)
        epochs = window.epochs[self._me]
        if epochs.started is None:
            window.refuse(call, f"rank {self._me} has not called Start")
        window.await_all(call, self._me, epochs.started, window.posts)
        window.complete_all(self._me)
        for target in epochs.started:
            window.posts[target, self._me] -= 1
            window.ends[self._me, target] += 1
            window.context.wake(target)
        epochs.started = None

    def Post(self, group: Group, assertion: int = 0) -> None:  # noqa: ARG002
        """Let some ranks access the memory of this one."""
        call = "Win.Post"
        window = self._enter(call)
        epochs = window.epochs[self._me]
        if epochs.posted is not None:
            window.refuse(call, f"rank {self._me} has called Post; call Wait first")
        window.leave_fence(call, self._me)
        epochs.posted = _numbers(window, group)
        for origin in epochs.posted:
            window.posts[self._me, origin] += 1
            window.context.wake(origin)

    def Wait(self) -> bool:
        """Wait until the ranks of `Post` have completed their accesses."""
        window, origins = self._exposure("Win.Wait")
        window.await_all("Win.Wait", self._me, origins, window.ends)
        self._end_exposure(window, origins)
        return True

    def Test(self) -> bool:
        """Whether the ranks of `Post` have completed their accesses; then it is as `Wait`."""
        window, origins = self._exposure("Win.Test")
        if not (window.has_ended(self._me, origins) and window.scheduler.prompt()):
            window.scheduler.poll("Win.Test")
        if not window.has_ended(self._me, origins):
            return False
        self._end_exposure(window, origins)
        return True

    def _exposure(self, call: str) -> tuple[Window, tuple[int, ...]]:
        window = self._enter(call, progress=call == "Win.Wait")
        origins = window.epochs[self._me].posted
        if origins is None:
            window.refuse(call, f"rank {self._me} has not called Post")
        return window, origins

    def _end_exposure(self, window: Window, origins: tuple[int, ...]) -> None:
        for origin in origins:
            window.ends[origin, self._me] -= 1
        window.epochs[self._me].posted = None


def _numbers(window: Window, group: Group) -> tuple[int, ...]:
    """Numbers in a window of the ranks of a group."""
    numbers = window.context.numbers
    if any(rank not in numbers for rank in group._members):
        raise MPIError(ERR_RANK, f"the group has ranks that {window.name} does not have")
    return tuple(numbers[rank] for rank in group._members)
