"""What counts as an integer: Python's and NumPy's, but neither booleans nor arrays of them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from pencils.errors import ArgumentError

MOST = 2**63 - 1  # what NumPy, MPI and HDF5 count with


def to_int(value: object) -> int | None:
    """Read one integer; None for anything else, also what NumPy would take for a mask or a list."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return index(value)
    except TypeError:  # arrays have __index__, but it works for 0-D ones of integers only
        return None


def check_64_bits(name: str, numbers: Sequence[int]) -> None:
    """Check that integers are of 64 bits.

    Raises
    ------
    ArgumentError
        If one is not.
    """
    if numbers and not -MOST <= min(numbers) <= max(numbers) <= MOST:
        # Python refuses to print very long ones.
        msg = f"{name} holds an integer of more than 64 bits; the largest possible one is {MOST}"
        raise ArgumentError(msg)
