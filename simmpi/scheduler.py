"""Runs simulated ranks, one at a time, and chooses at every call of MPI which one is next.

Each rank is a thread that waits for its own lock. The running rank releases the lock of the next
one and waits for its own, so that nothing runs at the same time: the same seed gives the same run.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from random import Random
from time import monotonic
from typing import Any, NoReturn

from simmpi import process
from simmpi.errors import DeadlockError, SimulationError, StepLimitError, UsageError
from simmpi.ranks import KILLED, RAISED, READY, RETURNED, RUNNING, WAITING, Fault, Rank, Waiting

# Calls of MPI that a rank may try after its simulation has failed; then its thread is left alone.
MOST_ABANDONED = 100
INTERVAL = 1  # seconds after which an interrupt also ends a rank that makes no calls of MPI
# A completed test reports success with this probability, if there is a seed.
PROMPT = 0.7
# Unsuccessful tests one after the other, without any other call, and seconds that they last, after
# which no rank can continue. A loop may also end by itself, after a time or a number of tests.
MOST_POLLS = 20_000
SECONDS = 10.0
_INTERVAL = 1_000  # tests after which the clock is read


class Abandoned(BaseException):
    """Ends the thread of a rank whose simulation has failed; not an error of the program."""


class _Polls:
    """Unsuccessful tests since a rank has made progress. Time changes nothing but their limit."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._number = 0
        self._start = 0.0

    def reset(self) -> None:
        """Begin to count again: a rank has made progress."""
        self._number = 0

    def most(self) -> int:
        """Return the number of tests that are possible in any time."""
        return max(MOST_POLLS, 100 * self._size)

    def add(self) -> bool:
        """Count a test; return whether there are too many."""
        self._number += 1
        if self._number == 1:
            self._start = monotonic()
        if self._number <= self.most() or self._number % _INTERVAL:
            return False
        return monotonic() - self._start >= SECONDS


