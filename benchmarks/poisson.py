"""Time Poisson solves against the same steps written with mpi4py-fft and SciPy, in one run.

    mpiexec -n 2 python -m mpi4py benchmarks/poisson.py
    mpiexec -n 4 python -m mpi4py benchmarks/poisson.py --points 128 --repeat 15

Both solve the same systems of second differences, and the largest difference of their solutions is
shown. Cases are timed in turn, and a sample is the time of the slowest rank. The table shows
medians, and the median of the ratios of samples of one turn: only these are comparable between
machines. What the other side divides by, and the matrices that it has factorized, are stored.
"""

import argparse
from functools import partial
from importlib import import_module
from statistics import median

import numpy as np
from mpi4py import MPI
from mpi4py_fft import PFFT, fftw, newDistArray
from scipy.linalg.lapack import zgttrf, zgttrs

import pencils
from pencils.solvers import Poisson

timing = import_module("timing")
COMM = timing.COMM
GOAL = 1.5


def eigenvalues(n, h, kind):
    """Return those of the second difference: of "c2c", "r2c", or of cosines between walls."""
    counted = {"c2c": np.fft.fftfreq(n, 1 / n), "r2c": np.arange(n // 2 + 1)}.get(kind)
    angles = np.pi * np.arange(n) / (2 * n) if counted is None else np.pi * counted / n
    return -((2 / h * np.sin(angles)) ** 2)


def divided(fft, kinds, h):
    """Solve by a division between transforms along all axes."""
    n = fft.global_shape(forward_output=False)[0]
    along = [eigenvalues(n, h, kind) for kind in kinds]
    cut = fft.local_slice(forward_output=True)
    parts = [values[part] for values, part in zip(along, cut, strict=True)]
    total = parts[0][:, None, None] + parts[1][:, None] + parts[2]
    factors = np.divide(1.0, total, out=np.zeros_like(total), where=total != 0)
    waves, u = (newDistArray(fft, forward_output=way) for way in (True, False))

    def solve(f):
        fft.forward(f, waves)
        np.multiply(waves, factors, out=waves)
        return fft.backward(waves, u)

    return solve


def periodic(n):
    h = 2 * np.pi / n
    fft = PFFT(COMM, (n, n, n), dtype=float, slab=True)
    return fft, divided(fft, ("c2c", "c2c", "r2c"), h), h, "periodic"


def walls(n):
    transforms = partial(fftw.dctn, type=2), partial(fftw.idctn, type=2)
    axes = ((0,), (1, 2))
    fft = PFFT(COMM, (n, n, n), axes, float, transforms=dict.fromkeys(axes, transforms), slab=True)
    return fft, divided(fft, ("dct", "dct", "dct"), 1 / n), 1 / n, "neumann"


def channel(n):
    """Solve by one call of LAPACK, for all lines of waves one after the other, between walls."""
    h, faces = 2 * np.pi / n, 1 + np.tanh(1.5 * np.linspace(-1, 1, n + 1)) / np.tanh(1.5)
    fft = PFFT(COMM, (n, n, n), axes=(0, 1), dtype=float, grid=(-1, 1, 1))
    cut = fft.local_slice(forward_output=True)
    kx, ky = (
        eigenvalues(n, h, kind)[part] for kind, part in zip(("c2c", "r2c"), cut, strict=False)
    )
    heights, gaps = np.diff(faces), np.diff((faces[1:] + faces[:-1]) / 2)
    flux = np.concatenate([[0], 1 / gaps, [0]])
    lower, upper = flux[:-1] / heights, flux[1:] / heights
    main = (kx[:, None, None] + ky[:, None]) - (lower + upper)
    lower, upper = (np.broadcast_to(each, main.shape).copy() for each in (lower, upper))
    if cut[0].start == cut[1].start == 0:  # the last point of the first line is 0
        lower[0, 0, -1], main[0, 0, -1] = 0, 1
    factors = zgttrf(lower.ravel()[1:], main.ravel(), upper.ravel()[:-1])
    waves, u = (newDistArray(fft, forward_output=way) for way in (True, False))
    means = np.diff(faces) / np.ptp(faces)

    def solve(f):
        fft.forward(f, waves)
        if cut[0].start == cut[1].start == 0:
            waves[0, 0, -1] = 0
        solved, _ = zgttrs(*factors[:-1], waves.reshape(-1, 1), overwrite_b=True)
        waves[...] = solved.reshape(waves.shape)
        if cut[0].start == cut[1].start == 0:
            waves[0, 0] -= (waves[0, 0] * means).sum()
        return fft.backward(waves, u)

    return fft, solve, (h, h, faces), ("periodic", "periodic", "neumann")


def compare(name, case, n, repeat, *, best):
    """Print one row. *Collective*."""
    fft, solve, spacing, boundary = case(n)
    f = newDistArray(fft, forward_output=False)
    pencil = pencils.Pencil((n, n, n), decomp=0)
    assert pencil.local_slices == fft.local_slice(forward_output=False)
    right = pencils.random.uniform(pencil, rng=1)
    volumes = 1.0 if isinstance(spacing, float) else np.diff(spacing[-1])
    right -= (right * volumes).mean() / np.mean(volumes)
    f[...] = right.local
    u = pencils.empty(pencil)
    with Poisson(pencil, spacing, boundary=boundary) as plan:
        calls = {"pencils": partial(plan, right, out=u), "peer": partial(solve, f)}
        found = timing.in_turn(calls, repeat)
        apart = abs(plan(right).local - np.asarray(solve(f))).max() / abs(u).max()
    apart = COMM.allreduce(apart, op=MPI.MAX)
    ours, other = (1e3 * (min if best else median)(found[key]) for key in ("pencils", "peer"))
    ratio = (
        other / ours
        if best
        else median(b / a for a, b in zip(found["pencils"], found["peer"], strict=True))
    )
    miss = "" if ratio >= GOAL else "  miss"
    timing.print_on_root(
        f"  {name:28}{ours:9.2f}{other:9.2f}{ratio:8.2f}  >= {GOAL}{miss:6}   {apart:.1e}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=128, help="points along each axis")
    parser.add_argument("--repeat", type=int, default=9, help="samples")
    parser.add_argument("--best", action="store_true", help="compare the best, on a busy machine")
    options = parser.parse_args()
    n = options.points
    timing.print_on_root(
        f"{n}^3 on {COMM.size} ranks, ms\n"
        f"  {'case':28}{'pencils':>9}{'peer':>9}{'ratio':>8}    goal     difference"
    )
    for name, case in (
        ("periodic box", periodic),
        ("box between walls", walls),
        ("channel, stretched grid", channel),
    ):
        compare(name, case, n, options.repeat, best=options.best)


if __name__ == "__main__":
    main()
