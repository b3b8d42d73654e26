"""Numbers over time, as a file of a `TimeSeries` holds them."""

from __future__ import annotations

import os
from typing import Any

import h5py
from numpy.typing import NDArray

from pencils.errors import ArgumentError
from pencils.io.file_info import RESERVED, TIME
from pencils.io.hdf5 import opened
from pencils.io.unpack import read_checked


def read_numbers(path: str) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """Return the times of a series, and the real numbers that it has for each of them; local."""
    with opened(os.path.realpath(path)) as file:
        if RESERVED + "series" in file.attrs and TIME not in file:
            raise ArgumentError(f"{path} is a series without snapshots; append one first")
        found = file.get(TIME)
        if not isinstance(found, h5py.Dataset) or found.ndim != 1:
            raise ArgumentError(f"{path} has no times: pass a file that TimeSeries has written")
        times = read_checked(found)
        numbers = {
            name: read_checked(item)
            for name, item in file.items()
            if isinstance(item, h5py.Dataset) and not item.is_scale
            if item.shape == times.shape and item.dtype.kind in "biuf"
        }
    return times, numbers
