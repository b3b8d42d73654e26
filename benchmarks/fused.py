"""Fused lines beside plain lines and other ways to compute them, in one run.

    mpiexec -n 2 python -m mpi4py benchmarks/fused.py
    mpiexec -n 2 python -m mpi4py benchmarks/fused.py --points 64 128 --repeat 15 --schemes rk4

Ways run in turn, and a sample is the time of the slowest rank; tables show minima. The first one
has time steps of Gray and Scott's reaction by all ways of `gray_scott.py`, halos included, in units
of one pass for each stage in C. The second one has single functions, and what the demo computes
beside its transforms. Results of all ways are compared with those of plain lines.
"""

import argparse
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

import pencils
from pencils.tools import demo

steps = import_module("gray_scott")
timing = import_module("timing")
COMM, print_on_root = timing.COMM, timing.print_on_root

WAYS = {
    "C": steps.in_c,
    "cc": partial(steps.fused, pencils.fused(compiler="cc")),
    "fused": partial(steps.fused, pencils.fused),
    "plain": steps.plain,
    "graph": steps.by_graph,
    "NumPy": steps.by_hand,
    "numexpr": steps.by_numexpr,
    "numba": steps.by_numba,
}
# Goals: times in units of the loop in C, and how many times as fast as plain lines.
IN_UNITS_OF_C = {
    ("fused", "euler"): {64: 2.3, 128: 2.3, 192: 2.0},
    ("fused", "rk4"): {64: 2.3, 128: 2.1, 192: 2.0},
    ("cc", "euler"): {64: 1.3, 128: 1.2, 192: 1.1},
    ("cc", "rk4"): {64: 1.3, 128: 1.2, 192: 1.1},
}
FASTER = {("graph", "rk4"): {128: 4}}


def compare_steps(scheme, n, repeat):
    """Print the times of all ways for a cube."""
    pencil = pencils.Pencil((n, n, n), COMM, periodic=True)
    start = [
        pencils.from_function(pencil, lambda i, j, k, s=s: np.cos(i + s * j) * np.sin(k), halo=1)
        for s in (1, 2)
    ]
    made = {name: way(steps.Case.of(start, scheme)) for name, way in WAYS.items()}
    calls = {name: call for name, call in made.items() if call is not None}
    first = {name: timing.slowest(call) for name, call in calls.items()}
    least = {name: min(each) for name, each in timing.in_turn(calls, repeat).items()}
    base = least["C" if "C" in least else "fused"]
    print_on_root(f"{scheme}, {n}^3      first ms         ms   / C   goal  plain /  goal")
    for name, seconds in least.items():
        columns = [f"    {name:8}", f"{1e3 * first[name]:10.1f}", f"{1e3 * seconds:10.3f}"]
        columns += [f"{seconds / base:5.2f}", goal(IN_UNITS_OF_C, name, scheme, n)]
        columns += [f"{least['plain'] / seconds:8.2f}", goal(FASTER, name, scheme, n)]
        print_on_root(*columns, equality(calls[name](), calls["plain"]()))


def goal(goals, name, scheme, n):
    return f"{goals.get((name, scheme), {}).get(n, ''):>5}"


def equality(values, expected):
    """Tell whether values are equal bit by bit on all ranks."""
    same = all(a.tobytes() == b.tobytes() for a, b in zip(values, expected, strict=True))
    return "equal" if COMM.allreduce(same, op=MPI.LAND) else "NOT EQUAL"


# Single functions.


class Row(NamedTuple):
    """Two ways to compute the same, how often each is repeated in a sample, and the goal."""

    name: str
    plain: Any
    fused: Any
    goal: str
    times: int = 1


def elements(u, v):
    """Call functions that take long for each element."""
    return np.where(u > 0, np.exp(-u), np.sin(v)) + np.sqrt(abs(u)) * np.tanh(v)


def forward(u, v, dt):
    return u + dt * v


def reaction(u, v, dt):
    """Compute an Euler step of 29 operations, without the exchange of halos."""
    sides = [[one.shift(o) for o in steps.OFFSETS] for one in (u, v)]
    return [x + dt * rate for x, rate in zip((u, v), steps.change(u, v, *sides), strict=True)]


