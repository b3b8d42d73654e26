"""How much of an exchange between hosts is hidden behind work, in plain programs.

    make bench-hosts                # hosts that root makes of this machine; MPI=openmpi
    mpiexec -n 4 python -m mpi4py benchmarks/overlap.py --rows 12000 --ghosts 500000

Transposes and halos are started, and waited for after half as much work again: ``a * 0.5 + b`` for
fields of `--work` MB on each rank, again and again. The table shows how much of the time of the
exchange is hidden, and how much longer the work takes; both also inside of a `ProgressThread`. The
graph computes a step of waves, with six exchanges of ghosts: what it takes less than its parts, one
after the other, is the hidden part of the shorter one. Times are medians, taken in turn, of the
slowest rank. The cores are those of a rank: with one or less, work and messages share them.
"""

import argparse
import os
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np
from mpi4py import MPI

import pencils
from pencils import graph

COMM = MPI.COMM_WORLD
ITEM = 8  # bytes of a point


def print_on_root(*values):
    if COMM.rank == 0:
        print(*values, flush=True)


def slowest(call):
    COMM.Barrier()
    start = perf_counter()
    call()
    return COMM.allreduce(perf_counter() - start, op=MPI.MAX)


def in_turn(calls, repeat):
    """Return the median time of each call. *Collective*."""
    rounds = [[slowest(call) for call in calls] for _ in range(repeat)]
    return [median(times) for times in zip(*rounds, strict=True)]


def transposition(rows):
    source = pencils.Pencil((rows, rows), decomp=0)
    target = source.with_(decomp=1)
    plan = pencils.Transposition(source, target, check=False)
    return plan, (pencils.ones(source), pencils.empty(target))


def halo(points):
    u = pencils.ones(ring(points), halo=[(1, 1), (0, 0)])
    return pencils.HaloExchange(u, check=False), (u,)


def ring(points):
    return pencils.Pencil((4 * COMM.size, points), decomp=0, periodic=True)


class Work:
    """Plain work with other fields, which takes about as long as something else."""

    def __init__(self, nbytes):
        pencil = pencils.Pencil((COMM.size, round(nbytes / ITEM)), decomp=0)
        self.fields = [pencils.random.uniform(pencil, rng=seed) for seed in (1, 2)]
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
    """Return what is left of an exchange after the work, and the time of the work. *Collective*.

    The slowest rank counts: a rank that is done early waits for the work of others, too.
    """
    COMM.Barrier()
    start = perf_counter()
    handle = plan.start(*fields)
    begin = perf_counter()
    work()
    during = perf_counter() - begin
    handle.wait()
    whole = COMM.allreduce(perf_counter() - start, op=MPI.MAX)
    slow = COMM.allreduce(during, op=MPI.MAX)
    return whole - slow, slow


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


def rates(state, pad):
    """Rates of change of pressure and velocity: sound, as in examples/graph_wave.py."""
    p, u, v = map(pad, state)
    p_x, u_x = (f[2:] - f[:-2] for f in (p, u))
    p_y, v_y = (f[1:-1] - f[2:] for f in (p, v))
    return -(u_x + v_y), -p_x, -p_y


def step(state, pad):
    first = rates(state, pad)
    second = rates([f + 0.1 * rate for f, rate in zip(state, first, strict=True)], pad)
    return [f + 0.05 * (a + b) for f, a, b in zip(state, first, second, strict=True)]


def measure_graph(points, repeat):
    """Print the row of the graph. *Collective*."""
    pencil = ring(points)
    fields = [pencils.zeros(pencil, halo=[(1, 1), (0, 0)]) for _ in "puv"]
    state = [u.local.copy() for u in fields]
    pad = partial(graph.halo_exchange, pencil=pencil, halo=[(1, 1), (0, 0)], corners=False)
    nodes = [graph.make_placeholder(name, pencil.local_shape) for name in "puv"]
    new = graph.make_dict_of_named_arrays(dict(zip("puv", step(nodes, pad), strict=True)))
    partition = graph.find_distributed_partition(COMM, new)
    inputs = dict(zip("puv", state, strict=True))
    whole = partial(
        graph.execute_distributed_partition, partition, None, None, COMM, input_args=inputs
    )
    plans = [pencils.HaloExchange(u, check=False) for u in fields]

    def exchange():
        for _ in range(2):
            for plan, u in zip(plans, fields, strict=True):
                plan(u)

    ghosts = np.zeros((1, points))
    compute = partial(step, state, lambda block: np.concatenate([ghosts, block, ghosts]))
    calls: list[Callable[[], object]] = [whole, exchange, compute]
    for call in calls:
        call()
    together, messages, alone = in_turn(calls, repeat)
    hidden = (messages + alone - together) / min(messages, alone)
    print_on_root(f"{'graph':10} {1e3 * messages:9.1f} {1e3 * alone:8.1f} {hidden:7.2f}")


def measure(verb, made, options):
    """Print the row of a transpose or a halo. *Collective*."""
    plan, fields = made
    work = Work(1e6 * options.work)
    exchange = min(slowest(partial(plan, *fields)) for _ in range(3))
    work.last(1.5 * exchange)
    parts = hidden(plan, fields, work, options.repeat)
    with pencils.ProgressThread():
        parts += hidden(plan, fields, work, options.repeat)
    plan.free()
    print_on_root(
        f"{verb:10} {1e3 * exchange:9.1f} {1.5e3 * exchange:8.1f} "
        "{:7.2f} {:5.2f} {:7.2f} {:5.2f}".format(*parts)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2240, help="points of a line to transpose")
    parser.add_argument("--ghosts", type=int, default=2**17, help="ghosts of a rank on each side")
    parser.add_argument("--work", type=float, default=4, help="MB of a field to work with")
    parser.add_argument("--repeat", type=int, default=5, help="samples of each case")
    options = parser.parse_args()
    hosts = len(set(COMM.allgather(MPI.Get_processor_name())))
    cores = (os.cpu_count() or 1) / COMM.size
    print_on_root(f"{COMM.size} ranks on {hosts} hosts, {cores:g} cores of this machine for each")
    print_on_root(
        f"{'verb':10} {'alone ms':>9} {'work ms':>8} {'hidden':>7} {'work':>5} "
        f"{'thread':>7} {'work':>5}"
    )
    measure("transpose", transposition(options.rows), options)
    measure("halo", halo(options.ghosts), options)
    measure_graph(options.ghosts, options.repeat)


if __name__ == "__main__":
    main()
