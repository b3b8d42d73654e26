"""gather and partition against messages of packed blocks, whose buffers are kept."""

from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import pencils

from .line import Calls, Line, values

DECOMPOSED = {"first": 0, "last": 2, "2-D": (1, 2)}


class Parts:
    """Blocks of a global array on root, and buffers for those that are not contiguous there."""

    def __init__(self, pencil):
        self.comm, self.rank = pencil.comm, pencil.rank
        self.keys = [pencil.box(rank).slices() for rank in range(pencil.size)]
        self.block = values(pencil.local_shape, pencil.comm)
        self.data: Any = None
        self.buffers = []
        if self.rank == 0:
            self.data = data = np.ones(pencil.shape)
            parts = [data[key] for key in self.keys[1:]]
            self.buffers = [
                None if part.flags.c_contiguous else np.empty(part.shape) for part in parts
            ]

    def gather(self):
        """Return a new array on root."""
        if self.rank:
            self.comm.Send(self.block, 0)
            return None
        found = np.empty(self.data.shape)
        parts = [found[key] for key in self.keys[1:]]
        received = [
            part if room is None else room for part, room in zip(parts, self.buffers, strict=True)
        ]
        requests = [self.comm.Irecv(room, r) for r, room in enumerate(received, 1)]
        found[self.keys[0]] = self.block
        for request, part, room in zip(requests, parts, self.buffers, strict=True):
            request.Wait()
            if room is not None:
                part[...] = room
        return found

    def scatter(self):
        """Fill the block that each rank keeps."""
        if self.rank:
            self.comm.Recv(self.block, 0)
            return self.block
        requests = []
        for r, (key, room) in enumerate(zip(self.keys[1:], self.buffers, strict=True), 1):
            part = self.data[key]
            if room is not None:
                room[...] = part
                part = room
            requests.append(self.comm.Isend(part, r))
        self.block[...] = self.data[self.keys[0]]
        MPI.Request.Waitall(requests)
        return self.block


def gathered(n, decomp, comm):
    pencil = pencils.Pencil((n,) * 3, comm, decomp=decomp)
    parts = Parts(pencil)
    return Calls(parts.gather, partial(pencils.gather, pencils.PencilArray(pencil, parts.block)))


def partitioned(n, decomp, comm):
    pencil = pencils.Pencil((n,) * 3, comm, decomp=decomp)
    parts = Parts(pencil)
    return Calls(parts.scatter, partial(pencils.partition, pencil, parts.data, root=0))


LINES = [
    Line(
        f"{verb}, {n}^3, decomposed: {name}",
        "packed messages",
        partial(make, n, decomp),
        goals[n],
        heavy=n > 64,
        ranks=4 if isinstance(decomp, tuple) else 2,
    )
    for verb, make, goals in (
        ("gather(u)", gathered, {16: 0.6, 256: 1.2}),
        ("partition(pen, data, root=0)", partitioned, {16: 0.5, 256: 1.0}),
    )
    for n in (16, 256)
    for name, decomp in DECOMPOSED.items()
]
