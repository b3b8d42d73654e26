"""Whatever goes wrong: the same error on every rank, the old file intact, nothing left behind."""

import os
import resource

import h5py
import numpy as np
import pytest
from mpi4py import MPI

import pencils
from pencils.comm.file import SharedFile
from pencils.errors import (
    ArgumentError,
    CheckpointError,
    PencilMismatchError,
    RankDisagreementError,
)
from pencils.io import writers

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture
def pencil(comm):
    return pencils.Pencil((6, 5, 4), comm)


@pytest.fixture
def old(mpi_tmp_path, pencil, lab):
    """Make a checkpoint, and check in the end that it is untouched and alone."""
    path = mpi_tmp_path / "a.h5"
    pencils.save(path, {"u": pencils.full(pencil, 7.0)})
    before = lab.on_root(path.read_bytes)
    yield path
    assert lab.on_root(path.read_bytes) == before
    assert lab.on_root(os.listdir, mpi_tmp_path) == ["a.h5"]
    # and the library is fit for another go
    pencils.save(path, {"u": pencils.full(pencil, 8.0)})
    assert pencils.load(path, pencil)["u"].max() == 8


def test_no_place_to_save(mpi_tmp_path, pencil, old, lab):
    fields = {"u": pencils.ones(pencil)}
    kind, text = lab.raised(pencils.save, mpi_tmp_path / "none" / "b.h5", fields)
    assert kind is FileNotFoundError
    assert "none is not a directory; create it first" in text
    kind, text = lab.raised(pencils.save, old / "b.h5", fields)
    assert kind is NotADirectoryError
    kind, text = lab.raised(pencils.save, mpi_tmp_path, fields)
    assert kind is IsADirectoryError
    assert "choose another name" in text
    kind, text = lab.raised(pencils.save, "/dev/null", fields)
    assert kind is OSError
    assert lab.on_root(os.path.exists, "/dev/null")
    kind, text = lab.raised(pencils.save, mpi_tmp_path / ("x" * 300), fields)
    assert kind is OSError
    assert "too long" in text


@pytest.mark.parametrize(
    "name",
    [
        *("", "/", "/u", "u/", "a//b", ".", "./u", "a/./b", "a/.", "..", "../u", "a/../b", "a/.."),
        "n\0",
        "\udc80",
        "a/" * 100 + "u",
    ],
)
def test_names_that_cannot_be(pencil, old, name, lab):
    u = pencils.ones(pencil)
    for call in (
        lambda: pencils.save(old, {name: u}),
        lambda: pencils.save(old, {name: 1, "u": u}),
        lambda: pencils.load(old, pencil, name),
        lambda: pencils.load(old, {name: u}),
        lambda: pencils.load(old, names="u", into={name: u}),
        lambda: pencils.recovery.BuddyCopies().save(1, {name: u}),
    ):
        kind, text = lab.raised(call)
        assert kind is ArgumentError
        assert "cannot be the name of a field" in text


def test_names_in_series_that_cannot_be(mpi_tmp_path, pencil, lab):
    with pencils.TimeSeries(mpi_tmp_path / "a.h5", comm=pencil.comm) as series:
        kind, text = lab.raised(series.append, 0, {"../u": pencils.ones(pencil)})
        assert kind is ArgumentError
        assert "cannot be the name of a field" in text


def test_a_field_that_is_a_group_too(pencil, old, lab):
    u = pencils.ones(pencil)
    kind, text = lab.raised(pencils.save, old, {"a": u, "a.": u, "a/b/c": u})
    assert kind is ArgumentError
    assert "'a' is a field, so it cannot be the group of 'a/b/c'" in text


def test_attributes_that_cannot_be(pencil, old, lab):
    fields = {"u": pencils.ones(pencil)}
    for value in (None, 2**70, object(), np.zeros(20_000), "a\0b", fields["u"]):
        kind, text = lab.raised(pencils.save, old, fields, attrs={"x": value})
        assert kind is TypeError
        assert "attrs['x']" in text
    kind, text = lab.raised(pencils.save, old, fields, attrs={"x": {"a": 1}})
    assert kind is ArgumentError
    assert "'x'" in text
    assert lab.raised(pencils.save, old, fields, attrs={"pencils_x": 1})[0] is ArgumentError
    assert lab.raised(pencils.save, old, fields, attrs={1: 1})[0] is TypeError
    assert lab.raised(pencils.save, old, fields, attrs=[1])[0] is TypeError


def test_dtypes_that_hdf5_lacks(pencil, old, lab):
    for dtype in ("U3", "M8[s]"):
        kind, text = lab.raised(pencils.save, old, {"u": pencils.zeros(pencil, dtype=dtype)})
        assert kind is TypeError
        assert "convert the field with astype" in text


