"""The magic ``%%simulate`` in IPython."""

import sys

import pytest

from pencils.errors import ArgumentError, DeadlockError

pytest.importorskip("IPython", exc_type=ImportError)
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Return an IPython with the magic; ``shell(cell)`` returns the result, or raises."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # IPython sets its own
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    shell.run_line_magic("load_ext", "pencils")

    def run(cell):
        result = shell.run_cell(cell)
        result.raise_error()
        return result.result

    yield run
    InteractiveShell.clear_instance()


@pytest.fixture
def run(shell):
    shell("from mpi4py import MPI\nimport pencils\ncomm = MPI.COMM_WORLD\nstep = 3")
    return shell


def test_a_cell_runs_on_ranks_and_has_a_value(run, capsys):
    cell = "%%simulate -n 3\nprint(comm.rank, comm.size, step)\ncomm.allgather(comm.rank)"
    assert run(cell) == [0, 1, 2]
    assert sorted(capsys.readouterr().out.splitlines())[:3] == ["0 3 3", "1 3 3", "2 3 3"]


def test_variables_of_rank_0_come_back(run):
    run("%%simulate -n 3\nmine = MPI.COMM_WORLD.rank\nstep += 1 + mine\nother = step")
    assert run("[mine, step, other]") == [0, 4, 4]
    assert run("comm.size, comm is MPI.COMM_WORLD") == (1, True)


def test_results_that_were_gathered_come_back(run):
    run(
        "%%simulate -n 3 --seed 4\n"
        "u = pencils.from_function(pencils.Pencil((4, 5)), lambda i, j: 10 * i + j)\n"
        "whole = pencils.gather(u, root=0)"
    )
    assert run("whole[3, 4]") == 34


def test_classes_of_the_cell_can_be_sent(run):
    cell = "%%simulate -n 3\nclass Own:\n    pass\ntype(comm.bcast(Own())) is Own"
    assert run(cell) is True


def test_each_rank_has_its_own_variables(run):
    cell = "%%simulate -n 3 --seed 1\nstep = comm.rank\ncomm.barrier()\ncomm.gather(step)"
    assert run(cell) == [0, 1, 2]


def test_magics_inside_the_cell_and_no_value(run):
    assert run("%%simulate -n 2\nx = !echo 5\ncomm.allreduce(int(x[0]));") is None
    assert run("x") == ["5"]


def test_errors_are_those_of_the_rank(run):
    with pytest.raises(ZeroDivisionError) as caught:
        run("%%simulate -n 3\nif comm.rank == 1:\n    1 / 0\ncomm.barrier()")
    assert "rank 1 of 3" in "".join(caught.value.__notes__)
    with pytest.raises(DeadlockError, match="waits in barrier"):
        run("%%simulate -n 3\nif comm.rank == 1:\n    comm.barrier()")


@pytest.mark.parametrize("line", ["", "-n x", "-n 2 --unknown"])
def test_options_that_are_not_allowed(run, line):
    with pytest.raises(ArgumentError, match="usage: %%simulate -n N"):
        run(f"%%simulate {line}\n1")
