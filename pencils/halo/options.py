"""The arguments of halo exchanges: options of plans, and the checks of fields."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from pencils.array.operands import check_type, common_pencil
from pencils.array.pencil_array import PencilArray
from pencils.comm.exchange import AUTO
from pencils.comm.methods import METHODS
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.halo.schedule import ROUTES, HaloSpec
from pencils.pencil import Pencil

MEASURE = "measure"
HALO_METHODS = (AUTO, *(name for name, method in METHODS.items() if method.versatile))


class HaloOptions(NamedTuple):
    """How a plan works."""

    corners: bool
    route: str
    method: str
    check: bool


def as_options(*, corners: object, route: object, method: object, check: object) -> HaloOptions:
    """Check the options of a plan.

    Raises
    ------
    ArgumentError
        If there is no such route or method.
    """
    for name, value, known in (
        ("route", route, [AUTO, *ROUTES, MEASURE]),
        ("method", method, list(HALO_METHODS)),
    ):
        if value not in known:
            msg = f"unknown {name} {value!r}; choose from {', '.join(known)}"
            raise ArgumentError(msg)
    return HaloOptions(bool(corners), str(route), str(method), bool(check))


def as_fields(fields: Any) -> list[PencilArray]:
    """Return a list of one field, or of several distinct ones that have the same blocks.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError
        If they are anything else, or cannot be written.
    """
    if isinstance(fields, PencilArray):
        fields = [fields]
    if not isinstance(fields, list | tuple):
        msg = f"fields must be a PencilArray or a sequence of them, not {type(fields).__name__}"
        raise TypeError(msg)
    if not fields:
        msg = "fields must hold at least one field"
        raise ArgumentError(msg)
    for number, u in enumerate(fields):
        check_type("a field" if len(fields) == 1 else f"fields[{number}]", u, PencilArray)
        if not u.padded.flags.writeable:
            msg = "a field is read-only, like the data it views; take u.copy()"
            raise ArgumentError(msg)
    first = fields[0].pencil
    # On staggered grids the pencils differ, but neighbours are the same for all fields.
    if not all(u.pencil is first or u.pencil.shares_blocks(first) for u in fields):
        common_pencil(fields)  # raises the error that names both pencils
    if any(np.may_share_memory(one.padded, two.padded) for one, two in combinations(fields, 2)):
        msg = "two of the fields share memory; give each once, and no views of another one"
        raise ArgumentError(msg)
    return list(fields)


def signature(fields: Sequence[PencilArray]) -> dict[str, object]:
    """Name what all ranks must agree on about fields that are exchanged together."""
    return {
        "fields": len(fields),
        "pencils": [u.pencil for u in fields],
        "dtypes": [u.dtype for u in fields],
        "components": [u.components for u in fields],
        "singletons": [sorted(u.singletons) for u in fields],
        "halos": [u.halo for u in fields],
        "trimmed": [sorted(u.trimmed) for u in fields],
    }


def are_private(fields: Sequence[PencilArray]) -> bool:
    """Whether any of the fields is not in memory that other ranks of the node can read."""
    return not all(u.pencil.topology.is_shared(u.padded) for u in fields)


def check_fields(
    fields: Sequence[PencilArray], pencils: Sequence[Pencil], specs: Sequence[HaloSpec]
) -> None:
    """Check that fields fit the pencils and specs of a plan.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError
        If they do not.
    """
    if len(fields) != len(specs):
        msg = f"the plan is for {len(specs)} fields, but got {len(fields)}"
        raise ArgumentError(msg)
    as_fields(fields)
    for number, (u, pencil, spec) in enumerate(zip(fields, pencils, specs, strict=True)):
        if not u.pencil.same_blocks(pencil):
            msg = f"field {number} lies on\n{u.pencil!r}\nbut the plan is for\n{pencil!r}"
            if not u.pencil.same_ranks(pencil):
                msg += "\nover other processes, or over the same in another order"
            raise PencilMismatchError(msg)
        if u.pencil.periodic != pencil.periodic:
            msg = (
                f"field {number} lies on a pencil with periodic={u.pencil.periodic}; the plan "
                f"is for {pencil.periodic}, which decides where ghosts come from"
            )
            raise PencilMismatchError(msg)
        given = HaloSpec.of(u)
        for name in ("dtype", "components", "singletons", "halo", "trimmed"):
            here, wanted = getattr(given, name), getattr(spec, name)
            if here != wanted:
                msg = f"field {number} has {name} {here}; the plan is for {wanted}"
                raise ArgumentError(msg)


def check_halos(fields: Sequence[PencilArray]) -> None:
    """Check that there is a halo to exchange.

    Raises
    ------
    ArgumentError
        If no field has one.
    """
    if not any(any(map(any, u.halo)) for u in fields):
        what = "the field has no halo" if len(fields) == 1 else "none of the fields has a halo"
        msg = (
            f"{what}, so that there are no ghosts; make it with one, as in zeros(pen, halo=1), or "
            "leave out this call"
        )
        raise ArgumentError(msg)


def check_numeric(specs: Sequence[HaloSpec]) -> None:
    """Check that ghosts can be added.

    Raises
    ------
    TypeError
        If the elements are not numbers.
    """
    for spec in specs:
        if spec.dtype.kind not in "iufc":
            msg = f"ghosts of dtype {spec.dtype} cannot be added up; that takes numbers"
            raise TypeError(msg)
