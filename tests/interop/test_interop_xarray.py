"""What xarray does with fields as the data of its arrays."""

import operator

import numpy as np
import pytest

import pencils

pytestmark = pytest.mark.parallel([1, 3])

DIMS = ("x", "y", "z")


@pytest.fixture(scope="module")
def xarray():
    return pytest.importorskip("xarray")


@pytest.fixture
def both(xarray, comm):
    """Make a labelled field, and a labelled array of the same values."""
    pen = pencils.Pencil((6, 5, 4), comm)
    u = pencils.random.normal(pen, rng=1)
    u[2, 3, 1] = np.nan
    return tuple(xarray.DataArray(data, dims=DIMS) for data in (u, pencils.gather(u, root=None)))


FIELDS = {
    "operators": lambda d: 2 * d**2 - d / 3 + (d > 0),
    "ufuncs": lambda d: np.hypot(np.sin(d), d),
    "astype": lambda d: d.astype("f4"),
    "clip": lambda d: d.clip(-1, 1),
    "clip from below": lambda d: d.clip(min=0),
    "conj": lambda d: (d * 1j).conj(),
    "copy": lambda d: d.copy(deep=True),
    "cumsum": lambda d: d.cumsum("x"),
    "fillna": lambda d: d.fillna(7),
    "imag": lambda d: (d * 1j).imag,
    "isel": lambda d: d.isel(x=slice(1, 5), z=slice(None, None, 2)),
    "isin": lambda d: d.round().isin([1, 2]),
    "isnull": lambda d: d.isnull(),
    "notnull": lambda d: d.notnull(),
    "round": lambda d: d.round(1),
    "where": lambda d: d.where(d > 0),
    "where, else": lambda d: d.where(d > 0, -d),
}
NUMBERS = {
    "all": lambda d: (d < 99).all(),
    "any": lambda d: (d > 1).any(),
    "count": lambda d: d.count(),
    "max": lambda d: d.max(),
    "mean": lambda d: d.mean(),
    "mean with NaN": lambda d: d.mean(skipna=False),
    "median": lambda d: d.median(),
    "min": lambda d: d.min(),
    "prod": lambda d: d.prod(),
    "std": lambda d: d.std(ddof=1),
    "sum": lambda d: d.sum(),
    "var": lambda d: d.var(),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_stay_fields(both, name):
    labelled, plain = (FIELDS[name](array) for array in both)
    assert isinstance(labelled.data, pencils.PencilArray)
    assert labelled.dims == plain.dims
    assert labelled.dtype == plain.dtype
    pencils.testing.assert_allclose(labelled.data, plain.data, rtol=1e-6)


@pytest.mark.parametrize("name", NUMBERS)
def test_reductions_are_global(both, name):
    labelled, plain = (NUMBERS[name](array) for array in both)
    assert labelled.dtype == plain.dtype
    np.testing.assert_allclose(labelled.item(), plain.item())


def test_labelled_arrays_broadcast(xarray, both):
    for dim, extent in zip(DIMS, (6, 5, 4), strict=True):
        factor = xarray.DataArray(np.arange(extent), dims=dim)
        labelled, plain = (array * factor for array in both)
        pencils.testing.assert_allclose(labelled.data, plain.data)


@pytest.mark.parametrize("operation", [operator.eq, operator.lt])
def test_whole_arrays_are_compared(both, operation):
    labelled, _ = both
    assert labelled.equals(labelled.copy())
    assert labelled.nbytes == labelled.data.nbytes
    assert operation(labelled, 0).data.dtype == bool
    assert "PencilArray" in repr(labelled)


def test_dimensions_of_space_do_not_vanish(both):
    labelled, plain = both
    with pytest.raises(ValueError, match="number of data dimensions"):
        labelled.sum("x")
    total = labelled.data.sum(axis=0)
    np.testing.assert_allclose(np.isnan(total).sum(), 1)
    assert total.shape == (1, *plain.shape[1:])
    with pytest.raises(TypeError, match="order="):
        labelled.transpose("z", "y", "x")
