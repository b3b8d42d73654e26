"""Functions of fields whose lines are computed in one pass over memory: see `fused`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import update_wrapper
from typing import Any, NamedTuple

import numpy as np

from pencils.array.base import checks
from pencils.array.operands import FieldSpec, check_out
from pencils.array.pencil_array import PencilArray
from pencils.comm.memory import address
from pencils.comm.progress import poll, under_way
from pencils.errors import ArgumentError
from pencils.graph.array import Array, Placeholder, in_order
from pencils.graph.fuse import BlockProgram, Output
from pencils.graph.number import NUMBERS, Number, ValueNeededError
from pencils.graph.trace import Event, Trace, Traced, traced_call
from pencils.halo import exchange_halos

_MOST = 64  # traces of a function; the oldest one is dropped for one more
_SEQUENCES = {tuple, list}


class Fused:
    """A function of fields, traced once for each kind of arguments: see `fused`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._kept: dict[object, _Replay | tuple[int, ...]] = {}
        update_wrapper(self, function)

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Compute what the function computes; see `fused`."""
        leaves: list[Any] = []
        key = _signature((args, kwargs, out), leaves)
        found = self._kept.get(key)
        if type(found) is tuple:  # the values of some numbers are part of the key
            key = key, tuple([leaves[place] for place in found])
            found = self._kept.get(key)
        if found is None:
            found = self._trace(key, (args, kwargs, out), leaves)
        return found.run(leaves)  # type: ignore[union-attr]

    def _trace(self, key: object, given: tuple[Any, ...], leaves: list[Any]) -> _Replay:
        fixed: frozenset[int] = frozenset()
        while True:
            try:
                replay = _Replay(self._function, given, leaves, fixed)
            except ValueNeededError as error:
                fixed |= error.arguments
                continue
            break
        if fixed:
            places = tuple(sorted(fixed))
            self._kept[key] = places
            key = key, tuple([leaves[place] for place in places])
        self._kept[key] = replay
        while len(self._kept) > _MOST:
            self._kept.pop(next(iter(self._kept)))
        return replay


def _signature(value: Any, leaves: list[Any]) -> Any:
    """Return what decides on the trace of an argument; add its fields, numbers and arrays."""
    kind = type(value)
    if isinstance(value, PencilArray):
        leaves.append(value)
        block = value.padded
        alike = [one for one in leaves if isinstance(one, PencilArray)]
        shared = _shared(block, alike)
        return value.frame, block.dtype, block.shape, block.strides, block.flags.writeable, shared
    if isinstance(value, NUMBERS) and kind is not bool:
        leaves.append(value)
        return kind
    if kind in _SEQUENCES:
        return kind, *[_signature(one, leaves) for one in value]
    if kind is dict:
        return kind, *[(name, _signature(one, leaves)) for name, one in value.items()]
    if kind is np.ndarray:
        leaves.append(value)
        return kind, value.dtype, value.shape, value.strides
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"{value!r} cannot be an argument of a fused function: pass fields, numbers, arrays, "
            "what can be hashed, or tuples, lists and dicts of these"
        ) from None
    return kind, value


def _shared(block: Any, fields: Sequence[PencilArray]) -> tuple[tuple[int, int], ...]:
    """List the earlier fields that own the same memory, and how far from it this block is."""
    own = _owner(block)
    return tuple(
        (place, address(block) - address(other.padded))
        for place, other in enumerate(fields[:-1])
        if _owner(other.padded) is own
    )


def _owner(block: Any) -> object:
    """Return the object that owns the memory of an array."""
    while isinstance(block, np.ndarray) and block.base is not None:
        block = block.base
    return block


class _Results(NamedTuple):
    """Where the fields are that a function returns, in what it returns."""

    kind: Any
    parts: tuple[Any, ...]


class _Replay:
    """The stages of one trace, ready to be executed."""

    def __init__(
        self,
        function: Callable[..., Any],
        given: tuple[Any, ...],
        leaves: list[Any],
        fixed: frozenset[int],
    ) -> None:
        self._trace = trace = Trace()
        self._fields: list[int] = []  # the arguments that are fields, by blocks
        every = iter(enumerate(leaves))
        args, kwargs, out = _replaced(given, every, self._traced(fixed))
        results = traced_call(trace, lambda: function(*args, **kwargs))
        self._fresh: set[int] = set()  # blocks that are new in each call
        self._result = traced_call(trace, lambda: self._stored(results, out))
        self._stages = _Schedule(trace).stages
        self._made = [(block.slot, block.field) for block in trace.blocks if block.made]

    def _traced(self, fixed: frozenset[int]) -> Callable[[int, Any], Any]:
        def traced(place: int, value: Any) -> Any:
            if isinstance(value, PencilArray):
                self._fields.append(place)
                return self._trace.add(value)
            if isinstance(value, np.ndarray) or place in fixed:
                return value
            return Number.argument(value, place)

        return traced

    def _stored(self, result: Any, out: Any) -> Any:
        """Store the fields of a result; return where they are."""
        if type(result) in _SEQUENCES:
            outs = [None] * len(result) if out is None else out
            if type(outs) not in _SEQUENCES or len(outs) != len(result):
                raise ArgumentError(f"out must be {len(result)} fields, as the function returns")
            pairs = zip(result, outs, strict=True)
            return _Results(type(result), tuple(self._stored(*pair) for pair in pairs))
        if isinstance(result, Traced):
            return self._stored_field(result, out)
        if out is not None:
            raise ArgumentError("out is given, but the function returns no field in its place")
        if isinstance(result, Array):
            raise TypeError(
                "a fused function returns the local values of a field: write u instead of u.local"
            )
        return (result,)

    def _stored_field(self, result: Traced, out: Any) -> int:
        trace = self._trace
        home = trace.home(result.node)
        whole = home is not None and home.field.frame is result.frame
        if out is None and home and whole and result.node.shape == home.field.local.shape:
            self._fresh.update([home.slot] if home.made else [])
            return home.slot
        spec = FieldSpec(result.dtype, result.components, result.singletons)
        if out is None:
            frame = result.frame.bare
            block = frame.make(result.node.shape, result.dtype)
            out = trace.add(PencilArray.in_frame(result.pencil, frame, block), made=True)
            self._fresh.add(trace.blocks[-1].slot)
        else:
            if not isinstance(out, Traced):
                raise TypeError(f"out must be a PencilArray, not {type(out).__name__}")
            field = trace.blocks[trace.slot_of(out.node)].field
            if not np.can_cast(result.dtype, field.dtype, "same_kind"):
                raise TypeError(f"out has dtype {field.dtype}, which cannot take {result.dtype}")
            check_out(field, result.pencil, spec._replace(dtype=field.dtype))
        trace.store(out.node, result.local)
        return trace.slot_of(out.node)

    def run(self, leaves: Sequence[Any]) -> Any:
        """Execute the stages for these arguments."""
        fields = [leaves[place] for place in self._fields]
        for slot, made in self._made:
            fields.append(made.blank(zero=True) if slot in self._fresh else made)
        values = [field.padded for field in fields]
        for stage in self._stages:
            stage.run(fields, values, leaves)
        return self._returned(self._result, fields, leaves)

    def _returned(self, result: Any, fields: Sequence[PencilArray], leaves: Sequence[Any]) -> Any:
        if type(result) is int:
            return fields[result]
        if type(result) is _Results:
            return result.kind(self._returned(part, fields, leaves) for part in result.parts)
        return _known(result[0], leaves)


def _replaced(
    value: Any, leaves: Iterator[tuple[int, Any]], replace: Callable[[int, Any], Any]
) -> Any:
    """Replace the fields, numbers and arrays in arguments, in the order of `_signature`."""
    kind = type(value)
    if isinstance(value, (PencilArray, np.ndarray, *NUMBERS)) and kind is not bool:
        return replace(*next(leaves))
    if kind in _SEQUENCES:
        return kind(_replaced(one, leaves, replace) for one in value)
    if kind is dict:
        return {name: _replaced(one, leaves, replace) for name, one in value.items()}
    return value


class _Stage:
    """Events, and the program that computes the values which the stage stores."""

    def __init__(self, events: Sequence[Event], program: BlockProgram | None) -> None:
        self._calls = list(_grouped(events))
        self._program = program
        self.written: set[int] = set()

    def run(self, fields: Sequence[PencilArray], values: list[Any], leaves: Sequence[Any]) -> None:
        """Execute the stage; the values that later stages need are appended."""
        if under_way.on:
            poll()
        for call in self._calls:
            call(fields, leaves)
        if self._program is not None:
            values += self._program.run(values, leaves)
        if checks.on:
            for slot in self.written:
                fields[slot].mark_written()


def _grouped(events: Sequence[Event]) -> Iterator[Callable[..., None]]:
    """Yield the calls of events; those that exchange halos of one pencil become one."""
    left = list(events)
    while left:
        first = left.pop(0)
        alike = [first]
        if first.method == "exchange_halo":
            while left and _joins(left[0], alike):
                alike.append(left.pop(0))
        yield _exchange(alike) if len(alike) > 1 else _call(first)


def _joins(event: Event, others: Sequence[Event]) -> bool:
    first = others[0]
    return (
        event[1:] == first[1:]
        and event.block.field.pencil is first.block.field.pencil
        and event.block not in [other.block for other in others]
    )


def _exchange(events: Sequence[Event]) -> Callable[..., None]:
    slots, options = [event.block.slot for event in events], events[0].options

    def exchange(fields: Sequence[PencilArray], _leaves: object) -> None:
        exchange_halos([fields[slot] for slot in slots], **options)

    return exchange


def _call(event: Event) -> Callable[..., None]:
    slot = event.block.slot

    def call(fields: Sequence[PencilArray], leaves: Sequence[Any]) -> None:
        arguments = [_known(one, leaves) for one in event.arguments]
        options = {name: _known(one, leaves) for name, one in event.options.items()}
        getattr(fields[slot], event.method)(*arguments, **options)

    return call


def _known(value: Any, leaves: Sequence[Any]) -> Any:
    return value.evaluate(leaves) if isinstance(value, Number) else value


class _Schedule:
    """Decides in which stage each value is computed.

    That is the last stage in which memory still has what it is computed from, and not after those
    that need it. A value that a later stage needs is kept in a block of its own.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._last = len(trace.stages) - 1
        stores = [(number, one) for number, each in enumerate(trace.stages) for one in each.stores]
        self._nodes = in_order(store.value for _, store in stores)
        self._early: dict[Array, int] = {}
        for node in self._nodes:
            self._early[node] = self._first_stage(node)
        self._used: dict[Array, set[int]] = {}
        for number, store in stores:
            self._used.setdefault(store.value, set()).add(number)
        self._at: dict[Array, int] = {}
        for node in reversed(self._nodes):
            self._place(node)
        self._kept = {node: at for node, at in self._at.items() if max(self._used[node]) > at}
        self._slots: dict[Array, int] = {}
        self.stages = self._make(trace)

    def _is_leaf(self, node: Array) -> bool:
        return self._trace.home(node) is not None

    def _first_stage(self, node: Array) -> int:
        if isinstance(node, Placeholder):
            return self._trace.born[node]
        return max((self._early[one] for one in node.inputs), default=0)

    def _dies(self, leaf: Array) -> int:
        while not isinstance(leaf, Placeholder):
            (leaf, *_) = leaf.inputs
        return self._trace.dies.get(leaf, self._last)

    def _place(self, node: Array) -> None:
        """Choose the stage of a node, all of whose users have one."""
        if node not in self._used:  # an input of a view
            return
        if self._is_leaf(node):
            self._at[node] = self._dies(node)
            return
        limits = [self._dies(one) for one in node.inputs if self._is_leaf(one)]
        early = self._early[node]
        wanted = min([*self._used[node], *(limit for limit in limits if limit >= early)])
        at = self._at[node] = max(early, wanted)
        for one in node.inputs:
            self._used.setdefault(one, set()).add(at)

    def _make(self, trace: Trace) -> list[_Stage]:
        arrays = [block.field.padded for block in trace.blocks]
        stages = []
        for number, (events, stores) in enumerate(trace.stages):
            kept = [node for node, at in self._kept.items() if at == number]
            outputs = [Output(store.value, store.target) for store in stores]
            outputs += [Output(node, copied=True) for node in kept]
            program = None
            if outputs:
                slots = dict(self._slots)
                for block_slot, placeholders in self._living(number).items():
                    slots.update(dict.fromkeys(placeholders, block_slot))
                program = BlockProgram(outputs, arrays, slots)
                for node, example in zip(kept, program.examples, strict=True):
                    self._slots[node] = len(arrays)
                    arrays.append(example)
            stage = _Stage(events, program)
            stage.written = {store.block.slot for store in stores}
            stages.append(stage)
        return stages

    def _living(self, number: int) -> dict[int, list[Array]]:
        """List the placeholders that have their values in a stage, by blocks."""
        found: dict[int, list[Array]] = {}
        for node in self._nodes:
            home = self._trace.home(node) if isinstance(node, Placeholder) else None
            if home and self._trace.born[node] <= number <= self._dies(node):
                found.setdefault(home.slot, []).append(node)
        return found


def fused(function: Callable[..., Any]) -> Fused:
    """Compute the lines of a function of fields in one pass over memory."""
    return Fused(function)
