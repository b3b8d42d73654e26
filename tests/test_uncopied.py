"""What holds MPI objects, shared memory or files is neither pickled nor copied."""

import copy
import pickle

import numpy as np
import pytest
from mpi_helpers import raise_together

import pencils
from pencils import GlobalIndexer, GlobalMultiIndexer, HaloExchange, Pencil, Transposition, dap
from pencils.fft import PencilFFT
from pencils.indexer import Interpolation, PointIndexer
from pencils.lines import LineSolver

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def transposition(pen, _):
    return Transposition(pen, pen.with_(decomp=1))


def lines(pen, _):
    return LineSolver(pen, 0, (1, 4, 1))


def handle(pen, _):
    u = pencils.zeros(pen, halo=1)
    return u.start_halo_exchange()


def halo_exchange(pen, _):
    return HaloExchange(pencils.zeros(pen, halo=1))


def transform(pen, _):
    return PencilFFT(pen, backend="scipy")


def point_indexer(pen, _):
    return PointIndexer(pen, ([0], [1], [2]))


def global_indexer(pen, _):
    return GlobalIndexer([0] * pen.size + [4], [0, 3], pen.comm)


def global_multi_indexer(pen, _):
    return GlobalMultiIndexer([0] * pen.size + [4], [[0, 3], [1]], pen.comm)


def interpolation(pen, _):
    return Interpolation(pen, ([0.5], [1.0], [2.0]))


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


def time_series(pen, folder):
    return pencils.TimeSeries(folder / "series.h5", comm=pen.comm)


def checkpoint_series(pen, folder):
    return pencils.CheckpointSeries(folder / "run", comm=pen.comm)


def open_file(pen, folder):
    pencils.save(folder / "one.h5", {"u": pencils.ones(pen)})
    return pencils.open(folder / "one.h5", comm=pen.comm)


def saving(pen, folder):
    return pencils.save(folder / "two.h5", {"u": pencils.ones(pen)}, wait=False)


MAKERS = [
    transposition,
    lines,
    handle,
    halo_exchange,
    transform,
    point_indexer,
    global_indexer,
    global_multi_indexer,
    interpolation,
    view,
    time_series,
    checkpoint_series,
    open_file,
    saving,
]
COPIES = [copy.copy, copy.deepcopy, pickle.dumps, lambda made: pickle.dumps({"all": [made]}, 2)]


@pytest.mark.parametrize("make", MAKERS)
def test_neither_pickled_nor_copied(comm, mpi_tmp_path, make):
    """The error names what it is about, and the original goes on."""
    made = make(Pencil((8, 6, 5), comm, decomp=0), mpi_tmp_path)
    name = type(made).__name__
    for copied in COPIES:
        raise_together(
            comm, TypeError, f"a {name} can be neither pickled", call=lambda c=copied: c(made)
        )
    for finish in ("wait", "free", "close"):
        if hasattr(made, finish):
            getattr(made, finish)()
