"""A process that dies while it writes into a file: the list of contents stays true."""

import contextlib
import itertools
import os

import numpy as np
import pytest
from mpi4py import MPI

import pencils
from pencils.errors import CheckpointError
from pencils.io.manifest import check_manifest

COMM = MPI.COMM_SELF
PENCIL = pencils.Pencil((4, 6), COMM)
CALLS = ["pwrite", "pwritev", "fsync", "ftruncate", "replace"]


class Death(BaseException):
    """Nothing is done any more."""


def dying(call, state, *, torn):
    """Make a call that fails from the given one on; writing, that one may be done by half."""

    def wrapped(*args):
        state["count"] += 1
        if state["count"] == state["last"] and torn and call is PWRITE:
            call(args[0], args[1][: len(args[1]) // 2], args[2])
        if state["count"] >= state["last"]:
            raise Death
        return call(*args)

    return wrapped


PWRITE = os.pwrite


def write_into(path, number):
    with pencils.open(path, "r+", COMM) as file:
        file["u"].write(pencils.full(PENCIL, float(number)))
        file["v"].write(pencils.full(PENCIL, -float(number)))


def look(path, wanted):
    """Say which of the states the fields are in: the numbers in both, or None if damaged."""
    assert check_manifest(str(path)) is not None  # all but the data is as it was written
    found = pencils.load(path, PENCIL, verify=False)
    u, v = found["u"].local, found["v"].local
    try:
        pencils.verify(path, COMM)
    except CheckpointError as error:
        # new data and old checksums, as long as it was not closed
        return None if "by the checksum" in str(error) else str(error)
    assert np.ptp(u) == np.ptp(v) == 0
    assert u[0, 0] == -v[0, 0]
    assert u[0, 0] in wanted
    return u[0, 0]


@pytest.mark.parametrize("torn", [False, True])
def test_death_at_any_call(tmp_path, monkeypatch, torn):
    path, seen = tmp_path / "a.h5", set()
    for last in itertools.count(1):
        pencils.save(path, {"u": pencils.full(PENCIL, 1.0), "v": pencils.full(PENCIL, -1.0)})
        write_into(path, 2)
        state = {"count": 0, "last": last}
        with monkeypatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, dying(getattr(os, name), state, torn=torn))
            with contextlib.suppress(Death):
                write_into(path, 3)
        found = look(path, {2, 3})
        seen.add(found)
        if found is not None:  # then another process goes on as if nothing had been
            write_into(path, 4)
            assert look(path, {4}) == 4
        if state["count"] < last:
            break
    assert seen == {2, 3, None}
