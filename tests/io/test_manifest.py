"""What a file holds is listed outside HDF5: what is lost, changed or not a file is told apart."""

import os
import shutil
import socket
import struct
import subprocess

import h5py
import numpy as np
import pytest

import pencils
from pencils.errors import CheckpointError
from pencils.io import manifest
from pencils.io.manifest import END_FIELD, check_manifest

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (6, 5)


@pytest.fixture
def pencil(comm):
    return pencils.Pencil(SHAPE, comm)


@pytest.fixture
def path(mpi_tmp_path, pencil):
    path = mpi_tmp_path / "a.h5"
    u = pencils.random.normal(pencil, 1)
    pencils.save(path, {"u": u, "g/v": u + 1, "dt": 0.1, "modes": np.arange(9)}, step=3)
    return path


@pytest.fixture
def change(lab):
    """Change bytes of a file on rank 0: ``change(path, function of a bytearray)``."""

    def call(path, function):
        def run():
            data = bytearray(path.read_bytes())
            data = function(data) or data
            path.write_bytes(data)

        lab.on_root(run)

    return call


def readers(path, pencil):
    """All that reads a file in whole."""
    return {
        "load": lambda **options: pencils.load(path, pencil, **options),
        "load one": lambda **options: pencils.load(path, pencil, "u", **options),
        "verify": lambda **options: pencils.verify(path, pencil.comm, **options),
        "open": lambda **options: pencils.open(path, comm=pencil.comm, **options).close(),
    }


def record(path):
    return check_manifest(str(path))


def raw_extents(path):
    with h5py.File(path) as file:
        return [(file[name].id.get_offset(), file[name].nbytes) for name in ("u", "g/v")]


def test_everything_is_listed_and_summed_up(path, lab):
    """Every byte is in a field or a value with a checksum, or summed up, or one that changes."""

    def look():
        found = record(path)
        with h5py.File(path) as file:
            for name, listed in found.manifest.datasets.items():
                assert listed.shape == file[name].shape
                assert listed.checksum == file[name].attrs["pencils_checksum"]
            data = [(file[name].id.get_offset(), file[name].nbytes) for name in listed_names(found)]
        assert sorted(found.manifest.outside) == sorted([END_FIELD, *data])
        assert found.manifest.size <= found.start

    def listed_names(found):
        assert sorted(found.manifest.datasets) == ["dt", "g/v", "modes", "u"]
        return found.manifest.datasets

    lab.on_root(look)


