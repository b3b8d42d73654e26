"""A plate that is hot on the left, cold on the right and insulated elsewhere, at second order.

python examples/heat_equation.py
mpiexec -n 4 python -m pencils run examples/heat_equation.py --n 16

The equation is u_t = ∇²u on the unit square, with u = 1 at x = 0, u = 0 at x = 1, and u_y = 0 at
y = 0 and y = 1. Along x the points are nodes; the first boundary points are on the walls and hold
the values there. Along y the points are centres of cells, and values are mirrored at the walls. The
stencil is the usual star of five points; time steps are explicit Euler steps with dt = h²/5. The
exact solution is 1 - x + exp(-2π²t) sin(πx) cos(πy).
"""

import argparse

import numpy as np

import pencils


def fill(u):
    """Update the halo of u: first the points of other ranks, then the boundary values."""
    u.exchange_halo(corners=False)
    u.fill_boundary("constant", value=1, axis=0, side="lo")
    u.fill_boundary("constant", value=0, axis=0, side="hi")
    u.fill_boundary("symmetric", axis=1)


@pencils.fused
def step(u, dt):
    """Return u after a step; dt is in units of h²."""
    fill(u)
    west, east, south, north = (u.shift(o) for o in ((-1, 0), (1, 0), (0, -1), (0, 1)))
    return u + dt * (west + east + south + north - 4 * u)


def solve(n, time):
    """Return u at the end, on a grid of spacing 1/n, and its largest error."""
    h = 1 / n
    pen = pencils.Pencil((n - 1, n))
    x, y = pencils.localgrid(pen, (np.arange(1, n) * h, (np.arange(n) + 0.5) * h))

    def exact(t):
        return 1 - x + np.exp(-2 * np.pi**2 * t) * np.sin(np.pi * x) * np.cos(np.pi * y)

    u = pencils.zeros(pen, halo=1)
    u[...] = exact(0)
    new = u.copy()
    steps = int(np.ceil(5 * time * n**2))
    for _ in range(steps):
        step(u, time / steps / h**2, out=new)
        u, new = new, u
    return u, np.abs(u - exact(time)).max()


def main():
    parser = argparse.ArgumentParser(description="Heat in a plate.")
    add = parser.add_argument
    add("--n", type=int, default=10, help="cells along a side, at first (default: %(default)s)")
    add("--time", type=float, default=0.05, help="final time (default: %(default)s)")
    add("--picture", metavar="FILE", help="draw the temperature; needs Matplotlib")
    args = parser.parse_args()

    before = None
    for n in (args.n, 2 * args.n, 4 * args.n):
        u, error = solve(n, args.time)
        order = f", of order {np.log2(before / error):.3f}" if before else ""
        before = error
        if u.pencil.rank == 0:
            print(f"{n} cells: error {error:.6e}{order}")
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        grid = pencils.localgrid(u.pencil, [np.arange(1, n) / n, (np.arange(n) + 0.5) / n])
        save_picture(args.picture, plot_slice(u, grid=grid, cmap="inferno", label="temperature"))


if __name__ == "__main__":
    main()
