"""Validate and describe the export of one process."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from pencils.dap.errors import DAPError, DAPWarning, Finding, Findings
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, LocalDist, brief
from pencils.dap.parse import parse


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
        Whether lists are accepted instead of tuples and buffers, and extents of the other version
        where only these fit; each with a warning.

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
    findings = Findings(lenient)
    dist = parse(export, findings)
    return Metadata(dist, tuple(findings.found))


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
    >>> validate(
    ...     {
    ...         "__version__": "0.9.0",
    ...         "buffer": np.zeros((2, 5)),
    ...         "dim_data": (
    ...             {"dist_type": "n", "size": 2},
    ...             {
    ...                 "dist_type": "c",
    ...                 "size": 9,
    ...                 "proc_grid_size": 2,
    ...                 "proc_grid_rank": 0,
    ...                 "start": 0,
    ...             },
    ...         ),
    ...     }
    ... ).global_shape
    (2, 9)
    """
    found = metadata(export, lenient=lenient)
    raise_first(found.findings)
    assert found.dist is not None
    return found.dist


def raise_first(findings: Iterable[Finding]) -> None:
    """Raise the first error; issue the warnings before it."""
    for found in findings:
        if isinstance(found, DAPWarning):
            warnings.warn(found, stacklevel=_levels_to_user())
        elif isinstance(found, DAPError):
            raise found


def _levels_to_user() -> int:
    """Count the calls between the caller of this function and code outside of pencils."""
    names = (info.frame.f_globals.get("__name__", "") for info in inspect.stack(0)[1:])
    return 1 + sum(1 for _ in takewhile(lambda name: name.startswith("pencils."), names))


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
    lines = list(_lines(found.dist)) if found.dist else ["This is not a valid export:"]
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
