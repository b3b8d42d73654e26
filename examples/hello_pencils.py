"""Decompose a grid, compute on it, and sum over it.

python examples/hello_pencils.py
mpiexec -n 4 python -m pencils run examples/hello_pencils.py
"""

import numpy as np

import pencils

# A grid of 65 x 17 x 21 points, divided into one block for each process.
pen = pencils.Pencil((65, 17, 21))
if pen.rank == 0:
    print(pen)

# Coordinates: every process gets those of its own block.
xs, ys, zs = np.linspace(0, 1, 65), np.linspace(-1, 1, 17), np.linspace(0, 2, 21)
grid = pencils.localgrid(pen, (xs, ys, zs))
u = grid.x + 2 * grid.y + grid.z**2

# The shape, sums and indices of the array are global ...
assert u.shape == (65, 17, 21)
total = u.sum()
mean = total / u.size
u[0] = 1.0  # the plane i = 0, on all processes that own points of it
assert np.all(u[0] == 1.0)
inner = u[1:-1, 1:-1, 1:-1]  # a slice is a field, too, and means the same on all processes
assert inner.shape == (63, 15, 19)
assert inner.max() < u.max()

# ... and its memory is local: `u.local` is a NumPy array, the block of this process.
whole = xs[:, None, None] + 2 * ys[:, None] + zs**2
whole[0] = 1.0
assert np.array_equal(u.local, whole[pen.local_slices])

expected = np.mean(xs) + 2 * np.mean(ys) + np.mean(zs**2)
assert np.isclose(mean, expected)
if pen.rank == 0:
    print(f"mean of x + 2y + z² over all processes: {mean:.12f}")
