"""The files of a series of checkpoints: one for each step, in a directory of their own."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Collection
from itertools import chain, count
from pathlib import Path

from pencils.errors import ArgumentError
from pencils.io.commit import clean, sync

LOG = logging.getLogger("pencils")

_NAME = re.compile(r"checkpoint-(\d{8,})\.h5")
_TEMPORARY = re.compile(r"\.(checkpoint-\d{8,}\.h5)\..*\.tmp")


class StepFiles:
    """Checkpoints in a directory, found by their names; all of this is local.

    Parameters
    ----------
    directory : Path
        Where they are.

    Examples
    --------
    >>> StepFiles(Path("run")).path(120).as_posix()
    'run/checkpoint-00000120.h5'
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, step: int) -> Path:
        """Name the file of a step."""
        return self.directory / f"checkpoint-{step:08}.h5"

    def steps(self) -> list[int]:
        """List the steps that have a file, oldest first."""
        found = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        pairs = ((int(match[1]), match[0]) for match in found if match)
        return sorted(step for step, name in pairs if name == self.path(step).name)

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
                "go on from them with resume(), or choose another directory"
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
            aside = _unused(path.with_name(f"{path.name}.abandoned"))
            path.rename(aside)
            LOG.warning("%s is set aside as %s", path, aside.name)
        if later:
            sync(self.directory)

    def rotate(self, keep: int | None) -> None:
        """Remove all but the last `keep` files, and what dead saves have left; never fails."""
        try:
            for path in list(self.directory.iterdir()):
                if found := _TEMPORARY.fullmatch(path.name):
                    clean(self.directory / found[1])
            surplus = [] if keep is None else self.steps()[:-keep]
        except OSError as error:
            LOG.warning("cannot look for old checkpoints: %s", error)
            return
        for step in surplus:
            try:
                self.path(step).unlink(missing_ok=True)
            except OSError as error:
                LOG.warning("cannot remove an old checkpoint: %s", error)


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


def _unused(path: Path) -> Path:
    numbered = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(one for one in chain([path], numbered) if not one.exists())
