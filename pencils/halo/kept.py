"""Verbs that exchange halos by plans which are kept: `exchange_halos` and methods of fields.

1. The same fields again find their `_HaloCall`: nothing is compared but identities.
2. Other fields of the same kind find the plans of their kind (`_KeptPlans`), and get a call.
3. Otherwise `_Halos` makes the plans, together with all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import DEFERRED, FLAGGED, PreparedAgreement
from pencils.comm.exchange import AUTO
from pencils.comm.methods.pull import PreparedPull
from pencils.comm.recording import current
from pencils.halo.exchange import (
    ADD,
    FILL,
    START,
    HaloExchange,
    any_private,
    as_fields,
    check_halo,
    check_numeric,
    measured_way,
    values_of,
)
from pencils.halo.schedule import HaloOptions, HaloSpec, PreparedHalo, make_ready
from pencils.plans import Agreement, KeptCall, KeptVerb, PlanKey, kept_plans, plan_buffers

_SLOT = "_kept_halo"  # of fields, for their `_HaloCall` of `exchange_halo`
# What verbs do that do not fill ghosts at once.
_TASKS = {"start_halo_exchange": START, "accumulate_halo": ADD}


class _KeptPlans:
    """The plans for fields of one kind, by whether any of them is private; equal on all ranks."""

    def __init__(self, key: PlanKey) -> None:
        self.key = key
        self.specs: tuple[HaloSpec, ...]
        self.corners: bool
        self.specs, self.corners = key
        self.plans: dict[bool, HaloExchange] = {}
        self.freed = False
        self._agreements: dict[str, PreparedAgreement] = {}  # by verb

    def make(self, fields: Sequence[PencilArray], *, private: bool) -> HaloExchange:
        """Make the plan for fields, unless it exists. *Collective*."""
        if private not in self.plans:
            topology = fields[0].pencil.topology
            options = HaloOptions(self.corners, AUTO, AUTO, private)
            plan = HaloExchange.for_fields(fields, options, plan_buffers(topology))
            self.plans[private] = plan
            # Where fields lie does not matter to it, unless another way was measured for them.
            other = options._replace(private=not private)
            if plan.synchronizes and measured_way(topology, self.specs, other) is None:
                self.plans.setdefault(not private, plan)
        return self.plans[private]

    def find(self, *, private: bool) -> list[HaloExchange | None]:
        """List the plans that this rank may use: the last one if the fields of any are private."""
        plans = map(self.plans.get, [True] if private else [False, True])
        return list(dict.fromkeys(plans))  # for small fields both are the same

    def agreement(self, verb: str, fields: Sequence[PencilArray]) -> PreparedAgreement:
        """Return the agreement on a call of a verb for such fields."""
        found = self._agreements.get(verb)
        if found is None:
            values = values_of(fields, self.specs, corners=self.corners)
            comm = fields[0].pencil.topology.comm
            found = self._agreements[verb] = PreparedAgreement(comm, verb, None, **values)
        return found

    def free(self) -> None:
        """Free the plans. *Collective* if anything is under way."""
        self.freed = True
        for plan in self.plans.values():
            plan.free()


class _HaloCall(KeptCall[_KeptPlans]):
    """A call of a verb for given fields that was prepared.

    This is the path of calls in a loop: it looks at what may have changed, and calls little.
    """

    __slots__ = ("_blocks", "_flags", "_found", "_meet", "_plans", "_pulled", "_verb", "corners")

    def __init__(
        self, verb: str, fields: Sequence[PencilArray], key: PlanKey, found: list[PreparedHalo]
    ) -> None:
        topology = fields[0].pencil.topology
        kept: _KeptPlans = kept_plans(topology)[key]
        agreement = kept.agreement(verb, fields)
        super().__init__(topology, key, agreement, waits=_TASKS.get(verb) != START)
        self._verb = verb
        self._blocks = [u.padded for u in fields]  # not the fields, which own this call
        self.corners = kept.corners
        self._meet = agreement.meet
        # Where fields lie does not matter if there is one plan for all.
        same = kept.plans.get(True) is kept.plans.get(False)
        self._flags = FLAGGED if not same and any_private(fields) else 0
        self._found = found
        self._plans = len(kept.plans)  # a plan that was made later may be the one to run
        only = found[0]
        self._pulled = only if isinstance(only, PreparedPull) and len(found) == 1 else None

    @property
    def outdated(self) -> bool:
        """Whether the plans were freed, or others were made since."""
        return self.plan.freed or len(self.plan.plans) != self._plans

    def _fits(self, corners: object) -> bool:
        """Whether nothing has changed."""
        if corners is not self.corners or self.topology.freed or self.under_way or self.outdated:
            return False
        for block in self._blocks:  # noqa: SIM110 - faster
            if not block.flags.writeable:
                return False
        return True

    def run(self, fields: Any, corners: object) -> bool:
        """Exchange; False if the call does not fit any more. *Collective* if it fits."""
        pulled = self._pulled
        if pulled is None or current.recorder is not None:
            found = self.prepare(fields, corners)
            if found is not None:
                found.run_agreed()
            return found is not None
        if not self._fits(corners):
            return False
        turn = pulled.staging.turn
        try:
            pulled.packs[turn]()
        except Exception as error:
            self._meet(error)
            raise
        flags = self._meet(None, self._flags)
        if flags & DEFERRED:
            _Halos(self._verb, fields, corners=corners).prepared(flags).run_agreed()
            return True
        pulled.staging.turn = 1 - turn
        pulled.pulls[turn]()
        if len(self.plans) > 1:
            self.plans.move_to_end(self.key)
        return True

    def prepare(self, fields: Any, corners: object) -> PreparedHalo | None:
        """Agree on the call; None if it does not fit any more. *Collective* if it fits."""
        if not self._fits(corners):
            return None
        _, flags = self.agreement.attempt(self._reserve, self._flags)
        if flags & DEFERRED:
            return _Halos(self._verb, fields, corners=corners).prepared(flags)
        self.touch()
        return self._found[-1 if flags & FLAGGED else 0]

    def _reserve(self) -> None:
        for halo in self._found:
            make_ready(halo)


class _Halos(KeptVerb[_KeptPlans, list[PreparedHalo]]):
    """A call of a verb, whose plans may have to be made first."""

    def __init__(self, verb: str, fields: Any, *, corners: object) -> None:
        super().__init__(verb, topology_among(fields))
        self._given = fields
        self._corners = corners  # converted where ranks agree on errors
        self._task = _TASKS.get(verb, FILL)

    def signature(self, agree: Agreement) -> PlanKey:
        """Check the fields, and whether any is private."""
        self._fields = fields = as_fields(self._given)
        specs, corners = key = tuple(map(HaloSpec.of, fields)), bool(self._corners)
        if self._task == ADD:
            check_numeric(specs)
        agree(**values_of(fields, specs, corners=corners))
        check_halo(specs)
        if not agree.flagged:  # by the agreement before this one
            agree.flag(up=any_private(fields))
        return key

    def make(self) -> _KeptPlans:
        """Keep that there are fields of this kind."""
        return _KeptPlans(self.key)

    def bind(self, plan: _KeptPlans) -> list[PreparedHalo] | None:
        """Prepare the plans for shared and for private fields."""
        plans = plan.find(private=self.agree.flagged)
        found = [
            None if each is None else each.prepared(self._fields, self._task) for each in plans
        ]
        # What only fields that are private on another rank need may be missing.
        return None if found[0] is None else [each for each in found if each is not None]

    def set_up(self, plan: _KeptPlans) -> None:
        """Complete older exchanges, and make plans. *Collective*."""
        plan.make(self._fields, private=self.agree.flagged).set_up(self._task)

    def prepared(self, flags: int | None = None) -> PreparedHalo:
        """Agree and prepare; `flags` are those of an agreement before. *Collective*."""
        found = self.prepare(flags)
        return found[-1 if self.agree.flagged else 0]


def exchange_halo(u: PencilArray, *, corners: bool) -> None:
    """Fill the ghosts of a field that has no call, or one that does not fit. *Collective*."""
    call = _find_call("exchange_halo", u, corners=corners)
    if call is not None:
        setattr(u, _SLOT, call)
    if call is None or not call.run(u, call.corners):
        _Halos("exchange_halo", [u], corners=corners).prepared().run_agreed()


def _find_call(verb: str, given: Any, *, corners: bool) -> _HaloCall | None:
    """Prepare a call if the plans for it exist and nothing is wrong; local."""
    try:
        fields = as_fields(given)
        key = tuple(map(HaloSpec.of, fields)), bool(corners)
        kept = kept_plans(fields[0].pencil.topology).get(key)
        if kept is None:
            return None
        task = _TASKS.get(verb, FILL)
        plans = kept.find(private=any_private(fields))
        found = [None if plan is None else plan.bind(fields, task) for plan in plans]
        if found[0] is None:
            return None
        return _HaloCall(verb, fields, kept.key, [each for each in found if each])
    except Exception:  # noqa: BLE001 - raised again where all ranks agree
        return None


def exchange_halos(fields: Sequence[PencilArray], *, corners: bool = True) -> None:
    """Fill the ghosts of several fields at once. *Collective*.

    One message to each neighbour contains the pieces of all fields, whatever their dtypes and
    widths; only pieces of a quarter of a MiB and more have messages of their own. Plans are kept,
    so calls in a loop are cheap; `HaloExchange` gives control over route, method and checks.

    Parameters
    ----------
    fields : sequence of PencilArray
        Fields with the same blocks; dtypes, components, singletons and widths may differ.
    corners : bool, optional
        Whether to fill ghosts beyond several dimensions.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if the fields do not fit each other, none has a halo, or their communicator
        was freed.
    RankDisagreementError
        On every rank, if ranks passed fields that differ in more than their data.

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((8, 6), periodic=True)
    >>> u, v = pencils.ones(pen, halo=1), pencils.ones(pen, dtype=complex, halo=(2, 0))
    >>> exchange_halos([u, v])
    """
    call = _kept_call("exchange_halos", fields, corners=corners)
    if call is None and type(fields) in (list, tuple) and any(map(_is_traced, fields)):
        for u in fields:  # in a fused function, which joins them
            u.exchange_halo(corners=corners)
    elif call is None or not call.run(fields, corners):
        _Halos("exchange_halos", fields, corners=corners).prepared().run_agreed()


def _is_traced(value: Any) -> bool:
    # Not isinstance: an object whose class cannot be asked for raises later, where all ranks agree.
    return issubclass(type(value), PencilArray) and value.record is not None


def prepare_kept(verb: str, fields: Sequence[PencilArray], *, corners: bool) -> PreparedHalo:
    """Agree on the fields, and prepare the kept plan of their kind. *Collective*."""
    call = _kept_call(verb, fields, corners=corners)
    found = None if call is None else call.prepare(fields, corners)
    return _Halos(verb, fields, corners=corners).prepared() if found is None else found


def _kept_call(verb: str, fields: Any, *, corners: bool) -> _HaloCall | None:
    """Return the call that was prepared for these very fields, or prepare one; local."""
    first = fields[0] if type(fields) in (list, tuple) and fields else None
    if type(first) is not PencilArray or type(corners) is not bool:
        return None
    key = verb, corners, *map(id, fields)
    call: _HaloCall | None = first.kept.find(key)
    if call is None or call.outdated:
        call = _find_call(verb, fields, corners=corners)
        if call is not None:
            first.kept.add(key, call, fields[1:])
    return call
