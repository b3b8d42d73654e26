"""Elementwise functions and operators of fields: ``u + v``, ``np.sin(u)``; never communicate.

`Direct` applies a ufunc to own blocks where there is nothing to check: fields whose bare frames are
the same object have the same own block and the same singleton dimensions, and numbers fit any
field. All other operands go through `elementwise`. Large results are written to memory of the pool,
small ones to what NumPy allocates. Of which kind a result is, is found once for the kinds of
operands.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from pencils.array.allocation import Array, BlockLayout, frame_of, is_c_ordered
from pencils.array.base import Field, checks, in_frame
from pencils.array.operands import check_fits, common_pencil, local_part, local_parts
from pencils.array.signatures import Operand
from pencils.comm import pool
from pencils.comm.progress import poll, slabs, under_way
from pencils.pencil import Pencil

F = TypeVar("F", bound=Field)
Operation = Callable[[Any, Any], Any]

# Types of numbers, with what `numpy.ufunc.resolve_dtypes` takes for them.
NUMBERS: dict[type, Any] = {int: int, float: float, complex: complex, bool: np.dtype(bool)}
NUMBERS |= {np.dtype(char).type: np.dtype(char) for char in "?bBhHiIlLqQefdgFDG"}

_MISSING = object()
_ELSEWHERE = object()  # instead of an element type: NumPy allocates the result
_array = np.ndarray
_new_block = pool.new_block
_new = object.__new__
_divmod: Any = np.divmod
_matmul: Any = np.matmul


class Direct:
    """One ufunc of one or two own blocks; `operation` is another spelling, like `operator.add`."""

    __slots__ = ("_dtypes", "operation", "ufunc")

    def __init__(self, ufunc: np.ufunc, operation: Callable[..., Any] | None = None) -> None:
        self.ufunc: Callable[..., Any] = ufunc
        self.operation = operation or ufunc
        self._dtypes: dict[Any, Any] = {}

    def apply(self, u: F, key: object, *parts: Any) -> F:
        """Return a field like `u` of the values for numbers and own blocks, that of `u` included.

        The fields of all blocks have the same bare frame. Where `key` is equal, so are the
        function, the types of numbers, and the kinds of fields.
        """
        made = (u._kind or u.kind).results.get(key)
        if made is None:
            return self.apply_first(u, key, *parts)
        if under_way.on:
            poll()
        block = self.operation(*parts) if made.small else fill(self.ufunc, parts, made.new_block())
        return in_frame(type(u), u._pencil, made.frame, block, made)  # type: ignore[no-any-return]

    def apply_first(self, u: F, key: object, *parts: Any) -> F:
        """Do what `apply` does, and keep the kind of the result under `key` if it is known."""
        if under_way.on:
            poll()
        if not u._local.size:
            try_on_one(self.operation, parts, (u,))
        kind = u.kind
        frame, shape = kind.frame, kind.shape
        arrays = [part for part in parts if isinstance(part, _array)]
        dtype = self.result_type(parts)
        if dtype is _ELSEWHERE or any(array.shape != shape for array in arrays):
            return as_field(self.operation(*parts), None, u.pencil, frame.singletons, u)
        if kind.small:
            block = frame.ordered(np.asarray(self.operation(*parts)))
        else:
            block = fill(self.ufunc, parts, frame.make(shape, dtype))
        new = u.in_frame(u.pencil, frame, block)
        if kind.c_ordered and all(map(is_c_ordered, arrays)):
            kind.results[key] = new.kind
        return new

    def result_type(self, parts: Sequence[Any]) -> Any:
        """Element type of a result that is to lie in the pool; `_ELSEWHERE` for others."""
        kinds = tuple([getattr(part, "dtype", type(part)) for part in parts])
        found = self._dtypes.get(kinds)
        if found is None:
            given = [NUMBERS.get(kind, kind) for kind in kinds]
            found = _ELSEWHERE
            if all(getattr(kind, "kind", "f") in "biufc" for kind in given):
                with suppress(TypeError, ValueError):  # no such function: NumPy will raise
                    dtype = self.ufunc.resolve_dtypes((*given, None))[-1]  # type: ignore[attr-defined]
                    found = dtype if dtype.kind in "biufc" else _ELSEWHERE
            self._dtypes[kinds] = found
        return found


def try_on_one(
    function: Callable[..., Any], parts: Sequence[Any], fields: Sequence[Field], **options: Any
) -> None:
    """Call a function on single elements, on a rank that has none, if other ranks have some.

    NumPy refuses some types and numbers only when it meets an element, like negative powers of
    integers. So it raises on all ranks.
    """
    if not all(field.size for field in fields):
        return
    ones = [
        np.ones([min(extent, 1) or 1 for extent in part.shape], part.dtype)
        if isinstance(part, _array) and not part.size
        else part
        for part in parts
    ]
    with np.errstate(all="ignore"):
        function(*ones, **options)


def fill(ufunc: Callable[..., Any], operands: Sequence[Any], out: Array) -> Array:
    """Write the values of a ufunc to memory that no operand shares."""
    arrays = [each for each in operands if type(each) is _array] if under_way.on else ()
    if not arrays or any(each.shape != out.shape for each in arrays):
        ufunc(*operands, out=out)
        return out
    for key in slabs(out):
        parts = [each[key] if type(each) is _array else each for each in operands]
        ufunc(*parts, out=out[key])
    return out


# Calls of ufuncs.

# NumPy's own elementwise functions with one result.
_DIRECT = {
    ufunc: Direct(ufunc)
    for ufunc in vars(np).values()
    if isinstance(ufunc, np.ufunc)
    and ufunc.signature is None
    and ufunc.nout == 1
    and ufunc.nin <= 2  # noqa: PLR2004
}


def compute(
    u: Field, ufunc: np.ufunc, inputs: tuple[Any, ...], options: dict[str, Any]
) -> Field | None:
    """Return what a ufunc gives for fields and numbers, or None if something is to be checked.

    The field `u` is one of the inputs, or the output.
    """
    on_blocks = _DIRECT.get(ufunc)
    if on_blocks is None:
        return None
    out: Field | None = None
    frame = u._frame.bare
    if options:
        (out,) = options.get("out", (None,))
        if len(options) > 1 or not isinstance(out, Field) or out._frame.bare is not frame:
            return None
    parts: list[Any] = []
    key: list[Any] = [on_blocks]
    for operand in inputs:
        if isinstance(operand, Field) and operand._frame.bare is frame:
            parts.append(operand._local)
            key.append(operand._kind or operand.kind)
        elif type(operand) in NUMBERS:
            parts.append(operand)
            key.append(type(operand))
        else:
            return None
    if out is None:
        return on_blocks.apply(u, tuple(key), *parts)
    return _compute_into(out, ufunc, parts)


def _compute_into(out: Field, ufunc: np.ufunc, parts: Sequence[Any]) -> Field:
    if under_way.on:
        poll()
    if not out._local.size:
        try_on_one(ufunc, parts, (out,))
    ufunc(*parts, out=out._local)
    if checks.on:
        out.mark_written()
    return out


def elementwise(func: Callable[..., Any], inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Check operands, run `func` on their local parts, and wrap what it returns."""
    out = kwargs.pop("out", None)
    where = kwargs.pop("where", True)
    outs = out if isinstance(out, tuple) else (out,)
    targets = [target for target in outs if target is not None]
    if not all(isinstance(one, Field) for one in targets):
        raise TypeError(
            "out= must be a PencilArray if an operand is one; otherwise pass u.local for "
            "operands and out="
        )
    fields = [operand for operand in (*inputs, where, *targets) if isinstance(operand, Field)]
    if not fields:
        raise TypeError(
            "this argument must be a number or a NumPy array, not a PencilArray; pass u.local"
        )
    if record := next(filter(None, [one.record for one in fields]), None):
        return record(func, inputs, kwargs, out, where)
    pencil = common_pencil(fields)
    parts, singletons = local_parts(inputs, pencil)
    if where is not True:
        kwargs["where"], along = local_part(where, pencil)
        singletons &= along
    if targets:
        singletons = singletons.intersection(*(target.singletons for target in targets))
        for target in targets:
            check_fits(singletons, target, pencil)
        buffers = tuple(None if target is None else target.local for target in outs)
        kwargs["out"] = buffers if isinstance(out, tuple) else buffers[0]
    result = _evaluate(func, parts, kwargs, frame_of(pencil, singletons), fields)
    if checks.on:
        for target in targets:
            target.mark_written()
    like = fields[0]
    if not isinstance(result, tuple):
        return as_field(result, outs[0], pencil, singletons, like)
    pairs = zip(result, outs if targets else (None,) * len(result), strict=True)
    return tuple(as_field(part, target, pencil, singletons, like) for part, target in pairs)


