"""Errors for files that some hosts do not see: each has a file system of its own there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from pencils.comm.mpi import MPI
from pencils.comm.topology import Topology
from pencils.errors import CheckpointError
from pencils.io.commit import discard, make_temporary
from pencils.io.file_access import from_root, open_to_read
from pencils.io.file_info import FileInfo

_MOST_HOSTS = 4  # that are named
_SHARE = "give a path on a file system that all hosts share"
# What a rank finds.
_SEEN, _ABSENT, _OTHER = range(3)


def check_visible_on_all_hosts(topology: Topology, verb: str, path: Path, new: Path) -> None:
    """Check that all ranks see a new file of rank 0, by which `path` is written. *Collective*.

    Raises FileNotFoundError on every rank otherwise. Costs nothing if there is one node.
    """
    places = _find_places(topology, new)
    if places is not None and _hosts(places, _ABSENT):
        raise _error(
            f"cannot {verb} {path}: a new file in {new.parent} exists on {_hosts(places, _SEEN)}, "
            f"but not on {_hosts(places, _ABSENT)}; {_SHARE}"
        )


def check_folder(topology: Topology, given: str) -> None:
    """Check that all ranks see what rank 0 creates in a folder, or beside a file. *Collective*.

    Nothing is left there. If rank 0 cannot create anything, nothing is checked.
    """
    if topology.nodes == 1:
        return
    path, probe = from_root(topology.comm, lambda: _make_probe(given))
    if probe is None:
        return
    try:
        check_visible_on_all_hosts(topology, "write", path, probe)
    finally:
        if topology.rank == 0:
            discard(probe)


def _make_probe(given: str) -> tuple[Path, Path | None]:
    """Create a file in a folder, or beside a file; local."""
    path = Path(os.path.realpath(given))
    with suppress(OSError):  # whatever uses the folder raises a better error
        return path, make_temporary(path / "probe" if path.is_dir() else path)
    return path, None


def describe_seen(topology: Topology, given: str, describe: Callable[[str], FileInfo]) -> FileInfo:
    """Describe a file on rank 0 for all ranks, which have to see the same file. *Collective*.

    `describe` gets the real path. Raises what it raises on every rank; FileNotFoundError if the
    file is there on some hosts only, CheckpointError if those have different ones.
    """
    try:
        file = from_root(topology.comm, lambda: describe(os.path.realpath(given)))
    except FileNotFoundError:
        path = from_root(topology.comm, lambda: os.path.realpath(given))
        _compare(path, _find_places(topology, Path(path)))
        raise
    _compare(file.path, _find_places(topology, Path(file.path), file.identity.size))
    return file


Places = list[tuple[str, int, int]]  # name of the host of each rank, its rank, what it finds


def _compare(path: str, places: Places | None) -> None:
    if places is None:
        return
    seen, absent, other = (_hosts(places, what) for what in (_SEEN, _ABSENT, _OTHER))
    if seen and absent:
        raise _error(f"cannot load {path}: it exists on {seen}, but not on {absent}; {_SHARE}")
    if seen and other:
        raise CheckpointError(
            f"cannot load {path}: it has another size on {other} than on {seen}; {_SHARE}"
        )


def _find_places(topology: Topology, path: Path, size: int | None = None) -> Places | None:
    """Find where a file is not, or has another size; None if nowhere. *Collective*."""
    if topology.nodes == 1:
        return None
    found = _look(path, size)
    if not topology.any_of([found != _SEEN])[0]:
        return None
    return topology.comm.allgather((MPI.Get_processor_name(), topology.rank, found))


def _look(path: Path, size: int | None) -> int:
    """Look for a file; local. File systems of networks ask the server only if a file is opened."""
    try:
        with open_to_read(str(path)) as handle:
            return _SEEN if size in (None, os.fstat(handle).st_size) else _OTHER
    except FileNotFoundError:
        return _ABSENT
    except Exception:  # noqa: BLE001 - whatever reads it raises a better error, on all ranks
        return _SEEN


def _hosts(places: Iterable[tuple[str, int, int]], what: int) -> str:
    """Name the hosts where ranks find this, and one rank of each."""
    first: dict[str, int] = {}
    for name, rank, found in places:
        if found == what:
            first.setdefault(name, rank)
    names = [f"{name} (rank {rank})" for name, rank in first.items()]
    more = len(names) - _MOST_HOSTS
    return ", ".join(names[:_MOST_HOSTS]) + (f" and {more} more" if more > 0 else "")


def _error(text: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, text)
