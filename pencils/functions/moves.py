"""Points that move between blocks along axes: `roll`, `flip`, and planes fetched from neighbours.

Each point is sent once, in one exchange, to each rank that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import copysign
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.base import Field
from pencils.array.operands import FieldSpec, check_field, signature, topology_among
from pencils.comm.agree import DEFERRED, agreed
from pencils.comm.exchange import Exchange, PreparedExchange
from pencils.comm.line_program import (
    Column,
    LineProgram,
    Rows,
    Step,
    Term,
    pieces,
    prepare_lines,
    prepare_weighted_rows,
)
from pencils.comm.memory import address, borrowed, place
from pencils.comm.methods.pull import PreparedPull, Pull
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError
from pencils.functions.arguments import Line
from pencils.functions.mapping import Indexed, Mapping
from pencils.layout.integers import as_dims, as_ints
from pencils.pencil import Bounded
from pencils.plans import Agreement, KeptCall, KeptVerb, PlanKey, kept_plans, plan_buffers, relays

Run = Callable[[], object]


# The mapping of each axis that has one; points stay where they are along all others.
Mappings = dict[int, Mapping] | dict[int, Indexed] | dict[int, Mapping | Indexed]
# What a rank computes, and whether that needs no more memory: on all ranks.
Computation = tuple[Sequence[Run], bool]
_NO_COMPUTATION: Computation = ((), True)


class Steps(NamedTuple):
    """What a function does with fields of one kind; it refers to none of them.

    `prepare` gets the own block, the fetched arrays and the blocks of results, and prepares the
    computation before arrays are fetched: so far all ranks raise if one of them has no memory.
    Without it the fetched arrays are the results; that of several fields is one result.
    """

    moves: Sequence[Mappings]  # of each array to be fetched; of each field, if there are several
    results: Sequence[Callable[[], Field]]  # make a new field each
    prepare: Callable[[Array, Sequence[Array], Sequence[Array]], Computation] | None = None


def fetch_boxes(
    name: str,
    u: Field,
    given: Sequence[object] | None,
    plan: Callable[[Agreement], Steps],
    others: Sequence[Field] = (),
) -> Sequence[Field]:
    """Agree on a call of a function, move parts of fields, and compute from them. *Collective*.

    `plan` checks the arguments but the field, records what all ranks must agree on, and returns the
    steps; it may be called several times. They are kept for calls with the same arguments `given`,
    if these are numbers, and fields of the same kind. The arrays that are fetched are contiguous in
    the memory order of the pencil. `others` have the type of `u`, the same decomposed dimensions
    and the same process grid.
    """
    fields = u, *others
    key = _key_of(fields, given)
    call: _FetchCall | None = None if key is None else u.pencil.kept[name].get(key)
    if call is not None and call.fits():
        ready, results = call.prepare(fields, plan)
    else:
        verb = _Fetch(name, fields, plan)
        ready, results = verb.prepare()
        if key is not None:
            u.pencil.kept[name].add(key, _FetchCall(verb))
    ready.exchange.run_agreed()
    runs, reserved = ready.computation
    if reserved:
        for run in runs:
            run()
        return results
    with agreed(u.pencil.topology.comm, name):
        for run in runs:
            run()
    return results


# Of these types, equal numbers mean the same, apart from the sign of 0.0.
_PLAIN = {int, float, str, np.float64, np.int64, type(None)}


def _key_of(fields: tuple[Field, ...], given: Sequence[object] | None) -> tuple[Any, ...] | None:
    """Return what calls of a function with the same steps have in common, if it can be kept."""
    if given is None or not all(issubclass(type(each), Field) for each in fields):
        return None
    kinds = tuple(map(type, given))
    signs = [copysign(1, each) for each in given if isinstance(each, float)]
    every = [each.kind for each in fields]
    return (*every, given, kinds, *signs) if _PLAIN.issuperset(kinds) else None


class _Ready(NamedTuple):
    """A call of a function for blocks at given places."""

    pack: Run  # what comes before the agreement; no result changes
    exchange: PreparedPull | PreparedExchange
    computation: Computation


# A call that is ready, and the fields it fills.
_Found = tuple[_Ready, Sequence[Field]]


# What moves points: small messages within a node are pulled.
MovePlan: TypeAlias = Pull | Exchange


def plan_move(topology: Topology, specs: Sequence[MessageSpec], axes: int) -> MovePlan:
    """Make the plan of an exchange that verbs keep. *Collective*."""
    pull = Pull.find(topology, specs)
    return pull or Exchange(topology, specs, axes=axes, buffers=plan_buffers(topology))


def prepare_move(
    plan: MovePlan, sources: Sequence[Array], targets: Sequence[Array]
) -> tuple[Run, PreparedPull | PreparedExchange]:
    """Prepare an exchange; return what comes before the agreement, which changes no target, too."""
    if isinstance(plan, Pull):
        pulled = plan.prepare(sources, targets)
        return pulled.pack, pulled
    prepared = plan.prepare(sources, targets, disjoint=True)
    return prepared.reserve, prepared


class _Fetch(KeptVerb[MovePlan, _Found]):
    """A call of `fetch_boxes`, whose exchange is kept."""

    steps: Steps
    fetched: Sequence[Array]

    def __init__(
        self, name: str, fields: tuple[Field, ...], plan: Callable[[Agreement], Steps]
    ) -> None:
        super().__init__(name, topology_among(*fields))
        self.fields, self._plan = fields, plan

    def signature(self, agree: Agreement) -> PlanKey:
        """Check the arguments; the key has all mappings."""
        u, *others = self.fields
        check_field("a", u)
        agree(**signature(u))
        if others:
            agree(others=[tuple(signature(other).values()) for other in others])
        self.steps = self._plan(agree)
        along = tuple(tuple(sorted(each.items())) for each in self.steps.moves)
        kinds = [(each.pencil, FieldSpec.of(each)) for each in self.fields]
        return PlanKey(("boxes", *kinds, along))

    def make(self) -> MovePlan:
        """Make the exchange, with the axes in the memory order of the pencil."""
        u, specs = self.fields[0], []
        order = memory_axes(u.pencil.order, len(u.components))
        for source, mappings in _each_source(self.fields, self.steps):
            lines = [Line.of(source, axis) for axis in order]
            along = [mappings.get(axis, Mapping()) for axis in order]
            pairs = list(zip(along, lines, strict=True))
            strides = [line.stride for line in lines]
            first = u.pencil.rank - sum(line.part * line.stride for line in lines)
            sends = boxes(first, strides, [each.sends(line) for each, line in pairs])
            recvs = boxes(first, strides, [each.gets(line) for each, line in pairs])
            specs.append(MessageSpec(sends, recvs, (), u.dtype))
        return plan_move(self.topology, specs, u.ndim)

    def bind(self, plan: MovePlan) -> _Found | None:
        """Allocate the arrays and the results, and prepare the exchange and the computation.

        None if older exchanges may still write points that would be packed.
        """
        self.fetched = ()
        if isinstance(plan, Pull) and self.topology.under_way:
            return None
        if self.steps.prepare is not None:
            self.fetched = [self._allocated(mappings) for mappings in self.steps.moves]
        results = [make() for make in self.steps.results]
        ready = _get_ready(plan, self.steps, self.fields, self.fetched, results)
        ready.pack()
        return ready, results

    def set_up(self, plan: MovePlan) -> None:  # noqa: ARG002
        """Complete older exchanges. *Collective*."""
        self.topology.complete()

    def _allocated(self, mappings: Mappings) -> Array:
        """Allocate an array to be fetched."""
        u = self.fields[0]
        shape = list(u.local_shape)
        for axis, mapping in mappings.items():
            shape[axis] = mapping.extent(Line.of(u, axis))
        return u.frame.make(tuple(shape), u.dtype)


def _each_source(fields: tuple[Field, ...], steps: Steps) -> Iterator[tuple[Field, Mappings]]:
    """Yield the field, and the mappings, of each array to be fetched."""
    return zip(fields if len(fields) > 1 else fields * len(steps.moves), steps.moves, strict=True)


def _get_ready(
    plan: MovePlan,
    steps: Steps,
    fields: tuple[Field, ...],
    fetched: Sequence[Array],
    results: Sequence[Field],
) -> _Ready:
    """Prepare the exchange and the computation for fields; they borrow their memory."""
    u = fields[0]
    block, outs = borrowed(u.local), [borrowed(result.local) for result in results]
    order = memory_axes(u.pencil.order, len(u.components))
    sources = []
    for source, mappings in _each_source(fields, steps):
        key: list[Any] = [slice(None)] * u.ndim
        for axis, mapping in mappings.items():
            if mapping.reverse:
                key[axis] = slice(None, None, -1)
        own = block if source is u else borrowed(source.local)
        sources.append(own[tuple(key)].transpose(order))
    targets = outs * len(sources) if len(fields) > 1 else fetched or outs
    arrays = [target.transpose(order) for target in targets]
    computation = _NO_COMPUTATION
    if steps.prepare is not None:
        computation = steps.prepare(block, fetched, outs)
    return _Ready(*prepare_move(plan, sources, arrays), computation)


class _FetchCall(KeptCall[MovePlan]):
    """Calls of a function for fields of one kind, with the same arguments."""

    __slots__ = ("_fetched", "_ready", "_relay", "_steps")

    def __init__(self, verb: _Fetch) -> None:
        pulls = isinstance(kept_plans(verb.topology)[verb.key], Pull)
        super().__init__(verb.topology, verb.key, verb.agree.prepared(), waits=pulls)
        self._steps, self._fetched = verb.steps, verb.fetched
        self._ready = Bounded()  # by the places of blocks
        # Fields, results, and the call that is prepared for them.
        self._relay: tuple[Sequence[Field], Sequence[Field], _Ready] | None = None

    def prepare(self, fields: tuple[Field, ...], plan: Callable[[Agreement], Steps]) -> _Found:
        """Agree and prepare. *Collective*."""
        error = None
        try:  # as `attempt` does, but without another call
            found = self._bind(fields)
        except Exception as mistake:  # noqa: BLE001 - raised on all ranks
            error = mistake
        flags = self.agreement.meet(error)
        if flags & DEFERRED:  # other ranks need the plan
            return _Fetch(self.agreement.call, fields, plan).prepare(flags)
        self.touch()
        return found

    def _bind(self, fields: tuple[Field, ...]) -> _Found:
        """Make the results, and find or prepare what suits their places; local."""
        results = [make() for make in self._steps.results]
        places = [place(each.local) for each in fields]
        key = (*places, *[address(result.local) for result in results])
        ready: _Ready | None = self._ready.get(key)
        if ready is None:
            if relays(self._ready, [each.local for each in (*fields, *results)]):
                ready = self._relayed(fields, results)
            else:
                ready = _get_ready(self.plan, self._steps, fields, self._fetched, results)
                self._ready.add(key, ready)
        ready.pack()
        return ready, results

    def _relayed(self, fields: Sequence[Field], results: Sequence[Field]) -> _Ready:
        """Prepare a call by way of fields whose places stay; local."""
        if self._relay is None:
            own = tuple(each.blank() for each in fields), [make() for make in self._steps.results]
            self._relay = *own, _get_ready(self.plan, self._steps, own[0], self._fetched, own[1])
        inner, outer, ready = self._relay

        def pack() -> None:
            for there, here in zip(inner, fields, strict=True):
                np.copyto(there.local, here.local)
            ready.pack()

        def store() -> None:
            for here, there in zip(results, outer, strict=True):
                np.copyto(here.local, there.local)

        runs, reserved = ready.computation
        return _Ready(pack, ready.exchange, ((*runs, store), reserved))


def boxes(
    first: int, strides: Sequence[int], along: Sequence[Sequence[tuple[int, int, int, int]]]
) -> list[MessageBlock]:
    """Combine the pieces of all axes: part, place here, place there, and points.

    The first part of all axes is on rank `first`, others are so many ranks apart.
    """
    found = []
    for box in product(*along):
        peer = first + sum(part * stride for (part, *_), stride in zip(box, strides, strict=True))
        key = tuple(slice(here, here + count) for _, here, _, count in box)
        found.append(MessageBlock(peer, key, tuple(there for _, _, there, _ in box)))
    return found


def roll(a: Field, shift: Any, axis: int | Sequence[int] | None = None) -> Field:
    """Move points along axes, those at the end to the beginning, as `numpy.roll`. *Collective*.

    One message to each rank that has new places of own points; where the axis is not cut, points
    are copied on their rank. `u.shift` is faster for short ways in loops.

    Parameters
    ----------
    a : PencilArray
        The field. Whether the pencil is periodic does not matter.
    shift : int or sequence of int
        Points by which each axis is moved.
    axis : int or sequence of int, optional
        Axes of the global shape. Without, all points are one line, in the order of their indices;
        those of a rank then come in up to ``2**a.ndim`` boxes.

    Returns
    -------
    PencilArray
        A new field on the same pencil, without halo.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if there is no such axis, or there are more shifts than axes.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: 10 * x + y)
    >>> np.roll(u, 1, axis=0).local[:, 0]
    array([30,  0, 10, 20])
    """
    if axis is None and a.ndim > 1:
        return _roll_all(a, shift)

    def plan(agree: Agreement) -> Steps:
        axes = [0] if axis is None else as_ints("axis", axis)
        numbers = [as_dims("axis", each, a.ndim)[0] for each in axes]
        pairs = np.broadcast(shift, numbers)
        if pairs.ndim > 1:
            raise ArgumentError(f"shift={shift} must be an integer, or a sequence of them")
        shifts: dict[int, int] = {}
        for step, number in pairs:
            shifts[number] = shifts.get(number, 0) + int(step)
        agree(shifts=shifts)
        moves = {number: Mapping(step % max(1, a.shape[number])) for number, step in shifts.items()}
        return Steps([moves], [_maker_like(a)])

    (result,) = fetch_boxes("roll", a, (shift, axis), plan)
    return result


def _roll_all(a: Field, shift: Any) -> Field:
    """Move points in the order of their indices. *Collective*, by one exchange of boxes.

    Where points wrap along an axis, they move by one point more along the axis before.
    """
    with agreed(topology_among(a).comm, "roll") as agree:
        agree(**signature(a))
        step = sum(as_ints("shift", shift))
        agree(shift=step)
    boxes: list[tuple[dict[int, Indexed], int]] = [({}, step)]
    for axis in range(a.ndim)[::-1] if a.size else ():
        points, line = np.arange(a.shape[axis]), Line.of(a, axis)
        whole, boxes = boxes, []
        for box, carried in whole:
            more, by = divmod(carried, len(points))
            if by == 0:
                boxes.append((box, more))
                continue
            index = np.roll(points, by)
            for wraps in (False, True):
                there = np.where((points < by) == wraps, index, -1)
                boxes.append(({**box, axis: Indexed(line, there.tobytes(), True)}, more + wraps))
    steps = Steps([box for box, _ in boxes], [_maker_like(a)])
    (result,) = fetch_boxes("roll", a, (step, "all"), lambda _: steps, [a] * (len(boxes) - 1))
    return result


def _maker_like(u: Field) -> Callable[[], Field]:
    """Return a function that makes fields of the kind of `u`, without halo."""
    return u.maker(u.pencil, u.dtype, u.components, u.singletons)


def flip(m: Field, axis: int | Sequence[int] | None = None) -> Field:
    """Reverse the order of points along axes, as `numpy.flip`. *Collective*.

    One message to each rank that has new places of own points; where the axis is not cut, points
    are copied on their rank.

    Parameters
    ----------
    m : PencilArray
        The field.
    axis : int or sequence of int, optional
        Axes of the global shape; default: all, components included.

    Returns
    -------
    PencilArray
        A new field on the same pencil, without halo; not a view as in NumPy.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if there is no such axis.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 3)), lambda x, y: 10 * x + y)
    >>> np.flip(u, axis=0).local[:, 0]
    array([30, 20, 10,  0])
    """

    def plan(agree: Agreement) -> Steps:
        axes = range(m.ndim) if axis is None else sorted(as_dims("axis", axis, m.ndim))
        agree(axis=axes)
        return Steps([dict.fromkeys(axes, Mapping(reverse=True))], [_maker_like(m)])

    (result,) = fetch_boxes("flip", m, (axis,), plan)
    return result


def fliplr(m: Field) -> Field:
    """Reverse the order of points along axis 1, as `numpy.fliplr`. *Collective*."""
    return flip(m, 1)


def flipud(m: Field) -> Field:
    """Reverse the order of points along axis 0, as `numpy.flipud`. *Collective*."""
    return flip(m, 0)


# Weighted sums of planes.


_FEW = 8  # points at the ends of blocks, with formulas of their own


class Formula(NamedTuple):
    """A sum of weighted planes, by their index, times a factor.

    Two factors instead of one round a difference of equal numbers to 0. With `as_complex` the sums
    of complex planes are multiplied as such: see `Step`.
    """

    terms: tuple[tuple[int, float], ...]
    factor: float = 1.0
    as_complex: bool = False

    def moved(self, by: int) -> Formula:
        """Return the formula of planes that are counted from elsewhere."""
        terms = tuple((point + by, weight) for point, weight in self.terms)
        return Formula(terms, self.factor, self.as_complex)


def suits(*dtypes: np.dtype[Any]) -> bool:
    """Whether line programs take elements of these types, which must be the same one."""
    first = dtypes[0]
    return first.char in "fdFD" and all(each == first and each.isnative for each in dtypes)


class PlaneAxis(NamedTuple):
    """The axis that planes lie across: its number, line, window, and all axes in memory order."""

    axis: int
    line: Line
    window: Mapping
    order: Sequence[int]

    @classmethod
    def of(cls, u: Field, axis: int, window: Mapping) -> PlaneAxis:
        """Return an axis of a field, to which it does not refer."""
        return cls(axis, Line.of(u, axis), window, memory_axes(u.pencil.order, len(u.components)))


class Planes:
    """Planes of the own block and of neighbours, by global index; arrays have the axis first."""

    def __init__(self, place: PlaneAxis, block: Array, around: Array) -> None:
        axis, line, window, order = place
        self.start, self.stop = line.bounds
        self.points = line.split.points
        ranges = window.wanted(line.split, line.part)
        before = ranges[0][1] - ranges[0][0] if ranges else 0
        planes = np.moveaxis(around, axis, 0)
        # Planes before the own block, own ones and those behind, with the index of the first.
        self.parts = [
            (self.start - before, planes[:before]),
            (self.start, np.moveaxis(block, axis, 0)),
            (self.stop, planes[before:]),
        ]
        others = [each for each in order if each != axis]
        self._order = [0, *(each + (each < axis) for each in others)]

    def between(self, first: int, last: int) -> Array:
        """Return the planes ``first`` to ``last - 1``: a view if all of them are own planes."""
        if self.start <= first <= last <= self.stop:
            return self.parts[1][1][first - self.start : last - self.start]
        cut = [part[max(0, first - start) : max(0, last - start)] for start, part in self.parts]
        return np.concatenate(cut)

    def cuts(self, first: int, last: int, before: int, after: int) -> list[tuple[int, int]]:
        """Divide points with neighbours in ranges, the longest of which needs own planes only."""
        inner = min(last, max(first, self.start + before))
        ends = first, inner, max(inner, min(last, self.stop - after)), last
        return [(low, high) for low, high in pairwise(ends) if low < high]

    def prepare(self, out: Array, formulas: Sequence[Formula]) -> Sequence[Run]:
        """Prepare to compute planes by formulas, one for each plane of `out` from `start` on.

        The results may be called in any order; `out` shares no memory with the planes.
        """
        if not out.size:
            return []
        given = [(first, part.transpose(self._order)) for first, part in self.parts]
        out = out.transpose(self._order)
        contiguous = _prepare_rows(given, out, self.start, formulas)
        if contiguous is not None:
            return [contiguous]
        runs = []
        for first, last in pieces(len(formulas)):
            piece = formulas[first:last]
            used = [point for formula in piece for point, _ in formula.terms]
            low, stop = min(used), max(used) + 1
            sources = []
            for begin, array in given:
                lo, hi = max(low, begin), min(stop, begin + len(array))
                if lo < hi:
                    sources.append(Rows(lo - low, array[lo - begin : hi - begin]))
            # The same for all pieces but those at the ends, if the formulas are.
            own = self.start + first
            moved = tuple(formula.moved(-own) for formula in piece)
            program = _program(moved, own - low, stop - low)
            runs.append(prepare_lines(program, sources, [Rows(stop - low, out[first:last])], 0))
        return runs


@lru_cache(maxsize=64)
def _program(formulas: Sequence[Formula], own: int, given: int) -> LineProgram:
    """Make a program; the first own point is in row `own`, and the first result in row `given`."""
    steps = []
    for row, (terms, factor, as_complex) in enumerate(formulas, given):
        steps.append(Step(row, [Term(own + point, weight) for point, weight in terms]))
        if factor != 1 or as_complex:
            steps.append(Step(row, [Term(row, factor)], as_complex))
    return LineProgram(given + len(formulas), steps)


def _prepare_rows(
    given: Sequence[tuple[int, Array]], out: Array, start: int, formulas: Sequence[Formula]
) -> Run | None:
    """Prepare the same where points along the axis are contiguous, and most formulas are alike."""
    points = len(formulas)
    target, source = np.moveaxis(out, 0, -1), np.moveaxis(given[1][1], 0, -1)
    middle = points // 2
    terms, factor, as_complex = formulas[middle].moved(-start - middle)
    alike = source.shape[-1] == points and target.flags.c_contiguous
    if not alike or not np.isfinite(factor) or factor == 0:
        return None
    columns: list[Column] = []
    for number, each in enumerate(formulas):
        moved = tuple((start + number + by, weight) for by, weight in terms)
        inside = all(0 <= number + by < points for by, _ in terms)
        if not inside or each != (moved, factor, as_complex):
            scale = each.factor / factor
            if not np.isfinite(scale) or len(columns) > _FEW:
                return None
            found = [
                (
                    next(p[point - low] for low, p in given if low <= point < low + len(p)),
                    weight * scale,
                )
                for point, weight in each.terms
            ]
            columns.append(Column(number, found))
    total = complex(factor) if as_complex else factor
    return prepare_weighted_rows(target, source, terms, columns, total)
