"""Transposes: the reusable plan `Transposition`.

1. `Transposition.prepared_one` slices the own blocks for each message, unless it has done so
   before.
2. Small blocks are packed (`pencils.comm.methods.pull`), and all ranks agree on the arguments.
3. Ranks pull the blocks of others; or a prepared exchange packs, sends, receives and unpacks:
   `pencils.comm.exchange`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import (
    Array,
    BlockType,
    as_components,
    as_dtype,
    as_singletons,
    memory_axes,
)
from pencils.array.base import checks
from pencils.array.operands import FieldSpec, check_out, check_source, check_writeable
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import DEFERRED, PreparedAgreement, agreed
from pencils.comm.exchange import AUTO, Exchange, Handle, PreparedExchange, check_method
from pencils.comm.memory import borrowed, place
from pencils.comm.methods.pull import MOST_STAGED, PreparedPull, Pull
from pencils.comm.pack import MessageSpec, no_op
from pencils.comm.recording import makes_plan
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError
from pencils.layout import Layout, Traffic
from pencils.layout.integers import as_int
from pencils.pencil import Bounded, Pencil
from pencils.plans import Agreement, Plan, Relayed, fastest_methods, relays
from pencils.transposition.sides import Side, agree_on_sides, message_blocks

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

# A transpose of given blocks, prepared.
Move: TypeAlias = PreparedPull | PreparedExchange
# Fields of a call; None on processes that the pencil of the field does not include.
Fields: TypeAlias = Sequence[PencilArray | None]
Prepared: TypeAlias = tuple[Move, list[PencilArray | None]]
Allocate: TypeAlias = Callable[[], PencilArray | None]


class PlanOptions(NamedTuple):
    """How a plan works."""

    method: str
    max_buffer_bytes: int | None
    check: bool
    synchronizes: bool  # whether a start may wait for all ranks


class Transposition(Plan[Move]):
    """Reusable plan that moves fields between two pencils. Making it is *Collective*.

    The pencils may differ in decomposed dimensions, process grid, splits, memory order and
    processes. Sources and targets may have halos, which are neither read nor written, and may share
    memory. Fields in shared memory (``shared=True``, or those of `buffers`) save a copy on every
    node.

    Parameters
    ----------
    source, target : Pencil or None
        Pencils of the same global shape. A process that a pencil does not include passes None.
    dtype : dtype, optional
        Element type.
    components : int or sequence of int, optional
        Shape of the component axes; one message contains all components.
    dims : int or sequence of int, optional
        Dimensions along which the fields vary; they are singletons along the others.
    method : str, optional
        "shared": ranks of a node read from each other through shared memory. "hybrid": the same,
        with messages between nodes. "gathered": the same, with all small pieces from one node to
        another in one message. "messages": point-to-point messages between the ranks that share
        points. "alltoallw": one collective with datatypes of MPI. "auto": the method that `tune`
        found fastest for these pencils, else shared memory between ranks of one node and messages
        between nodes. Small fields on one node are then packed, and pulled by the ranks that need
        them ("pull"), which takes one synchronization of all ranks instead of two. `start` without
        checks uses the other method, because it waits for nobody.
    max_buffer_bytes : int, optional
        Most bytes that each rank packs at once; data are then moved in several chunks. Default: all
        data that the rank sends, and for messages also all that it receives. More than 24 MiB
        that go through shared memory travel in ten turns, unless both fields share memory.
    check : bool, optional
        Whether all ranks compare the arguments of every call, and all raise if one is wrong.
        Without it, a call communicates nothing but the data.
    comm : mpi4py.MPI.Intracomm, optional
        All processes of both pencils. Default: those of the pencil that has more.

    Attributes
    ----------
    method : str
        The method in use.
    source, target : Pencil or None
        The pencils, as they were given.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if the pencils or other arguments do not fit.

    Examples
    --------
    >>> import pencils
    >>> rows = pencils.Pencil((8, 6), decomp=0)
    >>> columns = rows.with_(decomp=1)
    >>> u, v = pencils.ones(rows), pencils.empty(columns)
    >>> with Transposition(rows, columns) as plan:
    ...     handle = plan.start(u, v)  # compute something else here
    ...     handle.wait().sum()
    np.float64(48.0)
    """

    @makes_plan
    def __init__(
        self,
        source: Pencil | None,
        target: Pencil | None,
        dtype: DTypeLike = float,
        *,
        components: int | Sequence[int] = (),
        dims: Sequence[int] | int | None = None,
        method: str = AUTO,
        max_buffer_bytes: int | None = None,
        check: bool = True,
        comm: MPI.Intracomm | None = None,
    ) -> None:

        def read(agree: agreed, ndim: int) -> tuple[FieldSpec, PlanOptions]:
            singletons = as_singletons(ndim, dims)
            spec = FieldSpec(as_dtype(dtype), as_components(components), singletons)
            most = max_buffer_bytes
            if most is not None:
                most = as_int("max_buffer_bytes", most, least=1)
            options = PlanOptions(check_method(method), most, check, synchronizes=check)
            agree(**spec.signature, **options._asdict())
            return spec, options

        topology, sides, (spec, options) = agree_on_sides(comm, source, target, read)
        self._set(sides, spec, options, topology, Buffers())

    @classmethod
    def for_spec(
        cls,
        source: Pencil,
        target: Pencil,
        spec: FieldSpec,
        method: str,
        *,
        buffers: Buffers | None = None,
        max_buffer_bytes: int | None = None,
        check: bool = False,
    ) -> Transposition:
        """Make a plan from arguments that all ranks agree on. *Collective*.

        Without `check`, the caller makes sure that all ranks have memory for a call.
        """
        sides = Side.of(source), Side.of(target)
        options = PlanOptions(method, max_buffer_bytes, check, synchronizes=True)
        plan = object.__new__(cls)
        plan._set(sides, spec, options, source.topology, buffers or Buffers())
        return plan

    def _set(
        self,
        sides: tuple[Side, Side],
        spec: FieldSpec,
        options: PlanOptions,
        topology: Topology,
        buffers: Buffers,
    ) -> None:
        self._sides = sides
        self.source, self.target = sides[0].pencil, sides[1].pencil
        self.spec = spec
        self._options = options
        self._axes = memory_axes(sides[1].layout.order, len(spec.components))
        self._buffers = buffers
        self._nothing = np.empty((*spec.components, *(0,) * sides[0].layout.ndim), spec.dtype)
        # Of the last source, and of the last output, that have passed the checks.
        self._kind: BlockType | None = None
        self._out_kind: BlockType | None = None
        self._maker: Allocate | None = None  # of outputs, made where ranks agree on errors
        self._moves = Bounded()  # prepared, by the places of blocks
        self._relay: tuple[Array, Array, Move] | None = None
        self._buffer_fields: tuple[PencilArray, PencilArray] | None = None
        self._method = options.method
        if self._method == AUTO:
            key = method_key(sides[0].layout, sides[1].layout, spec)
            self._method = fastest_methods(topology).get(key, AUTO)
        self.pull = self._find_pull(topology)
        self._exchange: Exchange | None = None
        if self.pull is None or not options.synchronizes:
            self._exchange = self._make_exchange(topology)
        self.method = self._exchange.method if self.pull is None and self._exchange else Pull.name
        super().__init__(topology, check=options.check)

    def _find_pull(self, topology: Topology) -> Pull | None:
        """Make the plan to pull small blocks. *Collective*.

        None if they are too large or too far, or another method was named or measured.
        """
        if self._method != AUTO or self._options.max_buffer_bytes is not None:
            return None
        pull = Pull.find(topology, [self._messages(1)])
        # Larger ones are faster through an exchange.
        mean = MOST_STAGED - MOST_STAGED // topology.comm.size**2
        return pull if pull is not None and pull.most and pull.fits(1, mean) else None

    def _make_exchange(self, topology: Topology) -> Exchange:
        """Make what moves large blocks, in as many chunks as buffers demand. *Collective*."""
        chunks, most = 1, self._options.max_buffer_bytes
        if most is not None:
            points = max(
                side.with_singletons(self.spec.singletons).box.volume for side in self._sides
            )
            nbytes = points * prod(self.components) * self.dtype.itemsize
            chunks = topology.most(max(1, -(-nbytes // most)))
        messages = self._messages(chunks)
        if chunks > 1:
            blocks = (*messages.sends, *messages.recvs)
            chunks = topology.most(1 + max((block.chunk for block in blocks), default=0))
        return Exchange(
            topology,
            [messages],
            axes=self._sides[0].layout.ndim,
            method=self._method,
            chunks=chunks,
            buffers=self._buffers,
        )

    def _messages(self, chunks: int) -> MessageSpec:
        """Slice the own blocks for every message, axes in the memory order of the target."""
        source, target = (side.with_singletons(self.spec.singletons) for side in self._sides)
        blocks = message_blocks(source, target, self._sides[1].layout.order, chunks)
        return MessageSpec(*blocks, self.components, self.dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.spec.dtype

    @property
    def components(self) -> tuple[int, ...]:
        """Shape of the component axes."""
        return self.spec.components

    @property
    def memory(self) -> int:
        """Bytes of this rank that are kept for packing, for this plan and its `reversed`."""
        return 0 if self._freed else self._buffers.nbytes

    def __call__(self, u: PencilArray | None, out: PencilArray | None = None) -> PencilArray:
        """Move `u` to the target pencil. *Collective*.

        Parameters
        ----------
        u : PencilArray or None
            Field on the source pencil, with the dtype, components and singletons of the plan; None
            on a process that this pencil does not include.
        out : PencilArray, optional
            Field on the target pencil to fill; default: a new one without halo.

        Returns
        -------
        PencilArray
            `out`; None on a process that the target pencil does not include.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            If a field does not fit the plan; on every rank, unless the plan does not check.
        """
        if self._check and not (self._freed or self._topology.freed or self.needs_setup(1)):
            found = self.agree_on(self._row("__call__"), u, out, self._new)
            if found is not None:
                move, target = found
                unset_ghosts([target])
                move.run_agreed()
                return cast("PencilArray", target)
            self.set_up(1)  # other ranks need it
        if self._check:
            return self._move("__call__", [u], [out])[0]
        key = id(u), id(out)
        known, target = self._found(key), out
        if known is None:
            self._check_open()
            known, target = self._checked_one(u, out, self._new)
            if out is not None:  # the same fields need no checks again
                self._remembered.add(key, known, [u, out], [out.local])
        unset_ghosts([target])
        known.run()
        return cast("PencilArray", target)

    def agree_on(
        self, row: PreparedAgreement, u: PencilArray | None, out: PencilArray | None, new: Allocate
    ) -> tuple[Move, PencilArray | None] | None:
        """Check and pack one field, and agree on this with all ranks. *Collective*.

        This rank needs no setup; the result is None if another one does. `new` makes the output if
        there is none.
        """
        error = None
        try:  # as `attempt` does, but without another call
            found = self._checked_one(u, out, new)
            found[0].pack()
        except Exception as mistake:  # noqa: BLE001 - raised on all ranks
            error = mistake
        flags = row.meet(error)
        return None if flags & DEFERRED else found

    def _checked_one(
        self, u: PencilArray | None, out: PencilArray | None, new: Allocate
    ) -> tuple[Move, PencilArray | None]:
        """Check one field and its output, or make one, and slice their blocks; local."""
        kind = u.kind if type(u) is PencilArray else None
        if kind is None or kind is not self._kind:
            check_source(u, self.source, self.spec)
            self._kind = kind
        kind = out.kind if type(out) is PencilArray else None
        if out is None or kind is None or kind is not self._out_kind:
            check_out(out, self.target, self.spec)
            self._out_kind = kind
        else:
            check_writeable(out, "out")
        target = new() if out is None else out
        return self._bound([self._block(u)], [self._block(target)], relayed=True), target

    def start(self, u: PencilArray | None, out: PencilArray | None = None) -> Handle[PencilArray]:
        """Start moving `u`, as a call does, and return before it is done. *Collective*.

        Neither field may be touched before ``wait()`` of the returned handle, which all ranks
        must call and which returns `out`. Several exchanges may be under way, of this plan and of
        others; no other collective call should come between waits that ranks make in different
        orders.
        """
        bound, (target,) = self._prepare_fields("start", [u], [out])
        return bound.start(cast("PencilArray", target), sources=u, agreed=self._check)

    def batch(self, us: Fields, outs: Fields | None = None) -> list[PencilArray]:
        """Move several fields in one exchange, with one synchronization of ranks. *Collective*.

        Parameters
        ----------
        us : sequence of PencilArray
            Fields as for a call; the same number on every rank.
        outs : sequence of PencilArray, optional
            Fields to fill, one for each; default: new ones.

        Returns
        -------
        list of PencilArray
            `outs`.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            As a call, and if `outs` has another length than `us`.
        """
        return self._move("batch", us, outs)

    def buffers(self) -> tuple[PencilArray, PencilArray]:
        """Return fields of the plan, one on each pencil, that it moves fastest. *Collective*.

        They are in shared memory, and are made by the first call. If the communicator of a pencil
        is not that of the plan, its field is packed like a private one.

        Returns
        -------
        source, target : PencilArray
            The same ones every time, with values that are not set; None where the pencil does not
            include this process.
        """
        self._check_together("buffers")
        if self._buffer_fields is None:
            pair = tuple(
                None if pencil is None else PencilArray.allocated(pencil, *self.spec, shared=True)
                for pencil in (self.source, self.target)
            )
            self._buffer_fields = cast("tuple[PencilArray, PencilArray]", pair)
        return self._buffer_fields

    def off_node(self) -> Traffic:
        """Count what all ranks send to other nodes in a call. *Collective*.

        `pencils.layout.off_node` predicts it for any layouts and any number of ranks.

        Returns
        -------
        Traffic
            Number of messages, and of bytes, the same on every rank. Blocks of more than 256 KiB
            count as one message, although they may travel in pieces.
        """
        self._check_together("off_node")
        return Traffic(0, 0) if self.pull is not None else self.exchange().off_node()

    def reversed(self) -> Transposition:
        """Return a plan from target to source that shares the memory of this one. *Collective*."""
        self._check_together("reversed")
        back = object.__new__(Transposition)
        back._set(self._sides[::-1], self.spec, self._options, self._topology, self._buffers)
        return back

    def _release(self) -> None:
        self._buffer_fields = None
        self._moves.clear()
        self._relay = None
        if self._exchange is not None:
            self._exchange.free()
        self._buffers = Buffers()  # a freed plan that is still referenced keeps no memory

    def _describe(self) -> str:
        dtype, components, singletons = self.spec
        text = f"<Transposition of {dtype}"
        text += f", components={components}" if components else ""
        text += f", singleton along {sorted(singletons)}" if singletons else ""
        text += f" by {self.method}"
        most = self._options.max_buffer_bytes
        if most is not None:
            text += f" in {self.exchange().chunks} chunks, max_buffer_bytes={most}"
        source, target = self._sides
        return f"{text}\n  from {source}\n  to   {target}>"

    def _repr_html_(self) -> str:
        """Return a table and pictures for notebooks, of both pencils; local."""
        pencils = [pencil for pencil in (self.source, self.target) if pencil is not None]
        return self._card([(pencil, self.spec) for pencil in pencils], [("method", self.method)])

    def _move(self, call: str, us: Fields, outs: Fields | None) -> list[PencilArray]:
        bound, targets = self._prepare_fields(call, us, outs)
        if self._check:
            bound.run_agreed()
        else:
            bound.run()
        return cast("list[PencilArray]", targets)

    def _prepare_fields(self, call: str, us: Fields, outs: Fields | None) -> Prepared:
        """Check and slice fields; pack and agree with all ranks, if the plan does that."""
        started = call == "start"

        def bind(agree: Agreement) -> Prepared | None:
            nonlocal us, outs
            us = list(us)  # an iterator gives them once, but this may be called twice
            outs = None if outs is None else list(outs)
            if call == "batch":
                agree(fields=len(us))
            if self.needs_setup(len(us), started=started):
                return None
            targets = [None] * len(us) if outs is None else outs
            if len(us) != len(targets):
                raise ArgumentError(
                    f"batch() got {len(us)} fields to move, but {len(targets)} to fill"
                )
            for u, out in zip(us, targets, strict=True):
                check_source(u, self.source, self.spec)
                check_out(out, self.target, self.spec)
            targets = [self._new() if out is None else out for out in targets]
            blocks = list(map(self._block, us)), list(map(self._block, targets))
            move = self._bound(*blocks, started=started)
            if self._check:
                move.pack()
            return move, targets

        move, targets = self._prepare(call, bind, lambda: self.set_up(len(us)))
        unset_ghosts(targets)
        return move, targets

    def prepared_one(self, u: PencilArray | None, out: PencilArray | None) -> Move:
        """Slice the blocks of one field and its output, which fit the plan; local."""
        return self._bound([self._block(u)], [self._block(out)])

    def exchange(self) -> Exchange:
        """Return the exchange for large blocks. *Collective* the first time."""
        if self._exchange is None:
            self._exchange = self._make_exchange(self._topology)
        return self._exchange

    def _pull_for(self, fields: int, *, started: bool = False) -> Pull | None:
        """Return what so many fields are pulled by, if they are.

        Where a start must not wait for all ranks, fields are not pulled by one.
        """
        pull = self.pull
        if pull is None or not pull.fits(fields) or (started and not self._options.synchronizes):
            return None
        return pull

    def needs_setup(self, fields: int, *, started: bool = False) -> bool:
        """Whether ranks have to make something before they move so many fields."""
        if self._pull_for(fields, started=started) is None:
            return self._exchange is None
        return bool(self._topology.under_way)  # it may still write what would be packed

    def set_up(self, fields: int) -> None:
        """Complete older exchanges, and make what moves many fields at once. *Collective*."""
        self._topology.complete()
        if self._pull_for(fields) is None:
            self.exchange()

    def _bound(
        self,
        sources: list[Array],
        targets: list[Array],
        *,
        started: bool = False,
        relayed: bool = False,
    ) -> Move:
        """Prepare to move blocks that were checked; local.

        What is prepared borrows their views: it keeps no field of the user alive, and suits any
        blocks at the same places; unless it may be `relayed`.
        """
        pull = self._pull_for(len(sources), started=started)
        key = (pull is None, *[place(block) for block in (*sources, *targets)])
        found: Move | None = self._moves.get(key)
        if found is None:
            if relayed and relays(self._moves, (*sources, *targets)):
                return cast("Move", self._relayed(*sources, *targets))
            views = list(map(borrowed, sources)), list(map(borrowed, targets))
            if pull is not None:
                every = product(sources, targets)
                aliased = any(np.may_share_memory(*pair) for pair in every)
                found = pull.prepare(*views, aliased=aliased)
            else:
                found = self.exchange().prepare(*views)
            self._moves.add(key, found)
        found.reserve()
        return found

    def _relayed(self, source: Array, target: Array) -> Relayed:
        """Prepare to move a block by way of others; local."""
        if self._relay is None:
            inner, outer = np.empty_like(source), np.empty_like(target)
            self._relay = inner, outer, self._bound([inner], [outer])
        inner, outer, move = self._relay
        move.reserve()
        return Relayed(move, (inner, source), (target, outer))

    def _new(self) -> PencilArray | None:
        """Make an output, if the target pencil includes this process."""
        if self._maker is None:
            self._maker = (
                no_op if self.target is None else PencilArray.maker(self.target, *self.spec)
            )
        return self._maker()

    def _block(self, u: PencilArray | None) -> Array:
        """Own block, axes in the memory order of the target."""
        return self._nothing if u is None else u.local.transpose(self._axes)


def method_key(source: Layout, target: Layout, spec: FieldSpec) -> tuple[str, str, FieldSpec]:
    """Return what the fastest method depends on, on a given communicator."""
    return str(source), str(target), spec


def unset_ghosts(fields: Fields) -> None:
    """Unset the ghosts of fields that are about to be filled, inside `pencils.debug.ghosts`."""
    for u in fields if checks.on else ():
        if u is not None:
            u.mark_written()
