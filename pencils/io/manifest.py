r"""The list of contents of an HDF5 file, stored behind HDF5's part of the file.

HDF5 may find less in a damaged file than was stored, or never return. So every file of pencils has
a *record* of its contents, which is read and compared by plain system calls before HDF5 parses a
byte. Other tools ignore it. ::

    0      superblock of HDF5, version 0; its bytes 40 to 48 hold `end`
    ...    everything else of HDF5
    end    header: mark, end, length and digest of the manifest, digest of this header
           manifest: JSON text, filled up to a multiple of 8 bytes
           mark

The *manifest* lists the fields, values and coordinates with their types, shapes and checksums. It
also holds the sum of the digests of all other bytes that HDF5 has written. The extents outside this
sum are data that have checksums, and older records.

`pencils.io.seal` changes a file from one state to the next: it writes a new record behind the old
one and then the new `end` into the superblock, by one write of eight bytes. The bytes that HDF5
changes in place are written last. The manifest lists them as *patches*: the state that a record
describes is the file with its patches, whether these were written yet or not.

When another program opens the file for writing, HDF5 cuts the file off at `end`: such a file has
lost its record and ends there. A damaged file does not end there, or its record does not fit.
"""

from __future__ import annotations

import json
import os
import struct
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pencils.errors import CheckpointError
from pencils.io.captured_file import CapturedFile
from pencils.io.file_access import open_to_read, read
from pencils.io.file_info import DatasetInfo

# Of the superblock: what it begins with, the size of addresses and lengths, its own size, and
# where it holds the end of the file.
_SIGNATURE = b"\x89HDF\r\n\x1a\n\0"
_SIZES = (13, b"\x08\x08")
_HEAD = 96
END_AT = 40

_HEADER = struct.Struct("<8s4Q")
_MARK = b"\x89pencil\n"
_FORMAT = 1
# Digests are of pages, so that a change of a large file costs only those it touches.
_PAGE = 4096

Extent = tuple[int, int]
Patch = tuple[int, bytes]


class Listed(NamedTuple):
    """What a manifest states about a dataset."""

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
    """The contents of a file."""

    datasets: Mapping[str, Listed]  # fields, values and coordinates
    size: int  # where HDF5's part of the file ends
    total: int  # sum of the digests of that part, without `outside`
    outside: Sequence[Extent]  # extents that are not in the sum, sorted
    # Offset, length and digest of an earlier manifest, whose `outside` holds here too, or zeros.
    earlier: tuple[int, int, int] = (0, 0, 0)
    patches: Sequence[Patch] = ()  # bytes that the file has, or is about to have, at some offsets

    def encode(self) -> bytes:
        """Return it as text."""
        parts = {
            "format": _FORMAT,
            "datasets": [[name, *listed] for name, listed in self.datasets.items()],
            "size": self.size,
            "total": self.total,
            "outside": self.outside,
            "earlier": self.earlier,
            "patches": [[offset, data.hex()] for offset, data in self.patches],
        }
        text = json.dumps(parts, separators=(",", ":")).encode()
        return text.ljust(aligned(len(text)))

    @classmethod
    def decode(cls, path: str, text: bytes) -> Manifest:
        """Make it from its text; CheckpointError if it is of a format that is too new."""
        parts = json.loads(text)
        if parts["format"] > _FORMAT:
            raise CheckpointError(f"{path} was written by a newer pencils; install that to read it")
        datasets = {
            name: Listed(kind, dtype, tuple(shape), total)
            for name, kind, dtype, shape, total in parts["datasets"]
        }
        outside = [(offset, count) for offset, count in parts["outside"]]
        patches = [(offset, bytes.fromhex(data)) for offset, data in parts["patches"]]
        earlier = tuple(parts["earlier"])
        return cls(datasets, parts["size"], parts["total"], outside, earlier, patches)


class Record(NamedTuple):
    """A manifest in a file, and where its record begins and ends."""

    manifest: Manifest
    start: int
    stop: int
    # Found by `check_manifest`: all extents outside the sum, and the digests of all pages.
    outside: Sequence[Extent] = ()
    pages: Mapping[int, int] = MappingProxyType({})

    @property
    def place(self) -> tuple[int, int, int]:
        """Offset, length and digest of the manifest, for `Manifest.earlier`."""
        text = self.manifest.encode()
        start = self.start + _HEADER.size
        return start, len(text), digest(start, text)


def compose(manifest: Manifest, start: int) -> bytes:
    """Make the record of a manifest, for the place `start` in a file."""
    text = manifest.encode()
    header = _HEADER.pack(_MARK, start, len(text), digest(start + _HEADER.size, text), 0)[:-8]
    return header + struct.pack("<Q", digest(start, header)) + text + _MARK


