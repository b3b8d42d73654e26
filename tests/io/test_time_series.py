"""Output over time: what h5py and xarray find in it, on any ranks and in any form."""

import contextlib

import h5py
import numpy as np
import pytest

import pencils
from pencils.errors import (
    ArgumentError,
    CheckpointError,
    PencilMismatchError,
)
from pencils.io import series_file

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 5, 6)
AXES = [np.linspace(0, 1, 7), np.arange(5) ** 2, np.linspace(2, 3, 6)]
KEYS = {
    "plane": np.s_[:, :, 4],
    "coarse": np.s_[..., ::3, 1::2],
    "probe": np.s_[..., 3, 2, 1],
    "line": np.s_[0, :, -1],
}


def append_all(series, pencil, arrays, times, components=()):
    """Append snapshots of a global array per time, whole and in parts."""
    for time, array in zip(times, arrays, strict=True):
        u = pencils.empty(pencil, components=components, halo=1)
        u.local[...] = array[u.local_slices]
        fields = {"u": u, **{name: (u, key) for name, key in KEYS.items()}}
        series.append(time, fields | {"energy": float(array.sum()), "modes": array.ravel()[:3]})


def expected(arrays):
    """Make what a file has to hold of these snapshots."""
    data = {name: np.stack([array[key] for array in arrays]) for name, key in KEYS.items()}
    data["energy"] = np.array([float(array.sum()) for array in arrays])
    data["modes"] = np.stack([array.ravel()[:3] for array in arrays])
    return data | {"u": np.stack(arrays)}


def check(found, arrays, times):
    assert np.array_equal(found["time"], times)
    for name, data in expected(arrays).items():
        assert found[name].shape == data.shape
        assert np.array_equal(found[name], data), name


@pytest.mark.parametrize("components", [(), (3,), (2, 2)])
def test_snapshots_on_any_pencil(lab, components, path):
    arrays, times = [], []
    for pencil in lab.some_pencils(SHAPE, count=3, seed=len(components)):
        more = [lab.numbers((*components, *SHAPE)) for _ in range(2)]
        with pencils.TimeSeries(path, comm=lab.comm) as series:
            assert np.array_equal(series.times, times)
            now = [len(times) + 0.5, len(times) + 1.25]
            append_all(series, pencil, more, now, components)
            arrays, times = arrays + more, times + now
        check(lab.stored(path), arrays, times)


def test_many_chunks_make_a_deep_index(lab, monkeypatch, path):
    monkeypatch.setattr(series_file, "CHUNK_BYTES", 8)  # 5400 chunks, and 64 to a node
    monkeypatch.setattr(series_file, "_BATCH_BYTES", 16)
    pencil = pencils.Pencil((30, 20), lab.comm, decomp=1)
    data = lab.numbers((10, 30, 20))
    u = pencils.empty(pencil)
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        for step, array in enumerate(data[:9]):
            u.local[...] = array[u.local_slices]
            series.append(step, {"u": u, "n": step})
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        series.truncate(6.5)
        u.local[...] = data[9][u.local_slices]
        series.append(9, {"u": u, "n": 9})
        series.append(10, {"u": u, "n": 10})
    found = lab.stored(path)
    kept = [*range(7), 9, 9]
    assert np.array_equal(found["u"], data[kept])
    assert np.array_equal(found["n"], [*range(7), 9, 10])
    assert pencils.verify(path, lab.comm) == ["u"]


@pytest.mark.parametrize("dtype", ["f4", ">f8", "c16", "?", "i2", [("a", "f4"), ("b", "i2", (2,))]])
def test_element_types(lab, dtype, path):
    pencil = pencils.Pencil((5, 3), lab.comm)
    data = lab.numbers((2, 5, 3), dtype)
    u = pencils.empty(pencil, dtype=data.dtype)
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        for step, array in enumerate(data):
            u.local[...] = array[u.local_slices]
            series.append(step, {"g/u": u, "part": (u, np.s_[::2])})

    whole, part = lab.look(path, lambda file: (file["g/u"][...], file["part"][...]))
    assert whole.tobytes() == data.tobytes()
    assert part.tobytes() == data[:, ::2].tobytes()


