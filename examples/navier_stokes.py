"""Incompressible flow in a periodic box: a pseudo-spectral solver of the Navier-Stokes equations.

Run it on any number of processes, then continue from its checkpoint on another number of them::

    mpiexec -n 4 python -m pencils run examples/navier_stokes.py --n 64 --checkpoint flow.h5
    mpiexec -n 3 python -m pencils run examples/navier_stokes.py --n 64 --restart flow.h5 --time 0.2

The result has the same bits as that of an uninterrupted run, if no dimension has more processes
than waves. It also runs without mpiexec, and as ``python -m pencils demo``. The flow is the
Taylor-Green vortex, or that in the file ``--input``. In Fourier space, with vorticity ω = ∇ × u and
wave vector k,

    dû/dt = P (u × ω)^ - ν k² û,        P f = f - k (k · f) / k².

Products are computed at grid points, and their waves beyond n/3 are removed (the 2/3 rule). The
projection P makes the flow incompressible, as the pressure does. Time steps are those of the
classical Runge-Kutta method. Every field is a PencilArray; only transforms and sums communicate.
"""

from __future__ import annotations

import argparse
import sys
from math import inf
from typing import Any

import numpy as np

import pencils
from pencils import Pencil, PencilArray, empty, errors
from pencils.fft import PencilFFT
from pencils.io.load import open_on_root
from pencils.io.save import check_target

try:
    from tqdm import tqdm
except ImportError:  # no progress bar, then
    tqdm = None

Vector = Any  # three components: a field, or a list of fields


class NavierStokes:
    """The equations on n³ points, for the waves û of the velocity."""

    def __init__(self, n: int, viscosity: float, backend: str = "scipy", comm: Any = None) -> None:
        # Not the backend "auto": it measures, and may choose another library on another number of
        # processes, which rounds differently.
        self.fft = PencilFFT(cube(n, comm), components=3, dealias="2/3", backend=backend)
        kx, ky, kz = self.fft.wavenumbers()
        k2 = sum(k**2 for k in self.fft.wavenumbers(nyquist="keep"))
        self.ik = [1j * k for k in (kx, ky, kz)]
        self.inverse_k2 = 1 / np.where(k2 == 0, 1, k2)
        self.damping = viscosity * k2
        # Contribution of |û|² to the mean of |u|²; waves with kz > 0 also count for those with -kz.
        self.weight = np.where(kz == 0, 1, 2) / n**6
        self.u, self.omega = (empty(self.fft.input_pencil, components=3) for _ in range(2))
        self.waves = empty(self.fft.output_pencil, dtype=complex, components=3)

    def start(self, u: PencilArray) -> PencilArray:
        """Return the waves of the resolved and divergence-free part of a velocity field."""
        f = self.fft.forward(u)
        project(f, self.ik, self.inverse_k2, out=f.unstack())
        return f

    def force(self, u_hat: PencilArray) -> PencilArray:
        """Return the waves of u × ω, in memory that the next call overwrites."""
        u = self.fft.backward(u_hat, out=self.u)
        omega = self.fft.backward(self.curl(u_hat), out=self.omega)
        cross(u, omega, out=u.unstack())
        return self.fft.forward(u, out=self.waves)

    def curl(self, u_hat: PencilArray) -> PencilArray:
        """Return the waves ik × û of the vorticity, in the same memory."""
        cross(self.ik, u_hat, out=self.waves.unstack())
        return self.waves

    def step(self, u_hat: PencilArray, dt: float) -> PencilArray:
        """Return the waves after a time step of the classical Runge-Kutta method."""
        after, stage = u_hat.copy(), u_hat.copy()
        waves, terms = (u_hat, stage, after), (self.ik, self.inverse_k2, self.damping)
        # Weight of each slope, and the time after û at which the next slope is computed.
        for weight, ahead in ((dt / 6, dt / 2), (dt / 3, dt / 2), (dt / 3, dt), (dt / 6, 0.0)):
            advance(self.force(stage), waves, terms, weight, ahead)
        return after

    def energy(self, u_hat: PencilArray) -> float:
        """Return the mean of |u|²/2, by Parseval's theorem."""
        return float((self.weight * (u_hat.real**2 + u_hat.imag**2)).sum()) / 2

    def dissipation(self, u_hat: PencilArray) -> float:
        """Return the mean of ν|ω|², the rate at which energy is lost."""
        return float((self.damping * self.weight * (u_hat.real**2 + u_hat.imag**2)).sum())


