"""A file whose changes stay in memory, so that they can be made all at once or by others."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pencils.comm.memory import address

_PAGE = 4096


class Change(NamedTuple):
    """Bytes to be written at one position of a file."""

    offset: int
    data: bytes


class Overlay(io.RawIOBase):
    """An existing file, for h5py to open and modify, that is only read.

    HDF5 then decides where everything goes, the chunks of datasets included, and what has to be
    written for that is in `changes`. Bytes from the memory of `dummy` have a place in the file but
    no contents: whoever has these writes them there.

    Parameters
    ----------
    path : str
        The file.
    dummy : numpy.ndarray, optional
        Contiguous memory that stands for data of others.

    Attributes
    ----------
    placed : list of int
        Where such data have their places, in the order in which they were written.
    size : int
        How long the file shall be.

    Examples
    --------
    >>> import tempfile, h5py
    >>> with tempfile.NamedTemporaryFile(suffix=".h5") as made:
    ...     with h5py.File(made.name, "w") as file:
    ...         file.attrs["step"] = 1
    ...     with Overlay(made.name) as overlay, h5py.File(overlay, "r+") as file:
    ...         file.attrs["step"] = 2
    ...         file.flush()
    ...         changes = overlay.changes()
    ...     with h5py.File(made.name) as file:
    ...         print(file.attrs["step"], len(changes) > 0)
    1 True
    """

    def __init__(self, path: str, dummy: np.ndarray[Any, Any] | None = None) -> None:
        super().__init__()
        self.placed: list[int] = []
        self._path = path
        self._file = os.open(path, os.O_RDONLY)
        self._position = 0
        self._old_size = self.size = os.fstat(self._file).st_size
        self._pages: dict[int, bytearray] = {}
        self._written: set[range] = set()
        start = 0 if dummy is None else address(dummy)
        self._dummy = range(start, start + (0 if dummy is None else dummy.nbytes))

    def changes(self) -> list[Change]:
        """Say what has been written, in as few pieces as possible.

        What lies beyond the end of the old file comes first: until the rest is there, the old
        contents are as they were.
        """
        joined: list[range] = []
        for piece in sorted(self._written, key=lambda piece: piece.start):
            if joined and piece.start <= joined[-1].stop:
                joined[-1] = range(joined[-1].start, max(joined[-1].stop, piece.stop))
            else:
                joined.append(piece)
        changes = [Change(piece.start, self.peek(piece)) for piece in joined]
        return sorted(changes, key=lambda change: change.offset < self._old_size)

    def peek(self, piece: range) -> bytes:
        """Read a piece of what the file shall be."""
        self.seek(piece.start)
        return self.read(len(piece))

    def apply(self) -> None:
        """Make the changes in the file, which then is as long as it shall be.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        with Path(self._path).open("r+b") as file:
            for change in self.changes():
                file.seek(change.offset)
                file.write(change.data)
            file.truncate(self.size)

    def readable(self) -> bool:
        """Whether it can be read: it can."""
        return True

    def writable(self) -> bool:
        """Whether it can be written to: it can."""
        return True

    def seekable(self) -> bool:
        """Whether it has positions: it has."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Say where it is."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read what has been written, or else what is in the file."""
        target = memoryview(buffer).cast("B")
        count = max(0, min(len(target), self.size - self._position))
        done = 0
        while done < count:
            page, at = divmod(self._position, _PAGE)
            most = min(count - done, _PAGE - at)
            target[done : done + most] = self._look_up(page)[at : at + most]
            self._position += most
            done += most
        return count

    def write(self, data: Any) -> int:
        """Keep what is written."""
        source = memoryview(data).cast("B")
        end = self._position + len(source)
        self.size = max(self.size, end)
        if len(source) and address(np.frombuffer(source, np.uint8)) in self._dummy:
            self.placed.append(self._position)
            self._position = end
            return len(source)
        self._written.add(range(self._position, end))
        done = 0
        while done < len(source):
            page, at = divmod(self._position, _PAGE)
            most = min(len(source) - done, _PAGE - at)
            if page not in self._pages:
                self._pages[page] = bytearray(self._look_up(page))
            self._pages[page][at : at + most] = source[done : done + most]
            self._position += most
            done += most
        return len(source)

    def truncate(self, size: int | None = None) -> int:
        """Remember how long the file shall be."""
        self.size = self._position if size is None else size
        return self.size

    def flush(self) -> None:
        """Leave everything in memory."""

    def close(self) -> None:
        """Give the file back; what has been written is lost unless someone took `changes`."""
        if not self.closed:
            os.close(self._file)
        super().close()

    def _look_up(self, page: int) -> bytes | bytearray:
        if page in self._pages:
            return self._pages[page]
        return os.pread(self._file, _PAGE, page * _PAGE).ljust(_PAGE, b"\0")
