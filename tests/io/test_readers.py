"""What stands in the file can be read by the tools that people have."""

import shutil
import subprocess

import h5py
import numpy as np
import pytest

import pencils


def h5dump(path, *args):
    return subprocess.run(
        ["h5dump", *args, path], check=True, capture_output=True, text=True
    ).stdout


def numbers(path, name):
    text = h5dump(path, "-d", name, "-y", "-m", "%.17g").split("DATA {")[1].split("}")[0]
    return [float(number) for number in text.replace(",", " ").split()]


@pytest.mark.skipif(not shutil.which("h5dump"), reason="needs h5dump")
def test_h5dump_reads_everything(tmp_path):
    pencil = pencils.Pencil((3, 2), order=(1, 0))
    fields = {
        "g/u": pencils.from_function(pencil, lambda i, j: 10.0 * i + j),
        "flags": pencils.from_function(pencil, lambda i, j: i > j),
        "spectrum": pencils.full(pencil, 1 + 2j, dtype=">c16"),
        "records": pencils.zeros(pencil, dtype=[("a", "f4"), ("b", "i2")]),
        "half": pencils.ones(pencil, dtype="f2"),
        "nothing": pencils.zeros(pencil, components=0),
    }
    pencils.save(tmp_path / "a.h5", fields, attrs={"step": 3, "name": "Green", "axis": [1.0, 2.0]})

    path = tmp_path / "a.h5"
    assert "Green" in h5dump(path)
    assert numbers(path, "/g/u") == [0, 1, 10, 11, 20, 21]
    properties = h5dump(path, "-p", "-H").split()
    assert {"CONTIGUOUS", "H5D_ALLOC_TIME_EARLY", "H5D_FILL_TIME_NEVER"} <= set(properties)


@pytest.mark.skipif(not shutil.which("h5dump"), reason="needs h5dump")
def test_h5dump_reads_what_is_compressed(tmp_path):
    pencil = pencils.Pencil((5, 7), order=(1, 0))
    field = pencils.from_function(pencil, lambda i, j: 10.0 * i + j)
    filters = {"compression": "gzip", "shuffle": True, "fletcher32": True}
    pencils.save(tmp_path / "a.h5", {"g/u": field}, compression=filters, chunks=(2, 3))
    path = tmp_path / "a.h5"
    assert numbers(path, "/g/u") == [10 * i + j for i in range(5) for j in range(7)]
    properties = h5dump(path, "-p", "-H").split()
    assert {"CHUNKED", "SHUFFLE", "DEFLATE", "FLETCHER32"} <= set(properties)


AXES = [np.linspace(0, 1, 6), np.arange(5), np.arange(4.0) ** 2]


@pytest.fixture(params=[None, "gzip"])
def labelled(tmp_path, request):
    """Save fields of all kinds with their coordinates; the file and the global arrays."""
    pencil = pencils.Pencil((6, 5, 4), order=(2, 0, 1))
    noise = np.random.default_rng(1).normal(size=(3, 6, 5, 4))
    arrays = {"u": noise, "p": noise[0], "line": noise[0, :1, :, :1]}
    fields = {name: pencils.partition(pencil, array) for name, array in arrays.items()}
    fields["wide"] = pencils.ones(pencil, halo=1)
    others = {"flow/q": fields["p"], "modes": np.arange(7), "dt": 0.1, "name": "Green"}
    others["rng"] = np.random.default_rng(1)
    path, grid = tmp_path / "a.h5", pencils.localgrid(pencil, AXES)
    facts = {"grid": grid, "step": 3, "attrs": {"run": "a"}}
    pencils.save(path, {**fields, **others}, **facts, compression=request.param)
    pencils.save(tmp_path / "halo.h5", {"wide": fields["wide"]}, grid=grid, halo=True)
    return path, arrays


