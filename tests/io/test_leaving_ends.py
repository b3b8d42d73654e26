"""A program whose body of a ``with`` block fails on one rank: it ends, and says where it failed."""

import pytest

PROGRAM = """
import sys
import pencils

u = pencils.ones(pencils.Pencil((6, 5)))
with pencils.TimeSeries(sys.argv[1], "w") as series:
    series.append(1.0, {"u": u})
    if u.pencil.rank == 1:
        raise KeyError("the pump is broken")
"""


@pytest.mark.parametrize("way", [(), ("-m", "mpi4py")])
def test_a_program_that_fails_on_one_rank(mpirun, tmp_path, way):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = mpirun(3, *way, program, tmp_path / "out.h5", timeout=60)
    assert ran.returncode != 0
    assert "KeyError: 'the pump is broken'" in ran.stderr
    if not way:
        assert "rank 1: 'the pump is broken'" in ran.stderr
