"""What halo exchanges are given: fields of certain kinds, and how to go about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pencils.comm.exchange import AUTO
from pencils.comm.machine import allows_threads
from pencils.errors import ArgumentError
from pencils.halo.block import Kind
from pencils.halo.rounds import ROUTES
from pencils.operands import Field, check_type, common_pencil

if TYPE_CHECKING:
    from pencils.array import PencilArray

MEASURE = "measure"
METHODS = (AUTO, "shared", "hybrid", "messages")


class Options(NamedTuple):
    """How a plan works."""

    corners: bool
    route: str
    method: str
    check: bool
    progress: bool = False


def read_options(
    corners: object, route: object, method: object, *, check: object, progress: object
) -> Options:
    """Check how to go about an exchange.

    Raises
    ------
    ArgumentError
        If there is no such route or method, or MPI does not allow a thread of our own.
    """
    for name, value, known in (
        ("route", route, [AUTO, *ROUTES, MEASURE]),
        ("method", method, list(METHODS)),
    ):
        if value not in known:
            msg = f"{name} {value!r} is unknown; halos are exchanged by {', '.join(known)}"
            raise ArgumentError(msg)
    if progress and not allows_threads():
        msg = "progress=True needs an MPI library initialised with MPI.THREAD_MULTIPLE"
        raise ArgumentError(msg)
    return Options(bool(corners), str(route), str(method), bool(check), bool(progress))


def read_fields(fields: Any) -> list[PencilArray]:
    """Read one field, or a sequence of distinct ones that share their blocks.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError
        If they are anything else, or cannot be written.
    """
    if isinstance(fields, Field):
        fields = [fields]
    if not isinstance(fields, list | tuple):
        msg = f"fields must be a PencilArray or a sequence of them, not {type(fields).__name__}"
        raise TypeError(msg)
    if not fields:
        msg = "fields must hold at least one field"
        raise ArgumentError(msg)
    for number, field in enumerate(fields):
        check_type("a field" if len(fields) == 1 else f"fields[{number}]", field, Field)
        _check_writeable(field)
    _check_blocks(fields)
    if len({id(field) for field in fields}) < len(fields):
        msg = "the same field is given twice; give each once"
        raise ArgumentError(msg)
    return list(fields)


def read_kinds(fields: Sequence[PencilArray]) -> list[Kind]:
    """Return what a plan has to know of each field."""
    return [_kind(field) for field in fields]


def are_private(fields: Sequence[PencilArray]) -> bool:
    """Whether other ranks of the node cannot read all of the fields."""
    return not all(field.pencil.topology.is_shared(field.padded) for field in fields)


def facts(fields: Sequence[PencilArray]) -> dict[str, object]:
    """Name what all ranks must agree on about fields that are exchanged together."""
    return {
        "fields": len(fields),
        "pencils": [repr(field.pencil) for field in fields],
        "dtypes": [field.dtype for field in fields],
        "components": [field.components for field in fields],
        "singletons": [sorted(field.singletons) for field in fields],
        "halos": [field.halo for field in fields],
    }


def check_fields(fields: Sequence[PencilArray], kinds: Sequence[Kind]) -> None:
    """Check that fields are what a plan was made for.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError
        If they are not.
    """
    if len(fields) != len(kinds):
        msg = f"the plan is for {len(kinds)} fields, but got {len(fields)}"
        raise ArgumentError(msg)
    read_fields(fields)
    for number, (field, kind) in enumerate(zip(fields, kinds, strict=True)):
        given = _kind(field)
        for name in Kind._fields:
            here, wanted = getattr(given, name), getattr(kind, name)
            if here != wanted:
                msg = f"field {number} has {name} {here}; the plan is for {wanted}"
                raise ArgumentError(msg)


def check_additive(kinds: Sequence[Kind]) -> None:
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


def _kind(field: PencilArray) -> Kind:
    return Kind(field.pencil.layout, field.singletons, field.halo, field.components, field.dtype)


def _check_writeable(field: PencilArray) -> None:
    if not field.padded.flags.writeable:
        msg = "a field is read-only, like the data it views; partition(..., copy=True) copies"
        raise ArgumentError(msg)
