"""Errors of one rank that others raise, too, as data and at the end of a block; and dead processes.

An MPI library with User-Level Failure Mitigation (ULFM) reports a death as an error of the calls
that need the process.
"""

from __future__ import annotations

import pickle
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic, sleep
from types import SimpleNamespace, TracebackType
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np

from pencils.comm.mpi import MPI, PerProcess, Uncopied, at_exit, is_simulated
from pencils.comm.recording import timed
from pencils.errors import RanksLostError

# Most characters of the text of an error, and of a value.
MOST_TEXT = 10_000
MOST_SHOWN = 2_000
# Modules whose errors every rank can import.
_HOMES = "builtins.", "pencils.", "simmpi.", "numpy.linalg."


class Fault(NamedTuple):
    """An error that other ranks can raise; `number` is the `errno` of a system error."""

    kind: type[Exception]
    text: str
    number: int | None

    @classmethod
    def of(cls, error: Exception) -> Fault:
        """Describe an error by the nearest base class that is known on every rank; never raises."""
        kind = next(base for base in type(error).__mro__ if _can_be_sent(base))
        with suppress(BaseException):  # attributes of the error may be anything
            if isinstance(error, OSError) and type(error.errno) is int:
                where = "" if error.filename is None else f": {_text(repr, error.filename)}"
                return cls(kind, f"{_text(str, error.strerror)}{where}", error.errno)
        return cls(kind, _text(str, error), None)

    def error(self, rank: int | None = None) -> Exception:
        """Make the error again; its text names the rank, if that is known."""
        text = self.text if rank is None else f"rank {rank}: {self.text}"
        return self.kind(text) if self.number is None else self.kind(self.number, text)


def shown(value: object) -> str:
    """Return the text of a value for error messages; never raises."""
    return _text(repr, value, MOST_SHOWN)


def _text(text_of: Callable[[object], str], value: object, most: int = MOST_TEXT) -> str:
    try:
        text = str.__str__(text_of(value))
    except BaseException as why:  # noqa: BLE001 - else this rank misses the next collective
        return f"{type(value).__name__}, whose text cannot be made: {type(why).__name__}"
    return text if len(text) <= most else f"{text[:most]} ..."


def _can_be_sent(kind: type) -> bool:
    """Whether a class is an exception that all ranks find by its name, and takes a single text."""
    module: object = kind.__module__  # classes of users may have any value here
    if not isinstance(module, str) or not f"{module}.".startswith(_HOMES):
        return False
    if getattr(sys.modules.get(module), kind.__qualname__, None) is not kind:
        return False
    try:
        kind("")
    except Exception:  # noqa: BLE001 - it takes something else
        return False
    return issubclass(kind, Exception)


# ---- Blocks with a collective end. ----

# Bytes of a message, and how many of them share an integer with the position of the rank.
_BYTES, _EACH = 1024, 4
# Most bytes of the text of an error, so that a message has room for it.
_MOST = 600
# Seconds that a process waits at exit until its messages are received, and between two looks.
_PATIENCE, _LOOK = 5.0, 0.002


