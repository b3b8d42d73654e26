"""Verbs that exchange halos by plans which are kept: `exchange_halos` and methods of fields.

1. The same field again finds its `_Call`: nothing is compared but identities.
2. Another field of the same kind finds the plans of its kind (`_Kind`), and gets a call.
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
    HaloExchange,
    any_private,
    as_fields,
    check_halo,
    check_numeric,
    values_of,
)
from pencils.halo.prepared import PreparedHalo, PulledHalo
from pencils.halo.schedule import HaloOptions, HaloSpec, measured_way
from pencils.plans import Agreement, kept_plan, kept_plans, plan_buffers, prepare_together

_SLOT = "_kept_halo"  # of fields, for their `_Call`


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
        self._row: Row | None = None

    def make(self, fields: Sequence[PencilArray], *, private: bool) -> HaloExchange:
        """Make the plan for fields, unless it exists. *Collective*."""
        if private not in self.plans:
            topology = fields[0].pencil.topology
            options = HaloOptions(self.kind.corners, AUTO, AUTO, private, meets=True)
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

    def row(self, u: PencilArray) -> Row:
        """Return the agreement on a call of `exchange_halo` for a field."""
        if self._row is None:
            values = values_of([u], self.kind.specs, corners=self.kind.corners)
            self._row = Row(u.pencil.topology.comm, "exchange_halo", None, **values)
        return self._row

    def free(self) -> None:
        """Free the plans. *Collective* if anything is under way."""
        self.freed = True
        for plan in self.plans.values():
            plan.free()


class _Call:
    """The method `exchange_halo` of a field that was prepared.

    This is the path of calls in a loop: it looks at what may have changed, and calls little.
    """

    __slots__ = (
        *("_block", "_flags", "_found", "_kept", "_meet", "_plans", "_pulled"),
        *("_row", "_topology", "corners"),
    )

    def __init__(
        self, u: PencilArray, kept: _KeptPlans, found: list[PreparedHalo], *, private: bool
    ) -> None:
        self._topology = topology = u.pencil.topology
        self._plans = kept_plans(topology)
        self._block = u.padded  # not the field, which owns this call
        self.corners = kept.kind.corners
        self._kept = kept
        self._row = kept.row(u)
        self._meet = self._row.meet
        # Where fields lie does not matter if there is one plan for all.
        self._flags = FLAGGED if private and not kept.same else 0
        self._found = found
        only = found[0]
        self._pulled = only.prepared if isinstance(only, PulledHalo) and len(found) == 1 else None

    def run(self, u: PencilArray, corners: bool) -> bool:  # noqa: FBT001 - faster
        """Exchange; False if the call does not fit any more. *Collective* if it fits."""
        topology, pulled = self._topology, self._pulled
        if (
            corners is not self.corners
            or not self._block.flags.writeable
            or topology.under_way
            or topology.freed
            or self._kept.freed
        ):
            return False
        if pulled is None or current.recorder is not None:
            return self._run_any(u)
        turn = pulled.staging.turn
        try:
            pulled.packs[turn]()
        except Exception as error:
            self._row.meet(error)
            raise
        flags = self._meet(None, self._flags)
        if flags & DEFERRED:
            return self._run_later(u, flags)
        pulled.staging.turn = 1 - turn
        pulled.pulls[turn]()
        if len(self._plans) > 1:
            self._plans.move_to_end(self._kept.kind)
        return True

    def _run_any(self, u: PencilArray) -> bool:
        """Do the same by any method."""
        found = self._found
        try:
            for halo in found:
                halo.reserve()
        except Exception as error:
            self._row.meet(error)
            raise
        flags = self._row.meet(None, self._flags)
        if flags & DEFERRED:
            return self._run_later(u, flags)
        found[-1 if flags & FLAGGED else 0].move()
        self._plans.move_to_end(self._kept.kind)
        return True

    def _run_later(self, u: PencilArray, flags: int) -> bool:
        """Make what some ranks need, and agree again. *Collective*."""
        _Request("exchange_halo", [u], corners=self.corners).prepare(flags).move()
        return True


class _Request:
    """A call of a verb, whose plans may have to be made first."""

    def __init__(self, call: str, fields: Any, *, corners: bool, adjoint: bool = False) -> None:
        self.call = call
        self.fields = fields
        self.corners = corners  # any object, which `_bind` converts, where ranks agree on errors
        self.adjoint = adjoint
        self.topology = topology_among(fields)
        self.agree = agreed(self.topology.comm, call)

    def prepare(self, flags: int | None = None) -> PreparedHalo:
        """Agree and prepare; `flags` are those of an agreement before. *Collective*."""
        if flags is not None:
            self.agree.flag(up=bool(flags & FLAGGED))
            self._make_missing()
        found = prepare_together(self.agree, self._bind, self._make_missing)
        kept_plans(self.topology).move_to_end(self._kind(as_fields(self.fields)))
        return found[-1 if self.agree.flagged else 0]

    def _kind(self, fields: Sequence[PencilArray]) -> _Kind:
        return _Kind(tuple([HaloSpec.of(u) for u in fields]), corners=self.corners)

    def _bind(self, agree: Agreement) -> list[PreparedHalo] | None:
        """Check and prepare the fields; None if something must be made first."""
        fields = as_fields(self.fields)
        self.corners = bool(self.corners)
        kind = self._kind(fields)
        if self.adjoint:
            check_numeric(kind.specs)
        agree(**values_of(fields, kind.specs, corners=kind.corners))
        check_halo(kind.specs)
        if not agree.flagged:  # by the agreement before this one
            agree.flag(up=any_private(fields))
        kept = kept_plans(self.topology).get(kind)
        plans = kept.find(private=agree.flagged) if kept else [None]
        started = self.call == "start_halo_exchange"
        given = {"adjoint": self.adjoint, "started": started}
        found = [None if plan is None else plan.prepared(fields, **given) for plan in plans]
        # What only fields that are private on another rank need may be missing.
        return None if found[0] is None else [each for each in found if each is not None]

    def _make_missing(self) -> None:
        """Complete older exchanges, and make plans. *Collective*."""
        fields = as_fields(self.fields)
        kind = self._kind(fields)
        kept = kept_plan(self.topology, kind, lambda: _KeptPlans(kind))
        plan = kept.make(fields, private=self.agree.flagged)
        plan.make_missing(adjoint=self.adjoint)


def exchange_halo(u: PencilArray, *, corners: bool) -> None:
    """Fill the ghosts of a field that has no call, or one that does not fit. *Collective*."""
    call = _find_call(u, corners=corners)
    if call is None or not call.run(u, call.corners):
        _Request("exchange_halo", [u], corners=corners).prepare().move()


def _find_call(u: PencilArray, *, corners: bool) -> _Call | None:
    """Prepare a call if the plans for it exist and nothing is wrong; local."""
    try:
        (u,) = as_fields(u)
        kind = _Kind((HaloSpec.of(u),), corners=bool(corners))
        kept = kept_plans(u.pencil.topology).get(kind)
        private = any_private([u])
        if kept is None or kept.find(private=private)[0] is None:
            return None
        plans = [plan for plan in kept.find(private=private) if plan is not None]
        call = _Call(u, kept, [plan.bind([u]) for plan in plans], private=private)
    except Exception:  # noqa: BLE001 - raised again where all ranks agree
        return None
    setattr(u, _SLOT, call)
    return call


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
    prepare_kept("exchange_halos", fields, corners=corners).move()


def prepare_kept(
    call: str, fields: PencilArray | Sequence[PencilArray], *, corners: bool, adjoint: bool = False
) -> PreparedHalo:
    """Agree on the fields, and prepare the kept plan of their kind. *Collective*."""
    return _Request(call, fields, corners=corners, adjoint=adjoint).prepare()
