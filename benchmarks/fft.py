"""Time distributed FFTs of real fields, forward and backward, against mpi4py-fft in one run.

    mpiexec -n 4 python -m mpi4py benchmarks/fft.py --n 64 128 256

Both transform the same values with the same FFTW; pencils with SciPy, too. Cases run in turn, and a
sample is the time of the slowest rank. The table shows medians, and the median ratio of pairs of
samples taken one after the other. Only ratios are comparable between machines.
"""

import argparse
from functools import partial
from importlib import import_module
from statistics import median
from time import perf_counter

import numpy as np
from mpi4py import MPI

import pencils
from pencils.fft import PencilFFT

try:
    from mpi4py_fft import PFFT, newDistArray
except ImportError:
    PFFT = None

results = import_module("results")
COMM = MPI.COMM_WORLD


def print_on_root(*values):
    if COMM.rank == 0:
        print(*values, flush=True)


def there_and_back(forward, backward, u, u_hat):
    forward(u, u_hat)
    backward(u_hat, u)


def ours(n, decomp, backend):
    pen = pencils.Pencil((n, n, n), decomp=decomp)
    plan = PencilFFT(pen, float, backend=backend, check=False)
    u, u_hat = pencils.random.uniform(pen, rng=1), pencils.empty(plan.output_pencil, dtype=complex)
    return partial(there_and_back, plan.forward, plan.backward, u, u_hat), u.local


def theirs(n, decomp):
    slab = len(decomp) == 1
    fft = PFFT(COMM, [n] * 3, dtype=float, slab=slab)
    u, u_hat = newDistArray(fft, forward_output=False), newDistArray(fft, forward_output=True)
    u[...] = pencils.random.uniform(pencils.Pencil((n, n, n), decomp=decomp), rng=1).local
    return partial(there_and_back, fft.forward, fft.backward, u, u_hat), u


def slowest(call):
    COMM.Barrier()
    start = perf_counter()
    call()
    return COMM.allreduce(perf_counter() - start, op=MPI.MAX)


def compare(n, decomp, repeat):
    made = {"pencils, SciPy": ours(n, decomp, "scipy")}
    if PFFT is not None:
        made["pencils, FFTW"] = ours(n, decomp, "fftw")
        made["mpi4py-fft, FFTW"] = theirs(n, decomp)
    before = {name: field.copy() for name, (_, field) in made.items()}
    samples: dict[str, list[float]] = {name: [] for name in made}
    for sample in range(repeat + 1):
        for name, (call, _) in made.items():
            seconds = slowest(call)
            if sample:
                samples[name].append(seconds)
    for name, (_, field) in made.items():
        assert np.allclose(field, before[name], atol=1e-9)
    layout = "slabs" if len(decomp) == 1 else "pencils"
    print_on_root(f"\n{n}^3 points, {layout}, on {COMM.size} ranks")
    peer = samples.get("mpi4py-fft, FFTW")
    for name, seconds in samples.items():
        shown = f"  {name:18}{1e3 * median(seconds):10.3f} ms{1e3 * min(seconds):10.3f} ms"
        if peer is not None:
            ratio = median(map(np.divide, peer, seconds))
            shown += f"{ratio:8.2f} x"
            if seconds is not peer:
                results.keep(f"{n}^3, {layout}: {name}", "mpi4py-fft, FFTW", ratio)
        print_on_root(shown)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[64, 128], help="points on each axis")
    parser.add_argument("--repeat", type=int, default=11, help="samples of each case")
    options = parser.parse_args()
    print_on_root(
        "median and shortest time forward and backward, and how many times faster than mpi4py-fft"
    )
    for n in options.n:
        for decomp in ((0,), (0, 1)):
            compare(n, decomp, options.repeat)


if __name__ == "__main__":
    main()
