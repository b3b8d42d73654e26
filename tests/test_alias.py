"""Fields of several pencils over one piece of memory, to transpose in place."""

import gc
from itertools import pairwise

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import (
    DTYPES,
    all_raise,
    everywhere,
    holds,
    numbered,
    random_pencil,
    ways,
)
from tiers import up_to

import pencils
from pencils import Pencil, Transposition, alias, transpose
from pencils.comm.memory import LINE
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)

sharing = pytest.mark.parametrize("shared", [False, True], ids=["private", "shared"])


def stages(comm):
    """Give pencils as a Fourier transform passes through, each in the order that it likes."""
    first = Pencil(SHAPE, comm, decomp=(0, 1))
    return first, first.with_(decomp=(0, 2), order=(0, 2, 1)), first.with_(decomp=(1, 2))


def address(field):
    return field.padded.__array_interface__["data"][0]


@sharing
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_begin_at_one_address(comm, shared, dtype):
    pens = stages(comm)
    fields = alias(pens, dtype, components=(2, 3), shared=shared)
    assert isinstance(fields, tuple)
    assert [field.pencil for field in fields] == list(pens)
    assert everywhere(comm, len({address(field) for field in fields}) == 1)
    assert shared or address(fields[0]) % LINE == 0
    for field in fields:
        assert field.dtype == dtype
        assert field.components == (2, 3)
        assert field.halo == ((0, 0),) * 3
        memory_order = (0, 1, *(2 + dim for dim in field.pencil.order))
        assert everywhere(comm, field.local.transpose(memory_order).flags.c_contiguous)
        place = topology_of(comm).shared.find(field.local)
        assert everywhere(comm, (place is not None) == shared)


@sharing
def test_the_largest_block_has_room(comm, shared):
    thin = Pencil(SHAPE, comm, decomp=0, splits=([0, *[7] * comm.size], None, None))
    even = Pencil(SHAPE, comm, decomp=1)
    for pens in ((thin, even), (even, thin)):
        fields = dict(zip(pens, alias(pens, shared=shared), strict=True))
        for field in fields.values():
            field[...] = numbered(SHAPE)
            assert everywhere(comm, holds(field, numbered(SHAPE)))


@ways
@sharing
def test_round_and_round_through_all_pencils(comm, method, shared):
    pens = stages(comm)
    values = numbered((2, *SHAPE), "c16")
    fields = alias(pens, complex, components=2, shared=shared)
    kind = {"dtype": complex, "components": 2, "method": method}
    plans = [Transposition(*pair, **kind) for pair in pairwise((*pens, pens[0]))]
    fields[0][...] = values
    for _ in range(2):
        for n, plan in enumerate(plans):
            here, there = fields[n], fields[(n + 1) % 3]
            assert plan(here, there) is there
            assert everywhere(comm, holds(there, values))
    for n, plan in reversed([*enumerate(plans)]):
        with plan.reversed() as back:
            assert back.start(fields[(n + 1) % 3], fields[n]).wait() is fields[n]
        assert everywhere(comm, holds(fields[n], values))
    for plan in plans:
        plan.free()


@ways
@sharing
def test_any_pencils_in_place(comm, method, shared):
    """Also those where only some ranks keep a part of what they have."""
    rng = np.random.default_rng(11)
    for _ in range(up_to(15, 5)):
        shape = rng.integers(1, 9, rng.integers(1, 4)).tolist()
        pens = [random_pencil(rng, comm, shape) for _ in range(2)]
        dims = [dim for dim in range(len(shape)) if rng.random() < 0.8]
        values = numbered([n if dim in dims else 1 for dim, n in enumerate(shape)], "i2")
        with Transposition(*pens, "i2", dims=dims, method=method) as plan:
            u, v = alias(pens, "i2", dims=dims, shared=shared)
            for _ in range(2):
                u.local[...] = values[u.local_slices]
                plan(u, v)
                assert everywhere(comm, holds(v, values))
            u.local[...] = values[u.local_slices]
            transpose(u, pens[1], out=v)
            assert everywhere(comm, holds(v, values))


