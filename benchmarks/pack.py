"""Time strided copies against numpy.copyto of the same bytes, by all ranks at once.

    mpiexec -n 2 python -m mpi4py benchmarks/pack.py --megabytes 64 --repeat 11

Implementations and the limit, contiguous arrays copied by NumPy, run in turn, and a sample is the
time of the slowest rank. The table shows medians as ratios to the limit. Only ratios are comparable
between machines.
"""

import argparse
from collections.abc import Callable
from functools import partial
from importlib import import_module
from statistics import median

import numpy as np

from pencils.comm import pack

timing = import_module("timing")
COMM = timing.COMM
ORDERS = [(0, 2, 1), (2, 1, 0), (2, 0, 1), (1, 2, 0), (1, 0, 2)]


def touched(shape):
    """Return an array whose pages of memory are in use already."""
    array = np.empty(shape)
    array.fill(1)
    return array


def run_cases(nbytes):
    """Yield copies of every second run out of an array, or into it."""
    for run in (16, 32, 64, 128, 256, 1024, 4096, 1 << 18):
        dense, sparse = touched((nbytes // run, run // 8)), touched((nbytes // run, 2, run // 8))
        yield f"take runs of {run} B", dense, sparse[:, 1]
        if run in {64, 1024}:
            yield f"put runs of {run} B", sparse[:, 1], dense


def order_cases(nbytes):
    """Yield copies that change the memory order of blocks, of powers of two and of odd sizes."""
    side = round((nbytes / 8) ** (1 / 3)) | 1
    for shape in ((nbytes // 8 >> 16, 256, 256), (side, side + 2, side - 2)):
        source = touched(shape)
        for order in ORDERS:
            target = touched([shape[axis] for axis in order])
            yield f"{'x'.join(map(str, shape))} to {order}", target, source.transpose(order)


def measure(target, source, repeat):
    """Return the median times of the limit and of each implementation, in seconds."""
    here, there = touched(target.size), touched(target.size)
    runs: dict[str, Callable[[], object]] = {
        "limit": partial(np.copyto, there, here),
        "copyto": partial(np.copyto, target, source),
    }
    for name in pack.available():
        with pack.using(name):
            runs[name] = pack.prepare_copies([(target, source)])
    times = timing.in_turn(runs, repeat)
    return {name: median(samples) for name, samples in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=16, help="size of each target, per rank")
    parser.add_argument("--repeat", type=int, default=7, help="samples of each case")
    options = parser.parse_args()
    nbytes = options.megabytes << 20
    names = ["copyto", *pack.available()]
    if COMM.rank == 0:
        print(f"{options.megabytes} MiB on each of {COMM.size} ranks, time / limit")
        print(f"{'':28}{'limit':>10}" + "".join(f"{name:>10}" for name in names))
    for cases in (run_cases(nbytes), order_cases(nbytes)):
        for what, target, source in cases:
            times = measure(target, source, options.repeat)
            limit = times.pop("limit")
            if COMM.rank == 0:
                ratios = "".join(f"{times[name] / limit:10.2f}" for name in names)
                print(f"{what:28}{1e3 * limit:7.2f} ms{ratios}", flush=True)


if __name__ == "__main__":
    main()
