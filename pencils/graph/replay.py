"""A trace that is ready to be executed: its stages as steps, and what the function returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import prod
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from pencils.array import provided
from pencils.array.base import checks
from pencils.array.global_reduction import neutral_of, reduce_field, result_dtype
from pencils.array.numpy_api import REDUCTIONS
from pencils.array.operands import FieldSpec, check_out
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import Handle
from pencils.comm.pack import no_op
from pencils.comm.progress import poll, under_way
from pencils.comm.row_reduction import BlockReduction
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError
from pencils.graph.array import Array, Call, Placeholder, in_order
from pencils.graph.fuse import (
    BlockProgram,
    BlockView,
    Ghosts,
    Store,
    copied,
    is_fused,
    is_reduction,
    is_view,
    make_program,
    reduced,
)
from pencils.graph.number import NUMBERS, Number, ValueNeededError, several
from pencils.graph.trace import (
    ASSIGNMENT,
    Block,
    Event,
    FieldReduction,
    Moved,
    Operand,
    Trace,
    Traced,
    explained,
    same_views,
    traced_call,
    viewed,
    views_of,
)
from pencils.halo import exchange_halos
from pencils.halo.kept import prepare_kept

_NOTE = (
    "This was raised while pencils.fused recorded the function. Its fields have no values yet, so "
    "only operators, elementwise functions, shifts, sections, assignments and halo fills can be "
    "recorded. Call other functions outside."
)


class RunningCall:
    """The arguments of one call, the fields of all blocks, and values between stages."""

    __slots__ = ("begun", "fields", "leaves", "reduced", "values")

    def __init__(
        self, leaves: Sequence[Any], fields: Sequence[PencilArray], values: list[Any]
    ) -> None:
        self.leaves = leaves
        self.fields = fields
        self.values = values  # blocks of fields, replicated data, results of stages
        self.reduced: list[Any] = []  # what reductions have returned
        self.begun: Handle[None]  # an exchange of halos that is under way


class CallStep(NamedTuple):
    """A part of a call; with a topology, its ranks communicate by a verb of that name."""

    run: Callable[[RunningCall], object]
    topology: Topology | None = None
    verb: str = ""
    text: str = ""  # for users


class Replay:
    """The steps of a function for one kind of arguments."""

    def __init__(
        self,
        function: Callable[..., Any],
        given: tuple[Any, ...],
        leaves: Sequence[Any],
        fixed: frozenset[int],
        trace: Trace,
    ) -> None:
        self._arrays: list[int] = []

        def traced(place: int, value: Any) -> Any:
            if isinstance(value, PencilArray):
                return trace.add(value)
            if isinstance(value, np.ndarray):
                self._arrays.append(place)
                return trace.add_array(value)
            return value if place in fixed else Number.argument(value, place)

        results = _Results(trace)
        if not any(isinstance(leaf, PencilArray) for leaf in leaves):
            raise TypeError(
                "a fused function takes at least one field as an argument: it only reads fields of "
                "its object and of enclosing scopes"
            )
        try:
            args, out, kwargs = _replaced(given, iter(enumerate(leaves)), traced)
            with traced_call(trace):
                self._returned = results.of(function(*args, **kwargs), out)
                results.finish()
            schedule = Schedule(trace, results.nodes)
        except ValueNeededError:
            raise
        except BaseException as error:
            clear = explained(error)
            clear.add_note(_NOTE)
            tell_others(
                (step for stage in trace.stages for step in _event_steps(trace, stage.events)),
                clear,
            )
            if clear is error:
                raise
            raise clear from error
        self._steps = [*schedule.steps, *results.steps(schedule)]
        self._makers = [
            _maker(block.field, zero=block.slot not in results.written)
            for block in trace.blocks
            if block.made
        ]
        self._take = several([i for i, leaf in enumerate(leaves) if isinstance(leaf, PencilArray)])
        run = self._steps[0].run if len(self._steps) == 1 and not self._arrays else None
        self._at_once = None
        if isinstance(run, partial) and run.func is _compute:
            self._at_once = run.args[0].at_once

    def __str__(self) -> str:
        return "\n".join(step.text for step in self._steps if step.text)

    def run(self, leaves: Sequence[Any], blocks: list[Any]) -> Any:
        """Execute all steps for these arguments, whose fields have these blocks.

        If one fails, this rank meets the others where they communicate next, so that all raise.
        """
        done = 0
        fields = self._take(leaves)
        call = RunningCall(leaves, fields, blocks)
        try:
            if self._makers:
                made = [make() for make in self._makers]
                call.fields = [*fields, *made]
                blocks += [field.padded for field in made]
            if self._at_once is not None and not (checks.on or under_way.on):
                self._at_once(blocks, leaves)
                return self._returned(call)
            if self._arrays:
                blocks += [leaves[place] for place in self._arrays]
            for step in self._steps:
                done += 1
                step.run(call)
        except BaseException as error:
            # All ranks have agreed on an error of a step in which they communicate.
            if not done or self._steps[done - 1].topology is None:
                tell_others(self._steps[done:], error)
            raise
        return self._returned(call)


def tell_others(steps: Iterable[CallStep], error: BaseException) -> None:
    """Raise an error on all ranks, which meet in one of the steps to come. *Collective*."""
    for step in steps:
        if step.topology is not None and step.topology.comm.size > 1:
            with agreed(step.topology.comm, step.verb):
                raise error


def _replaced(
    value: Any, leaves: Iterator[tuple[int, Any]], replace: Callable[[int, Any], Any]
) -> Any:
    """Replace the fields, numbers and arrays among arguments, in the order of their signature."""
    kind = type(value)
    if isinstance(value, (PencilArray, np.ndarray, *NUMBERS)) and kind is not bool:
        return replace(*next(leaves))
    if is_sequence(kind):
        return rebuilt(value, [_replaced(one, leaves, replace) for one in value])
    if kind is dict:
        return {name: _replaced(one, leaves, replace) for name, one in value.items()}
    return value


def is_sequence(kind: type) -> bool:
    """Whether values of a class are lists or tuples, named ones, too."""
    return kind is list or issubclass(kind, tuple)


def rebuilt(value: Any, parts: Iterable[Any]) -> Any:
    """Return a list or tuple like another one, of other parts."""
    kind: Any = type(value)
    return kind._make(parts) if hasattr(kind, "_make") else kind(parts)


def known(value: Any, call: RunningCall) -> Any:
    """Return the value of a number in a call, and anything else as it is."""
    return value.evaluate(call.leaves) if isinstance(value, Number) else value


def _maker(field: PencilArray, *, zero: bool) -> Callable[[], PencilArray]:
    """Return a function that makes a field like another one, in each call."""
    kind, pencil, frame = type(field), field.pencil, field.frame
    shape, dtype = field.padded.shape, field.dtype
    return lambda: kind.in_frame(pencil, frame, frame.make(shape, dtype, zero=zero))


class _Results:
    """What a function returns: its fields are stored in blocks of the trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._reduced: list[FieldReduction] = []
        self._runs: list[Callable[[RunningCall], Any] | tuple[Array, Callable[..., Any]]] = []
        self.written: set[int] = set()  # blocks all of whose points are written

    def of(self, result: Any, out: Any = None) -> Callable[[RunningCall], Any]:
        """Return a function that finds a result in a call."""
        if is_sequence(type(result)):
            return self._several(result, out)
        if type(result) is dict:
            if out is not None:
                raise ArgumentError("out= needs a tuple of results, not a dict: return a tuple")
            parts = {name: self.of(one) for name, one in result.items()}
            return lambda call: {name: part(call) for name, part in parts.items()}
        if isinstance(result, Traced):
            slot = self._store(result, out)
            return lambda call: call.fields[slot]
        if out is not None:
            raise ArgumentError(
                "out= is given for a result that is not a field: pass None in its place"
            )
        if isinstance(result, FieldReduction):
            place = len(self._reduced)
            self._reduced.append(result)
            return lambda call: call.reduced[place]
        if isinstance(result, Array):
            raise TypeError(
                "a fused function cannot return local values: return u instead of u.local"
            )
        if not isinstance(result, (*NUMBERS, Number, str, bool, np.bool, NoneType)):
            raise TypeError(
                f"a fused function cannot return a {type(result).__name__}: return fields, "
                "reductions, numbers, None, or tuples, lists and dicts of these"
            )
        return lambda call: known(result, call)

    def _several(self, results: Any, out: Any) -> Callable[[RunningCall], Any]:
        outs = [None] * len(results) if out is None else out
        if not is_sequence(type(outs)) or len(outs) != len(results):
            raise ArgumentError(f"out must have {len(results)} items, one for each result")
        parts = [self.of(*pair) for pair in zip(results, outs, strict=True)]
        return lambda call: rebuilt(results, [part(call) for part in parts])

    def finish(self) -> None:
        """Find what passes reduce; store what is reduced after them."""
        self._runs = [_in_pass(result) or self._by_function(result) for result in self._reduced]

    @property
    def nodes(self) -> list[Array]:
        """What passes reduce."""
        return [run[0] for run in self._runs if isinstance(run, tuple)]

    def steps(self, schedule: Schedule) -> Iterator[CallStep]:
        """Yield the steps in which ranks combine reductions."""
        for result, run in zip(self._reduced, self._runs, strict=True):
            text = f"{result.name} of a result"
            if isinstance(run, tuple):
                text += ", reduced in a pass"
                run = partial(_combine, schedule.slot_of(run[0]), run[1])  # noqa: PLW2901
            topology = result.operands[0].field.pencil.topology
            verb = "var" if result.name == "std" else result.name  # which it calls
            yield CallStep(partial(_append, run), topology, verb, text)

    def _by_function(self, result: FieldReduction) -> Callable[[RunningCall], Any]:
        """Return what calls the function in a call, of fields that are stored."""
        arguments = [self._reader(one) for one in result.arguments]
        options = {name: self._reader(one) for name, one in result.options.items()}
        return lambda call: result.function(
            *[read(call) for read in arguments],
            **{name: read(call) for name, read in options.items()},
        )

    def _reader(self, operand: Any) -> Callable[[RunningCall], Any]:
        """Return a function that finds an argument of a reduction in a call."""
        if not isinstance(operand, Operand):
            return partial(known, operand)
        field, node = operand
        pencil, frame, views = field.pencil, field.frame.bare, views_of(field.node)
        memory = BlockView(self._stored(field, node), np.empty(0), views)
        return lambda call: PencilArray.in_frame(
            pencil, frame, memory.derive(call.values[memory.slot])
        )

    def _stored(self, field: Traced, node: Array) -> int:
        """Store a field that is reduced as plain lines have it: sums depend on its strides.

        Fields that keep the values until the function returns are not copied.
        """
        trace, home = self._trace, self._trace.home(field.node)
        if home is None:
            return self._new(field, viewed(node))
        now = trace.read(field.node)
        if now is node or (trace.home(node) is not None and viewed(now) is viewed(node)):
            return home.slot
        like = home.field
        block = like.frame.make(like.padded.shape, like.dtype)
        trace.add(like.in_frame(like.pencil, like.frame.bare, block), made=True)
        new = trace.blocks[-1]
        trace.store(same_views(field.node, new.node), node)
        return new.slot

    def _store(self, result: Traced, out: Any) -> int:
        trace = self._trace
        home = trace.home(result.node)
        if out is None:
            if home is not None and trace.is_whole(result):
                return home.slot
            return self._new(result, result.local)
        if not isinstance(out, Traced):
            raise TypeError(f"out must be a PencilArray, not {type(out).__name__}")
        slot = trace.slot_of(out.node)
        field = trace.blocks[slot].field
        if not np.can_cast(result.dtype, field.dtype, "same_kind"):
            raise TypeError(f"out has dtype {field.dtype}, which cannot take {result.dtype}")
        check_out(
            field, result.pencil, FieldSpec(field.dtype, result.components, result.singletons)
        )
        trace.store(out.node, result.local)
        return slot

    def _new(self, result: Traced, node: Array) -> int:
        """Store values in a block of their own, like a field."""
        slot = self._trace.slot_of(self._trace.keep(result, node).node)
        self.written.add(slot)
        return slot


