"""What type checkers see of the operators, indices and reductions of fields."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from pencils.array.base import Field

# The parameter of fields is always Any. NumPy's stubs would type what they do with fields as an
# array, but with Any among the arguments a call that fits several of their overloads is Any.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Element = TypeVarWithDefault("Element", default=Any)
else:
    Element = TypeVar("Element")

F = TypeVar("F", bound=Field)
T_co = TypeVar("T_co", covariant=True)

Operand = Field | ArrayLike
Scalar = complex | np.generic
Axes = SupportsIndex | Sequence[SupportsIndex]
Index = SupportsIndex | slice | EllipsisType
Indices = Index | tuple[Index, ...]
Mask = Field | np.ndarray[Any, np.dtype[np.bool]] | Sequence[Any]


class Reading(Protocol[T_co]):
    """A property."""

    def __get__(self, u: Field, kind: type[Field]) -> T_co: ...


# Bound reductions. All elements give a scalar, of a type that follows from that of the elements;
# with `axis` or `keepdims` the result is a field.


class Total(Protocol[T_co]):
    """The signature of `sum` and `prod`."""

    @overload
    def __call__(
        self,
        axis: None = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        initial: Scalar = ...,
        where: Operand = True,
    ) -> Any: ...
    @overload
    def __call__(
        self,
        axis: Axes,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: Scalar = ...,
        where: Operand = True,
    ) -> T_co: ...
    @overload
    def __call__(self, axis: None = None, *, keepdims: Literal[True], **options: Any) -> T_co: ...


class Extreme(Protocol[T_co]):
    """The signature of `min` and `max`."""

    @overload
    def __call__(
        self,
        axis: None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        initial: Scalar = ...,
        where: Operand = True,
    ) -> Any: ...
    @overload
    def __call__(
        self,
        axis: Axes,
        out: None = None,
        keepdims: bool = False,
        initial: Scalar = ...,
        where: Operand = True,
    ) -> T_co: ...
    @overload
    def __call__(self, axis: None = None, *, keepdims: Literal[True], **options: Any) -> T_co: ...


class Range(Protocol[T_co]):
    """The signature of `ptp`."""

    @overload
    def __call__(
        self, axis: None = None, out: None = None, keepdims: Literal[False] = False
    ) -> Any: ...
    @overload
    def __call__(self, axis: Axes, out: None = None, keepdims: bool = False) -> T_co: ...
    @overload
    def __call__(self, axis: None = None, *, keepdims: Literal[True]) -> T_co: ...


class Truth(Protocol[T_co]):
    """The signature of `any` and `all`."""

    @overload
    def __call__(
        self,
        axis: None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        *,
        where: Operand = True,
    ) -> np.bool: ...
    @overload
    def __call__(
        self, axis: Axes, out: None = None, keepdims: bool = False, *, where: Operand = True
    ) -> T_co: ...
    @overload
    def __call__(self, axis: None = None, *, keepdims: Literal[True], **options: Any) -> T_co: ...


class Mean(Protocol[T_co]):
    """The signature of `mean`."""

    @overload
    def __call__(
        self,
        axis: None = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        *,
        where: Operand = True,
    ) -> Any: ...
    @overload
    def __call__(
        self,
        axis: Axes,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        *,
        where: Operand = True,
    ) -> T_co: ...
    @overload
    def __call__(self, axis: None = None, *, keepdims: Literal[True], **options: Any) -> T_co: ...


class Spread(Protocol[T_co]):
    """The signature of `var` and `std`."""

    @overload
    def __call__(
        self,
        axis: None = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        ddof: float = 0,
        keepdims: Literal[False] = False,
        *,
        where: Operand = True,
        mean: Operand = ...,
        correction: float = ...,
    ) -> Any: ...
    @overload
    def __call__(
        self,
        axis: Axes,
        dtype: DTypeLike | None = None,
        out: None = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: Operand = True,
        mean: Operand = ...,
        correction: float = ...,
    ) -> T_co: ...
    @overload
    def __call__(self, axis: None = None, *, keepdims: Literal[True], **options: Any) -> T_co: ...


class Position(Protocol[T_co]):
    """The signature of `argmin` and `argmax`."""

    @overload
    def __call__(
        self, axis: None = None, out: None = None, *, keepdims: Literal[False] = False
    ) -> np.intp: ...
    @overload
    def __call__(
        self, axis: SupportsIndex, out: None = None, *, keepdims: bool = False
    ) -> T_co: ...
    @overload
    def __call__(self, axis: None = None, *, keepdims: Literal[True]) -> T_co: ...
