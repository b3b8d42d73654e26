"""Cut blocks into pieces that stay in cache while several things are done with them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import product
from math import prod

Key = tuple[slice, ...]


def chunk_shape(shape: Sequence[int], whole: Collection[int], most: int) -> tuple[int, ...]:
    """Choose pieces of a block in memory order that hold about `most` elements.

    Parameters
    ----------
    shape : sequence of int
        Shape of the block, slowest axis first.
    whole : collection of int
        Axes that are not cut.
    most : int
        Elements that a piece may have, unless one line along `whole` has more.

    Returns
    -------
    tuple of int
        Shape of the pieces; the last ones along an axis may be smaller.

    Examples
    --------
    >>> chunk_shape((10, 9, 8), {2}, 40)
    (1, 5, 8)
    """
    chosen = [n if axis in whole else 1 for axis, n in enumerate(shape)]
    for axis in reversed(range(len(shape))):
        room = most // max(1, prod(chosen))
        if axis in whole or shape[axis] == 0:
            continue
        if room < shape[axis]:
            pieces = -(-shape[axis] // max(1, room))
            chosen[axis] = -(-shape[axis] // pieces)
            break
        chosen[axis] = shape[axis]
    return tuple(chosen)


def chunk_keys(shape: Sequence[int], chunk: Sequence[int], whole: Collection[int]) -> Iterator[Key]:
    """Yield slices of every piece; those along `whole` take everything there is.

    Examples
    --------
    >>> list(chunk_keys((3, 8), (2, 8), {1}))
    [(slice(0, 2, None), slice(None, None, None)), (slice(2, 3, None), slice(None, None, None))]
    """
    along = [
        [slice(None)] if axis in whole else [slice(i, min(n, i + size)) for i in range(0, n, size)]
        for axis, (n, size) in enumerate(zip(shape, chunk, strict=True))
    ]
    yield from product(*along)
