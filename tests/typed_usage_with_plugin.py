"""A program with what the plugin of mypy knows of fields beyond `typed_usage.py`."""

from __future__ import annotations

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import pencils

Vector = NDArray[np.float64]


def rhs(a: pencils.PencilArray) -> pencils.PencilArray:
    return a * 2 + np.sin(a)


def largest(u: pencils.PencilArray) -> float:
    total: float = np.sin(u).max()
    return total


def ufuncs(u: pencils.PencilArray, v: pencils.PencilArray, array: Vector) -> None:
    assert_type(np.sin(u), pencils.PencilArray)
    assert_type(np.maximum(u, 0), pencils.PencilArray)
    assert_type(np.maximum(0.0, u), pencils.PencilArray)
    assert_type(np.add(u, v)[1:-1], pencils.PencilArray)
    assert_type(array * u, pencils.PencilArray)
    assert_type(array < u, pencils.PencilArray)
    assert_type(np.sin(u) * np.cos(v) - array, pencils.PencilArray)
    squares: Vector = array * array - np.sin(array)
    assert squares.shape == array.shape


def functions(u: pencils.PencilArray, array: Vector) -> None:
    assert_type(np.where(u > 0, u, 0), pencils.PencilArray)
    assert_type(np.where(array > 0, u, 0), pencils.PencilArray)
    assert_type(np.cumsum(u, axis=0), pencils.PencilArray)
    assert_type(np.diff(u, axis=0), pencils.PencilArray)
    assert_type(np.roll(u, 1, 0), pencils.PencilArray)
    assert_type(np.zeros_like(u), pencils.PencilArray)
    assert_type(np.clip(u, 0, 1), pencils.PencilArray)


def main() -> None:
    pen = pencils.Pencil((16, 12, 8))
    u, v = pencils.random.normal(pen, rng=1), pencils.random.normal(pen, rng=2)
    assert_type(rhs(u), pencils.PencilArray)
    assert largest(u) <= 1
    ufuncs(u, v, np.hanning(8))
    functions(u, np.hanning(8))
