"""Fields whose way to the ranks that write them is prepared when all ranks agree on a call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pencils.array.operands import FieldSpec
from pencils.array.pencil_array import PencilArray

if TYPE_CHECKING:
    from pencils.comm.agree import agreed
    from pencils.transposition.moves import Move
    from pencils.transposition.plan import Transposition


class ReadyMoves:
    """The first fields of a call that move by one plan, one after the other, to one block.

    A call that finds the plan, because an earlier one has made it, needs no agreement of its own
    about the memory for these fields.
    """

    def __init__(self) -> None:
        self._agree: agreed | None = None
        self._plan: Transposition | None = None
        self._block: PencilArray | None = None
        self._moves: dict[int, Move] = {}  # by identity of the field

    @classmethod
    def within(
        cls, agree: agreed, moving: Iterable[tuple[PencilArray, Transposition | None]]
    ) -> ReadyMoves:
        """Allocate memory within an agreement about the fields that move, in this order; local.

        Each has its plan, if there is one. The agreement is deferred if the first plan is missing
        on a rank: no field is ready then.
        """
        ready, pairs = cls(), list(moving)
        first = pairs[0][1] if pairs else None
        ready._agree = agree
        agree.defer(up=bool(pairs) and first is None)
        if first is None or first.target is None:
            return ready
        ready._plan = first
        ready._block = PencilArray.allocated(first.target, *FieldSpec.of(pairs[0][0]))
        for u, plan in pairs:
            if plan is not first:
                break
            ready._moves[id(u)] = first.prepared_one(u, ready._block)
        return ready

    def move(self, u: PencilArray, plan: Transposition) -> PencilArray | None:
        """Return the block, with the values of a field; None if that is not ready. *Collective*.

        It is ready for one plan: the same field may also be stored in other chunks. After a field
        that is not ready, no other one is: the memory is released.
        """
        is_ready = plan is self._plan and id(u) in self._moves
        if self._agree is None or self._agree.deferred or not is_ready:
            self.close()
            return None
        self._moves[id(u)].run()
        return self._block

    def close(self) -> None:
        """Release the memory."""
        self._block = None
        self._moves.clear()
