"""Fill ghosts, and add them back: the plan `HaloExchange`, and the functions that keep plans.

A call checks the fields, and runs the steps of `pencils.halo.schedule` on their padded blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from pencils.array.allocation import Array
from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO, Handle
from pencils.comm.machine import time_in_turn
from pencils.comm.shared_memory import Buffers
from pencils.halo.options import (
    MEASURE,
    HaloOptions,
    are_private,
    as_fields,
    as_options,
    check_fields,
    check_halos,
    check_numeric,
    signature,
)
from pencils.halo.schedule import ROUTES, HaloSchedule, HaloSpec, PreparedHalo
from pencils.plan import (
    Agreement,
    Plan,
    fastest_methods,
    kept_plan,
    kept_plans,
    plan_buffers,
    prepare_together,
    set_fastest,
)

# Of each route and method that is measured.
SAMPLES = 7
CALLS = 5  # in a sample


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
        topology = topology_among(fields)
        with agreed(topology.comm, "HaloExchange") as agree:
            given = as_fields(fields)
            options = as_options(corners=corners, route=route, method=method, check=check)
            agree(**signature(given), **options._asdict())
            check_halos(given)
            agree.flag(up=are_private(given))
        self._set(given, options, Buffers(), private=agree.flagged)

    @classmethod
    def for_fields(
        cls,
        fields: Sequence[PencilArray],
        options: HaloOptions,
        *,
        buffers: Buffers,
        private: bool,
    ) -> HaloExchange:
        """Make a plan from arguments that all ranks agree on. *Collective*."""
        plan = object.__new__(cls)
        plan._set(fields, options, buffers, private=private)
        return plan

    def _set(
        self,
        fields: Sequence[PencilArray],
        options: HaloOptions,
        buffers: Buffers,
        *,
        private: bool,
    ) -> None:
        self._pencils = [u.pencil for u in fields]
        self._specs = [HaloSpec.of(u) for u in fields]
        self._options = options
        self._buffers = buffers
        self._private = private
        self.route, self._method = self._choose(fields)
        self._filling = self._make_schedule(self.route, self._method)
        self._adding: HaloSchedule | None = None  # made by the first call of `accumulate`
        self.method = self._filling.method
        super().__init__(fields[0].pencil.topology, check=options.check)

    def _choose(self, fields: Sequence[PencilArray]) -> tuple[str, str]:
        """Return route and method: named, measured now or before, or by rule. *Collective*."""
        corners, route, method, _ = self._options
        topology = fields[0].pencil.topology
        known = fastest_methods(topology)
        key = _key(self._specs, corners, self._private)
        if route == MEASURE:
            found = self._fastest([u.padded for u in fields])
            self._buffers.clear()
            if method == AUTO:
                set_fastest(topology, key, found)
            return found
        if route == method == AUTO and key in known:
            measured: tuple[str, str] = known[key]
            return measured
        return "direct" if route == AUTO else route, method

    def _fastest(self, blocks: Sequence[Array]) -> tuple[str, str]:
        """Time every route, by every method unless one is named. *Collective*.

        The ghosts of `blocks` are filled. Without corners, all routes are the same.
        """
        topology = self._pencils[0].topology
        near = "shared" if topology.nodes == 1 else "hybrid"
        method = self._options.method
        methods = (AUTO, near, "messages") if method == AUTO else (method,)
        ways = list(product(ROUTES if self._options.corners else ["direct"], methods))
        schedules = [self._make_schedule(*way) for way in ways]
        calls = [_several(schedule.bind(blocks).run) for schedule in schedules]
        seconds = time_in_turn(topology.comm, calls, SAMPLES)
        for schedule in schedules:
            schedule.free()
        return ways[seconds.index(min(seconds))]

    def _make_schedule(self, route: str, method: str, *, adjoint: bool = False) -> HaloSchedule:
        return HaloSchedule(
            self._pencils[0].topology,
            self._specs,
            route=route,
            corners=self._options.corners,
            method=method,
            buffers=self._buffers,
            contiguous=self._private and method == AUTO,
            adjoint=adjoint,
        )

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
        collective call should come between waits that ranks make in different orders.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            As a call.
        """
        return self._prepare_fields("start", fields).start(None)

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
        specs = ", ".join(map(_shown, self._specs))
        route = self.route if self._options.corners else "without corners"
        return (
            f"<HaloExchange of {specs} by {self.method}, {route}\n"
            f"  on Pencil({self._specs[0].layout})>"
        )

    def _prepare_fields(
        self, call: str, fields: Sequence[PencilArray], *, adjoint: bool = False
    ) -> PreparedHalo:
        def bind(_: Agreement) -> PreparedHalo | None:
            return self.prepared(fields, adjoint=adjoint)

        return self._prepare(call, bind, self.make_adjoint)

    def prepared(
        self, fields: Sequence[PencilArray], *, adjoint: bool = False
    ) -> PreparedHalo | None:
        """Check and slice fields, and allocate what their exchange needs; local.

        Returns
        -------
        PreparedHalo or None
            None if `make_adjoint` must be called first.
        """
        key = (adjoint, *map(id, fields))
        found = self._found(key)
        if found is None:
            check_fields(fields, self._pencils, self._specs)
            if adjoint:
                check_numeric(self._specs)
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
            self._adding = self._make_schedule(self.route, self._method, adjoint=True)


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
    # As for a plan, one field is allowed; it cannot be unpacked.
    given = [fields] if isinstance(fields, PencilArray) else fields
    prepare_kept("exchange_halos", given, corners=corners).run()


