"""What scatter and gather share: which rank is the root, and how large a streamed piece is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pencils.array.pencil_array import PencilArray
from pencils.comm import stream
from pencils.errors import ArgumentError
from pencils.layout import Box
from pencils.layout.integers import as_ints


def read_root(root: Any, size: int) -> int:
    """Read a rank below `size`.

    Raises
    ------
    ArgumentError, TypeError
        If it is not one.
    """
    ranks = as_ints("root", root)
    if len(ranks) != 1 or not 0 <= ranks[0] < size:
        msg = f"root={root} is not one of the ranks 0..{size - 1}"
        raise ArgumentError(msg)
    return ranks[0]


def inside(box: Box, origin: tuple[int, ...] | None = None) -> Any:
    """Index an array that has component axes before the dimensions of the box."""
    return (..., *box.slices(origin))


def room_for(
    array: np.ndarray[Any, Any],
    boxes: Iterable[Box],
    most: int,
    origin: tuple[int, ...] | None = None,
) -> stream.Room:
    """Allocate room for those pieces of boxes of an array that are not contiguous.

    The first piece of a box is the largest, and contiguous only if all are: it stands for all, of
    which there may be too many to be listed.
    """
    nbytes = count = 0
    for box in boxes:
        first = next(box.pieces(most), None)
        block = array[:0] if first is None else array[inside(first, origin)]
        if first is not None and not block.flags.c_contiguous:
            nbytes = max(nbytes, block.nbytes)
            count += 1 if first.volume == box.volume else stream.WINDOW + 1
    return stream.Room(nbytes, count)


def block_points(field: PencilArray) -> int:
    """Points of one streamed piece, all components of each."""
    per_point = field.dtype.itemsize * int(np.prod(field.components))
    return max(1, stream.BLOCK_BYTES // max(1, per_point))
