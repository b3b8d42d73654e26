"""Accumulating is the exact adjoint of exchanging."""

import numpy as np
import pytest
from halos import (
    beyond,
    check_sums,
    few_ways,
    origins,
    random_field,
    random_grid,
    random_shape,
    routes,
    ways,
)
from mpi_helpers import everywhere, same
from tiers import up_to

import pencils
from pencils import HaloExchange, Pencil, transpose

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)


@ways
@routes
def test_sums_of_any_group_are_exact(comm, method, route):
    """Own points take up what belongs to them, ghosts are zero, and nothing else changes."""
    rng = np.random.default_rng(10)
    for turn in range(up_to(12, 4)):
        ndim = turn % 4 + 1
        pen = random_grid(rng, comm, random_shape(rng, ndim))
        pens = [pen, pen.with_(order=rng.permutation(ndim).tolist())]
        fields = [
            random_field(rng, pens[n % 2], rng.choice(np.array(["f8", "i8", "c16"], object)))
            for n in range(rng.integers(1, 4))
        ]
        corners = bool(rng.random() < 0.7)
        with HaloExchange(fields, corners=corners, route=route, method=method) as plan:
            for _ in range(2):
                check_sums(fields, lambda p=plan, f=fields: p.accumulate(*f), corners=corners)


@few_ways
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(
    ("route", "corners"), [("direct", True), ("sweeps", True), ("direct", False)]
)
def test_the_matrix_is_the_transposed_one(comm, method, periodic, route, corners):
    """All unit vectors at once, as components: what becomes of each is a column."""
    for shape, width in (((5,), (2, 1)), ((3, 2), (1, 1))):
        decomp = tuple(range(len(shape)))
        pen = Pencil(shape, comm, decomp=decomp, periodic=periodic)
        halo = [width] * len(shape)
        sizes = comm.allgather(pencils.zeros(pen, halo=halo).padded.size)
        first = sum(sizes[: comm.rank])
        unit = pencils.zeros(pen, components=sum(sizes), halo=halo)
        mine = np.eye(sum(sizes))[:, first : first + sizes[comm.rank]]

        def matrix(move, unit=unit, mine=mine):
            unit.padded[...] = mine.reshape(unit.padded.shape)
            move(unit)
            blocks = comm.allgather(unit.padded.reshape(len(mine), -1))
            return np.concatenate(blocks, axis=1).T

        with HaloExchange(unit, corners=corners, route=route, method=method) as plan:
            fills, adds = matrix(plan), matrix(plan.accumulate)
        assert everywhere(comm, np.array_equal(adds, fills.T))
        assert everywhere(comm, np.array_equal(fills @ fills, fills))
        # What stays as it is: own points, and what no exchange touches.
        at = origins(unit, corners=corners)
        kept = int(((at < 0) | (beyond(unit) == 0)).sum())
        assert np.trace(fills) == comm.allreduce(kept)
        assert everywhere(comm, not (fills.sum(axis=1) - 1).any())


@few_ways
@routes
def test_between_other_exchanges(comm, method, route):
    """It completes what is under way, of the same fields too."""
    pen = Pencil(SHAPE, comm, decomp=(0, 1), periodic=True)
    u, v = (pencils.ones(pen, halo=1) for _ in range(2))
    counts = pencils.ones(pen, halo=1)
    counts.accumulate_halo()
    with HaloExchange(u, route=route, method=method) as plan:
        for _ in range(3):
            u.fill(1.0)
            v.fill(1.0)
            handles = [plan.start(u), plan.start(v)]
            plan.accumulate(u)
            for handle in handles[:: -1 if comm.rank % 2 else 1]:
                handle.wait()
            plan.accumulate(v)
            plan(v)
            assert everywhere(comm, same(u.padded, counts.padded))
            assert everywhere(comm, same(v.local, counts.local))
            w = transpose(u, pen.with_(decomp=(2, 1)))
            assert w.sum() == counts.sum()
