"""Programs that do odd things: what they raise, how they test, and what they leave behind."""

import os
import threading
import warnings

import pytest
from mpi4py import MPI

from pencils import simulate
from simmpi import Fault, Simulation
from simmpi.errors import DeadlockError, StepLimitError
from simmpi.module import MODULE
from simmpi.simulation import alone
from simmpi.world import active, deactivate


def barrier():
    MPI.COMM_WORLD.Barrier()


@pytest.mark.parametrize("seed", [None, 1])
def test_errors_without_text_and_loops_of_tests(seed, monkeypatch):
    class UnreadableError(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def fails():
        if MPI.COMM_WORLD.rank == 1:
            raise UnreadableError
        barrier()

    with pytest.raises(UnreadableError) as caught:
        simulate(3, fails, seed=seed)
    assert "for rank 1, which raised UnreadableError" in "".join(caught.value.__notes__)

    def loops():
        found = [MPI.COMM_WORLD.iprobe() for _ in range(15_000)]
        barrier()
        return any(found)

    # They end by themselves and are no deadlock, however slow the machine is.
    monkeypatch.setattr("simmpi.scheduler.SECONDS", float("inf"))
    assert simulate(2, loops, seed=seed) == [False, False]
    simulation = Simulation(2, seed=seed)
    monkeypatch.setattr(simulation.scheduler, "_where", lambda _: 1 // 0)
    with simulation.installed(), pytest.raises(ZeroDivisionError):
        simulation.run(lambda: MPI.COMM_WORLD.rank or barrier())


def test_a_process_without_mpi_library_continues_after_a_deadlock():
    alone()
    try:
        for _ in range(2):
            with pytest.raises(DeadlockError, match="no rank can continue"):
                MODULE.COMM_WORLD.recv(source=0)
            assert MODULE.COMM_WORLD.allreduce(3) == 3
    finally:
        deactivate(active())


def test_all_kinds_of_tests_are_calls(monkeypatch):
    def main():
        comm = MPI.COMM_WORLD
        requests = [comm.irecv(source=comm.rank, tag=tag) for tag in range(5)]
        assert not requests[0].get_status()
        for tag in range(5):
            comm.isend(None, comm.rank, tag).wait()
        requests[0].get_status()
        requests[0].test()
        MPI.Request.testall(requests[1:2])
        MPI.Request.testany(requests[2:3])
        MPI.Request.testsome(requests[3:4])
        comm.iprobe()
        comm.improbe()
        requests[4].wait()

    simulation = Simulation(2)
    with simulation.installed():
        simulation.run(main)
        simulation.close()
    names = ["Get_status", "Test", "Testall", "Testany", "Testsome", "Iprobe", "Improbe"]
    assert simulation.calls[1][16:23] == names
    # Faults and max steps include tests.
    monkeypatch.setattr("simmpi.scheduler.SECONDS", 0)

    def main():
        while not MPI.COMM_WORLD.iprobe():
            pass

    with pytest.raises(MemoryError):
        simulate(2, main, faults=[Fault(1, 7, MemoryError)])
    with pytest.raises(StepLimitError):
        simulate(2, main, max_steps=50)


def test_warnings_and_faults_of_one_simulation():
    def main():
        if MPI.COMM_WORLD.rank == 0:
            warnings.simplefilter("error")
        barrier()
        return warnings.filters[0][0]

    before = list(warnings.filters)
    first, second = simulate(2, main)
    assert first == "error"
    assert second == before[0][0]
    assert warnings.filters == before
    # The error of a fault gets notes of one simulation.
    error = OSError(28, "disk full")
    for _ in range(2):
        with pytest.raises(OSError, match="disk full") as caught:
            simulate(2, barrier, faults=[Fault(1, 0, error)])
        assert caught.value.errno == 28
        assert len(caught.value.__notes__) == 1
    assert not hasattr(error, "__notes__")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no cores of threads")
def test_threads_that_ranks_start_use_all_cores_afterwards():
    end = threading.Event()
    started = []

    def main():
        thread = threading.Thread(target=end.wait)
        thread.start()
        started.append(thread)

    before = os.sched_getaffinity(0)
    try:
        simulate(2, main)
        assert [os.sched_getaffinity(each.native_id) for each in started] == [before] * 2
    finally:
        end.set()
