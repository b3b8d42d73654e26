"""The option ``--check`` of the command lines of ``run`` and ``simulate``."""

from __future__ import annotations

import argparse
import os

from pencils.array.base import VARIABLE, checks


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--check", action="store_true", help=f"make stale ghosts NaN, as {VARIABLE}=1 does"
    )


def turn_on_checks(args: argparse.Namespace) -> None:
    """Make stale ghosts NaN if ``--check`` is given."""
    if args.check:
        os.environ[VARIABLE] = "1"  # also for processes that the program starts
        checks.on = True
