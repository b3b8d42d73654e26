"""Filters of HDF5, by which chunks are compressed, run on chunks in memory. No communication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import uuid4

import h5py
import numpy as np

from pencils.array.allocation import Array
from pencils.errors import ArgumentError
from pencils.io.create import make_chunked
from pencils.io.file_info import DatasetInfo


class Packed(NamedTuple):
    """A chunk as it is to be stored: its bytes, and the mask of the filters that left it alone."""

    data: bytes
    mask: int


class Packer:
    """Sends the chunks of one dataset through its filters, one after the other.

    Parameters
    ----------
    entry : DatasetInfo
        The dataset.
    compression : mapping of str to object
        The filters, as keywords of h5py's ``create_dataset``.

    Examples
    --------
    >>> entry = DatasetInfo("u", (10,), np.dtype("i4"), chunks=(4,))
    >>> with Packer(entry, {"compression": "gzip"}) as packer:
    ...     packed = packer.pack(np.arange(2, dtype="i4"))
    ...     packer.unpack()
    array([0, 1, 0, 0], dtype=int32)
    """

    def __init__(self, entry: DatasetInfo, compression: Mapping[str, Any]) -> None:
        self._chunk = np.zeros(entry.chunks, entry.dtype)
        # Without its cache HDF5 runs the filters in every call.
        self._file = h5py.File(uuid4().hex, "w", driver="core", backing_store=False, rdcc_nbytes=0)
        try:
            one = replace(entry, shape=entry.chunks)
            self._dataset = make_chunked(self._file, one, compression).id
        except BaseException:
            self._file.close()
            raise
        self._kind = self._dataset.get_type()  # the bytes as they are, whatever HDF5 calls them

    def pack(self, values: Array) -> Packed:
        """Filter a chunk; if it has fewer points than the others, zeros are added at its ends."""
        if values.shape != self._chunk.shape:
            self._chunk = np.zeros_like(self._chunk)
        self._chunk[tuple(map(slice, values.shape))] = values
        self._dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, self._chunk, self._kind)
        mask, data = self._dataset.read_direct_chunk((0,) * self._chunk.ndim)
        return Packed(data, mask)

    def unpack(self) -> Array:
        """Return what readers will find in the chunk that was packed last; it is overwritten."""
        self._dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, self._chunk, self._kind)
        return self._chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def check_filters(entries: Iterable[DatasetInfo], compression: Mapping[str, Any]) -> None:
    """Check that HDF5 can filter all chunked datasets.

    Raises
    ------
    ArgumentError
        If there is no such filter here, or it does not take these options.
    TypeError
        If it does not take such elements or types of options, or HDF5 has no such elements.
    """
    for entry in entries:
        if not entry.chunks:
            continue
        try:
            with Packer(entry, compression):
                pass
        except (TypeError, ValueError, KeyError, OSError, RuntimeError) as error:
            msg = f"fields[{entry.name!r}] cannot be stored with {dict(compression)}: {error}"
            kind = TypeError if isinstance(error, TypeError) else ArgumentError
            raise kind(msg) from error
