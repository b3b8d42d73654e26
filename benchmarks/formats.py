"""Time saving to a Zarr folder against an HDF5 file, and against zarr-python on one process.

    mpiexec -n 2 python -m mpi4py benchmarks/formats.py --n 256 --repeat 7

Cases run in turn, each twice: a sample is the second time, of the slowest rank, so that each case
meets only its own work in the background. The table shows the speed of pencils with Zarr as a ratio
(above 1: faster) to `save` to HDF5, uncompressed, and to zarr-python, which writes the same chunks
on rank 0 after a gather. All cases force their data to the disk.
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import zarr
from mpi4py import MPI

import pencils
from pencils.io.slabs import choose_chunk

COMM = MPI.COMM_WORLD


def write_alone(whole, path):
    if whole is None:
        return
    group = zarr.open_group(path, mode="w")
    codecs: list[Any] = [{"name": "zstd", "configuration": {}}, {"name": "crc32c"}]
    chunks = choose_chunk(whole.shape, whole.itemsize, 2**24)
    made = group.create_array("u", shape=whole.shape, dtype="f8", chunks=chunks, compressors=codecs)
    made[...] = whole
    for one in path.rglob("*"):
        handle = os.open(one, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def measure(cases, repeat):
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeat + 1):  # the first round makes plans
        for name, work in cases.items():
            work()  # in the background, each one frees the space of what it has replaced
            COMM.barrier()
            start = perf_counter()
            work()
            times[name].append(COMM.allreduce(perf_counter() - start, MPI.MAX))
    return {name: median(found[1:]) for name, found in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=256, help="points along each dimension")
    parser.add_argument("--repeat", type=int, default=7, help="samples of each case")
    args = parser.parse_args()
    u = pencils.random.normal(pencils.Pencil((args.n,) * 3), rng=1)
    whole = pencils.gather(u)
    path = Path(COMM.bcast(tempfile.mkdtemp(prefix="pencils-") if COMM.rank == 0 else None))
    found = measure(
        {
            "HDF5": lambda: pencils.save(path / "a.h5", {"u": u}),
            "Zarr": lambda: pencils.save(path / "a.zarr", {"u": u}),
            "Zarr, zstd": lambda: pencils.save(path / "z.zarr", {"u": u}, compression="zstd"),
            "zarr-python, zstd": lambda: write_alone(whole, path / "alone.zarr"),
        },
        args.repeat,
    )
    if COMM.rank == 0:
        shutil.rmtree(path)
        for name, seconds in found.items():
            print(f"{name:<20} {seconds * 1e3:8.1f} ms")
        print(f"Zarr / HDF5, uncompressed: {found['HDF5'] / found['Zarr']:.2f}")
        alone = found["zarr-python, zstd"] / found["Zarr, zstd"]
        print(f"Zarr / zarr-python on one process, zstd: {alone:.2f}")


if __name__ == "__main__":
    main()
