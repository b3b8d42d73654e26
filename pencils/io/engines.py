"""Which way the bytes of fields go into files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pencils.array.pencil_array import PencilArray
from pencils.comm.file import SharedFile
from pencils.errors import ArgumentError
from pencils.io.chunked import Chunked
from pencils.io.direct import open_direct
from pencils.io.draft import Draft
from pencils.io.mpio import open_mpio
from pencils.io.progress import Told
from pencils.io.writers import OpenWriter, write_each

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

# What ``engine="auto"`` means; direct if it is not set.
VARIABLE = "PENCILS_IO_ENGINE"

# Writing at once; in the background there is only one way.
ENGINES: dict[str, OpenWriter] = {"direct": open_direct, "mpio": open_mpio}


def read_engine(engine: object, *, wait: bool) -> str:
    """Read the name of an engine; the environment says what "auto" means.

    Raises
    ------
    ArgumentError
        If there is no such engine, or it cannot do what is asked of it.
    """
    if engine == "auto":
        named = os.environ.get(VARIABLE, "auto") if wait else "direct"
        return "direct" if named in {"", "auto"} else read_engine(named, wait=True)
    if engine not in list(ENGINES):
        names = "', '".join(("auto", *ENGINES))
        msg = f"engine={engine!r} must be one of '{names}'; {VARIABLE} says what 'auto' means"
        raise ArgumentError(msg)
    if engine == "mpio":
        _check_mpio(wait=wait)
    return str(engine)


def write_fields(
    comm: MPI.Intracomm, draft: Draft, fields: Mapping[str, PencilArray], engine: str, moved: Told
) -> dict[str, int]:
    """Write all fields to a file, those in one piece by an engine. *Collective*.

    Returns
    -------
    dict of str to int
        This rank's parts of the checksums, by name.

    Raises
    ------
    OSError
        On every rank, if writing has failed on any.
    """
    whole = [entry for entry in draft.entries if not entry.chunks]
    chunked = [entry for entry in draft.entries if entry.chunks]
    sums: dict[str, int] = {}
    if whole:
        with ENGINES[engine](comm, draft.path, summed=draft.summed, moved=moved) as writer:
            sums |= write_each(comm, writer, fields, whole)
    if chunked:
        with SharedFile(comm, draft.path, write=True) as file:
            sums |= write_each(comm, Chunked(file, draft, moved), fields, chunked)
    return sums


def _check_mpio(*, wait: bool) -> None:
    import h5py

    if not wait:
        msg = (
            "engine='mpio' cannot write in the background: its writes are collective, and MPI may "
            "not allow threads; use engine='direct' with wait=False"
        )
        raise ArgumentError(msg)
    if not h5py.get_config().mpi:
        msg = (
            "engine='mpio' needs an h5py built with parallel HDF5, which the one installed is not; "
            "build one with CC=mpicc HDF5_MPI=ON pip install --no-binary=h5py h5py (see h5py's "
            "documentation, 'Parallel HDF5'), or use engine='direct', which needs none"
        )
        raise ArgumentError(msg)
