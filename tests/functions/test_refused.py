"""Functions and attributes of NumPy without meaning for fields: errors that name what to write."""

import copy
import importlib
import warnings

import numpy as np
import pytest
from fields import lay
from numpy._core.overrides import ARRAY_FUNCTIONS

import pencils
from pencils.array import numpy_api
from pencils.errors import MissingAttributeError
from pencils.functions import FUNCTIONS, refused

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

CALLS = {
    "numpy.dot": (lambda u: np.dot(u, u), "numpy.vdot"),
    "numpy.outer": (lambda u: np.outer(u, u), "broadcast"),
    "numpy.tensordot": (lambda u: np.tensordot(u, u), "numpy.einsum"),
    "numpy.matmul": (lambda u: u @ u, "numpy.einsum"),
    "numpy.reshape": (lambda u: np.reshape(u, -1), "pencils.gather"),
    "numpy.transpose": (np.transpose, "order="),
    "numpy.squeeze": (np.squeeze, "singletons"),
    "numpy.expand_dims": (lambda u: np.expand_dims(u, 1), "0..0"),
    "numpy.take": (lambda u: np.take(u, 0), "u.take_points"),
    "numpy.put": (lambda u: np.put(u, [0], [1]), "u.put_points"),
    "numpy.insert": (lambda u: np.insert(u, 0, 1, 0), "numpy.concatenate"),
    "numpy.nonzero": (np.nonzero, "pencils.functions.own_points"),
    "numpy.where": (np.where, "pencils.functions.own_points"),
    "numpy.place": (lambda u: np.place(u, u > 0, [1, 2]), "numpy.copyto"),
    "numpy.putmask": (lambda u: np.putmask(u, u > 0, [1, 2]), "u[mask] = value"),
    "numpy.partition": (lambda u: np.partition(u, 1, None), "numpy.quantile"),
    "numpy.convolve": (lambda u: np.convolve(u, [1, 2]), "u.shift"),
    "numpy.correlate": (lambda u: np.correlate(u, [1, 2]), "PencilFFT"),
    "numpy.corrcoef": (np.corrcoef, "numpy.vdot"),
    "numpy.meshgrid": (lambda u: np.meshgrid(u, u), "pencils.localgrid"),
    "numpy.fft.fft": (np.fft.fft, "PencilFFT"),
    "numpy.linalg.det": (np.linalg.det, "component axes"),
    "numpy.linalg.lstsq": (lambda u: np.linalg.lstsq(u, u), "numpy.linalg.pinv"),
    "numpy.intersect1d": (lambda u: np.intersect1d(u, u, return_indices=True), "numpy.isin"),
    "numpy.(linalg.)?matmul": (lambda u: np.linalg.matmul(u, u), "numpy.einsum"),
    "numpy.linalg.vector_norm": (lambda u: np.linalg.vector_norm(u, axis=(0, 1)), "component"),
    "numpy.ediff1d": (np.ediff1d, "numpy.diff"),
    "numpy.rot90": (np.rot90, "numpy.flip"),
    "numpy.trace": (np.trace, "component axis"),
    "numpy.diagonal": (np.diagonal, "u.take_points"),
    "numpy.lib._?scimath.*.sqrt": (np.emath.sqrt, "astype"),
    "numpy.save": (lambda u: np.save("never.npy", u), "pencils.save"),
    "numpy.array": (lambda u: np.array([1.0], like=u), "pencils.partition"),
    "numpy.add.at": (lambda u: np.add.at(u, 0, 1), "u.put_points"),
    "numpy.add.reduceat": (lambda u: np.add.reduceat(u, [0]), "sections"),
    "numpy.multiply.outer": (lambda u: np.multiply.outer(u, u), "broadcast"),
    "numpy.subtract.reduce": (np.subtract.reduce, "logical_"),
    "numpy.fromfunction": (lambda u: np.fromfunction(abs, (1,), like=u), "like="),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_error_names_what_to_write(comm, name):
    call, instead = CALLS[name]
    with pytest.raises(TypeError, match=name) as caught:
        call(pencils.ones(lay(comm, "plane"), dtype=int))
    assert instead in str(caught.value)


def test_every_function_works_or_has_a_text():
    for module in ("char", "fft", "lib.recfunctions", "polynomial", "strings"):
        importlib.import_module(f"numpy.{module}")
    known = numpy_api.ELEMENTWISE.keys() | numpy_api.REDUCTIONS.keys()
    known |= numpy_api._FUNCTIONS.keys() | FUNCTIONS.keys()
    names = [f"{f.__module__}.{f.__name__}" for f in ARRAY_FUNCTIONS - known]
    without = [name for name in names if "no global meaning" in refused.explain_function(name)]
    assert without == []
    works = {f"{f.__module__}.{f.__name__}" for f in known if not isinstance(f, np.ufunc)}
    assert [name for name in works if name.removeprefix("numpy.") in refused._OF_FUNCTIONS] == []


def test_every_attribute_of_arrays_is_there_or_has_a_text(comm):
    u = pencils.ones(lay(comm, "plane"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [name for name in dir(np.ndarray) if not name.startswith("_")]
    for name in set(names) - set(dir(u)) - {"base"}:
        assert not hasattr(u, name)
        with pytest.raises(MissingAttributeError, match=name) as caught:
            getattr(u, name)
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value, AttributeError)
        assert isinstance(caught.value, pencils.errors.PencilsError)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("T", "order="),
        ("reshape", "pencils.gather"),
        ("flatten", "u.local"),
        ("tolist", "tolist"),
        ("tofile", "pencils.save"),
        ("nonzero", "pencils.functions.own_points"),
        ("searchsorted", "numpy.searchsorted"),
        ("data", "u.local"),
        ("dot", "numpy.vdot"),
    ],
)
def test_an_attribute_names_what_to_write(comm, name, instead):
    with pytest.raises(MissingAttributeError) as caught:
        getattr(pencils.ones(lay(comm, "plane")), name)
    assert instead in str(caught.value)


def test_other_names_raise_as_usual(comm):
    u = pencils.ones(lay(comm, "plane"))
    for name in ("nothing", "fft", "_kept_halo", "shifts", "__array_namespace__"):
        with pytest.raises(AttributeError, match=name) as caught:
            getattr(u, name)
        assert not isinstance(caught.value, TypeError)
    assert copy.copy(u).shape == u.shape


def test_memory_is_not_exported(comm):
    u = pencils.ones(lay(comm, "plane"))
    for call in (u.__dlpack__, u.__dlpack_device__, lambda: np.from_dlpack(u)):
        with pytest.raises(BufferError, match=r"u\.local"):
            call()
