"""Time restriction and prolongation against reading and writing the fine field, in one run.

    mpiexec -n 2 python -m mpi4py benchmarks/levels.py
    mpiexec -n 2 python -m mpi4py benchmarks/levels.py --n 32 --repeat 200

All cases run in turn, and a sample is the time of the slowest rank. The table shows the best sample
in units of the floor: to read the fine field by ``sum`` and to copy the coarse one; or to read the
coarse field and to write the fine one by ``fill``, or to add a number to it. `plain` are steps of
NumPy for the own block. Only ratios are comparable between machines.
"""

import argparse
from functools import partial
from importlib import import_module

import numpy as np

import pencils
from pencils.solvers import prolong, restrict

timing = import_module("timing")
GOALS = {"restrict average": 1.3, "restrict full": 1.3}


def floors(fine, coarse):
    copy = np.empty_like(coarse.local)

    def read_fine():
        fine.local.sum()
        np.copyto(copy, coarse.local)

    def write_fine():
        coarse.local.sum()
        fine.local.fill(1)

    def add_fine():
        coarse.local.sum()
        np.add(fine.local, 1, out=fine.local)

    return {"restrict": read_fine, "prolong": write_fine, "add": add_fine}


def plain_mean(fine, coarse):
    """Average as users of NumPy write it."""
    shape = [n for extent in coarse.local_shape for n in (extent, 2)]
    np.mean(fine.local.reshape(shape), axis=(1, 3, 5), out=coarse.local)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=256, help="points along each dimension")
    parser.add_argument("--repeat", type=int, default=15, help="samples of each case")
    options = parser.parse_args()
    pencil = pencils.Pencil((options.n,) * 3)
    level = pencil.coarsen(least=0)
    fine, coarse = pencils.ones(pencil), pencils.ones(level)
    cases = {f"floor of {name}": call for name, call in floors(fine, coarse).items()}
    cases["restrict plain"] = partial(plain_mean, fine, coarse)
    for method in ("average", "injection", "full"):
        cases[f"restrict {method}"] = partial(restrict, fine, level, method=method, out=coarse)
    for method in ("constant", "linear", "cubic"):
        call = partial(prolong, coarse, pencil, method=method, out=fine)
        cases[f"prolong {method}"] = call
        cases[f"add {method}"] = partial(call, add=True)
    samples = timing.in_turn(cases, options.repeat)
    timing.print_on_root(f"{options.n}^3 float64 on {timing.COMM.size} ranks")
    timing.print_on_root(f"  {'case':24}{'ms':>9}{'ratio':>8}{'goal':>9}")
    for name, seconds in samples.items():
        ratio = min(seconds) / min(samples[f"floor of {name.removeprefix('floor of ').split()[0]}"])
        aim = f"<= {GOALS[name]:.2f}" if name in GOALS else ""
        timing.print_on_root(f"  {name:24}{1e3 * min(seconds):9.3f}{ratio:8.2f}{aim:>9}")


if __name__ == "__main__":
    main()
