"""Trace a function of fields: its lines make nodes, and are recorded in stages.

A stage has events, which are halo exchanges and fills of boundaries, and then stores. Everything
that a stage reads, it reads after its events and before its stores. So a line begins a new stage
where it reads what was stored before. Events begin one unless they follow each other: which of them
are one exchange depends on the lines alone, not on the blocks of a rank, some of which are empty.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial, partialmethod
from traceback import walk_tb
from typing import Any, NamedTuple, NoReturn, Self, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike

from pencils.array import indexing, shifts
from pencils.array.allocation import BlockLayout, as_dtype, as_value, frame_of
from pencils.array.base import Field
from pencils.array.numpy_api import AS_METHODS, QUERIES, REDUCTIONS, apply_function
from pencils.array.operands import (
    check_fits,
    common_pencil,
    key_of_data,
    local_part,
    local_parts,
    mixes,
)
from pencils.array.pencil_array import PencilArray
from pencils.array.picks import find_picks
from pencils.comm.memory import same_view
from pencils.comm.recording import makes_plan
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError
from pencils.graph import rules
from pencils.graph.array import Array, Call, Placeholder, filled, in_order
from pencils.graph.fuse import BlockView, Store, View, is_view
from pencils.graph.number import Number
from pencils.pencil import Pencil

ASSIGNMENT = "assignment"  # the event, and the verb, of one that moves points
_NO_MEMORY = (
    "a value computed in a fused function has no memory to write to: write v = u.copy() and assign "
    "to v[...]"
)


class Block:
    """A field whose memory the function reads or writes: an argument, or one that it makes."""

    def __init__(self, slot: int, field: PencilArray, *, made: bool = False) -> None:
        self.slot = slot
        self.field = field
        self.made = made
        self.node: Placeholder  # the values now

    def shares(self, view: Any) -> bool:
        """Whether an array may have points of the field."""
        return np.may_share_memory(self.field.padded, view)


class Event(NamedTuple):
    """A call of a method of the field of a block, before a stage computes."""

    block: Block
    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    @property
    def topology(self) -> Topology | None:
        """The ranks that communicate, if they do."""
        return None if self.method == "fill_boundary" else self.block.field.pencil.topology


class Moved(NamedTuple):
    """One side of an assignment that moves points: a field of the call, or a constant one."""

    field: Field  # that of the trace, or the constant one
    memory: BlockView | None = None  # of one that is no constant

    @classmethod
    def of(cls, trace: Trace, field: Field) -> Moved:
        """Return the side of a traced field, which has memory, or of a constant one."""
        if not isinstance(field, Traced):
            return cls(field)
        memory = trace.view(field.node)
        return cls(PencilArray.in_frame(field.pencil, field.frame.bare, memory.view), memory)

    def find(self, values: Sequence[Any]) -> Field:
        """Return the field in a call, of whose blocks and other values these are."""
        if self.memory is None:
            return self.field
        block = self.memory.derive(values[self.memory.slot])
        return PencilArray.in_frame(self.field.pencil, self.field.frame, block)


class TraceStage(NamedTuple):
    """What happens between two times at which memory changes."""

    events: list[Event]
    stores: list[Store]


class Trace:
    """The stages of a function, while it is called with traced fields.

    Its passes are compiled if there is a C `compiler`. With `overlap`, stages compute while ghosts
    travel, as far as they can.
    """

    def __init__(self, compiler: str | None = None, *, overlap: bool = False) -> None:
        self.compiler, self.overlap = compiler, overlap
        self.blocks: list[Block] = []
        self.stages = [TraceStage([], [])]
        self.born: dict[Array, int] = {}  # the first stage in which a placeholder has its values,
        self.dies: dict[Array, int] = {}  # and the last one, if there is one
        self.arrays: dict[Array, Any] = {}  # arguments that are replicated data
        self._homes: dict[Array, Block] = {}  # of placeholders
        self.shifted: dict[Array, Block] = {}  # of computed values that were
        self._together: list[Block] = []  # of these, those that the exchange before has filled
        self.shown: set[Array] = set()  # computed values of which there are views
        self.converted: set[Array] = set()  # fields with a halo that are converted, without it
        self._among_events = True  # whether nothing was read or stored since the last event,
        self._stored = False  # and something was stored

    def add(self, field: PencilArray, *, made: bool = False) -> Traced:
        """Trace a field with memory of its own."""
        block = Block(len(self.blocks), field, made=made)
        self.blocks.append(block)
        self._renew(block, len(self.stages) - 1)
        return _made(field.pencil, field.frame, block.node)

    def add_array(self, array: Any) -> Placeholder:
        """Trace replicated data."""
        node = Placeholder(f"array {len(self.arrays)}", array.shape, array.dtype)
        self.arrays[node] = array
        return node

    def home(self, node: Array) -> Block | None:
        """Find the block that a node views."""
        return self._homes.get(viewed(node))

    def slot_of(self, node: Array) -> int:
        """Return the number of the block that a node views."""
        block = self.home(node)
        assert block is not None
        return block.slot

    def read(self, node: Array) -> Array:
        """Return the node of the values that a view has now, or of a value itself."""
        self._among_events = False
        block = self.home(node)
        if block is None:
            return node
        view = self.view(node).view
        for value, target in self.stages[-1].stores:
            if same_view(target.view, view) and value.shape == view.shape:
                return value
        if any(np.may_share_memory(store.target.view, view) for store in self.stages[-1].stores):
            self.begin_stage()
        return node if viewed(node) is block.node else same_views(node, block.node)

    def store(self, node: Array, value: Any) -> None:
        """Write a value to what a node views, converted to its type as NumPy assigns it."""
        if self.home(node) is None:
            raise ArgumentError(_NO_MEMORY)
        self._note_store()
        target = self.view(node)
        if not target.view.flags.writeable:
            raise ArgumentError("the field is read-only: pass a writable one")
        if not isinstance(value, Array):
            value = _as_node(value, node)
        if value.dtype != node.dtype:
            value = value.astype(node.dtype)
        stores = self.stages[-1].stores
        others = [one for one in stores if not same_view(one.target.view, target.view)]
        overlap = any(np.may_share_memory(one.target.view, target.view) for one in others)
        if overlap or {one.target.view.shape for one in stores} - {target.view.shape}:
            self.begin_stage()
            others = []
        self.stages[-1].stores[:] = [*others, Store(value, target)]

    def assign(self, node: Array, value: Any) -> None:
        """Write a value unless it is there, as in the second half of ``u[key] += 1``."""
        self._note_store()  # the same on ranks without points, where views look alike
        if not self._is_same(value, node):
            self.store(node, value)

    def _note_store(self) -> None:
        self._among_events, self._stored, self._together = False, True, []

    def event(self, node: Array, method: str, *arguments: Any, **options: Any) -> None:
        """Record a call that changes points of a field outside of the own block."""
        block = self._homes.get(node)
        if block is None:
            raise ArgumentError(
                f"{method}() in a fused function needs a whole field, an argument or a copy: call "
                "it before taking components, sections or shifted views"
            )
        _need_values(arguments, options)
        self._add_event(Event(block, method, arguments, options))

    def move(self, section: Traced, value: Field) -> None:
        """Record an assignment of a field whose points lie on other ranks than the section."""
        block = self.home(section.node)
        if block is None:
            raise ArgumentError(_NO_MEMORY)
        if isinstance(value, Traced) and self.home(value.node) is None:
            value = self.keep(value, value.node)
        sides = Moved.of(self, section), Moved.of(self, value)
        self._add_event(Event(block, ASSIGNMENT, sides, {}))
        # A rank that fails meets the others in this step.
        indexing.check_moved(*[side.field for side in sides])

    def keep(self, field: Traced, node: Array) -> Traced:
        """Store values of the points of a field in a block of their own."""
        frame = field.frame.bare
        block = frame.make(node.shape, node.dtype)
        new = self.add(PencilArray.in_frame(field.pencil, frame, block), made=True)
        self.store(new.node, node)
        return new

    def _add_event(self, event: Event) -> None:
        sharing = [one for one in self.blocks if one.shares(event.block.field.padded)]
        if not self._among_events:
            self.begin_stage()
        self._among_events, self._stored, self._together = True, False, []
        self.stages[-1].events.append(event)
        for one in {event.block, *sharing}:
            self._end(one)

    def begin_stage(self) -> None:
        """Begin a stage: the stores of the one before have been written."""
        stores = self.stages[-1].stores
        self.stages.append(TraceStage([], []))
        for block in self.blocks:
            if any(block.shares(store.target.view) for store in stores):
                self._end(block)

    def _end(self, block: Block) -> None:
        """Note that a block has other values from this stage on."""
        self.dies[block.node] = len(self.stages) - 2
        self._renew(block, len(self.stages) - 1)

    def view(self, node: Array) -> BlockView:
        """Return a view of the memory of a block."""
        if isinstance(node, Placeholder):
            block = self._homes[node]
            return BlockView(block.slot, block.field.padded)
        assert isinstance(node, Call)
        found = self.view(node.args[0]).then(node)
        assert found is not None
        return found

    def is_whole(self, field: Traced) -> bool:
        """Whether a traced field is all of its block."""
        block = self.home(field.node)
        if block is None or block.field.frame is not field.frame:
            return False
        return same_view(self.view(field.node).view, block.field.local)

    def _is_same(self, value: Any, node: Array) -> bool:
        """Whether a value is what a view has."""
        if not isinstance(value, Array):
            return False
        stored = [
            one.value
            for one in self.stages[-1].stores
            if same_view(one.target.view, self.view(node).view)
        ]
        if self.home(value) is None:
            return any(one is value for one in stored)
        return not stored and same_view(self.view(value).view, self.view(node).view)

    def with_memory(self, value: Traced) -> Traced:
        """Return the field of a computed value, stored with a halo whose ghosts are exchanged."""
        node = value.node
        if node in self.converted:
            raise ArgumentError(
                "fused functions do not convert ghosts, so a converted field cannot be shifted: "
                "shift first and convert the result"
            )
        if node not in self.shifted:
            halo = self._halo_of(value)
            field = PencilArray.allocated(
                value.pencil, node.dtype, value.components, value.singletons, halo, zero=True
            )
            new = self.add(field, made=True)
            block = self.shifted[node] = self.blocks[-1]
            if self._together and self._joins_exchange(field, node):
                self.stages[-2].stores.append(Store(node, self.view(new.node)))
                self.stages[-1].events.append(self.stages[-1].events[-1]._replace(block=block))
                self._together.append(block)
            else:
                stored = self._stored
                self.store(new.node, node)
                new.exchange_halo()
                self._together = [] if stored else [block]
        block = self.shifted[node]
        return _made(value.pencil, block.field.frame, block.node)

    def _joins_exchange(self, field: PencilArray, node: Array) -> bool:
        """Whether the stage before can store a value with others, whose ghosts are exchanged now.

        It has no other stores then. This follows from the lines alone: it is the same on all ranks.
        """
        first, now = self._together[0].field, len(self.stages) - 1
        alike = field.frame is first.frame and field.components == first.components
        return alike and all(self.born.get(one, 0) < now for one in in_order([node]))

    def _halo_of(self, value: Traced) -> Any:
        bare = value.frame.bare
        for block in self.blocks:
            frame = block.field.frame
            if frame.bare is bare and frame is not bare:
                return frame.halo
        raise ArgumentError(
            "a computed value is shifted, but no argument has a halo on these points: the widths "
            "of its halo follow from one"
        )

    def _renew(self, block: Block, stage: int) -> None:
        padded = block.field.padded
        block.node = Placeholder(f"block {block.slot}", padded.shape, padded.dtype)
        self._homes[block.node] = block
        self.born[block.node] = stage


def viewed(node: Array) -> Array:
    """Return the node that a chain of views begins with."""
    while isinstance(node, Call) and is_view(node):
        node = node.args[0]
    return node


def views_of(node: Array) -> tuple[View, ...]:
    """List the views of such a chain."""
    if not isinstance(node, Call) or not is_view(node):
        return ()
    return *views_of(node.args[0]), (node.func, node.args[1:], node.options)


def same_views(node: Array, base: Array) -> Array:
    """Return the views of such a chain, of another node."""
    for func, args, options in views_of(node):
        base = Call(*rules.view(func, (base, *args), options))
    return base


def _need_values(arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Ask for the values of numbers within lists: only numbers themselves are found in calls."""
    for one in (*arguments, *options.values()):
        if not isinstance(one, Number):
            repr(one)


