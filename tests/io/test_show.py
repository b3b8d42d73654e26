"""Descriptions of files: what a checkpoint, a series, and a file of another program hold."""

from importlib.metadata import version

import h5py
import numpy as np
import pytest
from damage import undo_patches

import pencils
from pencils.__main__ import main
from pencils.errors import ArgumentError, CheckpointError
from pencils.io.show import describe_file, read_numbers, read_plane

SHAPE = (5, 4)


@pytest.fixture
def grid():
    pencil = pencils.Pencil(SHAPE)
    return pencils.localgrid(pencil, [np.linspace(0, 1, n) for n in SHAPE], names=("r", "s"))


def test_a_checkpoint(tmp_path, grid):
    path = str(tmp_path / "a.h5")
    fields = {
        "u": pencils.ones(grid.pencil),
        "v": pencils.ones(grid.pencil, dtype=np.float32, components=(2,)),
        "count": 7,
    }
    pencils.save(path, fields, grid=grid, step=3, time=0.25, attrs={"case": "test"})
    first, *lines = describe_file(path).splitlines()
    assert first.startswith(f"{path}: checkpoint, step 3, time 0.25, ")
    assert f"written by pencils {pencils.__version__}, h5py {h5py.__version__}" in first
    rows = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
    assert rows["u"] == "(r: 5, s: 4)  float64  with checksum"
    assert rows["v"] == "(2, r: 5, s: 4)  float32  with checksum"
    assert rows["r"] == "coordinate, 5 points from 0 to 1"
    assert rows["count"] == "7"
    assert rows["attribute"] == "case: test"


def test_a_series_of_zarr(tmp_path, grid):
    pytest.importorskip("zarr")
    found = []
    for path in (str(tmp_path / "a.zarr"), str(tmp_path / "a.h5")):
        with pencils.TimeSeries(path, grid=grid) as series:
            for time in (0.5, 2.5):
                series.append(time, {"u": time * grid.r + grid.s, "n": time})
        first, *lines = describe_file(path).splitlines()
        assert first.startswith(f"{path}: time series of 2 steps, ")
        assert [line.split()[0] for line in lines] == ["n", "r", "s", "time", "u"]
        assert lines[3].endswith("times, 2 points from 0.5 to 2.5")
        assert "(time: 2, r: 5, s: 4)  float64" in lines[4]
        found.append((read_plane(path, "u", None, None, {"r": 0.25}), read_numbers(path)))
    assert str(found[0]) == str(found[1])
    assert "time = 2.5, r = 0.25" in str(found[0])
    with pytest.raises(ArgumentError, match="has no 'w'; there is n, r, s, time, u"):
        read_plane(str(tmp_path / "a.zarr"), "w", None, None, None)


def test_a_folder_of_zarr(tmp_path, grid, capsys):
    pytest.importorskip("zarr")
    path = str(tmp_path / "a.zarr")
    fields = {"u": pencils.ones(grid.pencil, components=(2,)), "count": 7, "case": "x" * 99}
    given = {"title": "flow", "u": {"units": "m"}}
    options = {"chunks": (3, 2), "shards": (6, 4), "tolerance": 0.5, "attrs": given}
    pencils.save(path, fields, grid=grid, step=3, time=0.25, **options)
    main(["show", path])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}: checkpoint, step 3, time 0.25, ")
    assert first.endswith(f", Zarr {version('zarr')}")
    u = "(2, r: 5, s: 4)  float64  m  in chunks of (1, 3, 2)  in shards of (1, 6, 4)"
    u += "  largest error 0, tolerance 0.5  with checksum"
    assert lines == [
        f"  case   {'x' * 55!r:.56} ...",
        "  count  7",
        "  r      coordinate, 5 points from 0 to 1",
        "  s      coordinate, 4 points from 0 to 1",
        f"  u      {u}",
        "  attribute title: flow",
    ]


