"""Read the export of one process, of either version, and check the rules for one process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.array.operands import check_type
from pencils.dap.distributions import LocalDist
from pencils.dap.findings import Finding, Reader, raise_first, view_buffer
from pencils.dap.maps import (
    BlockMap,
    CyclicMap,
    DimMap,
    UnstructuredMap,
    Widths,
    is_old,
    split_padding,
)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The contents of an export but for the elements: small, and can be pickled.

    Parameters
    ----------
    dist : LocalDist or None
        The contents; None if a rule is broken.
    findings : tuple of Finding
        Errors (`DAPError`) and warnings (`DAPWarning`).
    """

    dist: LocalDist | None
    findings: tuple[Finding, ...]


def metadata(export: object, *, lenient: bool = False) -> Metadata:
    """Read the export of one process; mistakes are listed, not raised.

    Parameters
    ----------
    export : dict
        What ``__distarray__()`` returned on this process.
    lenient : bool, optional
        Whether lists are accepted instead of tuples, and extents of the other version where only
        these fit; each with a warning.

    Returns
    -------
    Metadata
        Can be pickled; `validate_collective` accepts it instead of the export.

    Examples
    --------
    >>> found = metadata({"__version__": "0.10.0", "buffer": np.zeros(3), "dim_data": ({},)})
    >>> found.dist.dims[0].owned, found.findings
    (range(0, 3), ())
    """
    reader = Reader(lenient)
    dist = _read(export, reader)
    return Metadata(dist, tuple(reader.found))


def iter_issues(export: object, *, lenient: bool = False) -> Iterator[Finding]:
    """Yield all issues of the export of one process, without raising.

    Parameters
    ----------
    export : object
        What ``__distarray__()`` returned on this process, or anything else.
    lenient : bool, optional
        As in `metadata`.

    Yields
    ------
    Finding
        A `DAPError` for every broken rule, a `DAPWarning` for every irregularity that is accepted.

    Examples
    --------
    >>> for issue in iter_issues({"__version__": "0.10", "buffer": b"abc"}):
    ...     print(issue)
    the keys ['dim_data'] are missing; add them [rule E1]
    key '__version__': got '0.10', expected '0.9.x' or '0.10.x', such as '0.10.0' [rule E2]
    """
    yield from metadata(export, lenient=lenient).findings


def validate(export: object, *, lenient: bool = False) -> LocalDist:
    """Validate the export of one process.

    Parameters
    ----------
    export : dict
        What ``__distarray__()`` returned on this process.
    lenient : bool, optional
        As in `metadata`.

    Returns
    -------
    LocalDist
        The contents, in terms that are the same for all versions.

    Raises
    ------
    DAPError
        The first broken rule: `StructureError`, `VersionError` or `SemanticError`.

    Examples
    --------
    >>> cyclic = {"dist_type": "c", "size": 9, "proc_grid_size": 2, "proc_grid_rank": 0, "start": 0}
    >>> dims = {"dist_type": "n", "size": 2}, cyclic
    >>> buffer = np.zeros((2, 5))
    >>> validate({"__version__": "0.9.0", "buffer": buffer, "dim_data": dims}).global_shape
    (2, 9)
    """
    found = metadata(export, lenient=lenient)
    raise_first(found.findings)
    assert found.dist is not None
    return found.dist


def num_owned_indices(dim_dict: Mapping[str, Any], version: str = "0.10.0") -> int:
    """Count the points along one dimension that a process owns, without ghosts.

    Their sum over the processes of the dimension is its ``size``. Unlike the function of this name
    in the text of the protocol, it is right for each process of a cyclic dimension.

    Parameters
    ----------
    dim_dict : dict
        The dictionary of the dimension, in ``dim_data`` of this process.
    version : str, optional
        Version of the protocol: in 0.9 `start` and `stop` leave out the ghosts.

    Raises
    ------
    DAPError, TypeError
        If the dictionary breaks a rule, or is empty: then only the buffer has the number.

    Examples
    --------
    >>> block = {"dist_type": "b", "size": 27, "proc_grid_size": 4, "proc_grid_rank": 1}
    >>> num_owned_indices(block | {"start": 8, "stop": 17, "padding": (1, 2)})
    6
    """
    check_type("dim_dict", dim_dict, Mapping)
    reader = Reader(values=dim_dict)
    old = _read_version(version, reader) and is_old(version)
    part = _read_dim(reader, None, old=old)
    raise_first(reader.found)
    assert part is not None
    return part.count


