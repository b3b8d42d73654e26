"""Nodes of an expression graph that are arrays, and the NumPy expressions that build them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, NoReturn, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike

from pencils.array.allocation import as_dtype
from pencils.array.base import Field
from pencils.array.numpy_api import QUERIES
from pencils.graph import rules
from pencils.graph.rules import (
    DType,
    Function,
    Node,
    Shape,
    is_node,
    name_of,
    rule_of,
    rule_of_ufunc,
)

Tags = frozenset[Any]
NO_TAGS: Tags = frozenset()


class Tag:
    """Base class of marks that users put on nodes; they have no effect on the result.

    Examples
    --------
    >>> from pencils.graph import make_placeholder
    >>> class Slow(Tag):
    ...     "Takes long."
    >>> x = make_placeholder("x", (3,), float, tags=frozenset({Slow()}))
    >>> [type(tag).__name__ for tag in x.tags]
    ['Slow']
    """

    __slots__ = ()


class ImplStored(Tag):
    """Marks nodes whose values are to be stored. It changes nothing: those of all nodes are."""

    __slots__ = ()


def _method(func: Function, summary: str) -> Callable[..., Array]:
    """Make a method that applies a NumPy function to the array."""

    def method(self: Array, *args: Any, **options: Any) -> Array:
        return _apply(func, self, *args, **options)

    method.__name__, method.__doc__ = func.__name__, summary
    return method


class Array(Node, NDArrayOperatorsMixin):
    """A node of a graph that represents an array.

    NumPy's operators, ufuncs and many of its functions, indexing and the usual methods make new
    nodes, and compute nothing. Arrays among the operands are not copied: as with `DataWrapper`,
    their values are read when the graph is executed. A node is equal to itself only, so that it can
    be a key; ``numpy.equal`` compares elements.
    """

    __slots__ = ()
    tags: Tags

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            raise TypeError(
                "== and != compare the identity of two nodes; numpy.equal and numpy.not_equal "
                "compare elements"
            )
        return self is other

    def __ne__(self, other: object) -> bool:
        return not self == other

    @property
    def inputs(self) -> tuple[Array, ...]:
        """Nodes that this one is computed from."""
        return ()

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    def tagged(self, *tags: object) -> Self:
        """Make the same node, with more tags."""
        return replace(self, tags=self.tags | frozenset(tags))  # type: ignore[type-var]

    # NumPy.

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(one, Field) for one in inputs):  # of a fused function
            return NotImplemented
        rule, func = rule_of_ufunc(ufunc, method)
        if method == "reduce":
            kwargs.setdefault("axis", 0)
        return Call(*rule(func, inputs, kwargs))

    def __array_function__(
        self, func: Function, types: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if any(isinstance(one, Field) for one in args):
            return NotImplemented
        if func in _KNOWN:
            return _KNOWN[func](*args, **kwargs)
        return Call(*rule_of(func)(func, args, kwargs))

    def __getitem__(self, key: object) -> Array:
        return Call(*rules.selection(self, key))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __pow__(self, other: Any) -> Array:
        if not isinstance(other, int | float):
            return super().__pow__(other)  # type: ignore[no-any-return]
        # NumPy's operator may differ from its ufunc: the square of a boolean is a small integer.
        return Call(*rules.elementwise(operator.pow, (self, other), {}))

    # ``x += y`` makes a new node, and x its name.
    def _not_in_place(self, _other: object) -> Any:
        return NotImplemented

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = _not_in_place
    __ipow__ = __imatmul__ = __iand__ = __ior__ = __ixor__ = _not_in_place
    __ilshift__ = __irshift__ = _not_in_place

    # Methods.

    @property
    def T(self) -> Array:  # noqa: N802 - NumPy's name
        """Axes in reversed order."""
        return self.transpose()

    @property
    def real(self) -> Array:
        """Real part."""
        return _apply(np.real, self)

    @property
    def imag(self) -> Array:
        """Imaginary part."""
        return _apply(np.imag, self)

    def conj(self) -> Array:
        """Complex conjugate."""
        if self.dtype.kind != "c":
            return self
        found: Array = self.__array_ufunc__(np.conjugate, "__call__", self)
        return found

    def reshape(self, *shape: Any) -> Array:
        """Arrange the same elements in another shape."""
        return _apply(np.reshape, self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Array:
        """Axes in another order."""
        return _apply(np.transpose, self, (axes[0] if len(axes) == 1 else axes) or None)

    def astype(self, dtype: DTypeLike) -> Array:
        """Convert to another element type."""
        return Call(*rules.conversion(self, as_dtype(dtype)))

    def clip(self, min: Any = None, max: Any = None) -> Array:  # noqa: A002 - NumPy's names
        """Elements moved into an interval."""
        return _apply(np.clip, self, min, max)

    ravel = _method(np.ravel, "All elements along one axis.")
    squeeze = _method(np.squeeze, "Leave out axes of extent 1.")
    round = _method(np.round, "Elements rounded.")
    sum = _method(np.sum, "Sum along axes; of this rank's elements, as in all reductions here.")
    prod = _method(np.prod, "Product along axes.")
    min = _method(np.min, "Smallest element along axes.")
    max = _method(np.max, "Largest element along axes.")
    mean = _method(np.mean, "Mean along axes.")
    var = _method(np.var, "Variance along axes.")
    std = _method(np.std, "Standard deviation along axes.")
    any = _method(np.any, "Whether any element is true along axes.")
    all = _method(np.all, "Whether all elements are true along axes.")
    argmin = _method(np.argmin, "Index of the smallest element, along an axis.")
    argmax = _method(np.argmax, "Index of the largest element, along an axis.")

    # Conversions, which need a value.

    def _no_value(self, *_args: object, **_options: object) -> NoReturn:
        raise TypeError(
            "this node of a graph has no value yet: make it an output and read it from the results "
            "of execute_distributed_partition (within a graph, numpy.where chooses and call() runs "
            "any function; in a fused function write u instead of u.local)"
        )

    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise TypeError(
            "an array without values yet is read-only: in a fused function, write "
            "u[...] = values to the field"
        )

    __bool__ = __array__ = __float__ = __int__ = __complex__ = __index__ = _no_value

    def __repr__(self) -> str:
        return f"<{self._what()} {self.shape} {self.dtype}>"

    def _what(self) -> str:
        return type(self).__name__


def _apply(func: Function, *args: Any, **options: Any) -> Array:
    return Call(*rule_of(func)(func, args, options))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Placeholder(Array):
    """An input of the graph, identified by its name; its value is passed at execution."""

    name: str
    shape: Shape
    dtype: DType
    tags: Tags = NO_TAGS

    def _what(self) -> str:
        return f"Placeholder {self.name!r}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DataWrapper(Array):
    """An array in memory. It is not copied, and its values may change between executions."""

    data: Any
    shape: Shape
    dtype: DType
    tags: Tags = NO_TAGS


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Array):
    """The result of ``func(*args, **options)``, where some of `args` are nodes."""

    func: Function
    args: tuple[Any, ...]
    options: dict[str, Any]
    shape: Shape
    dtype: DType
    tags: Tags = NO_TAGS

    @property
    def inputs(self) -> tuple[Array, ...]:
        """Nodes that this one is computed from."""
        return tuple([arg for arg in self.args if isinstance(arg, Array)])

    def _what(self) -> str:
        return f"Call {name_of(partial(self.func, **self.options))}"


def filled(shape: Shape, element: Any) -> DataWrapper:
    """Make a node that repeats an array without axes."""
    return DataWrapper(np.broadcast_to(element, shape), shape, element.dtype)


def _like(value: object, a: Array, dtype: DTypeLike | None = None) -> DataWrapper:
    return filled(a.shape, np.asarray(value, a.dtype if dtype is None else dtype))


def in_order(outputs: Iterable[Array], known: Container[Array] = ()) -> list[Array]:
    """List all nodes that outputs need, each after its inputs; known ones need none.

    Depth first, so that values computed in this order are used, and freed, soon after; the order
    follows from the graph alone, and is the same in every run.
    """
    found: dict[Array, None] = {}
    for output in outputs:
        stack = [output]
        while stack:
            node = stack[-1]
            if node in found:
                stack.pop()
                continue
            inputs = () if node in known else node.inputs
            missing = [other for other in inputs if other not in found]
            if missing:
                stack.extend(reversed(missing))
            else:
                found[node] = None
                stack.pop()
    return list(found)


_KNOWN: dict[Function, Function] = QUERIES | {
    np.result_type: lambda *args: np.result_type(*(x.dtype if is_node(x) else x for x in args)),
    np.zeros_like: partial(_like, 0),
    np.ones_like: partial(_like, 1),
    np.full_like: lambda a, fill_value, dtype=None: _like(fill_value, a, dtype),
}