def _as_node(value: Any, like: Array) -> Array:
    """Return a number, or a part of global data, as a node."""
    if isinstance(value, Number):
        return Call(rules.convert, (value,), {"dtype": like.dtype}, (), like.dtype)
    return filled(like.shape, np.asarray(value, like.dtype))


_LIBRARIES = {"pencils", "numpy"}
_WITH_OWN_ERRORS = "pencils.graph.", "pencils.array.creation"
# The function that is traced now, in this thread.
_now = threading.local()


def present() -> Trace:
    """Return the trace of the function that is called now."""
    trace: Trace | None = getattr(_now, "trace", None)
    if trace is None:
        raise RuntimeError(
            "this field was made in a fused function that has returned: return it from the "
            "function, or write it to an argument"
        )
    return trace


def is_tracing() -> bool:
    """Whether a function is traced now."""
    return getattr(_now, "trace", None) is not None


@contextmanager
def traced_call(trace: Trace) -> Iterator[None]:
    """Record the operations of traced fields in a trace."""
    before = getattr(_now, "trace", None)
    _now.trace = trace
    try:
        yield
    finally:
        _now.trace = before


class Operand(NamedTuple):
    """A field that is reduced, with the values that it has then."""

    field: Traced
    node: Array


class FieldReduction:
    """A reduction of fields, which is known when the function has returned it."""

    def __init__(
        self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> None:
        _need_values(arguments, options)
        for one in (*arguments, *options.values()):
            if isinstance(one, Array):
                raise TypeError(f"{name} in a fused function takes fields, not replicated arrays")
        self.name, self.function = name, function
        self.arguments = [_operand(one) for one in arguments]
        self.options = {key: _operand(one) for key, one in options.items()}
        if not self.operands:
            raise TypeError(f"{name} in a fused function needs a field among its arguments")

    @property
    def operands(self) -> list[Operand]:
        """The fields among the arguments."""
        given = (*self.arguments, *self.options.values())
        return [one for one in given if isinstance(one, Operand)]

    def _unknown(self, *_: object) -> NoReturn:
        raise TypeError(
            f"{self.name} in a fused function has no value until the function returns: return it "
            "and use it outside"
        )

    __bool__ = __float__ = __int__ = __complex__ = __index__ = __array__ = _unknown
    __str__ = __format__ = __hash__ = _unknown
    __eq__ = __ne__ = _unknown
    __pow__ = __rpow__ = __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = _unknown
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _unknown
    __truediv__ = __rtruediv__ = __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown
    __array_ufunc__ = _unknown


def _operand(value: Any) -> Any:
    return Operand(value, value.local) if isinstance(value, Traced) else value


class Traced(NDArrayOperatorsMixin, PencilArray):
    """A field in a fused function while it is traced: its block is a node."""

    __slots__ = ()

    @classmethod
    def in_frame(cls, *args: Any) -> Self:
        """Make a field of a node; note it if it is a view of a computed value."""
        new = super().in_frame(*args)
        node: Any = new._padded  # noqa: SLF001
        base = viewed(node)
        if base is not node and not isinstance(base, Placeholder):
            present().shown.add(base)
        return new

    @property
    def node(self) -> Array:
        """The node of the own block."""
        return self._local  # type: ignore[return-value]

    @property
    def local(self) -> Any:
        """The values of the own block now."""
        return present().read(self.node)

    @local.setter
    def local(self, values: Any) -> None:
        if isinstance(values, np.ndarray) or np.shape(values) not in {(), self.node.shape}:
            raise TypeError("u.local = array is not recorded: write u[...] = values")
        present().store(self.node, values)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.node.dtype

    # NumPy.

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "reduce" and ufunc in rules.REDUCING_UFUNCS:
            name = rules.REDUCING_UFUNCS[ufunc].__name__
            return FieldReduction(name, ufunc.reduce, *inputs, **kwargs)
        if method != "__call__" or ufunc.signature:
            name = f"numpy.{ufunc.__name__}.{method}".removesuffix(".__call__")
            raise TypeError(_cannot(name))
        if ufunc.nout > 1:
            if "out" in kwargs:
                raise TypeError(f"numpy.{ufunc.__name__} in a fused function takes no out=")
            parts = [_part_of(ufunc, number) for number in range(ufunc.nout)]
            return tuple([_recorded(part, inputs, kwargs) for part in parts])
        out = kwargs.pop("out", None)
        where = kwargs.pop("where", True)
        if where is not True and out is None:
            raise TypeError(
                "where= without out= leaves values undefined: write "
                "numpy.where(mask, values, others)"
            )
        return _apply(ufunc, inputs, kwargs, None if out is None else out[0], where=where)

    def __array_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        known = _FUNCTIONS.get(func)
        if known is not None:
            return known(*args, **kwargs)
        if rules.RULES.get(func) is not rules.elementwise:
            raise TypeError(_cannot(f"numpy.{func.__name__}"))
        out = kwargs.pop("out", None)
        return _apply(func, args, kwargs, out)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, Number):  # NumPy looks at the value
            bool(other)
        return _apply(operator.pow, (self, other), {})

    def __ipow__(self, other: Any) -> Any:
        if isinstance(other, Number):
            bool(other)
        return _apply(operator.pow, (self, other), {}, self)

    def become(self, node: Array) -> Traced:
        """Take other values, converted to the own type, as by ``u += 1``."""
        trace, own = present(), self.node
        alone = viewed(own) is own and own not in trace.shown  # views would not change with it
        if trace.home(own) or not alone or node.shape != own.shape:
            trace.store(own, node)  # raises for computed values
        else:
            changed: Any = node if node.dtype == own.dtype else node.astype(own.dtype)
            self._local = self._padded = changed
        return self

    def astype(self, dtype: DTypeLike) -> Traced:
        """Convert to another element type."""
        node, frame = self.local.astype(as_dtype(dtype)), self.frame
        if frame is not frame.bare:
            present().converted.add(node)
        return _made(self.pencil, frame.bare, node)

    # Views, and fields with memory of their own.

    @property
    def real(self) -> Traced:
        """Real part, a view."""
        return super().real if self.dtype.kind == "c" else self

    @property
    def imag(self) -> Traced:
        """Imaginary part, a view of complex numbers."""
        if self.dtype.kind == "c":
            return super().imag
        return _made(self.pencil, self.frame.bare, self.local.imag)

    def shift(self, offsets: Sequence[int], onto: Pencil | None = None) -> Traced:
        """View the field moved by offsets; a computed value is stored, and its halo exchanged."""
        trace = present()
        field = self if trace.home(self.node) else trace.with_memory(self)
        return shifts.shift(field, offsets, onto)

    def __getitem__(self, key: Any) -> Traced:
        if indexing.is_mask(key):
            return super().__getitem__(key)
        if find_picks(self, key) is not None:
            raise TypeError(
                "a fused function takes components one by one: write numpy.stack([u[0], u[2]]), "
                "and assign to one component after the other"
            )
        section = indexing.get_section(self, key)
        if hasattr(section, "base"):
            del section.base
        return section

    def __setitem__(self, key: Any, value: Any) -> None:
        if indexing.is_mask(key):
            if isinstance(value, Field):
                value = value.astype(self.dtype)
            elif not isinstance(value, Number):
                value = indexing.converted(value, self.dtype)[()]
            self[...] = np.where(key, value, self)
            return
        section = self[key]
        node = section.node
        if isinstance(value, Array):
            raise TypeError(
                "a fused function cannot assign replicated arrays: assign a field, such as "
                "u[...] = 0 * u + data"
            )
        if isinstance(value, Field) and not mixes(section, value):
            present().move(section, value)
            return
        if not isinstance(value, Number):
            value = indexing.part_of_value(self, key, section, value)
        present().assign(node, value)

    def copy(self) -> Traced:
        """Copy the field, halo included."""
        new = self.blank()
        trace = present()
        block = trace.home(self.node)
        if block is None:
            trace.store(new.node, self.node)
        else:
            trace.store(new._padded, trace.read(self._padded))  # type: ignore[arg-type]  # noqa: SLF001
        return new

    def blank(self, dtype: DTypeLike | None = None, *, zero: bool = False) -> Traced:
        """Make a field like this one."""
        kind = self.dtype if dtype is None else as_dtype(dtype)
        frame = self.frame
        if frame.trimmed:
            frame = frame_of(self.pencil, frame.singletons, frame.halo)
        shape = frame.shape_of(self.components, kind)
        field = PencilArray.in_frame(self.pencil, frame, frame.make(shape, kind, zero=True))
        del zero  # what nobody sets is 0 here
        return present().add(field, made=True)

    def fill(self, value: object) -> None:
        """Set every own point and every halo point to one value."""
        if not isinstance(value, Number):
            value = as_value("value", value, self.dtype)
        present().store(self._padded, value)  # type: ignore[arg-type]

    @staticmethod
    def record(
        function: Callable[..., Any],
        inputs: Sequence[Any],
        options: dict[str, Any],
        out: Any,
        where: Any,
    ) -> Traced:
        """Do what `elementwise` does, of which this is a part, for traced fields."""
        if where is not True:
            raise TypeError("where= is not recorded: write numpy.where(mask, values, others)")
        return _recorded(function, inputs, options, out[0] if isinstance(out, tuple) else out)

    # Ghosts.

    def exchange_halo(self, *, corners: bool = True) -> None:
        """Fill the ghosts: see `PencilArray.exchange_halo`."""
        present().event(self._padded, "exchange_halo", corners=corners)  # type: ignore[arg-type]

    def fill_boundary(self, *arguments: Any, **options: Any) -> None:
        """Fill boundary points: see `PencilArray.fill_boundary`."""
        present().event(self._padded, "fill_boundary", *arguments, **options)  # type: ignore[arg-type]

    def mark_written(self) -> None:
        """Do nothing: stores do, when the function runs."""

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a field has no values while a fused function is traced: choose with numpy.where, or "
            "reduce and branch outside the function"
        )

    def __repr__(self) -> str:
        return f"<traced field {self.shape} {self.dtype}>"


