"""Time checkpoints against the usual ways of writing and reading a field, in one run.

    mpiexec -n 4 python -m mpi4py benchmarks/io.py --n 256 --repeat 9

Cases run in turn, and a sample is the time of the slowest rank. The table shows medians as ratios
to pencils (above 1: slower than pencils). All cases that write force their data to the disk; with
``--cached`` they leave them in the page cache. Files to be read are in the page cache. Only ratios
are comparable between machines. The cases of parallel h5py need an h5py that was built with MPI.
"""

import argparse
import contextlib
import os
import tempfile
from importlib import import_module
from pathlib import Path
from statistics import median

import h5py
import numpy as np
from mpi4py import MPI

import pencils
from pencils.comm import file as comm_file
from pencils.io import commit

results = import_module("results")
timing = import_module("timing")
COMM = timing.COMM


def sync(path, wanted):
    if wanted:
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def write_on_root(whole, path, durable):
    with h5py.File(path, "w") as file:
        file["u"] = whole
    sync(path, durable)


def gather_to_root(u, path, durable):
    """Send blocks to rank 0 by mpi4py, assemble them by NumPy, and write them there."""
    blocks = COMM.gather((u.local_slices, u.local))
    if blocks is not None:
        whole = np.empty(u.shape)
        for where, block in blocks:
            whole[where] = block
        write_on_root(whole, path, durable)


def gather_by_pencils(u, path, durable):
    whole = pencils.gather(u)
    if whole is not None:
        write_on_root(whole, path, durable)


def file_per_rank(u, path, durable):
    mine = f"{path}.{COMM.rank}"
    u.local.tofile(mine)
    sync(mine, durable)


def whole_on_root(u, path, durable):
    """Write the bytes of the field from one process, without gathering and format: the limit."""
    if COMM.rank == 0:
        np.ones(u.shape).tofile(path)
        sync(path, durable)


def mpio_collective(u, path, durable):
    with h5py.File(path, "w", driver="mpio", comm=COMM) as file:
        dataset = file.create_dataset("u", u.shape, u.dtype)
        with dataset.collective:
            dataset[u.local_slices] = u.local
    sync(path, durable)


def mpio_independent(u, path, durable):
    with h5py.File(path, "w", driver="mpio", comm=COMM) as file:
        file.create_dataset("u", u.shape, u.dtype)[u.local_slices] = u.local
    sync(path, durable)


def read_on_root(pencil, path):
    if COMM.rank != 0:
        return pencils.partition(pencil, None, root=0)
    with h5py.File(path) as file:
        return pencils.partition(pencil, file["u"][...], root=0)


def read_file_per_rank(pencil, path):
    return np.fromfile(f"{path}.{COMM.rank}").reshape(pencil.local_shape)


def read_hyperslabs(pencil, path):
    with h5py.File(path, locking=False) as file:
        return file["u"][pencil.local_slices]


def cases(u, folder, durable):
    """Return the cases by name: first writing, then reading the same files."""
    writers = {
        "pencils.save": lambda u, path, _: pencils.save(path, {"u": u}),
        "without checksum": lambda u, path, _: pencils.save(path, {"u": u}, checksum=False),
        "gather to root, h5py": gather_to_root,
        "gather by pencils, h5py": gather_by_pencils,
        "numpy.tofile per rank": file_per_rank,
        "numpy.tofile on root": whole_on_root,
    }
    if h5py.get_config().mpi:
        writers["h5py mpio collective"] = mpio_collective
        writers["h5py mpio independent"] = mpio_independent
    for name, write in writers.items():
        path = folder / name.replace(" ", "_")
        yield name, lambda write=write, path=path: write(u, path, durable)
    pencil, path = u.pencil, folder / "pencils.save"
    yield "pencils.load", lambda: pencils.load(path, pencil)
    yield "without verification", lambda: pencils.load(path, pencil, verify=False)
    yield "h5py on root, scatter", lambda: read_on_root(pencil, path)
    yield "h5py hyperslab per rank", lambda: read_hyperslabs(pencil, path)
    parts = folder / "numpy.tofile_per_rank"
    yield "numpy.fromfile per rank", lambda: read_file_per_rank(pencil, parts)


def report(u, times):
    nbytes = u.size * u.dtype.itemsize
    print(f"decomposed {u.pencil.decomp}, process grid {u.pencil.grid}")
    for name, samples in times.items():
        typical = median(samples)
        if name.startswith("pencils."):
            verb, base = name, typical
        elif not name.startswith("without"):
            results.keep(f"{verb}, {u.shape[0]}^3 over {u.pencil.decomp}", name, typical / base)
        rate = nbytes / typical / 1e9
        print(f"  {name:24} {1e3 * typical:8.1f} ms {rate:6.2f} GB/s {typical / base:6.2f} x")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=128, help="points along each dimension")
    parser.add_argument("--repeat", type=int, default=7, help="samples of each case")
    parser.add_argument("--cached", action="store_true", help="leave data in the page cache")
    parser.add_argument("--folder", help="where to write; default: a temporary folder")
    options = parser.parse_args()
    if options.cached:
        setattr(comm_file.SharedFile, "sync", lambda _: None)  # noqa: B010
        setattr(commit, "sync", lambda _: None)  # noqa: B010
    if COMM.rank == 0:
        print(f"{options.n}^3 float64 on {COMM.size} ranks, {MPI.Get_library_version().split()[0]}")
    with contextlib.ExitStack() as stack:
        folder = None
        if COMM.rank == 0:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder))
        folder = Path(COMM.bcast(folder))
        for decomp in [(0,), (1,), (2,), (0, 1), (1, 2)]:
            pencil = pencils.Pencil((options.n,) * 3, decomp=decomp)
            u = pencils.random.uniform(pencil, rng=1)
            runs = dict(cases(u, folder, not options.cached))
            # The system may still write the previous file.
            times = timing.in_turn(runs, options.repeat, pause=0.1)
            if COMM.rank == 0:
                report(u, times)
        COMM.Barrier()


if __name__ == "__main__":
    main()
