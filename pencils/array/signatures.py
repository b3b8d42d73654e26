"""What type checkers see of the operators, indices and reductions of fields."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Protocol,
    SupportsIndex,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

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

T_co = TypeVar("T_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)

Operand = Field | ArrayLike
Scalar = complex | np.generic
Axes = SupportsIndex | Sequence[SupportsIndex]
Index = SupportsIndex | slice | EllipsisType | list[Any] | np.ndarray[Any, Any]
Indices = Index | tuple[Index, ...]
Mask = Field | np.ndarray[Any, np.dtype[np.bool]] | Sequence[Any]


class Options(TypedDict, total=False):
    """Arguments of reductions besides the axes; which of them there are is documented there."""

    dtype: DTypeLike | None
    out: None
    initial: Scalar
    where: Operand
    ddof: float
    mean: Operand
    correction: float


class Reducing(Protocol[V_co, T_co, A_contra]):
    """A bound reduction: a scalar of all elements, and with `axis` or `keepdims` a field."""

    @overload
    def __call__(
        self,
        axis: None = None,
        *positional: Any,
        keepdims: Literal[False] = False,
        **options: Unpack[Options],
    ) -> V_co: ...
    @overload
    def __call__(
        self, axis: A_contra, *positional: Any, keepdims: bool = False, **options: Unpack[Options]
    ) -> T_co: ...
    @overload
    def __call__(
        self, axis: None = None, *, keepdims: Literal[True], **options: Unpack[Options]
    ) -> T_co: ...
