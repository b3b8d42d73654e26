"""Every example runs, alone and on four processes, and checks its own results."""

from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(mpirun, tmp_path, path, n):
    program = [path] if n == 1 else ["-m", "mpi4py", path]
    ran = mpirun(n, *program, cwd=tmp_path, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout
    assert ran.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_there_are_examples_and_all_but_the_solver_are_short():
    lengths = {path.stem: len(path.read_text().splitlines()) for path in EXAMPLES}
    assert lengths.pop("navier_stokes") < 230
    assert len(lengths) >= 5
    assert max(lengths.values()) < 80


def test_the_demo_is_the_navier_stokes_example():
    demo = Path(__file__).parents[1] / "pencils" / "demo.py"
    example = next(path for path in EXAMPLES if path.stem == "navier_stokes")
    assert demo.read_bytes() == example.read_bytes()
