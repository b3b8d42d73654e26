"""Collectives of simulated ranks report what MPI forbids and libraries do not notice."""

import numpy as np
import pytest
from mpi4py import MPI

import pencils
from pencils.comm.topology import time_in_turn
from simmpi.errors import MismatchError, UsageError


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
    if name == "Bcast":
        pencils.simulate(2, call, name, (np.float64, np.int64), strict=False)


def test_types_overlaps_times_and_messages():
    def main():
        data = np.full(2, MPI.COMM_WORLD.rank, np.float64)
        kind = MPI.DOUBLE.Create_contiguous(2).Commit()
        for spec in ([data, MPI.BYTE], [data, 1, kind]):
            MPI.COMM_WORLD.Bcast(data if MPI.COMM_WORLD.rank else spec)
        kind.Free()
        return data.tolist()

    assert pencils.simulate(2, main) == [[0, 0], [0, 0]]

    # Buffers that overlap.
    def main(*, in_place):
        data = np.arange(2.0)
        MPI.COMM_WORLD.Ialltoall(MPI.IN_PLACE if in_place else data, data).Wait()
        return data.tolist()

    with pytest.raises(UsageError, match=r"overlap; .* MPI\.IN_PLACE"):
        pencils.simulate(2, lambda: main(in_place=False))
    assert pencils.simulate(2, lambda: main(in_place=True)) == [[0, 0], [1, 1]]

    # Measured times are equal.
    def main():
        return time_in_turn(MPI.COMM_WORLD, [lambda: None, MPI.COMM_WORLD.Barrier], 3)

    assert pencils.simulate(2, main, seed=1) == [[1.0, 1.0]] * 2

    # A message that was taken and not received.
    def main(*, receives):
        comm = MPI.COMM_WORLD
        if comm.rank == 0:
            comm.send("data", 1, tag=3)
            return None
        message = comm.mprobe(0)
        return message.recv() if receives else None

    assert pencils.simulate(2, lambda: main(receives=True)) == [None, "data"]
    with pytest.raises(UsageError, match="rank 1 has not received a message from rank 0"):
        pencils.simulate(2, lambda: main(receives=False))


def touching(name, which):
    """Change the buffer that sends (0) or that receives (1) before the collective is complete."""
    comm = MPI.COMM_WORLD
    a, b = np.ones(4), np.zeros(4)
    request = getattr(comm, name)(*FLYING[name](comm, a, b))
    if name.endswith("_init"):
        request.Start()
    if which is not None and comm.rank == 0:
        (a, b)[which][0] = 7
    request.Wait()
    if isinstance(request, MPI.Prequest):
        request.Free()
    return b.tolist()


FLYING = {
    "Ialltoall": lambda _, a, b: (a, b),
    "Alltoall_init": lambda _, a, b: (a, b),
    "Iallreduce": lambda _, a, b: (a, b),
    "Ialltoallv": lambda comm, a, b: (part(comm, a), part(comm, b)),
    "Ialltoallw": lambda _, a, b: (wide(a), wide(b)),
    "Iallgather": lambda _, a, b: (a[:2], b),
}


@pytest.mark.parametrize("name", FLYING)
def test_buffers_in_flight(name):
    for which, side in enumerate(("send", "receive")):
        with pytest.raises(UsageError, match=f"changed the buffer before the {side} was complete"):
            pencils.simulate(2, touching, name, which)
    results = pencils.simulate(2, touching, name, None)
    assert results == pencils.simulate(2, touching, name, None, strict=False)


def test_data_that_no_rank_sends_are_kept():
    def main():
        comm = MPI.COMM_WORLD
        data = np.full(2, comm.rank, np.float64)
        request = comm.Ibcast(data)
        early = bool(np.isnan(data).all())  # before the end no data are there
        request.Wait()
        one, first = np.ones(1), np.full(1, 5.0)
        comm.Iexscan(one, first).Wait()
        more = np.full(3, 5.0)
        comm.Iallreduce([more.copy(), 1, MPI.DOUBLE], more).Wait()
        grid = comm.Create_cart([2])
        ends = np.full(2, 5.0)
        grid.Ineighbor_alltoall(np.ones(2), ends).Wait()
        grid.Free()
        return early, data.tolist(), first.tolist(), more.tolist(), ends.tolist()

    first, second = pencils.simulate(2, main)
    assert first == (False, [0, 0], [5.0], [10.0, 5.0, 5.0], [5.0, 1.0])
    assert second == (True, [0, 0], [1.0], [10.0, 5.0, 5.0], [1.0, 5.0])
