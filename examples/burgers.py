"""Burgers' equation in a periodic plane, by compact differences of sixth order.

python examples/burgers.py
mpiexec -n 4 python -m pencils run examples/burgers.py --n 24

The equation is u_t + (u·∇)u = ν ∇²u for a velocity of two components. Derivatives along both
dimensions come from one system of equations for each line; no halo is needed. Runge-Kutta steps of
fourth order, with dt proportional to h², have an error of eighth order in h. The solution of Cole
and Hopf is u = -2ν ∇φ / φ; φ = a + exp(-2νt) cos(x) cos(y) fulfils the equation of heat.
"""

import argparse

import numpy as np

import pencils

AMPLE = 2.0  # a; the nearer to 1, the steeper is the flow


def exact(x, y, nu, time):
    """Return both components of the solution."""
    decay = np.exp(-2 * nu * time)
    phi = AMPLE + decay * np.cos(x) * np.cos(y)
    waves = np.stack([np.sin(x) * np.cos(y), np.cos(x) * np.sin(y)])
    return 2 * nu * decay * waves / phi


def solve(n, nu, time):
    """Return u at the end, on n times n points, and its largest error."""
    h = 2 * np.pi / n
    pen = pencils.Pencil((n, n), periodic=True)
    x, y = pencils.localgrid(pen, [np.arange(n) * h] * 2)

    def rate(u):
        total = 0
        for dim in range(2):
            axis = 1 + dim  # axis 0 numbers the components
            slope = pencils.derivative(u, axis, spacing=h)
            curvature = pencils.derivative(u, axis, derivative=2, spacing=h)
            total += nu * curvature - u[dim] * slope
        return total

    u = exact(x, y, nu, 0.0)
    steps = int(np.ceil(8 * nu * time / h**2))
    dt = time / steps
    for _ in range(steps):
        k1 = rate(u)
        k2 = rate(u + dt / 2 * k1)
        k3 = rate(u + dt / 2 * k2)
        k4 = rate(u + dt * k3)
        u += dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return u, np.abs(u - exact(x, y, nu, time)).max()


def main():
    parser = argparse.ArgumentParser(description="Burgers' equation in a periodic plane.")
    add = parser.add_argument
    add("--n", type=int, default=12, help="points along a side, at first (default: %(default)s)")
    add("--nu", type=float, default=0.5, help="viscosity (default: %(default)s)")
    add("--time", type=float, default=0.2, help="final time (default: %(default)s)")
    add("--picture", metavar="FILE", help="draw the velocity along x; needs Matplotlib")
    args = parser.parse_args()

    before = None
    for n in (args.n, 2 * args.n, 4 * args.n):
        u, error = solve(n, args.nu, args.time)
        order = f", of order {np.log2(before / error):.3f}" if before else ""
        before = error
        if u.pencil.rank == 0:
            print(f"{n} points: error {error:.6e}{order}")
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        grid = pencils.localgrid(u.pencil, [np.arange(n) * 2 * np.pi / n] * 2)
        ax = plot_slice(u, component=0, grid=grid, cmap="RdBu_r", label="u")
        save_picture(args.picture, ax)


if __name__ == "__main__":
    main()
