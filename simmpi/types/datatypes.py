"""Predefined datatypes, under the names that they have in mpi4py."""

from __future__ import annotations

import numpy as np

from simmpi.types import typemaps
from simmpi.types.derived import COMBINERS, Datatype, by_code, by_name, live
from simmpi.types.kinds import Kind

__all__ = ["COMBINERS", "Datatype", "by_code", "by_name", "live"]


def _basic(constant: str, char: str, code: str, signature: str = "", name: str = "") -> Datatype:
    """Define a basic type by its codes of NumPy, of one character and with its size."""
    dtype = np.dtype({"U": "U1"}.get(char, char))
    kind = Kind(
        typemaps.basic(signature or dtype.str[1:], dtype.itemsize, dtype.alignment), "NAMED"
    )
    kind.char, kind.code = char, code
    return _define(kind, constant, name)


def _pair(constant: str, char: str, name: str = "") -> Datatype:
    """Define the type of a value and an index, as a struct of C."""
    dtypes = np.dtype(char), np.dtype("i")
    parts = [typemaps.basic(dtype.str[1:], dtype.itemsize, dtype.alignment) for dtype in dtypes]
    offset = max(dtypes[0].itemsize, dtypes[1].itemsize)
    kind = Kind(typemaps.struct([1, 1], [0, offset], parts), "NAMED")
    return _define(kind, constant, name)


def _define(kind: Kind, constant: str, name: str) -> Datatype:
    kind.constant, kind.name = constant, name or f"MPI_{constant}"
    by_name[constant] = Datatype.of(kind)
    return by_name[constant]


DATATYPE_NULL = by_name["DATATYPE_NULL"] = Datatype()
BYTE = _basic("BYTE", "B", "B", "byte")
PACKED = _basic("PACKED", "B", "B", "packed")
AINT = _basic("AINT", "p", "p")
OFFSET = _basic("OFFSET", "p", "p")
COUNT = _basic("COUNT", "p", "p")
CHAR = _basic("CHAR", "c", "c")
WCHAR = _basic("WCHAR", "U", "U")
SIGNED_CHAR = _basic("SIGNED_CHAR", "b", "b")
SHORT = _basic("SHORT", "h", "h")
INT = _basic("INT", "i", "i")
LONG = _basic("LONG", "l", "l")
LONG_LONG = _basic("LONG_LONG", "q", "q", name="MPI_LONG_LONG_INT")
UNSIGNED_CHAR = _basic("UNSIGNED_CHAR", "B", "B")
UNSIGNED_SHORT = _basic("UNSIGNED_SHORT", "H", "H")
UNSIGNED = _basic("UNSIGNED", "I", "I")
UNSIGNED_LONG = _basic("UNSIGNED_LONG", "L", "L")
UNSIGNED_LONG_LONG = _basic("UNSIGNED_LONG_LONG", "Q", "Q")
FLOAT = _basic("FLOAT", "f", "f")
DOUBLE = _basic("DOUBLE", "d", "d")
LONG_DOUBLE = _basic("LONG_DOUBLE", "g", "g")
C_BOOL = _basic("C_BOOL", "?", "b1")
INT8_T = _basic("INT8_T", "b", "i1")
INT16_T = _basic("INT16_T", "h", "i2")
INT32_T = _basic("INT32_T", "i", "i4")
INT64_T = _basic("INT64_T", "l", "i8")
UINT8_T = _basic("UINT8_T", "B", "u1")
UINT16_T = _basic("UINT16_T", "H", "u2")
UINT32_T = _basic("UINT32_T", "I", "u4")
UINT64_T = _basic("UINT64_T", "L", "u8")
FLOAT16_T = _basic("FLOAT16_T", "e", "e", name="MPIX_C_FLOAT16")
C_COMPLEX = _basic("C_COMPLEX", "F", "F")
C_DOUBLE_COMPLEX = _basic("C_DOUBLE_COMPLEX", "D", "D")
C_LONG_DOUBLE_COMPLEX = _basic("C_LONG_DOUBLE_COMPLEX", "G", "G")
CXX_BOOL = _basic("CXX_BOOL", "?", "?")
CXX_FLOAT_COMPLEX = _basic("CXX_FLOAT_COMPLEX", "F", "F")
CXX_DOUBLE_COMPLEX = _basic("CXX_DOUBLE_COMPLEX", "D", "D")
CXX_LONG_DOUBLE_COMPLEX = _basic("CXX_LONG_DOUBLE_COMPLEX", "G", "G")
CHARACTER = _basic("CHARACTER", "c", "c")
LOGICAL = _basic("LOGICAL", "i", "i")
INTEGER = _basic("INTEGER", "i", "i")
REAL = _basic("REAL", "f", "f")
DOUBLE_PRECISION = _basic("DOUBLE_PRECISION", "d", "d")
COMPLEX = _basic("COMPLEX", "F", "F")
DOUBLE_COMPLEX = _basic("DOUBLE_COMPLEX", "D", "D")
INTEGER1 = _basic("INTEGER1", "b", "i1")
INTEGER2 = _basic("INTEGER2", "h", "i2")
INTEGER4 = _basic("INTEGER4", "i", "i4")
INTEGER8 = _basic("INTEGER8", "l", "i8")
REAL4 = _basic("REAL4", "f", "f4")
REAL8 = _basic("REAL8", "d", "f8")
REAL16 = _basic("REAL16", "g", "f16")
COMPLEX8 = _basic("COMPLEX8", "F", "c8")
COMPLEX16 = _basic("COMPLEX16", "D", "c16")
COMPLEX32 = _basic("COMPLEX32", "G", "c32")
SHORT_INT = _pair("SHORT_INT", "h")
INT_INT = _pair("INT_INT", "i", "MPI_2INT")
LONG_INT = _pair("LONG_INT", "l")
FLOAT_INT = _pair("FLOAT_INT", "f")
DOUBLE_INT = _pair("DOUBLE_INT", "d")
LONG_DOUBLE_INT = _pair("LONG_DOUBLE_INT", "g")

