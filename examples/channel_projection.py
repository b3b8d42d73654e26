"""Make a flow in a channel free of divergence: a projection step, on cells finer at the walls.

python examples/channel_projection.py
mpiexec -n 4 python -m pencils run examples/channel_projection.py

Velocities lie on the faces of cells, pressures in their centres. The pressure whose Laplacian is
the divergence of the velocity is found by one call: by Fourier waves along the periodic x and y,
and by finite volumes between the walls, where its normal derivative is zero. The divergence of the
velocity minus the gradient of the pressure is then zero up to rounding.
"""

import argparse

import numpy as np

import pencils
from pencils.solvers import Poisson

LX, LY, LZ = 2 * np.pi, np.pi, 2.0
STRETCHING = 1.8


def faces_between_walls(n):
    """Return the faces of n cells, which are finer at the walls."""
    return LZ / 2 * (1 + np.tanh(STRETCHING * np.linspace(-1, 1, n + 1)) / np.tanh(STRETCHING))


def divergence(velocity, dx, dy, dz):
    """Sum the flow through the faces of each cell, for its volume."""
    u, v, w = velocity
    pencils.exchange_halos([u, v, w], corners=False)  # no flow through the wall beyond the last w
    along_x, along_y = u.shift((1, 0, 0)) - u, v.shift((0, 1, 0)) - v
    return along_x / dx + along_y / dy + (w.shift((0, 0, 1)) - w) / dz


def main():
    parser = argparse.ArgumentParser(description="A projection step in a channel.")
    parser.add_argument("--picture", metavar="FILE", help="draw a plane; needs Matplotlib")
    args = parser.parse_args()
    pen = pencils.Pencil((32, 24, 40), periodic=(True, True, False))
    nx, ny, nz = pen.shape
    dx, dy, faces = LX / nx, LY / ny, faces_between_walls(nz)
    centres, dz = (faces[1:] + faces[:-1]) / 2, np.diff(faces)
    gaps = np.diff(centres, prepend=-centres[0])  # from a centre to the one below

    grid = pencils.localgrid(pen, (np.arange(nx) * dx, np.arange(ny) * dy, centres))
    x, y, z = grid
    velocity = [pencils.zeros(pen, halo=1) for _ in range(3)]
    u, v, w = velocity
    u[...] = z * (LZ - z) + np.sin(3 * x) * np.cos(2 * y)
    v[...] = np.sin(2 * y) * np.exp(np.cos(x)) * z
    w[...] = np.cos(x + 2 * y) * faces[:-1] * (LZ - faces[:-1])  # zero on the wall

    before = divergence(velocity, dx, dy, dz)
    p = pencils.zeros(pen, halo=1)
    with Poisson(pen, (dx, dy, faces), boundary=("periodic", "periodic", "neumann")) as solve:
        solve(before, out=p)
    p.exchange_halo(corners=False)
    u -= (p - p.shift((-1, 0, 0))) / dx
    v -= (p - p.shift((0, -1, 0))) / dy
    w -= (p - p.shift((0, 0, -1))) / gaps
    w[..., 0] = 0
    largest, left = abs(before).max(), abs(divergence(velocity, dx, dy, dz)).max()
    if pen.rank == 0:
        print(f"largest divergence {largest:.2f} before the step, {left:.1e} after it")
    assert left < 1e-11 * largest
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        ax = plot_slice(p, 1, 0, grid=grid, cmap="RdBu_r", label="pressure")
        save_picture(args.picture, ax)


if __name__ == "__main__":
    main()
