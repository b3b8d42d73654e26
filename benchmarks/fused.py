"""Time steps of Gray and Scott's reaction as plain lines, fused, and by one loop in C, in one run.

    mpiexec -n 2 python -m mpi4py benchmarks/fused.py
    mpiexec -n 2 python -m mpi4py benchmarks/fused.py --points 64 128 --repeat 15

All ways run in turn, and a sample is the time of the slowest rank, halos included. The tables show
minima in units of the loop in C, which needs a compiler, else of the fused lines. By hand means
NumPy with ``out=`` for each operator.
"""

import argparse
import ctypes
import shutil
import subprocess
import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np

import pencils

timing = import_module("timing")
COMM, print_on_root = timing.COMM, timing.print_on_root

RATES = {"du": 0.16, "dv": 0.08, "feed": 0.06, "kill": 0.062}
LOOP = """
#include <stddef.h>
#define AT(a, i) (a[i-x] + a[i+x] + a[i-y] + a[i+y] + a[i-1] + a[i+1] - 6.0 * a[i])
void step(const double *restrict u, const double *restrict v, double *restrict un,
          double *restrict vn, const long *n, double du, double dv, double f, double k, double dt)
{
    long y = n[2] + 2, x = (n[1] + 2) * y;
    for (long i = 1; i <= n[0]; i++)
        for (long j = 1; j <= n[1]; j++)
            for (long at = i * x + j * y + 1; at <= i * x + j * y + n[2]; at++) {
                double w = u[at] * v[at] * v[at];
                un[at] = u[at] + dt * (du * AT(u, at) - w + f * (1.0 - u[at]));
                vn[at] = v[at] + dt * (dv * AT(v, at) + w - (f + k) * v[at]);
            }
}
"""


def laplacian(u):
    """Add up the six neighbours of each point."""
    x = u.shift((-1, 0, 0)) + u.shift((1, 0, 0))
    return (
        x
        + u.shift((0, -1, 0))
        + u.shift((0, 1, 0))
        + u.shift((0, 0, -1))
        + u.shift((0, 0, 1))
        - 6 * u
    )


def step(u, v, dt, *, du, dv, feed, kill):
    """Compute one step."""
    u.exchange_halo(corners=False)
    v.exchange_halo(corners=False)
    w = u * v * v
    new_u = u + dt * (du * laplacian(u) - w + feed * (1 - u))
    return new_u, v + dt * (dv * laplacian(v) + w - (feed + kill) * v)


def plain(u, v, new_u, new_v):
    """Compute a step by plain lines."""
    new_u[...], new_v[...] = step(u, v, 1.0, **RATES)


def by_hand(work, u, v, new_u, new_v):
    """Compute a step by NumPy, with all results in memory that exists."""
    pencils.exchange_halos([u, v], corners=False)
    sides = [tuple(o) for axis in range(3) for o in np.roll([[-1, 0, 0], [1, 0, 0]], axis, 1)]
    w, term = work
    np.multiply(np.multiply(u.local, v.local, out=w), v.local, out=w)
    for field, new, rate, sign in ((u, new_u, "du", -1), (v, new_v, "dv", 1)):
        out = new.local
        np.add(field.shift(sides[0]).local, field.shift(sides[1]).local, out=out)
        for offsets in sides[2:]:
            np.add(out, field.shift(offsets).local, out=out)
        np.subtract(out, np.multiply(field.local, 6, out=term), out=out)
        np.multiply(out, RATES[rate], out=out)
        (np.add if sign > 0 else np.subtract)(out, w, out=out)
        if field is u:
            np.multiply(np.subtract(1, u.local, out=term), RATES["feed"], out=term)
            np.add(out, term, out=out)
        else:
            np.multiply(v.local, RATES["feed"] + RATES["kill"], out=term)
            np.subtract(out, term, out=out)
        np.add(out, field.local, out=out)


def compiled_loop():
    """Compile the loop in C; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp())
    (folder / "step.c").write_text(LOOP)
    options = ["-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(
        [compiler, *options, "-o", folder / "step.so", folder / "step.c"], check=True, timeout=60
    )
    loop = ctypes.CDLL(str(folder / "step.so")).step
    shutil.rmtree(folder)
    return loop


def in_c(loop, u, v, new_u, new_v):
    """Compute a step by the loop in C."""
    pencils.exchange_halos([u, v], corners=False)
    extents = (ctypes.c_long * 3)(*u.local_shape)
    fields = [ctypes.c_void_p(each.padded.ctypes.data) for each in (u, v, new_u, new_v)]
    loop(*fields, extents, *map(ctypes.c_double, (*RATES.values(), 1.0)))


def compare(n, repeat, loop):
    """Print the times of all ways for a cube."""
    pencil = pencils.Pencil((n, n, n), COMM, periodic=True)
    u, v = (
        pencils.from_function(pencil, lambda i, j, k, s=s: np.cos(i + s * j) * np.sin(k), halo=1)
        for s in (1, 2)
    )
    fused = pencils.fused(step)
    outs = {
        name: (u.blank(zero=True), v.blank(zero=True)) for name in ("C", "fused", "plain", "hand")
    }
    work = np.empty((2, *u.local_shape))
    calls = {
        "C": partial(in_c, loop, u, v, *outs["C"]),
        "fused": partial(fused, u, v, 1.0, **RATES, out=outs["fused"]),
        "plain": partial(plain, u, v, *outs["plain"]),
        "hand": partial(by_hand, work, u, v, *outs["hand"]),
    }
    if loop is None:
        del calls["C"]
    samples = timing.in_turn(calls, repeat)
    equal = {
        name: all(map(np.array_equal, *([w.local for w in outs[each]] for each in (name, "plain"))))
        for name in calls
    }
    least = {name: min(each) for name, each in samples.items()}
    base = least["C" if loop else "fused"]
    for name, seconds in least.items():
        same = "equal" if COMM.allreduce(equal[name]) == COMM.size else "not equal to plain lines"
        print_on_root(f"{n:5}^3  {name:6} {1e3 * seconds:9.3f} ms {seconds / base:7.2f}  {same}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, nargs="+", default=[32, 64, 128, 192])
    parser.add_argument("--repeat", type=int, default=9)
    given = parser.parse_args()
    made = compiled_loop()
    for points in given.points:
        compare(points, given.repeat, made)
