"""Work of each rank whose results are combined, or whose error on one rank all ranks raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm.agree import agreed
from pencils.comm.mpi import MPI
from pencils.comm.recording import timed

Integers = NDArray[np.integer[Any]]


def reduce_together(
    comm: MPI.Intracomm,
    call: str,
    numbers: Integers,
    op: MPI.Op,
    work: Callable[[Integers], object],
) -> Integers:
    """Let `work` write to ``numbers[1:]``, which is 0; reduce that over ranks. *Collective*.

    The first number tells whether a rank has failed, so that this needs no agreement before it: all
    ranks have agreed on the `call`. The memory is there before the work, so that a rank that fails
    can take part. Returns a view of the same memory.
    """
    error = None
    numbers[:] = 0
    try:
        work(numbers[1:])
    except Exception as mistake:  # noqa: BLE001 - raised on all ranks
        error = mistake
        numbers[:] = 0
        numbers[0] = 1
    timed("wait", comm.Allreduce, MPI.IN_PLACE, numbers, op)
    if numbers[0]:
        with agreed(comm, call):
            if error is not None:
                raise error
    return numbers[1:]
