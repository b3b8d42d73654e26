"""Time the overhead of fields over NumPy: microseconds per call on small blocks.

    python benchmarks/overhead.py [points per dimension]
    mpiexec -n 2 python -m mpi4py benchmarks/overhead.py 16

The table shows medians over many calls, for fields and for the same operation on ``u.local``.
Reductions are collective: on several ranks their time includes the communication.
"""

import sys
from statistics import median
from time import perf_counter

import numpy as np

import pencils

REPEATS, CALLS = 41, 100


def time_call(call):
    """Return microseconds per call, the median of many rounds."""
    rounds = []
    for _ in range(REPEATS):
        start = perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((perf_counter() - start) / CALLS * 1e6)
    return median(rounds)


def main(points):
    pencil = pencils.Pencil((points,) * 3)
    u, v = pencils.random.normal(pencil, 1), pencils.random.normal(pencil, 2)
    w = u.copy()
    a, b, c = u.local, v.local, w.local.copy()
    pairs = {
        "u + v": (lambda: u + v, lambda: a + b),
        "u + 1.0": (lambda: u + 1.0, lambda: a + 1.0),
        "u**2": (lambda: u**2, lambda: a**2),
        "w += v": (lambda: w.__iadd__(v), lambda: c.__iadd__(b)),
        "np.where(u > 0, u, v)": (
            lambda: np.where(u > 0, u, v),
            lambda: np.where(a > 0, a, b),
        ),
        "u[...]": (lambda: u[...], lambda: a[...]),
        "u[1:-1, 0]": (lambda: u[1:-1, 0], lambda: a[1:-1, 0]),
        "u[0] = 1.0": (lambda: u.__setitem__(0, 1.0), lambda: a.__setitem__(0, 1.0)),
        "u.sum()": (u.sum, a.sum),
        "u.max()": (u.max, a.max),
        "u.mean(axis=0)": (lambda: u.mean(axis=0), lambda: a.mean(axis=0)),
    }
    times = {name: (time_call(field), time_call(block)) for name, (field, block) in pairs.items()}
    if pencil.rank == 0:
        print(f"blocks of {u.local_shape} on {pencil.size} ranks, microseconds per call")
        print(f"{'':24}{'field':>10}{'u.local':>10}{'overhead':>10}")
        for name, (field, block) in times.items():
            print(f"{name:24}{field:10.2f}{block:10.2f}{field - block:10.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 16)
