"""Cases that write and read files, and what may be there after a fault.

A case of `FILES` is a function of a `World` that returns the call, and a function of a folder that
looks at the files as another program does: alone, on one process. It returns a name for what is
there: before the call, some step between, or after it. It raises if anything is damaged.
"""

import shutil

import numpy as np
from cases import CASES, FILES, case, each
from mpi4py import MPI
from world import numbers

import pencils
from pencils import Pencil

OLD, NEW = 5, 6  # tags of the data before and after


def file_case(values):
    """Add a case for each of the values, with a look at its files."""

    def add(function):
        for name, value in values.items():

            def make(w, value=value):
                return function(w, value)[0]

            full = f"{function.__name__} {name}"
            CASES[full] = make
            FILES[full] = lambda w, value=value: function(w, value)
        return function

    return add


def read_alone(path, shape, *, summed):
    """Return the tag of the data of a file, after verifying it."""
    found = pencils.load(path, Pencil(shape, MPI.COMM_SELF))
    for tag in (OLD, NEW):
        if np.array_equal(found["u"].local, numbers(shape, "f8", tag)) and found["n"] == tag:
            if tag == OLD or summed:
                assert "u" in pencils.verify(path, MPI.COMM_SELF)
            return tag
    raise AssertionError(f"wrong data in {path}")


def save_alone(path, shape, tag=OLD, step=None):
    """Write what is there before a call, on one rank."""
    pen = Pencil(shape, MPI.COMM_SELF)
    u = pencils.empty(pen)
    u.local[...] = numbers(shape, "f8", tag)
    pencils.save(path, {"u": u, "n": tag}, step=step)


def check_folder(folder, *names):
    """Check that nothing else is left in a folder."""
    found = sorted(path.name for path in folder.iterdir())
    assert found == sorted(names), f"left in the folder: {found}"


OPTIONS = {
    "plain": {},
    "compressed": {"compression": "gzip"},
    "chunks": {"chunks": (4, 3, 5)},
    "later": {"wait": False},
    "unsummed": {"checksum": False},
}


@file_case(OPTIONS)
def save(w, value):
    path = w.folder / "save.h5"
    u = w.field(halo=1, tag=NEW)
    if w.rank == 0:
        save_alone(path, w.shape)
    w.comm.Barrier()

    def call():
        saving = pencils.save(path, {"u": u, "n": NEW}, **value)
        if saving is not None:
            saving.wait()
        w.holds(pencils.load(path, w.across)["u"], w.expected(u, NEW))

    def look(folder):
        tag = read_alone(folder / "save.h5", w.shape, summed=value.get("checksum", True))
        save_alone(folder / "save.h5", w.shape)
        check_folder(folder, "save.h5")
        return {OLD: "before", NEW: "after"}[tag]

    return call, look


@case
def save_with_grid(w):
    path = w.folder / "grid.h5"
    axes = [np.arange(float(n)) + 0.5 for n in w.shape]
    grid = pencils.localgrid(w.pen, axes)
    fields = {"a/u": w.field(halo=1), "plane": w.field(dims=(0, 1)), "dt": 0.25}

    def call():
        pencils.save(path, fields, grid=grid, step=4, time=0.5, halo=True, align=512)
        found = pencils.load(path, {"a/u": w.across, "plane": w.across}, halo=1)
        assert (found.step, found.time, found["dt"]) == (4, 0.5, 0.25)
        w.holds(found["a/u"], w.data)
        w.holds(found["plane"], w.expected(fields["plane"]))

    return call


@each({name: OPTIONS[name] for name in ("plain", "compressed", "unsummed")})
def load(w, value):
    path = w.folder / "load.h5"
    pencils.save(path, {"u": w.field(dims=(0, 2), components=2), "v": w.field()}, **value)
    into = pencils.zeros(w.across, halo=1)

    def call():
        pen = w.pen.with_(decomp=(0, 1), order=(1, 2, 0))
        found = pencils.load(path, pen)
        w.holds(found["u"], w.expected(found["u"]))
        w.holds(found["v"], w.data)
        pencils.load(path, names="v", into=into)
        w.holds(into, w.data)
        if value.get("checksum", True):
            assert sorted(pencils.verify(path, w.comm)) == ["u", "v"]

    return call


