"""Fields in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pencils.array.pencil_array import PencilArray

_SHOWN = 4  # values


def describe(field: PencilArray) -> str:
    """Say in a few lines what a field is, and what this rank owns of it."""
    pencil, box = field.pencil, field.extent.box
    owned = ", ".join(f"{lo}:{hi}" for lo, hi in zip(box.start, box.stop, strict=True))
    extras = [f"components {field.components}"] if field.components else []
    extras += [f"singleton dimensions {sorted(field.singletons)}"] if field.singletons else []
    extras += [f"halo {field.halo}"] if any(map(any, field.halo)) else []
    extras += [f"trimmed along {sorted(field.trimmed)}"] if field.trimmed else []
    first = list(map(str, field.local.flat[:_SHOWN]))
    more = ["..."] if field.local.size > _SHOWN else []
    lines = (
        f"<PencilArray {field.shape} {field.dtype}{''.join(', ' + extra for extra in extras)}>",
        f"  on {pencil!r}",
        f"  rank {pencil.rank} of {pencil.size} owns [{owned}], local shape {field.local_shape}",
        " ".join(("  local values", *first, *more)),
    )
    return "\n".join(lines)
