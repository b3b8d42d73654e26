"""Random schedules of all collective calls: right results, which the schedule does not change.

    python tests/campaigns/schedules.py --runs 1000
    python tests/campaigns/schedules.py --case "take shared" --ranks 5 --nodes 0,0,1,1,1 --seed 7

Each run takes a case, 2 to 16 ranks on 1 to 3 nodes, and a seed. All results are those of NumPy.
They are the same bit by bit as in the order of ranks, without a seed; and the same seed gives the
same results and the same MPI calls of each rank.
"""

from cases import TIMED, load_cases
from mpi4py import MPI
from running import PLACE, dice, draw_place, folder, main, numbered, simulated
from world import SHAPE, World

RANKS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16)


def run_case(make, path):
    """Run a case on this rank; return the digest of its results."""
    world = World(MPI.COMM_WORLD, path, shape=SHAPE)
    make(world)()
    return world.digest()


def run_once(name, ranks, nodes, seed):
    """Return the digests of all ranks, and the calls that they made."""
    with folder() as path, simulated(ranks, nodes=nodes, seed=seed) as simulation:
        found = simulation.run(run_case, load_cases()[name], path)
        return found, [list(calls) for calls in simulation.calls]


def check(name, ranks, nodes, seed, known):
    """Run one schedule, twice; `known` keeps results without a seed."""
    key = name, ranks, tuple(nodes)
    if key not in known:
        known[key], _ = run_once(name, ranks, nodes, None)
    found, calls = run_once(name, ranks, nodes, seed)
    again, calls_again = run_once(name, ranks, nodes, seed)
    if name not in TIMED:
        assert found == again, "the same seed gave other results"
        assert calls == calls_again, f"the same seed gave other calls: {first(calls, calls_again)}"
        assert found == known[key], "another schedule gave other results"
    return sum(map(len, calls))


def first(ones, others):
    """Describe the first call that differs."""
    for rank, (one, other) in enumerate(zip(ones, others, strict=True)):
        for number, pair in enumerate(zip([*one, None], [*other, None], strict=False)):
            if pair[0] != pair[1]:
                return f"rank {rank}, call {number}: {pair[0]}, then {pair[1]}"
    return "none"


def draw(number):
    """Return the schedule of that number."""
    names = list(load_cases())
    dice(number // len(names)).shuffle(names)  # each case once, then all in another order
    rng = dice("schedule", number)
    ranks = rng.choice(RANKS)
    return names[number % len(names)], ranks, draw_place(rng, ranks), rng.randrange(2**32)


def run_campaign(numbers, report, choose=draw):
    """Run the schedules of these numbers."""
    known = {}
    for number in report.each(numbers):
        name, ranks, nodes, seed = choose(number)
        where = ",".join(map(str, nodes))
        command = f'schedules.py --case "{name}" --ranks {ranks} --nodes {where} --seed {seed}'
        with report.attempt(command):
            calls = check(name, ranks, nodes, seed, known)
            report.count(schedules=1, ranks=ranks, calls=calls)
    return report


def campaign(args, report):
    """Run what the command line asks for."""

    def choose(number):
        name, ranks, nodes, seed = draw(number)
        rng = dice(number)
        ranks = args.ranks or ranks
        nodes = args.nodes or (nodes if len(nodes) == ranks else draw_place(rng, ranks))
        return args.case or name, ranks, nodes, seed if args.seed is None else args.seed

    run_campaign(numbered(args), report, choose)


if __name__ == "__main__":
    main(__doc__, 300, campaign, **PLACE, case={"help": "this case only"})
