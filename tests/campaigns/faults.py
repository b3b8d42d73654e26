"""Faults at every MPI call, file call and allocation of all collective calls.

    python tests/campaigns/faults.py --runs 1000
    python tests/campaigns/faults.py --case "save plain" --ranks 3 --every
    python tests/campaigns/faults.py --case "save plain" --ranks 3 --kind kill --rank 1 --call 37

Kinds of faults, each on one rank:

    memory  an allocation fails: all ranks raise, and the same call works afterwards;
    file    a file call fails: all ranks raise, as above;
    mpi     an MPI call raises an error: the other ranks may be left waiting, and this is reported;
    kill    the rank is killed, at an MPI call or a file call, perhaps in the midst of a write: the
            other ranks are reported to wait for it.

No rank ever returns a wrong result, and no file is ever damaged: what was there before the call, or
after it, can be read and verified, and goes on.
"""

import contextlib
import errno
import os
import shutil
import subprocess
import traceback
from dataclasses import dataclass, field

from cases import FILES, PARTS, TIMED, load_cases
from faulty import allocations, file_calls
from mpi4py import MPI
from running import PLACE, dice, draw_place, folder, main, numbered, shortened, simulated
from world import World

from simmpi import Fault
from simmpi.errors import DeadlockError, MismatchError, RankKilledError, SimulationError

KINDS = ("memory", "file", "mpi", "kill")
BIG = (18, 12, 20)  # whose blocks are large enough for allocations to fail


@dataclass(frozen=True)
class Place:
    """A case, its ranks, and the schedule."""

    name: str
    ranks: int
    nodes: tuple
    seed: int | None

    @property
    def command(self):
        where = ",".join(map(str, self.nodes))
        seed = "" if self.seed is None else f" --seed {self.seed}"
        return f'faults.py --case "{self.name}" --ranks {self.ranks} --nodes {where}{seed}'


@dataclass
class Run:
    """One run of a case: what happened on each rank."""

    place: Place
    outcomes: dict = field(default_factory=dict)
    calls: dict = field(default_factory=dict)
    looks: dict = field(default_factory=dict)
    error: SimulationError | None = None
    failed: bool = False  # whether the fault has happened
    asked: int = 0
    seen: str = ""

    def set_up(self, path):
        """Make a world and the call, on this rank."""
        world = World(MPI.COMM_WORLD, path, shape=BIG)
        if self.place.name in FILES:
            self.calls[world.rank], self.looks[world.rank] = FILES[self.place.name](world)
        else:
            self.calls[world.rank] = load_cases()[self.place.name](world)

    def call(self, fails=(None, None)):
        """Make the call on this rank, where one allocation of a rank may fail."""
        rank = MPI.COMM_WORLD.rank
        watched = allocations(fails[1]) if rank == fails[0] else contextlib.nullcontext()
        try:
            with watched as memory:
                self.calls[rank]()
            self.outcomes[rank] = "right"
        except AssertionError:
            self.outcomes[rank] = f"wrong: {traceback.format_exc()[-1500:]}"
        except Exception as error:  # noqa: BLE001 - compared below
            self.outcomes[rank] = error
        if memory is not None:
            self.asked, self.failed = memory.asked, memory.failed

    def wrong(self):
        return [
            text for text in self.outcomes.values() if isinstance(text, str) and text != "right"
        ]

    def errors(self):
        return {
            rank: error for rank, error in self.outcomes.items() if isinstance(error, Exception)
        }


def explore(place):
    """Run a case without faults; return the calls of each rank, and its numbers of allocations."""
    run = Run(place)
    with folder() as path, simulation_of(place) as simulation, file_calls(simulation):
        simulation.run(run.set_up, path)
        before = [len(calls) for calls in simulation.calls]
        simulation.run(run.call)
        calls = [list(calls) for calls in simulation.calls]
        assert all(outcome == "right" for outcome in run.outcomes.values()), run.outcomes
        found = [
            (rank, number, name)
            for rank in range(place.ranks)
            for number, name in enumerate(calls[rank])
            if number >= before[rank]
        ]
        asked = []
        for rank in range(place.ranks):
            simulation.run(run.call, (rank, -1))
            asked.append(run.asked)
    return found, asked


def simulation_of(place, faults=()):
    return simulated(
        place.ranks, nodes=list(place.nodes), seed=place.seed, faults=faults, strict=False
    )


def faults_of(place):
    """List all faults of a case: kind, rank, number, and the name of the call."""
    calls, asked = explore(place)
    found = []
    for rank, number, name in calls:
        is_file = name.startswith("file ")
        found.append(("file" if is_file else "mpi", rank, number, name))
        found.append(("kill", rank, number, name))
    for rank, most in enumerate(asked):
        found += [("memory", rank, number, "allocation") for number in range(most)]
    return found


def error_of(kind, name):
    """Return the error that is raised; None kills the rank."""
    if kind == "kill":
        return None
    if kind == "file":
        reads = name.split()[1] in ("pread", "preadv", "open")
        number = errno.EIO if reads else errno.ENOSPC
        return OSError(number, f"fault of {name}")
    return RuntimeError(f"fault of {name}")


