r"""How a file proves that it is whole: the list of its contents, behind HDF5's part of the file.

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

`save` only calls `seal_new`; the rest is for files that grow or are corrected. A file in use is
changed in this order, so that a process that is killed leaves the old state or the new one:

1. New bytes and the new record are written where the old state has no bytes; then `os.fsync`.
2. One write of eight bytes makes the superblock refer to the new record; then `os.fsync`.
3. The *patches*, bytes that HDF5 changes in place, are written. The manifest lists them: the state
   that a record describes is the file with its patches, whether these were written yet or not.

If the process is killed during step 3, `committed` shows readers the file with its patches, and
`repair` writes them.

When another program opens the file for writing, HDF5 cuts the file off at `end`: such a file has
lost its record and ends there. A damaged file does not end there, or its record does not fit.
"""

from __future__ import annotations

import json
import os
import struct
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from pencils.errors import CheckpointError
from pencils.io.captured_file import CapturedFile, Change
from pencils.io.file_access import open_to_read, open_to_write, read, write
from pencils.io.file_info import GO_BACK, DatasetInfo

ByteRange = tuple[int, int]

# Of the superblock: what it begins with, the size of addresses and lengths, its own size, and
# where it holds the end of the file, which is not summed up: it changes with every record.
_SIGNATURE = b"\x89HDF\r\n\x1a\n\0"
_SIZES = (13, b"\x08\x08")
_HEAD = 96
_END_AT = 40
END_FIELD: ByteRange = (_END_AT, 8)

_HEADER = struct.Struct("<8s4Q")
_MARK = b"\x89pencil\n"
_FORMAT = 1
# Digests are of pages, so that a change of a large file costs only those it touches.
_PAGE = 4096
# A record lists that many extents outside its sum, and refers to an earlier record for others.
_LISTED = 64
UNKNOWN_LAYOUT = (
    "this version of HDF5 has a file layout that pencils does not know; install another h5py"
)