def _append(run: Callable[[RunningCall], Any], call: RunningCall) -> None:
    call.reduced.append(run(call))


def _combine(slot: int, combine: Callable[[Any], Any], call: RunningCall) -> Any:
    return combine(call.values[slot])


# Functions whose values passes reduce: by a ufunc, if elements are of these kinds or types. Sums of
# other types are not those of NumPy if they are added in parts.
_PASSES: dict[str, tuple[np.ufunc, str]] = {
    "max": (np.maximum, "biuf"),
    "min": (np.minimum, "biuf"),
    "any": (np.logical_or, "biufc"),
    "all": (np.logical_and, "biufc"),
    "sum": (np.add, "biud"),
    "mean": (np.add, "d"),
    "norm": (np.add, "d"),
}
_NAMES: dict[Callable[..., Any], str] = {
    **{function: name for function, name in REDUCTIONS.items() if name in _PASSES},
    **{getattr(PencilArray, name): name for name in _PASSES},
    np.linalg.norm: "norm",
}


def _in_pass(result: FieldReduction) -> tuple[Array, Callable[[Any], Any]] | None:
    """Return what a pass reduces, and what combines the values of all ranks, if both are known.

    Ranks combine as if the block had one element, the own result.
    """
    name = _NAMES.get(result.function)
    if name is None or len(result.arguments) > 1 or result.options:
        return None
    field, node = result.operands[0]
    ufunc, kinds = _PASSES[name]
    if not {node.dtype.kind, node.dtype.char} & {*kinds}:
        return None
    in_memory = not isinstance(field.node, Call) or is_view(field.node)
    if name in {"sum", "mean"} and node.dtype.kind == "f" and in_memory:
        return None  # NumPy adds in another order if there are gaps
    frame, pencil, combine = field.frame.bare, field.pencil, getattr(PencilArray, name)
    dtype = result_dtype(ufunc, node.dtype, None)
    axes, _ = frame.axes(len(field.components))
    example = frame.make(node.shape, node.dtype)
    kind = frame.kind_of(example)
    padded: Any = np.broadcast_to(np.zeros((), node.dtype), node.shape)
    if name == "norm":
        node = node * node
    start = neutral_of(name, ufunc, dtype, 1)

    def combined(value: Any) -> Any:
        field = PencilArray.in_frame(pencil, frame, padded, kind)
        if padded.size:
            field._local = value.reshape((1,) * padded.ndim)  # noqa: SLF001
        if name == "norm":
            return np.sqrt(reduce_field(result.name, field, keep_as="norm of squares"))
        return combine(field)

    return reduced(node, BlockReduction(ufunc, dtype, start, axes)), combined


