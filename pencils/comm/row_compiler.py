"""How a row program is compiled: where values are, the axes of tiles, and their extents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from pencils.comm.formulas import Instruction, with_formulas
from pencils.comm.memory import address, same_view
from pencils.comm.row_builder import Array, RowBuilder, Shape, loop_of
from pencils.comm.row_reduction import BlockReduction

Box = Sequence[tuple[int, int]]  # the first index along each axis, and the one past the last

TILE_BYTES = 256 * 1024  # of all registers: a part of a second-level cache
_LEAST_BYTES = 8  # of a point, if there are no registers and it is not in C
_LINE = 64  # elements: shorter parts of a row cost more calls than they save misses

# Functions that are no ufuncs, as the compiled kernels call them.
_CODES: dict[Any, int] = {np.where: 0, np.copyto: 1, np.ndarray.astype: 2, np.add.reduce: 4}

# Makes loops of instructions, but for so many last ones, or returns None; it may ask for bytes
# from element to element.
Join = Callable[
    [Sequence[Instruction], int, RowBuilder, Callable[[int], int]], list[Instruction] | None
]


class RowCompiler:
    """Where the values of a program are, and what the compiled one is made of.

    Stores are of three kinds. If no operand shares memory with the target, the instruction that
    computes the value writes it there. If operands are the same points, a tile is written when it
    is computed. Otherwise values are written to a temporary block, which is copied in the end.
    """

    def __init__(self, builder: RowBuilder, join: Join | None = None) -> None:
        self._builder, self._join = builder, join
        self.loops = 0  # that `join` has made
        views = [leaf.view for leaf in builder.leaves.values()]
        views += [reduction.block(builder.shape) for _, reduction in builder.reductions]
        self.axes = Axes(builder.shape, views, builder.cut)
        self.detours: list[tuple[int, int]] = []  # targets, and numbers of temporaries
        self.in_place: list[int] = []  # targets that are operands, too
        # With numbers of temporaries that are reduced, or of those of results and their beginning.
        self.reduced: list[tuple[BlockReduction, int, Array | None]] = []
        self.exact, self._late = self._with_stores()

    def traffic(self) -> tuple[int, int]:
        """Bytes that are read and written for each point, each component of an array once."""
        builder = self._builder
        read = {value for step in builder.instructions for value in step.operands}
        read |= {value for value, _ in (*builder.stores, *builder.reductions)}
        targets = [target for _, target in builder.stores]

        def count(values: Iterable[int]) -> int:
            leaves = [builder.leaves[value] for value in values if value in builder.leaves]
            apart: list[Array] = []
            for view in [leaf.view for leaf in leaves if leaf.view.shape == builder.shape]:
                if not any(np.may_share_memory(view, one) for one in apart):
                    apart.append(view)
            return sum(view.itemsize for view in apart)

        return count(read), count(targets)

    def arguments(self) -> tuple[Any, ...]:
        """Arguments of the compiled program, whose slots are leaves and registers.

        It has loops or formulas, and the exact instructions for tiles with exceptions.
        """
        builder, axes, exact = self._builder, self.axes, self.exact
        arrays = (*builder.arrays, *builder.constants, *builder.temporaries)
        slots: list[tuple[int, int, int, int, tuple[int, ...]]] = []
        registers: list[int] = []
        loops = self._join(exact, self._late, builder, self._stride) if self._join else None
        self.loops = sum(step.name == "loop" for step in loops or ())
        fast = loops or with_formulas(exact, builder.dtypes, self._stride, self._late)
        instructions = self._encoded(fast, slots, registers, arrays)
        room = TILE_BYTES // max(1 if loops else _LEAST_BYTES, sum(registers))
        if fast != exact:
            instructions += self._encoded(exact, slots, registers, arrays)
        pitched = [] if loops else [strides for *_, strides in slots if strides]
        tile = _tile(axes.shape, room, pitched)
        count = len(instructions) - len(fast)
        lists = axes.shape, arrays, tuple(slots), tuple(instructions), tuple(registers)
        return *lists, *tile, count, self._late

    def _stride(self, value: int) -> int:
        """Bytes from an element of a row to the next."""
        leaf = self._builder.leaves.get(value)
        return (
            self._builder.dtypes[value].itemsize
            if leaf is None
            else self.axes.strides(leaf.view)[-1]
        )

    def _encoded(
        self,
        steps: Sequence[Instruction],
        slots: list[tuple[int, int, int, int, tuple[int, ...]]],
        registers: list[int],
        arrays: Sequence[Array],
    ) -> list[tuple[Any, int | bytes, tuple[int, ...]]]:
        """Return instructions with numbers of slots, which are added, as are registers."""
        builder, first = self._builder, len(registers)
        added, places = _registers(steps, builder)
        registers += added
        numbers: dict[int, int] = {}
        every = [(*step.operands, *step.others, step.result) for step in steps]
        for value in dict.fromkeys(one for values in every for one in values):
            numbers[value] = len(slots)
            item = builder.dtypes[value].itemsize
            if value in places:
                slots.append((-1, first + places[value], item, 0, ()))
                continue
            leaf = builder.leaves[value]
            number = builder.number_of(leaf)
            offset = address(leaf.view) - address(arrays[number])
            slots.append((number, -1, item, offset, self.axes.strides(leaf.view)))
        return [
            (
                _CODES.get(step.function, step.function),
                step.number,
                tuple(numbers[value] for value in values),
            )
            for step, values in zip(steps, every, strict=True)
        ]

    def _with_stores(self) -> tuple[list[Instruction], int]:
        """List all instructions; the last ones write where operands are read."""
        builder = self._builder
        steps, late = builder.instructions.copy(), []
        made = {step.result: number for number, step in enumerate(steps)}
        uses = Counter(value for step in steps for value in step.operands)
        uses.update(value for value, _ in (*builder.stores, *builder.reductions))
        read = [builder.leaves[value] for value in uses if value in builder.leaves]
        reducing, stores = self._with_reductions()
        for value, given in (*builder.stores, *stores):
            target, leaf = given, builder.leaves[given]
            shared = [one for one in read if np.may_share_memory(one.view, leaf.view)]
            if not all(same_view(one.view, leaf.view) for one in shared):
                self.detours.append((given, len(builder.temporaries)))
                target, shared = builder.temporary(leaf.view), []
                leaf = builder.leaves[target]
            if shared:
                self.in_place.append(target)
            alone = value in made and uses[value] == 1 and not shared
            if alone and self.axes.strides(leaf.view)[-1] == leaf.view.itemsize:
                steps[made[value]] = steps[made[value]]._replace(result=target)
            else:
                late.append((value, target))
        for number, (value, target) in enumerate(late):
            if value in builder.leaves and len(late) > 1:  # another store may come first
                builder.dtypes.append(builder.dtypes[value])
                steps.append(builder.copy(value, len(builder.dtypes) - 1))
                late[number] = steps[-1].result, target
        last = reducing + [builder.copy(*pair) for pair in late if pair[1] in self.in_place]
        steps += [builder.copy(*pair) for pair in late if pair[1] not in self.in_place]
        return steps + last, len(last)

    def _with_reductions(self) -> tuple[list[Instruction], list[tuple[int, int]]]:
        """List instructions that reduce, and stores of values that are reduced after the pass."""
        builder = self._builder
        steps, stores = [], []
        for value, reduction in builder.reductions:
            block = reduction.block(builder.shape)
            start = reduction.beginning(block.size, in_order=self.axes.is_in_order(block))
            self.reduced.append((reduction, len(builder.temporaries), start))
            if start is None:
                stores.append((value, builder.temporary(block)))
                continue
            state, ufunc = builder.scalar(start), reduction.ufunc
            if reduction.is_rounded:
                steps.append(Instruction("reduce", ufunc.reduce, 0, (value,), state))
            else:
                _, loop = loop_of(ufunc, (reduction.dtype,) * 2)
                steps.append(Instruction("reduce", ufunc, loop, (state, value), state))
        return steps, stores


class Axes:
    """Axes of a block in the order of memory, the fastest last; those that fit are merged.

    Axes that boxes `cut` are not.
    """

    def __init__(self, shape: Shape, views: Sequence[Array], cut: Container[int]) -> None:
        self._whole = shape
        strides = [_strides(view, shape) for view in views]
        order = [axis for axis, points in enumerate(shape) if points != 1]
        order.sort(key=lambda axis: -sum(abs(each[axis]) for each in strides))
        self._groups: list[list[int]] = [[axis] for axis in order[:1]]
        for slow, fast in pairwise(order):
            fits = all(each[slow] == each[fast] * shape[fast] for each in strides)
            if fits and slow not in cut and fast not in cut:
                self._groups[-1].append(fast)
            else:
                self._groups.append([fast])
        missing = max(0, 3 - len(self._groups))
        self._lead = (0,) * missing
        self.shape = (1,) * missing + tuple(
            prod(shape[axis] for axis in group) for group in self._groups
        )

    def box(self, box: Box) -> tuple[int, ...]:
        """Return the indices of a box along the axes, two for each."""
        if any(first >= past for first, past in box):
            return (0, 0) * len(self.shape)
        found = [0, 1] * len(self._lead)
        for slow, *others in self._groups:
            if any(tuple(box[axis]) != (0, self._whole[axis]) for axis in others):
                raise ValueError(f"the block is not cut along the axes {others}")
            inner = prod(self._whole[axis] for axis in others)
            found += [inner * index for index in box[slow]]
        return tuple(found)

    @property
    def slowest(self) -> int:
        """The axis along which parts follow each other in memory."""
        return self._groups[0][0] if self._groups else 0

    def is_in_order(self, block: Array) -> bool:
        """Whether tiles follow each other as the elements of a contiguous block."""
        step = block.itemsize
        for axis in [axis for group in self._groups for axis in group][::-1]:
            if block.strides[axis] != step:
                return False
            step *= self._whole[axis]
        return True

    def strides(self, view: Array) -> tuple[int, ...]:
        """Bytes between elements of a view along each axis."""
        strides = _strides(view, self._whole)
        return self._lead + tuple(strides[group[-1]] for group in self._groups)


def _strides(view: Array, shape: Shape) -> tuple[int, ...]:
    """Bytes between elements of a view that is broadcast."""
    missing = len(shape) - view.ndim
    steps = zip(view.strides, view.shape, shape[missing:], strict=True)
    return (0,) * missing + tuple([step if n == points else 0 for step, n, points in steps])


def _tile(shape: Shape, room: int, views: Sequence[tuple[int, ...]]) -> tuple[int, int, int, int]:
    """Choose planes, rows and elements of a tile of so many, and those between rows of a register.

    If that is the pitch of arrays with a halo, several rows are treated as one, ghosts included.
    """
    *_, planes, lines, points = shape
    columns = max(1, points if points <= 2 * room else max(_LINE, room))
    rows = _part_of(lines, room // columns)
    pitches = Counter(
        up // step
        for *_, up, step in views
        if step > 0 and up % step == 0 and points <= up // step <= 1.5 * points + 16
    )
    pitch = max(pitches, key=lambda pitch: pitches[pitch], default=points)
    several = _part_of(planes, room // (columns * lines)) if rows >= lines > 0 else 1
    return several, rows, columns, max(columns, pitch if columns >= points else 0)


def _part_of(extent: int, most: int) -> int:
    """Divide an extent into equal parts of at most `most`, if there is room for one."""
    parts = -(-extent // max(1, most))
    return -(-extent // max(1, parts)) or 1


def _registers(
    steps: Sequence[Instruction], builder: RowBuilder
) -> tuple[list[int], dict[int, int]]:
    """Give each value a register while it is needed; return their bytes, and that of each value.

    Results never go to a register of an operand: loops of complex numbers would round otherwise.
    """
    last = {value: number for number, step in enumerate(steps) for value in step.operands}
    registers: list[int] = []
    places: dict[int, int] = {}
    free: dict[int, list[int]] = {}
    for number, step in enumerate(steps):
        results = (*step.others, step.result)
        for result in results:
            if result in builder.leaves:
                continue
            item = builder.dtypes[result].itemsize
            if not free.get(item):
                free.setdefault(item, []).append(len(registers))
                registers.append(item)
            places[result] = free[item].pop()
        for value in {*step.operands, *results} & places.keys():
            if last.get(value, number) == number:
                free[registers[places[value]]].append(places[value])
    return registers, places
