"""Requests of operations that the program itself does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from simmpi.constants import ANY_SOURCE, ANY_TAG
from simmpi.exceptions import ERR_REQUEST, MPIError
from simmpi.messages.operation import Operation, Status
from simmpi.messages.requests import Request
from simmpi.ranks import Waiting
from simmpi.world import World, running_world

Function = Callable[..., object] | None


class _Generalized(Operation):
    """An operation that is done when the program says so."""

    def __init__(self, world: World, query: Function, free: Function, cancel: Function) -> None:
        super().__init__(world, "Grequest")
        self.query, self.free, self.cancel_by = query, free, cancel
        self.args: Sequence[Any] = ()
        self.kwargs: Mapping[str, Any] = {}
        self.ended = False

    def done(self) -> bool:
        """Whether the program has called `Complete`."""
        return self.ended

    def waiting(self) -> Waiting:
        """Describe what is waited for."""
        return Waiting(self.call, self.text, lambda: [self.rank.number])

    def text(self) -> str:
        """Describe the operation."""
        return "until the program calls Complete"

    def finish(self, status: Status | None) -> None:
        """Call the functions of the program."""
        found = Status() if status is None else status
        found.set(ANY_SOURCE, ANY_TAG, 0)
        if self.query is not None:
            self.query(found, *self.args, **self.kwargs)
        if self.free is not None:
            self.free(*self.args, **self.kwargs)

    def cancel(self) -> None:
        """Call the function of the program."""
        if self.cancel_by is not None:
            self.cancel_by(self.ended, *self.args, **self.kwargs)


class Grequest(Request):
    """Handle of an operation that the program itself does."""

    @classmethod
    def Start(
        cls,
        query_fn: Function = None,
        free_fn: Function = None,
        cancel_fn: Function = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make the request; the functions are called when it is completed, or cancelled."""
        world = running_world()
        world.scheduler.step("Grequest.Start")
        operation = _Generalized(world, query_fn, free_fn, cancel_fn)
        operation.args, operation.kwargs = args or (), kwargs or {}
        request = cls()
        request._operation = operation
        return request

    def Complete(self) -> None:
        """Let the request be completed."""
        operation = self._begun("Complete")
        if not isinstance(operation, _Generalized) or operation.ended:
            raise MPIError(ERR_REQUEST, "Complete: the request is complete")
        operation.check_rank("Complete")
        operation.ended = True
        operation.world.scheduler.note_progress()

    complete = Complete
