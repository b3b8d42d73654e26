r"""What an HDF5 file holds, listed and summed up outside HDF5, where plain reads can compare it.

HDF5 believes what a file says of itself: of a damaged one it may list less than was stored, or
never return. So a file of pencils says once more what it holds, and whoever reads it compares
before HDF5 sees a byte. Tools that know nothing of this open the file as any other.

A *record* has two parts. The *manifest*, text in JSON, lists all fields, values and coordinates
with their types, shapes and checksums, and the extents of all other bytes of the file with the sum
of their digests. The *trailer*, of fixed size, says where its manifest is and which state of the
file it is about. ::

    0      superblock of HDF5, version 0
    ...    all else of HDF5, up to the end that the superblock names
    end    manifest, filled up to a multiple of 8 bytes
           trailer: start and length of the manifest, end, root, number, digest of the manifest,
           digest of these numbers, b"\x89pencil\n"

The superblock says where the trailers of the last two records are, in 16 bytes that HDF5 neither
reads nor writes there (the scratch-pad of a root entry without cached information). The record that
counts is that with the highest number, of those that are about the root group the superblock names:
so one write of eight bytes, of an address of a record or of the root group, changes the file from
one state to the next, and a process that dies before or after it leaves a record that is true.

In a file that grows (`pencils.io.series.one_file`) the end that the superblock names is beyond its
record. Extents that later states have in common are in *pages*, each of which names the one before.

When a program opens the file for writing by HDF5, this cuts off what lies behind its end, and
writes its superblock anew: such a file ends where its superblock says. One that is damaged does
not, or its record does not fit.

*Patches* are changes of bytes in place. What a record sums up is the file with its patches, whether
they have reached it or not.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from pencils.errors import CheckpointError
from pencils.io.dataset_info import DatasetInfo
from pencils.io.plain import open_regular, read, write

# Of the superblock: what it begins with, the size of addresses and lengths, and its fields.
HEAD = 96
_SIGNATURE = b"\x89HDF\r\n\x1a\n\0"
_SIZES = (13, b"\x08\x08")
_END, _ROOT, _CACHED, _PLACES = 40, 64, 72, (80, 88)

# What a trailer says, and this followed by its own digest and the end.
_BODY = struct.Struct("<6Q")
_TRAILER = struct.Struct("<6QQ8s")
_MAGIC = b"\x89pencil\n"
_FORMAT = 1
# Offset, length and digest of a page; of the first one, zeros. A page is one of these, and extents.
_PAGE = struct.Struct("<3Q")
_EXTENT = struct.Struct("<2Q")
# Bytes that are held in memory at once.
_PIECE_BYTES = 2**24
# The superblock may change while it is read.
TRIES = 10

Extent = tuple[int, int]
Patch = tuple[int, bytes]


class Listed(NamedTuple):
    """What a manifest says of a dataset."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    checksum: int | None

    @classmethod
    def of(cls, entry: DatasetInfo) -> Listed:
        """Describe a dataset for a manifest."""
        shape = tuple(map(int, entry.shape))
        return cls(entry.kind, _type_text(entry.dtype), shape, entry.checksum)


