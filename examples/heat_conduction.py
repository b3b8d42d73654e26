"""Conduct heat through a composite, whose discs conduct a thousand times better: multigrid.

python examples/heat_conduction.py
mpiexec -n 4 python -m pencils run examples/heat_conduction.py

div(a grad T) = 0, with T = 1 on the left wall and T = 0 on the right one; no heat goes through the
other walls. The heat that enters on the left is that which leaves on the right, and tells how well
the composite conducts.
"""

import argparse

import numpy as np

import pencils

DISCS = [
    (0.2, 0.3, 0.12),
    (0.28, 0.74, 0.17),
    (0.55, 0.5, 0.16),
    (0.78, 0.22, 0.15),
    (0.8, 0.8, 0.1),
]
JUMP = 1000.0


def conductivity(grid):
    """Return 1, and more in the discs."""
    x, y = grid
    inside = sum((x - x0) ** 2 + (y - y0) ** 2 < radius**2 for x0, y0, radius in DISCS)
    return 1.0 + (JUMP - 1.0) * (inside > 0)


def main():
    parser = argparse.ArgumentParser(description="Heat conduction in a composite.")
    parser.add_argument("--n", type=int, default=64, help="cells along each side")
    parser.add_argument("--picture", metavar="FILE", help="draw the temperature; needs Matplotlib")
    args = parser.parse_args()
    n, h = args.n, 1 / args.n
    pen = pencils.Pencil((n, n))
    grid = pencils.localgrid(pen, [(np.arange(n) + 0.5) * h] * 2)
    a = conductivity(grid)

    f = pencils.zeros(pen)
    f[:1] = -2 * a[:1] / h**2  # the flux from the left wall, half a cell away, if T was 0 there
    walls = ["dirichlet", "neumann"]
    with pencils.solvers.Multigrid(pen, a, spacing=h, boundary=walls) as mg:
        result = mg.solve(f, rtol=1e-10)
    temperature = result.check()

    entering = float((2 * a[:1] * (1 - temperature[:1])).sum())
    leaving = float((2 * a[-1:] * temperature[-1:]).sum())
    if pen.rank == 0:
        rate = (result.residuals[-1] / result.residuals[0]) ** (1 / result.iterations)
        print(
            f"{result.iterations} cycles on {pen.size} processes: residuals times {rate:.2f} each"
        )
        print(f"the composite conducts {entering:.3f} times as well as its matrix")
    assert abs(entering - leaving) < 1e-6 * entering
    assert 1 < entering < JUMP
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        ax = plot_slice(temperature, grid=grid, cmap="inferno", label="temperature")
        save_picture(args.picture, ax)


if __name__ == "__main__":
    main()
