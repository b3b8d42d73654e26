"""Saying in the words of either version how dimensions are distributed."""

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
        Whether any process pads the dimension, for each; then all have to say so in version 0.9.
        Default: whether this one does.
    undistributed : {"n", "b"}, optional
        How version 0.9 calls a dimension that lies on one process. Default "n".

    Returns
    -------
    tuple of dict
        Python integers, booleans and tuples, and arrays of indices; no key that says the default.

    Raises
    ------
    VersionError
        If there is no such version.
    UnsupportedError
        If this version cannot say it: wrapped ghosts in 0.10, periodic boundary points in 0.9.

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
    """Check that a version can be written.

    Raises
    ------
    VersionError
        If it cannot.
    """
    if version not in VERSIONS:
        msg = f"{version!r} is given, required is one of {VERSIONS}"
        raise VersionError(msg, code="E2", key="__version__")


def _emit_dim(
    dim: DimMap, version: str, number: int, *, padded: bool, alone: str
) -> dict[str, Any]:
    said: dict[str, Any] = {"size": dim.size, "proc_grid_size": dim.nprocs}
    said |= {"proc_grid_rank": dim.rank}
    match dim:
        case BlockMap() if is_old(version) and dim.nprocs == 1 and alone == "n":
            said = {"dist_type": "n", "size": dim.size}
        case BlockMap():
            lo, hi = (0, 0) if is_old(version) else dim.ghosts
            said |= {"dist_type": "b", "start": dim.start - lo, "stop": dim.stop + hi}
        case CyclicMap():
            said |= {"dist_type": "c", "start": dim.start}
            said |= {"block_size": dim.block_size} if dim.block_size > 1 else {}
        case UnstructuredMap():
            said |= {"dist_type": "u", "indices": dim.indices}
            said |= {"one_to_one": True} if dim.one_to_one else {}
    if isinstance(dim, BlockMap):
        padding = _padding(dim, version, number)
        said |= {"padding": padding} if padded or any(padding) else {}
    elif dim.periodic and not is_old(version):
        msg = f"a periodic {dim.kind} dimension cannot be said; use version 0.9.0"
        raise UnsupportedError(msg, code="B7", dim=number, key="periodic", version=version)
    return said | ({"periodic": True} if dim.periodic else {})


def _padding(dim: BlockMap, version: str, number: int) -> tuple[int, int]:
    """Ghosts and boundary points together, if the version tells them apart again."""
    padding = dim.ghosts[0] + dim.boundary[0], dim.ghosts[1] + dim.boundary[1]
    wrapped = dim.periodic and is_old(version)
    if split_padding(padding, dim.rank, dim.nprocs, wrapped=wrapped) != (dim.ghosts, dim.boundary):
        msg = (
            f"ghosts {dim.ghosts} and boundary points {dim.boundary} on grid rank {dim.rank} of "
            f"{dim.nprocs} cannot be said; required are ghosts "
            f"{'everywhere' if wrapped else 'inside'} and boundary points "
            f"{'nowhere' if wrapped else 'at the edges of the process grid'}: "
            "use the other version, or a view without the padding"
        )
        raise UnsupportedError(msg, code="K3", dim=number, key="padding", version=version)
    return padding
