"""Series and checkpoints in Zarr folders: a snapshot is there when it is whole."""

import numpy as np
import pytest
from damage import FULL_DISK, failing
from mpi_helpers import all_raise, numbered, spread

import pencils
from pencils.errors import ArgumentError, CheckpointError
from pencils.io import zarr_series

zarr = pytest.importorskip("zarr")
xarray = pytest.importorskip("xarray")

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (6, 5, 4)


@pytest.fixture
def path(mpi_tmp_path):
    return mpi_tmp_path / "a.zarr"


def snapshot(pencil, time):
    u = spread(pencil, numbered(SHAPE) + time)
    v = spread(pencil, np.stack([numbered(SHAPE) * time] * 2).astype("f4"))
    fields = {"u": u, "v": v, "line": pencils.ones(pencil, dims=1), "n": time, "list": np.arange(3)}
    return fields | {"plane": (u, np.s_[:, 3]), "part": (v, np.s_[1, ::2, :, 2])}


def test_series_are_as_in_hdf5(path, comm, lab):
    pencil = pencils.Pencil(SHAPE, comm, decomp=(0, 1))
    grid = pencils.localgrid(pencil, [np.linspace(0, 1, n) for n in SHAPE])
    attrs = {"title": "flow", "u": {"units": "m"}, "time": {"units": "seconds since 2026-01-01"}}
    found = []
    for name in (path, path.with_name("a.h5")):
        with pencils.TimeSeries(name, "x", grid=grid, attrs=attrs) as series:
            for time in (1.0, 2.0, 3.0):
                series.append(time, snapshot(pencil, time))
        other = pencil.with_(decomp=2)
        with pencils.TimeSeries(name, grid=grid) as series:
            assert list(series.times) == [1, 2, 3]
            series.truncate(2.0)
            assert set(pencils.verify(name)) >= {"u", "v", "line", "plane", "part"}
            for time in (2.5, 4.0):
                series.append(time, snapshot(other, time))
        assert set(pencils.verify(name)) >= {"u", "v", "line", "plane", "part"}
        found.append(pencils.load(name))
        with pencils.open(name) as file:
            last = file["u"].read(pencil, -1)
            assert lab.holds(last, numbered(SHAPE) + 4)
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        both = [getattr(thing, "local", thing) for thing in (one, theirs[name])]
        assert np.array_equal(*both), name
    assert ours.attrs == theirs.attrs == {"title": "flow"}

    def look():
        with xarray.open_zarr(path) as data:
            assert data["u"].dims == ("time", "x", "y", "z")
            assert data["plane"].dims == ("time", "x", "z")
            assert data["time"].dt.second.values.tolist() == [1, 2, 2, 4]
            assert np.array_equal(data["u"][2], numbered(SHAPE) + 2.5)
            assert np.array_equal(data["part"][3], (numbered(SHAPE) * 4).astype("f4")[::2, :, 2])
            assert (data["n"].values.tolist(), data["u"].units) == ([1, 2, 2.5, 4], "m")

    lab.on_root(look)


def test_chunks_and_compression(path, comm, lab):
    pencil = pencils.Pencil(SHAPE, comm)
    options = {"chunks": {"u": (4, 3, 4), "plane": (2, 9)}, "compression": "zstd"}
    for first in (0.0, 2.0):  # the second one goes on
        with pencils.TimeSeries(path, comm=comm, **options) as series:
            for time in (first, first + 1):
                series.append(time, snapshot(pencil, time))
    assert set(pencils.verify(path)) >= {"u", "v", "line", "plane", "part"}
    for name, chunks in (("u", (1, 4, 3, 4)), ("plane", (1, 2, 9)), ("v", (1, 1, *SHAPE))):
        array = lab.on_root(zarr.open_array, path / name)
        assert array.chunks == chunks
        assert [one.to_dict()["name"] for one in array.compressors] == ["zstd", "crc32c"]
    assert lab.holds(pencils.open(path)["u"].read(pencil, 3), numbered(SHAPE) + 3)
    wrong = [
        ({"chunks": (2, 2)}, ArgumentError, "dimensions"),
        ({"chunks": {"w": (2, 2)}}, ArgumentError, "chunks has an entry for 'w'"),
        ({"compression": {"name": "no such"}}, ArgumentError, "cannot be stored with"),
    ]
    for options, kind, text in wrong:
        with pencils.TimeSeries(path.with_name("b.zarr"), "w", comm=comm, **options) as series:
            all_raise(comm, kind, text, series.append, 0.0, snapshot(pencil, 0.0))
    series = pencils.TimeSeries, path.with_name("b.h5")
    all_raise(comm, ArgumentError, "are for series in Zarr", *series, comm=comm, chunks=(2, 2, 2))
    all_raise(comm, ArgumentError, "is not for Zarr", pencils.TimeSeries, path, compression="lzf")


