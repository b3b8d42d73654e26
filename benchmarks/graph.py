"""Time the overhead of a graph over its NumPy calls, and the overlap of messages and computation.

    mpiexec -n 2 python -m mpi4py benchmarks/graph.py --repeat 5

Ranks of one machine copy messages with the processors that also compute, so that nothing can
overlap there. Here a message is late because its sender sleeps, as on a slow network; the receiver
computes something else for 0.9 times as long. Without overlap both take 1.9 times as long as the
message, with overlap 1.0 times.
"""

import argparse
from functools import partial
from importlib import import_module
from time import perf_counter, sleep

import numpy as np
from mpi4py import MPI

from pencils import graph
from pencils.comm.topology import time_in_turn

timing = import_module("timing")
COMM = timing.COMM
print_on_root = timing.print_on_root
NEXT, LAST = (COMM.rank + 1) % COMM.size, (COMM.rank - 1) % COMM.size


def prepare(outputs, **inputs):
    partition = graph.find_distributed_partition(COMM, outputs)
    return partial(
        graph.execute_distributed_partition, partition, None, None, COMM, input_args=inputs
    )


def passed_on(node, tag, onto):
    """Send a node to the next rank, and receive the node of the previous rank."""
    held = graph.staple_distributed_send(node, NEXT, tag, onto)
    return held, graph.make_distributed_recv(LAST, tag, node.shape, node.dtype)


def same(values):
    return values


def chain(nodes):
    x = graph.make_placeholder("x", ())
    node: graph.Array = x
    for _ in range(nodes):
        node = graph.Call(same, (node,), {}, (), x.dtype)
    return prepare({"y": node}, x=0.0)


def messages(count, points):
    x = graph.make_placeholder("x", points)
    node: graph.Array = x
    for tag in range(count):
        held, got = passed_on(node, tag, x)
        node = graph.Call(np.add, (got, held), {}, x.shape, x.dtype)
    return prepare({"y": node}, x=np.zeros(points))


def at_once(count):
    """Send and receive many messages that do not wait for each other."""
    x = graph.make_placeholder("x", 2)
    held: graph.Array = x
    received = []
    for tag in range(count):
        held, got = passed_on(x, tag, held)
        received.append(got)
    last = graph.Call(lambda *values: values[0], (held, *received), {}, x.shape, x.dtype)
    return prepare({"y": last}, x=np.zeros(2))


def messages_by_hand(count, points):
    x = np.zeros(points)
    comm = COMM.Dup()

    def run():
        node = x
        for tag in range(count):
            got = np.empty(points)
            requests = [comm.Irecv(got, LAST, tag), comm.Isend(node, NEXT, tag)]
            MPI.Request.Waitall(requests)
            node = np.add(got, x)

    return run


def hiding(seconds, share, pieces=20):
    """Receive a late message of the next rank, while this rank computes something else."""

    def late(values):
        sleep(seconds)
        return values

    def work(values):
        end = perf_counter() + share * seconds / pieces
        while perf_counter() < end:
            pass
        return values

    x = graph.make_placeholder("x", 1000)
    sends, receives = COMM.rank % 2 == 0, COMM.rank % 2 == 1
    held, got = passed_on(graph.call(late, x) if sends else x, "late", x)
    node: graph.Array = x
    for _ in range(pieces if receives and share else 0):
        node = graph.call(work, node)
    return prepare({"y": node + held + got}, x=np.zeros(1000))


def main():
    parser = argparse.ArgumentParser(description="Time graphs.")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument(
        "--late", type=float, default=0.1, help="seconds by which a message is late"
    )
    args = parser.parse_args()

    (took,) = time_in_turn(COMM, [chain(args.nodes)], args.repeat)
    print_on_root(f"a node costs {1e6 * took / args.nodes:.2f} us beyond its function")

    for points in (1, 1000, 100_000):
        calls = [messages(200, points), messages_by_hand(200, points)]
        ours, by_hand = (1e6 * t / 200 for t in time_in_turn(COMM, calls, args.repeat))
        print_on_root(
            f"a message of {8 * points} bytes takes {ours:.1f} us, by hand {by_hand:.1f} us"
        )

    for count in (500, 8000):
        (took,) = time_in_turn(COMM, [at_once(count)], args.repeat)
        print_on_root(f"one of {count} messages at once takes {1e6 * took / count:.1f} us")

    calls = [hiding(args.late, 0), hiding(args.late, 0.9)]
    message, both = time_in_turn(COMM, calls, args.repeat)
    print_on_root(
        f"a message alone takes {1e3 * message:.1f} ms, with 0.9 times as much work beside it"
    )
    print_on_root(
        f"{1e3 * both:.1f} ms: {both / message:.3f} of the longer one, 1.9 one after the other"
    )


if __name__ == "__main__":
    main()
