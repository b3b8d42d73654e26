"""Copies of singleton dimensions that drifted apart are found, and named on all ranks."""

import numpy as np
import pytest
from fields import both, draw, lay
from mpi_helpers import all_raise

import pencils
from pencils.errors import RankDisagreementError, ReplicaError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("dtype", ["f8", "g", "c8", "i2", "?", "S3"])
def test_equal_copies_pass(pencil, dtype):
    pencils.debug.verify_replicas(pencils.zeros(pencil, dtype=dtype, components=2))
    for dim in range(pencil.ndim):
        u = pencils.ones(pencil, dims=dim, components=2).astype(dtype)
        pencils.debug.verify_replicas(u)


def test_nan_and_padding_are_no_difference(comm):
    pencil = pencils.Pencil((4, 5), comm, decomp=1)
    u = pencils.full(pencil, np.nan, dims=0)
    pencils.debug.verify_replicas(u)
    pencils.debug.verify_replicas(u.astype("g"))
    kind = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8]})
    v = pencils.empty(pencil, dtype=kind, dims=0)
    v.local.view(np.uint8)[...] = comm.rank
    v.local["a"] = v.local["b"] = 1
    pencils.debug.verify_replicas(v)


@pytest.mark.parallel([2, 3, 4, 6])
@pytest.mark.parametrize("change", [1.5, -0.0])
def test_strayed_copies_are_named(comm, change):
    pencil = pencils.Pencil((6, 2 * comm.size), comm, decomp=1)
    u = pencils.zeros(pencil, dims=0, halo=1)
    u.padded[...] = np.where(u.padded == 0, u.padded, 0)
    if comm.rank == comm.size - 1:
        u.local[3] = change
    text = rf"singleton dimensions [1] on ranks [{comm.size - 1}]"
    all_raise(comm, ReplicaError, text, pencils.debug.verify_replicas, u)


def test_ghosts_do_not_count(comm):
    u = pencils.zeros(pencils.Pencil((6, 8), comm, decomp=1), dims=0, halo=1)
    u.padded[0] = comm.rank
    pencils.debug.verify_replicas(u)


@pytest.mark.parallel([2, 3, 4, 6])
def test_replicas_along_two_dimensions(comm):
    pencil = lay(comm, "pencils")
    u, _ = both(pencil, draw((1, 1, pencil.shape[2])), dims=2)
    pencils.debug.verify_replicas(u)
    u.local[0, 0, 0] += pencil.rank
    ranks = str(list(range(1, comm.size)))
    all_raise(comm, ReplicaError, ranks, pencils.debug.verify_replicas, u)


def test_different_fields(comm):
    pencil = lay(comm, "pencils")
    u = pencils.zeros(pencil, dims=comm.rank % 2)
    if comm.size > 1:
        all_raise(comm, RankDisagreementError, "", pencils.debug.verify_replicas, u)
    with pytest.raises(TypeError, match="must be a PencilArray"):
        pencils.debug.verify_replicas(np.zeros(3))
