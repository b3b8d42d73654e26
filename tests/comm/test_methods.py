"""Every method moves every pair of layouts and every element type as NumPy slices would."""

from dataclasses import dataclass
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi_helpers import (
    DTYPES,
    NODES,
    all_raise,
    everywhere,
    holds,
    nodes_of,
    numbered,
    on_nodes,
    random_pencil,
    spread,
    ways,
)
from tiers import examples

import pencils
from pencils import Pencil, PencilArray, Transposition
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError
from pencils.layout import redistribution

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)
LARGEST = 7
MEMORIES = ["private", "shared", "some shared", "strided", "backwards"]


@dataclass
class Case:
    """What is moved: fields of one kind between two pencils."""

    source: Pencil
    target: Pencil
    dtype: np.dtype
    components: tuple[int, ...]
    dims: list[int]

    @property
    def kind(self):
        return {"dtype": self.dtype, "components": self.components, "dims": self.dims}

    def data(self, seed=0):
        """Global data, another one for every seed."""
        extents = (n if d in self.dims else 1 for d, n in enumerate(self.source.shape))
        shape = (*self.components, *extents)
        return np.roll(numbered(shape, self.dtype).reshape(-1), seed).reshape(shape)


def draw_case(draw, comm):
    extents = st.sampled_from([*range(1, LARGEST + 1), *range(2, LARGEST), 0])
    shape = draw(st.lists(extents, min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pens = [random_pencil(rng, comm, shape) for _ in range(2)]
    lead = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 2, 1, 3, 0]), max_size=2)))
    dims = [d for d in range(len(shape)) if draw(st.integers(0, 4))]
    return Case(*pens, draw(st.sampled_from(DTYPES)), lead, dims)


def draw_field(draw, case, pencil):
    """Make a field without values in any kind of memory, with any halo."""
    halo = draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=pencil.ndim)
        .map(lambda widths: widths[: pencil.ndim])
        .map(lambda widths: [w if d in case.dims else (0, 0) for d, w in enumerate(widths)])
    )
    if draw(st.booleans()):
        halo = 0
    memory = draw(st.sampled_from(MEMORIES))
    field = pencils.zeros(pencil, **case.kind, halo=halo, shared="shared" in memory)
    rank = pencil.rank
    if memory == "some shared" and (rank + draw(st.integers(0, 1))) % 2:
        field = field.from_block(pencil, field.padded.copy(), field.singletons, field.halo)
    if memory == "strided":
        wide = np.repeat(field.padded, 2 + rank, axis=-1)[..., :: 2 + rank]
        field = PencilArray(pencil, wide, halo=halo, dims=case.dims)
    if memory == "backwards":
        turned = field.padded[..., ::-1].T.copy().T[..., ::-1]
        field = PencilArray(pencil, turned, halo=halo, dims=case.dims)
    return field


def fill(field, data):
    """Set the own block to its part of global data, and the halo to something else."""
    field.padded[...] = np.frombuffer(b"\1" * data.dtype.itemsize, data.dtype)[0]
    field.local[...] = data[field.local_slices]


def around(field):
    """Give the bytes of the halo."""
    whole = field.padded.copy()
    lead = len(field.components)
    own = zip(field.halo, field.local_shape[lead:], strict=True)
    whole[(..., *(slice(lo, lo + n) for (lo, _), n in own))] = np.zeros((), whole.dtype)
    return whole.tobytes()


@ways
@examples(12)
@given(st.data())
def test_moves_as_numpy_does(comm, method, data):
    draw = data.draw
    case = draw_case(draw, comm)
    count = draw(st.integers(1, 3))
    staging = draw(st.none() | st.integers(1, 2000))
    with Transposition(
        case.source, case.target, **case.kind, method=method, max_buffer_bytes=staging
    ) as plan:
        sources = [draw_field(draw, case, case.source) for _ in range(count)]
        targets = [draw_field(draw, case, case.target) for _ in range(count)]
        known = [case.data(seed) for seed in range(count)]
        for u, v, values in zip(sources, targets, known, strict=True):
            fill(u, values)
            fill(v, case.data(7))
        before = [field.padded.tobytes() for field in sources], [around(v) for v in targets]
        how = draw(st.sampled_from(["call", "start", "batch"]))
        if how == "batch":
            plan.batch(sources, targets)
        elif how == "call":
            for u, v in zip(sources, targets, strict=True):
                plan(u, v)
        else:
            handles = [plan.start(u, v) for u, v in zip(sources, targets, strict=True)]
            order = np.random.default_rng(comm.rank).permutation(count)
            for n in order:
                assert handles[n].wait() is targets[n]
        assert everywhere(comm, all(map(holds, targets, known)))
        after = [field.padded.tobytes() for field in sources], [around(v) for v in targets]
        assert everywhere(comm, before == after)
        with plan.reversed() as back:
            returned = back.batch(targets)
            assert everywhere(comm, all(map(holds, returned, known)))


