"""The base of reusable plans, and of verbs that keep them.

`Plan` is the base of plans that users make. Functions that find their plans by themselves are
`KeptVerb`, if a plan is made by all ranks together, with a `KeptCall` for calls in a loop, or
`LocalVerb`, if each rank makes it alone.

A call of a plan goes through the same steps everywhere::

    check        the arguments of this rank fit the plan
    prepare      slice the arrays and allocate what the call needs
    remember     the same arrays again find the prepared call
    agree        all ranks have come so far, with the same plan, or none of them continues
    run, start   move the data

A subclass provides `_describe` and `_release`, and passes `Plan._prepare` a function that checks
its arguments and prepares the call.

These are kept: plans of verbs, for each communicator (`kept_plans`), equal on all ranks, because
they change after agreements only; `KeptCall` and plans of a `LocalVerb`, with the pencil
(`Pencil.kept`), where ranks may differ; prepared calls of a plan, by the arrays
(`Plan._remembered`) or by their addresses.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

from pencils.comm.agree import FLAGGED, PreparedAgreement, agreed
from pencils.comm.memory import Array
from pencils.comm.mpi import Uncopied
from pencils.comm.pack import no_op
from pencils.comm.recording import timed
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Topology, attribute
from pencils.errors import ArgumentError
from pencils.layout.drawing import Blocks, Row, card, svg
from pencils.pencil import Bounded, Pencil

T = TypeVar("T")
P = TypeVar("P")
F = TypeVar("F")  # the type of a plan

# Calls that a plan remembers as prepared.
MOST_REMEMBERED = 16
# Places of blocks for which calls of one kind are prepared, before those with blocks of at most so
# many bytes go by way of blocks that stay: to prepare a call takes longer than to copy these.
MOST_PLACES, MOST_RELAYED = 8, 2**18
# Agreements on a call, each but the last followed by some setup.
_MOST_ROUNDS = 3
# Plans that are kept for each communicator; the least recently used one is freed first.
MOST_PLANS = 32


class NoAgreement(AbstractContextManager["NoAgreement"]):
    """Null agreement, used with ``check=False``: an error raises on its own rank only."""

    def __init__(self) -> None:
        self.flagged = False
        self.deferred = False

    def __call__(self, **_values: object) -> None:
        """Record nothing."""

    def dtype(self, dtype: np.dtype[Any] | None) -> None:
        """Record nothing."""

    def flag(self, *, up: bool) -> None:
        """Set a flag of this rank."""
        self.flagged = up

    def defer(self, *, up: bool) -> None:
        """Set the OR-reduced flag: setup needed."""
        self.deferred = up

    def __exit__(self, *_: object) -> None: ...


Agreement = agreed | NoAgreement


def prepare_together(
    agree: Agreement,
    bind: Callable[[Agreement], P | None],
    set_up: Callable[[], object] = no_op,
    settled: Callable[[], bool] | None = None,
) -> P:
    """Agree on a call and prepare it, so that it either runs on all ranks or raises on all.

    Parameters
    ----------
    agree : Agreement
        The context in which the ranks agree; leaving it is *Collective*.
    bind : callable
        Checks the arguments, allocates all memory of the call, and returns the prepared call;
        local. It returns None if the call first needs something that only all ranks together can
        make.
    set_up : callable
        Makes that, after which the ranks agree again. *Collective*.
    settled : callable, optional
        Tells, by what all ranks have agreed on, whether the call can run, the same on all ranks.
        Default: unless `bind` has returned None, or set the flag for setup, on any rank.
    """
    for _ in range(_MOST_ROUNDS):
        prepared = None  # the memory of the last attempt
        with agree:
            prepared = bind(agree)
            if prepared is None:
                agree.defer(up=True)
        if (settled() if settled else not agree.deferred) and prepared is not None:
            return prepared
        set_up()
        agree.defer(up=False)
    raise AssertionError("a call could not be prepared with what was made for it")


class Freeable(Uncopied, ABC):
    """An object that owns memory or MPI objects: freed by `free`, or by a ``with`` block."""

    @abstractmethod
    def free(self) -> None:
        """Complete what is under way and release memory and MPI objects."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


