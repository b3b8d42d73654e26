"""Finding out whether an export is legal, and whether those of all processes fit together."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pencils.dap import collective
from pencils.dap.dist import GlobalDist, LocalDist
from pencils.dap.errors import CollectiveError, DAPError, DAPWarning, Finding
from pencils.dap.parse import parse
from pencils.dap.report import Report


@dataclass(frozen=True, slots=True)
class Metadata:
    """All that an export says but its elements: small, and fit to be sent.

    Parameters
    ----------
    dist : LocalDist or None
        What it says; None if a rule is broken.
    findings : tuple of Finding
        What was found: errors (`DAPError`) and warnings (`DAPWarning`).
    """

    dist: LocalDist | None
    findings: tuple[Finding, ...]


def metadata(export: object, *, lenient: bool = False) -> Metadata:
    """Read an export, whatever it is, without raising.

    Parameters
    ----------
    export : dict
        What ``__distarray__()`` returned on this process.
    lenient : bool, optional
        Whether lists are read for tuples and buffers, and extents as in the other version where
        only that fits; each with a warning.

    Returns
    -------
    Metadata
        Can be pickled; `validate_collective` takes it for the export.

    Examples
    --------
    >>> import numpy as np
    >>> found = metadata({"__version__": "0.10.0", "buffer": np.zeros(3), "dim_data": ({},)})
    >>> found.dist.dims[0].owned, found.findings
    (range(0, 3), ())
    """
    report = Report(lenient)
    dist = parse(export, report)
    return Metadata(dist, tuple(report.findings))


def iter_issues(export: object, *, lenient: bool = False) -> Iterator[Finding]:
    """Yield all that is wrong with the export of one process, without raising.

    Parameters
    ----------
    export : object
        What ``__distarray__()`` returned on this process, or anything else.
    lenient : bool, optional
        As in `metadata`.

    Yields
    ------
    Finding
        A `DAPError` for every broken rule, a `DAPWarning` for what is read all the same.

    Examples
    --------
    >>> for issue in iter_issues({"__version__": "0.10", "buffer": b"abc"}):
    ...     print(issue)
    the keys ['dim_data'] are missing; add them [rule E1]
    key '__version__': '0.10' is given, required is '0.9.x' or '0.10.x', such as '0.10.0' [rule E2]
    """
    yield from metadata(export, lenient=lenient).findings


def validate(export: object, *, lenient: bool = False) -> LocalDist:
    """Check the export of one process by itself.

    Parameters
    ----------
    export : dict
        What ``__distarray__()`` returned on this process.
    lenient : bool, optional
        As in `metadata`.

    Returns
    -------
    LocalDist
        What it says, in terms that are the same for all versions.

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


def iter_collective_issues(exports: Iterable[Any], *, lenient: bool = False) -> Iterator[Finding]:
    """Yield all that is wrong with the exports of all processes, in the order of their ranks.

    Whether they fit together is looked at only if each is right by itself, and whether blocks meet
    only if all processes speak of the same array on the same grid. What is wrong in the same way
    on many ranks is said once.

    Parameters
    ----------
    exports : iterable of dict or of Metadata
        One for each process.
    lenient : bool, optional
        As in `metadata`; of no effect on a `Metadata`.

    Yields
    ------
    Finding
        A `DAPError` for every broken rule, a `DAPWarning` for what is read all the same.
    """
    yield from _findings(_all_metadata(exports, lenient=lenient))


def validate_collective(exports: Iterable[Any], *, lenient: bool = False) -> GlobalDist:
    """Check the exports of all processes, each by itself and all together.

    Nothing is sent: this takes the exports, or their `metadata`, of all processes at once.

    Parameters
    ----------
    exports : iterable of dict or of Metadata
        One for each process, in the order of their ranks.
    lenient : bool, optional
        As in `metadata`; of no effect on a `Metadata`.

    Returns
    -------
    GlobalDist
        Who owns what.

    Raises
    ------
    DAPError
        The first broken rule; its attribute `rank` tells the process at fault.

    Examples
    --------
    >>> import numpy as np
    >>> def export(rank):
    ...     block = {"dist_type": "b", "size": 6, "proc_grid_size": 2, "proc_grid_rank": rank}
    ...     block |= {"start": 3 * rank, "stop": 3 * rank + 3}
    ...     return {"__version__": "0.10.0", "buffer": np.zeros(3), "dim_data": (block,)}
    >>> validate_collective([export(0), export(1)]).owner((4,))
    (1, (1,))
    """
    found = _all_metadata(exports, lenient=lenient)
    raise_first(_findings(found))
    dists = [one.dist for one in found if one.dist]
    return GlobalDist(tuple(collective.join(dists, dim) for dim in range(len(dists[0].dims))))


def _all_metadata(exports: Iterable[Any], *, lenient: bool) -> list[Metadata]:
    return [one if isinstance(one, Metadata) else metadata(one, lenient=lenient) for one in exports]


def _findings(found: Sequence[Metadata]) -> Iterator[Finding]:
    if not found:
        yield CollectiveError("no exports are given, required is one per process", code="G2")
        return
    yield from _of_ranks(found)
    dists = [one.dist for one in found if one.dist]
    if len(dists) < len(found):
        return
    yield from collective.same_dtype(dists)
    for stage in (collective.same_everywhere, collective.on_the_grid):
        issues = list(stage(dists))
        yield from issues
        if issues:
            return
    for dim in range(len(dists[0].dims)):
        yield from collective.dimension(dists, dim)


def _of_ranks(found: Sequence[Metadata]) -> Iterator[Finding]:
    """Yield what every rank found by itself; what many found, for the first of them."""
    first: dict[tuple[str, int | None, str | None], int] = {}
    for rank, one in enumerate(found):
        for issue in one.findings:
            if first.setdefault((issue.code, issue.dim, issue.key), rank) == rank:
                here = copy(issue)
                here.rank = rank
                yield here


def raise_first(findings: Iterable[Finding]) -> None:
    """Raise the first error; warn of what comes before it."""
    for found in findings:
        if isinstance(found, DAPWarning):
            warnings.warn(found, stacklevel=_levels_to_user())
        elif isinstance(found, DAPError):
            raise found


def _levels_to_user() -> int:
    """How many calls up from the caller of this function the code is that is not of pencils."""
    names = (info.frame.f_globals.get("__name__", "") for info in inspect.stack(0)[1:])
    return 1 + sum(1 for _ in takewhile(lambda name: name.startswith("pencils."), names))
