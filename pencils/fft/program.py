"""One direction of a transform: serial passes and transposes, and the memory between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import arrange
from pencils.array.pencil_array import PencilArray
from pencils.fft.work import Work
from pencils.pencil import Pencil
from pencils.transposition.plan import Transposition


class Place(NamedTuple):
    """Where values are between two steps."""

    pencil: Pencil
    dtype: np.dtype[Any]


class Step(NamedTuple):
    """What leads from one field to the next; the next may be the same if `in_place`."""

    run: Callable[[PencilArray, PencilArray], object]
    in_place: bool


class Program:
    """Steps from a field of the user to another one.

    Parameters
    ----------
    places : sequence of Place
        Before the first step, and after each.
    steps : sequence of Step
        One less.
    moves : sequence of Transposition
        Those among the steps.
    components : tuple of int
        Shape of the component axes.
    kept : int
        Bytes that the serial passes among the steps keep between calls.
    """

    def __init__(
        self,
        places: Sequence[Place],
        steps: Sequence[Step],
        moves: Sequence[Transposition],
        components: tuple[int, ...],
        kept: int,
    ) -> None:
        self._places = places
        self._steps = steps
        self._moves = list(moves)
        self._components = components
        self.kept = kept
        # Number of a piece of work memory; -1 is the field of the user that is filled in the end.
        self._slots = [-1]
        for step in reversed(steps[1:]):
            after = self._slots[0]
            self._slots.insert(0, after if step.in_place else int(after == 0))
        self._fields: list[PencilArray | None] = []

    @property
    def sizes(self) -> list[int]:
        """Bytes of work memory that this rank needs."""
        sizes = [0, 0]
        for place, slot in zip(self._places[1:], self._slots, strict=True):
            if slot >= 0:
                sizes[slot] = max(sizes[slot], self._nbytes(place))
        return sizes

    @property
    def packing(self) -> int:
        """Bytes of this rank that are kept for packing, for both directions."""
        return max((move.memory for move in self._moves), default=0)

    def use(self, works: Sequence[Work]) -> None:
        """Lay the fields between the steps in work memory."""
        self._fields = [
            None if slot < 0 else self._field(place, works[slot].memory)
            for place, slot in zip(self._places[1:], self._slots, strict=True)
        ]

    def reserve(self, u: PencilArray, out: PencilArray) -> None:
        """Allocate what moving the data takes, while ranks can still give up together; local."""
        here = u
        for step, field in zip(self._steps, self._fields, strict=True):
            there = out if field is None else field
            if isinstance(step.run, Transposition):
                step.run.prepared([here], [there])
            here = there

    def __call__(self, u: PencilArray, out: PencilArray) -> None:
        """Transform `u`, which is kept unless `out` shares its memory. *Collective*."""
        here = u
        for step, field in zip(self._steps, self._fields, strict=True):
            there = out if field is None else field
            step.run(here, there)
            here = there

    def free(self) -> None:
        """Release memory and MPI objects."""
        for move in self._moves:
            move.free()
        self._moves.clear()
        self._steps = []
        self._fields = []

    def _nbytes(self, place: Place) -> int:
        return place.dtype.itemsize * prod((*self._components, *place.pencil.local_shape))

    def _field(self, place: Place, memory: Any) -> PencilArray:
        shape = (*self._components, *place.pencil.local_shape)
        return PencilArray.from_block(
            place.pencil, arrange(memory, place.pencil, place.dtype, shape)
        )
