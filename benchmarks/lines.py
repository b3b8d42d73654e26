"""Time what works along lines against a copy of the own block, in one run.

    mpiexec -n 2 python -m mpi4py benchmarks/lines.py
    mpiexec -n 2 python -m mpi4py benchmarks/lines.py --only shared cumsum --axes 0 --repeat 15

All cases of one axis run in turn, and a sample is the time of the slowest rank. The tables show
medians of the ratios of samples of one turn, beside the goal; "floor" is `pack.copy` of the own
block into another array. Only ratios are comparable between machines.

Matrices are scaled so that solving again and again in place neither grows nor vanishes.
"""

import argparse
import gc
from functools import partial
from importlib import import_module
from statistics import median

import numpy as np
from mpi4py import MPI

import pencils
from pencils.comm import pack

try:
    from mpi4py_fft import DistArray
    from scipy.linalg import solve_banded
except ImportError:
    DistArray = None

results = import_module("results")
timing = import_module("timing")
COMM = timing.COMM
print_on_root, slowest = timing.print_on_root, timing.slowest
FLOOR = "floor"

# Blocks decay away from the cuts with the first matrix, and hardly with the second one.
DECAYING = (-1.0, 3.0, -1.0)


def poisson(n):
    scale = 4 * np.sin(np.pi / (2 * n + 2)) ** 2
    return -1 / scale, 2 / scale, -1 / scale


class Table:
    """Cases of one axis, and the rows that compare them."""

    def __init__(self, title):
        self.title, self.cases, self.rows, self.plans = title, {}, [], []

    def case(self, name, call, *, per=(FLOOR,), goal=None, least=False):
        """Add a case, to be shown in units of the sum of others."""
        self.cases[name] = call
        if per:
            self.row(name, per, goal, least=least)

    def row(self, name, per, goal=None, *, least=False):
        """Show a case in units of the sum of others; the ratio should be at most the goal."""
        self.rows.append((name, tuple(per), goal, least))

    def solver(self, *arguments, **options):
        plan = pencils.lines.LineSolver(*arguments, check=False, **options)
        self.plans.append(plan)
        return plan

    def keep(self, only):
        """Leave out rows without one of these words, and cases that no row needs."""
        if only:
            self.rows = [
                row
                for row in self.rows
                if any(word in " ".join((self.title, row[0], *row[1])) for word in only)
            ]
        needed = {name for row in self.rows for name in (row[0], *row[1])}
        self.cases = {name: call for name, call in self.cases.items() if name in needed}

    def show(self, repeat, *, best):
        """Time all cases in turn, and print the rows. *Collective*."""
        if not self.rows:
            return
        for call in self.cases.values():
            call()
        found: dict[str, list[float]] = {name: [] for name in self.cases}
        for turn in range(repeat):
            ordered = list(self.cases.items())
            for name, call in ordered if turn % 2 else reversed(ordered):
                found[name].append(slowest(call))
        print_on_root(f"\n{self.title}\n  {'case':44}{'ms':>9}{'ratio':>8}{'goal':>9}       to")
        for name, per, goal, least in self.rows:
            if any(each not in found for each in (name, *per)):
                continue
            ratio = compared(found[name], [found[one] for one in per], best=best)
            aim = "" if goal is None else f"{'>=' if least else '<='} {goal:.2f}"
            shown = 1e3 * (min if best else median)(found[name])
            good = goal is None or (ratio >= goal if least else ratio <= goal)
            print_on_root(
                f"  {name:44}{shown:9.2f}{ratio:8.2f}{aim:>9}"
                f"{'' if good else ' miss':6} {' + '.join(per)}"
            )
            if least:  # another library, in units of ours
                results.keep(f"{self.title.partition(', which')[0]}, {per[0]}", name, ratio)

    def free(self):
        for plan in self.plans:
            plan.free()
        self.cases.clear()
        gc.collect()


def compared(samples, others, *, best):
    """Return the ratio of samples to the sum of others."""
    if best:
        return min(samples) / sum(map(min, others))
    sums = [sum(each) for each in zip(*others, strict=True)]
    return median(one / other for one, other in zip(samples, sums, strict=True))


def field(pencil, *, shared=False):
    made = pencils.random.uniform(pencil, rng=1)
    if not shared:
        return made
    u = pencils.empty(pencil, shared=True)
    u.local[...] = made.local
    return u


