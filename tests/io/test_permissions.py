"""What a user may not read or write: the same error on every rank, whoever lacks the permission."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from mpi4py import MPI

import pencils

PROGRAM = """
import os, sys
import pencils
from pencils.io import create, hdf5  # before they may no longer be read

folder, who = sys.argv[1:]
pencil = pencils.Pencil((8, 6, 4))
u = pencils.ones(pencil)
pencils.transpose(u, pencil.with_(decomp=0))
if who == "all" or pencil.rank == pencil.size - 1:
    os.setuid(65534)

def check_refused(function, *args, kind="PermissionError", **kwargs):
    found = None
    try:
        function(*args, **kwargs)
    except Exception as error:
        found = type(error).__name__, str(error)
    everyone = pencil.comm.allgather(found)
    kinds = {found and found[0] for found in everyone}
    assert kinds == {kind}, (function, everyone)

for wait in (True, False):
    check_refused(pencils.save, f"{folder}/a.h5", {"u": u}, wait=wait)
check_refused(pencils.open, f"{folder}/a.h5", "r+")
check_refused(pencils.load, f"{folder}/secret.h5", pencil)
check_refused(pencils.verify, f"{folder}/secret.h5")
assert pencils.load(f"{folder}/a.h5", pencil)["u"].max() == 1
# A file that everybody may write, in a folder in which nobody may make a lock; one that is locked.
with pencils.open(f"{folder}/open.h5", "r+") as file:
    file["u"].write(2 * u)
check_refused(pencils.open, f"{folder}/held.h5", "r+", kind="BlockingIOError")
"""


@pytest.fixture
def folder():
    """Make a directory that everybody may look into; ``tmp_path`` is closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="pencils-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("who", ["all", "the last one"])
def test_without_permission(mpirun, folder, who):
    pencil = pencils.Pencil((8, 6, 4), MPI.COMM_SELF)
    names = ["a.h5", "secret.h5"]
    for name, mode in zip(names, (0o644, 0o600), strict=True):
        pencils.save(folder / name, {"u": pencils.ones(pencil)})
        (folder / name).chmod(mode)
    before = [(folder / name).read_bytes() for name in names]
    for name in ("open.h5", "held.h5"):
        pencils.save(folder / name, {"u": pencils.ones(pencil)})
        (folder / name).chmod(0o666)
    with pencils.open(folder / "held.h5", "r+", MPI.COMM_SELF):
        ran = mpirun(3, "-c", PROGRAM, folder, who, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("cannot lock files in") == (who == "all")
    assert pencils.load(folder / "open.h5", pencil)["u"].max() == 2
    assert [(folder / name).read_bytes() for name in names] == before
    assert {entry.name for entry in folder.iterdir()} == {*names, "open.h5", "held.h5"}
