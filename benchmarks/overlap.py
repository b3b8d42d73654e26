"""How much of an exchange between hosts is hidden behind work, in plain programs.

    make bench-hosts                # hosts that root makes of this machine; MPI=openmpi
    mpiexec -n 4 python -m mpi4py benchmarks/overlap.py --rows 12000 --ghosts 500000

Transposes and halos are started, and waited for after half as much work again: ``a * 0.5 + b`` for
fields of `--work` MB on each rank, again and again. The table shows how much of the time of the
exchange is hidden, and how much longer the work takes; both also inside of a `ProgressThread`. A
fused function computes a block of 16 planes, of which two need ghosts. Two graphs compute a step of
waves, with six exchanges of ghosts; the second one also sources that take as long as the messages.
What these take less than their messages and their work, each alone, is the hidden part of the
shorter one. How much a graph could hide follows from what depends on what: the steps and the
messages of a rank are replayed, one at a time, as soon as they can begin. Times are medians, taken
in turn, of the slowest rank. The cores are those of a rank: with one or less, work and messages
share them.
"""

import argparse
import os
from functools import partial
from heapq import heapify, heappop, heappush
from importlib import import_module
from statistics import median
from time import perf_counter

import numpy as np
from mpi4py import MPI

import pencils
from pencils import graph
from pencils.comm.topology import topology_of
from pencils.graph.program import programs

timing = import_module("timing")
COMM = timing.COMM
print_on_root, slowest = timing.print_on_root, timing.slowest
ITEM = 8  # bytes of a point


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


def rates(state, pad, source):
    """Rates of change of pressure and velocity: sound, as in examples/graph_wave.py."""
    p, u, v = map(pad, state)
    p_x, u_x = (f[2:] - f[:-2] for f in (p, u))
    p_y, v_y = (f[1:-1] - f[2:] for f in (p, v))
    return source(state[0]) - (u_x + v_y), -p_x, -p_y


def step(state, pad, source):
    first = rates(state, pad, source)
    middle = [f + 0.1 * rate for f, rate in zip(state, first, strict=True)]
    second = rates(middle, pad, source)
    return [f + 0.05 * (a + b) for f, a, b in zip(state, first, second, strict=True)]


def sources(rounds):
    """Return a function of the pressure of a rank, which needs no ghosts."""

    def source(p):
        total = 0.1 * p
        for _ in range(rounds):
            total = np.sqrt(total * total + p)
        return total

    return source


def passed_on(nodes, tag):
    """Send a row of each node to both neighbours, and return the rows of these."""
    found = []
    for number, node in enumerate(nodes):
        for side in (-1, 1):
            there, back = (COMM.rank + side) % COMM.size, (COMM.rank - side) % COMM.size
            row = node[:1] if side < 0 else node[-1:]
            message = (*tag, number, side)
            got = graph.make_distributed_recv(back, message, row.shape, row.dtype)
            found.append(graph.staple_distributed_send(row, there, message, got))
    return found


class Graph:
    """A graph of inputs p, u and v; executed by calls."""

    def __init__(self, comm, made, state):
        nodes = [
            graph.make_placeholder(name, f.shape) for name, f in zip("puv", state, strict=True)
        ]
        outputs = {f"output {number}": node for number, node in enumerate(made(nodes))}
        self.comm, self.inputs = comm, dict(zip("puv", state, strict=True))
        self.partition = graph.find_distributed_partition(comm, outputs)

    def __call__(self):
        graph.execute_distributed_partition(
            self.partition, None, None, self.comm, input_args=self.inputs
        )

    @property
    def program(self):
        return programs(topology_of(self.comm))[self.partition]


def step_times(program, inputs):
    """Return the time of each step without messages: those that arrive are zeros."""
    values = program.values.copy()
    for name, (slot, _) in program.inputs.items():
        values[slot] = inputs[name]
    for message in (message for recvs in program.recvs for message in recvs):
        values[message.slot] = np.zeros(message.shape, message.dtype)
    times = []
    for func, args, out in program.steps:
        start = perf_counter()
        values[out] = func(*[values[slot] for slot in args])
        times.append(perf_counter() - start)
    return times


