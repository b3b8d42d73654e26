"""The reusable plan that fills the ghosts of fields, and its adjoint."""

from __future__ import annotations

from collections.abc import Sequence

from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.buffers import Buffers
from pencils.comm.exchange import AUTO, Handle
from pencils.errors import ArgumentError
from pencils.halo.arguments import (
    MEASURE,
    HaloOptions,
    are_private,
    check_additive,
    check_fields,
    check_halos,
    facts,
    read_fields,
    read_kinds,
    read_options,
)
from pencils.halo.block import HaloKind
from pencils.halo.measure import fastest
from pencils.halo.rounds import BoundRounds, Rounds, far_rounds
from pencils.plan import FieldPlan


class HaloExchange(FieldPlan[BoundRounds]):
    """Reusable plan that fills the ghosts of one or several fields. Making it is *Collective*.

    Ghosts are the points of the padded blocks that other ranks own, or that a periodic dimension
    repeats. A halo may be wider than the blocks of the neighbours, and blocks may be empty; ranks
    without own points get no ghosts. Boundary points, beyond the ends of dimensions that are not
    periodic, stay as they are: see `PencilArray.fill_boundary`.

    Fields in shared memory (``shared=True``) are read by their neighbours on the node where they
    lie. From others, large faces that are contiguous travel by messages, and the rest is packed.

    Parameters
    ----------
    fields : PencilArray or sequence of PencilArray
        Patterns of what will be exchanged together: they may differ in dtype, components,
        singletons, halo and memory order, but must have the same blocks. Small pieces of all of
        them travel to each neighbour in one message.
    corners : bool, optional
        Whether to fill ghosts that lie beyond several dimensions; stencils shaped like a star do
        not need them.
    route : {"auto", "direct", "sweeps", "measure"}, optional
        How corners are reached: by one exchange with all neighbours, diagonal ones included, or by
        one exchange for each decomposed dimension in turn, with fewer messages. "auto" is direct.
        "measure" exchanges `fields` by all routes, and by all methods unless one is named, and
        takes what was fastest; from then on "auto", and the verbs of fields, do so for such fields.
    method : {"auto", "shared", "hybrid", "messages"}, optional
        How data travel: through memory that the ranks of a node share, by that and messages between
        nodes, or by messages. "auto" takes shared memory as far as it reaches.
    check : bool, optional
        Whether every call agrees on its arguments over all ranks, so that a mistake on one rank
        raises everywhere. Without it a call costs no communication but the data.
    progress : bool, optional
        Whether a thread completes what `start` has begun, while this one computes. That pays if
        each process has a core to spare, and serves one exchange at a time.

    Attributes
    ----------
    method, route : str
        What is in use.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if an argument does not fit.
    RankDisagreementError
        On every rank, if ranks passed different arguments, or fields of different kinds.

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((8, 6), periodic=True)
    >>> u = pencils.from_function(pen, lambda i, j: 10.0 * i + j, halo=1)
    >>> with HaloExchange(u) as plan:
    ...     plan(u)
    >>> u.shift((1, 0))[7, 3]  # beyond the last row comes the first
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
        progress: bool = False,
    ) -> None:
        topology = topology_among(fields)
        with agreed(topology.comm, "HaloExchange") as agree:
            given = read_fields(fields)
            options = read_options(
                corners=corners, route=route, method=method, check=check, progress=progress
            )
            agree(**facts(given), **options._asdict())
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
        FieldPlan.__init__(self, fields[0].pencil.topology)
        self._pencils = [field.pencil for field in fields]
        self._kinds = read_kinds(fields)
        self._options = options
        self._buffers = buffers
        self._private = private
        self.route, self._method = self._way(fields)
        self._filling: Rounds | None = self._make_rounds(self.route, self._method)
        self._adding: Rounds | None = None  # made when it is asked for
        self.method = self._filling.method
        self._text = self._describe()

    def _way(self, fields: Sequence[PencilArray]) -> tuple[str, str]:
        """Return route and method: named, measured now or before, or by rule. *Collective*."""
        corners, route, method, *_ = self._options
        known = self._topology.methods
        key = way_key(self._kinds, corners=corners, private=self._private)
        if route == MEASURE:
            blocks = [field.padded for field in fields]
            way = fastest(self._topology, self._options, self._make_rounds, blocks)
            self._buffers.clear()
            if method == AUTO:
                known[key] = way
            return way
        if route == method == AUTO and key in known:
            found: tuple[str, str] = known[key]
            return found
        return "direct" if route == AUTO else route, method

    @property
    def memory(self) -> int:
        """Bytes of this rank that are kept for packing."""
        return self._buffers.nbytes

    def __call__(self, *fields: PencilArray) -> None:
        """Fill the ghosts of `fields`. *Collective*.

        Parameters
        ----------
        *fields : PencilArray
            As many as the plan was made for, of the same kinds.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            If a field does not fit the plan; on every rank, unless the plan does not check.
        """
        if not self._options.check:
            # The same fields again have passed the checks: nothing is left but to move the data.
            found = self._found((False, *map(id, fields)))
            if found is not None:
                found.run()
                return
        self._prepare("HaloExchange", fields).run()

    def start(self, *fields: PencilArray) -> Handle[None]:
        """Start filling the ghosts, and return before it is done. *Collective*.

        Until ``wait()`` of the returned handle, which all ranks must call, the fields may be read
        where they are owned, but not written. Several exchanges may be under way, of this plan and
        of others, unless it has a thread: that completes what is under way first. No other
        collective call should come between waits that ranks make in another order.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            As a call.
        """
        return self._prepare("HaloExchange.start", fields).start(None)

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
        self._prepare("HaloExchange.accumulate", fields, backwards=True).run()

    def free(self) -> None:
        """Complete what is under way and release memory and MPI objects.

        *Collective* if anything is under way.
        """
        self._bound.clear()
        for rounds in (self._filling, self._adding):
            if rounds is not None:
                rounds.free()
        self._filling = self._adding = None

    def __repr__(self) -> str:
        return self._text

    def _describe(self) -> str:
        kinds = ", ".join(
            " ".join(
                (
                    f"{kind.dtype}",
                    *([f"components {kind.components}"] if kind.components else []),
                    *([f"singleton along {sorted(kind.singletons)}"] if kind.singletons else []),
                    f"halo {kind.halo}",
                    *([f"trimmed along {sorted(kind.trimmed)}"] if kind.trimmed else []),
                )
            )
            for kind in self._kinds
        )
        shape = self.route if self._options.corners else "without corners"
        return (
            f"<HaloExchange of {kinds} by {self.method}, {shape}\n"
            f"  on Pencil({self._kinds[0].layout})>"
        )

    def _make_rounds(self, route: str, method: str, *, backwards: bool = False) -> Rounds:
        topology, corners = self._topology, self._options.corners
        if self._options.progress:
            topology.complete()  # its worker communicates there, too
            topology = topology.apart
        return Rounds(
            topology,
            self._kinds,
            far=far_rounds(self._kinds[0].layout, route, corners=corners),
            corners=corners,
            method=method,
            buffers=self._buffers,
            straight=self._private and method == AUTO,
            backwards=backwards,
        )

    def _prepare(
        self, call: str, fields: Sequence[PencilArray], *, backwards: bool = False
    ) -> BoundRounds:
        """Check and slice fields; all ranks agree, if the plan does that."""
        known = self._found((backwards, *map(id, fields))) is not None
        if not self._options.check:
            if not known:
                self._check(fields, known=False, backwards=backwards)
            return self._bind(fields, backwards=backwards)
        with agreed(self._topology.comm, call) as agree:
            agree(plan=self._text)
            self._check(fields, known=known, backwards=backwards)
            found = self.prepared(fields, backwards=backwards)
            agree.defer(up=found is None)
        if agree.deferred:
            self.make_steps(backwards=backwards)
            with agreed(self._topology.comm, call):
                found = self.prepared(fields, backwards=backwards)
        assert found is not None
        return found

    def prepared(
        self, fields: Sequence[PencilArray], *, backwards: bool = False
    ) -> BoundRounds | None:
        """Slice fields that fit, and allocate what their exchange takes; local.

        None if the steps have to be made first.
        """
        if (self._adding if backwards else self._filling) is None:
            return None
        found = self._bind(fields, backwards=backwards)
        found.reserve()
        return found

    def _bind(self, fields: Sequence[PencilArray], *, backwards: bool) -> BoundRounds:
        """Slice fields. *Collective* if the steps are to be made."""
        key = (backwards, *map(id, fields))
        found = self._found(key)
        if found is None:
            found = self._rounds(backwards=backwards).bind([field.padded for field in fields])
            self._remember(key, found, fields)
        return found

    def _check(self, fields: Sequence[PencilArray], *, known: bool, backwards: bool) -> None:
        if self._filling is None or self._topology.freed:
            msg = "this HaloExchange, or its communicator, was freed; make a new one"
            raise ArgumentError(msg)
        if not known:
            check_fields(fields, self._pencils, self._kinds)
            if backwards:
                check_additive(self._kinds)

    def make_steps(self, *, backwards: bool) -> None:
        """Make the steps of the adjoint, which its first call needs. *Collective*."""
        if backwards and self._adding is None:
            self._adding = self._make_rounds(self.route, self._method, backwards=True)

    def _rounds(self, *, backwards: bool) -> Rounds:
        """Return the steps. *Collective* if they are to be made."""
        self.make_steps(backwards=backwards)
        rounds = self._adding if backwards else self._filling
        assert rounds is not None
        return rounds


def way_key(kinds: Sequence[HaloKind], *, corners: bool, private: bool) -> tuple[object, ...]:
    """Name what the fastest way depends on, on a given communicator."""
    return "halo", tuple(kinds), corners, private