@ways
@examples(12)
@given(st.data())
def test_moves_in_place_as_numpy_does(comm, method, data):
    draw = data.draw
    case = draw_case(draw, comm)
    count = draw(st.integers(1, 2))
    shared = draw(st.booleans())
    pens = case.source, case.target
    with Transposition(*pens, **case.kind, method=method) as plan, plan.reversed() as back:
        pairs = [pencils.alias(pens, **case.kind, shared=shared) for _ in range(count)]
        if draw(st.booleans()):  # on one rank only
            alone = draw(st.integers(0, comm.size - 1))
            if comm.rank != alone:
                pairs = [(u, spread(v.pencil, case.data(), dims=case.dims)) for u, v in pairs]
        known = [case.data(seed) for seed in range(count)]
        for turn in range(2):
            for (u, _), values in zip(pairs, known, strict=True):
                u.local[...] = values[u.local_slices]
            us, vs = zip(*pairs, strict=True)
            if turn:
                for handle in [plan.start(*pair) for pair in pairs]:
                    handle.wait()
            else:
                plan.batch(us, vs)
            assert everywhere(comm, all(map(holds, vs, known)))
            back.batch(vs, us)
            assert everywhere(comm, all(map(holds, us, known)))


# Which one is taken.


@pytest.mark.parametrize("nodes", ["even and odd", "two halves", "one rank apart", "three nodes"])
def test_the_rule_uses_shared_memory_as_far_as_it_reaches(nodes):
    comm = on_nodes(nodes)
    spread_out = topology_of(comm).nodes
    rows = Pencil((12, 12), comm, decomp=0)
    with Transposition(rows, rows.with_(decomp=1)) as plan:
        if comm.size in (1, spread_out):
            assert plan.method == "messages"
        else:
            assert plan.method == ("shared" if spread_out == 1 else "hybrid")
        assert f"by {plan.method}" in repr(plan)
        values = numbered(rows.shape)
        assert everywhere(comm, holds(plan(spread(rows, values)), values))


@pytest.mark.parametrize("nodes", list(NODES)[1:])
def test_the_rule_for_grids_in_which_some_rows_are_on_a_node(nodes):
    """Messages only if no two ranks that exchange points are on one node."""
    comm = on_nodes(nodes)
    where = nodes_of(nodes)
    source = Pencil((6, 7, 8), comm)
    for decomp in ((0, 2), (2, 1), (1, 0)):
        target = source.with_(decomp=decomp)
        pairs = [
            (where[message.source], where[message.dest])
            for rank in range(comm.size)
            for message in redistribution(source.layout, target.layout, rank, None)[0]
            if message.source != message.dest
        ]
        several = "hybrid" if any(one == other for one, other in pairs) else "messages"
        if len(set(where)) > 1:
            with Transposition(source, target) as plan:
                assert plan.method == several


@pytest.mark.parallel([2, 3, 4, 6])
@pytest.mark.parametrize("nodes", ["even and odd", "two halves", "one rank apart", "three nodes"])
def test_shared_memory_does_not_reach_another_node(nodes):
    comm = on_nodes(nodes)
    rows = Pencil((12, 12), comm, decomp=0)
    all_raise(
        comm,
        ArgumentError,
        ("'shared' does not reach rank", "use 'hybrid'"),
        lambda: Transposition(rows, rows.with_(decomp=1), method="shared"),
    )
    # Where nothing leaves a node, it does as well as anywhere.
    with Transposition(rows, rows.with_(order=(1, 0)), method="shared") as plan:
        values = numbered(rows.shape)
        assert everywhere(comm, holds(plan(spread(rows, values)), values))


@ways
def test_the_method_that_was_asked_for_is_in_use(comm, method):
    rows = Pencil((4 * comm.size, 4 * comm.size), comm, decomp=0)
    nbytes = max(prod(rows.box(rank).shape) for rank in range(comm.size)) * 8
    for most, text in (None, "chunks"), (nbytes, "in 1 chunks"), (nbytes // 3, "chunks, max_"):
        kind = {"method": method, "max_buffer_bytes": most}
        with Transposition(rows, rows.with_(decomp=1), **kind) as plan:
            assert plan.method == method
            assert f"by {method}" in repr(plan)
            assert (text in repr(plan)) == (most is not None)
            assert most != nbytes // 3 or "in 1 chunks" not in repr(plan)
            with plan.reversed() as back:
                assert back.method == method
