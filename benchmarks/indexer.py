"""Time reading and writing by global indices against plain NumPy and MPI, in one run.

    mpiexec -n 2 python -m mpi4py benchmarks/indexer.py --n 256 --indices 1000000 --repeat 15

Every rank reads random points of an n^3 grid of float64. The lower limit, or floor, is
``numpy.take`` of as many values from the own block, by all ranks at once. The plain version sorts
the indices by owner (argsort) and exchanges them, and then the values, by Alltoallv. PETSc's
VecScatter is also timed if petsc4py is installed. Cases run in turn, and a sample is the time of
the slowest rank. The tables show medians in milliseconds, and ratios to the floor. Only ratios are
comparable between machines.
"""

import argparse
from collections.abc import Callable
from functools import partial
from importlib import import_module

import numpy as np
from mpi4py import MPI

import pencils
from pencils import GlobalIndexer
from pencils.comm import pack
from pencils.comm.topology import time_in_turn
from pencils.indexer import ReduceOp

try:
    from petsc4py import PETSc
except ImportError:
    PETSc = None

timing = import_module("timing")
COMM = timing.COMM
print_on_root = timing.print_on_root
# Measured time of a planned call of PETSc, as a multiple of the floor.
PETSC_PLANNED = 1.3


class Plain:
    """Code without a library: sort by owner, send requests, send values, sort back."""

    def __init__(self, cuts, index):
        owners = np.searchsorted(cuts, index, side="right") - 1
        self.order = np.argsort(owners, kind="stable")
        self.asked = np.bincount(owners, minlength=COMM.size)
        self.served = np.empty_like(self.asked)
        COMM.Alltoall(self.asked, self.served)
        self.wanted = np.empty(self.served.sum(), np.int64)
        offsets = (index - cuts[owners])[self.order]
        COMM.Alltoallv([offsets, self.asked], [self.wanted, self.served])

    def take(self, block):
        rows = np.empty(len(self.order))
        COMM.Alltoallv([block[self.wanted], self.served], [rows, self.asked])
        out = np.empty(len(rows))
        out[self.order] = rows
        return out

    @classmethod
    def take_once(cls, cuts, index, block):
        return cls(cuts, index).take(block)


def petsc_cases(cuts, index, block):
    """Yield the cases of PETSc's VecScatter, used once and planned."""
    if PETSc is None:
        return
    section = PETSc.Vec().createWithArray(block, size=(len(block), cuts[-1]), comm=COMM)
    found = PETSc.Vec().createSeq(len(index))

    def make():
        wanted = PETSc.IS().createGeneral(index.astype(PETSc.IntType), comm=PETSc.COMM_SELF)
        return PETSc.Scatter().create(section, wanted, found, None)

    yield "PETSc, once", lambda: make().scatter(section, found)
    yield "PETSc, planned", partial(make().scatter, section, found)


class Setting:
    """A grid, and the points that this rank requests."""

    def __init__(self, n, count):
        rng = np.random.default_rng(COMM.rank)
        self.pencil = pencils.Pencil((n, n, n), decomp=0)
        self.coords = list(rng.integers(0, n, (3, count)))
        self.index = np.ravel_multi_index(tuple(self.coords), (n, n, n))
        self.private = pencils.random.uniform(self.pencil, rng=1)
        self.shared = pencils.empty(self.pencil, shared=True)
        self.shared.local[...] = self.private.local
        sizes = COMM.allgather(self.private.local.size)
        self.cuts = np.cumsum([0, *sizes])
        self.near = rng.integers(0, sizes[COMM.rank], count)
        self.out = np.empty(count)

    def floor(self):
        return partial(
            np.take, self.private.local.reshape(-1), self.near, out=self.out, mode="clip"
        )

    def plain_cases(self):
        block = self.private.local.reshape(-1)
        yield "plain, once", partial(Plain.take_once, self.cuts, self.index, block)
        yield "plain, planned", partial(Plain(self.cuts, self.index).take, block)

    def list_cases(self):
        """Yield the cases of `GlobalIndexer`: a collection in sections."""
        for where, field in (("private", self.private), ("shared", self.shared)):
            block = field.local.reshape(-1)
            plan = GlobalIndexer(self.cuts, self.index, COMM, check=False)
            yield f"Take, {where}, once", partial(self.take_list, block)
            yield f"Take, {where}, planned", partial(plan.Take, block, self.out)
        block = self.private.local.reshape(-1).copy()
        yield "Put, planned", partial(plan.Put, self.out, block)
        yield "Put SUM, planned", partial(plan.Put, self.out, block, reduce=ReduceOp.SUM)

    def take_list(self, block):
        with GlobalIndexer(self.cuts, self.index, COMM) as plan:
            return plan.Take(block)

    def point_cases(self):
        """Yield the cases of fields and coordinates."""
        for where, field in (("private", self.private), ("shared", self.shared)):
            plan = pencils.indexer.PointIndexer(self.pencil, self.coords, check=False)
            yield f"u.take_points, {where}, once", partial(field.take_points, self.coords)
            yield f"u.take_points, {where}, planned", partial(plan.take, field, self.out)
        u = self.private.copy()
        yield "u.put_points, planned", partial(plan.put, u, self.out)
        yield "u.put_points SUM, planned", partial(plan.put, u, self.out, reduce=ReduceOp.SUM)


