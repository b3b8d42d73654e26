"""Integer constants of MPI.

Those that programs pass to calls have the values of the MPI library that is loaded: a program may
have taken them before, for example as default values of arguments. Others are those of MPICH.
"""

from __future__ import annotations

import sys
from typing import Final


def _value(name: str, otherwise: int) -> int:
    """Return the value of a constant in the loaded MPI library."""
    return int(getattr(sys.modules.get("mpi4py.MPI"), name, otherwise))


UNDEFINED: Final = -32766
ANY_SOURCE: Final = _value("ANY_SOURCE", -2)
ANY_TAG: Final = _value("ANY_TAG", -1)
PROC_NULL: Final = _value("PROC_NULL", -1)
ROOT: Final = _value("ROOT", -3)
KEYVAL_INVALID: Final = _value("KEYVAL_INVALID", 0x24000000)

IDENT, CONGRUENT, SIMILAR, UNEQUAL = range(4)
GRAPH: Final = _value("GRAPH", 1)
CART: Final = _value("CART", 2)
DIST_GRAPH: Final = _value("DIST_GRAPH", 3)
COMM_TYPE_SHARED: Final = _value("COMM_TYPE_SHARED", 1)
COMM_TYPE_HW_GUIDED: Final = 2
COMM_TYPE_HW_UNGUIDED: Final = 3
COMM_TYPE_RESOURCE_GUIDED: Final = 4
THREAD_SINGLE, THREAD_FUNNELED, THREAD_SERIALIZED, THREAD_MULTIPLE = range(4)
ORDER_C: Final = _value("ORDER_C", 56)
ORDER_FORTRAN: Final = _value("ORDER_FORTRAN", 57)
ORDER_F = ORDER_FORTRAN
LOCK_EXCLUSIVE: Final = _value("LOCK_EXCLUSIVE", 234)
LOCK_SHARED: Final = _value("LOCK_SHARED", 235)
MODE_NOCHECK: Final = _value("MODE_NOCHECK", 1024)
MODE_NOSTORE: Final = _value("MODE_NOSTORE", 2048)
MODE_NOPUT: Final = _value("MODE_NOPUT", 4096)
MODE_NOPRECEDE: Final = _value("MODE_NOPRECEDE", 8192)
MODE_NOSUCCEED: Final = _value("MODE_NOSUCCEED", 16384)
WIN_FLAVOR_CREATE, WIN_FLAVOR_ALLOCATE, WIN_FLAVOR_DYNAMIC, WIN_FLAVOR_SHARED = 1, 2, 3, 4
WIN_SEPARATE: Final = _value("WIN_SEPARATE", 1)
WIN_UNIFIED: Final = _value("WIN_UNIFIED", 2)

# Keys of predefined attributes.
TAG_UB: Final = _value("TAG_UB", 0x64400001)
IO: Final = _value("IO", 0x64400005)
WTIME_IS_GLOBAL: Final = _value("WTIME_IS_GLOBAL", 0x64400007)
UNIVERSE_SIZE: Final = _value("UNIVERSE_SIZE", 0x64400009)
APPNUM: Final = _value("APPNUM", 0x6440000D)
LASTUSEDCODE: Final = 0x6440000B
WIN_BASE: Final = _value("WIN_BASE", 0x66000001)
WIN_SIZE: Final = _value("WIN_SIZE", 0x66000003)
WIN_DISP_UNIT: Final = _value("WIN_DISP_UNIT", 0x66000005)
WIN_CREATE_FLAVOR: Final = _value("WIN_CREATE_FLAVOR", 0x66000007)
WIN_MODEL: Final = _value("WIN_MODEL", 0x66000009)
WIN_FLAVOR = WIN_CREATE_FLAVOR

# In place of the weights of a graph.
UNWEIGHTED: Final = 0x66000010
WEIGHTS_EMPTY: Final = 0x66000011

# Of what is not simulated, so that programs can be imported.
MODE_CREATE, MODE_RDONLY, MODE_WRONLY, MODE_RDWR = 1, 2, 4, 8
MODE_DELETE_ON_CLOSE, MODE_UNIQUE_OPEN, MODE_EXCL, MODE_APPEND, MODE_SEQUENTIAL = (
    16,
    32,
    64,
    128,
    256,
)
SEEK_SET, SEEK_CUR, SEEK_END = 600, 602, 604
DISPLACEMENT_CURRENT = DISP_CUR = -54278278
DISTRIBUTE_BLOCK, DISTRIBUTE_CYCLIC, DISTRIBUTE_NONE, DISTRIBUTE_DFLT_DARG = 121, 122, 123, -49767
TYPECLASS_REAL, TYPECLASS_INTEGER, TYPECLASS_COMPLEX, TYPECLASS_LOGICAL = 1, 2, 3, 4
MAX_DATAREP_STRING, MAX_INFO_KEY, MAX_INFO_VAL, MAX_PORT_NAME = 128, 255, 1024, 1024
MAX_LIBRARY_VERSION_STRING, MAX_PSET_NAME_LEN, MAX_STRINGTAG_LEN = 8192, 256, 256

LARGEST_TAG: Final = 2**28 - 1
VERSION, SUBVERSION = 4, 1
MAX_PROCESSOR_NAME: Final = 128
MAX_ERROR_STRING: Final = 512
MAX_OBJECT_NAME: Final = 128
BSEND_OVERHEAD: Final = 96