def check(place, kind, rank, number, name):
    """Let one fault happen; return what followed, or raise AssertionError."""
    run = Run(place)
    faults = [] if kind == "memory" else [Fault(rank, number, error_of(kind, name))]
    with folder() as path:
        with simulation_of(place, faults) as simulation:
            files, copy = path / "files", path / "copy"
            files.mkdir()
            with file_calls(simulation, faults):
                simulation.run(run.set_up, files)
                # Files are looked at as they are when ranks are stuck: before any of them ends.
                simulation.scheduler.before_unwinding = lambda: shutil.copytree(files, copy)
                try:
                    simulation.run(run.call, (rank, number) if kind == "memory" else (None, None))
                except SimulationError as error:
                    run.error = error
            assert not run.wrong(), f"wrong results: {run.wrong()}"
            verdict = judge(run, kind, rank)
            if not copy.exists():
                shutil.copytree(files, copy)
            if run.error is not None:
                of_dead_process(copy)
            if verdict == "raised" and kind in ("memory", "file"):
                call_again(run, simulation)
        if run.looks:  # as another program does, alone
            look = next(iter(run.looks.values()))
            run.seen = look(copy)
    return verdict


def of_dead_process(folder):
    """Give temporary files the name that those of a process have that does not run any more."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    for path in sorted(folder.rglob("*.tmp")):
        path.rename(path.with_name(path.name.replace(f"-{os.getpid()}-", f"-{ended.pid}-")))


def call_again(run, simulation):
    """Check that the same call works after a failure of all ranks."""
    run.outcomes.clear()
    simulation.run(run.call)
    again = {rank: shown(outcome) for rank, outcome in run.outcomes.items()}
    assert set(again.values()) == {"right"}, f"the next call fails: {again}"


def shown(outcome):
    return outcome if isinstance(outcome, str) else f"{type(outcome).__name__}: {outcome}"


def trace(error):
    """Return where an error was raised, innermost first."""
    if error is None:
        return "no error"
    frames = reversed(traceback.extract_tb(error.__traceback__))
    places = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    return "\n    ".join([f"{type(error).__name__}: {error}", *places[:20]])


def judge(run, kind, rank):
    """Check what happened on all ranks; return a word for it."""
    errors = run.errors()
    if run.place.name in PARTS and kind != "kill":
        return "seen by a part"
    if kind in ("memory", "file"):
        where = trace(errors.get(rank))
        assert run.error is None, f"ranks hang: {run.error}\nafter {where}"
        if not errors:
            return "went on"
        told = {rank: shown(outcome) for rank, outcome in run.outcomes.items()}
        assert len(errors) == run.place.ranks, f"some ranks raise: {told}\nafter {where}"
        kinds = {type(error).__name__ for error in errors.values()}
        assert len(kinds) == 1, f"ranks raise different errors: {told}"
        return "raised"
    if run.error is None:
        assert kind == "mpi", f"rank {rank} was killed, but nothing is reported"
        return {0: "went on", run.place.ranks: "raised"}.get(len(errors), "raised on some")
    allowed = (DeadlockError, MismatchError, RankKilledError)
    assert isinstance(run.error, allowed), shortened(run.error)
    assert f"rank {rank}" in f"{run.error} {getattr(run.error, '__notes__', '')}", run.error
    return "reported"


def draw_place_of(number, name=None, ranks=None):
    """Return the case and ranks of a number; each case once, then all of them in other orders."""
    names = [name for name in load_cases() if name not in TIMED]
    dice("cases", number // len(names)).shuffle(names)
    rng = dice("fault", number)
    ranks = ranks or rng.choice((2, 3, 3, 4, 5))
    seed = rng.choice((None, rng.randrange(1000)))
    return Place(name or names[number % len(names)], ranks, tuple(draw_place(rng, ranks)), seed)


def run_campaign(numbers, report, faults=10, choose=draw_place_of):
    """Let some faults, or all with None, happen in the cases of these numbers."""
    for number in report.each(numbers):
        place, found = choose(number), []
        with report.attempt(place.command):
            found = faults_of(place)
            report.count(cases=1)
        for fault in chosen(found, faults, dice("chosen", number)):
            run_fault(place, fault, report)
    return report


def chosen(found, count, rng):
    """Choose some faults, as many of each kind as possible."""
    if count is None:
        return found
    by_kind = [[fault for fault in found if fault[0] == kind] for kind in KINDS]
    share = -(-count // max(1, sum(map(bool, by_kind))))
    return [fault for faults in by_kind for fault in rng.sample(faults, min(share, len(faults)))]


def run_fault(place, fault, report):
    kind, rank, number, name = fault
    report.count(faults=1)
    with report.attempt(f"{place.command} --kind {kind} --rank {rank} --call {number}  # {name}"):
        report.count(**{f"{kind} {check(place, *fault)}": 1})


def campaign(args, report):
    """Run what the command line asks for."""
    one = args.case is not None and args.ranks is not None
    args.runs = 1 if one else args.runs

    def choose(number):
        if not one:
            return draw_place_of(number, args.case, args.ranks)
        return Place(args.case, args.ranks, tuple(args.nodes or [0] * args.ranks), args.seed)

    if args.kind is None:
        run_campaign(numbered(args), report, None if args.every else args.faults, choose)
        return
    for number in report.each(numbered(args)):
        place = choose(number)
        for fault in faults_of(place):
            kind, rank, call, _ = fault
            if kind == args.kind and args.rank in (None, rank) and args.call in (None, call):
                run_fault(place, fault, report)


if __name__ == "__main__":
    main(
        __doc__,
        100,
        campaign,
        **PLACE,
        faults={"type": int, "default": 10, "help": "faults of each"},
        every={"action": "store_true", "help": "all faults of each"},
        case={"help": "this case only"},
        kind={"choices": KINDS, "help": "faults of this kind only"},
        rank={"type": int, "help": "on this rank only"},
        call={"type": int, "help": "at this call only"},
    )
