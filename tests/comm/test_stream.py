"""Streams of blocks arrive complete, in order, and with few blocks in memory."""

import tracemalloc

import numpy as np
import pytest
from mpi_helpers import DTYPES, everywhere, numbered, same

from pencils.comm import memory
from pencils.comm.stream import bcast_array, recv_stream, send_stream
from pencils.comm.topology import topology_of

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture(name="private")
def _private(comm):
    return topology_of(comm).comm


def scatter(private, blocks, target):
    """Rank 0 streams ``blocks(rank)`` to every other rank, which fills ``target(shape)``."""
    if private.rank == 0:
        pairs = ((r, block) for r in range(1, private.size) for block in blocks(r))
        send_stream(private, pairs)
        return True
    landed = [target(block) for block in blocks(private.rank)]
    recv_stream(private, ((0, block) for block in landed))
    expected = blocks(private.rank)
    return all(
        same(np.ascontiguousarray(a), np.ascontiguousarray(b))
        for a, b in zip(landed, expected, strict=True)
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_more_blocks_than_fit_in_the_window(private, dtype):
    def blocks(rank):
        return [numbered((n + rank, 3), dtype) for n in range(3 * 4)]

    assert everywhere(private, scatter(private, blocks, np.zeros_like))


def test_blocks_of_any_strides(private):
    def blocks(rank):
        data = numbered((5, 6, rank + 2))
        return [
            data.T,
            data[::2],
            data[..., ::-1],
            data[:, :0],
            np.asfortranarray(data),
            data[2, 3, 1],
        ]

    def spaced(block):
        return np.zeros((*block.shape, 2), block.dtype)[..., 0]

    assert everywhere(private, scatter(private, blocks, np.empty_like))
    assert everywhere(private, scatter(private, blocks, spaced))


@pytest.mark.parametrize("most", [1, 5, 4096])
def test_blocks_larger_than_one_call_can_move(private, most, monkeypatch):
    monkeypatch.setattr(memory, "MOST_BYTES", most)

    def blocks(rank):
        return [numbered((rank + 2, 7), "c16"), numbered((3,), "i1")]

    assert everywhere(private, scatter(private, blocks, np.zeros_like))
    data = numbered((4, 5), "c16")
    for root in range(private.size):
        copy = data.copy() if private.rank == root else np.zeros_like(data)
        bcast_array(private, copy, root)
        assert everywhere(private, same(copy, data))


def test_nothing_to_send(private):
    send_stream(private, ())
    recv_stream(private, ())
    bcast_array(private, np.zeros((0, 3)), 0)


@pytest.mark.mpiexec("measures the memory of one process")
def test_the_sender_holds_a_window_of_blocks_at_most(private):
    """Fresh blocks of 1 MiB, forty in all; only those under way may be alive."""
    block = 2**20
    count = 40
    tracemalloc.start()
    if private.rank == 0:
        send_stream(
            private,
            (
                (r, np.full(block, r, np.uint8))
                for _ in range(count)
                for r in range(1, private.size)
            ),
        )
        peak = tracemalloc.get_traced_memory()[1]
        right = True
    else:
        target = np.zeros((count, block), np.uint8)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        recv_stream(private, ((0, row) for row in target))
        peak = tracemalloc.get_traced_memory()[1] - before
        right = bool((target == private.rank).all())
    tracemalloc.stop()
    assert everywhere(private, right)
    assert everywhere(private, peak < 8 * block)
