"""What a manifest tells without HDF5 is what h5py finds; in all other cases h5py is asked."""

import sys
from itertools import product

import h5py
import numpy as np
import pytest
from damage import failing, undo_patches

import pencils
from pencils.errors import CheckpointError
from pencils.io import describe
from pencils.io.file_info import Access
from pencils.io.manifest import check_manifest

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (6, 5)
NAMES = "describe", "describe_fields", "describe_summed"
WRITERS = sys.modules["pencils.io.writers"]

ATTRS = {
    "numbers": {"a": 1, "b": 2.5, "c": 1 - 2j, "d": True, "nan": float("-nan"), "e": 2**63},
    "of numpy": {"f": np.float32(0.1), "g": np.int8(-3), "h": np.bool_(0), "i": np.complex64(1j)},
    "arrays": {"j": np.arange(6).reshape(2, 3), "k": np.array([1.5, -0.0], ">f4"), "l": [1, 2]},
    "scalar array": {"m": np.array(3.0), "n": np.array([True, False])},
    "text": {"o": "Größe", "p": "", "units": np.str_("m")},
    "bytes": {"q": b"bytes", "r": np.bytes_(b"more")},
    "arrays of text": {"s": ["one", "two"], "t": np.array(["x", "yz"])},
    "empty": {"u": np.zeros(0), "v": np.zeros((0, 3))},
    "large": {"w": np.longdouble("0.1"), "x": np.clongdouble(1)},
    "conventions": {"Conventions": "CF-1.11"},
    "sorted by bytes": {"ä": 1, "Z": 2, "a": 3},
}
TOLD = {name: {"arrays of text", "bytes", "empty", "large"}.isdisjoint([name]) for name in ATTRS}


def without_hdf5(patch):
    patch.setattr("pencils.io.hdf5.open_checked", failing(AssertionError("HDF5 was asked")))


def unlisted(patch):
    """Ask h5py for all, as for the files of older versions."""
    patch.setattr(describe, "_look", lambda *args: (*look(*args)[:2], {}))


look = describe._look


def exact(info):
    """Return what is equal only for equal types and bytes; NaN are equal to themselves."""
    attrs = [
        (name, type(value), np.asarray(value).dtype, np.shape(value))
        for name, value in info.attrs.items()
    ]
    arrays = [np.asarray(value) for value in info.attrs.values()]
    attrs += [str(one) if one.dtype.char in "OgG" else one.tobytes() for one in arrays]
    values = [
        (name, one.kind, one.data.dtype, one.data.shape, one.data.tobytes())
        for name, one in info.values.items()
    ]
    writable = [one.data.flags.writeable for one in info.values.values()]
    kinds = [type(number) for number in (info.step, info.time)]
    return info._replace(attrs=attrs, values=values), writable, kinds


def descriptions(path):
    """Describe a file in every way that there is."""
    real, access = str(path.resolve()), Access()
    names = [None, ["u", "u"], *([name] for name in check_manifest(real).manifest.datasets)]
    choices = [*product(names, [None]), (None, ["u"])]
    found = [exact(describe.describe(real, *choice, access)) for choice in choices]
    return [*found, *(exact(getattr(describe, name)(real, access)) for name in NAMES[1:])]


def compare(path, lab, monkeypatch, *, told=True):
    """Compare both ways on rank 0, where the first does or does not do without HDF5."""

    def run():
        assert (check_manifest(str(path)).manifest.about is not None) == told
        with monkeypatch.context() as patch:
            if told:
                without_hdf5(patch)
            mine = descriptions(path)
        with monkeypatch.context() as patch:
            unlisted(patch)
            assert mine == descriptions(path)

    lab.on_root(run)


def contents(pencil):
    u = pencils.random.normal(pencil, 1, halo=1)
    return {
        "u": u,
        "mean": u.mean(axis=1, keepdims=True),
        "g/v": pencils.random.normal(pencil, 2, components=(2, 3)),
        "g-w": pencils.zeros(pencil, dtype="i2"),
        "flags": pencils.zeros(pencil, dtype=bool),
        "empty": pencils.zeros(pencil, components=0),
        "z": pencils.ones(pencil, dtype=">c16"),
        "dt": 0.1,
        "modes": np.arange(9.0).reshape(3, 3),
        "title": "Größe",
        "rng": np.random.default_rng(3),
        "none": np.zeros((0, 2)),
    }


