"""The end of the command lines of ``run`` and ``simulate``: checks, tracebacks, the program."""

from __future__ import annotations

import argparse
import os

from pencils.array.base import VARIABLE, checks
from pencils.run.program import add_program


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add ``--check``, ``--all-frames``, and the arguments that name the program."""
    parser.add_argument(
        "--check", action="store_true", help=f"make stale ghosts NaN, as {VARIABLE}=1 does"
    )
    parser.add_argument(
        "--all-frames",
        action="store_true",
        help="show the frames of the library in tracebacks, too",
    )
    add_program(parser)


def turn_on_checks(args: argparse.Namespace) -> None:
    """Make stale ghosts NaN if ``--check`` is given."""
    if args.check:
        os.environ[VARIABLE] = "1"  # also for processes that the program starts
        checks.on = True
