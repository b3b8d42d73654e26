"""Reduction operations, with the interface of ``mpi4py.MPI.Op``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from simmpi.exceptions import ERR_OP, MPIError
from simmpi.types.buffers import Buffer, as_buffer
from simmpi.types.datatypes import Datatype, by_name
from simmpi.types.memory import Bytes, address_of, buffer

Array = NDArray[Any]
Function = Callable[[Any, Any], Any]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INTEGERS: Final = _names("""
    AINT OFFSET COUNT SIGNED_CHAR SHORT INT LONG LONG_LONG UNSIGNED_CHAR UNSIGNED_SHORT UNSIGNED
    UNSIGNED_LONG UNSIGNED_LONG_LONG INT8_T INT16_T INT32_T INT64_T UINT8_T UINT16_T UINT32_T
    UINT64_T INTEGER INTEGER1 INTEGER2 INTEGER4 INTEGER8
""")
_REALS: Final = _names("FLOAT DOUBLE LONG_DOUBLE FLOAT16_T REAL DOUBLE_PRECISION REAL4 REAL8")
_COMPLEX: Final = _names("""
    C_COMPLEX C_DOUBLE_COMPLEX C_LONG_DOUBLE_COMPLEX CXX_FLOAT_COMPLEX CXX_DOUBLE_COMPLEX
    CXX_LONG_DOUBLE_COMPLEX COMPLEX DOUBLE_COMPLEX COMPLEX8 COMPLEX16
""")
_LOGICALS: Final = frozenset({"C_BOOL", "CXX_BOOL", "LOGICAL"})
_PAIRS: Final = {
    "SHORT_INT": "h",
    "INT_INT": "i",
    "LONG_INT": "l",
    "FLOAT_INT": "f",
    "DOUBLE_INT": "d",
    "LONG_DOUBLE_INT": "g",
}
_ORDERED = _INTEGERS | _REALS
_NUMBERS = _ORDERED | _COMPLEX
_BITS = _INTEGERS | {"BYTE"}
_TRUTHS = _LOGICALS | {name for name in _INTEGERS if not name.startswith("INTEGER")}
_NONE: Final = frozenset[str]()  # operations of windows only


class Op:
    """A handle of a reduction operation.

    Parameters
    ----------
    op
        Another handle of the same operation; without it the handle is null.
    """

    __slots__ = ("_rule",)

    def __init__(self, op: Op | None = None) -> None:
        self._rule: _Rule | None = None if op is None else op._rule

    @classmethod
    def of(cls, rule: _Rule) -> Self:
        """Make a handle."""
        new = cls()
        new._rule = rule
        return new

    @classmethod
    def Create(cls, function: Callable[[Any, Any, Any], None], commute: bool = False) -> Self:
        """Create an operation: `function` gets two buffers and the datatype, fills the second."""
        if not callable(function):
            raise AttributeError(  # noqa: TRY004 -- mpi4py raises it
                f"{function!r} was given; an operation needs a function"
            )
        return cls.of(_Rule("user", function, None, frozenset(), commutes=bool(commute)))

    @property
    def rule(self) -> _Rule:
        """What the operation does; null operations do nothing."""
        if self._rule is None:
            raise MPIError(ERR_OP, "the null operation was given; pass another one")
        return self._rule

    def Free(self) -> None:
        """Free the operation; the handle is null afterwards."""
        if self.rule.is_predefined:
            raise MPIError(ERR_OP, f"{self!r} is predefined; free only created operations")
        self._rule = None

    def free(self) -> None:
        """Free the operation, unless it is null or predefined."""
        if self._rule is not None and not self._rule.is_predefined:
            self.Free()

    def Is_commutative(self) -> bool:
        """Whether the order of the operands is free."""
        return self.rule.commutes

    is_commutative = property(Is_commutative)

    @property
    def is_predefined(self) -> bool:
        """Whether the operation is null or predefined."""
        return self._rule is None or self._rule.is_predefined

    def __eq__(self, other: object) -> bool:
        return self._rule is other._rule if isinstance(other, Op) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._rule)

    def __bool__(self) -> bool:
        return self._rule is not None

    def __repr__(self) -> str:
        return f"MPI.{self._rule.name if self._rule else 'OP_NULL'}"

    def __reduce__(self) -> Any:
        if not self.is_predefined:
            raise ValueError("an operation of a function was given; it cannot be pickled")
        return operation, (self._rule.name if self._rule else "OP_NULL",)

    def __call__(self, x: Any, y: Any) -> Any:
        """Reduce two Python objects."""
        rule = self._rule
        if rule is None:
            raise ValueError("the null operation was given; it cannot be called")
        return rule.function(x, y) if rule.is_predefined else rule.function(x, y, None)

    def reduce(self, left: Bytes, right: Bytes, target: Buffer) -> Bytes:
        """Reduce packed elements of the datatype of a buffer; `left` is of the lower rank."""
        rule = self.rule
        if not rule.is_predefined:
            return _call(rule.function, left, right, target.datatype)
        return rule.apply(left, right, target.datatype.kind.original().constant, target.datatype)

    def check(self, target: Buffer) -> None:
        """Raise if the operation is not defined for the datatype of a buffer."""
        if self.rule.is_predefined:
            self.rule.dtype(target.datatype.kind.original().constant, target.datatype)

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Reduce elements of a first buffer with those of a second, and store the result there."""
        target, source = as_buffer(inoutbuf, writes=True), as_buffer(inbuf)
        if source.datatype != target.datatype:
            raise ValueError(
                f"{source.datatype!r} and {target.datatype!r} were given; both buffers need "
                "elements of one datatype"
            )
        if source.count != target.count:
            raise ValueError(
                f"{source.count} and {target.count} elements were given; both buffers need as many"
            )
        self.check(target)
        target.unpack(self.reduce(source.pack(), target.pack(), target))


