"""The files of a series of checkpoints: their names, the order of renames, the newest valid one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pencils.errors import ArgumentError, CheckpointError
from pencils.io.commit import (
    LOG,
    abandoned,
    clean,
    make_directory,
    remove_old,
    set_aside,
    sync,
)
from pencils.io.common import check_folder
from pencils.io.file_access import on_root
from pencils.io.load import verify
from pencils.io.options import already_there

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI
    from pencils.comm.topology import Topology

T = TypeVar("T")

_NAME = re.compile(r"checkpoint-(\d{8,})\.h5")
_NEW = re.compile(r"checkpoint-\d{8,}\.h5\.new")
_TEMPORARY = re.compile(r"\.(checkpoint-\d{8,}\.h5(?:\.new)?)\..*\.tmp")


class CheckpointFiles:
    """Checkpoints in a directory, found by their names. All methods are local.

    The steps `old` are of another run: they do not count, and the first new checkpoint replaces
    them.
    """

    def __init__(self, directory: Path, old: Collection[int] = ()) -> None:
        self.directory = directory
        self._old = frozenset(old)

    @classmethod
    def opened(cls, given: str, mode: str) -> CheckpointFiles:
        """Make the directory, unless it exists, and find the checkpoints to replace.

        Raises OSError if it cannot be made; FileExistsError with mode "x", if it has checkpoints.
        """
        files = cls(make_directory(given))
        steps = files.steps()
        if steps and mode == "x":
            raise already_there(files.path(steps[-1]))
        return cls(files.directory, steps if mode == "w" else ())

    @property
    def locked(self) -> Path:
        """The path to lock for writing: all checkpoints together."""
        return self.directory / "checkpoints"

    def path(self, step: int) -> Path:
        """Return the path of the checkpoint of a step."""
        return self.directory / f"checkpoint-{step:08}.h5"

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, oldest first."""
        found = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        pairs = ((int(match[1]), match[0]) for match in found if match)
        own = (step for step, name in pairs if name == self.path(step).name)
        return sorted(step for step in own if step not in self._old)

    def target(self, step: int) -> Path:
        """Return the path to write for a step: a temporary one while old checkpoints exist."""
        path = self.path(step)
        return path.with_name(f"{path.name}.new") if self._old else path

    def check_next(self, step: int, known: Collection[int]) -> None:
        """Raise ArgumentError if there are checkpoints of later steps, or of none in `known`."""
        steps = self.steps()
        others = [other for other in steps if other not in known]
        if others:
            raise ArgumentError(
                f"{self.directory} holds checkpoints of another run, step {others[-1]} the last: "
                "go on from them with resume(), start anew with CheckpointSeries(directory, "
                "mode='w'), or choose another directory"
            )
        if steps and step < steps[-1]:
            raise ArgumentError(
                f"step={step} is before the checkpoint of step {steps[-1]} in {self.directory}; "
                "resume(..., step=...) goes back, and sets later ones aside"
            )

    def set_aside(self, last: int) -> None:
        """Rename the checkpoints of steps after `last`: they stay, but no longer count."""
        later = [self.path(step) for step in self.steps() if step > last]
        for path in reversed(later):
            set_aside(path)
        if later:
            sync(self.directory)

    def replace(self, step: int) -> None:
        """Give the verified file of a step its name, in place of all old checkpoints.

        Old and new checkpoints never count at the same time: the old ones are renamed first.
        """
        if self._old:
            old = filter(Path.exists, map(self.path, sorted(self._old, reverse=True)))
            aside = [path.rename(abandoned(path)) for path in old]
            self.target(step).rename(self.path(step))
            sync(self.directory)
            remove_old(aside, "checkpoint")

    def settle(self) -> None:
        """Forget the old checkpoints: they have been replaced."""
        self._old = frozenset()

    def rotate(self, keep: int | None) -> None:
        """Remove all but the last `keep` files, and temporaries of dead processes; never raises."""
        try:
            for path in list(self.directory.iterdir()):
                if found := _TEMPORARY.fullmatch(path.name):
                    clean(self.directory / found[1])
            dead = [path for path in self.directory.iterdir() if _NEW.fullmatch(path.name)]
            surplus = [] if keep is None else self.steps()[:-keep]
        except OSError as error:
            LOG.warning("cannot look for old checkpoints: %s", error)
            return
        remove_old([*dead, *map(self.path, surplus)], "checkpoint")


def open_files(topology: Topology, given: str, mode: str) -> CheckpointFiles:
    """Call `CheckpointFiles.opened` on rank 0, for all ranks. *Collective*.

    Raises FileNotFoundError on every rank, too, if some of them do not see the directory.
    """
    check_folder(topology, given)
    opened = partial(CheckpointFiles.opened, given, mode)
    return on_root(topology.comm, "CheckpointSeries", opened)


def read_newest(
    files: CheckpointFiles, steps: Iterable[int], read: Callable[[Path], T], comm: MPI.Intracomm
) -> tuple[tuple[int, T] | None, dict[str, str]]:
    """Call `read` for the files of some steps, newest first, until one is valid. *Collective*.

    Returns the step and the result, or None, and the reasons for which files were skipped, by name:
    they are damaged or missing. Raises what `read` raises for other files, and OSError if the
    system cannot read one.
    """
    logs = comm.rank == 0
    skipped: dict[str, str] = {}
    for step in sorted(steps, reverse=True):
        path = files.path(step)
        try:
            result = read(path)
        except (CheckpointError, OSError):
            reason = _find_damage(path, comm)
            if reason is None:
                raise
            skipped[path.name] = reason
            if logs:
                LOG.warning("%s is skipped: %s", path, reason)
            continue
        if logs:
            LOG.info("%s is taken: step %d, written %s", path, step, _time_of(path))
        return (step, result), skipped
    return None, skipped


def nothing_good(directory: Path, step: int | None, skipped: Mapping[str, str]) -> CheckpointError:
    """Make the error for a search that found no valid checkpoint."""
    if not skipped:
        return CheckpointError(f"there is no checkpoint of step {step} in {directory}")
    reasons = "".join(f"\n{name}: {reason}" for name, reason in skipped.items())
    return CheckpointError(f"no checkpoint in {directory} can be loaded:{reasons}")


def _find_damage(path: Path, comm: MPI.Intracomm) -> str | None:
    """Return why a file is damaged; None if it is as it was written. *Collective*."""
    try:
        verify(path, comm)
    except (CheckpointError, FileNotFoundError) as error:
        return str(error)
    except OSError as error:
        if error.errno is not None:  # of the system: the file may be valid
            raise
        return str(error)  # HDF5 cannot decode the bytes
    return None


def _time_of(path: Path) -> str:
    with contextlib.suppress(Exception):  # a time that no date can have; other ranks go on
        return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(" ", "seconds")
    return "at an unknown time"
