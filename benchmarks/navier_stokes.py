"""Time of a Navier-Stokes step: the demo of pencils against the same solver on mpi4py-fft.

mpiexec -n 4 python -m mpi4py benchmarks/navier_stokes.py --n 128

Both are written with NumPy expressions, make the same Runge-Kutta steps, and end with the same
energy. mpi4py-fft transforms one component at a time by FFTW; the demo three at once, by SciPy and
by the same FFTW. Steps of both alternate. Times are the shortest ones, ratios medians of pairs.
"""

import argparse
import statistics
import sys
import time

import numpy as np
from mpi4py import MPI

from pencils.tools import demo

VISCOSITY = 0.000625
PEER = "mpi4py-fft"


class WithPencils:
    def __init__(self, n, backend):
        self.flow = demo.NavierStokes(n, VISCOSITY, backend)
        self.u_hat = self.flow.start(demo.taylor_green(self.flow.fft.input_pencil))

    def step(self, dt):
        self.u_hat = self.flow.step(self.u_hat, dt)

    def energy(self):
        return self.flow.energy(self.u_hat)


class WithMpi4pyFFT:
    """The solver in the documentation of mpi4py-fft, with the 2/3 rule and in rotational form."""

    def __init__(self, n):
        from mpi4py_fft import PFFT, newDistArray

        self.n = n
        self.fft = PFFT(MPI.COMM_WORLD, [n] * 3, dtype=float, collapse=False)
        self.u, self.w = (newDistArray(self.fft, forward_output=False, rank=1) for _ in range(2))
        self.u_hat, self.rate_hat, self.old, self.sum = (
            newDistArray(self.fft, forward_output=True, rank=1) for _ in range(4)
        )
        points = [np.arange(n) * 2 * np.pi / n] * 3
        x, y, z = np.ix_(*self.cut(points, self.fft.local_slice(forward_output=False)))
        self.u[0] = np.sin(x) * np.cos(y) * np.cos(z)
        self.u[1] = -np.cos(x) * np.sin(y) * np.cos(z)
        self.u[2] = 0
        waves = [np.fft.fftfreq(n, 1 / n)] * 2 + [np.fft.rfftfreq(n, 1 / n)]
        k = np.ix_(*self.cut(waves, self.fft.local_slice(forward_output=True)))
        self.k = np.array(np.broadcast_arrays(*k)).astype(float)
        self.k2 = (self.k**2).sum(axis=0)
        self.k_over_k2 = self.k / np.where(self.k2 == 0, 1, self.k2)
        self.kept = (abs(self.k) < n / 3).all(axis=0)
        self.forward(self.u, self.u_hat)

    @staticmethod
    def cut(axes, slices):
        return [axis[part] for axis, part in zip(axes, slices, strict=True)]

    def forward(self, u, u_hat):
        for i in range(3):
            self.fft.forward(u[i], u_hat[i])

    def backward(self, u_hat, u):
        for i in range(3):
            self.fft.backward(u_hat[i], u[i])

    def cross(self, a, b, out):
        out[0] = a[1] * b[2] - a[2] * b[1]
        out[1] = a[2] * b[0] - a[0] * b[2]
        out[2] = a[0] * b[1] - a[1] * b[0]
        return out

    def set_rate(self):
        rate = self.rate_hat
        self.backward(self.u_hat, self.u)
        self.cross(self.k, self.u_hat, rate)
        rate *= 1j
        self.backward(rate, self.w)
        self.forward(self.cross(self.u, self.w, np.empty_like(self.u)), rate)
        rate *= self.kept
        rate -= np.sum(rate * self.k_over_k2, axis=0) * self.k
        rate -= VISCOSITY * self.k2 * self.u_hat

    def step(self, dt):
        self.old[:] = self.sum[:] = self.u_hat
        for weight, stage in zip((1 / 6, 1 / 3, 1 / 3, 1 / 6), (0.5, 0.5, 1, 0), strict=True):
            self.set_rate()
            self.u_hat[:] = self.old + stage * dt * self.rate_hat
            self.sum += weight * dt * self.rate_hat
        self.u_hat[:] = self.sum

    def energy(self):
        self.backward(self.u_hat, self.u)
        return MPI.COMM_WORLD.allreduce(np.vdot(self.u, self.u)) / self.n**3 / 2


def timed(solver):
    MPI.COMM_WORLD.barrier()
    start = time.perf_counter()
    solver.step(0.001)
    MPI.COMM_WORLD.barrier()
    return MPI.COMM_WORLD.bcast(time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=64, help="points along each dimension")
    parser.add_argument("--steps", type=int, default=5, help="steps that are timed")
    args = parser.parse_args()
    solvers: dict[str, WithPencils | WithMpi4pyFFT] = {
        "pencils, scipy": WithPencils(args.n, "scipy")
    }
    try:
        solvers[PEER] = WithMpi4pyFFT(args.n)
        solvers["pencils, fftw"] = WithPencils(args.n, "fftw")
    except ImportError:
        if MPI.COMM_WORLD.rank == 0:
            print("mpi4py-fft is not installed: nothing to compare with", file=sys.stderr)
    times: dict[str, list[float]] = {name: [] for name in solvers}
    for _ in range(args.steps + 1):
        for name, solver in solvers.items():
            times[name].append(timed(solver))
    energies = {name: solver.energy() for name, solver in solvers.items()}
    if MPI.COMM_WORLD.rank > 0:
        return
    print(f"{args.n}^3 points on {MPI.COMM_WORLD.size} processes")
    for name, seconds in times.items():
        line = f"{name:<14} {min(seconds[1:]):8.4f} s per step, energy {energies[name]:.12g}"
        pairs = zip(times.get(PEER, ())[1:], seconds[1:], strict=False)
        ratios = [other / one for other, one in pairs]
        print(line + (f", {statistics.median(ratios):.2f} times as fast" if ratios else ""))


if __name__ == "__main__":
    main()
