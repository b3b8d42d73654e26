"""The function `transpose`: agree on the arguments, find the kept plan, and run it."""

from __future__ import annotations

from pencils.array.operands import FieldSpec, check_out, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO
from pencils.errors import PencilMismatchError
from pencils.pencil import Pencil
from pencils.plan import fastest_methods, kept_plan, kept_plans, plan_buffers
from pencils.transposition.plan import Transposition
from pencils.transposition.sides import method_key


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
    topology = topology_among(u, pencil, out)
    with agreed(topology.comm, "transpose") as agree:
        check_type("u", u, PencilArray)
        check_type("pencil", pencil, Pencil)
        spec = FieldSpec(u.dtype, u.components, u.singletons)
        agree(source=u.pencil, target=pencil, **spec.signature)
        _check_pair(u.pencil, pencil)
        check_out(out, pencil, spec)
        target = PencilArray.allocated(pencil, *spec) if out is None else out
        known = kept_plans(topology).get((u.pencil, pencil, spec))
        if known is not None:
            known.prepared([u], [target])
        agree.defer(up=known is None)
    plan = _find_plan(u, pencil, spec)
    if agree.deferred:
        with agreed(topology.comm, "transpose"):
            plan.prepared([u], [target])
    return plan(u, target)


def _find_plan(u: PencilArray, pencil: Pencil, spec: FieldSpec) -> Transposition:
    """Return the kept plan for a field; all kept plans share their memory. *Collective*."""
    topology = u.pencil.topology
    found: Transposition = kept_plan(
        topology,
        (u.pencil, pencil, spec),
        lambda: Transposition.for_spec(
            u.pencil, pencil, spec, AUTO, buffers=plan_buffers(topology)
        ),
    )
    return found


def remember_method(source: Pencil, target: Pencil, spec: FieldSpec, method: str) -> None:
    """Set the method that ``method="auto"`` uses. *Collective*."""
    topology = source.topology
    fastest_methods(topology)[method_key(source.layout, target.layout, spec)] = method
    plans = kept_plans(topology)
    while plans:  # made before this was known
        plans.popitem()[1].free()


def _check_pair(source: Pencil, target: Pencil) -> None:
    if source.shape != target.shape or not source.same_ranks(target):
        what = "shape" if source.shape != target.shape else "processes in the same order"
        hint = "" if source.shape != target.shape else "; a Transposition can move between others"
        msg = f"both pencils must have the same global {what}{hint}:\n{source!r}\n{target!r}"
        raise PencilMismatchError(msg)
