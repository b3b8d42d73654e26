"""Fixtures of the tests of transforms."""

import pytest


@pytest.fixture(params=["scipy", "fftw"])
def backend(request):
    """Every library of serial transforms that is installed."""
    if request.param == "fftw":
        pytest.importorskip("mpi4py_fft")
    return request.param
