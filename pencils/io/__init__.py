"""Fields in HDF5 files, which all ranks write and read: checkpoints, output over time, parts.

May import all folders up to `array`, `distribute` and `transposition`. Only this folder imports
h5py, and only where it is used, because most ranks never need it. Begin with `save` and `load`;
`file_info` describes what a file holds, `manifest` how damage is found.
"""

from pencils.io.checkpoint_series import CheckpointSeries
from pencils.io.load import Checkpoint, load, verify
from pencils.io.open_file import OpenFile, StoredField, open  # noqa: A004 - as in h5py
from pencils.io.save import Saving, save
from pencils.io.series import TimeSeries

__all__ = [
    "Checkpoint",
    "CheckpointSeries",
    "OpenFile",
    "Saving",
    "StoredField",
    "TimeSeries",
    "load",
    "open",
    "save",
    "verify",
]
