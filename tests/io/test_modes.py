"""How a series is opened: to continue, to start anew, or only where there is nothing yet."""

import errno
import os

import numpy as np
import pytest
from damage import FULL_DISK, failing

import pencils
from pencils.errors import ArgumentError, CheckpointError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

BAD = ["r", "r+", "", "wa", None, 3, b"w"]


@pytest.fixture
def pencil(comm):
    return pencils.Pencil((4, 5), comm)


class Place:
    """Where the series of a test is, and how it is opened."""

    def __init__(self, lab, folder):
        self.lab, self.folder = lab, folder
        self.path = folder / "out"

    def open(self, mode):
        return pencils.TimeSeries(self.path, mode, comm=self.lab.comm)

    @property
    def seen(self):
        """What plain h5py finds: times, and the fields with their values."""
        found = self.lab.stored(self.path)
        fields = {name: one[:, 0, 0].tolist() for name, one in found.items() if one.ndim == 3}
        return found["time"].tolist() if "time" in found else [], fields

    @property
    def names(self):
        return names_in(self.lab, self.folder)


@pytest.fixture
def place(lab, mpi_tmp_path):
    return Place(lab, mpi_tmp_path)


def write(series, pencil, name, times):
    for time in times:
        series.append(time, {name: pencils.full(pencil, time), "n": int(time)})


def names_in(lab, folder):
    return lab.on_root(lambda: sorted(path.name for path in folder.iterdir()))


def test_to_start_anew_replaces_the_series_by_its_first_snapshot(pencil, place):
    for run, name in enumerate("uvw"):
        with place.open("w") as series:
            assert (series.mode, len(series)) == ("w", 0)
            if run:
                assert place.seen[1] == {"uvw"[run - 1]: [5.0 + run, 6.0 + run, 7.0 + run]}
            write(series, pencil, name, [6.0 + run])
            assert place.seen == ([6.0 + run], {name: [6.0 + run]})
            write(series, pencil, name, [7.0 + run, 8.0 + run])
    with place.open("a") as series:
        series.truncate(9.0)
        write(series, pencil, "w", [20.0])
    assert place.seen == ([8.0, 9.0, 20.0], {"w": [8.0, 9.0, 20.0]})
    assert place.names == ["out"]


def test_a_new_series_without_snapshots_replaces_the_old_one_at_the_end(pencil, place):
    with place.open("a") as series:
        write(series, pencil, "u", [1.0, 2.0])
    with place.open("w") as series:
        series.truncate(-np.inf)
        assert place.seen[0] == [1.0, 2.0]
    assert place.seen == ([], {})
    assert place.names == ["out"]


def test_what_fails_before_the_first_snapshot_leaves_the_old_series(
    lab, pencil, place, monkeypatch
):
    with place.open("a") as series:
        write(series, pencil, "u", [1.0, 2.0])

    refuse = failing(FULL_DISK)
    with monkeypatch.context() as patch:
        series = place.open("w")
        patch.setattr(os, "replace", refuse)
        patch.setattr("pathlib.Path.replace", refuse)
        kind, text = lab.raised(write, series, pencil, "v", [3.0])
    assert issubclass(kind, OSError)
    assert os.strerror(errno.ENOSPC) in text
    series.close()
    assert place.seen == ([1.0, 2.0], {"u": [1.0, 2.0]})
    assert not [name for name in place.names if name.endswith(".tmp")]
    del series
    with place.open("a") as series:
        write(series, pencil, "u", [3.0])
    assert place.seen[0] == [1.0, 2.0, 3.0]


def test_one_that_is_dropped_leaves_no_temporary(pencil, place):
    with place.open("a") as series:
        write(series, pencil, "u", [1.0])
    before = place.names
    series = place.open("w")
    del series
    assert place.names == before
    assert place.seen[0] == [1.0]


def test_only_where_there_is_nothing_yet(lab, pencil, place):
    with place.open("x") as series:
        write(series, pencil, "u", [1.0])
    lab.refuses(
        FileExistsError, "mode='a' to continue it, or mode='w' to replace it", place.open, "x"
    )
    assert place.seen[0] == [1.0]


def test_an_append_that_is_refused_tells_how_to_start_anew(lab, pencil, place):
    with place.open("a") as series:
        write(series, pencil, "u", [1.0])
    texts = "mode='w')", "truncate(time)"
    with place.open("a") as series:
        lab.refuses(ArgumentError, texts, write, series, pencil, "u", [1.0])


def test_files_of_others_are_replaced_only_where_their_name_was_given(lab, pencil, place):
    pencils.save(place.path, {"u": pencils.ones(pencil)})
    before = lab.on_root(place.path.read_bytes)
    assert lab.raised(place.open, "a")[0] is CheckpointError
    assert lab.raised(place.open, "x")[0] is FileExistsError
    series = place.open("w")
    assert lab.on_root(place.path.read_bytes) == before
    write(series, pencil, "v", [1.0])
    assert place.seen == ([1.0], {"v": [1.0]})
    series.close()


