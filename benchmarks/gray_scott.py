"""Gray-Scott time steps in several ways: what `fused.py` compares.

Each way makes a call that computes a step and returns local values, or returns None where a
compiler or library is missing. Steps are those of Euler and of Runge and Kutta, with 7 points.
"""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pencils
from pencils import graph

OFFSETS = [(-1, 0, 0), (1, 0, 0), (0, -1, 0), (0, 1, 0), (0, 0, -1), (0, 0, 1)]
DU, DV, FEED, KILL = 0.16, 0.08, 0.06, 0.062
DT = 1.0
# Weights of the rates, and how far ahead the next one is computed.
STAGES = {"euler": ((1, None),), "rk4": ((1 / 6, 1 / 2), (1 / 3, 1 / 2), (1 / 3, 1), (1 / 6, None))}
LOOP = r"""
#include <stddef.h>
#define BEND(a) (a[i-x] + a[i+x] + a[i-y] + a[i+y] + a[i-1] + a[i+1] - 6.0 * a[i])
#define FIELDS const double *restrict a, const double *restrict b, const double *restrict u, \
               const double *restrict v, double *restrict sum_u, double *restrict sum_v, \
               double *restrict next_u, double *restrict next_v
#define NUMBERS const long *n, double du, double dv, double f, double k, double weight, double ahead
static inline __attribute__((always_inline)) void loop(FIELDS, NUMBERS, int first, int last)
{
    long y = n[2] + 2, x = (n[1] + 2) * y;
    for (long p = 1; p <= n[0]; p++)
        for (long q = 1; q <= n[1]; q++)
            for (long i = p * x + q * y + 1; i <= p * x + q * y + n[2]; i++) {
                double w = a[i] * b[i] * b[i];
                double rate_u = du * BEND(a) - w + f * (1.0 - a[i]);
                double rate_v = dv * BEND(b) + w - (f + k) * b[i];
                sum_u[i] = (first ? u[i] : sum_u[i]) + weight * rate_u;
                sum_v[i] = (first ? v[i] : sum_v[i]) + weight * rate_v;
                if (!last) {
                    next_u[i] = u[i] + ahead * rate_u;
                    next_v[i] = v[i] + ahead * rate_v;
                }
            }
}
#define LOOP(u, v, first, last) \
    loop(a, b, u, v, sum_u, sum_v, next_u, next_v, n, du, dv, f, k, weight, ahead, first, last)
void stage(FIELDS, NUMBERS, int first, int last) /* a loop of its own for each kind of stage */
{
    if (first && last)
        LOOP(a, b, 1, 1);
    else if (first)
        LOOP(u, v, 1, 0);
    else if (last)
        LOOP(u, v, 0, 1);
    else
        LOOP(u, v, 0, 0);
}
"""
BEND = "(s0 + s1 + s2 + s3 + s4 + s5 - 6 * {0})"
EXPRESSIONS = (
    f"start + step * ({DU} * {BEND.format('a')} - a * b * b + {FEED} * (1 - a))",
    f"start + step * ({DV} * {BEND.format('b')} + a * b * b - {FEED + KILL} * b)",
)

Pair = Sequence[Any]


class Case(NamedTuple):
    """A time step: fields, memory for results and twice for stages, and the stages."""

    start: Pair
    out: Pair
    ahead: Sequence[Pair]
    stages: Any

    @classmethod
    def of(cls, start, scheme):
        """Allocate memory for a step of some scheme."""
        pairs = [[one.blank(zero=True) for one in start] for _ in range(3)]
        return cls(start, pairs[0], pairs[1:], STAGES[scheme])

    def args(self):
        return *self.start, self.ahead, DT, self.stages

    def local(self):
        return [one.local for one in self.out]


# The lines of a user, for fields and for nodes of a graph.


def change(u, v, sides_u, sides_v):
    """Compute the rates of change from all points and the six neighbours of each."""
    w = u * v * v
    a, b, c, d, e, f = sides_u
    rate_u = DU * (a + b + c + d + e + f - 6 * u) - w + FEED * (1 - u)
    a, b, c, d, e, f = sides_v
    return rate_u, DV * (a + b + c + d + e + f - 6 * v) + w - (FEED + KILL) * v


