"""Block programs: values of nodes of a graph, computed by as few passes over memory as possible.

Elementwise operations between nodes of one shape become one row program. What row programs do not
have, NumPy computes for whole blocks. Steps have levels: a value that a step of a higher level
needs is stored in a block of its own, and each value is computed at the highest level it can.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pencils.comm.c_loops import with_loops
from pencils.comm.pack import no_op
from pencils.comm.progress import poll, under_way
from pencils.comm.row_builder import (
    CLIP,
    Leaf,
    NoRowProgramError,
    RowBuilder,
    Spec,
    is_exact,
    loop_of,
    ufunc_of,
)
from pencils.comm.row_compiler import Box as Pairs
from pencils.comm.row_program import RowProgram
from pencils.comm.row_reduction import BlockReduction
from pencils.graph import rules
from pencils.graph.array import Array, Call, DataWrapper, in_order
from pencils.graph.number import Number, evaluation, several
from pencils.graph.rules import DType, Function, Shape
from pencils.layout import Box

Block = np.ndarray[Any, Any]

_NUMBERS = (int, float, complex)
_PARTS = (np.real, np.imag)  # of complex numbers
_POINTS = 2**17  # that are computed, in a millisecond or less, before messages are moved again
_ROUNDS = {np.round, np.around}


View = tuple[Function, tuple[Any, ...], dict[str, Any]]


class BlockView(NamedTuple):
    """A view of an array that is passed to each call, or of the result of a step."""

    slot: int
    view: Block
    views: tuple[View, ...] = ()

    def derive(self, array: Block) -> Block:
        """Return the same view of another array."""
        for func, args, options in self.views:
            array = func(array, *args, **options)
        return array

    def forgetting(self) -> BlockView:
        """Return the same without the array it was made with."""
        return self._replace(view=np.empty(0))

    def then(self, node: Call) -> BlockView | None:
        """Return the view of this view that a node is; None if it is a copy."""
        step = node.func, node.args[1:], node.options
        view = node.func(self.view, *node.args[1:], **node.options)
        if view.size and view is not self.view and not np.may_share_memory(view, self.view):
            return None
        return BlockView(self.slot, view, (*self.views, step))


class Store(NamedTuple):
    """A value that is written to a view of memory that a call passes, to which it is broadcast."""

    value: Array
    target: BlockView


class Ghosts(NamedTuple):
    """Ghosts of an array that are on their way while others of its points are read."""

    slot: int
    axis: int
    own: slice  # of the axis: all points but the ghosts

    def spared_by(self, leaf: Leaf, rows: RowBuilder) -> Box:
        """Find the points of a program for which a view of the array has none of the ghosts."""
        array = rows.arrays[leaf.array]
        marks = np.zeros(
            [n if d == self.axis else 1 for d, n in enumerate(array.shape)], array.dtype
        )
        marks[*[slice(None)] * self.axis, self.own] = 1 + 1j if array.dtype.kind == "c" else 1
        view = np.broadcast_to(leaf.derive(np.broadcast_to(marks, array.shape)), rows.shape)
        line = view[tuple([slice(None if step else 1) for step in view.strides])]
        found = np.argwhere(line)
        if not len(found):
            return Box.of_shape((0,) * view.ndim)
        repeated = np.equal(line.shape, 1)
        stop = np.where(repeated, rows.shape, found.max(axis=0) + 1)
        return Box(tuple(found.min(axis=0).tolist()), tuple(stop.tolist()))


_Step = Callable[[list[Any], Sequence[Any]], None]


class _RowOperation(NamedTuple):
    """A node as an instruction; operands are converted to these types."""

    function: Any  # a ufunc, `numpy.where`, a `BlockReduction`, or None for a conversion
    loop: int
    dtypes: tuple[DType, ...]
    operands: tuple[Any, ...]


class BlockProgram(NamedTuple):
    """Steps that compute outputs of arrays, which look like those the program was made with."""

    others: Sequence[Any]  # values after those passed: arrays of the graph; None if computed
    numbers: Sequence[tuple[int, DType]]  # slots of numbers, with their types,
    evaluate: Callable[[Sequence[Any]], Sequence[Any]]  # which this computes of arguments
    steps: Sequence[_Step]
    results: Sequence[BlockView]
    texts: Sequence[str]  # what each step does, for users
    split: Callable[[list[Any], Callable[[], object]], None] | None  # the only step, in parts
    # The only step for arrays and arguments, if it is a pass that allocates nothing.
    at_once: Callable[[Sequence[Block], Sequence[Any]], object] | None

    def run(
        self,
        arrays: Sequence[Block],
        arguments: Sequence[Any] = (),
        wait: Callable[[], object] = no_op,
    ) -> list[Block]:
        """Compute all outputs, of numbers for `arguments`; return those that are not stored.

        Ghosts have arrived after `wait`: points that need none are computed before, if possible.
        """
        values = [*arrays, *self.others]
        if self.numbers:
            for (slot, dtype), value in zip(self.numbers, self.evaluate(arguments), strict=True):
                values[slot] = np.asarray(value, dtype)
        if wait is no_op or self.split is None:
            wait()
            for step in self.steps:
                step(values, arguments)
        else:
            self.split(values, wait)
        if not self.results:
            return []
        return [memory.derive(values[memory.slot]) for memory in self.results]


def make_program(
    stores: Sequence[Store],
    results: Sequence[Array],
    arrays: Sequence[Block],
    slots: Mapping[Array, int | BlockView],
    *,
    compiler: str | None = None,
    ghosts: Sequence[Ghosts] = (),
) -> tuple[BlockProgram, list[Block]]:
    """Make the program for nodes whose values are in arrays like these, in such slots, or in views.

    It returns results, which may be views: see `copied`. Passes are compiled if a C compiler is
    given. Calls may begin while `ghosts` are on their way. Returned, too, are arrays that look like
    the results.
    """
    if len(stores) > 1:  # NumPy stores after all passes
        stores = [one if _is_row(one) else one._replace(value=copied(one.value)) for one in stores]
    maker = _Maker(stores, results, arrays, slots, compiler, ghosts)
    found = [maker.memory[node] for node in results]
    values = dict(maker.fixed)
    others = [values.get(slot) for slot in range(len(arrays), len(maker.examples))]
    numbers = [(slot, dtype) for slot, _, dtype in maker.numbers]
    evaluate = evaluation([number for _, number, _ in maker.numbers]) if maker.numbers else tuple
    only = maker.only if len(maker.steps) == 1 and not results else None
    program = BlockProgram(
        others,
        numbers,
        evaluate,
        maker.steps,
        [memory.forgetting() for memory in found],
        maker.texts,
        maker.split if len(maker.steps) == 1 else None,
        None if only is None else _at_once(*only, others, numbers, evaluate),
    )
    return program, [memory.view for memory in found]


def _at_once(
    program: RowProgram,
    slots: Sequence[int],
    others: Sequence[Any],
    numbers: Sequence[tuple[int, DType]],
    evaluate: Callable[[Sequence[Any]], Sequence[Any]],
) -> Callable[[Sequence[Block], Sequence[Any]], object]:
    """Return what executes a row program as the only step of a block program."""
    # Numbers follow each other in front of all values.
    order = {slot: place for place, (slot, _) in enumerate(numbers)}
    take = several([order.get(slot, len(numbers) + slot) for slot in slots])
    dtypes = [dtype for _, dtype in numbers]
    execute, asarray = program.run, np.asarray

    def run(arrays: Sequence[Block], arguments: Sequence[Any]) -> None:
        execute(take((*map(asarray, evaluate(arguments), dtypes), *arrays, *others)))

    return run


class _Maker:
    """The parts of a program in the making."""

    def __init__(  # noqa: PLR0917
        self,
        stores: Sequence[Store],
        results: Sequence[Array],
        arrays: Sequence[Block],
        slots: Mapping[Array, int | BlockView],
        compiler: str | None,
        ghosts: Sequence[Ghosts],
    ) -> None:
        self._join = None if compiler is None else partial(with_loops, compiler=compiler)
        self.examples = list(arrays)  # of all values
        self._stores, self._results, self._ghosts = stores, results, ghosts
        self.split: Callable[[list[Any], Callable[[], object]], None] | None = None
        self.only: tuple[RowProgram, Sequence[int]] | None = None
        self.fixed: list[tuple[int, Block]] = []
        self.numbers: list[tuple[int, Number, DType]] = []
        self.steps: list[_Step] = []
        self.texts: list[str] = []
        self._known: dict[object, int] = {}  # slots of fixed arrays and numbers
        self.memory = {
            node: slot if isinstance(slot, BlockView) else BlockView(slot, arrays[slot])
            for node, slot in slots.items()
        }
        self._operations: dict[Array, _RowOperation | None] = {}  # of nodes that are computed
        self._nodes = in_order([*(one.value for one in stores), *results], known=self.memory)
        for node in self._nodes:
            self._read(node)
        self._levels, self._last = self._find_levels()
        self._needed = self._stored()
        self._make_steps()

    # What nodes are.

    def _read(self, node: Array) -> None:
        """Decide whether a node is memory, an instruction, or a call of NumPy."""
        if node in self.memory:
            return
        if isinstance(node, DataWrapper):
            self.memory[node] = BlockView(self._fix(node.data), node.data)
            return
        assert isinstance(node, Call)
        if is_view(node):
            found = self.memory.get(node.args[0])
            view = None if found is None else found.then(node)
            if view is not None:
                self.memory[node] = view
                return
        self._operations[node] = _as_operation(node)

    def _fix(self, array: Block | Number, dtype: DType | None = None) -> int:
        """Add an array that is part of the graph, or a number; return its slot."""
        key = id(array), dtype
        if key not in self._known:
            slot = self._known[key] = len(self.examples)
            if isinstance(array, Number):
                assert dtype is not None
                self.numbers.append((slot, array, dtype))
                self.examples.append(np.zeros((), dtype))
            else:
                self.fixed.append((slot, array))
                self.examples.append(array)
        return self._known[key]

    # When they are computed.

    def _find_levels(self) -> tuple[dict[Array, int], int]:
        """Give each computed node the level of its step; return the last one, too."""
        early: dict[Array, int] = {}
        for node in self._nodes:
            if node in self._operations:
                inputs = [other for other in node.inputs if other in self._operations]
                early[node] = max(
                    (early[other] + (not self._joined(other, node)) for other in inputs), default=0
                )
        ends = [early[node] for node in self._results if node in early]
        ends += [
            early[one.value] + (not self._is_stored_at_once(one))
            for one in self._stores
            if one.value in early
        ]
        last = max(ends, default=0)
        late = dict.fromkeys(early, last)
        for one in self._stores:
            is_row = self._operations.get(one.value) is not None
            if is_row and not self._is_stored_at_once(one):
                late[one.value] = last - 1  # another program stores it
        for node in reversed(self._nodes):
            for other in node.inputs if node in late else ():
                if other in late:
                    late[other] = min(late[other], late[node] - (not self._joined(other, node)))
        return late, last

    def _is_stored_at_once(self, store: Store) -> bool:
        """Whether the program that computes a node can write it to its target."""
        is_row = self._operations.get(store.value) is not None
        return is_row and _is_row(store) and store.target.view.shape == store.value.shape

    def _joined(self, one: Array, other: Array) -> bool:
        """Whether a node and what is computed of it can be instructions of one program."""
        both = self._operations[one] is not None and self._operations[other] is not None
        return both and one.shape == _points_of(other)

    # The steps.

    def _make_steps(self) -> None:
        groups: dict[tuple[int, Shape | None], list[Array]] = {}
        for node, level in self._levels.items():
            is_row = self._operations[node] is not None
            groups.setdefault((level, _points_of(node) if is_row else None), []).append(node)
        last: dict[Shape, list[Array]] = {}  # the last programs write
        for store in filter(_is_row, self._stores):
            key = self._last, store.target.view.shape
            last[key[1]] = groups.pop(key, last.get(key[1], []))
        for level, shape in sorted(groups, key=lambda key: (key[0], key[1] is not None)):
            if shape is None:
                for node in groups[level, shape]:
                    self._call(node)  # type: ignore[arg-type]
            else:
                self._compute(shape, groups[level, shape])
        self._make_stores(last)

    def _make_stores(self, last: Mapping[Shape, Sequence[Array]]) -> None:
        """Make the last programs, after all reads of those before; let NumPy store what is left.

        What a program after it reads, or NumPy, is not written before.
        """
        groups = [
            (shape, nodes, [x for x in self._stores if _is_row(x) and x.target.view.shape == shape])
            for shape, nodes in last.items()
        ]
        late: list[tuple[BlockView, BlockView]] = []
        for number, (shape, nodes, here) in enumerate(groups, 1):
            read = [one for _, after, _ in groups[number:] for node in after for one in node.inputs]
            read += [one.value for _, _, after in groups[number:] for one in after]
            views = [self.memory[one].view for one in read if one in self.memory]
            late += self._compute(shape, nodes, here, views)
        late += [(self.memory[one.value], one.target) for one in self._stores if not _is_row(one)]
        for source, target in late:
            self._store(source, target)

    def _store(self, source: BlockView, target: BlockView) -> None:
        """Let NumPy store a value, converted as it assigns values."""
        self.texts.append(f"NumPy: copyto of {target.view.shape}")
        source, target = source.forgetting(), target.forgetting()

        def run(values: list[Any], _arguments: object) -> None:
            value = source.derive(values[source.slot])
            np.copyto(target.derive(values[target.slot]), value, casting="unsafe")

        self.steps.append(run)

    def _stored(self) -> set[Array]:
        """Find the computed nodes that get a block of their own."""
        found = set(self._results)
        for node, level in self._levels.items():
            for other in node.inputs:
                together = self._levels.get(other) == level
                if other in self._operations and not (together and self._joined(other, node)):
                    found.add(other)
        for one in self._stores:
            early = self._levels.get(one.value, self._last) < self._last
            if early or not self._is_stored_at_once(one):
                found.add(one.value)
        return found

    def _call(self, node: Call) -> None:
        """Let NumPy compute a node."""
        args = [
            self.memory[arg].forgetting() if isinstance(arg, Array) else arg for arg in node.args
        ]
        func = partial(node.func, **node.options) if node.options else node.func
        example, views = self._example(node), is_view(node)
        if views:
            memory = self.memory[node.args[0]]
            example = np.asarray(func(memory.view, *node.args[1:]))
        self.memory[node] = self._room(example)
        slot = self.memory[node].slot
        spec, strides = Spec.like(example), _steps_of(example)

        def call(values: list[Any], arguments: Sequence[Any]) -> None:
            given = [_value(arg, values, arguments) for arg in args]
            result = np.asarray(func(*given))
            if _steps_of(result) != strides or not (views or _is_new(result, given)):
                result, made = spec.new(), result
                np.copyto(result, made)
            values[slot] = result

        self.steps.append(call)
        self.texts.append(f"NumPy: {rules.name_of(func)} of {node.shape}")

    def _example(self, node: Array) -> Block:
        """Allocate an array for the value of a node, in the memory order of an input."""
        views = [self.memory[one].view for one in node.inputs if one in self.memory]
        return _block_of(node, next((view for view in views if view.shape == node.shape), None))

    def _room(self, example: Block) -> BlockView:
        """Add a block that a step allocates in each call."""
        self.examples.append(example)
        return BlockView(len(self.examples) - 1, example)

    def _compute(
        self,
        shape: Shape,
        nodes: Sequence[Array],
        stores: Sequence[Store] = (),
        read: Sequence[Block] = (),
    ) -> list[tuple[BlockView, BlockView]]:
        """Make one row program of nodes.

        Returned are blocks of what is not stored yet, since views are `read` later, and targets.
        """
        builder = _RowMaker(shape, self.memory, self.examples, self._fix)
        for node in nodes:
            builder.add(node, self._operations[node])
        like, new, late = builder.largest(), [], []
        for node in nodes:
            if node in self._needed and not is_reduction(node):
                self.memory[node] = self._room(_block_of(node, like))
                new.append(self.memory[node])
                builder.store(builder.values[node], self.memory[node])
        first = len(self.examples)
        for node in filter(is_reduction, nodes):
            self.memory[node] = self._room(np.empty((), node.dtype))
        for value, target in stores:
            memory = target
            if any(np.may_share_memory(target.view, view) for view in read):
                memory = self._room(Spec.like(target.view).new())
                new.append(memory)
                late.append((memory, target))
            builder.store(builder.operand(value, value.dtype), memory)
        self._add_pass(builder, new, first)
        return late

    def _add_pass(self, builder: _RowMaker, new: Sequence[BlockView], first: int) -> None:
        """Add the step of a row program, which allocates new blocks; reductions begin at a slot."""
        parts, rows = builder.cut(self._ghosts), builder.rows
        program = RowProgram(rows, self._join)
        self.texts.append(f"one pass over {rows.shape}: {program}")
        blocks = [(memory.slot, Spec.like(memory.view)) for memory in new]
        given = operator.itemgetter(*builder.slots, -1)  # a tuple, also of one array
        pieces = [] if rows.reductions else _pieces(Box.of_shape(rows.shape), program.slowest)

        def compute(
            values: list[Any], _arguments: object, parts: Iterable[Pairs] | None = None
        ) -> None:
            for slot, spec in blocks:
                values[slot] = spec.new()
            if parts is None and under_way.on and len(pieces) > 1:
                parts = _around(no_op, pieces, ())
            reduced = program.run(given(values)[:-1], parts)
            values[first : first + len(reduced)] = reduced

        self.steps.append(compute)
        if not blocks and not rows.reductions:
            self.only = program, builder.slots
        sent = {ghosts.slot for ghosts in self._ghosts}
        if parts is not None and sent.isdisjoint(
            builder.slots[number] for number in program.written
        ):
            self.split = lambda values, wait: compute(values, (), _around(wait, *parts))


def _block_of(node: Array, like: Block | None) -> Block:
    """Allocate an array for the value of a node, in the memory order of another one."""
    return np.empty(node.shape, node.dtype) if like is None else Spec.like(like, node.dtype).new()


def _pieces(box: Box, axis: int) -> list[Pairs]:
    """Cut a box along an axis into parts that are computed between two polls for messages."""
    most = max(_POINTS, box.volume // max(1, box.shape[axis])) if box.shape else 1
    return [_pairs(piece) for piece in box.pieces(most, [axis])]


def _pairs(box: Box) -> Pairs:
    return list(zip(box.start, box.stop, strict=True))


def _around(
    wait: Callable[[], object], early: Iterable[Pairs], late: Iterable[Pairs]
) -> Iterator[Pairs]:
    """Yield the parts of a block that are computed before and after waiting."""
    for box in early:
        yield box
        poll()
    wait()
    yield from late


def copied(node: Array) -> Array:
    """Make the node of a copy: others may write to the memory of the first one."""
    return node.astype(node.dtype)


def reduced(node: Array, reduction: BlockReduction) -> Call:
    """Make the node of a reduction of all values of another one."""
    return Call(_reduce, (node,), {"reduction": reduction}, (), reduction.dtype)


def _reduce(block: Block, reduction: BlockReduction) -> Block:
    return reduction.of(block)


def is_reduction(node: Array) -> bool:
    """Whether a node is made by `reduced`."""
    return isinstance(node, Call) and node.func is _reduce


def _points_of(node: Array) -> Shape:
    """Shape of the program that computes a node."""
    return node.inputs[0].shape if is_reduction(node) else node.shape


def _steps_of(block: Block) -> list[int]:
    """Strides of a block along axes of several points: others do not matter."""
    pairs = zip(block.strides, block.shape, strict=True)
    return [step for step, points in pairs if points != 1]


def _is_row(store: Store) -> bool:
    """Whether a row program can store a value; NumPy stores others."""
    return is_exact(store.value.dtype, store.target.view.dtype)


def _is_new(result: Block, given: Sequence[Any]) -> bool:
    """Whether the result of a function has memory of its own."""
    return not any(
        result is one or (result.base is not None and np.may_share_memory(result, one))
        for one in given
        if isinstance(one, np.ndarray)
    )


def _value(arg: Any, values: Sequence[Any], arguments: Sequence[Any]) -> Any:
    """Return an argument of a call of NumPy."""
    if isinstance(arg, BlockView):
        return arg.derive(values[arg.slot])
    return arg.evaluate(arguments) if isinstance(arg, Number) else arg


class _RowMaker:
    """A row program in the making: values of nodes, and the slots of the arrays it takes."""

    def __init__(
        self,
        shape: Shape,
        memory: Mapping[Array, BlockView],
        examples: Sequence[Block],
        fix: Callable[..., int],
    ) -> None:
        self.rows = RowBuilder(shape)
        self.values: dict[Array, int] = {}
        self.slots: list[int] = []
        self._memory, self._examples, self._fix = memory, examples, fix

    def add(self, node: Array, operation: _RowOperation | None) -> None:
        """Add an instruction."""
        assert operation is not None
        function, loop, dtypes, operands = operation
        given = [self.operand(one, dtype) for one, dtype in zip(operands, dtypes[:-1], strict=True)]
        if function is None:
            self.values[node] = given[0]
        elif isinstance(function, BlockReduction):
            self.rows.reduce(given[0], function)
        elif function is np.where:
            self.values[node] = self.rows.where(*given)
        else:
            self.values[node] = self.rows.apply(function, loop, dtypes[-1], given)

    def operand(self, value: Any, dtype: DType) -> int:
        """Return an argument of a node as a value of some type."""
        if isinstance(value, Array):
            made = self.values.get(value)
            return self.rows.cast(self._leaf(self._memory[value]) if made is None else made, dtype)
        if isinstance(value, np.ndarray):  # whose values may change
            return self.rows.cast(self._leaf(BlockView(self._fix(value), value)), dtype)
        if isinstance(value, Number):
            slot = self._fix(value, dtype)
            return self._leaf(BlockView(slot, self._examples[slot]))
        return self.rows.constant(value, dtype)

    def store(self, value: int, memory: BlockView) -> None:
        """Write a value to memory."""
        self.rows.store(value, self._leaf(memory))

    def cut(self, ghosts: Sequence[Ghosts]) -> Sequence[list[Pairs]] | None:
        """Cut the block into points that are computed without ghosts, if there are any, and others.

        The first ones have further parts, along the slowest axis.
        """
        rows, inner = self.rows, Box.of_shape(self.rows.shape)
        if rows.reductions:
            return None
        read = {value for step in rows.instructions for value in step.operands}
        read |= {value for value, _ in rows.stores}
        for leaf in [rows.leaves[value] for value in read & rows.leaves.keys()]:
            for some in ghosts if leaf.array < len(self.slots) else ():
                if some.slot == self.slots[leaf.array]:
                    inner &= some.spared_by(leaf, rows)
        if not ghosts or not inner.volume or not rows.shape:
            return None
        like = self.largest()
        slowest = 0 if like is None else int(np.argmax(np.abs(like.strides)))
        rows.cut = frozenset({slowest, *np.flatnonzero(np.less(inner.shape, rows.shape)).tolist()})
        others = [_pairs(box) for box in Box.of_shape(rows.shape).without(inner)]
        return _pieces(inner, slowest), others

    def largest(self) -> Block | None:
        """Find a view of the shape of the program: results have the order of its axes."""
        views = [leaf.view for leaf in self.rows.leaves.values()]
        return next((view for view in views if view.shape == self.rows.shape), None)

    def _leaf(self, memory: BlockView) -> int:
        if memory.slot not in self.slots:
            self.slots.append(memory.slot)
            self.rows.array(self._examples[memory.slot])
        return self.rows.leaf(
            self.slots.index(memory.slot), memory.view, memory.forgetting().derive
        )


def is_fused(node: Array) -> bool:
    """Whether one pass can compute a node with others, which it need not be."""
    if not isinstance(node, Call) or isinstance(node.func, rules.Padding):
        return True
    return is_view(node) or _as_operation(node) is not None


def is_view(node: Call) -> bool:
    """Whether NumPy may return a view of the first argument."""
    if not node.args or not isinstance(node.args[0], Array):
        return False
    if node.func in _PARTS:
        return node.args[0].dtype.kind == "c"
    return node.func in rules.VIEWS or node.func is operator.getitem


def _as_operation(node: Call) -> _RowOperation | None:
    """Return a node as an instruction of a row program, or None if there is none."""
    try:
        return _operation_of(node)
    except NoRowProgramError:
        return None


def _operation_of(node: Call) -> _RowOperation:
    func, args, options = _as_ufunc(node)
    if func is rules.convert:
        return _checked(_RowOperation(None, 0, (node.dtype,) * 2, args))
    if func is _reduce:
        return _checked(_RowOperation(node.options["reduction"], 0, (node.dtype,) * 2, args))
    if options:
        raise NoRowProgramError("arguments by keyword")
    if func is np.where and len(args) == 3:  # noqa: PLR2004
        return _checked(_RowOperation(np.where, 0, (np.dtype(bool), *(node.dtype,) * 3), args))
    if func is operator.pow:
        func, args = _power(*args)
    if not isinstance(func, np.ufunc) or func.signature or len(args) != func.nin:
        raise NoRowProgramError(rules.name_of(func))
    dtypes, loop = loop_of(func, tuple(map(_kind_of, args)))
    if dtypes[-1] != node.dtype:
        raise NoRowProgramError(f"{func.__name__} of {dtypes[-1]}")
    return _checked(_RowOperation(func, loop, dtypes, args))


def _as_ufunc(node: Call) -> tuple[Function, tuple[Any, ...], dict[str, Any]]:
    """Return the ufunc that NumPy itself calls for some functions, with its arguments."""
    func, args, options = node.func, node.args, node.options
    if func in _ROUNDS and node.dtype.kind == "f" and (*args[1:], *options.values()) in {(), (0,)}:
        return np.rint, args[:1], {}
    if func is np.fix:
        return np.trunc, args, options
    if func is not np.clip:
        return func, args, options
    given = dict(zip(("a", "min", "max"), args, strict=False))
    given |= {name.removeprefix("a_"): value for name, value in options.items()}
    value, low, high = (given.pop(name, None) for name in ("a", "min", "max"))
    if given or (low is None and high is None):
        return func, args, options
    if low is None or high is None:
        return (np.minimum, (value, high), {}) if low is None else (np.maximum, (value, low), {})
    return CLIP, (value, low, high), {}


def _kind_of(arg: Any) -> Any:
    """Return what NumPy finds the type of a result by: a class of Python's numbers, or a type."""
    if isinstance(arg, Array):
        return arg.dtype
    value = arg.sample if isinstance(arg, Number) else arg
    return type(value) if type(value) in _NUMBERS else np.asarray(value).dtype


def _power(base: Any, exponent: Any) -> tuple[np.ufunc, tuple[Any, ...]]:
    """Return what NumPy's operator computes: `numpy.power`, or what is faster for some numbers."""
    ufunc: np.ufunc = np.power
    if isinstance(base, Array) and not isinstance(exponent, Array | Number):
        ufunc = ufunc_of(operator.pow, base.dtype, exponent)
    return ufunc, (base, exponent)[: ufunc.nin]


def _checked(operation: _RowOperation) -> _RowOperation:
    """Check that operands can be converted without NumPy."""
    for operand, dtype in zip(operation.operands, operation.dtypes, strict=False):
        if isinstance(operand, Array | np.ndarray) and not is_exact(operand.dtype, dtype):
            raise NoRowProgramError(f"conversion of {operand.dtype} to {dtype}")
        if not isinstance(operand, Array | np.ndarray | Number):
            RowBuilder(()).constant(operand, dtype)
            if operation.function is np.where:  # which casts arrays: small numbers may underflow
                RowBuilder(()).constant(np.asarray(operand), dtype)
    return operation