def row(name, function, args, goal, times=1):
    """Compare a function with the same one fused, which writes to memory that exists."""
    fused, out = pencils.fused(function), pencils.fused(function)(*args)
    return Row(name, partial(function, *args), partial(fused, *args, out=out), goal, times)


def two_fields(pen):
    """Draw values, ghosts included: what lies there may raise errors, which cost time."""
    fields = [pencils.random.uniform(pen, rng=k, low=-1, high=1, halo=1) for k in (1, 2)]
    pencils.exchange_halos(fields)
    return fields


def demo_row(n):
    """Compare what the demo computes in a stage of a step, without transforms."""
    flow = demo.NavierStokes(n, 0.001)
    u_hat = flow.start(demo.taylor_green(flow.fft.input_pencil))
    u, omega = flow.fft.backward(u_hat), flow.fft.backward(flow.curl(u_hat))
    force, stage, after, product = flow.force(u_hat).copy(), u_hat.copy(), u_hat.copy(), u.copy()
    terms = flow.ik, flow.inverse_k2, flow.damping

    def compute():
        after[...] = stage[...] = u_hat
        flow.curl(u_hat)
        demo.cross(u, omega, out=product.unstack())
        demo.advance(force, (u_hat, stage, after), terms, 0.001, 0.003)
        return [one.copy() for one in (flow.waves, product, stage, after)]

    names = ("cross", "project", "advance")
    lines = {name: plain_lines(getattr(demo, name)) for name in names}
    return Row(f"demo, a stage, {n}^3", patch.multiple(demo, **lines)(compute), compute, "2 x")


def plain_lines(fused):
    """Return what was decorated, with the argument ``out``."""

    def run(*args, out=None):
        result = fused.__wrapped__(*args)
        for field, value in zip(out or (), result or (), strict=False):
            field[...] = value
        return result

    return run


def rows():
    """Make the rows of the second table."""
    for_each_rank = [pencils.Pencil((n, n, n), MPI.COMM_SELF, periodic=True) for n in (16, 32)]
    pens = [pencils.Pencil((128, 128, 128), COMM, periodic=True), *for_each_rank]
    large, small, middle = map(two_fields, pens)
    yield row("where exp sin sqrt tanh 128^3", elements, large, "1.5 x")
    yield row("u + dt * v, 16^3", forward, [*small, 0.1], "4.5 us", 500)
    yield row("29 operations, 32^3", reaction, [*middle, 0.1], "3.5 x", 20)
    yield demo_row(64)


def compare_rows(repeat):
    """Print times of functions, by plain lines and fused."""
    for one in rows():
        calls = {"plain": several(one.plain, one.times), "fused": several(one.fused, one.times)}
        samples = timing.in_turn(calls, repeat)
        plain, fused = (1e6 * min(samples[name]) / one.times for name in calls)
        print_on_root(
            f"{one.name:30} plain {plain:9.1f} us, fused {fused:9.1f} us: {plain / fused:5.2f} x "
            f"as fast (goal {one.goal}), {equality(local(one.fused()), local(one.plain()))}"
        )


def several(call, times):
    def run():
        for _ in range(times):
            call()

    return run


def local(values):
    return [one.local for one in (values if isinstance(values, list) else [values])]


def compare_first_calls(repeat):
    """Print how much longer the first call of a function takes."""
    pen = pencils.Pencil((32, 32, 32), MPI.COMM_SELF, periodic=True)
    args = [*two_fields(pen), 0.1]
    kept = pencils.fused(reaction)
    calls = {"first": lambda: pencils.fused(reaction)(*args), "later": lambda: kept(*args)}
    first, later = (1e3 * min(each) for each in timing.in_turn(calls, 5 * repeat).values())
    print_on_root(f"tracing 29 operations, compiling {first - later:22.2f} ms (goal 3 ms)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--points", type=int, nargs="*", default=[32, 64, 128, 192])
    add("--schemes", nargs="+", choices=[*steps.STAGES], default=[*steps.STAGES])
    add("--repeat", type=int, default=9)
    given = parser.parse_args()
    for method in given.schemes:
        for points in given.points:
            compare_steps(method, points, given.repeat)
    compare_rows(given.repeat)
    compare_first_calls(given.repeat)
