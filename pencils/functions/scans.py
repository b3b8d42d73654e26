"""Running sums and products along one axis, with the signatures of NumPy. All are *Collective*.

Along an axis that is cut, large blocks are scanned in parts: a rank scans its part when it has the
last plane of that part from the rank before. Where the ranks of a row are too many for this, each
first reduces its own block to a plane. They share what follows: each gets its part of the planes of
all blocks, scans these, and sends back to every rank what comes before its block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from math import prod
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import Array, as_dtype, memory_axes
from pencils.array.base import Field
from pencils.array.operands import check_field, signature, topology_among
from pencils.comm.failure import wait_all
from pencils.comm.line_program import LineProgram, Rows, Step, Term, pieces, planes, prepare_lines
from pencils.comm.mpi import MPI
from pencils.comm.pack import compiled
from pencils.comm.reduce import selectable
from pencils.errors import ArgumentError
from pencils.functions.arguments import Line, comm_along, one_axis
from pencils.functions.moves import Run, suits
from pencils.plans import Agreement, LocalVerb, PlanKey


def scanner(
    array: Array, ufunc: np.ufunc, ranks: Sequence[int], rank: int, size: int
) -> Callable[[MPI.Intracomm], None]:
    """Allocate what a scan needs; local. Call the result once, with the communicator.

    The call fills `array` with what `ufunc` makes of those of all `ranks` before this one, from the
    first to the last one; on the first of `ranks`, and on those that are not among them, its values
    mean nothing then. Arrays have equal shape and dtype on all ranks. Each rank scans its share of
    the elements, so that nothing is larger than an array, and results do not depend on the MPI
    library. The array is contiguous, `ufunc` keeps its type; `rank` and `size` are of the
    communicator.
    """
    cuts = [number * array.size // size for number in range(size + 1)]
    nbytes = [(hi - lo) * array.itemsize for lo, hi in pairwise(cuts)]
    here: Any = [_bytes(array), (nbytes, [cut * array.itemsize for cut in cuts[:-1]]), MPI.BYTE]
    share = nbytes[rank]
    places = [share] * size, [share * number for number in range(size)]
    arrived, before = np.zeros((2, size, share // array.itemsize), array.dtype)
    idle = array.size == 0 or len(ranks) < 2  # noqa: PLR2004

    def scan(comm: MPI.Intracomm) -> None:
        if idle:
            return
        comm.Alltoallv(here, [_bytes(arrived), places, MPI.BYTE])
        first, *others = ranks
        before[others[0]] = arrived[first]
        with np.errstate(all="ignore"):  # only some ranks might take warnings for errors
            for one, other in pairwise(others):
                ufunc(before[one], arrived[one], out=before[other])
        comm.Alltoallv([_bytes(before), places, MPI.BYTE], here)

    return scan


def in_turn(
    comm: MPI.Intracomm,
    ranks: Sequence[int],
    before: Sequence[Array],
    after: Sequence[Array],
    work: Callable[[int], None],
) -> None:
    """Do the parts of some work, each when the rank before has done it. *Collective*.

    While a rank does a part, the next one does that before it: with many more parts than ranks
    this takes little longer than the work of one rank. Of each part, `before` is what the rank
    before among `ranks` sends, and `after` what this one sends to the next, contiguous and of one
    size on all ranks. ``work(number)`` does a part: `before` has arrived, it sets `after`.
    """
    if comm.rank not in ranks:
        return
    place = ranks.index(comm.rank)
    requests = []
    for number, (arrived, sent) in enumerate(zip(before, after, strict=True)):
        if place > 0:
            comm.Recv(_bytes(arrived), ranks[place - 1], number)
        work(number)
        if place + 1 < len(ranks):
            requests.append(comm.Isend(_bytes(sent), ranks[place + 1], number))
    wait_all(requests)


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def prepare_scan(
    ufunc: np.ufunc,
    values: Array,
    sums: Array,
    axis: int,
    *,
    before: Array | None = None,
    after: Array | None = None,
    besides: int = 0,
) -> Sequence[Run]:
    """Prepare to scan values along an axis; call the results in their order.

    Both arrays are of one shape, and share no memory; contiguous axes are last. `before` is a plane
    that comes before the first values, read when the results are called, and `after` becomes a copy
    of the last results. Other calls write `besides` bytes before these sums are read: if all are
    too many for the cache, sums are written past it.
    """
    if ufunc is np.add and suits(sums.dtype, values.dtype):
        kernels, last = compiled(), sums.ndim - 1
        contiguous = axis == last and values.strides[last] == sums.strides[last] == sums.itemsize
        if kernels is not None and contiguous:
            return [partial(kernels.running_sums, sums, values, before, after, besides)]
        runs = _prepare_pieces(values, sums, axis, before, besides)
    else:
        many = planes(values, axis, 0, 1).size >= _MANY
        scan = _by_plane if many and sums.strides[axis] > sums.itemsize else _by_line
        runs = [partial(scan, ufunc, values, sums, axis, before)]
    if after is not None and sums.size:
        runs.append(partial(np.copyto, after, planes(sums, axis, -1, sums.shape[axis])))
    return runs


def _prepare_pieces(
    values: Array, sums: Array, axis: int, before: Array | None, besides: int
) -> list[Run]:
    """Prepare line programs, one for each piece of all lines."""
    runs: list[Run] = []
    for start, stop in pieces(values.shape[axis]):
        first = before if start == 0 else planes(sums, axis, start - 1, start)
        known = 0 if first is None else 1
        sources = [Rows(known, planes(values, axis, start, stop))]
        if first is not None:
            sources.append(Rows(0, first))
        target = Rows(known, planes(sums, axis, start, stop))
        program = _running_sums(known + stop - start)
        others = besides + sums.nbytes - target.array.nbytes
        runs.append(prepare_lines(program, sources, [target], axis, besides=others))
    return runs


@lru_cache(maxsize=64)
def _running_sums(rows: int) -> LineProgram:
    return LineProgram(rows, [Step(row, [Term(row - 1), Term(row)]) for row in range(1, rows)])


# Types of arguments that can be compared before they are read.
_AXES, _DTYPES = (int, NoneType), (type, str, NoneType)
# Scans the own block, given the communicator along the axis if it is cut.
Scan = Callable[[Any], None]

_PART = 2**19  # bytes of a block that is scanned in turn with those of other ranks
_MOST_PARTS = 16
_PARTS_FOR_EACH = 4  # rank that comes before the last one
_MANY = 128  # elements of a plane: fewer are added one by one as fast
_CACHED = 2**18  # bytes that stay in the second-level cache
_PART_OF_PLANE = 2**16  # bytes of a sum, enough for a call of NumPy


def cumsum(
    a: Field, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
) -> Field:
    """Add up all elements up to each one along an axis, as `numpy.cumsum`. *Collective*.

    It takes one pass over the own block, part by part, if the ranks along the axis are few: each
    part needs the last plane of the part before it. Else, and for small blocks, it reads the block
    once more, and sends two messages of the size of one plane to the ranks along the axis.

    Parameters
    ----------
    a : PencilArray
        The field.
    axis : int, optional
        Axis of the global shape; may be left out if there is only one.
    dtype : dtype, optional
        Type of the sums. Default: as in NumPy, where booleans and short integers become ``int``.
    out : None
        Not supported.

    Returns
    -------
    PencilArray
        A new field on the same pencil, without halo. Sums of floats may differ from those of NumPy
        by rounding, where whole blocks are summed up first; they are the same in every run. Those
        of half precision have the same bits.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if there is no such axis, or NumPy does not add such elements.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.ones(pencils.Pencil((4, 3)))
    >>> int(np.cumsum(u, axis=0).max())
    4
    """
    return _Scan("cumsum", np.add, a, axis, dtype, out).run()


def cumprod(a: Field, *args: Any, **options: Any) -> Field:
    """Multiply all elements up to each one along an axis; else like `cumsum`. *Collective*."""
    return _Scan("cumprod", np.multiply, a, *args, **options).run()


def nancumsum(a: Field, *args: Any, **options: Any) -> Field:
    """Add up with NaN as 0, as `numpy.nancumsum`; else like `cumsum`. *Collective*."""
    return _Scan("nancumsum", np.add, a, *args, missing=0, **options).run()


def nancumprod(a: Field, *args: Any, **options: Any) -> Field:
    """Multiply with NaN as 1, as `numpy.nancumprod`; else like `cumsum`. *Collective*."""
    return _Scan("nancumprod", np.multiply, a, *args, missing=1, **options).run()


def cumulative_sum(x: Field, /, **options: Any) -> Field:
    """Add up along an axis, as `numpy.cumulative_sum` and like `cumsum`. *Collective*."""
    return _Scan("cumulative_sum", np.add, x, **options).run()


def cumulative_prod(x: Field, /, **options: Any) -> Field:
    """Multiply along an axis, as `numpy.cumulative_prod` and like `cumsum`. *Collective*."""
    return _Scan("cumulative_prod", np.multiply, x, **options).run()


def accumulate(ufunc: np.ufunc, a: Field, axis: int = 0, *args: Any, **options: Any) -> Field:
    """Do what ``ufunc.accumulate`` does, for `numpy.add` and `numpy.multiply`. *Collective*."""
    return _Scan(f"{ufunc.__name__}.accumulate", ufunc, a, axis, *args, **options).run()


class _Axis(NamedTuple):
    """An axis along which fields of one kind are scanned."""

    position: int
    line: Line
    order: tuple[int, ...]  # of all axes in memory
    dtype: np.dtype[Any]  # of the results


class _Scan(LocalVerb[_Axis, tuple[Scan, Array]]):
    """A call that scans along one axis; NaN counts as `missing`."""

    def __init__(
        self,
        name: str,
        ufunc: np.ufunc,
        u: Field,
        axis: int | None = None,
        dtype: DTypeLike | None = None,
        out: object = None,
        *,
        missing: int | None = None,
        include_initial: bool = False,
    ) -> None:
        self._name, self._ufunc, self._missing = name, ufunc, missing
        self._given = u, axis, dtype, out, include_initial
        self._plain: PlanKey | None = None
        is_field = issubclass(type(u), Field)  # isinstance() may raise
        plain = type(axis) in _AXES and type(dtype) in _DTYPES
        if is_field and plain and out is None and include_initial is False:
            self._plain = u.kind, axis, dtype
        super().__init__(name, topology_among(u), u.pencil if is_field else None, self._plain)

    def signature(self, agree: Agreement) -> PlanKey:
        """Check the arguments."""
        u, axis, dtype, out, include_initial = self._given
        check_field("a", u)
        agree(**signature(u), initial=bool(include_initial))
        if out is not None:
            raise TypeError(f"{self._name} of a PencilArray takes no out=; use the result")
        if include_initial:
            raise ArgumentError(
                f"{self._name} with include_initial=True would have one point more than its "
                "pencil; leave it out. The value before the first point is "
                f"{self._ufunc.identity}"
            )
        self._position = one_axis(self._name, u, axis)
        self._wanted = None if dtype is None else as_dtype(dtype)
        agree(axis=self._position, wanted=self._wanted)
        return self._plain or (u.kind, self._position, self._wanted)

    def make(self) -> _Axis:
        """Find the type of the results, and the ranks along the axis."""
        u, wanted = self._given[0], self._wanted
        # NumPy gives the type of the result, and its error for elements that it does not combine.
        result = self._ufunc.accumulate(np.ones(1, u.dtype), dtype=selectable(wanted)).dtype
        if wanted is not None and wanted.kind != result.kind:
            raise TypeError(
                f"{self._ufunc.__name__} of elements of dtype {u.dtype} cannot return dtype "
                f"{wanted}"
            )
        order = memory_axes(u.pencil.order, len(u.components))
        return _Axis(self._position, Line.of(u, self._position), order, result)

    def bind(self, plan: _Axis) -> tuple[Scan, Array]:
        """Allocate the results, and prepare to scan the own block."""
        u, missing, order = self._given[0], self._missing, plan.order
        frame, values = u.frame.bare, u.local
        block = frame.make(frame.shape_of(u.components, plan.dtype), plan.dtype)
        if missing is not None and values.dtype.kind in "fc":
            values = np.where(np.isnan(values), values.dtype.type(missing), values)
        along = order.index(plan.position)
        pair = values.transpose(order), block.transpose(order)
        return _scanned(self._ufunc, *pair, along, plan.line), block

    def run(self) -> Field:
        """Agree and scan. *Collective*."""
        scan, block = self.prepare()
        u, axis = self._given[0], self.plan
        assert axis is not None
        comm = comm_along(u, axis.position) if axis.line.is_cut else None
        with np.errstate(all="ignore"):  # only some ranks might take warnings for errors
            scan(comm)
        return u.in_frame(u.pencil, u.frame.bare, block)


def _scanned(ufunc: np.ufunc, values: Array, sums: Array, axis: int, line: Line) -> Scan:
    """Prepare to scan the own block; local. The result takes the communicator along the line.

    Large blocks are scanned in parts, which all ranks do one after the other. Where these are not
    many more than ranks, each rank reduces its block to a plane first.
    """
    prepare = partial(prepare_scan, ufunc, axis=axis)
    if not line.is_cut:
        runs = prepare(values, sums)
        return lambda _: _run(runs)
    # Results in another order would not be near those of NumPy: half precision has three digits,
    # and the products of complex infinities depend on the order.
    in_order = sums.dtype == np.float16 or (ufunc is np.multiply and sums.dtype.kind == "c")
    filled, keys = line.filled, _parts(sums, axis, line)
    if in_order or (keys and len(keys) >= _PARTS_FOR_EACH * (len(filled) - 1)):
        keys = keys or [(slice(None),) * sums.ndim]
        shapes = [(*sums[key].shape[:axis], 1, *sums[key].shape[axis + 1 :]) for key in keys]
        arrived, sent = ([np.empty(shape, sums.dtype) for shape in shapes] for _ in range(2))
        first = not filled or line.part == filled[0]
        works = [
            prepare(
                values[key],
                sums[key],
                before=None if first else before,
                after=after,
                besides=sums.nbytes - sums[key].nbytes,
            )
            for key, before, after in zip(keys, arrived, sent, strict=True)
        ]
        return lambda comm: in_turn(comm, filled, arrived, sent, lambda n: _run(works[n]))
    plane = np.zeros((*values.shape[:axis], 1, *values.shape[axis + 1 :]), sums.dtype)
    if line.part in filled[:-1]:
        kind = selectable(sums.dtype)
        with np.errstate(all="ignore"):  # with an initial 0, the sum of -0.0 would be 0.0
            ufunc.reduce(values, axis, kind, plane, keepdims=True, initial=None)
    combine = scanner(plane, ufunc, filled, line.part, line.split.parts)
    runs = prepare(values, sums, before=plane if line.part in filled[1:] else None)

    def scan(comm: Any) -> None:
        combine(comm)
        _run(runs)

    return scan


def _parts(sums: Array, axis: int, line: Line) -> list[tuple[slice, ...]]:
    """Divide the planes across an axis: the same on all ranks along it."""
    shape = list(sums.shape)
    shape[axis] = line.split.longest
    others = [each for each in range(sums.ndim) if each != axis]
    largest = max(others, key=lambda each: shape[each], default=None)
    if largest is None:
        return []
    count = min(prod(shape) * sums.itemsize // _PART, _MOST_PARTS, shape[largest])
    cuts = [number * shape[largest] // count for number in range(count + 1)] if count else []
    return [(*(slice(None),) * largest, slice(*ends)) for ends in pairwise(cuts)]


def _run(runs: Sequence[Run]) -> None:
    for run in runs:
        run()


def _by_plane(ufunc: np.ufunc, values: Array, sums: Array, axis: int, before: Array | None) -> None:
    """Combine planes, one after the other: so much of them at once as stays in the cache."""
    addends, totals = np.moveaxis(values, axis, 0), np.moveaxis(sums, axis, 0)
    firsts = None if before is None else np.moveaxis(before, axis, 0)[0]
    kind = selectable(sums.dtype)
    step = max(1, _PART_OF_PLANE // max(1, totals[0, :1].nbytes))
    for start in range(0, totals.shape[1], step):
        key = slice(start, start + step)
        last = None if firsts is None else firsts[key]
        for plane, total in zip(addends[:, key], totals[:, key], strict=True):
            if last is None:
                total[...] = plane
            else:
                ufunc(last, plane, out=total, dtype=kind, casting="unsafe")
            last = total


def _by_line(ufunc: np.ufunc, values: Array, sums: Array, axis: int, before: Array | None) -> None:
    """Do what ``ufunc.accumulate`` does, for as many lines at once as stay in the cache."""
    step = max(1, _CACHED // max(1, sums[:1].nbytes)) if axis else max(1, len(sums))
    for start in range(0, len(sums), step):
        key = slice(start, start + step)
        part, kind = sums[key], selectable(sums.dtype)
        if before is None:
            ufunc.accumulate(values[key], axis, kind, part)
            continue
        part[...] = values[key]
        first = planes(part, axis, 0, 1)
        ufunc(before[key if axis else slice(None)], first, out=first)
        ufunc.accumulate(part, axis, kind, part)