def test_fields_of_different_communicators(comm, pencil, old, lab):
    alone = pencils.Pencil((6, 5, 4), MPI.COMM_SELF)
    other = comm.Split(0, -comm.rank)
    turned = pencils.Pencil((6, 5, 4), other)
    for stranger in (alone, turned) if comm.size > 1 else ():
        for names in ("uv", "vu"):
            fields = dict(zip(names, (pencils.ones(pencil), pencils.ones(stranger)), strict=True))
            kind, text = lab.raised(pencils.save, old, fields)
            assert kind is PencilMismatchError
            assert "different processes" in text
    other.Free()


def wrong(comm, rank, good, bad):
    return bad if comm.rank == rank % comm.size else good


@pytest.mark.parametrize("rank", [0, -1])
def test_a_mistake_on_one_rank(comm, pencil, old, rank, lab):
    u = pencils.ones(pencil)
    good = {"u": u}
    alone = comm.size == 1
    for bad in (None, 3, u, {"u": [1, 2]}, {"u": None}, {1: u}):
        assert lab.raised(pencils.save, old, wrong(comm, rank, good, bad))[0] is TypeError
    assert lab.raised(pencils.save, old, wrong(comm, rank, good, {}))[0] is ArgumentError
    assert lab.raised(pencils.save, wrong(comm, rank, old, 3), good)[0] is TypeError
    assert lab.raised(pencils.save, old, good, attrs=wrong(comm, rank, {}, 3))[0] is TypeError
    assert lab.raised(pencils.load, old, wrong(comm, rank, pencil, "pencil"))[0] is TypeError
    assert lab.raised(pencils.load, wrong(comm, rank, old, None), pencil)[0] is TypeError
    assert lab.raised(pencils.load, old, pencil, wrong(comm, rank, "u", 3))[0] is TypeError
    assert lab.raised(pencils.load, old, pencil, halo=wrong(comm, rank, 0, -1))[0] is ArgumentError
    if not alone:
        for bad in (
            {"v": u},
            {"u": u, "v": u},
            {"u": u.local},
            {"u": u.astype("f4")},
            {"u": pencils.ones(pencil, components=1)},
        ):
            error = lab.raised(pencils.save, old, wrong(comm, rank, good, bad))[0]
            assert error is RankDisagreementError
        error = lab.raised(pencils.save, wrong(comm, rank, old, f"{old}2"), good)[0]
        assert error is RankDisagreementError
        error = lab.raised(pencils.load, old, pencil, wrong(comm, rank, None, "u"))[0]
        assert error is RankDisagreementError


