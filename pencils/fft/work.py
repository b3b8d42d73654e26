"""Memory between the steps of transforms, which plans of one communicator share."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary, ref

import numpy as np

from pencils.array.allocation import Array, allocate_bytes
from pencils.comm.topology import Topology
from pencils.pencil import Pencil


class Work:
    """A piece of memory that lives as long as a plan holds it.

    Parameters
    ----------
    memory : numpy.ndarray
        Bytes, where other ranks of the node can read them if there is room.
    """

    __slots__ = ("__weakref__", "memory")

    def __init__(self, memory: Array) -> None:
        self.memory = memory


_LATEST: WeakKeyDictionary[Topology, dict[int, ref[Work]]] = WeakKeyDictionary()


def find_work(pencil: Pencil, sizes: Sequence[int]) -> list[Work]:
    """Find one piece of memory for each size in bytes, or allocate it. *Collective*.

    Only one plan of a communicator is at work at a time, so all may use the same pieces.
    """
    topology = pencil.topology
    latest = _LATEST.setdefault(topology, {})
    known = [latest[slot]() if slot in latest else None for slot in range(len(sizes))]
    held = [0 if work is None else work.memory.nbytes for work in known]
    short = topology.any_of([have < want for have, want in zip(held, sizes, strict=True)])
    works = []
    for slot, (work, nbytes, new) in enumerate(zip(known, sizes, short, strict=True)):
        if new:
            works.append(Work(allocate_bytes(pencil, nbytes, shared=True)))
            latest[slot] = ref(works[-1])
        else:
            works.append(work or Work(np.empty(0, np.uint8)))
    return works
