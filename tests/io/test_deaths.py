"""A process that dies at a call that changes a file: what was there stays, and goes on."""

import contextlib
import itertools
import os

import h5py
import numpy as np
import pytest
from mpi4py import MPI

import pencils
from pencils.errors import CheckpointError
from pencils.io.manifest import check_manifest

COMM = MPI.COMM_SELF
PENCIL = pencils.Pencil((4, 6), COMM)
CALLS = ["pwrite", "pwritev", "fsync", "ftruncate", "truncate", "replace", "rename", "unlink"]
# Of all the calls at which a process may die, that many from one that is tried to the next.
STRIDE = 11


class Death(BaseException):
    """Nothing is done any more."""


class Mortal:
    """Lets all calls fail from the given one on; writing, that one may be done by half."""

    def __init__(self, last, *, torn):
        self.last, self.torn, self.count = last, torn, 0
        self.pwrite = os.pwrite

    @property
    def dead(self):
        return self.count >= self.last

    def wrap(self, call):
        def wrapped(*args, **kwargs):
            self.count += 1
            if self.count == self.last and self.torn and call is self.pwrite:
                call(args[0], args[1][: len(args[1]) // 2], args[2])
            if self.dead:
                raise Death
            return call(*args, **kwargs)

        return wrapped

    def do(self, monkeypatch, function, *args):
        """Call a function, at most until death; whether it was reached."""
        with monkeypatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self.wrap(getattr(os, name)))
            with contextlib.suppress(Death):
                function(*args)
        return self.dead


def append(series, time, states=None):
    series.append(time, {"u": pencils.full(PENCIL, float(time)), "n": time})
    if states is not None:
        states.append(series.times.tolist())


def work(path, states, mode="a"):
    """Do all that can be done with a series, and say what is there after every step."""

    def truncate(series, time):
        series.truncate(time)
        states.append(series.times.tolist())

    with pencils.TimeSeries(path, mode, comm=COMM) as series:
        for time in (0, 1, 2):
            append(series, time, states)
        truncate(series, 1)
        append(series, 5, states)
    with pencils.TimeSeries(path, comm=COMM) as series:
        append(series, 9, states)
        truncate(series, -1)
        append(series, 3, states)


def look(shown):
    """Look at all snapshots: their times."""
    if not shown.exists():
        return []
    pencils.verify(shown, COMM)
    found = pencils.load(shown, PENCIL)
    if "u" not in found:
        return []
    assert np.array_equal(found["n"], found["time"])
    assert (found["u"].local == found["time"][:, None, None]).all()
    return found["time"].tolist()


def look_plain(shown):
    """Look at all snapshots by plain h5py: their times."""
    with h5py.File(shown) as file:
        times = file["time"][...]
        assert np.array_equal(file["n"], times)
        assert (file["u"][...] == times[:, None, None]).all()
        if len(times) > 1:
            steps = file["VTKHDF/Steps"]
            assert steps.attrs["NSteps"] == len(times)
            assert np.array_equal(steps["Values"], times)
        else:
            assert np.array_equal(file.get("VTKHDF/FieldData/TimeValue", ()), times)
        return times.tolist()


def go_on(path, times):
    with pencils.TimeSeries(path, comm=COMM) as series:
        assert series.times.tolist() == times
        append(series, 99)
    assert look(path) == look_plain(path) == [*times, 99]


@pytest.mark.thorough
@pytest.mark.parametrize("torn", [False, True])
def test_a_series(tmp_path, monkeypatch, torn):
    every = [[]]
    work(tmp_path / "whole", every)
    for last in itertools.count(1 + 3 * torn, STRIDE):
        path, states = tmp_path / f"{last}", [[]]
        died = Mortal(last, torn=torn).do(monkeypatch, work, path, states)
        times = look(path)
        assert times in every[len(states) - 1 :][:2], last
        go_on(path, times)
        if not died:
            assert last > 3 * STRIDE
            return


# The temporary of a dead process is removed by the next one, not by itself.
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_series_that_is_replaced(tmp_path, monkeypatch):
    old, every = [7, 8, 9], [[]]
    work(tmp_path / "whole", every, "w")
    for last in itertools.count(1, STRIDE):
        path, states = tmp_path / f"{last}", [old]
        with pencils.TimeSeries(path, comm=COMM) as series:
            for time in old:
                append(series, time)
        died = Mortal(last, torn=False).do(monkeypatch, work, path, states, "w")
        assert look(path) in [old, *every[1:]][len(states) - 1 :][:2], last
        if not died:
            assert last > 3 * STRIDE
            return


def write_into(path, number):
    with pencils.open(path, "r+", COMM) as file:
        file["u"].write(pencils.full(PENCIL, float(number)))
        file["v"].write(pencils.full(PENCIL, -float(number)))


def state_of(path, wanted):
    """Say which of the states the fields are in: the numbers in both, or None if damaged."""
    assert check_manifest(str(path)) is not None  # all but the data is as it was written
    found = pencils.load(path, PENCIL, verify=False)
    u, v = found["u"].local, found["v"].local
    try:
        pencils.verify(path, COMM)
    except CheckpointError as error:
        # new data and old checksums, as long as it was not closed
        return None if "the checksum of" in str(error) else str(error)
    assert np.ptp(u) == np.ptp(v) == 0
    assert u[0, 0] == -v[0, 0]
    assert u[0, 0] in wanted
    return u[0, 0]


@pytest.mark.parametrize("torn", [False, True])
def test_a_file_that_is_written_into(tmp_path, monkeypatch, torn):
    path, seen = tmp_path / "a.h5", set()
    for last in itertools.count(1):
        pencils.save(path, {"u": pencils.full(PENCIL, 1.0), "v": pencils.full(PENCIL, -1.0)})
        write_into(path, 2)
        died = Mortal(last, torn=torn).do(monkeypatch, write_into, path, 3)
        found = state_of(path, {2, 3})
        seen.add(found)
        if found is not None:  # then another process goes on as if nothing had been
            write_into(path, 4)
            assert state_of(path, {4}) == 4
        if not died:
            break
    assert seen == {2, 3, None}
