"""Parts of stored fields, read and written where they lie, as NumPy indexes them."""

import gc
import os
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from damage import failing

import pencils
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError
from pencils.io import describe

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)
KEYS = [
    np.s_[...],
    np.s_[:, 2],
    np.s_[..., ::2],
    np.s_[:, ::3, 1::2, 4],
    np.s_[1, 5:1:-2],
    np.s_[0, 3:4],
    np.s_[:, ::-1, ::-1, ::-1],
    np.s_[1:, 2:6, 1:5, 1:2],
    np.s_[0, 0, 0],
    np.s_[:, 3:3],
]


@pytest.fixture
def stored(comm, mpi_tmp_path, lab):
    """Save a field of two components; the file and the global array."""
    array = lab.numbers((2, *SHAPE))
    path = mpi_tmp_path / "a.h5"
    pencil = pencils.Pencil(SHAPE, comm)
    fields = {"u": pencils.partition(pencil, array), "v": pencils.ones(pencil, dtype="f4")}
    pencils.save(path, fields, step=3, time=0.5, attrs={"run": "a"})
    return path, array


def test_what_an_open_file_says(stored):
    path, _ = stored
    with pencils.open(path) as file:
        assert list(file) == ["u", "v"]
        assert (file["u"].shape, file["v"].dtype) == ((2, *SHAPE), np.float32)
        assert (file.step, file.time, file.attrs) == (3, 0.5, {"run": "a"})
        assert repr(file) == f"<OpenFile {path}\n  u: (2, 7, 6, 5) float64\n  v: (7, 6, 5) float32>"
        with pytest.raises(KeyError, match="no field 'w'; it has u, v"):
            file["w"]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_reading_a_selection(stored, key, lab):
    path, array = stored
    wanted = array[key]
    with pencils.open(path) as file:
        for ndim in range(1, min(wanted.ndim, 3) + 1):
            shape = wanted.shape[wanted.ndim - ndim :]
            for pencil in lab.some_pencils(shape, 2, seed=ndim):
                found = file["u"].read(pencil, key, halo=1)
                assert lab.holds(found, wanted)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_writing_a_selection(stored, key, lab):
    path, array = stored
    seed = 0
    for ndim in range(1, min(array[key].ndim, 3) + 1):
        for pencil in lab.some_pencils(array[key].shape[array[key].ndim - ndim :], 2, seed=ndim):
            seed += 1
            new = np.random.default_rng(seed).normal(size=array[key].shape)
            array[key] = new
            with pencils.open(path, "r+") as file:
                file["u"].write(pencils.partition(pencil, new), key)
            assert np.array_equal(lab.stored(path)["u"], array)
            assert pencils.verify(path) == ["u", "v"]


def test_several_writes_before_the_file_is_closed(stored, comm, lab):
    path, array = stored
    pencil = pencils.Pencil(SHAPE, comm, decomp=(1, 2))
    with pencils.open(path, "r+") as file:
        file["u"].write(pencils.ones(pencil), 0)
        file["u"].write(pencils.zeros(pencil.with_(shape=(7, 6, 2))), np.s_[0, :, :, :2])
        assert file["u"].read(pencil, 0).sum() == 7 * 6 * 3
        assert lab.raised(pencils.verify, path)[0] is CheckpointError
    array[0], array[0, :, :, :2] = 1, 0
    assert np.array_equal(lab.stored(path)["u"], array)
    assert pencils.verify(path) == ["u", "v"]


def test_without_checksums(comm, path):
    pencil = pencils.Pencil(SHAPE, comm)
    pencils.save(path, {"u": pencils.ones(pencil)}, checksum=False)
    with pencils.open(path, "r+") as file:
        file["u"].write(pencils.zeros(pencil))
    assert pencils.load(path, pencil)["u"].sum() == 0


def test_fields_of_other_tools(comm, mpi_tmp_path, lab):
    array, path = lab.numbers((8, 9)), mpi_tmp_path / "a.h5"
    options = {"data": array, "chunks": (3, 4), "compression": "gzip"}
    lab.look(path, lambda file: file.create_dataset("z", **options) and None, "w")
    pencil = pencils.Pencil((4, 3), comm, decomp=1)
    with pencils.open(path, "r+") as file:
        assert lab.holds(file["z"].read(pencil, np.s_[::2, ::3]), array[::2, ::3])
        lab.refuses(
            CheckpointError,
            "chunked or compressed",
            file["z"].write,
            pencils.ones(pencil),
            np.s_[::2, ::3],
        )


def test_mistakes(stored, comm, lab):
    path, _ = stored
    pencil = pencils.Pencil(SHAPE, comm)
    u = pencils.ones(pencil, components=2)
    rank = comm.size - 1

    def wrong(good, bad):
        return bad if comm.rank == rank else good

    with pencils.open(path, "r+") as file:
        raised = lab.raised
        write, read = file["u"].write, file["u"].read
        assert raised(write, wrong(u, None))[0] is TypeError
        assert raised(write, wrong(u, u.astype("f4")))[0] is TypeError
        assert raised(write, wrong(u, pencils.ones(pencil)))[0] is ArgumentError
        assert raised(write, u, wrong(..., 99))[0] is IndexError
        assert raised(read, wrong(pencil, None))[0] is TypeError
        assert raised(read, pencil, wrong(..., 99))[0] is IndexError
        assert raised(read, pencil, np.s_[:, ::2])[0] is CheckpointError
        if comm.size > 1:
            assert raised(read, pencil, wrong(0, 1))[0] is pencils.errors.RankDisagreementError
            alone = pencils.ones(pencils.Pencil(SHAPE, comm.Split(comm.rank)), components=2)
            assert raised(write, alone)[0] is PencilMismatchError
    assert pencils.verify(path) == ["u", "v"]
    with pencils.open(path) as file:
        assert "not open for writing" in lab.raised(file["u"].write, u)[1]
    for bad in ("w", None, 3):
        assert lab.raised(pencils.open, path, wrong("r", bad))[0] is ArgumentError
    assert lab.raised(pencils.open, path.with_name("none.h5"))[0] is FileNotFoundError


