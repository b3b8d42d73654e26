"""Change HDF5 files in memory; the caller writes the changed bytes to the file.

A write by HDF5 itself that fails raises only when objects are closed, where the error may get
lost, and leaves a library that may crash later. So h5py changes a `CapturedFile`, and the bytes
that result are written by plain system calls: by `CapturedFile.apply`, or as `pencils.io.manifest`
describes.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from pencils.comm.memory import address
from pencils.io.file_access import open_to_write, write

_PAGE = 4096
# What HDF5 since 1.10 reads; newer forms would be unreadable for installed tools.
LIBVER = ("earliest", "v110")

# Bytes to write at an offset of a file.
Change = tuple[int, bytes]


class CapturedFile(io.RawIOBase):
    """An existing file, with `changes`, that h5py can modify, while the file itself is only read.

    HDF5 decides where everything goes. Bytes that HDF5 writes from the memory of `dummy`, an array
    that represents data of other ranks, get a place in the file but no contents; the caller writes
    those. They are known by their address, so that chunks of any size need no memory here.
    """

    def __init__(
        self, path: str, dummy: np.ndarray[Any, Any] | None = None, changes: Iterable[Change] = ()
    ) -> None:
        super().__init__()
        self.placed: list[int] = []  # where HDF5 wrote parts of `dummy`, in order
        self._path = path
        self._file = os.open(path, os.O_RDONLY)
        self._position = 0
        # The size is that which the file will have.
        self._old_size = self.size = os.fstat(self._file).st_size
        self._pages: dict[int, bytearray] = {}
        self._fault: OSError | None = None
        self._written: set[range] = set()
        start = 0 if dummy is None else address(dummy)
        self._dummy = range(start, start + (0 if dummy is None else dummy.nbytes))
        for change in changes:
            self.poke(*change)

    def changes(self) -> list[Change]:
        """Return the changes, joined to as few pieces as possible.

        Changes beyond the end of the old file come first: until the rest is written, the old
        contents stay as they were. Raises OSError if reading has failed, now or in a `write`.
        """
        self.complain()
        joined: list[range] = []
        for piece in sorted(self._written, key=lambda piece: piece.start):
            if joined and piece.start <= joined[-1].stop:
                joined[-1] = range(joined[-1].start, max(joined[-1].stop, piece.stop))
            else:
                joined.append(piece)
        changes = [(piece.start, self.peek(piece.start, len(piece))) for piece in joined]
        return sorted(changes, key=lambda change: change[0] < self._old_size)

    def complain(self) -> None:
        """Raise the error of the first read in `write` that has failed."""
        if self._fault is not None:
            raise self._fault

    def peek(self, offset: int, count: int) -> bytes:
        """Return bytes of the changed file; those beyond its end are zero."""
        first, last = offset // _PAGE, -(-(offset + count) // _PAGE)
        data = b"".join(map(self._look_up, range(first, last)))
        at = offset - first * _PAGE
        return data[at : at + count]

    def poke(self, offset: int, data: bytes) -> None:
        """Change bytes, as HDF5 would; raise OSError if the file cannot be read there."""
        self.seek(offset)
        self.write(data)
        self.complain()

    def apply(self) -> None:
        """Write the changes to the file, and give it the length that HDF5 wants."""
        with open_to_write(self._path) as handle:
            for offset, data in self.changes():
                write(handle, data, offset)
            os.ftruncate(handle, self.size)

    def __repr__(self) -> str:
        """Return a path to the file in ASCII: h5py uses it as the name of the file."""
        return f"/dev/fd/{self._file}"

    def readable(self) -> bool:
        """Return True."""
        return True

    writable = seekable = readable

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read bytes of the changed file."""
        target = memoryview(buffer).cast("B")
        count = max(0, min(len(target), self.size - self._position))
        target[:count] = self.peek(self._position, count)
        self._position += count
        return count

    def write(self, data: Any) -> int:
        """Keep bytes in memory; of parts of `dummy` only the place.

        Never fails: HDF5 could not close the file after that, and may crash later.
        """
        source = memoryview(data).cast("B")
        start, stop = self._position, self._position + len(source)
        self._position, self.size = stop, max(self.size, stop)
        if len(source) and address(np.frombuffer(source, np.uint8)) in self._dummy:
            self.placed.append(start)
            return len(source)
        self._written.add(range(start, stop))
        for number in range(start // _PAGE, -(-stop // _PAGE)):
            page, at = self._pages.get(number), number * _PAGE
            if page is None:
                try:
                    page = bytearray(self._look_up(number))
                except OSError as error:
                    page, self._fault = bytearray(_PAGE), self._fault or error
                self._pages[number] = page
            low, high = max(start, at), min(stop, at + _PAGE)
            page[low - at : high - at] = source[low - start : high - start]
        return len(source)

    def truncate(self, size: int | None = None) -> int:
        """Set the length that the file will have."""
        self.size = self._position if size is None else size
        return self.size

    def close(self) -> None:
        """Close the file; changes that the caller has not taken are lost."""
        if not self.closed:
            os.close(self._file)
        super().close()

    def _look_up(self, page: int) -> bytes | bytearray:
        if page in self._pages:
            return self._pages[page]
        try:
            return os.pread(self._file, _PAGE, page * _PAGE).ljust(_PAGE, b"\0")
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from None


@contextmanager
def changing(
    file: str | CapturedFile, mode: Literal["r+", "w"] = "r+", **options: Any
) -> Iterator[Any]:
    """Open a file, which exists, for changes by h5py in a ``with`` block; write them at its end.

    Changes of a `CapturedFile` are left to the caller. `options` are those of `h5py.File`.
    """
    import h5py  # most ranks never need it

    if isinstance(file, str):
        with CapturedFile(file) as captured:
            with changing(captured, mode, **options) as opened:
                yield opened
            captured.apply()
        return
    try:
        with h5py.File(file, mode, libver=LIBVER, **options) as opened:
            yield opened
    except Exception:
        file.complain()  # HDF5 turns errors of the system into others
        raise
