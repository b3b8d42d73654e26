"""Solve a Poisson equation, ∇²p = f, that is periodic in two directions and has walls in the third.

python examples/poisson.py
mpiexec -n 4 python -m pencils run examples/poisson.py

At the walls the normal derivative of p is zero, as for a pressure between plates: cosines satisfy
this condition in z, Fourier waves the periodicity in x and y. For each wave the equation is a
division.
"""

import numpy as np

import pencils
from pencils.fft import PencilFFT

SHAPE, LENGTHS = (24, 32, 20), (2 * np.pi, 1.0, 3.0)


def solve(plan, f):
    """Return the solution whose mean is zero; the mean of f must be zero, too."""
    kx, ky, kz = plan.wavenumbers(LENGTHS, nyquist="keep")
    k2 = kx**2 + ky**2 + kz**2
    f_hat = plan.forward(f)
    p_hat = -f_hat / np.where(k2 == 0, 1, k2)
    p_hat[0, 0, 0] = 0
    return plan.backward(p_hat)


def problem(grid):
    """Return a solution and its right-hand side."""
    a, b, c = 2 * np.pi / LENGTHS[0], 2 * np.pi / LENGTHS[1], np.pi / LENGTHS[2]
    bump, curve = np.exp(np.sin(a * grid.x)), np.cos(a * grid.x) ** 2 - np.sin(a * grid.x)
    wave, profile = np.cos(2 * b * grid.y), np.cos(3 * c * grid.z)
    p = bump * wave * profile
    f = (a**2 * curve - (2 * b) ** 2 - (3 * c) ** 2) * p
    return p, f


def main():
    pen = pencils.Pencil(SHAPE, periodic=(True, True, False))
    nx, ny, nz = SHAPE
    x = np.arange(nx) * LENGTHS[0] / nx
    y = np.arange(ny) * LENGTHS[1] / ny
    z = (np.arange(nz) + 0.5) * LENGTHS[2] / nz  # midpoints, as in the cosine transform of type 2
    p, f = problem(pencils.localgrid(pen, (x, y, z)))
    with PencilFFT(pen, transforms=("fft", "fft", "dct2")) as plan:
        error = abs(solve(plan, f) - p).max()
    if pen.rank == 0:
        print(f"{nx} x {ny} x {nz} points on {pen.size} processes: largest error {error:.1e}")
    assert error < 1e-10


if __name__ == "__main__":
    main()
