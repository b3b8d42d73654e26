"""Time the arithmetic of layouts of 10³ to 10⁶ ranks: ``python benchmarks/layout.py``.

Each number is the median of several runs, for one rank in the middle of the grid: construct the
layout (and choose its grid), compute a box, the owner of an index, and the schedules of the rank to
the same layout and to one in which another dimension is decomposed instead of the last one (a
transpose). The last column is the number of messages of that transpose.
"""

from statistics import median
from time import perf_counter

from pencils.layout import build_layout, redistribution

RUNS = 21
CASES = {
    # name: shape, decomposed dimensions, those of the layout to transpose to
    "3-D pencils": ((4096, 4096, 4096), (0, 1), (0, 2)),
    "3-D blocks": ((4096, 4096, 4096), (0, 1, 2), (0, 2, 1)),
    "1-D, 1000 points": ((1000,), (0,), (0,)),
}


def microseconds(function, *args):
    """Return the median time of a call."""
    times = []
    for _ in range(RUNS):
        start = perf_counter()
        function(*args)
        times.append(perf_counter() - start)
    return 1e6 * median(times)


def row(shape, ranks, decomp, other):
    """Time one layout."""
    layout = build_layout(shape, ranks, decomp=decomp)
    target = build_layout(shape, ranks, decomp=other, grid=layout.grid.shape)
    rank = ranks // 2
    index = [n // 2 for n in shape]
    return (
        "×".join(map(str, layout.grid.shape)),
        microseconds(lambda: build_layout(shape, ranks, decomp=decomp)),
        microseconds(layout.box, rank),
        microseconds(layout.owner, index),
        microseconds(redistribution, layout, layout, rank, rank),
        microseconds(redistribution, layout, target, rank, rank),
        len(redistribution(layout, target, rank, rank)[0]),
    )


def main():
    """Print the table."""
    print(f"median of {RUNS} runs, in microseconds")
    names = ("construct", "box", "owner", "to itself", "transpose", "messages")
    print(f"{'case':<17}{'ranks':>8}  {'grid':<12}", *(f"{name:>10}" for name in names))
    for case, (shape, decomp, other) in CASES.items():
        for ranks in (10**3, 10**4, 10**5, 10**6):
            grid, *times, messages = row(shape, ranks, decomp, other)
            figures = (f"{time:10.1f}" for time in times)
            print(f"{case:<17}{ranks:>8}  {grid:<12}", *figures, f"{messages:>10}")


if __name__ == "__main__":
    main()