def _groups(events: Sequence[Event]) -> list[list[Event]]:
    """Divide events: those that exchange halos of one pencil are one group."""
    found: list[list[Event]] = []
    for event in events:
        if found and event.topology is not None and _joins(event, found[-1]):
            found[-1].append(event)
        else:
            found.append([event])
    return found


def _begun(trace: Trace, groups: Sequence[list[Event]]) -> list[Event]:
    """Return the exchanges among events that are begun only; the same on all ranks."""
    last = groups[-1] if trace.overlap and groups and groups[-1][0].method != ASSIGNMENT else []
    topology = last[0].topology if last else None
    return last if topology is not None and topology.comm.size > 1 else []


def _event_steps(trace: Trace, events: Sequence[Event]) -> Iterator[CallStep]:
    """Yield the steps of events."""
    groups = _groups(events)
    begun = _begun(trace, groups)
    for alike in groups:
        first, begins = alike[0], alike is begun
        if len(alike) == 1 and not begins:
            text = f"{first.method} of {_name_of(first.block)}"
            does = _move if first.method == ASSIGNMENT else _execute
            run = partial(does, first.block.slot, *first[1:])
            yield CallStep(run, first.topology, first.method, text)
            continue
        slots = [event.block.slot for event in alike]
        verb = "start_halo_exchange" if begins else "exchange_halos"
        text = f"{verb} of {', '.join(_name_of(event.block) for event in alike)}"
        run = partial(_begin if begins else _exchange, slots, first.options)
        yield CallStep(run, first.topology, verb, text)


