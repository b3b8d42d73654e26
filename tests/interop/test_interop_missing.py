"""Modules for other libraries can be imported without these, and say what is missing."""

import sys

import pytest
from mpi_helpers import all_raise

import pencils
from pencils.interop import mpi4py_fft as theirs
from pencils.interop import petsc

pytestmark = pytest.mark.parallel([1, 3])


def test_a_missing_library_is_named(comm, monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py_fft", None)
    monkeypatch.setitem(sys.modules, "petsc4py", None)
    pencil = pencils.Pencil((6, 5, 4), comm)
    for call in (
        lambda: theirs.to_pencil(None, comm),
        lambda: theirs.to_array(None, comm),
        lambda: theirs.from_pencil(pencil),
        lambda: theirs.subcomm(pencil),
        lambda: theirs.from_array(pencils.zeros(pencil)),
        lambda: petsc.from_pencil(pencil),
        lambda: petsc.from_array(pencils.zeros(pencil)),
    ):
        all_raise(comm, pencils.errors.MissingLibraryError, "pip install", call)
