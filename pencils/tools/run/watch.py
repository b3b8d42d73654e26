"""Find out, from another thread, whether the main thread waits for other ranks or computes."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import wraps
from inspect import getattr_static
from time import monotonic
from traceback import walk_stack
from types import CodeType, FrameType, FunctionType
from typing import Any, cast

from mpi4py import MPI

from pencils.comm import mailbox
from pencils.comm.mailbox import Mailbox
from pencils.comm.topology import private_class
from pencils.tools.recovery import guards
from pencils.tools.run.report import CodePosition, called_names, line_of
from simmpi.frames import is_library

# Methods of communicators, by the names of their variants: Xyz, Ixyz, Xyz_init, xyz, ixyz.
_COLLECTIVES = (
    "Allgather Allgatherv Allreduce Alltoall Alltoallv Alltoallw Barrier Bcast Exscan Gather "
    "Gatherv Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv "
    "Neighbor_alltoallw Reduce Reduce_scatter Reduce_scatter_block Scan Scatter Scatterv "
    "Disconnect Dup Dup_with_info Free"
)
_MAKERS = (
    "Accept Connect Create Create_cart Create_dist_graph Create_dist_graph_adjacent Create_graph "
    "Create_group Create_intercomm Dup Dup_with_info Merge Shrink Spawn Spawn_multiple Split "
    "Split_type Sub"
)
_MESSAGES = "Bsend Mprobe Probe Recv Rsend Send Sendrecv Sendrecv_replace Ssend"
# Methods of requests, windows, files and the whole of MPI that wait for other ranks. Those of
# communicators are counted where they are called.
_WAITS = (
    "wait waitall waitany waitsome Wait Waitall Waitany Waitsome Finalize Fence Lock Lock_all "
    "Unlock Unlock_all Flush Flush_all Complete Allocate Allocate_shared Create_dynamic Open "
    "Close Disconnect Read_all Read_at_all Write_all Write_at_all Read_ordered Write_ordered "
    "allgather allreduce alltoall barrier bcast sendrecv Allgather Allgatherv Allreduce Alltoall "
    "Alltoallv Alltoallw Barrier Bcast Gather Gatherv Recv Reduce Scatter Scatterv Send Sendrecv "
    "Split Split_type Dup Create Create_cart"
)
# Methods of communicators that wait, where calls are not counted. "free" and "split" do not.
_UNCOUNTED = {
    name
    for stem in f"{_COLLECTIVES} {_MAKERS} {_MESSAGES}".split()
    for name in (stem, stem.lower())
} - {"free", "split"}
_RESULT = Future.result.__code__
_LIBRARY_THREADS = "pencils"  # how the names of its threads begin
# Functions of the library that poll, without a call that could be counted, and a variable of each
# that is another object in each call.
_POLLING = {
    Mailbox.wait.__code__: "call",
    mailbox._by_consensus.__code__: "status",  # noqa: SLF001 - to recognize it
    guards.wait_while.__code__: "request",
}

# A call in which a thread waits: as long as its first item is the same, it is the same call. Then
# the name of the method, and whether it is a collective.
_Wait = tuple[object, str, bool]


class Counting:
    """Count the calls of a process, from now on. One for each process.

    The world, what is made of it, and the private communicators of the library become
    communicators of classes derived from those of mpi4py.
    """

    def __init__(self) -> None:
        self.begun = 0  # collectives, messages and waits: changes as long as the program goes on
        self.collectives = 0
        self.latest = "", False  # the method called last, and whether it is a collective
        self.codes: set[CodeType] = set()  # of the functions that count and call mpi4py
        bases = (MPI.Intracomm, MPI.Intercomm, MPI.Cartcomm, MPI.Graphcomm, MPI.Distgraphcomm)
        self._derived = {base: self._derive(base) for base in bases}
        for name in ("COMM_WORLD", "COMM_SELF"):
            setattr(MPI, name, self._convert(getattr(MPI, name)))
        private_class.replace(self._derived[MPI.Intracomm])
        wait = self._count("Wait", Mailbox.wait, collective=False)
        Mailbox.wait = wait  # type: ignore[method-assign]

    def _derive(self, base: type[MPI.Comm]) -> Any:
        methods: dict[str, Callable[..., Any]] = {}
        for stem in f"{_COLLECTIVES} {_MAKERS} {_MESSAGES}".split():
            low = stem.lower()
            for name in (stem, f"I{low}", f"{stem}_init", low, f"i{low}"):
                if hasattr(base, name) and name not in {"free", "split"}:
                    collective = stem not in _MESSAGES.split()
                    methods[name] = self._count(name, getattr(base, name), collective=collective)
        for name in _MAKERS.split():
            if hasattr(base, name):
                methods[name] = self._converted(methods[name])
        return type(base.__name__, (base,), methods)

    def _convert(self, result: Any) -> Any:
        """Turn a communicator into one that counts; return anything else as it is."""
        kind = self._derived.get(type(result))
        return result if kind is None or result == MPI.COMM_NULL else kind(result)

    def _converted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def make(*args: Any, **kwargs: Any) -> Any:
            return self._convert(method(*args, **kwargs))

        return make

    def _count(
        self, name: str, method: Callable[..., Any], *, collective: bool
    ) -> Callable[..., Any]:
        call = name, collective

        @wraps(method)
        def count(*args: Any, **kwargs: Any) -> Any:
            self.begun += 1
            self.collectives += collective
            self.latest = call
            return method(*args, **kwargs)

        self.codes.add(cast("FunctionType", count).__code__)
        return count


class Watch:
    """Follow the thread that makes this object, which must be the main one.

    Without counted calls, only the current call of the thread can be found out.
    """

    def __init__(self, counting: Counting | None) -> None:
        self._counting = counting
        self._thread = threading.get_ident()
        self._token: object = None
        self._since = monotonic()

    @property
    def collectives(self) -> int | None:
        """Number of collectives so far; None if they are not counted."""
        return None if self._counting is None else self._counting.collectives

    def place(self) -> CodePosition:
        """Find the current position of the thread."""
        frames = sys._current_frames()  # noqa: SLF001 - the only way to see another thread
        line, call = line_of(frames[self._thread])
        _, name, collective = self._wait(frames) or (None, "", False)
        return CodePosition(line, call, name, collective, self.collectives)

    def waited(self) -> float:
        """Return for how many seconds the thread has been seen to wait in one and the same call."""
        token, _, _ = self._wait(sys._current_frames()) or (None, "", False)  # noqa: SLF001 - as above
        if token is None or token != self._token:
            self._token, self._since = token, monotonic()
        return monotonic() - self._since

    def _wait(self, frames: Mapping[int, FrameType]) -> _Wait | None:
        own = frames[self._thread]
        wait = self._wait_of(own, main=True)
        if wait is None and any(f.f_code is _RESULT for f, _ in walk_stack(own)):
            # A thread of the library communicates, and this one waits for it.
            for thread in threading.enumerate():
                frame = frames.get(thread.ident or 0)
                if thread.name.startswith(_LIBRARY_THREADS) and frame is not None:
                    wait = wait or self._wait_of(frame, main=False)
        return wait

    def _wait_of(self, frame: FrameType, *, main: bool) -> _Wait | None:
        counting = self._counting
        poll = _poll(frame)
        if counting is not None and (poll is not None or frame.f_code in counting.codes):
            return counting.begun, *counting.latest
        if poll is not None:
            return poll, "Wait", False
        name = _called(frame)
        if name not in _WAITS.split() and (counting is not None or name not in _UNCOUNTED):
            return None
        token = _PROBE.number() if main else (id(frame), frame.f_lasti)
        return ("call", token), name, False


def _poll(frame: FrameType) -> object | None:
    """Find the call of a function that polls among the callers of a frame."""
    for each, _ in walk_stack(frame):
        if each.f_code in _POLLING:
            return "poll", each.f_locals.get(_POLLING[each.f_code])
    return None


def _called(frame: FrameType) -> str:
    """Name the function of mpi4py that a frame is calling; empty if it is known to be another one.

    To find the function must not run code of the program, and must not keep its local variables
    alive, as to look at them does: where it would, the name alone decides.
    """
    first, *path = called_names(frame) or [""]
    code, names = frame.f_code, frame.f_globals
    if first in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        names = frame.f_locals if is_library(code.co_filename) else {}
    found: object = names.get(first)
    for name in path:
        found = getattr_static(found, name, None)
    if found is None or isinstance(found, property):
        return [first, *path][-1]
    found = getattr(found, "__func__", found)  # of a method of a class
    home = getattr(found, "__module__", None) or ""
    return (
        getattr(found, "__name__", "") if home.startswith(("mpi4py", "pencils", "simmpi")) else ""
    )


class _Probe:
    """Finds out whether the main thread has returned to Python from the call it was in.

    CPython runs a pending call in the main thread, as soon as that executes Python again.
    """

    def __init__(self) -> None:
        self._number = 0
        self._pending = False
        self._function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._run)

    def number(self) -> int:
        """Return a number which is the same as long as the main thread does not return."""
        if not self._pending:
            self._pending = True
            self._number += 1
            ctypes.pythonapi.Py_AddPendingCall(self._function, None)
        return self._number

    def _run(self, _: object) -> int:
        self._pending = False
        return 0


_PROBE = _Probe()  # has to outlive all calls that are pending