def aligned(address: int) -> int:
    """Return the next multiple of eight."""
    return -(-address // 8) * 8


def digest(offset: int, data: bytes | bytearray) -> int:
    """Sum up bytes at an offset of a file; such numbers are added modulo ``2**64``."""
    salt = struct.pack("<QQ", offset, len(data))
    return int.from_bytes(blake2b(data, digest_size=8, salt=salt).digest(), "little")


def page_digests(
    file: CapturedFile, outside: Sequence[Extent], start: int, stop: int
) -> dict[int, int]:
    """Sum up the pages that have bytes between `start` and `stop`, by number.

    Bytes of the sorted extents `outside` are left out, and those before `start` and after `stop`.
    """
    near = outside[max(0, bisect(outside, (start,)) - 1) : bisect(outside, (stop,))]
    found: dict[int, int] = {}
    for offset, count in complement(near, start, stop):
        for page in range(offset // _PAGE, -(-(offset + count) // _PAGE)):
            at = max(offset, page * _PAGE)
            data = file.peek(at, min(offset + count, (page + 1) * _PAGE) - at)
            found[page] = (found.get(page, 0) + digest(at, data)) % 2**64
    return found


def changed_pages(offset: int, count: int) -> tuple[int, int]:
    """Return where the pages of these bytes begin and end."""
    return offset // _PAGE * _PAGE, -(-(offset + count) // _PAGE) * _PAGE


def complement(extents: Iterable[Extent], start: int, stop: int) -> list[Extent]:
    """List the gaps between extents, from `start` to `stop`.

    Examples
    --------
    >>> complement([(30, 10), (20, 10), (50, 0)], 10, 60)
    [(10, 10), (40, 20)]
    """
    gaps = []
    for offset, count in sorted(extent for extent in extents if extent[1]):
        if offset > start:
            gaps.append((start, min(offset, stop) - start))
        start = max(start, offset + count)
        if start >= stop:
            return gaps
    gaps.append((start, stop - start))
    return gaps


def end_of(head: bytes) -> int | None:
    """Return the end of the file by a superblock, the first 96 bytes or more.

    None means that pencils does not write such superblocks.
    """
    at, sizes = _SIZES
    if not head.startswith(_SIGNATURE) or head[at : at + 2] != sizes or len(head) < _HEAD:
        return None
    return int.from_bytes(head[END_AT : END_AT + 8], "little")


def read_head(handle: int) -> bytes:
    """Read the superblock, and the header of the record, if there is one."""
    head = read(handle, _HEAD, 0)
    end = end_of(head)
    return head if end is None else head + read(handle, _HEADER.size, min(end, 2**62))


def check_manifest(path: str, *, edited: bool = False) -> Record | None:
    """Compare all bytes of a file, but data that have checksums, with its record.

    Returns None if the file ends where its superblock states, or is no HDF5 file as pencils writes
    them: then it is of another program, or another program has written to it. With ``edited=True``,
    any file that has lost its record may pass. Raises CheckpointError if the file is damaged or not
    a regular file, OSError if the system cannot read it.
    """
    with open_to_read(path) as handle:
        record = find_record(path, handle, edited=edited)
        if record is None:
            return None
        manifest = record.manifest
        outside = sorted(_outside(path, handle, manifest))
        with CapturedFile(path) as file:
            for patch in manifest.patches:
                file.poke(*patch)
            pages = page_digests(file, outside, 0, manifest.size)
    if sum(pages.values()) % 2**64 != manifest.total:
        raise broken(path, "the part that HDF5 reads is")
    return record._replace(outside=outside, pages=pages)


def find_record(path: str, handle: int, *, edited: bool = False) -> Record | None:
    """Find the record of an open file; as `check_manifest`, but without the sum."""
    head = read(handle, _HEAD, 0)
    end, size = end_of(head), os.fstat(handle).st_size
    if end is not None and end >= size:
        return None  # HDF5 finds out if something is missing
    record = None if end is None else _read_record(path, handle, end)
    if record is not None:
        return record
    if edited or (end is None and read(handle, len(_MARK), max(0, size - len(_MARK))) != _MARK):
        return None
    what = "its list of contents, which begins at the end of HDF5's part, is"
    hint = "; if another program has appended something to the file, edited=True reads it"
    raise broken(path, what, hint)


def _read_record(path: str, handle: int, start: int) -> Record | None:
    header = read(handle, _HEADER.size, start)
    if len(header) < _HEADER.size:
        return None
    mark, at, length, text_digest, own_digest = _HEADER.unpack(header)
    if mark != _MARK or at != start or own_digest != digest(start, header[:-8]):
        return None
    at += _HEADER.size
    text = read(handle, length, at)
    if digest(at, text) != text_digest or read(handle, len(_MARK), at + length) != _MARK:
        return None
    return Record(Manifest.decode(path, text), start, at + length + len(_MARK))


def _outside(path: str, handle: int, manifest: Manifest) -> Iterable[Extent]:
    """Yield the extents outside the sum, those of earlier manifests included."""
    yield from manifest.outside
    while any(manifest.earlier):
        offset, length, expected = manifest.earlier
        text = read(handle, length, offset)
        if digest(offset, text) != expected:
            raise broken(path, "its list of contents is")
        manifest = Manifest.decode(path, text)
        yield from manifest.outside


def broken(path: str, what: str, hint: str = "") -> CheckpointError:
    """Make the error for a file that does not fit its record."""
    msg = (
        f"{path} is damaged: {what} no longer as written; go back to an older checkpoint, or read "
        f"what HDF5 still finds with load(..., verify=False){hint}"
    )
    return CheckpointError(msg)


def lost(path: str) -> CheckpointError:
    """Make the error for a file by pencils that has no record."""
    msg = (
        f"{path} was written by pencils, and then changed or rewritten by another program, or cut "
        "off: its list of contents is gone, so damage cannot be found; edited=True reads it as it "
        "is"
    )
    return CheckpointError(msg)


def _type_text(dtype: np.dtype[Any]) -> str:
    """Make a text that is equal for types whose elements are equal, byte for byte."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return f"{_type_text(base)}{list(shape)}"
    if dtype.fields is not None and dtype.names is not None:
        parts = ((name, *dtype.fields[name][:2]) for name in dtype.names)
        inner = ", ".join(f"{name!r}: {_type_text(kind)} at {at}" for name, kind, at in parts)
        return f"{{{inner}}} in {dtype.itemsize}"
    return dtype.str
