"""All ranks agree before a collective starts, or all of them raise the same error."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from pencils.comm.canonical import encoded, encoded_call
from pencils.comm.fault import Fault, shown
from pencils.comm.mpi import MPI
from pencils.comm.topology import OTHER_MPI, default_topology, is_foreign, user_comm
from pencils.errors import ArgumentError, RankDisagreementError, TypeDisagreementError

# Less than any digest and its negative: for a rank without data, which have no type.
_NO_TYPE = -(2**62)
# Number and text of a value, as other ranks can compare and show it.
_Described = tuple[int, str]


class agreed:  # noqa: N801 - reads as a phrase: ``with agreed(comm, "gather"):``
    """Run checks that may fail on some ranks only, then continue on all ranks or on none.

    The body contains checks and does not communicate. If it raises on any rank, every rank raises
    an error of that type which names the rank. Values recorded by calling the object must be equal
    on all ranks, as must `call`, the name of what is called. `comm` is a private communicator.

    Leaving the block is *Collective*. It costs one small Allreduce, and no pickled objects unless
    something is wrong.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> with agreed(MPI.COMM_SELF, "gather") as agree:
    ...     agree(root=0)
    """

    __slots__ = ("_call", "_comm", "_dtype", "_values", "deferred", "flagged")

    def __init__(self, comm: MPI.Intracomm, call: str) -> None:
        if not comm:  # COMM_NULL
            raise ArgumentError(
                f"{call}: the communicator was freed; make a new pencil on one that lives"
            )
        given: object = comm
        if not isinstance(given, MPI.Comm) and is_foreign(given):
            raise TypeError(f"{call}: the pencils or fields belong to {OTHER_MPI}")
        self._comm = comm
        self._call = call
        self._values: dict[str, object] = {}
        self._dtype: np.dtype[Any] | None = None
        self.flagged = False
        self.deferred = False

    def __enter__(self) -> Self:
        return self

    def __call__(self, **values: object) -> None:
        """Record values that must be equal on every rank; see `pencils.comm.canonical`."""
        self._values.update(values)

    def dtype(self, dtype: np.dtype[Any] | None) -> None:
        """Record an element type that must be equal on all ranks that do not pass None."""
        self._dtype = dtype

    def flag(self, *, up: bool) -> None:
        """Set a flag that is OR-reduced over ranks; `flagged` has the result after the block."""
        self.flagged = up

    def defer(self, *, up: bool) -> None:
        """Set a second flag: this rank cannot allocate yet; `deferred` has the result.

        If it is set on any rank, ranks make what is missing together, and agree again.
        """
        self.deferred = up

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            return
        if self._comm.size == 1:
            return
        least = most = _NO_TYPE
        try:
            call = _digest(encoded_call(self._call, self._values))
            if self._dtype is not None:
                most = token(self._dtype)
                least = -most
        except Exception as odd:  # noqa: BLE001 - a value that cannot be compared is an error, too
            error = error or odd
            call = 0
        mine = array(
            "q", (error is not None, call, -call, most, least, self.flagged, self.deferred)
        )
        worst = array("q", mine)
        self._comm.Allreduce(mine, worst, op=MPI.MAX)
        failed, most_call, least_call, most, least, flagged, deferred = worst
        if failed or most_call != -least_call or most > -least:
            _raise_together(self._comm, self._call, self._report(error), error)
        self.flagged, self.deferred = bool(flagged), bool(deferred)

    def _report(self, error: Exception | None) -> _Report:
        values = {"call": (token(self._call), self._call)}
        for name, value in self._values.items():
            described = _describe(value)
            if described is not None:
                values[name] = described
        fault = None if error is None else Fault.of(error)
        return _Report(values, None if self._dtype is None else _describe(self._dtype), fault)


class _Report(NamedTuple):
    """Values, element type and error of one rank, exchanged after a disagreement."""

    values: dict[str, _Described]
    dtype: _Described | None
    fault: Fault | None


def _describe(value: object) -> _Described | None:
    try:
        return token(value), shown(value)
    except Exception:  # noqa: BLE001 - it cannot be compared, which is the error of this rank
        return None


def token(value: object) -> int:
    """Make a number that is the same for equal values, and for no others."""
    return _digest(encoded(value))


def _digest(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=7).digest())


def _raise_together(comm: MPI.Intracomm, call: str, mine: _Report, error: Exception | None) -> None:
    reports: list[_Report] = comm.allgather(mine)
    # An error of one rank is often caused by an argument that differs there.
    difference = _first_difference(reports)
    if difference is not None:
        raise RankDisagreementError(
            f"{call}: ranks disagree on {difference}; all ranks must make the same call"
        ) from error
    types = [(rank, report.dtype) for rank, report in enumerate(reports) if report.dtype]
    difference = _difference(types)
    if difference is not None:
        raise TypeDisagreementError(
            f"{call}: ranks pass data of different types: {difference}"
        ) from error
    if error is not None and all(report.fault == mine.fault for report in reports):
        raise error  # the same mistake on all ranks: no rank is to blame
    for rank, report in enumerate(reports):
        if report.fault is not None:
            raise report.fault.error(rank) from error


def _first_difference(reports: list[_Report]) -> str | None:
    """Name the first value on which ranks differ; ranks with an error may lack some values."""
    for name in dict.fromkeys(name for report in reports for name in report.values):
        seen = [
            (rank, report.values.get(name, (-1, "nothing")))
            for rank, report in enumerate(reports)
            if name in report.values or report.fault is None
        ]
        difference = _difference(seen)
        if difference is not None:
            return f"{name}: {difference}"
    return None


def _difference(seen: list[tuple[int, _Described]]) -> str | None:
    """Show the values of the first rank, and of the first one that differs from it."""
    for rank, (number, text) in seen:
        first, (first_number, first_text) = seen[0]
        if number != first_number:
            other = text if text != first_text else "another one that looks like it"
            return f"rank {first} has {first_text}, rank {rank} has {other}"
    return None


def as_comm(comm: MPI.Intracomm | None, call: str) -> MPI.Intracomm:
    """Check the communicator given to `call`; None means the world.

    An object that is no communicator raises on all ranks of the default topology.
    """
    try:
        return user_comm(comm)
    except TypeError:
        with agreed(default_topology().comm, call):
            raise
