"""All ranks agree before a collective starts, or all of them raise the same error."""

from __future__ import annotations

from hashlib import blake2b
from types import TracebackType

import numpy as np
from mpi4py import MPI

from pencils.errors import RankDisagreementError

_Fault = tuple[type[Exception], str]


class agreed:  # noqa: N801 - reads as a phrase: ``with agreed(comm, "gather"):``
    """Run checks that may fail on some ranks only, then continue on all ranks or on none.

    The body holds checks and nothing that communicates. If it raises on any rank, every rank
    raises an error of that type which names the rank. Values recorded with `same` must be equal
    on all ranks. One small Allreduce, no objects, unless something is wrong.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Private communicator. Leaving the block is *Collective*.
    call : str
        What is being called; ranks that call different things are told so.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> with agreed(MPI.COMM_SELF, "gather") as same:
    ...     same(root=0)
    """

    __slots__ = ("_call", "_comm", "_values")

    def __init__(self, comm: MPI.Intracomm, call: str) -> None:
        self._comm = comm
        self._call = call
        self._values: dict[str, object] = {}

    def __enter__(self) -> agreed:
        return self

    def __call__(self, **values: object) -> None:
        """Record values that must be equal (by repr) on every rank."""
        self._values.update(values)

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
        token = _digest(self._call, self._values)
        mine = np.array([error is not None, token, -token], dtype=np.int64)
        worst = np.empty_like(mine)
        self._comm.Allreduce(mine, worst, op=MPI.MAX)
        if worst[0]:
            _raise_first(self._comm, error)
        elif worst[1] != -worst[2]:
            _raise_disagreement(self._comm, self._call, self._values)


def _digest(call: str, values: dict[str, object]) -> int:
    text = repr((call, values)).encode()
    return int.from_bytes(blake2b(text, digest_size=7).digest())


def _raise_first(comm: MPI.Intracomm, error: Exception | None) -> None:
    mine = None if error is None else (_transportable(type(error)), str(error))
    faults: list[_Fault | None] = comm.allgather(mine)
    if error is not None and all(fault == mine for fault in faults):
        return  # everyone made the same mistake: the error as it was raised says it best
    rank, fault = next((rank, fault) for rank, fault in enumerate(faults) if fault is not None)
    kind, text = fault
    raise kind(f"rank {rank}: {text}") from error


def _transportable(kind: type[Exception]) -> type[Exception]:
    """Nearest base class that is known on every rank and takes a single text."""
    for base in kind.__mro__:
        if base.__module__ in ("builtins", "pencils.errors") and _takes_text(base):
            return base
    return Exception


def _takes_text(kind: type) -> bool:
    try:
        kind("")
    except TypeError:
        return False
    return True


def _raise_disagreement(comm: MPI.Intracomm, call: str, values: dict[str, object]) -> None:
    seen: list[dict[str, str]] = comm.allgather(
        {"call": call, **{name: repr(value) for name, value in values.items()}}
    )
    for name, first in seen[0].items():
        for rank, other in enumerate(seen):
            if other.get(name) != first:
                msg = (
                    f"{call}: ranks disagree on {name}: rank 0 has {first}, rank {rank} has "
                    f"{other.get(name, 'nothing')}; all ranks must make the same call"
                )
                raise RankDisagreementError(msg)
    msg = f"{call}: ranks disagree on its arguments"
    raise RankDisagreementError(msg)
