"""Which format a path has: HDF5, or Zarr if its name ends in ``.zarr``."""

from __future__ import annotations

import os
import re

_ZARR = re.compile(r".*\.zarr(\.new|\.abandoned(-\d+)?)?/*", re.DOTALL)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*::?//.*", re.DOTALL)


def is_zarr(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a Zarr folder.

    Examples
    --------
    >>> [is_zarr(path) for path in ("run.zarr", "s3://box/run.zarr", "run.zarr.h5")]
    [True, True, False]
    """
    return _ZARR.fullmatch(os.fspath(path)) is not None


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a store of fsspec, which has neither renames nor locks."""
    return _URL.fullmatch(os.fspath(path)) is not None


def real_path(path: str) -> str:
    """Return the path from which links are resolved; that of a store as it is."""
    return path if is_url(path) else os.path.realpath(path)
