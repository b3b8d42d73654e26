"""Selections of a stored array, cut to what one rank holds of them. Integers in, integers out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from pencils.layout import Selection


def own_ranges(selection: Selection, part: Sequence[slice]) -> list[range]:
    """Find the indices along every axis of the array that a part of the selection takes.

    Parameters
    ----------
    selection : Selection
        What is taken of the array.
    part : sequence of slice
        What is taken of the selection, one slice for each axis that stays.

    Examples
    --------
    >>> own_ranges(Selection.from_key((2, slice(None, None, 3)), (4, 10)), [slice(1, 3)])
    [range(2, 3), range(3, 9, 3)]
    """
    left = iter(part)
    pairs = zip(selection.ranges, selection.dropped, strict=True)
    return [kept if drop else kept[next(left)] for kept, drop in pairs]


def consecutive(
    ranges: Sequence[range], shape: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Cut a box, which may have strides, into runs that are consecutive in C order.

    Parameters
    ----------
    ranges : sequence of range
        Indices along every axis of the array.
    shape : sequence of int
        Shape of the array.

    Yields
    ------
    int, tuple of int
        Position of the first element of a run in the array, and index of the run in the box.

    Examples
    --------
    >>> list(consecutive([range(1, 3), range(0, 4)], (5, 4)))
    [(4, ())]
    >>> list(consecutive([range(1, 3), range(0, 2)], (5, 4)))
    [(4, (0,)), (8, (1,))]
    """
    if not all(map(len, ranges)):
        return
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    inner = len(ranges)
    while inner and (ranges[inner - 1].step == 1 or len(ranges[inner - 1]) == 1):
        inner -= 1
        if len(ranges[inner]) < shape[inner]:
            break
    start = sum(kept[0] * s for kept, s in zip(ranges[inner:], strides[inner:], strict=True))
    for index in product(*(range(len(kept)) for kept in ranges[:inner])):
        lead = zip(ranges, index, strides, strict=False)
        yield start + sum(kept[i] * stride for kept, i, stride in lead), index
