"""Plans look again whether what they write to has become read-only since the last call."""

import numpy as np
import pytest

import pencils

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (6, 5, 4)


def transposition(comm, check):
    pen = pencils.Pencil(SHAPE, comm, decomp=0)
    u, out = pencils.ones(pen), pencils.zeros(pen.with_(decomp=1))
    plan = pencils.Transposition(pen, out.pencil, check=check)
    return plan, out.local, lambda: plan(u, out)


def halo(comm, check):
    u = pencils.ones(pencils.Pencil(SHAPE, comm, periodic=True), halo=1)
    plan = pencils.HaloExchange(u, check=check)
    return plan, u.padded, lambda: plan(u)


def points(comm, check):
    u = pencils.ones(pencils.Pencil(SHAPE, comm))
    plan = pencils.indexer.PointIndexer(u.pencil, ([5], [4], [3]), check=check)
    values = np.full(1, 2.0)
    return plan, u.local, lambda: plan.put(u, values)


def lines(comm, check):
    u = pencils.ones(pencils.Pencil(SHAPE, comm))
    plan = pencils.lines.LineSolver(u.pencil, 0, (1, 4, 1), check=check)
    return plan, u.local, lambda: plan(u, u)


@pytest.mark.parametrize("make", [transposition, halo, points, lines])
@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
def test_an_output_that_becomes_read_only_is_refused(comm, make, check):
    plan, block, call = make(comm, check)
    for _ in range(2):
        call()
    block.flags.writeable = False
    with pytest.raises(pencils.errors.ArgumentError, match="read-only"):
        call()
    block.flags.writeable = True
    call()
    plan.free()
