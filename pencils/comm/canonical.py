"""Encode values as bytes that are the same for equal values, and for no others.

Numbers are equal by value, also NaN; tuples and lists are sequences, mappings and sets have no
order, a path is its text; arrays are equal if their shapes, types and elements are.
"""

from __future__ import annotations

import marshal
import os
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache, partial
from hashlib import blake2b
from types import EllipsisType, NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Plain = Any  # what `marshal` encodes: lists are sequences, tuples begin with the name of a type

_VERSION = 2  # of the format of `marshal`: later ones depend on which objects are the same
_LEAVES = frozenset({str, int, bytes, NoneType})
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


def encoded(value: object) -> bytes:
    """Return bytes that are the same for equal values."""
    return marshal.dumps(plain(value), _VERSION)


def encoded_call(name: str, values: Mapping[str, Any]) -> bytes:
    """Return bytes that are the same for equal names and equal values of equal names."""
    whole: list[Plain] = [name]
    for key in sorted(values):
        one = values[key]
        whole += key, one if type(one) in _LEAVES else _FORM_OF[type(one)](one)  # as `plain` does
    return marshal.dumps(whole, _VERSION)


def plain(value: Any) -> Plain:
    """Convert a value to strings, integers, bytes, None, lists and tuples."""
    kind = type(value)
    return value if kind in _LEAVES else _FORM_OF[kind](value)


class _Forms(dict[type, Callable[[Any], Plain]]):
    """Functions that convert values of a type; found at the first value of a type."""

    def __missing__(self, kind: type) -> Callable[[Any], Plain]:
        form = self[kind] = _find_form(kind)
        return form


_FORM_OF = _Forms()


def _find_form(kind: type) -> Callable[[Any], Plain]:
    """Find the function that converts values of a type.

    Other classes may have a method ``canonical_form``, whose result is equal for equal objects.
    """
    for base, form in _FORMS.items():
        if issubclass(kind, base):
            return form
    name = _name(kind)
    canonical_form = getattr(kind, "canonical_form", None)
    if canonical_form is not None:
        return lambda value: (name, plain(canonical_form(value)))
    if is_dataclass(kind):
        parts = [field.name for field in fields(kind) if field.compare]
        return lambda value: (name, *(plain(getattr(value, part)) for part in parts))
    text_of: object = kind.__repr__
    if text_of is object.__repr__:  # its text has nothing but an address
        return lambda _: (name,)
    return lambda value: (name, _ADDRESS.sub("", repr(value)))


def _sequence(value: tuple[object, ...] | list[object]) -> Plain:
    found = []
    for one in value:  # as `plain` does, without a call: agreements are part of each verb
        kind = type(one)
        found.append(one if kind in _LEAVES else _FORM_OF[kind](one))
    return found


def _float(value: float) -> Plain:
    if value.is_integer():
        return int(value)
    return float.__float__(value) if value == value else ("NaN",)  # noqa: PLR0124


def _long(value: np.floating[Any]) -> Plain:
    near = float(value)
    if near == value or not np.isfinite(value):
        return _float(near)
    return "ratio", *value.as_integer_ratio()


def _complex(value: complex | np.complexfloating[Any, Any]) -> Plain:
    real, imag = plain(value.real), plain(value.imag)
    return real if imag == 0 else ("complex", real, imag)


def _range(value: range) -> Plain:
    return "range", *map(plain, (len(value), *value[:1], *(value[1:2] and [value.step])))


def _array(array: Array, what: str = "array") -> Plain:
    if array.ndim == 0 and array.dtype.kind in "biufcSU":
        return plain(array[()])
    return what, _dtype(array.dtype), plain(array.shape), _elements(array)


def _elements(array: Array) -> Plain:
    """Convert elements; records field by field, because there may be gaps between fields."""
    match array.dtype.kind:
        case "V" if array.dtype.names:
            return [_elements(array[name]) for name in array.dtype.names]
        case "O" | "T":
            return [plain(one) for one in array.flat]
        case "c":
            return [_elements(array.real), _elements(array.imag)]
        case "f" if array.dtype.itemsize > np.dtype(float).itemsize:
            return [_long(one) for one in array.flat]  # some of their bytes have no meaning
        case "f":
            array = np.where(np.isnan(array), np.nan, array) + 0.0  # turns -0.0 into 0.0
    return blake2b(array.tobytes(), digest_size=16).digest()


@lru_cache(maxsize=256)
def _dtype(dtype: np.dtype[Any]) -> Plain:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return "elements", _dtype(base), [*shape]
    if dtype.names is None or dtype.fields is None:
        return "dtype", dtype.str
    places = [(name, *dtype.fields[name][:2]) for name in dtype.names]
    return "record", dtype.itemsize, *((name, _dtype(kind), at) for name, kind, at in places)


def _name(value: Any) -> str:
    """Name a class or a function, with its module."""
    name = getattr(value, "__qualname__", getattr(value, "__name__", type(value).__qualname__))
    return f"{getattr(value, '__module__', None)}.{name}"


# Functions that convert instances of a class; the first class that fits counts.
_FORMS: dict[type, Callable[[Any], Plain]] = {
    NoneType: lambda value: value,
    str: str.__str__,
    np.bool_: int,
    int: int.__int__,
    np.timedelta64: lambda value: _array(np.asarray(value), "scalar"),  # an integer for NumPy
    np.integer: int,
    float: _float,
    np.longdouble: _long,
    np.floating: lambda value: _float(value.item()),
    **dict.fromkeys((complex, np.complexfloating), _complex),
    bytes: lambda value: bytes(memoryview(value)),
    bytearray: bytes,
    **dict.fromkeys((tuple, list), _sequence),
    Enum: lambda value: ("member", _name(type(value)), value.name),
    np.dtype: _dtype,
    np.ndarray: _array,
    np.generic: lambda value: _array(np.asarray(value), "scalar"),
    Mapping: lambda value: (
        "mapping",
        *sorted((encoded(key), encoded(one)) for key, one in value.items()),
    ),
    AbstractSet: lambda value: ("set", *sorted(map(encoded, value))),
    range: _range,
    slice: lambda value: ("slice", *map(plain, (value.start, value.stop, value.step))),
    EllipsisType: lambda _: ("...",),
    **dict.fromkeys(
        (type, np.ufunc, type(encoded), type(len)), lambda value: ("name", _name(value))
    ),
    partial: lambda value: ("partial", *map(plain, (value.func, value.args, value.keywords))),
    os.PathLike: lambda value: plain(os.fspath(value)),
}
