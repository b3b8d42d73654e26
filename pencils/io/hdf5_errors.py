"""Translate the errors of h5py: OSError if the system fails, CheckpointError for damaged files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from pencils.errors import CheckpointError, PencilsError

# In the error texts of HDF5; h5py raises them as errors of many types.
_NUMBER = re.compile(r"errno = (\d+)")


def number_of(error: BaseException | None) -> int | None:
    """Return the errno of the system error that caused another error; None if there was none.

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
    """Use h5py in a ``with`` block; raise errors of the system as OSError with their errno.

    The error text is "cannot `verb` `path`" and the reason.
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
    """Read by h5py in a ``with`` block; other errors than those of the system mean damage.

    Raises OSError with its errno, or CheckpointError.
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
