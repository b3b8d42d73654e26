"""XDMF files, read as ParaView would: every reference leads to the numbers that were stored."""

from xml.etree import ElementTree as ET

import h5py
import numpy as np
import pytest

import pencils
from pencils.errors import CheckpointError
from pencils.io import xdmf

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 5, 6)
EVEN = [np.linspace(0, 1, 7), np.arange(5), np.linspace(2, 3, 6)]
UNEVEN = [np.linspace(0, 1, 7) ** 2, np.arange(5), np.linspace(2, 3, 6)]
KINDS = {"Float": "f", "Int": "i", "UInt": "u", "Char": "i", "UChar": "u"}
ORDERS = {"Little": "<", "Big": ">"}


def numbers_in(item):
    return [int(number) for number in item.get("Dimensions").split()]


def read_item(item, folder):
    """Read what a DataItem refers to, and check that it says of it what is right."""
    if item.get("ItemType") == "HyperSlab":
        rows, source = item
        start, stride, count = np.array(rows.text.split(), int).reshape(3, -1)
        assert rows.get("Dimensions") == f"3 {len(start)}"
        key = zip(start, start + stride * count, stride, strict=True)
        part = read_item(source, folder)[tuple(slice(*along) for along in key)]
        return part.reshape(numbers_in(item))
    if item.get("Format") == "XML":
        found = np.array(item.text.split(), float)
        assert found.size == np.prod(numbers_in(item))
        return found
    name, path = item.text.split(":")
    with h5py.File(folder / name) as file:
        dataset = file[path]
        found = dataset[...][: numbers_in(item)[0]]
    assert numbers_in(item) == list(found.shape)
    kind = f"{ORDERS[item.get('Endian')]}{KINDS[item.get('NumberType')]}{item.get('Precision')}"
    assert np.dtype(kind) == found.dtype
    return found


def read_grid(grid, folder):
    """Find time, coordinates (in the order of axes) and fields of a grid."""
    topology, geometry = grid.find("Topology"), grid.find("Geometry")
    shape = numbers_in(topology)
    items = [read_item(item, folder) for item in geometry]
    if topology.get("TopologyType") == f"{len(shape)}DCoRectMesh":
        assert geometry.get("GeometryType").startswith("ORIGIN_DXDY")
        origin, steps = items
        axes = [o + d * np.arange(n) for o, d, n in zip(origin, steps, shape, strict=True)]
    else:
        assert geometry.get("GeometryType") == {2: "VXVY", 3: "VXVYVZ"}[len(shape)]
        axes = items[::-1]
    assert [axis.size for axis in axes] == shape
    fields = {}
    for attribute in grid.findall("Attribute"):
        assert (attribute.get("Center"), attribute.get("AttributeType")) == ("Node", "Scalar")
        fields[attribute.get("Name")] = read_item(attribute[0], folder)
        assert list(fields[attribute.get("Name")].shape) == shape
    time = grid.find("Time")
    return None if time is None else float(time.get("Value")), axes, fields


def read_series(path):
    """Read all collections of an XDMF file: for each name of a mesh its snapshots."""
    root = ET.parse(path).getroot()
    assert (root.tag, root.get("Version")) == ("Xdmf", "3.0")
    found = {}
    for collection in root.find("Domain").findall("Grid"):
        assert collection.get("CollectionType") == "Temporal"
        found[collection.get("Name")] = [read_grid(grid, path.parent) for grid in collection]
    return found


def append(series, arrays, pencil, times):
    for time, array in zip(times, arrays, strict=True):
        u = pencils.empty(pencil, components=3, dtype=array.dtype)
        u.local[...] = array[u.local_slices]
        first = u.component(0)
        parts = {"plane": (u, np.s_[1, :, 2]), "coarse": (first, np.s_[::2, ::2, ::3])}
        series.append(time, {"u": u, "p": first, "c": first * 1j, **parts, "energy": 1.0})