def test_a_damaged_series_can_be_started_anew(lab, pencil, place):
    with place.open("a") as series:
        write(series, pencil, "u", [1.0, 2.0])
    lab.on_root(lambda: os.truncate(place.path, place.path.stat().st_size // 3))
    assert lab.raised(place.open, "a")[0] is CheckpointError
    with place.open("w") as series:
        write(series, pencil, "u", [3.0])
    assert place.seen == ([3.0], {"u": [3.0]})


def test_no_place_for_a_series(lab, place):
    lab.on_root(place.path.mkdir)
    assert issubclass(lab.raised(place.open, "w")[0], OSError)
    assert place.names == ["out"]


@pytest.mark.parametrize("rank", [None, 0, -1])
def test_modes_that_there_are_not(lab, mpi_tmp_path, place, rank):
    comm = lab.comm
    here = rank is None or comm.rank == rank % comm.size
    for bad in BAD:
        for call in (place.open, checkpoints_in(mpi_tmp_path / "run", comm)):
            lab.refuses(ArgumentError, "'w' (replace it)", call, bad if here else "a")
    assert place.names == []
    if rank is not None and comm.size > 1:
        for call in (place.open, checkpoints_in(mpi_tmp_path / "run", comm)):
            assert lab.raised(call, "w" if here else "a")[0] is RankDisagreementError
    assert place.names == []


def checkpoints_in(folder, comm):
    return lambda mode, **rest: pencils.CheckpointSeries(
        folder, mode, signals=(), comm=comm, **rest
    )


def steps_on_disk(lab, folder):
    names = names_in(lab, folder)
    return [int(name[11:19]) for name in names if name.endswith(".h5")]


@pytest.fixture
def old_run(comm, mpi_tmp_path, pencil):
    """Make a directory with three checkpoints of a run, to be opened in some mode."""
    open_run = checkpoints_in(mpi_tmp_path / "run", comm)
    with open_run("x") as checkpoints:
        for step in (10, 20, 30):
            checkpoints.save(step, {"u": pencils.full(pencil, step)}, time=step / 10)
    return open_run


@pytest.mark.parametrize("way", [(5, True), (20, True), (20, False), (40, False)])
def test_the_first_good_checkpoint_replaces_those_of_the_old_run(
    lab, mpi_tmp_path, pencil, old_run, way
):
    folder, (step, wait) = mpi_tmp_path / "run", way
    with old_run("w", keep=2) as checkpoints:
        assert checkpoints.mode == "w"
        assert (checkpoints.steps, checkpoints.latest()) == ([], None)
        assert checkpoints.resume(pencil) is None
        assert steps_on_disk(lab, folder) == [10, 20, 30]
        checkpoints.save(step, {"u": pencils.full(pencil, -1.0)}, wait=wait)
        checkpoints.wait()
        assert checkpoints.steps == steps_on_disk(lab, folder) == [step]
        checkpoints.save(step + 1, {"u": pencils.full(pencil, -2.0)})
    assert names_in(lab, folder) == [f"checkpoint-{n:08}.h5" for n in (step, step + 1)]
    with old_run("a") as checkpoints:
        found = checkpoints.resume(pencil)
        assert (found.step, found["u"].max()) == (step + 1, -2)


def test_checkpoints_of_the_old_run_stay_until_there_is_a_new_one(
    lab, mpi_tmp_path, pencil, old_run, monkeypatch
):
    checkpoints = old_run("w")
    with monkeypatch.context() as patch:
        patch.setattr("pencils.io.writers.commit", failing(FULL_DISK))
        assert lab.raised(checkpoints.save, 20, {"u": pencils.ones(pencil)})[0] is OSError
    checkpoints.close()
    assert names_in(lab, mpi_tmp_path / "run") == [f"checkpoint-{n:08}.h5" for n in (10, 20, 30)]
    with old_run("a") as again:
        assert again.resume(pencil).step == 30


def test_what_is_no_checkpoint_of_the_run_stays(lab, mpi_tmp_path, pencil, old_run):
    folder = mpi_tmp_path / "run"
    with old_run("a") as checkpoints:
        checkpoints.resume(pencil, step=20)
    others = ["checkpoint-1.h5", "checkpoint-00000002.h5.bak", "u.h5"]
    lab.on_root(lambda: [(folder / name).write_bytes(b"x") for name in others] and None)
    with old_run("w") as checkpoints:
        checkpoints.save(1, {"u": pencils.ones(pencil)})
    left = [*others, "checkpoint-00000001.h5", "checkpoint-00000030.h5.abandoned"]
    assert names_in(lab, folder) == sorted(left)


def test_checkpoints_only_where_there_are_none(lab, mpi_tmp_path, pencil, old_run):
    lab.refuses(FileExistsError, "checkpoint-00000030.h5 exists", old_run, "x")
    assert steps_on_disk(lab, mpi_tmp_path / "run") == [10, 20, 30]
    u = pencils.ones(pencil)
    with old_run("a") as checkpoints:
        lab.refuses(ArgumentError, "mode='w')", checkpoints.save, 40, {"u": u})


def test_a_run_goes_on_or_starts_anew_with_all_its_outputs(lab, pencil, old_run, place):
    with place.open("a") as series:
        write(series, pencil, "u", [1.0, 3.5])
    with old_run("a") as checkpoints, place.open("w") as output:
        text = "mode='a' for the output, or mode='w' for both"
        lab.refuses(ArgumentError, text, checkpoints.resume, pencil, outputs=[output])
        if output._file is not None:
            output._file._take_place = lambda: None  # as if the program had died of it
    assert place.seen[0] == [1.0, 3.5]
    with old_run("a") as checkpoints, place.open("a") as output:
        assert checkpoints.resume(pencil, outputs=[output]).time == 3.0
        assert output.times.tolist() == [1.0]
    with old_run("w") as checkpoints, place.open("w") as output:
        assert checkpoints.resume(pencil, outputs=[output]) is None
        write(output, pencil, "u", [0.5])
    assert place.seen[0] == [0.5]