DAMAGES = {  # where a bit is flipped, or how much is left
    "name of a dataset: HDF5 just lists one less": lambda data, _: data.index(b"modes"),
    "link: of another kind": lambda data, _: data.index(b"modes") - 12,
    "mark of a value": lambda data, _: data.index(b"pencils_value") + 12,
    "manifest": lambda _, found: found.start + 60,
    "header": lambda _, found: found.start + 20,
    "mark": lambda _, found: found.stop - 3,
    "superblock": lambda *_: 81,
    "cut off in the mark": lambda _, found: slice(found.stop - 1),
    "cut off in the header": lambda _, found: slice(found.start + 1),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_told(path, pencil, change, lab, name):
    found = lab.on_root(record, path)

    def damage(data):
        at = DAMAGES[name](data, found)
        if isinstance(at, slice):
            return data[at]
        data[at] ^= 4
        return data

    change(path, damage)
    for call in readers(path, pencil).values():
        lab.refuses(CheckpointError, ["damaged", str(path)], call)


def test_a_record_that_is_missing_is_told(path, pencil, change, lab):
    found = lab.on_root(record, path)
    change(path, lambda data: data[: found.start])
    lab.refuses(CheckpointError, "list of contents", pencils.load, path, pencil)


def edit(path):
    with h5py.File(path, "r+") as file:
        file.attrs["note"] = "mine"
        file["more"] = np.arange(3)


def look_into(path):
    h5py.File(path, "r+").close()


def repack(path):
    subprocess.run(["h5repack", path, path.with_suffix(".new")], check=True)
    path.with_suffix(".new").replace(path)


TOOLS = {"edited": edit, "opened": look_into, "repacked": repack}


@pytest.mark.parametrize("tool", TOOLS)
def test_files_that_other_tools_have_changed(path, pencil, lab, tool):
    if tool == "repacked" and not shutil.which("h5repack"):
        pytest.skip("needs h5repack")
    before = pencils.load(path, pencil)
    lab.on_root(TOOLS[tool], path)
    for call in readers(path, pencil).values():
        kind, text = lab.raised(call)
        assert kind is CheckpointError
        assert "another program" in text
        assert "edited=True" in text
        assert "damaged" not in text
        call(edited=True)
    after = pencils.load(path, pencil, edited=True)
    assert list(after) == list(before)
    assert lab.everywhere(np.array_equal(after["g/v"].local, before["g/v"].local))
    assert after.attrs == ({"note": "mine"} if tool == "edited" else {})


def test_data_are_compared_in_changed_files_too(path, pencil, change, lab):
    (start, _), _ = lab.on_root(raw_extents, path)
    lab.on_root(edit, path)
    change(path, lambda data: data.__setitem__(start + 3, data[start + 3] ^ 1))
    lab.refuses(CheckpointError, "checksum of 'u' does", pencils.load, path, pencil, edited=True)


def test_what_is_appended_behind_a_foreign_file(mpi_tmp_path, pencil, lab):
    path = mpi_tmp_path / "foreign.h5"

    def make():
        with h5py.File(path, "w") as file:
            file["u"] = np.ones(SHAPE)
        with path.open("ab") as file:
            file.write(b"signature of another tool")

    lab.on_root(make)
    lab.refuses(CheckpointError, "edited=True", pencils.load, path, pencil)
    assert pencils.load(path, pencil, edited=True)["u"].sum() == 30


def test_a_series_that_other_tools_have_changed(mpi_tmp_path, pencil, lab):
    path, u = mpi_tmp_path / "a", pencils.ones(pencil)
    options = {"comm": pencil.comm}
    with pencils.TimeSeries(path, **options) as series:
        series.append(0, {"u": u, "n": 1})
        shown = series.path
    lab.on_root(look_into, shown)
    lab.refuses(CheckpointError, "edited=True", pencils.TimeSeries, path, **options)
    with pencils.TimeSeries(path, **options, edited=True) as series:
        series.append(1, {"u": 2 * u, "n": 2})
    with pencils.TimeSeries(path, **options) as series:
        assert series.times.tolist() == [0, 1]
    found = pencils.load(shown, {"u": pencil})
    assert found["u"].sum() == 90
    assert found["n"].tolist() == [1, 2]


def test_a_series_has_a_true_record_after_every_step(mpi_tmp_path, pencil, lab, monkeypatch):
    """However much of it earlier records list, and whatever was cut off."""
    monkeypatch.setattr("pencils.io.manifest._LISTED", 2)
    monkeypatch.setattr("pencils.io.series_file._BATCH_BYTES", 16)
    path, u = mpi_tmp_path / "a.h5", pencils.ones(pencil)
    grid = pencils.localgrid(pencil, (np.arange(6.0), np.arange(5.0)))
    earlier = set()
    for run in range(2):
        with pencils.TimeSeries(path, grid=grid) as series:
            for time in range(20 * run, 20 * run + 20):
                series.append(time, {"u": u, "n": time})
                found = lab.on_root(record, path)
                earlier.add(found.manifest.earlier)
                assert found.manifest.datasets["u"].shape == (len(series), *SHAPE)
                assert len(found.manifest.outside) < 7
            series.truncate(15)
            assert lab.on_root(record, path).manifest.datasets["n"].shape == (len(series),)
    assert len(earlier) > 10
    found = pencils.load(path, {"u": pencil})
    assert found["n"].tolist() == [*range(16)]
    assert pencils.verify(path, pencil.comm) == ["u", "x", "y"]


def test_a_series_that_begins_again_in_freed_space(mpi_tmp_path, pencil, lab):
    path, u = mpi_tmp_path / "a.h5", pencils.ones(pencil)
    for run in range(4):
        with pencils.TimeSeries(path, comm=pencil.comm) as series:
            series.truncate(-1)
            for time in range(5):
                series.append(time, {f"u{run}": u, "n": np.arange(50.0 * run)})
        lab.on_root(record, path)
        assert pencils.verify(path, pencil.comm) == [f"u{run}"]


def test_damage_of_what_earlier_steps_wrote(mpi_tmp_path, pencil, change, lab, monkeypatch):
    monkeypatch.setattr("pencils.io.manifest._LISTED", 2)
    monkeypatch.setattr("pencils.io.series_file._BATCH_BYTES", 16)
    path, u = mpi_tmp_path / "a.h5", pencils.ones(pencil)
    with pencils.TimeSeries(path, comm=pencil.comm) as series:
        for time in range(12):
            series.append(time, {"u": u, "n": time})
    earlier = lab.on_root(record, path).manifest.earlier[0]

    first_times = lab.look(path, lambda file: file["time"].id.get_chunk_info(0).byte_offset)
    for at in (earlier, first_times):
        change(path, lambda data, at=at: data.__setitem__(at + 8, data[at + 8] ^ 1))
        for call in (pencils.TimeSeries, pencils.verify):
            lab.refuses(CheckpointError, "damaged", call, path, comm=pencil.comm)
        change(path, lambda data, at=at: data.__setitem__(at + 8, data[at + 8] ^ 1))
    assert pencils.verify(path, pencil.comm) == ["u"]


def test_a_file_that_is_written_into_keeps_its_record(path, pencil, lab):
    """It grows by a second record, and then no more."""
    sizes = []
    for number in range(5):
        with pencils.open(path, "r+", pencil.comm) as file:
            file["u"].write(pencils.full(pencil, float(number)))
        sizes.append(lab.on_root(lambda: path.stat().st_size))
        assert pencils.verify(path, pencil.comm) == ["dt", "g/v", "modes", "u"]
        assert pencils.load(path, pencil)["u"].max() == number
    assert max(sizes[1:]) - min(sizes[1:]) < 64  # checksums have more or fewer digits

    summed = lab.look(path, lambda file: int(file["u"].attrs["pencils_checksum"]))
    assert summed == lab.on_root(record, path).manifest.datasets["u"].checksum


def test_values_without_checksums_are_covered(mpi_tmp_path, pencil, change, lab):
    path = mpi_tmp_path / "a.h5"
    fields = {"u": pencils.ones(pencil), "modes": np.full(9, 7.25)}
    pencils.save(path, fields, checksum=False)
    change(path, lambda data: data.replace(struct.pack("<d", 7.25), bytes(8), 1))
    lab.refuses(CheckpointError, "damaged", pencils.load, path, pencil)


def test_every_way_to_write_leaves_a_record(mpi_tmp_path, pencil, lab):
    path = mpi_tmp_path / "a.h5"
    u = pencils.random.normal(pencil, 2)
    fields = {"u": u, "e": pencils.zeros(pencil, components=0), "n": 1}
    for options in (
        {},
        {"wait": False},
        {"compression": "gzip"},
        {"chunks": (2, 3)},
        {"align": 4096},
        {"compression": "gzip", "chunks": (2, 2), "align": 64},
        {"halo": True},
    ):
        saving = pencils.save(path, fields, **options)
        if saving:
            saving.wait()
        assert sorted(lab.on_root(record, path).manifest.datasets) == ["e", "n", "u"]
        assert pencils.verify(path, pencil.comm) == ["e", "n", "u"]
        assert lab.everywhere(np.array_equal(pencils.load(path, pencil)["u"].local, u.local))


def test_a_list_of_a_newer_format(path, pencil, lab, monkeypatch):
    monkeypatch.setattr(manifest, "_FORMAT", 0)
    lab.refuses(CheckpointError, "newer pencils", pencils.load, path, pencil)


def special_files(folder):
    os.mkfifo(folder / "fifo.h5")
    os.mkfifo(folder / "fifo.npy")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "socket.h5"))
    (folder / "device.h5").symlink_to("/dev/zero")
    (folder / "folder.h5").mkdir()


