"""Counts and displacements of buffers, given or computed from the length of the memory."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from simmpi.types.datatypes import Datatype
from simmpi.types.kinds import checked_integers


def offset_of(displ: int, nbytes: int, datatype: Datatype) -> int:
    """Bytes before a displacement, which lies within the memory."""
    if displ < 0:
        raise ValueError(f"the displacement {displ} was given; it is 0 or more")
    if displ == 0:
        return 0
    extent = _positive_extent(datatype)
    if displ * extent > nbytes:
        raise ValueError(
            f"the displacement {displ} was given; the memory has {nbytes // extent} elements of "
            "the datatype"
        )
    return displ * extent


def _positive_extent(datatype: Datatype) -> int:
    """Extent by which displacements and counts are computed."""
    if not datatype:
        raise ValueError(
            "the null datatype was given; no count or displacement follows from it: pass another"
        )
    if datatype.extent <= 0:
        raise ValueError(
            f"a datatype of extent {datatype.extent} was given; no count or displacement follows "
            "from it: pass the count, and no displacement"
        )
    return datatype.extent


def inferred_count(nbytes: int, datatype: Datatype, blocks: int) -> int:
    """Count the elements in each of some blocks of memory."""
    if nbytes <= 0:
        return 0
    extent = _positive_extent(datatype)
    number, rest = divmod(nbytes, extent)
    if rest:
        raise ValueError(
            f"a buffer of {nbytes} bytes was given without a count; it is no multiple of the "
            f"extent of the datatype, {extent} bytes: pass the count"
        )
    if blocks > 1 and number % blocks:
        raise ValueError(
            f"a buffer of {number} elements was given for {blocks} ranks; it is no multiple of "
            "them: pass the count"
        )
    return number // max(blocks, 1)


def counts_by_rank(counts: Any, size: int, nbytes: int, datatype: Datatype) -> list[int]:
    """Numbers of elements for each rank."""
    if counts is None:
        number = inferred_count(nbytes, datatype, 1)
        return [number // size + (number % size > i) for i in range(size)]
    if is_integral(counts):
        return [operator.index(counts)] * size
    return checked_integers(counts, size)


def is_integral(value: Any) -> bool:
    """Whether a value is one integer, and no array of them."""
    if not hasattr(value, "__index__"):
        return False
    return not hasattr(value, "__len__") or (isinstance(value, np.ndarray) and value.ndim == 0)
