"""Search for the newest checkpoint that is as it was written, and say what was passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pencils.errors import CheckpointError
from pencils.io.step_files import LOG, StepFiles
from pencils.io.verify import verify

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

T = TypeVar("T")


def newest(
    files: StepFiles, steps: Iterable[int], read: Callable[[Path], T], comm: MPI.Intracomm
) -> tuple[tuple[int, T] | None, dict[str, str]]:
    """Read files in turn until one is good. *Collective*.

    Only damaged files, and those that are gone, are passed over.

    Parameters
    ----------
    files : StepFiles
        Where they are.
    steps : iterable of int
        Which to try, newest first; the same on every rank.
    read : callable
        Reads one; *Collective*, and what it raises is the same on every rank.
    comm : mpi4py.MPI.Intracomm
        The processes that read; the first one logs what happens.

    Returns
    -------
    tuple of (int, object) or None, dict of str to str
        The step and what was read; for the others, by name, why they were passed over.

    Raises
    ------
    Exception
        What `read` raises, if the file is as it was written.
    OSError
        If nobody can tell, because it cannot be read.
    """
    told = comm.rank == 0
    skipped: dict[str, str] = {}
    for step in steps:
        path = files.path(step)
        try:
            result = read(path)
        except (CheckpointError, OSError):
            reason = _find_damage(path, comm)
            if reason is None:
                raise
            skipped[path.name] = reason
            if told:
                LOG.warning("%s is skipped: %s", path, reason)
            continue
        if told:
            LOG.info("%s is taken: step %d, written %s", path, step, _time_of(path))
        return (step, result), skipped
    return None, skipped


def nothing_good(directory: Path, step: int | None, skipped: Mapping[str, str]) -> CheckpointError:
    """Make the error for a search that has found no checkpoint."""
    if not skipped:
        return CheckpointError(f"there is no checkpoint of step {step} in {directory}")
    reasons = "".join(f"\n{name}: {reason}" for name, reason in skipped.items())
    return CheckpointError(f"no checkpoint in {directory} can be loaded:{reasons}")


def _find_damage(path: Path, comm: MPI.Intracomm) -> str | None:
    """Say what is wrong with a file, if it is not as it was written. *Collective*."""
    try:
        verify(path, comm)
    except (CheckpointError, FileNotFoundError) as error:
        return str(error)
    except OSError as error:
        if error.errno is not None:  # of the system: the file may be good
            raise
        return str(error)  # HDF5 cannot make sense of the bytes
    return None


def _time_of(path: Path) -> str:
    with suppress(OSError):
        return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(" ", "seconds")
    return "at an unknown time"
