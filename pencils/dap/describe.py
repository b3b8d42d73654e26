"""An export in words."""

from __future__ import annotations

from collections.abc import Iterator

from pencils.dap.dist import LocalDist
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, brief
from pencils.dap.validate import metadata


def describe(export: object) -> str:
    """Say in a few lines what the export of one process holds, or what is wrong with it.

    Parameters
    ----------
    export : dict
        What ``__distarray__()`` returned on this process.

    Returns
    -------
    str
        Version, type and shape; then, for every dimension, its kind, owned points and padding. At
        the end all issues.

    Examples
    --------
    >>> import numpy as np
    >>> block = {"dist_type": "b", "size": 27, "proc_grid_size": 4, "proc_grid_rank": 0}
    >>> block |= {"start": 0, "stop": 10, "padding": (4, 1)}
    >>> print(
    ...     describe(
    ...         {
    ...             "__version__": "0.10.0",
    ...             "buffer": np.zeros((10, 3)),
    ...             "dim_data": (block, {}),
    ...         }
    ...     )
    ... )
    Distributed Array Protocol 0.10.0: float64, local shape (10, 3) of global shape (27, 3)
      dimension 0: block 0 of 4, owns 0..8 of 27 points
        padding below: 4 boundary points, owned; above: 1 ghost
      dimension 1: not distributed, 3 points
    """
    found = metadata(export, lenient=True)
    lines = list(_lines(found.dist)) if found.dist else ["This is no legal export:"]
    return "\n".join([*lines, *(f"  ! {issue}" for issue in found.findings)])


def _lines(dist: LocalDist) -> Iterator[str]:
    yield (
        f"Distributed Array Protocol {dist.version}: {dist.dtype}, "
        f"local shape {dist.local_shape} of global shape {dist.global_shape}"
    )
    for number, dim in enumerate(dist.dims):
        periodic = ", periodic" if dim.periodic else ""
        yield f"  dimension {number}: {_kind(dim)}{periodic}"
        sides = zip(("below", "above"), dim.boundary, dim.ghosts, strict=True)
        padding = [f"{side}: {_padding(b, g)}" for side, b, g in sides if b or g]
        if padding:
            yield f"    padding {'; '.join(padding)}"


def _kind(dim: DimMap) -> str:
    if dim.nprocs == 1 and isinstance(dim, BlockMap):
        return f"not distributed, {_points(dim.size)}"
    kind: str = dim.kind
    if isinstance(dim, CyclicMap) and dim.block_size > 1:
        kind = f"cyclic in blocks of {dim.block_size}"
    part = f"part {dim.rank}" if kind != "block" else str(dim.rank)
    return f"{kind} {part} of {dim.nprocs}, owns {brief(dim.owned)} of {_points(dim.size)}"


def _padding(boundary: int, ghosts: int) -> str:
    if boundary:
        return f"{boundary} boundary point{'s' * (boundary > 1)}, owned"
    return f"{ghosts} ghost{'s' * (ghosts > 1)}"


def _points(number: int) -> str:
    return f"{number} point{'s' * (number != 1)}"
