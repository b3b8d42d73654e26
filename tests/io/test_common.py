"""Folders that each host has for itself: errors on all ranks, before anything is written.

On one host its ranks are divided into nodes, and those not with rank 0 do not see its files.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import all_raise, everywhere, numbered, on_nodes, spread

import pencils
from pencils import Pencil
from pencils.comm.topology import topology_of
from pencils.errors import CheckpointError
from pencils.io import commit
from simmpi.process import is_simulated

pytestmark = pytest.mark.parallel([2, 3, 4, 6])

SHAPE = (12, 5)


@pytest.fixture(name="comm")
def _comm():
    return on_nodes("even and odd")


@pytest.fixture(name="hosts")
def _hosts(comm):
    """Return the host of each rank; simulated nodes are not hosts."""
    return comm.allgather("" if is_simulated() else MPI.Get_processor_name())


@pytest.fixture
def folder(comm, hosts, mpi_tmp_path, monkeypatch):
    """Return a folder whose name is the same everywhere, but not its files."""
    if len(set(hosts)) == 1:
        look = commit._look

        def look_at_home(*args):
            return look(*args) if 0 in topology_of(comm).on_node else commit._ABSENT

        monkeypatch.setattr(commit, "_look", look_at_home)
        yield mpi_tmp_path
        return
    folder = Path("/dev/shm", mpi_tmp_path.name)
    folder.mkdir(exist_ok=True)
    comm.barrier()
    yield folder
    comm.barrier()
    shutil.rmtree(folder, ignore_errors=True)


def save_alone(path, value, shape=SHAPE):
    """Write a file on this rank."""
    pencils.save(path, {"u": pencils.full(Pencil(shape, MPI.COMM_SELF), value)})


@pytest.mark.parametrize("wait", [True, False])
def test_save(comm, folder, wait):
    u, path = pencils.ones(Pencil(SHAPE, comm)), folder / "run.h5"
    if comm.rank == 0:
        path.write_bytes(b"old")
    all_raise(
        comm,
        FileNotFoundError,
        (
            f"cannot save {path}: ",
            f"a new file in {folder} exists on ",
            "(rank 0), but not on ",
            "; give a path on a file system that all hosts share",
        ),
        lambda: pencils.save(path, {"u": u}, wait=wait),
    )
    assert everywhere(comm, comm.rank or path.read_bytes() == b"old")
    assert everywhere(comm, {*folder.iterdir()} <= {path})


def test_load_of_a_file_of_one_host(comm, folder):
    path, u = folder / "run.h5", pencils.ones(Pencil(SHAPE, comm))
    if comm.rank == 0:
        save_alone(path, 2.0)
    comm.barrier()
    texts = f"cannot load {path}: it exists on ", "(rank 0), but not on ", "all hosts share"
    for call in (
        lambda: pencils.load(path, u.pencil),
        lambda: pencils.load(path, names="u", into=u),
        lambda: pencils.verify(path, comm),
        lambda: pencils.open(path, "r+", comm),
    ):
        all_raise(comm, FileNotFoundError, texts, call)
    assert everywhere(comm, (u.local == 1).all())


def test_load_of_a_file_that_rank_0_does_not_see(comm, hosts, folder):
    path, last = folder / "run.h5", comm.size - 1
    if hosts[0] == hosts[last]:
        pytest.skip("needs ranks on several hosts")
    if comm.rank == last:
        save_alone(path, 2.0)
    comm.barrier()
    texts = f"cannot load {path}: it exists on ", "but not on ", "(rank 0)"
    all_raise(comm, FileNotFoundError, texts, pencils.load, path, Pencil(SHAPE, comm))


def test_copies_on_all_hosts_can_be_read_and_other_files_cannot(comm, hosts, folder):
    path = folder / "run.h5"
    if len(set(hosts)) == 1:
        pytest.skip("needs ranks on several hosts")
    is_first = hosts.index(hosts[comm.rank]) == comm.rank
    if is_first:
        save_alone(path, 2.0)
    comm.barrier()
    assert everywhere(comm, (pencils.load(path, Pencil(SHAPE, comm))["u"].local == 2).all())
    if is_first:
        save_alone(path, 2.0, (60, 50) if comm.rank else SHAPE)
    comm.barrier()
    texts = "another size on", "all hosts share"
    all_raise(comm, CheckpointError, texts, pencils.load, path, Pencil(SHAPE, comm))


def test_no_file_at_all(comm, folder):
    path = folder / "none.h5"
    all_raise(
        comm,
        FileNotFoundError,
        ("rank 0: cannot load", "check the path"),
        lambda: pencils.load(path, Pencil(SHAPE, comm)),
    )


@pytest.mark.parametrize("kind", ["checkpoints", "file"])
@pytest.mark.parametrize("exists", [False, True])
def test_series(comm, folder, kind, exists):
    path = folder / "series"
    if exists and kind != "file":
        path.mkdir(exist_ok=True)

    def make():
        if kind == "checkpoints":
            return pencils.CheckpointSeries(path, comm=comm)
        return pencils.TimeSeries(path, comm=comm)

    texts = f"cannot write {path}: ", "but not on", "all hosts share"
    all_raise(comm, FileNotFoundError, texts, make)
    left = [*folder.rglob("*")]
    assert everywhere(comm, left == ([path] if exists and kind != "file" else []))


def test_a_folder_that_all_see(comm, mpi_tmp_path):
    data = numbered(SHAPE)
    u = spread(Pencil(SHAPE, comm, decomp=1), data)
    with pencils.CheckpointSeries(mpi_tmp_path / "steps", comm=comm) as series:
        series.save(3, {"u": u})
        found = series.resume(u.pencil)["u"]
    assert everywhere(comm, np.array_equal(found.local, u.local))
    with pencils.TimeSeries(mpi_tmp_path / "a.h5", comm=comm) as series:
        series.append(0.5, {"u": u})
    comm.barrier()  # rank 0 may still remove the lock
    assert everywhere(comm, len([*mpi_tmp_path.iterdir()]) == 2)


def test_names_that_the_system_refuses(comm, mpi_tmp_path):
    pencil = Pencil(SHAPE, comm)
    grid = pencils.localgrid(pencil, [np.arange(n) for n in SHAPE])
    path = f"{mpi_tmp_path}/\ud800.h5"
    all_raise(comm, UnicodeError, "surrogates", pencils.TimeSeries, path, "w", grid=grid)
