"""gather: the inverse of partition, whole or a part, to one rank or to all."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
from mpi_helpers import (
    DTYPES,
    all_raise,
    collectives,
    everywhere,
    named,
    numbered,
    on_nodes,
    one_is_wrong,
    random_pencil,
    ranks_at_fault,
    same,
    spread,
)

from pencils import Pencil, PencilArray, gather, partition, zeros
from pencils.comm import stream
from pencils.errors import ArgumentError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)


def gathers(field, expected, root=None, **kwargs):
    """Whether root, or everyone, gets what is expected, and the others None."""
    found = gather(field, root, **kwargs)
    if root not in (None, field.pencil.rank):
        return found is None
    expected = np.asarray(expected)
    return isinstance(found, np.ndarray) and found.flags.c_contiguous and same(found, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element_type_to_every_root(comm, dtype):
    data = numbered((2, *SHAPE), dtype)
    u = spread(Pencil(SHAPE, comm), data)
    for root in (*range(comm.size), None, np.int64(0)):
        assert everywhere(comm, gathers(u, data, root))


@pytest.mark.parametrize("block_bytes", [1, 100, 2**24])
def test_any_pencil_any_size_of_blocks(comm, block_bytes, monkeypatch):
    monkeypatch.setattr(stream, "SLAB_BYTES", block_bytes)
    rng = np.random.default_rng(3)
    for _ in range(6):
        shape = rng.integers(0, 6, rng.integers(1, 5)).tolist()
        pen = random_pencil(rng, comm, shape)
        data = numbered((2, *shape), "i4")
        root = int(rng.integers(comm.size))
        assert everywhere(comm, gathers(spread(pen, data, halo=1), data, root))


KEYS = [
    np.s_[...],
    np.s_[:],
    np.s_[1],
    np.s_[-1],
    np.s_[1, 2],
    np.s_[1, ..., 3],
    np.s_[..., -2],
    np.s_[0, 3, 2, 1],
    np.s_[-1, -1, -1, -1],
    np.s_[:, 2:5],
    np.s_[:, 1::3, ::2, ::-1],
    np.s_[::-1, ::-2, 5:1:-2, -2::-3],
    np.s_[..., 5:2],
    np.s_[..., 2:5:-1, :],
    np.s_[1:, 6, 1:100, -100:3],
    np.s_[:, 0:0],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_keys_mean_what_they_mean_in_numpy(comm, key):
    data = numbered((2, *SHAPE))
    pen = Pencil(SHAPE, comm, decomp=(2, 0), order=(1, 2, 0), splits=(None, None, "last"))
    u = spread(pen, data, halo=2)
    assert everywhere(comm, gathers(u, data[key], key=key))
    assert everywhere(comm, gathers(u, data[key], comm.size - 1, key=key))


def test_random_keys_of_random_pencils_with_singletons(comm):
    rng = np.random.default_rng(4)
    for _ in range(25):
        full = rng.integers(1, 6, 3)
        pen = random_pencil(rng, comm, full.tolist())
        dims = [dim for dim in range(3) if rng.random() < 0.6]
        shape = (3, *(int(n) if dim in dims else 1 for dim, n in enumerate(full)))
        data = numbered(shape)
        u = spread(pen, data, dims=dims)
        assert everywhere(comm, gathers(u, data))
        key = tuple(random_entry(rng, extent) for extent in shape)
        assert everywhere(comm, gathers(u, data[key], key=key))


def random_entry(rng, extent):
    if rng.random() < 0.3:
        return int(rng.integers(-extent, extent))
    step = int(rng.choice([-3, -2, -1, 1, 2, 3]))
    ends = [
        None if rng.random() < 0.3 else int(rng.integers(-extent - 1, extent + 2)) for _ in "ab"
    ]
    return slice(*ends, step)


@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((7, 5), (0, 2)),
        ((5, 7), (2, 0)),
        ((6,), 1),
        ((5, 6, 7), (2, 1, 0)),
        ((6, 5, 7), (-2, -1, -3)),
        ((), ()),
        ((2, 3, 5, 7), (2, 0)),
    ],
)
def test_dims_bring_back_what_partition_got(comm, shape, dims):
    data = numbered(shape)
    u = partition(Pencil(SHAPE, comm, decomp=(1, 2, 0)), data, dims=dims)
    assert everywhere(comm, gathers(u, data, dims=dims))


def test_dims_that_do_not_fit(comm):
    pen = Pencil(SHAPE, comm)
    u = partition(pen, numbered((7, 5)), dims=(0, 2))
    for dims, key, text in (((1, 2), ..., "drops dimensions [0]"), ((0, 2), 0, "be combined")):
        all_raise(comm, ArgumentError, text, gather, u, dims=dims, key=key)


def test_blocks_of_any_strides(comm):
    pen = Pencil(SHAPE, comm)
    data = numbered(SHAPE)
    local = data[pen.local_slices]
    for block in (local.T.copy().T, np.repeat(local, 2, axis=1)[:, ::2], local[::-1].copy()[::-1]):
        assert everywhere(comm, gathers(PencilArray(pen, block), data))


@pytest.mark.parallel([2, 3, 4, 6])
def test_one_collective(comm):
    """The agreement; the data are messages. Slots in shared memory are made once."""
    private = comm.Dup()
    with collectives() as calls:
        u = spread(Pencil(SHAPE, private), numbered(SHAPE))
        for kwargs in ({}, {}, {"key": np.s_[1]}, {"dims": (0, 1, 2)}, {"root": np.int64(0)}):
            calls.clear()
            gather(u, **kwargs)
            assert everywhere(comm, calls == ["Allgather"])
        large = spread(Pencil((64, 64, 64), private, decomp=2), numbered((64, 64, 64)))
        assert everywhere(comm, gathers(large, numbered((64, 64, 64))))
        calls.clear()
        assert everywhere(comm, gathers(large, numbered((64, 64, 64)), 0))
        assert everywhere(comm, calls == ["Allgather"])
    private.Free()


def test_after_the_communicator_was_freed(comm):
    private = comm.Dup()
    u = spread(Pencil(SHAPE, private), numbered(SHAPE))
    for _ in range(2):
        gather(u)
    private.Free()
    all_raise(comm, ArgumentError, "freed", gather, u)


@pytest.mark.mpiexec("measures the memory of one process")
@pytest.mark.parametrize("nodes", ["real nodes", "one rank apart"])
def test_a_few_slabs_are_in_memory_beyond_the_result(nodes):
    comm = on_nodes(nodes)
    shape = (128, 128, 256)  # 32 MiB
    u = spread(Pencil(shape, comm, decomp=(1, 2)), numbered(shape))
    for _ in range(2):  # the first one makes slots
        tracemalloc.start()
        found = gather(u)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert everywhere(comm, peak < (0 if found is None else found.nbytes) + 8 * 2**20)


def test_the_result_is_a_copy(comm):
    u = spread(Pencil(SHAPE, comm), numbered(SHAPE))
    found = gather(u, None)
    found[...] = 0
    assert everywhere(comm, same(u.local, numbered(SHAPE)[u.local_slices]))


def test_only_the_selected_part_travels(comm, monkeypatch):
    """A plane of u reaches root in messages of a plane's size together."""
    sent = []
    original = stream.SlabStream.send

    def spy(here, peer, slab):
        sent.append(slab.nbytes)
        original(here, peer, slab)

    monkeypatch.setattr(stream.SlabStream, "send", spy)
    data = numbered(SHAPE)
    u = spread(Pencil(SHAPE, comm), data)
    assert everywhere(comm, gathers(u, data[3], 0, key=3))
    assert comm.allreduce(sum(sent)) <= data[3].nbytes


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        ({"root": 99}, ArgumentError, "root=99"),
        ({"root": 1.5}, TypeError, "root"),
        ({"root": ()}, ArgumentError, "root"),
        ({"key": 7}, IndexError, "out of bounds"),
        ({"key": (0, 0, 0, 0)}, IndexError, "4 indices"),
        ({"key": [1, 2]}, TypeError, "integers, slices"),
        ({"key": "x"}, TypeError, "integers, slices"),
        ({"key": (..., ...)}, IndexError, "Ellipsis"),
        ({"dims": (0, 0)}, ArgumentError, "twice"),
        ({"dims": (0,)}, ArgumentError, "drops dimensions [1, 2]"),
    ],
    ids=str,
)
def test_a_mistake_on_one_rank_raises_on_all(comm, wrong, kind, text):
    data = numbered(SHAPE)
    u = spread(Pencil(SHAPE, comm), data)

    def works():
        assert everywhere(comm, gathers(u, data))

    call = lambda kwargs: gather(u, **kwargs)  # noqa: E731
    one_is_wrong(comm, kind, text, call=call, bad=wrong, good={}, after=works)


