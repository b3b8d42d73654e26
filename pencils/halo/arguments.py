"""What halo exchanges are given: fields of certain kinds, and how to go about them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pencils.array.operands import check_type, common_pencil
from pencils.array.pencil_array import PencilArray
from pencils.comm.exchange import AUTO
from pencils.comm.machine import allows_threads
from pencils.comm.methods import METHODS
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.halo.block import HaloKind
from pencils.halo.rounds import ROUTES

if TYPE_CHECKING:
    from pencils.pencil import Pencil

MEASURE = "measure"
WAYS = (AUTO, *(name for name, method in METHODS.items() if method.versatile))


class HaloOptions(NamedTuple):
    """How a plan works."""

    corners: bool
    route: str
    method: str
    check: bool
    progress: bool = False


def read_options(
    *, corners: object, route: object, method: object, check: object, progress: object
) -> HaloOptions:
    """Check how to go about an exchange.

    Raises
    ------
    ArgumentError
        If there is no such route or method, or MPI does not allow a thread of our own.
    """
    for name, value, known in (
        ("route", route, [AUTO, *ROUTES, MEASURE]),
        ("method", method, list(WAYS)),
    ):
        if value not in known:
            msg = f"{name} {value!r} is unknown; halos are exchanged by {', '.join(known)}"
            raise ArgumentError(msg)
    if progress and not allows_threads():
        msg = "progress=True needs an MPI library initialised with MPI.THREAD_MULTIPLE"
        raise ArgumentError(msg)
    return HaloOptions(bool(corners), str(route), str(method), bool(check), bool(progress))


def read_fields(fields: Any) -> list[PencilArray]:
    """Read one field, or a sequence of distinct ones that share their blocks.

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
    for number, field in enumerate(fields):
        check_type("a field" if len(fields) == 1 else f"fields[{number}]", field, PencilArray)
        _check_writeable(field)
    _check_blocks(fields)
    if any(np.may_share_memory(one.padded, two.padded) for one, two in combinations(fields, 2)):
        msg = "two of the fields share memory; give each once, and no views of another one"
        raise ArgumentError(msg)
    return list(fields)


def read_kinds(fields: Sequence[PencilArray]) -> list[HaloKind]:
    """Return what a plan has to know of each field."""
    return [_kind(field) for field in fields]


def are_private(fields: Sequence[PencilArray]) -> bool:
    """Whether other ranks of the node cannot read all of the fields."""
    return not all(field.pencil.topology.is_shared(field.padded) for field in fields)


def facts(fields: Sequence[PencilArray]) -> dict[str, object]:
    """Name what all ranks must agree on about fields that are exchanged together."""
    return {
        "fields": len(fields),
        "pencils": [field.pencil for field in fields],
        "dtypes": [field.dtype for field in fields],
        "components": [field.components for field in fields],
        "singletons": [sorted(field.singletons) for field in fields],
        "halos": [field.halo for field in fields],
        "trimmed": [sorted(field.trimmed) for field in fields],
    }


def check_fields(
    fields: Sequence[PencilArray], pencils: Sequence[Pencil], kinds: Sequence[HaloKind]
) -> None:
    """Check that fields are what a plan was made for, given their pencils and kinds.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError
        If they are not.
    """
    if len(fields) != len(kinds):
        msg = f"the plan is for {len(kinds)} fields, but got {len(fields)}"
        raise ArgumentError(msg)
    read_fields(fields)
    for number, (field, pencil, kind) in enumerate(zip(fields, pencils, kinds, strict=True)):
        if not field.pencil.same_blocks(pencil):
            msg = f"field {number} lies on\n{field.pencil!r}\nbut the plan is for\n{pencil!r}"
            if not field.pencil.same_ranks(pencil):
                msg += "\nover other processes, or over the same in another order"
            raise PencilMismatchError(msg)
        if field.pencil.periodic != pencil.periodic:
            msg = (
                f"field {number} lies on a pencil with periodic={field.pencil.periodic}; the plan "
                f"is for {pencil.periodic}, which says where ghosts come from"
            )
            raise PencilMismatchError(msg)
        given = _kind(field)
        for name in ("dtype", "components", "singletons", "halo", "trimmed"):
            here, wanted = getattr(given, name), getattr(kind, name)
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
    if not any(any(map(any, field.halo)) for field in fields):
        what = "the field has no halo" if len(fields) == 1 else "none of the fields has a halo"
        msg = (
            f"{what}, so that there are no ghosts; make it with one, as in zeros(pen, halo=1), or "
            "leave out this call"
        )
        raise ArgumentError(msg)


def check_additive(kinds: Sequence[HaloKind]) -> None:
    """Check that ghosts can be added.

    Raises
    ------
    TypeError
        If they are no numbers.
    """
    for kind in kinds:
        if kind.dtype.kind not in "iufc":
            msg = f"ghosts of dtype {kind.dtype} cannot be added up; that takes numbers"
            raise TypeError(msg)


def _check_blocks(fields: Sequence[PencilArray]) -> None:
    """Check that neighbours are the same for all fields, as on staggered grids."""
    first = fields[0].pencil
    if not all(field.pencil is first or field.pencil.shares_blocks(first) for field in fields):
        common_pencil(fields)  # says what is wrong


def _kind(field: PencilArray) -> HaloKind:
    return HaloKind(
        field.pencil.layout,
        field.singletons,
        field.halo,
        field.trimmed,
        field.components,
        field.dtype,
    )


def _check_writeable(field: PencilArray) -> None:
    if not field.padded.flags.writeable:
        msg = "a field is read-only, like the data it views; take u.copy()"
        raise ArgumentError(msg)
