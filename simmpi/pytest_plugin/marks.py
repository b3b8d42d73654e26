"""For which numbers of ranks a test is meant."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def ranks_of(mark: pytest.Mark) -> tuple[int, ...]:
    """Return the numbers of ranks of a mark ``parallel``; none if it has none.

    Examples
    --------
    >>> ranks_of(pytest.mark.parallel([1, 3]).mark), ranks_of(pytest.mark.parallel(nprocs=2).mark)
    ((1, 3), (2,))
    """
    given: tuple[int | Iterable[int], ...] = mark.args or tuple(mark.kwargs.values())
    if len(given) > 1:
        raise pytest.UsageError(
            f"parallel{given} has {len(given)} arguments; give one number of ranks, or one list"
        )
    if not given:
        return ()
    (ranks,) = given
    return (ranks,) if isinstance(ranks, int) else tuple(ranks)


def runs_on(mark: pytest.Mark | None, size: int) -> bool:
    """Whether a test with this mark runs on `size` simulated ranks.

    Examples
    --------
    >>> mark = pytest.mark.parallel([1, 2, 4]).mark
    >>> [size for size in range(1, 8) if runs_on(mark, size)]
    [1, 2, 4, 5, 6, 7]
    """
    if mark is None:
        return False
    ranks = ranks_of(mark)
    return not ranks or size in ranks or (len(ranks) > 1 and size > max(ranks))
