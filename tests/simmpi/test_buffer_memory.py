"""Buffers of memory behave as ``mpi4py.MPI.buffer``, errors as ``mpi4py.MPI.Exception``."""

import pickle

import numpy as np
import pytest
from mpi4py import MPI

from simmpi import exceptions
from simmpi.exceptions import ERR_TRUNCATE, ERR_TYPE, SUCCESS, MPIError
from simmpi.types import memory

CALLS = {
    "empty": lambda b: (len(b()), b().address, b().nbytes, bool(b()), b().readonly),
    "of bytes": lambda b: (b(b"abc").tobytes(), b(b"abc").readonly, b(b"abc").itemsize),
    "of an array": lambda b: (len(b(np.zeros((4, 4)))), b(np.zeros(2)).readonly, b(b"a").format),
    "of Fortran": lambda b: b(np.arange(6.0).reshape(2, 3, order="F")).tobytes(),
    "of nothing": lambda b: b.frombuffer(b"", readonly=True).tobytes(),
    "of a number": lambda b: b(3),
    "gaps": lambda b: b.frombuffer(np.zeros((4, 4))[:, ::2]),
    "read only": lambda b: b.frombuffer(b"abc"),
    "allowed read only": lambda b: b.frombuffer(b"abc", readonly=True)[1],
    "zeros": lambda b: b.allocate(5, clear=True).tobytes(),
    "no bytes": lambda b: len(b.allocate(0)),
    "negative": lambda b: b.allocate(-1),
    "address 0": lambda b: b.fromaddress(0, 1),
    "nothing at 0": lambda b: b.fromaddress(0, 0).nbytes,
    "negative length": lambda b: b.fromaddress(5, -1),
    "byte": lambda b: (b(b"abc")[0], b(b"abc")[-1], type(b(b"abc")[0])),
    "slice": lambda b: (b(b"abcd")[1:3].tobytes(), b(b"abcd")[2:].nbytes, len(b(b"abc")[5:])),
    "whole slice": lambda b: b(b"abcd")[:].tobytes(),
    "step 1": lambda b: b(b"abcd")[::1].tobytes(),
    "step 2": lambda b: b(b"abcd")[::2],
    "beyond": lambda b: b(b"abc")[3],
    "text index": lambda b: b(b"abc")["a"],
    "float index": lambda b: b(b"abc")[1.0],
    "iterated": lambda b: list(b(b"abc")),
    "cast": lambda b: b(np.arange(3.0)).cast("d").tolist(),
    "cast to a shape": lambda b: b(np.arange(4.0)).cast("d", (2, 2)).tolist(),
    "to read only": lambda b: b(bytearray(3)).toreadonly().readonly,
    "as an array": lambda b: np.asarray(b(b"abc")).tolist(),
    "in memoryview": lambda b: memoryview(b(b"abc")).tobytes(),
    "in frombuffer": lambda b: np.frombuffer(b(np.arange(3.0))).tolist(),
    "in ndarray": lambda b: np.ndarray((2,), "f8", b(np.arange(3.0)), 8).tolist(),
    "equal": lambda b: b(b"abc") == b(b"abc"),
}


def outcome(call, module):
    try:
        return call(module)
    except Exception as error:  # noqa: BLE001
        return type(error)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_buffers_are_those_of_mpi4py(call):
    found = outcome(call, memory.buffer)
    if isinstance(found, memory.buffer):
        pytest.fail("the calls compare values")
    assert found == outcome(call, MPI.buffer)


CHANGES = {
    "byte": (1, 7),
    "last byte": (-1, 7),
    "slice by a byte": (slice(1, 3), 7),
    "slice by bytes": (slice(1, 3), b"xy"),
    "slice by an array": (slice(0, 4), np.arange(2, dtype=np.int16)),
    "slice by too many": (slice(1, 3), b"xyz"),
    "step": (slice(0, 4, 2), 1),
    "beyond": (6, 1),
    "too large": (0, 256),
    "negative": (0, -1),
    "text": ("a", 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_bytes_are_assigned_as_in_mpi4py(change):
    found = []
    for cls in (memory.buffer, MPI.buffer):
        data = bytearray(b"abcdef")
        error = outcome(lambda c, d=data: c(d).__setitem__(*change), cls)
        found.append((error, bytes(data)))
    assert found[0] == found[1]


def test_buffers_share_memory():
    u = np.arange(3.0)
    by_address = memory.buffer.fromaddress(u.ctypes.data, 24)
    by_object = memory.buffer.frombuffer(u)
    assert by_address.address == by_object.address == u.ctypes.data
    assert by_object.obj is u
    assert by_address.obj is None
    by_address[0:8] = np.array([9.0]).tobytes()
    by_object[8:16] = np.array([8.0]).tobytes()
    assert u.tolist() == [9, 8, 2]
    with pytest.raises(TypeError, match="read-only"):
        by_object.toreadonly()[0] = 1
    assert "24 bytes" in repr(by_object)
    assert str(by_object) == repr(by_object)


def test_released_buffers_are_empty():
    for whole in (
        memory.buffer.allocate(8),
        memory.buffer.frombuffer(np.zeros(2)),
        memory.Alloc_mem(8),
    ):
        assert whole.nbytes in {8, 16}
        memory.Free_mem(whole)
        assert (len(whole), whole.nbytes, whole.address, whole.obj) == (0, 0, 0, None)
    with pytest.raises(MPIError):
        memory.Alloc_mem(-1)
    part = memory.buffer.allocate(8, clear=True)[2:4]  # slices keep the memory
    part[0] = 5
    assert part.tobytes() == b"\5\0"
    u = np.zeros(4)
    memory.view(u[1:].ctypes.data, 8)[:] = 0xFF
    assert np.isnan(u).tolist() == [False, True, False, False]
    with pytest.raises(ValueError, match="read-only"):
        memory.view(u.ctypes.data, 8, readonly=True)[0] = 1
    assert memory.view(0, 0).size == 0


def test_errors_are_those_of_mpi4py():
    error, real = MPIError(ERR_TYPE), MPI.Exception(MPI.ERR_TYPE)
    assert isinstance(error, RuntimeError)
    assert isinstance(real, RuntimeError)
    assert {name for name in dir(MPI.Exception) if "rror" in name} <= set(dir(MPIError))
    assert error == ERR_TYPE == int(error) == error.Get_error_code() == error.error_code
    assert error.Get_error_class() == error.error_class == ERR_TYPE
    assert error == MPIError(ERR_TYPE, "another text")
    assert error != MPIError(ERR_TRUNCATE)
    assert SUCCESS <= error <= ERR_TYPE <= error < ERR_TRUNCATE
    assert error >= SUCCESS
    assert error
    assert not MPIError()
    assert hash(error) == hash(real) - MPI.ERR_TYPE + ERR_TYPE
    assert repr(error) == f"MPI.Exception({ERR_TYPE})"
    assert MPIError(-5) == exceptions.ERR_UNKNOWN
    error = MPIError(ERR_TRUNCATE, "9 bytes for 8")
    assert str(error) == error.error_string == "message truncated: 9 bytes for 8"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert exceptions.error_string(99) == "error class 99"
    # All classes of errors of mpi4py exist.
    ours = {name: value for name, value in vars(exceptions).items() if name.startswith("ERR_")}
    assert ours.keys() >= {name for name in dir(MPI) if name.startswith("ERR_")}
    assert len(set(ours.values())) == len(ours)
