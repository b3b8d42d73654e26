"""Row programs: elementwise operations that read and write memory once, compiled or by NumPy.

A program computes values for all points of a block: leaves are views of arrays, instructions are
inner loops of NumPy's ufuncs, and stores write values to arrays. Compiled, the whole program is
executed for a tile of some rows before the next one, so that values between stay in the cache, and
are bit by bit those of NumPy. Without kernels, NumPy executes one instruction after the other.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.comm import pool
from pencils.comm.formulas import Instruction, with_formulas
from pencils.comm.memory import address, same_view
from pencils.comm.pack import compiled
from pencils.comm.reduce import block_reducer

Array = NDArray[Any]
DType = np.dtype[Any]
Shape = tuple[int, ...]
Box = Sequence[tuple[int, int]]  # the first index along each axis, and the one past the last

TILE_BYTES = 32 * 1024  # of all registers: half of a first-level cache, or all of it
_LEAST_BYTES = 8  # of a point, if there are no registers
_LINE = 64  # elements: shorter parts of a row cost more calls than they save misses
_MOST_ARRAYS, _MOST_AXES, _MOST_OPERANDS = 120, 16, 64  # of the compiled programs

# Functions that are no ufuncs, as the compiled kernels call them.
_CODES: dict[Any, int] = {np.where: 0, np.copyto: 1, np.ndarray.astype: 2, np.add.reduce: 4}
# Doubles that a sum of doubles takes until it is complete; the count of elements and the sum come
# first, and then integers that tell whether an addition raised these exceptions.
_ROOM, _RAISED = 264, (2, 8)
# Types that are converted without NumPy, in the order of the compiled kernels.
_CONVERTED = (
    "b1",
    "i1",
    "u1",
    "i2",
    "u2",
    "i4",
    "u4",
    "i8",
    "u8",
    "f4",
    "f8",
    "g",
    "c8",
    "c16",
    "G",
)
_KINDS, _HALF = "biufc", np.dtype("e").num  # kinds of numbers; the last type that NumPy itself has
_TYPES = {np.dtype(name): number for number, name in enumerate(_CONVERTED)}
_EXACT = {"b": "biufc", "i": "biufc", "u": "biufc", "f": "bfc", "c": "bc"}  # by kinds
_EXCEPTIONS = {  # by the flags of the compiled kernels, in the order of NumPy
    1: ("divide", "divide by zero"),
    2: ("over", "overflow"),
    4: ("under", "underflow"),
    8: ("invalid", "invalid value"),
}

# Arrays of a program itself have numbers around this one: constants below, temporaries above.
_OWN = 1 << 20


class NoRowProgramError(Exception):
    """An operation that row programs do not have: NumPy executes it for whole blocks."""


class _Asked(np.ndarray[Any, Any]):
    """An array whose ufuncs return themselves."""

    def __array_ufunc__(self, ufunc: np.ufunc, *_: object, **_options: object) -> Any:
        return ufunc


CLIP: Any = np.zeros(1).view(_Asked).clip(0, 1)  # which has no public name


class Leaf(NamedTuple):
    """A view of an array that is passed to each call."""

    array: int
    view: Array  # of the array that the program was made with
    derive: Callable[[Array], Array]  # the same of another one


class Spec(NamedTuple):
    """Shape, type and order of axes of a contiguous block that each call allocates."""

    shape: Shape  # in the order of memory
    dtype: DType
    axes: tuple[int, ...]  # that bring it to the logical order

    @classmethod
    def like(cls, array: Array, dtype: DType | None = None) -> Spec:
        """Return the spec of a block of the shape of an array, with axes in the same order."""
        order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        axes = tuple(order.index(axis) for axis in range(array.ndim))
        shape = tuple(array.shape[axis] for axis in order)
        return cls(shape, array.dtype if dtype is None else dtype, axes)

    def new(self) -> Array:
        """Allocate it."""
        return pool.empty(self.shape, self.dtype).transpose(self.axes)


@lru_cache(maxsize=4096)
def loop_of(ufunc: np.ufunc, kinds: tuple[Any, ...]) -> tuple[tuple[DType, ...], int]:
    """Find the types that a ufunc computes with, and the number of its inner loop.

    Operands are given by element types, or the classes of Python's numbers. It raises
    `NoRowProgramError` if NumPy computes in another way, and what NumPy raises.
    """
    dtypes = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout))
    text = "".join(dtype.char for dtype in dtypes)
    name = f"{text[: ufunc.nin]}->{text[ufunc.nin :]}"
    plain = all(map(is_number, dtypes))
    # Errors of Python, in the middle of a block; those of other libraries may raise any.
    raises = ufunc is np.power and dtypes[0].kind in "iu"
    raises |= vars(np).get(ufunc.__name__) is not ufunc and ufunc is not CLIP
    if (
        raises
        or not plain
        or ufunc.nout != 1
        or ufunc.nargs > _MOST_OPERANDS
        or name not in ufunc.types
    ):
        raise NoRowProgramError(f"{ufunc.__name__} {name}")
    return dtypes, ufunc.types.index(name)


def is_number(dtype: DType) -> bool:
    """Whether row programs have a type: numbers of native byte order that NumPy itself has."""
    return dtype.kind in _KINDS and dtype.isnative and dtype.num <= _HALF


def is_exact(given: DType, dtype: DType) -> bool:
    """Whether row programs convert a type to another one; floats to integers, NumPy does."""
    known = given in _TYPES and dtype in _TYPES
    return (given == dtype and is_number(dtype)) or (known and dtype.kind in _EXACT[given.kind])


class BlockReduction(NamedTuple):
    """All values of a block, combined as NumPy combines those of a contiguous one."""

    ufunc: np.ufunc
    dtype: DType  # of the result
    start: Any  # what changes no result
    axes: tuple[int, ...]  # from the slowest to the fastest: their order decides on digits of sums

    def block(self, shape: Shape) -> Array:
        """Return a block with this order of axes."""
        ordered = np.empty([shape[axis] for axis in self.axes], self.dtype)
        return ordered.transpose(np.argsort(self.axes))

    def of(self, block: Array) -> Array:
        """Reduce a block."""
        ordered = np.ascontiguousarray(block.transpose(self.axes))
        found = block_reducer(self.ufunc, self.dtype)(ordered) if block.size else self.start
        return np.asarray(found, self.dtype)


class RowBuilder:
    """Collects the instructions of a program for blocks of one shape; values have numbers.

    Boxes may cut the block along the axes `cut` only.
    """

    def __init__(self, shape: Shape, cut: Iterable[int] = ()) -> None:
        self.shape = shape
        self.cut = frozenset(cut)
        self.dtypes: list[DType] = []
        self.leaves: dict[int, Leaf] = {}
        self.arrays: list[Array] = []
        self.constants: list[Array] = []  # arrays that are the same in all calls
        self.temporaries: list[Array] = []  # that each call allocates
        self.instructions: list[Instruction] = []
        self.stores: list[tuple[int, int]] = []  # values, and the leaves that they are written to
        self.reductions: list[tuple[int, BlockReduction]] = []  # with the values that are reduced
        self._known: dict[object, int] = {}

    def array(self, array: Array) -> int:
        """Add an array that is passed to each call, by one that looks like it."""
        self.arrays.append(array)
        return len(self.arrays) - 1

    def leaf(
        self, array: int, view: Array, derive: Callable[[Array], Array] = lambda array: array
    ) -> int:
        """Add a value that is read from a view of an array, or written to it."""
        interface = view.__array_interface__
        key = array, interface["data"][0], view.shape, view.strides, view.dtype
        if key not in self._known:
            self._known[key] = self._value(view.dtype)
            self.leaves[self._known[key]] = Leaf(array, view, derive)
        return self._known[key]

    def constant(self, value: Any, dtype: DType) -> int:
        """Add a value that is the same in all calls."""
        if not is_number(dtype):
            raise NoRowProgramError(f"constant of {dtype}")
        try:
            with np.errstate(all="raise"):  # NumPy warns in each call
                array = np.asarray(value, dtype)
        # NumPy compares integers that do not fit.
        except (OverflowError, FloatingPointError) as error:
            raise NoRowProgramError(str(error)) from error
        key = array.tobytes(), dtype, array.shape
        if key not in self._known:
            self.constants.append(array)
            self._known[key] = self.leaf(_OWN - len(self.constants), array)
        return self._known[key]

    def apply(self, ufunc: np.ufunc, loop: int, dtype: DType, operands: Sequence[int]) -> int:
        """Add the result of a ufunc for operands of the types of its loop."""
        return self._add(ufunc.__name__, ufunc, loop, operands, dtype)

    def where(self, condition: int, one: int, other: int) -> int:
        """Add a choice between values of one type by booleans."""
        dtype = self.dtypes[one]
        return self._add("where", np.where, dtype.itemsize, (condition, one, other), dtype)

    def cast(self, value: int, dtype: DType) -> int:
        """Add a conversion; raise `NoRowProgramError` if only NumPy knows how."""
        given = self.dtypes[value]
        if given == dtype and is_number(dtype):
            return value
        key = value, dtype
        if key not in self._known:
            if not is_exact(given, dtype):
                raise NoRowProgramError(f"conversion of {given} to {dtype}")
            types = 16 * _TYPES[given] + _TYPES[dtype]
            self._known[key] = self._add("cast", np.ndarray.astype, types, (value,), dtype)
        return self._known[key]

    def temporary(self, like: Array) -> int:
        """Add a leaf of a block that each call allocates, with axes in the same order."""
        array = Spec.like(like).new()
        self.temporaries.append(array)
        return self.leaf(_OWN + len(self.temporaries), array)

    def scalar(self, like: Array) -> int:
        """Add a leaf of the first element of an array that each call allocates."""
        self.temporaries.append(like)
        return self.leaf(_OWN + len(self.temporaries), like[:1].reshape(()))

    def reduce(self, value: int, reduction: BlockReduction) -> None:
        """Reduce a value; the program returns results in this order."""
        self.reductions.append((self.cast(value, reduction.dtype), reduction))

    def store(self, value: int, target: int) -> None:
        """Write a value to a leaf, as if after all points were read."""
        self.stores.append((self.cast(value, self.dtypes[target]), target))

    def copy(self, value: int, result: int) -> Instruction:
        """Make an instruction that copies a value."""
        return Instruction("copy", np.copyto, self.dtypes[value].itemsize, (value,), result)

    def number_of(self, leaf: Leaf) -> int:
        """Return the number of the array of a leaf, among given ones, constants, temporaries."""
        given, number = len(self.arrays), leaf.array - _OWN
        if number > 0:
            return given + len(self.constants) + number - 1
        return given - number - 1 if leaf.array >= given else leaf.array

    def forget(self) -> None:
        """Release the arrays that the program was made with."""
        none = np.empty(0)
        self.arrays = [none] * len(self.arrays)
        self.temporaries.clear()
        self.leaves = {value: leaf._replace(view=none) for value, leaf in self.leaves.items()}
        self._known.clear()

    def _value(self, dtype: DType) -> int:
        self.dtypes.append(dtype)
        return len(self.dtypes) - 1

    def _add(
        self, name: str, function: Any, number: int, operands: Sequence[int], dtype: DType
    ) -> int:
        result = self._value(dtype)
        self.instructions.append(Instruction(name, function, number, tuple(operands), result))
        return result


class RowProgram:
    """A program for arrays that look like those it was made with, and share memory alike.

    Stores are of three kinds. If no operand shares memory with the target, the instruction that
    computes the value writes it there. If operands are the same points, a tile is written when it
    is computed. Otherwise values are written to a temporary block, which is copied in the end.
    """

    def __init__(self, builder: RowBuilder) -> None:
        self._builder = builder
        views = [leaf.view for leaf in builder.leaves.values()]
        views += [reduction.block(builder.shape) for _, reduction in builder.reductions]
        self._axes = _Axes(builder.shape, views, builder.cut)
        self._detours: list[tuple[int, int]] = []  # targets, and numbers of temporaries
        self._in_place: list[int] = []  # targets that are operands, too
        # With numbers of temporaries that are reduced, or of those of results and their beginning.
        self._reduced: list[tuple[BlockReduction, int, Array | None]] = []
        exact, late = self._with_stores()
        self._names = [step.name for step in exact]
        self.traffic = self._traffic()
        self._constants = tuple(builder.constants)
        count = len(builder.arrays) + len(builder.constants) + len(builder.temporaries)
        kernels = compiled()
        self._run = None
        if kernels is not None and count <= _MOST_ARRAYS and len(self._axes.shape) <= _MOST_AXES:
            self._run = kernels.RowProgram(*self._compiled(exact), late).run
        self._temporaries = [Spec.like(array) for array in builder.temporaries]
        builder.forget()

    @property
    def in_parts(self) -> bool:
        """Whether it may be executed for parts of the block that follow each other."""
        return not self._detours and not self._reduced

    def run(self, arrays: tuple[Array, ...], box: Box | None = None) -> list[Array]:
        """Execute for all points, or for those of a box of the block; return the reductions.

        Raises
        ------
        FloatingPointError
            If `numpy.errstate` asks for it; arrays that are read and written are unchanged then.
        """
        if self._run is None:
            return self._run_by_numpy(arrays, box)
        saved = self._save(arrays) if self._in_place else ()
        every = arrays + self._constants
        temporaries: tuple[Array, ...] = ()
        if self._temporaries:
            temporaries = tuple([spec.new() for spec in self._temporaries])
            every += temporaries
        for _, number, start in self._reduced:
            if start is not None:
                temporaries[number][:] = start
        raised = self._run(every) if box is None else self._run(every, self._axes.box(box))
        if raised is NotImplemented:  # elements are not aligned
            return self._run_by_numpy(arrays, box)
        found = []
        if raised is not None or self._reduced:
            found = self._report(raised or (), saved, temporaries)
        for target, number in self._detours:
            key = _key_of(box)
            np.copyto(self._target(target, arrays)[key], temporaries[number][key])
        return found

    def _target(self, value: int, arrays: tuple[Array, ...]) -> Array:
        leaf = self._builder.leaves[value]
        return leaf.derive(arrays[leaf.array])

    def _with_stores(self) -> tuple[list[Instruction], int]:
        """List all instructions; the last ones, so many, write where operands may be read."""
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
                self._detours.append((given, len(builder.temporaries)))
                target, shared = builder.temporary(leaf.view), []
                leaf = builder.leaves[target]
            if shared:
                self._in_place.append(target)
            alone = value in made and uses[value] == 1 and not shared
            if alone and self._axes.strides(leaf.view)[-1] == leaf.view.itemsize:
                steps[made[value]] = steps[made[value]]._replace(result=target)
            else:
                late.append((value, target))
        for number, (value, target) in enumerate(late):
            if value in builder.leaves and len(late) > 1:  # another store may come first
                builder.dtypes.append(builder.dtypes[value])
                steps.append(builder.copy(value, len(builder.dtypes) - 1))
                late[number] = steps[-1].result, target
        late_steps = reducing + [builder.copy(*pair) for pair in late]
        return steps + late_steps, len(late_steps)

    def _with_reductions(self) -> tuple[list[Instruction], list[tuple[int, int]]]:
        """List instructions that reduce, and stores of values that are reduced after the pass.

        Sums of floating-point numbers are, if the pass has another order than memory.
        """
        builder = self._builder
        steps, stores = [], []
        for value, reduction in builder.reductions:
            ufunc, dtype, first, _ = reduction
            like = reduction.block(builder.shape)
            start: Array | None = np.full(1, first, dtype)
            function: Any = ufunc
            loop = 0
            if ufunc in (np.add, np.multiply) and dtype.kind in "fc":
                function, start = np.add.reduce, None
                doubles = ufunc is np.add and dtype == np.dtype(float)
                if doubles and self._axes.is_in_order(like):
                    start = np.zeros(_ROOM)
                    start.view(np.int64)[0] = like.size
            else:
                loop = loop_of(ufunc, (dtype, dtype))[1]
            self._reduced.append((reduction, len(builder.temporaries), start))
            if start is None:
                stores.append((value, builder.temporary(like)))
                continue
            state = builder.scalar(start)
            operands = (value,) if function is not ufunc else (state, value)
            steps.append(Instruction("reduce", function, loop, operands, state))
        return steps, stores

    def __repr__(self) -> str:
        read, written = self.traffic
        count = len(self._builder.instructions)
        return f"{count} instructions, {read} bytes read and {written} written for each point"

    def _traffic(self) -> tuple[int, int]:
        """Bytes that are read and written for each point, each array once."""
        builder = self._builder
        read = {value for step in builder.instructions for value in step.operands}
        read |= {value for value, _ in (*builder.stores, *builder.reductions)}
        targets = [target for _, target in builder.stores]

        def count(values: Iterable[int]) -> int:
            leaves = [builder.leaves[value] for value in values if value in builder.leaves]
            whole = [leaf for leaf in leaves if leaf.view.shape == builder.shape]
            return sum({leaf.array: leaf.view.itemsize for leaf in whole}.values())

        return count(read), count(targets)

    def _compiled(self, exact: list[Instruction]) -> tuple[Any, ...]:
        """Arguments of the compiled program, whose slots are leaves and registers.

        It has formulas, and the exact instructions for tiles with exceptions.
        """
        builder, axes = self._builder, self._axes
        arrays = (*builder.arrays, *builder.constants, *builder.temporaries)
        slots: list[tuple[int, int, int, int, tuple[int, ...]]] = []
        registers: list[int] = []
        fast = with_formulas(exact, builder.dtypes, self._stride)
        instructions = self._encoded(fast, slots, registers, arrays)
        nbytes = sum(registers)
        if fast != exact:
            instructions += self._encoded(exact, slots, registers, arrays)
        tile = _tile(axes.shape, nbytes, [strides for *_, strides in slots if strides])
        count = len(instructions) - len(fast)
        return axes.shape, arrays, tuple(slots), tuple(instructions), tuple(registers), *tile, count

    def _stride(self, value: int) -> int:
        """Bytes from an element of a row to the next."""
        leaf = self._builder.leaves.get(value)
        return (
            self._builder.dtypes[value].itemsize
            if leaf is None
            else self._axes.strides(leaf.view)[-1]
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
        for value in dict.fromkeys(one for step in steps for one in (*step.operands, step.result)):
            numbers[value] = len(slots)
            item = builder.dtypes[value].itemsize
            if value in places:
                slots.append((-1, first + places[value], item, 0, ()))
                continue
            leaf = builder.leaves[value]
            number = builder.number_of(leaf)
            offset = address(leaf.view) - address(arrays[number])
            slots.append((number, -1, item, offset, self._axes.strides(leaf.view)))
        return [
            (
                _CODES.get(step.function, step.function),
                step.number,
                tuple(numbers[value] for value in (*step.operands, step.result)),
            )
            for step in steps
        ]

    def _save(self, arrays: tuple[Array, ...]) -> list[tuple[Array, Array]]:
        """Copy the points that an exception has to leave as they were."""
        if not {"raise", "call", "log"} & set(np.geterr().values()):
            return []
        views = [self._target(target, arrays) for target in self._in_place]
        return [(view, view.copy()) for view in views]

    def _report(
        self,
        raised: Sequence[tuple[int, int]],
        saved: Sequence[tuple[Array, Array]],
        temporaries: Sequence[Array],
    ) -> list[Array]:
        """Do what `numpy.errstate` asks for, in the order of instructions; return reductions."""
        try:
            for number, bits in raised:
                _handle(self._names[number], bits)
            return [
                reduction.of(temporaries[number]) if start is None else _ended(temporaries[number])
                for reduction, number, start in self._reduced
            ]
        except BaseException:
            for view, values in saved:
                view[...] = values
            raise

    def _run_by_numpy(self, arrays: tuple[Array, ...], box: Box | None) -> list[Array]:
        """Execute one instruction after the other."""
        builder, key = self._builder, _key_of(box)
        every = (*arrays, *builder.constants)
        values: dict[int, Array] = {
            value: np.broadcast_to(leaf.derive(every[builder.number_of(leaf)]), builder.shape)[key]
            for value, leaf in builder.leaves.items()
            if leaf.array <= _OWN
        }
        for step in builder.instructions:
            operands = [values[value] for value in step.operands]
            if step.function is np.ndarray.astype:
                values[step.result] = operands[0].astype(builder.dtypes[step.result])
            else:
                values[step.result] = step.function(*operands)
        found = [reduction.of(values[value]) for value, reduction in builder.reductions]
        results = [values[value] for value, _ in builder.stores]
        if len(results) > 1:
            results = [result.copy() if result.base is not None else result for result in results]
        for result, (_, target) in zip(results, builder.stores, strict=True):
            np.copyto(self._target(target, arrays)[key], result)
        return found


def _ended(state: Array) -> Array:
    """Return the result of a reduction; a sum may have raised floating-point exceptions."""
    if state.size == 1:
        return state
    if not np.isfinite(state[1]):
        raised = state[2:4].view(np.int64)
        _handle("reduce", sum(bit for bit, up in zip(_RAISED, raised, strict=True) if up))
    return state[1:2]


def _key_of(box: Box | None) -> tuple[Any, ...]:
    """Return the key of the points of a box."""
    return (...,) if box is None else tuple(slice(*pair) for pair in box)


class _Axes:
    """Axes of a block in the order of memory, the fastest last; those that fit are merged.

    Axes that boxes `cut` are not.
    """

    def __init__(self, shape: Shape, views: Sequence[Array], cut: Container[int]) -> None:
        self._whole = shape
        strides = [np.broadcast_to(view, shape).strides for view in views]
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

    def is_in_order(self, block: Array) -> bool:
        """Whether tiles follow each other as the elements of a contiguous block."""
        step = block.itemsize
        for axis in [axis for group in self._groups for axis in group][::-1]:
            if block.strides[axis] != step:
                return False
            step *= self._whole[axis]
        return True

    def box(self, box: Box) -> tuple[int, ...]:
        """Return the indices of a box along the axes, two for each."""
        if any(first >= past for first, past in box):
            return (0, 0) * len(self.shape)
        found = [0, 1] * len(self._lead)
        for group in self._groups:
            whole = all(tuple(box[axis]) == (0, self._whole[axis]) for axis in group)
            if not whole and len(group) > 1:
                raise ValueError(f"the block is not cut along the axes {group}")
            found += (0, prod(self._whole[axis] for axis in group)) if whole else box[group[0]]
        return tuple(found)

    def strides(self, view: Array) -> tuple[int, ...]:
        """Bytes between elements of a view along each axis."""
        strides = np.broadcast_to(view, self._whole).strides
        return self._lead + tuple(strides[group[-1]] for group in self._groups)


def _tile(shape: Shape, nbytes: int, views: Sequence[tuple[int, ...]]) -> tuple[int, int, int, int]:
    """Choose planes, rows and elements of a tile, and elements between rows of a register.

    If that is the pitch of arrays with a halo, several rows are treated as one, ghosts included.
    """
    *_, planes, lines, points = shape
    room = TILE_BYTES // max(_LEAST_BYTES, nbytes)  # points of a tile
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
    """Divide an extent into equal parts, of at most so many if there is room for one."""
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
        if step.result not in builder.leaves:
            item = builder.dtypes[step.result].itemsize
            if not free.get(item):
                free.setdefault(item, []).append(len(registers))
                registers.append(item)
            places[step.result] = free[item].pop()
        for value in {*step.operands, step.result} & places.keys():
            if last.get(value, number) == number:
                free[registers[places[value]]].append(places[value])
    return registers, places


def _handle(name: str, bits: int) -> None:
    """Do what `numpy.errstate` asks for if a ufunc raised floating-point exceptions."""
    modes = np.geterr()
    for bit, (kind, text) in _EXCEPTIONS.items():
        if not bits & bit:
            continue
        message = f"{text} encountered in {name}"
        match modes[kind]:  # type: ignore[literal-required]
            case "warn":
                warnings.warn(message, RuntimeWarning, stacklevel=_depth_of_caller())
            case "raise":
                raise FloatingPointError(message)
            case "call":
                np.geterrcall()(text, bits)  # type: ignore[misc,operator]
            case "log":
                np.geterrcall().write(f"Warning: {message}\n")  # type: ignore[union-attr]
            case "print":
                sys.stderr.write(f"Warning: {message}\n")


def _depth_of_caller() -> int:
    """Count the frames from the caller of this function to the first one outside the library."""
    frame = sys._getframe(1)  # noqa: SLF001 - where NumPy's own warnings would point
    depth = 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("pencils."):
        depth, frame = depth + 1, frame.f_back
    return depth