def compare(n, count, repeat):
    setting = Setting(n, count)
    cases = {"floor: numpy.take of the own block": setting.floor()}
    cases |= setting.plain_cases()
    cases |= petsc_cases(setting.cuts, setting.index, setting.private.local.reshape(-1))
    cases |= setting.list_cases()
    cases |= setting.point_cases()
    times = dict(zip(cases, time_in_turn(COMM, list(cases.values()), repeat), strict=True))
    floor = times["floor: numpy.take of the own block"]
    plain = {"once": times["plain, once"], "planned": times["plain, planned"]}
    petsc = times.get("PETSc, planned", PETSC_PLANNED * floor)
    print_on_root(f"\n{count} indices per rank of {n}^3")
    for name, seconds in times.items():
        kind = name.rpartition(", ")[2]
        beside = f"{plain[kind] / seconds:7.2f} x as fast as plain" if kind in plain else ""
        if kind == "planned":
            beside += f"{seconds / petsc:7.2f} of PETSc planned"
        print_on_root(
            f"  {name:36}{1e3 * seconds:9.2f} ms{seconds / floor:7.2f} of the floor{beside}"
        )


def small(n, count, repeat, times=200):
    """Print the time of one planned call among many: its latency."""
    setting = Setting(n, count)
    calls: dict[str, Callable[[], object]] = {
        "barrier": COMM.Barrier,
        **dict(setting.plain_cases()),
    }
    del calls["plain, once"]
    for where, field in (("private", setting.private), ("shared", setting.shared)):
        block = field.local.reshape(-1)
        for check in (False, True):
            checks = ", with checks" if check else ""
            plan = GlobalIndexer(setting.cuts, setting.index, COMM, check=check)
            calls[f"Take, {where}{checks}"] = partial(plan.Take, block, setting.out)
            indexer = pencils.indexer.PointIndexer(setting.pencil, setting.coords, check=check)
            calls[f"u.take_points, {where}{checks}"] = partial(indexer.take, field, setting.out)

    def many(call):
        for _ in range(times):
            call()

    found = time_in_turn(COMM, [partial(many, call) for call in calls.values()], repeat)
    print_on_root(f"\n{count} indices per rank, microseconds per planned call")
    for name, seconds in zip(calls, found, strict=True):
        print_on_root(f"  {name:36}{1e6 * seconds / times:9.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=256, help="points along each dimension")
    parser.add_argument("--indices", type=int, default=1_000_000, help="indices of each rank")
    parser.add_argument("--repeat", type=int, default=11, help="samples of each case")
    options = parser.parse_args()
    library = MPI.Get_library_version().split(",")[0].splitlines()[0]
    print_on_root(f"float64 on {COMM.size} ranks, {library}, kernels {pack.kernels()}")
    compare(options.n, options.indices, options.repeat)
    small(options.n, 10, options.repeat)


if __name__ == "__main__":
    main()
