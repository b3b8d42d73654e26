"""Chunks of fields: arithmetic, and the arguments of `save` about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
# Chunks that follow each other in the file are written together, up to about this number of bytes.
_RUN_BYTES = 2**23
_KEYWORDS = ("compression", "compression_opts", "shuffle", "fletcher32", "scaleoffset")


def count_chunks(shape: Sequence[int], chunk: Sequence[int]) -> Extents:
    """Count chunks along each axis; the last one may be partly outside."""
    return tuple(-(-n // extent) for n, extent in zip(shape, chunk, strict=True))


def chunk_box(index: Sequence[int], chunk: Sequence[int], shape: Sequence[int]) -> Box:
    """Find the points of an array that are in one chunk."""
    start = tuple(i * extent for i, extent in zip(index, chunk, strict=True))
    return Box(start, tuple(map(sum, zip(start, chunk, strict=True)))) & Box.of_shape(shape)


def choose_chunk(shape: Sequence[int], itemsize: int) -> Extents:
    """Choose extents of about `GOOD_BYTES`, as nearly cubes as halving of dimensions gives."""
    chunk, parts = list(shape), [1] * len(shape)
    while prod(chunk) * itemsize > GOOD_BYTES and max(chunk) > 1:
        dim = chunk.index(max(chunk))
        parts[dim] *= 2
        chunk[dim] = -(-shape[dim] // parts[dim])
    return tuple(chunk)


def enlarge(chunk: Sequence[int], shape: Sequence[int], most: int) -> Extents:
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


def chunk_in_order(shape: Sequence[int], itemsize: int, limit: int) -> Extents:
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
            rows = -(-points // -(-points // most))
            if prod(shape[:axis]) > 1:
                small = [d for d in range(1, isqrt(points) + 1) if points % d == 0]
                rows = max(d for one in small for d in (one, points // one) if d <= most)
            return (*(1 for _ in shape[:axis]), rows, *(max(1, m) for m in shape[axis + 1 :]))
    return tuple(1 for _ in shape)


def read_compression(compression: object) -> dict[str, Any]:
    """Return filters as keywords of h5py's ``create_dataset``; HDF5 has to check their values."""
    if compression is None:
        return {}
    options: dict[str, Any] = {"compression": compression}
    if isinstance(compression, Mapping):
        options = dict(compression)
    if isinstance(inner := options.get("compression"), Mapping):  # an object of hdf5plugin
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


def read_chunks(chunks: object) -> Extents | dict[str, Extents]:
    """Return extents of chunks: for all fields, empty for none, or by name of the field."""
    if chunks is None:
        return ()
    if isinstance(chunks, Mapping):
        return {name: _read_extents(own) for name, own in chunks.items()}
    return _read_extents(chunks)


def _read_extents(chunks: object) -> Extents:
    extents = as_ints("chunks", chunks)
    if not extents or min(extents) < 1:
        raise ArgumentError(f"chunks={extents} must be one positive extent for each dimension")
    return extents


def chunks_of(entry: DatasetInfo, extents: Extents, *, filtered: bool) -> Extents:
    """Extents of a field's chunks, components included, of those given; empty if it has none."""
    lead = entry.components or 0
    points = entry.shape[lead:]
    if extents and len(extents) != len(points):
        raise ArgumentError(
            f"chunks={extents} do not fit fields[{entry.name!r}], which has {len(points)} "
            "dimensions; give one extent for each, or a mapping of names of fields to them"
        )
    if not entry.nbytes or not (extents or filtered):
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


def joined(chunks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytearray]]:
    """Join chunks that follow each other in the file."""
    start, run = 0, bytearray()
    for place, data in chunks:
        if run and (place != start + len(run) or len(run) >= _RUN_BYTES):
            yield start, run
            run = bytearray()
        if not run:
            start = place
        run += data
    if run:
        yield start, run
