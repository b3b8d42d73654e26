"""Errors and warnings about exports, and the reader of single values that finds them.

Rule ids: E for the export, D for all dimensions, B, C, U and N for block, cyclic, unstructured and
undistributed dimensions, G for the exports of all processes compared with each other.
"""

from __future__ import annotations

import inspect
import re
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

EXPORT_KEYS = {"__version__", "buffer", "dim_data"}
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
        if isinstance(found, DAPWarning):
            warnings.warn(found, stacklevel=_levels_to_user())
        elif isinstance(found, DAPError):
            raise found


def _levels_to_user() -> int:
    """Count the calls between the caller of this function and code outside of pencils."""
    names = (info.frame.f_globals.get("__name__", "") for info in inspect.stack(0)[1:])
    return 1 + sum(1 for _ in takewhile(lambda name: name.startswith("pencils."), names))


@dataclass(slots=True)
class Reader:
    """Reads one export value by value; keeps what it finds, in the order in which it is found.

    Parameters
    ----------
    lenient : bool
        Whether known deviations from the protocol are accepted with a warning.
    version : str, optional
        Version that the export claims.
    dim : int, optional
        The dimension that is being read, and `values`, its dictionary.
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

    def error(self, code: str, text: str, key: str | None = None) -> None:
        """Add an error: a rule is broken."""
        kind = _CLASSES.get(code) or _CLASSES.get(code[0], SemanticError)
        self.found.append(kind(text, code=code, dim=self.dim, key=key, version=self.version))

    def warn(self, code: str, text: str, key: str | None = None) -> None:
        """Add a warning: an irregular value is accepted."""
        self.found.append(DAPWarning(text, code=code, dim=self.dim, key=key, version=self.version))

    def warn_list(self, wanted: str, key: str) -> None:
        """Add a warning: a list is accepted instead of what is expected."""
        self.warn("K7", f"a list was read as {wanted}; pass {wanted}", key)

    def accepts_list(self, code: str, wanted: str, key: str) -> bool:
        """Whether a list is accepted instead of what is expected: only if lenient."""
        if self.lenient:
            self.warn_list(wanted, key)
        else:
            self.error(code, f"got a list, expected {wanted}; lenient=True accepts it", key)
        return self.lenient

    def integer(self, key: str, code: str, least: int, default: int | None = None) -> int | None:
        """Read an integer that is at least `least`; None if it is not one."""
        wanted = f"an integer of at least {least} that fits in 64 bits"
        if key not in self.values:
            if default is None:
                self.error(code, f"the key is missing; expected {wanted}", key)
            return default
        number = to_int(self.values[key])
        if number is None or not least <= number <= _LARGEST:
            text = f"got {shown(self.values[key])}, expected {wanted}"
            self.error(code, text, key)
            return None
        return number

    def flag(self, key: str, code: str) -> bool:
        """Read a boolean that is False by default."""
        value = self.values.get(key, False)
        if not isinstance(value, bool | np.bool_):
            self.error(code, f"got {shown(value)}, expected True or False", key)
            return False
        return bool(value)

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
        self.error(code, f"got {shown(value)}, expected {wanted}", key)
        return None

    def indices(self, key: str, code: str) -> np.ndarray[Any, np.dtype[np.int64]] | None:
        """Read a one-dimensional buffer of integers, or a list of them; None if it is neither."""
        wanted = "a one-dimensional buffer of integers, such as numpy.array([3, 1])"
        if key not in self.values:
            self.error(code, f"the key is missing; expected {wanted}", key)
            return None
        value = self.values[key]
        if isinstance(value, list):  # as printed in version 0.9
            self.warn_list("an array", key)
        array = _listed(value) if isinstance(value, list) else as_array(value)
        if array is None or not _lists_integers(array):
            found = type(value).__name__ if array is None else f"{array.ndim}-D {array.dtype}"
            self.error(code, f"got {found}, expected {wanted}", key)
            return None
        return array.astype(np.int64, copy=False)

    def warn_unknown(self, known: set[str]) -> None:
        """Warn about unknown keys, which are ignored."""
        for key in self.values:
            if key not in known:
                text = f"the key is unknown here and is ignored; known are {sorted(known)}"
                self.warn("unknown-key", text, str(key))


def _listed(values: list[object]) -> np.ndarray[Any, Any]:
    """Convert a list to an array; its element type shows whether all are integers."""
    numbers = [to_int(value) for value in values]
    return np.array(numbers) if numbers else np.empty(0, np.int64)


def _lists_integers(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array is a list of integers that fit in 64 bits with a sign."""
    whole = array.ndim == 1 and array.dtype.kind in "iu"
    return whole and (array.size == 0 or array.max() <= _LARGEST)


def as_array(value: object) -> Array | None:
    """View a buffer as an array: see `view_buffer`."""
    found = view_buffer(value)
    return None if found is None else found[0]


def view_buffer(value: object) -> tuple[Array, bool] | None:
    """View a buffer (PEP 3118) as an array, without copying; None if it is not one.

    Returns
    -------
    array : numpy.ndarray
        Elements of a type that NumPy does not know are viewed as raw bytes.
    known : bool
        Whether NumPy knows the type.
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


def check_keys(export: Mapping[str, Any], reader: Reader) -> None:
    """Check that an export has its three keys and no other."""
    missing, extra = EXPORT_KEYS - export.keys(), export.keys() - EXPORT_KEYS
    if missing:
        reader.error("E1", f"the keys {sorted(missing)} are missing; add them")
    if extra:
        allowed = sorted(EXPORT_KEYS)
        text = f"the keys {sorted(map(str, extra))} are not among {allowed}; omit them"
        reader.error("E1", text)


def read_version(export: Mapping[str, Any], reader: Reader) -> str | None:
    """Read the version of an export; None if it is not supported."""
    version = export.get("__version__")
    if isinstance(version, str) and re.fullmatch(r"0\.(9|10)\.(0|[1-9][0-9]*)", version):
        reader.version = version
        return version
    if "__version__" in export:
        text = f"got {shown(version)}, expected '0.9.x' or '0.10.x', such as '0.10.0'"
        reader.error("E2", text, "__version__")
    return None


def read_buffer(export: Mapping[str, Any], reader: Reader) -> Array | None:
    """Read the buffer of an export; None if it is not one."""
    found = view_buffer(export.get("buffer"))
    if found is None and "buffer" in export:
        text = (
            f"{type(export['buffer']).__name__} has no buffer that memoryview (PEP 3118) supports; "
            "pass an array in the memory of the host, of a type other than dates"
        )
        reader.error("E3", text, "buffer")
    if found is None:
        return None
    array, known = found
    if not known:
        text = (
            f"NumPy has no type for the elements, of format {memoryview(export['buffer']).format!r}"
            f"; they are read as {array.dtype.itemsize} raw bytes each; pass "
            "an array of another type"
        )
        reader.warn("unknown-type", text, "buffer")
    return array


def read_dim_data(
    export: Mapping[str, Any], reader: Reader
) -> tuple[Mapping[str, Any], ...] | None:
    """Read the dictionaries of all dimensions; None if they are not dictionaries."""
    entries = export.get("dim_data", ())
    wanted = "a tuple of dictionaries"
    if isinstance(entries, list) and not reader.accepts_list("E4", wanted, "dim_data"):
        return None
    sound = isinstance(entries, tuple | list)
    if not sound or not all(isinstance(entry, Mapping) for entry in entries):
        reader.error("E4", f"got {shown(entries)}, expected {wanted}", "dim_data")
        return None
    return tuple(entries) if "dim_data" in export else None