@ways
@sharing
def test_several_in_place_at_once(comm, method, shared):
    pens = stages(comm)[:2]
    values = numbered(SHAPE)
    pairs = [alias(pens, shared=shared) for _ in range(3)]
    us, vs = zip(*pairs, strict=True)
    with Transposition(*pens, method=method) as plan:
        for turn in range(3):
            for factor, u in enumerate(us):
                u[...] = (factor + turn) * values
            if turn % 2:
                handles = [plan.start(*pair) for pair in pairs]
                for n in np.random.default_rng(comm.rank).permutation(3):
                    handles[n].wait()
            else:
                plan.batch(us, vs)
            ok = (holds(v, (factor + turn) * values) for factor, v in enumerate(vs))
            assert everywhere(comm, all(ok))


@ways
def test_in_place_next_to_fields_of_their_own(comm, method):
    """Of several arrays some are in place; and so it may be on some ranks only."""
    pens = stages(comm)[:2]
    values = numbered(SHAPE)
    u, v = alias(pens)
    w, x = pencils.zeros(pens[0]), pencils.zeros(pens[1])
    with Transposition(*pens, method=method) as plan:
        for alone in (None, 0, comm.size - 1):
            u[...], w[...] = values, 2 * values
            in_place = alone in (None, comm.rank)
            plan.batch([u, w], [v if in_place else pencils.zeros(pens[1]), x])
            assert everywhere(comm, holds(x, 2 * values))
            assert everywhere(comm, holds(v, values) or not in_place)


def test_memory_lives_as_long_as_any_of_them(comm):
    first, second = alias(stages(comm)[:2], shared=True)
    second[...] = 7
    del first
    gc.collect()
    others = [pencils.zeros(second.pencil, shared=True) for _ in range(5)]
    assert everywhere(comm, (second.local == 7).all())
    assert everywhere(comm, not any(other.local.any() for other in others))
    # Shared memory is given back.
    private = comm.Dup()
    pens = stages(private)
    for _ in range(up_to(200, 60)):
        alias(pens, shared=True)
    gc.collect()
    pool = topology_of(private).shared
    assert pool.windows == 1
    assert everywhere(comm, pool._windows[0].idle)
    private.Free()


def test_wrong_arguments(comm):
    """On all ranks; those of one rank are among the cases of `test_one_rank_wrong`."""
    pens = stages(comm)
    alone = Pencil(SHAPE, MPI.COMM_SELF)
    wrong = [
        (((),), {}, ArgumentError, "at least one pencil"),
        ((3,), {}, TypeError, "sequence of pencils"),
        (("rows",), {}, TypeError, "must be a Pencil"),
        (((pens[0], None),), {}, TypeError, "pencils[1] must be a Pencil"),
        ((pens, object), {}, TypeError, "object"),
        ((pens,), {"components": -1}, ArgumentError, "components"),
        ((pens,), {"dims": 3}, ArgumentError, "dims"),
    ]
    if comm.size > 1:
        wrong.append((((pens[0], alone),), {}, PencilMismatchError, "other processes"))
    for args, options, kind, text in wrong:
        for shared in (False, True):
            all_raise(comm, kind, text, alias, *args, **options, shared=shared)
    odd = comm.rank == 0
    for args, name in (((pens[:2],), "pencils"), ((pens, "f4"), "dtype")) if comm.size > 1 else ():
        text, mine = f"disagree on {name}", args if odd else (pens,)
        all_raise(comm, RankDisagreementError, text, alias, *mine, shared=True)


def test_private_ones_are_made_without_the_others(comm):
    pens = stages(comm)
    if comm.rank == comm.size - 1:
        assert alias(pens)[0].pencil is pens[0]
        with pytest.raises(TypeError):
            alias(None)
    comm.Barrier()