def describe(export: object) -> str:
    """Describe the export of one process in a few lines, and list its issues.

    Parameters
    ----------
    export : dict
        What ``__distarray__()`` returned on this process.

    Returns
    -------
    str
        Version, type and shape; for every dimension its distribution, owned points and padding;
        at the end all issues.

    Examples
    --------
    >>> block = {"dist_type": "b", "size": 27, "proc_grid_size": 4, "proc_grid_rank": 0}
    >>> block |= {"start": 0, "stop": 10, "padding": (4, 1)}
    >>> buffer = np.zeros((10, 3))
    >>> print(describe({"__version__": "0.10.0", "buffer": buffer, "dim_data": (block, {})}))
    Distributed Array Protocol 0.10.0: float64, local shape (10, 3) of global shape (27, 3)
      dimension 0: block 0 of 4, owns 0..8 of 27 points
        padding below: 4 boundary points, owned; above: 1 ghost
      dimension 1: not distributed, 3 points
    """
    found = metadata(export, lenient=True)
    lines = [str(found.dist) if found.dist else "This is not a valid export:"]
    return "\n".join([*lines, *(f"  ! {issue}" for issue in found.findings)])


_EXPORT_KEYS = {"__version__", "buffer", "dim_data"}
_COMMON = {"dist_type", "size", "proc_grid_size", "proc_grid_rank"}
_KEYS = {
    "n": _COMMON | {"padding", "periodic"},
    "b": _COMMON | {"start", "stop", "padding", "periodic"},
    "c": _COMMON | {"start", "block_size"},
    "u": _COMMON | {"indices", "one_to_one"},
}


def _read(export: object, reader: Reader) -> LocalDist | None:
    """Read an export; None if a rule is broken, which is then added to the reader."""
    expected = f"expected a dict with {sorted(_EXPORT_KEYS)}"
    mapping = isinstance(export, Mapping)
    reader.check(mapping, "E1", f"got {type(export).__name__}, {expected}")
    if not isinstance(export, Mapping):
        return None
    missing, extra = _EXPORT_KEYS - export.keys(), export.keys() - _EXPORT_KEYS
    reader.check(not missing, "E1", f"the keys {sorted(missing)} are missing; add them")
    text = f"the keys {sorted(map(str, extra))} are not among {sorted(_EXPORT_KEYS)}; omit them"
    reader.check(not extra, "E1", text)
    sound = "__version__" not in export or _read_version(export.get("__version__"), reader)
    array = _read_buffer(export.get("buffer"), reader) if "buffer" in export else None
    entries = _read_entries(export.get("dim_data"), reader) if "dim_data" in export else None
    if not sound or reader.version is None or array is None or entries is None:
        return None
    text = (
        f"there are {len(entries)} dictionaries for a buffer of shape {array.shape}; "
        f"expected one for each of its {array.ndim} dimensions"
    )
    if not reader.check(len(entries) == array.ndim, "E5", text, "dim_data"):
        return None
    dims = []
    for reader.dim, (reader.values, extent) in enumerate(zip(entries, array.shape, strict=True)):
        dims.append(_read_dim(reader, extent, old=is_old(reader.version)))
    reader.dim = None
    if reader.errors:
        return None
    return LocalDist(
        reader.version,
        array.dtype,
        tuple(dim for dim in dims if dim),
        tuple(entry.get("dist_type", "b") for entry in entries),
        tuple("padding" in entry for entry in entries),
    )