@pencils.fused
def cross(a: Vector, b: Vector) -> Vector:
    """Return the three components of a × b."""
    return [a[j] * b[k] - a[k] * b[j] for j, k in ((1, 2), (2, 0), (0, 1))]


@pencils.fused
def project(f: Vector, ik: Vector, inverse_k2: PencilArray) -> Vector:
    """Return the components of f without the part that the pressure balances, k (k · f) / k²."""
    pressure = (ik[0] * f[0] + ik[1] * f[1] + ik[2] * f[2]) * inverse_k2
    return [f[i] + ik[i] * pressure for i in range(3)]


@pencils.fused
def advance(force: PencilArray, waves: Any, terms: Any, weight: float, ahead: float) -> None:
    """Add the slope dû/dt of a stage to the waves after the step, and compute the next stage."""
    start, stage, after = waves
    ik, inverse_k2, damping = terms
    for i, f in enumerate(project(force, ik, inverse_k2)):
        slope = f - damping * stage[i]
        after[i] += weight * slope
        stage[i] = ahead * slope + start[i]


def taylor_green(pencil: Pencil) -> PencilArray:
    """Return the velocity of the Taylor-Green vortex."""
    n = pencil.shape[0]
    x, y, z = pencils.localgrid(pencil, [np.arange(n) * 2 * np.pi / n] * 3)
    u = pencils.zeros(pencil, components=3)
    u[0] = np.sin(x) * np.cos(y) * np.cos(z)
    u[1] = -np.cos(x) * np.sin(y) * np.cos(z)
    return u


def cube(n: int, comm: Any = None) -> Pencil:
    """Return a pencil of n³ points, with whole lines along z on each process."""
    return Pencil((n, n, n), comm, decomp=(0, 1))


def check(path: str, shape: tuple[int, ...], dtype: np.dtype[Any], n: int) -> None:
    """Check that the array in a file is a velocity on n³ points."""
    if n < 1 or shape != (3, n, n, n) or dtype.kind not in "fiu":
        raise errors.PencilsError(
            f"{path} has {dtype} of shape {shape}; a velocity is real, (3, n, n, n), here {n=}"
        )


def scatter(path: str, n: int | None) -> PencilArray:
    """Read a velocity from a file that is on rank 0 only. *Collective*."""
    data, shape, dtype = open_on_root(path, name="velocity")
    n = n or min(shape[1:], default=0)
    check(path, shape, dtype, n)
    return pencils.partition(cube(n), data, root=0)


