"""Move fields from one pencil to another of the same shape."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from pencils.array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import Exchange, Handle, Piece, check_method
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout import Box, Message, redistribution
from pencils.operands import check_type, topology_among
from pencils.pencil import Pencil
from pencils.storage import Array, memory_axes, read_components, read_dtype, read_singletons

Kind = tuple[np.dtype[Any], tuple[int, ...], frozenset[int]]

# Plans that `transpose` keeps for each communicator; the least recently used one goes first.
MOST_PLANS = 8


class Transposition:
    """Reusable plan that moves fields between two pencils. Making it is *Collective*.

    The pencils may differ in decomposed dimensions, process grid, splits and memory order. Sources
    and targets may have halos, which are neither read nor written, and may share memory.

    Parameters
    ----------
    source, target : Pencil
        Pencils of the same global shape over the same processes.
    dtype : dtype, optional
        Element type.
    components : int or sequence of int, optional
        Shape of the component axes; all components travel in one message.
    dims : int or sequence of int, optional
        Dimensions along which the fields vary; they are singletons along the others.
    method : {"messages", "alltoallv"}, optional
        Point-to-point messages between the ranks that share points, or one collective.
    check : bool, optional
        Whether every call agrees on its arguments over all ranks, so that a mistake on one rank
        raises everywhere. Without it a call costs no communication but the data.

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

    def __init__(
        self,
        source: Pencil,
        target: Pencil,
        dtype: DTypeLike = float,
        *,
        components: int | Sequence[int] = (),
        dims: Sequence[int] | int | None = None,
        method: str = "messages",
        check: bool = True,
    ) -> None:
        comm = topology_among(source, target).comm
        with agreed(comm, "Transposition") as agree:
            check_type("source", source, Pencil)
            check_type("target", target, Pencil)
            agree(source=repr(source), target=repr(target))
            _check_pair(source, target)
            self.source = source
            self.target = target
            self.dtype = read_dtype(dtype)
            self.components = read_components(components)
            self.method = check_method(method)
            self._singletons = read_singletons(source, dims)
            agree(
                dtype=self.dtype,
                components=self.components,
                singletons=sorted(self._singletons),
                method=method,
                check=check,
            )
        self._check = check
        self._axes = memory_axes(target.order, len(self.components))
        self._text = self._describe()
        self._exchange: Exchange | None = self._plan()

    def _describe(self) -> str:
        parts = f", components={self.components}" if self.components else ""
        dims = f", singleton along {sorted(self._singletons)}" if self._singletons else ""
        return (
            f"<Transposition of {self.dtype}{parts}{dims} by {self.method}\n"
            f"  from {self.source!r}\n  to   {self.target!r}>"
        )

    def _plan(self) -> Exchange:
        """Slice the own blocks, axes in the memory order of the target, for every message."""
        source, target = (pen.extent(self._singletons) for pen in (self.source, self.target))
        schedule = redistribution(source.layout, target.layout, self.source.rank)
        return Exchange(
            self.source.topology.comm,
            [self._piece(m.dest, m, source.box) for m in schedule.sends],
            [self._piece(m.source, m, target.box) for m in schedule.recvs],
            lead=self.components,
            dtype=self.dtype,
            method=self.method,
        )

    def _piece(self, peer: int, message: Message, own: Box) -> Piece:
        slices = message.box.slices(own.start)
        return Piece(peer, tuple(slices[dim] for dim in self.target.order))

    def __call__(self, u: PencilArray, out: PencilArray | None = None) -> PencilArray:
        """Move `u` to the target pencil. *Collective*.

        Parameters
        ----------
        u : PencilArray
            Field on the source pencil, with the dtype, components and singletons of the plan.
        out : PencilArray, optional
            Field on the target pencil to fill; default: a new one without halo.

        Returns
        -------
        PencilArray
            `out`.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            If a field does not fit the plan; on every rank, unless the plan does not check.
        """
        return self.start(u, out).wait()

    def start(self, u: PencilArray, out: PencilArray | None = None) -> Handle[PencilArray]:
        """Start moving `u`, as a call does, and return before it is done. *Collective*.

        Neither field may be touched before ``wait()`` of the returned handle, which all ranks
        must call and which returns `out`.
        """
        if self._check:
            with agreed(self.source.topology.comm, "Transposition.start") as agree:
                agree(plan=self._text)
                exchange, target = self._check_call(u, out)
        else:
            exchange, target = self._check_call(u, out)
        return exchange.start(self._block(u), self._block(target), target)

    def reversed(self) -> Transposition:
        """Plan for the way back. *Collective*."""
        return Transposition(
            self.target,
            self.source,
            self.dtype,
            components=self.components,
            dims=_varying(self.source, self._singletons),
            method=self.method,
            check=self._check,
        )

    def free(self) -> None:
        """Complete what is under way and release buffers and MPI objects."""
        if self._exchange is not None:
            self._exchange.free()
            self._exchange = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()

    def __repr__(self) -> str:
        return self._text

    def _block(self, field: PencilArray) -> Array:
        return field.local.transpose(self._axes)

    def _check_call(self, u: PencilArray, out: PencilArray | None) -> tuple[Exchange, PencilArray]:
        if self._exchange is None:
            msg = "this Transposition was freed; make a new one"
            raise ArgumentError(msg)
        kind = self.dtype, self.components, self._singletons
        _check_field("u", u, self.source, kind)
        _check_out(out, self.target, kind)
        return self._exchange, PencilArray.allocated(self.target, *kind) if out is None else out


