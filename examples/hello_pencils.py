"""Decompose a grid, compute on it, sum over it.

python examples/hello_pencils.py
mpiexec -n 4 python -m pencils run examples/hello_pencils.py
"""

import numpy as np

import pencils

# A grid of 65 x 17 x 21 points, cut in blocks over as many processes as there are.
pen = pencils.Pencil((65, 17, 21))
if pen.rank == 0:
    print(pen)

# Coordinates: every process gets those of its own block, and computes there.
xs, ys, zs = np.linspace(0, 1, 65), np.linspace(-1, 1, 17), np.linspace(0, 2, 21)
grid = pencils.localgrid(pen, (xs, ys, zs))
u = grid.x + 2 * grid.y + grid.z**2

# The array is global in meaning: its shape, its sums, its indices ...
assert u.shape == (65, 17, 21)
total = u.sum()
mean = total / u.size
u[0] = 1.0  # the plane i = 0, on whichever processes own some of it
assert np.all(u[0] == 1.0)

# ... and local in storage: `u.local` is a NumPy array, a part of the global one.
whole = xs[:, None, None] + 2 * ys[:, None] + zs**2
whole[0] = 1.0
assert np.array_equal(u.local, whole[pen.local_slices])

expected = np.mean(xs) + 2 * np.mean(ys) + np.mean(zs**2)
assert np.isclose(mean, expected)
if pen.rank == 0:
    print(f"mean of x + 2y + z² over all processes: {mean:.12f}")
