"""Copies of fields in the memory of other ranks: what is left of the ranks restores all of it."""

from functools import partial

import numpy as np
import pytest
from mpi_helpers import all_raise

import pencils
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError, RanksLostError
from pencils.tools.recovery import Copy

SHAPE = 7, 5, 6


def values(*components):
    return np.random.default_rng(len(components)).random((*components, *SHAPE))


def fields(comm, decomp, order=(0, 1, 2), **options):
    pencil = pencils.Pencil(SHAPE, comm, decomp=decomp, order=order)
    u, w = pencils.zeros(pencil, **options), pencils.zeros(pencil, components=3, dtype=complex)
    return {"u": u, "w": w}


def filled(comm, decomp):
    found = fields(comm, decomp)
    found["u"][...] = values()
    found["w"][...] = values(3) * 1j
    return found


def check(found):
    assert np.array_equal(pencils.gather(found["u"], root=None), values())
    assert np.array_equal(pencils.gather(found["w"], root=None), values(3) * 1j)


@pytest.mark.parallel([1, 2, 3, 4, 6])
@pytest.mark.parametrize("decomp", [(0,), (1, 2)])
def test_fields_are_restored_on_another_pencil(comm, decomp):
    copies = pencils.recovery.BuddyCopies()
    copies.save(3, filled(comm, decomp), time=0.5)
    found = fields(comm, (0, 1), order=(2, 0, 1), halo=1)
    assert copies.resume(found) == Copy(3, {"time": 0.5})
    check(found)


@pytest.mark.parallel([2, 3, 4, 6])
@pytest.mark.parametrize("gone", [0, 1, -1])
def test_fewer_ranks_restore_what_one_of_them_had(comm, gone):
    copies = pencils.recovery.BuddyCopies()
    copies.save(3, filled(comm, (0, 1)))
    dead = gone % comm.size
    left = comm.Split(comm.rank == dead, comm.rank)
    if comm.rank != dead:
        found = fields(left, (1,))
        assert copies.resume(found).step == 3
        check(found)
        copies.save(4, found)  # among those that are left
        again = fields(left, (2,))
        assert copies.resume(again).step == 4
        check(again)
    left.Free()


@pytest.mark.parametrize("nodes", [[1, 1, 0, 2, 0, 0], [0, 0, 0, 1], [0, 1, 1, 2, 2, 2]])
def test_copies_on_nodes_of_different_sizes_have_one_distance(nodes):
    def program():
        copies = pencils.recovery.BuddyCopies()
        copies.save(3, filled(None, (0, 1)))
        again = fields(None, (2,))
        assert copies.resume(again).step == 3
        check(again)
        return copies._saved[0].distance

    distances = pencils.simulate(len(nodes), program, nodes=nodes)
    assert len(set(distances)) == 1


@pytest.mark.parallel([1, 2])
def test_attributes_are_those_of_the_step(comm):
    copies, rng = pencils.recovery.BuddyCopies(), np.random.default_rng(7)
    copies.save(3, filled(comm, (0,)), rng=rng)
    drawn = rng.random()
    for _ in range(2):
        assert copies.resume(fields(comm, (0,))).attrs["rng"].random() == drawn


@pytest.mark.parallel([2, 4, 6])
def test_a_rank_lost_with_its_copies_raises_on_all(comm):
    copies = pencils.recovery.BuddyCopies()
    copies.save(3, filled(comm, (0,)))
    dead = comm.rank in {0, copies._saved[0].distance}
    left = comm.Split(dead, comm.rank)
    if not dead:
        with pytest.raises(RanksLostError, match=r"rank 0 of the .* resume from a file"):
            copies.resume(fields(left, (0,)))
    left.Free()


@pytest.mark.parallel([1, 2, 3, 4])
def test_only_the_latest_copies_stay_in_memory(comm):
    copies = pencils.recovery.BuddyCopies()
    assert copies.resume(fields(comm, (0,))) is None
    assert copies.nbytes == 0
    for step in range(3):
        copies.save(step, filled(comm, (0,)))
    total = comm.allreduce(copies.nbytes)
    assert total == 2 * np.prod(SHAPE) * (8 + 3 * 16)
    with pytest.raises(ArgumentError, match=r"step=2 must be larger than 2"):
        copies.save(2, filled(comm, (0,)))


@pytest.mark.parallel([1, 2, 3])
def test_fields_that_were_not_saved_like_this_raise_on_all_ranks(comm):
    copies = pencils.recovery.BuddyCopies()
    copies.save(1, filled(comm, (0,)))
    pencil = pencils.Pencil(SHAPE, comm)
    with pytest.raises(ArgumentError, match=r"'v' was not saved; there is u, w"):
        copies.resume({"v": pencils.zeros(pencil)})
    with pytest.raises(PencilMismatchError, match=r"u has shape .* float32 .* make them equal"):
        copies.resume({"u": pencils.zeros(pencil, dtype=np.float32)})
    with pytest.raises(TypeError, match="u must be a PencilArray, not ndarray"):
        copies.save(2, {"u": np.zeros(SHAPE)})


@pytest.mark.parallel([2, 3, 4])
def test_other_pencils_or_attributes_on_one_rank(comm):
    copies = pencils.recovery.BuddyCopies()
    copies.save(1, filled(comm, 0), time=0.5)
    wrong = comm.rank == comm.size - 1
    ways = [fields(comm, dim) for dim in range(2)]
    found = ways[wrong]
    all_raise(comm, RankDisagreementError, ("save", "pencils"), copies.save, 2, found)
    all_raise(comm, RankDisagreementError, "pencils", copies.resume, found)
    save = partial(copies.save, 2, filled(comm, 0), time=float(wrong))
    all_raise(comm, RankDisagreementError, "attrs", save)
    again = fields(comm, 1)
    assert copies.resume(again) == Copy(1, {"time": 0.5})
    check(again)
