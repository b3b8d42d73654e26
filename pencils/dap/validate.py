"""Read the export of one process, of either version, and check the rules for one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any

import numpy as np

from pencils.array.operands import check_type
from pencils.dap.distributions import LocalDist
from pencils.dap.findings import (
    EXPORT_KEYS,
    Finding,
    Reader,
    check_keys,
    raise_first,
    read_buffer,
    read_dim_data,
    read_version,
)
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, UnstructuredMap, Widths


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
    >>> import numpy as np
    >>> found = metadata({"__version__": "0.10.0", "buffer": np.zeros(3), "dim_data": ({},)})
    >>> found.dist.dims[0].owned, found.findings
    (range(0, 3), ())
    """
    reader = Reader(lenient)
    dist = parse(export, reader)
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
    >>> import numpy as np
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
    known = read_version({"__version__": version}, reader)
    part = _read_dim(reader, None, old=known is not None and is_old(known))
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
    >>> import numpy as np
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


_COMMON = {"dist_type", "size", "proc_grid_size", "proc_grid_rank"}
_KEYS = {
    "n": _COMMON | {"padding", "periodic"},
    "b": _COMMON | {"start", "stop", "padding", "periodic"},
    "c": _COMMON | {"start", "block_size"},
    "u": _COMMON | {"indices", "one_to_one"},
}


def is_old(version: str) -> bool:
    """Whether a version is 0.9, where start and stop leave out the ghosts."""
    return version.startswith("0.9.")


def parse(export: object, reader: Reader) -> LocalDist | None:
    """Read an export; None if a rule is broken, which is then added to the reader."""
    if not isinstance(export, Mapping):
        found = type(export).__name__
        reader.error("E1", f"got {found}, expected a dict with {sorted(EXPORT_KEYS)}")
        return None
    check_keys(export, reader)
    version = read_version(export, reader)
    array = read_buffer(export, reader)
    entries = read_dim_data(export, reader)
    if version is None or array is None or entries is None:
        return None
    if len(entries) != array.ndim:
        text = (
            f"there are {len(entries)} dictionaries for a buffer of shape {array.shape}; "
            f"expected one for each of its {array.ndim} dimensions"
        )
        reader.error("E5", text, "dim_data")
        return None
    dims = []
    for reader.dim, (reader.values, extent) in enumerate(zip(entries, array.shape, strict=True)):
        dims.append(_read_dim(reader, extent, old=is_old(version)))
    reader.dim = None
    if reader.errors:
        return None
    return LocalDist(
        version,
        array.dtype,
        tuple(dim for dim in dims if dim),
        tuple(entry.get("dist_type", "b") for entry in entries),
        tuple("padding" in entry for entry in entries),
    )


def _read_dim(reader: Reader, extent: int | None, *, old: bool) -> DimMap | None:
    """Read one dimension; without an extent, that of the buffer is not checked."""
    if not reader.values and not old and extent is not None:
        return BlockMap(size=extent, start=0, stop=extent)
    kinds = ("n", "b", "c", "u") if old else ("b", "c", "u")
    kind = reader.values.get("dist_type")
    if not isinstance(kind, str) or kind not in kinds:
        text = f"got {shown(kind)}, expected one of {kinds}"
        reader.error("D1", text, "dist_type")
        return None
    reader.warn_unknown(_KEYS[kind] | ({"periodic"} if old else set()))
    position = _read_position(reader, kind)
    if position is None:
        return None
    if old and kind in "cu":
        position["periodic"] = reader.flag("periodic", "B7")
    if kind == "c":
        return _read_cyclic(reader, extent, position)
    if kind == "u":
        return _read_unstructured(reader, extent, position)
    return _read_block(reader, extent, position, old=old)


def _read_position(reader: Reader, kind: str) -> dict[str, Any] | None:
    """Read the keys that all dimensions have; None if one of them is wrong."""
    alone = kind == "n"
    size = reader.integer("size", "D2", 0)
    nprocs = reader.integer("proc_grid_size", "D3", 1, 1 if alone else None)
    rank = reader.integer("proc_grid_rank", "D4", 0, 0 if alone else None)
    if size is None or nprocs is None or rank is None:
        return None
    if alone and (nprocs, rank) != (1, 0):
        text = (
            f"got proc_grid_size {nprocs} and proc_grid_rank {rank}, expected 1 and 0 "
            "where nothing is distributed; omit both"
        )
        reader.error("N2", text)
        return None
    if rank >= nprocs:
        text = f"got {rank}, expected less than proc_grid_size {nprocs}"
        reader.error("D4", text, "proc_grid_rank")
        return None
    return {"size": size, "nprocs": nprocs, "rank": rank}


