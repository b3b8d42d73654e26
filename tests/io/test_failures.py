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
from pencils.io import reading, writers

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


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
    fields, none = {"u": pencils.ones(pencil)}, mpi_tmp_path / "none"
    for path, kind, text in [
        (none / "b.h5", FileNotFoundError, "none is not a directory; create it first"),
        (old / "b.h5", NotADirectoryError, ""),
        (mpi_tmp_path, IsADirectoryError, "choose another name"),
        ("/dev/null", OSError, ""),
        (mpi_tmp_path / ("x" * 300), OSError, "too long"),
    ]:
        lab.refuses(kind, text, pencils.save, path, fields)
    assert lab.on_root(os.path.exists, "/dev/null")


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
        lab.refuses(ArgumentError, "cannot be the name of a field", call)


def test_names_in_series_that_cannot_be(mpi_tmp_path, pencil, lab):
    bad, text = {"../u": pencils.ones(pencil)}, "cannot be the name of a field"
    with pencils.TimeSeries(mpi_tmp_path / "a.h5", comm=pencil.comm) as series:
        lab.refuses(ArgumentError, text, series.append, 0, bad)


MASKED = np.ma.masked_array([1.0, 2.0], [True, False])
# Options of `save`, or more fields: a number stands for a field of ones.
REFUSED = [
    ({}, {"u.": 1, "u/b/c": 1}, ArgumentError, "'u' is a field, so it cannot be the group of"),
    *(({"attrs": {"x": bad}}, {}, TypeError, "attrs['x']") for bad in (None, 2**70, object())),
    *(({"attrs": {"x": bad}}, {}, TypeError, "attrs['x']") for bad in (np.zeros(20_000), "a\0b")),
    ({"attrs": {"x": {"a": 1}}}, {}, ArgumentError, "'x'"),
    ({"attrs": {"pencils_x": 1}}, {}, ArgumentError, ""),
    ({"attrs": {1: 1}}, {}, TypeError, ""),
    ({"attrs": [1]}, {}, TypeError, ""),
    ({}, {"v": "U3"}, TypeError, "convert the field with astype"),
    ({}, {"v": "M8[s]"}, TypeError, "convert the field with astype"),
    ({"step": 2**63}, {}, ArgumentError, ""),
    ({"align": 2**64}, {}, ArgumentError, ""),
    ({}, {"v": MASKED}, TypeError, "mask"),
]


def test_what_cannot_be_saved(pencil, old, lab):
    u = pencils.ones(pencil)
    lab.refuses(TypeError, "attrs['x']", pencils.save, old, {"u": u}, attrs={"x": u})
    for options, more, kind, text in REFUSED:
        fields = dict(more)
        for name, value in more.items():
            if isinstance(value, str):
                fields[name] = pencils.zeros(pencil, dtype=value)
            elif isinstance(value, int):
                fields[name] = u
        lab.refuses(kind, text, pencils.save, old, {"u": u, **fields}, **options)


def test_fields_of_different_communicators(comm, pencil, old, lab):
    alone = pencils.Pencil((6, 5, 4), MPI.COMM_SELF)
    other = comm.Split(0, -comm.rank)
    turned = pencils.Pencil((6, 5, 4), other)
    for stranger in (alone, turned) if comm.size > 1 else ():
        for names in ("uv", "vu"):
            fields = dict(zip(names, (pencils.ones(pencil), pencils.ones(stranger)), strict=True))
            lab.refuses(PencilMismatchError, "different processes", pencils.save, old, fields)
    other.Free()


@pytest.mark.parallel([2, 3, 4, 6])
def test_values_differ_between_ranks(comm, old, lab):
    kind, text = lab.raised(pencils.save, old, {"u": np.full(2, comm.rank)})
    assert kind is RankDisagreementError
    assert "fields['u'], which is not a PencilArray" in text


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
        call, rank = where  # the last one that has points
        fail_at(patch, lab.comm, call, rank and min(lab.comm.size, pencil.shape[0]) - 1)
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
    bad, cut = mpi_tmp_path / "bad.h5", mpi_tmp_path / "cut.h5"
    lab.on_root(bad.write_bytes, b"not HDF5")
    lab.on_root(lambda: cut.write_bytes(old.read_bytes()[:-8]) and None)
    for path, kind, text in [
        (mpi_tmp_path / "none.h5", FileNotFoundError, "check the path"),
        (mpi_tmp_path, IsADirectoryError, ""),
        (old / "x", NotADirectoryError, ""),
        (bad, CheckpointError, "is not an HDF5 file"),
        (cut, CheckpointError, "damaged"),
    ]:
        lab.refuses(kind, text, pencils.load, path, pencil)
    lab.on_root(lambda: (bad.unlink(), cut.unlink()))


def test_fields_that_do_not_fit(comm, pencil, old, lab):
    text = "no dataset named 'w'; it holds u"
    lab.refuses(CheckpointError, text, pencils.load, old, pencil, ["u", "w"])
    for shape in ((6, 5), (6, 5, 3), (2, 6, 5, 4)):
        other = pencils.Pencil(shape, comm)
        lab.refuses(CheckpointError, ["'u'", "(6, 5, 4)"], pencils.load, old, other)
    assert lab.raised(pencils.load, old, pencil, "")[0] is ArgumentError


def test_components_do_not_turn_into_space(comm, path, pencil, lab):
    pencils.save(path, {"u": pencils.ones(pencil, components=2)})
    lab.refuses(
        CheckpointError,
        "load it onto one with 3 dimensions",
        pencils.load,
        path,
        pencils.Pencil((2, 6, 5, 4), comm),
    )


@pytest.mark.parametrize("fails", ["read_points", "prepared_one"])
def test_one_rank_fails_to_read_what_all_exchange(comm, path, monkeypatch, fails, lab):
    """The first field before the agreement, if its plan is kept, and later ones after it."""
    monkeypatch.setattr("pencils.io.direct._MOST_READ", 0)
    pencil = pencils.Pencil((6, 5), comm, decomp=1)
    fields = {name: pencils.random.normal(pencil, seed) for seed, name in enumerate("uvw")}
    pencils.save(path, fields)
    place, at = reading, 0
    if fails == "prepared_one":
        place = pencils.Transposition
    call = getattr(place, fails)

    def failing(*args, **kwargs):
        nonlocal at
        at += 1
        if comm.rank == comm.size - 1 and at == last:
            raise MemoryError
        return call(*args, **kwargs)

    for last in (1, 2, 3, 0):
        at = 0
        with monkeypatch.context() as patch:
            patch.setattr(place, fails, failing)
            if last and (fails == "read_points" or comm.size > 1):
                assert lab.raised(pencils.load, path, fields)[0] is MemoryError
        found = pencils.load(path, fields)
        for name, u in fields.items():
            assert lab.everywhere(np.array_equal(found[name].local, u.local))


def test_a_newer_format(path, pencil, lab):
    pencils.save(path, {"u": pencils.ones(pencil)})
    lab.look(path, lambda file: file.attrs.update({"pencils_format": 99}), "r+")
    lab.refuses(CheckpointError, "Install a newer pencils", pencils.load, path, pencil)


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
    lab.refuses(CheckpointError, "replaced or changed", pencils.load, path, pencil)
    assert pencils.load(path, pencil)["u"].sum() == 120
