"""The function `transpose`, which keeps its plans.

1. Fields and pencils like those of a call before find their `_KeptTranspose`, without comparing.
2. Others agree on all arguments, and find their plan, or make it together with all ranks.

The ranks agree on each call, on either way, by the same collective; so they may take different
ones. What they do next follows from what they agree on.
"""

from __future__ import annotations

from typing import Any

from pencils.array.operands import FieldSpec, check_out, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import PreparedAgreement, agreed
from pencils.comm.exchange import AUTO
from pencils.pencil import Pencil, keep
from pencils.plans import Agreement, kept_plan, kept_plans, plan_buffers, prepare_together
from pencils.transposition.moves import Move
from pencils.transposition.plan import Transposition, allocator, unset_ghosts
from pencils.transposition.sides import check_pair


def transpose(u: PencilArray, pencil: Pencil, out: PencilArray | None = None) -> PencilArray:
    """Move a field to another pencil of the same shape. *Collective*.

    Plans are kept, so calls in a loop are cheap; `Transposition` gives control over the method,
    overlap and checks.

    Parameters
    ----------
    u : PencilArray
        The field; its halo is not moved.
    pencil : Pencil
        The target: same global shape and processes; anything else may differ.
    out : PencilArray, optional
        Field on `pencil` to fill; it may have a halo, which is not touched. It may share memory
        with `u`. Default: a new field without halo.

    Returns
    -------
    PencilArray
        `out`.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if the arguments do not fit.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.ones(pencils.Pencil((8, 6), decomp=0))
    >>> pencils.transpose(u, u.pencil.with_(decomp=1)).pencil.decomp
    (1,)
    """
    kept = _find_kept(u, pencil)
    if kept is not None and kept.is_ready(out):
        return kept.run(u, out)
    return _Request(u, pencil, out).run()


def _find_kept(u: Any, pencil: Any) -> _KeptTranspose | None:
    if type(u) is not PencilArray or type(pencil) is not Pencil:  # isinstance() may raise
        return None
    found: _KeptTranspose | None = u.pencil.kept.get(_key(u, pencil))
    return found


def _key(u: PencilArray, pencil: Pencil) -> tuple[Any, ...]:
    return "transpose", pencil, u.kind


class _KeptTranspose:
    """A plan for fields of one kind, and the agreement on its calls."""

    def __init__(self, source: Pencil, target: Pencil, key: object, plan: Transposition) -> None:
        self._topology = topology = source.topology
        self._target = target
        # That of another communicator if the target was made on a congruent one.
        self._other = target.topology
        self._plans = kept_plans(topology)
        self._plan = plan
        self._key = key
        self._new = allocator(target, plan.spec)
        # Exchanges that must be complete before a block is packed.
        self._under_way = () if plan.moves.pull is None else topology.under_way
        values = {"source": source, "target": target, **plan.spec.signature}
        self._row = PreparedAgreement(topology.comm, "transpose", None, **values)

    def is_ready(self, out: Any) -> bool:
        """Whether the plan is there, and ranks agree on this communicator, whatever `out` is."""
        if self._plan.freed or self._topology.freed or self._other.freed or self._under_way:
            return False
        return out is None or (type(out) is PencilArray and out.pencil.topology is self._other)

    def run(self, u: PencilArray, out: PencilArray | None) -> PencilArray:
        """Move a field of the kind. *Collective*."""
        found = self._plan.agree_on(self._row, u, out, self._new)
        if found is None:  # other ranks have to make something
            return _Request(u, self._target, out).run(deferred=True)
        if next(reversed(self._plans)) is not self._key:  # comparing keys takes longer
            self._plans.move_to_end(self._key)
        move, target = found
        assert target is not None
        unset_ghosts([target])
        move.finish()
        return target


class _Request:
    """A call of `transpose`, whose plan may have to be made first."""

    def __init__(self, u: Any, pencil: Any, out: Any) -> None:
        self.u, self.pencil, self.out = u, pencil, out
        self.topology = topology_among(u, pencil, out)

    def run(self, *, deferred: bool = False) -> PencilArray:
        """Agree, and move the field; `deferred` by an agreement before. *Collective*."""
        if deferred:
            self._set_up()
        agree = agreed(self.topology.comm, "transpose")
        key, move, target = prepare_together(agree, self._bind, self._set_up)
        plans = kept_plans(self.topology)
        plans.move_to_end(key)
        self._keep(next(reversed(plans)), plans[key])
        unset_ghosts([target])
        move.finish()
        return target

    def _bind(self, agree: Agreement) -> tuple[object, Move, PencilArray] | None:
        """Check the arguments and prepare the plan; None if something must be made first."""
        u, pencil, out = self.u, self.pencil, self.out
        check_type("u", u, PencilArray)
        check_type("pencil", pencil, Pencil)
        spec = FieldSpec.of(u)
        agree(source=u.pencil, target=pencil, **spec.signature)
        check_pair(u.pencil, pencil)
        check_out(out, pencil, spec)
        key = u.pencil, pencil, spec
        plan: Transposition | None = kept_plans(self.topology).get(key)
        if plan is None or plan.moves.needs_setup(1):
            return None
        target = PencilArray.allocated(pencil, *spec) if out is None else out
        move = plan.prepared_one(u, target)
        move.pack()
        return key, move, target

    def _keep(self, key: object, plan: Transposition) -> None:
        """Keep the plan for other fields of this kind; `key` is the object that finds it."""
        u, pencil = self.u, self.pencil
        if u.pencil.topology is self.topology:
            keep(u.pencil, _key(u, pencil), _KeptTranspose(u.pencil, pencil, key, plan))

    def _set_up(self) -> None:
        """Make the plan, or complete what is under way. *Collective*."""
        key = self.u.pencil, self.pencil, FieldSpec.of(self.u)
        buffers = plan_buffers(self.topology)  # all kept plans share their memory
        plan: Transposition = kept_plan(
            self.topology, key, lambda: Transposition.for_spec(*key, AUTO, buffers=buffers)
        )
        plan.moves.set_up(1)