def _evaluate(
    func: Callable[..., Any],
    parts: Sequence[Any],
    kwargs: dict[str, Any],
    frame: BlockLayout,
    fields: Sequence[Field],
) -> Any:
    """Run a function on local parts: of a ufunc, large results lie in the pool."""
    if under_way.on:
        poll()
    on_blocks = None if kwargs else _DIRECT.get(func)  # type: ignore[call-overload]
    arrays = [] if on_blocks is None else [part for part in parts if isinstance(part, _array)]
    if on_blocks is not None and sum([part.nbytes for part in arrays]) >= pool.LEAST:
        dtype = on_blocks.result_type(parts)
        if dtype is not _ELSEWHERE:
            shape = np.broadcast_shapes(*(part.shape for part in arrays))
            return fill(func, parts, frame.make(shape, dtype))
    result = func(*parts, **kwargs)
    if "where" not in kwargs and not getattr(result, "size", True):
        kwargs.pop("out", None)
        # Ufuncs of NumPy itself, and powers, refuse types and numbers, and not values.
        known = isinstance(func, np.ufunc) and getattr(np, func.__name__, None) is func
        if known or func is operator.pow:
            try_on_one(func, parts, fields, **kwargs)
    return result


def as_field(result: Any, out: F | None, pencil: Pencil, singletons: frozenset[int], like: F) -> F:
    """Return `out`, or a field like another one of a new own block."""
    if out is not None:
        return out
    frame = frame_of(pencil, singletons)
    block = frame.ordered(np.asarray(result))
    if block.dtype.hasobject:
        raise TypeError(
            "the result would hold Python objects, which cannot be distributed; "
            "compute it from u.local"
        )
    return like.in_frame(pencil, frame, block)