class Replay:
    """Steps and messages of a rank, without the time that a core needs for messages.

    A message to another host takes so many seconds, one after the other. All ranks do the same, so
    that a message arrives when this rank has sent its own one.
    """

    def __init__(self, program, seconds):
        self.program, self.seconds = program, seconds
        self.names = COMM.allgather(MPI.Get_processor_name())
        self.slots: dict[int, list[int]] = {}  # of the messages that arrive, by number
        for message in (message for recvs in program.recvs for message in recvs):
            self.slots.setdefault(message.number, []).append(message.slot)
        self.waiting, self.ready = program.waiting.copy(), program.ready.copy()
        self.arriving: list[tuple[float, int]] = []
        self.now = self.link = 0.0

    def is_far(self, message):
        return self.names[message.peer] != self.names[COMM.rank]

    def settle(self, slot):
        """Send a value that is known, and note which steps it was the last one for."""
        for message in self.program.sends.get(slot, ()):
            there = self.now
            if self.is_far(message):
                there = self.link = max(self.link, self.now) + self.seconds
            heappush(self.arriving, (there, self.slots[message.number].pop(0)))
        for number in self.program.users[slot]:
            self.waiting[number] -= 1
            if not self.waiting[number]:
                heappush(self.ready, number)

    def run(self, times):
        """Return how long it takes if the steps take `times`."""
        heapify(self.ready)
        for slot in self.program.early:
            self.settle(slot)
        while self.ready or self.arriving:
            if not self.ready:
                self.now = max(self.now, self.arriving[0][0])
            while self.arriving and self.arriving[0][0] <= self.now:
                self.settle(heappop(self.arriving)[1])
            if self.ready:
                number = heappop(self.ready)
                self.now += times[number]
                self.settle(self.program.steps[number][2])
        return self.now


def most_hidden(whole, messages, alone):
    """Return the part that dependencies permit to hide, given the times of messages and work."""
    program = whole.program
    sent = [message for messages in program.sends.values() for message in messages]
    far = sum(map(Replay(program, 0).is_far, sent))
    rounds = [step_times(program, whole.inputs) for _ in range(5)]
    times = [median(each) for each in zip(*rounds, strict=True)]
    scale = alone / sum(times)  # ranks that share cores wait for each other
    least = Replay(program, messages / max(1, far)).run([scale * each for each in times])
    return (messages + alone - COMM.allreduce(least, op=MPI.MAX)) / min(messages, alone)


def measure_graph(points, repeat, *, busy=False):
    """Print the row of a graph. *Collective*."""
    pencil = ring(points)
    state = [np.zeros(pencil.local_shape) for _ in "puv"]
    pad = partial(graph.halo_exchange, pencil=pencil, halo=[(1, 1), (0, 0)], corners=False)
    ghosts = graph.zeros((1, points))

    def pad_alone(block):
        return np.concatenate([ghosts, block, ghosts])

    def two_stages(nodes):
        first = passed_on(nodes, (1,))
        return first + passed_on(first[::2], (2,))

    messages = Graph(COMM, two_stages, state)
    source = sources(0)
    if busy:
        work = Graph(MPI.COMM_SELF, partial(step, pad=pad_alone, source=source), state)
        eight = Graph(MPI.COMM_SELF, lambda nodes: [sources(8)(nodes[0])], state)
        exchange, alone, each = in_turn([messages, work, eight], repeat + 2)
        source = sources(COMM.bcast(max(0, round(4 * (exchange - alone) / each))))
    work = Graph(MPI.COMM_SELF, partial(step, pad=pad_alone, source=source), state)
    whole = Graph(COMM, partial(step, pad=pad, source=source), state)
    for call in (whole, messages, work):
        call()
    together, exchange, alone = in_turn([whole, messages, work], repeat)
    hidden = (exchange + alone - together) / min(exchange, alone)
    most = most_hidden(whole, exchange, alone)
    print_on_root(
        f"{'graph, busy' if busy else 'graph':11} {1e3 * exchange:8.1f} {1e3 * alone:8.1f} "
        f"{hidden:7.2f}       of {most:.2f}"
    )


def measure_fused(points, repeat):
    """Print the row of a fused function that computes while ghosts travel. *Collective*."""
    side = round(points**0.5)
    pencil = pencils.Pencil((16 * COMM.size, side, side), decomp=0, periodic=True)
    u = pencils.from_function(pencil, lambda i, j, k: np.sin(i + j + k), halo=1)
    sides = [tuple(o) for sign in (-1, 1) for o in sign * np.eye(3, dtype=int)]

    def smooth(u):
        return u + 0.1 * (sum(u.shift(offsets) for offsets in sides) - 6 * u)

    def whole(u):
        u.exchange_halo(corners=False)
        return smooth(u)

    overlapped = partial(pencils.fused(whole, overlap=True), u, out=u.blank())
    work = partial(pencils.fused(smooth), u, out=u.blank())
    messages = partial(u.exchange_halo, corners=False)
    for call in (overlapped, messages, work):
        call()
    together, exchange, alone = in_turn([overlapped, messages, work], repeat)
    hidden = (exchange + alone - together) / min(exchange, alone)
    print_on_root(f"{'fused':11} {1e3 * exchange:8.1f} {1e3 * alone:8.1f} {hidden:7.2f}")


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
    measure_fused(options.ghosts, options.repeat)
    for busy in (False, True):
        measure_graph(options.ghosts, options.repeat, busy=busy)


if __name__ == "__main__":
    main()
