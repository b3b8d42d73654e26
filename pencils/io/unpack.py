"""Read datasets of HDF5 whose chunks went through filters. No communication.

HDF5 does not compare the number of bytes that a filter returns with the size of the chunk. If a
chunk unpacks to fewer bytes, the rest of its points has whatever is in memory. So each chunk is
unpacked here, in a file in memory whose first filter compares the number.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from itertools import product
from math import prod
from typing import Any
from uuid import uuid4

import h5py
import numpy as np

from pencils.array.allocation import Array
from pencils.errors import CheckpointError
from pencils.io.chunks import chunk_box
from pencils.io.objects import Objects
from pencils.layout import Box, Selection
from pencils.plans import Freeable

# Of the numbers that HDF5 reserves for tests and private filters.
_LENGTH = 511
# Filters of HDF5 that return so many elements of such a size as their parameters 2 and 4 state.
_SIZED = h5py.h5z.FILTER_NBIT, h5py.h5z.FILTER_SCALEOFFSET
# Filters of plugins that compute the same parameters again, as those of HDF5 do: bzip2, lzf, blosc,
# lz4, zstd, blosc2. Others, as of sz, fail or take the parameters in the file for those of a user.
_REPEATED = 307, h5py.h5z.FILTER_LZF, 32001, 32004, 32015, 32026
_SIZE, _POINTER = ctypes.c_size_t, ctypes.c_void_p
_FUNCTION = ctypes.CFUNCTYPE(
    _SIZE, ctypes.c_uint, _SIZE, ctypes.POINTER(ctypes.c_uint), _SIZE, _POINTER, _POINTER
)


class _Filter(ctypes.Structure):
    """What HDF5 is told of a filter: its ``H5Z_class2_t``."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("version", "id", "encodes", "decodes")),
        *(("name", ctypes.c_char_p), ("can_apply", _POINTER), ("set_local", _POINTER)),
        ("function", _FUNCTION),
    )


def read_part(dataset: Any, key: Any) -> Array:
    """Read what a key selects of a dataset of h5py.

    Raises CheckpointError for a chunk that does not unpack to its size.
    """
    layout = dataset.id.get_create_plist()
    is_filtered = layout.get_layout() == h5py.h5d.CHUNKED and layout.get_nfilters()
    if not is_filtered or not dataset.id.get_storage_size():
        return np.asarray(dataset[key])
    with _Unpacker(dataset, layout) as unpacker:
        if not unpacker.is_exact:
            return np.asarray(dataset[key])
        chosen = Selection.from_key(key, dataset.shape)
        found = np.empty(chosen.shape, dataset.dtype)
        pairs = zip(chosen.ranges, dataset.chunks, strict=True)
        along = (range(kept[0] // n, kept[-1] // n + 1) if kept else () for kept, n in pairs)
        for index in product(*along):  # of a chunk
            box = chunk_box(index, dataset.chunks, dataset.shape)
            part: tuple[Any, ...] = (*chosen.part(box), ...)
            if found[part].size:
                found[part] = unpacker.unpack(box)[chosen.local(box)]
    return found


def read_checked(dataset: Any, key: Any = ...) -> Array:
    """Read what a key selects of a dataset that nothing is known of, in whatever file.

    Raises CheckpointError as `read_part` does, and for one that shows itself.
    """
    if dataset.is_virtual:
        path = os.path.realpath(dataset.file.filename)
        Objects(path, dataset.file, external=True).find(dataset.name)
    return read_part(dataset, key)


class _Unpacker(Freeable):
    """Unpacks chunks of a dataset, which has the properties `layout`."""

    def __init__(self, dataset: Any, layout: Any) -> None:
        self._dataset, self._layout = dataset, layout
        self._filters = [layout.get_filter(number) for number in range(layout.get_nfilters())]
        self._nbytes = prod(dataset.chunks) * dataset.id.get_type().get_size()
        for code, _, values, _ in self._filters:
            if code in _SIZED and values[2] * values[4] != self._nbytes:
                raise self._damaged(f"a filter that does not return {self._nbytes} bytes")
        # Without its cache HDF5 runs the filters in every call.
        self._file = h5py.File(uuid4().hex, "w", driver="core", backing_store=False, rdcc_nbytes=0)
        self._chunk = np.empty(dataset.chunks, dataset.dtype)
        self._kind = h5py.h5t.py_create(dataset.dtype)
        self._made: dict[int, Any] = {}  # datasets of one chunk, by mask of the filters left out
        self.is_exact = self._make(0)

    def unpack(self, box: Box) -> Array:
        """Return the points of the chunk in a box of the dataset, until the next call."""
        start, shape = box.start, box.shape
        try:
            mask, data = self._dataset.id.read_direct_chunk(start)
        except RuntimeError:  # there is no such chunk: the points have the fill value
            return np.asarray(self._dataset[box.slices()])
        masks = [mask]
        if len(data) == self._nbytes and shape != self._dataset.chunks:
            masks.append(2 ** len(self._filters) - 1)  # HDF5 need not filter the last chunks
        for one in masks:
            if one in self._made or self._make(one):
                with suppress(OSError):
                    self._made[one].write_direct_chunk((0,) * len(start), data)
                    self._made[one].read(h5py.h5s.ALL, h5py.h5s.ALL, self._chunk, self._kind)
                    return self._chunk[tuple(map(slice, shape))]
        raise self._damaged(f"a chunk at {start} that does not unpack to {self._nbytes} bytes")

    def _make(self, mask: int) -> bool:
        """Make a dataset of one chunk, unless its filters have other parameters than the chunk."""
        kept = [one for number, one in enumerate(self._filters) if not mask >> number & 1]
        if any(code >= h5py.h5z.FILTER_RESERVED and code not in _REPEATED for code, *_ in kept):
            return False
        layout, space = self._layout.copy(), h5py.h5s.create_simple(self._dataset.chunks)
        layout.remove_filter(h5py.h5z.FILTER_ALL)
        layout.set_filter(_LENGTH, 0, (self._nbytes % 2**32, self._nbytes >> 32))
        for code, _, values, _ in kept:
            layout.set_filter(code, h5py.h5z.FLAG_OPTIONAL, values)
        kind, name = self._dataset.id.get_type().copy(), str(mask).encode()
        made = h5py.h5d.create(self._file.id, name, kind, space, dcpl=layout)
        self._made[mask], given = made, made.get_create_plist()
        return all(given.get_filter(number)[2] == one[2] for number, one in enumerate(kept, 1))

    def _damaged(self, what: str) -> CheckpointError:
        path, name = os.path.realpath(self._dataset.file.filename), self._dataset.name.lstrip("/")
        return CheckpointError(f"{path} is damaged: {name!r} has {what}")

    def free(self) -> None:
        """Release the memory."""
        self._file.close()


@_FUNCTION  # type: ignore[untyped-decorator]
def _compare(_flags: int, _n: int, values: Any, nbytes: int, _size: int, _data: int) -> int:
    """Return the number of bytes if it is that of a chunk; else zero, which is a failure."""
    return nbytes if nbytes == values[0] + (values[1] << 32) else 0


_FILTER = _Filter(h5py.h5z.CLASS_T_VERS, _LENGTH, 1, 1, b"length", None, None, _compare)
h5py.h5z.register_filter(ctypes.addressof(_FILTER))