class Remembered(dict[tuple[Any, ...], tuple[T, list[Any], list[Array]]]):
    """Prepared calls, by the arrays they are for, while all of these live.

    There are at most `most`: all are dropped for one more.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def find(self, key: tuple[Any, ...]) -> T | None:
        """Find the call that has this key; None, too, if an output has become read-only."""
        found = self.get(key)
        if found is None:
            return None
        prepared, _, outputs = found
        for block in outputs:
            if not block.flags.writeable:
                return None
        return prepared

    def add(
        self,
        key: tuple[Any, ...],
        prepared: T,
        arrays: Sequence[object | None],
        outputs: Sequence[Array] = (),
    ) -> None:
        """Keep a call while all the arrays live; the key has their ids, which mean nothing then.

        The call writes to the blocks `outputs`, which belong to these arrays.
        """
        if len(self) >= self._most:
            self.clear()
        # No reference cycle: the memory of what is dropped is released at once.
        forget = weakref.WeakMethod(self._forget)

        def gone(_: object) -> None:
            living = forget()
            if living is not None:
                living(key)

        refs = [weakref.ref(array, gone) for array in arrays if array is not None]
        self[key] = prepared, refs, list(outputs)

    def _forget(self, key: tuple[Any, ...]) -> None:
        self.pop(key, None)


def relays(known: Sized, blocks: Iterable[Array]) -> bool:
    """Whether blocks that are not among the known places are copied to and from others; local.

    Where malloc puts small results follows from all that a program allocates.
    """
    return len(known) >= MOST_PLACES and all(block.nbytes <= MOST_RELAYED for block in blocks)


class Relayed(NamedTuple):
    """An exchange by way of blocks for which it is prepared, with steps of a `PreparedPull`."""

    move: Any
    before: tuple[Array, Array]
    after: tuple[Array, Array]

    def pack(self) -> None:
        """Copy and pack the source; local."""
        np.copyto(*self.before)
        self.move.pack()

    def run(self) -> None:
        """Copy the source, move it, and copy it to the target. *Collective*."""
        np.copyto(*self.before)
        self.move.run()
        np.copyto(*self.after)

    def run_agreed(self) -> None:
        """Move what was packed, after all ranks have agreed. *Collective*."""
        self.move.run_agreed()
        np.copyto(*self.after)


class Plan(Freeable, Generic[T]):
    """Base class of reusable plans. A subclass sets what `_describe` reads before ``__init__``.

    Parameters
    ----------
    topology : Topology
        The ranks that take part.
    check : bool
        Whether all ranks agree on every call, so that an error on one rank raises on all.
    """

    most_remembered = MOST_REMEMBERED

    def __init__(self, topology: Topology, *, check: bool) -> None:
        self._topology = topology
        self._check = check
        self._freed = False
        self._agreements: dict[str, PreparedAgreement] = {}  # by name of a method
        self._remembered: Remembered[T] = Remembered(self.most_remembered)
        # Two plans may have one text: they differ by matrices or positions.
        self._number = next(topology.plan_numbers)
        self._text = self._describe()

    @abstractmethod
    def _describe(self) -> str:
        """Return the text of ``repr``: the same on all ranks."""

    @abstractmethod
    def _release(self) -> None:
        """Release what the plan owns; `free` calls this once."""

    def __repr__(self) -> str:
        return self._text

    def _card(self, ends: Sequence[tuple[Pencil, Any]], rows: Sequence[Row]) -> str:
        """Return a card about what moves between pencils, as fields of these specs; local."""
        blocks = [
            Blocks(pencil.extent(spec.singletons), spec.components, spec.dtype.itemsize)
            for pencil, spec in ends
        ]
        pencil, _ = ends[0]
        each = zip(*((x.grid, *x.shapes, x.indices, *x.amounts) for x in blocks), strict=True)
        grids, wholes, shapes, indices, amounts, parts = each
        table = [
            ("", *("from", "to")[: len(ends)]),
            ("shape", *wholes),
            ("bytes", *amounts),
            ("dtype", *(str(spec.dtype) for _, spec in ends)),
            ("process grid", *grids),
            (f"rank {pencil.rank} of {pencil.size}", *indices),
            ("its shape", *shapes),
            ("its bytes", *parts),
            *rows,
        ]
        return card(type(self).__name__, table, *(svg(p.layout, p.rank) for p, _ in ends))

    @property
    def freed(self) -> bool:
        """Whether the plan was freed."""
        return self._freed

    def free(self) -> None:
        """Complete what is under way and release memory and MPI objects.

        *Collective* if anything is under way. A second call does nothing.
        """
        if not self._freed:
            self._freed = True
            self._remembered.clear()
            self._release()

    def _agreement(self, call: str) -> Agreement:
        """Return the context in which ranks agree on a call. *Collective* if the plan checks."""
        if self._topology.freed:
            raise ArgumentError(self._freed_text)
        if not self._check:
            return NoAgreement()
        return self._row(call).block()

    def _row(self, call: str) -> PreparedAgreement:
        """Return the agreement on a call, which is prepared once."""
        row = self._agreements.get(call)
        if row is None:
            name = f"{type(self).__name__}.{call}"
            row = self._agreements[call] = PreparedAgreement(
                self._topology.comm, name, plan=self._text, **{"which plan": self._number}
            )
        return row

    def _prepare(
        self, call: str, bind: Callable[[Agreement], P | None], set_up: Callable[[], object] = no_op
    ) -> P:
        """Agree on a call and prepare it: see `prepare_together`."""

        def checked(agree: Agreement) -> P | None:
            self._check_open()
            return bind(agree)

        return prepare_together(self._agreement(call), checked, set_up)

    def _check_together(self, call: str) -> None:
        """Agree that all ranks call a method of this plan, which is open. *Collective*."""
        with agreed(self._topology.comm, f"{type(self).__name__}.{call}") as agree:
            agree(plan=self._text)
            self._check_open()

    def _check_open(self) -> None:
        """Raise if the plan or its communicator was freed."""
        if self._freed or self._topology.freed:
            raise ArgumentError(self._freed_text)

    @property
    def _freed_text(self) -> str:
        return f"this {type(self).__name__}, or its communicator, was freed; make a new one"

    def _found(self, key: tuple[Any, ...]) -> T | None:
        """Find the prepared call that has this key; None, too, if the communicator was freed."""
        return None if self._topology.freed else self._remembered.find(key)


# Of each communicator: plans that verbs keep, memory that these share, and the methods that were
# fastest when measured, by what is moved.
kept_plans = attribute(OrderedDict[Any, Any])
plan_buffers = attribute(Buffers)
fastest_methods = attribute(dict[Any, Any])


def kept_plan(topology: Topology, key: object, make: Callable[[], Any]) -> Any:
    """Find the plan that verbs keep under `key`, or make it. *Collective*."""
    plans = kept_plans(topology)
    if key not in plans:
        plans[key] = timed("plan", make)
        if len(plans) > MOST_PLANS:
            plans.popitem(last=False)[1].free()
    plans.move_to_end(key)
    return plans[key]


def kept_agreement(
    pencil: Pencil,
    verb: str,
    key: object = None,
    values: Mapping[str, object] = MappingProxyType({}),
) -> PreparedAgreement:
    """Return the agreement on a verb that the pencil keeps for a key, or make it; local.

    All ranks must agree on the pencil, and on `values`, which follow from the key.
    """
    found: PreparedAgreement | None = pencil.kept[verb].get(key)
    if found is None or pencil.topology.freed:
        found = PreparedAgreement(pencil.topology.comm, verb, pencil=pencil, **values)
        pencil.kept[verb].add(key, found)
    return found


# What a kept plan depends on.
PlanKey: TypeAlias = tuple[Any, ...]


class KeptVerb(ABC, Generic[F, P]):
    """A call of a verb whose plans are kept, on one rank.

    A subclass is a verb: it states how to read the arguments (`signature`), how to make a plan for
    them (`make`), and how to prepare the plan for these arguments (`bind`). `prepare` finds or
    makes the plan, and returns what `bind` has prepared, once all ranks agree.

    The ranks agree on each call by one collective, whether they find a plan or not. So they may
    take different ways; what they do next follows from what they agree on. Here all ranks make a
    plan together, after the first agreement, if any of them lacks it; see also `LocalVerb`.

    Parameters
    ----------
    name : str
        The verb, as users call it.
    topology : Topology
        The ranks that take part.
    agree : agreed, optional
        The block of an agreement that is prepared.
    """

    def __init__(self, name: str, topology: Topology, agree: agreed | None = None) -> None:
        self.topology = topology
        self.agree = agreed(topology.comm, name) if agree is None else agree
        self.key: PlanKey = ()  # of the plan, once the arguments are checked

    @abstractmethod
    def signature(self, agree: Agreement) -> PlanKey:
        """Check the arguments, record what ranks must agree on, return the key of the plan."""

    @abstractmethod
    def make(self) -> F:
        """Make the plan. *Collective*."""

    @abstractmethod
    def bind(self, plan: F) -> P | None:
        """Prepare the plan for the arguments; None if `set_up` must come first. Local.

        It may set flags of the agreement, and send a value along.
        """

    def settled(self) -> bool:
        """Whether the call can run, by the flags and values of all ranks; the same on all."""
        return not self.agree.deferred

    def set_up(self, plan: F) -> None:
        """Make what the plan lacks, and complete what is under way. *Collective*."""

    def prepare(self, flags: int | None = None) -> P:
        """Agree and prepare. *Collective*.

        `flags` are those of an agreement on this call before, by which some ranks need setup.
        """
        if flags is not None:
            self.agree.flag(up=bool(flags & FLAGGED))
            self._set_up()
        prepared = prepare_together(self.agree, self._bind, self._set_up, self.settled)
        plans = kept_plans(self.topology)
        plans.move_to_end(self.key)
        self.key = next(reversed(plans))  # the same object for all calls
        return prepared

    def _bind(self, agree: Agreement) -> P | None:
        self.key = self.signature(agree)
        plan = kept_plans(self.topology).get(self.key)
        return None if plan is None else self.bind(plan)

    def _set_up(self) -> None:
        if not self.key:
            self.key = self.signature(NoAgreement())
        self.set_up(kept_plan(self.topology, self.key, self.make))


class LocalVerb(KeptVerb[F, P]):
    """A call of a verb whose plans each rank makes alone, before the first agreement.

    A plan is kept with the pencil, together with the agreement on it, which follows from the key:
    calls of which the key is known before their arguments are read begin with `bind`.

    Parameters
    ----------
    name : str
        The verb, as users call it.
    topology : Topology
        The ranks that take part.
    pencil : Pencil, optional
        Where plans are kept.
    key : PlanKey, optional
        The key of the plan, if it is known.
    """

    def __init__(
        self,
        name: str,
        topology: Topology,
        pencil: Pencil | None = None,
        key: PlanKey | None = None,
    ) -> None:
        self._kept = Bounded() if pencil is None or topology.freed else pencil.kept[name]
        self.plan: F | None
        self.plan, agreement = self._kept.get(key, (None, None))
        super().__init__(name, topology, agreement and agreement.block())

    def prepare(self, flags: int | None = None) -> P:  # noqa: ARG002 - there was no agreement
        """Agree and prepare. *Collective*."""
        return prepare_together(self.agree, self._bind, self._set_up, self.settled)

    def _bind(self, agree: Agreement) -> P | None:
        if self.plan is None:
            key = self.signature(agree)
            found = self._kept.get(key)
            if found is None:
                found = self.make(), self.agree.prepared()
            self._kept.add(key, found)
            self.plan = found[0]
        return self.bind(self.plan)

    def _set_up(self) -> None:
        assert self.plan is not None
        self.set_up(self.plan)


class KeptCall(Generic[F]):
    """Calls of a verb in a loop: the plan and the agreement are found without reading arguments.

    Parameters
    ----------
    topology : Topology
        The ranks that take part.
    key : PlanKey
        The key of the plan, as it is kept.
    agreement : PreparedAgreement
        That on these calls.
    waits : bool
        Whether a call may only begin when no older exchange is under way.
    other : Topology, optional
        That of results, if they may be on another, congruent communicator.
    """

    __slots__ = ("agreement", "key", "other", "plan", "plans", "topology", "under_way")

    def __init__(
        self,
        topology: Topology,
        key: PlanKey,
        agreement: PreparedAgreement,
        *,
        waits: bool,
        other: Topology | None = None,
    ) -> None:
        self.topology = topology
        self.other = topology if other is None else other
        self.key = key
        self.agreement = agreement
        self.plans = kept_plans(topology)
        self.plan: F = self.plans[key]
        self.under_way: Sized = topology.under_way if waits else ()

    def fits(self, out: Any = None, kind: type[Any] | None = None) -> bool:
        """Whether the plan is there, and ranks agree on this communicator, whatever `out` is.

        `out` is a field to fill, of this type.
        """
        plan: Any = self.plan
        if plan.freed or self.topology.freed or self.other.freed or self.under_way:
            return False
        return out is None or (type(out) is kind and out.pencil.topology is self.other)

    def touch(self) -> None:
        """Note that the plan was used last, after all ranks have agreed."""
        if next(reversed(self.plans)) is not self.key:  # comparing keys takes longer
            self.plans.move_to_end(self.key)


def set_fastest(topology: Topology, key: object, value: object) -> None:
    """Set what ``"auto"`` uses, and free the plans that were kept before. *Collective*."""
    fastest_methods(topology)[key] = value
    plans = kept_plans(topology)
    while plans:
        plans.popitem()[1].free()
