"""The files of a series of checkpoints: one for each step, in a directory of their own."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Collection, Iterable
from itertools import chain, count
from pathlib import Path

from pencils.errors import ArgumentError
from pencils.io.arguments import already_there
from pencils.io.commit import clean, sync

LOG = logging.getLogger("pencils")

_NAME = re.compile(r"checkpoint-(\d{8,})\.h5")
_NEW = re.compile(r"checkpoint-\d{8,}\.h5\.new")
_TEMPORARY = re.compile(r"\.(checkpoint-\d{8,}\.h5(?:\.new)?)\..*\.tmp")


class StepFiles:
    """Checkpoints in a directory, found by their names; all of this is local.

    Parameters
    ----------
    directory : Path
        Where they are.
    old : collection of int, optional
        Steps of another run, which do not count and are to be replaced.

    Examples
    --------
    >>> StepFiles(Path("run")).path(120).as_posix()
    'run/checkpoint-00000120.h5'
    """

    def __init__(self, directory: Path, old: Collection[int] = ()) -> None:
        self.directory = directory
        self._old = frozenset(old)

    @classmethod
    def opened(cls, given: str, mode: str) -> StepFiles:
        """Make the directory, unless it is there, and find what is to be replaced.

        Raises
        ------
        OSError
            If it cannot be made; FileExistsError with mode "x", if there are checkpoints.
        """
        files = cls(make_directory(given))
        steps = files.steps()
        if steps and mode == "x":
            raise already_there(files.path(steps[-1]))
        return cls(files.directory, steps if mode == "w" else ())

    def path(self, step: int) -> Path:
        """Name the file of a step."""
        return self.directory / f"checkpoint-{step:08}.h5"

    def steps(self) -> list[int]:
        """List the steps that have a file, oldest first."""
        found = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        pairs = ((int(match[1]), match[0]) for match in found if match)
        own = (step for step, name in pairs if name == self.path(step).name)
        return sorted(step for step in own if step not in self._old)

    def target(self, step: int) -> Path:
        """Name the file to write for a step: another one, as long as there are some to replace."""
        path = self.path(step)
        return path.with_name(f"{path.name}.new") if self._old else path

    def check_next(self, step: int, known: Collection[int]) -> None:
        """Check that a step may be saved by a run that knows of some.

        Raises
        ------
        ArgumentError
            If there are files of another run, or of later steps.
        """
        steps = self.steps()
        others = [other for other in steps if other not in known]
        if others:
            msg = (
                f"{self.directory} holds checkpoints of another run, step {others[-1]} the last: "
                "go on from them with resume(), start anew with CheckpointSeries(directory, "
                "mode='w'), or choose another directory"
            )
            raise ArgumentError(msg)
        if steps and step < steps[-1]:
            msg = (
                f"step={step} lies before the checkpoint of step {steps[-1]} in {self.directory}; "
                "resume(..., step=...) goes back, and sets later ones aside"
            )
            raise ArgumentError(msg)

    def set_aside(self, last: int) -> None:
        """Rename all later files than `last`, so that they are kept but no longer found."""
        later = [self.path(step) for step in self.steps() if step > last]
        for path in reversed(later):
            aside = _rename_aside(path)
            LOG.warning("%s is set aside as %s", path, aside.name)
        if later:
            sync(self.directory)

    def replace(self, step: int) -> None:
        """Let the file of a step, which is whole, take the place of all that are to be replaced.

        At no moment are there some of both: of whatever is there, the newest is to be trusted.
        """
        if self._old:
            old = filter(Path.exists, map(self.path, sorted(self._old, reverse=True)))
            aside = [_rename_aside(path) for path in old]
            self.target(step).rename(self.path(step))
            sync(self.directory)
            _remove(aside)

    def settle(self) -> None:
        """Remember that there is nothing to be replaced any more."""
        self._old = frozenset()

    def rotate(self, keep: int | None) -> None:
        """Remove all but the last `keep` files, and what dead saves have left; never fails."""
        try:
            for path in list(self.directory.iterdir()):
                if found := _TEMPORARY.fullmatch(path.name):
                    clean(self.directory / found[1])
            dead = [path for path in self.directory.iterdir() if _NEW.fullmatch(path.name)]
            surplus = [] if keep is None else self.steps()[:-keep]
        except OSError as error:
            LOG.warning("cannot look for old checkpoints: %s", error)
            return
        _remove([*dead, *map(self.path, surplus)])


def make_directory(given: str) -> Path:
    """Make a directory, unless it is there.

    Raises
    ------
    OSError
        If the one above is missing, or something else has the name.
    """
    path = Path(os.path.realpath(given))
    if not path.parent.is_dir():
        msg = f"cannot create {path}: {path.parent} is not a directory; create it first"
        raise FileNotFoundError(msg)
    if path.exists() and not path.is_dir():
        msg = f"cannot create {path}: it is a file; choose another name"
        raise NotADirectoryError(msg)
    if not path.exists():
        path.mkdir()
        with contextlib.suppress(OSError):  # not every file system can
            sync(path.parent)
    return path


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            LOG.warning("cannot remove an old checkpoint: %s", error)


def _rename_aside(path: Path) -> Path:
    aside = _unused(path.with_name(f"{path.name}.abandoned"))
    path.rename(aside)
    return aside


def _unused(path: Path) -> Path:
    numbered = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(one for one in chain([path], numbered) if not one.exists())
