"""All or nothing: a file is made under another name and takes its own only when it is whole."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

# Characters of the name that its temporary keeps; file systems take 255 bytes.
_KEPT = 40


def make_temporary(target: Path) -> Path:
    """Create an empty hidden file beside the one that is to be written.

    Raises
    ------
    OSError
        If there is no such directory, it may not be written to, or `target` is not a file.
    """
    if not target.parent.is_dir():
        msg = f"cannot save {target}: {target.parent} is not a directory; create it first"
        raise NotADirectoryError(msg) if target.parent.exists() else FileNotFoundError(msg)
    if target.exists() and not target.is_file():
        msg = f"cannot save {target}: it is not a file; choose another name"
        raise IsADirectoryError(msg) if target.is_dir() else OSError(msg)
    temporary = target.with_name(f".{target.name[:_KEPT]}.{secrets.token_hex(6)}.tmp")
    try:
        temporary.touch(exist_ok=False)
    except OSError as error:
        msg = f"cannot save {target}: {error.strerror} in {target.parent}"
        raise type(error)(msg) from None
    return temporary


def commit(temporary: Path, target: Path) -> None:
    """Give the whole file its name, replacing what has it, in an order that survives power loss.

    Raises
    ------
    OSError
        If the disk refuses; `target` is then as it was.
    """
    _sync(temporary)
    temporary.replace(target)
    # The file is whole and in place; not every file system lets a directory be synchronised.
    with contextlib.suppress(OSError):
        _sync(target.parent)


def discard(temporary: Path) -> None:
    """Remove a temporary, if it is still there; the error that led here is the one to tell."""
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