def test_singletons_and_empty_fields(lab, path):
    pencil = pencils.Pencil((4, 3), lab.comm)
    line = pencils.from_function(pencil, lambda i, j: i + 0.0 * j).mean(axis=1)
    nothing = pencils.zeros(pencil, components=0)
    fields = {"line": line, "part": (line, np.s_[::2, 0]), "nothing": nothing}
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        series.append(0, fields)
        series.append(1, fields)
    found = lab.stored(path)
    assert np.array_equal(found["line"], [np.arange(4.0)[:, None]] * 2)
    assert np.array_equal(found["part"], [[0.0, 2.0]] * 2)
    assert found["nothing"].shape == (2, 0, 4, 3)


def test_truncate(lab, path):
    pencil = pencils.Pencil(SHAPE, lab.comm)
    arrays = [lab.numbers(SHAPE) for _ in range(4)]
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        append_all(series, pencil, arrays, [0, 1, 2, 3])
        series.truncate(5)
        assert len(series) == 4
        series.truncate(1)
        assert series.times.tolist() == [0, 1]
        check(lab.stored(path), arrays[:2], [0, 1])
        append_all(series, pencil, arrays[3:], [1.5])
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        series.truncate(1)
        append_all(series, pencil, arrays[2:], [2, 3])
    check(lab.stored(path), arrays, [0, 1, 2, 3])
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        series.truncate(-1)
        assert len(series) == 0
        series.append(0, {"other": pencils.ones(pencil)})
    assert lab.stored(path)["other"].shape == (1, *SHAPE)


def test_readers_of_pencils(lab, path):
    pencil = pencils.Pencil(SHAPE, lab.comm, periodic=True)
    arrays = [lab.numbers(SHAPE) for _ in range(3)]
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        append_all(series, pencil, arrays, [0, 1, 2])
    other = pencil.with_(decomp=2, order=(2, 0, 1))
    with pencils.open(path, comm=lab.comm) as file:
        assert lab.holds(file["u"].read(other, key=np.s_[-1]), arrays[-1])
        assert lab.holds(file["u"].read(other, key=np.s_[1]), arrays[1])
    state = pencils.load(path, other, "u")
    assert lab.holds(state["u"], np.stack(arrays))
    names = ["coarse", "line", "plane", "probe", "u"]
    assert pencils.verify(path, lab.comm) == names
    data = lab.on_root(path.read_bytes)
    at = data.index(arrays[1].tobytes()[:64])
    damaged = data[: at + 3] + bytes([data[at + 3] ^ 1]) + data[at + 4 :]
    lab.on_root(path.write_bytes, damaged)
    assert lab.raised(pencils.verify, path, lab.comm)[0] is CheckpointError


def test_the_last_ranks_have_nothing(lab, path):
    pencil = pencils.Pencil((2,), lab.comm)
    u = pencils.from_function(pencil, lambda i: i + 1.0)
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        series.append(0, {"u": u, "first": (u, 0), "last": (u, np.s_[1:])})
    found = lab.stored(path)
    assert [found[name].tolist() for name in ("u", "first", "last")] == [[[1, 2]], [1], [[2]]]


def test_some_processes_only(lab, mpi_tmp_path):
    half = lab.comm.Split(lab.comm.rank % 2)
    path = mpi_tmp_path / f"{lab.comm.rank % 2}.h5"
    grid = pencils.localgrid(pencils.Pencil((4, 5), half), [np.arange(4), np.arange(5)])
    with pencils.TimeSeries(path, grid=grid) as series:
        series.append(0, {"u": pencils.ones(grid.pencil)})
    assert lab.stored(mpi_tmp_path / "0.h5")["u"].shape == (1, 4, 5)
    half.Free()