def draw(flow: NavierStokes, u_hat: PencilArray, path: str) -> None:
    """Draw the strength of the vorticity in the plane z = π/4. *Collective*."""
    omega = flow.fft.backward(flow.curl(u_hat), out=flow.omega)
    n, strength = omega.shape[-1], np.sqrt((omega * omega).sum(axis=0))
    grid = pencils.localgrid(omega.pencil, [np.arange(n) * 2 * np.pi / n] * 3)
    style: Any = {"cmap": "magma", "shading": "gouraud", "label": "vorticity"}
    ax = pencils.plot.plot_slice(strength, axis=2, index=n // 8, grid=grid, **style)
    pencils.plot.save_picture(path, ax)
    if ax is not None:  # on rank 0
        print(f"vorticity drawn in {path}")


def run(args: argparse.Namespace) -> None:
    """Integrate up to ``args.time``; print energy and dissipation. *Collective*."""
    state: dict[str, Any] = {"n": 32, "viscosity": 0.000625, "dt": 0.01, "time": 0.0, "step": 0}
    if args.restart:
        saved = pencils.load(args.restart, Pencil(1), names=()).attrs
        state |= {name: saved[name] for name in state if name in saved}
    state |= {
        name: x for name in ("n", "viscosity", "dt") if (x := getattr(args, name)) is not None
    }
    n, viscosity, dt = int(state["n"]), state["viscosity"], state["dt"]
    if not (n > 0 and 0 < dt < inf and 0 <= viscosity < inf and 0 <= args.time < inf):
        numbers = f"{n=!s} and {dt=!s} must be positive, {viscosity=!s} and time={args.time}"
        raise errors.PencilsError(f"{numbers} not negative, and all of them finite")
    for target in filter(None, (args.checkpoint, args.picture)):
        check_target(target)  # a mistake raises before the run, not after it
    _ = args.picture and pencils.plot  # likewise, where Matplotlib is missing

    if args.restart:  # the file has waves: transforming a velocity would round once more
        flow = NavierStokes(n, viscosity)
        u_hat = empty(flow.fft.output_pencil, dtype=complex, components=3)
        pencils.load(args.restart, into={"waves": u_hat})
    else:
        u = scatter(args.input, args.n) if args.input else taylor_green(cube(n))
        flow = NavierStokes(u.shape[-1], viscosity)
        u_hat = flow.start(u.astype(float))
    state["n"] = flow.fft.input_pencil.shape[-1]
    steps = range(round((args.time - state["time"]) / dt))
    rank = u_hat.pencil.rank
    bar = tqdm(steps) if tqdm and rank == 0 and sys.stderr.isatty() else None

    def report() -> None:
        energy, dissipation = flow.energy(u_hat), flow.dissipation(u_hat)
        line = f"t={state['time']:.12g} energy={energy:.12g} dissipation={dissipation:.12g}"
        if rank == 0:
            print(line, flush=True) if bar is None else bar.write(line)

    report()
    for _ in bar or steps:
        u_hat = flow.step(u_hat, dt)
        state |= {"time": state["time"] + dt, "step": state["step"] + 1}
        report()
    if args.checkpoint:
        pencils.save(args.checkpoint, {"waves": u_hat}, attrs=state)
    if args.picture:
        draw(flow, u_hat, args.picture)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command line; `run` has the defaults that a file may replace."""
    add = parser.add_argument
    add("--n", type=int, help="points along each dimension (default: 32, or as in the file)")
    add("--viscosity", type=float, help="ν (default: 0.000625, or as in the checkpoint)")
    add("--dt", type=float, help="time step (default: 0.01, or as in the checkpoint)")
    add("--time", type=float, default=0.1, help="final time (default: %(default)s)")
    source = parser.add_mutually_exclusive_group().add_argument
    source("--input", metavar="FILE", help="initial velocity (3, n, n, n), .npy or HDF5, on rank 0")
    source("--restart", metavar="FILE", help="continue a checkpoint, on any number of processes")
    add("--checkpoint", metavar="FILE", help="save the waves of the velocity at the end, as HDF5")
    add("--picture", metavar="FILE", help="draw the vorticity at the end; needs Matplotlib")


def main(args: argparse.Namespace | None = None) -> None:
    """Run from the command line. *Collective*."""
    if args is None:
        parser = argparse.ArgumentParser(description="Taylor-Green vortex, pseudo-spectral.")
        add_arguments(parser)
        args = parser.parse_args()
    try:
        run(args)
    except (errors.PencilsError, OSError) as error:
        # All ranks raise together: rank 0 prints the error, and mpiexec returns its exit status.
        if Pencil(1).rank == 0:
            sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
