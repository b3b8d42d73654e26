"""Errors and warnings about exports, and the reader of single values that finds them.

Rule ids: E for the export, D for all dimensions, B, C, U and N for block, cyclic, unstructured and
undistributed dimensions, G for the exports of all processes compared with each other.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from reprlib import repr as shown
from typing import Any

import numpy as np

from pencils.array.allocation import Array, is_masked_array, of_view
from pencils.comm import memory
from pencils.errors import PencilsError
from pencils.layout.integers import to_int

_LARGEST = np.iinfo(np.int64).max


class Finding(Exception):  # noqa: N818 - the children that are raised end in Error or Warning
    """An error or a warning about an export: where, and by which rule. It can be pickled.

    Parameters
    ----------
    text : str
        What was found, what is allowed, and what to do.
    code : str
        Id of the rule, such as "B3".
    dim : int, optional
        The dimension; None for the whole export.
    rank : int, optional
        The process; None if only one process was looked at.
    key : str, optional
        The key of the dictionary.
    version : str, optional
        The version of the protocol that the export claims.
    """

    def __init__(
        self,
        text: str,
        *,
        code: str = "",
        dim: int | None = None,
        rank: int | None = None,
        key: str | None = None,
        version: str | None = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.dim = dim
        self.rank = rank
        self.key = key
        self.version = version

    def __str__(self) -> str:
        places = [
            f"{name} {value!r}"
            for name, value in (("rank", self.rank), ("dimension", self.dim), ("key", self.key))
            if value is not None
        ]
        where = f"{', '.join(places)}: " if places else ""
        version = f" of version {self.version}" if self.version else ""
        rule = f" [rule {self.code}{version}]" if self.code else ""
        return f"{where}{self.text}{rule}"


class DAPError(Finding, PencilsError, ValueError):
    """The export breaks a rule of the protocol, or cannot be used."""


class StructureError(DAPError):
    """Keys or their types are not those of an export (rules E and D)."""


class VersionError(StructureError):
    """The version of the protocol is not supported (rule E2)."""


class SemanticError(DAPError):
    """The values of one process contradict each other (rules B, C, U and N)."""


class CollectiveError(DAPError):
    """The exports of several processes do not fit together (rules G)."""


class UnsupportedError(DAPError):
    """Valid input that this protocol version cannot represent, or pencils cannot use."""


class DAPWarning(Finding, UserWarning):
    """An irregular export that is accepted: an unknown key, or a list instead of a tuple."""


_CLASSES = {"E2": VersionError, "E": StructureError, "D": StructureError, "G": CollectiveError}


def raise_first(findings: Iterable[Finding]) -> None:
    """Raise the first error; issue the warnings before it."""
    for found in findings:
        if isinstance(found, DAPWarning):  # of which the first caller outside of pencils is told
            names = (info.frame.f_globals.get("__name__", "") for info in inspect.stack(0))
            inner = sum(1 for _ in takewhile(lambda name: name.startswith("pencils."), names))
            warnings.warn(found, stacklevel=1 + inner)
        elif isinstance(found, DAPError):
            raise found


@dataclass(slots=True)
class Reader:
    """Reads one export value by value; keeps what it finds, in the order in which it is found.

    If `lenient`, known deviations from the protocol are accepted with a warning. `dim` is the
    dimension that is being read, and `values` its dictionary.
    """

    lenient: bool = False
    version: str | None = None
    dim: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """Number of errors so far."""
        return sum(isinstance(one, DAPError) for one in self.found)

    def check(self, sound: bool, code: str, text: str, key: str | None = None) -> bool:  # noqa: FBT001
        """Return whether a rule holds; add an error if it is broken."""
        if not sound:
            kind = _CLASSES.get(code) or _CLASSES.get(code[0], SemanticError)
            error = kind(text, code=code, dim=self.dim, key=key, version=self.version)
            self.found.append(error)
        return sound

    def warn(self, code: str, text: str, key: str | None = None) -> None:
        """Add a warning: an irregular value is accepted."""
        self.found.append(DAPWarning(text, code=code, dim=self.dim, key=key, version=self.version))

    def accepts_list(self, code: str, wanted: str, key: str, *, always: bool = False) -> bool:
        """Whether a list is accepted instead of what is expected, with a warning: if lenient."""
        text = f"got a list, expected {wanted}; lenient=True accepts it"
        accepted = self.check(self.lenient or always, code, text, key)
        if accepted:
            self.warn("K7", f"a list was read as {wanted}; pass {wanted}", key)
        return accepted

    def integer(self, key: str, code: str, least: int, default: int | None = None) -> int | None:
        """Read an integer that is at least `least`; None if it is not one."""
        wanted = f"an integer of at least {least} that fits in 64 bits"
        if key not in self.values:
            self.check(default is not None, code, f"the key is missing; expected {wanted}", key)
            return default
        number = to_int(self.values[key])
        sound = number is not None and least <= number <= _LARGEST
        self.check(sound, code, f"got {shown(self.values[key])}, expected {wanted}", key)
        return number if sound else None

    def flag(self, key: str, code: str) -> bool:
        """Read a boolean that is False by default."""
        value = self.values.get(key, False)
        text = f"got {shown(value)}, expected True or False"
        return self.check(isinstance(value, bool | np.bool_), code, text, key) and bool(value)

    def widths(self, key: str, code: str) -> tuple[int, int] | None:
        """Read two integers that are not negative, (0, 0) by default; None if they are not."""
        value = self.values.get(key, (0, 0))
        wanted = "a tuple of two integers of at least 0"
        if isinstance(value, list) and not self.accepts_list(code, wanted, key):
            return None
        pair = [to_int(item) for item in value] if isinstance(value, tuple | list) else []
        match pair:
            case [int(lo), int(hi)] if lo >= 0 and hi >= 0:
                return lo, hi
        self.check(False, code, f"got {shown(value)}, expected {wanted}", key)  # noqa: FBT003
        return None

    def indices(self, key: str, code: str) -> np.ndarray[Any, np.dtype[np.int64]] | None:
        """Read a one-dimensional buffer of integers, or a list of them; None if it is neither."""
        wanted = "a one-dimensional buffer of integers, such as numpy.array([3, 1])"
        value = self.values.get(key)
        if not self.check(key in self.values, code, f"the key is missing; expected {wanted}", key):
            return None
        if isinstance(value, list):  # as printed in version 0.9
            self.accepts_list(code, "an array", key, always=True)
            numbers = [to_int(item) for item in value]  # the element type shows if all are integers
            array: Array | None = np.array(numbers) if numbers else np.empty(0, np.int64)
        else:
            array = as_array(value)
        found = type(value).__name__ if array is None else f"{array.ndim}-D {array.dtype}"
        sound = array is not None and array.ndim == 1 and array.dtype.kind in "iu"
        sound = sound and array is not None and array.max(initial=0) <= _LARGEST
        if not self.check(sound, code, f"got {found}, expected {wanted}", key) or array is None:
            return None
        return array.astype(np.int64, copy=False)


def as_array(value: object) -> Array | None:
    """View a buffer as an array: see `view_buffer`."""
    found = view_buffer(value)
    return None if found is None else found[0]


def view_buffer(value: object) -> tuple[Array, bool] | None:
    """View a buffer (PEP 3118) as an array, and return whether NumPy has its type; None if not one.

    Elements of a type that NumPy does not know are viewed as raw bytes.
    """
    if is_masked_array(value):  # its buffer has lost the mask
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
