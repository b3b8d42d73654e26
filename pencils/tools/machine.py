"""Where the processes of a communicator run."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from pencils.comm.mpi import MPI
from pencils.comm.topology import topology_of


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the processes of a communicator run."""

    library: str  # name and version of the MPI library
    standard: tuple[int, int]  # version of the MPI standard
    nodes: tuple[tuple[str, int], ...]  # name and number of processes of each, by lowest rank
    shared_memory: tuple[int, int] | None  # bytes of /dev/shm on rank 0: all, and free ones

    @property
    def processes(self) -> int:
        """Number of processes."""
        return sum(count for _, count in self.nodes)


def describe_machine(comm: MPI.Intracomm | None = None) -> Machine:
    """Describe the processes of a communicator (default: the world), on all ranks. *Collective*."""
    shared_memory = None
    with suppress(Exception):  # on Windows, or on macOS; the other ranks wait
        disk = os.statvfs("/dev/shm")  # noqa: S108 - looked at, not written to
        shared_memory = disk.f_frsize * disk.f_blocks, disk.f_frsize * disk.f_bavail
    topology = topology_of(comm)
    node = topology.node
    here = (MPI.Get_processor_name(), node.size) if node.rank == 0 else None
    nodes: list[tuple[str, int] | None] = topology.comm.allgather(here)
    machine = Machine(
        # Some libraries add pages about how they were built.
        library=" ".join(MPI.Get_library_version().splitlines()[0].strip("\0, ").split()),
        standard=MPI.Get_version(),
        nodes=tuple(found for found in nodes if found is not None),
        shared_memory=shared_memory,
    )
    described: Machine = topology.comm.bcast(machine)
    return described
