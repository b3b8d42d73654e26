"""Files opened in VTK, as ParaView does: what it shows is what was stored, where it was stored."""

import contextlib
from time import sleep

import h5py
import numpy as np
import pytest
from damage import failing

import pencils
from pencils.errors import ArgumentError
from pencils.io import vtkhdf
from pencils.io.show import describe_file

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 5, 6)
EVEN = [np.linspace(0.5, 1, 7), np.arange(5), np.linspace(2, 3, 6, dtype="f4")]
UNEVEN = [np.linspace(0, 1, 7) ** 2, np.arange(5)[::-1], np.linspace(2, 3, 6, dtype="f4")]


@pytest.fixture
def vtk():
    return pytest.importorskip("vtkmodules.vtkIOHDF", reason="needs vtk")


def read(vtk, path):
    """Read all steps: times, positions of points, and arrays by name for each step."""
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline

    reader = vtk.vtkHDFReader()
    assert reader.CanReadFile(str(path))
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    key = vtkStreamingDemandDrivenPipeline.TIME_STEPS()
    times = reader.GetOutputInformation(0).Get(key)
    steps = []
    for time in (0.0,) if times is None else times:
        reader.UpdateTimeStep(time)
        grid = reader.GetOutputDataObject(0)
        shape = grid.GetDimensions()[::-1]
        data = grid.GetPointData()
        arrays = [data.GetArray(number) for number in range(data.GetNumberOfArrays())]
        numbers = {one.GetName(): np.array(vtk_to_numpy(one)) for one in arrays}
        steps.append({name: one.reshape(shape + one.shape[1:]) for name, one in numbers.items()})
        points = np.array([grid.GetPoint(number) for number in range(np.prod(shape))])
        points = points.reshape(*shape, 3)
        extra = grid.GetFieldData().GetArray("TimeValue")
    return times if times is not None else extra and extra.GetValue(0), points, steps


