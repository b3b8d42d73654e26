"""What all fields have in common that the same plan moves, and the checks of fields against it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.pencil import Pencil


class FieldSpec(NamedTuple):
    """Element type, components and singleton dimensions of fields, without their pencil."""

    dtype: np.dtype[Any]
    components: tuple[int, ...]
    singletons: frozenset[int]

    @property
    def signature(self) -> dict[str, object]:
        """The same by name, in a form on which ranks can agree."""
        return {
            "dtype": self.dtype,
            "components": self.components,
            "singletons": sorted(self.singletons),
        }


def check_source(
    u: PencilArray | None, pencil: Pencil | None, spec: FieldSpec, name: str = "u"
) -> None:
    """Check a field to be moved, or that there is none where the pencil has no part."""
    if pencil is not None:
        check_type(name, u, PencilArray)
    _check_field(name, u, pencil, spec)


def check_place(u: PencilArray, pencil: Pencil, singletons: frozenset[int]) -> None:
    """Check that a field lies on a pencil, whatever its type and components."""
    check_type("u", u, PencilArray)
    check_source(u, pencil, FieldSpec(u.dtype, u.components, singletons))


def check_writeable(u: PencilArray) -> None:
    """Check that the own points of a field may be written."""
    if not u.local.flags.writeable:
        msg = "u is read-only; pass a field that may be written"
        raise ArgumentError(msg)


def check_out(out: PencilArray | None, pencil: Pencil | None, spec: FieldSpec) -> None:
    """Check a field to be filled, if there is one."""
    _check_field("out", out, pencil, spec)
    if out is not None and not out.local.flags.writeable:
        msg = "out is read-only; pass a field that may be written, or none"
        raise ArgumentError(msg)


def _check_field(name: str, u: PencilArray | None, pencil: Pencil | None, spec: FieldSpec) -> None:
    if u is None:
        return
    check_type(name, u, PencilArray)
    if pencil is None:
        msg = f"{name} must be None on a process that has no part in the pencil"
        raise ArgumentError(msg)
    if u.pencil is not pencil and not u.pencil.same_blocks(pencil):
        msg = f"{name} lies on\n{u.pencil!r}\nbut should lie on\n{pencil!r}"
        raise PencilMismatchError(msg)
    given = FieldSpec(u.dtype, u.components, u.singletons)
    if given != spec:
        msg = (
            f"{name} has dtype {given[0]}, components {given[1]} and singleton dimensions "
            f"{sorted(given[2])}; it must have {spec[0]}, {spec[1]} and {sorted(spec[2])}"
        )
        raise ArgumentError(msg)
