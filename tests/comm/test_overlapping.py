"""Exchanges under way on communicators that have some ranks in common: none waits for another.

Exchanges through shared memory, and those of several rounds, complete only together: a rank that
completes one for which its peers do not wait at that time would wait for ever.
"""

import numpy as np
import pytest
from mpi_helpers import everywhere

import pencils
from pencils import HaloExchange, Pencil, Transposition, transpose
from pencils.comm.topology import topology_of

pytestmark = pytest.mark.parallel([3, 4, 6])

SHAPE = (6, 5, 4)
TAG = 7


def value(i, j, k):
    return 100.0 * i + 10 * j + k


def halo(comm, **options):
    """Plan of a halo exchange; functions that start one, make one, and look at what it did.

    Plans that check agree, so that ranks cannot start exchanges in a ring.
    """
    pen = Pencil(SHAPE, comm, decomp=(0, 1), grid=(1, comm.size), periodic=True)
    u = pencils.from_function(pen, value, halo=1)
    plan = HaloExchange(u, check=False, **options)

    def good():
        indices = np.ogrid[tuple(slice(s.start - 1, s.stop + 1) for s in pen.local_slices)]
        wrapped = (index % extent for index, extent in zip(indices, SHAPE, strict=True))
        return np.array_equal(u.padded, value(*wrapped))

    return plan, lambda: plan.start(u), lambda: plan(u), good


def swap(comm, **options):
    """Plan of a transposition, and the same functions."""
    pen, other = Pencil(SHAPE, comm, decomp=0), Pencil(SHAPE, comm, decomp=1)
    u = pencils.from_function(pen, value)
    v = pencils.zeros(other)
    plan = Transposition(pen, other, check=False, **options)

    def good():
        return np.array_equal(v.local, pencils.from_function(other, value).local)

    return plan, lambda: plan.start(u, v), lambda: plan(u, v), good


KINDS = {
    "halo": halo,
    "halo by sweeps of messages": lambda comm: halo(comm, route="sweeps", method="messages"),
    "transposition": swap,
    "transposition by messages": lambda comm: swap(comm, method="messages"),
    "transposition in turns": lambda comm: swap(comm, method="messages", max_buffer_bytes=64),
}
kinds = pytest.mark.parametrize("kind", list(KINDS))


def joined(comm, *ranks):
    """Communicator of some ranks; *Collective* over them alone."""
    group = comm.Get_group()
    chosen = group.Incl(ranks)
    made = comm.Create_group(chosen)
    chosen.Free()
    group.Free()
    return made


def ring(comm):
    """Communicators of this rank with the next one, and with the one before, by number."""
    here = [comm.rank, (comm.rank - 1) % comm.size]
    return {number: joined(comm, number, (number + 1) % comm.size) for number in sorted(here)}


@kinds
def test_pairs_in_a_ring_wait_in_another_order_than_they_start(comm, kind):
    pairs = ring(comm)
    made = {number: KINDS[kind](pair) for number, pair in pairs.items()}
    started = [comm.rank, (comm.rank - 1) % comm.size]  # everyone with the next one first
    handles = {number: made[number][1]() for number in started}
    for number in sorted(pairs):
        handles[number].wait()
        assert not topology_of(pairs[number]).under_way
    assert everywhere(comm, all(good() for *_, good in made.values()))
    for number, (plan, *_) in made.items():
        plan.free()
        pairs[number].Free()


def call(pair, kind="halo"):
    plan, _, run, good = KINDS[kind](pair)
    run()
    plan.free()
    return good()


def sweep(pair):
    return call(pair, "halo by sweeps of messages")


def verbs(pair):
    u = pencils.ones(Pencil(SHAPE, pair, periodic=True), halo=1)
    u.exchange_halo()
    v = transpose(u, u.pencil.with_(decomp=2))
    return v.take_points(([0], [0], [0])) == [1.0] and v.sum() == v.size


def shared_take(pair):
    u = pencils.ones(Pencil(SHAPE, pair), shared=True)
    return u.take_points(([5], [4], [3])) == [1.0]


def freed(pair):
    plan, start, _, good = KINDS["transposition"](pair)
    start()
    plan.free()
    return good()


def communicator_freed(pair):
    duplicate = pair.Dup()
    _, start, _, good = KINDS["halo"](duplicate)
    start()
    duplicate.Free()
    return good()


@kinds
@pytest.mark.parametrize("block", [call, sweep, verbs, shared_take, freed, communicator_freed])
def test_a_call_leaves_what_is_under_way_elsewhere_alone(comm, kind, block):
    """Rank 0 completes its exchange with rank 1 only after rank 2 has met rank 1."""
    one = joined(comm, 0, 1) if comm.rank < 2 else None
    two = joined(comm, 1, 2) if 1 <= comm.rank < 3 else None
    plan, start, _, good = KINDS[kind](one) if one else (None, None, None, lambda: True)
    handle = start() if one else None
    met = two is None or block(two)
    if comm.rank == 2:
        comm.send(None, dest=0, tag=TAG)
    if comm.rank == 0:
        comm.recv(source=2, tag=TAG)
    if one:
        handle.wait()
        plan.free()
    assert everywhere(comm, bool(met) and good())
    for pair in (one, two):
        if pair:
            pair.Free()


def test_a_dropped_exchange_is_kept_by_its_communicator(comm):
    """The program drops all it has; what arrives, arrives in memory that is still there."""
    pairs = ring(comm)
    for number in sorted(pairs):
        _, start, _, _ = halo(pairs[number])
        start()
    queues = [topology_of(pair).under_way for pair in pairs.values()]
    assert [len(queue) for queue in queues] == [1, 1]
    for number in sorted(pairs):
        pairs[number].Free()
    assert not any(queues)
