"""Checkpoints: fields in genuine HDF5 files, written and read by all ranks."""

from pencils.io.checkpoint import Checkpoint
from pencils.io.load import load
from pencils.io.save import save
from pencils.io.verify import verify

__all__ = ["Checkpoint", "load", "save", "verify"]