def _name_of(block: Block) -> str:
    return "a field of its own" if block.made else f"argument {block.slot}"


def _joins(event: Event, others: Sequence[Event]) -> bool:
    """Whether two exchanges can be one."""
    first = others[0]
    return (
        (event.method, event.arguments, event.options) == (first.method, (), first.options)
        and event.block.field.pencil is first.block.field.pencil
        and all(event.block is not other.block for other in others)
    )


def _exchange(slots: Sequence[int], options: dict[str, Any], call: RunningCall) -> None:
    exchange_halos([call.fields[slot] for slot in slots], **options)


def _begin(slots: Sequence[int], options: dict[str, Any], call: RunningCall) -> None:
    fields = [call.fields[slot] for slot in slots]
    call.begun = prepare_kept("start_halo_exchange", fields, **options).start(None)


def _execute(
    slot: int, method: str, arguments: Sequence[Any], options: dict[str, Any], call: RunningCall
) -> Any:
    """Call a method of the field of a block, with the values of numbers."""
    given = [known(one, call) for one in arguments]
    named = {name: known(one, call) for name, one in options.items()}
    return getattr(call.fields[slot], method)(*given, **named)


def _move(
    slot: int, _: str, sides: tuple[Moved, Moved], __: dict[str, Any], call: RunningCall
) -> None:
    """Assign a field to a section whose points lie on other ranks."""
    provided("assign")(*[side.find(call.values) for side in sides])
    if checks.on:
        call.fields[slot].mark_written()