def _read_block(
    reader: Reader, extent: int | None, position: dict[str, Any], *, old: bool
) -> DimMap | None:
    size = position["size"]
    undistributed = reader.values["dist_type"] == "n"
    start = 0 if undistributed else reader.integer("start", "B1", 0)
    stop = size if undistributed else reader.integer("stop", "B2", 0)
    if start is not None and stop is not None and not start <= stop <= size:
        text = f"got {stop}, expected at least start {start} and at most size {size}"
        reader.error("B2", text, "stop")
        stop = None
    padding = reader.widths("padding", "B5")
    position["periodic"] = reader.flag("periodic", "B7")
    if start is None or stop is None or padding is None:
        return None
    candidates = [
        _make_block((start, stop), padding, position, outside=outside) for outside in (old, not old)
    ]
    code = "N1" if undistributed else "B3"
    block = _choose(candidates, extent, code, reader, old=old)
    _check_padding((start, stop), padding, block, reader)
    _check_edges(block, reader)
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


def split_padding(
    padding: Widths, rank: int, nprocs: int, *, wrapped: bool
) -> tuple[Widths, Widths]:
    """Divide padding into ghosts and boundary points, which are at the edges unless wrapped.

    Examples
    --------
    >>> split_padding((4, 1), 0, 2, wrapped=False), split_padding((4, 1), 0, 2, wrapped=True)
    (((0, 1), (4, 0)), ((4, 1), (0, 0)))
    """
    lo, hi = padding
    below = lo if rank == 0 and not wrapped else 0
    above = hi if rank == nprocs - 1 and not wrapped else 0
    return (lo - below, hi - above), (below, above)


def _choose(
    candidates: list[BlockMap], extent: int | None, code: str, reader: Reader, *, old: bool
) -> BlockMap:
    """Return the block of this version; that of the other if only it fits, and if lenient."""
    own, foreign = candidates
    if extent in (None, own.extent):
        return own
    side, other = ("outside", "0.10") if old else ("inside", "0.9")
    text = (
        f"the buffer has {extent} points, expected {own.extent}: in this version ghosts are "
        f"{side} start and stop"
    )
    if foreign.extent != extent:
        reader.error(code, f"{text}; correct start, stop or the buffer")
        return own
    if reader.lenient:
        reader.warn("K6", f"{text}; start and stop were read as in version {other}")
        return foreign
    reader.error(code, f"{text}; the buffer fits version {other}; lenient=True reads it so")
    return own


def _check_padding(
    given: tuple[int, int], padding: Widths, block: BlockMap, reader: Reader
) -> None:
    start, stop = given
    inside = stop - start - block.count + sum(block.boundary)
    if inside > stop - start:
        text = (
            f"got {padding}, expected that the {inside} points of it between start "
            f"and stop are at most stop - start = {stop - start}"
        )
        reader.error("B6", text, "padding")
    elif start == block.size and block.ghosts != (0, 0):
        text = f"got {padding}, expected no ghosts where start is the size {block.size}"
        reader.error("B6", text, "padding")


def _check_edges(block: BlockMap, reader: Reader) -> None:
    if block.rank == 0 and block.start != 0:
        reader.error("B4", f"got {block.start}, expected 0 on the first grid rank", "start")
    if block.rank == block.nprocs - 1 and block.stop != block.size:
        text = f"got {block.stop}, expected the size {block.size} on the last grid rank"
        reader.error("B4", text, "stop")


def _read_cyclic(reader: Reader, extent: int | None, position: dict[str, Any]) -> DimMap | None:
    start = reader.integer("start", "C1", 0)
    block_size = reader.integer("block_size", "C2", 1, 1)
    if start is None or block_size is None:
        return None
    cyclic = CyclicMap(block_size=block_size, **position)
    if start != cyclic.start and not start == cyclic.size <= cyclic.start:
        text = (
            f"got {start}, expected proc_grid_rank * block_size = {cyclic.start}"
            f"{f', or the size {cyclic.size}' if cyclic.size <= cyclic.start else ''}"
        )
        reader.error("C3", text, "start")
    if extent not in (None, cyclic.count):
        text = (
            f"the buffer has {extent} points, expected the {cyclic.count} that grid rank "
            f"{cyclic.rank} of {cyclic.nprocs} has in cyclic blocks of {block_size}"
        )
        reader.error("C4", text)
    return cyclic


def _read_unstructured(
    reader: Reader, extent: int | None, position: dict[str, Any]
) -> DimMap | None:
    indices = reader.indices("indices", "U1")
    one_to_one = reader.flag("one_to_one", "U4")
    if indices is None:
        return None
    ordered = np.sort(indices)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        text = f"{twice[0]} is given twice, expected that all differ; list each index once"
        reader.error("U2", text, "indices")
    if extent not in (None, len(indices)):
        text = f"got {len(indices)}, expected one for each of {extent} points in the buffer"
        reader.error("U3", text, "indices")
    if position["size"] == 0 and len(indices):
        text = f"got {len(indices)}, expected none in a dimension of size 0"
        reader.error("U5", text, "indices")
    return UnstructuredMap(indices=indices, one_to_one=one_to_one, **position)
