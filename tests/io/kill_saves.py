"""Kill a random rank at a random instant while all of them save over an existing checkpoint.

    python tests/io/kill_saves.py --kills 50 --ranks 4

Whenever it happens, the file must be whole, and the old checkpoint or the new one; the next save
must succeed, and leave nothing else behind. Prints how often it was which.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pencils
from pencils.io.commit import wait_for_space

SHAPE = (48, 64, 65)
COMPONENTS = 3  # 4.8 MB of float64
SHARED = Path("/dev/shm")
PATIENCE = 60.0


def field(pencil, number):
    """Make what save number so and so writes: no value appears twice, in one save or in others."""
    u = pencils.from_function(pencil, lambda x, y, z: (x * SHAPE[1] + y) * SHAPE[2] + z + number)
    both = pencils.empty(pencil, components=COMPONENTS)
    for component in range(COMPONENTS):
        both[component] = u * (component + 1) + 0.25 * number
    return both


def save_on_and_on(path, journal, first):
    """Do what the ranks do until one is killed; rank 0 writes down when a save begins and ends."""
    pencil = pencils.Pencil(SHAPE)
    chunks = (10, 30, 40) if path.suffix == ".zarr" else None  # which cross blocks
    with journal.open("a") as lines:

        def note(*words):
            if pencil.rank == 0:
                print(*words, file=lines, flush=True)

        note("pids", *pencil.comm.allgather(os.getpid()))
        number = first
        while True:
            u = field(pencil, number)
            pencil.comm.barrier()
            note("begin", number)
            pencils.save(path, {"u": u, "number": number}, step=number, chunks=chunks)
            note("end", number)
            number += 1


def read_journal(journal):
    return [line.split() for line in journal.read_text().splitlines()]


def wait_until_saving(journal, process):
    """Wait until two saves have ended; return the processes of the ranks and the time of a save."""
    end, times = time.monotonic() + PATIENCE, []
    while len(times) < 2:
        if process.poll() is not None or time.monotonic() > end:
            msg = f"the ranks do not save: {process.communicate()[1]}"
            raise RuntimeError(msg)
        time.sleep(0.001)
        ended = sum(words[0] == "end" for words in read_journal(journal))
        times += [time.monotonic()] * (ended - len(times))
    return [int(pid) for pid in read_journal(journal)[0][1:]], times[1] - times[0]


def shared_segments(pids):
    """Find what the ranks hold in shared memory, which nobody cleans up when they are killed."""
    found = set()
    for pid in pids:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            name = line.split(maxsplit=5)[-1]
            if name.startswith(f"{SHARED}/"):
                found.add(Path(name))
    return found


def mpiexec():
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def kill_one(path, ranks, first, dice):
    """Run saves from number `first` on and kill a rank; return the last that began and ended."""
    journal = path.with_name("journal")
    journal.write_text("")
    command = [mpiexec(), "-n", str(ranks), sys.executable, __file__, "--path", path]
    process = subprocess.Popen(
        [*map(str, command), "--first", str(first)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    segments = set()
    try:
        pids, duration = wait_until_saving(journal, process)
        segments = shared_segments(pids)
        time.sleep(dice.uniform(0, 2 * duration))
        os.kill(dice.choice(pids), signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        for segment in segments:
            segment.unlink(missing_ok=True)
    numbers = {words[0]: int(words[1]) for words in read_journal(journal)[1:]}
    assert path.exists(), "the checkpoint is gone"
    return numbers["begin"], numbers["end"]


def judge(path, begun, ended):
    """Say what the file holds after the kill: the last save that ended, or the one under way."""
    alone = pencils.Pencil(SHAPE, MPI.COMM_SELF)
    try:
        pencils.verify(path, MPI.COMM_SELF)
        found = pencils.load(path, alone)
    except (pencils.errors.PencilsError, OSError) as error:
        return f"damaged: {error}"
    number = found["number"]
    if number not in (begun, ended) or found.step != number:
        return f"damaged: save {number} where {ended} or {begun} should be"
    if not np.array_equal(found["u"].local, field(alone, number).local):
        return f"damaged: values of save {number} are wrong"
    if begun == ended:
        return "between two saves"
    return "new one finished" if number == begun else "old one kept"


def check_next_save(path):
    """After any kill, the next save succeeds and cleans up."""
    pencils.save(path, {"u": pencils.ones(pencils.Pencil((4,), MPI.COMM_SELF))})
    wait_for_space()  # a folder that was replaced is removed in the background
    names = sorted(entry.name for entry in path.parent.iterdir())
    return [] if names == ["journal", path.name] else names


def kill_saves(kills, ranks, seed=None, tell=lambda *_: None, name="run.h5"):
    """Count the outcomes of some kills; anything but old, new and between is a failure."""
    dice, outcomes, first = random.Random(seed), Counter(), 0
    with tempfile.TemporaryDirectory(prefix="pencils-kill-") as folder:
        path = Path(folder) / name
        for number in range(kills):
            begun, ended = kill_one(path, ranks, first, dice)
            outcome = judge(path, begun, ended)
            left = [one for one in path.parent.iterdir() if one.suffix == ".tmp"]
            outcomes["temporary left by the killed save, then removed"] += bool(left)
            if rest := check_next_save(path):
                outcome = f"damaged: the next save leaves {rest}"
            outcomes[outcome] += 1
            tell(f"{number + 1}/{kills}: {outcome}")
            first = begun + 1
    return outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="how often (default: 50)")
    parser.add_argument("--ranks", type=int, default=4, help="processes that save (default: 4)")
    parser.add_argument("--seed", type=int, help="of the random choices")
    parser.add_argument("--name", default="run.h5", help="or run.zarr, for the other format")
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)  # these two: for the ranks
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.path:
        save_on_and_on(args.path, args.path.with_name("journal"), args.first)
    outcomes = kill_saves(args.kills, args.ranks, args.seed, print, args.name)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:5} {outcome}")
    sys.exit(any(outcome.startswith("damaged") for outcome in outcomes))


if __name__ == "__main__":
    main()
