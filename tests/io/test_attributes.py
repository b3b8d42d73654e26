"""Attributes of files and of datasets, as CF has them, and who finds them."""

import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import pencils
from pencils.errors import ArgumentError
from pencils.io.show import describe_file

SHAPE = (4, 5)
ATTRS = {
    "title": "a flow",
    "history": "made by a test",
    "u": {"units": "m s-1", "long_name": "velocity", "valid_range": [0.0, 9.0]},
    "p": {"units": "Pa", "standard_name": "air_pressure"},
    "x": {"units": "m", "standard_name": "projection_x_coordinate"},
    "y": {"units": "m", "standard_name": "projection_y_coordinate"},
}
TIME = {"time": {"units": "seconds since 2026-01-01", "standard_name": "time"}}


@pytest.fixture
def grid(comm):
    pencil = pencils.Pencil(SHAPE, comm)
    return pencils.localgrid(pencil, [np.linspace(0, 1, n) for n in SHAPE])


def fields_on(grid):
    u = pencils.ones(grid.pencil, components=2)
    return {"u": u, "p": u.component(0), "n": 3}


def found_in(path):
    with h5py.File(path) as file:
        found = {name: file[name].attrs for name in (*ATTRS, *TIME) if name in file}
        keys = {
            "axis",
            *(key for own in (ATTRS | TIME).values() if isinstance(own, dict) for key in own),
        }
        notes = {name: {key: own[key] for key in keys & own.keys()} for name, own in found.items()}
        return dict(file.attrs), notes


def check(path, expected):
    attrs, notes = found_in(path)
    assert attrs["Conventions"] == "CF-1.11"
    assert (attrs["title"], attrs["history"]) == ("a flow", "made by a test")
    assert (notes["x"]["axis"], notes["y"]["axis"]) == ("X", "Y")
    for name, own in expected.items():
        if isinstance(own, dict):
            assert all(np.array_equal(notes[name][key], value) for key, value in own.items())


@pytest.mark.parallel([1, 2, 3, 4, 6])
def test_checkpoint(lab, path, grid):
    pencils.save(path, fields_on(grid), grid=grid, attrs=ATTRS)
    lab.on_root(check, path, ATTRS)
    found = pencils.load(path, grid.pencil)
    assert found.attrs == {"title": "a flow", "history": "made by a test"}
    for own in ({"Conventions": "CF-1.6"}, {"Conventions": "CF-1.11"}):
        for coordinates in (grid, None):
            pencils.save(path, fields_on(grid), grid=coordinates, attrs=own)
            assert pencils.load(path, grid.pencil).attrs == own
            assert f"Conventions: {own['Conventions']}" in describe_file(str(path))
    pencils.save(path, fields_on(grid))
    assert "Conventions" not in lab.on_root(found_in, path)[0]


@pytest.mark.parallel([1, 2, 3, 4, 6])
def test_series(lab, path, grid):
    options = {"grid": grid, "attrs": ATTRS | TIME}
    for time in range(3):
        with pencils.TimeSeries(path, **options) as series:
            series.append(time, fields_on(grid))
        options.pop("attrs", None)
        lab.on_root(check, path, ATTRS | TIME)
    with pencils.TimeSeries(path, "w", **options) as series:
        series.append(0, fields_on(grid))
    assert "units" not in lab.on_root(found_in, path)[1]["u"]


@pytest.mark.parallel([1, 2, 3, 4, 6])
@pytest.mark.parametrize("attrs", [ATTRS | TIME, None])
def test_series_that_begins_again(lab, path, grid, attrs):
    """Fields have the attributes that are given with them, coordinates those in the file, too."""
    with pencils.TimeSeries(path, grid=grid, attrs=ATTRS | TIME) as series:
        series.append(0, fields_on(grid))
    with pencils.TimeSeries(path, grid=grid, attrs=attrs) as series:
        series.truncate(-1)
        series.append(1, fields_on(grid))
    lab.on_root(check, path, attrs or {name: ATTRS[name] for name in "xy"})
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        series.truncate(-1)
        series.append(2, fields_on(grid))
    assert list(lab.on_root(found_in, path)[1]) == ["u", "p", "time"]


def test_a_field_named_as_a_coordinate_was_begins_without_its_attributes(lab, path, grid):
    fields = fields_on(grid)
    with pencils.TimeSeries(path, grid=grid, attrs={"x": {"units": "m"}}) as series:
        series.append(0, fields)
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        series.truncate(-1)
        series.append(1, {"x": fields["u"]})
    assert lab.on_root(found_in, path)[1]["x"] == {}


@pytest.mark.parallel([1, 2, 3, 4, 6])
def test_mistakes(lab, path, grid):
    fields = fields_on(grid)
    for wrong, error, text in [
        ({"v": {"units": "m"}}, ArgumentError, "attrs has an entry for 'v', but"),
        ({"u": {"pencils_x": 1}}, ArgumentError, "may not be named"),
        ({"u": {"DIMENSION_LIST": 3}}, ArgumentError, "HDF5 uses for coordinates; rename it"),
        ({"u": {3: 1}}, TypeError, "attrs must be a mapping"),
    ]:
        lab.refuses(error, text, pencils.save, path, fields, grid=grid, attrs=wrong)
    with pencils.TimeSeries(path, grid=grid, attrs={"v": {"units": "m"}}) as series:
        assert lab.raised(series.append, 0, fields)[0] is ArgumentError
        assert len(series) == 0


def test_readers_find_them(tmp_path, grid):
    xarray = pytest.importorskip("xarray", reason="needs xarray")
    pytest.importorskip("h5netcdf", reason="needs h5netcdf")
    path = tmp_path / "a.h5"
    with pencils.TimeSeries(path, grid=grid, attrs=ATTRS | TIME) as series:
        for time in range(2):
            series.append(time, fields_on(grid))
    with xarray.open_dataset(path, engine="h5netcdf") as data:
        assert data.u.attrs["units"] == "m s-1"
        assert data.x.attrs["standard_name"] == "projection_x_coordinate"
        assert data.time.values[1] == np.datetime64("2026-01-01T00:00:01")
    text = describe_file(str(path))
    assert "float64  m s-1  " in text
    assert "from 0 to 1 m" in text


def test_compliance(tmp_path, grid):
    """Nothing is left to complain of but the order of axes, which the user chooses."""
    folder = Path(sys.executable).parent
    checker = shutil.which("compliance-checker", path=folder)
    if checker is None:
        pytest.skip("needs compliance-checker")
    fields = {name: u for name, u in fields_on(grid).items() if name != "n"}
    pencils.save(tmp_path / "a.nc", fields, grid=grid, attrs=ATTRS)
    command = [checker, "--test=cf:1.11", "--format=text", tmp_path / "a.nc"]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    complaints = [line for line in text.splitlines() if line.startswith("*")]
    assert "Corrective Actions" in text or not complaints
    assert all("recommended order T, Z, Y, X" in line for line in complaints)
