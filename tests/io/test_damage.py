"""Files that are not what they were are told from good ones; what dead saves left is removed."""

import errno
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
from damage import failing, flip

import pencils
from pencils.errors import CheckpointError
from pencils.io import commit, writers

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture
def path(mpi_tmp_path, pencil):
    path = mpi_tmp_path / "a.h5"
    fields = {
        "u": pencils.random.normal(pencil, 1, components=2),
        "v": pencils.random.normal(pencil, 2).astype("f4"),
        "modes": np.arange(50),
    }
    pencils.save(path, fields)
    return path


def test_a_disk_that_cannot_be_read(comm, mpi_tmp_path, lab, monkeypatch):
    """Not even if zeros were written, which fresh memory may hold, too."""
    path = mpi_tmp_path / "zeros.h5"
    pencil = pencils.Pencil((max(6, comm.size), 5, 4), comm)
    pencils.save(path, {"u": pencils.zeros(pencil)})

    with monkeypatch.context() as patch:
        if comm.rank == comm.size - 1:
            patch.setattr(os, "preadv", failing(OSError(errno.EIO, "Input/output error")))
        for call in (lambda: pencils.verify(path), lambda: pencils.load(path, pencil)):
            lab.refuses(OSError, "cannot read: Input/output error", call)
    assert pencils.verify(path) == ["u"]


def test_a_flipped_bit_in_a_field(path, pencil, lab):
    lab.on_root(flip, path, "v", 17)
    across = pencil.with_(decomp=2)
    for call in (
        lambda: pencils.load(path, pencil),
        lambda: pencils.load(path, across, "v"),
        lambda: pencils.load(path, names="v", into=pencils.zeros(pencil, dtype="f4")),
        lambda: pencils.verify(path),
    ):
        lab.refuses(CheckpointError, f"{path} is damaged: the checksum of 'v' does not match", call)
    assert list(pencils.load(path, pencil, "u")) == ["u"]
    assert list(pencils.load(path, pencil, verify=False)) == ["u", "v", "modes"]


def test_a_flipped_bit_in_a_value(path, pencil, lab):
    lab.on_root(flip, path, "modes", 17)
    lab.on_root(flip, path, "u", 17)
    assert "'modes'" in lab.raised(pencils.load, path, pencil)[1]
    assert "the checksum of 'modes', 'u' does not" in lab.raised(pencils.verify, path)[1]
    assert list(pencils.load(path, pencil, "v")) == ["v"]


def write_plain(path):
    with h5py.File(path, "w") as file:
        file["u"] = np.ones((4, 3))


def test_without_checksums_there_is_nothing_to_verify(path, pencil, lab):
    pencils.save(path, {"u": pencils.ones(pencil), "n": 3}, checksum=False)
    lab.on_root(flip, path, "u", 17)
    assert pencils.load(path, pencil)["u"].sum() != 120
    lab.refuses(
        CheckpointError,
        f"{path} has no checksums to verify",
        pencils.verify,
        path,
    )
    lab.on_root(write_plain, path)
    for edited in (False, True):
        lab.refuses(CheckpointError, "no checksums to verify", pencils.verify, path, edited=edited)


def test_without_fields_the_list_of_contents_is_all(mpi_tmp_path, pencil, lab):
    with pencils.TimeSeries(mpi_tmp_path / "s", comm=pencil.comm) as series:
        assert pencils.verify(series.path) == []
        series.append(0, {"n": 3})
        assert pencils.verify(series.path) == []
        series.truncate(-1)
        series.append(0, {"u": pencils.ones(pencil), "n": 3})
        assert pencils.verify(series.path) == ["u"]
    pencils.save(mpi_tmp_path / "values.h5", {"n": 3, "u": pencils.ones(pencil)}, checksum=False)
    assert lab.raised(pencils.verify, mpi_tmp_path / "values.h5")[0] is CheckpointError


def test_a_file_that_was_packed_by_another_tool(path, pencil, lab):
    packed = path.with_name("packed.h5")

    def pack(change):
        with h5py.File(path) as file, h5py.File(packed, "w") as other:
            other.attrs.update(file.attrs)
            for name in ("u", "v"):
                made = other.create_dataset(name, data=file[name], compression="gzip")
                made.attrs.update(file[name].attrs)
            other["v"][0, 0, 0] += change

    lab.on_root(pack, 0)
    across = pencil.with_(decomp=(0, 2))
    assert list(pencils.load(packed, across, edited=True)) == ["u", "v"]
    assert pencils.verify(packed, edited=True) == ["u", "v"]
    for call in (pencils.verify, pencils.open, lambda path: pencils.load(path, pencil)):
        lab.refuses(
            CheckpointError,
            ["another program changed it", "edited=True"],
            call,
            packed,
        )
    lab.on_root(pack, 1)
    for call in (lambda **k: pencils.load(packed, pencil, **k), partial(pencils.verify, packed)):
        lab.refuses(
            CheckpointError, "damaged: the checksum of 'v' does not match", call, edited=True
        )
    assert list(pencils.load(packed, pencil, verify=False)) == ["u", "v"]


