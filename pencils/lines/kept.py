"""Calls of the plans that `solve_banded`, `derivative` and `midpoints` keep."""

from __future__ import annotations

from collections.abc import Callable

from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.lines.plan import LinePlan
from pencils.plans import kept_plan, kept_plans


class KeptCall:
    """A call of a plan that verbs keep: one agreement, if there is the plan.

    Parameters
    ----------
    agree : agreed
        The agreement of the verb, in which this is made.
    key : tuple
        What distinguishes the plan; all ranks agree on it.
    u, out : PencilArray, PencilArray or None
        Its arguments.
    """

    def __init__(self, agree: agreed, key: object, u: PencilArray, out: PencilArray | None) -> None:
        self._agree, self._key = agree, key
        self._arguments = u, out
        plan: LinePlan | None = kept_plans(u.pencil.topology).get(key)
        self._trial = None if plan is None else plan.trial(agree, u, out, out)

    def run(self, make: Callable[[], LinePlan]) -> PencilArray:
        """Run the plan, or make it first. *Collective*."""
        u, out = self._arguments
        plan: LinePlan = kept_plan(u.pencil.topology, self._key, make)
        if self._trial is None:
            return plan.run(u, out)
        return plan.complete(self._agree, self._trial)
