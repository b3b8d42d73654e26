"""Fields of several pencils over one piece of memory, to transpose in place."""

import gc
from itertools import pairwise

import pytest
from mpi4py import MPI
from mpi_helpers import DTYPES, all_raise, everywhere, holds, numbered, ways
from tiers import up_to

import pencils
from pencils import Pencil, Transposition, alias
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
    for _ in range(up_to(200, 20)):
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
