"""Verbs that exchange halos by plans which are kept: `exchange_halos` and methods of fields.

1. The same fields again find their `_Call`: nothing is compared but identities.
2. Other fields of the same kind find the plans of their kind (`_Kind`), and get a call.
3. Otherwise `_Request` makes the plans, together with all ranks.

The ranks agree on each call, on any of these ways, by the same collective. So they may take
different ones; what they do next follows from what they agree on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import DEFERRED, FLAGGED, Row, agreed
from pencils.comm.exchange import AUTO
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
    values_of,
)
from pencils.halo.prepared import PreparedHalo, PulledHalo
from pencils.halo.schedule import HaloOptions, HaloSpec, measured_way
from pencils.plans import (
    Agreement,
    kept_plan,
    kept_plans,
    plan_buffers,
    prepare_together,
)

_SLOT = "_kept_halo"  # of fields, for their `_Call` of `exchange_halo`
# What verbs do that do not fill ghosts at once.
_TASKS = {"start_halo_exchange": START, "accumulate_halo": ADD}


class _Kind:
    """What decides on the plan for some fields; its hash is computed once."""

    __slots__ = ("_hash", "corners", "specs")

    def __init__(self, specs: tuple[HaloSpec, ...], *, corners: bool) -> None:
        self.specs = specs
        self.corners = corners
        self._hash = hash((specs, corners))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Kind) and self.corners == other.corners and self.specs == other.specs
        )


class _KeptPlans:
    """The plans for fields of one kind, by whether any of them is private; equal on all ranks."""

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.plans: dict[bool, HaloExchange] = {}
        self.freed = False
        self._rows: dict[str, Row] = {}  # by verb

    def make(self, fields: Sequence[PencilArray], *, private: bool) -> HaloExchange:
        """Make the plan for fields, unless it exists. *Collective*."""
        if private not in self.plans:
            topology = fields[0].pencil.topology
            options = HaloOptions(self.kind.corners, AUTO, AUTO, private)
            plan = HaloExchange.for_fields(fields, options, plan_buffers(topology))
            self.plans[private] = plan
            # Where fields lie does not matter to it, unless another way was measured for them.
            other = options._replace(private=not private)
            if plan.meets and measured_way(topology, self.kind.specs, other) is None:
                self.plans.setdefault(not private, plan)
        return self.plans[private]

    def find(self, *, private: bool) -> list[HaloExchange | None]:
        """List the plans that this rank may use: the last one if the fields of any are private."""
        plans = map(self.plans.get, [True] if private else [False, True])
        return list(dict.fromkeys(plans))  # for small fields both are the same

    @property
    def same(self) -> bool:
        """Whether the plan for private fields is that for others."""
        return self.plans.get(True) is self.plans.get(False)

    def row(self, verb: str, fields: Sequence[PencilArray]) -> Row:
        """Return the agreement on a call of a verb for such fields."""
        row = self._rows.get(verb)
        if row is None:
            values = values_of(fields, self.kind.specs, corners=self.kind.corners)
            row = self._rows[verb] = Row(fields[0].pencil.topology.comm, verb, None, **values)
        return row

    def free(self) -> None:
        """Free the plans. *Collective* if anything is under way."""
        self.freed = True
        for plan in self.plans.values():
            plan.free()


class _Call:
    """A call of a verb for given fields that was prepared.

    This is the path of calls in a loop: it looks at what may have changed, and calls little.
    """

    __slots__ = (
        *("_blocks", "_completes", "_flags", "_found", "_meet", "_plans", "_pulled"),
        *("_row", "_topology", "_verb", "corners", "kept"),
    )

    def __init__(
        self,
        verb: str,
        fields: Sequence[PencilArray],
        kept: _KeptPlans,
        found: list[PreparedHalo],
        *,
        private: bool,
    ) -> None:
        self._verb = verb
        self._topology = topology = fields[0].pencil.topology
        self._plans = kept_plans(topology)
        self._blocks = [u.padded for u in fields]  # not the fields, which own this call
        self.corners = kept.kind.corners
        self._completes = _TASKS.get(verb) != START  # older exchanges
        self.kept = kept
        self._row = kept.row(verb, fields)
        self._meet = self._row.meet
        # Where fields lie does not matter if there is one plan for all.
        self._flags = FLAGGED if private and not kept.same else 0
        self._found = found
        only = found[0]
        self._pulled = only.prepared if isinstance(only, PulledHalo) and len(found) == 1 else None

    def _fits(self, corners: object) -> bool:
        """Whether nothing has changed."""
        topology = self._topology
        if corners is not self.corners or topology.freed or self.kept.freed:
            return False
        if topology.under_way and self._completes:
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
                found.move()
            return found is not None
        if not self._fits(corners):
            return False
        turn = pulled.staging.turn
        try:
            pulled.packs[turn]()
        except Exception as error:
            self._row.meet(error)
            raise
        flags = self._meet(None, self._flags)
        if flags & DEFERRED:
            self._request(fields).prepare(flags).move()
            return True
        pulled.staging.turn = 1 - turn
        pulled.pulls[turn]()
        if len(self._plans) > 1:
            self._plans.move_to_end(self.kept.kind)
        return True

    def prepare(self, fields: Any, corners: object) -> PreparedHalo | None:
        """Agree on the call; None if it does not fit any more. *Collective* if it fits."""
        if not self._fits(corners):
            return None
        found = self._found
        try:
            for halo in found:
                halo.reserve()
        except Exception as error:
            self._row.meet(error)
            raise
        flags = self._row.meet(None, self._flags)
        if flags & DEFERRED:
            return self._request(fields).prepare(flags)
        self._plans.move_to_end(self.kept.kind)
        return found[-1 if flags & FLAGGED else 0]

    def _request(self, fields: Any) -> _Request:
        """Return the call as one for which some ranks must make something first."""
        return _Request(self._verb, fields, corners=self.corners)


class _Request:
    """A call of a verb, whose plans may have to be made first."""

    def __init__(self, call: str, fields: Any, *, corners: bool) -> None:
        self.fields = fields
        self.corners = corners  # any object, which `_bind` converts, where ranks agree on errors
        self.task = _TASKS.get(call, FILL)
        self.topology = topology_among(fields)
        self.agree = agreed(self.topology.comm, call)

    def prepare(self, flags: int | None = None) -> PreparedHalo:
        """Agree and prepare; `flags` are those of an agreement before. *Collective*."""
        if flags is not None:
            self.agree.flag(up=bool(flags & FLAGGED))
            self._make_missing()
        found = prepare_together(self.agree, self._bind, self._make_missing)
        kept_plans(self.topology).move_to_end(
            _kind_of(as_fields(self.fields), corners=self.corners)
        )
        return found[-1 if self.agree.flagged else 0]

    def _bind(self, agree: Agreement) -> list[PreparedHalo] | None:
        """Check and prepare the fields; None if something must be made first."""
        fields = as_fields(self.fields)
        self.corners = bool(self.corners)
        kind = _kind_of(fields, corners=self.corners)
        if self.task == ADD:
            check_numeric(kind.specs)
        agree(**values_of(fields, kind.specs, corners=kind.corners))
        check_halo(kind.specs)
        if not agree.flagged:  # by the agreement before this one
            agree.flag(up=any_private(fields))
        kept = kept_plans(self.topology).get(kind)
        plans = kept.find(private=agree.flagged) if kept else [None]
        found = [None if plan is None else plan.prepared(fields, self.task) for plan in plans]
        # What only fields that are private on another rank need may be missing.
        return None if found[0] is None else [each for each in found if each is not None]

    def _make_missing(self) -> None:
        """Complete older exchanges, and make plans. *Collective*."""
        fields = as_fields(self.fields)
        kind = _kind_of(fields, corners=self.corners)
        kept = kept_plan(self.topology, kind, lambda: _KeptPlans(kind))
        plan = kept.make(fields, private=self.agree.flagged)
        plan.make_missing(self.task)


def exchange_halo(u: PencilArray, *, corners: bool) -> None:
    """Fill the ghosts of a field that has no call, or one that does not fit. *Collective*."""
    call = _find_call("exchange_halo", u, corners=corners)
    if call is not None:
        setattr(u, _SLOT, call)
    if call is None or not call.run(u, call.corners):
        _Request("exchange_halo", [u], corners=corners).prepare().move()


def _find_call(verb: str, given: Any, *, corners: bool) -> _Call | None:
    """Prepare a call if the plans for it exist and nothing is wrong; local."""
    try:
        fields = as_fields(given)
        kind = _kind_of(fields, corners=bool(corners))
        kept = kept_plans(fields[0].pencil.topology).get(kind)
        if kept is None:
            return None
        private = any_private(fields)
        task = _TASKS.get(verb, FILL)
        plans = kept.find(private=private)
        found = [None if plan is None else plan.bind(fields, task) for plan in plans]
        if found[0] is None:
            return None
        return _Call(verb, fields, kept, [each for each in found if each], private=private)
    except Exception:  # noqa: BLE001 - raised again where all ranks agree
        return None


def _kind_of(fields: Sequence[PencilArray], *, corners: bool) -> _Kind:
    return _Kind(tuple([HaloSpec.of(u) for u in fields]), corners=corners)


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
    if call is None or not call.run(fields, corners):
        _Request("exchange_halos", fields, corners=corners).prepare().move()


def prepare_kept(verb: str, fields: Sequence[PencilArray], *, corners: bool) -> PreparedHalo:
    """Agree on the fields, and prepare the kept plan of their kind. *Collective*."""
    call = _kept_call(verb, fields, corners=corners)
    found = None if call is None else call.prepare(fields, corners)
    return _Request(verb, fields, corners=corners).prepare() if found is None else found


def _kept_call(verb: str, fields: Any, *, corners: bool) -> _Call | None:
    """Return the call that was prepared for these very fields, or prepare one; local."""
    first = fields[0] if type(fields) in (list, tuple) and fields else None
    if type(first) is not PencilArray or type(corners) is not bool:
        return None
    key = verb, corners, *map(id, fields)
    call: _Call | None = first.kept.find(key)
    if call is None or call.kept.freed:
        call = _find_call(verb, fields, corners=corners)
        if call is not None:
            first.kept.add(key, call, fields[1:])
    return call