def advance(u, v, dt, stages, *, sides, store):
    """Compute a step, by functions that find neighbours and store values for the next stage."""
    now: Pair = (u, v)
    after: Pair = (u, v)
    for number, (weight, ahead) in enumerate(stages):
        rates = change(*now, *sides(*now))
        after = [x + weight * dt * rate for x, rate in zip(after, rates, strict=True)]
        if ahead is not None:
            values = [x + ahead * dt * rate for x, rate in zip((u, v), rates, strict=True)]
            now = store(number, values)
    return after


def shifted(u, v):
    """Exchange halos, and view the neighbours of all points."""
    u.exchange_halo(corners=False)
    v.exchange_halo(corners=False)
    return [[one.shift(o) for o in OFFSETS] for one in (u, v)]


def step(u, v, memory, dt, stages):
    """Compute a step of fields."""

    def store(number, values):
        for field, value in zip(memory[number % 2], values, strict=True):
            field[...] = value
        return memory[number % 2]

    return advance(u, v, dt, stages, sides=shifted, store=store)


# Ways to compute a step: each makes a call that returns local values, or returns None.


def plain(case):
    def run():
        case.out[0][...], case.out[1][...] = step(*case.args())
        return case.local()

    return run


def fused(decorate, case):
    made = decorate(step)

    def run():
        made(*case.args(), out=case.out)
        return case.local()

    return run


def by_graph(case):
    """Execute the same lines as a graph."""
    if len(case.stages) == 1:
        return None
    pencil = case.start[0].pencil

    def sides(u, v):
        both: Any = np.stack([u, v])
        padded = graph.halo_exchange(both, pencil, 1, corners=False)
        keys = [
            tuple(slice(1 + k, 1 + k + n) for k, n in zip(o, u.shape, strict=True)) for o in OFFSETS
        ]
        return [[one[key] for key in keys] for one in (padded[0], padded[1])]

    nodes = [graph.make_placeholder(name, pencil.local_shape) for name in "uv"]
    kept = {"sides": sides, "store": lambda _, values: values}
    after = advance(nodes[0], nodes[1], DT, case.stages, **kept)
    outputs = dict(zip("uv", after, strict=True))
    args = graph.find_distributed_partition(pencil.comm, outputs), None, None, pencil.comm
    given = dict(zip("uv", [one.local for one in case.start], strict=True))
    execute = partial(graph.execute_distributed_partition, *args, input_args=given)
    return lambda: list(execute().values())


def in_stages(compute, case):
    """Make a call of ``compute(now, case, memory, weight, ahead, first=)`` for each stage."""

    def run():
        now = case.start
        for number, (weight, ahead) in enumerate(case.stages):
            pencils.exchange_halos(now, corners=False)
            memory = case.ahead[number % 2]
            later = None if ahead is None else ahead * DT
            compute(now, case, memory, weight * DT, later, first=number == 0)
            now = memory
        return case.local()

    return run


def by_hand(case):
    """Let NumPy write each result to memory that exists."""
    work = np.empty((4, *case.start[0].local_shape))

    def compute(now, case, memory, weight, ahead, *, first):
        hand_rates(now, *work)
        for start, out, later, rate in zip(case.start, case.out, memory, work[:2], strict=True):
            before = start if first else out
            np.add(before.local, np.multiply(rate, weight, out=work[2]), out=out.local)
            if ahead is not None:
                np.add(start.local, np.multiply(rate, ahead, out=work[2]), out=later.local)

    return in_stages(compute, case)


