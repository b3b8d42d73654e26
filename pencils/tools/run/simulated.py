"""The command ``python -m pencils simulate``: ``python -m simmpi``, with the option ``--check``."""

from __future__ import annotations

import argparse
from typing import Any

from pencils.tools.run import report  # noqa: F401 - hides the frames that start programs
from pencils.tools.run.options import add_check, turn_on_checks
from simmpi import command


def add_parser(commands: Any) -> None:
    """Add the command to those of ``python -m pencils``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "simulate", help="run a program on simulated ranks, in one process", **command.LAYOUT
    )
    add_check(parser)
    command.add_arguments(parser, "python -m pencils simulate")


def main(args: argparse.Namespace) -> None:
    """Run the program.

    Raises
    ------
    SystemExit
        When it has ended.
    """
    turn_on_checks(args)
    args.again += ["--check"] * args.check
    command.main(args)
