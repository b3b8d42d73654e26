# The public names for type checkers, and where they are defined: those of `_LAZY` in `__init__.py`.

from pencils import dap as dap
from pencils import debug as debug
from pencils import errors as errors
from pencils import fft as fft
from pencils import functions as functions
from pencils import graph as graph
from pencils import halo as halo
from pencils import indexer as indexer
from pencils import interop as interop
from pencils import io as io
from pencils import layout as layout
from pencils import lines as lines
from pencils import logs as logs
from pencils import random as random
from pencils.array.creation import empty as empty
from pencils.array.creation import empty_like as empty_like
from pencils.array.creation import from_function as from_function
from pencils.array.creation import full as full
from pencils.array.creation import full_like as full_like
from pencils.array.creation import ones as ones
from pencils.array.creation import ones_like as ones_like
from pencils.array.creation import zeros as zeros
from pencils.array.creation import zeros_like as zeros_like
from pencils.array.pencil_array import PencilArray as PencilArray
from pencils.comm.pool import memory as memory
from pencils.comm.progress import ProgressThread as ProgressThread
from pencils.comm.progress import progress as progress
from pencils.distribute.gather import gather as gather
from pencils.distribute.localgrid import localgrid as localgrid
from pencils.distribute.partition import partition as partition
from pencils.graph.fused import fused as fused
from pencils.halo import HaloExchange as HaloExchange
from pencils.halo import exchange_halos as exchange_halos
from pencils.indexer import GlobalIndexer as GlobalIndexer
from pencils.indexer import GlobalMultiIndexer as GlobalMultiIndexer
from pencils.io import CheckpointSeries as CheckpointSeries
from pencils.io import TimeSeries as TimeSeries
from pencils.io import load as load
from pencils.io import open as open  # noqa: A004
from pencils.io import save as save
from pencils.io import verify as verify
from pencils.lines.derivative import derivative as derivative
from pencils.pencil import Pencil as Pencil
from pencils.tools import planning as planning
from pencils.tools import plot as plot
from pencils.tools import recovery as recovery
from pencils.tools import testing as testing
from pencils.tools.planning.candidates import plan as plan
from pencils.tools.planning.tuning import tune as tune
from pencils.tools.profiling import profile as profile
from pencils.transposition.plan import Transposition as Transposition
from pencils.transposition.transpose import alias as alias
from pencils.transposition.transpose import transpose as transpose
from simmpi import simulate as simulate

__version__: str