class Scheduler:
    """Runs ranks; see the module. `where` describes, in lines of text, where ranks are."""

    def __init__(
        self,
        size: int,
        *,
        seed: int | None,
        faults: Iterable[Fault],
        max_steps: int | None,
        where: Callable[[Iterable[Rank]], Iterable[str]],
    ) -> None:
        self.size = size
        self.seed = seed
        self.random = None if seed is None else Random(seed)  # noqa: S311 - of schedules
        self.ranks = [Rank(number) for number in range(size)]
        self.current: Rank | None = None  # the running one
        self.alone = False  # whether the only rank is the process itself, without a thread
        self.failure: BaseException | None = None
        self.ended = False
        self.before_unwinding: Callable[[], object] = lambda: None
        self._faults = {(fault.rank, fault.call): fault for fault in faults}
        self._left = max_steps
        self._most = max_steps
        self._where = where
        self._ready: list[Rank] = []
        self._polls = _Polls(size)
        self._main = threading.Lock()
        self._main.acquire()

    # ---- called by the rank that is running ----

    def running(self, call: str) -> Rank:
        """Return the running rank, or raise if this thread is none."""
        rank = self.current
        if self.alone:
            assert rank is not None
            return rank
        if rank is None and self.ended:
            raise UsageError(f"{call}: the simulation has ended", self.seed)
        if rank is None or rank.thread is not threading.current_thread():
            raise UsageError(
                f"{call}: this thread is no simulated rank; call MPI in the function that runs "
                "on the ranks, not in a thread that it starts"
            )
        return rank

    def unwind_rank(self) -> None:
        """End the rank of this thread, if it is one, when the simulation has failed."""
        rank = self.current
        if rank is not None and rank.thread is threading.current_thread():
            self._stop_if_failed(rank)

    def step(self, call: str, *, progress: bool = True) -> Rank:
        """Count a call of the running rank; other ranks may run before it. Return the rank.

        Without `progress` it counts as a test: the rank may repeat it until memory changes.
        """
        rank = self.running(call)
        self._stop_if_failed(rank)
        number = len(rank.calls)
        rank.calls.append(call)
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self.fail_with(
                    StepLimitError,
                    f"{call}: the ranks have made more calls of MPI than max_steps={self._most}; "
                    "allow more, or look for a loop that never ends",
                )
        fault = self._faults.pop((rank.number, number), None)
        if fault is not None and fault.error is not None:
            raise _copy(fault.error)
        if fault is not None:
            rank.status, rank.waiting = KILLED, Waiting(call, lambda: "", tuple)
            self._switch(rank)
        if progress:
            self._polls.reset()
        if self.random is not None and self._ready:
            self._offer(rank)
        return rank

    def wait(self, ready: Callable[[], bool], waiting: Waiting) -> None:
        """Let other ranks run until `ready()`; they call `wake` for the running rank."""
        rank = self.running(waiting.call)
        while not ready():
            rank.waiting = waiting
            rank.status = WAITING
            self._switch(rank)
        rank.waiting = None

    def poll(self, call: str) -> None:
        """Let other ranks run after a test that was not successful."""
        rank = self.running(call)
        self._stop_if_failed(rank)
        if self._polls.add():
            text = (
                f"rank {rank.number} waits in {call}, and no rank makes progress: ranks have "
                f"tested more than {self._polls.most()} times for messages that do not arrive"
            )
            self._polls.reset()
            self.fail(self._deadlock(text))
        if self._ready:
            self._offer(rank, other=True)

    def note_progress(self) -> None:
        """Begin to count tests again: what a rank waits for may have come."""
        self._polls.reset()

    def prompt(self) -> bool:
        """Whether a test of what is complete says so at once; the seed decides."""
        return self.random is None or self.random.random() < PROMPT

    def choose(self, number: int) -> int:
        """Choose one of `number` possibilities; the seed decides."""
        return 0 if self.random is None or number == 1 else self.random.randrange(number)

    def wake(self, number: int) -> None:
        """Have a rank that waits look again whether it can continue."""
        rank = self.ranks[number]
        if rank.status is WAITING:
            rank.status = READY
            self._ready.append(rank)

    def fail(self, error: BaseException) -> NoReturn:
        """End the simulation with an error; the running rank is unwound with the other ones."""
        if self.alone:
            raise error
        rank = self.current
        assert rank is not None
        if self.failure is None:
            if not isinstance(error, DeadlockError):
                error.add_note("\n".join(self._where(self.ranks)))
            self.failure = error
        self._stop_if_failed(rank)
        raise AssertionError("unreachable")

    def fail_with(self, kind: type[SimulationError], text: str) -> NoReturn:
        """End the simulation with an error of this kind, which names the seed."""
        self.fail(kind(text, self.seed))

    def _deadlock(self, text: str) -> DeadlockError:
        return DeadlockError("\n".join([text, *self._where(self.ranks)]), self.seed)

    def _stop_if_failed(self, rank: Rank) -> None:
        if self.failure is None and not self.ended:
            return
        if not self.ended:  # until `_unwind` resumes this rank
            self._main.release()
            rank.lock.acquire()
        rank.abandoned += 1
        if rank.abandoned > MOST_ABANDONED:  # the program catches the exception in a loop
            self._main.release()
            rank.lock.acquire()
        raise Abandoned

    def _offer(self, rank: Rank, *, other: bool = False) -> None:
        """Let a ready rank run instead of this one, which stays ready."""
        rank.status = READY
        self._ready.append(rank)
        self._switch(rank, other=other)

    def _switch(self, rank: Rank, *, other: bool = False) -> None:
        """Run the next ready rank, until this one is chosen again. `other`: not this one."""
        chosen = self._next(rank if other else None)
        if chosen is rank:
            rank.status = RUNNING
            return
        if chosen is None:
            self._stop()
        else:
            self._run(chosen)
        rank.lock.acquire()
        if self.ended:
            raise Abandoned

    def _stop(self) -> None:
        """Resume the thread that runs the simulation: no rank is ready."""
        waiting = any(rank.status is WAITING for rank in self.ranks)
        if waiting and self.failure is None:
            error = self._deadlock("no rank can continue")
            if self.alone:  # the process continues
                self.ranks[0].waiting, self.ranks[0].status = None, RUNNING
                raise error
            self.failure = error
        self._main.release()

    def _next(self, but: Rank | None = None) -> Rank | None:
        ready = self._ready
        if not ready:
            return None
        number = self.choose(len(ready) - (but is not None))
        if but is not None and ready[number] is but:
            number = len(ready) - 1
        return ready.pop(number)

    def _run(self, rank: Rank) -> None:
        rank.status = RUNNING
        self._resume(rank)

    def _resume(self, rank: Rank) -> None:
        """Let the thread of a rank run, with what belongs to its process."""
        self.current = rank
        process.exchange(rank.values)
        process.exchange_slots(rank)
        rank.lock.release()

    @contextmanager
    def _outside_kept(self) -> Iterator[None]:
        """Keep what belongs to the process while ranks run in the block."""
        outside = process.exchange({})
        try:
            yield
        finally:
            self.current = None
            process.exchange(outside)
            process.exchange_slots(None)

    # ---- called by the thread that runs the simulation ----

    def run(self, functions: Sequence[Callable[[], Any]]) -> None:
        """Run a function on each rank; results and errors are left in `ranks`."""
        self._left = self._most
        with self._outside_kept():
            self._start_threads(functions)
            if self.failure is None:
                self._run_all()
            if self.failure is not None:
                self.before_unwinding()
                self._unwind()
        if self.failure is not None:
            raise self.failure
        for rank in self.ranks:
            assert rank.thread is not None
            if rank.status is not KILLED:
                rank.thread.join()

    def _start_threads(self, functions: Sequence[Callable[[], Any]]) -> None:
        """Start a thread for each rank, which waits until the rank may run."""
        for rank in self.ranks:
            rank.result = rank.error = rank.waiting = rank.thread = None
            rank.status = RETURNED
        for rank, function in zip(self.ranks, functions, strict=True):
            thread = threading.Thread(
                target=self._execute, args=(rank, function), name=f"rank {rank.number}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                error.add_note(f"there is no thread for rank {rank.number} of {self.size}")
                self.failure = error
                return
            rank.thread = thread
            rank.status = READY
        self._ready = list(self.ranks)

    def _run_all(self) -> None:
        """Run the first rank, and wait until no rank is ready."""
        first = self._next()
        assert first is not None
        self._run(first)
        try:
            # A signal that comes just before the thread waits would not end the wait.
            while not self._main.acquire(timeout=INTERVAL):
                pass
        except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt
            with suppress(Exception):
                error.add_note("\n".join(self._where(self.ranks)))
            self.failure = self.failure or error  # ranks stop at their next call of MPI
            while not self._main.acquire(timeout=INTERVAL):
                self._interrupt_rank()

    def _interrupt_rank(self) -> None:
        """End the running rank, which makes no calls of MPI, between two lines of its program."""
        thread = None if self.current is None else self.current.thread
        if thread is not None and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(Abandoned)
            )

    def _execute(self, rank: Rank, function: Callable[[], Any]) -> None:
        """Run one rank in its thread."""
        rank.lock.acquire()
        status = RETURNED
        try:
            if not self.ended:
                rank.result = function()
        except Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the caller of the ranks
            rank.error = error
            status = RAISED
        rank.status = status if not self.ended else rank.status
        rank.waiting = None if not self.ended else rank.waiting
        try:
            self._go_on()
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self.failure = self.failure or error
            self._main.release()

    def _go_on(self) -> None:
        """Run the next rank at the end of one; after the last, the thread that started them."""
        if self.ended:
            self._main.release()
            return
        chosen = self._next() if self.failure is None else None
        if chosen is None:
            self._stop()
        else:
            self._run(chosen)

    def _unwind(self) -> None:
        """End the threads of all ranks, one after the other."""
        self.ended = True
        for rank in self.ranks:
            thread = rank.thread
            # A thread may take a moment to end after its rank has returned.
            if thread is None or rank.status in (RETURNED, RAISED):
                continue
            self._resume(rank)
            self._main.acquire()
            if rank.abandoned <= MOST_ABANDONED:
                thread.join()

    def release_killed(self) -> None:
        """End the threads of killed ranks, whose ``finally`` blocks run now."""
        with self._outside_kept():
            self._unwind()


def _copy(error: BaseException | type[BaseException]) -> BaseException | type[BaseException]:
    """Copy an error that may be raised in several simulations, which add notes; if possible."""
    if isinstance(error, type):
        return error
    with suppress(Exception):  # code of the program
        copied = copy(error)
        if type(copied) is type(error):
            copied.__dict__.pop("__notes__", None)
            return copied.with_traceback(None)
    return error
