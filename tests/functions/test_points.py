"""Positions of points that a mask selects."""

import numpy as np
import pytest
from fields import draw, spread

import pencils

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("components", [(), (2,)])
def test_own_points(comm, pencil, components):
    mask = draw((*components, *pencil.shape), "?")
    m = spread(pencil, mask, halo=1)
    mine = pencils.functions.own_points(m)
    assert mine.dtype == np.int64
    assert mine.shape == (mine.shape[0], mask.ndim)
    rows = sorted(map(tuple, np.concatenate(comm.allgather(mine)).tolist()))
    assert rows == [tuple(row) for row in np.argwhere(mask).tolist()]
    assert mask[tuple(mine.T)].all()


def test_replicas_count_once(comm, pencil):
    everywhere = spread(pencil, draw(pencil.shape)).max(axis=0) < np.inf
    rows = comm.allgather(len(pencils.functions.own_points(everywhere)))
    assert sum(rows) == everywhere.size


def test_no_points(pencil):
    assert pencils.functions.own_points(pencils.zeros(pencil, dtype=bool)).shape == (0, pencil.ndim)


def test_what_is_no_mask(pencil):
    with pytest.raises(TypeError, match="write u != 0"):
        pencils.functions.own_points(pencils.ones(pencil))
    with pytest.raises(TypeError, match="must be a PencilArray"):
        pencils.functions.own_points(np.ones(pencil.shape, bool))
