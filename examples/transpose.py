"""Transpose a field between pencils, so that one dimension after the other is local to a process.

python examples/transpose.py
mpiexec -n 4 python -m pencils run examples/transpose.py
"""

import numpy as np

import pencils

n = 48
along_z = pencils.Pencil((n, n, n), decomp=(0, 1))  # dimension 2 is local
along_x = along_z.with_(decomp=(2, 1))  # dimension 0 is local; 2 is decomposed in its place
u = pencils.random.uniform(along_z, rng=1)

# Work along x: each process has whole lines of it.
v = pencils.transpose(u, along_x)
assert v.local_shape[0] == n
ordered = np.sort(v, axis=0)
assert np.array_equal(ordered[0], v.min(axis=0))
assert np.array_equal(ordered[-1], v.max(axis=0))

# A plan for many transposes between the same pencils; compute between start and wait.
w = pencils.random.uniform(along_z, rng=2)
with pencils.Transposition(along_z, along_x) as there, there.reversed() as back:
    handle = there.start(u, out=v)
    w = w**2 + w  # anything that uses neither u nor v
    handle.wait()
    again = back(v)

assert np.array_equal(again, u)
total, same = u.sum(), v.sum()
assert np.isclose(total, same)
if along_z.rank == 0:
    print(f"there and back over {along_z.size} processes: equal, mean {total / u.size:.9f}")
