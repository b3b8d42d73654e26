"""Which way bytes get into files: what may be asked for, and that all ways lead to one file."""

import h5py
import numpy as np
import pytest

import pencils
from pencils.errors import ArgumentError, RankDisagreementError
from pencils.io import direct, mpio, slabs
from pencils.io.engines import VARIABLE, read_engine

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

WRITES = {"direct": (direct, "write_run")}  # what brings bytes into the file
if h5py.get_config().mpi:  # .ci/run has one that was built with it
    WRITES["mpio"] = (mpio._MpioPart, "_write")


@pytest.fixture
def u(comm):
    return pencils.ones(pencils.Pencil((6, 5, 4), comm))


def without_mpi(monkeypatch):
    class Config:
        mpi = False

    monkeypatch.setattr(h5py, "get_config", Config)


@pytest.mark.parametrize("engine", ["", "posix", "Direct", None, 3, ["direct"]])
def test_engines_that_there_are_not(mpi_tmp_path, u, engine, lab):
    kind, text = lab.raised(pencils.save, mpi_tmp_path / "a.h5", {"u": u}, engine=engine)
    assert kind is ArgumentError
    assert "must be one of 'auto', 'direct', 'mpio'" in text


def test_an_engine_of_the_environment_that_there_is_not(mpi_tmp_path, u, monkeypatch, lab):
    monkeypatch.setenv(VARIABLE, "posix")
    kind, text = lab.raised(pencils.save, mpi_tmp_path / "a.h5", {"u": u})
    assert kind is ArgumentError
    assert "engine='posix'" in text
    assert VARIABLE in text
    pencils.save(mpi_tmp_path / "a.h5", {"u": u}, engine="direct")
    pencils.save(mpi_tmp_path / "a.h5", {"u": u}, wait=False).wait()


def test_an_empty_variable_says_nothing(mpi_tmp_path, u, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    pencils.save(mpi_tmp_path / "a.h5", {"u": u})
    assert pencils.load(mpi_tmp_path / "a.h5", u.pencil)["u"].sum() == 120


def test_h5py_without_mpi(mpi_tmp_path, u, monkeypatch, lab):
    """Even if there is one with MPI on the other ranks."""
    if u.pencil.rank == u.pencil.size - 1 or not h5py.get_config().mpi:
        without_mpi(monkeypatch)
    kind, text = lab.raised(pencils.save, mpi_tmp_path / "a.h5", {"u": u}, engine="mpio")
    assert kind is ArgumentError
    assert "HDF5_MPI=ON pip install" in text


@pytest.mark.parallel([2, 3, 4, 6])
def test_ranks_whose_environments_differ(mpi_tmp_path, u, monkeypatch, lab):
    monkeypatch.setattr("pencils.io.engines._check_mpio", lambda **_: None)
    monkeypatch.setenv(VARIABLE, "mpio" if u.pencil.rank == 0 else "direct")
    kind, text = lab.raised(pencils.save, mpi_tmp_path / "a.h5", {"u": u})
    assert kind is RankDisagreementError
    assert "engine" in text


def test_not_in_the_background(mpi_tmp_path, u, lab):
    call = {"engine": "mpio", "wait": False}
    kind, text = lab.raised(pencils.save, mpi_tmp_path / "a.h5", {"u": u}, **call)
    assert kind is ArgumentError
    assert "use engine='direct' with wait=False" in text


@pytest.mark.parametrize("engine", WRITES)
@pytest.mark.parametrize("checksum", [True, False])
def test_all_make_the_same_file(mpi_tmp_path, engine, checksum, monkeypatch, lab):
    """In pieces of any size, too."""
    cases = {str(number): case for number, case in enumerate(lab.cases((5, 1, 6), 6, seed=4))}
    fields = {name: field for name, (field, _) in cases.items()} | {"modes": np.arange(4)}
    path = mpi_tmp_path / "a.h5"
    pencils.save(path, fields, engine="direct", checksum=checksum, halo=True)
    before = lab.on_root(path.read_bytes)
    for piece in (8, 40, 2**20):
        monkeypatch.setattr(slabs, "PIECE_BYTES", piece)
        monkeypatch.setattr(mpio, "PIECE_BYTES", piece)
        pencils.save(path, fields, engine=engine, checksum=checksum, halo=True)
        assert lab.on_root(path.read_bytes) == before


@pytest.mark.parametrize("engine", WRITES)
def test_a_write_that_fails_on_one_rank(mpi_tmp_path, u, engine, monkeypatch, lab):
    path = mpi_tmp_path / "a.h5"
    pencils.save(path, {"u": u})
    owner, name = WRITES[engine]
    write = getattr(owner, name)

    def fail(*args, **kwargs):
        written = write(*args, **kwargs)
        if u.pencil.rank == u.pencil.size - 1:
            msg = "Can't write data"
            raise OSError(msg)
        return written

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        kind, text = lab.raised(pencils.save, path, {"u": 2 * u}, engine=engine)
    assert kind is OSError
    assert "Can't write data" in text
    assert pencils.load(path, u.pencil)["u"].max() == 1
    assert lab.on_root(lambda: len(list(mpi_tmp_path.iterdir()))) == 1


def test_boxes_are_cut_without_a_rest():
    box = (range(3), range(2, 7), range(4))
    for most in (1, 7, 60, 100):
        parts = list(mpio._cut(box, most))
        found = np.zeros((3, 7, 4), int)
        for part in parts:
            found[np.ix_(*part)] += 1
            assert 0 < np.prod([len(kept) for kept in part]) <= most
        assert np.array_equal(found[:, 2:], np.ones((3, 5, 4)))
        assert not found[:, :2].any()
    assert list(mpio._cut((range(3), range(0)), 5)) == []


def test_the_environment_may_leave_it_open(monkeypatch):
    for said in ("", "auto"):
        monkeypatch.setenv(VARIABLE, said)
        assert read_engine("auto", wait=True) == "direct"
