"""Allocations and file calls in which a rank may fail or be killed."""

import contextlib
import inspect
import operator
import os
import sys
import threading
from pathlib import Path

import h5py
from h5py._objects import phil
from mpi4py import MPI

import pencils
import simmpi
from simmpi import point

sys.path.append(str(Path(__file__).resolve().parents[1]))

from failing_memory import memory

CALLS = (
    *("open", "pread", "preadv", "pwrite", "pwritev", "fsync", "ftruncate", "truncate"),
    *("replace", "rename", "unlink", "mkdir"),
)
# Functions that do not communicate: what they allocate may fail on one rank only.
LOCAL = {
    *("zeros", "empty", "full", "ones", "uniform", "normal", "alias", "from_function"),
    *("__array_ufunc__", "__array_function__", "__getitem__", "__setitem__", "shift", "copy"),
    *("_on_blocks", "fill", "fill_boundary", "export", "localgrid", "local", "items", "request"),
}
# Nor do the functions behind the arithmetic of fields: `u + v`, `2 - u`, `-u`.
NAMES = vars(operator).keys() - {"__getitem__", "__setitem__"} | {"__divmod__"}
ARITHMETIC = {
    method.__code__
    for name, method in inspect.getmembers(pencils.PencilArray, inspect.isfunction)
    if {name, name.replace("__r", "__", 1)} & NAMES
}
LIBRARY, HERE = f"{Path(pencils.__file__).parent}{os.sep}", f"{Path(__file__).parent}{os.sep}"
MPI_ITSELF = f"{Path(simmpi.__file__).parent}{os.sep}"


@contextlib.contextmanager
def allocations(fails):
    """Let one allocation of this rank fail, which is a thread."""
    with memory.watched(fails):
        has_room = memory.has_room
        memory.has_room = lambda nbytes: not is_collective(sys._getframe(1)) or has_room(nbytes)
        try:
            yield memory
        finally:
            del memory.has_room


def is_collective(frame):
    """Whether a call of the library that communicates allocates: no case, no local call, no MPI."""
    found = None
    while frame is not None and not frame.f_code.co_filename.startswith(HERE):
        if frame.f_code.co_filename.startswith(MPI_ITSELF) or "scipy" in frame.f_code.co_filename:
            return False
        if frame.f_code.co_filename.startswith(LIBRARY):
            found = frame
        frame = frame.f_back
    if found is None or found.f_code in ARITHMETIC:
        return False
    return found.f_code.co_name not in LOCAL or bool(found.f_locals.get("shared"))


@contextlib.contextmanager
def file_calls(simulation, faults=()):
    """Make each file call of a rank a point where it may fail; a killed rank may write by half."""
    torn = {(fault.rank, fault.call) for fault in faults if fault.error is None}

    def wrap(name, call):
        def wrapped(*args, **kwargs):
            if not may_fail():
                return call(*args, **kwargs)
            rank = MPI.COMM_WORLD.rank
            at = rank, len(simulation.calls[rank])
            if at in torn and name == "pwritev" and at[1] % 2:
                call(args[0], halves(args[1]), *args[2:])
            if at in torn and name == "pwrite" and at[1] % 2:
                call(args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
            point(f"file {name}")
            return call(*args, **kwargs)

        return wrapped

    def may_fail():
        """Whether a rank calls: no thread of it, none that ends, none inside of HDF5."""
        if not threading.current_thread().name.startswith("rank ") or phil._is_owned():
            return False
        return simulation.scheduler.failure is None and not simulation.scheduler.ended

    saved = {name: getattr(os, name) for name in CALLS}
    opened = h5py.File.__init__
    try:
        for name, call in saved.items():
            setattr(os, name, wrap(name, call))
        h5py.File.__init__ = wrap("h5py.File", opened)
        yield
    finally:
        h5py.File.__init__ = opened
        for name, call in saved.items():
            setattr(os, name, call)


def halves(buffers):
    """Return the first half of the bytes of some buffers."""
    every = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in buffers)
    return [every[: len(every) // 2]]
