"""Read the export of one process, of either version, and check the rules for one process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any

import numpy as np

from pencils.dap.dim_dict import DimDict, read_buffer
from pencils.dap.errors import Findings
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, LocalDist, UnstructuredMap, Widths

EXPORT_KEYS = {"__version__", "buffer", "dim_data"}
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


def parse(export: object, findings: Findings) -> LocalDist | None:
    """Read an export; None if a rule is broken, which is then added to the findings."""
    if not isinstance(export, Mapping):
        found = type(export).__name__
        findings.error("E1", f"got {found}, expected a dict with {sorted(EXPORT_KEYS)}")
        return None
    _check_keys(export, findings)
    version = _read_version(export, findings)
    array = _read_buffer(export, findings)
    entries = _read_dim_data(export, findings)
    if version is None or array is None or entries is None:
        return None
    if len(entries) != array.ndim:
        text = (
            f"there are {len(entries)} dictionaries for a buffer of shape {array.shape}; "
            f"expected one for each of its {array.ndim} dimensions"
        )
        findings.error("E5", text, "dim_data")
        return None
    dims = []
    for findings.dim, (entry, extent) in enumerate(zip(entries, array.shape, strict=True)):
        dims.append(_read_dim(DimDict(entry, findings), extent, old=is_old(version)))
    findings.dim = None
    if findings.errors:
        return None
    return LocalDist(
        version,
        array.dtype,
        tuple(dim for dim in dims if dim),
        tuple(entry.get("dist_type", "b") for entry in entries),
        tuple("padding" in entry for entry in entries),
    )


def _check_keys(export: Mapping[str, Any], findings: Findings) -> None:
    missing, extra = EXPORT_KEYS - export.keys(), export.keys() - EXPORT_KEYS
    if missing:
        findings.error("E1", f"the keys {sorted(missing)} are missing; add them")
    if extra:
        allowed = sorted(EXPORT_KEYS)
        text = f"the keys {sorted(map(str, extra))} are not among {allowed}; omit them"
        findings.error("E1", text)


def _read_version(export: Mapping[str, Any], findings: Findings) -> str | None:
    version = export.get("__version__")
    if isinstance(version, str) and re.fullmatch(r"0\.(9|10)\.(0|[1-9][0-9]*)", version):
        findings.version = version
        return version
    if "__version__" in export:
        text = f"got {shown(version)}, expected '0.9.x' or '0.10.x', such as '0.10.0'"
        findings.error("E2", text, "__version__")
    return None


def _read_buffer(export: Mapping[str, Any], findings: Findings) -> np.ndarray[Any, Any] | None:
    found = read_buffer(export.get("buffer"))
    if found is None and "buffer" in export:
        text = (
            f"{type(export['buffer']).__name__} has no buffer that memoryview (PEP 3118) supports; "
            "pass an array in the memory of the host, of a type other than dates"
        )
        findings.error("E3", text, "buffer")
    if found is None:
        return None
    array, known = found
    if not known:
        text = (
            f"NumPy has no type for the elements, of format {memoryview(export['buffer']).format!r}"
            f"; they are read as {array.dtype.itemsize} raw bytes each; pass "
            "an array of another type"
        )
        findings.warn("unknown-type", text, "buffer")
    return array


def _read_dim_data(
    export: Mapping[str, Any], findings: Findings
) -> tuple[Mapping[str, Any], ...] | None:
    entries = export.get("dim_data", ())
    wanted = "a tuple of dictionaries"
    if isinstance(entries, list) and not findings.accepts_list("E4", wanted, "dim_data"):
        return None
    sound = isinstance(entries, tuple | list)
    if not sound or not all(isinstance(entry, Mapping) for entry in entries):
        findings.error("E4", f"got {shown(entries)}, expected {wanted}", "dim_data")
        return None
    return tuple(entries) if "dim_data" in export else None


def _read_dim(entry: DimDict, extent: int, *, old: bool) -> DimMap | None:
    findings = entry.findings
    if not entry.values and not old:
        return BlockMap(size=extent, start=0, stop=extent)
    kinds = ("n", "b", "c", "u") if old else ("b", "c", "u")
    kind = entry.values.get("dist_type")
    if not isinstance(kind, str) or kind not in kinds:
        text = f"got {shown(kind)}, expected one of {kinds}"
        findings.error("D1", text, "dist_type")
        return None
    entry.warn_unknown(_KEYS[kind] | ({"periodic"} if old else set()))
    position = _read_position(entry, kind)
    if position is None:
        return None
    if old and kind in "cu":
        position["periodic"] = entry.flag("periodic", "B7")
    if kind == "c":
        return _read_cyclic(entry, extent, position)
    if kind == "u":
        return _read_unstructured(entry, extent, position)
    return _read_block(entry, extent, position, old=old)


def _read_position(entry: DimDict, kind: str) -> dict[str, Any] | None:
    """Read the keys that all dimensions have; None if one of them is wrong."""
    alone = kind == "n"
    size = entry.integer("size", "D2", 0)
    nprocs = entry.integer("proc_grid_size", "D3", 1, 1 if alone else None)
    rank = entry.integer("proc_grid_rank", "D4", 0, 0 if alone else None)
    if size is None or nprocs is None or rank is None:
        return None
    if alone and (nprocs, rank) != (1, 0):
        text = (
            f"got proc_grid_size {nprocs} and proc_grid_rank {rank}, expected 1 and 0 "
            "where nothing is distributed; omit both"
        )
        entry.findings.error("N2", text)
        return None
    if rank >= nprocs:
        text = f"got {rank}, expected less than proc_grid_size {nprocs}"
        entry.findings.error("D4", text, "proc_grid_rank")
        return None
    return {"size": size, "nprocs": nprocs, "rank": rank}


def _read_block(
    entry: DimDict, extent: int, position: dict[str, Any], *, old: bool
) -> DimMap | None:
    findings, size = entry.findings, position["size"]
    undistributed = entry.values["dist_type"] == "n"
    start = 0 if undistributed else entry.integer("start", "B1", 0)
    stop = size if undistributed else entry.integer("stop", "B2", 0)
    if start is not None and stop is not None and not start <= stop <= size:
        text = f"got {stop}, expected at least start {start} and at most size {size}"
        findings.error("B2", text, "stop")
        stop = None
    padding = entry.widths("padding", "B5")
    position["periodic"] = entry.flag("periodic", "B7")
    if start is None or stop is None or padding is None:
        return None
    candidates = [
        _make_block((start, stop), padding, position, outside=outside) for outside in (old, not old)
    ]
    code = "N1" if undistributed else "B3"
    block = _choose(candidates, extent, code, findings, old=old)
    _check_padding((start, stop), padding, block, findings)
    _check_edges(block, findings)
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
    candidates: list[BlockMap], extent: int, code: str, findings: Findings, *, old: bool
) -> BlockMap:
    """Return the block of this version; that of the other if only it fits, and if lenient."""
    own, foreign = candidates
    if own.extent == extent:
        return own
    side, other = ("outside", "0.10") if old else ("inside", "0.9")
    text = (
        f"the buffer has {extent} points, expected {own.extent}: in this version ghosts are "
        f"{side} start and stop"
    )
    if foreign.extent != extent:
        findings.error(code, f"{text}; correct start, stop or the buffer")
        return own
    if findings.lenient:
        findings.warn("K6", f"{text}; start and stop were read as in version {other}")
        return foreign
    findings.error(code, f"{text}; the buffer fits version {other}; lenient=True reads it so")
    return own


def _check_padding(
    given: tuple[int, int], padding: Widths, block: BlockMap, findings: Findings
) -> None:
    start, stop = given
    inside = stop - start - block.count + sum(block.boundary)
    if inside > stop - start:
        text = (
            f"got {padding}, expected that the {inside} points of it between start "
            f"and stop are at most stop - start = {stop - start}"
        )
        findings.error("B6", text, "padding")
    elif start == block.size and block.ghosts != (0, 0):
        text = f"got {padding}, expected no ghosts where start is the size {block.size}"
        findings.error("B6", text, "padding")


def _check_edges(block: BlockMap, findings: Findings) -> None:
    if block.rank == 0 and block.start != 0:
        findings.error("B4", f"got {block.start}, expected 0 on the first grid rank", "start")
    if block.rank == block.nprocs - 1 and block.stop != block.size:
        text = f"got {block.stop}, expected the size {block.size} on the last grid rank"
        findings.error("B4", text, "stop")


def _read_cyclic(entry: DimDict, extent: int, position: dict[str, Any]) -> DimMap | None:
    findings = entry.findings
    start = entry.integer("start", "C1", 0)
    block_size = entry.integer("block_size", "C2", 1, 1)
    if start is None or block_size is None:
        return None
    cyclic = CyclicMap(block_size=block_size, **position)
    if start != cyclic.start and not start == cyclic.size <= cyclic.start:
        text = (
            f"got {start}, expected proc_grid_rank * block_size = {cyclic.start}"
            f"{f', or the size {cyclic.size}' if cyclic.size <= cyclic.start else ''}"
        )
        findings.error("C3", text, "start")
    if extent != cyclic.count:
        text = (
            f"the buffer has {extent} points, expected the {cyclic.count} that grid rank "
            f"{cyclic.rank} of {cyclic.nprocs} has in cyclic blocks of {block_size}"
        )
        findings.error("C4", text)
    return cyclic


def _read_unstructured(entry: DimDict, extent: int, position: dict[str, Any]) -> DimMap | None:
    findings = entry.findings
    indices = entry.indices("indices", "U1")
    one_to_one = entry.flag("one_to_one", "U4")
    if indices is None:
        return None
    ordered = np.sort(indices)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        text = f"{twice[0]} is given twice, expected that all differ; list each index once"
        findings.error("U2", text, "indices")
    if len(indices) != extent:
        text = f"got {len(indices)}, expected one for each of {extent} points in the buffer"
        findings.error("U3", text, "indices")
    if position["size"] == 0 and len(indices):
        text = f"got {len(indices)}, expected none in a dimension of size 0"
        findings.error("U5", text, "indices")
    return UnstructuredMap(indices=indices, one_to_one=one_to_one, **position)