# Other names of the same types
TWOINT = INT_INT
FLOAT32_T = FLOAT
FLOAT64_T = DOUBLE
C_FLOAT_COMPLEX = C_COMPLEX
UNSIGNED_INT = UNSIGNED
SIGNED_SHORT = SHORT
SIGNED_INT = INT
SIGNED_LONG = LONG
SIGNED_LONG_LONG = LONG_LONG
BOOL = C_BOOL
SINT8_T = INT8_T
SINT16_T = INT16_T
SINT32_T = INT32_T
SINT64_T = INT64_T
F_BOOL = LOGICAL
F_INT = INTEGER
F_FLOAT = REAL
F_DOUBLE = DOUBLE_PRECISION
F_COMPLEX = F_FLOAT_COMPLEX = COMPLEX
F_DOUBLE_COMPLEX = DOUBLE_COMPLEX

# Types that NumPy does not have are null, as those are that an MPI library lacks.
BFLOAT16_T = REAL2 = COMPLEX4 = INTEGER16 = DATATYPE_NULL
LOGICAL1 = LOGICAL2 = LOGICAL4 = LOGICAL8 = LOGICAL16 = DATATYPE_NULL

# The type of each code of NumPy, and of the module struct.
_CODES = {
    "? b1": C_BOOL,
    "b": SIGNED_CHAR,
    "h": SHORT,
    "i": INT,
    "l": LONG,
    "q": LONG_LONG,
    "B": UNSIGNED_CHAR,
    "H": UNSIGNED_SHORT,
    "I": UNSIGNED,
    "L N P": UNSIGNED_LONG,
    "Q": UNSIGNED_LONG_LONG,
    "e f2": FLOAT16_T,
    "f f4": FLOAT,
    "d f8": DOUBLE,
    "g f16": LONG_DOUBLE,
    "Zf F c8": C_COMPLEX,
    "Zd D c16": C_DOUBLE_COMPLEX,
    "Zg G c32": C_LONG_DOUBLE_COMPLEX,
    "i1": INT8_T,
    "i2": INT16_T,
    "i4": INT32_T,
    "i8 M M8 m m8": INT64_T,
    "u1": UINT8_T,
    "u2 u 1u": UINT16_T,
    "u4": UINT32_T,
    "u8": UINT64_T,
    "n": COUNT,
    "p": AINT,
    "c a S S1 s 1s": CHAR,
    "U U1 w 1w": WCHAR,
}
by_code.update((code, kind) for codes, kind in _CODES.items() for code in codes.split())
