"""Layouts to try everything on, global data for them, and what it means to agree with NumPy."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from mpi_helpers import spread

import pencils
from simmpi.process import PerProcess

__all__ = [
    "LARGE",
    "LAYOUTS",
    "assert_holds",
    "assert_same",
    "both",
    "draw",
    "in_memory_order",
    "lay",
]
__all__ += ["pencil", "spread"]

# Uneven blocks everywhere; with several ranks also empty ones ("few", "thin" and others).
LAYOUTS = {
    "line": {"shape": (7,)},
    "few": {"shape": (2,)},
    "plane": {"shape": (7, 5), "order": (1, 0), "splits": "last"},
    "slabs": {"shape": (4, 5, 3), "decomp": 1},
    "thin": {"shape": (3, 1, 4), "decomp": (2, 1), "order": (2, 0, 1)},
    "pencils": {"shape": (5, 4, 6), "decomp": (0, 1), "periodic": True},
    "blocks": {"shape": (4, 5, 3), "decomp": (2, 0, 1), "order": (1, 2, 0)},
    "four": {"shape": (3, 2, 4, 3), "decomp": (3, 1), "order": (0, 3, 1, 2)},
}


# Blocks that lie in the pool even on four ranks.
LARGE = {
    "large": {"shape": (48, 40, 44)},
    "large permuted": {"shape": (48, 40, 44), "order": (2, 0, 1)},
}

_made = PerProcess(dict)


def lay(comm, name):
    """Make the pencil of one of the layouts, once: every construction costs a collective."""
    if name not in _made():
        _made()[name] = pencils.Pencil(comm=comm, **(LAYOUTS | LARGE)[name])
    return _made()[name]


@pytest.fixture(params=LAYOUTS)
def pencil(request, comm):
    return lay(comm, request.param)


def draw(shape, dtype=float, seed=0):
    """Make random global data, the same on every rank; small values of either sign."""
    rng = np.random.default_rng([seed, *shape])
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype)
    values = rng.normal(size=shape) * 3
    if dtype.kind == "c":
        values = values + 1j * rng.normal(size=shape)
    return values.astype(dtype)


def assert_holds(field, data, *, rtol=0.0):
    """Check that the field is global `data`: its shape, its element type, and the own part."""
    assert isinstance(field, pencils.PencilArray)
    assert field.shape == data.shape
    assert field.dtype == data.dtype
    part = data[field.local_slices]
    if rtol:
        np.testing.assert_allclose(field.local, part, rtol=rtol, atol=rtol)
    else:
        np.testing.assert_array_equal(field.local, part)


class Both(NamedTuple):
    """A field, and the global data that it holds."""

    field: pencils.PencilArray
    data: Any


def both(pencil, data, **options):
    return Both(spread(pencil, data, **options), data)


def assert_same(function, *operands, rtol=0.0, ordered=False, **options):
    """Check that a function of fields gives what it gives of the global data in NumPy.

    Operands that are `both` are the field for the one, the data for the other call.
    """
    results = []
    for number in range(2):
        given = [x[number] if isinstance(x, Both) else x for x in operands]
        named = {k: x[number] if isinstance(x, Both) else x for k, x in options.items()}
        result = function(*given, **named)
        results.append(result if isinstance(result, tuple) else (result,))
    for found, expected in zip(*results, strict=True):
        assert_holds(found, np.asarray(expected), rtol=rtol)
        assert in_memory_order(found) or not ordered


def in_memory_order(field):
    """Whether the own block is contiguous in the memory order of the pencil."""
    lead = len(field.components)
    axes = (*range(lead), *(lead + dim for dim in field.pencil.order))
    return field.local.transpose(axes).flags.c_contiguous