def _read_version(version: object, reader: Reader) -> bool:
    """Whether a version is supported, which the reader then has."""
    text = f"got {shown(version)}, expected '0.9.x' or '0.10.x', such as '0.10.0'"
    if isinstance(version, str) and re.fullmatch(r"0\.(9|10)\.(0|[1-9][0-9]*)", version):
        reader.version = version
    return reader.check(reader.version is not None, "E2", text, "__version__")


def _read_buffer(value: Any, reader: Reader) -> Array | None:
    """Read a buffer as an array; None if it is not one."""
    found = view_buffer(value)
    text = (
        f"{type(value).__name__} has no buffer that memoryview (PEP 3118) supports; "
        "pass an array in the memory of the host, of a type other than dates"
    )
    reader.check(found is not None, "E3", text, "buffer")
    if found is None:
        return None
    array, known = found
    if not known:
        text = (
            f"NumPy has no type for the elements, of format {memoryview(value).format!r}"
            f"; they are read as {array.dtype.itemsize} raw bytes each; pass "
            "an array of another type"
        )
        reader.warn("unknown-type", text, "buffer")
    return array


def _read_entries(entries: object, reader: Reader) -> Sequence[Mapping[str, Any]] | None:
    """Read the dictionaries of all dimensions; None if they are not dictionaries."""
    wanted = "a tuple of dictionaries"
    if isinstance(entries, list) and not reader.accepts_list("E4", wanted, "dim_data"):
        return None
    if isinstance(entries, tuple | list) and all(isinstance(one, Mapping) for one in entries):
        return entries
    reader.check(False, "E4", f"got {shown(entries)}, expected {wanted}", "dim_data")  # noqa: FBT003
    return None


def _read_dim(reader: Reader, extent: int | None, *, old: bool) -> DimMap | None:
    """Read one dimension; without an extent, that of the buffer is not checked."""
    if not reader.values and not old and extent is not None:
        return BlockMap(size=extent, start=0, stop=extent)
    kinds = ("n", "b", "c", "u") if old else ("b", "c", "u")
    kind: Any = reader.values.get("dist_type")
    text = f"got {shown(kind)}, expected one of {kinds}"
    if not reader.check(isinstance(kind, str) and kind in kinds, "D1", text, "dist_type"):
        return None
    known = _KEYS[kind] | ({"periodic"} if old else set())
    for key in reader.values:
        if key not in known:
            text = f"the key is unknown here and is ignored; known are {sorted(known)}"
            reader.warn("unknown-key", text, str(key))
    position = _read_position(reader, alone=kind == "n")
    if position is None:
        return None
    if kind in "nb":
        return _read_block(reader, extent, position, old=old)
    if old:
        position["periodic"] = reader.flag("periodic", "B7")
    return (_read_cyclic if kind == "c" else _read_unstructured)(reader, extent, position)


def _read_position(reader: Reader, *, alone: bool) -> dict[str, Any] | None:
    """Read the keys that all dimensions have; None if one of them is wrong."""
    size = reader.integer("size", "D2", 0)
    nprocs = reader.integer("proc_grid_size", "D3", 1, 1 if alone else None)
    rank = reader.integer("proc_grid_rank", "D4", 0, 0 if alone else None)
    if size is None or nprocs is None or rank is None:
        return None
    text = (
        f"got proc_grid_size {nprocs} and proc_grid_rank {rank}, expected 1 and 0 "
        "where nothing is distributed; omit both"
    )
    sound = reader.check(not alone or (nprocs, rank) == (1, 0), "N2", text)
    text = f"got {rank}, expected less than proc_grid_size {nprocs}"
    sound = sound and reader.check(rank < nprocs, "D4", text, "proc_grid_rank")
    return {"size": size, "nprocs": nprocs, "rank": rank} if sound else None


