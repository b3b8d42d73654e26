"""Time halo exchanges against the usual ways to write them with mpi4py, in one run.

    mpiexec -n 2 python -m mpi4py benchmarks/halo.py --n 256 --repeat 15

All grids are periodic, and all corners are filled. The alternatives exchange one axis after the
other: by Sendrecv and packing with NumPy, by persistent requests on packed buffers, by persistent
requests on MPI datatypes, and by PETSc's DMDA if petsc4py is installed. Cases run in turn, and a
sample is the time of the slowest rank for many calls. The tables show medians in microseconds per
call, next to the time to copy as many bytes as the ghosts have. Only ratios are comparable between
machines.
"""

import argparse
from functools import partial
from importlib import import_module
from itertools import product
from time import sleep

import numpy as np
from mpi4py import MPI

import pencils
from pencils.comm import pack
from pencils.comm.topology import time_in_turn

try:
    from petsc4py import PETSc
except ImportError:
    PETSc = None

results = import_module("results")
timing = import_module("timing")
COMM = timing.COMM
print_on_root = timing.print_on_root
# What the library chooses by itself, in which memory.
AUTOMATIC = {"shared arrays, auto": True, "private arrays, auto": False}


class ByHand:
    """Exchange one axis after the other; ghosts that are filled are sent along the next axis."""

    def __init__(self, pencil, halo):
        shape = [n + lo + hi for n, (lo, hi) in zip(pencil.local_shape, halo, strict=True)]
        self.block = np.ones(shape)
        self.requests, self.steps = [], []
        for dim, width in enumerate(halo):
            if any(width):
                self.steps.append(self.axis(pencil, dim, width))

    def axis(self, pencil, dim, width):
        """Return a function that fills the ghosts along one axis."""
        lo, hi = width
        n = pencil.local_shape[dim]
        key = [slice(None)] * pencil.ndim

        def part(start, stop):
            key[dim] = slice(start, stop)
            return self.block[tuple(key)]

        step = [0] * pencil.ndim
        step[dim] = 1
        right = pencil.neighbor(step)
        step[dim] = -1
        left = pencil.neighbor(step)
        moves = [
            (right, part(n, n + lo), left, part(0, lo)),
            (left, part(lo, lo + hi), right, part(lo + n, lo + n + hi)),
        ]
        if pencil.process_shape[dim] == 1:
            return partial(self.local, moves)
        return self.far(moves)

    def free(self):
        """Free persistent requests, as MPI requires before it is finalized."""
        for request in self.requests:
            request.Free()

    @staticmethod
    def local(moves):
        for _, source, _, target in moves:
            target[...] = source

    def __call__(self):
        for step in self.steps:
            step()

    def far(self, moves):
        raise NotImplementedError


class Sendrecv(ByHand):
    name = "Sendrecv, packed by NumPy"

    def far(self, moves):
        buffers = [
            (np.empty_like(out, order="C"), np.empty_like(into, order="C"))
            for _, out, _, into in moves
        ]

        def step():
            for (dest, out, source, into), (outbox, inbox) in zip(moves, buffers, strict=True):
                outbox[...] = out
                COMM.Sendrecv(outbox, dest, recvbuf=inbox, source=source)
                into[...] = inbox

        return step


class Packed(ByHand):
    name = "persistent, packed by NumPy"

    def far(self, moves):
        inboxes, outboxes, requests = [], [], []
        for tag, (dest, out, source, into) in enumerate(moves):
            outbox = out if out.flags.c_contiguous else np.empty_like(out, order="C")
            inbox = into if into.flags.c_contiguous else np.empty_like(into, order="C")
            requests += [COMM.Recv_init(inbox, source, tag), COMM.Send_init(outbox, dest, tag)]
            inboxes.append((inbox, into))
            outboxes.append((outbox, out))
        self.requests += requests

        def step():
            for outbox, out in outboxes:
                if outbox is not out:
                    outbox[...] = out
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)
            for inbox, into in inboxes:
                if inbox is not into:
                    into[...] = inbox

        return step


