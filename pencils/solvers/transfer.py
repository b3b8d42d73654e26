"""Fields that move between grid levels: `restrict` and `prolong`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from pencils.array.operands import FieldSpec, check_out, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import DEFERRED
from pencils.comm.methods.pull import Pull
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.functions.moves import MovePlan, plan_move
from pencils.layout.integers import each_dim
from pencils.layout.levels import CELL
from pencils.pencil import Pencil
from pencils.plans import Agreement, KeptCall, KeptVerb, PlanKey, kept_plans
from pencils.solvers.slabs import Found, Way
from pencils.solvers.weights import Weights, prolongation, restriction
from pencils.transposition.plan import unset_ghosts
from pencils.transposition.transpose import transpose

Boundary: TypeAlias = Literal["edge", "odd", "extrapolate"]

_RESTRICTIONS = "average", "injection", "full"
_PROLONGATIONS = "constant", "linear", "cubic"
_BOUNDARIES = "edge", "odd", "extrapolate"
_MOST_FETCHED = 2**17  # bytes of fine points that ranks get, not coarse points by a second exchange
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
    method: str | Sequence[str] | None = "linear",
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
        for cells: all fine cells get the value of the coarse one. None: "constant" where cells are
        centred, "linear" where vertices are.
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


class _Transfer(KeptVerb[MovePlan, Found]):
    """A call of `restrict` or `prolong`, whose plan may have to be made first."""

    way: Way

    def __init__(self, given: _Given, out: Any) -> None:
        super().__init__(given.name, topology_among(given.u, given.pencil, out))
        self.given, self.out = given, out

    def signature(self, agree: Agreement) -> PlanKey:
        name, u, pencil, method, boundary, add = self.given
        names = ("u", "coarse") if self.given.restricts else ("v", "fine")
        check_type(names[0], u, PencilArray)
        check_type(names[1], pencil, Pencil)
        spec = FieldSpec.of(u)
        agree(source=u.pencil, target=pencil, **spec.signature)
        agree(method=method, boundary=boundary, add=bool(add))
        coarse, fine = (pencil, u.pencil) if self.given.restricts else (u.pencil, pencil)
        aligned = _aligned(coarse, fine)
        matrices = self._matrices(coarse, fine)
        onto = None
        if self.given.restricts and not (coarse.same_blocks(aligned) or self._is_small()):
            onto, pencil = pencil, aligned
        _check_out(self.given, self.out, spec)
        key = PlanKey((name, u.pencil, pencil, spec, tuple(matrices)))
        if key != self.key:
            self.way = Way(u, pencil, matrices, onto=onto, add=bool(add))
        return key

    def _is_small(self) -> bool:
        """Whether ranks get all fine points that they need at once, as fast as coarse ones."""
        u, splits = self.given.u, self.given.pencil.layout.splits
        share = prod(split.longest / max(1, split.points) for split in splits)
        return share * u.size * u.dtype.itemsize <= _MOST_FETCHED

    def _matrices(self, coarse: Pencil, fine: Pencil) -> list[Weights | None]:
        """Check methods, and return the matrix of each dimension that has one."""
        u, ndim = self.given.u, fine.ndim
        allowed = _RESTRICTIONS if self.given.restricts else _PROLONGATIONS
        methods = _read("method", self.given.method, allowed, ndim, default=True)
        defaults = ("average", "full") if self.given.restricts else ("constant", "linear")
        boundaries = _read("boundary", self.given.boundary, _BOUNDARIES, ndim)
        matrices: list[Weights | None] = []
        for dim, (factor, centred) in enumerate(coarse.coarsened):
            if factor == 1 or dim in u.singletons:
                matrices.append(None)
                continue
            method = methods[dim] or defaults[centred != CELL]
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
            options, wraps = (u.pencil.shape[dim], factor, centred, method), fine.periodic[dim]
            if self.given.restricts:
                matrices.append(restriction(*options, wraps=wraps))
            else:
                matrices.append(prolongation(*options, boundaries[dim], wraps=wraps))
        return matrices

    def make(self) -> MovePlan:
        return plan_move(self.topology, self.way.specs(), len(self.way.lines))

    def bind(self, plan: MovePlan) -> Found | None:
        """Prepare the exchange and the computation; None if older exchanges are under way."""
        if isinstance(plan, Pull) and self.topology.under_way:
            return None
        return self.way.bind(plan, self.given.u, self.out)

    def set_up(self, plan: MovePlan) -> None:  # noqa: ARG002
        """Complete older exchanges. *Collective*."""
        self.topology.complete()


class _TransferCall(KeptCall[MovePlan]):
    """Calls for fields of one kind, with the same arguments."""

    __slots__ = ("_way",)

    def __init__(self, verb: _Transfer) -> None:
        pulls = isinstance(kept_plans(verb.topology)[verb.key], Pull)
        agreement, other = verb.agree.prepared(), verb.given.pencil.topology
        super().__init__(verb.topology, verb.key, agreement, waits=pulls, other=other)
        self._way = verb.way

    def prepare(self, given: _Given, out: PencilArray | None) -> Found:
        """Agree and prepare. *Collective*."""
        found, flags = self.agreement.attempt(partial(self._bind, given, out))
        if flags & DEFERRED:  # other ranks need the plan
            return _Transfer(given, out).prepare(DEFERRED)
        self.touch()
        return found

    def _bind(self, given: _Given, out: PencilArray | None) -> Found:
        _check_out(given, out, self._way.spec)
        return self._way.bind(self.plan, given.u, out)


def _run(given: _Given, out: PencilArray | None) -> PencilArray:
    """Agree on a call, move what is needed, and compute. *Collective*."""
    key = given.key
    call: _TransferCall | None = None if key is None else given.u.pencil.kept[given.name].get(key)
    if call is not None and call.fits(out, PencilArray):
        ready, target, onto = call.prepare(given, out)
    else:
        verb = _Transfer(given, out)
        ready, target, onto = verb.prepare()
        if key is not None and given.u.pencil.topology is verb.topology:
            given.u.pencil.kept[given.name].add(key, _TransferCall(verb))
    unset_ghosts([target])
    ready.run()
    return target if onto is None else transpose(target, onto, out)


def _aligned(coarse: Pencil, fine: Pencil) -> Pencil:
    """Check that a pencil is a level of another, and return that whose blocks follow."""
    if not coarse.coarsened:
        raise ArgumentError(
            "the coarser pencil is no level of another; make it by pencil.coarsen(...), and change "
            f"it by with_() only where its points stay the same:\n{coarse!r}"
        )
    found = None
    if coarse.ndim == fine.ndim and coarse.periodic == fine.periodic and coarse.same_ranks(fine):
        factors, centred = zip(*coarse.coarsened, strict=True)
        with suppress(ArgumentError):  # of extents
            found = fine.level(factors, centred)
    if found is None or found.shape != coarse.shape:
        raise PencilMismatchError(
            f"the coarser pencil is no level of the finer one:\n{coarse!r}\n{fine!r}"
        )
    return found


def _check_out(given: _Given, out: PencilArray | None, spec: FieldSpec) -> None:
    check_out(out, given.pencil, spec)
    if out is None:
        if given.add:
            raise ArgumentError("add=True adds to a field: pass it as out=")
    elif np.may_share_memory(given.u.local, out.local):
        raise ArgumentError("out shares memory with the field; pass another one")


def _read(
    name: str, value: Any, allowed: Sequence[str], ndim: int, *, default: bool = False
) -> list[Any]:
    """Read one text for all dimensions, or one for each."""
    texts = f"{', '.join(map(repr, allowed[:-1]))} or {allowed[-1]!r}"
    found = each_dim(name, value, ndim, texts)
    if any(each not in [*allowed, *([None] * default)] for each in found):
        raise ArgumentError(
            f"{name}={value!r} must be {texts}, or one of these for each of {ndim} dimensions"
        )
    return found
