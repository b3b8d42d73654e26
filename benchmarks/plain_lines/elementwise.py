"""Arithmetic on fields against NumPy on the blocks."""

from functools import partial
from operator import add

import pencils

from .line import Calls, Line


def addition(n, comm):
    pencil = pencils.Pencil((n,) * 3, comm)
    u, v = pencils.random.uniform(pencil, 1), pencils.random.uniform(pencil, 2)
    return Calls(partial(add, u.local.copy(), v.local.copy()), partial(add, u, v))


LINES = [
    Line(f"u + v, {n}^3", "NumPy on the blocks", partial(addition, n), goal)
    for n, goal in ((16, 0.7), (32, 0.85), (64, 1.0))
]
