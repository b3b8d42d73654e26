"""Reductions over ranks give what the ufunc gives in NumPy, on every rank the same."""

import numpy as np
import pytest
from mpi_helpers import everywhere

from pencils.comm import pack
from pencils.comm.reduce import allreduce, block_reducer, combine, native

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

NUMBERS = ["i1", "u2", "i4", "u8", "f2", "f4", "f8", "g", "c8", "c16", ">f8", ">i4", "?"]
UFUNCS = [np.add, np.multiply, np.maximum, np.minimum, np.logical_and, np.logical_or]


def drawn(rank, dtype):
    values = np.random.default_rng(rank).integers(0, 4, (3, 5))
    return values.astype(dtype)


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda ufunc: ufunc.__name__)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_like_numpy(comm, ufunc, dtype):
    everyone = np.stack([drawn(rank, dtype) for rank in range(comm.size)])
    expected = everyone[0]
    for other in everyone[1:]:
        expected = ufunc(expected, other)
    mine = drawn(comm.rank, dtype)
    for array in (mine, np.asfortranarray(mine)):
        found = allreduce(comm, array, ufunc)
        assert everywhere(comm, np.array_equal(found, expected))
    assert everywhere(comm, np.array_equal(mine, drawn(comm.rank, dtype)))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "g", ">f8"])
@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum], ids=["max", "min"])
def test_nan_wins_wherever_it_is(comm, ufunc, dtype):
    for rank in range(comm.size):
        array = np.array([1.0, -np.inf, np.inf, comm.rank], dtype)
        if comm.rank == rank:
            array[0] = np.nan
        found = allreduce(comm, array, ufunc)
        last = comm.size - 1 if ufunc is np.maximum else 0
        expected = np.array([np.nan, -np.inf, np.inf, last])
        assert everywhere(comm, np.array_equal(found, expected, equal_nan=True))


@pytest.mark.parametrize("dtype", ["f4", "f8", "g"])
def test_zeros_have_one_sign_on_all_ranks(comm, dtype):
    """The greater of both zeros is the positive one, whichever rank has it."""
    for rank in range(comm.size):
        here = comm.rank == rank
        array = np.array([0.0 if here else -0.0, -0.0 if here else 0.0, -0.0, 0.0], dtype)
        alone = comm.size == 1
        greatest = np.signbit(allreduce(comm, array, np.maximum)).tolist()
        assert everywhere(comm, greatest == [False, alone, True, False])
        least = np.signbit(allreduce(comm, array, np.minimum)).tolist()
        assert everywhere(comm, least == [not alone, True, True, False])


def test_empty_and_single_numbers(comm):
    assert allreduce(comm, np.zeros((0, 3)), np.add).shape == (0, 3)
    assert allreduce(comm, np.array(2.0), np.add) == 2.0 * comm.size


def test_anything_can_be_combined(comm):
    found = combine(comm, {comm.rank}, lambda one, other: one | other)
    assert everywhere(comm, found == set(range(comm.size)))


@pytest.mark.parallel([1])
@pytest.mark.parametrize("name", pack.available())
def test_sums_of_blocks_have_the_bits_of_numpy(name):
    """The first sum of a kind of field is that of NumPy, further ones may be compiled."""
    rng = np.random.default_rng(1)
    shapes = [(0,), *((n,) for n in range(1, 300)), (5, 7, 31), (16, 33, 64), (100_003,)]
    blocks = [rng.standard_normal(n) * 10.0 ** rng.integers(-9, 9, n) for n in shapes]
    with pack.using(name):
        add = block_reducer(np.add, np.dtype(float))
        for block in blocks:
            for view in (block, block.T, block[::2], block.astype(">f8"), -0.0 * abs(block)):
                expected = np.add.reduce(view, None)
                assert (add(view), np.signbit(add(view))) == (expected, np.signbit(expected))
            unaligned = np.frombuffer(b"x" + block.tobytes(), np.uint8)[1:].view(float)
            assert add(unaligned) == np.add.reduce(unaligned, None)
            assert add(block > 0) == (block > 0).sum()
            assert add(block.astype(int)) == block.astype(int).sum()


@pytest.mark.parallel([1])
@pytest.mark.parametrize("name", pack.available())
def test_sums_of_blocks_warn_as_numpy(name):
    with pack.using(name):
        add = block_reducer(np.add, np.dtype(float))
    huge = np.full(300, 1e308)
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert add(huge) == np.inf
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        add(huge)
    assert np.isnan(add(np.append(huge, np.nan)[-2:]))


def test_native_numbers_are_the_types_of_numpy():
    for char in "?bBhHiIlLqQefdgFDG":
        for order in "<>=":
            assert native(np.dtype(char).newbyteorder(order)) is np.dtype(char)
    for kind in (">M8[s]", ">U3", "S3", [("a", ">f8"), ("b", "<i4")]):
        assert native(np.dtype(kind)) == np.dtype(kind).newbyteorder("=")