class Listed(NamedTuple):
    """A dataset in a manifest."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    checksum: int | None

    @classmethod
    def of(cls, entry: DatasetInfo) -> Listed:
        """Describe a dataset for a manifest."""
        shape = tuple(map(int, entry.shape))
        return cls(entry.kind, _type_text(entry.dtype), shape, entry.checksum)


class Manifest(NamedTuple):
    """The contents of a file."""

    datasets: Mapping[str, Listed]  # fields, values and coordinates
    size: int  # where HDF5's part of the file ends
    total: int  # sum of the digests of that part, without `outside`
    outside: Sequence[ByteRange]  # extents that are not in the sum, sorted
    # Offset, length and digest of an earlier manifest, whose `outside` holds here too, or zeros.
    earlier: tuple[int, int, int] = (0, 0, 0)
    patches: Sequence[Change] = ()  # bytes that the file has, or is about to have, at some offsets
    about: Mapping[str, Any] | None = None  # the rest, for readers without HDF5: `describe.tell`

    def encode(self) -> bytes:
        """Return it as text."""
        parts = {"format": _FORMAT, **self._asdict()}
        parts["datasets"] = [[name, *listed] for name, listed in self.datasets.items()]
        parts["patches"] = [[offset, data.hex()] for offset, data in self.patches]
        text = json.dumps(parts, separators=(",", ":")).encode()
        return text.ljust(aligned(len(text)))

    @classmethod
    def decode(cls, path: str, text: bytes) -> Manifest:
        """Make it from its text; CheckpointError if it is of a format that is too new."""
        parts = json.loads(text)
        if parts["format"] > _FORMAT:
            raise CheckpointError(f"{path} was written by a newer pencils. Install a newer pencils")
        datasets = {
            name: Listed(kind, dtype, tuple(shape), total)
            for name, kind, dtype, shape, total in parts["datasets"]
        }
        outside = [(offset, count) for offset, count in parts["outside"]]
        patches = [(offset, bytes.fromhex(data)) for offset, data in parts["patches"]]
        earlier = tuple(parts["earlier"])
        about = parts.get("about")  # not in files of older versions
        return cls(datasets, parts["size"], parts["total"], outside, earlier, patches, about)


@dataclass
class Record:
    """A manifest in a file, by which h5py changes the file in memory, from `begin` to `end`.

    New bytes are written behind the record of the old state; HDF5's own changes are the only ones
    in place.
    """

    path: str
    manifest: Manifest
    start: int  # where the record begins and ends
    stop: int
    head: bytes  # superblock and header, which refer to it
    # Found by `check_manifest`: all extents outside the sum, and the digests of all pages.
    outside: list[ByteRange] = field(default_factory=list)
    pages: dict[int, int] = field(default_factory=dict)
    captured: CapturedFile | None = None  # from `begin` to `end`

    def begin(self) -> CapturedFile:
        """Start to change the file in memory; raise CheckpointError if another process has."""
        self.close()
        with open_to_read(self.path) as handle:
            self._check_alone(handle)
        # Another process may have changed the bytes of patches.
        self.captured = CapturedFile(self.path, changes=self.manifest.patches)
        self.captured.poke(_END_AT, aligned(self.stop).to_bytes(8, "little"))
        return self.captured

    def end(
        self,
        datasets: Mapping[str, Listed],
        raw: Iterable[ByteRange] = (),
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the changes, and a record that lists `datasets`.

        `raw` are extents of data that have checksums, where all ranks have written; `about` is as
        in `Manifest`. Raises CheckpointError if another process has written to the file.
        """
        assert self.captured is not None
        old, behind, changes = self.manifest, aligned(self.stop), self.captured.changes()
        listed, earlier = old.outside, old.earlier
        size = _end_of(self.captured.peek(0, _HEAD)) or 0
        if size == behind:  # HDF5 needed no room
            size = old.size
        else:
            if len(listed) >= _LISTED:
                text, at = old.encode(), self.start + _HEADER.size
                listed, earlier = (), (at, len(text), _digest(at, text))
            added = _joined([(old.size, behind - old.size), *raw])  # behind all others
            listed = [*listed, *added]
            self.outside += added
        changed = [(at, len(data)) for at, data in changes]
        reused = [extent for extent in changed if extent[0] < behind]
        if any(self._is_outside(*extent) for extent in reused):  # HDF5 has used freed space again
            rest = [extent for extent in self.outside if extent != END_FIELD]
            gaps = (gap for at, count in rest for gap in _complement(reused, at, at + count))
            listed = self.outside = [END_FIELD, *gaps]
            earlier = (0, 0, 0)
        for at, count in [*changed, (old.size, size - old.size)]:
            first, last = at // _PAGE * _PAGE, min(size, -(-(at + count) // _PAGE) * _PAGE)
            self.pages |= _page_digests(self.captured, self.outside, first, last)
        total = sum(self.pages.values()) % 2**64
        with open_to_write(self.path) as handle:
            self._check_alone(handle)
            patches = _differences(handle, changes, behind)
            self.manifest = Manifest(datasets, size, total, listed, earlier, patches, about)
            place = aligned(size)
            if place <= self.start < place + len(_compose(self.manifest, place)):
                place = behind  # without new bytes, records alternate between two places
            new = [change for change in changes if change[0] >= behind]
            self.start, self.stop = place, _switch(handle, self.manifest, place, new)
            self.head = _read_head(handle)
        self.close()

    def close(self) -> None:
        """Forget changes in memory."""
        if self.captured is not None:
            self.captured.close()

    def _check_alone(self, handle: int) -> None:
        if _read_head(handle) != self.head:
            raise CheckpointError(
                f"{self.path} was changed by another process; make a new TimeSeries to continue it"
            )

    def _is_outside(self, offset: int, count: int) -> bool:
        """Whether bytes are in extents that are not in the sum."""
        near = self.outside[: bisect(self.outside, (offset + count,))][-2:]
        return any(sum(extent) > offset and extent != END_FIELD for extent in near)


def _joined(extents: Iterable[ByteRange]) -> list[ByteRange]:
    joined: list[ByteRange] = []
    for offset, count in sorted(extents):
        start = joined.pop()[0] if joined and sum(joined[-1]) == offset else offset
        joined.append((start, offset + count - start))
    return joined


