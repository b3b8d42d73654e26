"""Change HDF5 files without letting HDF5 write: what reaches a disk goes there by plain writes.

A write of HDF5's own that fails tells of it when objects are closed, where it may be ignored, and
leaves a library that may crash later on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import h5py

from pencils.io.overlay import Overlay

# What HDF5 since 1.10 reads; newer forms would be unreadable for installed tools.
LIBVER = ("earliest", "v110")


@contextmanager
def changing(file: str | Overlay, mode: Literal["r+", "w"] = "r+", **options: Any) -> Iterator[Any]:
    """Open a file for changes by h5py in a ``with`` block, and make them at its end.

    Parameters
    ----------
    file : str or Overlay
        The file, which exists; of an overlay the changes are left to who made it.
    mode : {"r+", "w"}, optional
        Whether to keep what is there.
    **options
        Others of `h5py.File`.

    Raises
    ------
    OSError
        If the file can be neither read nor written.
    """
    if isinstance(file, Overlay):
        with h5py.File(file, mode, libver=LIBVER, **options) as opened:
            yield opened
        return
    with Overlay(file) as overlay:
        with changing(overlay, mode, **options) as opened:
            yield opened
        overlay.apply()
