"""Let each system call of what pencils does with files fail in turn; run by test_faulty_disk.py.

    LD_PRELOAD=./faults.so python tests/io/fail_disk.py --stride 7

Prints what came out that should not: any error but that of the disk with the name of a file, a call
that succeeded and has not done its work, a temporary that is left although the process has gone on.
"""

import argparse
import ctypes
import errno
import os
import sys
import tempfile
from pathlib import Path

from mpi4py import MPI

import pencils
from pencils.io.commit import clean

COMM = MPI.COMM_SELF
PENCIL = pencils.Pencil((4, 6), COMM)
U = pencils.ones(PENCIL)
DISK = ctypes.CDLL(None)
DISK.faults_failed.restype = ctypes.c_char_p
# Where nothing waits for a disk, if there is such a place.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
# So many calls fail one by one, the others from stride to stride: the first ones make temporaries.
FIRST = 10


def nothing(folder):
    """Prepare nothing."""


def save(folder, **options):
    pencils.save(folder / "a.h5", {"u": U, "dt": 0.1}, attrs={"run": "a"}, **options)


def pack(folder):
    save(folder, compression="gzip")


def save_in_background(folder):
    save(folder, wait=False)
    pencils.save(folder / "a.h5", {"u": U, "dt": 0.1}, wait=False).wait()


def load(folder):
    assert pencils.load(folder / "a.h5", PENCIL)["u"].sum() == U.size


def verify(folder):
    assert pencils.verify(folder / "a.h5", COMM) == ["dt", "u"]


def edit(folder, name="a.h5"):
    with pencils.open(folder / name, "r+", COMM) as file:
        file["u"].write(U)
        file["u"].read(PENCIL)


def save_folder(folder):
    pencils.save(folder / "a.zarr", {"u": U, "dt": 0.1})


def load_folder(folder):
    assert pencils.load(folder / "a.zarr", PENCIL)["u"].sum() == U.size


def edit_folder(folder):
    edit(folder, "a.zarr")


def append(mode="a", name="s"):
    """Make what writes a series, or goes on with it."""

    def work(folder):
        series = pencils.TimeSeries(folder / name, mode, comm=COMM)
        try:
            for _ in range(2):
                time = len(series) + 1.0
                series.append(time, {"u": U, "n": 1})
            series.truncate(time - 0.5)
            series.append(time, {"u": U, "n": 1})
        finally:
            series.close()

    return work


def checkpoint(mode, expected):
    """Make what goes on from a checkpoint, or starts anew, and saves the step that is expected."""

    def work(folder):
        with pencils.CheckpointSeries(folder / "run", mode, comm=COMM, signals=()) as checkpoints:
            found = checkpoints.resume({"u": U})
            assert (found.step + 1 if found else 1) == expected
            checkpoints.save(expected, {"u": U})

    return work


def two_checkpoints(folder):
    for step in (1, 2):
        checkpoint("a", step)(folder)


CASES = {
    "save": (nothing, save),
    "save again": (save, save),
    "pack": (nothing, pack),
    "save in the background": (nothing, save_in_background),
    "load": (save, load),
    "load packed": (pack, load),
    "verify": (save, verify),
    "verify packed": (pack, verify),
    "edit": (save, edit),
    "series": (nothing, append()),
    "series goes on": (append(), append()),
    "series anew": (append(), append("w")),
    "Zarr": (nothing, save_folder),
    "Zarr again": (save_folder, save_folder),
    "load Zarr": (save_folder, load_folder),
    "edit Zarr": (save_folder, edit_folder),
    "series in Zarr": (nothing, append(name="s.zarr")),
    "checkpoints go on": (two_checkpoints, checkpoint("a", 3)),
    "checkpoints anew": (two_checkpoints, checkpoint("w", 1)),
}


def check(folder):
    """Check that all that has its name is whole."""
    for path in (*folder.rglob("*.h5"), *folder.glob("*.zarr")):
        pencils.verify(path, COMM)
    if (folder / "s").is_file():
        pencils.verify(folder / "s", COMM)


def attempt(prepare, work, number, *, lasting):
    """Do some work while a call fails; how many calls there were, and what is wrong."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as made:
        folder = Path(os.path.realpath(made))
        prepare(folder)
        wrong, done = [], False
        DISK.faults_arm(str(folder).encode(), number, lasting, errno.EIO)
        try:
            work(folder)
            done = True
        except OSError as error:
            if error.errno != errno.EIO or str(folder) not in str(error):
                wrong.append(f"{error}")
        except Exception as error:  # noqa: BLE001 - that is looked for
            wrong.append(f"{error!r}")
        count, failed = DISK.faults_count(), DISK.faults_failed().decode()
        DISK.faults_arm(b"/", 0, 0, 0)
        if not lasting:
            if failed in ("unlink", "open"):
                clean(folder / "a.h5")  # as the next save does
            wrong += [f"left {path}" for path in folder.rglob(".*.tmp")]
            check(folder)
        if done and count >= number and failed in ("write", "rename", "ftruncate"):
            wrong.append("was not noticed")
        return count, [f"{failed} number {number}: {what}" for what in wrong]


def run(name, stride, *, lasting):
    """Let call after call of a case fail; what is wrong."""
    number, found = 1, []
    while True:
        count, wrong = attempt(*CASES[name], number, lasting=lasting)
        if count < number:
            return found
        found += wrong
        number += 1 if number < FIRST else stride


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--only", default="", help="part of the names of cases")
    bad = False
    args = parser.parse_args()
    for name in [one for one in CASES if args.only in one]:
        for lasting in (False, True):
            for line in run(name, args.stride * (5 if lasting else 1), lasting=lasting):
                bad = True
                print(f"{name}{', from then on' * lasting}: {line}", flush=True)
    # HDF5 before 2.0 crashes when the process ends, if a file could not be closed.
    sys.stdout.flush()
    os._exit(bad)
