"""Damage to files: one flipped bit, and patches that a killed process has not written."""

import h5py

from pencils.io.manifest import check_manifest


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
