"""The function `transpose`: agree on the arguments, find the kept plan, and run it."""

from __future__ import annotations

from typing import cast

from pencils.array.operands import FieldSpec, check_out, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO, PreparedExchange
from pencils.errors import PencilMismatchError
from pencils.pencil import Pencil
from pencils.plan import Agreement, kept_plan, kept_plans, plan_buffers, prepare_together
from pencils.transposition.plan import Transposition, unset_ghosts_of


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
    plans = kept_plans(topology)

    def bind(agree: Agreement) -> tuple[object, PreparedExchange, list[PencilArray | None]] | None:
        check_type("u", u, PencilArray)
        check_type("pencil", pencil, Pencil)
        spec = FieldSpec.of(u)
        agree(source=u.pencil, target=pencil, **spec.signature)
        _check_pair(u.pencil, pencil)
        check_out(out, pencil, spec)
        key = u.pencil, pencil, spec
        plan = plans.get(key)
        return None if plan is None else (key, *plan.prepared([u], [out]))

    key, prepared, targets = prepare_together(
        agreed(topology.comm, "transpose"), bind, lambda: _make_plan(u, pencil)
    )
    plans.move_to_end(key)
    unset_ghosts_of(targets)
    prepared.run()
    return cast("PencilArray", targets[0])


def _make_plan(u: PencilArray, pencil: Pencil) -> None:
    """Make and keep the plan for a field; all kept plans share their memory. *Collective*."""
    topology, spec = u.pencil.topology, FieldSpec.of(u)
    buffers = plan_buffers(topology)
    kept_plan(
        topology,
        (u.pencil, pencil, spec),
        lambda: Transposition.for_spec(u.pencil, pencil, spec, AUTO, buffers=buffers),
    )


def _check_pair(source: Pencil, target: Pencil) -> None:
    if source.shape != target.shape or not source.same_ranks(target):
        what = "shape" if source.shape != target.shape else "processes in the same order"
        hint = "" if source.shape != target.shape else "; a Transposition can move between others"
        msg = f"both pencils must have the same global {what}{hint}:\n{source!r}\n{target!r}"
        raise PencilMismatchError(msg)
