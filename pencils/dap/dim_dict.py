"""Typed values from the dictionary of a dimension, and arrays from buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any

import numpy as np

from pencils.array.allocation import Array, of_view
from pencils.comm import memory
from pencils.dap.errors import Findings
from pencils.layout.integers import to_int

_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class DimDict:
    """The dictionary of one dimension, read value by value; mistakes are added to the findings."""

    values: Mapping[str, Any]
    findings: Findings

    def integer(self, key: str, code: str, least: int, default: int | None = None) -> int | None:
        """Read an integer that is at least `least`; None if it is not one."""
        wanted = f"an integer of at least {least} that fits in 64 bits"
        if key not in self.values:
            if default is None:
                self.findings.error(code, f"the key is missing; expected {wanted}", key)
            return default
        number = to_int(self.values[key])
        if number is None or not least <= number <= _LARGEST:
            text = f"got {shown(self.values[key])}, expected {wanted}"
            self.findings.error(code, text, key)
            return None
        return number

    def flag(self, key: str, code: str) -> bool:
        """Read a boolean that is False by default."""
        value = self.values.get(key, False)
        if not isinstance(value, bool | np.bool_):
            self.findings.error(code, f"got {shown(value)}, expected True or False", key)
            return False
        return bool(value)

    def widths(self, key: str, code: str) -> tuple[int, int] | None:
        """Read two integers that are not negative, (0, 0) by default; None if they are not."""
        value = self.values.get(key, (0, 0))
        wanted = "a tuple of two integers of at least 0"
        if isinstance(value, list) and not self.findings.accepts_list(code, wanted, key):
            return None
        pair = [to_int(item) for item in value] if isinstance(value, tuple | list) else []
        match pair:
            case [int(lo), int(hi)] if lo >= 0 and hi >= 0:
                return lo, hi
        self.findings.error(code, f"got {shown(value)}, expected {wanted}", key)
        return None

    def indices(self, key: str, code: str) -> np.ndarray[Any, np.dtype[np.int64]] | None:
        """Read a one-dimensional buffer of integers; None if it is not one."""
        wanted = "a one-dimensional buffer of integers, such as numpy.array([3, 1])"
        if key not in self.values:
            self.findings.error(code, f"the key is missing; expected {wanted}", key)
            return None
        value = self.values[key]
        if isinstance(value, list) and not self.findings.accepts_list(code, wanted, key):
            return None
        array = _listed(value) if isinstance(value, list) else as_array(value)
        if array is None or not _lists_integers(array):
            found = type(value).__name__ if array is None else f"{array.ndim}-D {array.dtype}"
            self.findings.error(code, f"got {found}, expected {wanted}", key)
            return None
        return array.astype(np.int64, copy=False)

    def warn_unknown(self, known: set[str]) -> None:
        """Warn about unknown keys, which are ignored."""
        for key in self.values:
            if key not in known:
                text = f"the key is unknown here and is ignored; known are {sorted(known)}"
                self.findings.warn("unknown-key", text, str(key))


def _listed(values: list[object]) -> np.ndarray[Any, Any]:
    """Convert a list to an array; its element type shows whether all are integers."""
    numbers = [to_int(value) for value in values]
    return np.array(numbers) if numbers else np.empty(0, np.int64)


def _lists_integers(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array is a list of integers that fit in 64 bits with a sign."""
    whole = array.ndim == 1 and array.dtype.kind in "iu"
    return whole and (array.size == 0 or array.max() <= _LARGEST)


def as_array(value: object) -> Array | None:
    """View a buffer as an array: see `read_buffer`."""
    found = read_buffer(value)
    return None if found is None else found[0]


def read_buffer(value: object) -> tuple[Array, bool] | None:
    """View a buffer (PEP 3118) as an array, without copying; None if it is not one.

    Returns
    -------
    array : numpy.ndarray
        Elements of a type that NumPy does not know are viewed as raw bytes.
    known : bool
        Whether NumPy knows the type.
    """
    if np.ma.isMaskedArray(value):  # its buffer has lost the mask
        return None
    try:
        view = memoryview(value)  # type: ignore[arg-type]
        if isinstance(value, np.ndarray):  # NumPy writes formats of records that it cannot read
            return np.asarray(value), True
        return _view(view)
    except Exception:  # noqa: BLE001 - buffers of other programs raise any exception
        return None


def _view(view: memoryview) -> tuple[Array, bool]:
    try:
        return of_view(view), True
    except Exception:  # noqa: BLE001 - NumPy raises any exception for an unknown format
        array = memory.array_at(view, view.shape or (), f"V{view.itemsize}")  # must be contiguous
        return array, False