def _made(pencil: Pencil, frame: BlockLayout, node: Array) -> Traced:
    block: Any = node
    return Traced.in_frame(pencil, frame, block)


def _apply(
    func: Callable[..., Any],
    inputs: Sequence[Any],
    options: dict[str, Any],
    out: Any = None,
    *,
    where: Any = True,
) -> Traced:
    """Make the node of a function of elements."""
    fields = [one for one in (*inputs, where, out) if isinstance(one, Field)]
    pencil = common_pencil(fields)
    numbers = {place: one for place, one in enumerate(inputs) if isinstance(one, Number)}
    parts, singletons = local_parts(inputs, pencil, _own_part)
    node = func(*parts, **options)
    if not isinstance(node, Call):
        raise TypeError(_cannot(rules.name_of(func)))
    if numbers:  # their values now decide on types only
        args = tuple(numbers.get(place, arg) for place, arg in enumerate(node.args))
        node = replace(node, args=args)
    if out is None:
        return _made(pencil, frame_of(pencil, singletons), node)
    if not isinstance(out, Traced):
        raise TypeError(
            "out= in a fused function must be a field that is an argument of it, or made in it"
        )
    if where is not True:
        mask, along = _own_part(where, pencil)
        singletons &= along
        node = cast("Call", np.where(mask, cast("Any", node), out.local))
    check_fits(singletons, out, pencil)
    components = node.shape[: max(0, node.ndim - pencil.ndim)]
    if np.broadcast_shapes(components, out.components) != out.components:  # also without points
        raise ValueError(f"out has components {out.components}, but the result has {components}")
    if not np.can_cast(node.dtype, out.dtype, "same_kind"):
        raise TypeError(
            f"Cannot cast {rules.name_of(func)} output from {node.dtype!r} to {out.dtype!r} with "
            "casting rule 'same_kind'"
        )
    return out.become(node)