def test_what_is_no_file_is_refused_at_once(mpi_tmp_path, pencil, lab):
    lab.on_root(special_files, mpi_tmp_path)
    for name in ("fifo.h5", "socket.h5", "device.h5"):
        path = mpi_tmp_path / name
        calls = readers(path, pencil) | {
            "TimeSeries": lambda path=path: pencils.TimeSeries(path, comm=pencil.comm),
            "not verified": lambda path=path: pencils.load(path, pencil, verify=False),
        }
        for call in calls.values():
            lab.refuses(CheckpointError, ["not a regular file", os.path.realpath(path)], call)
    lab.refuses(IsADirectoryError, (), pencils.load, mpi_tmp_path / "folder.h5", pencil)


def test_a_checkpoint_that_is_no_file_is_skipped(mpi_tmp_path, pencil, lab):
    with pencils.CheckpointSeries(mpi_tmp_path, comm=pencil.comm, signals=()) as checkpoints:
        checkpoints.save(1, {"u": pencils.ones(pencil)})
        lab.on_root(os.mkfifo, checkpoints.directory / "checkpoint-00000002.h5")
        found = checkpoints.resume({"u": pencil})
        assert found.step is None or found.step == 1
        assert list(checkpoints.skipped) == ["checkpoint-00000002.h5"]
