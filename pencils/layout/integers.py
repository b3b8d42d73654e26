"""What counts as an integer: Python's and NumPy's, but neither booleans nor arrays of them."""

from __future__ import annotations

from operator import index


def to_int(value: object) -> int | None:
    """Read one integer; None for anything else, also what NumPy would take for a mask or a list."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return index(value)
    except TypeError:  # arrays have __index__, but it works for 0-D ones of integers only
        return None
