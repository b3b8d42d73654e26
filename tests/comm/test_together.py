"""Work whose results are combined: if it fails on one rank, all ranks raise."""

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import all_raise, collectives, everywhere, named, ranks_at_fault

from pencils.comm.reduce import reduce_together
from pencils.comm.topology import topology_of

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize(("dtype", "op"), [("i8", MPI.SUM), ("u1", MPI.MAX)])
def test_numbers_are_reduced_unless_a_rank_fails(comm, dtype, op):
    with collectives() as calls:
        own = comm.Dup()
        private = topology_of(own).comm
        numbers = np.full(4, 7, dtype)
        for fails in (None, *ranks_at_fault(comm), None):

            def work(room, fails=fails):
                room += np.arange(1, 4, dtype=dtype)
                if comm.rank == fails:
                    raise KeyError("lost")  # after it has written

            def call(work=work):
                return reduce_together(private, "count", numbers, op, work)

            if fails is None:
                calls.clear()
                times = comm.size if op == MPI.SUM else 1
                assert everywhere(comm, call().tolist() == [times, 2 * times, 3 * times])
                assert calls == ["Allreduce"]
            else:
                all_raise(comm, KeyError, (named(comm, fails), "lost"), call)
        own.Free()
