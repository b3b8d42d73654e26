"""A quantum particle meets a wall with two slits: the equation of Schrödinger.

python examples/schroedinger.py
mpiexec -n 4 python -m pencils run examples/schroedinger.py --n 256 --time 3 --picture slits.png

The equation is i ψ_t = -∇²ψ / 2 + V ψ. Each step turns the phases of ψ, at the points by V and in
Fourier space by k²/2, so that no probability is lost. Steps back in time return to the start.
"""

import argparse

import numpy as np

import pencils
from pencils.fft import PencilFFT

LENGTH, SPEED, DT = 20.0, 6.0, 0.005


def solve(psi, potential, steps, dt):
    """Return ψ after some steps."""
    half = np.exp(-0.5j * dt * potential)
    with PencilFFT(psi.pencil, complex, normalize="ortho") as plan:
        kx, ky = plan.wavenumbers((LENGTH, LENGTH), nyquist="keep")
        turn = np.exp(-0.5j * dt * (kx**2 + ky**2))
        for _ in range(steps):
            psi = half * plan.backward(turn * plan.forward(half * psi))
    return psi


def main():
    parser = argparse.ArgumentParser(description="A quantum particle meets a wall with two slits.")
    add = parser.add_argument
    add("--n", type=int, default=48, help="points along a side (default: %(default)s)")
    add("--time", type=float, default=0.2, help="final time (default: %(default)s)")
    add("--picture", metavar="FILE", help="draw the probability; needs Matplotlib")
    args = parser.parse_args()

    pen = pencils.Pencil((args.n, args.n), periodic=True)
    grid = pencils.localgrid(pen, [(np.arange(args.n) / args.n - 0.5) * LENGTH] * 2)
    x, y = grid
    slit = (abs(y) > 0.6) & (abs(y) < 1.4)
    wall = np.where((abs(x) < 0.25) & ~slit, 200.0, 0.0)
    start = np.exp(-((x + 5) ** 2) / 4 - y**2 / 8 + 1j * SPEED * x)
    start /= np.sqrt((abs(start) ** 2).mean())

    steps = round(args.time / DT)
    psi = solve(start, wall, steps, DT)
    total, behind = (abs(psi) ** 2).mean(), np.where(x > 0, abs(psi) ** 2, 0).mean()
    back = solve(psi, wall, steps, -DT)
    assert np.isclose(total, 1)
    assert abs(back - start).max() < 1e-9
    if pen.rank == 0:
        print(f"probability {total:.9f}, of which {behind:.6f} behind the wall")
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        ax = plot_slice(np.sqrt(abs(psi)), grid=grid, cmap="magma", label="√|ψ|")
        save_picture(args.picture, ax)


if __name__ == "__main__":
    main()
