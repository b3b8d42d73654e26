"""How arrays are cut into chunks: the arguments of `save`, and arithmetic of chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isqrt, prod
from typing import Any

from numpy.lib.recfunctions import repack_fields

from pencils.errors import ArgumentError
from pencils.io.file_info import DatasetInfo
from pencils.layout import Box, Split
from pencils.layout.integers import as_ints, to_int

Extents = tuple[int, ...]

# Of a chunk by default: HDF5 finds, and filters, each as a whole.
GOOD_BYTES = 2**20
# HDF5 keeps the size of a chunk in 32 bits.
MOST_BYTES = 2**32 - 1


def count_chunks(shape: Sequence[int], chunk: Sequence[int]) -> Extents:
    """Count chunks along each axis; the last one may be partly outside."""
    return tuple(-(-n // extent) for n, extent in zip(shape, chunk, strict=True))


def chunk_box(index: Sequence[int], chunk: Sequence[int], shape: Sequence[int]) -> Box:
    """Find the points of an array that are in one chunk."""
    start = tuple(i * extent for i, extent in zip(index, chunk, strict=True))
    return Box(start, tuple(map(sum, zip(start, chunk, strict=True)))) & Box.of_shape(shape)


def choose_chunk(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Choose extents of about `GOOD_BYTES`, as nearly cubes as `shape` allows.

    Dimensions are halved, so that powers of two of ranks have the same number of chunks.
    """
    chunk, parts = list(shape), [1] * len(shape)
    while prod(chunk) * itemsize > GOOD_BYTES and max(chunk) > 1:
        dim = chunk.index(max(chunk))
        parts[dim] *= 2
        chunk[dim] = -(-shape[dim] // parts[dim])
    return tuple(chunk)


def enlarge(chunk: Sequence[int], shape: Sequence[int], most: int) -> tuple[int, ...]:
    """Join chunks, along the last axes first, to blocks of at most `most` points."""
    block = list(chunk)
    for axis in reversed(range(len(block))):
        block[axis] = min(block[axis] * max(1, most // prod(block)), shape[axis])
    return tuple(block)


def whole_chunks(split: Split, chunk: int) -> tuple[int, ...] | None:
    """Cut the chunks of a dimension as its points are; None if that would cut through chunks."""
    bounds = [*(split.bounds(part)[0] for part in range(split.parts)), split.points]
    if any(bound % chunk for bound in bounds if bound < split.points):
        return None
    return count_chunks(bounds, [chunk] * len(bounds))


def cut_points(split: Split, chunk: int, points: int) -> tuple[int, ...]:
    """Cut the points of a dimension as its chunks are."""
    starts = (split.bounds(part)[0] for part in range(split.parts))
    return (*(min(start * chunk, points) for start in starts), points)


def chunk_in_order(shape: Sequence[int], itemsize: int, limit: int) -> tuple[int, ...]:
    """Cut an array into chunks that are, one after the other, the array in C order.

    No chunk has more than `limit` bytes. Along the first axis the last chunk may reach beyond the
    array; along other axes that would leave gaps, so only divisors of their length are taken.

    Examples
    --------
    >>> chunk_in_order((4, 6), 8, 100), chunk_in_order((3, 4, 6), 8, 47)
    ((2, 6), (1, 1, 3))
    >>> chunk_in_order((7, 6), 8, 200), chunk_in_order((2, 7), 8, 40)
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


_KEYWORDS = ("compression", "compression_opts", "shuffle", "fletcher32", "scaleoffset")


@dataclass(frozen=True)
class Chunking:
    """Filters for all fields, and extents of chunks: for all, for fields by name, or for none."""

    # As keywords of h5py's create_dataset; if empty, only fields with given extents are chunked.
    compression: Mapping[str, Any] = field(default_factory=dict)
    extents: Extents = ()  # one for each dimension of all fields
    named: Mapping[str, Extents] = field(default_factory=dict)  # the same for single fields

    def chunks(self, entry: DatasetInfo) -> Extents:
        """Extents of the chunks of a field, components included; empty if it has none.

        Raises ArgumentError or TypeError if its elements or dimensions cannot be chunked so.
        """
        lead = entry.components or 0
        points = entry.shape[lead:]
        extents = self.named.get(entry.name, self.extents)
        if extents and len(extents) != len(points):
            raise ArgumentError(
                f"chunks={extents} do not fit fields[{entry.name!r}], which has {len(points)} "
                "dimensions; give one extent for each, or a mapping of names of fields to them"
            )
        if not entry.nbytes or not (extents or self.compression):
            return ()
        if repack_fields(entry.dtype, recurse=True) != entry.dtype:
            raise TypeError(
                f"fields[{entry.name!r}] has records with gaps, {entry.dtype}, whose bytes filters "
                "and checksums do not agree on; save it without compression and chunks, or packed"
            )
        extents = tuple(map(min, extents or choose_chunk(points, entry.dtype.itemsize), points))
        if prod(extents) * entry.dtype.itemsize > MOST_BYTES:
            raise ArgumentError(
                f"chunks of {extents} points of fields[{entry.name!r}] would have 4 GiB or more, "
                "which HDF5 cannot store; make them smaller"
            )
        return (1,) * lead + extents

    def check_names(self, names: Iterable[str]) -> None:
        """Raise ArgumentError if a name in `named` is not among these."""
        unknown = sorted(set(self.named) - set(names))
        if unknown:
            raise ArgumentError(f"chunks has extents for {unknown[0]!r}, which is not a field")


def read_chunking(compression: object, chunks: object) -> Chunking:
    """Check the arguments `compression` and `chunks` of `save`, but for what HDF5 has to check."""
    filters = _read_compression(compression)
    if chunks is None:
        return Chunking(filters)
    if isinstance(chunks, Mapping):
        return Chunking(filters, named={name: _read_extents(chunks[name]) for name in chunks})
    return Chunking(filters, _read_extents(chunks))


def _read_extents(chunks: object) -> Extents:
    extents = as_ints("chunks", chunks)
    if not extents or min(extents) < 1:
        raise ArgumentError(f"chunks={extents} must be one positive extent for each dimension")
    return extents


def _read_compression(compression: object) -> dict[str, Any]:
    if compression is None:
        return {}
    options: dict[str, Any] = {"compression": compression}
    if isinstance(compression, Mapping):
        options = dict(compression)
    inner = options.get("compression")
    if isinstance(inner, Mapping):  # an object of hdf5plugin
        options |= inner
    unknown = [name for name in options if name not in _KEYWORDS]
    if unknown:
        raise ArgumentError(
            f"compression has an entry {unknown[0]!r}; it takes {', '.join(_KEYWORDS)}, as h5py's "
            "create_dataset, for all fields alike"
        )
    kind = options.get("compression", "")
    if (level := to_int(kind)) is not None:
        options["compression"] = level
    elif not isinstance(kind, str):
        raise TypeError(
            f"compression={compression!r} must be a name like 'gzip', a level of gzip, or a "
            "mapping of keywords of h5py's create_dataset, such as the objects of hdf5plugin are"
        )
    return options
