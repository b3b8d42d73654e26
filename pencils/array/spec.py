"""What fields have in common that the same plan moves, how it moves them, and what it refuses."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout import Layout
from pencils.layout.integers import to_int
from pencils.pencil import Pencil


class Kind(NamedTuple):
    """What fields of a plan have in common, besides their pencil."""

    dtype: np.dtype[Any]
    components: tuple[int, ...]
    singletons: frozenset[int]


class Options(NamedTuple):
    """How a plan works."""

    method: str
    staging: int | None
    check: bool


def kind_facts(kind: Kind) -> dict[str, object]:
    """Name what all ranks must agree on about the fields of a plan."""
    return {
        "dtype": kind.dtype,
        "components": kind.components,
        "singletons": sorted(kind.singletons),
    }


def check_source(u: PencilArray | None, pencil: Pencil | None, kind: Kind, name: str = "u") -> None:
    """Check a field to be moved, or that there is none where the pencil has no part."""
    if pencil is not None:
        check_type(name, u, PencilArray)
    _check_field(name, u, pencil, kind)


def check_place(u: PencilArray, pencil: Pencil, singletons: frozenset[int]) -> None:
    """Check that a field lies on a pencil, whatever its type and components."""
    check_type("u", u, PencilArray)
    check_source(u, pencil, Kind(u.dtype, u.components, singletons))


def check_writeable(u: PencilArray) -> None:
    """Check that the own points of a field may be written."""
    if not u.local.flags.writeable:
        msg = "u is read-only; pass a field that may be written"
        raise ArgumentError(msg)


def check_out(out: PencilArray | None, pencil: Pencil | None, kind: Kind) -> None:
    """Check a field to be filled, if there is one."""
    _check_field("out", out, pencil, kind)
    if out is not None and not out.local.flags.writeable:
        msg = "out is read-only; pass a field that may be written, or none"
        raise ArgumentError(msg)


def _check_field(name: str, field: PencilArray | None, pencil: Pencil | None, kind: Kind) -> None:
    if field is None:
        return
    check_type(name, field, PencilArray)
    if pencil is None:
        msg = f"{name} must be None on a process that has no part in the pencil"
        raise ArgumentError(msg)
    if field.pencil is not pencil and not field.pencil.same_blocks(pencil):
        msg = f"{name} lies on\n{field.pencil!r}\nbut should lie on\n{pencil!r}"
        raise PencilMismatchError(msg)
    given = Kind(field.dtype, field.components, field.singletons)
    if given != kind:
        msg = (
            f"{name} has dtype {given[0]}, components {given[1]} and singleton dimensions "
            f"{sorted(given[2])}; it must have {kind[0]}, {kind[1]} and {sorted(kind[2])}"
        )
        raise ArgumentError(msg)


def method_key(source: Layout, target: Layout, kind: Kind) -> tuple[str, str, Kind]:
    """Name what the fastest method depends on, on a given communicator."""
    return str(source), str(target), kind


def read_staging(staging: int | None) -> int | None:
    """Check a bound on staging."""
    if staging is None:
        return None
    nbytes = to_int(staging)
    if nbytes is None:
        msg = f"staging={staging!r} must be a number of bytes, or None for no bound"
        raise TypeError(msg)
    if nbytes < 1:
        msg = f"staging={staging!r} must be at least 1 byte, or None for no bound"
        raise ArgumentError(msg)
    return nbytes