def test_text_shorter_than_its_type(comm, path, lab):
    pencils.save(path, {"u": pencils.full(pencils.Pencil((8,), comm), b"abc", dtype="S3")})
    with pencils.open(path, "r+") as file:
        half = pencils.full(pencils.Pencil((4,), comm), b"z", dtype="S3")
        file["u"].write(half, np.s_[::2])
    assert lab.stored(path)["u"].tolist() == [b"z", b"abc"] * 4
    assert pencils.verify(path) == ["u"]


def test_a_file_that_is_replaced_while_it_is_open(stored, comm, lab):
    path, _ = stored
    pencil = pencils.Pencil(SHAPE, comm)
    u = pencils.ones(pencil, components=2)
    for mode in ("r", "r+"):
        pencils.save(path, {"u": u})
        file = pencils.open(path, mode)
        if mode == "r+":
            file["u"].write(pencils.zeros(pencil, components=2))
        for _ in range(2):  # the second could get the number of the first, if that were free
            pencils.save(path.with_name("new.h5"), {"u": u})
            lab.on_root(path.with_name("new.h5").replace, path)
        lab.refuses(CheckpointError, "replaced", file["u"].read, pencil)
        if mode == "r+":
            for _ in range(2):
                assert lab.raised(file.close)[0] is CheckpointError
        assert pencils.verify(path) == ["u"]


@pytest.mark.parametrize("call", ["load", "verify", "open", "pack"])
def test_a_file_that_is_replaced_while_it_is_looked_into(stored, comm, lab, monkeypatch, call):
    path, array = stored
    pencil = pencils.Pencil(SHAPE, comm)
    compression = "gzip" if call == "pack" else None
    u = pencils.partition(pencil, array)
    pencils.save(path, {"u": u, "v": u}, compression=compression)
    new = path.with_name("new.h5")
    pencils.save(new, {"u": pencils.ones(pencil, components=2)}, compression=compression)

    def late(look):
        def call(*args, **kwargs):
            found = look(*args, **kwargs)
            new.replace(path)
            return found

        return call

    for name in ("describe", "describe_fields", "describe_summed"):
        monkeypatch.setattr(describe, name, late(getattr(describe, name)))
    calls = {"load": pencils.load, "verify": pencils.verify, "open": pencils.open}
    arguments = (path, pencil) if call == "load" else (path,)
    lab.refuses(CheckpointError, "was replaced", calls.get(call, pencils.verify), *arguments)


def test_closing_changes_only_what_was_written(stored, lab):
    path, _ = stored
    before = lab.on_root(lambda: path.stat().st_mtime_ns)
    with pencils.open(path, "r+"):
        pass
    assert lab.on_root(lambda: path.stat().st_mtime_ns) == before


def test_closing_again_after_a_failure(stored, comm, lab, monkeypatch):
    path, _ = stored
    file = pencils.open(path, "r+")
    file["u"].write(pencils.ones(pencils.Pencil(SHAPE, comm), components=2))

    with monkeypatch.context() as patch:
        patch.setattr("pencils.io.create.note_complete", failing(OSError("no answer")))
        assert lab.raised(file.close)[0] is OSError
    assert lab.raised(pencils.verify, path)[0] is CheckpointError
    file.close()
    file.close()
    assert pencils.verify(path) == ["u", "v"]


@pytest.mark.mpiexec("counts the open files of one process")
def test_after_an_error_the_file_is_let_go(stored):
    path, _ = stored

    def descriptors():
        gc.collect()
        links = (os.path.realpath(link) for link in Path("/proc/self/fd").iterdir())
        return sum(link == os.path.realpath(path) for link in links)

    def stumble():
        with pencils.open(path, "r+"):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        stumble()
    assert descriptors() == 0


def test_one_rank_without_memory(comm, path, lab, monkeypatch):
    u = pencils.ones(pencils.Pencil((max(8, comm.size), 4), comm, decomp=0), halo=1)
    pencils.save(path, {"u": u})
    pairs = [("load", "checksum"), ("direct", "sum_box"), ("open_file", "checksum")]

    with pencils.open(path, "r+") as file, monkeypatch.context() as patch:
        if comm.rank == comm.size - 1:
            for module, name in pairs:
                patch.setattr(sys.modules[f"pencils.io.{module}"], name, failing(MemoryError))
        calls = (
            lambda: pencils.load(path, names="u", into=u),
            lambda: pencils.verify(path),
            lambda: file["u"].write(u),
        )
        for call in calls:
            assert lab.raised(call)[0] is MemoryError


def test_what_no_field_can_hold_is_passed_over(path, lab):
    datasets = {"u": np.ones((4, 6)), "names": ["a", "b"], "nothing": h5py.Empty("f8")}
    lab.look(path, lambda file: file.update(datasets), "w")
    with pencils.open(path) as file:
        assert list(file) == ["u"]