def on_points(axes):
    """Positions of the points of a grid."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def same(found, expected):
    return found.dtype == expected.dtype.newbyteorder("=") and np.array_equal(found, expected)


def spread(pencil, array, **options):
    lead = array.ndim - pencil.ndim
    u = pencils.empty(pencil, dtype=array.dtype, components=array.shape[:lead], **options)
    u.local[...] = array[u.local_slices]
    return u


def append(path, lab, data, times, axes=EVEN, **options):
    pencil = pencils.Pencil(data.shape[-len(axes) :], lab.comm)
    grid = pencils.localgrid(pencil, axes)
    with pencils.TimeSeries(path, grid=grid, **options) as series:
        for time, array in zip(times, data, strict=True):
            u = spread(pencil, array)
            p = u.component(0)
            fields = {"u": u, "fluid/p": p, "complex": p * 1j, "line": (p, np.s_[:, 1]), "n": 1}
            series.append(time, fields)


@pytest.mark.parametrize("dtype", ["f8", ">f4", "i8", "u1"])
@pytest.mark.parametrize("axes", [EVEN, EVEN[:2], UNEVEN], ids=["3-D", "2-D", "uneven"])
def test_series(vtk, lab, mpi_tmp_path, axes, dtype):
    shape = tuple(map(len, axes))
    data = np.abs(lab.numbers((4, 3, *shape))).astype(dtype)
    path = mpi_tmp_path / "out.h5"
    append(path, lab, data[:1], [0.5], axes)
    append(path, lab, data[1:2], [1.5], axes)
    append(path, lab, data[2:], [2.5, 4], axes)

    def look():
        times, points, steps = read(vtk, path)
        assert times == (0.5, 1.5, 2.5, 4)
        own = points.reshape(*shape, 3)[..., : len(axes)]
        assert np.allclose(own[..., ::-1], on_points(axes), atol=1e-7)
        for found, array in zip(steps, data, strict=True):
            assert sorted(found) == ["fluid_p", "u"]
            assert same(found["fluid_p"].reshape(shape), array[0])
            vectors = np.moveaxis(array, 0, -1)[..., :: -1 if len(axes) == 3 else 1]
            assert same(found["u"].reshape(*shape, 3), vectors)

    lab.on_root(look)


@pytest.mark.parametrize(("axes", "compression"), [(EVEN, None), (EVEN, "gzip"), (None, None)])
def test_checkpoint(vtk, lab, path, axes, compression):
    """Without coordinates VTK has indices."""
    data = lab.numbers((2, 2, *SHAPE))
    for pencil in lab.some_pencils(SHAPE, 3, seed=5):
        u, flag = spread(pencil, data), spread(pencil, data[0, 0] > 0)
        grid = axes and pencils.localgrid(pencil, axes)
        fields = {"u": u, "p": u.component(0, 1), "flag": flag, "dt": 0.1}
        pencils.save(path, fields, grid=grid, time=0.25, compression=compression)

        def look():
            time, points, (found,) = read(vtk, path)
            assert time == 0.25
            expected = on_points(axes or [np.arange(n) for n in SHAPE])
            assert np.allclose(points[..., ::-1], expected, atol=1e-7)
            assert sorted(found) == ["p", "u"]
            assert same(found["p"], data[0, 1])
            assert same(found["u"], np.moveaxis(data.reshape(4, *SHAPE), 0, -1))

        lab.on_root(look)


def test_filters_find_the_places(vtk, lab, mpi_tmp_path):
    """Contours, too, which ignore the attribute that turns axes; of a series and a checkpoint."""
    core = pytest.importorskip("vtkmodules.vtkFiltersCore")
    path, pencil = mpi_tmp_path / "a.h5", pencils.Pencil((24, 20, 16), lab.comm)
    grid = pencils.localgrid(
        pencil, [np.linspace(0, 3, 24), np.arange(20) / 10, np.arange(16) / 10]
    )
    x, y, z = grid
    fields = {"p": (x - 2) ** 2 + (y - 1) ** 2 + (z - 0.5) ** 2}
    pencils.save(mpi_tmp_path / "b.h5", fields, grid=grid)
    with pencils.TimeSeries(path, grid=grid) as series:
        for time in range(2):
            series.append(time, fields)

    def look(file):
        reader = vtk.vtkHDFReader()
        reader.SetFileName(str(mpi_tmp_path / file))
        reader.UpdateInformation()
        reader.UpdateTimeStep(1)
        for name in ("vtkContourFilter", "vtkFlyingEdges3D"):
            surface = getattr(core, name)()
            surface.SetInputData(reader.GetOutputDataObject(0))
            surface.SetInputArrayToProcess(0, 0, 0, 0, "p")
            surface.SetValue(0, 0.16)
            surface.Update()
            ends = np.reshape(surface.GetOutputDataObject(0).GetBounds(), (3, 2))[::-1]
            assert np.allclose(ends, [[1.6, 2.4], [0.6, 1.4], [0.1, 0.9]], atol=0.01)

    for file in ("a.h5", "b.h5"):
        lab.on_root(look, file)


def test_planes_alone(vtk, lab, path):
    pencil = pencils.Pencil(SHAPE, lab.comm)
    data = lab.numbers(SHAPE)
    with pencils.TimeSeries(path, grid=pencils.localgrid(pencil, EVEN)) as series:
        series.append(2, {"plane": (spread(pencil, data), np.s_[:, 3])})

    def look():
        time, points, (found,) = read(vtk, path)
        assert time == 2
        assert same(found["plane"].reshape(7, 6), data[:, 3])
        expected = on_points([EVEN[0], EVEN[2]])
        assert np.allclose(points.reshape(7, 6, 3)[..., 1::-1], expected, atol=1e-7)

    lab.on_root(look)


def test_truncated_series(vtk, lab, path):
    data = lab.numbers((4, 3, *SHAPE))

    def look(*numbers):
        times, _, steps = read(vtk, path)
        assert times == (numbers if len(numbers) > 1 else numbers[0])
        found = [step["u"][2, 3, 4, 0] for step in steps]
        assert found == [data[int(number), 2, 2, 3, 4] for number in numbers]

    append(path, lab, data, range(4))
    for left, last in [((0, 1, 3.5), 1), ((0, 3.5), 0), ((3.5,), -1)]:
        with pencils.TimeSeries(path, comm=lab.comm) as series:
            series.truncate(last)
        if left[:-1]:
            lab.on_root(look, *left[:-1])
        append(path, lab, data[3:], [3.5])
        lab.on_root(look, *left)


def test_a_failed_append_is_not_shown(vtk, lab, path, monkeypatch):
    """Of a snapshot whose points are written, VTK sees nothing before all is written."""
    from pencils.io import manifest

    data = lab.numbers((3, 3, *SHAPE))
    append(path, lab, data[:2], range(2))

    with monkeypatch.context() as patch, contextlib.suppress(OSError):
        patch.setattr(manifest, "_switch", failing(OSError(28, "no space")))
        append(path, lab, data[2:], [2])
    times = lab.on_root(lambda: read(vtk, path)[0])
    assert times == (0, 1)


def test_other_programs_see_each_dataset_once(lab, path):
    append(path, lab, lab.numbers((2, 3, *SHAPE)), range(2))

    def look():
        with h5py.File(path) as file:
            seen = []
            file.visit(seen.append)
            view = file["VTKHDF"]
            assert view["PointData/fluid_p"] == file["fluid/p"]
            assert view["Steps/Values"] == file["time"]
        assert {"u", "fluid/p", "time", "x"} <= set(seen)
        virtual = ["VTKHDF", "VTKHDF/PointData", "VTKHDF/PointData/u", "VTKHDF/Steps"]
        assert [name for name in seen if "VTKHDF" in name] == virtual
        assert "VTKHDF" not in describe_file(str(path))

    lab.on_root(look)
    found = pencils.load(path, pencils.Pencil(SHAPE, lab.comm), names=["u", "fluid/p"])
    assert sorted(found) == ["fluid/p", "u"]
    expected = ["complex", "fluid/p", "line", "u"]
    assert sorted(set(pencils.verify(path, lab.comm)) & set(expected)) == expected


def test_bytes_in_addition(lab, mpi_tmp_path, monkeypatch):
    data = lab.numbers((5, 3, *SHAPE))
    append(mpi_tmp_path / "with.h5", lab, data, range(5))
    monkeypatch.setattr(vtkhdf, "_is_plain", lambda _: False)
    append(mpi_tmp_path / "without.h5", lab, data, range(5))

    def sizes():
        return [(mpi_tmp_path / f"{name}.h5").stat().st_size for name in ("with", "without")]

    more, less = lab.on_root(sizes)
    assert 0 < more - less < 20_000


def test_names_that_are_taken(lab, mpi_tmp_path):
    u = pencils.ones(pencils.Pencil(SHAPE, lab.comm))
    for name in ("VTKHDF", "VTKHDF/u"):
        lab.refuses(ArgumentError, "VTK", pencils.save, mpi_tmp_path / "a.h5", {name: u})


def test_equal_fields_give_equal_files(lab, mpi_tmp_path):
    u = pencils.ones(pencils.Pencil(SHAPE, lab.comm), components=3)
    files = []
    for name in "ab":
        pencils.save(mpi_tmp_path / name, {"u": u})
        files.append(lab.on_root((mpi_tmp_path / name).read_bytes))
        sleep(1.1)  # HDF5 would store the second at which a dataset was made
    assert files[0] == files[1]
