"""Data that lie in other files than the one that is read: refused, unless asked for."""

import os

import h5py
import numpy as np
import pytest

import pencils
from pencils.errors import CheckpointError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (6, 5)
DATA = np.arange(30.0).reshape(SHAPE)


@pytest.fixture
def pencil(comm):
    return pencils.Pencil(SHAPE, comm)


@pytest.fixture
def make(mpi_tmp_path, lab):
    """Make a file beside ``other.h5`` and ``raw``: ``make(function of the open file)``."""

    def run(function):
        DATA.tofile(mpi_tmp_path / "raw")
        with h5py.File(mpi_tmp_path / "other.h5", "w") as file:
            file["u"] = file["group/u"] = DATA
        with h5py.File(mpi_tmp_path / "a.h5", "w") as file:
            function(file, mpi_tmp_path)

    def call(function):
        lab.on_root(run, function)
        return mpi_tmp_path / "a.h5"

    return call


def link(file, _):
    file["u"] = h5py.ExternalLink("other.h5", "u")


def soft(file, _):
    file["away"] = h5py.ExternalLink("other.h5", "/")
    file["u"] = h5py.SoftLink("away/group/u")


def turning(file, _):
    file["b/away"] = h5py.ExternalLink("other.h5", "/group")
    file["b/c"] = h5py.SoftLink("away")
    file["u"] = h5py.SoftLink("/b/./c/u")


def storage(file, folder):
    file.create_dataset("u", SHAPE, float, external=[(str(folder / "raw"), 0, DATA.nbytes)])


def view(file, folder, source="u"):
    layout = h5py.VirtualLayout(SHAPE, float)
    layout[...] = h5py.VirtualSource(folder / "other.h5", source, SHAPE)
    file.create_virtual_dataset("u", layout)


def view_of_storage(file, folder):
    file.create_dataset("s", SHAPE, float, external=[(str(folder / "raw"), 0, DATA.nbytes)])
    layout = h5py.VirtualLayout(SHAPE, float)
    layout[...] = h5py.VirtualSource(".", "s", SHAPE)
    file.create_virtual_dataset("u", layout)


WAYS = {
    "link": link,
    "soft": soft,
    "turning": turning,
    "storage": storage,
    "view": view,
    "view of storage": view_of_storage,
}


@pytest.mark.parametrize("way", WAYS)
def test_only_on_request(make, pencil, lab, way):
    path = make(WAYS[way])
    for names in ("u", None):
        kind, text = lab.raised(pencils.load, path, pencil, names)
        assert kind is CheckpointError
        assert "another file" in text or "other.h5" in text
        assert "external=True" in text
        assert str(path) in text
    kind, text = lab.raised(pencils.open, path, comm=pencil.comm)
    assert kind is CheckpointError
    assert "external=True" in text
    found = pencils.load(path, pencil, "u", external=True)
    assert lab.holds(found["u"], DATA)
    with pencils.open(path, comm=pencil.comm, external=True) as file:
        name = "u" if "u" in file else min(file)  # HDF5 lists no soft links
        assert lab.holds(file[name].read(pencil), DATA)


def test_a_link_is_followed_when_everything_is_loaded(make, pencil, lab):
    """It was left out, without a word."""
    path = make(link)
    found = pencils.load(path, pencil, external=True)
    assert list(found) == ["u"]
    assert lab.holds(found["u"], DATA)

    def group(file, _):
        file["away"] = h5py.ExternalLink("other.h5", "group")

    found = pencils.load(make(group), pencil, external=True)
    assert list(found) == ["away/u"]


def test_other_names_can_be_loaded(make, pencil, lab):
    def both(file, folder):
        link(file, folder)
        file["v"] = DATA

    path = make(both)
    assert lab.holds(pencils.load(path, pencil, "v")["v"], DATA)
    assert "'u'" in lab.raised(pencils.load, path, pencil)[1]


def test_sums_of_other_files_are_not_compared(make, pencil, lab):
    def summed(file, folder):
        storage(file, folder)
        file["u"].attrs["pencils_checksum"] = np.uint64(1)

    path = make(summed)
    kind, text = lab.raised(pencils.verify, path, pencil.comm)
    assert kind is CheckpointError
    assert "external=True" in text
    kind, text = lab.raised(pencils.verify, path, pencil.comm, external=True)
    assert kind is CheckpointError
    assert "by the checksum" in text


def test_no_other_file_is_touched(make, pencil, lab):
    """Not even opened: it may be one that never answers."""
    for way in (link, view):
        path = make(way)

        other = path.with_name("other.h5")
        lab.on_root(other.unlink)
        lab.on_root(os.mkfifo, other)
        for names in ("u", None):
            assert lab.raised(pencils.load, path, pencil, names)[0] is CheckpointError
        lab.on_root(other.unlink)


def test_views_of_the_same_file(make, pencil, lab):
    def same(file, _):
        file["v"] = DATA
        file["link"] = h5py.SoftLink("/v")
        layout = h5py.VirtualLayout(SHAPE, float)
        layout[:3] = h5py.VirtualSource(".", "v", SHAPE)[:3]
        layout[3:] = h5py.VirtualSource(".", "link", SHAPE)[3:]
        file.create_virtual_dataset("u", layout)

    path = make(same)
    for name in ("u", "link", "v"):
        assert lab.holds(pencils.load(path, pencil, name)[name], DATA)


def test_links_that_lead_nowhere(make, pencil, lab):
    def round_about(file, _):
        file["u"] = h5py.SoftLink("/v")
        file["v"] = h5py.SoftLink("/u")
        file["w"] = h5py.SoftLink("/missing")
        file["same"] = file["/"]
        file["x"] = h5py.SoftLink("same/" * 10_000 + "u")

    path = make(round_about)
    for name in ("u", "w", "w/x", "x"):
        kind, text = lab.raised(pencils.load, path, pencil, name)
        assert kind is CheckpointError
        assert repr(name) in text


def test_the_index_of_a_series_refers_to_its_snapshots_only(mpi_tmp_path, pencil, lab):
    u = pencils.ones(pencil)
    with pencils.TimeSeries(mpi_tmp_path / "s", comm=pencil.comm, storage="files") as series:
        series.append(0, {"u": u})
    assert pencils.load(series.path, {"u": pencil})["u"].sum() == 30

    def forge():
        with h5py.File(mpi_tmp_path / "s" / "forged.h5", "w") as file:
            file.attrs["pencils_series"] = 1
            view(file, mpi_tmp_path)

    lab.on_root(forge)
    kind, text = lab.raised(pencils.load, mpi_tmp_path / "s" / "forged.h5", pencil)
    assert kind is CheckpointError
    assert "external=True" in text
