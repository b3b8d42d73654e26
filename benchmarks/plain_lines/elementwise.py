"""Arithmetic on fields against NumPy on the blocks."""

from functools import partial

import numpy as np

import pencils

from .line import Calls, Line


def addition(n, comm):
    pencil = pencils.Pencil((n,) * 3, comm)
    u, v = pencils.random.uniform(pencil, 1), pencils.random.uniform(pencil, 2)
    # NumPy would overwrite `a` if nothing else referred to it.
    a, b = u.local.copy(), v.local.copy()
    return Calls(lambda: a + b, lambda: u + v)


def vector_product(n, comm):
    pencil = pencils.Pencil((n,) * 3, comm)
    u, v = (pencils.random.uniform(pencil, rng, components=3) for rng in (1, 2))
    a, b, c = u.local.copy(), v.local.copy(), np.empty_like(u.local)

    def by_hand():
        for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
            np.multiply(a[j], b[k], out=c[i])
            c[i] -= a[k] * b[j]

    return Calls(by_hand, partial(np.cross, u, v, axis=0))


LINES = [
    Line(f"u + v, {n}^3", "NumPy on the blocks", partial(addition, n), goal)
    for n, goal in ((16, 0.75), (32, 0.85), (64, 0.95))
] + [
    Line(f"np.cross(u, v, axis=0), {n}^3", "by components", partial(vector_product, n), goal)
    for n, goal in ((16, 0.2), (64, 1.0))
]