@case
def load_damaged(w):
    path = w.folder / "damaged.h5"
    pencils.save(path, {"u": w.field()})
    if w.rank == 0:
        with path.open("r+b") as file:
            data = file.read()
            place = data.index(w.data[w.shape[0] // 2].tobytes()[:64])
            file.seek(place)
            file.write(b"wrong")
    w.comm.Barrier()

    def call():
        w.raises(pencils.errors.CheckpointError, lambda: pencils.load(path, w.across))
        w.raises(pencils.errors.CheckpointError, lambda: pencils.verify(path, w.comm))

    return call


@case
def load_missing(w):
    return lambda: w.raises(
        FileNotFoundError, lambda: pencils.load(w.folder / "missing.h5", w.across)
    )


@case
def open_and_change(w):
    path = w.folder / "open.h5"
    pencils.save(path, {"u": w.field()})
    changed = w.data.copy()
    changed[1:4] = numbers(changed[1:4].shape, "f8", 3)
    slab = Pencil((3, *w.shape[1:]), w.comm, decomp=1)
    v = pencils.zeros(slab)
    v.local[...] = changed[1:4][v.local_slices]

    opened = []

    def call():
        if opened:  # after an error the file is still open, and the field is damaged
            opened.pop().close()
            pencils.save(path, {"u": w.field()})
        opened.append(pencils.open(path, "r+", comm=w.comm))
        with opened[0] as file:
            file["u"].write(v, key=np.s_[1:4])
        opened.clear()
        with pencils.open(path, comm=w.comm) as file:
            w.holds(file["u"].read(w.across), changed)
        assert pencils.verify(path, w.comm) == ["u"]

    return call


@file_case({"appended": None})
def time_series(w, _value):
    path = w.folder / "series"
    us = {tag: w.field(tag=tag) for tag in (OLD, NEW)}

    def start():
        with pencils.TimeSeries(path, "w", comm=w.comm) as series:
            for time in (0, 1, 2):
                series.append(time, {"u": us[OLD], "n": time})

    start()
    states = [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1], [0, 1, 7]]

    def call():
        start()  # again, after a failure
        with pencils.TimeSeries(path, comm=w.comm) as series:
            series.append(3, {"u": us[NEW], "n": 3})
            series.append(4, {"u": us[NEW], "n": 4})
            series.truncate(1)
            series.append(7, {"u": us[NEW], "n": 7})
            w.equal(series.times, np.array([0.0, 1.0, 7.0]))
        pencils.verify(path, w.comm)
        with pencils.open(path, comm=w.comm) as file:
            w.holds(file["u"].read(w.across, key=2), us_data(NEW))
            w.holds(file["u"].read(w.across, key=0), us_data(OLD))

    def us_data(tag):
        return numbers(w.shape, "f8", tag)

    def look(folder):
        path = folder / "series"
        pencils.verify(path, MPI.COMM_SELF)
        alone = Pencil(w.shape, MPI.COMM_SELF)
        with pencils.open(path, comm=MPI.COMM_SELF) as file:
            times = pencils.load(path, alone, names="time")["time"].tolist()
            for number, time in enumerate(times):
                found = file["u"].read(alone, key=number)
                assert np.array_equal(found.local, us_data(OLD if time < 3 else NEW)), times
        # `call` begins with a new series, whose first snapshot replaces the old one.
        allowed = [*states, [0], [0, 1]]
        assert times in [[float(t) for t in some] for some in allowed], times
        with pencils.TimeSeries(folder / "series", comm=MPI.COMM_SELF) as series:
            u = pencils.empty(alone)
            u.local[...] = us_data(NEW)
            series.append(99, {"u": u, "n": 99})
            assert series.times.tolist() == [*times, 99.0]
        pencils.verify(path, MPI.COMM_SELF)
        return f"times {[int(time) for time in times]}"

    return call, look


@file_case({"plain": {}, "later": {"wait": False}})
def checkpoint_series(w, value):
    steps = w.folder / "steps"
    u = w.field(tag=NEW)
    options = {"keep": 2, "signals": (), "comm": w.comm}

    def start():
        if w.rank == 0:
            shutil.rmtree(steps, ignore_errors=True)
            steps.mkdir()
            save_alone(steps / "checkpoint-00000001.h5", w.shape, step=1)
        w.comm.Barrier()

    start()

    def call():
        with pencils.CheckpointSeries(steps, **options) as series:
            state = series.resume(w.across)
            first = 0 if state is None else state.step
            for step in range(first + 1, first + 3):
                series.save(step, {"u": u, "n": NEW}, **value)
        with pencils.CheckpointSeries(steps, **options) as series:
            state = series.resume(w.across)
            assert state.step == first + 2
            w.holds(state["u"], w.expected(u, NEW))

    def look(folder):
        alone = Pencil(w.shape, MPI.COMM_SELF)
        with pencils.CheckpointSeries(
            folder / "steps", keep=2, signals=(), comm=MPI.COMM_SELF
        ) as series:
            state = series.resume(alone)
            assert state is not None, "no checkpoint is left"
            assert not series.skipped, series.skipped
            tag = OLD if state.step == 1 else NEW
            assert np.array_equal(state["u"].local, numbers(w.shape, "f8", tag))
            series.save(state.step + 1, {"u": state["u"], "n": tag})
        return f"step {state.step}"

    return call, look
