"""Give files the records by which damage is found, and change files in place. No communication.

A file in use is changed in this order, so that a process that is killed leaves the old state or the
new one:

1. New bytes and the new record are written where the old state has no bytes; then `os.fsync`.
2. One write of eight bytes makes the superblock refer to the new record; then `os.fsync`.
3. The patches, which the new record lists, are written in place.

If the process is killed during step 3, `committed` shows readers the file with its patches, and
`repair` writes them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from pencils.io.captured_file import CapturedFile, Change
from pencils.io.file_access import open_to_read, open_to_write, read, write
from pencils.io.file_info import DatasetInfo
from pencils.io.manifest import (
    END_AT,
    Extent,
    Listed,
    Manifest,
    Patch,
    aligned,
    check_manifest,
    compose,
    end_of,
    find_record,
    page_digests,
    read_head,
)

# The end of the file in the superblock is not summed up: it changes with every record.
END_FIELD: Extent = (END_AT, 8)


def seal_new(path: str, entries: Iterable[DatasetInfo], raw: Iterable[Extent]) -> None:
    """Add a record to a file that h5py has just written.

    `entries` are its fields, values and coordinates, with their checksums; `raw` extents of data
    that have checksums of their own.
    """
    manifest = _first_manifest(path, entries, raw)
    start = aligned(manifest.size)
    with open_to_write(path) as handle:
        write(handle, compose(manifest, start), start)
        _refer(handle, start)


def seal_again(path: str, entries: Iterable[DatasetInfo], raw: Iterable[Extent]) -> None:
    """Do what `seal_new` does to a file whose present state must survive a power failure."""
    manifest = _first_manifest(path, entries, raw)
    with open_to_write(path) as handle:
        switch(handle, manifest, aligned(manifest.size))


def _first_manifest(path: str, entries: Iterable[DatasetInfo], raw: Iterable[Extent]) -> Manifest:
    with CapturedFile(path) as file:
        size = end_of(file.peek(0, 96))
        if size is None:
            raise RuntimeError(
                "this version of HDF5 begins files in another way than pencils expects"
            )
        outside = sorted([END_FIELD, *raw])
        total = sum(page_digests(file, outside, 0, size).values()) % 2**64
    return Manifest({entry.name: Listed.of(entry) for entry in entries}, size, total, outside)


def reseal(path: str, sums: Mapping[str, int]) -> None:
    """Correct the checksums of fields, all at once; afterwards the file is on the disk.

    The file may have no record. Raises CheckpointError if it is damaged.
    """
    from pencils.io import create

    repair(path)
    checked = check_manifest(path, edited=True)
    if checked is None:
        create.note_complete(path, sums)
    with open_to_write(path) as handle:
        if checked is None:
            os.fsync(handle)
            return
        old, start, stop, outside, _ = checked
        with CapturedFile(path) as file:
            create.note_complete(file, sums)
            patches = differences(handle, file.changes(), old.size)
            pages = page_digests(file, outside, 0, old.size)
        datasets = {
            name: listed._replace(checksum=sums.get(name, listed.checksum))
            for name, listed in old.datasets.items()
        }
        total = sum(pages.values()) % 2**64
        manifest = replace(old, datasets=datasets, total=total, patches=patches)
        place = aligned(old.size)  # records alternate between two places
        if place + len(compose(manifest, place)) > start:
            place = aligned(stop)
        switch(handle, manifest, place)
        os.fsync(handle)


def switch(handle: int, manifest: Manifest, start: int, changes: Iterable[Change] = ()) -> int:
    """Bring an open file to its next state; patches may reach the disk later.

    The record of the next state begins at `start`, where the old record must not be; `changes` are
    bytes that the old state does not use. Returns where the record ends.
    """
    record = compose(manifest, start)
    for offset, data in changes:
        write(handle, data, offset)
    write(handle, record, start)
    os.fsync(handle)
    _refer(handle, start)
    os.fsync(handle)
    for offset, data in manifest.patches:
        write(handle, data, offset)
    return start + len(record)


def differences(handle: int, changes: Iterable[Change], stop: int) -> list[Patch]:
    """List changes below `stop` that differ from an open file, in words of eight bytes.

    The end of the file in the superblock is left out.
    """
    found: list[Patch] = []
    for offset, data in changes:
        new = np.frombuffer(data, np.uint8)
        old = np.frombuffer(read(handle, len(data), offset).ljust(len(data), b"\0"), np.uint8)
        words = np.unique((np.flatnonzero(old != new) + offset) // 8)
        words = words[(words * 8 != END_AT) & (words * 8 < stop)]
        for run in np.split(words, np.flatnonzero(np.diff(words) > 1) + 1) if words.size else ():
            first, last = max(0, 8 * int(run[0]) - offset), 8 * int(run[-1]) + 8 - offset
            found.append((offset + first, data[first:last]))
    return found


def repair(path: str) -> None:
    """Write the patches that a process left behind when it was killed.

    Only while the file refers to the record that lists them: a process that lives may go on, and
    its later changes must stay.
    """
    head, patches = _pending(path)
    if patches:
        with open_to_write(path) as handle:
            for offset, data in patches:
                if read_head(handle) == head:
                    write(handle, data, offset)
            os.fsync(handle)


def committed(path: str) -> str | CapturedFile:
    """Return what h5py opens to read the last committed state: the path, if it is in place."""
    _, patches = _pending(path)
    if not patches:
        return path
    file = CapturedFile(path)
    for patch in patches:
        file.poke(*patch)
    return file


def _pending(path: str) -> tuple[bytes, list[Patch]]:
    """Return superblock and header of the record, and the patches that are not in the file."""
    with open_to_read(path) as handle:
        head = read_head(handle)
        record = find_record(path, handle, edited=True)
        patches = () if record is None else record.manifest.patches
        return head, [(at, data) for at, data in patches if read(handle, len(data), at) != data]


def _refer(handle: int, start: int) -> None:
    """Make the superblock refer to a record: eight bytes in one sector, which change at once."""
    write(handle, struct.pack("<Q", start), END_AT)
