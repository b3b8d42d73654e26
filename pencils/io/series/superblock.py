"""The few bytes of an HDF5 file that say where everything else begins. No communication.

As HDF5's file format specification has it: superblock version 0, object headers version 1, which
are what ``libver="earliest"`` makes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from pencils.errors import CheckpointError
from pencils.io.manifest import HEAD, parse_head
from pencils.io.overlay import Overlay
from pencils.io.plain import write

_END, _ROOT = 40, 64
# Where HDF5 puts the root group of a new file, which then stays empty.
_BLANK = HEAD
# Messages of an object header.
_LAYOUT, _CONTINUED = 8, 16
# Where layout messages have an address, by what they begin with: contiguous data, chunks.
_ADDRESSES = {b"\x03\x01": 2, b"\x03\x02": 3}
_NOWHERE = 2**64 - 1


class Superblock(NamedTuple):
    """Where a file ends, and where the header of its root group is."""

    end: int
    root: int


def read_superblock(path: str) -> Superblock:
    """Read where a file ends and begins.

    Raises
    ------
    CheckpointError
        If it is in another form than that in which series are written.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - one read
        head = file.read(HEAD)
    found = parse_head(head)
    if found is None or found[1] == _BLANK:
        msg = f"{path} was rewritten by another tool; it can be read, but not be continued"
        raise CheckpointError(msg)
    return Superblock(*found)


def set_end(handle: int, end: int) -> None:
    """Let a file end elsewhere, from one moment to the next; it must be as long already.

    Readers may take the end and the root in two steps: the end has to move long before the root.
    Eight bytes at a multiple of eight are not seen half written, and are in one sector of the disk.
    """
    write(handle, struct.pack("<Q", end), _END)


def set_root(handle: int, root: int) -> None:
    """Let another group be the root of a file, from one moment to the next."""
    write(handle, struct.pack("<Q", root), _ROOT)


def start_blank(overlay: Overlay, end: int) -> None:
    """Let HDF5 find an empty root group, and a file that has nothing free before its end.

    Of the real root it would move parts and use their space again.
    """
    overlay.seek(_ROOT)
    overlay.write(struct.pack("<Q", _BLANK))
    overlay.truncate(max(overlay.size, end))
    overlay.seek(_END)
    overlay.write(struct.pack("<Q", end))


def end_of(overlay: Overlay) -> int:
    """Where the file ends after HDF5 has written to it."""
    end: int = struct.unpack("<Q", _read(overlay, _END, 8))[0]
    return end


def set_address(overlay: Overlay, header: int, address: int) -> None:
    """Tell a dataset without data where they are, or the index of its chunks.

    Parameters
    ----------
    overlay : Overlay
        The file.
    header : int
        Address of the object header of the dataset.
    address : int
        Where the data begin, or the index.
    """
    at = _find_message(overlay, header, _LAYOUT)
    at += _ADDRESSES.get(_read(overlay, at, 2), 0)
    if struct.unpack("<Q", _read(overlay, at, 8))[0] != _NOWHERE:
        msg = "this version of HDF5 lays datasets out in another way than pencils knows"
        raise RuntimeError(msg)
    overlay.seek(at)
    overlay.write(struct.pack("<Q", address))


def _find_message(overlay: Overlay, header: int, wanted: int) -> int:
    size = struct.unpack("<I", _read(overlay, header + 8, 4))[0]
    blocks = [(header + 16, size)]
    for start, length in blocks:  # which grows
        at = start
        while at + 8 <= start + length:
            kind, size = struct.unpack("<HH", _read(overlay, at, 4))
            if kind == wanted:
                return at + 8
            if kind == _CONTINUED:
                blocks.append(struct.unpack("<QQ", _read(overlay, at + 8, 16)))
            at += 8 + size
    msg = "this version of HDF5 writes object headers in another way than pencils knows"
    raise RuntimeError(msg)


def _read(overlay: Overlay, at: int, count: int) -> bytes:
    overlay.seek(at)
    return overlay.read(count)
