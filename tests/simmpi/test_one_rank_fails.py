"""Faults of one rank on several simulated nodes, at places that tests on one node do not reach."""

from pathlib import Path

import pytest
from mpi4py import MPI

import pencils
from pencils.comm import shared_memory

SHAPE = (12, 10, 8)


def test_a_file_of_shared_memory_that_cannot_be_removed(monkeypatch):
    left = []

    def fail(path, **_):
        left.append(path)
        raise PermissionError

    def total():
        return float(pencils.full(pencils.Pencil(SHAPE), 2.0, shared=True).sum())

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fail)
        assert pencils.simulate(3, total) == [2.0 * 960] * 3
    assert left
    for path in left:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("call", ["save", "load"])
def test_no_memory_for_the_messages_of_a_file(tmp_path, monkeypatch, call):
    path = tmp_path / "a.h5"
    enough = shared_memory.aligned_empty
    short = []

    def allocate(*args, **options):
        if MPI.COMM_WORLD.rank in short:
            raise MemoryError
        return enough(*args, **options)

    monkeypatch.setattr(shared_memory, "aligned_empty", allocate)

    def run():
        comm = MPI.COMM_WORLD
        u = pencils.ones(pencils.Pencil(SHAPE, decomp=2))
        if comm.rank == 0:
            pencils.save(path, {"u": pencils.ones(pencils.Pencil(SHAPE, MPI.COMM_SELF))})
        comm.Barrier()
        short[:] = [1]
        with pytest.raises(MemoryError, match="rank 1: "):
            pencils.save(path, {"u": u}) if call == "save" else pencils.load(path, u.pencil)
        comm.Barrier()
        short[:] = []
        pencils.save(path, {"u": u})
        return float(pencils.load(path, u.pencil)["u"].sum())

    # Cut in six along the last dimension, points lie too far apart to be read without an exchange.
    assert pencils.simulate(6, run, nodes=2) == [960.0] * 6
    assert list(tmp_path.iterdir()) == [path]
