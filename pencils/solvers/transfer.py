"""Fields that move between grid levels: `restrict` and `prolong`.

Each rank computes the points of the target whose source points are all its own directly from its
block. The others lie in slabs at the ends of the block: for each slab, an array is fetched with all
source points that it needs, all of them in one exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise, product
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.operands import FieldSpec, check_out, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import DEFERRED
from pencils.comm.exchange import Exchange, PreparedExchange
from pencils.comm.memory import borrowed, place
from pencils.comm.methods.pull import PreparedPull, Pull
from pencils.comm.pack import MessageBlock, MessageSpec
from pencils.comm.products import Matrix, Op, Room, prepare_product
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout import Layout
from pencils.layout.integers import items_of
from pencils.layout.levels import CELL
from pencils.layout.split import Split
from pencils.pencil import Bounded, Pencil
from pencils.plans import Agreement, KeptCall, KeptVerb, PlanKey, kept_plans, plan_buffers
from pencils.solvers.weights import Weights, prolongation, restriction
from pencils.transposition.plan import unset_ghosts
from pencils.transposition.transpose import transpose

Boundary: TypeAlias = Literal["edge", "odd", "extrapolate"]

_RESTRICTIONS = "average", "injection", "full"
_PROLONGATIONS = "constant", "linear", "cubic"
_BOUNDARIES = "edge", "odd", "extrapolate"
_COPIES = frozenset({"injection", "constant"})  # for elements of any type


def restrict(
    u: PencilArray,
    coarse: Pencil,
    *,
    method: str | Sequence[str] | None = None,
    out: PencilArray | None = None,
) -> PencilArray:
    """Move a field to a coarser grid. *Collective*.

    Plans are kept, so calls in a loop are cheap.

    Parameters
    ----------
    u : PencilArray
        The field; its halo is not read.
    coarse : Pencil
        A pencil that ``u.pencil.coarsen(...)`` has made, or one that differs by `Pencil.with_` in
        its decomposition or memory order.
    method : {"average", "injection", "full"} or sequence of these, optional
        For all dimensions or for each. "average": the mean of all fine cells of a coarse one.
        "injection": the fine point at the place of the coarse one; of an even number of cells the
        one below it. "full": weighted by linear interpolation, 1/4, 1/2, 1/4 for vertices and
        1/8, 3/8, 3/8, 1/8 for cells with a factor of 2; beyond walls, fields are even. Default:
        "average" where cells are centred, "full" where vertices are.
    out : PencilArray, optional
        Field on `coarse` to fill; default: a new one without halo. It may have a halo, which is not
        touched.

    Returns
    -------
    PencilArray
        `out`.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if the arguments do not fit. Integers can only be injected.

    Notes
    -----
    For a factor `f` along `d` dimensions, "average" is the transpose of prolongation by "constant"
    divided by ``f**d``, and "full" is that of "linear" with the boundary "edge"; for vertices only
    within the walls: on a wall, weights are 1/2, 1/2, those of the transpose with respect to sums
    by the trapezoidal rule, so that constants remain constant. See Trottenberg, Oosterlee and
    Schüller, *Multigrid* (2001), section 2.3.

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((8, 6))
    >>> u = pencils.from_function(pen, lambda x, y: 10 * x + y, dtype=float)
    >>> pencils.solvers.restrict(u, pen.coarsen()).local[0]
    array([5.5, 7.5, 9.5])
    """
    return _run(_Given("restrict", u, coarse, method), out)


def prolong(
    v: PencilArray,
    fine: Pencil,
    *,
    method: str | Sequence[str] = "linear",
    boundary: Boundary | Sequence[Boundary] = "edge",
    out: PencilArray | None = None,
    add: bool = False,
) -> PencilArray:
    """Interpolate a field on a finer grid. *Collective*.

    Plans are kept, so calls in a loop are cheap.

    Parameters
    ----------
    v : PencilArray
        The field on a level: on a pencil that ``fine.coarsen(...)`` has made, or one that differs
        by `Pencil.with_` in its decomposition or memory order. Its halo is not read.
    fine : Pencil
        The finer pencil.
    method : {"constant", "linear", "cubic"} or sequence of these, optional
        For all dimensions or for each. Polynomials of degree 0, 1 and 3 are exact. "constant" is
        for cells: all fine cells get the value of the coarse one.
    boundary : {"edge", "odd", "extrapolate"} or sequence of these, optional
        What cells near walls get, for all dimensions or for each. Beyond a wall, the field is even
        ("edge"), for derivatives that vanish there; or odd, for values that vanish there; or the
        polynomial through the cells nearest to the wall, as always where vertices are centred.
    out : PencilArray, optional
        Field on `fine` to fill; default: a new one without halo. Its halo is not touched.
    add : bool, optional
        Whether to add to `out` instead: ``prolong(error, u.pencil, out=u, add=True)``.

    Returns
    -------
    PencilArray
        `out`.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if the arguments do not fit. Integers can only be prolonged by "constant".

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((8,))
    >>> v = pencils.from_function(pen.coarsen(), lambda x: 4 * x, dtype=float)
    >>> pencils.solvers.prolong(v, pen).local
    array([ 0.,  1.,  3.,  5.,  7.,  9., 11., 12.])
    """
    return _run(_Given("prolong", v, fine, method, boundary, add), out)


class _Given(NamedTuple):
    """The arguments of a call, without `out`."""

    name: str
    u: PencilArray
    pencil: Pencil
    method: Any
    boundary: Any = "edge"
    add: Any = False

    @property
    def restricts(self) -> bool:
        """Whether the target is the coarser grid."""
        return self.name == "restrict"

    @property
    def key(self) -> tuple[Any, ...] | None:
        """What calls with the same plan have in common; None for arguments of other types."""
        plain = type(self.u) is PencilArray and type(self.pencil) is Pencil
        options = self.method, self.boundary, self.add
        if not plain or not {str, bool, type(None)}.issuperset(map(type, options)):
            return None
        return self.pencil, self.u.kind, options


class _Line(NamedTuple):
    """One dimension: its matrix, or None if points are the same, and source and target of it."""

    matrix: Weights | None
    source: Split
    target: Split
    strides: tuple[int, int]  # steps in rank, in the source and in the target
    follows: bool  # whether blocks of the target follow those of the source

    def ends(self, part: int) -> tuple[int, int, int, int]:
        """Rows of a part: the first one, those of which all points are own, the one after all."""
        start, stop = self.target.bounds(part)
        matrix = self.matrix
        if matrix is None or self.source.parts == 1:
            return start, start, stop, stop
        own = range(*self.source.bounds(part))
        # Rows that are far enough from the ends, then those beside them.
        low = max(start, -(-(own.start + matrix.reach) // matrix.down) * matrix.up)
        high = min(stop, (own.stop - matrix.reach) // matrix.down * matrix.up)
        if low >= high:
            inside = [row for row in range(start, stop) if matrix.uses(row, own)]
            low = high = inside[len(inside) // 2] if inside else start
        while low > start and matrix.uses(low - 1, own):
            low -= 1
        while high < stop and matrix.uses(high, own):
            high += 1
        return start, low, high, stop

    def rows(self, kind: str, part: int) -> tuple[int, int]:
        """Rows of a part: "all", or those within its "inner" points, or "before", or "after"."""
        if kind == "all":
            return self.target.bounds(part)
        number = ("before", "inner", "after").index(kind)
        low, high = self.ends(part)[number : number + 2]
        return low, high

    def needed(self, kind: str, part: int) -> list[range]:
        """Points of the source that these rows need, in the order of an array that has them."""
        rows = range(*self.rows(kind, part))
        if self.matrix is None:
            return [rows] if rows else []
        points = sorted({at for row in rows for at, _ in self.matrix.terms(row)})
        gaps = [n for n, (a, b) in enumerate(pairwise(points), 1) if b - a > self.matrix.down]
        cuts = pairwise([0, *gaps, len(points)])
        return [range(points[low], points[high - 1] + 1) for low, high in cuts if low < high]

    def pieces(self, kind: str, part: int) -> list[tuple[int, int, int, int]]:
        """Pieces of that array: owner, place in the array, place at the owner, and points."""
        if self.source.replicated:
            return [(part if self.follows else 0, 0, 0, 1)]
        found, place = [], 0
        for each in self.needed(kind, part):
            for owner, lo, hi in self.source.overlaps(each.start, each.stop):
                start, _ = self.source.bounds(owner)
                found.append((owner, place + lo - each.start, lo - start, hi - lo))
            place += len(each)
        return found

    def sends(self, kind: str, own: int) -> list[tuple[int, int, int, int]]:
        """Pieces of the own block: part that gets it, place here, place there, and points."""
        return [
            (part, here, there, count)
            for part in self._receivers(own)
            for owner, there, here, count in self.pieces(kind, part)
            if owner == own
        ]

    def _receivers(self, own: int) -> list[int]:
        """Parts that may need points of the own part."""
        if self.source.replicated:
            return [own] if self.follows else list(range(self.target.parts)) if own == 0 else []
        start, stop = self.source.bounds(own)
        if start == stop or not self.target.points:
            return []
        if self.matrix is None:
            return [part for part, *_ in self.target.overlaps(start, stop)]
        matrix, points = self.matrix, self.target.points
        low = (start - matrix.reach) // matrix.down * matrix.up
        high = ((stop + matrix.reach) // matrix.down + 1) * matrix.up
        if matrix.outside == "wrap" and (low < 0 or high > points):
            high = min(high, low + points)
            ranges = [(max(0, low), min(high, points))]
            ranges += [(low % points, points)] if low < 0 else [(0, high % points)]
            ranges += [(0, high - points)] if high > points else []
        else:
            ranges = [(max(0, low), min(high, points))]
        return sorted({part for pair in ranges for part, *_ in self.target.overlaps(*pair)})


class _Slab(NamedTuple):
    """Some rows of the target: along each dimension all, or those of one kind."""

    kinds: tuple[str, ...]
    fetched: bool  # whether its points must be fetched; else they are own ones


_Plan: TypeAlias = Pull | Exchange


class _Ready(NamedTuple):
    """A call that is prepared for blocks at given places."""

    exchange: PreparedPull | PreparedExchange
    ops: Sequence[Op]


# A call that is ready, the field it fills, and the pencil to which that moves on, if it does.
_Found: TypeAlias = tuple[_Ready, PencilArray, Pencil | None]


class _Way:
    """How one rank computes its block of the target, once the arguments are known; local."""

    def __init__(self, u: PencilArray, pencil: Pencil, matrices: Sequence[Weights | None]) -> None:
        self.spec = FieldSpec.of(u)
        self.pencil = pencil  # of the target
        self.rank = u.pencil.rank
        self.order = u.pencil.order  # of all arrays here
        singletons = self.spec.singletons
        source, target = u.extent.layout, pencil.extent(singletons).layout
        self.layouts = source, target
        follows = source.strides == target.strides and source.process_shape == target.process_shape
        self.lines = [
            _Line(
                matrices[dim],
                source.splits[dim],
                target.splits[dim],
                (source.strides[dim], target.strides[dim]),
                follows,
            )
            for dim in self.order
        ]
        self.parts = [self._parts(layout) for layout in self.layouts]
        self.slabs = self._slabs(follows=follows and _nested(self.lines))
        self.scale = prod(matrix.scale for matrix in matrices if matrix is not None)
        self.room: Room = {}

    def _parts(self, layout: Layout) -> list[int]:
        every = layout.parts(self.rank)
        return [every[dim] for dim in self.order]

    def _slabs(self, *, follows: bool) -> list[_Slab]:
        whole = ["all"] * len(self.lines)
        if not follows:
            return [_Slab(tuple(whole), fetched=True)]
        slabs = []
        for number, line in enumerate(self.lines):
            if line.matrix is not None and line.source.parts > 1:
                for kind in ("before", "after"):
                    kinds = [*whole[:number], kind, *whole[number + 1 :]]
                    slabs.append(_Slab(tuple(kinds), fetched=True))
                whole[number] = "inner"
        return [*slabs, _Slab(tuple(whole), fetched=False)]

    def specs(self) -> list[MessageSpec]:
        """List what this rank sends and receives for each slab; nothing if there is none."""
        dtype, lead = self.spec.dtype, self.spec.components
        specs = []
        for kinds, fetched in self.slabs:
            if fetched:
                every = list(zip(self.lines, kinds, *self.parts, strict=True))
                sends = [line.sends(kind, own) for line, kind, own, _ in every]
                gets = [line.pieces(kind, part) for line, kind, _, part in every]
                both = self._boxes(sends, 1), self._boxes(gets, 0)
                specs.append(MessageSpec(*both, lead, dtype))
        return specs or [MessageSpec([], [], lead, dtype)]

    def _boxes(
        self, along: Sequence[Sequence[tuple[int, int, int, int]]], side: int
    ) -> list[MessageBlock]:
        """Combine the pieces of all dimensions; peers are parts of the source, or the target."""
        found = []
        for box in product(*along):
            parts = zip(box, self.lines, strict=True)
            peer = sum(part * line.strides[side] for (part, *_), line in parts)
            key = tuple(slice(here, here + count) for _, here, _, count in box)
            found.append(MessageBlock(peer, key, tuple(there for _, _, there, _ in box)))
        return found

    def prepare(self, plan: _Plan, u: PencilArray, out: PencilArray, *, add: bool) -> _Ready:
        """Prepare the exchange and the computation for fields, whose memory is borrowed."""
        axes = memory_axes(self.order, len(self.spec.components))
        source, target = (borrowed(each.local).transpose(axes) for each in (u, out))
        fetched: list[Array] = []
        ops: list[Op] = []
        for slab in self.slabs:
            part = self._fetched(slab, len(fetched)) if slab.fetched else source
            fetched += [part] if slab.fetched else []
            key, every = self._matrices(slab)
            lead = (None,) * len(self.spec.components)
            rows = target[(Ellipsis, *key)]
            options: Any = {"scale": self.scale, "add": add}
            ops += prepare_product(rows, part, (*lead, *every), self.room, **options)
        if not fetched:
            fetched = [np.empty((*self.spec.components, *[0] * len(self.lines)), u.dtype)]
        prepared: PreparedPull | PreparedExchange
        sources = [source] * len(fetched)
        if isinstance(plan, Pull):
            prepared = plan.prepare(sources, fetched)
        else:
            prepared = plan.prepare(sources, fetched, disjoint=True)
        return _Ready(prepared, ops)

    def _fetched(self, slab: _Slab, number: int) -> Array:
        """Return the array of what is fetched for a slab."""
        shape = list(self.spec.components)
        for line, kind, part in zip(self.lines, slab.kinds, self.parts[1], strict=True):
            shape.append(sum(count for *_, count in line.pieces(kind, part)))
        key = "fetched", number
        if key not in self.room:
            self.room[key] = np.empty(shape, self.spec.dtype)
        return self.room[key]

    def _matrices(self, slab: _Slab) -> tuple[list[slice], list[Matrix | None]]:
        """Return where the rows of a slab are in the block, and their matrices."""
        key: list[slice] = []
        matrices: list[Matrix | None] = []
        every = zip(self.lines, slab.kinds, *self.parts, strict=True)
        for line, kind, own, part in every:
            low, high = line.rows(kind, part)
            start, _ = line.target.bounds(part)
            key.append(slice(low - start, high - start))
            if line.matrix is None:
                matrices.append(None)
                continue
            places: Any = range(*line.source.bounds(own))
            if slab.fetched:
                places = [point for each in line.needed(kind, part) for point in each]
            matrices.append(line.matrix.among(places, low, high))
        return key, matrices


def _nested(lines: Sequence[_Line]) -> bool:
    """Whether equal dimensions are cut alike, so that their points need not be fetched."""
    return all(line.source == line.target for line in lines if line.matrix is None)


class _Transfer(KeptVerb[_Plan, _Found]):
    """A call of `restrict` or `prolong`, whose plan may have to be made first."""

    way: _Way
    onto: Pencil | None  # to which the result moves on

    def __init__(self, given: _Given, out: Any) -> None:
        super().__init__(given.name, topology_among(given.u, given.pencil, out))
        self.given, self.out = given, out

    def signature(self, agree: Agreement) -> PlanKey:
        """Check the arguments, and record what ranks must agree on."""
        name, u, pencil, method, boundary, add = self.given
        check_type("u" if self.given.restricts else "v", u, PencilArray)
        check_type("coarse" if self.given.restricts else "fine", pencil, Pencil)
        spec = FieldSpec.of(u)
        agree(source=u.pencil, target=pencil, **spec.signature)
        agree(method=method, boundary=boundary, add=bool(add))
        coarse, fine = (pencil, u.pencil) if self.given.restricts else (u.pencil, pencil)
        aligned = _aligned(coarse, fine)
        matrices = self._matrices(coarse, fine)
        self.onto = None
        if self.given.restricts and not coarse.same_blocks(aligned):
            self.onto, pencil = pencil, aligned
        check_out(self.out, self.given.pencil, spec)
        _check_memory(u, self.out, add=add)
        key = PlanKey((name, u.pencil, pencil, spec, tuple(matrices)))
        if key != self.key:
            self.way = _Way(u, pencil, matrices)
        return key

    def _matrices(self, coarse: Pencil, fine: Pencil) -> list[Weights | None]:
        """Check methods, and return the matrix of each dimension that has one."""
        u, ndim = self.given.u, fine.ndim
        allowed = _RESTRICTIONS if self.given.restricts else _PROLONGATIONS
        methods = _read("method", self.given.method, allowed, ndim, default=self.given.restricts)
        boundaries = _read("boundary", self.given.boundary, _BOUNDARIES, ndim)
        matrices: list[Weights | None] = []
        for dim, (factor, centred) in enumerate(coarse.coarsened):
            method, wraps = methods[dim], fine.periodic[dim]
            points = u.pencil.shape[dim]
            if factor == 1 or dim in u.singletons:
                matrices.append(None)
                continue
            if method is None:
                method = "average" if centred == CELL else "full"
            if centred != CELL and method in {"average", "constant"}:
                others = " or ".join(repr(each) for each in allowed if each != method)
                raise ArgumentError(
                    f"method={method!r} is for cells, but dimension {dim} is centred at vertices; "
                    f"use {others} there"
                )
            if u.dtype.kind not in "fc" and method not in _COPIES:
                copies = " or ".join(repr(each) for each in allowed if each in _COPIES)
                raise ArgumentError(
                    f"method={method!r} computes weighted sums, but the field has dtype {u.dtype}; "
                    f"use method={copies}, or u.astype(float)"
                )
            if self.given.restricts:
                matrices.append(restriction(points, factor, centred, method, wraps=wraps))
            else:
                options = factor, centred, method, boundaries[dim] or "edge"
                matrices.append(prolongation(points, *options, wraps=wraps))
        return matrices

    def make(self) -> _Plan:
        """Make the exchange. *Collective*."""
        topology, specs = self.topology, self.way.specs()
        axes = len(self.way.lines)
        pull = Pull.find(topology, specs)
        return pull or Exchange(topology, specs, axes=axes, buffers=plan_buffers(topology))

    def bind(self, plan: _Plan) -> _Found | None:
        """Prepare the exchange and the computation; None if older exchanges are under way."""
        if isinstance(plan, Pull) and self.topology.under_way:
            return None
        out = self.out
        if out is None or self.onto is not None:
            out = PencilArray.allocated(self.way.pencil, *self.way.spec)
        ready = self.way.prepare(plan, self.given.u, out, add=bool(self.given.add))
        _pack(ready)
        return ready, out, self.onto

    def set_up(self, plan: _Plan) -> None:  # noqa: ARG002
        """Complete older exchanges. *Collective*."""
        self.topology.complete()


class _TransferCall(KeptCall[_Plan]):
    """Calls for fields of one kind, with the same arguments."""

    __slots__ = ("_add", "_new", "_onto", "_other", "_ready", "_way")

    def __init__(self, verb: _Transfer) -> None:
        pulls = isinstance(kept_plans(verb.topology)[verb.key], Pull)
        super().__init__(verb.topology, verb.key, verb.agree.prepared(), waits=pulls)
        self._way, self._onto, self._add = verb.way, verb.onto, bool(verb.given.add)
        self._new = PencilArray.maker(verb.way.pencil, *verb.way.spec)
        self._other = verb.given.pencil.topology
        self._ready = Bounded()  # by the places of blocks

    def fits(self, out: Any) -> bool:
        """Whether the plan is there, and ranks agree on this communicator, whatever `out` is."""
        if self.plan.freed or self.topology.freed or self._other.freed or self.under_way:
            return False
        return out is None or (type(out) is PencilArray and out.pencil.topology is self._other)

    def prepare(self, given: _Given, out: PencilArray | None) -> _Found:
        """Agree and prepare. *Collective*."""
        error = None
        try:  # as `attempt` does, but without another call
            found = self._bind(given, out)
        except Exception as mistake:  # noqa: BLE001 - raised on all ranks
            error = mistake
        if self.agreement.meet(error) & DEFERRED:  # other ranks need the plan
            return _Transfer(given, out).prepare(DEFERRED)
        self.touch()
        return found

    def _bind(self, given: _Given, out: PencilArray | None) -> _Found:
        """Find or prepare what suits the places of the blocks; local."""
        u = given.u
        check_out(out, given.pencil, self._way.spec)
        _check_memory(u, out, add=self._add)
        target = self._new() if out is None or self._onto is not None else out
        key = place(u.local), place(target.local)
        ready: _Ready | None = self._ready.get(key)
        if ready is None:
            ready = self._way.prepare(self.plan, u, target, add=self._add)
            self._ready.add(key, ready)
        _pack(ready)
        return ready, target, self._onto


def _run(given: _Given, out: PencilArray | None) -> PencilArray:
    """Agree on a call, move what is needed, and compute. *Collective*."""
    key = given.key
    call: _TransferCall | None = None if key is None else given.u.pencil.kept[given.name].get(key)
    if call is not None and call.fits(out):
        ready, target, onto = call.prepare(given, out)
    else:
        verb = _Transfer(given, out)
        ready, target, onto = verb.prepare()
        if key is not None and given.u.pencil.topology is verb.topology:
            given.u.pencil.kept[given.name].add(key, _TransferCall(verb))
    unset_ghosts([target])
    ready.exchange.run_agreed()
    with np.errstate(all="ignore"):
        for op in ready.ops:
            op()
    return target if onto is None else transpose(target, onto, out)


def _pack(ready: _Ready) -> None:
    """Do what comes before the agreement; no field changes."""
    if isinstance(ready.exchange, PreparedPull):
        ready.exchange.pack()
    else:
        ready.exchange.reserve()


def _aligned(coarse: Pencil, fine: Pencil) -> Pencil:
    """Check that a pencil is a level of another, and return that whose blocks follow."""
    factors, centred = (
        [each for each, _ in coarse.coarsened],
        [each for _, each in coarse.coarsened],
    )
    if not factors:
        raise ArgumentError(
            "the coarser pencil is no level of another; make it by pencil.coarsen(...), and change "
            f"it by with_() only where its points stay the same:\n{coarse!r}"
        )
    found = None
    if coarse.ndim == fine.ndim and coarse.periodic == fine.periodic and coarse.same_ranks(fine):
        with suppress(ArgumentError):  # of extents
            found = fine.level(factors, centred)
    if found is None or found.shape != coarse.shape:
        raise PencilMismatchError(
            f"the coarser pencil is no level of the finer one:\n{coarse!r}\n{fine!r}"
        )
    return found


def _check_memory(u: PencilArray, out: PencilArray | None, *, add: Any) -> None:
    if out is None:
        if add:
            raise ArgumentError("add=True adds to a field: pass it as out=")
    elif np.may_share_memory(u.local, out.local):
        raise ArgumentError("out shares memory with the field; pass another one")


def _read(
    name: str, value: Any, allowed: Sequence[str], ndim: int, *, default: bool = False
) -> list[str | None]:
    """Read one text for all dimensions, or one for each."""
    found: list[Any] = [None] if value is None and default else items_of(value)
    if len(found) not in {1, ndim} or any(
        each not in list(allowed) and not (default and each is None) for each in found
    ):
        raise ArgumentError(
            f"{name}={value!r} must be {', '.join(map(repr, allowed[:-1]))} or {allowed[-1]!r}, "
            f"or one of these for each of {ndim} dimensions"
        )
    return found * (ndim // len(found))
