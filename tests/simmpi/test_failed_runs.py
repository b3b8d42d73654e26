"""What a simulation that has failed leaves behind, and how it ends."""

import gc
import threading

import pytest
from mpi4py import MPI

import pencils
from simmpi import Fault
from simmpi.errors import DeadlockError


def wait_for_all():
    MPI.COMM_WORLD.Barrier()


def start_and_leave():
    """Start an exchange on all ranks, of which the last one does not wait for the others."""
    comm = MPI.COMM_WORLD
    u = pencils.ones(pencils.Pencil((8, 6), comm, periodic=True), halo=1)
    handle = u.start_halo_exchange()
    if comm.rank < comm.size - 1:
        comm.Barrier()
    return handle


def test_what_a_failed_simulation_leaves(monkeypatch):
    """They cannot be: their ranks do not run any more, and other names are installed."""
    with pytest.raises(DeadlockError):
        pencils.simulate(2, start_and_leave, nodes=2)
    gc.collect()  # an error here would fail the test as an unraisable one
    assert pencils.simulate(1, lambda: gc.collect() >= 0) == [True]
    # Threads that have not ended yet are not resumed.
    monkeypatch.setattr(threading.Thread, "is_alive", lambda _thread: True)
    with pytest.raises(DeadlockError, match="rank 0, which returned"):
        pencils.simulate(2, lambda: MPI.COMM_WORLD.rank and MPI.COMM_WORLD.Barrier())
    with pytest.raises(DeadlockError, match="rank 0, which was killed"):
        pencils.simulate(2, wait_for_all, faults=[Fault(0, 0)])
