"""Dimensions of any legal export as blocks and halos of pencils."""

import numpy as np
import pytest
from dap_cases import block_dims, buffer_of, cyclic_dims
from hypothesis import given
from hypothesis import strategies as st

from pencils.dap import BlockMap, GlobalDimMap, UnstructuredMap
from pencils.dap.imports import imported_dim

versions = st.sampled_from(["0.9.0", "0.10.0"])


@given(st.data(), versions, st.sampled_from(["keep", "drop"]))
def test_every_process_finds_its_points_and_as_wide_a_halo_as_all_have(data, version, halo):
    parts = data.draw(block_dims(version))
    found = imported_dim(GlobalDimMap(parts), halo)
    assert found.bounds == (*(part.start for part in parts), parts[-1].stop)
    for part in parts:
        lo, hi = found.margins(part.rank)
        inside = range(part.start - lo, part.stop + hi)
        expected = [index % part.size for index in inside] if part.periodic else list(inside)
        assert buffer_of(part)[found.inside(part.rank)] == expected
        assert (lo, hi) == found.width or found.trimmed


@given(st.data(), versions)
def test_a_halo_is_trimmed_only_where_the_ends_have_none(data, version):
    parts = data.draw(block_dims(version))
    found = imported_dim(GlobalDimMap(parts), "keep")
    widths = np.array([part.ghosts for part in parts])
    if widths.min(axis=0).any():
        assert (found.width, found.trimmed) == (tuple(widths.min(axis=0)), False)
    elif len(parts) > 1:
        inner = widths[1:, 0].min(), widths[:-1, 1].min()
        assert (found.width, found.trimmed) == (inner, any(inner))
    else:
        assert found.width == (0, 0)


@given(st.data())
def test_wrapped_padding_leaves_the_points_that_are_there_once(data):
    parts = [p for p in data.draw(block_dims("0.10.0")) if p.periodic]
    if not parts:
        return
    lo, hi = parts[0].boundary[0], parts[-1].boundary[1]
    found = imported_dim(GlobalDimMap(parts), "wrap")
    assert found.bounds[0] == 0
    assert found.bounds[-1] == parts[0].size - lo - hi
    for part in parts:
        below, above = found.margins(part.rank)
        own = range(found.bounds[part.rank] + lo, found.bounds[part.rank + 1] + lo)
        assert list(buffer_of(part)[found.inside(part.rank)])[below : len(own) + below] == list(own)
        assert len(buffer_of(part)[found.inside(part.rank)]) == below + len(own) + above


@given(st.data(), versions)
def test_cyclic_dimensions_have_no_blocks(data, version):
    assert imported_dim(GlobalDimMap(data.draw(cyclic_dims(version))), "keep") is None


@pytest.mark.parametrize(
    ("nprocs", "size", "indices", "one_to_one", "singleton"),
    [
        (2, 1, [0], False, True),
        (3, 1, [0], False, True),
        (1, 1, [0], False, False),
        (2, 1, [0], True, False),
        (2, 1, [1], False, False),
        (2, 2, [0], False, False),
    ],
)
def test_only_a_replicated_point_is_a_singleton(nprocs, size, indices, one_to_one, singleton):
    parts = [
        UnstructuredMap(
            size=size, nprocs=nprocs, rank=r, indices=np.array(indices), one_to_one=one_to_one
        )
        for r in range(nprocs)
    ]
    found = imported_dim(GlobalDimMap(parts), "keep")
    assert (found is not None and found.singleton) == singleton
    assert found is None or found.bounds == tuple(range(nprocs + 1))


def test_boundary_points_of_dimensions_that_do_not_wrap_stay_owned():
    part = BlockMap(size=10, start=0, stop=10, boundary=(2, 1))
    assert imported_dim(GlobalDimMap([part]), "wrap").bounds == (0, 10)
