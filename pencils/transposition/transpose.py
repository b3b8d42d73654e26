"""Move fields from one pencil to another of the same shape, by plans that are kept."""

from __future__ import annotations

from pencils.array.operands import check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.array.spec import FieldSpec, check_out
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO
from pencils.errors import PencilMismatchError
from pencils.pencil import Pencil
from pencils.plan import kept_plan
from pencils.transposition.options import method_key
from pencils.transposition.plan import Transposition


def transpose(u: PencilArray, pencil: Pencil, out: PencilArray | None = None) -> PencilArray:
    """Move a field to another pencil of the same shape. *Collective*.

    Plans are kept and found again, so calling this in a loop is fine; `Transposition` gives control
    over the method, overlap and checks.

    Parameters
    ----------
    u : PencilArray
        The field; its halo is left behind.
    pencil : Pencil
        Where to; same global shape and processes, anything else may differ.
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
    topology = topology_among(u, pencil, out)
    with agreed(topology.comm, "transpose") as agree:
        check_type("u", u, PencilArray)
        check_type("pencil", pencil, Pencil)
        kind = FieldSpec(u.dtype, u.components, u.singletons)
        agree(source=u.pencil, target=pencil, **kind.signature)
        _check_pair(u.pencil, pencil)
        check_out(out, pencil, kind)
        target = PencilArray.allocated(pencil, *kind) if out is None else out
        known = topology.plans.get((u.pencil, pencil, kind))
        if known is not None:
            known.prepared([u], [target])
        agree.defer(up=known is None)
    plan = _find_plan(u, pencil, kind)
    if agree.deferred:
        with agreed(topology.comm, "transpose"):
            plan.prepared([u], [target])
    return plan(u, target)


def _find_plan(u: PencilArray, pencil: Pencil, kind: FieldSpec) -> Transposition:
    """Find the plan for a field, or make it; all of them share their memory."""
    topology = u.pencil.topology
    found: Transposition = kept_plan(
        topology,
        (u.pencil, pencil, kind),
        lambda: Transposition.for_kind(u.pencil, pencil, kind, AUTO, buffers=topology.buffers),
    )
    return found


def remember_method(source: Pencil, target: Pencil, kind: FieldSpec, method: str) -> None:
    """Have plans that choose for themselves take this method. *Collective*."""
    topology = source.topology
    topology.methods[method_key(source.layout, target.layout, kind)] = method
    while topology.plans:  # they were chosen without knowing
        topology.plans.popitem()[1].free()


def _check_pair(source: Pencil, target: Pencil) -> None:
    if source.shape != target.shape or not source.same_ranks(target):
        what = "shape" if source.shape != target.shape else "processes in the same order"
        hint = "" if source.shape != target.shape else "; a Transposition can move between others"
        msg = f"both pencils must have the same global {what}{hint}:\n{source!r}\n{target!r}"
        raise PencilMismatchError(msg)
