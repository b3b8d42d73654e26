"""Damage to files: a flipped bit, patches that a killed process has not written; failing calls."""

import errno
import os
from copy import copy

import h5py

from pencils.io.manifest import check_manifest

FULL_DISK = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def flip(path, name="u", byte=37, bit=3):
    with h5py.File(path) as file:
        at = file[name].id.get_offset() + byte
    with path.open("r+b") as raw:
        raw.seek(at)
        (value,) = raw.read(1)
        raw.seek(at)
        raw.write(bytes([value ^ 1 << bit]))


def undo_patches(path, before):
    """Leave the file as a process does that is killed before it writes the patches."""
    patches = check_manifest(str(path)).manifest.patches
    assert patches
    with path.open("r+b") as file:
        for offset, data in patches:
            file.seek(offset)
            file.write(before[offset : offset + len(data)])


def failing(error):
    """Make a function that raises an error, whatever it is called with."""

    def fail(*_args, **_options):
        raise copy(error)

    return fail
