"""Points of fields in shared memory, read where they lie: against NumPy's indexing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI
from mpi_helpers import (
    NODES,
    everywhere,
    holds,
    nodes_of,
    numbered,
    on_nodes,
    random_field,
    same,
)
from test_indexer_points import points_of
from tiers import examples

import pencils
from pencils import Pencil
from pencils.indexer.gather_scatter import GatherScatter

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

COMM = MPI.COMM_WORLD
SHAPE = (5, 4, 6)


def shared_like(field):
    """Copy a field into shared memory."""
    dims = [dim for dim in range(field.pencil.ndim) if dim not in field.singletons]
    kind = {"dtype": field.dtype, "components": field.components, "halo": field.halo}
    made = pencils.empty(field.pencil, **kind, dims=dims, shared=True)
    made.local[...] = field.local
    return made


@examples(40)
@given(st.integers(0, 2**32), st.booleans())
def test_points_of_any_shared_field_are_taken(seed, check):
    rng = np.random.default_rng(seed)
    field, data = random_field(rng, COMM)
    field = shared_like(field)
    mine = points_of(rng, COMM, field.shape[len(field.components) :])[COMM.rank]
    dims = [dim for dim in range(field.pencil.ndim) if dim not in field.singletons]
    expected = data[(..., *mine)]
    assert everywhere(COMM, same(field.take_points(mine), expected))
    with pencils.indexer.PointIndexer(field.pencil, mine, dims=dims, check=check) as plan:
        out = np.empty(expected.shape, data.dtype)
        for _ in range(3):
            out.view("u1" if out.size else out.dtype)[...] = 0
            assert everywhere(COMM, plan.take(field, out) is out)
            assert everywhere(COMM, same(out, expected))
        assert everywhere(COMM, same(plan.take_start(field).wait(), expected))
    assert everywhere(COMM, holds(field, data))


def shared_field(comm, shape=SHAPE, **options):
    field = pencils.empty(Pencil(shape, comm, **options), shared=True)
    field.local[...] = numbered(shape)[field.local_slices]
    return field


def corners(comm):
    rng = np.random.default_rng(comm.rank)
    return [rng.integers(0, n, 9) for n in SHAPE]


@pytest.mark.parametrize("nodes", NODES)
def test_ranks_on_one_node_make_no_plan(nodes, monkeypatch):
    comm = on_nodes(nodes)
    field, points = shared_field(comm), corners(comm)
    apart = len(set(nodes_of(nodes))) > 1
    made = []
    make = GatherScatter.__init__
    monkeypatch.setattr(GatherScatter, "__init__", lambda *args: made.append(1) or make(*args))
    assert everywhere(comm, same(field.take_points(points), numbered(SHAPE)[tuple(points)]))
    assert everywhere(comm, bool(made) == apart)


def test_one_private_block_is_enough_to_ask_for_messages(comm):
    field, points = shared_field(comm), corners(comm)
    if comm.rank == comm.size - 1:
        field = field.from_block(field.pencil, field.local.copy())
    assert everywhere(comm, same(field.take_points(points), numbered(SHAPE)[tuple(points)]))


def test_ranks_may_pass_other_outputs_than_before(comm):
    field, points = shared_field(comm), corners(comm)
    other = shared_field(comm)
    other.local[...] *= 2
    kept = np.empty(9)
    with pencils.indexer.PointIndexer(field.pencil, points, check=False) as plan:
        for turn in range(6):
            u, factor = (field, 1) if turn % 3 else (other, 2)
            out = kept if (turn + comm.rank) % 2 else np.empty(9)
            found = plan.take(u, out)
            assert everywhere(comm, same(found, factor * numbered(SHAPE)[tuple(points)]))


def test_what_was_stored_before_is_read(comm):
    field, points = shared_field(comm), corners(comm)
    with pencils.indexer.PointIndexer(field.pencil, points, check=False) as plan:
        for turn in range(50):
            field.local[...] = turn
            assert (field.take_points(points) == turn).all()
            field.local[...] = -turn
            assert (plan.take(field) == -turn).all()


@pytest.mark.parametrize("once", [True, False])
def test_a_shared_field_is_reversed_in_place(comm, once):
    field = shared_field(comm, (23,))
    (here,) = field.local_slices
    mine = [22 - np.arange(23)[here]]
    with pencils.indexer.PointIndexer(field.pencil, mine, check=False) as plan:
        for expected in (numbered((23,))[::-1], numbered((23,))):
            if once:
                field.take_points(mine, field.local)
            else:
                plan.take(field, field.local)
            assert everywhere(comm, holds(field, np.ascontiguousarray(expected)))


def test_more_ranks_than_points(comm):
    field = shared_field(comm, (2, 2), splits=[[0, *[0] * (comm.size - 1), 2], "first"], decomp=0)
    found = field.take_points(([0, 1], [1, 0]))
    assert everywhere(comm, same(found, numbered((2, 2))[[0, 1], [1, 0]]))


def test_tables_go_with_their_communicator():
    comm = COMM.Dup()
    field = shared_field(comm)
    field.take_points((0, 0, 0))
    comm.Free()
    with pytest.raises(pencils.errors.PencilsError, match="freed"):
        field.take_points((0, 0, 0))
