"""Latencies and bandwidths between ranks: assumed, given or measured."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from statistics import median
from time import perf_counter

import numpy as np

from pencils.comm.mpi import MPI
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError
from pencils.tables import text_bytes, text_seconds

_SMALL, _LARGE, _SAMPLES, _TAG = 8, 2**22, 21, 3


@dataclass(frozen=True, slots=True)
class Links:
    """Latency and bandwidth of messages, between nodes and on a node.

    Parameters
    ----------
    latency, bandwidth : float
        Between nodes: seconds for each message, and bytes in a second of all ranks of a node.
    node_latency, node_bandwidth : float
        Within a node: seconds for each message, and bytes in a second of one rank.

    Examples
    --------
    >>> import pencils
    >>> print(
    ...     pencils.plan((64, 64), 4, "halo:1", links=pencils.planning.Links(latency=1e-5))[0].grid
    ... )
    (4,)
    """

    latency: float = 2e-6
    bandwidth: float = 25e9
    node_latency: float = 5e-7
    node_bandwidth: float = 5e9

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ArgumentError(f"{field.name}={value!r} of links must be positive")

    def with_(self, **changes: float) -> Links:
        """Return links of which some values differ.

        Examples
        --------
        >>> Links().with_(latency=1e-6).latency
        1e-06
        """
        return replace(self, **changes)

    def __str__(self) -> str:
        return (
            f"between nodes {text_seconds(self.latency)} and {text_bytes(self.bandwidth)}/s of a "
            f"node, on a node {text_seconds(self.node_latency)} and "
            f"{text_bytes(self.node_bandwidth)}/s of a rank"
        )


def measure_links(comm: MPI.Intracomm | None = None) -> Links:
    """Measure messages from rank 0 to the last rank of its node and of all. *Collective*.

    Links that do not exist, such as those to a second node, keep their defaults.

    Examples
    --------
    >>> measure_links().node_bandwidth > 0
    True
    """
    topology = topology_of(comm)
    links = Links()
    near = max(topology.comm.bcast(sorted(topology.on_node)))
    far = topology.comm.size - 1
    if near > 0:
        latency, bandwidth = _measure(topology.comm, near)
        links = links.with_(node_latency=latency, node_bandwidth=bandwidth)
    if topology.nodes > 1 and far != near:
        latency, bandwidth = _measure(topology.comm, far)
        links = links.with_(latency=latency, bandwidth=bandwidth)
    return links


def _measure(comm: MPI.Intracomm, peer: int) -> tuple[float, float]:
    """Return latency and bandwidth of messages between rank 0 and a peer. *Collective*."""
    small, large = (_one_way(comm, peer, nbytes) for nbytes in (_SMALL, _LARGE))
    return small, _LARGE / max(large - small, 1e-9)


def _one_way(comm: MPI.Intracomm, peer: int, nbytes: int) -> float:
    data = np.zeros(nbytes, np.uint8)
    times = []
    for _ in range(_SAMPLES):
        start = perf_counter()
        if comm.rank == 0:
            comm.Send(data, peer, _TAG)
            comm.Recv(data, peer, _TAG)
        elif comm.rank == peer:
            comm.Recv(data, 0, _TAG)
            comm.Send(data, 0, _TAG)
        times.append((perf_counter() - start) / 2)
    seconds: float = comm.bcast(median(times))
    return seconds
