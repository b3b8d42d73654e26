"""Describe a file on rank 0: by its manifest where that has all of it, else by h5py.

A manifest that fits the file has the same contents as HDF5: all bytes of HDF5 are as `save` left
them. Another program that changes them removes the manifest, or the manifest no longer fits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from pencils.io.captured_file import CapturedFile
from pencils.io.direct import checksum
from pencils.io.file_info import (
    COORDINATE,
    FORMAT,
    Access,
    DatasetInfo,
    FileInfo,
    Identity,
    Stored,
    damaged,
    decode_attribute,
    encode_attribute,
    is_kept,
)
from pencils.io.formats import is_zarr
from pencils.io.manifest import Record, check_manifest


def reader_of(path: str) -> Any:
    """Return the module that reads data which are no plain bytes; most ranks never need it."""
    if is_zarr(path):
        from pencils.io import zarr_read as reader
    else:
        from pencils.io import hdf5 as reader  # type: ignore[no-redef]
    return reader


def describer_of(path: str) -> Any:
    """Return the module that has the three functions below for the format of a file."""
    return reader_of(path) if is_zarr(path) else sys.modules[__name__]


def describe(
    path: str, names: list[str] | None, among: list[str] | None, access: Access
) -> FileInfo:
    """Describe named datasets; None means all values, and the fields in `among` (None: all).

    In a file of another tool every dataset is a field.
    """
    identity, record, known = _look(path, access)
    found = None if record is None else _select(known, names, among)
    if record is None or found is None:
        return _by_hdf5(
            (path, access, record),
            lambda hdf5, file: hdf5.describe(file, identity, names, among, verify=access.verify),
        )
    return _info(path, identity, record, found)


def describe_fields(path: str, access: Access) -> FileInfo:
    """Describe all fields and values that pencils can read."""
    identity, record, known = _look(path, access)
    if record is None or not known:
        return _by_hdf5(
            (path, access, record), lambda hdf5, file: hdf5.describe_fields(file, identity)
        )
    found = [one for one in known.values() if one.kind != COORDINATE]
    return _info(path, identity, record, found)


def describe_summed(path: str, access: Access) -> FileInfo:
    """Describe all datasets that have a checksum; read no values."""
    identity, record, known = _look(path, access)
    if not known:
        return _by_hdf5(
            (path, access, record), lambda hdf5, file: hdf5.describe_summed(file, identity)
        )
    summed = [one for one in known.values() if one.checksum is not None]
    summed.sort(key=lambda one: one.name.encode().split(b"/"))  # as HDF5 lists them
    is_covered = bool(summed) or all(one.kind for one in known.values())
    return FileInfo(path, identity, summed, {}, {}, None, None, is_covered)


def _by_hdf5(
    place: tuple[str, Access, Record | None], describe: Callable[[Any, Any], FileInfo]
) -> FileInfo:
    """Describe by a function of the module `hdf5` and of the file."""
    from pencils.io import hdf5  # most files need no h5py

    with hdf5.open_checked(*place) as file:
        return describe(hdf5, file)


def tell(
    entries: Collection[DatasetInfo], attrs: Mapping[str, Any], run: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the part of a new file's manifest by which the functions above do without HDF5.

    `attrs` are of the user, `run` has step and time. None if h5py may return something else than
    it gets, as for types that HDF5 does not have.
    """
    datasets = [
        (one.offset, one.components, one.singletons, one.periodic, one.boundary, one.chunks)
        for one in entries
        if is_kept(one.dtype) or one.dtype.kind == "S"
    ]
    known = {name: encode_attribute(attrs[name]) for name in sorted(attrs)}
    if len(datasets) < len(entries) or None in known.values():
        return None
    return {"format": FORMAT, "datasets": datasets, "attrs": known, **run}


def _look(path: str, access: Access) -> tuple[Identity, Record | None, dict[str, DatasetInfo]]:
    """Find a file, its record, and its datasets if the manifest has all of it."""
    identity = Identity.of(path)
    record = check_manifest(path, edited=access.edited) if access.verify else None
    about = None if record is None else record.manifest.about
    known: dict[str, DatasetInfo] = {}
    if record is None or about is None or about["format"] != FORMAT:
        return identity, record, known
    pairs = zip(record.manifest.datasets.items(), about["datasets"], strict=True)
    for (name, listed), (offset, components, *more) in pairs:
        singletons, periodic, boundary, chunks = map(tuple, more)
        known[name] = DatasetInfo(
            name,
            listed.shape,
            np.dtype(listed.dtype),
            offset,
            components,
            singletons,
            periodic,
            tuple((low, high) for low, high in boundary),
            listed.kind,
            listed.checksum,
            chunks,
        )
    return identity, record, known


def _select(
    known: Mapping[str, DatasetInfo], names: list[str] | None, among: list[str] | None
) -> list[DatasetInfo] | None:
    """Find the datasets to describe; None if there is a mistake, for which h5py finds the error."""
    if names is None:
        fields = [one.name for one in known.values() if not one.kind]
        values = [one.name for one in known.values() if one.kind not in ("", COORDINATE)]
        names = [*(fields if among is None else among), *values]
    wanted = dict.fromkeys(names)
    if not known or any(
        name not in known or (known[name].kind and name in (among or ())) for name in wanted
    ):
        return None
    return [known[name] for name in wanted]


def _info(path: str, identity: Identity, record: Record, found: Sequence[DatasetInfo]) -> FileInfo:
    """Read the values among some datasets."""
    about = record.manifest.about or {}
    attrs = {name: decode_attribute(*stored) for name, stored in about["attrs"].items()}
    fields = [one for one in found if not one.kind]
    values = {one.name: _read(path, record, one) for one in found if one.kind}
    return FileInfo(path, identity, fields, values, attrs, about.get("step"), about.get("time"))


def _read(path: str, record: Record, one: DatasetInfo) -> Stored:
    """Read a value; CheckpointError if its checksum does not match."""
    data = np.empty(one.shape, one.dtype)
    if one.offset is not None:
        with CapturedFile(path, changes=record.manifest.patches) as file:
            contents = np.frombuffer(file.peek(one.offset, one.nbytes), np.uint8)
        data.reshape(-1).view(np.uint8)[:] = contents
    if one.checksum not in (None, checksum(data)):
        raise damaged(path, [one.name])
    return Stored(one.kind, data)
