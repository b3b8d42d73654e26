"""Data that lie in other files than the one that is read: refused, unless asked for."""

import os

import h5py
import numpy as np
import pytest

import pencils
from pencils.errors import ArgumentError, CheckpointError
from pencils.io.show import read_plane

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


def view(file, source):
    layout = h5py.VirtualLayout(SHAPE, float)
    layout[...] = h5py.VirtualSource(*source, SHAPE)
    file.create_virtual_dataset("u", layout)


def link(file, _):
    file["u"] = h5py.ExternalLink("other.h5", "u")


def links(file, *names_and_targets):
    for name, target in names_and_targets:
        kind = h5py.SoftLink if isinstance(target, str) else lambda pair: h5py.ExternalLink(*pair)
        file[name] = kind(target)


def storage(file, folder, name="u"):
    place = [(str(folder / "raw"), 0, DATA.nbytes)]
    file.create_dataset(name, SHAPE, float, external=place)


def view_of_storage(file, folder):
    storage(file, folder, "s")
    view(file, (".", "s"))


def turning(file, _):
    away = ("b/away", ("other.h5", "/group"))
    links(file, away, ("b/c", "away"), ("u", "/b/./c/u"))


WAYS = {
    "link": link,
    "soft": lambda file, _: links(file, ("away", ("other.h5", "/")), ("u", "away/group/u")),
    "turning": turning,
    "storage": storage,
    "view": lambda file, folder: view(file, (folder / "other.h5", "u")),
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
    lab.refuses(CheckpointError, "external=True", pencils.open, path, comm=pencil.comm)
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
    lab.refuses(CheckpointError, "external=True", pencils.verify, path, pencil.comm)
    lab.refuses(
        CheckpointError, "the checksum of", pencils.verify, path, pencil.comm, external=True
    )


def test_no_other_file_is_touched(make, pencil, lab):
    """Not even opened: it may be one that never answers."""
    for way in (link, WAYS["view"]):
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
        lab.refuses(CheckpointError, repr(name), pencils.load, path, pencil, name)


def show(file, name, *sources):
    """Make a virtual dataset that shows datasets, each in a file, as a whole."""
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.VIRTUAL)
    space = h5py.h5s.create_simple(SHAPE)
    for other, source in sources:
        layout.set_virtual(space, str(other).encode(), source.encode(), space)
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_DOUBLE, space, dcpl=layout)


def by_links(file, folder):
    (folder / "soft.h5").symlink_to("a.h5")
    file["v"] = h5py.SoftLink("/u")
    show(file, "u", ("soft.h5", "v"))


def by_second_names(file, folder):
    (folder / "hard.h5").hardlink_to(folder / "a.h5")
    show(file, "u", ("hard.h5", "w"))
    file["w"] = file["u"]


def over_datasets(file, _):
    file["plain"] = DATA
    for name, *sources in [("u", "plain", "v"), ("v", "w"), ("w", "u")]:
        show(file, name, *((".", source) for source in sources))


def over_files(file, folder):
    show(file, "u", ("b.h5", "v"))
    with h5py.File(folder / "b.h5", "w") as other:
        other["away"] = h5py.ExternalLink("a.h5", "u")
        show(other, "v", (".", "away"))


def into_a_cycle(file, folder):
    show(file, "u", ("b.h5", "v"))
    with h5py.File(folder / "b.h5", "w") as other:
        show(other, "v", (".", "v"))


def of_many(file, _, steps=13, times=10):
    """Show 9 million million sets of the same points."""
    file["v0"] = DATA
    for number in range(steps):
        show(file, f"v{number + 1}", *[(".", f"v{number}")] * times)
    file["u"] = h5py.SoftLink(f"v{steps}")


def by_numbers(file, _):
    """Show at each time the dataset of that number; the second one shows these."""
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.VIRTUAL)
    most = (h5py.h5s.UNLIMITED, SHAPE[1])
    here, there = h5py.h5s.create_simple((0, SHAPE[1]), most), h5py.h5s.create_simple(SHAPE)
    here.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), SHAPE, SHAPE)
    layout.set_virtual(here, b".", b"part%b", there)
    h5py.h5d.create(file.id, b"u", h5py.h5t.NATIVE_DOUBLE, here, dcpl=layout)
    file["part0"] = DATA
    show(file, "part1", (".", "u"))


CYCLES = {
    "itself": lambda file, _: show(file, "u", (".", "u")),
    "by path": lambda file, folder: show(file, "u", (folder / "." / "a.h5", "u")),
    "by name in folder": lambda file, _: show(file, "u", ("a.h5", "u")),
    "by its name elsewhere": lambda file, _: show(file, "u", ("/none/a.h5", "u")),
    "over many steps": lambda file, _: of_many(file, _, 17, 1),
}
CYCLES |= {way.__name__: way for way in (by_links, by_second_names, over_datasets, over_files)}
CYCLES |= {way.__name__: way for way in (into_a_cycle, of_many, by_numbers)}


@pytest.mark.parametrize("way", CYCLES)
def test_what_shows_itself(make, pencil, lab, way):
    """HDF5 ends the process, or never ends to read."""
    if way == "over_files" and h5py.version.hdf5_version_tuple < (2, 0, 0):
        pytest.skip("by an external link, this HDF5 opens no file that is open")
    path = make(CYCLES[way])
    for external in (True, False):
        for call in (
            lambda **k: pencils.load(path, pencil, "u", **k),
            lambda **k: pencils.load(path, pencil, **k),
            lambda **k: pencils.open(path, comm=pencil.comm, **k),
        ):
            kind, text = lab.raised(call, external=external)
            assert kind is CheckpointError
            assert "refers to itself, or to others" in text or (
                "external=True" in text and not external
            )
    if lab.comm.rank == 0:
        with pytest.raises((CheckpointError, ArgumentError)):
            read_plane(str(path), "u", None, None, None)


def test_what_does_not_show_itself(make, pencil, lab):
    """Views of views, over files, several of the same dataset, of nothing, and by numbers."""

    def views(file, folder):
        with h5py.File(folder / "b.h5", "w") as other:
            show(other, "u", ("other.h5", "u"))
            show(other, "v", (".", "u"), (".", "u"))
        show(file, "u", ("b.h5", "v"), (folder / "b.h5", "u"))
        show(file, "v", (".", "u"))
        show(file, "none", ("none.h5", "u"), ("b.h5", "none"))

    path = make(views)
    found = pencils.load(path, pencil, external=True)
    assert lab.holds_all(found, {"u": DATA, "v": DATA, "none": 0 * DATA})

    def numbered(file, folder):
        by_numbers(file, folder)
        del file["part1"]
        show(file, "part1", ("other.h5", "u"))

    whole = pencils.Pencil((12, 5), pencil.comm)
    found = pencils.load(make(numbered), whole, "u", external=True)
    assert lab.holds(found["u"], np.concatenate([DATA, DATA]))