class CollectiveBlock(Uncopied, ABC):
    """A ``with`` block that all ranks use, and whose end is collective.

    If the body fails on some ranks only, these raise their own error and do not wait: others may
    wait for them anywhere in their blocks. The other ranks raise one of the same type, which names
    the first rank that failed, at the end of the block. Then no rank executes the end of the block.
    """

    __slots__ = ()

    @abstractmethod
    def _block_comm(self) -> MPI.Intracomm | None:
        """Private communicator of the ranks; None if the end of the block is local. Local."""

    @abstractmethod
    def _end_block(self) -> None:
        """Do what the end of the block requires. *Collective*."""

    @abstractmethod
    def _give_up(self, error: BaseException, /) -> None:
        """Do what this rank can do alone after an error on any rank. Local."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        comm = self._block_comm()
        fault: BaseException | None = error
        if comm and comm.size > 1:  # COMM_NULL is false
            if error is None:
                fault = _receive_error(comm)
            else:
                _start_message(comm, error)
        if fault is None:
            self._end_block()
            return
        self._give_up(fault)
        if error is None:
            raise fault


def _receive_error(comm: MPI.Intracomm) -> Exception | None:
    """Wait for all ranks; return the error of the first that failed, if any did. *Collective*."""
    numbers = np.zeros(_BYTES // _EACH, np.int64)
    # MPI matches nonblocking collectives with nonblocking ones only.
    wait_all([comm.Iallreduce(MPI.IN_PLACE, numbers, op=MPI.MAX)])
    place = int(numbers[0]) >> 8 * _EACH
    if place == 0:
        return None
    text = (numbers & (2 ** (8 * _EACH) - 1)).astype("<u4").tobytes()
    fault: Fault = pickle.loads(text)  # noqa: S301 - from a rank of the same program
    return fault.error(comm.size - place)


def _start_message(comm: MPI.Intracomm, error: BaseException) -> None:
    """Start a message to the ranks that reach the end of the block; does not wait for them."""
    _progress()
    if isinstance(error, Exception):
        fault = Fault.of(error)
    else:  # what ends a process, as KeyboardInterrupt, does not end other ones
        fault = Fault(RuntimeError, f"left the block by {shown(error)}", None)
    text = fault.text.encode(errors="replace")
    if len(text) > _MOST:
        fault = fault._replace(text=f"{text[:_MOST].decode(errors='ignore')} ...")
    # MPI may need the memory after the interpreter has ended.
    memory: Any = MPI.Alloc_mem(8 * _BYTES // _EACH)
    numbers = np.frombuffer(memory, np.int64)
    numbers[:] = np.frombuffer(pickle.dumps(fault).ljust(_BYTES, b"\0"), "<u4")
    # The maximum is the message of the first rank: the high bits of all its integers are largest.
    numbers += (comm.size - comm.rank) << 8 * _EACH
    _started().append((comm.Iallreduce(MPI.IN_PLACE, numbers, op=MPI.MAX), memory))


def _progress() -> None:
    """Let MPI progress, and free messages that all other ranks have."""
    under_way = []
    for request, memory in _started():
        try:
            complete = request.Test()
        except MPI.Exception:  # a rank has died
            complete = True
        if complete:
            MPI.Free_mem(memory)
        else:
            under_way.append((request, memory))
    _started()[:] = under_way


def _no_messages() -> list[tuple[MPI.Request, MPI.buffer]]:
    at_exit(_progress if is_simulated() else _wait)
    return []


# Messages that this rank has started, until all other ranks have them.
_started = PerProcess(_no_messages)


def _wait() -> None:
    """Wait a while at exit for ranks that are late, because MPI does not."""
    end = monotonic() + _PATIENCE
    while _started() and monotonic() < end and not MPI.Is_finalized():
        _progress()
        sleep(_LOOK)


# ---- Processes that die. ----

_NAMES = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
LOST = (
    "a process of this communicator has died or has left the program. Start the program by "
    "pencils.recovery.recover(program), which calls it again on the other processes"
)
# Whether this process has noticed that a communicator of `pencils.recovery.recover` is lost.
loss = PerProcess(lambda: SimpleNamespace(noticed=False))


class Guarded:
    """Mark of communicators that `pencils.recovery.recover` has made, and of those made of them."""


def wait_all(requests: Sequence[MPI.Request]) -> None:
    """Wait for requests; raise `RanksLostError` if a process that takes part has died."""
    try:
        if len(requests) == 1:  # takes less time than a list
            timed("wait", requests[0].Wait)
        else:
            timed("wait", MPI.Request.Waitall, requests)
    except MPI.Exception as error:
        raise_lost(error)


def raise_lost(error: MPI.Exception) -> NoReturn:
    """Raise an error of MPI, as a `RanksLostError` if a process has died."""
    if loss().noticed or is_death(error.Get_error_class()):
        raise RanksLostError(LOST) from error
    raise error


def is_death(kind: int) -> bool:
    """Whether a class of errors of MPI tells that a process has died."""
    return kind in [getattr(MPI, name, None) for name in _NAMES]