class _Rule:
    """What an operation does with Python objects, and with arrays of which datatypes."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        ufunc: Function | None,
        names: frozenset[str],
        *,
        commutes: bool = True,
    ) -> None:
        self.name = name
        self.function = function
        self.ufunc = ufunc
        self.names = names
        self.commutes = commutes

    @property
    def is_predefined(self) -> bool:
        return self.ufunc is not None

    def dtype(self, constant: str, datatype: Datatype) -> np.dtype[Any]:
        """Element of arrays for a basic type for which the operation is defined."""
        if constant not in self.names:
            raise MPIError(
                ERR_OP,
                f"{self.name} was given for {datatype!r}; MPI does not define it for this type: "
                "create an operation with Op.Create, or convert the data",
            )
        if constant in _PAIRS:
            return np.dtype([("value", _PAIRS[constant]), ("index", "i")])
        return np.dtype(by_name[constant].typestr)

    def apply(self, left: Bytes, right: Bytes, constant: str, datatype: Datatype) -> Bytes:
        """Reduce packed elements by a function of NumPy."""
        dtype = self.dtype(constant, datatype)
        assert self.ufunc is not None
        with np.errstate(all="ignore"):
            result = self.ufunc(left.view(dtype), right.view(dtype))
        return np.ascontiguousarray(result, dtype).view(np.uint8)


def _call(function: Callable[..., None], left: Bytes, right: Bytes, datatype: Datatype) -> Bytes:
    """Apply a function of a user to elements, which need the gaps of their datatype."""
    one = datatype.typemap
    if not one.size or not left.size:
        return right
    count = left.size // one.size
    every = one.repeated(count, one.extent)
    low, high = every.bounds
    low, high = min(low, 0), max(high, count * one.extent)
    memory = np.zeros((2, high - low), np.uint8)
    addresses = [address_of(part) - low for part in memory]
    for address, data in zip(addresses, (left, right), strict=True):
        every.copy(address, data, unpack=True)
    parts = [buffer.fromaddress(address, max(0, count * one.extent)) for address in addresses]
    function(*parts, Datatype(datatype))
    result = np.empty(every.size, np.uint8)
    every.copy(addresses[1], result, unpack=False)
    return result


def _greater(x: Any, y: Any) -> Any:
    return y if y > x else x  # noqa: FURB136 -- NaN, and objects that are not ordered totally


def _less(x: Any, y: Any) -> Any:
    return y if y < x else x  # noqa: FURB136


def _truth(ufunc: Callable[[Array, Array], Array]) -> Function:
    return lambda x, y: ufunc(x != 0, y != 0)


def _located(better: Callable[[Any, Any], Any]) -> Function:
    """Choose the better value of two, and of equal ones the lower index."""

    def choose(x: Array, y: Array) -> Array:
        result = np.where(better(x["value"], y["value"]), x, y)
        equal = x["value"] == y["value"]
        result["index"][equal] = np.minimum(x["index"], y["index"])[equal]
        return result

    return choose


def _located_object(better: Callable[[Any, Any], Any]) -> Function:
    def choose(x: Any, y: Any) -> Any:
        (u, i), (v, j) = x, y
        if better(u, v):
            return u, i
        return (v, j) if better(v, u) or j < i else (u, i)

    return choose


def operation(name: str) -> Op:
    """Predefined operation of a name; pickled operations call it."""
    return by_operation[name]


by_operation: dict[str, Op] = {"OP_NULL": Op()}


def _define(
    name: str, function: Function, ufunc: Function, names: frozenset[str], *, commutes: bool = True
) -> Op:
    op = by_operation[name] = Op.of(_Rule(name, function, ufunc, names, commutes=commutes))
    return op


OP_NULL = by_operation["OP_NULL"]
MAX = _define("MAX", _greater, lambda x, y: np.where(y > x, y, x), _ORDERED)
MIN = _define("MIN", _less, lambda x, y: np.where(y < x, y, x), _ORDERED)
SUM = _define("SUM", lambda x, y: x + y, np.add, _NUMBERS)
PROD = _define("PROD", lambda x, y: x * y, np.multiply, _NUMBERS)
LAND = _define("LAND", lambda x, y: bool(x) & bool(y), _truth(np.logical_and), _TRUTHS)
LOR = _define("LOR", lambda x, y: bool(x) | bool(y), _truth(np.logical_or), _TRUTHS)
LXOR = _define("LXOR", lambda x, y: bool(x) ^ bool(y), _truth(np.logical_xor), _TRUTHS)
BAND = _define("BAND", lambda x, y: x & y, np.bitwise_and, _BITS)
BOR = _define("BOR", lambda x, y: x | y, np.bitwise_or, _BITS)
BXOR = _define("BXOR", lambda x, y: x ^ y, np.bitwise_xor, _BITS)
MAXLOC = _define(
    "MAXLOC", _located_object(lambda u, v: u > v), _located(np.greater), frozenset(_PAIRS)
)
MINLOC = _define(
    "MINLOC", _located_object(lambda u, v: u < v), _located(np.less), frozenset(_PAIRS)
)
REPLACE = _define("REPLACE", lambda _, y: y, lambda _, y: y, _NONE, commutes=False)
NO_OP = _define("NO_OP", lambda x, _: x, lambda x, _: x, _NONE, commutes=False)