def fail_at(monkeypatch, comm, name, rank):
    """Let one rank make the call and then fail, as a full disk would."""
    original = getattr(SharedFile, name)

    def refuse():
        raise OSError(28, "no space left on device")

    def fail(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if comm.rank == rank % comm.size:
            self.attempt(refuse, name)

    monkeypatch.setattr(SharedFile, name, fail)


@pytest.mark.parametrize(
    "where", [(call, r) for call in ("write", "sync", "close") for r in (0, -1)]
)
def test_a_full_disk_on_one_rank(pencil, old, monkeypatch, where, lab):
    fields = {"u": pencils.ones(pencil), "v": pencils.ones(pencil, components=2)}
    with monkeypatch.context() as patch:
        patch.setattr(SharedFile, "place", lambda _: None)  # as if each were on another node
        fail_at(patch, lab.comm, *where)
        kind, text = lab.raised(pencils.save, old, fields)
    assert kind is OSError
    assert "no space left" in text.lower()


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}])
def test_a_file_that_may_not_grow(comm, old, monkeypatch, lab, options):
    """A failure of the system itself, on whatever rank writes, after the file was laid out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    start = SharedFile.__init__

    def limit(self, *args, **kwargs):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        start(self, *args, **kwargs)

    monkeypatch.setattr(SharedFile, "__init__", limit)
    pencil = pencils.Pencil((64, 64, 8), comm, decomp=(1, 2))
    big = pencils.random.normal(pencil, 1)
    with monkeypatch.context() as patch:
        patch.setattr(SharedFile, "__init__", start)
        first = old.with_name("first.h5")
        pencils.save(first, {"u": big}, **options)  # makes a plan, which needs files in memory
        lab.on_root(first.unlink)
    try:
        error, text = lab.raised(pencils.save, old, {"u": big}, **options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert issubclass(error, OSError)
    assert "File too large" in text
    assert old.name in text
    monkeypatch.undo()


def test_the_rename_fails(pencil, old, monkeypatch, lab):
    def refuse(temporary, target, *_):
        assert temporary.exists()
        msg = f"cannot rename to {target}"
        raise PermissionError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(writers, "commit", refuse)
        error = lab.raised(pencils.save, old, {"u": pencils.ones(pencil)})[0]
    assert error is PermissionError


def test_the_old_file_stays_until_the_new_one_is_whole(comm, pencil, old, monkeypatch, lab):
    seen = []
    before = lab.on_root(old.read_bytes)

    def look(temporary, target, *_):
        with h5py.File(temporary) as file:
            seen.append(file["u"][...].sum())
        seen.append(target.read_bytes() == before)
        msg = "seen enough"
        raise InterruptedError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(writers, "commit", look)
        with pytest.raises(InterruptedError):
            pencils.save(old, {"u": pencils.ones(pencil)})
    assert comm.bcast(seen) == [120.0, True]


def test_files_that_cannot_be_loaded(mpi_tmp_path, pencil, old, lab):
    kind, text = lab.raised(pencils.load, mpi_tmp_path / "none.h5", pencil)
    assert kind is FileNotFoundError
    assert "check the path" in text
    assert lab.raised(pencils.load, mpi_tmp_path, pencil)[0] is IsADirectoryError
    assert lab.raised(pencils.load, old / "x", pencil)[0] is NotADirectoryError
    bad = mpi_tmp_path / "bad.h5"
    lab.on_root(bad.write_bytes, b"not HDF5")
    kind, text = lab.raised(pencils.load, bad, pencil)
    assert kind is CheckpointError
    assert "is not an HDF5 file" in text
    lab.on_root(lambda: bad.write_bytes(old.read_bytes()[:-8]) and None)
    kind, text = lab.raised(pencils.load, bad, pencil)
    assert kind is CheckpointError
    assert "damaged" in text
    lab.on_root(bad.unlink)


def test_fields_that_do_not_fit(comm, pencil, old, lab):
    kind, text = lab.raised(pencils.load, old, pencil, ["u", "w"])
    assert kind is CheckpointError
    assert "no dataset named 'w'; it holds u" in text
    for shape in ((6, 5), (6, 5, 3), (2, 6, 5, 4)):
        kind, text = lab.raised(pencils.load, old, pencils.Pencil(shape, comm))
        assert kind is CheckpointError
        assert "'u'" in text
        assert "(6, 5, 4)" in text
    kind, text = lab.raised(pencils.load, old, pencil, "")
    assert kind is ArgumentError


def test_components_do_not_turn_into_space(comm, mpi_tmp_path, pencil, lab):
    path = mpi_tmp_path / "a.h5"
    pencils.save(path, {"u": pencils.ones(pencil, components=2)})
    kind, text = lab.raised(pencils.load, path, pencils.Pencil((2, 6, 5, 4), comm))
    assert kind is CheckpointError
    assert "load it onto one with 3 dimensions" in text


def test_a_newer_format(mpi_tmp_path, pencil, lab):
    path = mpi_tmp_path / "a.h5"
    pencils.save(path, {"u": pencils.ones(pencil)})

    def age():
        with h5py.File(path, "r+") as file:
            file.attrs["pencils_format"] = 99

    lab.on_root(age)
    kind, text = lab.raised(pencils.load, path, pencil)
    assert kind is CheckpointError
    assert "install a newer pencils" in text


def test_a_file_that_is_replaced_while_it_is_read(comm, mpi_tmp_path, pencil, monkeypatch, lab):
    path, other = mpi_tmp_path / "a.h5", mpi_tmp_path / "b.h5"
    for target in (path, other):
        pencils.save(target, {"u": pencils.ones(pencil)})
    read = SharedFile.read

    def replace(self, *args):
        read(self, *args)
        if comm.rank == 0 and other.exists():
            other.replace(path)

    monkeypatch.setattr(SharedFile, "read", replace)
    kind, text = lab.raised(pencils.load, path, pencil)
    assert kind is CheckpointError
    assert "replaced or changed" in text
    assert pencils.load(path, pencil)["u"].sum() == 120


@pytest.mark.parametrize(
    ("options", "error"),
    [({"step": 2**63}, ArgumentError), ({"align": 2**64}, ArgumentError)],
    ids=["step", "align"],
)
def test_numbers_beyond_64_bits(pencil, old, options, error, lab):
    assert lab.raised(pencils.save, old, {"u": pencils.ones(pencil)}, **options)[0] is error


def test_masks_are_not_lost_without_a_word(pencil, old, lab):
    value = np.ma.masked_array([1.0, 2.0], [True, False])
    kind, text = lab.raised(pencils.save, old, {"u": pencils.ones(pencil), "m": value})
    assert kind is TypeError
    assert "mask" in text
