"""A series whose file cannot be written, or is used by others meanwhile."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from damage import FULL_DISK, failing, undo_patches
from mpi4py import MPI

import pencils
from pencils.comm.file import SharedFile
from pencils.errors import CheckpointError
from pencils.io import manifest, series_file, writers
from pencils.io import series as appending
from pencils.io.commit import WriterLock
from pencils.io.slabs import chunk_in_order

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


class FullDisk:
    """Takes so many bytes more than a file has, the last of them in a short write."""

    def __init__(self, path, room):
        self.room, self.taken, self.write = room, 0, os.pwrite
        self.size = path.stat().st_size

    def __call__(self, handle, data, offset):
        if offset >= self.size and len(data):
            data = data[: self.room - self.taken]
            self.taken += len(data)
            if not data:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.write(handle, data, offset)


def test_a_full_disk_leaves_what_was_there(lab, monkeypatch, u, path):
    series = pencils.TimeSeries(path, comm=lab.comm)
    for step in range(2):  # the second append writes more than later ones
        series.append(step, {"u": u})
    disk = FullDisk(path, 10**6)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", disk)
        series.append(2, {"u": u})
        patch.setattr(os, "pwrite", FullDisk(path, disk.taken - 10))
        kind, text = lab.raised(series.append, 3, {"u": u})
    assert issubclass(kind, OSError)
    assert os.strerror(errno.ENOSPC) in text
    assert lab.stored(path)["u"].shape == (3, 4, 5)
    with pencils.TimeSeries(path, comm=lab.comm) as again:
        again.append(3, {"u": u})
    assert lab.stored(path)["u"].sum() == 80


def test_short_writes_are_continued(lab, monkeypatch, u, path):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *args: pwrite(args[0], args[1][:700], args[2]))
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        for step in range(3):
            series.append(step, {"u": u, "n": step})
    assert lab.stored(path)["u"].sum() == 60
    assert np.array_equal(lab.stored(path)["n"], range(3))


def test_arrays_of_values_can_be_used_again(lab, mpi_tmp_path):
    values = np.zeros(2)
    with pencils.TimeSeries(mpi_tmp_path / "a", comm=lab.comm) as series:
        for step in range(3):
            values[:] = step
            series.append(step, {"values": values})
    assert np.array_equal(lab.stored(series.path)["values"][:, 0], range(3))


def test_one_rank_without_memory(lab, path, monkeypatch):
    u = pencils.ones(pencils.Pencil((4, 5), lab.comm), halo=1)
    series = pencils.TimeSeries(path, comm=lab.comm)
    series.append(0, {"u": u})

    with monkeypatch.context() as patch:
        if lab.comm.rank == 0:
            patch.setattr(appending, "write_part", failing(MemoryError))
        assert lab.raised(series.append, 1, {"u": u})[0] is MemoryError
    assert len(series) == 1
    series.append(1, {"u": u})
    assert lab.stored(path)["u"].sum() == 40


@pytest.mark.parametrize("name", ["none/a.h5", "\0"])  # the error is an OSError, a ValueError
def test_one_rank_cannot_open_the_file(lab, monkeypatch, name, u, path):
    def elsewhere(path, *, write=False, last=lab.comm.size - 1):
        return SharedFile(name if MPI.COMM_WORLD.rank == last else path, write=write)

    with pencils.TimeSeries(path, comm=lab.comm) as series:
        series.append(0, {"u": u})
        with monkeypatch.context() as patch:
            for module in (appending, writers):
                patch.setattr(module, "SharedFile", elsewhere)
            kind, _ = lab.raised(series.append, 1, {"u": u})
        assert kind is ValueError if name == "\0" else issubclass(kind, OSError)
        series.append(1, {"u": u})
    assert lab.stored(series.path)["u"].sum() == 40


def test_one_rank_cannot_tell_where_it_works(lab, mpi_tmp_path, monkeypatch):
    def only_on_root(path, *args, real=os.path.realpath, **rest):
        if MPI.COMM_WORLD.rank:
            raise FileNotFoundError(errno.ENOENT, "the working directory was removed")
        return real(path, *args, **rest)

    monkeypatch.setattr(os.path, "realpath", only_on_root)
    pencils.TimeSeries(mpi_tmp_path / "a.h5", comm=lab.comm).close()
    pencils.CheckpointSeries(mpi_tmp_path / "run", comm=lab.comm, signals=()).close()
    missing = mpi_tmp_path / "b.h5"
    assert lab.raised(pencils.verify, missing, lab.comm)[0] is FileNotFoundError


def test_times_that_are_none(lab, mpi_tmp_path):
    """Rank 0 alone reads them, and the others wait for what it has read."""
    u = pencils.ones(pencils.Pencil((4, 5), lab.comm))
    with pencils.TimeSeries(mpi_tmp_path / "a", comm=lab.comm) as series:
        series.append(0, {"u": u})

    def spoil(file):
        dims = file["time"].attrs["pencils_dims"]
        del file["time"]
        file.create_dataset("time", data=["noon"], chunks=(128,), maxshape=(None,))
        file["time"].attrs["pencils_dims"] = dims

    lab.look(series.path, spoil, "r+")
    for _ in range(2):
        kind, _ = lab.raised(pencils.TimeSeries, series.path, comm=lab.comm, edited=True)
        assert kind is ValueError


def test_pieces_of_large_fields(lab, mpi_tmp_path, monkeypatch):
    monkeypatch.setattr(pencils.io.direct, "_PIECE_BYTES", 24)
    pencil = pencils.Pencil((6, 5), lab.comm)
    data = lab.numbers((2, 3, 6, 5))
    u = pencils.empty(pencil, components=(3,), halo=1)
    with pencils.TimeSeries(mpi_tmp_path / "a.h5", comm=lab.comm) as series:
        for step, array in enumerate(data):
            u.local[...] = array[u.local_slices]
            series.append(step, {"u": u})
    assert np.array_equal(lab.stored(series.path)["u"], data)
    assert pencils.verify(series.path, lab.comm) == ["u"]


@pytest.fixture
def no_locks(monkeypatch):
    """As on a file system that has none."""
    monkeypatch.setattr(WriterLock, "take", lambda *_, **__: None)


@pytest.mark.usefixtures("no_locks")
def test_looking_changes_nothing(lab, monkeypatch, u, path):
    """Who only makes a TimeSeries while another appends does not take its room away."""
    series = pencils.TimeSeries(path, comm=lab.comm)
    series.append(0, {"u": u})

    def look(*args, write=appending._write):
        other = pencils.TimeSeries(path, comm=lab.comm)
        sums = write(*args)
        other.close()
        return sums

    monkeypatch.setattr(appending, "_write", look)
    series.append(1, {"u": u})
    assert lab.stored(path)["u"].sum() == 40


def refuses_to_append(lab, series, path, u):
    """Check that a series does not append after another writer has appended at time 7."""
    lab.refuses(CheckpointError, "another process", series.append, 8, {"u": u})
    assert np.array_equal(lab.stored(path)["time"], [0, 7])
    assert pencils.verify(path, lab.comm) == ["u"]


@pytest.mark.usefixtures("no_locks")
def test_two_writers_at_once(lab, monkeypatch, u, path):
    series = pencils.TimeSeries(path, comm=lab.comm)
    series.append(0, {"u": u})
    write = appending._write

    def interfere(*args):
        monkeypatch.setattr(appending, "_write", write)
        sums = write(*args)
        with pencils.TimeSeries(path, comm=lab.comm) as other:
            other.append(7, {"u": u})
        return sums

    monkeypatch.setattr(appending, "_write", interfere)
    refuses_to_append(lab, series, path, u)


def test_coordinates_are_written_once(lab, path):
    pencil = pencils.Pencil((100_000,), lab.comm)
    points = np.linspace(0, 1, 100_000)
    grid = pencils.localgrid(pencil, [points])
    fields = {"probe": (pencils.ones(pencil), 5)}
    for step in range(4):
        with pencils.TimeSeries(path, grid=grid) as series:
            series.append(step, fields)
    assert lab.on_root(lambda: path.stat().st_size) < 2 * points.nbytes
    assert np.array_equal(lab.stored(path)["x"], points)
    with pencils.TimeSeries(path, grid=grid) as series:
        series.truncate(-1)
    other = pencils.localgrid(pencil, [points + 1])
    with pencils.TimeSeries(path, grid=other) as series:
        series.append(0, fields)
    assert np.array_equal(lab.stored(path)["x"], points + 1)


def test_a_last_chunk_that_is_not_full(lab, path, monkeypatch):
    monkeypatch.setattr(series_file, "CHUNK_BYTES", 128)
    pencil = pencils.Pencil((23,), lab.comm)
    data = lab.numbers((5, 23))
    u = pencils.empty(pencil)
    for part in (data[:3], data[3:]):
        with pencils.TimeSeries(path, comm=lab.comm) as series:
            for array in part:
                u.local[...] = array[u.local_slices]
                series.append(len(series), {"u": u, "v": u})
    assert np.array_equal(lab.stored(path)["u"], data)
    assert np.array_equal(lab.stored(path)["v"], data)
    assert pencils.verify(path, lab.comm) == ["u", "v"]
    with pencils.open(path, comm=lab.comm) as file:
        found = file["v"].read(pencil, key=3)
    assert np.array_equal(found.local, data[3][found.local_slices])


def test_chunks_of_any_shape_are_found_fast():
    assert chunk_in_order((30_000_001,), 8, 2**20) == (131_005,)  # 229 of them
    assert chunk_in_order((3, 1_000_000_000), 8, 2**30) == (1, 125_000_000)


def test_a_first_snapshot_that_failed_does_not_damage_the_next(lab, monkeypatch, u, path):
    series = pencils.TimeSeries(path, comm=lab.comm)
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "_switch", failing(FULL_DISK))
        kind, _ = lab.raised(series.append, 0, {f"f{number}": u for number in range(150)})
    assert issubclass(kind, OSError)
    lab.raised(series.append, 0, {"u": u})  # what memory holds is not what the file holds
    with pencils.TimeSeries(path, comm=lab.comm) as again:
        again.append(0, {"u": u})
    pencils.verify(path, comm=lab.comm)
    assert lab.stored(path)["u"].sum() == 20


@pytest.mark.mpiexec("counts the open files of one process")
def test_a_new_series_that_fails_keeps_no_deleted_file_open(
    lab, mpi_tmp_path, monkeypatch, u, path
):
    pencils.save(path, {"u": u})

    series = pencils.TimeSeries(path, "w", comm=lab.comm)
    with monkeypatch.context() as patch:
        patch.setattr(appending, "_write", failing(FULL_DISK))
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)), series:
            series.append(0, {"u": u})
    handles = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [link for link in handles if str(mpi_tmp_path) in str(link.readlink())]


def drop_sums(file):
    del file["pencils_checksum"]


@pytest.mark.parametrize("edit", [lambda file: file["u"].resize(2, axis=0), drop_sums])
def test_an_edited_series_with_snapshots_in_part_is_not_continued(lab, u, path, edit):
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        for time in range(3):
            series.append(time, {"u": u})

    lab.look(path, edit, "r+")
    kind, text = lab.raised(pencils.TimeSeries, path, comm=lab.comm, edited=True)
    assert issubclass(kind, CheckpointError)
    assert "but not continued" in text


def append_alone(path, time):
    """Append as another program would, on rank 0."""
    u = pencils.ones(pencils.Pencil((4, 5), MPI.COMM_SELF))
    with pencils.TimeSeries(path, comm=MPI.COMM_SELF) as other:
        other.append(time, {"u": u})


@pytest.mark.usefixtures("no_locks")
def test_an_append_of_another_process_while_a_series_is_opened(lab, monkeypatch, u, path):
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        series.append(0, {"u": u})
    read = series_file.SeriesFile._read

    def read_and_wait(*args):
        found = read(*args)
        monkeypatch.setattr(series_file.SeriesFile, "_read", read)
        append_alone(path, 7)
        return found

    monkeypatch.setattr(series_file.SeriesFile, "_read", read_and_wait)
    series = pencils.TimeSeries(path, comm=lab.comm)
    refuses_to_append(lab, series, path, u)


def kill_before_patches(path, time):
    """Append and leave the file as a process does that is killed before it writes the patches."""
    before = path.read_bytes()
    append_alone(path, time)
    undo_patches(path, before)


@pytest.mark.usefixtures("no_locks")
def test_two_processes_repair_a_series_at_once(lab, monkeypatch, u, path):
    """The slower one must not write patches over what the other one has appended since."""
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        series.append(0, {"u": u})
    lab.on_root(kill_before_patches, path, 1)
    pending = manifest._pending

    def find_and_wait(*args):
        found = pending(*args)
        monkeypatch.setattr(manifest, "_pending", pending)
        for time in (2, 3):
            append_alone(path, time)
        return found

    if lab.comm.rank == 0:
        monkeypatch.setattr(manifest, "_pending", find_and_wait)
    series = pencils.TimeSeries(path, comm=lab.comm)
    assert np.array_equal(series.times, range(4))
    assert np.array_equal(lab.stored(path)["time"], range(4))
    series.append(4, {"u": u})
    assert pencils.verify(path, lab.comm) == ["u"]
    assert lab.stored(path)["u"].sum() == 100


def test_patches_that_another_process_has_undone_are_written_again(lab, u, path):
    series = pencils.TimeSeries(path, comm=lab.comm)
    series.append(0, {"u": u})
    before = lab.on_root(path.read_bytes)
    series.append(1, {"u": u})

    lab.on_root(undo_patches, path, before)
    series.append(2, {"u": u})
    assert pencils.verify(path, lab.comm) == ["u"]
    assert np.array_equal(lab.stored(path)["time"], range(3))
    assert lab.stored(path)["u"].sum() == 60
