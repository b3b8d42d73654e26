"""Random programs of verbs, which compute what NumPy computes from the global arrays.

    python tests/campaigns/programs.py --runs 1000
    python tests/campaigns/programs.py --seed 17 --steps 30 --ranks 4 --nodes 0,0,1,1

Each program runs on 1 to 6 simulated ranks, in a schedule of its own. One that fails is run again
with ever fewer of its steps, and the shortest one that fails is printed.
"""

import model_more_steps
from model import Program
from mpi4py import MPI
from running import PLACE, dice, draw_place, folder, listed, main, numbered, simulated, watched

ALL_STEPS = model_more_steps.STEPS  # those of `model_steps`, too
STEPS = 30  # of a program


def run_program(seed, steps, skip, path):
    """Run a program on this rank; return what rank 0 did."""
    program = Program(MPI.COMM_WORLD, seed, path, ALL_STEPS)
    try:
        program.run(steps, skip)
    except Exception as error:
        error.add_note(f"step {program.number}: {program.log[-1:]}")
        raise
    program.end()
    return program.log


def run_once(seed, steps, ranks, nodes, skip=frozenset()):
    """Run a program on all ranks; return its steps as text, and the number of MPI calls."""
    with folder() as path, simulated(ranks, nodes=nodes, seed=seed) as simulation:
        log = simulation.run(run_program, seed, steps, skip, path)[0]
        return log, sum(map(len, simulation.calls))


def fails(*args):
    """Return the error of a program, or None."""
    try:
        run_once(*args)
    except Exception as error:  # noqa: BLE001 - of any kind
        return error
    return None


def shorten(seed, steps, ranks, nodes, error):
    """Find a part of the steps without which the same kind of error appears."""
    skip, runs = frozenset(), 200
    size = steps // 2
    while size and runs > 0:
        for start in range(0, steps, size):
            less = skip | set(range(start, start + size))
            if less == skip:
                continue
            runs -= 1
            found = fails(seed, steps, ranks, nodes, less)
            if type(found) is type(error):
                skip, error = less, found
        size //= 2
    return skip, error


def command(seed, steps, ranks, nodes, skip=()):
    where = ",".join(map(str, nodes))
    kept = [step for step in range(steps) if step not in skip]
    text = f"programs.py --seed {seed} --steps {steps} --ranks {ranks} --nodes {where}"
    return text + (f" --keep {','.join(map(str, kept))}" if skip else "")


def draw(number):
    """Return seed, ranks and nodes of the program of that number."""
    rng = dice("program", number)
    ranks = rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 6))
    return number, ranks, draw_place(rng, ranks)


def run_campaign(numbers, report, steps=STEPS, *, shortens=True):
    """Run the programs of these numbers."""
    for number in report.each(numbers):
        seed, ranks, nodes = draw(number)
        try:
            with watched(command(seed, steps, ranks, nodes)):
                log, calls = run_once(seed, steps, ranks, nodes)
            report.count(programs=1, steps=len(log), ranks=ranks, calls=calls)
        except Exception as error:  # noqa: BLE001 - of any kind
            skip, found = frozenset(), error
            if shortens:
                skip, found = shorten(seed, steps, ranks, nodes, error)
            report.fail(command(seed, steps, ranks, nodes, skip), found)
    return report


def campaign(args, report):
    """Run what the command line asks for; of one program, print the steps."""
    if args.seed is None:
        run_campaign(numbered(args), report, args.steps)
        return
    skip = set(range(args.steps)) - set(args.keep or range(args.steps))
    log, calls = run_once(args.seed, args.steps, args.ranks, args.nodes or [0] * args.ranks, skip)
    print(*log, sep="\n")
    report.count(programs=1, steps=len(log), ranks=args.ranks, calls=calls)


if __name__ == "__main__":
    main(
        __doc__,
        300,
        campaign,
        **PLACE | {"ranks": {"type": int, "default": 3, "help": "with --seed: that many ranks"}},
        steps={"type": int, "default": STEPS, "help": "steps of each"},
        keep={"type": listed, "help": "with --seed: only these steps"},
    )
