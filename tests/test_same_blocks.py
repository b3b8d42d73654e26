"""Fields mix wherever every rank has the same block of both, whatever their pencils are called."""

import numpy as np
import pytest
from mpi_helpers import all_raise, everywhere, holds, numbered, spread

import pencils
from pencils import HaloExchange, Pencil, Transposition, dap, transpose
from pencils.errors import PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)
VALUES = numbered(SHAPE)


def others(comm):
    """Pencils with the blocks of ``Pencil(SHAPE, comm, decomp=0)``."""
    pen = Pencil(SHAPE, comm, decomp=0)
    bounds = [pen.layout.splits[0].bounds(part)[0] for part in range(comm.size)]
    return [
        pen.with_(periodic=True),
        pen.with_(order=(2, 0, 1)),
        Pencil(SHAPE, comm, decomp=(0, 1), grid=(comm.size, 1)),
        Pencil(SHAPE, comm, decomp=(2, 1, 0), grid=(1, 1, comm.size), periodic=(True, False, True)),
        Pencil(SHAPE, comm, decomp=0, splits=[(*bounds, SHAPE[0]), None, None]),
    ]


def test_fields_compute_together(comm):
    u = spread(Pencil(SHAPE, comm, decomp=0), VALUES)
    for pen in others(comm):
        v = spread(pen, VALUES)
        mean = v.mean(axis=0)
        assert everywhere(comm, holds(u + 2 * v, 3 * VALUES))
        assert everywhere(comm, holds(u - mean, VALUES - VALUES.mean(axis=0)))
        assert everywhere(comm, holds(np.where(v > 9, u, v), VALUES))
        assert everywhere(comm, holds(np.stack([u, v]), np.stack([VALUES, VALUES])))
        assert np.array_equal(u, v)
        assert np.isclose(np.vdot(u, v), np.vdot(VALUES, VALUES))
        w = u.copy()
        w += v
        np.add(w, v, out=w)
        assert everywhere(comm, holds(w, 3 * VALUES))
        w[...] = v
        assert everywhere(comm, holds(w, VALUES))


def test_the_result_lies_on_the_pencil_of_the_first_field(comm):
    u = spread(Pencil(SHAPE, comm, decomp=0), VALUES)
    for pen in others(comm):
        v = spread(pen, VALUES)
        assert (u + v).pencil is u.pencil
        assert (v + u).pencil is pen
        assert (1 + v * u).pencil is pen
        assert np.add(v, u, out=u).pencil is u.pencil
        u -= v


def test_plans_take_fields_of_the_same_blocks(comm):
    pen = Pencil(SHAPE, comm, decomp=0)
    target = pen.with_(decomp=1)
    with Transposition(pen, target) as there, Transposition(target, pen) as back:
        for other in others(comm):
            u = spread(other, VALUES)
            assert everywhere(comm, holds(there(u), VALUES))
            assert everywhere(comm, holds(back(there(u), pencils.zeros(other)), VALUES))
            assert everywhere(comm, holds(transpose(u, pen), VALUES))
    coords = [6, 0], [1, 2], [3, 4]
    with pencils.indexer.PointIndexer(pen, coords) as points:
        for other in others(comm):
            assert np.array_equal(points.take(spread(other, VALUES)), VALUES[coords])


def test_ghosts_follow_the_pencil_of_their_field(comm):
    """Fields with and without periodic dimensions are exchanged together, each in its way."""
    pen = Pencil(SHAPE, comm, decomp=0)
    for other in others(comm):
        fields = [spread(p, VALUES, halo=1) for p in (pen, other)]
        alone = [spread(p, VALUES, halo=1) for p in (pen, other)]
        for field in (*fields, *alone):
            field.fill_boundary("constant")
        for field in alone:
            field.exchange_halo()
        pencils.halo.exchange_halos(fields)
        pairs = zip(fields, alone, strict=True)
        assert everywhere(comm, all(np.array_equal(x.padded, y.padded) for x, y in pairs))


def test_a_plan_for_ghosts_takes_no_other_edges(comm):
    pen = Pencil(SHAPE, comm, decomp=0)
    u = spread(pen, VALUES, halo=1)
    with HaloExchange(u) as plan:
        for other in others(comm):
            v = spread(other, VALUES, halo=1)
            if other.periodic == pen.periodic:
                plan(v)
            else:
                text = f"periodic={other.periodic}; the plan is for (False, False, False)"
                all_raise(comm, PencilMismatchError, text, plan, v)


def test_shifts_lead_to_pencils_with_other_edges(comm):
    pen = Pencil(SHAPE, comm, decomp=0, periodic=True)
    u = spread(pen, VALUES, halo=1)
    u.exchange_halo()
    v = u.shift((1, 0, 0), onto=Pencil(SHAPE, comm, decomp=(0, 1), grid=(comm.size, 1)))
    assert everywhere(comm, holds(v, np.roll(VALUES, -1, axis=0)))


@pytest.mark.parametrize("periodic", [False, True, (True, False, False)])
@pytest.mark.parametrize("decomp", [0, 1, (0, 1), (1, 2), (0, 1, 2)])
def test_an_export_mixes_with_what_is_imported_of_it(comm, decomp, periodic):
    u = spread(Pencil(SHAPE, comm, decomp=decomp, periodic=periodic), VALUES, halo=1)
    for halo in ("keep", "drop"):
        v = dap.import_array(u, comm, halo=halo)
        assert everywhere(comm, holds(u + v, 2 * VALUES))
        assert everywhere(comm, holds(v - u, 0 * VALUES))
        u[...] = v


def test_other_blocks_do_not_mix(comm):
    u = spread(Pencil(SHAPE, comm, decomp=0), VALUES)
    v = spread(Pencil(SHAPE, comm, decomp=1), VALUES)
    if comm.size == 1:
        assert holds(u + v, 2 * VALUES)
    else:
        all_raise(comm, PencilMismatchError, "pencils.transpose(v, u.pencil)", lambda: u + v)