@pytest.mark.skipif(not shutil.which("h5dump"), reason="needs h5dump")
def test_h5dump_finds_the_coordinates(labelled):
    path, arrays = labelled
    for name, array in arrays.items():
        assert numbers(path, f"/{name}") == array.ravel().tolist()
    for name, axis in zip("xyz", AXES, strict=True):
        assert numbers(path, f"/{name}") == axis.tolist()
        assert '"DIMENSION_SCALE"' in h5dump(path, "-a", f"/{name}/CLASS")
    attached = h5dump(path, "-a", "/u/DIMENSION_LIST")
    assert all(f" /{name} " in attached.replace('"', " ") for name in "xyz")


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4", None])
def test_xarray_finds_the_coordinates(labelled, engine):
    """Also if it has to find out what kind of file it is."""
    xarray = pytest.importorskip("xarray")
    pytest.importorskip({"netcdf4": "netCDF4", None: "netCDF4"}.get(engine, engine))
    path, arrays = labelled
    with xarray.open_dataset(path, engine=engine) as data:
        assert data.u.dims == ("component0_3", "x", "y", "z")
        for name, array in arrays.items():
            assert np.array_equal(data[name], array)
        for name, axis in zip("xyz", AXES, strict=True):
            assert np.array_equal(data[name], axis)
        assert data.p.sel(x=0.4, y=3, z=9.0) == arrays["p"][2, 3, 3]
        assert (data.attrs["run"], data.attrs["pencils_step"]) == ("a", 3)
        assert (float(data.dt), data.modes.shape) == (0.1, (7,))
    with xarray.open_dataset(path.with_name("halo.h5"), engine=engine) as data:
        assert data.wide.shape == (8, 7, 6)
        assert np.array_equal(data.y, AXES[1])


def test_netcdf_reads_groups_and_text(labelled):
    netcdf = pytest.importorskip("netCDF4")
    path, arrays = labelled
    with netcdf.Dataset(path) as data:
        assert data["u"].dimensions == ("component0_3", "x", "y", "z")
        assert data["flow/q"].dimensions == ("x", "y", "z")
        assert np.array_equal(data["flow/q"][:], arrays["p"])
        assert data["name"][...] == "Green"
        assert sorted(data.dimensions) == sorted(
            ["component0_3", "dim0_7", "x", "x_1", "y", "z", "z_1"]
        )


def find_end(path):
    """Ask HDF5 where its part of a file ends."""
    head = path.read_bytes()[:48]
    return int.from_bytes(head[40:], "little")


@pytest.fixture(params=["save", "series"])
def listed(tmp_path, request):
    """Make a file with a list of contents behind its end; the data in it."""
    pencil = pencils.Pencil((6, 5, 4))
    u = pencils.from_function(pencil, lambda i, j, k: 100.0 * i + 10 * j + k)
    path = tmp_path / "a.h5"
    if request.param == "save":
        pencils.save(path, {"u": u})
    else:
        with pencils.TimeSeries(path) as series:
            for time in range(2):
                series.append(time, {"u": u})
    assert find_end(path) < path.stat().st_size
    return path, u.local if request.param == "save" else np.stack([u.local] * 2)


def test_libraries_do_not_mind_the_list_of_contents(listed):
    path, array = listed
    with h5py.File(path) as file:
        assert np.array_equal(file["u"], array)
    h5netcdf = pytest.importorskip("h5netcdf")
    with h5netcdf.File(path, phony_dims="access") as file:
        assert np.array_equal(file["u"], array)
    netcdf = pytest.importorskip("netCDF4")
    with netcdf.Dataset(path) as data:
        assert np.array_equal(data["u"], array)
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(path) as data:
        assert np.array_equal(data.u, array)


@pytest.mark.parametrize("tool", ["h5dump", "h5ls", "h5repack"])
def test_tools_do_not_mind_the_list_of_contents(listed, tool):
    if not shutil.which(tool):
        pytest.skip(f"needs {tool}")
    path, array = listed
    if tool == "h5repack":
        new = path.with_name("new.h5")
        subprocess.run([tool, path, new], check=True)
        with h5py.File(new) as file:
            assert np.array_equal(file["u"], array)
        return
    arguments = ["-d", "/u", "-y", "-w", "65535"] if tool == "h5dump" else ["-d"]
    target = path if tool == "h5dump" else f"{path}/u"
    text = subprocess.run(
        [tool, *arguments, target], check=True, capture_output=True, text=True
    ).stdout
    assert " 543" in text
