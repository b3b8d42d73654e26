"""The error class of the simulated MPI, and the classes of errors by number."""

from __future__ import annotations

from typing import Final

SUCCESS: Final = 0
ERR_BUFFER: Final = 1
ERR_COUNT: Final = 2
ERR_TYPE: Final = 3
ERR_TAG: Final = 4
ERR_COMM: Final = 5
ERR_RANK: Final = 6
ERR_ROOT: Final = 7
ERR_GROUP: Final = 8
ERR_OP: Final = 9
ERR_TOPOLOGY: Final = 10
ERR_DIMS: Final = 11
ERR_ARG: Final = 12
ERR_UNKNOWN: Final = 13
ERR_TRUNCATE: Final = 14
ERR_OTHER: Final = 15
ERR_INTERN: Final = 16
ERR_IN_STATUS: Final = 17
ERR_PENDING: Final = 18
ERR_REQUEST: Final = 19
ERR_ACCESS: Final = 20
ERR_AMODE: Final = 21
ERR_BAD_FILE: Final = 22
ERR_CONVERSION: Final = 23
ERR_DUP_DATAREP: Final = 24
ERR_FILE_EXISTS: Final = 25
ERR_FILE_IN_USE: Final = 26
ERR_FILE: Final = 27
ERR_INFO: Final = 28
ERR_INFO_KEY: Final = 29
ERR_INFO_VALUE: Final = 30
ERR_INFO_NOKEY: Final = 31
ERR_IO: Final = 32
ERR_NAME: Final = 33
ERR_NO_MEM: Final = 34
ERR_NOT_SAME: Final = 35
ERR_NO_SPACE: Final = 36
ERR_NO_SUCH_FILE: Final = 37
ERR_PORT: Final = 38
ERR_QUOTA: Final = 39
ERR_READ_ONLY: Final = 40
ERR_SERVICE: Final = 41
ERR_SPAWN: Final = 42
ERR_UNSUPPORTED_DATAREP: Final = 43
ERR_UNSUPPORTED_OPERATION: Final = 44
ERR_WIN: Final = 45
ERR_BASE: Final = 46
ERR_LOCKTYPE: Final = 47
ERR_KEYVAL: Final = 48
ERR_RMA_CONFLICT: Final = 49
ERR_RMA_SYNC: Final = 50
ERR_SIZE: Final = 51
ERR_DISP: Final = 52
ERR_ASSERT: Final = 53
ERR_RMA_RANGE: Final = 55
ERR_RMA_ATTACH: Final = 56
ERR_RMA_SHARED: Final = 57
ERR_RMA_FLAVOR: Final = 58
ERR_SESSION: Final = 75
ERR_PROC_ABORTED: Final = 76
ERR_VALUE_TOO_LARGE: Final = 77
ERR_PROC_FAILED: Final = 78
ERR_ERRHANDLER: Final = 80
ERR_PROC_FAILED_PENDING: Final = 81
ERR_REVOKED: Final = 82
ERR_ABI: Final = 83
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

    def __le__(self, other: int) -> bool:
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        return int(self) > int(other)

    def __ge__(self, other: int) -> bool:
        return int(self) >= int(other)

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

    @property
    def error_code(self) -> int:
        """Error code."""
        return self.Get_error_code()

    @property
    def error_class(self) -> int:
        """Error class."""
        return self.Get_error_class()

    @property
    def error_string(self) -> str:
        """Text of the error."""
        return self.Get_error_string()
