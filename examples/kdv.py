"""A soliton on a ring: the equation of Korteweg and de Vries, by compact differences.

python examples/kdv.py
mpiexec -n 4 python -m pencils run examples/kdv.py --n 128 --picture soliton.png

The equation is u_t + 6 u u_x + u_xxx = 0. The third derivative is the first one of the second one;
both are systems of equations along the ring, which is cut between ranks. Time steps are those of
the classical method of Runge and Kutta. A wave u = c/2 sech²(√c/2 (x - ct)) keeps its shape.
"""

import argparse

import numpy as np

import pencils

LENGTH, SPEED = 24.0, 2.0


def soliton(x, time):
    """Return the wave at a time, on a ring."""
    place = (x - SPEED * time + LENGTH / 2) % LENGTH - LENGTH / 2
    return SPEED / 2 / np.cosh(np.sqrt(SPEED) / 2 * place) ** 2


def solve(n, time):
    """Return u at the end on n points, and the exact solution."""
    h = LENGTH / n
    pen = pencils.Pencil(n, periodic=True)
    (x,) = pencils.localgrid(pen, [np.arange(n) * h])

    def rate(u):
        bend = pencils.derivative(u, 0, derivative=2, spacing=h)
        return -pencils.derivative(bend + 3 * u * u, 0, spacing=h)

    u = soliton(x, 0.0)
    steps = int(np.ceil(time / (0.2 * h**3)))
    dt = time / steps
    for _ in range(steps):
        k1 = rate(u)
        k2 = rate(u + dt / 2 * k1)
        k3 = rate(u + dt / 2 * k2)
        k4 = rate(u + dt * k3)
        u += dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return u, soliton(x, time)


def main():
    parser = argparse.ArgumentParser(description="A soliton on a ring.")
    add = parser.add_argument
    add("--n", type=int, default=48, help="points, at first half of them (default: %(default)s)")
    add("--time", type=float, default=0.5, help="final time (default: %(default)s)")
    add("--picture", metavar="FILE", help="draw the wave; needs Matplotlib")
    args = parser.parse_args()

    coarse, expected = solve(args.n // 2, args.time)
    before = abs(coarse - expected).max()
    u, expected = solve(args.n, args.time)
    error = abs(u - expected).max()
    assert error < before / 8
    if u.pencil.rank == 0:
        print(f"error {error:.6e}, of order {np.log2(before / error):.2f}")
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        grid = pencils.localgrid(u.pencil, [np.arange(args.n) * LENGTH / args.n])
        save_picture(args.picture, plot_slice(u, grid=grid, label="u"))


if __name__ == "__main__":
    main()
