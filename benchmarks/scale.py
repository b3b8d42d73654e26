"""What one rank of 10² to 10⁶ computes and holds, without MPI: ``python benchmarks/scale.py``.

Each time is the median of several runs, for one rank in the middle of the grid. The columns are
microseconds to make the layout of a cube and to choose its process grid, and the bytes that it
holds; then microseconds, number and bytes of the messages of a transpose (between pencils, or from
blocks to pencils) and of a halo of width 1 with corners; and microseconds to find the own part of a
section of which every other point is left out.

The second table is what `find_distributed_partition` does on every rank, which gathers a report of
each rank: graphs of three fields, each with two messages from and to two neighbours.
"""

import argparse
import pickle
import tracemalloc
from statistics import median
from time import perf_counter

import numpy as np

from pencils.graph.array import Array
from pencils.graph.find import RankGraph
from pencils.graph.messages import make_distributed_recv, make_placeholder, staple_distributed_send
from pencils.graph.verify import order_messages
from pencils.layout import build_layout, redistribution
from pencils.layout.halo import direct, exchange

RUNS = 11
POINTS = 4096  # along each dimension of a cube of float64
CASES = {
    # name: decomposed dimensions, those of the layout to transpose to
    "pencils": ((0, 1), (0, 2)),
    "blocks": ((0, 1, 2), (0, 1)),
}
RANKS = (10**2, 10**3, 10**4, 10**5, 10**6)
REPORTS = (10, 100, 1000, 10000)


def microseconds(function, *args):
    """Return the median time of a call."""
    times = []
    for _ in range(RUNS):
        start = perf_counter()
        function(*args)
        times.append(perf_counter() - start)
    return 1e6 * median(times)


def held(function, *args):
    """Return the bytes that the result of a call holds."""
    tracemalloc.start()
    result = function(*args)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del result
    return size


def traffic(messages, rank):
    """Return the number of messages to other ranks, and their bytes."""
    boxes = [message.box for message in messages if message.dest != rank]
    return len(boxes), 8 * sum(box.volume for box in boxes)


def cube(ranks, decomp, other):
    """Measure one layout of a cube."""
    shape = (POINTS,) * 3

    def make():
        return build_layout(shape, ranks, decomp=decomp, periodic=True)

    layout, rank = make(), ranks // 2
    grid = layout.grid.shape if len(other) == len(decomp) else None
    target = build_layout(shape, ranks, decomp=other, grid=grid)
    widths, faces = [(1, 1)] * 3, direct(decomp)[0]
    every_other = [range(0, n, 2) for n in shape]
    sends, _ = redistribution(layout, target, rank, rank)
    ghosts, _ = exchange(layout, widths, rank, faces)
    return (
        "×".join(map(str, layout.grid.shape)),
        microseconds(make),
        held(make),
        microseconds(redistribution, layout, target, rank, rank),
        *traffic(sends, rank),
        microseconds(exchange, layout, widths, rank, faces),
        *traffic(ghosts, rank),
        microseconds(lambda: layout.section(every_other).box(rank)),
    )


def graph_of(rank, size):
    """Make the graph of one rank of a ring."""
    outputs = {}
    for name in "puv":
        u = make_placeholder(name, (8,))
        sums: Array = u
        for step in (1, size - 1):
            sums = staple_distributed_send(u, (rank + step) % size, (name, step), sums)
            sums += make_distributed_recv((rank - step) % size, (name, step), (8,), np.float64)
        outputs[name] = sums
    return RankGraph(outputs, rank, size)


def gathered(ranks):
    """Measure what each rank does with the reports of all."""
    reports = [graph_of(rank, ranks).report for rank in range(ranks)]
    data = [pickle.dumps(report) for report in reports]
    start = perf_counter()
    order_messages([pickle.loads(each) for each in data])
    return perf_counter() - start, sum(map(len, data))


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--reports", type=int, nargs="+", default=REPORTS)
    options = parser.parse_args()
    print(
        f"{POINTS}^3 float64, median of {RUNS} runs; microseconds, messages and bytes of one rank"
    )
    names = ("layout", "bytes", "transpose", "messages", "bytes", "halo", "messages", "bytes")
    print(f"{'case':<9}{'ranks':>8}  {'grid':<12}", *(f"{n:>11}" for n in (*names, "section")))
    for case, (decomp, other) in CASES.items():
        for ranks in options.ranks:
            grid, *figures = cube(ranks, decomp, other)
            print(f"{case:<9}{ranks:>8}  {grid:<12}", *(f"{figure:11.0f}" for figure in figures))
    print(f"\n{'ranks':>8}{'seconds':>10}{'bytes gathered':>16}  by find_distributed_partition")
    for ranks in options.reports:
        seconds, size = gathered(ranks)
        print(f"{ranks:>8}{seconds:>10.3f}{size:>16}")


if __name__ == "__main__":
    main()