def test_values(tmp_path):
    path = str(tmp_path / "v.h5")
    text = "a" * 100
    values = {"dt": 0.25, "name": "run", "text": text, "rng": np.random.default_rng(1)}
    pencils.save(path, {"u": pencils.ones(pencils.Pencil((3,))), **values})
    rows = dict(line.split(maxsplit=1) for line in describe_file(path).splitlines()[1:])
    assert rows["dt"] == "0.25"
    assert rows["name"] == "'run'"
    assert rows["text"].startswith("'aaa")
    assert rows["rng"].endswith(" ...")
    assert max(map(len, rows.values())) <= 60


def test_a_series(tmp_path, grid):
    path = str(tmp_path / "s.h5")
    with pencils.TimeSeries(path, "w", grid=grid) as series:
        for time in (0.0, 0.5, 2.0):
            series.append(time, {"u": pencils.ones(grid.pencil), "energy": 1.0})
    first, *lines = describe_file(path).splitlines()
    assert first.startswith(f"{path}: time series of 3 steps, ")
    rows = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
    assert rows["time"] == "times, 3 points from 0 to 2"
    assert rows["u"].startswith("(time: 3, r: 5, s: 4)  float64  in chunks of (1, 5, 4)")
    assert rows["u"].endswith("with checksum")
    assert rows["energy"].startswith("(time: 3)  float64")
    assert not any(name.startswith("pencils_") for name in rows)


def test_files_of_other_programs(tmp_path):
    path = tmp_path / "b.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("group/data", (8, 8), "i4", chunks=(4, 8), compression="gzip")
        file["number"] = 2.5
        file["empty"] = np.zeros((0, 3))
        file["nothing"] = h5py.Empty("f4")
        file["text"] = np.array(["a", "b"], dtype=h5py.string_dtype())
        file["text"].make_scale("text")
        file["plane"] = np.zeros((2, 2))
        file["plane"].make_scale("plane")
        file["named"] = np.zeros(3)
        file["named"].attrs["NAME"] = "some text"
    text = describe_file(str(path))
    assert text.startswith(f"{path}: HDF5 file, ")
    assert "group/data  (8, 8)  int32  in chunks of (4, 8) by gzip" in text
    assert "2.5" in text
    assert "(0, 3)  float64" in text
    assert "nothing     empty  float32" in text
    assert "text        coordinate, 2 points" in text
    assert "plane       coordinate, 4 points" in text
    assert "named       (3)  float64" in text


def test_what_is_no_file(tmp_path):
    (tmp_path / "c.h5").write_text("text")
    with pytest.raises(CheckpointError, match="not an HDF5 file"):
        describe_file(str(tmp_path / "c.h5"))
    with pytest.raises(FileNotFoundError, match=r"missing\.h5"):
        describe_file(str(tmp_path / "missing.h5"))


def test_what_is_shown_of_a_series_includes_patches(tmp_path):
    path, u = tmp_path / "a.h5", pencils.ones(pencils.Pencil((4, 5)))
    with pencils.TimeSeries(path) as series:
        for time in range(2):
            series.append(time, {"u": u, "energy": 1.0 + time})
    before = path.read_bytes()
    with pencils.TimeSeries(path) as series:
        series.append(2, {"u": 3 * u, "energy": 3.0})
    undo_patches(path, before)
    text = describe_file(str(path))
    assert "time series of 3 steps" in text
    assert "3 points from 0 to 2" in text
    times, numbers = read_numbers(str(path))
    assert times.tolist() == [0, 1, 2]
    assert numbers["energy"].tolist() == [1, 2, 3]
    assert (read_plane(str(path), "u", None, None, None).values == 3).all()


def test_a_series_without_snapshots_is_described(tmp_path):
    path = str(tmp_path / "a.h5")
    pencils.TimeSeries(path).close()
    assert "time series of 0 steps" in describe_file(path)
    with pytest.raises(ArgumentError, match="series without snapshots"):
        read_numbers(path)
