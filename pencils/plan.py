"""What reusable plans have in common: they know fields again, and are freed."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from pencils.comm.topology import Topology
from pencils.comm.uncopied import Uncopied

T = TypeVar("T")

# Sets of fields that a plan remembers as checked and sliced.
MOST_BOUND = 16
# Plans that are kept for each communicator; the least recently used one goes first.
MOST_PLANS = 32


class Freeable(Uncopied, ABC):
    """What holds MPI objects: freed by name, or at the end of a ``with`` block."""

    @abstractmethod
    def free(self) -> None:
        """Complete what is under way and release memory and MPI objects."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()


class FieldPlan(Freeable, Generic[T]):
    """A plan that prepares calls with fields, and finds them prepared if the same ones come again.

    What is said of fields holds for arrays, too.

    Parameters
    ----------
    topology : Topology
        The ranks that take part.
    """

    most_bound = MOST_BOUND

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._bound: dict[tuple[Any, ...], tuple[T, list[Any]]] = {}

    def _found(self, key: tuple[Any, ...]) -> T | None:
        """Find what was prepared for fields with these ids, unless the communicator was freed."""
        found = self._bound.get(key)
        return None if found is None or self._topology.freed else found[0]

    def _remember(self, key: tuple[Any, ...], bound: T, fields: Sequence[object | None]) -> None:
        """Find it again while all the fields live; their ids mean nothing afterwards."""
        if len(self._bound) >= self.most_bound:
            self._bound.clear()
        # No cycle: a plan that is dropped gives its memory back at once.
        forget = weakref.WeakMethod(self._forget)

        def gone(_: object) -> None:
            living = forget()
            if living is not None:
                living(key)

        refs = [weakref.ref(field, gone) for field in fields if field is not None]
        self._bound[key] = bound, refs

    def _forget(self, key: tuple[Any, ...]) -> None:
        self._bound.pop(key, None)


def kept_plan(topology: Topology, key: object, make: Callable[[], Any]) -> Any:
    """Find the plan that verbs use for `key`, or make it. *Collective*."""
    plans = topology.plans
    if key not in plans:
        plans[key] = make()
        if len(plans) > MOST_PLANS:
            plans.popitem(last=False)[1].free()
    plans.move_to_end(key)
    return plans[key]
