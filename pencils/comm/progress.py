"""Progress of messages while a program computes: MPI libraries move them inside of their calls.

Loops of the library call `poll` while an exchange is under way, programs may call `progress`: each
looks for a message that does not exist; ``benchmarks/overlap.py`` measures what this hides.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from threading import Event, RLock, Thread, get_ident
from time import perf_counter, sleep
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from pencils.comm.memory import Array
from pencils.comm.mpi import MPI, PerProcess, is_simulated, keep_apart
from pencils.errors import ArgumentError

# Seconds between two calls of MPI by `poll`: the buffers of a connection hold what comes meanwhile.
PAUSE = 2e-4
# The same of a thread, which takes its time from a core that computes.
THREAD_PAUSE = 1e-3
TAG = 4  # of no message
# Bytes that are computed at once, while an exchange is under way.
SLAB = 2**23

# Whether to call `poll`: an exchange is under way, and no thread does the same.
under_way = SimpleNamespace(on=False)
keep_apart(vars(under_way), "on")


class _Open:
    """The communicators of exchanges under way on this process, oldest first."""

    def __init__(self) -> None:
        self.comms: list[MPI.Intracomm] = []
        self.due = 0.0
        # The oldest communicator is in use, or is exchanged for another one. A handler of a signal
        # may run meanwhile, in the same thread.
        self.lock = RLock()
        self.owner = 0  # the thread that has started the latest exchange
        self.thread: ProgressThread | None = None


_open = PerProcess(_Open)


def forget() -> None:
    """Forget all exchanges: after a fork, or when their communicators are lost."""
    under_way.on = False
    _open().comms.clear()


os.register_at_fork(after_in_child=forget)


def begin(comm: MPI.Intracomm) -> None:
    """Note that an exchange is under way."""
    state = _open()
    state.comms.append(comm)
    state.owner = get_ident()
    if state.thread is None:
        under_way.on = True
    else:
        state.thread.wake.set()


def end(comm: MPI.Intracomm) -> None:
    """Note that an exchange is about to be completed, by calls of MPI."""
    state = _open()
    with state.lock:
        state.comms.remove(comm)
        if not state.comms:
            under_way.on = False
            if state.thread is not None:
                state.thread.wake.clear()


def poll() -> None:
    """Call `progress`, unless this was done shortly before, or by another thread; local."""
    state, now = _open(), perf_counter()
    if now >= state.due and state.owner == get_ident():
        progress()
        state.due = now + PAUSE


def slabs(array: Array) -> Iterator[tuple[Any, ...]]:
    """Yield indices of the parts of an array that are to be computed, and poll after each.

    It is one part, unless an exchange is under way and the array is large.
    """
    if not under_way.on or array.nbytes <= SLAB:
        yield (...,)
    else:
        axis = int(np.argmax(np.abs(array.strides)))
        rows = max(1, SLAB * array.shape[axis] // array.nbytes)
        for start in range(0, array.shape[axis], rows):
            yield (*(slice(None),) * axis, slice(start, start + rows))
            poll()


def progress() -> None:
    """Let MPI move the data of exchanges under way, such as ``plan.start(u)``; local.

    Operators and functions of fields, transforms and graphs do so by themselves. Call it
    in long computations with NumPy arrays, like ``u.local``, each millisecond or so. It takes a
    microsecond, or nothing if no exchange is under way.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> rows = pencils.Pencil((8, 6), decomp=0)
    >>> u, other = pencils.ones(rows), np.ones((4, 3))
    >>> with pencils.Transposition(rows, rows.with_(decomp=1)) as plan:
    ...     handle = plan.start(u)
    ...     for row in other:
    ...         row *= 2
    ...         pencils.progress()
    ...     handle.wait().sum()
    np.float64(48.0)
    """
    state = _open()
    if not state.comms or is_simulated():  # simulated messages need no calls
        return
    with state.lock, suppress(MPI.Exception, IndexError):
        state.comms[0].Iprobe(MPI.ANY_SOURCE, TAG)


class ProgressThread(AbstractContextManager["ProgressThread"]):
    """A thread that lets MPI move data while this one computes, inside of a ``with`` block; local.

    It calls `progress` each millisecond while an exchange is under way, also during long calls of
    other libraries, as long as these release Python's interpreter lock, as NumPy does. It needs no
    core for itself, but with fewer cores than ranks, those of Open MPI may wait longer with it.
    Ranks may use it or not.

    Raises
    ------
    ArgumentError
        If MPI does not permit calls of several threads, or there is such a thread already.

    Examples
    --------
    >>> import pencils
    >>> rows = pencils.Pencil((8, 6), decomp=0)
    >>> u = pencils.ones(rows)
    >>> with ProgressThread(), pencils.Transposition(rows, rows.with_(decomp=1)) as plan:
    ...     handle = plan.start(u)
    ...     square = u.local @ u.local.T  # one long call
    ...     handle.wait().sum()
    np.float64(48.0)
    """

    def __init__(self) -> None:
        self.wake = Event()
        self._ends = False
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        state = _open()
        if not is_simulated() and MPI.Query_thread() != MPI.THREAD_MULTIPLE:
            raise ArgumentError(
                "MPI was initialized without support for several threads; remove "
                "mpi4py.rc.thread_level, or call pencils.progress() from time to time"
            )
        if state.thread is not None:
            raise ArgumentError(
                "another ProgressThread is running; one is enough for all exchanges"
            )
        state.thread, under_way.on, self._ends = self, False, False
        self.wake.clear()
        if state.comms:
            self.wake.set()
        if not is_simulated():
            self._thread = Thread(target=self._run, name="pencils progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self.wake.set()
        if self._thread is not None:
            self._thread.join()
        state = _open()
        state.thread, under_way.on = None, bool(state.comms)

    def _run(self) -> None:
        while not self._ends:
            self.wake.wait()
            progress()
            sleep(THREAD_PAUSE)
