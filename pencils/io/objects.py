"""Find objects of an open HDF5 file by name, check where their data are, and read them.

Data may be in any other file: unless the user allows that, they are refused before HDF5 opens it.
A virtual dataset that shows itself is always refused: HDF5 would end the process. HDF5 does not
compare what a filter returns with the size of a chunk: if that is less, points have whatever is in
memory. So chunks are unpacked here, in a file in memory whose first filter compares the number.
"""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from itertools import count, product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import h5py
import numpy as np

from pencils.array.allocation import Array
from pencils.errors import CheckpointError
from pencils.errors.missing import needs
from pencils.io.file_access import open_to_read
from pencils.io.file_info import MOST_GROUPS
from pencils.io.slabs import chunk_box
from pencils.layout import Box, Selection
from pencils.plans import Freeable

# Soft links that refer to each other; HDF5 itself follows as many. Also virtual datasets that show
# each other; HDF5 needs memory of the stack for each.
_MOST_LINKS = 16
# How often HDF5 may have to read a dataset to show a virtual one.
_MOST_SOURCES = 10**7
_SAME_FILE = "."
# In names of sources, for which HDF5 puts 0, 1, 2, ..., as long as there are such.
_NUMBER, _MARK = "%b", re.compile("%[b%]")


class Objects(NamedTuple):
    """The objects of an open file."""

    path: str
    file: Any  # h5py.File
    external: bool  # whether data may be in other files

    def find(self, name: str) -> Any:
        """Return the object with a name, or None; CheckpointError if data are elsewhere."""
        return self.look_up(name, {})[0]

    def outside(self, name: str, how: str) -> CheckpointError:
        """Make the error for data in another file."""
        msg = f"{name!r} in {self.path} is {how} another file; external=True follows it"
        return CheckpointError(msg)

    def look_up(self, name: str, seen: dict[object, int]) -> tuple[Any, int]:
        """Return the object, and how many datasets HDF5 reads to show it.

        `seen` has these numbers for virtual datasets; zero while their sources are looked for.
        """
        if not self.external:
            self._check_links(name)
        try:
            found = self.file[name]
        except (KeyError, ValueError):
            return None, 0
        if not isinstance(found, h5py.Dataset):
            return found, 0
        layout = found.id.get_create_plist()
        if layout.get_external_count() and not self.external:
            raise self.outside(name, "stored in")
        if layout.get_layout() != h5py.h5d.VIRTUAL:
            return found, 1
        path = Path(found.file.filename).resolve()
        key = path.stat().st_dev, path.stat().st_ino, h5py.h5o.get_info(found.id).addr
        if key not in seen:
            seen[key] = 0
            if list(seen.values()).count(0) <= _MOST_LINKS:
                here = self._replace(path=str(path), file=found.file)
                numbers = range(layout.get_virtual_count())
                pairs = (
                    (layout.get_virtual_filename(number), layout.get_virtual_dsetname(number))
                    for number in numbers
                )
                seen[key] = 1 + sum(here.count_source(name, pair, seen) for pair in pairs)
        if not 0 < seen[key] <= _MOST_SOURCES:
            raise CheckpointError(
                f"{name!r} in {self.path} is a virtual dataset that HDF5 cannot read: it refers "
                f"to itself, or to others over more than {_MOST_LINKS} steps or {_MOST_SOURCES} "
                "times"
            )
        return found, seen[key]

    def count_source(self, name: str, pair: tuple[str, str], seen: dict[object, int]) -> int:
        """Count the datasets that HDF5 reads for the source of a virtual dataset: file and name."""
        is_pattern = any(_NUMBER in text for text in pair)
        if not self.external and pair[0] != _SAME_FILE:
            raise self.outside(name, f"a view of {pair[0]!r},")
        if not self.external and is_pattern:
            raise self.outside(name, "a view, perhaps of")
        total = 0
        for number in count():

            def fill(mark: re.Match[str], text: str = str(number)) -> str:
                return text if mark[0] == _NUMBER else "%"

            other, source = (_MARK.sub(fill, text) for text in pair) if is_pattern else pair
            added = self._count_in(other, source, seen)
            total += added
            if not added or not is_pattern:
                return total
        return total

    def _count_in(self, other: str, source: str, seen: dict[object, int]) -> int:
        if other == _SAME_FILE:
            return self.look_up(source, seen)[1]
        # HDF5 takes the first of these files that it can open.
        folder, total = Path(self.path).parent, 0
        first = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", str(folder)).split(":")
        names = [other, Path(other).name] if Path(other).is_absolute() else [other]
        folders = *map(Path, first), folder, Path()
        for path in dict.fromkeys(place / name for name in names for place in folders):
            # A FIFO is an error: HDF5 would wait for it.
            with suppress(OSError), open_to_read(str(path)), open_unlocked(path) as file:
                total += self._replace(path=str(path.resolve()), file=file).look_up(source, seen)[1]
        return total

    def _check_links(self, name: str) -> None:
        """Follow a name link by link, as HDF5 does, but not into other files."""
        here, parts, links = "", _split(name), self.file.id.links
        for _ in range(_MOST_LINKS):
            if here.count("/") + len(parts) > MOST_GROUPS + 1:
                break
            target: str | None = None
            while parts and target is None:
                parent, here = here, f"{here}/{parts.pop(0)}"
                raw = here.encode("utf8", "surrogateescape")
                try:
                    kind = links.get_info(raw).type if links.exists(raw) else h5py.h5l.TYPE_HARD
                except (KeyError, RuntimeError, ValueError):  # as of a name below a dataset
                    kind = h5py.h5l.TYPE_HARD
                if kind == h5py.h5l.TYPE_SOFT:
                    target = links.get_val(raw).decode("utf8", "surrogateescape")
                elif kind != h5py.h5l.TYPE_HARD:
                    raise self.outside(name, "a link to")
            if target is None:
                return
            here = "" if target.startswith("/") else parent
            parts = _split(target) + parts
        raise CheckpointError(
            f"{name!r} in {self.path} is a link without a target, or over more than {_MOST_LINKS} "
            f"links or {MOST_GROUPS} groups; load the target itself"
        )


def _split(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def open_unlocked(source: Any) -> Any:
    """Open a file for reading, without locks if that is possible."""
    with suppress(OSError):  # for example, this process has it open with locks
        return h5py.File(source, "r", locking=False)
    return h5py.File(source, "r")


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


def load_filters(dataset: Any) -> None:
    """Import hdf5plugin if a dataset needs it; raise MissingLibraryError if it is missing."""
    layout = dataset.id.get_create_plist()
    codes = (layout.get_filter(number)[0] for number in range(layout.get_nfilters()))
    if not all(map(h5py.h5z.filter_avail, codes)):
        with needs("hdf5plugin"):
            import hdf5plugin  # noqa: F401


def read_part(dataset: Any, key: Any) -> Array:
    """Read a selection; raise CheckpointError for a chunk that unpacks to a wrong size."""
    layout = dataset.id.get_create_plist()
    is_filtered = layout.get_layout() == h5py.h5d.CHUNKED and layout.get_nfilters()
    if not is_filtered or not dataset.id.get_storage_size():
        return np.asarray(dataset[key])
    load_filters(dataset)
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
    """Do what `read_part` does with any dataset; CheckpointError if one shows itself."""
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
