"""Functions in C: compiled once for all processes of a user, as libraries in a cache folder."""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

LOG = logging.getLogger("pencils")

# Results and exceptions must be those of NumPy: nothing here may change the order of operations.
_OPTIONS = (
    *("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing"),
    *("-fwrapv", "-fPIC", "-shared", "-w"),
)
_SECONDS = 60.0  # of a compiler
_LONGEST_WAIT = 60.0  # seconds for another process that compiles the same
_DIGEST = 32  # bytes after a library: a part of one must not be loaded

# What this process has loaded or failed to compile, by source and compiler.
_libraries: dict[tuple[str, str], ctypes.CDLL | None] = {}
_reported: set[str] = set()  # compilers that have failed
_hanging: set[str] = set()  # compilers that are not called again
_lock = threading.Lock()


def addresses_of(source: str, names: Sequence[str], compiler: str) -> list[int] | None:
    """Compile functions, or find them compiled; return their addresses, which stay valid.

    It returns None, and logs a message the first time, if the compiler is missing or fails.
    """
    with _lock:
        key = source, compiler
        if key not in _libraries and compiler not in _hanging:
            try:
                _libraries[key] = _library(source, compiler)
            except (OSError, subprocess.SubprocessError) as error:
                _libraries[key] = None
                if isinstance(error, subprocess.TimeoutExpired):
                    _hanging.add(compiler)
                _report(compiler, error)
        library = _libraries.get(key)
    if library is None:
        return None
    return [ctypes.cast(library[name], ctypes.c_void_p).value or 0 for name in names]


def _report(compiler: str, error: Exception) -> None:
    if compiler in _reported:
        return
    _reported.add(compiler)
    output = getattr(error, "stderr", None) or b""
    text = output.decode(errors="replace").strip() or error
    LOG.warning(
        "%s does not compile loops; fused functions use the loops of NumPy: %s", compiler, text
    )


def _library(source: str, compiler: str) -> ctypes.CDLL:
    """Load the library of a source; compile it if no process has done so."""
    command, version = _command(compiler)
    parts = (source, *_OPTIONS, command, version, _processor())
    path = _folder() / f"{sha256(chr(0).join(parts).encode()).hexdigest()}.so"
    library = _load(path)
    if library is not None:
        return library
    lock = path.with_suffix(".lock")
    if not _create(lock):
        _wait_for_end(lock)
        library = _load(path)
        if library is not None:
            return library
    try:
        _compile(source, command, path)
    finally:
        lock.unlink(missing_ok=True)
    library = _load(path)
    if library is None:
        raise OSError(f"{path} cannot be loaded")
    return library


@lru_cache
def _command(compiler: str) -> tuple[str, str]:
    """Return the path of a compiler, and what it tells about its version."""
    path = shutil.which(compiler)
    if path is None:
        raise FileNotFoundError(f"there is no command {compiler!r}")
    told = subprocess.run(  # noqa: S603 - users choose the compiler
        [path, "--version"], capture_output=True, check=True, timeout=_SECONDS
    )
    return path, told.stdout.decode(errors="replace")


@lru_cache
def _processor() -> str:
    """Describe the instructions that the processor has."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    known = [line for line in lines if line.startswith(("flags", "Features", "model name"))]
    return "\n".join([platform.machine(), platform.processor(), *dict.fromkeys(known)])


def _folder() -> Path:
    """Return the cache folder, which only its user can write to, or one of this process."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        folder = Path(os.environ.get("PENCILS_CACHE") or Path(base) / "pencils").expanduser()
        folder = folder.absolute()  # names without a folder are those of the system's libraries
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):  # there may be no home
        return Path(_temporary().name)
    own = status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if own and os.access(folder, os.W_OK | os.X_OK) else Path(_temporary().name)


@lru_cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="pencils-")


def _load(path: Path) -> ctypes.CDLL | None:
    """Load a library; None if there is none, or not all of it."""
    try:
        content = path.read_bytes()
        whole = sha256(content[:-_DIGEST]).digest() == content[-_DIGEST:]
        return ctypes.CDLL(str(path)) if whole else None
    except OSError:
        return None


def _create(lock: Path) -> bool:
    """Create a file; return whether no other process has."""
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def _wait_for_end(lock: Path) -> None:
    """Wait until another process has compiled, for some time: it may have been killed."""
    end = time.monotonic() + _LONGEST_WAIT
    while lock.exists() and time.monotonic() < end:
        time.sleep(0.01)


def _compile(source: str, command: str, path: Path) -> None:
    """Compile a library under another name, so that others find all of it, or nothing."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        library = Path(folder) / "loops.so"
        subprocess.run(  # noqa: S603
            [command, *_OPTIONS, "-x", "c", "-o", str(library), "-", "-lm"],
            input=source.encode(),
            capture_output=True,
            check=True,
            timeout=_SECONDS,
        )
        content = library.read_bytes()
        library.write_bytes(content + sha256(content).digest())
        library.replace(path)
