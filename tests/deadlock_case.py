"""A test that hangs: tests/test_no_hang.py runs it to show that the job ends all the same."""

import pytest


@pytest.mark.parallel(2)
def test_rank_0_waits_for_ever(comm):
    if comm.rank == 0:
        comm.recv(source=1)
