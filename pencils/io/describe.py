"""Describe datasets of HDF5 files by what HDF5 says of them. No communication."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pencils.array.normalize import as_dtype
from pencils.errors import CheckpointError
from pencils.io.dataset_info import RESERVED, DatasetInfo
from pencils.io.values import COORDINATE


def kind_of(dataset: Any) -> str:
    """Return `DatasetInfo.kind` of a dataset of a file of pencils, or `COORDINATE`."""
    if RESERVED + "components" in dataset.attrs:
        return ""
    kind: str = dataset.attrs.get(RESERVED + "value", COORDINATE)
    return kind


def address_of(thing: Any) -> int:
    """Return the address of the object header of a group or a dataset."""
    return int(h5py.h5o.get_info(thing.id).addr)


def describe(path: str, name: str, dataset: Any) -> DatasetInfo:
    """Describe a dataset of a file.

    Raises
    ------
    CheckpointError
        If it is none that a field could hold, or reaches beyond the end of the file.
    """
    if dataset.shape is None:
        msg = f"{name!r} in {path} is empty: it has neither shape nor points"
        raise CheckpointError(msg)
    dtype = _field_type(path, name, dataset)
    components = dataset.attrs.get(RESERVED + "components")
    summed = dataset.attrs.get(RESERVED + "checksum")
    entry = DatasetInfo(
        name,
        dataset.shape,
        dtype,
        components=None if components is None else int(components),
        singletons=_flags(dataset, "singleton"),
        periodic=_flags(dataset, "periodic"),
        boundary=_pairs(dataset.attrs.get(RESERVED + "boundary", ())),
        kind=dataset.attrs.get(RESERVED + "value", ""),
        checksum=None if summed is None else int(summed),
        chunks=dataset.chunks or (),
    )
    offset = _raw_offset(path, dataset)
    if offset is not None and offset + entry.nbytes > Path(path).stat().st_size:
        msg = f"{path} is damaged: it ends before {name!r} does"
        raise CheckpointError(msg)
    return replace(entry, offset=offset)


def is_array(dataset: Any) -> bool:
    """Whether a dataset has points, of a type that a field may have."""
    try:
        as_dtype(dataset.dtype)
    except TypeError:
        return False
    return dataset.shape is not None


def _field_type(path: str, name: str, dataset: Any) -> np.dtype[Any]:
    try:
        dtype = as_dtype(dataset.dtype)
    except TypeError as error:
        msg = f"{name!r} in {path} has elements that no field can hold: {error}"
        raise CheckpointError(msg) from None
    return dtype if dtype.names else np.dtype(dtype.str)  # without notes by h5py


def _flags(dataset: Any, name: str) -> tuple[bool, ...]:
    return tuple(bool(flag) for flag in dataset.attrs.get(RESERVED + name, ()))


def _pairs(numbers: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    flat = map(int, numbers)
    return tuple(zip(flat, flat, strict=True))


def _raw_offset(path: str, dataset: Any) -> int | None:
    """Where the elements lie as plain bytes, or None if they do not."""
    layout = dataset.id.get_create_plist()
    plain = layout.get_layout() == h5py.h5d.CONTIGUOUS and layout.get_external_count() == 0
    here = Path(path).samefile(dataset.file.filename)  # an external link leads elsewhere
    native = h5py.h5t.py_create(dataset.dtype, logical=True)
    if not (plain and here and native.equal(dataset.id.get_type())):
        return None
    offset: int | None = dataset.id.get_offset()
    return offset
