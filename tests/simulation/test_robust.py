"""Programs that do odd things: what they raise, how they test, and what they leave behind."""

import pytest
from mpi4py import MPI

from pencils import simulate
from pencils.simulation import Simulation


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
