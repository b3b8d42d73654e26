"""Every example runs on any number of processes and checks its own results."""

import runpy
import sys
from pathlib import Path

import pytest
from tiers import up_to

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def named(value):
    return value.stem if isinstance(value, Path) else str(value)


each = pytest.mark.parametrize("path", EXAMPLES, ids=named)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all: an example that was run before in a folder runs there again."""
    return tmp_path_factory.mktemp("examples")


@pytest.mark.parallel([1, 2, 3, 4, 6])
@each
def test_example(comm, mpi_tmp_path, monkeypatch, request, path):
    simulated = request.config.pluginmanager.has_plugin("simmpi-ranks")
    capture = request.getfixturevalue("capsys" if simulated else "capfd")
    monkeypatch.setattr(sys, "argv", [str(path)])
    with monkeypatch.context() as patch:
        patch.chdir(mpi_tmp_path)
        runpy.run_path(str(path), run_name="__main__")
    printed = capture.readouterr()
    comm.barrier()
    assert printed.out or comm.rank > 0
    assert printed.err == ""
    assert list(mpi_tmp_path.iterdir()) == []


# The test above executes the same lines. With --rest some end as programs, alone or on 4 ranks.
ONCE = [(path, (1, 4)[number % 2]) for number, path in enumerate(EXAMPLES)]


@pytest.mark.thorough
@pytest.mark.parametrize(("path", "n"), ONCE[:: up_to(1, 5)], ids=named)
def test_example_as_a_program(mpirun, folder, path, n):
    program = [path] if n == 1 else ["-m", "pencils", "run", path]
    ran = mpirun(n, *program, cwd=folder, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout
    assert ran.stderr == ""
    assert list(folder.iterdir()) == []


def test_there_are_examples_and_all_but_the_solver_are_short():
    lengths = {path.stem: len(path.read_text().splitlines()) for path in EXAMPLES}
    assert lengths.pop("navier_stokes") < 240
    assert len(lengths) >= 5
    assert max(lengths.values()) < 100
    # The demo is the navier stokes example.
    demo = Path(__file__).parents[1] / "pencils" / "tools" / "demo.py"
    example = next(path for path in EXAMPLES if path.stem == "navier_stokes")
    assert demo.read_bytes() == example.read_bytes()
