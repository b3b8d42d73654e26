"""Kill processes of the examples at random times, and compare the answer with that without.

    python benchmarks/recovery.py --kills 100 --seed 0

Needs Open MPI 5 or later. It starts `mpiexec --with-ft ulfm` again and again; each run solves the
equation of an example on 3 to 6 ranks by `pencils.recovery.recover`, and one or two of its
processes get SIGKILL. A run must end with exit status 0, and with the bits of the run without
kills. The recovery time is that from the signal until the first time step after it is done on all
processes that are left: copies or checkpoints are found and loaded meanwhile. A job that `mpiexec`
could not start is started again, and counted apart.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from mpi4py import MPI

import pencils

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "examples"))

LIMIT = 60  # seconds of a run
RANKS = 3, 4, 5, 6
STARTS = 5  # of a job that mpiexec does not start
# mpiexec ends with status 213 and this error, before it starts any process, now and then.
NOT_STARTED = "PMIx server's listener thread failed to start"
OVERSUBSCRIBE = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


class Heat:
    """The plate of examples/heat_equation.py."""

    steps, every = 400, 20
    n = 64

    def __init__(self, comm):
        self.u = pencils.zeros(pencils.Pencil((self.n - 1, self.n), comm), halo=1)
        x = np.arange(1, self.n)[:, None] / self.n
        self.u[...] = 1 - x + np.sin(np.pi * x)
        offsets = (-1, 0), (1, 0), (0, -1), (0, 1)
        self.near = [self.u.shift(offset) for offset in offsets]

    def step(self):
        import_module("heat_equation").fill(self.u)
        west, east, south, north = self.near
        self.u += 0.2 * (west + east + south + north - 4 * self.u)


class Flow:
    """The Taylor-Green vortex of examples/navier_stokes.py."""

    steps, every = 24, 3
    n = 16

    def __init__(self, comm):
        navier_stokes = import_module("navier_stokes")
        self.equations = navier_stokes.NavierStokes(self.n, 0.001, comm=comm)
        start = navier_stokes.taylor_green(self.equations.fft.input_pencil)
        self.u = self.equations.start(start)

    def step(self):
        self.u[...] = self.equations.step(self.u, 0.01)


CASES: dict[str, Any] = {"heat": Heat, "flow": Flow}


def run(case, folder, kind):
    """Solve an equation, with copies in memory or in files."""
    log = (folder / f"log-{os.getpid()}").open("a", buffering=1)
    log.write(f"{monotonic()} begin\n")
    copies = pencils.recovery.BuddyCopies()

    def program(comm):
        model = CASES[case](comm)
        kept: Any = (
            copies if kind == "memory" else pencils.CheckpointSeries(folder / "run", comm=comm)
        )
        state = kept.resume({"u": model.u})
        if kind == "files" and state:
            model.u[...] = state["u"]
        first = state.step + 1 if state else 1
        for step in range(first, model.steps + 1):
            model.step()
            if step == first and comm.size < MPI.COMM_WORLD.size:
                log.write(f"{monotonic()} again {comm.size}\n")
            if step % model.every == 0:
                kept.save(step, {"u": model.u})
                log.write(f"{monotonic()} saved {step}\n")
        return pencils.gather(model.u)

    result = pencils.recovery.recover(program)
    if result is not None:
        print("answer", sha256(result.tobytes()).hexdigest(), flush=True)


def entries(folder):
    """Read what the processes have logged: process, time and words of each line."""
    found = []
    for path in folder.glob("log-*"):
        for line in path.read_text().splitlines():
            time, *words = line.split()
            found.append((int(path.name[4:]), float(time), words))
    return found


def start(case, folder, kind, ranks):
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, "--with-ft", "ulfm", "-n", ranks, sys.executable, HERE]
    command += ["--run", case, folder, kind]
    return subprocess.Popen(
        list(map(str, command)),
        env=os.environ | OVERSUBSCRIBE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(job, condition):
    """Wait until a condition holds; False if the job ends before, or takes too long."""
    end = monotonic() + LIMIT
    while job.poll() is None and monotonic() < end:
        if condition():
            return True
        sleep(0.002)
    return False


def disturbed(case, kind, ranks, kills):
    """Run once and kill processes; return the answer, and how long each recovery took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = start(case, folder, kind, ranks)
        killed = []
        wait_for(job, lambda: len({entry[0] for entry in entries(folder)}) == ranks)
        living = sorted({entry[0] for entry in entries(folder)})
        if len(living) < ranks:  # mpiexec has not started all
            kills = []
        for wait, number in kills:
            sleep(wait)
            victim = living.pop(number)
            if job.poll() is not None:
                break
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:  # it has ended
                break
            killed.append(monotonic())
            # Copies have to be complete again before the next process dies.
            wait_for(job, lambda: len(saved_since(folder, killed[-1])) >= len(living))
        try:
            out, err = job.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            out, err = job.communicate()
            return f"no end within {LIMIT} s\n{out}{err}", [], len(killed)
        times = [first_after(folder, when) for when in killed]
        answers = [line for line in out.splitlines() if line.startswith("answer")]
        if job.returncode or len(answers) != 1:
            return f"exit status {job.returncode}\n{out}{err}", [], len(killed)
        return answers[0], [time for time in times if time is not None], len(killed)


