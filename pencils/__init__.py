"""N-dimensional grids distributed over MPI processes: global in meaning, local in storage."""

from pencils import dap, random
from pencils.array.creation import (
    empty,
    empty_like,
    from_function,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from pencils.array.debug import debug_ghosts
from pencils.array.pencil_array import PencilArray
from pencils.array.replicas import verify_replicas
from pencils.distribute.gather import gather
from pencils.distribute.localgrid import localgrid
from pencils.distribute.partition import partition
from pencils.errors import PencilsError
from pencils.halo import HaloExchange, exchange_halos
from pencils.indexer import GlobalIndexer, GlobalMultiIndexer, PointIndexer, ReduceOp
from pencils.indexer.interpolation import Interpolation, interpolate
from pencils.io import CheckpointSeries, TimeSeries, load, save, verify, write_xdmf
from pencils.io import open as open  # noqa: A004 - not in __all__: hides no builtin
from pencils.pencil import Pencil
from pencils.transposition.alias import alias
from pencils.transposition.plan import Transposition
from pencils.transposition.transpose import transpose
from pencils.transposition.tune import tune

__version__ = "0.1.0"

__all__ = [
    "CheckpointSeries",
    "GlobalIndexer",
    "GlobalMultiIndexer",
    "HaloExchange",
    "Interpolation",
    "Pencil",
    "PencilArray",
    "PencilsError",
    "PointIndexer",
    "ReduceOp",
    "TimeSeries",
    "Transposition",
    "__version__",
    "alias",
    "dap",
    "debug_ghosts",
    "empty",
    "empty_like",
    "exchange_halos",
    "from_function",
    "full",
    "full_like",
    "gather",
    "interpolate",
    "load",
    "localgrid",
    "ones",
    "ones_like",
    "partition",
    "random",
    "save",
    "transpose",
    "tune",
    "verify",
    "verify_replicas",
    "write_xdmf",
    "zeros",
    "zeros_like",
]