def test_mistakes_change_nothing(lab, path):
    pencil = pencils.Pencil((4, 5), lab.comm)
    u, other = pencils.ones(pencil), pencils.ones(pencil.with_(shape=(5, 5)))
    series = pencils.TimeSeries(path, comm=lab.comm)
    series.append(1, {"u": u, "e": 1.0, "row": (u, 2)})
    mistakes = [
        (1, {"u": u, "e": 1.0, "row": (u, 2)}, ArgumentError, "1.0"),
        (float("nan"), {"u": u}, ArgumentError, "real number"),
        (float("inf"), {"u": u}, ArgumentError, "finite"),
        (10**400, {"u": u}, ArgumentError, "real number"),
        (True, {"u": u}, TypeError, "True"),
        ("x", {"u": u}, TypeError, "time"),
        (2, {"u": u, "e": 1.0}, ArgumentError, "row"),
        (2, {"u": u, "e": 1.0, "row": (u, 2), "v": u}, ArgumentError, "v"),
        (2, {"u": other, "e": 1.0, "row": (u, 2)}, ArgumentError, "(4, 5)"),
        (2, {"u": u.astype("f4"), "e": 1.0, "row": (u, 2)}, ArgumentError, "float32"),
        (2, {"u": u, "e": 1, "row": (u, 2)}, ArgumentError, "'e'"),
        (2, {"u": u, "e": "x", "row": (u, 2)}, TypeError, "'e'"),
        (2, {"u": u, "e": 1.0, "row": (u, 3)}, ArgumentError, "selection"),
        (2, {"u": u, "e": 1.0, "row": (u, 9)}, IndexError, "9"),
        (2, {"u": u, "e": 1.0, "row": (u, np.s_[::-1])}, ArgumentError, "steps"),
        (2, {"u": u, "e": 1.0, "time": u}, ArgumentError, "time"),
        (2, {}, ArgumentError, "empty"),
        (2, [u], TypeError, "mapping"),
    ]
    for time, fields, kind, text in mistakes:
        found = lab.raised(series.append, time, fields)
        assert found[0] is kind
        assert text in found[1]
    assert lab.raised(series.truncate, "x")[0] is TypeError
    series.append(2, {"u": u, "e": 2.0, "row": (u, 2)})
    series.close()
    assert lab.raised(series.append, 3, {"u": u})[0] is ArgumentError
    assert lab.stored(path)["e"].tolist() == [1, 2]


def test_no_series(lab, mpi_tmp_path, u, path):
    pencils.save(path, {"u": u})
    lab.on_root((mpi_tmp_path / "b.h5").write_bytes, b"text")
    for name, kind in [("a.h5", CheckpointError), ("b.h5", CheckpointError), ("x/a.h5", OSError)]:
        found = lab.raised(pencils.TimeSeries, mpi_tmp_path / name, comm=lab.comm)
        assert issubclass(found[0], kind)
        assert name in found[1] or "/x" in found[1]
    wrong = {"attrs": {"pencils_x": 1}}
    found = lab.raised(pencils.TimeSeries, mpi_tmp_path / "c.h5", comm=lab.comm, **wrong)
    assert found[0] is ArgumentError


def test_a_folder_of_an_older_version(lab, mpi_tmp_path):
    """Its snapshots are files of `save`; an index shows them by virtual datasets."""
    path, pencil = mpi_tmp_path / "run", pencils.Pencil((4, 5), lab.comm)
    lab.on_root(path.mkdir)
    snapshot, index = path / "snapshot-000000.h5", path / "index.h5"
    pencils.save(snapshot, {"u": pencils.ones(pencil)}, time=0.0)
    with pencils.TimeSeries(index, comm=lab.comm) as series:
        series.append(0, {"u": pencils.ones(pencil)})

    def show(file):
        own = {name: dict(file[name].attrs) for name in ("u", "time")}
        times = file["time"][:]
        del file["u"], file["time"]
        file["time"] = times
        layout = h5py.VirtualLayout((1, 4, 5), float)
        layout[0] = h5py.VirtualSource(snapshot.name, "u", (4, 5))
        file.create_virtual_dataset("u", layout)
        for name, attrs in own.items():
            kept = {key: value for key, value in attrs.items() if key.startswith("pencils_")}
            file[name].attrs.update(kept)

    lab.look(index, show, "r+")
    for given, wanted in ((path, "snapshot-000000.h5"), (index, "snapshots beside it")):
        texts = "storage='files'", wanted, "pencils.load"
        lab.refuses(CheckpointError, texts, pencils.TimeSeries, given, comm=lab.comm, edited=True)
    assert pencils.load(snapshot, pencil).time == 0
    shown = pencils.load(index, {"u": pencil}, edited=True, external=True)
    assert shown["u"].sum() == 20


