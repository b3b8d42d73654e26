"""Distribute data of one process or of all processes, and collect parts of the result.

python examples/scatter_gather.py
mpiexec -n 4 python -m pencils run examples/scatter_gather.py
"""

import numpy as np

import pencils

pen = pencils.Pencil((20, 30, 40))

# One process has the data (also a memmap or an HDF5 dataset) and sends one block after the other.
data = np.arange(20 * 30 * 40.0).reshape(20, 30, 40) if pen.rank == 0 else None
u = pencils.partition(pen, data, root=0)

# All processes have data that do not vary along y: a 2-D field in 3-D space, which broadcasts.
xz = np.add.outer(np.arange(20.0), np.arange(40.0))
surface = pencils.partition(pen, xz, dims=(0, 2))
assert surface.shape == (20, 1, 40)
v = u + surface

# Collect every fourth point of a plane on process 0; only these points are sent.
plane = pencils.gather(v, key=np.s_[:, 15, ::4])
if data is not None and plane is not None:
    assert np.array_equal(plane, (data + xz[:, None, :])[:, 15, ::4])
    print(f"plane of shape {plane.shape}, largest value {plane.max():.0f}")
if pen.rank > 0:
    assert plane is None

# Collect the small field on all processes, in its original shape.
again = pencils.gather(surface, root=None, dims=(0, 2))
assert np.all(again == xz)
