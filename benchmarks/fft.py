"""Time distributed FFTs, forward and backward, against mpi4py-fft in one run.

    mpiexec -n 4 python -m mpi4py benchmarks/fft.py --n 64 128 256
    mpiexec -n 2 python -m mpi4py benchmarks/fft.py --n 192 256 --complex
    python benchmarks/fft.py --fresh 5 --ranks 2 --n 192 256 --complex

Both transform the same values with the same FFTW; pencils with SciPy, too. Cases run in turn, and a
sample is the time of the slowest rank. The table shows medians, and the median ratio of pairs of
samples taken one after the other. Only ratios are comparable between machines.

FFTW measures when it plans, so that plans may differ from run to run. With ``--fresh``, which needs
no mpiexec, the script runs itself so many times, and the table shows for each case the medians of
all runs, and the largest divided by the smallest one.
"""

import argparse
import re
import subprocess
import sys
from functools import partial
from importlib import import_module
from statistics import median

import numpy as np

import pencils
from pencils.fft import PencilFFT

try:
    from mpi4py_fft import PFFT, newDistArray
except ImportError:
    PFFT = None

results = import_module("results")
timing = import_module("timing")
COMM = timing.COMM
print_on_root = timing.print_on_root


def there_and_back(forward, backward, u, u_hat):
    forward(u, u_hat)
    backward(u_hat, u)


def values(n, decomp, dtype):
    return pencils.random.uniform(pencils.Pencil((n,) * 3, decomp=decomp), rng=1).astype(dtype)


def ours(n, decomp, dtype, backend):
    u = values(n, decomp, dtype)
    plan = PencilFFT(u.pencil, dtype, backend=backend, check=False)
    u_hat = pencils.empty(plan.output_pencil, dtype=complex)
    return partial(there_and_back, plan.forward, plan.backward, u, u_hat), u.local


def theirs(n, decomp, dtype):
    slab = len(decomp) == 1
    fft = PFFT(COMM, [n] * 3, dtype=dtype, slab=slab)
    u, u_hat = newDistArray(fft, forward_output=False), newDistArray(fft, forward_output=True)
    u[...] = values(n, decomp, dtype).local
    return partial(there_and_back, fft.forward, fft.backward, u, u_hat), u


def compare(n, decomp, dtype, repeat):
    made = {"pencils, SciPy": ours(n, decomp, dtype, "scipy")}
    if PFFT is not None:
        made["pencils, FFTW"] = ours(n, decomp, dtype, "fftw")
        made["mpi4py-fft, FFTW"] = theirs(n, decomp, dtype)
    before = {name: field.copy() for name, (_, field) in made.items()}
    samples = timing.in_turn({name: call for name, (call, _) in made.items()}, repeat)
    for name, (_, field) in made.items():
        assert np.allclose(field, before[name], atol=1e-9)
    layout = "slabs" if len(decomp) == 1 else "pencils"
    kind = "" if dtype is float else "complex, "
    print_on_root(f"\n{n}^3 points, {kind}{layout}, on {COMM.size} ranks")
    peer = samples.get("mpi4py-fft, FFTW")
    for name, seconds in samples.items():
        shown = f"  {name:18}{1e3 * median(seconds):10.3f} ms{1e3 * min(seconds):10.3f} ms"
        if peer is not None:
            ratio = median(map(np.divide, peer, seconds))
            shown += f"{ratio:8.2f} x"
            if seconds is not peer:
                results.keep(f"{n}^3, {kind}{layout}: {name}", "mpi4py-fft, FFTW", ratio)
        print_on_root(shown)


def run_afresh(options):
    """Run this script several times, and print how far its medians lie apart."""
    command = ["mpiexec", "-n", str(options.ranks), sys.executable, "-m", "mpi4py", __file__]
    command += ["--repeat", str(options.repeat), "--n", *map(str, options.n)]
    command += ["--complex"] if options.complex else []
    medians: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.fresh):
        text, title = subprocess.run(command, capture_output=True, text=True, check=True).stdout, ""
        for line in text.splitlines():
            found = re.match(r"  (.{18}) *([0-9.]+) ms", line)
            if found is None:
                title = line
            else:
                medians.setdefault((title, found[1]), []).append(float(found[2]))
    for (title, name), runs in medians.items():
        shown = " ".join(f"{ms:9.3f}" for ms in runs)
        print(f"{title}: {name}{shown} ms, largest / smallest {max(runs) / min(runs):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[64, 128], help="points on each axis")
    parser.add_argument("--repeat", type=int, default=11, help="samples of each case")
    parser.add_argument("--complex", action="store_true", help="complex fields; default: real")
    parser.add_argument("--fresh", type=int, default=0, help="runs in processes of their own")
    parser.add_argument("--ranks", type=int, default=2, help="of each of these runs")
    options = parser.parse_args()
    if options.fresh:
        run_afresh(options)
        return
    print_on_root(
        "median and shortest time forward and backward, and how many times faster than mpi4py-fft"
    )
    for n in options.n:
        for decomp in ((0,), (0, 1)):
            compare(n, decomp, complex if options.complex else float, options.repeat)


if __name__ == "__main__":
    main()
