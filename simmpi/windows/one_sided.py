"""One-sided methods of windows: reads, writes and updates of memory of other ranks."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from simmpi.constants import ANY_SOURCE, ANY_TAG, PROC_NULL
from simmpi.errors import MismatchError
from simmpi.exceptions import ERR_OP, ERR_TRUNCATE, ERR_TYPE, MPIError
from simmpi.messages.matching import same_types
from simmpi.messages.operation import Operation, Status
from simmpi.messages.requests import Request
from simmpi.ranks import Waiting
from simmpi.types.buffers import BOTTOM, Buffer, as_buffer, as_datatype, local
from simmpi.types.datatypes import Datatype
from simmpi.types.kinds import checked_count
from simmpi.types.operations import NO_OP, REPLACE, SUM, Op
from simmpi.windows.accesses import Access

if TYPE_CHECKING:
    from simmpi.types.kinds import Kind
    from simmpi.types.memory import Bytes
    from simmpi.windows.epochs import Window

Change = Callable[["Bytes", "Bytes"], "Bytes"]

_SWAPPED = "bhilqBHILQp"  # codes of the integers, which `Compare_and_swap` is defined for


class RequestedAccess(Operation):
    """An access with a request; completing it needs no other rank."""

    def __init__(self, window: Window, access: Access) -> None:
        super().__init__(window.context.world, access.call)
        self.window = window
        self.access = access

    def done(self) -> bool:
        """Whether `complete` need not wait."""
        return True

    def waiting(self) -> Waiting:
        """Describe what is waited for."""
        return Waiting(self.call, self.text, tuple)

    def text(self) -> str:
        """Describe the access."""
        return f"to rank {self.access.target} on {self.window.name}"

    def finish(self, status: Status | None) -> None:
        """Have the result, or the buffer that was sent."""
        self.window.release(self.access)
        if status is not None:
            status.set(ANY_SOURCE, ANY_TAG, 0)


class OneSided:
    """Methods of a window that access memory of other ranks."""

    _me: int
    _enter: Callable[..., Window]

    def _begin(
        self,
        call: str,
        target: tuple[int, Any],
        *,
        sent: Buffer | None = None,
        result: Buffer | None = None,
        change: Change | None = None,
        takes_request: bool = False,
    ) -> Request:
        """Begin an access to a target: its rank, and the place there."""
        rank, spec = target
        window = self._enter(call, progress=result is None)
        if rank == PROC_NULL:
            return Request()
        window.context.check_rank(rank, "target_rank")
        model = result if sent is None or change is _keep else sent
        assert model is not None
        where, disp = _place(spec, model)
        for buffer in (sent, result):
            if buffer is not None and not (change is _keep and buffer is sent):
                _check_types(window, call, buffer, where)
        window.regions[rank].place(where, disp, window.flavor)
        access = Access(call, self._me, rank, where, sent=sent, result=result, change=change)
        if takes_request and not window.epochs[self._me].passive:
            window.refuse(call, "accesses with requests need Lock or Lock_all first")
        window.begin(access)
        return Request.of(RequestedAccess(window, access)) if takes_request else Request()

    # ---- with completion by a synchronization ----

    def Put(self, origin: Any, target_rank: int, target: Any = None) -> None:
        """Write to memory of a rank."""
        self._begin("Put", (target_rank, target), sent=_source(origin, target_rank))

    def Get(self, origin: Any, target_rank: int, target: Any = None) -> None:
        """Read memory of a rank."""
        self._begin("Get", (target_rank, target), result=_result(origin, target_rank))

    def Accumulate(self, origin: Any, target_rank: int, target: Any = None, op: Any = SUM) -> None:
        """Combine memory of a rank with a buffer."""
        sent = _source(origin, target_rank)
        self._begin("Accumulate", (target_rank, target), sent=sent, change=_change(op, sent))

    def Get_accumulate(
        self, origin: Any, result: Any, target_rank: int, target: Any = None, op: Any = SUM
    ) -> None:
        """Read memory of a rank, and combine it with a buffer."""
        sent = _source(origin, target_rank)
        self._begin(
            "Get_accumulate",
            (target_rank, target),
            sent=sent,
            result=_result(result, target_rank),
            change=_change(op, sent),
        )

    def Fetch_and_op(
        self, origin: Any, result: Any, target_rank: int, target_disp: int = 0, op: Any = SUM
    ) -> None:
        """Read one element of memory of a rank, and combine it with a buffer."""
        sent, found = _source(origin, target_rank), _result(result, target_rank)
        if target_rank != PROC_NULL:
            _check_single(origin=sent, result=found)
        self._begin(
            "Fetch_and_op",
            (target_rank, target_disp),
            sent=sent,
            result=found,
            change=_change(op, sent),
        )

    def Compare_and_swap(
        self, origin: Any, compare: Any, result: Any, target_rank: int, target_disp: int = 0
    ) -> None:
        """Read one element of memory of a rank, and replace it if it has an expected value."""
        sent, found = _source(origin, target_rank), _result(result, target_rank)
        expected = _source(compare, target_rank)
        if target_rank != PROC_NULL:
            _check_single(origin=sent, compare=expected, result=found)
            if sent.datatype.kind.original().char not in {*_SWAPPED}:
                raise MPIError(ERR_TYPE, f"{sent.datatype!r}; allowed are integers and bytes")
        self._begin(
            "Compare_and_swap",
            (target_rank, target_disp),
            sent=sent,
            result=found,
            change=partial(_swap, expected=expected.pack()),
        )

    # ---- with requests ----

    def Rput(self, origin: Any, target_rank: int, target: Any = None) -> Request:
        """Start to write to memory of a rank."""
        sent = _source(origin, target_rank)
        return self._begin("Rput", (target_rank, target), sent=sent, takes_request=True)

    def Rget(self, origin: Any, target_rank: int, target: Any = None) -> Request:
        """Start to read memory of a rank."""
        result = _result(origin, target_rank)
        return self._begin("Rget", (target_rank, target), result=result, takes_request=True)

    def Raccumulate(
        self, origin: Any, target_rank: int, target: Any = None, op: Any = SUM
    ) -> Request:
        """Start to combine memory of a rank with a buffer."""
        sent = _source(origin, target_rank)
        return self._begin(
            "Raccumulate",
            (target_rank, target),
            sent=sent,
            change=_change(op, sent),
            takes_request=True,
        )

    def Rget_accumulate(
        self, origin: Any, result: Any, target_rank: int, target: Any = None, op: Any = SUM
    ) -> Request:
        """Start to read memory of a rank, and to combine it with a buffer."""
        sent = _source(origin, target_rank)
        return self._begin(
            "Rget_accumulate",
            (target_rank, target),
            sent=sent,
            result=_result(result, target_rank),
            change=_change(op, sent),
            takes_request=True,
        )


def _source(spec: Any, rank: int) -> Buffer:
    return as_buffer([BOTTOM, 0, "B"] if spec is None and rank == PROC_NULL else spec)


def _result(spec: Any, rank: int) -> Buffer:
    empty = spec is None and rank == PROC_NULL
    return as_buffer([BOTTOM, 0, "B"] if empty else spec, writes=True)


def _place(spec: Any, model: Buffer) -> tuple[Buffer, int]:
    """Return the elements that are accessed, without their address, and the displacement."""
    disp, count, datatype = 0, model.count, model.datatype
    if isinstance(spec, list | tuple):
        if len(spec) > 3:  # noqa: PLR2004
            raise ValueError("target: expecting 3 items at most")
        parts = list(spec)
        disp = operator.index(parts[0]) if parts else 0
        count = operator.index(parts[1]) if len(parts) > 1 else count
        datatype = as_datatype(parts[2]) if len(parts) > 2 else datatype  # noqa: PLR2004
    elif spec is not None:
        try:
            disp = operator.index(spec)
        except TypeError:
            raise ValueError("target: expecting integral or list/tuple") from None
    return as_buffer([BOTTOM, checked_count(count), datatype]), disp


def _check_types(window: Window, call: str, buffer: Buffer, where: Buffer) -> None:
    """Raise unless both sides of an access have as many bytes of the same type."""
    if buffer.nbytes != where.nbytes:
        raise MPIError(
            ERR_TRUNCATE,
            f"{call} of {buffer.nbytes} bytes here and {where.nbytes} at the target; both must be "
            "equal",
        )
    if window.strict and not same_types(buffer, where):
        window.scheduler.fail_with(
            MismatchError,
            f"{call} of {buffer.datatype.name} here and {where.datatype.name} at the target, "
            f"on {window.name}; both must have the same types",
        )


def _check_single(**buffers: Buffer) -> None:
    first = buffers["origin"]
    for name, buffer in buffers.items():
        if buffer.count != 1:
            raise ValueError(f"{name}: expecting a single element, got {buffer.count}")
        if buffer.datatype != first.datatype:
            raise ValueError(f"mismatch in origin and {name} MPI datatypes")


def _change(op: Any, sent: Buffer) -> Change:
    """Return what an operation makes of the bytes of the target and of those sent."""
    found = local(op)
    if not isinstance(found, Op):
        raise TypeError(f"op={op!r} must be an MPI.Op")
    if found == NO_OP:
        return _keep
    if found == REPLACE:
        return _replace
    if not found.is_predefined or not found:
        raise MPIError(ERR_OP, f"{op!r}; allowed are predefined operations")
    if not sent.nbytes:
        return _keep
    elements = Buffer(0, 1, Datatype.of(_element(sent.datatype.kind)))
    found.check(elements)
    return lambda old, new: found.reduce(old, new, elements)


def _keep(old: Bytes, new: Bytes) -> Bytes:  # noqa: ARG001
    return old


def _replace(old: Bytes, new: Bytes) -> Bytes:  # noqa: ARG001
    return new


def _swap(old: Bytes, new: Bytes, *, expected: Bytes) -> Bytes:
    return new if (old == expected).all() else old


def _element(kind: Kind) -> Kind:
    """Return the basic type of the elements of a datatype."""
    while not kind.is_predefined:
        if "datatype" in kind.arguments:
            kind = kind.arguments["datatype"]
            continue
        kinds = {_element(each) for each in kind.arguments["datatypes"]}
        if len(kinds) != 1:
            raise MPIError(ERR_TYPE, "accumulates need a datatype of one basic type")
        kind = kinds.pop()
    return kind