@pytest.mark.parametrize("dtype", ["f8", ">f4", "i2", "u1"])
@pytest.mark.parametrize("axes", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_series(lab, mpi_tmp_path, axes, dtype):
    pencil = pencils.Pencil(SHAPE, lab.comm)
    data = np.abs(lab.numbers((3, 3, *SHAPE))).astype(dtype)
    path, times = mpi_tmp_path / "out.h5", [0.5, 1.5, 2.5]
    grid = pencils.localgrid(pencil, axes)
    with pencils.TimeSeries(path, grid=grid, xdmf=True) as series:
        append(series, data, pencil, times)

    def look():
        found = read_series(path.with_suffix(".xdmf"))
        assert sorted(found) == ["coarse_x coarse_y coarse_z", "x y z", "x z"]
        for name, keys in {
            "x y z": {"p": np.s_[0], "u_0": np.s_[0], "u_1": np.s_[1], "u_2": np.s_[2]},
            "x z": {"plane": np.s_[1, :, 2]},
            "coarse_x coarse_y coarse_z": {"coarse": np.s_[0, ::2, ::2, ::3]},
        }.items():
            assert [time for time, _, _ in found[name]] == times
            for array, (_, _, fields) in zip(data, found[name], strict=True):
                assert set(fields) == set(keys)
                assert all(np.array_equal(fields[one], array[key]) for one, key in keys.items())
        for _, mesh, _ in found["x y z"]:
            assert all(np.allclose(one, axis) for one, axis in zip(mesh, axes, strict=True))
        note = ET.parse(path.with_suffix(".xdmf")).getroot().find("Domain/Information")
        assert note.get("Value") == "c"

    lab.on_root(look)


@pytest.mark.parametrize("storage", ["file", "files"])
def test_sidecar_never_names_what_is_not_there(lab, mpi_tmp_path, storage):
    pencil = pencils.Pencil(SHAPE, lab.comm)
    data = lab.numbers((4, 3, *SHAPE))
    with pencils.TimeSeries(mpi_tmp_path / "a", comm=lab.comm, storage=storage, xdmf=True) as made:
        sidecar = (mpi_tmp_path / "a.xdmf") if storage == "file" else mpi_tmp_path / "a/index.xdmf"
        for step in range(4):
            append(made, data[step : step + 1], pencil, [step])
            times = lab.on_root(
                lambda: [t for t, *_ in read_series(sidecar)["dim0_7 dim1_5 dim2_6"]]
            )
            assert times == made.times.tolist()
        made.truncate(1)
        found = lab.on_root(lambda: read_series(sidecar)["dim0_7 dim1_5 dim2_6"])
        assert [time for time, *_ in found] == [0, 1]
        assert np.array_equal(found[1][2]["u_2"], data[1, 2])


def test_checkpoint(lab, mpi_tmp_path):
    pencil = pencils.Pencil(SHAPE, lab.comm, decomp=(1, 2))
    path = mpi_tmp_path / "run.h5"
    data = lab.numbers((3, *SHAPE))
    u = pencils.empty(pencil, components=3)
    u.local[...] = data[u.local_slices]
    grid = pencils.localgrid(pencil, UNEVEN)
    mean = u.mean(axis=2)
    pencils.save(path, {"u": u, "g/q": u.component(1), "mean": mean}, grid=grid, time=0.25)
    made = pencils.io.write_xdmf(path, lab.comm)
    assert lab.everywhere(made == str(path.with_suffix(".xdmf")))

    def look():
        domain = ET.parse(made).getroot().find("Domain")
        grids = {grid.get("Name"): read_grid(grid, path.parent) for grid in domain.findall("Grid")}
        time, axes, fields = grids["x y z"]
        assert time == 0.25
        assert all(np.allclose(one, axis) for one, axis in zip(axes, UNEVEN, strict=True))
        assert np.array_equal(fields["u_1"], data[1])
        assert np.array_equal(fields["g/q"], data[1])
        assert np.allclose(grids["x y_1 z"][2]["mean_0"], data[0].mean(axis=1, keepdims=True))

    lab.on_root(look)


def test_mistakes(lab, mpi_tmp_path):
    assert (
        lab.raised(pencils.io.write_xdmf, mpi_tmp_path / "a.h5", lab.comm)[0] is FileNotFoundError
    )
    lab.on_root((mpi_tmp_path / "b.h5").write_bytes, b"text")
    assert lab.raised(pencils.io.write_xdmf, mpi_tmp_path / "b.h5", lab.comm)[0] is CheckpointError


def test_no_file_of_data_is_overwritten(lab, mpi_tmp_path):
    u = pencils.ones(pencils.Pencil(SHAPE, lab.comm))
    for name, sidecar in [
        ("p.xdmf", "p.xdmf.xdmf"),
        ("r.001", "r.001.xdmf"),
        ("a.hdf5", "a.xdmf"),
        ("b", "b.xdmf"),
    ]:
        pencils.save(mpi_tmp_path / name, {"u": u})
        made = pencils.io.write_xdmf(mpi_tmp_path / name, lab.comm)
        assert made == str(mpi_tmp_path / sidecar)
        assert pencils.verify(mpi_tmp_path / name, lab.comm) == ["u"]
    with pencils.TimeSeries(mpi_tmp_path / "o.xdmf", comm=lab.comm, xdmf=True) as series:
        for step in range(2):
            series.append(step, {"u": u})
    assert pencils.verify(mpi_tmp_path / "o.xdmf", lab.comm) == ["u"]


def test_truncating_a_series_that_was_opened_again(lab, mpi_tmp_path):
    path, u = mpi_tmp_path / "a.h5", pencils.ones(pencils.Pencil(SHAPE, lab.comm))
    with pencils.TimeSeries(path, comm=lab.comm, xdmf=True) as series:
        for step in range(4):
            series.append(step, {"u": u})
    series = pencils.TimeSeries(path, comm=lab.comm, xdmf=True)
    for last, times in [(1, [0, 1]), (-np.inf, [])]:
        series.truncate(last)
        found = lab.on_root(lambda: read_series(path.with_suffix(".xdmf")))
        assert [time for time, *_ in found["dim0_7 dim1_5 dim2_6"]] == times
    series.close()


def test_components_and_fields_of_one_name(lab, mpi_tmp_path):
    pencil = pencils.Pencil(SHAPE, lab.comm)
    u = pencils.ones(pencil, components=2)
    fields = {"u": u, "u_0": 3 * u.component(0), "u_1": 5 * u}
    pencils.save(mpi_tmp_path / "a.h5", fields, grid=pencils.localgrid(pencil, EVEN))
    made = pencils.io.write_xdmf(mpi_tmp_path / "a.h5", lab.comm)

    def look():
        (grid,) = ET.parse(made).getroot().find("Domain").findall("Grid")
        assert len(grid.findall("Attribute")) == 5
        fields = read_grid(grid, mpi_tmp_path)[2]
        found = {name: field.flat[0] for name, field in fields.items()}
        assert found == {"u_0_": 1, "u_1": 1, "u_0": 3, "u_1_0": 5, "u_1_1": 5}

    lab.on_root(look)


def test_coordinates_are_read_once(lab, mpi_tmp_path, monkeypatch):
    pencil, seen = pencils.Pencil(SHAPE, lab.comm), []
    really = xdmf._make_mesh
    monkeypatch.setattr(xdmf, "_make_mesh", lambda *args: seen.append(1) or really(*args))
    with pencils.TimeSeries(mpi_tmp_path / "a.h5", comm=lab.comm) as series:
        for step in range(3):
            series.append(step, {"u": pencils.ones(pencil)})
    pencils.io.write_xdmf(mpi_tmp_path / "a.h5", lab.comm)
    assert len(seen) == (lab.comm.rank == 0)
