"""Solve a Poisson equation, ∇²p = f, in a channel with walls and a grid that is finer at the walls.

python examples/channel_poisson.py
mpiexec -n 4 python -m pencils run examples/channel_poisson.py

Along the channel, x and y, the pressure is periodic: Fourier waves. Between the walls, where its
normal derivative is zero, finite volumes of any height: for each wave a tridiagonal system along z,
solved wherever the transforms leave the lines, whole or cut. Only the wave without variation
determines its pressure up to a constant: it is pinned.
"""

import argparse

import numpy as np

import pencils
from pencils.fft import PencilFFT

LENGTHS = LX, LY, LZ = 2 * np.pi, 1.0, 3.0
STRETCHING = 1.5


def heights(n):
    """Return the faces and the centres of n cells between the walls."""
    faces = LZ / 2 * (1 + np.tanh(STRETCHING * np.linspace(-1, 1, n + 1)) / np.tanh(STRETCHING))
    return faces, (faces[1:] + faces[:-1]) / 2


def second_derivative(n):
    """Return the diagonals of the second derivative in z, without a flux through the walls."""
    faces, centres = heights(n)
    fluxes = np.concatenate([[0], 1 / np.diff(centres), [0]])  # for a unit difference, at each face
    lower, upper = fluxes[:-1] / np.diff(faces), fluxes[1:] / np.diff(faces)
    return lower, -(lower + upper), upper


def solve(f):
    """Return a solution; it has any mean."""
    with PencilFFT(f.pencil, axes=(0, 1)) as plan:
        waves = plan.output_pencil
        kx, ky, _ = plan.wavenumbers(LENGTHS, nyquist="keep")
        diagonals = second_derivative(f.shape[2])
        p_hat = plan.forward(f)
        with pencils.lines.LineSolver(
            waves, 2, diagonals, shift=-(kx**2 + ky**2), dtype=complex, singular="pin"
        ) as lines:
            lines(p_hat, out=p_hat)
        return plan.backward(p_hat)


def problem(grid):
    """Return a solution and its right-hand side."""
    a, b, c = 2 * np.pi / LX, 2 * np.pi / LY, np.pi / LZ
    bump, curve = np.exp(np.sin(a * grid.x)), np.cos(a * grid.x) ** 2 - np.sin(a * grid.x)
    wave, profile, mean = np.cos(2 * b * grid.y), np.cos(c * grid.z), np.cos(2 * c * grid.z)
    p = bump * wave * profile + mean
    f = (a**2 * curve - (2 * b) ** 2 - c**2) * bump * wave * profile - (2 * c) ** 2 * mean
    return p, f


def compare(pen):
    """Return the largest difference to the solution, but for a constant; the solution; the grid."""
    nx, ny, nz = pen.shape
    x, y = np.arange(nx) * LX / nx, np.arange(ny) * LY / ny
    grid = pencils.localgrid(pen, (x, y, heights(nz)[1]))
    p, f = problem(grid)
    found = solve(f)
    error = found - p
    return abs(error - error.mean()).max(), found, grid


def main():
    parser = argparse.ArgumentParser(description="Pressure in a channel.")
    parser.add_argument("--picture", metavar="FILE", help="draw a plane; needs Matplotlib")
    args = parser.parse_args()
    pen = pencils.Pencil((32, 24, 24), periodic=(True, True, False))
    coarse, *_ = compare(pen)
    fine, p, grid = compare(pen.with_(shape=(32, 24, 48)))
    if pen.rank == 0:
        print(f"largest error with 24 cells between the walls {coarse:.1e}, with 48 {fine:.1e}")
    assert fine < 1e-2
    assert 3.5 < coarse / fine < 4.5  # of second order
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        ax = plot_slice(p, 1, 0, grid=grid, cmap="RdBu_r", label="pressure")
        save_picture(args.picture, ax)


if __name__ == "__main__":
    main()
