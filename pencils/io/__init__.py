"""Checkpoints: fields in genuine HDF5 files, written and read by all ranks."""

from pencils.io.checkpoint import Checkpoint
from pencils.io.load import load
from pencils.io.open_file import OpenFile, open  # noqa: A004 - as in h5py
from pencils.io.save import save
from pencils.io.stored_field import StoredField
from pencils.io.verify import verify

__all__ = ["Checkpoint", "OpenFile", "StoredField", "load", "open", "save", "verify"]
