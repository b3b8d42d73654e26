"""What h5py raises, as errors that can be told apart: the disk fails, or the file is damaged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from pencils.errors import CheckpointError, PencilsError

# In the texts of HDF5, of whatever type h5py makes the error.
_NUMBER = re.compile(r"errno = (\d+)")


def number_of(error: BaseException | None) -> int | None:
    """Find the number of the error of the system that led to another one; None if there was none.

    Examples
    --------
    >>> number_of(KeyError("Unable to open object (file read failed: errno = 5)"))
    5
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        found = _NUMBER.search(str(error))
        if found and int(found[1]):
            return int(found[1])
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def system(verb: str, path: object) -> Iterator[None]:
    """Use h5py in a ``with`` block; what the system refuses is an OSError with its number.

    Parameters
    ----------
    verb : str
        What is done, as errors say.
    path : object
        The file.
    """
    try:
        yield
    except PencilsError:
        raise
    except Exception as error:
        number = number_of(error)
        if number is None:
            raise
        msg = f"cannot {verb} {path}: {os.strerror(number)}"
        raise OSError(number, msg) from error


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Read by h5py in a ``with`` block.

    Raises
    ------
    OSError
        If the system cannot read the file, with its number.
    CheckpointError
        If h5py, or who takes what it returns, complains of anything else: the file is damaged.
    """
    try:
        with system("read", path):
            yield
    except (PencilsError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        msg = f"{path} is a damaged HDF5 file: {error}"
        raise CheckpointError(msg) from error
