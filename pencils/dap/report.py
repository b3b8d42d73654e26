"""Collecting what is found while an export is read, and taking typed values out of dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from reprlib import repr as shown
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, of_view
from pencils.comm import memory
from pencils.dap.errors import DAPError, DAPWarning, Finding, error_class
from pencils.layout.integers import to_int

_LARGEST = np.iinfo(np.int64).max


@dataclass(slots=True)
class Report:
    """Errors and warnings about one export, in the order in which they are found.

    Parameters
    ----------
    lenient : bool
        Whether what is known to be meant otherwise is read so, with a warning.
    """

    lenient: bool = False
    version: str | None = None
    dim: int | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """Number of errors so far."""
        return sum(isinstance(found, DAPError) for found in self.findings)

    def error(self, code: str, text: str, key: str | None = None) -> None:
        """Note that a rule is broken."""
        self.findings.append(
            error_class(code)(text, code=code, dim=self.dim, key=key, version=self.version)
        )

    def warn(self, code: str, text: str, key: str | None = None) -> None:
        """Note something that is read all the same."""
        self.findings.append(
            DAPWarning(text, code=code, dim=self.dim, key=key, version=self.version)
        )

    def accepts_list(self, code: str, wanted: str, key: str) -> bool:
        """Whether a list may stand for what is wanted; only if lenient."""
        if self.lenient:
            self.warn("K7", f"a list was read as {wanted}; pass {wanted}", key)
        else:
            self.error(code, f"a list is given, required is {wanted}; lenient=True accepts it", key)
        return self.lenient


@dataclass(frozen=True, slots=True)
class Entry:
    """A dimension dictionary; whatever is wrong with a value goes to the report."""

    values: Mapping[str, Any]
    report: Report

    def integer(self, key: str, code: str, least: int, default: int | None = None) -> int | None:
        """Read an integer that is at least `least`; None if it is not one."""
        wanted = f"an integer of at least {least} that fits in 64 bits"
        if key not in self.values:
            if default is None:
                self.report.error(code, f"the key is missing; required is {wanted}", key)
            return default
        number = to_int(self.values[key])
        if number is None or not least <= number <= _LARGEST:
            text = f"{shown(self.values[key])} is given, required is {wanted}"
            self.report.error(code, text, key)
            return None
        return number

    def flag(self, key: str, code: str) -> bool:
        """Read a boolean that is False by default."""
        value = self.values.get(key, False)
        if not isinstance(value, bool | np.bool_):
            self.report.error(code, f"{shown(value)} is given, required is True or False", key)
            return False
        return bool(value)

    def widths(self, key: str, code: str) -> tuple[int, int] | None:
        """Read two integers that are not negative, (0, 0) by default; None if they are not."""
        value = self.values.get(key, (0, 0))
        wanted = "a tuple of two integers of at least 0"
        if isinstance(value, list) and not self.report.accepts_list(code, wanted, key):
            return None
        pair = [to_int(item) for item in value] if isinstance(value, tuple | list) else []
        match pair:
            case [int(lo), int(hi)] if lo >= 0 and hi >= 0:
                return lo, hi
        self.report.error(code, f"{shown(value)} is given, required is {wanted}", key)
        return None

    def indices(self, key: str, code: str) -> np.ndarray[Any, np.dtype[np.int64]] | None:
        """Read a one-dimensional buffer of integers; None if it is not one."""
        wanted = "a one-dimensional buffer of integers, such as numpy.array([3, 1])"
        if key not in self.values:
            self.report.error(code, f"the key is missing; required is {wanted}", key)
            return None
        value = self.values[key]
        if isinstance(value, list) and not self.report.accepts_list(code, wanted, key):
            return None
        array = _listed(value) if isinstance(value, list) else as_array(value)
        if array is None or not _lists_integers(array):
            found = type(value).__name__ if array is None else f"{array.ndim}-D {array.dtype}"
            self.report.error(code, f"{found} is given, required is {wanted}", key)
            return None
        return array.astype(np.int64, copy=False)

    def warn_unknown(self, known: set[str]) -> None:
        """Warn about keys that mean nothing here."""
        for key in self.values:
            if key not in known:
                text = f"the key means nothing here and is ignored; known are {sorted(known)}"
                self.report.warn("unknown-key", text, str(key))


def as_array(value: object) -> Array | None:
    """View a buffer as an array: see `read_buffer`."""
    found = read_buffer(value)
    return None if found is None else found.array


def _listed(values: list[object]) -> np.ndarray[Any, Any]:
    """Array of a list; its type tells whether all are integers."""
    numbers = [to_int(value) for value in values]
    return np.array(numbers) if numbers else np.empty(0, np.int64)


def _lists_integers(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array is a list of integers of at most 64 bits, with a sign."""
    whole = array.ndim == 1 and array.dtype.kind in "iu"
    return whole and (array.size == 0 or array.max() <= _LARGEST)


class Buffer(NamedTuple):
    """A buffer as an array, and whether its elements have a type that NumPy knows."""

    array: Array
    known: bool


def read_buffer(value: object) -> Buffer | None:
    """View a buffer (PEP 3118) as an array, without copying; None if it is not one.

    Elements of a type that NumPy does not know are seen as so many bytes each.
    """
    if np.ma.isMaskedArray(value):  # its buffer has lost the mask
        return None
    try:
        view = memoryview(value)  # type: ignore[arg-type]
        if isinstance(value, np.ndarray):  # NumPy writes formats of records that it cannot read
            return Buffer(np.asarray(value), known=True)
        return _read_view(view)
    except Exception:  # noqa: BLE001 - whatever a buffer of another program raises
        return None


def _read_view(view: memoryview) -> Buffer:
    try:
        return Buffer(of_view(view), known=True)
    except Exception:  # noqa: BLE001 - whatever NumPy makes of a format
        array = memory.array_at(view, view.shape or (), f"V{view.itemsize}")  # must be contiguous
        return Buffer(array, known=False)
