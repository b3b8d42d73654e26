"""A disk that is really full: every rank says so, the old file stays and nothing else does."""

import shutil
import subprocess

import pytest
from mpi4py import MPI

import pencils

PROGRAM = """
import errno, sys
import pencils
from pencils.io import writers

path = sys.argv[1]
big = pencils.ones(pencils.Pencil((48, 64, 512)))  # 12 MiB for 8

def check_told(wait, **options):
    found = None
    try:
        pencils.save(path, {"u": big}, wait=wait, **options).wait()
    except OSError as error:
        found = error.errno, str(error)
    everyone = big.pencil.comm.allgather(found)
    assert {number for number, _ in everyone} == {errno.ENOSPC}, everyone

check_told(wait=True)
check_told(wait=False)
check_told(wait=False, chunks=(16, 64, 64))
writers.allocate = lambda path: None  # where the file system cannot allocate
check_told(wait=True)
check_told(wait=False)
check_told(wait=True, chunks=(16, 64, 64))
pencils.save(path.replace("a.h5", "b.h5"), {"u": pencils.ones(pencils.Pencil((48, 64)))})
"""


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 8 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "pencils", disk]
    if not shutil.which("mount") or subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting a small file system is not allowed here; root may do it")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk(mpirun, small_disk):
    """Every rank raises the error of the system."""
    path = small_disk / "a.h5"
    pencil = pencils.Pencil((8, 6, 4), MPI.COMM_SELF)
    pencils.save(path, {"u": pencils.ones(pencil)})
    before = path.read_bytes()
    ran = mpirun(3, "-c", PROGRAM, path, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in small_disk.iterdir()) == ["a.h5", "b.h5"]
