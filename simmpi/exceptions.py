"""The error class of the simulated MPI, and the classes of errors by number."""

from __future__ import annotations

from functools import total_ordering
from typing import Final

SUCCESS, ERR_BUFFER, ERR_COUNT, ERR_TYPE, ERR_TAG, ERR_COMM, ERR_RANK, ERR_ROOT = range(8)
ERR_GROUP, ERR_OP, ERR_TOPOLOGY, ERR_DIMS, ERR_ARG, ERR_UNKNOWN, ERR_TRUNCATE = range(8, 15)
ERR_OTHER, ERR_INTERN, ERR_IN_STATUS, ERR_PENDING, ERR_REQUEST, ERR_ACCESS = range(15, 21)
ERR_AMODE, ERR_BAD_FILE, ERR_CONVERSION, ERR_DUP_DATAREP, ERR_FILE_EXISTS = range(21, 26)
ERR_FILE_IN_USE, ERR_FILE, ERR_INFO, ERR_INFO_KEY, ERR_INFO_VALUE = range(26, 31)
ERR_INFO_NOKEY, ERR_IO, ERR_NAME, ERR_NO_MEM, ERR_NOT_SAME, ERR_NO_SPACE = range(31, 37)
ERR_NO_SUCH_FILE, ERR_PORT, ERR_QUOTA, ERR_READ_ONLY, ERR_SERVICE, ERR_SPAWN = range(37, 43)
ERR_UNSUPPORTED_DATAREP, ERR_UNSUPPORTED_OPERATION, ERR_WIN, ERR_BASE = range(43, 47)
ERR_LOCKTYPE, ERR_KEYVAL, ERR_RMA_CONFLICT, ERR_RMA_SYNC, ERR_SIZE, ERR_DISP = range(47, 53)
ERR_ASSERT = 53
ERR_RMA_RANGE, ERR_RMA_ATTACH, ERR_RMA_SHARED, ERR_RMA_FLAVOR = range(55, 59)
ERR_SESSION, ERR_PROC_ABORTED, ERR_VALUE_TOO_LARGE, ERR_PROC_FAILED = range(75, 79)
ERR_ERRHANDLER, ERR_PROC_FAILED_PENDING, ERR_REVOKED, ERR_ABI = range(80, 84)
ERR_LASTCODE: Final = 0x3FFFFFFF

_TEXTS: Final = {
    SUCCESS: "no error",
    ERR_BUFFER: "invalid buffer",
    ERR_COUNT: "invalid count",
    ERR_TYPE: "invalid datatype",
    ERR_TAG: "invalid tag",
    ERR_COMM: "invalid communicator",
    ERR_RANK: "invalid rank",
    ERR_ROOT: "invalid root",
    ERR_GROUP: "invalid group",
    ERR_OP: "invalid operation",
    ERR_TOPOLOGY: "invalid topology",
    ERR_DIMS: "invalid dimensions",
    ERR_ARG: "invalid argument",
    ERR_UNKNOWN: "unknown error",
    ERR_TRUNCATE: "message truncated",
    ERR_OTHER: "other error",
    ERR_INTERN: "internal error",
    ERR_IN_STATUS: "see the error of each status",
    ERR_PENDING: "pending request",
    ERR_REQUEST: "invalid request",
    ERR_INFO: "invalid info object",
    ERR_INFO_KEY: "invalid key of an info object",
    ERR_INFO_VALUE: "invalid value of an info object",
    ERR_INFO_NOKEY: "the info object has no such key",
    ERR_FILE: "invalid file",
    ERR_IO: "input or output failed",
    ERR_NO_MEM: "out of memory",
    ERR_NO_SUCH_FILE: "no such file",
    ERR_WIN: "invalid window",
    ERR_BASE: "invalid base address",
    ERR_LOCKTYPE: "invalid type of lock",
    ERR_KEYVAL: "invalid attribute key",
    ERR_RMA_CONFLICT: "conflicting accesses to a window",
    ERR_RMA_SYNC: "access to a window outside of an epoch",
    ERR_SIZE: "invalid size",
    ERR_DISP: "invalid displacement",
    ERR_ASSERT: "invalid assertion",
    ERR_RMA_RANGE: "target memory is not part of the window",
    ERR_RMA_ATTACH: "memory cannot be attached",
    ERR_RMA_SHARED: "memory cannot be shared",
    ERR_RMA_FLAVOR: "wrong flavor of window",
    ERR_UNSUPPORTED_OPERATION: "unsupported operation",
    ERR_PROC_FAILED: "a process failed",
    ERR_REVOKED: "the communicator was revoked",
    ERR_ERRHANDLER: "invalid error handler",
}


def error_string(code: int) -> str:
    """Describe an error class in a few words."""
    return _TEXTS.get(code, f"error class {code}")


@total_ordering
class MPIError(RuntimeError):
    """An error of the simulated MPI, with the interface of ``mpi4py.MPI.Exception``.

    Parameters
    ----------
    code
        Error class, such as ``ERR_TYPE``.
    detail
        What was wrong in this call.
    """

    def __init__(self, code: int = SUCCESS, /, detail: str = "") -> None:
        super().__init__(ERR_UNKNOWN if code < SUCCESS else code)
        self.detail = detail

    def __int__(self) -> int:
        return int(self.args[0])

    def __bool__(self) -> bool:
        return int(self) != SUCCESS

    def __hash__(self) -> int:
        return hash(int(self))

    def __eq__(self, other: object) -> bool:
        return int(self) == (int(other) if isinstance(other, MPIError) else other)

    def __lt__(self, other: int) -> bool:
        return int(self) < int(other)

    def __repr__(self) -> str:
        return f"MPI.Exception({int(self)})"

    def __str__(self) -> str:
        return self.Get_error_string()

    def Get_error_code(self) -> int:
        """Error code."""
        return int(self)

    def Get_error_class(self) -> int:
        """Error class: here the same number as the code."""
        return int(self)

    def Get_error_string(self) -> str:
        """Text of the error."""
        text = error_string(int(self))
        return f"{text}: {self.detail}" if self.detail else text

    error_code = property(Get_error_code)
    error_class = property(Get_error_class)
    error_string = property(Get_error_string)
