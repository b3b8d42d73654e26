"""What the MPI tests stand on: equal examples and one directory on all ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@given(st.lists(st.text()), st.floats(), st.data())
def test_every_rank_draws_the_same_examples(comm, words, x, data):
    n = data.draw(st.integers(0, len(words)))
    assert len(set(comm.allgather(repr((words, x, n))))) == 1


def test_every_rank_sees_the_same_directory(comm, mpi_tmp_path):
    (mpi_tmp_path / str(comm.rank)).touch()
    comm.barrier()
    assert len(list(mpi_tmp_path.iterdir())) == comm.size