def aligned(address: int) -> int:
    """Return the next multiple of eight."""
    return -(-address // 8) * 8


def _digest(offset: int, data: bytes | bytearray) -> int:
    """Sum up bytes at an offset of a file; such numbers are added modulo ``2**64``."""
    salt = struct.pack("<QQ", offset, len(data))
    return int.from_bytes(blake2b(data, digest_size=8, salt=salt).digest(), "little")


def _page_digests(
    file: CapturedFile, outside: Sequence[ByteRange], start: int, stop: int
) -> dict[int, int]:
    """Sum up the bytes from `start` to `stop`, without sorted extents, by number of the page."""
    near = outside[max(0, bisect(outside, (start,)) - 1) : bisect(outside, (stop,))]
    found: dict[int, int] = {}
    for offset, count in _complement(near, start, stop):
        for page in range(offset // _PAGE, -(-(offset + count) // _PAGE)):
            at = max(offset, page * _PAGE)
            data = file.peek(at, min(offset + count, (page + 1) * _PAGE) - at)
            found[page] = (found.get(page, 0) + _digest(at, data)) % 2**64
    return found


def _complement(extents: Iterable[ByteRange], start: int, stop: int) -> list[ByteRange]:
    """List the gaps between extents, from `start` to `stop`."""
    gaps = []
    for offset, count in sorted(extent for extent in extents if extent[1]):
        if offset > start:
            gaps.append((start, min(offset, stop) - start))
        start = max(start, offset + count)
        if start >= stop:
            return gaps
    return [*gaps, (start, stop - start)]


def _end_of(head: bytes) -> int | None:
    """Return the end by the first 96 bytes or more; None if pencils writes no such superblock."""
    at, sizes = _SIZES
    if not head.startswith(_SIGNATURE) or head[at : at + 2] != sizes or len(head) < _HEAD:
        return None
    return int.from_bytes(head[_END_AT : _END_AT + 8], "little")


def _read_head(handle: int) -> bytes:
    """Read the superblock, and the header of the record, if there is one."""
    head = read(handle, _HEAD, 0)
    end = _end_of(head)
    return head if end is None else head + read(handle, _HEADER.size, min(end, 2**62))


def check_manifest(path: str, *, edited: bool = False) -> Record | None:
    """Compare all bytes of a file, but data that have checksums, with its record.

    Returns None if the file ends where its superblock states, or is no HDF5 file as pencils writes
    them: then it is of another program, or another program has written to it. With ``edited=True``,
    any file that has lost its record may pass. Raises CheckpointError if the file is damaged or not
    a regular file, OSError if the system cannot read it.
    """
    with open_to_read(path) as handle:
        record = _find_record(path, handle, edited=edited)
        if record is None:
            return None
        manifest = earlier = record.manifest
        outside = [*manifest.outside]
        while any(earlier.earlier):
            offset, length, expected = earlier.earlier
            text = read(handle, length, offset)
            if _digest(offset, text) != expected:
                raise broken(path, "its list of contents does not match its checksum")
            earlier = Manifest.decode(path, text)
            outside += earlier.outside
    outside.sort()
    with CapturedFile(path, changes=manifest.patches) as file:
        pages = _page_digests(file, outside, 0, manifest.size)
    if sum(pages.values()) % 2**64 != manifest.total:
        raise broken(path, "the metadata of HDF5 do not match their checksum")
    record.outside, record.pages = outside, pages
    return record


def _find_record(path: str, handle: int, *, edited: bool) -> Record | None:
    """Find the record of an open file; as `check_manifest`, but without the sum."""
    head = _read_head(handle)
    end, size = _end_of(head), os.fstat(handle).st_size
    if end is not None and end >= size:
        return None  # HDF5 finds out if something is missing
    record = None if end is None else _read_record(path, handle, end, head)
    if record is not None:
        return record
    if edited or (end is None and read(handle, len(_MARK), max(0, size - len(_MARK))) != _MARK):
        return None
    what = "its list of contents, behind the data of HDF5, is missing or changed"
    hint = "; if another program has appended to the file, edited=True reads it"
    raise broken(path, what, hint)


def _read_record(path: str, handle: int, start: int, head: bytes) -> Record | None:
    header = head[_HEAD:]
    if len(header) < _HEADER.size:
        return None
    mark, at, length, text_digest, own_digest = _HEADER.unpack(header)
    if mark != _MARK or at != start or own_digest != _digest(start, header[:-8]):
        return None
    at += _HEADER.size
    text = read(handle, length, at)
    if _digest(at, text) != text_digest or read(handle, len(_MARK), at + length) != _MARK:
        return None
    return Record(path, Manifest.decode(path, text), start, at + length + len(_MARK), head)


def broken(path: str, what: str, hint: str = "") -> CheckpointError:
    """Make the error for a file that does not fit its record."""
    msg = f"{path} is damaged: {what}; {GO_BACK}{hint}"
    return CheckpointError(msg)


def lost(path: str) -> CheckpointError:
    """Make the error for a file by pencils that has no record."""
    msg = (
        f"{path} has lost its list of contents: another program changed it, or it was cut off. "
        "Damage cannot be detected; edited=True reads the file as it is"
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


def seal_new(
    path: str,
    entries: Iterable[DatasetInfo],
    raw: Iterable[ByteRange],
    about: Mapping[str, Any] | None = None,
    *,
    in_use: bool = False,
) -> None:
    """Add a record to a file that has none.

    `entries` are its fields, values and coordinates, with their checksums; `raw` extents of data
    that have checksums of their own; `about` is as in `Manifest`. The present state of a file that
    is `in_use` survives a power failure.
    """
    with CapturedFile(path) as file:
        size = _end_of(file.peek(0, _HEAD))
        if size is None:
            raise RuntimeError(UNKNOWN_LAYOUT)
        outside = sorted([END_FIELD, *raw])
        total = sum(_page_digests(file, outside, 0, size).values()) % 2**64
    listed = {entry.name: Listed.of(entry) for entry in entries}
    manifest = Manifest(listed, size, total, outside, about=about)
    with open_to_write(path) as handle:
        _switch(handle, manifest, aligned(size), to_disk=in_use)


def _switch(
    handle: int,
    manifest: Manifest,
    start: int,
    changes: Iterable[Change] = (),
    *,
    to_disk: bool = True,
) -> int:
    """Bring an open file to its next state; return where the record, from `start` on, ends.

    `changes` are bytes that the old state does not use; patches may reach the disk later.
    """
    record = _compose(manifest, start)
    # Eight bytes in one sector, which change at once, refer to the record.
    for step in ([*changes, (start, record)], [(_END_AT, struct.pack("<Q", start))]):
        for offset, data in step:
            write(handle, data, offset)
        if to_disk:
            os.fsync(handle)
    for offset, data in manifest.patches:
        write(handle, data, offset)
    return start + len(record)


def _compose(manifest: Manifest, start: int) -> bytes:
    """Make the record of a manifest, for the place `start` in a file."""
    text = manifest.encode()
    header = _HEADER.pack(_MARK, start, len(text), _digest(start + _HEADER.size, text), 0)[:-8]
    return header + struct.pack("<Q", _digest(start, header)) + text + _MARK


def _differences(handle: int, changes: Iterable[Change], stop: int) -> list[Change]:
    """List changes below `stop`, without END_FIELD, that differ from a file, in 8-byte words."""
    found: list[Change] = []
    for offset, data in changes:
        new = np.frombuffer(data, np.uint8)
        old = np.frombuffer(read(handle, len(data), offset).ljust(len(data), b"\0"), np.uint8)
        words = np.unique((np.flatnonzero(old != new) + offset) // 8)
        words = words[(words * 8 != _END_AT) & (words * 8 < stop)]
        for run in np.split(words, np.flatnonzero(np.diff(words) > 1) + 1) if words.size else ():
            first, last = max(0, 8 * int(run[0]) - offset), 8 * int(run[-1]) + 8 - offset
            found.append((offset + first, data[first:last]))
    return found


def reseal(path: str, sums: Mapping[str, int]) -> None:
    """Correct the checksums of fields, all at once; afterwards the file is on the disk.

    The file may have no record. Raises CheckpointError if it is damaged.
    """
    from pencils.io import create

    repair(path)
    record = check_manifest(path, edited=True)
    if record is None:
        create.note_complete(path, sums)
    else:
        datasets = {
            name: listed._replace(checksum=sums.get(name, listed.checksum))
            for name, listed in record.manifest.datasets.items()
        }
        with closing(record):
            create.note_complete(record.begin(), sums)
            record.end(datasets, about=record.manifest.about)
    with open_to_write(path) as handle:
        os.fsync(handle)


def repair(path: str) -> None:
    """Write the patches that a process left behind when it was killed.

    Only while the file refers to the record that lists them: another process may go on.
    """
    head, patches = _pending(path)
    if patches:
        with open_to_write(path) as handle:
            for offset, data in patches:
                if _read_head(handle) == head:
                    write(handle, data, offset)
            os.fsync(handle)


def committed(path: str) -> str | CapturedFile:
    """Return the source from which h5py reads the last committed state: path or patched file."""
    _, patches = _pending(path)
    return CapturedFile(path, changes=patches) if patches else path


def _pending(path: str) -> tuple[bytes, list[Change]]:
    """Return superblock and header of the record, and the patches that are not in the file."""
    with open_to_read(path) as handle:
        record = _find_record(path, handle, edited=True)
        if record is None:
            return b"", []
        patches = record.manifest.patches
        return record.head, [one for one in patches if read(handle, len(one[1]), one[0]) != one[1]]
