"""Who wants something from a rank: found by a table, or by consensus."""

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import everywhere

from pencils.comm import mailbox
from pencils.comm.mailbox import sparse_exchange

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

ways = pytest.mark.parametrize("most_dense", [0, 1024], ids=["consensus", "table"])


@ways
def test_every_rank_learns_who_wants_how_much(comm, monkeypatch, most_dense):
    monkeypatch.setattr(mailbox, "MOST_DENSE", most_dense)
    rng = np.random.default_rng(3)
    private = comm.Dup()
    for density in (0, 0.3, 1) * 7:  # round after round: none is taken for another
        wants = rng.integers(1, 100, (comm.size, comm.size)) * (
            rng.random((comm.size, comm.size)) < density
        )
        peers = np.flatnonzero(wants[comm.rank])
        found = sparse_exchange(private, peers, wants[comm.rank, peers])
        asking = np.flatnonzero(wants[:, comm.rank])
        assert everywhere(comm, found[0].tolist() == asking.tolist())
        assert everywhere(comm, found[1].tolist() == wants[asking, comm.rank].tolist())
    private.Free()


def test_consensus_sends_to_neighbours_only(comm, monkeypatch):
    monkeypatch.setattr(mailbox, "MOST_DENSE", 0)
    sent = []

    class Counting:
        def __getattr__(self, name):
            return getattr(comm, name)

        def Issend(self, buffer, peer, tag):
            sent.append(peer)
            return comm.Issend(buffer, peer, tag)

        def Alltoall(self, *_):
            raise NotImplementedError

    ahead = (comm.rank + 1) % comm.size
    found = sparse_exchange(Counting(), np.array([ahead]), np.array([5]))
    assert everywhere(comm, sent == [ahead])
    assert everywhere(comm, found[0].tolist() == [(comm.rank - 1) % comm.size])


def test_one_rank_alone():
    peers, counts = sparse_exchange(MPI.COMM_SELF, np.array([], int), np.array([], int))
    assert peers.size == counts.size == 0
