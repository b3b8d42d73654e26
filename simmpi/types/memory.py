"""Memory by address: views as bytes, and a class like ``mpi4py.MPI.buffer``."""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from simmpi.exceptions import ERR_ARG, MPIError

Bytes = NDArray[np.uint8]

_READ, _WRITE = 0x100, 0x200  # PyBUF_READ and PyBUF_WRITE of Python.h
_UINT8 = np.dtype(np.uint8)

_from_memory = ctypes.pythonapi.PyMemoryView_FromMemory
_from_memory.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_from_memory.restype = ctypes.py_object


def view(address: int, nbytes: int, *, readonly: bool = False) -> Bytes:
    """View memory as bytes. The caller keeps the memory allocated."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(_from_memory(address, nbytes, _READ if readonly else _WRITE), np.uint8)


def address_of(array: NDArray[Any]) -> int:
    """Address of the first element of an array."""
    return int(array.__array_interface__["data"][0])


def contiguous_bytes(source: Any) -> memoryview:
    """Export the memory of an object, which has to be contiguous."""
    exported = memoryview(source)
    if not exported.contiguous:
        raise BufferError(
            "the elements of the buffer have gaps or run backwards, but MPI needs contiguous "
            "memory; pass a copy, or a datatype that describes the gaps"
        )
    return exported


def location(source: Any, exported: memoryview) -> int:
    """Address of the memory that an object exports."""
    if exported.nbytes == 0 and not isinstance(source, np.ndarray):
        return 0
    return address_of(source if isinstance(source, np.ndarray) else np.asarray(exported))


class buffer(np.ndarray):  # noqa: N801 -- the name, and equality, are those of mpi4py
    """Memory that exports its bytes: by address, of another object, or allocated.

    Parameters
    ----------
    source
        Object that exports its memory. Without one the buffer is empty.
    """

    obj: Any = None

    def __new__(cls, source: Any = None) -> Self:
        """Share the memory of an object."""
        if source is None:
            return cls._of(np.empty(0, np.uint8), None)
        return cls._from(source, readonly=memoryview(source).readonly)

    def __array_finalize__(self, whole: Any) -> None:
        self.obj = getattr(whole, "obj", None)

    @classmethod
    def _of(cls, data: Bytes, owner: Any) -> Self:
        new = np.ndarray.view(data, cls)
        new.obj = owner
        return new

    @classmethod
    def _from(cls, source: Any, *, readonly: bool) -> Self:
        exported = contiguous_bytes(source)
        if exported.readonly and not readonly:
            raise BufferError(
                "memory that is read-only was given; pass readonly=True, or an object of which "
                "the memory can be written"
            )
        where = location(source, exported)
        return cls._of(view(where, exported.nbytes, readonly=readonly), source)

    @classmethod
    def allocate(cls, nbytes: int, clear: bool = False) -> Self:
        """Allocate memory, of zeros if `clear`."""
        size = operator.index(nbytes)
        if size < 0:
            raise ValueError(f"{size} bytes were asked for; a buffer has 0 bytes or more")
        data = (np.zeros if clear else np.empty)(size, np.uint8)
        return cls._of(data, data)

    @classmethod
    def frombuffer(cls, obj: Any, readonly: bool = False) -> Self:
        """Share the memory of an object."""
        return cls._from(obj, readonly=readonly)

    @classmethod
    def fromaddress(cls, address: int, nbytes: int, readonly: bool = False) -> Self:
        """Use memory that begins at an address."""
        where, size = operator.index(address), operator.index(nbytes)
        if size < 0:
            raise ValueError(f"{size} bytes were given; a buffer has 0 bytes or more")
        if size and not where:
            raise ValueError("address 0 was given; memory begins at another address")
        return cls._of(view(where, size, readonly=readonly), None)

    @property
    def address(self) -> int:
        """Address of the first byte; 0 if there is none."""
        return address_of(self) if self.size else 0

    @property
    def readonly(self) -> bool:
        """Whether the bytes cannot be written."""
        return not self.flags.writeable

    @property
    def format(self) -> str:
        """Format of an element, as in the module `struct`."""
        return "B"

    def cast(self, format: str, shape: Any = ...) -> memoryview:  # noqa: A002
        """Export the memory with another format, and another shape."""
        exported = np.asarray(self).data
        return exported.cast(format) if shape is ... else exported.cast(format, shape)  # type: ignore[call-overload,no-any-return]

    def tobytes(self, order: Any = None) -> bytes:
        """Copy the memory into an object of type bytes."""
        del order
        return np.asarray(self).tobytes()

    def toreadonly(self) -> Self:
        """Share the memory as read-only."""
        new = self._of(np.asarray(self), self.obj)
        new.flags.writeable = False
        return new

    def release(self) -> None:
        """Release the memory: the buffer is empty afterwards."""
        self.__setstate__((1, (0,), _UINT8, False, b""))  # type: ignore[arg-type]
        self.obj = None

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0

    def __getitem__(self, item: Any) -> Any:
        found = np.asarray(self)[_checked(item)]
        return self._of(found, self) if isinstance(item, slice) else int(found)

    def __setitem__(self, item: Any, value: Any) -> None:
        if self.readonly:
            raise TypeError("the buffer is read-only; nothing can be assigned to its bytes")
        target = np.asarray(self)
        if not isinstance(item, slice) or hasattr(value, "__index__"):
            target[_checked(item)] = operator.index(value)
        else:
            data = self._from(value, readonly=True)
            part = target[_checked(item)]
            if part.size != data.size:
                raise ValueError(
                    f"{data.size} bytes were given for a slice of {part.size}; their numbers "
                    "must be equal"
                )
            part[:] = data

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __repr__(self) -> str:
        return f"<MPI.buffer of {self.size} bytes at {self.address:#x}>"

    __str__ = __repr__


def _checked(item: Any) -> Any:
    """Index or slice of bytes; other indices of NumPy are refused."""
    if isinstance(item, slice):
        if item.step not in {None, 1}:
            raise IndexError(f"a slice with step {item.step} was given; its step must be 1")
        return item
    if not hasattr(item, "__index__"):
        raise TypeError(f"{item!r} was given; the index of a byte is an integer or a slice")
    return operator.index(item)


def Alloc_mem(size: int, info: Any = None) -> buffer:
    """Allocate memory for communication."""
    del info
    if size < 0:
        raise MPIError(ERR_ARG, f"{size} bytes were asked for; pass 0 or more")
    return buffer.allocate(size)


def Free_mem(mem: buffer) -> None:
    """Release memory of `Alloc_mem`."""
    mem.release()
