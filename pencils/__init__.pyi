# The public names, and where they are defined: for type checkers, and for `__init__.py`, which
# imports a module when the first of its names is used.

from pencils import dap as dap
from pencils import debug as debug
from pencils import fft as fft
from pencils import graph as graph
from pencils import io as io
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
from pencils.array.stencils import stencil as stencil
from pencils.comm.pool import memory as memory
from pencils.comm.progress import ProgressThread as ProgressThread
from pencils.comm.progress import progress as progress
from pencils.distribute.gather import gather as gather
from pencils.distribute.localgrid import localgrid as localgrid
from pencils.distribute.partition import partition as partition
from pencils.errors import PencilsError as PencilsError
from pencils.functions.along import along as along
from pencils.functions.points import own_points as own_points
from pencils.halo import HaloExchange as HaloExchange
from pencils.indexer import GlobalIndexer as GlobalIndexer
from pencils.indexer import GlobalMultiIndexer as GlobalMultiIndexer
from pencils.indexer import PointIndexer as PointIndexer
from pencils.indexer import ReduceOp as ReduceOp
from pencils.indexer.interpolation import Interpolation as Interpolation
from pencils.indexer.interpolation import interpolate as interpolate
from pencils.io import CheckpointSeries as CheckpointSeries
from pencils.io import TimeSeries as TimeSeries
from pencils.io import load as load
from pencils.io import open as open  # noqa: A004
from pencils.io import save as save
from pencils.io import verify as verify
from pencils.lines.banded import solve_banded as solve_banded
from pencils.lines.derivative import CompactDerivative as CompactDerivative
from pencils.lines.derivative import derivative as derivative
from pencils.lines.midpoints import midpoints as midpoints
from pencils.lines.solver import LineSolver as LineSolver
from pencils.logs import RootFilter as RootFilter
from pencils.pencil import Pencil as Pencil
from pencils.recovery.copies import BuddyCopies as BuddyCopies
from pencils.recovery.recover import recover as recover
from pencils.tools import plot as plot
from pencils.tools import testing as testing
from pencils.tools.planning.candidates import plan as plan
from pencils.tools.planning.links import Links as Links
from pencils.tools.planning.links import measure_links as measure_links
from pencils.tools.profiling import profile as profile
from pencils.transposition.alias import alias as alias
from pencils.transposition.kept import transpose as transpose
from pencils.transposition.plan import Transposition as Transposition
from pencils.transposition.tune import tune as tune
from simmpi import simulate as simulate

__version__: str