# Operators.


def _takes_no_part(other: object) -> bool:
    """Whether an operand takes no part in ufuncs: then Python asks it for the result."""
    return getattr(other, "__array_ufunc__", _MISSING) is None


def _forward(
    operation: Operation, ufunc: Any, checked: Operation | None = None
) -> Callable[[F, Operand], F]:
    """Make the method for ``u + v``; `checked` takes the operands that are to be checked.

    It does what `Direct.apply` does without calling it: one call more is a tenth of ``u + v``.
    """
    on_blocks, elsewhere = Direct(ufunc, operation), checked or ufunc

    def method(self: Any, other: Any) -> Any:
        cls, kind = type(self), self._kind or self.kind
        key: Any = on_blocks
        if type(other) is cls:
            operand, fellow = other._local, other._kind or other.kind
            if fellow is not kind:
                if fellow.frame is not kind.frame:
                    return elsewhere(self, other)
                key = on_blocks, fellow
        else:
            operand, key = other, (on_blocks, type(other))
        made = kind.results.get(key)
        if made is None:
            if operand is other and type(other) not in NUMBERS:
                return NotImplemented if _takes_no_part(other) else elsewhere(self, other)
            return on_blocks.apply_first(self, key, self._local, operand)
        if under_way.on:
            return on_blocks.apply(self, key, self._local, operand)
        if made.small:
            block = ufunc(self._local, operand)
        else:
            out = _array(made.shape, made.dtype, _new_block(made.nbytes, 0))
            block = ufunc(self._local, operand, out)
        new = _new(cls)  # without the call of `in_frame`
        new._pencil, new._frame, new._kind = self._pencil, made.frame, made
        new._padded = new._local = block
        return new

    return method


def _in_place(operation: Operation, ufunc: Any) -> Callable[[F, Operand], F]:
    """Make the method for ``u += v``."""

    def method(self: Any, other: Any) -> Any:
        if under_way.on:
            poll()
        kind = type(other)
        if kind is type(self) and other._frame.bare is self._frame.bare:
            operation(self._local, other._local)
        elif kind in NUMBERS:
            operation(self._local, other)
        else:
            return ufunc(self, other, out=(self,))
        if checks.on:
            self.mark_written()
        return self

    return method


def _operators(
    name: str, ufunc: Any
) -> tuple[Callable[[F, Operand], F], Callable[[F, Operand], F], Callable[[F, Operand], F]]:
    """Make the methods for ``u + v``, ``2 + u`` and ``u += v``."""
    operation = getattr(operator, f"__{name}__")
    on_blocks = Direct(ufunc, operation)

    def reflected(self: Any, other: Any) -> Any:
        if type(other) in NUMBERS:
            return on_blocks.apply(self, (on_blocks, type(other)), other, self._local)
        return NotImplemented if _takes_no_part(other) else ufunc(other, self)

    in_place = _in_place(getattr(operator, f"__i{name}__"), ufunc)
    return _forward(operation, ufunc), reflected, in_place


