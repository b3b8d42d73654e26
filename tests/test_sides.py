"""Transpositions between pencils on different ranks of one communicator."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import (
    all_raise,
    everywhere,
    holds,
    named,
    numbered,
    random_pencil,
    ranks_at_fault,
    spread,
    ways,
)
from tiers import up_to

import pencils
from pencils import Pencil, Transposition, transpose
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)

# Ranks of the smaller pencil, in its own order.
PARTS = {
    "all": lambda size: list(range(size)),
    "all, turned": lambda size: list(range(size))[::-1],
    "first half": lambda size: list(range((size + 1) // 2)),
    "last half": lambda size: list(range(size // 2, size)),
    "every other": lambda size: list(range(0, size, 2)),
    "every other, turned": lambda size: list(range(0, size, 2))[::-1],
    "first": lambda _size: [0],
    "last": lambda size: [size - 1],
    "all but the first": lambda size: list(range(1, size)) or [0],
    "a mixed few": lambda size: [*range(1, size, 2), 0][:3],
}

parts = pytest.mark.parametrize("part", list(PARTS))


@pytest.fixture
def subset(comm):
    """Make communicators of some ranks, None elsewhere, and free them at last."""
    made = []

    def make(ranks):
        whole = comm.Get_group()
        chosen = whole.Incl(ranks)
        part = comm.Create_group(chosen) if comm.rank in ranks else MPI.COMM_NULL
        whole.Free()
        chosen.Free()
        made.append(part)
        return None if part == MPI.COMM_NULL else part

    yield make
    comm.Barrier()
    for part in made:
        if part != MPI.COMM_NULL:
            part.Free()


def pencil_on(part, **rest):
    return None if part is None else Pencil(SHAPE, part, **rest)


def spread_or_none(pencil, data, **rest):
    return None if pencil is None else spread(pencil, data, **rest)


def holds_or_none(pencil, field, data):
    if pencil is None:
        return field is None
    return field.pencil is pencil and holds(field, data)


@ways
@parts
def test_to_fewer_ranks_and_back(comm, subset, method, part):
    values = numbered(SHAPE)
    fine = Pencil(SHAPE, comm, decomp=(0, 1))
    coarse = pencil_on(subset(PARTS[part](comm.size)), decomp=(2, 0), order=(1, 2, 0))
    u = spread(fine, values, halo=1)
    with Transposition(fine, coarse, method=method) as there:
        assert (there.source, there.target) == (fine, coarse)
        v = there(u)
        assert everywhere(comm, holds_or_none(coarse, v, values))
        v = spread_or_none(coarse, -values, halo=2)
        assert there(u, v) is v
        assert everywhere(comm, holds_or_none(coarse, v, values))
        assert there.start(u, v).wait() is v
        several = there.batch([u, u])
        assert everywhere(comm, all(holds_or_none(coarse, w, values) for w in several))
        with there.reversed() as back:
            assert (back.source, back.target) == (coarse, fine)
            for w in (back(v), back.start(v).wait(), *back.batch([v, v])):
                assert everywhere(comm, holds(w, values))
        one, other = there.buffers()
        assert (one is None, other is None) == (False, coarse is None)
        one[...] = values + 1
        assert there(one, other) is other
        assert everywhere(comm, holds_or_none(coarse, other, values + 1))
    with Transposition(coarse, fine, method=method, check=False) as back:
        w = pencils.empty(fine)
        for turn in range(4):
            if v is not None:
                v[...] = values + turn
            assert back(v, w) is w
            assert everywhere(comm, holds(w, values + turn))
    with Transposition(fine, coarse, method=method, max_buffer_bytes=200) as slow:
        assert everywhere(comm, holds_or_none(coarse, slow(u), values))


@ways
def test_any_pencils_on_any_ranks(comm, subset, method):
    """Whose processes are the same, some of them the same, or others."""
    rng = np.random.default_rng(3)
    for _ in range(up_to(12, 5)):
        shape = rng.integers(1, 8, 3).tolist()
        lead = tuple(rng.integers(1, 3, rng.integers(0, 2)).tolist())
        dims = [dim for dim in range(3) if rng.random() < 0.8]
        full = (*lead, *(n if dim in dims else 1 for dim, n in enumerate(shape)))
        values = numbered(full, "i4")
        pens = []
        for _ in range(2):
            ranks = rng.permutation(comm.size)[: rng.integers(1, comm.size + 1)].tolist()
            mine = subset(ranks)
            drawn = np.random.default_rng(rng.integers(1000))
            pens.append(None if mine is None else random_pencil(drawn, mine, shape))
        source, target = pens
        u = spread_or_none(source, values, dims=dims)
        kind = {"dtype": "i4", "components": lead, "dims": dims, "method": method, "comm": comm}
        with Transposition(source, target, **kind) as plan:
            v = plan(u)
            assert everywhere(comm, holds_or_none(target, v, values))
            with plan.reversed() as back:
                assert everywhere(comm, holds_or_none(source, back(v), values))


@ways
def test_another_order_of_the_same_ranks(comm, method):
    turned = comm.Split(0, -comm.rank)
    values = numbered(SHAPE)
    source, target = Pencil(SHAPE, comm), Pencil(SHAPE, turned)
    with Transposition(source, target, method=method) as plan:
        assert ("on ranks" in repr(plan)) == (comm.size > 1)
        v = plan(spread(source, values))
        assert everywhere(comm, holds(v, values))
    if comm.size > 1:
        texts = "processes in the same order", "Transposition"
        call = partial(transpose, spread(source, values), target)
        all_raise(comm, PencilMismatchError, texts, call)
    turned.Free()


# Mistakes.


def refused(comm, kind, text, /, *pens, rank=None, **options):
    """Check that all ranks raise when they make a plan, and name the rank at fault."""
    texts = [text] if rank is None or comm.size == 1 else [named(comm, rank), text]
    all_raise(comm, kind, texts, Transposition, *pens, **options)


def test_none_where_there_is_a_pencil(comm):
    fine = Pencil(SHAPE, comm)
    for rank, rest in product(ranks_at_fault(comm), ({}, {"comm": comm})):
        odd = None if comm.rank == rank else fine
        for pens in ((odd, fine), (fine, odd)):
            refused(comm, TypeError, "must be a Pencil", *pens, rank=rank, **rest)
    assert transpose(pencils.ones(fine), fine).sum() == np.prod(SHAPE)
    for pens, rest in product(((fine, None), (None, fine)), ({}, {"comm": comm})):
        refused(comm, TypeError, "None on all", *pens, **rest)
    refused(comm, TypeError, "must be a Pencil", None, None)
    refused(comm, TypeError, "None on all", None, None, comm=comm)


@pytest.mark.parallel([3, 4, 6])
def test_none_where_there_is_a_part_of_the_smaller_pencil(comm, subset):
    fine = Pencil(SHAPE, comm)
    coarse = pencil_on(subset([0, 2]))
    for rank in (0, 2):
        mine = None if comm.rank == rank else coarse
        for pens in ((fine, mine), (mine, fine)):
            refused(comm, TypeError, "must be a Pencil, not None", *pens, rank=rank)


@pytest.mark.parallel([3, 4, 6])
def test_pencils_of_processes_that_do_not_take_part(comm, subset):
    fine = Pencil(SHAPE, comm)
    half = subset(range(1, comm.size))
    part = subset(range(comm.size - 1))
    small = pencil_on(part)
    if half is not None:  # rank 0 has a part in the pencil, but not in the plan
        refused(half, PencilMismatchError, "pass comm=", small, pencil_on(half), comm=half)
    with Transposition(small, fine) as plan:
        v = plan(spread_or_none(small, numbered(SHAPE)))
    assert everywhere(comm, holds_or_none(fine, v, numbered(SHAPE)))


@pytest.mark.parallel([3, 4, 6])
def test_pencils_that_differ_among_their_ranks(comm, subset):
    fine = Pencil(SHAPE, comm)
    ranks = [0, comm.size - 1]
    one = pencil_on(subset(ranks))
    other = None if one is None else one.with_(order=(2, 1, 0))
    mine = other if comm.rank == ranks[-1] else one
    for pens in ((fine, mine), (mine, fine)):
        refused(comm, PencilMismatchError, "order=(2, 1, 0)", *pens)
    larger = None if one is None else one.with_(shape=(8, 6, 5))
    refused(comm, PencilMismatchError, "same global shape", fine, larger)


@pytest.mark.parallel([2, 3, 4, 6])
def test_wrong_fields_where_there_should_be_none(comm, subset):
    values = numbered(SHAPE)
    fine = Pencil(SHAPE, comm)
    coarse = pencil_on(subset(range(1, comm.size)))  # rank 0 has no part
    u, v = spread(fine, values), spread_or_none(coarse, values)
    extra = u if comm.rank == 0 else v
    with Transposition(fine, coarse) as plan, plan.reversed() as back:
        cases = [
            (plan, (u, extra), ArgumentError, "out must be None"),
            (plan, (u, 3 if comm.rank == 0 else v), TypeError, "out must be a PencilArray"),
            (back, (extra, u), ArgumentError, "u must be None"),
            (back, (3 if comm.rank == 0 else v, u), TypeError, "u must be a PencilArray"),
        ]
        for each, fields, kind, text in cases:
            for call in (each, each.start, lambda *f, each=each: each.batch([f[0]], [f[1]])):
                all_raise(comm, kind, ("rank 0", text), call, *fields)
        missing = None if comm.rank == comm.size - 1 else v
        text = f"rank {comm.size - 1}: u must be a PencilArray"
        all_raise(comm, TypeError, text, back, missing)
        assert everywhere(comm, holds_or_none(coarse, plan(u), values))
        assert everywhere(comm, holds(back(v), values))


def test_another_communicator_on_one_rank(comm, subset):
    """Ranks that name the same processes agree; what else they name is told."""
    fine = Pencil(SHAPE, comm)
    again = comm.Dup()
    with Transposition(fine, fine.with_(decomp=2), comm=again) as plan:
        assert everywhere(comm, holds(plan(spread(fine, numbered(SHAPE))), numbered(SHAPE)))
    again.Free()
    coarse = pencil_on(subset([0]))
    with Transposition(fine, coarse, comm=comm, method="messages") as plan:
        other = Transposition(fine, coarse, comm=comm, method="alltoallw")
        mine = plan if comm.rank == 0 else other
        if comm.size > 1:
            all_raise(comm, RankDisagreementError, "disagree on plan", mine, pencils.ones(fine))
        other.free()


@ways
@pytest.mark.parametrize("extent", [2**30, 2**33], ids=["2**63 bytes", "2**69 bytes"])
def test_plans_for_more_bytes_than_can_be_counted_are_made_on_all_ranks(
    comm, subset, method, extent
):
    """Fields of such plans raise; where one pencil does not include this rank, too."""
    part = subset([0])
    target = part and Pencil((extent, extent), part)
    with Transposition(Pencil((extent, extent), comm), target, comm=comm, method=method) as plan:
        assert everywhere(comm, plan.off_node().nbytes >= 0)
