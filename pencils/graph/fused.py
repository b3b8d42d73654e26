"""Functions of fields whose lines are computed in one pass over memory: see `fused`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, update_wrapper
from inspect import signature
from types import MethodType, NoneType
from typing import Any, overload

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.comm.memory import address
from pencils.graph.number import NUMBERS, Number, ValueNeededError
from pencils.graph.replay import Replay, is_sequence, rebuilt
from pencils.graph.trace import Trace, Traced, is_tracing

_NUMBERS = {int, float, complex}
_PLAIN = {bool, str, bytes, NoneType}  # of which equal values are the same
_MOST = 64  # traces of a function: all are dropped for one more


class Fused:
    """A function of fields, traced once for each kind of arguments: see `fused`."""

    def __init__(
        self, function: Callable[..., Any], compiler: str | None, *, overlap: bool
    ) -> None:
        if "out" in signature(function).parameters:
            raise TypeError(
                "'out' cannot be an argument of a fused function: calls take out= for the results. "
                "Rename the argument"
            )
        self._function = function
        self._compiler, self._overlap = compiler, overlap
        self._kept: dict[object, Replay] = {}
        self._fixed: dict[object, tuple[int, ...]] = {}  # numbers whose values decide, by kinds
        update_wrapper(self, function)

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Compute what the function computes; see `fused`."""
        if is_tracing() and any(type(one) is Traced for one in (*args, *kwargs.values())):
            return _assigned(out, self._function(*args, **kwargs))  # within another one
        leaves: list[Any] = []
        blocks: list[Array] = []
        owners: list[int] = []
        kind = _signatures((*args, out), leaves, blocks, owners)
        if kwargs:
            kind = kind, _signature(kwargs, leaves, blocks, owners)
        if len(set(owners)) < len(owners):
            kind = kind, _shared(blocks, owners)
        fixed = self._fixed.get(kind, ()) if self._fixed else ()
        replay = self._kept.get(_key(kind, fixed, leaves) if fixed else kind)
        if replay is None:
            replay = self._trace(kind, fixed, (args, out, kwargs), leaves)
        return replay.run(leaves, blocks)

    def explain(self) -> str:
        """Tell how calls are executed: exchanges, passes over memory, calls of NumPy; local.

        There is a paragraph for each kind of arguments that the function was called with.
        """
        return "\n\n".join(map(str, self._kept.values())) or "the function was not called yet"

    def _trace(
        self, kind: object, fixed: tuple[int, ...], given: tuple[Any, ...], leaves: list[Any]
    ) -> Replay:
        """Trace the function; with the values of numbers that it turns out to need."""
        while True:
            try:
                trace = Trace(self._compiler, overlap=self._overlap)
                replay = Replay(self._function, given, leaves, frozenset(fixed), trace)
            except ValueNeededError as error:
                fixed = tuple(sorted({*fixed, *error.arguments}))
                continue
            if len(self._kept) >= _MOST:
                self._kept.clear()
                self._fixed.clear()
            if fixed:
                self._fixed[kind] = fixed
            self._kept[_key(kind, fixed, leaves) if fixed else kind] = replay
            return replay


def _key(kind: object, fixed: tuple[int, ...], leaves: Sequence[Any]) -> object:
    """Return a key that has the values of numbers, which are told apart by what `repr` shows."""
    return kind, *[repr(leaves[place]) for place in fixed]


def _assigned(out: Any, result: Any) -> Any:
    """Assign results to fields that are given for them."""
    if out is None:
        return result
    if is_sequence(type(out)):
        return rebuilt(result, [_assigned(*pair) for pair in zip(out, result, strict=True)])
    out[...] = result
    return out


class _Same:
    """An object as part of a key: equal to itself only."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __hash__(self) -> int:
        return id(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value


def _signatures(
    values: Iterable[Any], leaves: list[Any], blocks: list[Array], owners: list[int]
) -> tuple[Any, ...]:
    """Return the properties of arguments that decide on the trace.

    Their fields, numbers and arrays are added to `leaves`, the blocks of fields to `blocks`, and
    the ids of the objects that own their memory to `owners`.
    """
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is PencilArray:
            look, owner, block = value.look
            leaves.append(value)
            owners.append(owner)
            blocks.append(block)
            found.append(look)
        elif kind in _NUMBERS:
            leaves.append(value)
            found.append(kind)
        else:
            found.append(None if value is None else _signature(value, leaves, blocks, owners))
    return tuple(found)


def _signature(value: Any, leaves: list[Any], blocks: list[Array], owners: list[int]) -> Any:
    """Return the properties of an argument of less frequent types; see `_signatures`."""
    kind = type(value)
    if isinstance(value, PencilArray):
        look, owner, block = value.look
        leaves.append(value)
        owners.append(owner)
        blocks.append(block)
        return look
    if kind is Number:  # of another function that is traced now
        bool(value)
    if isinstance(value, NUMBERS) and kind is not bool:
        leaves.append(value)
        return kind
    if is_sequence(kind):
        return kind, *_signatures(value, leaves, blocks, owners)
    if kind is dict:
        return kind, *value, *_signatures(value.values(), leaves, blocks, owners)
    if kind is np.ndarray:
        leaves.append(value)
        return kind, value.dtype, value.shape, value.strides
    return (kind, value) if kind in _PLAIN else _Same(value)


def _shared(blocks: Sequence[Array], owners: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Find fields that own the same memory: for each, the first one, and how far it is from it."""
    first: dict[int, int] = {}
    found = []
    for place, owner in enumerate(owners):
        other = first.setdefault(owner, place)
        found.append((other, address(blocks[place]) - address(blocks[other])))
    return tuple(found)


