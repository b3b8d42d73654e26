"""N-dimensional grids distributed over MPI processes: global in meaning, local in storage."""

from pencils import dap, debug, random
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
from pencils.array.pencil_array import PencilArray
from pencils.distribute.gather import gather
from pencils.distribute.localgrid import localgrid
from pencils.distribute.partition import partition
from pencils.errors import PencilsError
from pencils.halo import HaloExchange
from pencils.indexer import GlobalIndexer, GlobalMultiIndexer, PointIndexer, ReduceOp
from pencils.indexer.interpolation import Interpolation, interpolate
from pencils.io import CheckpointSeries, TimeSeries, load, save, verify
from pencils.io import open as open  # noqa: A004 - not in __all__: hides no builtin
from pencils.notebook import load_ipython_extension as load_ipython_extension
from pencils.pencil import Pencil
from pencils.simulation import simulate
from pencils.transposition.alias import alias
from pencils.transposition.plan import Transposition, transpose
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
    "debug",
    "empty",
    "empty_like",
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
    "simulate",
    "transpose",
    "tune",
    "verify",
    "zeros",
    "zeros_like",
]
