"""Reductions of all elements of fields to one value: prepared, and one collective each.

The value of each rank rides in its row of the agreement, and every rank reduces those of all ranks
in the same order. What is prepared belongs to the pencil, for each kind of field, and follows from
what the ranks have agreed on; a rank that has nothing prepared sends the same row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pencils.array.base import Field
from pencils.comm.agree import PreparedAgreement
from pencils.comm.reduce import fold, folder, reducer
from pencils.pencil import keep


class WholeReduction:
    """A reduction of fields of one kind, whose arguments all ranks have agreed on before.

    Parameters
    ----------
    u : Field
        A field of this kind.
    call, facts
        What all ranks agree on.
    ufunc, dtype, result : ufunc, dtype, dtype
        What combines two values, the type in which it does, and that of the result.
    part : callable
        Reduces the own blocks, as many as fields are passed, to a value of type `dtype`.
    neutral : scalar or None
        The value of a rank that has nothing to contribute; None if this one has.
    """

    def __init__(
        self,
        u: Field,
        call: str,
        facts: Mapping[str, object],
        *,
        ufunc: np.ufunc,
        dtype: np.dtype[Any],
        result: np.dtype[Any],
        part: Callable[..., Any],
        neutral: Any,
    ) -> None:
        self._row = PreparedAgreement(u.pencil.topology.comm, call, **facts)
        self._ufunc = ufunc
        self._type = result.type
        self._part = part
        self._neutral = neutral
        self._alone = self._row.meeting.size == 1
        self._rows: NDArray[Any] | None = None
        if self._row.meeting.gathers:
            self._mine, self._rows = self._row.meeting.values(dtype)
            self._column = self._rows[:, 0]
            self._fold = folder(ufunc, dtype)

    def __call__(self, *fields: Field) -> Any:
        """Reduce fields of the same kinds. *Collective*."""
        part, error, reduce = self._neutral, None, None
        try:
            if part is None:
                part = self._part(*[u._local for u in fields])
            if self._rows is None:
                reduce = reducer(np.asarray(part).reshape(1), self._ufunc)
            else:
                self._mine[0] = part
        except Exception as mine:  # noqa: BLE001 - raised on all ranks
            error = mine
        self._row.meet(error)
        if self._alone:
            return self._type(part)
        if reduce is not None:
            return self._type(reduce(self._row.meeting.comm)[0])
        if self._fold is not None:
            return self._type(self._fold(self._column.tolist()))
        assert self._rows is not None
        return self._type(fold(self._rows, self._ufunc)[0])


def kept_reduction(call: str, *fields: Field) -> WholeReduction | None:
    """Return what is prepared for fields like these, which lie on one pencil; local."""
    return fields[0]._pencil.kept.get(_key(call, fields))


def keep_reduction(call: str, fields: Sequence[Field], reduction: WholeReduction) -> None:
    """Keep what is prepared for fields like these."""
    keep(fields[0].pencil, _key(call, fields), reduction)


def _key(call: str, fields: Sequence[Field]) -> tuple[Any, ...]:
    return call, *[u._kind or u.kind for u in fields]
