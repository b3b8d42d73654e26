"""What Krylov methods work with: fields, an operator and a preconditioner, and sums over ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import signature as parameters_of
from math import sqrt
from typing import Any, TypeAlias

import numpy as np

from pencils.array.allocation import Array, memory_axes
from pencils.array.global_reduction import own_part
from pencils.array.operands import FieldSpec, check_field, check_out, check_source
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import PreparedAgreement
from pencils.comm.reduce import allreduce, dot, fold
from pencils.errors import ArgumentError
from pencils.graph.fused import Fused
from pencils.solvers.result import History, meet

# See `pencils.solvers.cg`.
LinearMap: TypeAlias = Any
_Bound: TypeAlias = Callable[[PencilArray, PencilArray], object]
OPERATOR_GAVE, INVERSE_GAVE = "the operator gave", "the preconditioner gave"
_MOST_CARRIED = 4  # numbers of 8 bytes that an agreement always has room for


class KrylovSpace:
    """The fields of one solve, and what is done with them on all ranks.

    Making it is local: it checks the arguments, but for tolerances. Fields for the method have the
    halo of `out`, or of `b` if that has none; their boundary points are 0.

    Work that may fail on some ranks only is done by `attempt`; the next `sums` raise the error on
    all ranks.
    """

    history: History
    row: PreparedAgreement

    def __init__(
        self,
        operator: LinearMap,
        b: PencilArray,
        out: PencilArray | None,
        *,
        preconditioner: LinearMap | None,
        mask: Any,
        callback: Callable[[int, float], object] | None,
    ) -> None:
        check_field("b", b)
        if b.dtype.char not in "fdFD":
            raise TypeError(
                f"b must be of float32, float64, complex64 or complex128, not {b.dtype}; convert "
                "the field, as in u.astype(float)"
            )
        spec = FieldSpec.of(b)
        check_out(out, b.pencil, spec)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be a function, not a {type(callback).__name__}")
        self.b, self.out, self._callback = b, out, callback
        self._like = b if out is None or not any(map(any, out.halo)) else out
        self._operator = _bound("operator", operator, b)
        self._preconditioner = (
            None if preconditioner is None else _bound("preconditioner", preconditioner, b)
        )
        self._off = slice(0) if mask is None else _switched_off(mask, b)
        self._is_masked = mask is not None  # on all ranks
        self._axes = memory_axes(b.pencil.order, len(b.components))
        first = not b.singletons or b.extent.layout.is_first_replica(b.pencil.rank)
        self._contributes = first and b.local.size > 0
        self._error: Exception | None = None

    def field(self) -> PencilArray:
        """Make a field of zeros."""
        return self._like.blank(zero=True)

    def room(self) -> PencilArray | None:
        """Make a field of zeros for results of the preconditioner, if there is one."""
        return None if self._preconditioner is None else self.field()

    def attempt(self, work: Callable[..., object], *arguments: Any) -> None:
        """Do local work, or what ranks do together, unless this rank has failed since they met."""
        if self._error is None:
            try:
                work(*arguments)
            except Exception as error:  # noqa: BLE001 - raised on all ranks
                self._error = error

    def apply(self, u: PencilArray, out: PencilArray) -> PencilArray:
        """Apply the operator, restricted to points that are switched on. *Collective*."""
        self.attempt(self._apply, self._operator, u, out)
        return out

    def precondition(self, u: PencilArray, out: PencilArray | None) -> PencilArray:
        """Apply the preconditioner to fill `out`, or return `u` without one. *Collective*."""
        if self._preconditioner is None or out is None:
            return u
        self.attempt(self._apply, self._preconditioner, u, out)
        return out

    def _apply(self, function: _Bound, u: PencilArray, out: PencilArray) -> None:
        function(u, out)
        out.local[self._off] = 0

    def sums(self, *pairs: tuple[PencilArray, PencilArray], real: bool = True) -> list[Any]:
        """Return the sum of ``conj(u) * v`` for each pair, or its real part, over all ranks.

        *Collective*: one meeting of the ranks, with their errors, for up to 4 floats.
        """
        kind = np.dtype(float if real or self.b.dtype.kind == "f" else complex)
        part = np.zeros(len(pairs), kind)
        self.attempt(self._add, part, pairs)
        row, numbers = self.row, part.view(float)
        carried = numbers.size <= _MOST_CARRIED and (row.gathers or row.adds(numbers.dtype))
        mine, rows = row.values(numbers.dtype, numbers.size) if carried else (None, None)
        if mine is not None:
            mine[:] = numbers
        self.meet()
        if row.size > 1:
            numbers = allreduce(row.comm, numbers, np.add) if rows is None else fold(rows, np.add)
        found: list[Any] = numbers.view(kind).tolist()
        return found

    def _add(self, part: Array, pairs: Iterable[tuple[PencilArray, PencilArray]]) -> None:
        if self._contributes:
            for number, (u, v) in enumerate(pairs):
                value = dot(u.local.transpose(self._axes), v.local.transpose(self._axes))
                part[number] = value if part.dtype.kind == "c" else value.real

    def meet(self) -> None:
        """Raise on all ranks if a rank has failed. *Collective*."""
        error, self._error = self._error, None
        meet(self.row, error)

    def check_finite(self, sums: Iterable[complex], *results: tuple[str, PencilArray]) -> None:
        """Raise if sums are not finite, and name the first whose result is not. *Collective*."""
        if np.isfinite(list(sums)).all():
            return
        for name, u in results:
            if not np.isfinite(self.sums((u, u))[0]):
                raise self.history.error(f"{name} NaN or Inf, or numbers whose squares overflow")
        raise self.history.error("products of numbers overflow")

    def add(self, residual: float) -> bool:
        """Add a residual to the history, and call back; whether to stop."""
        stops = self.history.add(residual)
        if self._callback is not None and self.history.iterations:
            self.attempt(self._callback, self.history.iterations, residual)
        return stops

    def set_residual(self, r: PencilArray, x: PencilArray, rooms: Sequence[Any]) -> float:
        """Set the residual of a solution; return its norm by the preconditioner. *Collective*.

        The rooms are overwritten: two fields, and one for results of the preconditioner.
        """
        copy, product, room = rooms
        copy.local[...] = x.local
        self.apply(copy, product)
        r.local[...] = self.b.local - product.local
        r.local[self._off] = 0
        z = self.precondition(r, room)
        sums = self.sums((r, z))
        self.check_finite(sums, (OPERATOR_GAVE, product), (INVERSE_GAVE, z))
        return sqrt(max(0.0, sums[0]))

    def start(self, rtol: float, atol: float, *, weighted: bool) -> tuple[PencilArray, PencilArray]:
        """Return the guess, to be improved in place, and its residual. *Collective*.

        The target is set from the norm of the right side; `weighted`: in that of the
        preconditioner. Values of points that are switched off are moved to the right side first.
        """
        x = self.field() if self.out is None else self.out
        r, p, w = self.field(), self.field(), self.field()
        r.local[...] = self.b.local
        if self.out is not None and self._is_masked:
            p.local[self._off] = x.local[self._off]
            self.apply(p, w)
            r.local -= w.local
        r.local[self._off] = 0
        z = self.precondition(r, w if weighted else None)
        _, norm = sums = self.sums((r, r), (r, z))
        self.check_finite(sums, ("b has", r), (INVERSE_GAVE, z))
        self.history.target = max(rtol * sqrt(max(0.0, norm)), atol)
        if norm == 0:
            r.local[...] = r.local != 0
            if any(self.sums((r, r))):
                raise self.history.error(
                    "(b, b), or (b, M b) with a preconditioner M, is 0, but b is not: squares of "
                    "its numbers underflow, so scale b; or M is not definite"
                )
            x.local[...] = p.local
        elif self.out is not None:
            p.local[...] = x.local
            p.local[self._off] = 0
            self.apply(p, w)
            r.local -= w.local
            self.check_finite(self.sums((r, r)), ("the guess has", p), (OPERATOR_GAVE, w))
        return x, r


def _bound(name: str, given: LinearMap, b: PencilArray) -> _Bound:
    """Check an operator or a preconditioner, and return a function that fills its second field."""
    if hasattr(given, "matvec"):
        return _flat(name, given, b)
    if isinstance(given, Fused) and len(parameters_of(given).parameters) == 1:
        return lambda u, out: given(u, out=out)
    function = getattr(given, "apply", given)
    if not callable(function):
        raise TypeError(
            f"{name} must be a function f(u, out) that fills out, or have a method apply(u, out) "
            f"or matvec(x), not a {type(given).__name__}; for a matrix of the own block, pass "
            "scipy.sparse.linalg.aslinearoperator(matrix)"
        )
    spec = FieldSpec.of(b)

    def apply(u: PencilArray, out: PencilArray) -> None:
        found = function(u, out)
        if found is None or found is out:
            return
        check_source(found, b.pencil, spec, f"what the {name} returns")
        raise ArgumentError(
            f"the {name} returned another field than its second argument; it must fill that: "
            "write out[...] = result"
        )

    return apply


def _flat(name: str, given: Any, b: PencilArray) -> _Bound:
    """Check a `LinearOperator`, and return a function that applies it to own blocks."""
    count, kind = b.local.size, getattr(given, "dtype", None)
    if tuple(given.shape) != (count, count):
        raise ArgumentError(
            f"{name} has shape {tuple(given.shape)}; it works on the own block, flattened, and "
            f"must be {(count, count)} on this rank"
        )
    if kind is not None and np.dtype(kind).kind == "c" and b.dtype.kind != "c":
        raise TypeError(f"{name} is complex, but b is of {b.dtype}; pass b.astype(complex)")

    def apply(u: PencilArray, out: PencilArray) -> None:
        out.local[...] = given.matvec(u.local.reshape(-1)).reshape(out.local.shape)

    return apply


def _switched_off(mask: Any, b: PencilArray) -> Any:
    """Check a mask; return where the own block is switched off, which may be nowhere."""
    part = own_part(mask, b)
    if part.dtype.kind not in "biuf" or not ((part == 0) | (part == 1)).all():
        raise ArgumentError(
            "mask must be 0 where points are switched off, and 1 elsewhere; other values or types "
            f"were given, of dtype {part.dtype}"
        )
    off = part == 0
    return off if off.any() else slice(0)
