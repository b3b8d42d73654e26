"""A rank that raises, fails or deadlocks ends the whole job, and says where."""

import re
from pathlib import Path

HERE = Path(__file__).parent


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
        "pytestmark = pytest.mark.parallel([2, 3])\n"
        "def test_good(comm): assert comm.allreduce(1) == comm.size\n"
        "def test_bad(comm): assert comm.rank + 40 < 42\n"
    )
    args = "-m", "mpi4py", "-m", "pytest", "-c", HERE.parent / "pyproject.toml", "-m"
    args += "parallel[match]", "--rootdir", tmp_path, "-p", "tests.conftest"
    good = mpirun(2, *args, case, cwd=HERE.parent)
    bad = mpirun(3, *args, case, cwd=HERE.parent)
    assert good.returncode == 0, good.stdout + good.stderr
    assert "2 passed" in good.stdout
    assert bad.returncode != 0
    assert "test_one_rank.py::test_bad[nprocs=3] failed on ranks [2]" in bad.stdout
    assert "assert (2 + 40) < 42" in bad.stdout
    assert good.stdout.count("test session starts") == 1


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
    assert "RuntimeError: the pump is broken" in run.stderr
    assert "script.py" in run.stderr
