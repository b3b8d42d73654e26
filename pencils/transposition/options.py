"""Options of transposition plans, and the key under which measured methods are kept."""

from __future__ import annotations

from typing import NamedTuple

from pencils.array.spec import FieldSpec
from pencils.errors import ArgumentError
from pencils.layout import Layout
from pencils.layout.integers import to_int


class PlanOptions(NamedTuple):
    """How a plan works."""

    method: str
    staging: int | None
    check: bool


def method_key(source: Layout, target: Layout, kind: FieldSpec) -> tuple[str, str, FieldSpec]:
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
