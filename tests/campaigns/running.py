"""What all campaigns share: simulated ranks on nodes, a command line, progress, failures."""

import argparse
import contextlib
import faulthandler
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
import warnings
from pathlib import Path

from simmpi import Simulation

PLACEMENTS = ("one", "block", "alternating", "uneven")


def place(kind, ranks, nodes):
    """Return the node of each rank."""
    if kind == "one" or nodes == 1:
        return [0] * ranks
    if kind == "block":
        return [rank * nodes // ranks for rank in range(ranks)]
    if kind == "alternating":
        return [rank % nodes for rank in range(ranks)]
    return [0] * (ranks - 1) + [1]


def draw_place(rng, ranks):
    """Draw the nodes of the ranks: one, or two or three, by blocks, in turn, or unevenly."""
    return place(rng.choice(PLACEMENTS), ranks, min(ranks, rng.randint(2, 3)))


@contextlib.contextmanager
def folder():
    """Make a folder, and remove it."""
    name = tempfile.mkdtemp(prefix="pencils-campaign-")
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)


@contextlib.contextmanager
def simulated(ranks, **options):
    """Make a simulation, and end it; after an error, what is left over is not reported."""
    simulation = Simulation(ranks, **options)
    with simulation.installed():
        try:
            yield simulation
        except BaseException:
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                simulation.close()
            raise
        simulation.close()


@contextlib.contextmanager
def watched(command, seconds=100):
    """End this process, with the stacks of all threads, if the block takes too long."""

    def end():
        print(f"HANGS {command}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Report:
    """Counts, and failures, each with the command that repeats it."""

    def __init__(self, title, total, *, quiet=False):
        self.counts, self.failures = {}, []
        self._start, self._bar = time.monotonic(), None
        if not quiet:
            with contextlib.suppress(ImportError):
                import tqdm

                self._bar = tqdm.tqdm(total=total, desc=title, disable=None, mininterval=1)

    def count(self, **numbers):
        for name, number in numbers.items():
            self.counts[name] = self.counts.get(name, 0) + number

    @contextlib.contextmanager
    def attempt(self, command):
        """Do one part of the campaign, in a limited time; note its error."""
        try:
            with watched(command):
                yield
        except Exception as error:  # noqa: BLE001 - of any kind
            self.fail(command, error)

    def each(self, numbers):
        """Yield the numbers, and move the bar after each."""
        for number in numbers:
            yield number
            if self._bar is not None:
                self._bar.update()

    def fail(self, command, error):
        """Print one line that repeats a failure, and what went wrong."""
        text = shortened(error)
        self.failures.append((command, text))
        print(f"FAILED {command}\n{text}", file=sys.stderr, flush=True)

    def end(self):
        """Print all counts; return the status to exit with."""
        if self._bar is not None:
            self._bar.close()
        seconds = time.monotonic() - self._start
        counts = ", ".join(f"{number} {name}" for name, number in self.counts.items())
        print(f"{counts or 'nothing'} in {seconds:.0f} s; {len(self.failures)} failures")
        return int(bool(self.failures))


def shortened(error, most=3000):
    """Return the end of a traceback, and the notes of an error."""
    lines = "".join(traceback.format_exception(error))
    return lines if len(lines) <= most else f"... {lines[-most:]}"


def listed(text):
    """Read numbers from the command line: ``0,0,1``."""
    return [int(word) for word in text.split(",")]


PLACE = {
    "ranks": {"type": int, "help": "that many ranks"},
    "nodes": {"type": listed, "help": "the node of each rank"},
    "seed": {"type": int, "help": "this seed only"},
}


def main(text, runs, campaign, **options):
    """Run a campaign from the command line: ``campaign(args, report)``; leave with its status.

    All campaigns have ``--runs``, ``--start`` and ``--minutes``; `options` are further ones, each
    with what `add_argument` takes. A seed stands for one run.
    """
    parser = argparse.ArgumentParser(
        description=text.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    options = {
        "runs": {"type": int, "default": runs, "help": "how many to run"},
        "start": {"type": int, "default": 0, "help": "the first number to draw"},
        "minutes": {"type": float, "default": float("inf"), "help": "end after that time"},
        **options,
    }
    for name, option in options.items():
        parser.add_argument(f"--{name}", **option)
    args = parser.parse_args()
    if args.seed is not None:
        args.start, args.runs = args.seed, 1
    report = Report(Path(sys.argv[0]).stem, args.runs)
    campaign(args, report)
    sys.exit(report.end())


def numbered(args):
    """Yield numbers until the count, or the time, is over."""
    end = time.monotonic() + 60 * args.minutes
    for number in range(args.start, args.start + args.runs):
        if time.monotonic() > end:
            return
        yield number


def dice(*words):
    """Return a generator that depends on all these words."""
    return random.Random(" ".join(map(str, words)))
