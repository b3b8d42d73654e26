"""Fill ghosts, or add them to their owners: the plan `HaloExchange`, and functions that keep plans.

1. `_agree_on_fields` checks the fields; ranks agree on them in `prepare_together`.
2. `HaloExchange.prepared` slices their padded blocks, unless it has done so before.
3. The prepared call runs the steps of `pencils.halo.schedule`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from pencils.array.operands import check_type, common_pencil, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO, Handle
from pencils.comm.methods import METHODS
from pencils.comm.shared_memory import Buffers
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.halo.schedule import (
    MEASURE,
    ROUTES,
    HaloOptions,
    HaloSchedule,
    HaloSpec,
    PreparedHalo,
    choose_options,
)
from pencils.pencil import Pencil
from pencils.plan import Agreement, Plan, kept_plan, kept_plans, plan_buffers, prepare_together


class HaloExchange(Plan[PreparedHalo]):
    """Reusable plan that fills the ghosts of one or several fields. Making it is *Collective*.

    Ghosts are the points of the padded blocks that other ranks own, or that a periodic dimension
    repeats. A halo may be wider than the blocks of the neighbours, and blocks may be empty; ranks
    without own points get no ghosts. Boundary points, beyond the ends of dimensions that are not
    periodic, stay as they are: see `PencilArray.fill_boundary`.

    Ranks of the same node read fields in shared memory (``shared=True``) directly. Of other fields,
    large contiguous faces are sent by messages, and the rest is packed.

    Parameters
    ----------
    fields : PencilArray or sequence of PencilArray
        Examples of the fields that will be exchanged together. They may differ in dtype,
        components, singletons, halo and memory order, but must have the same blocks. One message to
        each neighbour contains the small pieces of all of them.
    corners : bool, optional
        Whether to fill ghosts beyond several dimensions, which star-shaped stencils do not need.
    route : {"auto", "direct", "sweeps", "measure"}, optional
        How corners are filled: by one exchange with all neighbours, diagonal ones included, or by
        one exchange for each decomposed dimension in turn, with fewer messages. "auto" is direct.
        "measure" times all routes, and all methods unless one is named, on `fields`, and uses the
        fastest; "auto", and the methods of fields, then use it for such fields, too.
    method : {"auto", "shared", "hybrid", "messages"}, optional
        How data move: through memory that the ranks of a node share, by that and messages between
        nodes, or by messages. "auto" uses shared memory between ranks of one node.
    check : bool, optional
        Whether all ranks agree on the arguments of every call, so that a mistake on one rank raises
        on all. Without it, a call communicates nothing but the data.

    Attributes
    ----------
    method, route : str
        The method and route in use.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if an argument does not fit.
    RankDisagreementError
        On every rank, if ranks passed different arguments, or fields that differ in more than data.

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((8, 6), periodic=True)
    >>> u = pencils.from_function(pen, lambda i, j: 10.0 * i + j, halo=1)
    >>> with HaloExchange(u) as plan:
    ...     plan(u)
    >>> u.shift((1, 0))[7, 3]  # the ghost after the last row is the first row
    np.float64(3.0)
    """

    def __init__(
        self,
        fields: PencilArray | Sequence[PencilArray],
        *,
        corners: bool = True,
        route: str = AUTO,
        method: str = AUTO,
        check: bool = True,
    ) -> None:
        with agreed(topology_among(fields).comm, "HaloExchange") as agree:
            for name, value, known in (
                ("route", route, [AUTO, *ROUTES, MEASURE]),
                ("method", method, [AUTO, *(key for key in METHODS if METHODS[key].versatile)]),
            ):
                if value not in known:
                    raise ArgumentError(f"unknown {name} {value!r}; choose from {', '.join(known)}")
            agree(corners=bool(corners), route=route, method=method, check=bool(check))
            given, _ = _agree_on_fields(agree, fields)
        options = HaloOptions(bool(corners), route, method, private=agree.flagged)
        self._set(given, options, Buffers(), check=bool(check))

    @classmethod
    def for_fields(
        cls, fields: Sequence[PencilArray], options: HaloOptions, buffers: Buffers
    ) -> HaloExchange:
        """Make a plan from arguments that all ranks agree on; calls do not check. *Collective*."""
        plan = object.__new__(cls)
        plan._set(fields, options, buffers, check=False)
        return plan

    def _set(
        self, fields: Sequence[PencilArray], options: HaloOptions, buffers: Buffers, *, check: bool
    ) -> None:
        topology, blocks = fields[0].pencil.topology, [u.padded for u in fields]
        self._pencils = [u.pencil for u in fields]
        self._specs = tuple(HaloSpec.of(u) for u in fields)
        self._buffers = buffers
        self._options = choose_options(topology, self._specs, options, buffers, blocks)
        self._filling = HaloSchedule(topology, self._specs, self._options, buffers)
        self._adding: HaloSchedule | None = None  # made by the first call of `accumulate`
        self.route, self.method = self._options.route, self._filling.method
        super().__init__(topology, check=check)

    @property
    def memory(self) -> int:
        """Bytes of this rank that are kept for packing."""
        return self._buffers.nbytes

    def __call__(self, *fields: PencilArray) -> None:
        """Fill the ghosts of `fields`. *Collective*.

        Parameters
        ----------
        *fields : PencilArray
            As many as the plan was made for, each like the field in its place.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            If a field does not fit the plan; on every rank, unless the plan does not check.
        """
        if not self._check:
            # The same fields have passed the checks before.
            found = self._found((False, *map(id, fields)))
            if found is not None:
                found.run()
                return
        self._prepare_fields("__call__", fields).run()

    def start(self, *fields: PencilArray) -> Handle[None]:
        """Start filling the ghosts, and return before it is done. *Collective*.

        Until ``wait()`` of the returned handle, which all ranks must call, own points may be read,
        but not written. Several exchanges may be under way, of this plan and of others. No other
        collective call should come between waits that ranks make in different orders. Wait before
        you start the same field again: otherwise two messages arrive in the same ghosts at once,
        which MPI forbids, and which simulated ranks report.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            As a call.
        """
        return self._prepare_fields("start", fields).start()

    def accumulate(self, *fields: PencilArray) -> None:
        """Add all ghosts to the points they are copies of, and zero them. *Collective*.

        This is the adjoint of filling them: for all blocks x, y with halo, the scalar products of
        (filled x) with y and of x with (accumulated y) are equal.

        Parameters
        ----------
        *fields : PencilArray
            As for a call; numbers only.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            As a call.
        """
        self._prepare_fields("accumulate", fields, adjoint=True).run()

    def _release(self) -> None:
        self._filling.free()
        if self._adding is not None:
            self._adding.free()
        self._buffers = Buffers()

    def _describe(self) -> str:
        specs = ", ".join(map(str, self._specs))
        route = self.route if self._options.corners else "without corners"
        text = f"<HaloExchange of {specs} by {self.method}, {route}"
        return f"{text}\n  on Pencil({self._specs[0].layout})>"

    def _prepare_fields(
        self, call: str, fields: Sequence[PencilArray], *, adjoint: bool = False
    ) -> PreparedHalo:
        return self._prepare(
            call, lambda _: self.prepared(fields, adjoint=adjoint), self.make_adjoint
        )

    def prepared(
        self, fields: Sequence[PencilArray], *, adjoint: bool = False
    ) -> PreparedHalo | None:
        """Check and slice fields, and allocate what their exchange needs; local.

        It returns None if `make_adjoint` must be called first.
        """
        key = (adjoint, *map(id, fields))
        found = self._found(key)
        if found is None:
            _check_fields(fields, self._pencils, self._specs)
            if adjoint:
                _check_numeric(self._specs)
            schedule = self._adding if adjoint else self._filling
            if schedule is None:
                return None
            found = schedule.bind([u.padded for u in fields])
            self._remember(key, found, fields)
        found.reserve()
        return found

    def make_adjoint(self) -> None:
        """Make the steps of `accumulate`, unless they exist. *Collective*."""
        if self._adding is None:
            given = self._topology, self._specs, self._options, self._buffers
            self._adding = HaloSchedule(*given, adjoint=True)


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
    prepare_kept("exchange_halos", fields, corners=corners).run()


def prepare_kept(
    call: str, fields: PencilArray | Sequence[PencilArray], *, corners: bool, adjoint: bool = False
) -> PreparedHalo:
    """Agree on the fields, and prepare the kept plan for their specs. *Collective*."""
    topology = topology_among(fields)
    plans = kept_plans(topology)

    def bind(agree: Agreement) -> list[tuple[Any, PreparedHalo | None]] | None:
        options = HaloOptions(bool(corners), AUTO, AUTO, private=True)
        agree(corners=options.corners)
        given, specs = _agree_on_fields(agree, fields, adjoint=adjoint)
        # If fields are private on another rank only, the plan for private ones is used here, too.
        keys = [(specs, options)]
        if not agree.flagged:
            keys.insert(0, (specs, options._replace(private=False)))
        found = [plan and plan.prepared(given, adjoint=adjoint) for plan in map(plans.get, keys)]
        return None if found[0] is None else list(zip(keys, found, strict=True))

    def make_plan() -> None:
        given = _as_fields(fields)
        options = HaloOptions(bool(corners), AUTO, AUTO, private=agree.flagged)
        key = tuple(HaloSpec.of(u) for u in given), options
        buffers = plan_buffers(topology)
        plan: HaloExchange = kept_plan(
            topology, key, lambda: HaloExchange.for_fields(given, options, buffers)
        )
        if adjoint:
            plan.make_adjoint()

    agree = agreed(topology.comm, call)
    key, prepared = prepare_together(agree, bind, make_plan)[-1 if agree.flagged else 0]
    plans.move_to_end(key)
    assert prepared is not None
    return prepared


def _agree_on_fields(
    agree: Agreement, fields: Any, *, adjoint: bool = False
) -> tuple[list[PencilArray], tuple[HaloSpec, ...]]:
    """Check the fields of an exchange, and record what ranks must agree on.

    The agreement is flagged if a field is not in memory that other ranks of the node can read.
    """
    given = _as_fields(fields)
    specs = tuple([HaloSpec.of(u) for u in given])
    if adjoint:
        _check_numeric(specs)
    agree(
        fields=len(given),
        pencils=[u.pencil for u in given],
        dtypes=[spec.dtype for spec in specs],
        components=[spec.components for spec in specs],
        singletons=[sorted(spec.singletons) for spec in specs],
        halos=[spec.halo for spec in specs],
        trimmed=[sorted(spec.trimmed) for spec in specs],
    )
    if not any(any(map(any, spec.halo)) for spec in specs):
        what = "the field has no halo" if len(given) == 1 else "none of the fields has a halo"
        raise ArgumentError(
            f"{what}, so that there are no ghosts; make it with one, as in zeros(pencil, halo=1), "
            "or leave out this call"
        )
    if not agree.flagged:  # by the agreement before this one
        agree.flag(up=not all(u.pencil.topology.is_shared(u.padded) for u in given))
    return given, specs


def _as_fields(fields: Any) -> list[PencilArray]:
    """Return a list of one field, or of several distinct ones that have the same blocks."""
    if isinstance(fields, PencilArray):
        fields = [fields]
    if not isinstance(fields, list | tuple):
        raise TypeError(
            f"fields must be a PencilArray or a sequence of them, not {type(fields).__name__}"
        )
    if not fields:
        raise ArgumentError("fields must hold at least one field")
    for number, u in enumerate(fields):
        check_type("a field" if len(fields) == 1 else f"fields[{number}]", u, PencilArray)
        if not u.padded.flags.writeable:
            raise ArgumentError("a field is read-only, like the data it views; take u.copy()")
    first = fields[0].pencil
    # On staggered grids the pencils differ, but neighbours are the same for all fields.
    if not all(u.pencil is first or u.pencil.shares_blocks(first) for u in fields):
        common_pencil(fields)  # raises the error that names both pencils
    if any(np.may_share_memory(one.padded, two.padded) for one, two in combinations(fields, 2)):
        raise ArgumentError(
            "two of the fields share memory; give each once, and no views of another one"
        )
    return list(fields)


def _check_fields(
    fields: Sequence[PencilArray], pencils: Sequence[Pencil], specs: Sequence[HaloSpec]
) -> None:
    """Check that fields fit the pencils and specs of a plan."""
    if len(fields) != len(specs):
        raise ArgumentError(f"the plan is for {len(specs)} fields, but got {len(fields)}")
    _as_fields(fields)
    for number, (u, pencil, spec) in enumerate(zip(fields, pencils, specs, strict=True)):
        if not u.pencil.same_blocks(pencil):
            msg = f"field {number} lies on\n{u.pencil!r}\nbut the plan is for\n{pencil!r}"
            if not u.pencil.same_ranks(pencil):
                msg += "\nover other processes, or over the same in another order"
            raise PencilMismatchError(msg)
        if u.pencil.periodic != pencil.periodic:
            raise PencilMismatchError(
                f"field {number} lies on a pencil with periodic={u.pencil.periodic}; the plan "
                f"is for {pencil.periodic}, which decides where ghosts come from"
            )
        given = HaloSpec.of(u)
        for name in ("dtype", "components", "singletons", "halo", "trimmed"):
            here, wanted = getattr(given, name), getattr(spec, name)
            if here != wanted:
                raise ArgumentError(f"field {number} has {name} {here}; the plan is for {wanted}")


def _check_numeric(specs: Sequence[HaloSpec]) -> None:
    """Check that ghosts can be added."""
    for spec in specs:
        if spec.dtype.kind not in "iufc":
            raise TypeError(f"ghosts of dtype {spec.dtype} cannot be added up; that takes numbers")
