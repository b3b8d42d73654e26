"""What HDF5 has written for one file serves the next: both have the bytes of a first save."""

import h5py
import numpy as np
import pytest
from damage import failing

import pencils
from pencils.io import create

pytestmark = pytest.mark.parallel([1, 2, 3, 4])

SHAPE = (6, 5)


def make(comm):
    """Return fields on a pencil that has kept nothing."""
    u = pencils.random.normal(pencils.Pencil(SHAPE, comm), 1)
    return {"u": u, "g/v": u + 1, "dt": 0.1, "text": "one"}


# Arguments of one save after the other, and what is new among the fields, or None for what is not
# there any more.
SAVES = [
    ({"step": 3, "time": 1.5}, {}),
    ({"step": 7, "time": 1.5}, {}),
    ({"step": 7}, {}),
    ({"time": -1.5}, {}),
    ({"time": np.nan}, {}),
    ({"attrs": {"a": 1}}, {}),
    ({"attrs": {"a": 2}}, {}),
    ({"attrs": {"a": 2.0}}, {}),
    ({"attrs": {"b": 2.0, "a": 2.0}}, {}),
    ({"attrs": {"a": b"h5py may return another type"}}, {}),
    ({"attrs": {"a": b"and again"}}, {}),
    ({"attrs": {"u": {"units": "m"}}}, {}),
    ({"attrs": {"dt": {"units": "m"}}}, {}),
    ({"grid": (np.arange(6.0), np.arange(5.0))}, {}),
    ({"grid": (np.arange(6.0) ** 2, np.arange(5.0))}, {}),
    ({"checksum": False}, {}),
    ({"align": 512}, {}),
    ({"chunks": (2, 3)}, {}),
    ({"chunks": (3, 2)}, {}),
    ({"compression": "gzip"}, {}),
    ({"compression": 9}, {}),
    ({}, {"dt": 0.2}),
    ({}, {"dt": 3}),
    ({}, {"text": "two"}),
    ({}, {"text": "three"}),
    ({}, {"more": np.arange(3.0)}),
    ({}, {"more": np.arange(12.0)[::4]}),
    ({}, {"more": np.arange(5.0)}),
    ({}, {"more": None}),
    ({}, {"u": "zeros"}),
    ({}, {"u": "ones of other type"}),
    ({}, {"u": "vectors"}),
]
FIELDS = {
    "zeros": pencils.zeros,
    "ones of other type": lambda pencil: pencils.ones(pencil, dtype="f4"),
    "vectors": lambda pencil: pencils.ones(pencil, components=2),
}


def changed(fields, new):
    """Return all fields with what is new, on their pencil."""
    fields = fields | new
    for name, value in new.items():
        if value is None:
            fields.pop(name)
        elif name == "u":
            fields[name] = FIELDS[value](fields["g/v"].pencil)
    return fields


def test_files_are_those_of_first_saves(lab, path):
    mine, all_new, other = make(lab.comm), {}, path.with_name("other.h5")
    for options, new in SAVES + SAVES[:3]:
        all_new = {name: one for name, one in (all_new | new).items() if one is not None}
        mine = changed(mine, new)
        first = changed(make(lab.comm), all_new)  # of pencils that have kept nothing
        for where, fields in ((other, first), (path, mine), (path, mine)):
            given = dict(options)
            if "grid" in options:
                given["grid"] = pencils.localgrid(fields["u"].pencil, options["grid"])
            pencils.save(where, fields, **given)
            if where is path:
                assert lab.on_root(lambda: path.read_bytes() == other.read_bytes()), (options, new)
        found = pencils.load(path, mine)
        assert lab.everywhere(np.array_equal(found["u"].local, mine["u"].local))
        assert found["dt"] == mine["dt"]


def without_hdf5(patch):
    patch.setattr(create, "_make", failing(AssertionError("HDF5 was asked")))


def test_the_second_save_needs_no_hdf5(lab, path, monkeypatch):
    fields = make(lab.comm)
    pencils.save(path, fields, step=1, time=0.5, attrs={"flow": "box"})
    without_hdf5(monkeypatch)
    monkeypatch.setattr(h5py, "File", failing(AssertionError("HDF5 was asked")))
    fields |= {"dt": 0.7, "text": "two"}
    pencils.save(path, fields, step=2, time=1.5, attrs={"flow": "box"})
    found = pencils.load(path, fields)
    assert (found.step, found.time, found["dt"], found["text"]) == (2, 1.5, 0.7, "two")
    monkeypatch.undo()
    assert lab.look(path, lambda file: file["VTKHDF/FieldData/TimeValue"][0]) == 1.5
    assert lab.look(path, lambda file: file.attrs["pencils_step"]) == 2


def test_large_layouts_are_not_kept(lab, path, monkeypatch):
    monkeypatch.setattr(create, "_KEPT_BYTES", 100)
    fields = make(lab.comm)
    pencils.save(path, fields)
    assert not fields["u"].pencil.kept["layout of a file"]


def test_places_that_are_not_found(lab, path, monkeypatch):
    """HDF5 then writes the numbers, and is asked again for the checksums."""
    fields = make(lab.comm)
    monkeypatch.setattr(create, "_find_marks", lambda _, marks: {name: [] for name in marks})
    for step in range(2):
        pencils.save(path, fields, step=step, time=0.5)
        found = pencils.load(path, fields)
        assert (found.step, found.time, found["dt"]) == (step, 0.5, 0.1)
        assert pencils.verify(path, lab.comm) == ["dt", "g/v", "text", "u"]
        assert lab.look(path, lambda file: file.attrs["pencils_complete"]) == 1


def test_settings_of_h5py_count(lab, path):
    fields = make(lab.comm)
    fields["z"] = pencils.zeros(fields["u"].pencil, dtype=complex)
    pencils.save(path, fields)
    before = h5py.get_config().complex_names
    try:
        h5py.get_config().complex_names = ("real", "imag")
        pencils.save(path, fields)
    finally:
        h5py.get_config().complex_names = before
    names = lab.look(path, lambda file: file["z"].id.get_type().get_member_name(0))
    assert names == b"real"


def test_attributes_that_hdf5_tracks(lab, path):
    """HDF5 keeps checksums of their numbers, such as the step and the sums of fields."""
    config = h5py.get_config()
    before, config.track_order = config.track_order, True
    try:
        for step in range(3):
            u = pencils.ones(pencils.Pencil((6, 5), lab.comm))
            pencils.save(path, {"u": u}, step=step, attrs={"b": 1, "a": 2})
            assert pencils.verify(path, lab.comm) == ["u"]
            assert lab.on_root(lambda: len(h5py.File(path)["u"].attrs) > 0)
            found = lab.on_root(lambda: [name for name in h5py.File(path).attrs if name in "ab"])
            assert found == ["b", "a"]
            assert pencils.load(path, u.pencil).step == step
    finally:
        config.track_order = before