def test_a_snapshot_that_fails_is_not_there(path, comm, lab, monkeypatch):
    pencil = pencils.Pencil(SHAPE, comm)
    with pencils.TimeSeries(path, comm=comm) as series:
        for time in (1.0, 2.0):
            series.append(time, snapshot(pencil, time))
    for place in ("write_chunks", "seal"):
        series = pencils.TimeSeries(path, comm=comm)
        with monkeypatch.context() as patch:
            comm.barrier()  # ranks may be threads
            patch.setattr(zarr_series, place, failing(FULL_DISK))
            all_raise(comm, OSError, "No space left", series.append, 3.0, snapshot(pencil, 3.0))
            if place == "seal":  # a chunk that is not written changes nothing
                again = series.append, 4.0, snapshot(pencil, 4.0)
                all_raise(comm, CheckpointError, "failed before", *again)
            comm.barrier()
        series.close()
        assert "u" in pencils.verify(path)
        assert lab.on_root(xarray.open_zarr, path)["time"].values.tolist() == [1, 2]
    lab.on_root((path / "u/zarr.json").write_bytes, b"")  # as after a loss of power
    with pencils.TimeSeries(path, comm=comm) as series:
        series.append(3.0, snapshot(pencil, 3.0))
    assert lab.holds(pencils.open(path)["u"].read(pencil, 2), numbered(SHAPE) + 3)
    all_raise(comm, ArgumentError, "is a store", pencils.TimeSeries, "memory://a.zarr")
    replaced = pencils.TimeSeries(path, "w", comm=comm)
    assert "u" in pencils.verify(path)
    replaced.append(0.0, {"w": spread(pencil, numbered(SHAPE))})
    replaced.set_aside()
    replaced.close()
    assert lab.on_root(lambda: sorted(one.name for one in path.parent.iterdir())) == [
        "a.zarr",
        "a.zarr.abandoned",
    ]
    assert pencils.verify(path.with_name("a.zarr.abandoned")) == ["w"]


def test_checkpoints(path, comm, lab, monkeypatch):
    folder, pencil = path.with_name("run"), pencils.Pencil(SHAPE, comm)
    all_raise(comm, ArgumentError, "format='x'", pencils.CheckpointSeries, folder, format="x")
    with pencils.CheckpointSeries(folder, keep=2, signals=(), comm=comm, format="zarr") as series:
        for step in (1, 2, 3):
            series.save(step, {"u": pencils.full(pencil, float(step))}, wait=step != 2)
    names = lab.on_root(lambda: sorted(one.name for one in folder.iterdir()))
    assert names == ["checkpoint-00000002.zarr", "checkpoint-00000003.zarr"]
    lab.on_root((folder / names[1] / "u/c/0/0/0").unlink)
    with pencils.CheckpointSeries(folder, keep=2, signals=(), comm=comm) as series:
        state = series.resume(pencil)
        assert (state.step, state["u"].sum(), [*series.skipped]) == (2, 240, [names[1]])
        series.save(4, {"u": pencils.ones(pencil)})  # of the other format
        assert series.steps == [2, 4]
        with monkeypatch.context() as patch:  # the removal of an old one ends too early
            comm.barrier()
            patch.setattr("pencils.io.commit.shutil.rmtree", failing(FULL_DISK))
            series.save(5, {"u": pencils.ones(pencil)})
            comm.barrier()
        names = lab.on_root(lambda: sorted(one.name for one in folder.iterdir()))
        assert [name for name in names if "00000002" in name and name[0] != "."] == []
    with pencils.CheckpointSeries(folder, "w", signals=(), comm=comm, format="zarr") as series:
        series.save(1, {"u": pencils.ones(pencil)})
    names = lab.on_root(lambda: sorted(one.name for one in folder.iterdir()))
    assert [name for name in names if ".abandoned" not in name] == ["checkpoint-00000001.zarr"]