@dataclass(frozen=True)
class Manifest:
    """What a file holds.

    Parameters
    ----------
    datasets : mapping of str to Listed
        Fields, values and coordinates.
    covered : sequence of (int, int)
        Extents that are summed up, besides the superblock.
    total : int
        Sum of the digests of the superblock, of these extents and of those in pages.
    page : tuple of int
        Offset, length and digest of the last page; zeros if there is none.
    patches : sequence of (int, bytes)
        Bytes that the file has, or is about to have, at some offsets.
    """

    datasets: Mapping[str, Listed]
    covered: Sequence[Extent]
    total: int
    page: tuple[int, int, int] = (0, 0, 0)
    patches: Sequence[Patch] = ()

    def encode(self) -> bytes:
        """Write it as text."""
        parts = {
            "format": _FORMAT,
            "datasets": [[name, *listed] for name, listed in self.datasets.items()],
            "covered": self.covered,
            "total": self.total,
            "page": self.page,
            "patches": [[offset, data.hex()] for offset, data in self.patches],
        }
        text = json.dumps(parts, separators=(",", ":")).encode()
        return text.ljust(-(-len(text) // 8) * 8)

    @classmethod
    def decode(cls, path: str, text: bytes) -> Manifest:
        """Read it from text that is as it was written.

        Raises
        ------
        CheckpointError
            If it is of a format that is too new.
        """
        parts = json.loads(text)
        if parts["format"] > _FORMAT:
            msg = f"{path} was written by a newer pencils; install that to read it"
            raise CheckpointError(msg)
        return cls(
            {
                name: Listed(kind, dtype, tuple(shape), total)
                for name, kind, dtype, shape, total in parts["datasets"]
            },
            [(offset, count) for offset, count in parts["covered"]],
            parts["total"],
            tuple(parts["page"]),
            [(offset, bytes.fromhex(data)) for offset, data in parts["patches"]],
        )


class Record(NamedTuple):
    """A manifest in a file: about which end and root, its number, where it is, who names it."""

    manifest: Manifest
    end: int
    root: int
    number: int
    start: int
    stop: int
    place: int


FIRST_PLACE = _PLACES[0]


def other_place(place: int) -> int:
    """Where the superblock can name the record that follows the one it names at a place."""
    return next(other for other in _PLACES if other != place)


def compose(manifest: Manifest, start: int, *, end: int, root: int, number: int) -> bytes:
    """Make a record for a place in a file; its trailer is at the end of it."""
    text = manifest.encode()
    body = _BODY.pack(start, len(text), end, root, number, digest(start, text))
    return text + body + struct.pack("<Q8s", digest(start + len(text), body), _MAGIC)


def naming(place: int, stop: int) -> tuple[bytes, int]:
    """Return what to write where in the superblock, to name the record that ends at `stop`."""
    return struct.pack("<Q", stop - _TRAILER.size), place


def digest(offset: int, data: bytes | bytearray) -> int:
    """Sum up bytes that lie at an offset of a file; such numbers are added modulo ``2**64``."""
    return _digest_all(offset, len(data), [data])


def _digest_all(offset: int, count: int, pieces: Iterable[bytes | bytearray]) -> int:
    made = blake2b(digest_size=8, salt=_EXTENT.pack(offset, count))
    for piece in pieces:
        made.update(piece)
    return int.from_bytes(made.digest(), "little")


def sum_up(handle: int, extents: Iterable[Extent], patches: Sequence[Patch] = ()) -> int:
    """Sum up the superblock and extents of an open file, as they are with some patches.

    Raises
    ------
    OSError
        If they cannot be read.
    """
    total = digest(0, mask_head(read(handle, HEAD, 0)))
    for offset, count in extents:
        total += _digest_all(offset, count, _pieces(handle, offset, count, patches))
    return total % 2**64


def mask_head(head: bytes) -> bytes:
    """Leave out of a superblock what changes from one state of a file to the next."""
    masked = bytearray(head)
    for at in (_END, _ROOT, *_PLACES):
        masked[at : at + 8] = bytes(8)
    return bytes(masked)


def _pieces(
    handle: int, offset: int, count: int, patches: Sequence[Patch]
) -> Iterator[bytes | bytearray]:
    near = [(at, data) for at, data in patches if at < offset + count and at + len(data) > offset]
    for start in range(offset, offset + count, _PIECE_BYTES):
        piece = bytearray(read(handle, min(_PIECE_BYTES, offset + count - start), start))
        for at, data in near:
            first, last = max(at, start), min(at + len(data), start + len(piece))
            if first < last:
                piece[first - start : last - start] = data[first - at : last - at]
        yield piece


def complement(extents: Iterable[Extent], start: int, stop: int) -> list[Extent]:
    """List what lies between extents, from `start` to `stop`.

    Examples
    --------
    >>> complement([(30, 10), (20, 10), (50, 0)], 10, 60)
    [(10, 10), (40, 20)]
    """
    gaps = []
    for offset, count in sorted(extent for extent in extents if extent[1]):
        if offset > start:
            gaps.append((start, offset - start))
        start = max(start, offset + count)
    if start < stop:
        gaps.append((start, stop - start))
    return gaps


def make_page(previous: tuple[int, int, int], extents: Iterable[Extent]) -> bytes:
    """Make a page that lists extents, and names the one before."""
    return _PAGE.pack(*previous) + b"".join(_EXTENT.pack(*extent) for extent in extents)


def clear_cached_root(handle: int) -> None:
    """Let the superblock say of the root group where it is and nothing else: no records, either."""
    write(handle, bytes(HEAD - _CACHED), _CACHED)


def parse_head(head: bytes) -> tuple[int, int] | None:
    """End and root of a superblock of the version that pencils writes; None of another."""
    at, sizes = _SIZES
    known = head.startswith(_SIGNATURE) and head[at : at + 2] == sizes and len(head) == HEAD
    if not known:
        return None
    end, root = struct.unpack_from("<Q16xQ", head, _END)
    return int(end), int(root)


def check_manifest(path: str, *, edited: bool = False) -> Record | None:
    """Compare all that a file holds besides data with its record, by plain reads.

    Parameters
    ----------
    path : str
        The file.
    edited : bool, optional
        Whether a file that has lost its record may pass.

    Returns
    -------
    Record or None
        The record; None if the file ends where its superblock says, or is no HDF5 file as pencils
        writes them: then it is of another tool, or another tool has written to it.

    Raises
    ------
    CheckpointError
        If the file is damaged, or not a regular file.
    OSError
        If it cannot be read.
    """
    handle = open_regular(path)
    try:
        record = find_record(path, handle, edited=edited)
        if record is None:
            return None
        manifest = record.manifest
        extents = [*manifest.covered, *_read_pages(path, handle, manifest.page)]
        total = sum_up(handle, extents, manifest.patches)
    except OSError as error:
        raise OSError(error.errno, f"cannot read: {error.strerror}", path) from error
    finally:
        os.close(handle)
    if total != manifest.total:
        raise broken(path, "what it says of its contents is")
    return record


def find_record(path: str, handle: int, *, edited: bool = False) -> Record | None:
    """Find the record that counts in an open file; as `check_manifest`, but for the sum."""
    for _ in range(TRIES):
        head, size = read(handle, HEAD, 0), os.fstat(handle).st_size
        known = parse_head(head)
        if known is None:
            break
        found = [_read_record(path, handle, size, head, place) for place in _PLACES]
        fitting = [record for record in found if record is not None and record.root == known[1]]
        if fitting:
            record = max(fitting, key=lambda record: record.number)
            if record.end <= known[0] <= size:
                return record
        elif not _is_named(head) and known[0] >= size:
            return None
        if read(handle, HEAD, 0) == head:
            break  # nobody is changing it
    if edited or (known is None and not _ends_with_trailer(handle)):
        return None
    what = "its list of contents, which is to lie behind the end of HDF5's part, is"
    hint = "; if another program has appended something to the file, edited=True reads it"
    raise broken(path, what, hint)


def _read_record(path: str, handle: int, size: int, head: bytes, place: int) -> Record | None:
    """Read the record that is named at a place of the superblock, if there is a whole one."""
    at = struct.unpack_from("<Q", head, place)[0]
    if not (_is_named(head) and HEAD < at <= size - _TRAILER.size):
        return None
    data = read(handle, _TRAILER.size, at)
    if len(data) < _TRAILER.size:
        return None
    start, length, end, root, number, text_digest, own_digest, magic = _TRAILER.unpack(data)
    whole = magic == _MAGIC and own_digest == digest(at, data[: _BODY.size])
    if not whole or start + length != at:
        return None
    text = read(handle, length, start)
    if digest(start, text) != text_digest:
        return None
    manifest = Manifest.decode(path, text)
    return Record(manifest, end, root, number, start, at + _TRAILER.size, place)


def _is_named(head: bytes) -> bool:
    """Whether a superblock has room for names of records, and one is there."""
    return not any(head[_CACHED : _PLACES[0]]) and any(head[_PLACES[0] : HEAD])


def _ends_with_trailer(handle: int) -> bool:
    size = os.fstat(handle).st_size
    return size > HEAD and read(handle, len(_MAGIC), size - len(_MAGIC)) == _MAGIC


def _read_pages(path: str, handle: int, page: tuple[int, int, int]) -> Iterator[Extent]:
    while any(page):
        offset, count, sum_ = page
        data = read(handle, count, offset)
        if digest(offset, data) != sum_:
            raise broken(path, "its list of contents is")
        page = _PAGE.unpack_from(data)
        yield from _EXTENT.iter_unpack(data[_PAGE.size :])


def broken(path: str, what: str, hint: str = "") -> CheckpointError:
    """Make the error for a file whose record does not fit."""
    msg = (
        f"{path} is damaged: {what} no longer as written; go back to an older checkpoint, or see "
        f"what HDF5 still finds with load(..., verify=False){hint}"
    )
    return CheckpointError(msg)


def lost(path: str) -> CheckpointError:
    """Make the error for a file by pencils that has no record."""
    msg = (
        f"{path} was written by pencils, and then changed or rewritten by another program: its "
        "list of contents is gone, so damage cannot be found; edited=True reads it as it is"
    )
    return CheckpointError(msg)


def _type_text(dtype: np.dtype[Any]) -> str:
    """Text that is the same for types whose elements are the same, byte for byte."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return f"{_type_text(base)}{list(shape)}"
    if dtype.fields is not None and dtype.names is not None:
        parts = ((name, *dtype.fields[name][:2]) for name in dtype.names)
        inner = ", ".join(f"{name!r}: {_type_text(kind)} at {at}" for name, kind, at in parts)
        return f"{{{inner}}} in {dtype.itemsize}"
    return dtype.str
