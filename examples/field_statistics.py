"""Statistics of a random field, the same on any number of processes.

python examples/field_statistics.py
mpiexec -n 4 python -m pencils run examples/field_statistics.py
"""

import numpy as np

import pencils

pen = pencils.Pencil((60, 50, 40))
z = pencils.localgrid(pen, [np.linspace(0, 1, n) for n in pen.shape]).z

# Every process generates its own block of one global random field.
u = 0.1 * pencils.random.normal(pen, rng=2024) + np.sin(np.pi * z)

# Reductions are global; every process gets the result.
mean, variance = u.mean(), u.var()
peak = np.unravel_index(u.argmax(), u.shape)

# Reduced dimensions are kept with extent 1, so that profiles broadcast to the field.
profile = u.mean(axis=(0, 1))
assert profile.shape == (1, 1, 40)
fluctuation = u - profile
intensity = np.sqrt((fluctuation**2).mean(axis=(0, 1)))

# Reynolds decomposition: the variance of the field is the variance of the profile plus that of
# the fluctuation.
assert np.isclose(variance, profile.var() + (fluctuation**2).mean())
assert abs(fluctuation.mean()) < 1e-12
assert abs(intensity.mean() - 0.1) < 1e-3

# Counts and quantiles of all points, without gathering them.
counts, edges = np.histogram(fluctuation, bins=20)
low, middle, high = np.quantile(fluctuation, [0.25, 0.5, 0.75])
assert counts.sum() == u.size
assert edges[0] == fluctuation.min()
assert abs(middle) < 1e-3
assert abs((high - low) - 0.1349) < 1e-3  # of a normal distribution

whole = pencils.gather(u)
if whole is not None:  # on process 0
    assert np.isclose(whole.mean(), mean)
    assert np.isclose(whole.var(), variance)
    assert np.unravel_index(whole.argmax(), whole.shape) == peak
    print(f"mean {mean:.9f}, variance {variance:.9f}, peak at {tuple(map(int, peak))}")
