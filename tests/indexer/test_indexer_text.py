"""The worked examples that define the indexer, on three processes."""

import numpy as np
import pytest
from mpi_helpers import everywhere

from pencils import GlobalIndexer, GlobalMultiIndexer
from pencils.indexer import ReduceOp

pytestmark = pytest.mark.parallel(3)

DISTRI = [0, 2, 4, 5]
INDEX = [[4, 0], [1, 3], [0]]


@pytest.fixture(params=[True, False], ids=["checked", "unchecked"])
def indexer(comm, request):
    with GlobalIndexer(
        np.array(DISTRI), np.array(INDEX[comm.rank]), comm, check=request.param
    ) as g:
        yield g


def same_pairs(found, expected):
    return all(
        f.dtype == e.dtype and f.tolist() == e.tolist()
        for f, e in zip(found, expected, strict=True)
    )


def test_objects(comm, indexer):
    section = [[3.14, None], ["chars", ["a", "list"]], [42]][comm.rank]
    extr = indexer.take(section)
    assert everywhere(comm, extr == [[42, 3.14], [None, ["a", "list"]], [3.14]][comm.rank])
    data = [[42, 3.14], [None, ["A", "LIST"]], [0.314]][comm.rank]
    section = indexer.put(data)
    assert everywhere(comm, section == [[0.314, None], [None, ["A", "LIST"]], [42]][comm.rank])


def test_buffers(comm, indexer):
    section = np.array([[3, 5, 5, 7], [11, 13, 17, 19], [29, 31]][comm.rank], int)
    extr = indexer.Take(section, None, count=2)
    assert everywhere(comm, extr.dtype == int)
    assert everywhere(comm, extr.tolist() == [[29, 31, 3, 5], [5, 7, 17, 19], [3, 5]][comm.rank])
    new = np.zeros(len(section), int)
    if comm.rank == 2:
        extr *= -1
    assert everywhere(comm, indexer.Put(extr, new, count=2) is new)
    assert everywhere(comm, new.tolist() == [[-3, -5, 5, 7], [0, 0, 17, 19], [29, 31]][comm.rank])
    largest = [[3, 5, 5, 7], [0, 0, 17, 19], [29, 31]][comm.rank]
    indexer.Put(extr, new, count=2, reduce=ReduceOp.MAX)
    assert everywhere(comm, new.tolist() == largest)
    new = indexer.Put(extr, np.zeros(len(section), int), count=2, reduce=ReduceOp.MAX)
    assert everywhere(comm, new.tolist() == largest)


def test_take_of_variable_buffers(comm, indexer):
    counts = np.array([[1, 1], [1, 2], [3]][comm.rank])
    values = np.array([[1, 11], [21, 12, 11], [11, 12, 21]][comm.rank], int)
    found = indexer.Take_v((counts, values))
    expected = [([3, 1], [11, 12, 21, 1]), ([1, 2], [11, 12, 11]), ([1], [1])][comm.rank]
    assert everywhere(comm, same_pairs(found, map(np.array, expected)))


@pytest.mark.parametrize("extend", [False, True])
def test_put_of_variable_buffers(comm, indexer, extend):
    counts = np.array([[1, 3], [0, 1], [2]][comm.rank])
    values = np.array([[4.1, 0.1, 0.2, 0.3], [13.1], [20.1, 20.2]][comm.rank], "f")
    found = indexer.Put_v((counts, values), extend=extend)
    first = ([5, 0], [0.1, 0.2, 0.3, 20.1, 20.2]) if extend else ([2, 0], [20.1, 20.2])
    counts, values = [first, ([0, 1], [13.1]), ([1], [4.1])][comm.rank]
    assert everywhere(comm, same_pairs(found, (np.array(counts), np.array(values, "f"))))


def test_access_counts(comm, indexer):
    expected = [[2, 1], [0, 1], [1]][comm.rank]
    assert everywhere(comm, indexer.access_counts.tolist() == expected)


def test_lists_of_several_indices_and_none(comm):
    lists = [[[4], [0]], [], [[], [0, 2]]][comm.rank]
    with GlobalMultiIndexer(DISTRI, lists, comm) as indexer:
        section = np.arange(DISTRI[comm.rank], DISTRI[comm.rank + 1])
        found = [part.tolist() for part in indexer.Take(section)]
        assert everywhere(comm, found == lists)
        back = indexer.Put([np.array(part, float) for part in lists], reduce=ReduceOp.SUM)
        assert everywhere(comm, back.dtype == float)
        assert everywhere(comm, back.tolist() == [[0, 0], [2, 0], [4]][comm.rank])
