"""Solve the heat equation in a box with cold walls by alternating directions: implicit along lines.

python examples/adi_heat.py
mpiexec -n 4 python -m pencils run examples/adi_heat.py

Each time step is a Crank-Nicolson step along x, then y, then z. It is stable however long it is,
and needs one tridiagonal solve along each direction, wherever the lines are cut:
(1 - A)⁻¹ (1 + A) = 2 (1 - A)⁻¹ - 1, where A is half a time step of diffusion along a line.
"""

import argparse

import numpy as np

import pencils

SHAPE, LENGTHS = (40, 31, 36), (1.0, 0.8, 1.2)
END, STEPS = 0.05, 25


def line_solver(pen, axis, time_step):
    """Return a solver of (1 - A) v = u along an axis, with v = 0 at the walls."""
    n = pen.shape[axis]
    spacing = LENGTHS[axis] / (n + 1)  # the walls are one spacing beyond the first and last points
    a = time_step / 2 / spacing**2
    return pencils.lines.LineSolver(pen, axis, (-a, 1 + 2 * a, -a))


def step(u, solvers, v):
    """Advance the temperature in place; v is memory for one field."""
    for solver in solvers:
        solver(u, out=v)
        v *= 2
        np.subtract(v, u, out=u)


def exact(grid, time):
    """Return the temperature at a time: two waves, each of which decays at its own rate."""
    u = 0.0
    for amplitude, waves in [(1.0, (1, 1, 1)), (0.5, (2, 1, 3))]:
        numbers = [np.pi * wave / length for wave, length in zip(waves, LENGTHS, strict=True)]
        shape = [np.sin(k * coordinate) for k, coordinate in zip(numbers, grid, strict=True)]
        rate = sum(k**2 for k in numbers)
        u = u + amplitude * np.exp(-rate * time) * shape[0] * shape[1] * shape[2]
    return u


def main():
    parser = argparse.ArgumentParser(description="Heat in a box with cold walls.")
    parser.add_argument("--picture", metavar="FILE", help="draw a plane; needs Matplotlib")
    args = parser.parse_args()
    pen = pencils.Pencil(SHAPE)
    points = [np.linspace(0, length, n + 2)[1:-1] for n, length in zip(SHAPE, LENGTHS, strict=True)]
    grid = pencils.localgrid(pen, points)
    u, v = exact(grid, 0), pencils.empty(pen)
    solvers = [line_solver(pen, axis, END / STEPS) for axis in range(pen.ndim)]
    for _ in range(STEPS):
        step(u, solvers, v)
    error = abs(u - exact(grid, END)).max() / abs(u).max()
    if pen.rank == 0:
        print(f"relative error after {STEPS} steps on {pen.size} processes: {error:.1e}")
    for solver in solvers:
        solver.free()
    assert error < 2e-3
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        ax = plot_slice(u, 2, 20, grid=grid, cmap="inferno", label="temperature")
        save_picture(args.picture, ax)


if __name__ == "__main__":
    main()
