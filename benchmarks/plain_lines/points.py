"""Points read and written once, against a sort by owner and Alltoallv; bincount for deposits."""

from functools import partial

import numpy as np

import pencils

from .line import Calls, Line

N = 256  # points along each dimension


class Hand:
    """Slabs along dimension 0: points sorted by owner, indices and values sent by Alltoallv."""

    def __init__(self, comm, u, coords, values, *, scans):
        self.comm, self.coords, self.values = comm, coords, values
        self.block = u.local.reshape(-1).copy()
        self.cuts = np.array([N * rank // comm.size for rank in range(comm.size)])
        self.scans = scans

    def group(self):
        """Sort by owner; return the order, the numbers in the blocks, and how many go to each."""
        i, j, k = self.coords
        owners = np.zeros(len(i), np.uint8)
        for cut in self.cuts[1:]:
            owners += i >= cut
        if self.scans:
            parts = [np.flatnonzero(owners == rank) for rank in range(self.comm.size)]
            order, counts = np.concatenate(parts), np.array([len(part) for part in parts])
        else:
            order = np.argsort(owners, kind="stable")
            counts = np.bincount(owners, minlength=self.comm.size)
        numbers = ((i - self.cuts[owners]) * N + j) * N + k
        return order, numbers[order], counts

    def send_numbers(self, numbers, counts):
        arriving = np.empty_like(counts)
        self.comm.Alltoall(counts, arriving)
        found = np.empty(arriving.sum(), np.int64)
        self.comm.Alltoallv([numbers, counts], [found, arriving])
        return found, arriving

    def put(self):
        order, numbers, counts = self.group()
        found, arriving = self.send_numbers(numbers, counts)
        values = np.empty(len(found))
        self.comm.Alltoallv([self.values[order], counts], [values, arriving])
        self.block[found] = values

    def take(self):
        order, numbers, counts = self.group()
        found, arriving = self.send_numbers(numbers, counts)
        values = np.empty(len(order))
        self.comm.Alltoallv([self.block[found], arriving], [values, counts])
        out = np.empty(len(order))
        out[order] = values
        return out


def points(count, comm, *, rises, scans, puts):
    u = pencils.random.uniform(pencils.Pencil((N,) * 3, comm, decomp=0), rng=1)
    rng = np.random.default_rng(comm.rank)
    index = rng.integers(0, N**3, count)
    coords = [
        *map(np.ascontiguousarray, np.unravel_index(np.sort(index) if rises else index, u.shape))
    ]
    values = rng.random(count)
    hand = Hand(comm, u, coords, values, scans=scans)
    if puts:
        return Calls(hand.put, partial(u.put_points, coords, values))
    return Calls(hand.take, partial(u.take_points, coords))


def line(count, kind, *, puts, scans, goal):
    verb = "u.put_points" if puts else "u.take_points"
    peer = "flatnonzero" if scans else "argsort"
    make = partial(points, count, rises=kind == "sorted", scans=scans, puts=puts)
    name = f"{verb}, {count} {kind} points once, {N}^3"
    return Line(name, f"{peer} and Alltoallv", make, goal, heavy=count > 10)


def deposit(count, comm):
    density = pencils.zeros(pencils.Pencil((64, 64), comm, periodic=True))
    at = np.random.default_rng(comm.rank).uniform(0, 64, (2, count))
    values = np.ones(count)
    cloud = pencils.indexer.Interpolation(density.pencil, at)
    (i, j), (x, y) = (np.modf(at)[n].astype(kind) for n, kind in ((1, int), (0, float)))
    corners = [
        ((i + right) % 64 * 64 + (j + up) % 64, abs(1 - right - x) * abs(1 - up - y))
        for right in (0, 1)
        for up in (0, 1)
    ]
    whole = np.empty(64 * 64)

    def by_hand():
        sums = sum(np.bincount(where, share * values, 64 * 64) for where, share in corners)
        comm.Allreduce(sums, whole)

    return Calls(by_hand, partial(cloud.deposit, density, values), cloud.free)


LINES = [
    line(10, "random", puts=True, scans=False, goal=0.5),
    line(10, "random", puts=False, scans=False, goal=0.5),
    *(
        line(10**6, kind, puts=puts, scans=scans, goal=1.0)
        for puts in (True, False)
        for kind in ("random", "sorted")
        for scans in (False, True)
    ),
    Line("cloud.deposit(density, 1), 400000 on 64^2", "bincount", partial(deposit, 400_000), 0.5),
]