def floor(u):
    return partial(pack.copy, np.empty_like(u.local), u.local)


def in_place(solver, u):
    return partial(solver, u, u)


def constant(n, axis):
    """Make the methods for diagonals without fields, in place, and what others do."""
    table = Table(f"{n}^3, systems along axis {axis}, which is cut, the same for all lines")
    pencil = pencils.Pencil((n, n, n), decomp=axis)
    whole = pencil.whole(axis)
    u, there = field(pencil), field(whole, shared=True)
    table.case(FLOOR, floor(u), per=())
    local = table.solver(whole, axis, DECAYING)
    limit = (1.4, 2.0, 2.4)[axis]
    table.case("local, on whole lines", in_place(local, there), goal=limit)
    if COMM.size > 1:
        cut_lines(table, pencil, u, there)
    peer(table, n, axis)
    return table


def cut_lines(table, pencil, u, there):
    n = pencil.shape[0]
    (axis,) = pencil.decomp
    whole = there.pencil
    local = "local, on whole lines"
    shared = table.solver(pencil, axis, DECAYING, method="shared")
    table.case("S: shared", in_place(shared, field(pencil, shared=True)), per=[local], goal=1.1)
    table.row("S: shared", [FLOOR])
    for name, diagonals, goal in (("decaying", DECAYING, 1.8), ("not decaying", poisson(n), 2.3)):
        reduced = table.solver(pencil, axis, diagonals, method="reduced")
        table.case(f"D: reduced, {name}", in_place(reduced, field(pencil)), goal=goal)
    plan = pencils.Transposition(pencil, whole, check=False)
    back = pencils.Transposition(whole, pencil, check=False)
    table.plans += [plan, back]
    table.case("transpose", partial(plan, u, there), per=())
    table.case("transpose back", partial(back, there, u), per=())
    transposed = table.solver(pencil, axis, DECAYING, method="transposed")
    parts = ["transpose", "transpose back", local]
    table.case("T: transposed", in_place(transposed, u), per=parts, goal=1.05)
    table.row("T: transposed", [FLOOR])


def peer(table, n, axis):
    """Redistribute by mpi4py-fft, solve with SciPy, and redistribute back."""
    if DistArray is None:
        return
    v = DistArray((n, n, n), subcomm=[0 if dim == axis else 1 for dim in range(3)], dtype=float)
    v[...] = 1
    w = v.redistribute(axis)
    bands = np.empty((3, n))
    bands[:] = np.reshape(DECAYING, (3, 1))

    def solve():
        v.redistribute(out=w)
        lines = np.moveaxis(w.view(np.ndarray), axis, 0)
        lines[...] = solve_banded((1, 1), bands, lines.reshape(n, -1)).reshape(lines.shape)
        w.redistribute(out=v)

    def there_and_back():
        v.redistribute(out=w)
        w.redistribute(out=v)

    name, moves = "mpi4py-fft and solve_banded", "mpi4py-fft, there and back"
    ours = list(table.cases)
    table.case(name, solve)
    table.case(moves, there_and_back, per=())
    for case in ours:
        if case.startswith(("S", "D", "T")):
            table.row(name, [case], 3, least=True)
            table.row(case, [moves, "local, on whole lines"])


def varying(n, axis):
    """Make solvers of systems that differ between lines."""
    table = Table(f"systems along axis {axis}, which is cut, different ones for all lines")
    pencil = pencils.Pencil((n, n, n), decomp=axis)
    whole = pencil.whole(axis)
    table.case(FLOOR, floor(field(pencil)), per=())
    for name, where, method, per, goal in (
        ("local", whole, "local", [FLOOR], None),
        ("shared", pencil, "shared", ["local per line"], 1.15),
        ("transposed", pencil, "transposed", [FLOOR], None),
    ):
        if method == "local" or COMM.size > 1:
            fields = [pencils.full(where, value) for value in DECAYING]
            solver = table.solver(where, axis, fields, method=method)
            u = field(where, shared=method == "shared")
            table.case(f"{name} per line", in_place(solver, u), per=per, goal=goal)
            if goal is not None:
                table.row(f"{name} per line", [FLOOR])
    return table


