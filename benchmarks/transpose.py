"""Time transposes against the copy limit and against mpi4py-fft, in one run.

    mpiexec -n 2 python -m mpi4py benchmarks/transpose.py --n 256 --repeat 15

Cases run in turn, and a sample is the time of the slowest rank. The tables show medians: as GB/s of
local bytes, as ratios to ``numpy.copyto`` of the same local bytes by all ranks at once (the limit),
and as speed relative to mpi4py-fft. Only ratios are comparable between machines.
"""

import argparse
from functools import partial
from importlib import import_module
from itertools import product

import numpy as np
from mpi4py import MPI

import pencils
from pencils.comm import pack
from pencils.comm.topology import time_in_turn

try:
    from mpi4py_fft import DistArray
except ImportError:
    DistArray = None

results = import_module("results")
timing = import_module("timing")
COMM = timing.COMM
print_on_root = timing.print_on_root

# Decomposed dimensions before and after, on a line of ranks and on a 2-D grid.
LINE = {"long runs": ((0,), (1,)), "short runs": ((1,), (2,))}
GRID = {"long runs": ((0, 2), (1, 2)), "short runs": ((0, 1), (0, 2))}
METHODS = ("messages", "alltoallw")
CASES = [("shared", True), *((method, False) for method in ("shared", *METHODS))]


def fields(pencil):
    """Make a field in shared and one in private memory, with the same values."""
    private = pencils.random.uniform(pencil, rng=1)
    shared = pencils.empty(pencil, shared=True)
    shared.local[...] = private.local
    return {True: shared, False: private}


def our_cases(source, target, kernels):
    """Yield (name, call), each with its own plan and target."""
    given = fields(source)
    for kernel, (method, shared) in product(kernels, CASES):
        with pack.using(kernel):
            plan = pencils.Transposition(source, target, method=method, check=False)
            call = partial(plan, given[shared], pencils.empty(target))
            call()  # the first call prepares the copies
        yield f"{case_name(method, shared)} ({kernel})", call


def case_name(method, shared):
    return method if method != "shared" else f"shared, {'shared' if shared else 'private'} arrays"


def peer_cases(n, old, new):
    """Yield the same transposes by mpi4py-fft: align the axis that is decomposed before only."""
    if DistArray is None:
        return
    (axis,) = set(old) - set(new)
    subcomm = [0 if dim in old else 1 for dim in range(3)]
    v = DistArray((n, n, n), subcomm=subcomm, dtype=float)
    v[...] = 1
    yield "mpi4py-fft", partial(v.redistribute, out=v.redistribute(axis))


def compare(n, move, kernels, repeat, order=None):
    old, new = move
    source = pencils.Pencil((n, n, n), decomp=old)
    target = source.with_(decomp=new, order=order)
    here = np.ones(source.local_shape)
    there = np.empty_like(here)
    cases = {"copy limit": partial(np.copyto, there, here)}
    cases |= our_cases(source, target, kernels)
    cases |= peer_cases(n, old, new) if order is None else ()
    times = dict(zip(cases, time_in_turn(COMM, list(cases.values()), repeat), strict=True))
    limit, peer = times["copy limit"], times.get("mpi4py-fft")
    changed = "" if order is None else f", memory order {order}"
    print_on_root(f"\ndecomposed {old} -> {new}{changed}, grid {source.grid}")
    keep(f"{n}^3, {old} to {new}{changed}", times, pack.available()[0])
    for name, seconds in times.items():
        rate = here.nbytes / seconds / 1e9
        faster = f"{peer / seconds:6.2f} x mpi4py-fft" if peer else ""
        print_on_root(
            f"  {name:34}{1e3 * seconds:9.3f} ms{rate:7.1f} GB/s{seconds / limit:7.2f}  {faster}"
        )


def keep(move, times, kernel):
    """Keep the ratios of the first methods, with one kernel, to all that is not pencils."""
    peers = {"copy limit": "numpy.copyto", "mpi4py-fft": "mpi4py-fft"}
    for (method, shared), (name, peer) in product(CASES[:3], peers.items()):
        if name in times:
            seconds = times[f"{case_name(method, shared)} ({kernel})"]
            results.keep(f"{move}, {case_name(method, shared)}", peer, times[name] / seconds)


def small(n, old, new, repeat):
    """Print the time of one call among many, and of its copies alone: the rest is overhead."""
    source = pencils.Pencil((n, n, n), decomp=old)
    target = source.with_(decomp=new)
    given, out = fields(source), pencils.empty(target)
    barrier = time_of(COMM.Barrier, repeat)
    times = {}
    for method, shared in CASES[:3]:
        plan = pencils.Transposition(source, target, method=method, check=False)
        times[method, shared] = time_of(partial(plan, given[shared], out), repeat)
    checked = time_of(partial(pencils.Transposition(source, target), given[True], out), repeat)
    block = given[True].local
    copies = pack.prepare_copies([(np.empty_like(block), block)])
    overhead = times["shared", True] - 2 * barrier - time_of(copies, repeat)
    peer = "".join(
        f", mpi4py-fft {time_of(call, repeat):.1f}" for _, call in peer_cases(n, old, new)
    )
    print_on_root(
        f"  {n:3}^3 {old} -> {new}: shared arrays {times['shared', True]:.1f}, private arrays "
        f"{times['shared', False]:.1f}, messages {times['messages', False]:.1f}{peer}; with checks "
        f"{checked:.1f}; two barriers {2 * barrier:.1f}, beyond barriers and copies {overhead:.1f}"
    )


def time_of(call, repeat, times=200):
    def many():
        for _ in range(times):
            call()

    return 1e6 * time_in_turn(COMM, [many], repeat)[0] / times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=128, help="points along each dimension")
    parser.add_argument("--repeat", type=int, default=11, help="samples of each case")
    parser.add_argument(
        "--small", type=int, nargs="*", default=[16, 32, 64], help="sizes timed in microseconds"
    )
    options = parser.parse_args()
    library = MPI.Get_library_version().split(",")[0].splitlines()[0]
    best = pack.available()[0]
    print_on_root(
        f"{options.n}^3 float64 on {COMM.size} ranks, {library}, kernels {pack.available()}"
    )
    kernels = [best, "numpy"] if best != "numpy" else ["numpy"]
    square = COMM.size > 3 and len(pencils.Pencil((8, 8, 8)).grid) == 2
    for move in (GRID if square else LINE).values():
        compare(options.n, move, kernels, options.repeat)
    compare(options.n, ((0,), (2,)), pack.available(), options.repeat, order=(2, 1, 0))
    print_on_root("\nmicroseconds per call")
    for n, (old, new) in product(options.small, LINE.values()):
        small(n, old, new, options.repeat)


if __name__ == "__main__":
    main()
