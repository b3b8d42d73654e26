"""Libraries that not every installation has: an error names what installs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pencils.errors import MissingLibraryError

# How to install each library: as an extra of pencils, or by name.
INSTALL = {
    "Matplotlib": 'pip install "pencils[plot]"',
    "SciPy": "pip install scipy",
    "mpi4py-fft": 'pip install "pencils[fftw]", with a compiler and the headers of FFTW',
    "petsc4py": "pip install petsc petsc4py, with compilers",
}


@contextmanager
def needs(library: str) -> Iterator[None]:
    """Import a library in a ``with`` block; if this fails, raise an error that says how to get it.

    Examples
    --------
    >>> with needs("SciPy"):
    ...     import scipy.fft
    """
    try:
        yield
    except ImportError as error:
        raise MissingLibraryError(
            f"{library} is needed here: {INSTALL[library]} ({error})"
        ) from error
