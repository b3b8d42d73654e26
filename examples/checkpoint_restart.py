"""Save fields to an HDF5 file and read them onto another decomposition.

python examples/checkpoint_restart.py
mpiexec -n 4 python -m pencils run examples/checkpoint_restart.py

The file is plain HDF5: h5dump, h5py and other tools can read it, and so can this program on another
number of processes.
"""

import tempfile
from pathlib import Path

import numpy as np

import pencils

pen = pencils.Pencil((24, 30, 36))
u = pencils.random.normal(pen, rng=3)
velocity = pencils.random.normal(pen, rng=4, components=3)

# Process 0 makes the folder and broadcasts its name.
folder = pen.comm.bcast(tempfile.mkdtemp() if pen.rank == 0 else None)
path = Path(folder) / "state.h5"

# All processes write their blocks; the file appears under its name when it is complete.
pencils.save(path, {"u": u, "velocity": velocity}, attrs={"time": 0.5, "step": 50})

# Read the fields onto a pencil that is decomposed along other dimensions.
other = pen.with_(decomp=(1, 2))
state = pencils.load(path, other)
assert state.attrs["time"] == 0.5
assert state.attrs["step"] == 50
assert state["velocity"].components == (3,)

# Transposed back, the fields are equal to the last bit.
assert np.array_equal(pencils.transpose(state["u"], pen), u)
assert np.array_equal(pencils.transpose(state["velocity"], pen), velocity)
if pen.rank == 0:
    print(f"read {', '.join(state)} as they were at t = {state.attrs['time']}")
    path.unlink()
    path.parent.rmdir()