def _own_part(operand: Any, pencil: Pencil) -> tuple[Any, frozenset[int]]:
    """Return the own block of an operand, or the sample of a number, and its singletons."""
    if isinstance(operand, Array):
        key, singletons = key_of_data(operand.shape, pencil)
        return operand[key] if operand.ndim else operand, singletons
    return local_part(operand.sample if isinstance(operand, Number) else operand, pencil)


def _recorded(
    function: Callable[..., Any], inputs: Sequence[Any], options: dict[str, Any], out: Any = None
) -> Traced:
    """Make the node of a function of blocks, which NumPy calls between passes."""
    known = partial(function, **options) if options else function

    def record(*parts: Any) -> Call:
        return Call(*rules.elementwise(known, parts, {}))

    return _apply(record, inputs, {}, out)


@cache
def _part_of(ufunc: np.ufunc, number: int) -> Callable[..., Any]:
    """Return the function for one of the results of a ufunc."""

    def part(*operands: Any, **options: Any) -> Any:
        return ufunc(*operands, **options)[number]

    part.__name__ = ufunc.__name__
    return part


def _round(a: Any, decimals: Any = 0, out: Any = None) -> Traced:
    """Round floats to some decimals as NumPy does it: scaled to integers, and back."""
    if decimals == 0 or not isinstance(a, Traced) or a.dtype.kind != "f" or out is not None:
        return _apply(np.round, (a, decimals), {}, out)
    there, back = (np.multiply, np.divide) if decimals > 0 else (np.divide, np.multiply)
    factor = 10.0 ** abs(decimals)
    return cast("Traced", back(np.rint(there(a, factor)), factor))