def test_a_truncated_file(path, pencil, lab):
    size = lab.on_root(lambda: path.stat().st_size)
    for left in (size - 1, size // 2, 100, 8, 0):
        lab.on_root(os.truncate, path, left)
        for call in (lambda: pencils.load(path, pencil), lambda: pencils.verify(path)):
            assert lab.raised(call)[0] is CheckpointError


def test_damage_anywhere_in_the_header_is_told_alike_or_harmless(path, pencil, comm, lab):
    whole = lab.on_root(path.read_bytes)
    rng = np.random.default_rng(comm.size)
    places = [8, 9, 20, 40, 96, *(int(at) for at in rng.integers(0, 6000, 40))]
    for at in places:
        bad = bytearray(whole)
        bad[at] ^= 1 << int(rng.integers(8))
        lab.on_root(lambda bad=bad: path.write_bytes(bad) and None)
        faults = []
        for call in (lambda: pencils.load(path, pencil), lambda: pencils.verify(path)):
            try:
                call()
                faults.append(None)
            except (pencils.errors.PencilsError, OSError) as error:
                faults.append(type(error))
        assert len(set(comm.allgather(tuple(faults)))) == 1


def test_a_file_that_is_being_written(path, pencil, lab, monkeypatch):
    """What stands in the temporary, should anybody ever load it, or in a copy of it."""

    def keep(writer, _entries):
        writer.temporary.rename(writer.target.with_name("half.h5"))
        msg = "seen enough"
        raise InterruptedError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(writers.HDF5Writer, "_seal", keep)
        assert lab.raised(pencils.save, path, {"u": pencils.ones(pencil)})[0] is InterruptedError
    half = path.with_name("half.h5")
    for call in (lambda: pencils.load(half, pencil), lambda: pencils.verify(half)):
        lab.refuses(CheckpointError, "is being written, or its writer died", call)


def test_a_file_that_another_program_has_open_for_writing(mpi_tmp_path, pencil, lab, comm):
    """HDF5 marks such files in its newer forms."""
    path = mpi_tmp_path / "b.h5"
    if comm.rank == 0:
        writer = h5py.File(path, "w", libver="latest", locking=False)
        writer["u"] = np.ones((6, 5, 4))
        writer.flush()
        data = path.read_bytes()
        writer.close()
        path.write_bytes(data)
    comm.barrier()
    lab.refuses(CheckpointError, "not written to its end", pencils.load, path, pencil)


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_dead_saves_left_is_removed_and_nothing_else(path, pencil, lab):
    here, away = lab.on_root(commit._machine), "0" * 8
    dead = lab.on_root(dead_pid)
    parent = lab.on_root(os.getppid)
    long_ago = time.time() - 2 * commit._FORGOTTEN
    stale = [f".a.h5.{here}-{dead}-{'a' * 12}.tmp", f".a.h5.{away}-{dead}-{'b' * 12}.tmp"]
    running = [f".a.h5.{here}-{parent}-{'c' * 12}.tmp", f".a.h5.{away}-{dead}-{'d' * 12}.tmp"]
    others = [f".b.h5.{here}-{dead}-{'e' * 12}.tmp", ".a.h5.tmp", "a.h5.bak", f".a.h5.{dead}.tmp"]

    def litter():
        for name in (*stale, *running, *others):
            (path.parent / name).write_bytes(b"x")
        os.utime(path.parent / stale[1], (long_ago, long_ago))

    lab.on_root(litter)
    pencils.save(path, {"u": pencils.ones(pencil)})
    left = lab.on_root(os.listdir, path.parent)
    assert sorted(left) == sorted(["a.h5", *running, *others])


def test_two_saves_of_one_file_at_a_time_do_not_disturb_each_other(path, pencil, monkeypatch):
    begin = writers.HDF5Writer._begin

    def begin_twice(self, target, *args, **kwargs):
        made = begin(self, target, *args, **kwargs)
        commit.clean(Path(target))  # as a save of another process would
        return made

    monkeypatch.setattr(writers.HDF5Writer, "_begin", begin_twice)
    pencils.save(path, {"u": pencils.ones(pencil)})
    assert pencils.load(path, pencil)["u"].sum() == 120


@pytest.mark.parametrize("options", [{"compression": "gzip"}, {"chunks": (5, 5, 5)}], ids=str)
def test_damage_in_a_chunk(path, pencil, lab, options):
    u = pencils.random.normal(pencil, 1)
    pencils.save(path, {"u": u, "v": u}, **options)
    info = lab.look(path, lambda file: [*file["v"].id.get_chunk_info(0)][2:])

    def damage():
        with path.open("r+b") as raw:
            raw.seek(info[0] + info[1] // 2)
            raw.write(b"\xff" * 8)

    lab.on_root(damage)
    for call in (lambda: pencils.load(path, pencil), lambda: pencils.verify(path)):
        lab.refuses(CheckpointError, "'v'", call)
    assert list(pencils.load(path, pencil, "u")) == ["u"]