def started(case, kind, ranks, kills):
    """Do what `disturbed` does until mpiexec starts the job; return how often it did not, too."""
    for failed in range(STARTS):
        result = answer, _, killed = disturbed(case, kind, ranks, kills)
        if killed or NOT_STARTED not in answer:
            return *result, failed
    return *result, STARTS


def saved_since(folder, when):
    return {pid for pid, time, words in entries(folder) if words[0] == "saved" and time > when}


def first_after(folder, when):
    """Seconds until all that live have done a step again; None if there was no step to do."""
    by_process: dict[int, float] = {}
    for pid, time, words in entries(folder):
        if words[0] == "again" and time > when:
            by_process[pid] = min(time, by_process.get(pid, time))
    return max(by_process.values()) - when if by_process else None


def campaign(kills, seed):
    """Kill so many processes; return the failures."""
    chance, failures, done, runs, starts = random.Random(seed), [], 0, 0, 0
    times: list[float] = []
    expected, seconds = {}, {}
    for case in CASES:
        begin = monotonic()
        expected[case], _, _, failed = started(case, "memory", 4, [])
        starts += failed
        seconds[case] = max(0.5, monotonic() - begin - 2)
        print(f"{case}: {expected[case]}, {monotonic() - begin:.1f} s without kills", flush=True)
    while done < kills:
        case, kind = chance.choice(list(CASES)), chance.choice(["memory", "memory", "files"])
        ranks, number = chance.choice(RANKS), min(chance.choice([1, 2]), kills - done)
        # When, and which one of those that live.
        plan = [
            (chance.uniform(0, seconds[case] / number), chance.randrange(ranks - each))
            for each in range(number)
        ]
        answer, took, killed, failed = started(case, kind, ranks, plan)
        done, runs, times, starts = done + killed, runs + 1, times + took, starts + failed
        good = answer == expected[case]
        if not good:
            failures.append(answer)
        print(
            f"{done:4} kills, {case} on {ranks} ranks with copies in {kind}:",
            f"{'same bits, status 0' if good else answer};",
            "recovery in",
            ", ".join(f"{time:.3f}" for time in took) or "no",
            "s",
            flush=True,
        )
    print(f"{done} kills, {len(failures)} failures in {runs} runs")
    if starts:
        print(f"{starts} times mpiexec did not start a job")
    if times:
        middle, most, longest = np.quantile(times, [0.5, 0.95, 1])
        print(
            f"{len(times)} recoveries in the middle of a run: median {middle:.3f} s, 95 % within",
            f"{most:.3f} s, longest {longest:.3f} s, {sum(time < 2 for time in times)} below 2 s",
        )
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        case, folder, kind = args.run
        run(case, Path(folder), kind)
    else:
        sys.exit(bool(campaign(args.kills, args.seed)))


if __name__ == "__main__":
    main()