def _read_block(
    reader: Reader, extent: int | None, position: dict[str, Any], *, old: bool
) -> DimMap | None:
    size, alone = position["size"], reader.values["dist_type"] == "n"
    start = 0 if alone else reader.integer("start", "B1", 0)
    stop = size if alone else reader.integer("stop", "B2", 0)
    sound = start is None or stop is None or start <= stop <= size
    text = f"got {stop}, expected at least start {start} and at most size {size}"
    sound = reader.check(sound, "B2", text, "stop")
    padding = reader.widths("padding", "B5")
    position["periodic"] = reader.flag("periodic", "B7")
    if start is None or stop is None or padding is None or not sound:
        return None
    block, other = (
        _make_block((start, stop), padding, position, outside=one) for one in (old, not old)
    )
    if extent not in (None, block.extent):
        side, version = ("outside", "0.10") if old else ("inside", "0.9")
        text = (
            f"the buffer has {extent} points, expected {block.extent}: in this version ghosts are "
            f"{side} start and stop"
        )
        cure = f"the buffer fits version {version}; lenient=True reads it so"
        if other.extent != extent:
            cure = "correct start, stop or the buffer"
        elif reader.lenient:
            reader.warn("K6", f"{text}; start and stop were read as in version {version}")
            block = other
        reader.check(block is other, "N1" if alone else "B3", f"{text}; {cure}")
    inside = stop - start - block.count + sum(block.boundary)
    text = (
        f"got {padding}, expected that the {inside} points of it between start "
        f"and stop are at most stop - start = {stop - start}"
    )
    if reader.check(inside <= stop - start, "B6", text, "padding"):
        text = f"got {padding}, expected no ghosts where start is the size {size}"
        reader.check(start < size or block.ghosts == (0, 0), "B6", text, "padding")
    text = f"got {block.start}, expected 0 on the first grid rank"
    reader.check(block.rank > 0 or block.start == 0, "B4", text, "start")
    text = f"got {block.stop}, expected the size {size} on the last grid rank"
    reader.check(block.rank < block.nprocs - 1 or block.stop == size, "B4", text, "stop")
    return block


def _make_block(
    given: tuple[int, int], padding: Widths, position: dict[str, Any], *, outside: bool
) -> BlockMap:
    """Make a block whose ghosts are outside of start and stop (version 0.9) or inside (0.10)."""
    wrapped = outside and position["periodic"]
    ghosts, boundary = split_padding(padding, position["rank"], position["nprocs"], wrapped=wrapped)
    lo, hi = (0, 0) if outside else ghosts
    start, stop = given
    return BlockMap(start=start + lo, stop=stop - hi, ghosts=ghosts, boundary=boundary, **position)


def _read_cyclic(reader: Reader, extent: int | None, position: dict[str, Any]) -> DimMap | None:
    start = reader.integer("start", "C1", 0)
    block_size = reader.integer("block_size", "C2", 1, 1)
    if start is None or block_size is None:
        return None
    cyclic = CyclicMap(block_size=block_size, **position)
    beyond = cyclic.size <= cyclic.start
    text = (
        f"got {start}, expected proc_grid_rank * block_size = {cyclic.start}"
        f"{f', or the size {cyclic.size}' if beyond else ''}"
    )
    sound = start == cyclic.start or (beyond and start == cyclic.size)
    reader.check(sound, "C3", text, "start")
    text = (
        f"the buffer has {extent} points, expected the {cyclic.count} that grid rank "
        f"{cyclic.rank} of {cyclic.nprocs} has in cyclic blocks of {block_size}"
    )
    reader.check(extent in (None, cyclic.count), "C4", text)
    return cyclic


def _read_unstructured(
    reader: Reader, extent: int | None, position: dict[str, Any]
) -> DimMap | None:
    indices = reader.indices("indices", "U1")
    one_to_one = reader.flag("one_to_one", "U4")
    if indices is None:
        return None
    ordered, count = np.sort(indices), len(indices)
    for twice in ordered[1:][ordered[1:] == ordered[:-1]][:1]:
        text = f"{twice} is given twice, expected that all differ; list each index once"
        reader.check(False, "U2", text, "indices")  # noqa: FBT003
    text = f"got {count}, expected one for each of {extent} points in the buffer"
    reader.check(extent in (None, count), "U3", text, "indices")
    text = f"got {count}, expected none in a dimension of size 0"
    reader.check(position["size"] > 0 or not count, "U5", text, "indices")
    return UnstructuredMap(indices=indices, one_to_one=one_to_one, **position)
