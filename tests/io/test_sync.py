"""What reaches the disk before what: the order that a loss of power must not find otherwise."""

import os
import threading
import time
from pathlib import Path

import pytest

import pencils
from pencils.comm.file import SharedFile
from pencils.io.captured_file import CapturedFile
from pencils.io.commit import commit, make_temporary

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


class Record:
    """Writes, synchronisations and renamings of this rank, in order, by the names of the files."""

    def __init__(self):
        self.events, self.threads, self.times = [], [], []
        self.apart = False  # as if each rank were on a machine of its own

    def note(self, what, *names):
        self.events.append((what, *(Path(name).name for name in names)))
        self.threads.append(threading.current_thread())
        self.times.append(time.monotonic())  # one clock for all ranks of a machine

    def wrap(self, what, call, names):
        def wrapped(*args):
            found = names(*args)
            result = call(*args)
            self.note(what, *found)
            return result

        return wrapped

    def places(self, what, *names):
        return [at for at, event in enumerate(self.events) if event == (what, *names)]

    def last(self, what, *names):
        return max(self.places(what, *names), default=-1)


def name_of(handle, *_):
    return [str(Path(f"/proc/self/fd/{handle}").readlink())]


@pytest.fixture
def record(request, monkeypatch):
    made = Record()
    made.apart = getattr(request, "param", False)
    if made.apart:
        monkeypatch.setattr(SharedFile, "place", lambda _: None)
    for call in ("pwrite", "pwritev"):
        monkeypatch.setattr(os, call, made.wrap("write", getattr(os, call), name_of))
    monkeypatch.setattr(os, "fsync", made.wrap("sync", os.fsync, name_of))
    for call in ("replace", "link"):  # the latter for names that no file has
        monkeypatch.setattr(os, call, made.wrap("rename", getattr(os, call), lambda *names: names))
    apply = made.wrap("write", CapturedFile.apply, lambda captured: [captured._path])
    monkeypatch.setattr(CapturedFile, "apply", apply)
    return made


def check_renaming(record, folder, target):
    """All of a file is on the disk when it takes its name, and then the name."""
    renamed = [event for event in record.events if event[0] == "rename" and event[2] == target]
    assert renamed
    for event in renamed:
        at, temporary = record.last(*event), event[1]
        written, synced = record.last("write", temporary), record.last("sync", temporary)
        assert written < synced < at
        assert record.last("sync", folder.name) > at


def test_a_file_takes_its_name_when_it_is_on_the_disk(tmp_path, record):
    target = tmp_path / "a"
    temporary = make_temporary(target)
    commit(temporary, target)
    check_renaming(record, tmp_path, "a")


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("record", [False, True], indirect=True)
def test_all_that_was_written_is_on_the_disk(lab, mpi_tmp_path, record, wait, compression):
    u = pencils.ones(pencils.Pencil((12, 5), lab.comm))
    made = pencils.save(mpi_tmp_path / "a.h5", {"u": u}, wait=wait, compression=compression)
    if made is not None:
        made.wait()
    temporary = {event[1] for event in record.events if event[0] == "write"}
    assert len(temporary) <= 1
    if record.apart:
        late = [one for one in temporary if record.last("sync", one) < record.last("write", one)]
        assert lab.everywhere(not late)
    last = [max(record.times[at] for at in record.places("write", one)) for one in temporary]
    last = max(max(times, default=0) for times in lab.comm.allgather(last))

    def check():
        check_renaming(record, mpi_tmp_path, "a.h5")
        (synced,) = (record.last("sync", one) for one in temporary)
        assert record.times[synced] >= last

    lab.on_root(check)


@pytest.mark.mpiexec("patches what threads of one process call")
def test_the_thread_of_a_save_does_not_leave_the_disk_to_others(lab, mpi_tmp_path, record):
    """Otherwise it is `wait` that waits for the disk."""
    u = pencils.ones(pencils.Pencil((12, 5), lab.comm))
    saving = pencils.save(mpi_tmp_path / "a.h5", {"u": u}, wait=False)
    saving._written.result()
    pairs = zip(record.events, record.threads, strict=True)
    mine = [event[0] for event, thread in pairs if thread.name.startswith("pencils-save")]
    assert mine[-1] == "sync"
    saving.wait()


def test_a_part_is_on_the_disk_when_it_is_written(lab, path, record):
    u = pencils.ones(pencils.Pencil((12, 5), lab.comm))
    pencils.save(path, {"u": 0 * u})
    with pencils.open(path, "r+", lab.comm) as file:
        for _ in range(2):
            record.events.clear()
            file["u"].write(u)
            assert record.last("write", "a.h5") < record.last("sync", "a.h5")


def test_series(lab, mpi_tmp_path, record):
    path, u = mpi_tmp_path / "out", pencils.ones(pencils.Pencil((12, 5), lab.comm))
    for mode in "xw":
        record.events.clear()
        with pencils.TimeSeries(path, mode, comm=lab.comm) as series:
            series.append(0, {"u": u})
        lab.on_root(check_renaming, record, mpi_tmp_path, "out")