def _copy_to(
    dst: Any,
    src: Any,
    casting: str = "same_kind",
    where: Any = True,  # noqa: FBT002 - NumPy's
) -> None:
    """Copy values to where a mask is true."""
    if not isinstance(dst, Traced) or casting != "same_kind":
        raise TypeError(_cannot(f"numpy.copyto to a {type(dst).__name__} with casting={casting!r}"))
    _apply(np.where, (where, src, dst), {}, dst)


def explained(error: BaseException) -> BaseException:
    """Return a clear error for one of a library function that does not take traced fields."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    # Functions that are timed are called by others.
    frames = [one for one in frames if one.f_globals.get("__name__") != makes_plan.__module__]
    modules = [str(frame.f_globals.get("__name__")) for frame in frames]
    ours = [name.partition(".")[0] in _LIBRARIES for name in modules]
    # By the lines of the function, or of one that it calls; the standard library may be in between.
    called = next(
        (
            at
            for at, name in enumerate(modules)
            if at and ours[at] and not ours[at - 1] and name != "pencils.graph.fused"
        ),
        None,
    )
    if called is None or not modules[called].startswith("pencils."):
        return error
    first, *others = frames[called].f_locals.values() or [None]
    is_method = isinstance(first, Traced) and modules[called].startswith("pencils.array.")
    if is_method or modules[called].startswith(_WITH_OWN_ERRORS):
        return error
    several = [[one, *one] if isinstance(one, list | tuple) else [one] for one in (first, *others)]
    several += [[*one.values()] for one in (first, *others) if isinstance(one, dict)]
    if not any(isinstance(one, Traced) for each in several for one in each):
        return error
    name = frames[called].f_code.co_qualname
    if isinstance(first, Field) and not isinstance(first, Traced) and "__init__" not in name:
        return TypeError(
            "a fused function writes to or reduces a field of an enclosing scope: pass it as an "
            "argument"
        )
    return TypeError(_cannot(name.removesuffix(".__init__")))


def _cannot(name: str) -> str:
    return (
        f"{name} cannot be fused, only elementwise functions and reductions of results: call it "
        "outside the function"
    )


def _by_record(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let plain fields compute a function by `elementwise`, which calls `Traced.record`."""
    return lambda *args, **options: apply_function(function, args, options)


