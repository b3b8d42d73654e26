"""The instructions of a row program in the making, and the types that it can have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pencils.comm import pool
from pencils.comm.formulas import MOST_OPERANDS, DType, Instruction

Array = NDArray[Any]
Shape = tuple[int, ...]

# Types that are converted without NumPy, in the order of the compiled kernels.
_TYPES = {np.dtype(letter): number for number, letter in enumerate("?bBhHiIqQfdgFDG")}
_KINDS, _HALF = "biufc", np.dtype("e").num  # kinds of numbers; the last type that NumPy itself has
_EXACT = {"b": "biufc", "i": "biufc", "u": "biufc", "f": "bfc", "c": "bc"}  # by kinds
# Arrays of a program itself have numbers around this one: constants below, temporaries above.
_OWN = 1 << 20


class NoRowProgramError(Exception):
    """An operation that row programs do not have: NumPy executes it for whole blocks."""


class _Asked(np.ndarray[Any, Any]):
    """An array whose ufuncs return themselves."""

    def __array_ufunc__(self, ufunc: np.ufunc, *_: object, **_options: object) -> Any:
        return ufunc


def ufunc_of(function: Callable[..., Any], dtype: DType, *operands: Any) -> np.ufunc:
    """Return the ufunc that a function of NumPy calls for an array of a type, and operands."""
    found: np.ufunc = function(np.zeros(1, dtype).view(_Asked), *operands)
    return found


CLIP = ufunc_of(np.clip, np.dtype(float), 0, 1)  # which has no public name


class Leaf(NamedTuple):
    """A view of an array that is passed to each call, or belongs to the program."""

    array: int
    view: Array  # of the array that the program was made with
    derive: Callable[[Array], Array]  # the same of another one


class Spec(NamedTuple):
    """Shape, type and order of axes of a contiguous block that each call allocates."""

    shape: Shape  # in the order of memory
    dtype: DType
    axes: tuple[int, ...]  # that bring it to the logical order

    @classmethod
    def like(cls, array: Array, dtype: DType | None = None) -> Spec:
        """Return the spec of a block of the shape of an array, with axes in the same order."""
        order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        axes = tuple(order.index(axis) for axis in range(array.ndim))
        shape = tuple(array.shape[axis] for axis in order)
        return cls(shape, array.dtype if dtype is None else dtype, axes)

    def new(self) -> Array:
        """Allocate it."""
        return pool.empty(self.shape, self.dtype).transpose(self.axes)


@lru_cache(maxsize=4096)
def loop_of(ufunc: np.ufunc, kinds: tuple[Any, ...]) -> tuple[tuple[DType, ...], int]:
    """Find the types that a ufunc computes with, and the number of its inner loop.

    Operands are given by element types, or the classes of Python's numbers. It raises
    `NoRowProgramError` if NumPy computes in another way, and what NumPy raises.
    """
    dtypes = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout))
    text = "".join(dtype.char for dtype in dtypes)
    name = f"{text[: ufunc.nin]}->{text[ufunc.nin :]}"
    plain = all(map(is_number, dtypes))
    # Errors of Python, in the middle of a block; those of other libraries may raise any.
    raises = ufunc is np.power and dtypes[0].kind in "iu"
    raises |= vars(np).get(ufunc.__name__) is not ufunc and ufunc is not CLIP
    if (
        raises
        or not plain
        or ufunc.nout != 1
        or ufunc.nargs > MOST_OPERANDS
        or name not in ufunc.types
    ):
        raise NoRowProgramError(f"{ufunc.__name__} {name}")
    return dtypes, ufunc.types.index(name)


def is_number(dtype: DType) -> bool:
    """Whether row programs have a type: numbers of native byte order that NumPy itself has."""
    return dtype.kind in _KINDS and dtype.isnative and dtype.num <= _HALF


def is_exact(given: DType, dtype: DType) -> bool:
    """Whether row programs convert a type to another one; floats to integers, NumPy does."""
    known = given in _TYPES and dtype in _TYPES
    return (given == dtype and is_number(dtype)) or (known and dtype.kind in _EXACT[given.kind])


class RowBuilder:
    """Collects the instructions of a program for blocks of one shape; values have numbers.

    Boxes may cut the block along the axes `cut` only.
    """

    def __init__(self, shape: Shape, cut: Iterable[int] = ()) -> None:
        self.shape = shape
        self.cut = frozenset(cut)
        self.dtypes: list[DType] = []
        self.leaves: dict[int, Leaf] = {}
        self.arrays: list[Array] = []
        self.constants: list[Array] = []  # arrays that are the same in all calls
        self.temporaries: list[Array] = []  # that each call allocates
        self.instructions: list[Instruction] = []
        self.stores: list[tuple[int, int]] = []  # values, and the leaves that they are written to
        self.reductions: list[tuple[int, Any]] = []  # values, and their `BlockReduction`
        self._known: dict[object, int] = {}

    def array(self, array: Array) -> int:
        """Add an array that is passed to each call, by one that looks like it."""
        self.arrays.append(array)
        return len(self.arrays) - 1

    def leaf(
        self, array: int, view: Array, derive: Callable[[Array], Array] = lambda array: array
    ) -> int:
        """Add a value that is read from a view of an array, or written to it."""
        interface = view.__array_interface__
        key = array, interface["data"][0], view.shape, view.strides, view.dtype
        if key not in self._known:
            self._known[key] = self._value(view.dtype)
            self.leaves[self._known[key]] = Leaf(array, view, derive)
        return self._known[key]

    def constant(self, value: Any, dtype: DType) -> int:
        """Add a value that is the same in all calls."""
        if not is_number(dtype):
            raise NoRowProgramError(f"constant of {dtype}")
        try:
            with np.errstate(all="raise"):  # NumPy warns in each call
                array = np.asarray(value, dtype)
        # NumPy compares integers that do not fit.
        except (OverflowError, FloatingPointError) as error:
            raise NoRowProgramError(str(error)) from error
        key = array.tobytes(), dtype, array.shape
        if key not in self._known:
            self.constants.append(array)
            self._known[key] = self.leaf(_OWN - len(self.constants), array)
        return self._known[key]

    def apply(self, ufunc: np.ufunc, loop: int, dtype: DType, operands: Sequence[int]) -> int:
        """Add the result of a ufunc for operands of the types of its loop."""
        return self._add(ufunc.__name__, ufunc, loop, operands, dtype)

    def where(self, condition: int, one: int, other: int) -> int:
        """Add a choice between values of one type by booleans."""
        dtype = self.dtypes[one]
        return self._add("where", np.where, dtype.itemsize, (condition, one, other), dtype)

    def cast(self, value: int, dtype: DType) -> int:
        """Add a conversion; raise `NoRowProgramError` if only NumPy knows how."""
        given = self.dtypes[value]
        if given == dtype and is_number(dtype):
            return value
        key = value, dtype
        if key not in self._known:
            if not is_exact(given, dtype):
                raise NoRowProgramError(f"conversion of {given} to {dtype}")
            types = 16 * _TYPES[given] + _TYPES[dtype]
            self._known[key] = self._add("cast", np.ndarray.astype, types, (value,), dtype)
        return self._known[key]

    def temporary(self, like: Array) -> int:
        """Add a leaf of a block that each call allocates, with axes in the same order."""
        array = Spec.like(like).new()
        self.temporaries.append(array)
        return self.leaf(_OWN + len(self.temporaries), array)

    def scalar(self, like: Array) -> int:
        """Add a leaf of the first element of an array that each call allocates."""
        self.temporaries.append(like)
        return self.leaf(_OWN + len(self.temporaries), like[:1].reshape(()))

    def reduce(self, value: int, reduction: Any) -> None:
        """Reduce a value; the program returns results in this order."""
        self.reductions.append((self.cast(value, reduction.dtype), reduction))

    def store(self, value: int, target: int) -> None:
        """Write a value to a leaf, as if after all points were read."""
        self.stores.append((self.cast(value, self.dtypes[target]), target))

    def copy(self, value: int, result: int) -> Instruction:
        """Make an instruction that copies a value."""
        return Instruction("copy", np.copyto, self.dtypes[value].itemsize, (value,), result)

    def number_of(self, leaf: Leaf) -> int:
        """Return the number of the array of a leaf, among given ones, constants, temporaries."""
        given, number = len(self.arrays), leaf.array - _OWN
        if number > 0:
            return given + len(self.constants) + number - 1
        return given - number - 1 if leaf.array >= given else leaf.array

    def is_temporary(self, leaf: Leaf) -> bool:
        """Whether each call allocates the array of a leaf."""
        return leaf.array > _OWN

    def _value(self, dtype: DType) -> int:
        self.dtypes.append(dtype)
        return len(self.dtypes) - 1

    def _add(
        self, name: str, function: Any, number: int, operands: Sequence[int], dtype: DType
    ) -> int:
        result = self._value(dtype)
        self.instructions.append(Instruction(name, function, number, tuple(operands), result))
        return result