@pytest.mark.parallel([2, 3, 4, 6])
def test_different_arguments_on_one_rank_are_named(comm):
    pen = Pencil((7, 6, 1), comm)
    data = numbered((7, 6, 1))
    u = spread(pen, data)
    others = [
        (spread(pen.with_(decomp=1), data), "pencil"),
        (spread(pen.with_(splits="last"), data), "pencil"),
        (spread(pen, data[None]), "shape"),
        (spread(pen, data, dims=(0, 1)), "singletons"),
        (spread(pen, data.astype("f4")), "dtype"),
    ]
    wrong = [({"u": other}, {}, name) for other, name in others]
    wrong += [({"root": root}, {"root": 0}, "root") for root in (1, None)]
    wrong += [({"key": np.s_[2]}, {"key": np.s_[1]}, "key")]
    for rank in ranks_at_fault(comm):
        for bad, good, name in wrong:
            call = partial(gather, **({"u": u} | (bad if comm.rank == rank else good)))
            all_raise(comm, RankDisagreementError, f"disagree on {name}", call)
    assert everywhere(comm, gathers(u, data))


def test_no_room_on_root(comm):
    """More than there are addresses: all blocks are one number."""
    pen = Pencil((6 * 2**24, 2**30), comm, decomp=0)
    u = PencilArray(pen, np.broadcast_to(0.0, pen.local_shape))
    all_raise(comm, MemoryError, named(comm, 0), gather, u)
    found = gather(u, None, key=np.s_[:: 2**24, 0])
    assert np.array_equal(found, np.zeros(6))


def test_what_is_no_field(comm):
    all_raise(comm, TypeError, "PencilArray, not ndarray", gather, np.ones(3))


@pytest.mark.parallel([2, 3, 4, 6])
def test_one_rank_may_name_the_root_in_another_way(comm):
    pencil = Pencil((4, 3 * comm.size), comm, decomp=1)
    u = zeros(pencil)
    for root in (0 if comm.rank else [0], 0 if comm.rank else [0], 0):
        found = gather(u, root)
        assert (found is None) == (comm.rank > 0)
