"""A rank that raises, fails or deadlocks ends the whole job, and says where."""

import re
from itertools import product
from pathlib import Path

import pytest
import tiers

HERE = Path(__file__).parent


def pytest_in(folder):
    """Run tests that lie elsewhere as if they were these."""
    config = HERE.parent / "pyproject.toml"
    return "-m", "pytest", "-c", config, "--rootdir", folder, "-p", "conftest"


def test_a_deadlocked_test_ends_the_job_with_its_traceback(mpirun):
    case = HERE / "deadlock_case.py"
    run = mpirun(2, "-m", "mpi4py", "-m", "pytest", case, "-o", "faulthandler_timeout=5")
    assert run.returncode != 0
    assert "Timeout (0:00:05)!" in run.stderr
    assert re.search(r"deadlock_case.py.* in test_rank_0_waits_for_ever", run.stderr)


def test_a_test_that_fails_on_one_rank_fails_the_job_and_shows_why(mpirun, tmp_path):
    case = tmp_path / "test_one_rank.py"
    case.write_text(
        "import pytest\n"
        "pytestmark = pytest.mark.parallel(2)\n"
        "def test_good(comm): assert comm.allreduce(1) == comm.size\n"
        "def test_bad(comm): assert comm.rank + 40 < 41\n"
    )
    run = mpirun(2, "-m", "mpi4py", *pytest_in(tmp_path), case, cwd=HERE)
    assert run.returncode != 0
    assert "2 passed" in run.stdout  # on rank 0
    assert "test_one_rank.py::test_bad failed on ranks [1]" in run.stdout
    assert "assert (1 + 40) < 41" in run.stdout
    assert run.stdout.count("test session starts") == 1


def test_a_failing_property_shows_its_example_however_long_it_shrinks(mpirun, tmp_path):
    case = tmp_path / "test_property.py"
    case.write_text(
        "import time\n"
        "from hypothesis import given, settings, strategies as st\n"
        "@settings(database=None)\n"
        "@given(st.lists(st.integers(0, 1000), min_size=9))\n"
        "def test_it(values):\n"
        "    time.sleep(0.1)\n"
        "    assert sum(values) < 10\n"
    )
    run = mpirun(1, *pytest_in(tmp_path), case, "-o", "faulthandler_timeout=2", cwd=HERE)
    assert "values=[0, 0, 0, 0, 0, 0, 0, 0, 10]" in run.stdout, run.stdout + run.stderr
    assert float(re.search(r"1 failed in ([0-9.]+)s", run.stdout)[1]) > 2


def test_a_run_makes_what_its_number_of_ranks_and_its_tier_allow(mpirun, tmp_path):
    case = tmp_path / "test_cases.py"
    case.write_text(
        "import pytest\n"
        "def product(one, other):\n"
        "    rows = pytest.mark.parametrize('row', range(one))\n"
        "    columns = pytest.mark.parametrize('column', range(other))\n"
        "    return lambda test: rows(columns(test))\n"
        "@product(7, 5)\n"
        "def test_many(row, column): pass\n"
        "@product(4, 3)\n"
        "def test_few(row, column): pass\n"
        "@pytest.mark.parallel([1, 3])\n"
        "@pytest.mark.parametrize('row', range(5))\n"
        "def test_on_some_ranks(row): pass\n"
        "@pytest.mark.parallel(3)\n"
        "def test_on_three(): pass\n"
        "@pytest.mark.thorough\n"
        "def test_at_length(): pass\n"
        "@product(3, 5)\n"
        "def test_after_it(row, column): pass\n"
        "@pytest.mark.parametrize('row', [0, pytest.param(1, marks=pytest.mark.thorough)])\n"
        "def test_in_part(row): pass\n"
    )
    counts = {"": 7 + 12 + 1 + 5 + 1, "--all": 35 + 12 + 5 + 1 + 15 + 2}
    cases = {option: passed_cases(mpirun, tmp_path, case, option) for option in (*counts, "--rest")}
    assert {option: len(cases[option]) for option in counts} == counts
    assert sorted(cases[""] + cases["--rest"]) == sorted(cases["--all"])


@pytest.mark.parametrize("starts", [True, False])
def test_two_parts_have_each_case_once(monkeypatch, starts):
    monkeypatch.setattr(tiers, "starts_programs", lambda _: starts)
    seen = 0
    for number, count in product(range(tiers.FEW), [1, 2, 4, 11]):
        parts = []
        for part in ("few", "others"):
            monkeypatch.setattr(tiers, "PART", part)
            parts.append(tiers.part_of([*range(count)], number))
        assert len(parts[0]) <= 1 + count // tiers.FEW
        assert parts[0] or starts
        assert sorted(parts[0] + parts[1]) == [*range(count)]
        seen += len(parts[0])
    assert seen >= 1 + 2 + 4 + 11


def passed_cases(mpirun, tmp_path, case, option):
    """Return the names of the tests in a file that pass on one process, with this option if any."""
    run = mpirun(1, *pytest_in(tmp_path), case, "-v", *option.split(), cwd=HERE)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(rf"^On 3 ranks, too: .*mpiexec -n 3 .* {case}", run.stdout, re.MULTILINE)
    return re.findall(r"::(\S+) PASSED", run.stdout)


def test_an_exception_on_one_rank_ends_the_job_with_its_traceback(mpirun, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from mpi4py import MPI\n"
        "if MPI.COMM_WORLD.rank == 1:\n"
        "    raise RuntimeError('the pump is broken')\n"
        "MPI.COMM_WORLD.barrier()\n"
    )
    run = mpirun(2, "-m", "mpi4py", script)
    assert run.returncode != 0
    assert "script.py" in run.stderr  # mpiexec may lose the last lines of a job that is aborted