class Datatypes(ByHand):
    name = "persistent, MPI datatypes"

    def far(self, moves):
        requests = []
        for tag, (dest, out, source, into) in enumerate(moves):
            requests += [
                COMM.Recv_init([self.block, 1, self.kind(into)], source, tag),
                COMM.Send_init([self.block, 1, self.kind(out)], dest, tag),
            ]
        self.requests += requests

        def step():
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)

        return step

    def kind(self, part):
        offset = part.__array_interface__["data"][0] - self.block.__array_interface__["data"][0]
        starts = np.unravel_index(offset // part.itemsize, self.block.shape)
        return MPI.DOUBLE.Create_subarray(
            self.block.shape, part.shape, [int(i) for i in starts]
        ).Commit()


def petsc_case(pencil, width):
    """PETSc's DMDA with ghosts along all axes, one width, from a local vector to itself."""
    grid = PETSc.DMDA().create(
        pencil.shape[::-1],
        proc_sizes=pencil.process_shape[::-1],
        boundary_type=[PETSc.DM.BoundaryType.PERIODIC] * pencil.ndim,
        stencil_type=PETSc.DMDA.StencilType.BOX,
        stencil_width=width,
        comm=COMM,
    )
    vector = grid.createLocalVec()
    return partial(grid.localToLocal, vector, vector)


def our_cases(pencil, halo, kernels):
    """Yield (name, call), each with its own plan and field."""
    for kernel, shared, method, route in product(
        kernels, (True, False), ("shared", "messages"), ("direct", "sweeps")
    ):
        if shared and method == "messages":
            continue
        field = pencils.ones(pencil, halo=halo, shared=shared)
        with pack.using(kernel):
            plan = pencils.HaloExchange(field, method=method, route=route, check=False)
            call = partial(plan, field)
            call()  # the first call prepares the copies
        where = f"{'shared' if shared else 'private'} arrays"
        yield f"{where}, {method}, {route} ({kernel})", call
    for where, shared in AUTOMATIC.items():
        field = pencils.ones(pencil, halo=halo, shared=shared)
        yield where, partial(pencils.HaloExchange(field, check=False), field)


def compare(n, case, kernels, repeat, times=20):
    decomp, axes, width = case
    pencil = pencils.Pencil((n, n, n), decomp=decomp, periodic=True)
    halo = [(width, width) if dim in axes else (0, 0) for dim in range(3)]
    cases = dict(our_cases(pencil, halo, kernels))
    cases |= {kind.name: kind(pencil, halo) for kind in (Sendrecv, Packed, Datatypes)}
    ghosts = np.ones(pencils.empty(pencil, halo=halo).padded.size - np.prod(pencil.local_shape))
    cases["copy of as many bytes, in one run"] = partial(np.copyto, np.empty_like(ghosts), ghosts)
    if PETSc is not None and len(axes) == pencil.ndim:
        cases["PETSc DMDA"] = petsc_case(pencil, width)
    seconds = time_of(list(cases.values()), repeat, times)
    named = dict(zip(cases, seconds, strict=True))
    best = min(named[kind.name] for kind in (Sendrecv, Packed, Datatypes))
    title = f"{n}^3 split along {decomp}, ghosts along {axes}, width {width}"
    print_on_root(f"\n{title}, grid {pencil.grid}")
    for name, micro in named.items():
        if name in AUTOMATIC:
            results.keep(f"{title}, {name}", "best of three by mpi4py", best / micro)
            if "PETSc DMDA" in named:
                results.keep(f"{title}, {name}", "PETSc DMDA", named["PETSc DMDA"] / micro)
        print_on_root(f"  {name:44}{micro:9.1f} us   best of the peers / this {best / micro:6.2f}")
    for call in cases.values():
        if isinstance(call, ByHand):
            call.free()


def time_of(calls, repeat, times):
    def many(call):
        for _ in range(times):
            call()

    found = time_in_turn(COMM, [partial(many, call) for call in calls], repeat)
    return [1e6 * seconds / times for seconds in found]


def overhead(n, repeat):
    """Print the time of a call beyond its barriers and its copies."""
    pencil = pencils.Pencil((n, n, n), decomp=0, periodic=True)
    field = pencils.ones(pencil, halo=1, shared=True)
    plan = pencils.HaloExchange(field, check=False)
    plan(field)
    block = field.padded
    faces = [(block[..., :1], block[..., -2:-1]), (block[..., -1:], block[..., 1:2])]
    faces += [(block[:, :1], block[:, -2:-1]), (block[:, -1:], block[:, 1:2])]
    faces += [(block[:1], block[1:2].copy()), (block[-1:], block[1:2].copy())]
    calls = [partial(plan, field), COMM.Barrier, pack.prepare_copies(faces)]
    whole, barrier, copies = time_of(calls, repeat, 200)
    print_on_root(
        f"\n{n}^3, shared arrays: {whole:.1f} us; two barriers {2 * barrier:.1f}, copies "
        f"{copies:.1f} (with nobody else at them), beyond these {whole - 2 * barrier - copies:.1f}"
    )


def overlap(n, repeat):
    """Print the time of an exchange during a computation, relative to the longer of both.

    The computation is a stencil on the interior, which uses the processor, or a sleep.
    """
    pencil = pencils.Pencil((n, n, n), decomp=0, periodic=True)
    field, result = pencils.ones(pencil, halo=2, shared=True), np.empty(pencil.local_shape)
    inside = field.interior
    up, down = field.shift((1, 0, 0)).local[inside], field.shift((-1, 0, 0)).local[inside]
    stencil = partial(np.add, up, down, out=result[inside])
    print_on_root(f"\n{n}^3, width 2, shared arrays, exchange during a computation")
    plan = pencils.HaloExchange(field, check=False)
    exchange = partial(plan, field)
    alone = time_of([exchange], repeat, 1)[0]
    for name, compute in (
        ("stencil", stencil),
        *((f"sleep {k} x as long", partial(sleep, k * alone / 1e6)) for k in (1, 2, 4)),
    ):
        both = partial(during, plan, field, compute)
        one, other, together = time_of([exchange, compute, both], repeat, 1)
        print_on_root(
            f"  {name:18} exchange {one:8.1f} us, computation "
            f"{other:8.1f}, both {together:8.1f}: {together / max(one, other):5.2f}"
        )
    plan.free()


def during(plan, field, compute):
    handle = plan.start(field)
    compute()
    handle.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=128, help="points along each dimension")
    parser.add_argument("--repeat", type=int, default=11, help="samples of each case")
    options = parser.parse_args()
    library = MPI.Get_library_version().split(",")[0].splitlines()[0]
    best = pack.available()[0]
    kernels = [best, "numpy"] if best != "numpy" else ["numpy"]
    print_on_root(f"float64 on {COMM.size} ranks, {library}, kernels {kernels}")
    for axes, decomp, width in product(((0, 1), (0, 1, 2)), ((0,), (1,)), (1, 2)):
        compare(options.n, (decomp, axes, width), kernels, options.repeat)
    if COMM.size > 3:
        for width in (1, 2):
            compare(options.n, ((0, 1), (0, 1, 2), width), kernels, options.repeat)
    compare(32, ((0,), (0, 1, 2), 1), kernels, options.repeat, times=200)
    overlap(options.n, options.repeat)
    for n in (16, 32):
        overhead(n, options.repeat)


if __name__ == "__main__":
    main()