def _unary(ufunc: Any) -> Callable[[F], F]:
    """Make the method for ``-u``."""
    on_blocks = Direct(ufunc)
    return lambda self: on_blocks.apply(self, on_blocks, self._local)


def _checked(operation: Operation, ufunc: Any) -> Callable[[F, Operand], F]:
    """Make the method of an operation that on blocks is more than its ufunc."""
    return _forward(operation, ufunc, lambda u, other: elementwise(operation, (u, other), {}))


# NumPy may compute ``block**number`` for these without `numpy.power`, which is faster, and differs
# where values are infinite or complex. So must blocks of all sizes.
_SIMPLE = (-1, 0, 0.5, 1, 2)
# Kinds and types of both operands, and the number: of complex elements NumPy squares ``u**2`` only.
_POWERS: dict[Any, Callable[[Any], Any]] = {
    **{(kind, float, 0.5): _unary(np.sqrt) for kind in "fc"},
    **{(kind, int, 2): _unary(np.square) for kind in "fc"},
    ("f", float, 2.0): _unary(np.square),
}


class Operators(Field):
    """What Python's operators do with fields: elementwise, and without communication."""

    __slots__ = ()

    __add__, __radd__, __iadd__ = _operators("add", np.add)
    __sub__, __rsub__, __isub__ = _operators("sub", np.subtract)
    __mul__, __rmul__, __imul__ = _operators("mul", np.multiply)
    __truediv__, __rtruediv__, __itruediv__ = _operators("truediv", np.true_divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operators("floordiv", np.floor_divide)
    __mod__, __rmod__, __imod__ = _operators("mod", np.remainder)
    __and__, __rand__, __iand__ = _operators("and", np.bitwise_and)
    __or__, __ror__, __ior__ = _operators("or", np.bitwise_or)
    __xor__, __rxor__, __ixor__ = _operators("xor", np.bitwise_xor)
    __lshift__, __rlshift__, __ilshift__ = _operators("lshift", np.left_shift)
    __rshift__, __rrshift__, __irshift__ = _operators("rshift", np.right_shift)
    __lt__ = _forward(operator.lt, np.less)
    __le__ = _forward(operator.le, np.less_equal)
    __gt__ = _forward(operator.gt, np.greater)
    __ge__ = _forward(operator.ge, np.greater_equal)
    if TYPE_CHECKING:  # otherwise these return what those of `object` do

        def __eq__(self, other: Operand) -> Self: ...  # type: ignore[override]
        def __ne__(self, other: Operand) -> Self: ...  # type: ignore[override]

    else:  # comparisons of records are not ufuncs
        __eq__ = _checked(operator.eq, np.equal)
        __ne__ = _checked(operator.ne, np.not_equal)
    __hash__ = None  # type: ignore[assignment]

    __neg__ = _unary(np.negative)
    __pos__ = _unary(np.positive)
    __abs__ = _unary(np.absolute)
    __invert__ = _unary(np.invert)

    __rpow__, _power_in_place = _operators("pow", np.power)[1:]
    _power = _checked(operator.pow, np.power)

    def __pow__(self, other: Operand) -> Self:
        kind: Any = type(other)
        if kind not in NUMBERS or other not in _SIMPLE:
            return self._power(other)
        root_or_square = _POWERS.get((self.dtype.kind, kind, other))
        if root_or_square is not None:
            return root_or_square(self)  # type: ignore[no-any-return]
        if not self._local.size:
            try_on_one(operator.pow, (self._local, other), (self,))
        return as_field(self._local**other, None, self._pencil, self.singletons, self)

    def __ipow__(self, other: Operand) -> Self:
        if not self._local.size and type(other) in NUMBERS:
            try_on_one(operator.pow, (self._local, other), (self,))
        return self._power_in_place(other)

    def __divmod__(self, other: Operand) -> tuple[Self, Self]:
        return NotImplemented if _takes_no_part(other) else _divmod(self, other)

    def __rdivmod__(self, other: Operand) -> tuple[Self, Self]:
        return NotImplemented if _takes_no_part(other) else _divmod(other, self)

    if not TYPE_CHECKING:  # the ufunc raises without component axes

        def __matmul__(self, other: Any) -> Any:
            return NotImplemented if _takes_no_part(other) else _matmul(self, other)

        def __rmatmul__(self, other: Any) -> Any:
            return NotImplemented if _takes_no_part(other) else _matmul(other, self)

        def __imatmul__(self, other: Any) -> Self:
            return _matmul(self, other, out=(self,))