OPTIONS = {
    "plain": {},
    "step and time": {"step": np.int32(3), "time": np.float32(0.1)},
    "halo": {"halo": True},
    "packed": {"compression": "gzip", "chunks": (2, 3)},
    "without checksums": {"checksum": False},
    "background": {"wait": False},
    "aligned": {"align": 4096},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("periodic", [False, (True, False)])
def test_a_manifest_tells_what_hdf5_finds(lab, path, monkeypatch, name, periodic):
    pencil = pencils.Pencil(SHAPE, lab.comm, periodic=periodic)
    grid = pencils.localgrid(pencil, (np.arange(6.0), np.arange(5.0)))
    saving = pencils.save(path, contents(pencil), grid=grid, **OPTIONS[name])
    if saving:
        saving.wait()
    compare(path, lab, monkeypatch)


@pytest.mark.parametrize("name", ATTRS)
def test_attributes_are_as_h5py_returns_them(lab, path, monkeypatch, name):
    u = pencils.ones(pencils.Pencil(SHAPE, lab.comm))
    pencils.save(path, {"u": u, "dt": 1}, attrs=ATTRS[name])
    compare(path, lab, monkeypatch, told=TOLD[name])


def test_arrays_that_the_user_changes_while_they_are_saved(lab, path, monkeypatch):
    u = pencils.ones(pencils.Pencil(SHAPE, lab.comm))
    attrs = {"a": np.arange(3.0)}
    with pencils.save(path, {"u": u, "n": attrs["a"]}, attrs=attrs, wait=False):
        attrs["a"][:] = 7
        lab.comm.barrier()
    found = pencils.load(path, u.pencil)
    assert found.attrs["a"].tolist() == found["n"].tolist() == [0, 1, 2]
    compare(path, lab, monkeypatch)


@pytest.mark.parametrize("kind", ["g", [("a", "f4"), ("b", "i2")]])
def test_types_that_hdf5_has_to_tell(lab, path, monkeypatch, kind):
    u = pencils.zeros(pencils.Pencil(SHAPE, lab.comm), dtype=kind)
    pencils.save(path, {"u": u})
    compare(path, lab, monkeypatch, told=False)


def test_reading_needs_no_hdf5(lab, path, monkeypatch):
    pencil = pencils.Pencil(SHAPE, lab.comm)
    u = pencils.random.normal(pencil, 1)
    pencils.save(path, {"u": u, "dt": 0.1}, step=4)
    without_hdf5(monkeypatch)
    monkeypatch.setattr(h5py, "File", failing(AssertionError("HDF5 was asked")))
    found = pencils.load(path, pencil)
    assert lab.everywhere(np.array_equal(found["u"].local, u.local))
    assert (found["dt"], found.step) == (0.1, 4)
    assert pencils.verify(path, lab.comm) == ["dt", "u"]
    with pencils.open(path, comm=lab.comm) as file:
        assert [*file] == ["u"]


def test_files_of_other_versions(lab, path, monkeypatch):
    """Without the description, and with one that only a newer version can read."""
    pencil = pencils.Pencil(SHAPE, lab.comm)
    for about in (None, {"format": 2, "news": []}):
        monkeypatch.setattr(WRITERS, "tell", lambda *_, about=about: about)
        pencils.save(path, {"u": pencils.ones(pencil), "dt": 2}, attrs={"a": 1}, step=3)
        found = pencils.load(path, pencil)
        assert found["u"].sum() == 30
        assert (found["dt"], found.attrs, found.step) == (2, {"a": 1}, 3)
        assert pencils.verify(path, lab.comm) == ["dt", "u"]


def set_attribute(path):
    with h5py.File(path, "r+") as file:
        file.attrs["flow"] = 7


def set_bytes(path):
    """Change the value in HDF5's part of the file, and leave the manifest."""
    data = path.read_bytes()
    old, new = (np.int64(value).tobytes() for value in (123456789, 7))
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


def test_an_attribute_that_was_changed_by_others_counts(lab, path):
    pencil = pencils.Pencil(SHAPE, lab.comm)

    def make():
        pencils.save(path, {"u": pencils.ones(pencil)}, attrs={"flow": 123456789})
        return pencils.load(path, pencil).attrs

    assert make() == {"flow": 123456789}
    lab.on_root(set_attribute, path)
    lab.refuses(CheckpointError, "another program", pencils.load, path, pencil)
    assert pencils.load(path, pencil, edited=True).attrs == {"flow": 7}
    assert pencils.load(path, pencil, verify=False).attrs == {"flow": 7}
    make()
    lab.on_root(set_bytes, path)
    lab.refuses(CheckpointError, "metadata of HDF5 do not match", pencils.load, path, pencil)
    assert pencils.load(path, pencil, verify=False).attrs == {"flow": 7}


def test_files_that_were_written_into(lab, path, monkeypatch):
    """Values are read with the changes that a process which was killed has not written."""
    pencil = pencils.Pencil(SHAPE, lab.comm)
    pencils.save(path, {"u": pencils.ones(pencil), "dt": 0.5}, attrs={"a": 1.5}, time=2)
    before = lab.on_root(path.read_bytes)
    with pencils.open(path, "r+", lab.comm) as file:
        file["u"].write(pencils.full(pencil, 3.0))
    compare(path, lab, monkeypatch)
    lab.on_root(undo_patches, path, before)
    with monkeypatch.context() as patch:
        without_hdf5(patch)
        found = pencils.load(path, pencil)
    assert found["u"].sum() == 90
    assert (found["dt"], found.time, found.attrs) == (0.5, 2.0, {"a": 1.5})


def test_damaged_values_are_told(lab, path, monkeypatch):
    pencil = pencils.Pencil(SHAPE, lab.comm)
    pencils.save(path, {"u": pencils.ones(pencil), "dt": 1234.5})

    def damage():
        data = path.read_bytes()
        path.write_bytes(data.replace(np.float64(1234.5).tobytes(), bytes(8)))

    lab.on_root(damage)
    without_hdf5(monkeypatch)
    lab.refuses(CheckpointError, "checksum of 'dt' does", pencils.load, path, pencil)


@pytest.mark.parametrize("names", ["w", "VTKHDF/PointData/u"])
def test_names_that_are_not_listed(lab, path, names):
    pencil = pencils.Pencil(SHAPE, lab.comm)
    pencils.save(path, {"u": pencils.ones(pencil), "dt": 1})
    if names == "w":
        lab.refuses(CheckpointError, "it holds dt, u", pencils.load, path, pencil, names)
        lab.refuses(CheckpointError, "no field but a value", pencils.load, path, {"dt": pencil})
    else:
        assert pencils.load(path, pencil, names)[names].sum() == 30
