"""Fill ghosts, or add them to their owners: the plan `HaloExchange`.

1. `as_fields` checks the fields.
2. `HaloExchange.prepared` slices their padded blocks, unless it has done so before.
3. All ranks agree.
4. The prepared call runs the steps of `pencils.halo.schedule`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations, product
from typing import Any, cast

import numpy as np

from pencils.array.allocation import Array
from pencils.array.operands import check_type, common_pencil, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO, Handle
from pencils.comm.methods import METHODS
from pencils.comm.recording import makes_plan
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Topology, time_in_turn
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.halo.schedule import (
    ROUTES,
    HaloOptions,
    HaloSchedule,
    HaloSpec,
    PreparedHalo,
    make_ready,
)
from pencils.layout import Traffic
from pencils.pencil import Pencil
from pencils.plans import Plan, fastest_methods, set_fastest

# What a plan does with fields: fill ghosts, start to fill them, or add them to their owners.
FILL, START, ADD = "fill", "start", "add"
MEASURE = "measure"
# Of each route and method that is measured.
SAMPLES = 7
CALLS = 5  # in a sample


class HaloExchange(Plan[PreparedHalo]):
    """Reusable plan that fills the ghosts of one or several fields. Making it is *Collective*.

    Ghosts are the points of the padded blocks that other ranks own, or that a periodic dimension
    repeats. A halo may be wider than the blocks of the neighbours, and blocks may be empty; ranks
    without own points get no ghosts. Boundary points, beyond the ends of dimensions that are not
    periodic, stay as they are: see `PencilArray.fill_boundary`.

    Ranks of the same node read large fields in shared memory (``shared=True``) directly. Of other
    fields, large contiguous faces are sent by messages, and the rest is packed.

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
    method : {"auto", "shared", "hybrid", "gathered", "messages"}, optional
        How data move: through memory that the ranks of a node share; by that and messages between
        nodes; by that and one message for all small pieces from one node to another; or by
        messages. "auto" uses shared memory between ranks of one node, but messages
        for private fields where a node has more ranks than cores.
    check : bool, optional
        Whether all ranks compare the arguments of every call, and all raise if one is wrong.
        Without it, a call communicates nothing but the data.

    Attributes
    ----------
    method, route : str
        The method and route in use. Method "pull" is the one that "auto" uses for small fields if
        all ranks share a node: they pack faces into shared memory, wait for each other, and copy.
        `start` without checks uses another one, because it does not wait for other ranks.

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
    >>> u.shift((1, 0)).item(7, 3)  # the ghost after the last row is the first row
    3.0
    """

    @makes_plan
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
            given = as_fields(fields)
            specs = [HaloSpec.of(u) for u in given]
            corners, check = bool(corners), bool(check)  # where ranks agree that this fails
            agree(**values_of(given, specs, corners=corners))
            agree(route=route, method=method, check=check)
            check_halo(specs)
            agree.flag(up=any_private(given))
        options = HaloOptions(corners, route, method, agree.flagged)
        self._set(given, options, Buffers(), check=check, synchronizes=check)

    @classmethod
    def for_fields(
        cls, fields: Sequence[PencilArray], options: HaloOptions, buffers: Buffers
    ) -> HaloExchange:
        """Make a plan from arguments that all ranks agree on; calls do not check. *Collective*."""
        plan = object.__new__(cls)
        plan._set(fields, options, buffers, check=False, synchronizes=True)
        return plan

    def _set(
        self,
        fields: Sequence[PencilArray],
        options: HaloOptions,
        buffers: Buffers,
        *,
        check: bool,
        synchronizes: bool,
    ) -> None:
        """Make the plan. *Collective*.

        `synchronizes`: a start may wait for all ranks, as calls do.
        """
        topology, blocks = fields[0].pencil.topology, [u.padded for u in fields]
        self._pencils = [u.pencil for u in fields]
        self._specs = tuple(HaloSpec.of(u) for u in fields)
        self._buffers = buffers
        self._options = choose_options(topology, self._specs, options, buffers, blocks)
        self._filling = starting = self._make()
        if self._filling.pull is not None and not synchronizes:
            starting = self._make(synchronizes=False)
        self._schedules = {FILL: self._filling, START: starting}  # that to `ADD` is made later
        self.route, self.method = self._options.route, self._filling.method
        super().__init__(topology, check=check)

    def _make(self, **how: bool) -> HaloSchedule:
        """Make steps. *Collective*."""
        topology = self._pencils[0].topology
        return HaloSchedule(topology, self._specs, self._options, self._buffers, **how)

    @property
    def synchronizes(self) -> bool:
        """Whether ranks must meet in each call, because small fields are pulled."""
        return self._filling.pull is not None

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
        # The same fields have passed the checks before.
        found = self._found((self._filling, *map(id, fields)))
        if not self._check:
            (found or self._prepare_fields("__call__", fields, FILL)).run()
            return
        if found is None or (self.synchronizes and self._topology.under_way):
            found = self._prepare_fields("__call__", fields, FILL)
        else:
            _, flags = self._row("__call__").attempt(partial(make_ready, found))
            if flags:  # some ranks have to make something
                self.set_up(FILL)
                found = self._prepare_fields("__call__", fields, FILL)
        found.run_agreed()

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
        return self._prepare_fields("start", fields, START).start(None)

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
        self._prepare_fields("accumulate", fields, ADD).run_agreed()

    def off_node(self) -> Traffic:
        """Count what all ranks send to other nodes in a call. *Collective*.

        Returns
        -------
        Traffic
            Number of messages, and of bytes, the same on every rank.
        """
        self._check_together("off_node")
        phases = [exchange.off_node() for exchange in self._filling.exchanges]
        return Traffic(sum(each.messages for each in phases), sum(each.nbytes for each in phases))

    def _release(self) -> None:
        for schedule in {*self._schedules.values()}:  # one may serve two verbs
            schedule.free()
        self._buffers = Buffers()

    def _describe(self) -> str:
        specs = ", ".join(map(str, self._specs))
        route = self.route if self._options.corners else "without corners"
        text = f"<HaloExchange of {specs} by {self.method}, {route}"
        return f"{text}\n  on Pencil({self._specs[0].layout})>"

    def _prepare_fields(self, call: str, fields: Sequence[PencilArray], task: str) -> PreparedHalo:
        """Check and prepare fields; all ranks agree if the plan checks."""
        found: Any = self._prepare(
            call, lambda _: self.prepared(fields, task), partial(self.set_up, task)
        )
        return cast("PreparedHalo", found)

    def prepared(self, fields: Sequence[PencilArray], task: str) -> PreparedHalo | None:
        """Check and slice fields, and reserve what their exchange needs; local.

        It returns None if `set_up` must be called first.
        """
        key = (self._schedules.get(task), *map(id, fields))
        found = self._found(key)
        if found is None:
            _check_fields(fields, self._pencils, self._specs)
            if task == ADD:
                check_numeric(self._specs)
            found = self.bind(fields, task)
            if found is None:
                return None
            self._remembered.add(key, found, fields, [u.padded for u in fields])
        if task == FILL and self.synchronizes and self._topology.under_way:
            return None
        make_ready(found)
        return found

    def bind(self, fields: Sequence[PencilArray], task: str) -> PreparedHalo | None:
        """Slice fields that fit; None if steps are missing. Local."""
        schedule = self._schedules.get(task)
        return None if schedule is None else schedule.bind([u.padded for u in fields])

    def set_up(self, task: str) -> None:
        """Complete older exchanges, and make the steps of `accumulate`. *Collective*."""
        self._topology.complete()
        if task not in self._schedules:
            self._schedules[task] = self._make(adjoint=True)


def values_of(
    fields: Sequence[PencilArray], specs: Sequence[HaloSpec], *, corners: bool
) -> dict[str, object]:
    """Return what all ranks must agree on about the fields of an exchange."""
    return {
        "corners": corners,
        "fields": len(fields),
        "pencils": [u.pencil for u in fields],
        "dtypes": [spec.dtype for spec in specs],
        "components": [spec.components for spec in specs],
        "singletons": [sorted(spec.singletons) for spec in specs],
        "halos": [spec.halo for spec in specs],
        "trimmed": [sorted(spec.trimmed) for spec in specs],
    }


def check_halo(specs: Sequence[HaloSpec]) -> None:
    """Check that there are ghosts at all, unless fields of one point cannot have any."""
    single = all(len(spec.singletons) == len(spec.halo) for spec in specs)
    if not single and not any(any(map(any, spec.halo)) for spec in specs):
        what = "the field has no halo" if len(specs) == 1 else "none of the fields has a halo"
        raise ArgumentError(
            f"{what}, so there are no ghosts; create it with one, as in zeros(pencil, halo=1). A "
            "sliced field has no halo along the sliced dimension; exchange the halo of the whole "
            "field"
        )


def any_private(fields: Sequence[PencilArray]) -> bool:
    """Whether a field is not in memory that other ranks of the node can read."""
    return not all(u.pencil.topology.is_shared(u.padded) for u in fields)


def as_fields(fields: Any) -> list[PencilArray]:
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
            "two of the fields share memory; pass each field once, and no views of it"
        )
    return list(fields)


def _check_fields(
    fields: Sequence[PencilArray], pencils: Sequence[Pencil], specs: Sequence[HaloSpec]
) -> None:
    """Check that fields fit the pencils and specs of a plan."""
    if len(fields) != len(specs):
        raise ArgumentError(f"the plan is for {len(specs)} fields, but got {len(fields)}")
    as_fields(fields)
    for number, (u, pencil, spec) in enumerate(zip(fields, pencils, specs, strict=True)):
        if not u.pencil.same_blocks(pencil):
            msg = f"field {number} lies on\n{u.pencil!r}\nbut the plan is for\n{pencil!r}"
            if not u.pencil.same_ranks(pencil):
                msg += "\nover other processes, or over the same in another order"
            raise PencilMismatchError(msg)
        if u.pencil.periodic != pencil.periodic:
            raise PencilMismatchError(
                f"field {number} lies on a pencil with periodic={u.pencil.periodic}; the plan is "
                f"for {pencil.periodic}"
            )
        given = HaloSpec.of(u)
        for name in ("dtype", "components", "singletons", "halo", "trimmed"):
            here, wanted = getattr(given, name), getattr(spec, name)
            if here != wanted:
                raise ArgumentError(f"field {number} has {name} {here}; the plan is for {wanted}")


def check_numeric(specs: Sequence[HaloSpec]) -> None:
    """Check that ghosts can be added."""
    for spec in specs:
        if spec.dtype.kind not in "iufc":
            raise TypeError(f"ghosts of dtype {spec.dtype} cannot be added; pass fields of numbers")


def choose_options(
    topology: Topology,
    specs: tuple[HaloSpec, ...],
    options: HaloOptions,
    buffers: Buffers,
    blocks: Sequence[Array],
) -> HaloOptions:
    """Return options with the route and method that are named, measured, or usual. *Collective*."""
    if options.route == MEASURE:
        route, method = _fastest(topology, specs, options, buffers, blocks)
        buffers.clear()
        if options.method == AUTO:
            set_fastest(topology, (specs, options._replace(route=AUTO)), (route, method))
    elif options.route == options.method == AUTO:
        route, method = measured_way(topology, specs, options) or ("direct", AUTO)
    else:
        route, method = "direct" if options.route == AUTO else options.route, options.method
    return options._replace(route=route, method=method)


def measured_way(
    topology: Topology, specs: tuple[HaloSpec, ...], options: HaloOptions
) -> tuple[str, str] | None:
    """Return the fastest route and method, if they were measured."""
    key = specs, options._replace(route=AUTO)
    found: tuple[str, str] | None = fastest_methods(topology).get(key)
    return found


def _fastest(
    topology: Topology,
    specs: Sequence[HaloSpec],
    options: HaloOptions,
    buffers: Buffers,
    blocks: Sequence[Array],
) -> tuple[str, str]:
    """Time every route, by every method unless one is named. *Collective*.

    The ghosts of `blocks` are filled. Without corners, all routes are the same.
    """
    near = "shared" if topology.nodes == 1 else "hybrid"
    methods = (AUTO, near, "messages") if options.method == AUTO else (options.method,)
    ways = list(product(ROUTES if options.corners else ["direct"], methods))
    schedules = [
        HaloSchedule(topology, specs, options._replace(route=route, method=method), buffers)
        for route, method in ways
    ]
    with agreed(topology.comm, "HaloExchange"):  # one rank may have no memory
        halos = [schedule.bind(blocks) for schedule in schedules]
        for halo in halos:
            halo.reserve()

    def run_often(halo: PreparedHalo) -> None:
        for _ in range(CALLS):
            halo.run()

    seconds = time_in_turn(topology.comm, [partial(run_often, halo) for halo in halos], SAMPLES)
    for schedule in schedules:
        schedule.free()
    return ways[seconds.index(min(seconds))]
