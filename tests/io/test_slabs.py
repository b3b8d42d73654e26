"""Slabs: one run of bytes per rank, played for all ranks in one process."""

from itertools import product
from math import prod

import numpy as np
import pytest

from pencils.io.slabs import is_slab, run_bytes, slab_dimension
from pencils.layout import build_layout


@pytest.mark.parametrize("shape", [(5, 3), (1, 4, 3), (3, 1, 2), (1, 1), (2, 0, 3), (0,), (6,)])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_slab_is_what_is_contiguous_on_every_rank(shape, ranks):
    cells = np.arange(prod(shape)).reshape(shape)
    for decomp in product(range(len(shape)), repeat=min(2, len(shape))):
        if len(set(decomp)) < len(decomp):
            continue
        layout = build_layout(shape, ranks, decomp=decomp)
        blocks = [cells[layout.box(rank).slices()].ravel() for rank in range(ranks)]
        contiguous = all(np.all(np.diff(block) == 1) for block in blocks)
        # a slab is contiguous; a few small blocks are so by chance
        assert contiguous or not is_slab(layout)
        if is_slab(layout):
            assert sum(map(len, blocks)) == cells.size


def test_the_slab_dimension_has_points():
    assert [slab_dimension(s) for s in [(4, 3), (1, 3), (1, 1, 2), (1, 1), (0, 2)]] == [
        0,
        1,
        2,
        0,
        1,
    ]


def test_how_long_runs_are():
    lengths = [run_bytes(build_layout((8, 6, 4), 2, decomp=dim), 10) for dim in range(3)]
    assert lengths == [960, 120, 20]
    assert run_bytes(build_layout((8, 6, 4), 4, decomp=(2, 1)).with_singletons({2}), 10) == 30
