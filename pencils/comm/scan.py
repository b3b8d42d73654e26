"""Scans over the ranks of a communicator, and running sums along an axis of local arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm.failure import wait_all
from pencils.comm.line_program import (
    LineProgram,
    Rows,
    Step,
    Term,
    pieces,
    planes,
    prepare_lines,
)
from pencils.comm.mpi import MPI
from pencils.comm.pack import compiled

Array = NDArray[Any]


def scanner(
    array: Array, ufunc: np.ufunc, ranks: Sequence[int], rank: int, size: int
) -> Callable[[MPI.Intracomm], None]:
    """Allocate what a scan needs; local. Call the result once, with the communicator.

    The call fills `array` with what `ufunc` makes of those of all `ranks` before this one, from the
    first to the last one; on the first of `ranks`, and on those that are not among them, its values
    mean nothing then. Arrays have equal shape and dtype on all ranks. Each rank scans its share of
    the elements, so that nothing is larger than an array, and results do not depend on the MPI
    library. The array is contiguous, `ufunc` keeps its type; `rank` and `size` are of the
    communicator.
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
    this takes little longer than the work of one rank. Of each part, `before` is what the rank
    before among `ranks` sends, and `after` what this one sends to the next, contiguous and of one
    size on all ranks. ``work(number)`` does a part: `before` has arrived, it sets `after`.
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


def prepare_running_sums(
    values: Array,
    sums: Array,
    axis: int,
    *,
    before: Array | None = None,
    after: Array | None = None,
    besides: int = 0,
) -> Sequence[Callable[[], object]]:
    """Prepare to write the sums of values along an axis; call the results in their order.

    Both arrays are float or complex, of one shape and type, and share no memory; contiguous axes
    are last. `before` is a plane that comes before the first values, read when the results are
    called, and `after` becomes a copy of the last sums. Other calls write `besides` bytes before
    these sums are read: if all are too many for the cache, sums are written past it.
    """
    kernels, last = compiled(), sums.ndim - 1
    floats = sums.dtype.char in "fdFD" and sums.dtype.isnative
    contiguous = axis == last and values.strides[last] == sums.strides[last] == sums.itemsize
    if kernels is not None and floats and contiguous:
        return [partial(kernels.running_sums, sums, values, before, after, besides)]
    runs = _prepare_pieces(values, sums, axis, before, besides)
    if after is not None and sums.size:
        runs.append(partial(np.copyto, after, planes(sums, axis, -1, sums.shape[axis])))
    return runs


def _prepare_pieces(
    values: Array, sums: Array, axis: int, before: Array | None, besides: int
) -> list[Callable[[], None]]:
    """Prepare line programs, one for each piece of all lines."""
    runs = []
    for start, stop in pieces(values.shape[axis]):
        first = before if start == 0 else planes(sums, axis, start - 1, start)
        known = 0 if first is None else 1
        sources = [Rows(known, planes(values, axis, start, stop))]
        if first is not None:
            sources.append(Rows(0, first))
        target = Rows(known, planes(sums, axis, start, stop))
        program = _running_sums(known + stop - start)
        others = besides + sums.nbytes - target.array.nbytes
        runs.append(prepare_lines(program, sources, [target], axis, besides=others))
    return runs


@lru_cache(maxsize=64)
def _running_sums(rows: int) -> LineProgram:
    return LineProgram(rows, [Step(row, [Term(row - 1), Term(row)]) for row in range(1, rows)])
