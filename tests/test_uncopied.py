"""What holds MPI objects, shared memory or files is neither pickled nor copied."""

import copy
import pickle

import numpy as np
import pytest
from mpi_helpers import all_raise

import pencils
from pencils import GlobalIndexer, GlobalMultiIndexer, HaloExchange, Pencil, Transposition, dap
from pencils.fft import PencilFFT
from pencils.indexer import Interpolation, PointIndexer
from pencils.lines import LineSolver

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def view(pen, _):
    dim = {
        "dist_type": "c",
        "size": 3 * pen.size,
        "proc_grid_size": pen.size,
        "proc_grid_rank": pen.rank,
        "start": pen.rank,
    }
    export = {"__version__": "0.10.0", "buffer": np.zeros(3), "dim_data": (dim,)}
    return dap.import_array(export, pen.comm)


def open_file(pen, folder):
    pencils.save(folder / "one.h5", {"u": pencils.ones(pen)})
    return pencils.open(folder / "one.h5", comm=pen.comm)


MAKERS = {
    "transposition": lambda pen, _: Transposition(pen, pen.with_(decomp=1)),
    "lines": lambda pen, _: LineSolver(pen, 0, (1, 4, 1)),
    "handle": lambda pen, _: pencils.zeros(pen, halo=1).start_halo_exchange(),
    "halo exchange": lambda pen, _: HaloExchange(pencils.zeros(pen, halo=1)),
    "transform": lambda pen, _: PencilFFT(pen, backend="scipy"),
    "points": lambda pen, _: PointIndexer(pen, ([0], [1], [2])),
    "indexer": lambda pen, _: GlobalIndexer([0] * pen.size + [4], [0, 3], pen.comm),
    "several": lambda pen, _: GlobalMultiIndexer([0] * pen.size + [4], [[0, 3], [1]], pen.comm),
    "interpolation": lambda pen, _: Interpolation(pen, ([0.5], [1.0], [2.0])),
    "view": view,
    "series": lambda pen, folder: pencils.TimeSeries(folder / "series.h5", comm=pen.comm),
    "checkpoints": lambda pen, folder: pencils.CheckpointSeries(folder / "run", comm=pen.comm),
    "open file": open_file,
    "saving": lambda pen, folder: pencils.save(
        folder / "two.h5", {"u": pencils.ones(pen)}, wait=False
    ),
}
COPIES = [copy.copy, copy.deepcopy, pickle.dumps, lambda made: pickle.dumps({"all": [made]}, 2)]


@pytest.mark.parametrize("name", MAKERS)
def test_neither_pickled_nor_copied(comm, mpi_tmp_path, name):
    """The error names what it is about, and the original goes on."""
    made = MAKERS[name](Pencil((8, 6, 5), comm, decomp=0), mpi_tmp_path)
    name = type(made).__name__
    for copied in COPIES:
        all_raise(comm, TypeError, f"a {name} can be neither pickled", copied, made)
    for finish in ("wait", "free", "close"):
        if hasattr(made, finish):
            getattr(made, finish)()
