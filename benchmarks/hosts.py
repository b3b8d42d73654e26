"""Time transposes and halos between hosts against the least time that their links need.

    mpiexec -n 4 python -m mpi4py benchmarks/hosts.py --rate 500 --megabytes 1 10 100

The rate is what the link of each host moves each way, in Mbit/s. The least time is that of the
bytes that a host must send, or receive, over this link: both directions at once. A sample is the
time of the slowest rank; the table shows the ratios of the smallest and of the median sample to the
least time.

The other columns are about exchanges that are started, and waited for after half as much work
again: ``a * 0.5 + b`` for fields of `--work` MB on each rank, again and again. They show how much
of the time of the exchange is hidden, and how much longer the work takes: for plain work, and
inside of a `ProgressThread`.
"""

import argparse
from functools import partial
from itertools import product
from statistics import median
from time import perf_counter

from mpi4py import MPI

import pencils

COMM = MPI.COMM_WORLD
ITEM = 8  # bytes of a point


def print_on_root(*values):
    if COMM.rank == 0:
        print(*values, flush=True)


def bytes_between_hosts(moved):
    """Most bytes that a host sends, or receives, if ``moved(source, target)`` points do."""
    names = COMM.allgather(MPI.Get_processor_name())
    sent, received = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for source, target in product(range(COMM.size), repeat=2):
        here, there = names[source], names[target]
        if here != there:
            sent[here] += ITEM * moved(source, target)
            received[there] += ITEM * moved(source, target)
    return max(*sent.values(), *received.values())


def transposition(nbytes):
    """Return a transpose of which a host sends about `nbytes`, and how many it sends."""
    rows = COMM.size * round((nbytes * 4 / ITEM) ** 0.5 / COMM.size)
    source = pencils.Pencil((rows, rows), decomp=0)
    target = source.with_(decomp=1)

    def moved(rank, peer):
        return (source.box(rank) & target.box(peer)).volume

    plan = pencils.Transposition(source, target, check=False)
    return plan, (pencils.ones(source), pencils.empty(target)), moved


def halo(nbytes):
    """Return a halo exchange of which a host sends about `nbytes`, and how many it sends."""
    points = round(nbytes / 2 / ITEM)
    pencil = pencils.Pencil((2 * COMM.size, points), decomp=0, periodic=True)
    u = pencils.ones(pencil, halo=[(1, 1), (0, 0)])

    def moved(rank, peer):
        return points * sum((rank + step) % COMM.size == peer for step in (-1, 1))

    return pencils.HaloExchange(u, check=False), (u,), moved


def slowest(call):
    COMM.Barrier()
    start = perf_counter()
    call()
    return COMM.allreduce(perf_counter() - start, op=MPI.MAX)


class Work:
    """Plain work with other fields, which takes about as long as something else."""

    def __init__(self, nbytes):
        pencil = pencils.Pencil((COMM.size, round(nbytes / ITEM)), decomp=0)
        self.fields = [pencils.random.uniform(pencil, seed=seed) for seed in (1, 2)]
        self.rounds = 1

    def __call__(self):
        a, b = self.fields
        for _ in range(self.rounds):
            a = a * 0.5 + b

    def last(self, seconds):
        """Set the number of rounds. *Collective*."""
        self.rounds = 8
        one = min(slowest(self) for _ in range(3)) / self.rounds
        self.rounds = max(1, round(seconds / one))


def overlapped(plan, fields, work):
    """Return the times of starting and waiting, and of the work between. *Collective*."""
    COMM.Barrier()
    start = perf_counter()
    handle = plan.start(*fields)
    begin = perf_counter()
    work()
    end = perf_counter()
    handle.wait()
    times = perf_counter() - end + begin - start, end - begin
    return [COMM.allreduce(seconds, op=MPI.MAX) for seconds in times]


def hidden(plan, fields, work, repeat):
    """Return how much of an exchange is hidden behind work, and how much longer the work takes.

    Medians of times, which are taken in turn.
    """
    call = partial(plan, *fields)
    rounds = [
        (slowest(call), slowest(work), *overlapped(plan, fields, work)) for _ in range(repeat)
    ]
    exchange, alone, rest, during = map(median, zip(*rounds, strict=True))
    return 1 - rest / exchange, during / alone


VERBS = {"transpose": transposition, "halo": halo}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=1000, help="Mbit/s of each link, each way")
    parser.add_argument("--megabytes", type=float, nargs="*", default=[1, 10], help="of each host")
    parser.add_argument("--work", type=float, default=4, help="MB of a field to work with")
    parser.add_argument("--repeat", type=int, default=7, help="samples of each case")
    options = parser.parse_args()
    library = MPI.Get_library_version().split(",")[0].splitlines()[0]
    hosts = len(set(COMM.allgather(MPI.Get_processor_name())))
    print_on_root(f"{COMM.size} ranks on {hosts} hosts, {options.rate:g} Mbit/s, {library}")
    if hosts == 1:
        print_on_root("nothing to measure: all ranks are on one host")
        return
    print_on_root(
        f"{'verb':10} {'MB':>8} {'least ms':>9} {'smallest':>9} {'median':>7} "
        f"{'hidden':>7} {'work':>5} {'thread':>7} {'work':>5}"
    )
    work = Work(1e6 * options.work)
    for megabytes, (verb, make) in product(options.megabytes, VERBS.items()):
        plan, fields, moved = make(1e6 * megabytes)
        call = partial(plan, *fields)
        nbytes = bytes_between_hosts(moved)
        least = nbytes * 8 / (1e6 * options.rate)
        call()  # allocates
        ratios = [slowest(call) / least for _ in range(options.repeat)]
        work.last(1.5 * least * median(ratios))
        parts = hidden(plan, fields, work, options.repeat)
        with pencils.ProgressThread():
            parts += hidden(plan, fields, work, options.repeat)
        print_on_root(
            f"{verb:10} {nbytes / 1e6:8.2f} {1e3 * least:9.2f} "
            f"{min(ratios):9.2f} {median(ratios):7.2f} "
            "{:7.2f} {:5.2f} {:7.2f} {:5.2f}".format(*parts)
        )


if __name__ == "__main__":
    main()
