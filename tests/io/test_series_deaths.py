"""A series whose process dies at a call that changes a file: what was there stays, and goes on."""

import contextlib
import itertools
import os

import h5py
import numpy as np
import pytest
from mpi4py import MPI

import pencils

COMM = MPI.COMM_SELF
CALLS = ["pwrite", "pwritev", "fsync", "ftruncate", "truncate", "replace", "rename", "unlink"]
pytestmark = pytest.mark.thorough

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


def work(path, states, mode="a"):
    """Do all that can be done with a series, and say what is there after every step."""
    u = pencils.ones(pencils.Pencil((4, 6), COMM))

    def append(series, time):
        series.append(time, {"u": u * time, "n": time})
        states.append(series.times.tolist())

    def truncate(series, time):
        series.truncate(time)
        states.append(series.times.tolist())

    with pencils.TimeSeries(path, mode, comm=COMM) as series:
        for time in (0, 1, 2):
            append(series, time)
        truncate(series, 1)
        append(series, 5)
    with pencils.TimeSeries(path, comm=COMM) as series:
        append(series, 9)
        truncate(series, -1)
        append(series, 3)


def look(shown):
    """Look at all snapshots: their times."""
    if not shown.exists():
        return []
    pencils.verify(shown, COMM)
    found = pencils.load(shown, pencils.Pencil((4, 6), COMM))
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
    u = pencils.full(pencils.Pencil((4, 6), COMM), 99.0)
    with pencils.TimeSeries(path, comm=COMM) as series:
        assert series.times.tolist() == times
        series.append(99, {"u": u, "n": 99})
    assert look(path) == look_plain(path) == [*times, 99]


@pytest.mark.parametrize("torn", [False, True])
def test_death_at_any_call(tmp_path, monkeypatch, torn):
    every = [[]]
    work(tmp_path / "whole", every)
    for last in itertools.count(1 + 3 * torn, STRIDE):
        path = tmp_path / f"{last}"
        mortal, states = Mortal(last, torn=torn), [[]]
        with monkeypatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, mortal.wrap(getattr(os, name)))
            with contextlib.suppress(Death):
                work(path, states)
        times = look(path)
        assert times in every[len(states) - 1 :][:2], last
        go_on(path, times)
        if not mortal.dead:
            assert last > 3 * STRIDE
            return


# The temporary of a dead process is removed by the next one, not by itself.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_death_while_a_series_is_replaced(tmp_path, monkeypatch):
    old, every = [7, 8, 9], [[]]
    work(tmp_path / "whole", every, "w")
    for last in itertools.count(1, STRIDE):
        path = tmp_path / f"{last}"
        with pencils.TimeSeries(path, comm=COMM) as series:
            for time in old:
                u = pencils.full(pencils.Pencil((4, 6), COMM), time)
                series.append(time, {"u": u, "n": time})
        mortal, states = Mortal(last, torn=False), [old]
        with monkeypatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, mortal.wrap(getattr(os, name)))
            with contextlib.suppress(Death):
                work(path, states, "w")
        assert look(path) in [old, *every[1:]][len(states) - 1 :][:2], last
        if not mortal.dead:
            assert last > 3 * STRIDE
            return