def hand_rates(now, rate_u, rate_v, w, term):
    """Compute the rates of change by NumPy."""
    u, v = (one.local for one in now)
    np.multiply(np.multiply(u, v, out=w), v, out=w)
    for field, rate, factor in ((now[0], rate_u, DU), (now[1], rate_v, DV)):
        first, second, *others = (field.shift(o).local for o in OFFSETS)
        np.add(first, second, out=rate)
        for side in others:
            np.add(rate, side, out=rate)
        np.subtract(rate, np.multiply(field.local, 6, out=term), out=rate)
        np.multiply(rate, factor, out=rate)
    np.subtract(rate_u, w, out=rate_u)
    np.add(rate_u, np.multiply(np.subtract(1, u, out=term), FEED, out=term), out=rate_u)
    np.add(rate_v, w, out=rate_v)
    np.subtract(rate_v, np.multiply(v, FEED + KILL, out=term), out=rate_v)


def by_numexpr(case):
    """Let numexpr compute each result in one pass."""
    if not find_spec("numexpr"):
        return None
    numexpr = import_module("numexpr")
    numexpr.set_num_threads(1)

    def compute(now, case, memory, weight, ahead, *, first):
        for i, text in enumerate(EXPRESSIONS):
            names = {f"s{k}": now[i].shift(o).local for k, o in enumerate(OFFSETS)}
            names |= {"a": now[0].local, "b": now[1].local}
            start, out = case.start[i].local, case.out[i].local
            before = start if first else out
            numexpr.evaluate(text, {**names, "start": before, "step": weight}, out=out)
            if ahead is not None:
                names |= {"start": start, "step": ahead}
                numexpr.evaluate(text, names, out=memory[i].local)

    return in_stages(compute, case)


def by_numba(case):
    """Compile a loop of one pass by numba."""
    if not find_spec("numba"):
        return None
    loop = import_module("numba").njit(numba_stage)

    def compute(now, case, memory, weight, ahead, *, first):
        fields = *now, *case.start, *case.out, *memory
        last = ahead is None
        arrays = tuple(one.padded for one in fields)
        loop(arrays, weight, 0.0 if last else ahead, first, last)

    return in_stages(compute, case)


def numba_stage(arrays, weight, ahead, first, last):
    a, b, u, v, sum_u, sum_v, next_u, next_v = arrays
    x, y, z = a.shape
    for i in range(1, x - 1):
        for j in range(1, y - 1):
            for k in range(1, z - 1):
                w = a[i, j, k] * b[i, j, k] * b[i, j, k]
                n = a[i - 1, j, k] + a[i + 1, j, k] + a[i, j - 1, k] + a[i, j + 1, k]
                bend = n + a[i, j, k - 1] + a[i, j, k + 1] - 6 * a[i, j, k]
                rate_u = DU * bend - w + FEED * (1 - a[i, j, k])
                n = b[i - 1, j, k] + b[i + 1, j, k] + b[i, j - 1, k] + b[i, j + 1, k]
                bend = n + b[i, j, k - 1] + b[i, j, k + 1] - 6 * b[i, j, k]
                rate_v = DV * bend + w - (FEED + KILL) * b[i, j, k]
                sum_u[i, j, k] = (u[i, j, k] if first else sum_u[i, j, k]) + weight * rate_u
                sum_v[i, j, k] = (v[i, j, k] if first else sum_v[i, j, k]) + weight * rate_v
                if not last:
                    next_u[i, j, k] = u[i, j, k] + ahead * rate_u
                    next_v[i, j, k] = v[i, j, k] + ahead * rate_v


def in_c(case):
    """Compile a loop of one pass in C."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "stage.c"), Path(folder, "stage.so")
        source.write_text(LOOP)
        options = ["-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
        subprocess.run([compiler, *options, "-o", target, source], check=True, timeout=60)
        loop = ctypes.CDLL(str(target)).stage
    extents = (ctypes.c_long * 3)(*case.start[0].local_shape)

    def compute(now, case, memory, weight, ahead, *, first):
        fields = *now, *case.start, *case.out, *memory
        pointers = [ctypes.c_void_p(one.padded.ctypes.data) for one in fields]
        numbers = map(ctypes.c_double, (DU, DV, FEED, KILL, weight, ahead or 0.0))
        loop(*pointers, extents, *numbers, first, ahead is None)

    return in_stages(compute, case)
