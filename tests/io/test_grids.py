"""Coordinates and data in other forms: fields of a grid, netCDF variables, single values."""

import h5py
import numpy as np
import pytest

import pencils
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

AXES = [np.linspace(0, 1, 6), np.linspace(2, 3, 5) ** 2]


@pytest.fixture
def grid(comm):
    return pencils.localgrid(pencils.Pencil((6, 5), comm, decomp=(0, 1)), AXES)


def axes_in(lab, path):
    def read():
        with h5py.File(path) as file:
            return file["x"][...], file["y"][...]

    return lab.on_root(read)


def test_coordinates_as_fields(lab, mpi_tmp_path, grid):
    u = pencils.ones(grid.pencil)
    for number, given in enumerate((tuple(grid), [*grid], (grid.x + 0, grid.y * 1))):
        path = mpi_tmp_path / f"{number}.h5"
        with pencils.TimeSeries(path, grid=given) as series:
            series.append(0, {"u": u})
        assert all(map(np.array_equal, axes_in(lab, path), AXES))
        pencils.save(path, {"u": u}, grid=given)
        assert all(map(np.array_equal, axes_in(lab, path), AXES))


def test_fields_that_are_no_coordinates(lab, mpi_tmp_path, grid):
    path, (x, y) = mpi_tmp_path / "a.h5", grid
    u = pencils.ones(grid.pencil)
    other = pencils.localgrid(pencils.Pencil((6, 5), lab.comm, decomp=1), AXES)
    for bad in ((x,), (y, x), (x, y, y), (u, y), (x, other.y)):
        for call in (
            lambda bad=bad: pencils.TimeSeries(path, grid=bad),
            lambda bad=bad: pencils.save(path, {"u": u}, grid=bad),
        ):
            lab.refuses(PencilMismatchError, "x, y, z = localgrid", call)
    for bad in ((), (x, 3), AXES, x):
        assert lab.raised(pencils.TimeSeries, path, grid=bad)[0] is TypeError
    if lab.comm.size > 1:
        mine = (x, y) if lab.comm.rank == 0 else grid
        assert lab.raised(pencils.TimeSeries, path, grid=mine)[0] is RankDisagreementError
    assert not lab.on_root(path.exists)


def test_netcdf_variables_of_scipy(lab, mpi_tmp_path):
    io = pytest.importorskip("scipy.io")
    array = lab.numbers((2, 6, 5))

    def write():
        with io.netcdf_file(mpi_tmp_path / "a.nc", "w") as file:
            for name, points in {"c": np.arange(2.0), "x": AXES[0], "y": AXES[1]}.items():
                file.createDimension(name, len(points))
                file.createVariable(name, "f8", (name,))[:] = points
            file.createVariable("u", "f8", ("c", "x", "y"))[:] = array
            packed = file.createVariable("t", "i2", ("x", "y"))
            packed[:] = np.arange(30).reshape(6, 5)
            packed.scale_factor = 0.5

    lab.on_root(write)
    pencil = pencils.Pencil((6, 5), lab.comm)
    with io.netcdf_file(mpi_tmp_path / "a.nc", mmap=False) as file:
        variables = file.variables
        assert lab.holds(pencils.partition(pencil, variables["u"]), array.astype(">f8"))
        data = variables["u"] if lab.comm.rank == 0 else None
        assert lab.holds(pencils.partition(pencil, data, root=0), array.astype(">f8"))
        x, y = pencils.localgrid(pencil, (variables["x"], variables["y"]))
        assert np.array_equal(pencils.gather(x, root=None, dims=0), AXES[0])
        assert np.array_equal(pencils.gather(y, root=None, dims=1), AXES[1])
    with io.netcdf_file(mpi_tmp_path / "a.nc", mmap=False, maskandscale=True) as file:
        scaled = pencils.partition(pencil, file.variables["t"])
        assert lab.holds(scaled, 0.5 * np.arange(30.0).reshape(6, 5))


def test_what_to_write_instead(lab):
    pencil = pencils.Pencil((6, 5), lab.comm)
    for value in (3.0, np.float64(3), np.array(3.0)):
        for rest in ({}, {"dims": 0}):
            with pytest.raises(ArgumentError, match=r"pencils.full\(pencil, value\)"):
                pencils.partition(pencil, value, **rest)
    root = 3.0 if lab.comm.rank == 0 else None
    assert "pencils.full" in lab.raised(pencils.partition, pencil, root, root=0)[1]
    u = pencils.ones(pencil)
    with pytest.raises(TypeError, match=r"u.copy\(\)"):
        pencils.full(pencil, u)
    with pytest.raises(TypeError, match=r"u.copy\(\)"):
        pencils.full(pencil, u, dtype=int)
