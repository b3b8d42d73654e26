"""Run a program on simulated ranks: all of them in this process, without mpiexec.

    python -m simmpi -n 8 app.py

One rank runs at a time, and --seed chooses in which order: the same seed gives the same run. Ranks
that wait for each other for ever are named, as are messages that were not received.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from simmpi.apart import begin, keep_programs_apart
from simmpi.communicators import COMM_WORLD
from simmpi.ending import Ending, ranks
from simmpi.errors import SimulationError
from simmpi.program import add_program, execute
from simmpi.simulation import import_mpi, simulate

_USAGE = (
    "%(prog)s -n N [--seed S | --seeds M] [--nodes K] [--max-steps N] [--no-strict] "
    "[--all-frames] (app.py | -m module | -c code) [args ...]"
)
_SEVERAL = (
    "error: simulated ranks are threads of one process, but mpiexec has started {}; start "
    "`{}` without it\n"
)
_UNCOUNTED = "error: the number of ranks is missing; it comes before the program: {} -n 4 app.py\n"


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line of ``python -m simmpi``."""
    parser = argparse.ArgumentParser("python -m simmpi", **LAYOUT)
    add_arguments(parser, parser.prog)
    return parser.parse_args(words)


# Of the parser.
LAYOUT: dict[str, Any] = {
    "usage": _USAGE,
    "description": __doc__,
    "formatter_class": argparse.RawDescriptionHelpFormatter,
    "allow_abbrev": False,
}


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add all arguments; `command` begins the line that repeats a run."""
    parser.set_defaults(again=command.split())
    add = parser.add_argument
    add("-n", type=_positive, metavar="N", help="number of ranks")
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument(
        "--seed", type=int, metavar="S", help="order of the ranks (default: in turn)"
    )
    seeds.add_argument(
        "--seeds",
        type=_positive,
        metavar="M",
        help="run with the seeds 0 to M - 1 until one fails, and print the output of that one only",
    )
    add("--nodes", type=_positive, metavar="K", help="number of nodes (default: 1)")
    add("--max-steps", type=_positive, metavar="N", help="most calls of MPI (default: no limit)")
    add(
        "--no-strict",
        dest="strict",
        action="store_false",
        help="do not report buffers in use, requests, messages and communicators that are left",
    )
    add_program(parser)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)


def main(args: argparse.Namespace) -> None:
    """Run the program with each seed.

    Raises
    ------
    SystemExit
        When it has ended.
    """
    world, started = import_mpi().COMM_WORLD, " ".join(args.again)
    wrong = _SEVERAL.format(world.size, started) if world.size > 1 else ""
    if args.n is None:
        wrong = _UNCOUNTED.format(started)
    if wrong:
        sys.stderr.write(wrong if world.rank == 0 else "")
        sys.exit(2)
    warnings.filterwarnings("default", "never freed", ResourceWarning)
    keep_programs_apart()
    sys.exit(_run(args, args.seed) if args.seeds is None else _run_all(args))


def _run_all(args: argparse.Namespace) -> int:
    """Run with one seed after the other, until one fails; return the exit status."""
    for seed in _with_progress(range(args.seeds)):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            status = _run(args, seed)
        if status:
            sys.stderr.write(
                f"{printed.getvalue()}\nsimmpi: seed {seed} of 0-{args.seeds - 1} "
                f"failed; repeat it:\n  {_command(args, seed)}\n"
            )
            return status
    sys.stderr.write(f"simmpi: no error with the seeds 0-{args.seeds - 1}\n")
    return 0


def _with_progress(seeds: range) -> Iterable[int]:
    try:
        from tqdm import tqdm
    except ImportError:
        return seeds
    bar: Iterable[int] = tqdm(seeds, unit="seed", leave=False, disable=None)
    return bar


def _command(args: argparse.Namespace, seed: int) -> str:
    """Return the command line that repeats the run with one seed."""
    words = [*args.again, "-n", args.n, "--seed", seed]
    for option in ("--nodes", "--max-steps"):
        value = getattr(args, option[2:].replace("-", "_"))
        words += [] if value is None else [option, value]
    flags = {"--no-strict": not args.strict, "--all-frames": args.all_frames}
    words += [option for option, given in flags.items() if given]
    words += {"file": [], "module": ["-m"], "code": ["-c"]}[args.kind]
    return shlex.join(map(str, [*words, *args.program]))


def _run(args: argparse.Namespace, seed: int | None) -> int:
    """Run with one seed, print what fails, and return the exit status."""
    options = {name: getattr(args, name) for name in ("nodes", "max_steps", "strict")}
    left: dict[int, Ending] = {}

    def program() -> None:
        rank = COMM_WORLD.rank
        begin(seed or 0, rank)
        try:
            execute(args.kind, *args.program)
        except SystemExit as leaving:  # ends this rank only
            left[rank] = Ending.of(leaving)

    status, text = 0, ""
    try:
        simulate(args.n, program, seed=seed, **options)
    except BaseException as error:  # noqa: BLE001 - every error is printed
        status, text = _describe(error, full=args.all_frames)
    # Equal ends of ranks by `sys.exit` once.
    groups: dict[tuple[str, int], list[int]] = {}
    for rank, ending in sorted(left.items()):
        if ending.status:
            groups.setdefault((ending.text, ending.status), []).append(rank)
    for (words, number), those in groups.items():
        every = len(those) == args.n
        which = "" if every else f"simmpi: {ranks(those)} left with status {number}\n"
        sys.stderr.write(words + which)
    sys.stderr.write(text)
    return max([status, *(ending.status for ending in left.values())])


def _describe(error: BaseException, *, full: bool) -> tuple[int, str]:
    """Return exit status and text of what a simulation has raised."""
    notes = "\n".join(getattr(error, "__notes__", []))
    if isinstance(error, SystemExit):  # of Abort; those of ranks do not come here
        return Ending.of(error).status or 1, f"simmpi: {notes}\n"
    ending = Ending.of(error, full=full)
    outside = isinstance(error, SimulationError | KeyboardInterrupt) and not ending.frames
    if outside and not full:
        return ending.status, f"simmpi: {ending.title}"
    return ending.status, ending.text
