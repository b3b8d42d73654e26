"""The examples of the two texts with their misprints corrected, and what is said of them there."""

import numpy as np
import pytest
from dap_cases import block, cyclic, old, unstructured, wrap

from pencils.dap import (
    DAPWarning,
    UnstructuredMap,
    emit,
    iter_issues,
    validate,
    validate_collective,
)

ROWS = [
    [0.2, 0.6, 0.9, 0.6, 0.8, 0.4, 0.2, 0.2, 0.3, 0.5],
    [0.9, 0.2, 1, 0.4, 0.5, 0, 0.6, 0.8, 0.6, 1],
]
PADDED = [
    [0.2, 0.6, 0.9, 0.6, 0.8, 0.4, 0.2, 0.2, 0.3, 0.9],
    [0.3, 0.9, 0.2, 1, 0.4, 0.5, 0, 0.6, 0.8, 0.6],
]
LISTS = [
    [19, 1, 0, 12, 2, 15, 4],
    [6, 13, 3],
    [10, 25, 5, 21, 7, 18, 11, 26, 29, 24, 23, 28, 14, 20, 9, 16, 27, 8, 17, 22],
]


def example(buffer, *dims):
    return {"__version__": "0.9.0", "buffer": np.array(buffer), "dim_data": dims}


def row(rank):
    place = {"size": 2, "dist_type": "b", "proc_grid_rank": rank, "proc_grid_size": 2}
    return place | {"start": rank, "stop": rank + 1}, {"size": 10, "dist_type": "n"}


def padded(rank):
    place = {"size": 18, "dist_type": "b", "proc_grid_rank": rank, "proc_grid_size": 2}
    return place | {"start": 9 * rank, "stop": 9 + 9 * rank, "padding": (1, 1)}


def listed(rank):
    return {"size": 30, "dist_type": "u", "proc_grid_rank": rank, "proc_grid_size": 3}


def codes(export, **how):
    return [issue.code for issue in iter_issues(export, **how)]


def test_block_and_no_distribution():
    dist = validate_collective([example([ROWS[rank]], *row(rank)) for rank in range(2)])
    assert (dist.global_shape, dist.grid_shape) == ((2, 10), (2, 1))
    assert dist.owner((1, 7)) == (1, (0, 7))
    assert codes(example(ROWS[0], *row(0))) == ["E5"]  # as printed


def test_block_with_padding():
    parts = [validate(example(PADDED[rank], padded(rank))).dims[0] for rank in range(2)]
    assert [(part.boundary, part.ghosts) for part in parts] == [((1, 0), (0, 1)), ((0, 1), (1, 0))]
    assert parts[0].local_to_global(range(10), ghosts=True).tolist() == list(range(10))
    assert parts[1].local_to_global(range(10), ghosts=True).tolist() == list(range(8, 18))
    assert validate(example(PADDED[1], padded(1))).owned_slices == (slice(1, 10),)
    dist = validate_collective([example(PADDED[rank], padded(rank)) for rank in range(2)])
    assert dist.owner((9,)) == (1, (1,))
    assert dist.global_shape == (18,)
    printed = example(PADDED[0]) | {"dim_data": padded(0)}
    assert codes(printed) == ["E4"]


def test_unstructured():
    data = [np.zeros(len(indices)) for indices in LISTS]
    dims = [listed(rank) | {"indices": np.array(LISTS[rank])} for rank in range(3)]
    dist = validate_collective([example(*pair) for pair in zip(data, dims, strict=True)])
    assert dist.global_shape == (30,)
    assert dist.owner((3,)) == (1, (2,))
    assert sorted(int(i) for rank in range(3) for i in dist.owned(rank)[0]) == list(range(30))
    printed = [
        example(one, listed(rank) | {"indices": LISTS[rank]}) for rank, one in enumerate(data)
    ]
    assert codes(printed[1]) == codes(printed[1], lenient=True) == ["K7"]
    with pytest.warns(DAPWarning, match="a list was read as"):
        assert validate_collective(printed) == dist


TABLE = [  # padding, range in version 0.10, range in 0.9, extent, owned
    ((4, 1), (0, 10), (0, 9), 10, range(9)),
    ((1, 2), (8, 17), (9, 15), 9, range(9, 15)),
    ((2, 3), (13, 23), (15, 20), 10, range(15, 20)),
    ((3, 0), (17, 27), (20, 27), 10, range(20, 27)),
]


@pytest.mark.parametrize(("version", "column"), [("0.10.0", 1), ("0.9.0", 2)])
def test_the_table_of_paddings(version, column):
    exports = []
    for rank, line in enumerate(TABLE):
        place = {"proc_grid_size": 4, "size": 27, "padding": line[0]}
        exports.append(wrap(block(rank, *line[column], **place), shape=line[3], version=version))
    dist = validate_collective(exports)
    assert [dist.owned(rank)[0] for rank in range(4)] == [line[4] for line in TABLE]
    assert dist.dims[0].parts[0].boundary == (4, 0)
    for rank, part in enumerate(dist.dims[0].parts):
        assert emit([part], version) == exports[rank]["dim_data"]


def test_an_empty_dictionary_is_one_block():
    alias = {"dist_type": "b", "proc_grid_rank": 0, "proc_grid_size": 1, "start": 0}
    spelled = alias | {"stop": 5, "size": 5}
    assert validate(wrap({})) == validate(wrap(spelled))


def test_undistributed_dimensions_may_be_periodic_and_padded():
    whole = block(0, 0, 10, proc_grid_size=1, padding=(2, 2), periodic=True)
    literal, wrapped = (
        validate(wrap(whole, shape=10)).dims[0],
        validate(old(whole, shape=14)).dims[0],
    )
    assert (literal.boundary, literal.ghosts) == ((2, 2), (0, 0))
    assert (wrapped.boundary, wrapped.ghosts) == ((0, 0), (2, 2))
    assert wrapped.local_to_global([0, 2, 13], ghosts=True).tolist() == [8, 0, 1]


@pytest.mark.parametrize(
    ("dim", "extent"),
    [
        (cyclic(size=0), 0),
        (cyclic(1, size=5, block_size=5, start=5), 0),
        (block(1, 10, 10), 0),
        (block(0, 0, 0), 0),
        (unstructured([]), 0),
        (block(0, 0, 0, size=0), 0),
    ],
)
def test_sections_may_be_empty(dim, extent):
    for version in ("0.9.0", "0.10.0"):
        assert validate(wrap(dim, shape=extent, version=version)).dims[0].count == 0


def test_unstructured_lists_are_not_copied():
    indices = np.array([5, 3])
    part = validate(wrap(unstructured([]) | {"indices": indices}, shape=2)).dims[0]
    assert isinstance(part, UnstructuredMap)
    assert np.shares_memory(part.indices, indices)
