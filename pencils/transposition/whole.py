"""The verb `whole` of fields: transpose to where lines along an axis are whole."""

from __future__ import annotations

from pencils.array.operands import signature
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.layout.integers import as_dim
from pencils.transposition.kept import transpose


def whole(u: PencilArray, axis: int) -> PencilArray:
    """Return a field with whole lines along an axis: see `PencilArray.whole`. *Collective*."""
    pencil = u.pencil
    with agreed(pencil.topology.comm, "whole") as agree:
        agree(**signature(u))
        number = as_dim("axis", axis, u.ndim)
        agree(axis=number)
        dim = number - len(u.components)
        target = pencil if dim < 0 else pencil.whole(dim)
        if target is pencil:
            out = None
        else:  # on this pencil, not on an equal one of a kept plan
            out = PencilArray.allocated(target, u.dtype, u.components, u.singletons)
    return u if out is None else transpose(u, target, out)
