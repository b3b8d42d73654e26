"""Potential flow around a cylinder in a channel: conjugate gradients with a mask and an FFT.

python examples/potential_flow.py
mpiexec -n 4 python -m pencils run examples/potential_flow.py --n 160 --picture flow.png

The stream function is y, for a uniform flow, and a rest that solves Laplace's equation: periodic
along the channel, 0 at its walls, and -y in the cylinder, whose points are switched off by a mask.
Without the cylinder, an FFT would solve for it at once; here it is the preconditioner.
"""

import argparse
from typing import Any

import numpy as np

import pencils
from pencils.fft import PencilFFT
from pencils.solvers import cg

STEPS = (1, 0), (-1, 0), (0, 1), (0, -1)


@pencils.fused
def operator(u):
    """Return minus the Laplacian; beyond the walls of the channel, u is 0."""
    u.exchange_halo(corners=False)
    return 4 * u - sum(u.shift(step) for step in STEPS)


def inverse(plan):
    """Return what solves the equation for all points: the preconditioner."""
    nx, ny = plan.input_pencil.shape
    kx, ky = plan.wavenumbers([nx, ny + 1], nyquist="keep")
    eigenvalues = 4 * np.sin(kx / 2) ** 2 + 4 * np.sin(ky / 2) ** 2

    def solve(r, out):
        waves = plan.forward(r)
        waves /= eigenvalues
        plan.backward(waves, out)

    return solve


def main():
    parser = argparse.ArgumentParser(description="Potential flow around a cylinder.")
    parser.add_argument("--n", type=int, default=31, help="points across (default: %(default)s)")
    parser.add_argument("--picture", metavar="FILE", help="draw the flow; needs Matplotlib")
    args = parser.parse_args()
    n = args.n
    pen = pencils.Pencil((2 * n, n), periodic=(True, False))
    x, y = grid = pencils.localgrid(pen, [np.arange(2 * n) - n, np.arange(n) - (n - 1) / 2])
    fluid = x**2 + y**2 > (n / 8) ** 2
    rest, zero = pencils.zeros(pen, halo=1), pencils.zeros(pen, halo=1)
    rest[...] = np.where(fluid, 0, -y)
    plain = cg(operator, zero, rest.copy(), mask=fluid)
    with PencilFFT(pen, transforms=("fft", "dst1")) as plan:
        result = cg(operator, zero, rest, mask=fluid, preconditioner=inverse(plan))
    rest = result.check()

    rest.exchange_halo()
    speed = 1 + (rest.shift((0, 1)) - rest.shift((0, -1))) / 2
    fastest = np.where(fluid & (abs(y) < n / 2 - 1), speed, 0).max()
    error = (plain.check() - rest).norm() / rest.norm()
    if pen.rank == 0:
        print(f"{result.iterations} iterations, {plain.iterations} without preconditioner")
        print(f"fastest flow: {fastest:.3f}; difference between both: {error:.1e}")
    assert abs(np.where(fluid, operator(rest), 0)).max() < 1e-6
    assert error < 1e-6
    assert result.iterations < plain.iterations / 2

    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        stripes: Any = np.where(fluid, np.cos(32 * np.pi * (y + rest) / n), np.nan)
        ax = plot_slice(stripes, grid=grid, cmap="Blues", label="bands of the stream function")
        save_picture(args.picture, ax)


if __name__ == "__main__":
    main()
