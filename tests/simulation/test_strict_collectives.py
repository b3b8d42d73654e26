"""Collectives of simulated ranks report what MPI forbids and libraries do not notice."""

import numpy as np
import pytest
from mpi4py import MPI

import pencils
from pencils.errors import MismatchError


def halves(comm, kinds):
    """Buffers of one type on rank 0 and another one on the others."""
    kind = kinds[min(comm.rank, 1)]
    return np.ones(4, kind), np.zeros(4, kind)


def part(comm, array):
    return [array, ([1] * comm.size, range(comm.size))]


def wide(array):
    kind = {"d": MPI.DOUBLE, "q": MPI.INT64_T}[array.dtype.char.replace("l", "q")]
    return [array, ([1, 1], [0, 8]), [kind, kind]]


def on_grid(comm, name, a, b):
    grid = comm.Create_cart([2])
    getattr(grid, f"Neighbor_{name}")(a, b)
    grid.Free()


CALLS = {
    "Bcast": lambda comm, a, _: comm.Bcast(a),
    "Gather": lambda comm, a, b: comm.Gather(a[:1], b[:2]),
    "Gatherv": lambda comm, a, b: comm.Gatherv(a[:1], part(comm, b)),
    "Scatter": lambda comm, a, b: comm.Scatter(a[:2], b[:1]),
    "Scatterv": lambda comm, a, b: comm.Scatterv(part(comm, a), b[:1]),
    "Allgather": lambda comm, a, b: comm.Allgather(a[:1], b[:2]),
    "Allgatherv": lambda comm, a, b: comm.Allgatherv(a[:1], part(comm, b)),
    "Alltoall": lambda comm, a, b: comm.Alltoall(a[:2], b[:2]),
    "Alltoallv": lambda comm, a, b: comm.Alltoallv(part(comm, a), part(comm, b)),
    "Alltoallw": lambda comm, a, b: comm.Alltoallw(wide(a), wide(b)),
    "Neighbor_allgather": lambda comm, a, b: on_grid(comm, "allgather", a[:1], b[:2]),
    "Neighbor_alltoall": lambda comm, a, b: on_grid(comm, "alltoall", a[:2], b[:2]),
}


def call(name, kinds):
    comm = MPI.COMM_WORLD
    CALLS[name](comm, *halves(comm, kinds))


@pytest.mark.parametrize("name", CALLS)
def test_other_types(name):
    with pytest.raises(MismatchError, match=r"rank \d sends MPI_\w+, rank \d receives MPI_\w+ by"):
        pencils.simulate(2, call, name, (np.float64, np.int64))
    pencils.simulate(2, call, name, (np.float64, np.float64))


def test_bytes_and_derived_types_fit_all():
    def main():
        data = np.full(2, MPI.COMM_WORLD.rank, np.float64)
        kind = MPI.DOUBLE.Create_contiguous(2).Commit()
        for spec in ([data, MPI.BYTE], [data, 1, kind]):
            MPI.COMM_WORLD.Bcast(data if MPI.COMM_WORLD.rank else spec)
        kind.Free()
        return data.tolist()

    assert pencils.simulate(2, main) == [[0, 0], [0, 0]]


def test_types_are_not_compared_if_not_strict():
    pencils.simulate(2, call, "Bcast", (np.float64, np.int64), strict=False)