def test_coordinates_of_one_name_are_told(lab, path):
    pencil = pencils.Pencil((4, 5), lab.comm)
    grid, u = pencils.localgrid(pencil, [np.arange(4), np.arange(5)]), pencils.ones(pencil)
    fields = {"a/b": (u, np.s_[::2]), "a_b": (u, np.s_[::3])}
    with pencils.TimeSeries(path, grid=grid) as series:
        lab.refuses(ArgumentError, "'a_b_x'", series.append, 0, fields)
        series.append(0, {"a/b": fields["a/b"]})


@pytest.mark.parallel([2, 3, 4, 6])
def test_grid_and_processes_must_fit(lab, mpi_tmp_path, path):
    pencil = pencils.Pencil((4, 5), lab.comm)
    grid = pencils.localgrid(pencil, [np.arange(4), np.arange(5)])
    pencils.TimeSeries(path, grid=grid, comm=lab.comm).close()
    alone = lab.comm.Split(lab.comm.rank)
    found = lab.raised(pencils.TimeSeries, mpi_tmp_path / "b.h5", grid=grid, comm=alone)
    assert found[0] is PencilMismatchError
    alone.Free()


def test_another_grid_is_told(lab, u, path):
    pencil = u.pencil
    grids = [pencils.localgrid(pencil, [np.arange(4) + at, np.arange(5)]) for at in (0, 1)]
    with pencils.TimeSeries(path, grid=grids[0]) as series:
        series.append(0, {"u": u})
    with pencils.TimeSeries(path, grid=grids[1]) as series:
        assert lab.raised(series.append, 1, {"u": u})[0] is ArgumentError
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        series.append(1, {"u": u})
    assert np.array_equal(lab.stored(path)["x"], np.arange(4))


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_xarray(lab, engine, path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip({"netcdf4": "netCDF4"}.get(engine, engine))
    pencil = pencils.Pencil(SHAPE, lab.comm)
    arrays = [lab.numbers((3, *SHAPE)) for _ in range(2)]
    grid = pencils.localgrid(pencil, AXES)
    options = {"grid": grid, "attrs": {"run": "a"}}
    with pencils.TimeSeries(path, **options) as series:
        append_all(series, pencil, arrays[:1], [0.5], (3,))
    with pencils.TimeSeries(path, **options) as series:
        append_all(series, pencil, arrays[1:], [1.5], (3,))

    def look():
        here = contextlib.chdir("/")  # names in the index must not depend on it
        with here, xarray.open_dataset(path, engine=engine) as data:
            check(data, arrays, [0.5, 1.5])
            assert data.u.dims == ("time", "component0_3", "x", "y", "z")
            assert data.plane.dims == ("time", "component0_3", "x", "z")
            assert data.coarse.dims[-2:] == ("coarse_y", "coarse_z")
            assert np.array_equal(data.coarse_z, AXES[2][1::2])
            assert np.array_equal(data.y, AXES[1])
            assert data.probe.attrs["z"] == AXES[2][1]
            assert data.attrs["run"] == "a"
            assert data.u.sel(time=1.5, x=0, y=4, z=2.0).shape == (3,)

    lab.on_root(look)


def test_attributes_of_others_stay(lab, u, path):
    with pencils.TimeSeries(path, comm=lab.comm) as series:
        series.append(0, {"u": u})

    lab.look(path, lambda file: file["u"].attrs.update(units="m/s"), "r+")
    lab.look(path, lambda file: file.attrs.update(title="flow"), "r+")
    with pencils.TimeSeries(path, comm=lab.comm, edited=True) as series:
        series.append(1, {"u": u})
    with pencils.open(path, comm=lab.comm) as file:
        assert file.attrs == {"title": "flow"}

    found = lab.look(path, lambda file: (file["u"].attrs["units"], file["u"].shape))
    assert found == ("m/s", (2, 4, 5))


def test_a_file_that_is_open_while_it_grows(comm, lab, path):
    pencil = pencils.Pencil(SHAPE, comm)
    with pencils.TimeSeries(path, comm=comm) as series:
        series.append(0.0, {"u": pencils.ones(pencil)})
        with pencils.open(path, comm=comm) as file:
            series.append(1.0, {"u": pencils.zeros(pencil)})
            assert lab.holds(file["u"].read(pencil, 0), np.ones(SHAPE))