@overload
def fused(
    function: Callable[..., Any], *, compiler: str | None = None, overlap: bool = False
) -> Fused: ...
@overload
def fused(
    *, compiler: str | None = None, overlap: bool = False
) -> Callable[[Callable[..., Any]], Fused]: ...
def fused(
    function: Callable[..., Any] | None = None,
    *,
    compiler: str | None = None,
    overlap: bool = False,
) -> Any:
    """Decorate a function of fields: its lines are computed in one pass over memory.

    The first call with fields of some kind calls the function with stand-ins, which record its
    operations. Later calls execute the same operations, for tiles of some rows that stay in the
    cache, by the inner loops of NumPy: results equal those of the plain lines bit by bit. It is
    *Collective* if the function exchanges halos, moves points (``u[1:] = u[:-1]``), or returns
    reductions.

    Parameters
    ----------
    function : callable
        Takes fields, numbers, replicated NumPy arrays, and tuples, lists and dicts of these. Other
        objects are constants; another object is another kind of arguments. Returns fields, numbers,
        reductions of fields, None, and tuples, lists and dicts of these. It may use operators,
        NumPy's functions of elements, `numpy.where`, shifts, sections, components, assignments to
        arguments, `copy`, `exchange_halo` and `fill_boundary`. Reductions are known at its end.
    compiler : str, optional
        A C compiler, such as ``"cc"``, ``"gcc"`` or a path: loops are compiled when the function is
        traced, and kept in a cache folder. If there is none, or it fails, a message is logged, and
        loops are those of NumPy.
    overlap : bool, optional
        Whether points that need no ghosts of other ranks are computed while these travel, where a
        stage begins with an exchange. It may help if messages between hosts take a good part of a
        step; within a host there is nothing to gain. All ranks pass the same.

    Returns
    -------
    Fused
        The function, with a further argument ``out``: a field to fill for each field that is
        returned. ``explain()`` tells how it is executed.

    Raises
    ------
    TypeError
        By calls: if the function asks for values of fields, as in ``if u.max() > 1``, or for
        operations that are not of elements. Nothing was computed then.

    Notes
    -----
    Numbers are parameters: other values need no new trace, unless the function asks for the value
    itself, as in ``if dt > 1`` or ``math.sqrt(dt)``. Fields, arrays and numbers of enclosing
    scopes, and of other objects that are passed, are constants, which must not change: pass what
    changes as an argument. Python's own side effects happen at the first call only. A computed
    field that is shifted is stored with a halo as wide as that of an argument, and its ghosts are
    exchanged; its boundary points are 0.

    Four things differ from plain lines. Complex products in place, ``u *= v``, may differ in the
    last bit: NumPy rounds them in another way than ``u * v``. Of two NaNs, and among zeros of both
    signs that an extremum is found in, another one may be returned; with a compiler, NaN may have
    another sign. With ``where=``, warnings come from all points, and for two results, as of
    `numpy.divmod`, twice. `numpy.errstate` is that of the call, also within the function.

    Examples
    --------
    >>> import pencils
    >>> @pencils.fused
    ... def heat(u, dt):
    ...     u.exchange_halo()
    ...     return u + dt * (u.shift((1, 0)) + u.shift((-1, 0)) - 2 * u)
    >>> pen = pencils.Pencil((8, 6), periodic=True)
    >>> u = pencils.from_function(pen, lambda i, j: 1.0 * (i == 4), halo=1)
    >>> heat(u, 0.25).sum()
    np.float64(6.0)
    """
    if not isinstance(compiler, str | NoneType):
        raise TypeError(f"compiler must be the name of a command, not {compiler!r}")
    if function is None:
        return partial(fused, compiler=compiler, overlap=overlap)
    return Fused(function, compiler, overlap=overlap)
