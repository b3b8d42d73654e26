"""Without an MPI library, one process works on the simulated MPI; several refuse to."""

import textwrap
from pathlib import Path

import pytest
from mpi_helpers import python

from pencils.comm.mpi import started

ROOT = Path(__file__).parents[1]
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")

# mpi4py is not installed, or finds no library.
NO_PACKAGE = "import sys; sys.modules['mpi4py'] = None\n"
NO_LIBRARY = """
import sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "mpi4py.MPI":
            raise RuntimeError("cannot load MPI library\\n/nowhere: no such file")
sys.meta_path.insert(0, Finder)
"""
both = pytest.mark.parametrize("hide", [NO_PACKAGE, NO_LIBRARY], ids=["package", "library"])


def run(hide, text, *args, cwd=ROOT, **variables):
    """Run a program that finds no MPI library."""
    variables |= {"PYTHONPATH": str(ROOT)}
    return python("-c", hide + textwrap.dedent(text), *args, cwd=cwd, without=SIZES, **variables)


def run_command(hide, *args, **variables):
    text = """
    import sys
    from pencils.__main__ import main
    main(sys.argv[1:])
    """
    return run(hide, text, *args, **variables)


@both
def test_fields_files_and_transforms(hide, tmp_path):
    text = """
    import numpy as np
    import pencils
    from pencils import fft
    from mpi4py import MPI
    import mpi4py.MPI

    assert MPI is mpi4py.MPI
    assert MPI.COMM_WORLD.allreduce(3) == 3
    pen = pencils.Pencil((6, 7, 8), periodic=True)
    u = pencils.from_function(pen, lambda i, j, k: i + 10.0 * j - k * k, halo=1)
    u.exchange_halo()
    assert u.padded[0, 1, 1] == u.local[-1, 0, 0]
    v = pencils.transpose(u, pen.with_(decomp=(0, 2), order=(2, 0, 1)))
    assert np.array_equal(pencils.gather(v), u.local)
    assert u.take_points(([5], [6], [7]))[0] == u.local[5, 6, 7]
    pencils.save("u.h5", {"u": u}, step=3)
    assert np.array_equal(pencils.load("u.h5", pen)["u"].local, u.local)
    transform = fft.PencilFFT(pen)
    assert np.allclose(transform.backward(transform.forward(u)).local, u.local)
    print(pencils.simulate(3, lambda: MPI.COMM_WORLD.allgather(MPI.COMM_WORLD.rank)))
    assert MPI.COMM_WORLD.size == 1
    try:
        pencils.simulate(3, lambda: pencils.ones(pen))
    except ValueError as error:
        assert "uses pen, a Pencil that was made outside" in str(error)
    else:
        raise AssertionError
    """
    ran = run(hide, text, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "[[0, 1, 2], [0, 1, 2], [0, 1, 2]]\n"
    assert ran.stderr == ""


def test_the_readme(tmp_path):
    text = """
    import re, sys
    from pathlib import Path
    names = {}
    import pencils  # before the first block imports mpi4py
    for block in re.findall("^```python\\n(.*?)^```", Path(sys.argv[1]).read_text(), re.S | re.M):
        exec(block, names)
    """
    ran = run(NO_LIBRARY, text, str(ROOT / "README.md"), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr


@both
def test_the_command_line(hide):
    ran = run_command(hide, "info")
    assert ran.returncode == 0, ran.stderr
    assert "MPI library     none (simmpi, one process)\n" in ran.stdout
    ran = run_command(
        hide, "simulate", "-n", "3", "-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.rank)"
    )
    assert (ran.returncode, ran.stdout) == (0, "0\n1\n2\n"), ran.stderr
    ran = run_command(
        hide, "run", "-c", "import pencils; print(pencils.ones(pencils.Pencil(4)).sum())"
    )
    assert (ran.returncode, ran.stdout) == (0, "4.0\n"), ran.stderr


@both
def test_one_of_several_processes_refuses_to_work_alone(hide):
    ran = run(hide, "import pencils", PMI_SIZE="4", PMI_RANK="1")
    assert ran.returncode == 1
    *_, error = ran.stderr.splitlines()
    assert error.startswith("ImportError: this is one of 4 processes (PMI_SIZE=4), but no MPI")
    assert "pip install 'pencils[mpich]'" in error
    assert "python -m pencils simulate -n 4 app.py" in error
    assert run(hide, "import pencils", PMI_SIZE="1").returncode == 0


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"PMI_SIZE": "1", "PMI_RANK": "0"}, None),
        ({"PMI_SIZE": "3"}, ("PMI_SIZE", "3")),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, ("OMPI_COMM_WORLD_SIZE", "2")),
        ({"SLURM_STEP_NUM_TASKS": "8"}, None),  # srun of programs that are alone
        ({"SLURM_STEP_NUM_TASKS": "8", "PMIX_RANK": "0"}, ("SLURM_STEP_NUM_TASKS", "8")),
        ({"SLURM_STEP_NUM_TASKS": "1", "PMIX_RANK": "0"}, None),
    ],
)
def test_how_many_processes_the_environment_has(variables, found):
    assert started(variables) == found
