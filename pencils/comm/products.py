"""Products of sparse matrices along all axes and an array: compiled, or by NumPy.

Matrices of interpolation are such: few terms in each row, and all rows are alike but some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pencils.comm.memory import Array
from pencils.comm.pack import compiled

# Bytes that NumPy treats at once: with all intermediate results they stay in the cache.
CHUNK = 2**18

Op: TypeAlias = Callable[[], object]
Terms: TypeAlias = Sequence[tuple[int, float]]  # points of the source, and their weights
# Arrays for intermediate results, by their use and shape.
Room: TypeAlias = dict[tuple[Any, ...], Array]


class Matrix(NamedTuple):
    """The terms of each point of the target, along one axis.

    Most of them are those of the point `up` places before, with points that lie `down` farther on.
    """

    terms: Sequence[Terms]
    up: int
    down: int

    def moved(self, row: int) -> Terms:
        """Return the terms of a point, as those of a point among the first ones."""
        back = row // self.up * self.down
        return [(point - back, weight) for point, weight in self.terms[row]]

    def alike(self) -> range:
        """Return the points whose terms repeat: whole periods of `up` around the middle."""
        up, number = self.up, len(self.terms) // self.up
        middle = number // 2

        def period(n: int) -> list[Terms]:
            return [self.moved(row) for row in range(n * up, (n + 1) * up)]

        low = high = middle
        if number:
            known = period(middle)
            while low > 0 and period(low - 1) == known:
                low -= 1
            while high < number and period(high) == known:
                high += 1
        return range(low * up, high * up)


def prepare_product(
    target: Array,
    source: Array,
    matrices: Callable[[], Sequence[Matrix | None]],
    room: Room,
    known: dict[str, Any],
    *,
    scale: float = 1.0,
    add: bool = False,
) -> Iterator[Op]:
    """Prepare to set the target to the product of all matrices and the source, times `scale`.

    Along axes without a matrix both are alike. The target shares no memory with the source; the
    product is added to it with `add`. Arrays are fastest if the last axis is contiguous. What is
    returned is called in this order. What compiled products need of the matrices is kept in
    `known`, for later calls with the same matrices and scale.

    Examples
    --------
    >>> means = Matrix([[(0, 0.5), (1, 0.5)], [(2, 0.5), (3, 0.5)]], 1, 2)
    >>> found = np.empty(2)
    >>> for op in prepare_product(found, np.array([1.0, 3, 5, 6]), lambda: [means], {}, {}):
    ...     _ = op()
    >>> found
    array([2. , 5.5])
    """
    if not target.size:
        return
    kernels, item, dtype = compiled(), target.itemsize, target.dtype
    plain = dtype.char in "fdFD" and dtype.isnative and target.flags.aligned
    if kernels is None or not plain or not item == target.strides[-1] == source.strides[-1]:
        yield from _prepare_by_numpy(target, source, matrices(), room, scale=scale, add=add)
        return
    if "compiled" not in known:
        known["compiled"] = _compile(matrices(), target.shape, scale)
    yield kernels.Product(target, source, *known["compiled"], add)


def _compile(
    matrices: Sequence[Matrix | None], shape: Sequence[int], scale: float
) -> tuple[Any, ...]:
    """Return the terms along all axes but the last, those along that, and the scale if no other."""
    outer = [
        _lists([[(n, 1.0)] for n in range(points)] if matrix is None else matrix.terms)
        for matrix, points in zip(matrices[:-1], shape[:-1], strict=True)
    ]
    last = None
    if matrices[-1] is not None:
        terms, up, down = matrices[-1]
        alike = matrices[-1].alike()
        others = [n for n in range(len(terms)) if n not in alike]
        places = [*alike[:up], *others]
        lists = _lists([terms[place] for place in places], scale)
        scale = 1.0
        last = (up, down, len(alike) // up, np.array(places, np.int64), *lists)
    return tuple(outer), last, scale


def _lists(terms: Sequence[Terms], scale: float = 1.0) -> tuple[Array, Array, Array]:
    """Return where the terms of each point end, and all points and weights times the scale."""
    points, weights = zip(*chain.from_iterable(terms), strict=True)
    ends = np.array([*accumulate(map(len, terms))], np.int64)
    return ends, np.array(points, np.int64), np.array(weights, float) * scale


# ---- Execution by NumPy: for other types, and where nothing was compiled. ----


def _prepare_by_numpy(
    target: Array,
    source: Array,
    matrices: Sequence[Matrix | None],
    room: Room,
    *,
    scale: float,
    add: bool,
) -> Iterator[Op]:
    rows, plane, first = len(target), target[0].nbytes, matrices[0]
    if first is None and plane > CHUNK and target.ndim > 1:
        for one, other in zip(target, source, strict=True):
            yield from _prepare_by_numpy(one, other, matrices[1:], room, scale=scale, add=add)
        return
    up = 1 if first is None else first.up
    count = max(1, CHUNK // max(plane, source.nbytes // rows) // up) * up
    for lo in range(0, rows, count):
        some = slice(lo, min(rows, lo + count))
        part = source[some]
        every = dict(enumerate(matrices[1:], 1))
        if first is not None:
            terms = first.terms[some]
            used = [point for each in terms for point, _ in each]
            low = min(used)
            part = source[low : max(used) + 1]
            moved = [[(point - low, weight) for point, weight in each] for each in terms]
            every[0] = Matrix(moved, first.up, first.down)
        present = {axis: each for axis, each in every.items() if each is not None}
        yield from _prepare_chunk(target[some], part, present, room, scale=scale, add=add)


def _prepare_chunk(
    target: Array,
    source: Array,
    matrices: dict[int, Matrix],
    room: Room,
    *,
    scale: float,
    add: bool,
) -> Iterator[Op]:
    """Prepare the product axis by axis, in the order of the least work."""
    order = sorted(matrices, reverse=any(matrix.up > 1 for matrix in matrices.values()))
    for step, axis in enumerate(order):
        shape = list(source.shape)
        shape[axis] = target.shape[axis]
        last = step == len(order) - 1 and not add
        result = target if last else _taken(room, step, tuple(shape), target)
        before = (slice(None),) * axis
        for into, terms in _runs(matrices[axis]):
            parts = [(source[(*before, some)], weight) for some, weight in terms]
            yield from _prepare_sum(result[(*before, into)], parts, room)
        source = result
    if scale != 1:
        yield partial(np.multiply, source, scale, source)
    if add:
        yield partial(np.add, target, source, target)
    elif not order:
        yield partial(np.copyto, target, source)


def _runs(matrix: Matrix) -> Iterator[tuple[slice, list[tuple[slice, float]]]]:
    """Yield points of the target that are alike, and slices of the source with their weights."""
    rows, up, down = len(matrix.terms), matrix.up, matrix.down
    for start in range(min(up, rows)):
        done = 0
        for terms, group in groupby(map(matrix.moved, range(start, rows, up))):
            count, low = len(list(group)), start + done * up
            ahead, span = done * down, (count - 1) * down + 1
            into = slice(low, low + (count - 1) * up + 1, up)
            yield (
                into,
                [(slice(at + ahead, at + ahead + span, down), weight) for at, weight in terms],
            )
            done += count


def _taken(room: Room, use: object, shape: tuple[int, ...], like: Array) -> Array:
    key = use, shape, like.dtype
    if key not in room:
        room[key] = np.empty(shape, like.dtype)
    return room[key]


def _prepare_sum(target: Array, terms: Sequence[tuple[Array, float]], room: Room) -> Iterator[Op]:
    """Prepare to set the target to a sum of weighted arrays: first those of one weight."""
    groups: dict[float, list[Array]] = {}
    for part, weight in terms:
        groups.setdefault(weight, []).append(part)
    whole = target
    for number, (weight, parts) in enumerate(groups.items()):
        if number:
            target = _taken(room, "term", whole.shape, whole)
        total = parts[0]
        for part in parts[1:]:
            yield partial(np.add, total, part, target)
            total = target
        if weight != 1:
            yield partial(np.multiply, total, weight, target)
            total = target
        elif not number and total is not target:
            yield partial(np.copyto, target, total)
        if number:
            yield partial(np.add, whole, total, whole)
