"""Reading the export of one process, of either version, with every rule that it can break alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any

import numpy as np

from pencils.dap.dist import LocalDist
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, UnstructuredMap, Widths
from pencils.dap.report import Entry, Report, read_buffer

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


def parse(export: object, report: Report) -> LocalDist | None:
    """Read an export; None if anything is wrong with it, and then the report says what."""
    if not isinstance(export, Mapping):
        found = type(export).__name__
        report.error("E1", f"{found} is given, required is a dict with {sorted(EXPORT_KEYS)}")
        return None
    _check_keys(export, report)
    version = _read_version(export, report)
    array = _read_buffer(export, report)
    entries = _read_dim_data(export, report)
    if version is None or array is None or entries is None:
        return None
    if len(entries) != array.ndim:
        text = (
            f"there are {len(entries)} dictionaries for a buffer of shape {array.shape}; "
            f"required is one for each of its {array.ndim} dimensions"
        )
        report.error("E5", text, "dim_data")
        return None
    dims = []
    for report.dim, (entry, extent) in enumerate(zip(entries, array.shape, strict=True)):
        dims.append(_read_dim(Entry(entry, report), extent, old=is_old(version)))
    report.dim = None
    if report.errors:
        return None
    return LocalDist(
        version,
        array.dtype,
        tuple(dim for dim in dims if dim),
        tuple(entry.get("dist_type", "b") for entry in entries),
        tuple("padding" in entry for entry in entries),
    )


def _check_keys(export: Mapping[str, Any], report: Report) -> None:
    missing, extra = EXPORT_KEYS - export.keys(), export.keys() - EXPORT_KEYS
    if missing:
        report.error("E1", f"the keys {sorted(missing)} are missing; add them")
    if extra:
        allowed = sorted(EXPORT_KEYS)
        report.error("E1", f"the keys {sorted(map(str, extra))} are not among {allowed}; drop them")


def _read_version(export: Mapping[str, Any], report: Report) -> str | None:
    version = export.get("__version__")
    if isinstance(version, str) and re.fullmatch(r"0\.(9|10)\.(0|[1-9][0-9]*)", version):
        report.version = version
        return version
    if "__version__" in export:
        text = f"{shown(version)} is given, required is '0.9.x' or '0.10.x', such as '0.10.0'"
        report.error("E2", text, "__version__")
    return None


def _read_buffer(export: Mapping[str, Any], report: Report) -> np.ndarray[Any, Any] | None:
    found = read_buffer(export.get("buffer"))
    if found is None and "buffer" in export:
        text = (
            f"{type(export['buffer']).__name__} has no buffer that memoryview (PEP 3118) takes; "
            "pass an array in the memory of the host, of a type other than dates"
        )
        report.error("E3", text, "buffer")
    if found is None:
        return None
    if not found.known:
        text = (
            f"NumPy has no type for the elements, of format {memoryview(export['buffer']).format!r}"
            f"; they are read as {found.array.dtype.itemsize} bytes each that mean nothing; pass "
            "an array of another type"
        )
        report.warn("unknown-type", text, "buffer")
    return found.array


def _read_dim_data(
    export: Mapping[str, Any], report: Report
) -> tuple[Mapping[str, Any], ...] | None:
    entries = export.get("dim_data", ())
    wanted = "a tuple of dictionaries"
    if isinstance(entries, list) and not report.accepts_list("E4", wanted, "dim_data"):
        return None
    sound = isinstance(entries, tuple | list)
    if not sound or not all(isinstance(entry, Mapping) for entry in entries):
        report.error("E4", f"{shown(entries)} is given, required is {wanted}", "dim_data")
        return None
    return tuple(entries) if "dim_data" in export else None


def _read_dim(entry: Entry, extent: int, *, old: bool) -> DimMap | None:
    report = entry.report
    if not entry.values and not old:
        return BlockMap(size=extent, start=0, stop=extent)
    kinds = ("n", "b", "c", "u") if old else ("b", "c", "u")
    kind = entry.values.get("dist_type")
    if not isinstance(kind, str) or kind not in kinds:
        text = f"{shown(kind)} is given, required is one of {kinds}"
        report.error("D1", text, "dist_type")
        return None
    entry.warn_unknown(_KEYS[kind] | ({"periodic"} if old else set()))
    place = _read_place(entry, kind)
    if place is None:
        return None
    if old and kind in "cu":
        place["periodic"] = entry.flag("periodic", "B7")
    if kind == "c":
        return _read_cyclic(entry, extent, place)
    if kind == "u":
        return _read_unstructured(entry, extent, place)
    return _read_block(entry, extent, place, old=old)


def _read_place(entry: Entry, kind: str) -> dict[str, Any] | None:
    """Read the keys that all kinds share; None if one of them is wrong."""
    alone = kind == "n"
    size = entry.integer("size", "D2", 0)
    nprocs = entry.integer("proc_grid_size", "D3", 1, 1 if alone else None)
    rank = entry.integer("proc_grid_rank", "D4", 0, 0 if alone else None)
    if size is None or nprocs is None or rank is None:
        return None
    if alone and (nprocs, rank) != (1, 0):
        text = (
            f"proc_grid_size {nprocs} and proc_grid_rank {rank} are given, required are 1 and 0 "
            "where nothing is distributed; leave both out"
        )
        entry.report.error("N2", text)
        return None
    if rank >= nprocs:
        text = f"{rank} is given, required is less than proc_grid_size {nprocs}"
        entry.report.error("D4", text, "proc_grid_rank")
        return None
    return {"size": size, "nprocs": nprocs, "rank": rank}


def _read_block(entry: Entry, extent: int, place: dict[str, Any], *, old: bool) -> DimMap | None:
    report, size, undistributed = entry.report, place["size"], entry.values["dist_type"] == "n"
    start = 0 if undistributed else entry.integer("start", "B1", 0)
    stop = size if undistributed else entry.integer("stop", "B2", 0)
    if start is not None and stop is not None and not start <= stop <= size:
        text = f"{stop} is given, required is at least start {start} and at most size {size}"
        report.error("B2", text, "stop")
        stop = None
    padding = entry.widths("padding", "B5")
    place["periodic"] = entry.flag("periodic", "B7")
    if start is None or stop is None or padding is None:
        return None
    readings = [
        _make_block((start, stop), padding, place, outside=outside) for outside in (old, not old)
    ]
    code = "N1" if undistributed else "B3"
    block = _choose(readings, extent, code, report, old=old)
    _check_padding((start, stop), padding, block, report)
    _check_edges(block, report)
    return block


def _make_block(
    given: tuple[int, int], padding: Widths, place: dict[str, Any], *, outside: bool
) -> BlockMap:
    """Take ghosts to lie outside of start and stop (version 0.9), or inside (0.10)."""
    wrapped = outside and place["periodic"]
    ghosts, boundary = split_padding(padding, place["rank"], place["nprocs"], wrapped=wrapped)
    lo, hi = (0, 0) if outside else ghosts
    start, stop = given
    return BlockMap(start=start + lo, stop=stop - hi, ghosts=ghosts, boundary=boundary, **place)


def split_padding(
    padding: Widths, rank: int, nprocs: int, *, wrapped: bool
) -> tuple[Widths, Widths]:
    """Divide padding into ghosts and boundary points, which lie at the edges unless wrapped.

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
    readings: list[BlockMap], extent: int, code: str, report: Report, *, old: bool
) -> BlockMap:
    """Return the reading of this version; that of the other if only it fits, and if lenient."""
    own, foreign = readings
    if own.extent == extent:
        return own
    side, other = ("outside", "0.10") if old else ("inside", "0.9")
    text = (
        f"the buffer has {extent} points, required are {own.extent}: in this version ghosts lie "
        f"{side} start and stop"
    )
    if foreign.extent != extent:
        report.error(code, f"{text}; correct start, stop or the buffer")
        return own
    if report.lenient:
        report.warn("K6", f"{text}; start and stop were read as in version {other}")
        return foreign
    report.error(code, f"{text}; the buffer fits version {other}, as which lenient=True reads it")
    return own


