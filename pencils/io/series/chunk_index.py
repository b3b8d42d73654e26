"""Where the chunks of a dataset lie, as the B-tree (version 1) in which HDF5 looks them up.

HDF5 itself would change this tree in place whenever a chunk is added. Here nodes are only ever
added: a node that is full and will not change is written once, the others again and again, each
time at a new place, so that whoever holds an older root still finds all that belongs to it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from math import isqrt, prod

# Children of a node; what a file of superblock version 0 has for chunks.
_WIDTH = 64
_UNDEFINED = 2**64 - 1
_CHUNKS = 1  # type of node: of chunks, not of groups


class ChunkIndex:
    """Addresses of chunks that follow each other in C order.

    Parameters
    ----------
    shape : sequence of int
        Shape of the dataset without its first, unlimited axis.
    chunk : sequence of int
        Shape of a chunk, first axis included.
    itemsize : int
        Bytes of an element.

    Examples
    --------
    >>> index = ChunkIndex((6,), (1, 3), 8)
    >>> index.add(1000), index.add(1024), index.offsets(1), index.offsets(2)
    (None, None, (0, 3, 0), (1, 0, 0))
    """

    def __init__(self, shape: Sequence[int], chunk: Sequence[int], itemsize: int) -> None:
        self.chunk = tuple(chunk)
        self.nbytes = prod(chunk) * itemsize
        self._grid = [-(-n // size) for n, size in zip(shape, chunk[1:], strict=True)]
        self._addresses: list[int] = []
        self._final: list[list[int]] = []

    @property
    def per_row(self) -> int:
        """Number of chunks that make up one index, or one batch of indices, of the first axis."""
        return prod(self._grid)

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[int]:
        return iter(self._addresses)

    def add(self, address: int) -> None:
        """Add the next chunk."""
        self._addresses.append(address)

    def cut(self, count: int) -> None:
        """Forget all but the first chunks."""
        del self._addresses[count:]
        self._final.clear()

    def offsets(self, number: int) -> tuple[int, ...]:
        """Say at which element a chunk begins, and at which byte of that: always the first."""
        at = []
        for count, size in zip(reversed(self._grid), reversed(self.chunk), strict=False):
            number, here = divmod(number, count)
            at.append(here * size)
        return (number * self.chunk[0], *reversed(at), 0)

    def write(self, place: Callable[[bytes, bool], int], more: Sequence[int] = ()) -> int | None:
        """Write the tree, as far as it is not written yet.

        Parameters
        ----------
        place : callable
            Finds a place for bytes, given whether later trees will have them too, and returns
            their address.
        more : sequence of int, optional
            Chunks that follow, but may be elsewhere the next time.

        Returns
        -------
        int or None
            Address of the root; None without chunks.
        """
        children, level = [*self._addresses, *more], 0
        if not children:
            return None
        total = len(children)
        while level == 0 or len(children) > 1:
            children = self._write_level(place, level, children, total)
            level += 1
        return children[0]

    def _write_level(
        self, place: Callable[[bytes, bool], int], level: int, children: list[int], total: int
    ) -> list[int]:
        if level == len(self._final):
            self._final.append([])
        final = self._final[level]
        span = _WIDTH**level  # chunks below a child
        nodes = list(final)
        for first in range(len(final) * _WIDTH, len(children), _WIDTH):
            group = children[first : first + _WIDTH]
            numbers = [min((first + at) * span, total) for at in range(len(group) + 1)]
            stays = (first + _WIDTH) * span <= len(self._addresses)
            nodes.append(place(self._node(level, numbers, group), stays))
            if stays:
                final.append(nodes[-1])
        return nodes

    def _node(self, level: int, numbers: Sequence[int], children: Sequence[int]) -> bytes:
        """Write children between keys, which say with which chunk each begins and the last ends."""
        rank = len(self.chunk) + 1
        key = struct.Struct(f"<II{rank}Q")
        keys = [key.pack(self.nbytes, 0, *self.offsets(number)) for number in numbers]
        head = struct.pack(
            "<4sBBHQQ", b"TREE", _CHUNKS, level, len(children), _UNDEFINED, _UNDEFINED
        )
        pairs = zip(keys, (struct.pack("<Q", child) for child in children), strict=False)
        body = b"".join(key + child for key, child in pairs) + keys[-1]
        return (head + body).ljust(len(head) + _WIDTH * (key.size + 8) + key.size, b"\0")


def chunk_shape(shape: Sequence[int], itemsize: int, limit: int) -> tuple[int, ...]:
    """Cut an array into chunks that are, one after the other, the array in C order.

    Along the first axis the last chunk may reach beyond the array; where that would leave gaps,
    along another one, only divisors of its length are taken.

    Parameters
    ----------
    shape : sequence of int
        Shape of the array.
    itemsize : int
        Bytes of an element.
    limit : int
        Most bytes of a chunk.

    Examples
    --------
    >>> chunk_shape((4, 6), 8, 1000), chunk_shape((4, 6), 8, 100), chunk_shape((3, 4, 6), 8, 47)
    ((4, 6), (2, 6), (1, 1, 3))
    >>> chunk_shape((7, 6), 8, 200), chunk_shape((2, 7), 8, 40)
    ((4, 6), (1, 1))
    """
    for axis, n in enumerate(shape):
        inner = prod(shape[axis + 1 :]) * itemsize
        if inner <= limit:
            points = max(1, n)
            most = min(points, limit // max(1, inner))
            gaps = prod(shape[:axis]) > 1
            rows = _largest_divisor(points, most) if gaps else -(-points // -(-points // most))
            return (*(1 for _ in shape[:axis]), rows, *(max(1, m) for m in shape[axis + 1 :]))
    return tuple(1 for _ in shape)


def _largest_divisor(n: int, most: int) -> int:
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return max(d for d in (*small, *(n // d for d in small)) if d <= most)