def transpose(u: PencilArray, pencil: Pencil, out: PencilArray | None = None) -> PencilArray:
    """Move a field to another pencil of the same shape. *Collective*.

    Plans are kept and found again, so calling this in a loop is fine; `Transposition` gives control
    over the method, overlap and checks.

    Parameters
    ----------
    u : PencilArray
        The field; its halo is left behind.
    pencil : Pencil
        Where to; same global shape and processes, anything else may differ.
    out : PencilArray, optional
        Field on `pencil` to fill; it may have a halo, which is not touched. It may share memory
        with `u`. Default: a new field without halo.

    Returns
    -------
    PencilArray
        `out`.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if the arguments do not fit.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.ones(pencils.Pencil((8, 6), decomp=0))
    >>> pencils.transpose(u, u.pencil.with_(decomp=1)).pencil.decomp
    (1,)
    """
    topology = topology_among(u, pencil, out)
    with agreed(topology.comm, "transpose") as agree:
        check_type("u", u, PencilArray)
        check_type("pencil", pencil, Pencil)
        agree(
            source=repr(u.pencil),
            target=repr(pencil),
            dtype=u.dtype,
            components=u.components,
            singletons=sorted(u.singletons),
        )
        _check_pair(u.pencil, pencil)
        kind = u.dtype, u.components, u.singletons
        _check_out(out, pencil, kind)
        target = PencilArray.allocated(pencil, *kind) if out is None else out
    return _find_plan(u, pencil).start(u, target).wait()


def _find_plan(u: PencilArray, pencil: Pencil) -> Transposition:
    plans = u.pencil.topology.plans
    key = (u.pencil, pencil, u.dtype, u.components, u.singletons)
    plan: Transposition | None = plans.get(key)
    if plan is None:
        dims = _varying(pencil, u.singletons)
        plan = Transposition(
            u.pencil, pencil, u.dtype, components=u.components, dims=dims, check=False
        )
        plans[key] = plan
        if len(plans) > MOST_PLANS:
            plans.popitem(last=False)[1].free()
    plans.move_to_end(key)
    return plan


def _varying(pencil: Pencil, singletons: frozenset[int]) -> tuple[int, ...]:
    return tuple(dim for dim in range(pencil.ndim) if dim not in singletons)


def _check_out(out: PencilArray | None, pencil: Pencil, kind: Kind) -> None:
    if out is None:
        return
    _check_field("out", out, pencil, kind)
    if not out.local.flags.writeable:
        msg = "out is read-only; pass a field that may be written, or none"
        raise ArgumentError(msg)


def _check_field(name: str, field: PencilArray, pencil: Pencil, kind: Kind) -> None:
    check_type(name, field, PencilArray)
    if field.pencil is not pencil and not field.pencil.same_blocks(pencil):
        msg = f"{name} lies on\n{field.pencil!r}\nbut should lie on\n{pencil!r}"
        raise PencilMismatchError(msg)
    given = field.dtype, field.components, field.singletons
    if given != kind:
        msg = (
            f"{name} has dtype {given[0]}, components {given[1]} and singleton dimensions "
            f"{sorted(given[2])}; it must have {kind[0]}, {kind[1]} and {sorted(kind[2])}"
        )
        raise ArgumentError(msg)


def _check_pair(source: Pencil, target: Pencil) -> None:
    if source.shape != target.shape or not source.same_ranks(target):
        what = "shape" if source.shape != target.shape else "processes in the same order"
        msg = f"both pencils must have the same global {what}:\n{source!r}\n{target!r}"
        raise PencilMismatchError(msg)
