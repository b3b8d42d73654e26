"""What users say about compression and chunks, and what follows for each field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from numpy.lib.recfunctions import repack_fields

from pencils.errors import ArgumentError
from pencils.io.chunks import MOST_BYTES, choose_chunk
from pencils.io.file_info import DatasetInfo
from pencils.layout.integers import as_ints, to_int

Extents = tuple[int, ...]

_KEYWORDS = ("compression", "compression_opts", "shuffle", "fletcher32", "scaleoffset")


@dataclass(frozen=True)
class Chunking:
    """Filters for all fields, and extents of chunks: for all, for fields by name, or for none.

    Parameters
    ----------
    compression : mapping of str to object, optional
        The filters, as keywords of h5py's ``create_dataset``; none means that only fields with
        given extents are chunked.
    extents : tuple of int, optional
        One for each dimension of all fields; empty if they are not given.
    named : mapping of str to tuple of int, optional
        The same for single fields.
    """

    compression: Mapping[str, Any] = field(default_factory=dict)
    extents: Extents = ()
    named: Mapping[str, Extents] = field(default_factory=dict)

    def chunks(self, entry: DatasetInfo) -> Extents:
        """Extents of the chunks of a field, components included; empty if it has none.

        Raises
        ------
        ArgumentError
            If they do not fit its dimensions, or are too large for HDF5.
        TypeError
            If its elements cannot be chunked.
        """
        lead = entry.components or 0
        points = entry.shape[lead:]
        extents = self.named.get(entry.name, self.extents)
        if extents and len(extents) != len(points):
            msg = (
                f"chunks={extents} do not fit fields[{entry.name!r}], which has {len(points)} "
                "dimensions; give one extent for each, or a mapping of names of fields to them"
            )
            raise ArgumentError(msg)
        if not entry.nbytes or not (extents or self.compression):
            return ()
        if repack_fields(entry.dtype, recurse=True) != entry.dtype:
            msg = (
                f"fields[{entry.name!r}] has records with gaps, {entry.dtype}, whose bytes filters "
                "and checksums do not agree on; save it without compression and chunks, or packed"
            )
            raise TypeError(msg)
        extents = tuple(map(min, extents or choose_chunk(points, entry.dtype.itemsize), points))
        if prod(extents) * entry.dtype.itemsize > MOST_BYTES:
            msg = (
                f"chunks of {extents} points of fields[{entry.name!r}] would have 4 GiB or more, "
                "which HDF5 cannot store; make them smaller"
            )
            raise ArgumentError(msg)
        return (1,) * lead + extents

    def check_names(self, names: Iterable[str]) -> None:
        """Check that all names in `named` are among these.

        Raises
        ------
        ArgumentError
            If one is not.
        """
        unknown = sorted(set(self.named) - set(names))
        if unknown:
            msg = f"chunks has extents for {unknown[0]!r}, which is none of the fields"
            raise ArgumentError(msg)


def read_chunking(compression: object, chunks: object) -> Chunking:
    """Read the arguments `compression` and `chunks` of `save`.

    Raises
    ------
    ArgumentError, TypeError
        If they are not what `save` says; whether HDF5 has the filters is found out later.
    """
    filters = _read_compression(compression)
    if chunks is None:
        return Chunking(filters)
    if isinstance(chunks, Mapping):
        return Chunking(filters, named={name: _read_extents(chunks[name]) for name in chunks})
    return Chunking(filters, _read_extents(chunks))


def _read_extents(chunks: object) -> Extents:
    extents = as_ints("chunks", chunks)
    if not extents or min(extents) < 1:
        msg = f"chunks={extents} must be one positive extent for each dimension"
        raise ArgumentError(msg)
    return extents


def _read_compression(compression: object) -> dict[str, Any]:
    if compression is None:
        return {}
    options: dict[str, Any] = {"compression": compression}
    if isinstance(compression, Mapping):
        options = dict(compression)
    inner = options.get("compression")
    if isinstance(inner, Mapping):  # an object of hdf5plugin
        options |= inner
    unknown = [name for name in options if name not in _KEYWORDS]
    if unknown:
        msg = (
            f"compression has an entry {unknown[0]!r}; it takes {', '.join(_KEYWORDS)}, as h5py's "
            "create_dataset, for all fields alike"
        )
        raise ArgumentError(msg)
    kind = options.get("compression", "")
    if (level := to_int(kind)) is not None:
        options["compression"] = level
    elif not isinstance(kind, str):
        msg = (
            f"compression={compression!r} must be a name like 'gzip', a level of gzip, or a "
            "mapping of keywords of h5py's create_dataset, such as the objects of hdf5plugin are"
        )
        raise TypeError(msg)
    return options
