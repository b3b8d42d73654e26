"""The buffers of `Take` and `Put`: their one type of values, and how they become rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.reduce import ReduceOp
from pencils.comm.rows import mover
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError
from pencils.indexer.gather_scatter import GatherScatter, RowBuffers, Steps
from pencils.indexer.ragged import Ragged, as_rows

DType = np.dtype[Any]
Named = tuple[str, Array]


class BufferTypes:
    """Element types of the buffers of a call, whose values have one type on all ranks.

    A buffer without values may have any type. If a rank has no values, `find`
    finds the type on the others.

    Parameters
    ----------
    call : str
        Name of the call in errors.

    Attributes
    ----------
    known : numpy.dtype or None
        Type of the values; None if there are none on this rank.
    """

    def __init__(self, call: str) -> None:
        self.known: DType | None = None
        self._call = call
        self._inputs: Sequence[Named] = ()
        self._outputs: Sequence[Named] = ()
        self._op: ReduceOp | None = None
        self._found: DType | None = None

    def read(
        self, inputs: Sequence[Named], outputs: Sequence[Named] = (), op: ReduceOp | None = None
    ) -> None:
        """Read the types of buffers.

        Parameters
        ----------
        inputs, outputs : sequence of (str, numpy.ndarray)
            What is read, and what is written if it was given, with their names.
        op : ReduceOp, optional
            How values are combined; then outputs may also have the type of its result.

        Raises
        ------
        ArgumentError, TypeError
            If the types do not fit each other, or the operation.
        """
        self._inputs, self._outputs, self._op = inputs, outputs, op
        alike = [*inputs, *(outputs if op is None else ())]
        full = [(name, array.dtype) for name, array in alike if array.size]
        self.known = full[0][1] if full else None
        for name, dtype in full[1:]:
            if dtype != self.known:
                msg = (
                    f"{full[0][0]} and {name} have types {self.known} and {dtype}; their types "
                    "must be the same"
                )
                raise TypeError(msg)
        if self.chosen is not None:
            self._check_outputs(self.chosen)

    @property
    def chosen(self) -> DType | None:
        """Type of the values, on this rank, or found by `find`."""
        return self.known or self._found

    @property
    def unchecked(self) -> DType:
        """Type of the values without agreement; buffers without values must have it, too."""
        empty = self._inputs[0][1].dtype if self._inputs else self._without_values
        dtype = self.known or empty
        if dtype is None:
            msg = (
                f"{self._call} with check=False cannot find the type of values where there are no "
                "lists; pass the output"
            )
            raise TypeError(msg)
        return dtype

    def find(self, topology: Topology) -> None:
        """Find the type of the values. *Collective*.

        It is that of the first rank with values; if there is none, that of a buffer without values.
        """
        found = _first(topology, self.known) or _first(topology, self._without_values)
        self._found = found or next(filter(self._is_possible, map(np.dtype, (float, int))))

    @property
    def _without_values(self) -> DType | None:
        """Type of a buffer without values."""
        types = [array.dtype for _, array in (*self._outputs, *self._inputs)]
        return next(filter(self._is_possible, types), None)

    def _is_possible(self, dtype: DType) -> bool:
        try:
            self._result(dtype)
        except ArgumentError:
            return False
        return True

    def _result(self, dtype: DType) -> DType:
        """Element type of a new output."""
        return dtype if self._op is None else self._op.result(dtype)

    def _check_outputs(self, dtype: DType) -> None:
        allowed = list(dict.fromkeys([dtype, self._result(dtype)]))
        for name, array in self._outputs:
            if array.size and array.dtype not in allowed:
                wanted = " or ".join(map(str, allowed))
                msg = f"{name} has type {array.dtype}, but values of type {dtype} need {wanted}"
                raise TypeError(msg)


def take_steps(
    plan: GatherScatter,
    dist: Array,
    outs: Sequence[Array],
    parts: Sequence[slice],
    buffers: RowBuffers,
    *,
    op: ReduceOp | None,
    dtype: DType,
) -> Steps:
    """Prepare to pack what is requested, and to fill the outputs with what arrives."""
    row = buffers.source.dtype
    source = as_rows(dist, row)
    direct = len(outs) == 1 and op is None
    found = as_rows(outs[0], row) if direct else np.empty(len(plan.order), row)
    aliased = np.may_share_memory(source, found)
    pack, unpack = plan.take_steps(source, plan.requested, buffers[:2], found, aliased=aliased)
    if not direct:
        unpack.append(partial(_fill_outputs, found, parts, outs, op, dtype))
    return pack, unpack


def put_steps(
    plan: GatherScatter,
    parts: Sequence[Array],
    target: Array,
    buffers: RowBuffers,
    *,
    op: ReduceOp | None,
    dtype: DType,
) -> Steps:
    """Prepare to pack what is written to rows of other ranks, and to write what arrives."""
    arriving = buffers.target
    row = arriving.dtype
    rows = [as_rows(values, row) for values in parts]
    source = rows[0] if len(rows) == 1 else np.concatenate([np.empty(0, row), *rows])
    pack = plan.put_steps(source, buffers[:2])
    if op is None:
        written, writers = plan.last_writers
        return pack, [mover(as_rows(target, row), written, arriving, writers)]
    width = row.itemsize // dtype.itemsize
    out, values = target.reshape(-1, width), arriving.view(dtype).reshape(-1, width)
    return pack, [partial(op.combine, out, plan.requested, values)]


def blank(size: int, dtype: DType, op: ReduceOp | None) -> Array:
    """Make a new output."""
    return np.empty(size, dtype) if op is None else op.blank(size, dtype)


def check_counts(names: Sequence[str], outs: Sequence[Ragged], parts: Sequence[Ragged]) -> None:
    """Check that the counts of outputs are those of the rows that arrive.

    Raises
    ------
    ArgumentError
        If one is not.
    """
    for name, out, part in zip(names, outs, parts, strict=True):
        wrong = np.flatnonzero(out.counts != part.counts)
        if wrong.size:
            first = wrong[0]
            msg = (
                f"{name} has count {out.counts[first]} for its index {first}, of which there are "
                f"{part.counts[first]} values"
            )
            raise ArgumentError(msg)


def _fill_outputs(
    rows: Array, parts: Sequence[slice], outs: Sequence[Array], op: ReduceOp | None, dtype: DType
) -> None:
    """Copy to each output its part of all rows, or combine them with it."""
    for out, part in zip(outs, parts, strict=True):
        if op is None:
            as_rows(out, rows.dtype)[:] = rows[part]
        else:
            op.fold(out, rows[part].view(dtype))


def _first(topology: Topology, dtype: DType | None) -> DType | None:
    """Return the type of the first rank that has one. *Collective*."""
    first = topology.first_of(present=dtype is not None)
    if first is None:
        return None
    found: DType = topology.comm.bcast(dtype, first)
    return found
