"""One writer at a time: of two programs that write to one file, the second one is refused."""

import errno
import fcntl
import gc
import os
import platform
import signal
import time

import h5py
import numpy as np
import pytest
from damage import failing
from mpi4py import MPI
from mpi_helpers import ended, forked

import pencils
from pencils.errors import CheckpointError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])
forks = pytest.mark.mpiexec("forks a process")


def append_again_and_again(path, me, journal):
    """Open, append, close, and write down which snapshots were appended."""
    pencil = pencils.Pencil((4, 5), MPI.COMM_SELF)
    for _ in range(8):
        series = None
        while series is None:
            try:
                series = pencils.TimeSeries(path, comm=MPI.COMM_SELF)
            except BlockingIOError:
                time.sleep(0.001)
        with series:
            now = len(series)
            series.append(now, {"u": pencils.full(pencil, now), "me": me})
        os.write(journal, f"{now} {me}\n".encode())


@forks
@pytest.mark.parallel([1])
@pytest.mark.parametrize("writers", [2, 3])
def test_what_was_appended_is_there(memory_path, writers):
    path, journal = memory_path / "a.h5", memory_path / "journal"
    handle = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    work = append_again_and_again
    children = [forked(work, path, me, handle) for me in range(writers)]
    os.close(handle)
    assert ended(*children) == [0] * writers
    said = dict(tuple(map(int, line.split())) for line in journal.read_text().splitlines())
    with h5py.File(path) as file:
        assert dict(enumerate(file["me"][:])) == said
        assert np.array_equal(file["u"][:, 0, 0], range(8 * writers))
    assert not [*memory_path.rglob(".*")]


def series_at(path, mode="a"):
    return lambda comm: pencils.TimeSeries(path, mode, comm=comm)


def edited_at(path):
    return lambda comm: pencils.open(path, "r+", comm)


@pytest.mark.parametrize("holder", ["a", "w", "r+"])
def test_a_second_writer_is_refused_on_all_ranks(lab, path, u, holder):
    with series_at(path)(lab.comm) as series:
        series.append(0, {"u": u})
    others = [series_at(path, mode) for mode in "aw"]
    others += [edited_at(path), lambda _: pencils.save(path, {"u": u})]
    others += [lambda _: pencils.save(path, {"u": u}, wait=False)]
    mode = "w" if holder == "w" else "a"
    held = (edited_at(path) if holder == "r+" else series_at(path, mode))(lab.comm)
    if holder == "w":
        held.append(0, {"u": u})  # which replaces the file
    me = lab.comm.bcast(f"process {os.getpid()} on {platform.node()} since 2")
    texts = f"{path} is open for writing by {me}", "close it there first"
    for other in others:
        lab.refuses(BlockingIOError, texts, other, lab.comm)
    assert lab.stored(path)["u"].shape == (1, 4, 5)  # readers are not locked out
    assert pencils.verify(path, lab.comm) == ["u"]
    assert "u" in pencils.load(path, u.pencil)
    with pencils.open(path, comm=lab.comm) as file:
        assert file["u"].shape == (1, 4, 5)
    held.close()
    for other in others[:1] + others[3:]:
        found = other(lab.comm)
        if found is not None:
            getattr(found, "close", getattr(found, "wait", None))()
    assert lab.on_root(lambda: not [*path.parent.glob(".*")])


def test_checkpoints_have_one_writer(lab, mpi_tmp_path, u):
    def checkpoints():
        return pencils.CheckpointSeries(mpi_tmp_path / "run", signals=(), comm=lab.comm)

    for first in ("save", "resume"):
        one, two = checkpoints(), checkpoints()
        one.resume({"u": u}) if first == "resume" else one.save(1, {"u": u})
        assert lab.raised(two.save, 2, {"u": u})[0] is BlockingIOError
        assert lab.raised(two.resume, {"u": u})[0] is BlockingIOError
        assert two.latest().name == "checkpoint-00000001.h5"
        one.close()
        assert two.resume({"u": u}).step == 1
        two.close()


def test_a_save_in_the_background_does_not_replace_what_is_open(lab, mpi_tmp_path, u):
    path = mpi_tmp_path / "a.h5"
    with series_at(path)(lab.comm) as series:
        series.append(0, {"u": u})
    saving = pencils.save(path, {"v": u}, wait=False)
    with series_at(path)(lab.comm) as series:
        series.append(1, {"u": u})
        lab.refuses(BlockingIOError, "is open for writing by process", saving.wait)
    assert lab.stored(path)["u"].shape == (2, 4, 5)
    assert lab.on_root(os.listdir, mpi_tmp_path) == ["a.h5"]


def test_one_that_is_dropped_or_fails_lets_the_next_in(lab, path, u):
    pencils.save(path, {"u": u})
    for _ in range(2):
        file = pencils.open(path, "r+", lab.comm)
        file["u"].write(u)
        del file
        kept = None
        try:
            series_at(path)(lab.comm)
        except CheckpointError as error:
            kept = error  # whose traceback refers to the series
        assert "not a TimeSeries" in str(kept)
    series = series_at(path, "w")(lab.comm)
    series.append(0, {"u": u})
    del series
    gc.collect()
    series_at(path)(lab.comm).close()


@forks
@pytest.mark.parallel([1])
def test_a_writer_that_is_killed_lets_the_next_in(tmp_path, u):
    path, (ready, told) = tmp_path / "a.h5", os.pipe()

    def hold():
        series = series_at(path)(MPI.COMM_SELF)
        series.append(0, {"u": u})
        os.write(told, b"x")
        time.sleep(1000)

    child = forked(hold)
    assert os.read(ready, 1)
    with pytest.raises(BlockingIOError) as caught:
        series_at(path)(MPI.COMM_SELF)
    assert f"process {child} on {platform.node()} since 2" in str(caught.value)
    os.kill(child, signal.SIGKILL)
    assert ended(child) == [-signal.SIGKILL]
    with series_at(path)(MPI.COMM_SELF) as series:
        assert len(series) == 1
    assert [*tmp_path.iterdir()] == [path]
    os.close(ready)
    os.close(told)


@forks
@pytest.mark.parallel([1])
def test_a_copy_of_the_process_does_not_release_a_lock(tmp_path):
    series = series_at(tmp_path / "a.h5")(MPI.COMM_SELF)
    assert ended(forked(series.close)) == [0]
    with pytest.raises(BlockingIOError):
        series_at(tmp_path / "a.h5")(MPI.COMM_SELF)
    series.close()
    series_at(tmp_path / "a.h5")(MPI.COMM_SELF).close()


@pytest.fixture(params=[errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def no_locks(request, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", failing(OSError(request.param, os.strerror(request.param))))


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_warning_says_so_once(lab, mpi_tmp_path, u, caplog):
    for time_ in range(2):
        with series_at(mpi_tmp_path / "a.h5")(lab.comm) as series:
            series.append(time_, {"u": u})
    pencils.save(mpi_tmp_path / "a.h5", {"u": u})
    lab.comm.barrier()
    told = [record for record in caplog.records if "cannot lock files in" in record.getMessage()]
    assert len(told) == (lab.comm.rank == 0)


def test_names_that_begin_alike_have_locks_of_their_own(lab, mpi_tmp_path):
    first, second = (mpi_tmp_path / f"{'long' * 55}{end}.h5" for end in "ab")
    with series_at(first)(lab.comm), series_at(second)(lab.comm):
        assert lab.raised(series_at(first), lab.comm)[0] is BlockingIOError