# Reductions of several fields, or in `pencils.functions`, by what ranks agree on.
_REDUCTIONS: dict[Callable[..., Any], str] = {np.linalg.norm: "numpy.linalg.norm"} | {
    getattr(np, name): name
    for name in (
        *("vdot", "allclose", "array_equal", "average", "median", "quantile", "percentile"),
        *("nansum", "nanprod", "nanmin", "nanmax", "nanargmin", "nanargmax", "nanmean", "nanvar"),
        *("nanstd", "nanmedian", "nanquantile", "nanpercentile"),
    )
}
_OF_ELEMENTS = (
    *(np.select, np.piecewise, np.polyval, np.isin, np.digitize, np.searchsorted, np.interp),
    *(np.ones_like, np.full_like, getattr(np, "astype", np.full_like)),
)
# What traced fields do for NumPy's functions that are no rules of graphs.
_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    **QUERIES,
    **AS_METHODS,
    **{func: _by_record(func) for func in _OF_ELEMENTS},
    **{
        func: partial(FieldReduction, name, func)
        for func, name in (REDUCTIONS | _REDUCTIONS).items()
    },
    np.copyto: _copy_to,
    np.round: _round,
    np.around: _round,
}
_METHODS = {*REDUCTIONS.values(), "norm", "vdot"} & set(dir(PencilArray))


def _reduced(value: Traced, name: str, *arguments: Any, **options: Any) -> FieldReduction:
    return FieldReduction(name, getattr(PencilArray, name), value, *arguments, **options)


def _refused(name: str, _field: object) -> NoReturn:
    """Refuse a method of fields that fused functions do not have."""
    raise TypeError(_cannot(f"{name} of a field"))


_FUSED = {
    *("shape", "ndim", "size", "dtype", "nbytes", "itemsize", "components", "singletons", "halo"),
    *("pencil", "frame", "extent", "halo_room", "trimmed", "local", "padded", "local_shape"),
    *("local_slices", "global_box", "real", "imag", "component", "unstack", "conj", "conjugate"),
    *("clip", "round", "shift", "astype", "copy", "blank", "fill", "exchange_halo", "map_block"),
    *("fill_boundary", "mark_written", "from_block", "in_frame", "allocated"),
    *("node", "base", "lent", "shifts", "kept", "kind", "record", "become"),
}
for _name in _METHODS:
    setattr(Traced, _name, partialmethod(_reduced, _name))
for _name in set(dir(PencilArray)) - _FUSED - _METHODS:
    if not _name.startswith("_"):
        setattr(Traced, _name, property(partial(_refused, _name)))
