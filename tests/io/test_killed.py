"""A process that is killed while saving: the old checkpoint stays, and nothing of the new one."""

import time

import pytest
from kill_saves import kill_saves
from mpi4py import MPI
from tiers import up_to

import pencils

PROGRAM = """
import os, signal, sys
import pencils
from pencils.comm.file import SharedFile
from pencils.io import writers

path, victim, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]
pencil = pencils.Pencil((8, 6, 4))

def die(call):
    def die_or_call(*args):
        if pencil.rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)
    return die_or_call

if where == "commit":
    writers.commit = die(writers.commit)
else:
    setattr(SharedFile, where, die(getattr(SharedFile, where)))
fields = {"u": pencils.full(pencil, 2.0), "v": pencils.ones(pencil)}
pencils.save(path, fields)
"""


@pytest.mark.parametrize(
    ("where", "victim"),
    [("write", 1), ("commit", 0)]
    + [
        pytest.param(where, victim, marks=pytest.mark.thorough)
        for where, victim in [("raise_error", 2), ("sync", 0), ("close", 1)]
    ],
)
def test_killed_while_saving(mpirun, tmp_path, where, victim):
    path = tmp_path / "a.h5"
    pencil = pencils.Pencil((8, 6, 4), MPI.COMM_SELF)
    pencils.save(path, {"u": pencils.ones(pencil)})
    ran = mpirun(3, "-c", PROGRAM, path, victim, where, timeout=60)
    assert ran.returncode != 0
    assert pencils.verify(path, MPI.COMM_SELF) == ["u"]
    assert pencils.load(path, pencil)["u"].sum() == pencil.layout.box(0).volume
    assert len(list(tmp_path.iterdir())) == 2
    pencils.save(path, {"u": pencils.ones(pencil)})
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["run.h5", pytest.param("run.zarr", marks=pytest.mark.thorough)])
def test_killed_at_random_instants(name):
    """A few times only; by hand, ``python tests/io/kill_saves.py`` goes on for longer."""
    seed = time.time_ns() % 1_000_000
    outcomes = kill_saves(kills=up_to(3, 1), ranks=3, seed=seed, name=name)
    damaged = [outcome for outcome in outcomes if outcome.startswith("damaged")]
    assert not damaged, f"seed {seed}"
