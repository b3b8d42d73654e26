"""Requests: handles of operations that a rank has started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from simmpi.constants import ANY_SOURCE, ANY_TAG, UNDEFINED
from simmpi.exceptions import ERR_REQUEST, MPIError
from simmpi.messages.operation import Operation, Status
from simmpi.ranks import Waiting

if TYPE_CHECKING:
    from simmpi.scheduler import Scheduler

Statuses = list[Status] | None


class Request:
    """Handle of an operation; null when the operation is complete."""

    def __init__(self, request: Request | None = None) -> None:
        self._operation: Operation | None = None if request is None else request._operation
        self._load: Callable[[Any], Any] = _same if request is None else request._load

    @classmethod
    def of(cls, operation: Operation, load: Callable[[Any], Any] | None = None) -> Request:
        """Make the handle of an operation; `load` makes a Python object of its result."""
        request = cls()
        request._operation = operation
        request._load = load or _same
        return request

    def __bool__(self) -> bool:
        return self._operation is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Request):
            return NotImplemented
        return self._operation is other._operation

    __hash__ = None  # type: ignore[assignment]  # as in mpi4py

    def _finish(self, status: Status | None) -> Any:
        """Complete an operation that is done, and return its Python object."""
        operation, self._operation = self._operation, None
        assert operation is not None
        return self._load(operation.complete(status))

    # ---- one request ----

    def wait(self, status: Status | None = None) -> Any:
        """Complete the operation; return the object that was received."""
        if self._operation is None:
            return _inactive(status)
        _step([self], "Wait")
        if not self._operation.done():
            self._operation.world.scheduler.wait(self._operation.done, self._operation.waiting())
        return self._finish(status)

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """Complete the operation if that needs no waiting: return whether, and the object."""
        if self._operation is None:
            return True, _inactive(status)
        self._operation.check_rank("Test")
        scheduler = self._operation.world.scheduler
        scheduler.step("Test", progress=False)
        if not (self._operation.done() and scheduler.prompt()):
            scheduler.poll("Test")
            if not self._operation.done():
                return False, None
        return True, self._finish(status)

    def Wait(self, status: Status | None = None) -> bool:
        """Complete the operation."""
        self.wait(status)
        return True

    def Test(self, status: Status | None = None) -> bool:
        """Complete the operation if that needs no waiting; return whether."""
        return self.test(status)[0]

    def get_status(self, status: Status | None = None) -> bool:
        """Whether completing needs no waiting; the request stays."""
        operation = self._operation
        if operation is None:
            _inactive(status)
            return True
        operation.check_rank("Get_status")
        scheduler = operation.world.scheduler
        scheduler.step("Get_status", progress=False)
        if not operation.done():
            scheduler.poll("Get_status")
        if not operation.done():
            return False
        if status is not None:
            operation.describe(status)
        return True

    Get_status = get_status

    def Cancel(self) -> None:
        """Give up the operation, if possible; it has to be completed still."""
        operation = self._begun("Cancel")
        operation.check_rank("Cancel")
        operation.cancel()

    def Free(self) -> None:
        """Drop the handle; the operation completes by itself.

        Any thread may do it, at any time: programs free requests in finalizers.
        """
        self._begun("Free").detach()
        self._operation = None

    def free(self) -> None:
        """Call `Free` if the handle is not null."""
        if self:
            self.Free()

    cancel = Cancel

    def _begun(self, call: str) -> Operation:
        if self._operation is None:
            raise MPIError(ERR_REQUEST, f"{call}: the request is null, or not active")
        return self._operation

    # ---- several requests ----

    @classmethod
    def waitall(cls, requests: Sequence[Request], statuses: Statuses = None) -> list[Any]:
        """Complete all; return their objects."""
        _step(requests, "Waitall")
        found = []
        for number, request in enumerate(requests):
            operation = request._operation
            if operation is not None and not operation.done():
                operation.world.scheduler.wait(operation.done, _all_of(requests, operation))
            status = _status(statuses, number)
            found.append(_inactive(status) if operation is None else request._finish(status))
        return found

    @classmethod
    def testall(
        cls, requests: Sequence[Request], statuses: Statuses = None
    ) -> tuple[bool, list[Any] | None]:
        """Complete all if that needs no waiting."""
        scheduler = _step(requests, "Testall", progress=False)
        if scheduler is not None:
            if not (_all_done(requests) and scheduler.prompt()):
                scheduler.poll("Testall")
            if not _all_done(requests):
                return False, None
        return True, [
            _inactive(status) if request._operation is None else request._finish(status)
            for number, request in enumerate(requests)
            for status in [_status(statuses, number)]
        ]

    @classmethod
    def waitsome(
        cls, requests: Sequence[Request], statuses: Statuses = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Wait until any is done, and complete all that are."""
        scheduler = _step(requests, "Waitsome")
        if scheduler is None:
            return None, None
        scheduler.wait(lambda: bool(_done(requests)), _any_of(requests, "Waitsome"))
        return _finish_some(requests, _done(requests), statuses)

    @classmethod
    def testsome(
        cls, requests: Sequence[Request], statuses: Statuses = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Complete all that are done."""
        scheduler = _step(requests, "Testsome", progress=False)
        if scheduler is None:
            return None, None
        if not _done(requests):
            scheduler.poll("Testsome")
        return _finish_some(
            requests, [number for number in _done(requests) if scheduler.prompt()], statuses
        )

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """Wait until any is done, and complete one that is."""
        scheduler = _step(requests, "Waitany")
        if scheduler is None:
            return UNDEFINED, _inactive(status)
        scheduler.wait(lambda: bool(_done(requests)), _any_of(requests, "Waitany"))
        return _finish_one(requests, scheduler, status)

    @classmethod
    def testany(
        cls, requests: Sequence[Request], status: Status | None = None
    ) -> tuple[int, bool, Any]:
        """Complete one that is done, if there is one."""
        scheduler = _step(requests, "Testany", progress=False)
        if scheduler is None:
            return UNDEFINED, True, _inactive(status)
        if not (_done(requests) and scheduler.prompt()):
            scheduler.poll("Testany")
        if not _done(requests):
            return UNDEFINED, False, None
        number, value = _finish_one(requests, scheduler, status)
        return number, True, value

    @classmethod
    def Waitall(cls, requests: Sequence[Request], statuses: Statuses = None) -> bool:
        """Complete all."""
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def Testall(cls, requests: Sequence[Request], statuses: Statuses = None) -> bool:
        """Complete all if that needs no waiting; return whether."""
        return cls.testall(requests, statuses)[0]

    @classmethod
    def Waitsome(cls, requests: Sequence[Request], statuses: Statuses = None) -> list[int] | None:
        """Wait until any is done, and complete all that are; return their places."""
        return cls.waitsome(requests, statuses)[0]

    @classmethod
    def Testsome(cls, requests: Sequence[Request], statuses: Statuses = None) -> list[int] | None:
        """Complete all that are done; return their places."""
        return cls.testsome(requests, statuses)[0]

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        """Wait until any is done, and complete one that is; return its place."""
        return cls.waitany(requests, status)[0]

    @classmethod
    def Testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """Complete one that is done, if there is one; return its place, and whether."""
        return cls.testany(requests, status)[:2]


class Prequest(Request):
    """Handle of an operation that can be started again and again."""

    _start: Callable[[], Operation] | None = None

    @classmethod
    def starting(cls, start: Callable[[], Operation]) -> Prequest:
        """Make a handle that starts operations by `start`."""
        request = cls()
        request._start = start
        return request

    def __bool__(self) -> bool:
        return self._start is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Prequest):
            return NotImplemented
        return self._start is other._start

    __hash__ = None

    def Start(self) -> None:
        """Start the operation."""
        if self._start is None or self._operation is not None:
            state = "null" if self._start is None else "active; complete it first"
            raise MPIError(ERR_REQUEST, f"Start: the request is {state}")
        self._operation = self._start()

    @classmethod
    def Startall(cls, requests: Sequence[Prequest]) -> None:
        """Start all operations."""
        for request in requests:
            request.Start()

    def Free(self) -> None:
        """Drop the handle."""
        if self._start is None:
            raise MPIError(ERR_REQUEST, "Free: the request is null")
        if self._operation is not None:
            super().Free()
        self._start = None


def _same(result: Any) -> Any:  # noqa: ARG001 - what uppercase methods return
    return None


def _inactive(status: Status | None) -> Any:
    """Return what completing a null request does."""
    if status is not None:
        status.set(ANY_SOURCE, ANY_TAG, 0)
    return None


def _status(statuses: Statuses, number: int) -> Status | None:
    """Return the status of a place; the list grows as needed."""
    if statuses is None:
        return None
    while len(statuses) <= number:
        statuses.append(Status())
    return statuses[number]


def _active(requests: Sequence[Request]) -> list[Operation]:
    return [request._operation for request in requests if request._operation is not None]


def _step(requests: Sequence[Request], call: str, *, progress: bool = True) -> Scheduler | None:
    """Count a call for active requests, which are of this rank; None if there are none."""
    active = _active(requests)
    for operation in active:
        operation.check_rank(call)
    if not active:
        return None
    scheduler = active[0].world.scheduler
    scheduler.step(call, progress=progress)
    return scheduler


def _all_done(requests: Sequence[Request]) -> bool:
    return all(operation.done() for operation in _active(requests))


def _done(requests: Sequence[Request]) -> list[int]:
    return [
        number
        for number, request in enumerate(requests)
        if request._operation is not None and request._operation.done()
    ]


def _finish_one(
    requests: Sequence[Request], scheduler: Scheduler, status: Status | None
) -> tuple[int, Any]:
    done = _done(requests)
    number = done[scheduler.choose(len(done))]
    return number, requests[number]._finish(status)


def _finish_some(
    requests: Sequence[Request], numbers: list[int], statuses: Statuses
) -> tuple[list[int], list[Any]]:
    values = [
        requests[number]._finish(_status(statuses, place)) for place, number in enumerate(numbers)
    ]
    return numbers, values


def _all_of(requests: Sequence[Request], first: Operation) -> Waiting:
    """Describe a wait for all: the first one that is not done, and how many there are."""
    call, what, missing = first.waiting()

    def described() -> str:
        pending = sum(not operation.done() for operation in _active(requests))
        return what() + (f", and {pending - 1} more" if pending > 1 else "")

    return Waiting(f"Waitall of {call}", described, missing)


def _any_of(requests: Sequence[Request], call: str) -> Waiting:
    active = _active(requests)
    return Waiting(
        call,
        lambda: ", or ".join(f"{operation.call} {operation.text()}" for operation in active[:4]),
        lambda: sorted({rank for operation in active for rank in operation.waiting().missing()}),
    )
