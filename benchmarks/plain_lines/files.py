"""Files: fields saved and loaded, against h5py by hand."""

import tempfile
from functools import partial
from pathlib import Path

import h5py
import numpy as np

import pencils

from .line import Calls, Line

# Small files are in memory, where `fsync`, which by hand nothing calls, takes no time.
MEMORY, SMALL = Path("/dev/shm"), 64


def folder_of(comm, n):
    """Make a folder; *Collective*. Returns its path and a function that removes it."""
    where = MEMORY if n <= SMALL and MEMORY.is_dir() else None
    folder = tempfile.TemporaryDirectory(dir=where) if comm.rank == 0 else None
    path = Path(comm.bcast(folder and folder.name))
    return path, folder.cleanup if folder else lambda: None


def load(n, decomp, comm):
    """Read a file in the page cache: every rank its block, into a new array."""
    folder, free = folder_of(comm, n)
    pencil = pencils.Pencil((n,) * 3, comm, decomp=decomp)
    path = folder / "u.h5"
    pencils.save(path, {"u": pencils.random.uniform(pencil, 1)})

    def by_hand():
        with h5py.File(path, "r", locking=False) as file:
            return file["u"][pencil.local_slices]

    return Calls(by_hand, lambda: pencils.load(path, pencil), free)


def save(n, decomp, comm):
    """Write a file; by hand nothing is forced to the disk, and who dies loses the old file."""
    folder, free = folder_of(comm, n)
    u = pencils.random.uniform(pencils.Pencil((n,) * 3, comm, decomp=decomp), 1)
    mine = np.ascontiguousarray(u.local)
    where = comm.allgather(u.local_slices)

    def by_hand():
        if comm.rank:
            comm.Send(mine, 0)
            return
        whole = np.empty((n,) * 3)
        whole[where[0]] = mine
        for rank in range(1, comm.size):
            block = np.empty([part.stop - part.start for part in where[rank]])
            comm.Recv(block, rank)
            whole[where[rank]] = block
        with h5py.File(folder / "by_hand.h5", "w") as file:
            file["u"] = whole

    return Calls(by_hand, lambda: pencils.save(folder / "u.h5", {"u": u}), free)


LINES = [
    *(
        Line(
            f"load(path, pen), {n}^3 over {decomp}",
            "h5py hyperslabs",
            partial(load, n, decomp),
            goal,
        )
        for n, goal in ((64, 0.7), (256, 0.9))
        for decomp in ((0,), (1, 2))
    ),
    *(
        Line(
            f"save(path, ...), {n}^3 over {decomp}", "gather, h5py", partial(save, n, decomp), goal
        )
        for n, goal in ((64, 0.7), (256, 3.0))
        for decomp in ((0,), (1, 2))
    ),
]
