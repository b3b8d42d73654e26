"""Write the ``dim_data`` of an export in either version of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pencils.dap.errors import UnsupportedError, VersionError
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, UnstructuredMap
from pencils.dap.parse import is_old, split_padding

VERSIONS = ("0.9.0", "0.10.0")


def emit(
    dims: Sequence[DimMap],
    version: str = "0.10.0",
    *,
    padded: Sequence[bool] | None = None,
    undistributed: Literal["n", "b"] | None = None,
) -> tuple[dict[str, Any], ...]:
    """Write the dimension dictionaries of one process: the ``dim_data`` of an export.

    Parameters
    ----------
    dims : sequence of DimMap
        The map of every dimension.
    version : {"0.10.0", "0.9.0"}
        Version of the protocol.
    padded : sequence of bool, optional
        For each dimension, whether any process has padding; then version 0.9 wants the key on all
        processes. Default: whether this process has padding.
    undistributed : {"n", "b"}, optional
        Distribution type in version 0.9 of a dimension on one process. Default "n".

    Returns
    -------
    tuple of dict
        Python integers, booleans and tuples, and arrays of indices; keys with default values are
        omitted.

    Raises
    ------
    VersionError
        If the version does not exist.
    UnsupportedError
        If the version cannot represent the map: wrapped ghosts in 0.10, periodic boundary points
        in 0.9.

    Examples
    --------
    >>> block = BlockMap(size=10, nprocs=2, rank=1, start=5, stop=10, ghosts=(1, 0))
    >>> emit([block])[0] == {
    ...     "dist_type": "b",
    ...     "size": 10,
    ...     "proc_grid_size": 2,
    ...     "proc_grid_rank": 1,
    ...     "start": 4,
    ...     "stop": 10,
    ...     "padding": (1, 0),
    ... }
    True
    >>> emit([BlockMap(size=7, start=0, stop=7)], "0.9.0")
    ({'dist_type': 'n', 'size': 7},)
    """
    check_version(version)
    flags = padded or [False] * len(dims)
    return tuple(
        _emit_dim(dim, version, number, padded=flag, alone=undistributed or "n")
        for number, (dim, flag) in enumerate(zip(dims, flags, strict=True))
    )


def check_version(version: str) -> None:
    """Raise VersionError unless exports can be written in a version."""
    if version not in VERSIONS:
        msg = f"got {version!r}, expected one of {VERSIONS}"
        raise VersionError(msg, code="E2", key="__version__")


def _emit_dim(
    dim: DimMap, version: str, number: int, *, padded: bool, alone: str
) -> dict[str, Any]:
    entry: dict[str, Any] = {"size": dim.size, "proc_grid_size": dim.nprocs}
    entry |= {"proc_grid_rank": dim.rank}
    match dim:
        case BlockMap() if is_old(version) and dim.nprocs == 1 and alone == "n":
            entry = {"dist_type": "n", "size": dim.size}
        case BlockMap():
            lo, hi = (0, 0) if is_old(version) else dim.ghosts
            entry |= {"dist_type": "b", "start": dim.start - lo, "stop": dim.stop + hi}
        case CyclicMap():
            entry |= {"dist_type": "c", "start": dim.start}
            entry |= {"block_size": dim.block_size} if dim.block_size > 1 else {}
        case UnstructuredMap():
            entry |= {"dist_type": "u", "indices": dim.indices}
            entry |= {"one_to_one": True} if dim.one_to_one else {}
    if isinstance(dim, BlockMap):
        padding = _padding(dim, version, number)
        entry |= {"padding": padding} if padded or any(padding) else {}
    elif dim.periodic and not is_old(version):
        msg = f"a periodic {dim.kind} dimension cannot be represented; use version 0.9.0"
        raise UnsupportedError(msg, code="B7", dim=number, key="periodic", version=version)
    return entry | ({"periodic": True} if dim.periodic else {})


def _padding(dim: BlockMap, version: str, number: int) -> tuple[int, int]:
    """Add ghosts and boundary points, if a reader can separate them again."""
    padding = dim.ghosts[0] + dim.boundary[0], dim.ghosts[1] + dim.boundary[1]
    wrapped = dim.periodic and is_old(version)
    if split_padding(padding, dim.rank, dim.nprocs, wrapped=wrapped) != (dim.ghosts, dim.boundary):
        msg = (
            f"ghosts {dim.ghosts} and boundary points {dim.boundary} on grid rank {dim.rank} of "
            f"{dim.nprocs} cannot be represented; expected ghosts "
            f"{'everywhere' if wrapped else 'inside'} and boundary points "
            f"{'nowhere' if wrapped else 'at the edges of the process grid'}: "
            "use the other version, or a view without the padding"
        )
        raise UnsupportedError(msg, code="K3", dim=number, key="padding", version=version)
    return padding
