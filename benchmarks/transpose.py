"""Time transposes against the copy limit and against mpi4py-fft, in one run.

    mpiexec -n 2 python -m mpi4py benchmarks/transpose.py --n 256 --repeat 15

Cases run in turn, a sample is the time of the slowest rank, and the table shows medians as ratios
to ``numpy.copyto`` of the same local bytes by all ranks at once. Only ratios carry over between
machines.
"""

import argparse
from statistics import median

import numpy as np
from mpi4py import MPI

import pencils

try:
    from mpi4py_fft import DistArray
except ImportError:
    DistArray = None

COMM = MPI.COMM_WORLD


def our_cases(n, old, new):
    source = pencils.Pencil((n, n, n), decomp=old)
    target = source.with_(decomp=new)
    u = pencils.random.uniform(source, seed=1)
    for method in ("messages", "alltoallv"):
        plan = pencils.Transposition(source, target, method=method, check=False)
        out = pencils.empty(target)
        yield f"pencils {method}", lambda plan=plan, out=out: plan(u, out)


def peer_case(n, old, new):
    """Make the same move by mpi4py-fft: align the axis that was decomposed and is not any more."""
    if DistArray is None:
        return
    (axis,) = set(old) - set(new)
    subcomm = [0 if dim in old else 1 for dim in range(3)]
    v = DistArray((n, n, n), subcomm=subcomm, dtype=float)
    out = v.redistribute(axis)
    yield "mpi4py-fft", lambda: v.redistribute(out=out)


def copy_case(n):
    here = np.ones(n**3 // COMM.size)
    there = np.empty_like(here)
    yield "copy limit", lambda: np.copyto(there, here)


def sample(run):
    COMM.Barrier()
    start = MPI.Wtime()
    run()
    return COMM.allreduce(MPI.Wtime() - start, op=MPI.MAX)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=128, help="points along each dimension")
    parser.add_argument("--repeat", type=int, default=11, help="samples of each case")
    options = parser.parse_args()
    grids = [((0,), (1,)), ((1,), (2,)), ((0, 1), (0, 2)), ((0, 2), (1, 2))]
    if COMM.rank == 0:
        print(f"{options.n}^3 float64 on {COMM.size} ranks, {MPI.Get_library_version().split()[0]}")
    for old, new in grids:
        cases = [*copy_case(options.n), *our_cases(options.n, old, new)]
        cases += peer_case(options.n, old, new)
        times: dict[str, list[float]] = {name: [] for name, _ in cases}
        for turn in range(options.repeat + 2):
            for name, run in cases:
                elapsed = sample(run)
                if turn > 1:
                    times[name].append(elapsed)
        limit = median(times["copy limit"])
        if COMM.rank == 0:
            print(f"decomposed {old} -> {new}")
            for name, samples in times.items():
                typical = median(samples)
                print(f"  {name:18} {1e3 * typical:8.2f} ms  {typical / limit:6.2f} x copy")


if __name__ == "__main__":
    main()
