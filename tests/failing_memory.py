"""Failing allocations: NumPy, the pool of fields and line programs ask for memory in this file.

NumPy takes its memory from a handler (NEP 49), which is set here through its table of C functions
by `ctypes`, so that nothing has to be compiled.
"""

import ctypes
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import local

import numpy as np

import pencils
import simmpi
from pencils.comm import pool
from pencils.comm.pack import compiled

# Smaller arrays never fail: calls need them independent of the size of their data.
LEAST = 4096
# Numbers of PyDataMem_SetHandler and PyDataMem_GetHandler in NumPy's table, which never change.
_SET_HANDLER, _GET_HANDLER = 304, 305

_LIBRARY = f"{Path(pencils.__file__).parent}{os.sep}"
_MPI = f"{Path(simmpi.__file__).parent}{os.sep}"

_Size, _Address = ctypes.c_size_t, ctypes.c_void_p
# Python holds its lock during all calls.
_Malloc = ctypes.PYFUNCTYPE(_Address, _Address, _Size)
_Calloc = ctypes.PYFUNCTYPE(_Address, _Address, _Size, _Size)
_Realloc = ctypes.PYFUNCTYPE(_Address, _Address, _Address, _Size)


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of NumPy."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("ctx", _Address),
        ("malloc", _Malloc),
        ("calloc", _Calloc),
        ("realloc", _Realloc),
        ("free", _Address),
    )


class Memory(local):
    """Counts the allocations of a thread; inside `watched`, one of them may fail.

    Simulated ranks are threads, and each has its own counts.

    Attributes
    ----------
    asked : int
        Requests of at least `LEAST` bytes since `watched` was entered.
    failed : bool
        Whether one of them failed.
    """

    def __init__(self):
        self.asked = 0
        self.failed = False
        self._fails = None
        self._watches = False

    @contextmanager
    def watched(self, fails=None):
        """Make request number `fails` fail, counted from 0; None: no request fails."""
        before = _api(_SET_HANDLER, _ours)  # for this thread
        self.asked, self.failed, self._fails, self._watches = 0, False, fails, True
        try:
            yield self
        finally:
            self._watches = False
            _api(_SET_HANDLER, before)

    def has_room(self, nbytes):
        """Whether a request succeeds."""
        if not self._watches or nbytes < LEAST or _is_for_mpi(sys._getframe(1)):
            return True
        self.asked += 1
        if self.asked - 1 != self._fails:
            return True
        self.failed = True
        return False


memory = Memory()


def _is_for_mpi(frame):
    """Whether simulated MPI asks for memory, which MPI libraries do not take from NumPy."""
    while frame is not None and not frame.f_code.co_filename.startswith((_LIBRARY, _MPI)):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_MPI)


def _api(number, *arguments):
    """Call a function of NumPy's table that takes and returns capsules."""
    kind = ctypes.py_object
    address = _address(np._core._multiarray_umath._ARRAY_API, None)
    table = ctypes.cast(address, ctypes.POINTER(_Address))
    return ctypes.PYFUNCTYPE(kind, *[kind] * len(arguments))(table[number])(*arguments)


def _address(capsule, name):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = _Address, [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, name)


def _capsule(address, name):
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [_Address, ctypes.c_char_p, _Address]
    return make(address, name, None)


_NAME = b"mem_handler"
_usual = _Handler.from_address(_address(_api(_GET_HANDLER), _NAME))


def _malloc(ctx, nbytes):
    return _usual.malloc(ctx, nbytes) if memory.has_room(nbytes) else None


def _calloc(ctx, number, nbytes):
    return _usual.calloc(ctx, number, nbytes) if memory.has_room(number * nbytes) else None


def _realloc(ctx, address, nbytes):
    return _usual.realloc(ctx, address, nbytes) if memory.has_room(nbytes) else None


# Arrays made meanwhile are freed by it whenever they go, so it stays for good. What frees them is
# NumPy's own function: no Python may run while an error is on its way.
_handler = _Handler(
    b"pencils tests",
    1,
    _usual.ctx,
    _Malloc(_malloc),
    _Calloc(_calloc),
    _Realloc(_realloc),
    _usual.free,
)
_ours = _capsule(ctypes.addressof(_handler), _NAME)


_block = pool.new_block


def _new_block(nbytes, zero):
    if not memory.has_room(nbytes):
        raise MemoryError
    return _block(nbytes, zero)


# For good, because ranks that are threads begin and end to watch at any time.
pool.new_block = _new_block


if compiled() is not None:
    _lines = compiled().Lines

    def _new_lines(*args):
        """Prepare lines, which allocates some 100 KiB in C."""
        if not memory.has_room(LEAST):
            raise MemoryError
        return _lines(*args)

    compiled().Lines = _new_lines
