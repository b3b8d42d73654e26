"""Products of sparse matrices along all axes and an array: compiled, or by NumPy.

Matrices of interpolation are such: few terms in each row, and all rows are alike but some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
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

    From the point `first` on, those of `up` points repeat `times` times, each time with points of
    the source that lie `down` farther on. These are `listed` once, between those of all points
    before and behind. Where `times` is 0, all points are listed.
    """

    listed: Sequence[Terms]
    up: int = 1
    down: int = 1
    first: int = 0
    times: int = 0

    @property
    def repeated(self) -> int:
        """Number of points that are not listed."""
        return max(0, self.times - 1) * self.up

    @property
    def points(self) -> int:
        """Number of points of the target."""
        return len(self.listed) + self.repeated

    def terms(self, point: int, back: int = 0) -> Terms:
        """Return the terms of a point; `back` is subtracted from points of the source."""
        period = max(0, point - self.first) // self.up
        if period < self.times:
            back -= period * self.down
            point -= period * self.up
        else:
            point -= self.repeated
        return [(at - back, weight) for at, weight in self.listed[point]]


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
    >>> means = Matrix([[(0, 0.5), (1, 0.5)]], up=1, down=2, times=2)
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
    along = zip(matrices[:-1], shape[:-1], strict=True)
    outer = [_lists(matrix or Matrix([[(0, 1.0)]], times=points)) for matrix, points in along]
    matrix, last = matrices[-1], None
    if matrix is not None:
        listed, up, down, first, times = matrix
        places = np.arange(len(listed), dtype=np.int64)
        places[first + up :] += matrix.repeated
        order = [*range(first, len(listed)), *range(first)]  # first those that repeat
        counts, points, weights = _flat([listed[place] for place in order])
        last = (up, down, times, places[order], np.cumsum(counts), points, weights * scale)
        scale = 1.0
    return tuple(outer), last, scale


def _lists(matrix: Matrix) -> tuple[Array, Array, Array]:
    """Return where the terms of each point end, and all points and weights."""
    listed, up, down, first, times = matrix
    times = max(1, times)
    cuts = slice(0, first), slice(first, first + up), slice(first + up, None)
    before, period, after = (_flat(listed[each]) for each in cuts)
    counts, points, weights = (np.tile(each, (times, 1)) for each in period)
    points += np.arange(times)[:, None] * down
    every = zip(before, (counts.ravel(), points.ravel(), weights.ravel()), after, strict=True)
    counts, points, weights = map(np.concatenate, every)
    return np.cumsum(counts), points, weights


def _flat(terms: Sequence[Terms]) -> tuple[Array, Array, Array]:
    """Return numbers of terms, and all their points and weights."""
    points, weights = zip(*chain.from_iterable(terms), strict=True) if terms else ((), ())
    counts = np.array([*map(len, terms)], np.int64)
    return counts, np.array(points, np.int64), np.array(weights, float)


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
            terms = [*map(first.terms, range(rows)[some])]
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
    rows, up, down = matrix.points, matrix.up, matrix.down
    for start in range(min(up, rows)):
        done = 0
        moved = (matrix.terms(row, row // up * down) for row in range(start, rows, up))
        for terms, group in groupby(moved):
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
