"""Checkpoints: fields in genuine HDF5 files, written and read by all ranks."""

from pencils.io.checkpoint import Checkpoint
from pencils.io.checkpoint_series import CheckpointSeries
from pencils.io.load import load
from pencils.io.open_file import OpenFile, open  # noqa: A004 - as in h5py
from pencils.io.save import save
from pencils.io.saving import Saving
from pencils.io.series import TimeSeries
from pencils.io.stored_field import StoredField
from pencils.io.verify import verify
from pencils.io.xdmf import write_xdmf

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
    "write_xdmf",
]