def functions(n, axis):
    """Make functions of NumPy along an axis."""
    table = Table(f"NumPy along axis {axis}, which is cut")
    u = field(pencils.Pencil((n, n, n), decomp=axis))
    table.case(FLOOR, floor(u), per=())
    coordinates = np.linspace(0, 1, n) ** 2
    for name, call, goal in (
        ("np.cumsum(u, axis)", partial(np.cumsum, u, axis), 1.6),
        ("np.roll(u, 1, axis)", partial(np.roll, u, 1, axis), 1.3),
        ("np.gradient(u, 0.1, axis)", partial(np.gradient, u, 0.1, axis=axis), 1.8),
        ("np.gradient(u, x, axis)", partial(np.gradient, u, coordinates, axis=axis), None),
        ("np.diff(u, axis)", partial(np.diff, u, axis=axis), None),
        ("np.flip(u, axis)", partial(np.flip, u, axis), None),
        ("np.cumprod(u, axis)", partial(np.cumprod, u, axis), None),
        ("np.trapezoid(u, axis)", partial(np.trapezoid, u, axis=axis), None),
    ):
        table.case(name, call, goal=goal)
    return table


def derivatives(n, axis):
    """Make compact differences, and explicit ones written with shifts."""
    table = Table(f"differences along axis {axis}, which is cut")
    pencil = pencils.Pencil((n, n, n), decomp=axis, periodic=True)
    halo = tuple(3 * (dim == axis) for dim in range(3))
    u = pencils.empty(pencil, halo=halo)
    u.local[...] = field(pencil).local
    table.case(FLOOR, floor(u), per=())
    shifts = "explicit differences with u.shift()"
    table.case(shifts, partial(explicit, u, axis))
    derivative = getattr(pencils, "derivative", None)
    if derivative is None:
        return table
    options = {"order": 6, "spacing": 0.1}
    for name, shared, goal in (("S", True, 3), ("D", False, 3.7)):
        given, out = field(pencil, shared=shared), pencils.empty(pencil, shared=shared)
        case = f"pencils.derivative, {name}"
        table.case(case, partial(derivative, given, axis, out=out, **options), goal=goal)
        table.row(case, [shifts], 0.25)
    return table


def explicit(u, axis):
    u.exchange_halo(corners=False)
    e = np.eye(3, dtype=int)[axis]

    def pair(step):
        return u.shift(tuple(step * e)) - u.shift(tuple(-step * e))

    return (45 * pair(1) - 9 * pair(2) + pair(3)) / 6


def stencils(n, axis):
    """Make Laplacians of seven points; once for all axes."""
    table = Table(f"a stencil of seven points, axis {axis} is cut")
    pencil = pencils.Pencil((n, n, n), decomp=axis, periodic=True)
    u = pencils.empty(pencil, halo=1)
    u.local[...] = field(pencil).local
    table.case(FLOOR, floor(u), per=())
    faces = [tuple(sign * row) for row in np.eye(3, dtype=int) for sign in (1, -1)]

    def laplacian(u):
        u.exchange_halo(corners=False)
        return sum(u.shift(face) for face in faces) - 6 * u

    table.case("u.shift() of seven points", partial(laplacian, u))
    fused = getattr(pencils, "fused", None)
    if fused is not None:
        table.case("the same, fused", partial(fused(laplacian), u), goal=2)
    return table


KINDS = (constant, varying, derivatives, stencils, functions)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=256, help="points along each dimension")
    parser.add_argument("--repeat", type=int, default=7, help="samples of each case")
    parser.add_argument("--axes", type=int, nargs="+", default=[0, 1, 2], choices=range(3))
    parser.add_argument("--only", nargs="+", metavar="WORD", help="rows with one of these words")
    parser.add_argument(
        "--best", action="store_true", help="best samples, where other programs disturb medians"
    )
    options = parser.parse_args()
    library = MPI.Get_library_version().split(",")[0].splitlines()[0]
    kernels = pack.available()[0]
    print_on_root(f"{options.n}^3 float64 on {COMM.size} ranks, {library}, kernels {kernels}")
    for make in KINDS:
        for axis in options.axes:
            table = make(options.n, axis)
            table.keep(options.only)
            table.show(options.repeat, best=options.best)
            table.free()


if __name__ == "__main__":
    main()