def _compute(
    program: BlockProgram,
    slots: Sequence[int],
    call: RunningCall,
    wait: Callable[[], object] = no_op,
) -> None:
    """Execute the program of a stage; the values that later stages need are appended.

    Own points of some blocks are written, which a debugging mode may ask for.
    """
    if under_way.on:
        poll()
    call.values += program.run(call.values, call.leaves, wait)
    if checks.on:
        for slot in slots:
            call.fields[slot].mark_written()


def _compute_meanwhile(program: BlockProgram, slots: Sequence[int], call: RunningCall) -> None:
    """Execute the program of a stage while ghosts that have not arrived are on their way."""
    begun = call.begun
    try:
        if begun.test():  # all of the block in one piece
            begun.wait()
            _compute(program, slots, call)
        else:
            _compute(program, slots, call, begun.wait)
    finally:
        begun.wait()


def _has_block(node: Array) -> bool:
    """Whether a value has memory of its own where it is kept."""
    return isinstance(node, Call) and not is_view(node) and not is_reduction(node)


def _nbytes(node: Array) -> int:
    return node.dtype.itemsize * prod(node.shape)


class Schedule:
    """Decides in which stage each value is computed.

    That is the last stage in which memory still has what it is computed from, and not after those
    that need it. A value that a later stage needs is kept in a block of its own, or in that of a
    value that no stage needs anymore. Compiled passes wait for memory: they compute values earlier
    if no more has to be kept, to read less.
    """

    def __init__(self, trace: Trace, reductions: Sequence[Array]) -> None:
        self._trace = trace
        self._last = len(trace.stages) - 1
        stores = [(number, one) for number, each in enumerate(trace.stages) for one in each.stores]
        self._nodes = in_order([*(store.value for _, store in stores), *reductions])
        self._early: dict[Array, int] = {}
        for node in self._nodes:
            inputs = max((self._early[one] for one in node.inputs), default=0)
            self._early[node] = trace.born.get(node, inputs)
        self._ends: dict[Array, list[int]] = {}  # stages that store a value, or after the last
        for number, store in stores:
            self._ends.setdefault(store.value, []).append(number)
        self._ends |= {node: [self._last + 1] for node in reductions}
        self._users: dict[Array, list[Array]] = {}
        self._at: dict[Array, int] = {}
        for node in reversed(self._nodes):
            self._place(node)
        for node in self._nodes if trace.compiler else ():
            self._move(node)
        self._kept = {node: at for node, at in self._at.items() if self._until(node) > at}
        self._free: dict[object, list[int]] = {}  # slots of blocks, by shapes and types
        self._slots: dict[Array, int] = {}
        self._views: dict[Array, BlockView] = {}  # of values that blocks of the trace keep
        self._writes = Counter(store.target.slot for _, store in stores)  # to each block
        self.steps = list(self._make(trace))

    def _is_leaf(self, node: Array) -> bool:
        return isinstance(viewed(node), Placeholder)

    def _dies(self, leaf: Array) -> int:
        return self._trace.dies.get(viewed(leaf), self._last)

    def _place(self, node: Array) -> None:
        """Choose the stage of a node, all of whose users have one."""
        if node not in self._ends and node not in self._users:  # an input of a view
            return
        if self._is_leaf(node):
            self._at[node] = self._dies(node)
            return
        read = in_order([node]) if is_reduction(node) else node.inputs  # without a block
        limits = [self._dies(one) for one in read if self._is_leaf(one)]
        early = self._early[node]
        wanted = min([*self._uses(node), *(limit for limit in limits if limit >= early)])
        self._at[node] = max(early, min(wanted, self._last))
        for one in node.inputs:
            self._users.setdefault(one, []).append(node)

    def _uses(self, node: Array) -> list[int]:
        """List the stages that need a value."""
        users = self._users.get(node, ())
        return [*self._ends.get(node, ()), *(self._at[user] for user in users)]

    def _until(self, node: Array) -> int:
        """Return the last stage that needs a value."""
        return max(self._uses(node))

    def _move(self, node: Array) -> None:
        """Compute a value as soon as its inputs are, if they need not be kept for it then."""
        inputs = [one for one in node.inputs if isinstance(viewed(one), Call)]
        views = any(isinstance(one, Call) and is_view(one) for one in [node, *inputs])
        if not inputs or views or is_reduction(node):
            return
        now = self._at[node]
        kept = [one for one in inputs if self._until(one) > self._at[one]]
        self._at[node] = max(self._early[node], *map(self._at.__getitem__, inputs))
        freed = sum(_nbytes(one) for one in kept if self._until(one) <= self._at[one])
        if _nbytes(node) > freed:
            self._at[node] = now

    def _make(self, trace: Trace) -> Iterator[CallStep]:
        arrays = [block.field.padded for block in trace.blocks]
        self._slots |= {node: len(arrays) + i for i, node in enumerate(trace.arrays)}
        arrays += trace.arrays.values()
        for number, (events, of_lines) in enumerate(trace.stages):
            yield from _event_steps(trace, events)
            slots: dict[Array, int | BlockView] = {**self._slots, **self._living(number)}
            slots |= self._views
            stored = self._stored_once(of_lines)
            self._views |= stored
            here = [node for node, at in self._kept.items() if at == number and node not in stored]
            again = self._in_free_blocks(number, here)
            self._slots |= again
            stores = [*of_lines, *[Store(x, BlockView(i, arrays[i])) for x, i in again.items()]]
            kept = [node for node in here if node not in again]
            results = [copied(node) if self._is_leaf(node) else node for node in kept]
            begun = _begun(trace, _groups(events))
            if not stores and not results:
                if begun:
                    yield CallStep(lambda call: call.begun.wait())
                continue
            ghosts = self._ghosts([event.block for event in begun])
            program, examples = make_program(
                stores, results, arrays, slots, compiler=trace.compiler, ghosts=ghosts
            )
            for node, example in zip(kept, examples, strict=True):
                self._slots[node] = len(arrays)
                arrays.append(example)
            text = "while ghosts travel: " * (program.split is not None) + "\n".join(program.texts)
            written = sorted({one.target.slot for one in of_lines if not self._has_ghosts(one)})
            run = _compute_meanwhile if begun else _compute
            yield CallStep(partial(run, program, written), text=text)

    def _in_free_blocks(self, number: int, nodes: Sequence[Array]) -> dict[Array, int]:
        """Find blocks for values in the slots of those that the stage before has needed last.

        Blocks that are read in this stage are not free: what is stored in place is copied there.
        """
        for node in self._kept:
            if self._until(node) == number - 1 and node in self._slots and self._owns(node):
                self._free.setdefault((node.shape, node.dtype), []).append(self._slots[node])
        found = {}
        for node in nodes:
            free = self._free.get((node.shape, node.dtype))
            if free and _has_block(node) and is_fused(node):
                found[node] = free.pop()
        return found

    def _owns(self, node: Array) -> bool:
        """Whether a kept value has a block that nothing else views."""
        return _has_block(node) and all(map(_has_block, self._users.get(node, ())))

    def _ghosts(self, blocks: Sequence[Block]) -> list[Ghosts]:
        """List the ghosts of blocks that travel; none if other blocks have the same memory."""
        found = []
        for block in blocks:
            field, parts = block.field, block.field.pencil.process_shape
            if sum(one.shares(field.padded) for one in self._trace.blocks) > 1:
                return []
            for dim in [dim for dim, count in enumerate(parts) if count > 1]:
                before, points = field.halo_room[dim][0], field.extent.local_shape[dim]
                axis = len(field.components) + dim
                found.append(Ghosts(block.slot, axis, slice(before, before + points)))
        return found

    def _has_ghosts(self, store: Store) -> bool:
        """Whether a store writes ghosts, too, as copies do."""
        frame = self._trace.blocks[store.target.slot].field.frame
        return not store.target.views and frame is not frame.bare

    def _stored_once(self, stores: Sequence[Store]) -> dict[Array, BlockView]:
        """Find values that were shifted, whose blocks nothing else is written to."""
        slots = {value: block.slot for value, block in self._trace.shifted.items()}
        return {
            value: target
            for value, target in stores
            if slots.get(value) == target.slot and self._writes[target.slot] == 1
        }

    def slot_of(self, node: Array) -> int:
        """Return the place of a value that is kept, among those of a call."""
        return self._slots[node]

    def _living(self, number: int) -> dict[Array, int]:
        """Return the blocks of the placeholders that have their values in a stage."""
        born = self._trace.born
        return {
            node: self._trace.slot_of(node)
            for node in self._nodes
            if node in born and born[node] <= number <= self._dies(node)
        }
