"""Time multigrid solves of div(a grad u) = f in a cube against copies of the field, in one run.

    mpiexec -n 2 python -m mpi4py benchmarks/multigrid.py
    mpiexec -n 2 python -m mpi4py benchmarks/multigrid.py --points 64 --repeat 9

Cases run in turn, and a sample is the time of the slowest rank; tables show minima, also in units
of a copy of the own block. Right sides are random, walls are Dirichlet ones. Peers are PETSc's
conjugate gradients with geometric multigrid, its own and that of hypre, on the same ranks, if
petsc4py is installed, and pyamg on one rank.
"""

import argparse
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

import pencils
from pencils.comm import pack

try:
    from petsc4py import PETSc
except ImportError:
    PETSc = None
pyamg: Any = None
with suppress(ImportError):
    pyamg = import_module("pyamg")

timing = import_module("timing")
COMM, print_on_root = timing.COMM, timing.print_on_root
FLOOR = "copy of the own block"
CYCLE, PASS = ": one cycle of a solve", ": one pass of the operator"
GOAL_PASSES = 12  # of a cycle over the finest grid, in times of the operator there
GOAL_RATE = {1.0: 0.12, 1000.0: 0.25}  # residuals after a cycle, relative to those before


class Case(NamedTuple):
    """A call that solves, and one that tells the number of cycles and the mean rate."""

    call: object
    tell: object


def conductivity(pen, jump):
    n = pen.shape[0]
    grid = pencils.localgrid(pen, [(np.arange(n) + 0.5) / n - 0.47] * 3)
    return np.where(sum(x * x for x in grid) < 0.09, jump, 1.0)


def ours(pen, jump, smoother, cycle):
    """Return a case of `Multigrid`."""
    a = 1.0 if jump == 1 else conductivity(pen, jump)
    axis = 2 if smoother == "line" else None
    options = {"spacing": 1 / pen.shape[0], "smoother": smoother, "axis": axis, "cycle": cycle}
    mg = pencils.solvers.Multigrid(pen, a, **options)
    f, out = pencils.random.normal(pen, rng=1), pencils.empty(pen)

    def tell():
        result = mg.solve(f, out)
        rate = (result.residuals[-1] / result.residuals[0]) ** (1 / result.iterations)
        return f"{result.iterations:3} cycles, {rate:.3f} each (goal {GOAL_RATE[jump]})"

    u = pencils.zeros(pen, halo=1)
    return (
        Case(partial(mg.solve, f, out), tell),
        Case(partial(mg._cycles, f, 1.0), lambda: ""),
        Case(partial(mg.levels[0].apply, u, out=out), lambda: ""),
    )


def by_petsc(pen, kind, matrix_type):
    """Return a case of PETSc for a = 1: conjugate gradients with multigrid of a kind on a DMDA."""
    da = PETSc.DMDA().create(pen.shape, stencil_width=1, stencil_type="star", comm=COMM)
    da.setMatType(matrix_type)
    da.setInterpolationType(PETSc.DMDA.InterpolationType.Q0)
    matrix, n = da.createMatrix(), pen.shape[0]
    (i0, i1), (j0, j1), (k0, k1) = da.getRanges()
    row, column = PETSc.Mat.Stencil(), PETSc.Mat.Stencil()
    for point in ((i, j, k) for i in range(i0, i1) for j in range(j0, j1) for k in range(k0, k1)):
        row.index, inner = point, 0
        for axis, step in ((axis, step) for axis in range(3) for step in (-1, 1)):
            near = tuple(x + step * (dim == axis) for dim, x in enumerate(point))
            if 0 <= near[axis] < n:
                inner, column.index = inner + 1, near
                matrix.setValueStencil(row, column, -1.0)
        matrix.setValueStencil(row, row, 12.0 - inner)
    matrix.assemble()
    b, x = da.createGlobalVec(), da.createGlobalVec()
    b.setRandom()
    solver = PETSc.KSP().create(COMM)
    solver.setOperators(matrix)
    solver.setDM(da)
    solver.setDMActive(False)
    solver.setType("cg")
    solver.getPC().setType(kind)
    if kind == "mg":
        solver.getPC().setMGLevels(max(2, n.bit_length() - 3))
        PETSc.Options()["pc_mg_galerkin"] = "both"
    solver.setTolerances(rtol=1e-8)
    solver.setFromOptions()
    solver.setUp()
    return Case(partial(solver.solve, b, x), lambda: f"{solver.getIterationNumber():3} cycles")


def by_pyamg(n):
    """Return a case of pyamg on one rank, for a = 1."""
    sparse = import_module("scipy.sparse")
    line = sparse.diags([-1, 2, -1], [-1, 0, 1], (n, n)).tolil()
    line[0, 0] = line[n - 1, n - 1] = 3
    one = sparse.eye(n)
    terms = ([line, one, one], [one, line, one], [one, one, line])
    matrix = sum(sparse.kron(sparse.kron(x, y), z) for x, y, z in terms).tocsr()
    solver = pyamg.ruge_stuben_solver(matrix)
    b = np.random.default_rng(1).standard_normal(n**3)
    residuals: list[float] = []
    call = partial(solver.solve, b, tol=1e-8, accel="cg")
    return Case(call, lambda: call(residuals=residuals) is None or f"{len(residuals) - 1:3} cycles")


def cases(pen):
    """Return all cases by name. *Collective*."""
    source, target = (np.empty(pen.local_shape) for _ in range(2))
    found = {FLOOR: Case(partial(pack.copy, source, target), lambda: "")}
    for jump in GOAL_RATE:
        for smoother, cycle in (
            ("red-black", "V"),
            ("red-black", "W"),
            ("chebyshev", "V"),
            ("line", "V"),
        ):
            name = f"a up to {jump:g}, {smoother}, {cycle}"
            every = ours(pen, jump, smoother, cycle)
            found |= zip((name, name + CYCLE, name + PASS), every, strict=True)
    if PETSc is None:
        print_on_root("petsc4py is not installed: no times of PETSc")
    else:
        found["PETSc, CG with PCMG"] = by_petsc(pen, "mg", "aij")
        found["PETSc, CG with PFMG of hypre"] = by_petsc(pen, "pfmg", "hyprestruct")
    if pyamg is None:
        print_on_root("pyamg is not installed: no times of pyamg")
    elif COMM.size == 1:
        found["pyamg, CG with Ruge-Stueben"] = by_pyamg(pen.shape[0])
    return found


def compare(n, repeat):
    """Print the times of all cases for a cube."""
    found = cases(pencils.Pencil((n, n, n), COMM))
    samples = timing.in_turn({name: case.call for name, case in found.items()}, repeat)
    floor = min(samples[FLOOR])
    print_on_root(f"{n}^3 on {COMM.size} ranks, to 1e-8{'':37} ms  / copy")
    for name, seconds in samples.items():
        least, told = min(seconds), found[name].tell()
        if name.endswith(CYCLE):
            passes = least / min(samples[name.replace(CYCLE, PASS)])
            told = f"{passes:.1f} passes (goal {GOAL_PASSES})"
        print_on_root(f"{name:52} {1e3 * least:9.1f} {least / floor:7.1f}  {told}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, nargs="+", default=[128])
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    for points in given.points:
        compare(points, given.repeat)
