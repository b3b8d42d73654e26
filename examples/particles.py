"""Particles in a periodic box, carried by a flow on a grid, and their density on that grid.

python examples/particles.py
mpiexec -n 4 python -m pencils run examples/particles.py --particles 200000 --picture density.png

The velocity is that of four steady vortices, u = -∂ψ/∂y and v = ∂ψ/∂x with ψ = sin(x) sin(y). It is
interpolated to the particles, which move at second order in time (the midpoint rule). The mass of
each particle is then distributed over the points around it (deposition). Mass is conserved, and
every particle stays on its streamline, up to the errors of interpolation and time stepping.

A particle stays on the process that made it, wherever it moves: each step finds the blocks that the
particles read and write anew.
"""

import argparse

import numpy as np

import pencils


def main():
    parser = argparse.ArgumentParser(description="Particles in a periodic box.")
    add = parser.add_argument
    add("--n", type=int, default=64, help="points along a side (default: %(default)s)")
    add("--particles", type=int, default=20000, help="default: %(default)s")
    add("--steps", type=int, default=50, help="default: %(default)s")
    add("--picture", metavar="FILE", help="draw the density; needs Matplotlib")
    args = parser.parse_args()

    pen = pencils.Pencil((args.n, args.n), decomp=(0, 1), periodic=True)
    spacing = 2 * np.pi / args.n
    x, y = grid = pencils.localgrid(pen, [np.arange(args.n) * spacing] * 2)
    velocity = pencils.zeros(pen, components=2)
    velocity[0] = -np.sin(x) * np.cos(y)
    velocity[1] = np.cos(x) * np.sin(y)

    # Particles start in two bands. All processes draw one list of them and take parts of it.
    start = np.random.default_rng(2024).uniform((0, 1.2), (2 * np.pi, 1.9), (args.particles, 2)).T
    start[1, ::2] += np.pi
    at = start[:, pen.rank :: pen.size]
    mass = np.full(at.shape[1], args.n**2 / args.particles)

    def stream(at):
        return np.sin(at[0]) * np.sin(at[1])

    def drift(at):
        return pencils.indexer.interpolate(velocity, at / spacing)

    before, dt = stream(at), 0.05
    for _ in range(args.steps):
        at = at + dt * drift(at + dt / 2 * drift(at))
    strayed = pencils.zeros(pen)  # distances of particles from their streamlines, times their mass
    density = pencils.zeros(pen)
    with pencils.indexer.Interpolation(pen, at / spacing) as deposition:
        deposition.deposit(density, mass)
        deposition.deposit(strayed, mass * np.abs(stream(at) - before))

    total, peak, error = density.sum(), density.max(), strayed.sum() / density.sum()
    assert np.isclose(total, args.n**2, rtol=1e-12)
    assert density.min() >= 0
    assert error < 1 / args.n**2
    if pen.rank == 0:
        print(f"mass {total:.9f}, density up to {peak:.6f}, off the streamlines by {error:.3e}")

    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        save_picture(args.picture, plot_slice(density, grid=grid, cmap="magma", label="density"))


if __name__ == "__main__":
    main()
