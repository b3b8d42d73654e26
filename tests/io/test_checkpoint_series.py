"""A series of checkpoints: what is kept, what is trusted, what is set aside, and when to save."""

import errno
import logging
import os
import shutil
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import h5py
import numpy as np
import pytest
from damage import failing, flip
from mpi4py import MPI

import pencils
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 2, 5)


@pytest.fixture
def pencil(comm):
    return pencils.Pencil(SHAPE, comm)


@pytest.fixture
def folder(mpi_tmp_path):
    return mpi_tmp_path / "run"


@pytest.fixture
def series():
    """Make series of checkpoints that catch no signals."""
    return lambda *args, **rest: pencils.CheckpointSeries(*args, signals=(), **rest)


def state(pencil, step):
    return {"u": pencils.full(pencil, float(step), components=2), "dt": 0.1 * step}


def save_steps(checkpoints, pencil, *steps):
    for step in steps:
        checkpoints.save(step, state(pencil, step), time=step / 2)


def name(step):
    return f"checkpoint-{step:08}.h5"


def truncate(path):
    os.truncate(path, path.stat().st_size * 2 // 3)


def test_the_last_few_are_kept_and_are_plain_checkpoints(comm, folder, pencil, series, lab):
    with series(folder, keep=2) as checkpoints:
        save_steps(checkpoints, pencil, 1, 5, 120, 123456789)
        assert checkpoints.steps == [120, 123456789]
        assert repr(checkpoints) == f"<CheckpointSeries {folder}, keeps the last 2>"
        assert checkpoints.latest() == folder / "checkpoint-123456789.h5"
    assert sorted(lab.on_root(os.listdir, folder)) == [name(120), "checkpoint-123456789.h5"]
    loaded = pencils.load(folder / name(120), pencil)
    assert (loaded.step, loaded.time, loaded["dt"]) == (120, 60.0, 12.0)
    assert lab.everywhere((loaded["u"].local == 120).all())
    assert np.array_equal(lab.stored(folder / name(120))["u"], np.full((2, *SHAPE), 120.0))
    comm.barrier()


def test_all_are_kept_if_wanted(folder, pencil, series):
    checkpoints = series(folder, keep=None, every=5)
    save_steps(checkpoints, pencil, *range(4))
    assert checkpoints.steps == list(range(4))
    assert repr(checkpoints) == f"<CheckpointSeries {folder}, keeps all, one every 5 steps>"


def test_only_rank_0_lists_the_directory(folder, pencil, series, monkeypatch, lab):
    """Others may see a change late, or not at all."""
    iterdir = Path.iterdir

    def refuse(path):
        if MPI.COMM_WORLD.rank > 0 and path == folder:
            raise PermissionError(path)
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    checkpoints = series(folder, keep=2)
    assert lab.everywhere(checkpoints.steps == [])
    save_steps(checkpoints, pencil, 1, 2, 3)
    assert lab.everywhere(checkpoints.steps == [2, 3])
    checkpoints.close()
    again = series(folder)
    assert lab.everywhere(again.steps == [2, 3])
    again.resume(pencil, step=2)
    assert lab.everywhere(again.steps == [2])


def test_what_is_given_to_save_is_passed_on(folder, pencil, series, lab, caplog):
    checkpoints = series(folder)
    grid = pencils.localgrid(pencil, [np.arange(n) for n in SHAPE])
    attrs, u = {"run": "a"}, pencils.ones(pencil, halo=1)
    checkpoints.save(1, {"u": u}, grid=grid, attrs=attrs, halo=True, checksum=False)
    assert checkpoints.latest() == folder / name(1)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    if pencil.comm.rank == 0:
        assert told == 2 * [f"{folder / name(1)} has no checksums: its data are not verified"]
    found = lab.stored(folder / name(1))
    assert found["u"].shape == (9, 4, 7)
    assert [found[label].shape for label in "xyz"] == [(n,) for n in SHAPE]
    assert pencils.load(folder / name(1), names=(), template=pencil).attrs == attrs
    lab.refuses(TypeError, "nonsense", checkpoints.save, 2, {"u": u}, nonsense=1)
    assert checkpoints.steps == [1]


def test_only_own_names_are_removed(comm, folder, pencil, series, lab):
    others = ["checkpoint-1.h5", "checkpoint-000000001.h5", "u.h5", name(1) + ".bak", "checkpoint"]
    checkpoints = series(folder, keep=1)

    def litter():
        for other in others:
            (folder / other).write_bytes(b"x")

    lab.on_root(litter)
    save_steps(checkpoints, pencil, 1, 2)
    checkpoints.close()
    assert sorted(lab.on_root(os.listdir, folder)) == sorted([*others, name(2)])
    comm.barrier()


def test_nothing_is_removed_unless_what_was_written_verifies(
    folder, pencil, series, monkeypatch, lab
):
    checkpoints = series(folder, keep=1)
    save_steps(checkpoints, pencil, 1)
    module = import_module("pencils.io.checkpoint_series")
    save = module.save

    def save_badly(path, *args, **rest):
        save(path, *args, **rest)
        lab.on_root(flip, path)

    with monkeypatch.context() as patch:
        patch.setattr(module, "save", save_badly)
        kind, text = lab.raised(save_steps, checkpoints, pencil, 2)
    assert kind is CheckpointError
    assert "the checksum of 'u' does not match" in text
    assert checkpoints.steps == [1, 2]
    assert checkpoints.latest() == folder / name(1)
    assert list(checkpoints.skipped) == [name(2)]
    save_steps(checkpoints, pencil, 2)
    assert checkpoints.steps == [2]


def test_a_failed_write_leaves_the_series_as_it_was(folder, pencil, series, monkeypatch, lab):
    checkpoints = series(folder, keep=1)
    save_steps(checkpoints, pencil, 1)

    with monkeypatch.context() as patch:
        patch.setattr("pencils.io.writers.commit", failing(OSError("no space left on device")))
        assert lab.raised(save_steps, checkpoints, pencil, 2)[0] is OSError
    assert checkpoints.steps == [1]
    save_steps(checkpoints, pencil, 2)
    assert checkpoints.steps == [2]


def test_what_cannot_be_removed_is_told_and_does_no_harm(
    folder, pencil, series, monkeypatch, caplog
):
    checkpoints = series(folder, keep=1)
    save_steps(checkpoints, pencil, 1)
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.unlink", failing(PermissionError("no permission")))
        save_steps(checkpoints, pencil, 2)
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    everyone = pencil.comm.allgather(told)
    assert everyone[0] == ["cannot remove an old checkpoint: no permission"]
    assert not any(everyone[1:])
    assert checkpoints.steps == [1, 2]
    save_steps(checkpoints, pencil, 3)
    assert checkpoints.steps == [3]


def test_what_a_dead_save_of_another_step_left_is_removed(folder, pencil, series, lab):
    checkpoints = series(folder)

    def litter():
        long_ago = (folder / f".{name(7)}.00000000-1-{'a' * 12}.tmp", 0.0)
        long_ago[0].write_bytes(b"x")
        os.utime(long_ago[0], (0, 0))
        (folder / f".{name(8)}.00000000-1-{'a' * 12}.tmp").write_bytes(b"x")

    lab.on_root(litter)
    save_steps(checkpoints, pencil, 9)
    checkpoints.close()
    left = lab.on_root(os.listdir, folder)
    assert sorted(left) == [f".{name(8)}.00000000-1-{'a' * 12}.tmp", name(9)]


class Output:
    """Records what it was asked to drop."""

    def __init__(self):
        self.ends = []

    def truncate(self, time):
        self.ends.append(time)


def test_the_newest_that_is_whole_is_taken(folder, pencil, series, lab, caplog):
    save_steps(series(folder), pencil, 10, 20, 30)
    lab.on_root(flip, folder / name(30))
    lab.on_root(truncate, folder / name(20))
    checkpoints, output = series(folder), Output()
    assert checkpoints.latest() == folder / name(10)
    reasons = checkpoints.skipped
    assert list(reasons) == [name(30), name(20)]
    assert "the checksum of 'u' does not match" in reasons[name(30)]
    assert "damaged" in reasons[name(20)]
    assert len(set(lab.comm.allgather(str(reasons)))) == 1
    told = [record.getMessage() for record in caplog.records if record.name == "pencils"]
    if pencil.rank == 0:
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
        assert f"{folder / name(30)} is skipped: " in told[0]
        assert f"{folder / name(10)} is taken: step 10, written 2" in told[2]
    else:
        assert told == []
    assert checkpoints.steps == [10, 20, 30]
    found = checkpoints.resume(pencil.with_(decomp=2), outputs=[output])
    assert (found.step, found["dt"], output.ends) == (10, 1.0, [5.0])
    assert lab.everywhere((found["u"].local == 10).all())
    assert found["u"].pencil.decomp == (2,)
    assert list(checkpoints.skipped) == list(reasons)
    checkpoints.close()
    left = [name(10), *(name(step) + ".abandoned" for step in (20, 30))]
    assert sorted(lab.on_root(os.listdir, folder)) == left
    save_steps(checkpoints, pencil, 20)
    assert checkpoints.steps == [10, 20]
    assert checkpoints.latest() == folder / name(20)
    assert checkpoints.skipped == {}


def test_a_checkpoint_of_a_time_that_no_date_can_have(folder, pencil, series, monkeypatch):
    """Rank 0 alone logs when it was written."""
    save_steps(series(folder), pencil, 1)
    monkeypatch.setattr("pencils.io.checkpoint_series.datetime", None)
    assert series(folder).resume(pencil).step == 1


def test_nothing_to_go_on_from(folder, pencil, series):
    checkpoints, output = series(folder), Output()
    assert checkpoints.resume(pencil, outputs=[output]) is None
    assert checkpoints.latest() is None
    assert (checkpoints.skipped, output.ends) == ({}, [-np.inf])


def test_without_checkpoints_outputs_begin_anew(folder, pencil, lab, caplog):
    def series(folder):
        return pencils.CheckpointSeries(folder, signals=(), comm=pencil.comm)

    path = folder.with_name("out.h5")
    attrs, checkpoints = {"run": 7, "u": {"units": "m"}}, series(folder)

    def look(path):
        with h5py.File(path) as file:
            return file["u"][:, 0, 0, 0].tolist(), file.attrs["run"], file["u"].attrs["units"]

    for run in range(3):
        with pencils.TimeSeries(path, comm=pencil.comm, attrs=attrs) as output:
            assert checkpoints.resume(pencil, outputs=[output]) is None
            assert len(output) == 0
        with pencils.TimeSeries(path, comm=pencil.comm, attrs=attrs) as output:
            for time in (0.0, 1.0):
                output.append(time, {"u": pencils.full(pencil, 10 * run + time)})
    names = [f"{path.name}{end}" for end in (".abandoned", ".abandoned-2", "")]
    for run, name_ in enumerate(names):
        wanted = [10 * run, 10 * run + 1], 7, "m"
        assert lab.on_root(look, path.with_name(name_)) == wanted
    told = [record.getMessage() for record in caplog.records]
    said = [f"{path} is set aside as {name_}" for name_ in names[:2]]
    assert told == (said if pencil.rank == 0 else [])
    checkpoints.save(1, state(pencil, 1), time=0.5)
    with pencils.TimeSeries(path, comm=pencil.comm) as output:
        checkpoints.resume(pencil, outputs=[output])
        assert output.times.tolist() == [0.0]
    assert len(lab.on_root(os.listdir, path.parent)) == 4


def test_an_output_that_is_closed_is_told_before_anything_changes(
    mpi_tmp_path, folder, pencil, series, lab
):
    checkpoints = series(folder)
    save_steps(checkpoints, pencil, 1, 2)
    with pencils.TimeSeries(mpi_tmp_path / "out.h5", comm=pencil.comm) as output:
        pass
    lab.refuses(ArgumentError, "closed", checkpoints.resume, pencil, step=1, outputs=[output])
    assert checkpoints.steps == [1, 2]


def test_what_does_not_fit_is_told_and_stays(folder, pencil, series, lab):
    checkpoints, u = series(folder), pencils.ones(pencil)
    checkpoints.save(1, {"u": u, "v": u})
    checkpoints.save(2, {"u": u})
    lab.refuses(CheckpointError, "'v'", checkpoints.resume, {"u": u, "v": u})
    assert lab.raised(checkpoints.resume, {"u": u.astype("f4")})[0] is CheckpointError
    assert checkpoints.steps == [1, 2]
    lab.on_root(truncate, folder / name(2))
    assert checkpoints.resume({"u": u, "v": u}).step == 1


def test_a_disk_that_fails_for_a_while_is_no_damage(folder, pencil, series, monkeypatch, lab):
    save_steps(series(folder), pencil, 1, 2)
    checkpoints = series(folder)
    really = os.open

    def fail(path, *args, **rest):
        if pencil.rank == pencil.size - 1 and str(path).endswith(name(2)):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return really(path, *args, **rest)

    with monkeypatch.context() as patch:
        patch.setattr("pencils.comm.file.os.open", fail)
        for call in (checkpoints.latest, lambda: checkpoints.resume(pencil)):
            lab.refuses(OSError, "Input/output error", call)
    with monkeypatch.context() as patch:
        patch.setattr("pencils.io.file_access.os.open", fail)
        if pencil.size == 1:
            assert lab.raised(checkpoints.resume, pencil)[0] is OSError
    assert checkpoints.steps == [1, 2]
    assert checkpoints.resume(pencil).step == 2


def test_damage_to_what_is_compressed_is_passed_over(folder, pencil, series, lab):
    checkpoints, u = series(folder), pencils.random.normal(pencil, rng=1)
    for step in (1, 2):
        checkpoints.save(step, {"u": u}, compression="gzip")

    def flip_chunk():
        with h5py.File(folder / name(2)) as file:
            at = file["u"].id.get_chunk_info(0).byte_offset + 3
        with (folder / name(2)).open("r+b") as raw:
            raw.seek(at)
            raw.write(b"\xff" * 4)

    lab.on_root(flip_chunk)
    assert checkpoints.resume(pencil).step == 1
    assert list(checkpoints.skipped) == [name(2)]


def test_if_no_checkpoint_is_good_it_says_so(folder, pencil, series, lab):
    save_steps(series(folder), pencil, 1, 2)
    for step in (1, 2):
        lab.on_root(flip, folder / name(step))
    checkpoints = series(folder)
    assert checkpoints.latest() is None
    kind, text = lab.raised(checkpoints.resume, pencil)
    assert kind is CheckpointError
    assert all(f"\n{name(step)}: " in text for step in (1, 2))
    assert checkpoints.steps == [1, 2]
    lab.refuses(CheckpointError, "no checkpoint of step 3", checkpoints.resume, pencil, step=3)


def test_going_back_sets_later_ones_aside_and_loses_none(folder, pencil, series, lab):
    checkpoints = series(folder)
    save_steps(checkpoints, pencil, 1, 2, 3)
    for _ in range(2):
        u = pencils.zeros(pencil, components=2)
        state = checkpoints.resume(into={"u": u}, names=iter(["u"]), step=1)
        assert list(state) == ["u"]
        assert lab.everywhere((u.local == 1).all())
        assert checkpoints.steps == [1]
        save_steps(checkpoints, pencil, 2)
    checkpoints.close()
    aside = [f"{name(2)}.abandoned", f"{name(2)}.abandoned-2", f"{name(3)}.abandoned"]
    assert sorted(lab.on_root(os.listdir, folder)) == sorted([name(1), name(2), *aside])
    assert lab.on_root(lambda: h5py.File(folder / aside[1])["u"][0, 0, 0, 0]) == 2


def test_outputs_need_the_time(folder, pencil, series, lab):
    checkpoints, output = series(folder), Output()
    for step in (1, 2):
        checkpoints.save(step, state(pencil, step))
    resume = checkpoints.resume
    lab.refuses(
        ArgumentError, "save checkpoints with time=", resume, pencil, step=1, outputs=[output]
    )
    assert (checkpoints.steps, output.ends) == ([1, 2], [])
    assert checkpoints.resume(pencil, step=1).time is None
    for bad in (output, 3, [3], [None], "x"):
        assert lab.raised(checkpoints.resume, pencil, outputs=bad)[0] is TypeError


def test_checkpoints_of_another_run_are_not_touched(folder, pencil, series, lab):
    save_steps(series(folder), pencil, 10, 20)
    before = lab.on_root(lambda: [(folder / name(step)).read_bytes() for step in (10, 20)])
    checkpoints = series(folder, keep=1)
    text = "the last of step 20. Continue them with resume()"
    for step in (5, 20, 30):
        lab.refuses(ArgumentError, text, save_steps, checkpoints, pencil, step)
    after = lab.on_root(lambda: [(folder / name(step)).read_bytes() for step in (10, 20)])
    assert after == before
    assert checkpoints.resume(pencil).step == 20
    save_steps(checkpoints, pencil, 30)
    assert checkpoints.steps == [30]


def test_two_runs_in_one_directory_are_told(folder, pencil, series, lab):
    one, other = series(folder), series(folder)
    save_steps(one, pencil, 1)
    assert lab.raised(save_steps, other, pencil, 1)[0] is BlockingIOError
    one.close()
    assert lab.raised(save_steps, other, pencil, 1)[0] is ArgumentError
    other.resume(pencil)
    save_steps(other, pencil, 2)
    other.close()
    lab.refuses(ArgumentError, "another run", save_steps, one, pencil, 3)


def test_what_was_set_aside_and_written_again_by_another_run_is_not_of_this_one(
    folder, pencil, series, lab
):
    one, other = series(folder), series(folder)
    save_steps(one, pencil, 1, 2)
    one.resume(pencil, step=1)
    one.close()
    other.resume(pencil)
    save_steps(other, pencil, 2)
    other.close()
    lab.refuses(ArgumentError, "another run, the last of step 2", save_steps, one, pencil, 3)
    assert one.steps == [1, 2]


def test_steps_only_grow(folder, pencil, series, lab):
    checkpoints = series(folder)
    save_steps(checkpoints, pencil, 1, 3, 3)
    text = "step=2 is before the last checkpoint, step 3,"
    lab.refuses(ArgumentError, text, save_steps, checkpoints, pencil, 2)
    assert checkpoints.steps == [1, 3]


def test_due_by_steps_is_local(comm, folder, series):
    checkpoints = series(folder, every=4)
    if comm.rank == 0:
        assert [step for step in range(1, 13) if checkpoints.due(step)] == [4, 8, 12]
    never = series(folder)
    if comm.rank == 0:
        assert not any(map(never.due, range(10)))
        for one in (checkpoints, never):
            for bad in ("x", None, 1.5):
                with pytest.raises(TypeError, match="step"):
                    one.due(bad)


@pytest.fixture
def clock(comm, monkeypatch):
    """Give each rank a clock of its own: the last one runs ahead; returns how to turn them."""
    now = [100.0 * comm.rank]
    monkeypatch.setattr("pencils.io.checkpoint_series.monotonic", lambda: now[0])

    def turn(seconds):
        now[0] += seconds + (comm.rank == comm.size - 1)

    return turn


def test_due_by_the_clock_is_the_same_on_all_ranks(comm, folder, pencil, series, clock):
    checkpoints = series(folder, every=timedelta(seconds=10))
    saved = []
    for step in range(1, 13):
        clock(2)
        due = checkpoints.due(step)
        assert len(set(comm.allgather(due))) == 1
        if due:
            save_steps(checkpoints, pencil, step)
            saved.append(step)
    assert saved == [4, 8, 12]


def test_the_time_is_up_at_the_same_step_on_all_ranks(comm, folder, series, clock, caplog):
    for limit in (30, timedelta(seconds=30)):
        checkpoints = series(folder, stop_after=limit)
        steps = 1
        while not checkpoints.should_stop():
            clock(2)
            steps += 1
        assert comm.allgather(steps) == [11] * comm.size
        assert checkpoints.should_stop()
    if comm.rank == 0:
        assert "stop of the run requested: stop_after" in caplog.text


def test_a_part_of_the_processes(comm, mpi_tmp_path, series, lab):
    part = comm.Split(comm.rank % 2, -comm.rank)
    with pencils.CheckpointSeries(mpi_tmp_path / f"run-{comm.rank % 2}", keep=2, comm=part) as own:
        pencil = pencils.Pencil(SHAPE, part)
        save_steps(own, pencil, *range(comm.rank % 2 + 3))
        assert not own.should_stop()
        assert own.latest() == own.directory / name(comm.rank % 2 + 2)
        assert own.resume(pencil).step == comm.rank % 2 + 2
        part.barrier()
    for stranger in (pencils.Pencil(SHAPE, comm), pencils.Pencil(SHAPE, MPI.COMM_SELF)):
        if stranger.size != part.size:
            for call in (own.resume, lambda pencil: save_steps(own, pencil, 9)):
                with pytest.raises(PencilMismatchError, match="other processes"):
                    call(stranger)
    comm.barrier()
    whole = series(mpi_tmp_path / "run-0")
    assert whole.resume(pencils.Pencil(SHAPE, comm)).step == 2
    assert lab.raised(whole.save, 3, {"dt": 0.1})[0] is ArgumentError
    assert lab.raised(whole.resume)[0] is ArgumentError
    part.Free()


def test_arguments_that_cannot_be(mpi_tmp_path, folder, pencil, series, lab):
    for bad in ({"keep": 0}, {"every": 0}, {"every": timedelta()}, {"stop_after": float("nan")}):
        assert lab.raised(series, folder, **bad)[0] is ArgumentError
    for bad in ({"keep": 1.5}, {"keep": True}, {"every": 2.5}):
        assert lab.raised(series, folder, **bad)[0] is TypeError
    for bad in ({"stop_after": "1h"}, {"stop_after": True}):
        assert lab.raised(series, folder, **bad)[0] is TypeError
    for bad in (3, None, ""):
        assert issubclass(lab.raised(series, bad)[0], TypeError | ValueError)
    assert lab.on_root(os.listdir, mpi_tmp_path) == []
    checkpoints = series(folder)
    u = pencils.ones(pencil)
    assert lab.raised(checkpoints.save, -1, {"u": u})[0] is ArgumentError
    for bad in ("x", 1.5, None, True):
        assert lab.raised(checkpoints.save, bad, {"u": u})[0] is TypeError
    for bad in (u, None, "x"):
        assert lab.raised(checkpoints.save, 1, bad)[0] is TypeError
    assert lab.raised(checkpoints.save, 1, {})[0] is ArgumentError
    assert lab.on_root(os.listdir, folder) == []


def test_a_place_for_the_directory(mpi_tmp_path, pencil, series, lab, monkeypatch):
    text = "none is not a directory; create it first"
    lab.refuses(FileNotFoundError, text, series, mpi_tmp_path / "none" / "run")
    lab.on_root((mpi_tmp_path / "file").write_bytes, b"")
    assert lab.raised(series, mpi_tmp_path / "file")[0] is NotADirectoryError
    monkeypatch.chdir(mpi_tmp_path)
    checkpoints = series("run")
    monkeypatch.chdir("/")
    save_steps(checkpoints, pencil, 1)
    assert checkpoints.directory == mpi_tmp_path / "run"
    assert checkpoints.steps == [1]
    lab.on_root(checkpoints.latest().unlink)
    lab.on_root(shutil.rmtree, mpi_tmp_path / "run")
    for call in (checkpoints.latest, lambda: save_steps(checkpoints, pencil, 2)):
        assert lab.raised(call)[0] is FileNotFoundError


def test_in_a_loop_no_communicators_pile_up(folder, pencil, series):
    checkpoints = series(folder)
    save_steps(checkpoints, pencil, 1)
    before = pencil.topology.communicators
    save_steps(checkpoints, pencil, 2, 3, 4)
    checkpoints.resume(pencil)
    assert pencil.topology.communicators == before


def test_a_save_in_the_background_is_verified_later(folder, pencil, series, lab):
    u = pencils.ones(pencil)
    with series(folder, keep=1) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, {"u": u}, wait=False)
            u += 1
            assert checkpoints.steps == ([step - 1] if step > 1 else [])
        checkpoints.wait()
        checkpoints.wait()
        assert checkpoints.steps == [3]
        checkpoints.save(4, {"u": u}, wait=False)
        assert checkpoints.latest() == folder / name(4)
        checkpoints.save(5, {"u": u}, wait=False)
        assert checkpoints.resume(pencil).step == 5
        checkpoints.save(6, {"u": u}, wait=False)
    assert checkpoints.steps == [6]
    assert lab.everywhere((pencils.load(folder / name(6), pencil)["u"].local == 4).all())
    assert lab.on_root(os.listdir, folder) == [name(6)]


def test_what_goes_wrong_in_the_background_is_told_later(folder, pencil, series, monkeypatch, lab):
    checkpoints = series(folder, keep=1)
    save_steps(checkpoints, pencil, 1)

    for call in (checkpoints.wait, checkpoints.close, lambda: save_steps(checkpoints, pencil, 3)):
        checkpoints.save(2, state(pencil, 2), wait=False)
        with monkeypatch.context() as patch:
            patch.setattr("pencils.io.writers.commit", failing(OSError("no space left on device")))
            assert lab.raised(call)[0] is OSError
        assert checkpoints.steps == [1]
    save_steps(checkpoints, pencil, 2)
    assert checkpoints.steps == [2]


def test_an_error_in_the_run_gives_up_a_save_in_the_background(comm, folder, pencil, series, lab):
    def run():
        with series(folder) as checkpoints:
            save_steps(checkpoints, pencil, 1)
            checkpoints.save(2, state(pencil, 2), wait=False)
            msg = "the flow has blown up"
            raise RuntimeError(msg)

    assert lab.raised(run)[0] is RuntimeError
    comm.barrier()
    assert lab.on_root(os.listdir, folder) == [name(1)]