def _check_padding(
    given: tuple[int, int], padding: Widths, block: BlockMap, report: Report
) -> None:
    start, stop = given
    inside = stop - start - block.count + sum(block.boundary)
    if inside > stop - start:
        text = (
            f"{padding} is given, required is that the {inside} points of it that lie between "
            f"start and stop are at most stop - start = {stop - start}"
        )
        report.error("B6", text, "padding")
    elif start == block.size and block.ghosts != (0, 0):
        text = f"{padding} is given, required are no ghosts where start is the size {block.size}"
        report.error("B6", text, "padding")


def _check_edges(block: BlockMap, report: Report) -> None:
    if block.rank == 0 and block.start != 0:
        report.error("B4", f"{block.start} is given, required is 0 on the first grid rank", "start")
    if block.rank == block.nprocs - 1 and block.stop != block.size:
        text = f"{block.stop} is given, required is the size {block.size} on the last grid rank"
        report.error("B4", text, "stop")


def _read_cyclic(entry: Entry, extent: int, place: dict[str, Any]) -> DimMap | None:
    report = entry.report
    start = entry.integer("start", "C1", 0)
    block_size = entry.integer("block_size", "C2", 1, 1)
    if start is None or block_size is None:
        return None
    dealt = CyclicMap(block_size=block_size, **place)
    if start != dealt.start and not start == dealt.size <= dealt.start:
        text = (
            f"{start} is given, required is proc_grid_rank * block_size = {dealt.start}"
            f"{f', or the size {dealt.size}' if dealt.size <= dealt.start else ''}"
        )
        report.error("C3", text, "start")
    if extent != dealt.count:
        text = (
            f"the buffer has {extent} points, required are the {dealt.count} that grid rank "
            f"{dealt.rank} of {dealt.nprocs} is dealt in blocks of {block_size}"
        )
        report.error("C4", text)
    return dealt


def _read_unstructured(entry: Entry, extent: int, place: dict[str, Any]) -> DimMap | None:
    report = entry.report
    indices = entry.indices("indices", "U1")
    one_to_one = entry.flag("one_to_one", "U4")
    if indices is None:
        return None
    ordered = np.sort(indices)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        text = f"{twice[0]} is given twice, required is that all differ; list each index once"
        report.error("U2", text, "indices")
    if len(indices) != extent:
        text = (
            f"{len(indices)} are given, required is one for each of {extent} points in the buffer"
        )
        report.error("U3", text, "indices")
    if place["size"] == 0 and len(indices):
        text = f"{len(indices)} are given, required is none in a dimension of size 0"
        report.error("U5", text, "indices")
    return UnstructuredMap(indices=indices, one_to_one=one_to_one, **place)
