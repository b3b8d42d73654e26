"""Give files the records by which damage in them is found. No communication."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from pencils.io.dataset_info import DatasetInfo
from pencils.io.manifest import (
    FIRST_PLACE,
    HEAD,
    Extent,
    Listed,
    Manifest,
    Patch,
    Record,
    clear_cached_root,
    complement,
    compose,
    find_record,
    naming,
    other_place,
    parse_head,
    sum_up,
)
from pencils.io.overlay import Overlay
from pencils.io.plain import read, write


def seal_new(path: str, entries: Iterable[DatasetInfo], raw: Iterable[Extent]) -> None:
    """Add a record to a file that HDF5 has just written, and which has not got its name yet.

    Parameters
    ----------
    path : str
        The file.
    entries : iterable of DatasetInfo
        Its fields, values and coordinates, with their checksums.
    raw : iterable of (int, int)
        Extents of data that have checksums of their own.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    with open_to_write(path) as handle:
        clear_cached_root(handle)
        found = parse_head(read(handle, HEAD, 0))
        if found is None:
            msg = "this version of HDF5 begins files in another way than pencils knows"
            raise RuntimeError(msg)
        end, root = found
        covered = complement(raw, HEAD, end)
        datasets = {entry.name: Listed.of(entry) for entry in entries}
        manifest = Manifest(datasets, covered, sum_up(handle, covered))
        start = aligned(end)
        data = compose(manifest, start, end=end, root=root, number=1)
        write(handle, data, start)
        write(handle, *naming(FIRST_PLACE, start + len(data)))


def reseal(path: str, sums: Mapping[str, int]) -> None:
    """Correct the checksums of fields, all at once; afterwards the file is on the disk.

    A process that dies meanwhile leaves all of the old ones or all of the new ones.

    Parameters
    ----------
    path : str
        A file with or without a record.
    sums : mapping of str to int
        The new checksums, by name.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    from pencils.io import create

    with open_to_write(path) as handle:
        record = find_record(path, handle, edited=True)
        if record is None:
            create.seal(path, sums)
            os.fsync(handle)
            return
        _apply(handle, record.manifest.patches)  # unless whoever wrote the record has
        with Overlay(path) as overlay:
            create.seal(overlay, sums)
            changes = overlay.changes()
        patches = [
            patch
            for offset, data in changes
            for patch in _differences(offset, read(handle, len(data), offset), data)
            if HEAD <= patch[0] < record.end
        ]
        _switch(handle, record, _with_sums(handle, record.manifest, sums, patches))
        _apply(handle, patches)
        os.fsync(handle)


def _with_sums(
    handle: int, manifest: Manifest, sums: Mapping[str, int], patches: list[Patch]
) -> Manifest:
    datasets = {
        name: listed._replace(checksum=sums.get(name, listed.checksum))
        for name, listed in manifest.datasets.items()
    }
    total = sum_up(handle, manifest.covered, patches)
    return replace(manifest, datasets=datasets, total=total, patches=patches)


def _switch(handle: int, record: Record, manifest: Manifest) -> None:
    """Let another record count from one moment to the next, the old one staying where it is."""
    start, number = aligned(record.end), record.number + 1
    facts = {"end": record.end, "root": record.root, "number": number}
    data = compose(manifest, start, **facts)
    if start + len(data) > record.start:
        start = aligned(record.stop)
        data = compose(manifest, start, **facts)
    write(handle, data, start)
    os.fsync(handle)
    write(handle, *naming(other_place(record.place), start + len(data)))
    os.fsync(handle)


def _apply(handle: int, patches: Iterable[Patch]) -> None:
    for offset, data in patches:
        write(handle, data, offset)


def _differences(offset: int, old: bytes, new: bytes) -> Iterator[Patch]:
    """Where bytes differ, in words of eight."""
    for at in range(0, len(new), 8):
        if old[at : at + 8] != new[at : at + 8]:
            yield offset + at, new[at : at + 8]


@contextmanager
def open_to_write(path: str) -> Iterator[int]:
    """Open a file for reading and writing by the system's calls."""
    handle = os.open(path, os.O_RDWR)
    try:
        yield handle
    finally:
        os.close(handle)


def aligned(address: int) -> int:
    """Say where the next word of eight bytes begins."""
    return -(-address // 8) * 8
