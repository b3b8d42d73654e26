"""The verb `whole` of fields: transpose to where lines along an axis are whole."""

from __future__ import annotations

from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import PreparedAgreement, agreed
from pencils.layout.integers import as_dim
from pencils.pencil import Pencil, keep
from pencils.transposition.kept import transpose


def whole(u: PencilArray, axis: int) -> PencilArray:
    """Return a field with whole lines along an axis: see `PencilArray.whole`. *Collective*."""
    pencil = u.pencil
    out = None
    with _agreement(pencil) as agree:
        number = as_dim("axis", axis, u.ndim)
        dim = number - len(u.components)
        agree(axis=number, dim=dim)
        target = pencil if dim < 0 else pencil.whole(dim)
        if target is not pencil:  # a plan may be kept for another pencil that is equal
            out = PencilArray.allocated(target, u.dtype, u.components, u.singletons)
    return u if out is None else transpose(u, target, out)


def _agreement(pencil: Pencil) -> agreed:
    """Return the context in which the ranks agree on a call; it is prepared once."""
    row: PreparedAgreement | None = pencil.kept.get("whole")
    if row is None or pencil.topology.freed:
        row = PreparedAgreement(pencil.topology.comm, "whole", pencil=pencil)
        keep(pencil, "whole", row)
    return row.block()
