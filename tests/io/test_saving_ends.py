"""A program that ends while it saves in the background: no hang, and the old file stays."""

import pytest
from mpi4py import MPI

import pencils

PROGRAM = """
import sys, time
import pencils
from pencils.comm.file import SharedFile

write = SharedFile.write

def write_slowly(self, *args):
    time.sleep(0.3)
    write(self, *args)

SharedFile.write = write_slowly
pencil = pencils.Pencil((8, 6, 4))
fields = {name: pencils.ones(pencil) for name in "uvw"}
saving = pencils.save(sys.argv[1], fields, wait=False)
other = pencils.save(sys.argv[1], fields, wait=False)
if sys.argv[2] == "dropped":
    del saving
"""


@pytest.mark.parametrize("how", ["kept", "dropped"])
def test_a_program_that_ends_without_waiting(mpirun, tmp_path, how):
    path = tmp_path / "a.h5"
    pencil = pencils.Pencil((8, 6, 4), MPI.COMM_SELF)
    pencils.save(path, {"u": pencils.zeros(pencil)})
    ran = mpirun(3, "-c", PROGRAM, path, how, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert list(tmp_path.iterdir()) == [path]
    assert pencils.load(path, pencil)["u"].max() == 0