def prepare_kept(
    call: str, fields: Sequence[PencilArray], *, corners: bool, adjoint: bool = False
) -> PreparedHalo:
    """Agree on the fields, and prepare the kept plan for their specs. *Collective*."""
    topology = topology_among(fields)
    plans = kept_plans(topology)
    agree = agreed(topology.comm, call)

    def bind(agree: Agreement) -> list[tuple[object, PreparedHalo | None]] | None:
        given = as_fields(fields)
        specs = [HaloSpec.of(u) for u in given]
        if adjoint:
            check_numeric(specs)
        agree(**signature(given), corners=bool(corners))
        check_halos(given)
        private = agree.flagged or are_private(given)
        agree.flag(up=private)
        # If fields are private on another rank only, the plan for private ones is used here, too.
        keys = [_key(specs, corners, each) for each in ([True] if private else [False, True])]
        found = [plan and plan.prepared(given, adjoint=adjoint) for plan in map(plans.get, keys)]
        return None if found[0] is None else list(zip(keys, found, strict=True))

    def make_plan() -> None:
        given = as_fields(fields)
        key = _key([HaloSpec.of(u) for u in given], corners, agree.flagged)
        options = HaloOptions(bool(corners), AUTO, AUTO, check=False)
        plan: HaloExchange = kept_plan(
            topology,
            key,
            lambda: HaloExchange.for_fields(
                given, options, buffers=plan_buffers(topology), private=agree.flagged
            ),
        )
        if adjoint:
            plan.make_adjoint()

    key, prepared = prepare_together(agree, bind, make_plan)[-1 if agree.flagged else 0]
    plans.move_to_end(key)
    assert prepared is not None
    return prepared


def _key(specs: Sequence[HaloSpec], corners: object, private: object) -> tuple[object, ...]:
    """Return what the fastest route and method depend on, on a given communicator."""
    return "halo", tuple(specs), bool(corners), private


def _shown(spec: HaloSpec) -> str:
    parts = [f"{spec.dtype}"]
    parts += [f"components {spec.components}"] if spec.components else []
    parts += [f"singleton along {sorted(spec.singletons)}"] if spec.singletons else []
    parts += [f"halo {spec.halo}"]
    parts += [f"trimmed along {sorted(spec.trimmed)}"] if spec.trimmed else []
    return " ".join(parts)


def _several(call: Callable[[], None]) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(CALLS):
            call()

    return calls
