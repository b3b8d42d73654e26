"""Time an iteration of Krylov methods against the sum of its parts, written by hand, in one run.

    mpiexec -n 2 python -m mpi4py benchmarks/krylov.py
    mpiexec -n 2 python -m mpi4py benchmarks/krylov.py --n 64 --repeat 15

The operator is the Laplacian of seven points. The parts of an iteration by hand are its operator,
two products by `numpy.vdot` and `Allreduce`, and three updates of vectors in place. All cases run
in turn, a sample is the time of the slowest rank, and the table shows medians. Goal: an iteration
of `cg` costs at most 1.2 times the sum of its parts, whoever wrote the operator.
"""

import argparse
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI

import pencils
from pencils.solvers import bicgstab, cg, minres

timing = import_module("timing")
COMM = timing.COMM
FEW, MANY = 3, 13  # iterations: the difference has no preparations
FACES = [tuple(sign * row) for row in np.eye(3, dtype=int) for sign in (1, -1)]
GOAL = 1.2


@pencils.fused
def fused(u):
    u.exchange_halo(corners=False)
    return 6 * u - sum(u.shift(face) for face in FACES)


def by_hand(u, out):
    """Exchange planes by mpi4py, and compute by NumPy; axis 0 is cut, and nothing is periodic."""
    p, rank = u.padded, COMM.rank
    up = rank + 1 if rank + 1 < COMM.size else MPI.PROC_NULL
    down = rank - 1 if rank else MPI.PROC_NULL
    for here, there, to, source in ((-2, 0, up, down), (1, -1, down, up)):
        COMM.Sendrecv(p[here], to, recvbuf=p[there], source=source)  # both are contiguous
    w, c = out.local, slice(1, -1)
    np.multiply(p[c, c, c], 6, out=w)
    for shifted in (
        p[2:, c, c],
        p[:-2, c, c],
        p[c, 2:, c],
        p[c, :-2, c],
        p[c, c, 2:],
        p[c, c, :-2],
    ):
        w -= shifted


def products(r, p, s):
    for one, other in ((p, s), (r, r)):
        COMM.allreduce(float(np.vdot(one, other)))


def updates(x, r, p, s, room):
    """Update vectors as a careful author of conjugate gradients does, without new arrays."""
    x += np.multiply(p, 1e-3, out=room)
    r -= np.multiply(s, 1e-3, out=room)
    p *= 0.5
    p += r


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=128, help="points along each dimension")
    parser.add_argument("--repeat", type=int, default=9, help="samples of each case")
    parser.add_argument(
        "--best", action="store_true", help="best samples, where other programs disturb medians"
    )
    options = parser.parse_args()
    n, typical = options.n, min if options.best else median
    pencil = pencils.Pencil((n, n, n), decomp=0)
    b, w = pencils.empty(pencil, halo=1), pencils.empty(pencil, halo=1)
    b.local[...] = pencils.random.uniform(pencil, rng=1).local
    arrays = [b.local.copy() for _ in range(5)]
    inverse = partial(np.multiply, 0.1)
    solvers: dict[str, Any] = {
        "cg": (cg, {}, 1),
        "cg, preconditioned by u / 10": (cg, {"preconditioner": lambda r, o: inverse(r, out=o)}, 1),
        "minres": (minres, {}, 1),
        "bicgstab": (bicgstab, {}, 2),
    }
    operators = {"operator by NumPy and mpi4py": by_hand, "fused operator": fused}
    calls: dict[Any, Any] = {
        "products": partial(products, *arrays[1:4]),
        "updates": partial(updates, *arrays),
        "operator by NumPy and mpi4py": partial(by_hand, b, w),
        "fused operator": partial(fused, b, out=w),
    }
    for name, operator in operators.items():
        for solver, (solve, given, _) in solvers.items():
            for most in (FEW, MANY):
                run = partial(solve, operator, b, rtol=0, maxiter=most, progress=False, **given)
                calls[name, solver, most] = run
    samples = timing.in_turn(calls, options.repeat)
    timing.print_on_root(f"{n}^3 float64 on {COMM.size} ranks; ms for each iteration")
    for name in operators:
        parts = [typical(samples[each]) for each in (name, "products", "updates")]
        shown = " + ".join(f"{1e3 * part:.2f}" for part in parts)
        timing.print_on_root(f"\n{name}; by hand, with products and updates: {shown}")
        for solver, (_, _, times) in solvers.items():
            few, many = (typical(samples[name, solver, most]) for most in (FEW, MANY))
            each = (many - few) / (MANY - FEW)
            ratio = each / (times * parts[0] + sum(parts[1:]))
            goal = f"   goal <= {GOAL}" if solver == "cg" else ""
            timing.print_on_root(f"  {solver:32}{1e3 * each:9.2f}{ratio:8.2f}{goal}")


if __name__ == "__main__":
    main()
