"""Programs that do odd things: what they raise, how they test, and what they leave behind."""

import pytest
from mpi4py import MPI

from pencils import simulate
from pencils.errors import DeadlockError
from pencils.simulation import Simulation
from pencils.simulation.module import MODULE
from pencils.simulation.simulate import load
from pencils.simulation.world import active, deactivate


def barrier():
    MPI.COMM_WORLD.Barrier()


class UnreadableError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


# ---- texts of errors ----


@pytest.mark.parametrize("seed", [None, 1])
def test_an_error_without_text_is_raised_as_it_is(seed):
    def main():
        if MPI.COMM_WORLD.rank == 1:
            raise UnreadableError
        barrier()

    with pytest.raises(UnreadableError) as caught:
        simulate(3, main, seed=seed)
    assert "its __str__ raises RuntimeError" in "".join(caught.value.__notes__)


def test_an_error_while_ranks_are_described_ends_the_simulation(monkeypatch):
    def where(_):
        raise ZeroDivisionError

    simulation = Simulation(2)
    monkeypatch.setattr(simulation.scheduler, "_where", where)
    with simulation.installed(), pytest.raises(ZeroDivisionError):
        simulation.run(lambda: MPI.COMM_WORLD.rank or barrier())


# ---- without an MPI library ----


def test_a_process_without_mpi_library_continues_after_a_deadlock():
    load()
    try:
        for _ in range(2):
            with pytest.raises(DeadlockError, match="no rank can continue"):
                MODULE.COMM_WORLD.recv(source=0)
            assert MODULE.COMM_WORLD.allreduce(3) == 3
    finally:
        deactivate(active())


# ---- loops of tests ----


@pytest.mark.parametrize("seed", [None, 1])
def test_loops_of_many_tests_that_end_by_themselves_are_no_deadlock(seed):
    def main():
        found = [MPI.COMM_WORLD.iprobe() for _ in range(15_000)]
        barrier()
        return any(found)

    assert simulate(2, main, seed=seed) == [False, False]


def test_ranks_that_test_for_ever_are_described(monkeypatch):
    monkeypatch.setattr("pencils.simulation.polls.SECONDS", 0)

    def main():
        while not MPI.COMM_WORLD.iprobe():
            pass

    with pytest.raises(DeadlockError, match="no rank makes progress") as caught:
        simulate(3, main)
    text = str(caught.value)
    assert "Iprobe" in text
    assert "is running" in text
    assert "are ready" in text
    assert "ranks 0-2 is" not in text
