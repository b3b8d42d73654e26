"""Scans over the ranks of a communicator: what is before each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm.failure import wait_all
from pencils.comm.mpi import MPI

Array = NDArray[Any]


def scanner(
    array: Array, ufunc: np.ufunc, ranks: Sequence[int], rank: int, size: int
) -> Callable[[MPI.Intracomm], None]:
    """Allocate what a scan needs; local. Call the result once, with the communicator.

    The call fills `array` with what `ufunc` makes of those of all `ranks` before this one, from the
    first to the last one; on the first of `ranks`, and on those that are not among them, its values
    mean nothing then. Arrays have equal shape and dtype on all ranks. Each rank scans its share of
    the elements, so that nothing is larger than an array, and results do not depend on the MPI
    library.

    Parameters
    ----------
    array : ndarray
        What this rank contributes; contiguous.
    ufunc : ufunc
        Combines two arrays, and keeps their type.
    ranks : sequence of int
        The ranks that count, in their order.
    rank, size : int
        Rank in the communicator, and its size.
    """
    cuts = [number * array.size // size for number in range(size + 1)]
    nbytes = [(hi - lo) * array.itemsize for lo, hi in pairwise(cuts)]
    here: Any = [_bytes(array), (nbytes, [cut * array.itemsize for cut in cuts[:-1]]), MPI.BYTE]
    share = nbytes[rank]
    places = [share] * size, [share * number for number in range(size)]
    arrived, before = np.zeros((2, size, share // array.itemsize), array.dtype)
    idle = array.size == 0 or len(ranks) < 2  # noqa: PLR2004

    def scan(comm: MPI.Intracomm) -> None:
        if idle:
            return
        comm.Alltoallv(here, [_bytes(arrived), places, MPI.BYTE])
        first, *others = ranks
        before[others[0]] = arrived[first]
        with np.errstate(all="ignore"):  # only some ranks might take warnings for errors
            for one, other in pairwise(others):
                ufunc(before[one], arrived[one], out=before[other])
        comm.Alltoallv([_bytes(before), places, MPI.BYTE], here)

    return scan


def in_turn(
    comm: MPI.Intracomm,
    ranks: Sequence[int],
    before: Sequence[Array],
    after: Sequence[Array],
    work: Callable[[int], None],
) -> None:
    """Do the parts of some work, each when the rank before has done it. *Collective*.

    While a rank does a part, the next one does that before it: with many more parts than ranks
    this takes little longer than the work of one rank.

    Parameters
    ----------
    comm : Intracomm
        A private communicator.
    ranks : sequence of int
        The ranks that take part, in their order.
    before, after : sequence of ndarray
        For each part, what the rank before sends, and what this one sends to the next; contiguous,
        and of one size on all ranks.
    work : callable
        Does the part of this number: `before` has arrived, and `after` is to be set.
    """
    if comm.rank not in ranks:
        return
    place = ranks.index(comm.rank)
    requests = []
    for number, (arrived, sent) in enumerate(zip(before, after, strict=True)):
        if place > 0:
            comm.Recv(_bytes(arrived), ranks[place - 1], number)
        work(number)
        if place + 1 < len(ranks):
            requests.append(comm.Isend(_bytes(sent), ranks[place + 1], number))
    wait_all(requests)


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)
