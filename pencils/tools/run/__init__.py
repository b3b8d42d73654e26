"""Run a program on all processes, print what fails once, and end the job when it cannot go on.

    mpiexec -n 4 python -m pencils run app.py

An error that all ranks raise is printed once, with the lines of the program and without those of
the library; an error of some ranks names them, and ends the whole job. Where each rank waits is
printed once when no rank has computed for 30 seconds.
"""

from __future__ import annotations

import argparse
import atexit
import faulthandler
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from mpi4py import MPI

from pencils.tools.run.coordinator import Member, join
from pencils.tools.run.report import RankEnding, add_check, turn_on_checks
from pencils.tools.run.watch import Counting, Watch
from simmpi.program import add_program, execute

TIMEOUT = "PENCILS_TIMEOUT"
_USAGE = (
    "python -m pencils run [--timeout S] [--check] [--all-frames] "
    "(app.py | -m module | -c code) [args ...]"
)
_FINALIZE = 10  # seconds in which MPI has to finalize after a failure


def add_parser(commands: Any) -> None:
    """Add the command to those of ``python -m pencils``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run a program on all processes; print what fails once",
        usage=_USAGE,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="S",
        default=os.environ.get(TIMEOUT) or None,
        help="end the job when a rank has waited for S seconds in one call of MPI, and print the "
        f"positions of all ranks; computing is no waiting (default: {TIMEOUT}, or no limit)",
    )
    parser.add_argument("-n", type=_processes, help=argparse.SUPPRESS)
    add_check(parser)
    add_program(parser)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(
            f"--timeout and {TIMEOUT} are positive numbers of seconds, not {text}"
        )
    return seconds


def _processes(text: str) -> NoReturn:
    """Refuse a number of processes, with the command that takes one."""
    raise argparse.ArgumentTypeError(
        f"mpiexec starts the processes: mpiexec -n {text} python -m pencils run app.py"
    )


def main(args: argparse.Namespace) -> None:
    """Run the program. *Collective* over all processes.

    Raises
    ------
    SystemExit
        When it has ended.
    """
    turn_on_checks(args)
    channel = join(args.timeout)
    watch = Watch(None if args.timeout is None else Counting())
    member = Member(channel, watch, args.timeout)
    status = [0]
    atexit.register(_finalize, status)
    try:
        execute(args.kind, *args.program)
    except BaseException as error:  # noqa: BLE001 - every error is printed
        ending = RankEnding.of(error, full=args.all_frames)
    else:
        ending = RankEnding.of(None)
    status[0] = member.end(ending)
    sys.exit(status[0])


def _finalize(status: Sequence[int]) -> None:
    """After a failure, do not wait for messages that will never be received."""
    if status[0] and not MPI.Is_finalized():
        with Path(os.devnull).open("w") as nowhere:
            faulthandler.dump_traceback_later(_FINALIZE, exit=True, file=nowhere)
            MPI.Finalize()
            faulthandler.cancel_dump_traceback_later()
