"""How many functions a verb calls in a loop, in Python and in C: what small grids wait for."""

import numpy as np
import pytest
from fields import assert_holds, draw
from mpi_helpers import count_calls, everywhere, one_node

import pencils
from pencils.comm import pack

pytestmark = [
    pytest.mark.parallel([1, 2, 3, 4, 6]),
    pytest.mark.mpiexec("simulated ranks call functions while they wait"),
    pytest.mark.skipif(pack.compiled() is None, reason="NumPy copies by several calls"),
    one_node,
]
SHAPE = (12, 5, 4)
# Blocks of up to 6 ranks have 64 KiB and more: the pool gives results the same places again, for
# which exchanges are prepared; malloc need not.
LARGE = (24, 66, 64)

# Lines about `u`, `h` with a halo, `large`, `v` on other blocks of it, and global `data`: calls on
# a rank, at most.
MOST = {
    "u + u": 6,
    "np.add(u, u, out=w)": 20,
    "u.copy()": 8,
    "h.shift((1, 0, 0))": 8,
    "u[1:-1]": 16,
    "h.exchange_halo()": 15,
    "h.fill_boundary('edge')": 20,
    "u.sum()": 20,
    "u.max()": 20,
    "u.mean()": 30,
    "u.argmax()": 26,
    "u.sum(axis=0)": 50,
    "u.var()": 55,
    "np.vdot(u, u)": 40,
    "np.median(u)": 78,
    "pencils.transpose(large, v.pencil)": 65,
    "np.diff(large, axis=0)": 60,
    "np.roll(large, 1, axis=0)": 60,
    "np.gradient(large, axis=0)": 60,
    "np.gradient(large, 0.5, axis=0, edge_order=2)": 60,
    "np.cumsum(u, axis=0)": 240,
    "u.take_points(([1, 2], [1, 2], [0, 1]))": 340,
    "pencils.gather(u)": 32,
    "pencils.partition(u.pencil, data, root=0)": 33,
}


# Lines whose results are kept, so that each has a new place, as malloc may give any small result.
KEPT = {
    "np.diff(v, axis=0)": 80,
    "np.roll(v, 1, axis=0)": 80,
    "np.gradient(v, axis=0)": 80,
    "pencils.transpose(v, w.pencil)": 85,
    "np.roll(2 * v, 1, axis=0)": 110,
    "pencils.transpose(2 * v, w.pencil)": 110,
}


@pytest.fixture
def names(comm):
    pencil = pencils.Pencil(SHAPE, comm, decomp=0, periodic=True)
    u, h = pencils.ones(pencil), pencils.ones(pencil, halo=1)
    large = pencils.ones(pencil.with_(shape=LARGE))
    v = pencils.ones(large.pencil.with_(decomp=1))
    given = {"u": u, "h": h, "large": large, "v": v, "w": u.blank(), "data": np.ones(SHAPE)}
    return {"np": np, "pencils": pencils, **given}


@pytest.mark.parametrize("line", MOST)
def test_calls_of_a_line_in_a_loop(comm, names, line):
    run = eval(f"lambda: {line}", names)
    for _ in range(4):
        run()
    counts = comm.allgather(count_calls(run))
    assert everywhere(comm, max(counts) <= MOST[line]), counts


@pytest.mark.parametrize("line", KEPT)
def test_calls_of_a_line_whose_small_results_are_kept(comm, line):
    pencil, given = pencils.Pencil(SHAPE, comm, decomp=0), draw(SHAPE)
    v = pencils.partition(pencil, given, copy=True, halo=1)
    names = {"np": np, "pencils": pencils, "v": v, "w": pencils.ones(pencil.with_(decomp=1))}
    kept = []
    run = eval(f"lambda: kept.append({line})", names | {"kept": kept})
    for _ in range(20):
        run()
    counts = comm.allgather(count_calls(run))
    assert everywhere(comm, max(counts) <= KEPT[line]), counts
    v *= 2
    run()
    whole = names | {"v": 2 * given}
    expected = 4 * given if "2 * v" in line else 2 * given
    if "transpose" not in line:
        expected = eval(line, whole)
    assert_holds(kept[-1], expected)
    assert_holds(kept[-2], expected / 2)
