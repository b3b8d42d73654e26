"""The functions `transpose`, which keeps its plans, `whole` and `alias`, and assignments.

1. Fields and pencils like those of a call before find their `_TransposeCall`, without comparing.
2. Others agree on all arguments, and find their plan, or make it together with all ranks: see
   `KeptVerb`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, cast

from numpy.typing import DTypeLike

from pencils.array.allocation import (
    allocate_bytes,
    arrange,
    as_components,
    as_dtype,
    as_singletons,
    padded_shape,
)
from pencils.array.indexing import check_moved
from pencils.array.operands import FieldSpec, as_pencils, check_out, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import DEFERRED, PreparedAgreement, agreed
from pencils.comm.exchange import AUTO
from pencils.comm.topology import Topology
from pencils.errors import PencilMismatchError
from pencils.layout.integers import as_dim
from pencils.pencil import Pencil
from pencils.plans import (
    Agreement,
    KeptCall,
    KeptVerb,
    NoAgreement,
    PlanKey,
    kept_agreement,
    kept_plans,
    plan_buffers,
)
from pencils.transposition.plan import Move, Transposition, unset_ghosts

_ASSIGN = "assignment"  # the verb of `assign`


def transpose(u: PencilArray, pencil: Pencil, out: PencilArray | None = None) -> PencilArray:
    """Move a field to another pencil of the same shape. *Collective*.

    Plans are kept, so calls in a loop are cheap; `Transposition` gives control over the method,
    overlap and checks.

    Parameters
    ----------
    u : PencilArray
        The field; its halo is not moved.
    pencil : Pencil
        The target: same global shape and processes; anything else may differ.
    out : PencilArray, optional
        Field on `pencil` to fill; it may have a halo, which is not touched. It may share memory
        with `u`. Default: a new field without halo.

    Returns
    -------
    PencilArray
        `out`.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if the arguments do not fit.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.ones(pencils.Pencil((8, 6), decomp=0))
    >>> pencils.transpose(u, u.pencil.with_(decomp=1)).pencil.decomp
    (1,)
    """
    call: _TransposeCall | None = None
    if type(u) is PencilArray and type(pencil) is Pencil:  # isinstance() may raise
        call = u.pencil.kept["transpose"].get((pencil, u.kind))
    if call is None or not call.fits(out, PencilArray):
        verb = _Transpose(u, pencil, out)
        move, target = verb.prepare()
        verb.keep()
    else:
        move, target = call.prepare(u, out, lambda: _Transpose(u, pencil, out))
    unset_ghosts([target])
    move.run_agreed()
    return target


def assign(section: PencilArray, value: PencilArray) -> None:
    """Copy a field to a section whose points lie on other ranks. *Collective*.

    A field of another type, or one that broadcasts, is moved first and copied then.
    """
    kinds = section.kind, value.kind
    call: _TransposeCall | None = value.pencil.kept[_ASSIGN].get(kinds)
    alike = FieldSpec.of(section) == FieldSpec.of(value) if call is None else call.fills
    out = section if alike else None
    if call is None or not call.fits(out, PencilArray) or not section.local.flags.writeable:
        verb = _Assign(section, value, out)
        move, target = verb.prepare()
        verb.keep()
    else:
        move, target = call.prepare(value, out, lambda: _Assign(section, value, out))
    unset_ghosts([target])
    move.run_agreed()
    if out is None:
        section.local[...] = target.local
        section.mark_written()


class _Transpose(KeptVerb[Transposition, tuple[Move, PencilArray]]):
    """A call of `transpose`, whose plan may have to be made first."""

    def __init__(self, u: Any, pencil: Any, out: Any, name: str = "transpose") -> None:
        super().__init__(name, topology_among(u, pencil, out))
        self._given = u, pencil, out

    def signature(self, agree: Agreement) -> PlanKey:
        """Check the arguments."""
        u, pencil, out = self._given
        check_type("u", u, PencilArray)
        check_type("pencil", pencil, Pencil)
        spec = FieldSpec.of(u)
        agree(source=u.pencil, target=pencil, **spec.signature)
        if u.pencil.shape != pencil.shape or not u.pencil.same_ranks(pencil):
            what = "shape" if u.pencil.shape != pencil.shape else "processes in the same order"
            hint = "" if what == "shape" else "; a Transposition can move between others"
            raise PencilMismatchError(
                f"both pencils must have the same global {what}{hint}:\n{u.pencil!r}\n{pencil!r}"
            )
        check_out(out, pencil, spec)
        return u.pencil, pencil, spec

    def make(self) -> Transposition:
        """Make the plan. *Collective*."""
        u, pencil, _ = self._given
        buffers = plan_buffers(self.topology)  # all kept plans share their memory
        return Transposition.for_spec(u.pencil, pencil, FieldSpec.of(u), AUTO, buffers=buffers)

    def bind(self, plan: Transposition) -> tuple[Move, PencilArray] | None:
        """Slice and pack; None if something must be made first."""
        u, pencil, out = self._given
        if plan.needs_setup(1):
            return None
        target = PencilArray.allocated(pencil, *plan.spec) if out is None else out
        move = plan.prepared_one(u, target)
        move.pack()
        return move, target

    def set_up(self, plan: Transposition) -> None:
        """Complete what is under way, and make the exchange. *Collective*."""
        plan.set_up(1)

    def keep(self) -> None:
        """Keep the plan for other fields of this kind."""
        u, pencil, _ = self._given
        self._keep("transpose", (pencil, u.kind))

    def _keep(self, name: str, key: object) -> None:
        u, pencil, out = self._given
        if u.pencil.topology is self.topology and self.key is not None:
            call = _TransposeCall(self.topology, pencil, self.key, self.agree.prepared())
            call.fills = out is not None
            u.pencil.kept[name].add(key, call)


class _Assign(_Transpose):
    """An assignment whose plan may have to be made first: that of a transpose."""

    def __init__(self, section: PencilArray, value: PencilArray, out: PencilArray | None) -> None:
        super().__init__(value, section.pencil, out, _ASSIGN)
        self._section = section

    def signature(self, agree: Agreement) -> PlanKey:
        """Check the section and the field."""
        value, pencil, _ = self._given
        check_type("value", value, PencilArray)
        spec, target = FieldSpec.of(value), FieldSpec.of(self._section)
        agree(source=value.pencil, target=pencil, **spec.signature)
        agree(assigned=target.signature)
        check_moved(self._section, value)
        return value.pencil, pencil, spec

    def keep(self) -> None:
        """Keep the plan for other fields and sections of these kinds."""
        self._keep(_ASSIGN, (self._section.kind, self._given[0].kind))


class _TransposeCall(KeptCall[Transposition]):
    """Calls of `transpose` for fields of one kind."""

    fills = False  # whether the first one had an output, which assignments of a kind have, or not

    def __init__(
        self, topology: Topology, target: Pencil, key: PlanKey, agreement: PreparedAgreement
    ) -> None:
        plan: Transposition = kept_plans(topology)[key]
        waits = plan.pull is not None
        super().__init__(topology, key, agreement, waits=waits, other=target.topology)
        self._new = PencilArray.maker(target, *plan.spec)

    def prepare(
        self, u: PencilArray, out: PencilArray | None, verb: Callable[[], _Transpose]
    ) -> tuple[Move, PencilArray]:
        """Agree and prepare; as the verb does, if ranks lack a plan. *Collective*."""
        found = self.plan.agree_on(self.agreement, u, out, self._new)
        if found is None:  # other ranks need setup
            return verb().prepare(DEFERRED)
        self.touch()
        return cast("tuple[Move, PencilArray]", found)


def whole(u: PencilArray, axis: int) -> PencilArray:
    """Return a field with whole lines along an axis: see `PencilArray.whole`. *Collective*."""
    pencil = u.pencil
    out = None
    with kept_agreement(pencil, "whole").block() as agree:
        number = as_dim("axis", axis, u.ndim)
        dim = number - len(u.components)
        agree(axis=number, dim=dim)
        target = pencil if dim < 0 else pencil.whole(dim)
        if target is not pencil:  # a plan may be kept for another pencil that is equal
            out = PencilArray.allocated(target, u.dtype, u.components, u.singletons)
    return u if out is None else transpose(u, target, out)


def alias(
    pencils: Sequence[Pencil],
    dtype: DTypeLike = float,
    *,
    components: int | Sequence[int] = (),
    dims: Sequence[int] | int | None = None,
    shared: bool = False,
) -> tuple[PencilArray, ...]:
    """Make fields that share the same memory, one for each pencil, to transpose in place.

    Writing one of them overwrites the others. Transposing between two of them needs no second
    field: each rank packs what it sends first.

    Parameters
    ----------
    pencils : sequence of Pencil
        Pencils over the same processes, such as the stages of a Fourier transform.
    dtype : dtype, optional
        Element type.
    components : int or sequence of int, optional
        Shape of the component axes.
    dims : int or sequence of int, optional
        Dimensions along which the fields vary; they are singletons along the others.
    shared : bool, optional
        Whether the other ranks of the node can read the memory. The call is then *Collective*.

    Returns
    -------
    tuple of PencilArray
        Fields whose values are not set. All begin at the same address, in memory of the size of the
        largest block on this rank.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError
        If there is no pencil, pencils have different processes, or an argument is not allowed.

    Examples
    --------
    >>> import pencils
    >>> rows = pencils.Pencil((8, 6), decomp=0)
    >>> u, v = pencils.alias([rows, rows.with_(decomp=1)])
    >>> u[...] = 1
    >>> pencils.transpose(u, v.pencil, out=v).sum()
    np.float64(48.0)
    """
    with agreed(topology_among(pencils).comm, "alias") if shared else NoAgreement() as agree:
        given = as_pencils(pencils)
        element, lead = as_dtype(dtype), as_components(components)
        singletons = [as_singletons(pencil.ndim, dims) for pencil in given]
        agree(pencils=given, dtype=element)
        agree(components=lead, singletons=list(map(sorted, singletons)))
    shapes = [
        padded_shape(pencil, lead, along, ((0, 0),) * pencil.ndim)
        for pencil, along in zip(given, singletons, strict=True)
    ]
    nbytes = element.itemsize * max(map(prod, shapes))
    memory = allocate_bytes(given[0], nbytes, shared=shared)
    return tuple(
        PencilArray.from_block(pencil, arrange(memory, pencil, element, shape), along)
        for pencil, shape, along in zip(given, shapes, singletons, strict=True)
    )
