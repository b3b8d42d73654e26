"""Fields on vectors of PETSc's DMDA, and vectors on fields.

By a stand-in, and by petsc4py where it is installed.
"""

import gc
import sys
from math import prod
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import (
    all_raise,
    everywhere,
    holds,
    numbered,
    one_is_wrong,
    random_grid,
    same,
)

import pencils
from pencils import Pencil, PencilArray, gather, transpose
from pencils.errors import ArgumentError, RankDisagreementError
from pencils.interop.petsc import from_array, from_pencil, to_array, to_pencil

pytestmark = [
    pytest.mark.parallel([1, 2, 3, 4, 6]),
    pytest.mark.skipif(MPI.COMM_WORLD.size > 6, reason="the other library has no empty blocks"),
]
# petsc4py 3.18 does so in getVecArray().
its_own_warning = pytest.mark.filterwarnings("ignore:Setting the strides:DeprecationWarning")

NONE, GHOSTED, PERIODIC = 0, 1, 3


class StandIn:
    """What petsc4py's DMDA says of itself, by its documentation; not PETSc itself.

    Ranks count through the processes along x first; beyond the ends of the domain there are ghost
    points unless the boundary is of type NONE.
    """

    BoundaryType = SimpleNamespace(NONE=NONE, GHOSTED=GHOSTED, PERIODIC=PERIODIC)

    def __init__(self, comm, counts, *, boundary, width=0, dof=1):
        self.comm, self.boundary, self.width, self.dof = comm, boundary, width, dof
        self.counts = [np.array(along, dtype=np.int32) for along in counts]
        rank = comm.rank
        self.ranges = []
        for along in counts:
            rank, here = divmod(rank, len(along))
            start = sum(along[:here])
            self.ranges.append((start, start + along[here]))

    def getComm(self):
        return SimpleNamespace(tompi4py=lambda: self.comm)

    def getSizes(self):
        return tuple(int(along.sum()) for along in self.counts)

    def getProcSizes(self):
        return tuple(len(along) for along in self.counts)

    def getOwnershipRanges(self):
        return tuple(self.counts)

    def getBoundaryType(self):
        return tuple(self.boundary)

    def getStencilWidth(self):
        return self.width

    def getDof(self):
        return self.dof

    def getRanges(self):
        return tuple(self.ranges)

    def getGhostRanges(self):
        return tuple(
            (max(start - self.width, 0), min(stop + self.width, points))
            if kind == NONE
            else (start - self.width, stop + self.width)
            for (start, stop), points, kind in zip(
                self.ranges, self.getSizes(), self.boundary, strict=True
            )
        )


class StandInVec:
    def __init__(self, size=0):
        self.memory = np.zeros(size)

    def createWithArray(self, array, size, bsize, comm):
        assert array.flags.c_contiguous
        assert array.ndim == 1
        assert array.size == size[0]
        assert size[0] % bsize == 0
        assert comm.allreduce(size[0]) == size[1]
        self.memory = array
        return self

    def getArray(self):
        return self.memory


def create_stand_in(
    *, dim, dof, sizes, proc_sizes, boundary_type, stencil_width, ownership_ranges, comm
):
    """Make a stand-in as petsc4py makes a DMDA, which takes ranges of its own integers only."""
    assert all(along.dtype == np.int32 for along in ownership_ranges)
    made = StandIn(comm, ownership_ranges, boundary=boundary_type, width=stencil_width, dof=dof)
    assert (dim, made.getSizes(), made.getProcSizes()) == (len(sizes), sizes, proc_sizes)
    return made


STAND_IN = SimpleNamespace(
    DM=StandIn,
    DMDA=lambda: SimpleNamespace(create=create_stand_in),
    Vec=StandInVec,
    ScalarType=np.float64,
    IntType=np.int32,
)


@pytest.fixture(params=["stand-in", "petsc4py"])
def petsc(request, monkeypatch):
    """Give what the library takes for `petsc4py.PETSc`."""
    if request.param == "petsc4py":
        return pytest.importorskip("petsc4py.PETSc")
    monkeypatch.setitem(sys.modules, "petsc4py", SimpleNamespace(PETSc=STAND_IN))
    return STAND_IN


def vector(dmda, ranges, data):
    """Make a vector of a region, every value where PETSc keeps it: components, then x, fastest.

    Beyond an end that stays open the values are -1.
    """
    sizes = [stop - start for start, stop in ranges]
    vec = StandInVec(dmda.dof * prod(sizes))
    local = np.indices(sizes).reshape(len(sizes), -1)
    points = local + np.array([[start] for start, _ in ranges])
    extents = np.array([[extent] for extent in dmda.getSizes()])
    place = np.ravel_multi_index(tuple(local), sizes, order="F")
    beyond = (points < 0) | (points >= extents)
    beyond[np.array(dmda.boundary) == PERIODIC] = False
    inside = tuple(points % extents)
    for component in range(dmda.dof):
        values = data[(component, *inside)] if dmda.dof > 1 else data[inside]
        vec.memory[place * dmda.dof + component] = np.where(beyond.any(axis=0), -1, values)
    return vec


def random_dmda(comm, seed):
    """Draw any DMDA: all blocks are at least as long as ghosts reach."""
    rng = np.random.default_rng(seed)
    ndim = 1 + seed % 3
    grid = random_grid(rng, comm.size, ndim)
    width = int(rng.integers(0, 3))
    counts = [rng.integers(max(1, width), width + 4, parts).tolist() for parts in grid]
    boundary = rng.choice([NONE, GHOSTED, PERIODIC], ndim).tolist()
    return StandIn(comm, counts, boundary=boundary, width=width, dof=1 + seed // 3 % 3)


def data_of(dmda):
    return numbered((dmda.dof, *dmda.getSizes()) if dmda.dof > 1 else dmda.getSizes())


@pytest.mark.parametrize("seed", range(9))
def test_bounds_are_carried(comm, seed):
    dmda = random_dmda(comm, seed)
    pencil = to_pencil(dmda, comm)
    assert pencil.shape == dmda.getSizes()
    assert pencil.process_shape == dmda.getProcSizes()
    assert pencil.periodic == tuple(kind == PERIODIC for kind in dmda.boundary)
    slices = tuple(slice(start, stop) for start, stop in dmda.getRanges())
    assert everywhere(comm, pencil.local_slices == slices)
    for split, along in zip(pencil.layout.splits, dmda.counts, strict=True):
        found = [split.bounds(part) for part in range(split.parts)]
        assert [hi - lo for lo, hi in found] == along.tolist()


@pytest.mark.parametrize("seed", range(9))
def test_global_vectors(comm, seed):
    dmda = random_dmda(comm, seed)
    data = data_of(dmda)
    vec = vector(dmda, dmda.getRanges(), data)
    u = to_array(dmda, vec, comm)
    assert everywhere(comm, holds(u, data) and np.shares_memory(u.local, vec.memory))
    assert not any(map(any, u.halo))
    u += 1
    assert everywhere(comm, u.local.sum() == vec.memory.sum())
    vec.memory[:] = 2
    assert u.sum() == 2 * u.size
    assert same(gather(transpose(u, Pencil(u.pencil.shape, comm)), root=None), 0 * data + 2.0)


@pytest.mark.parametrize("seed", range(9))
def test_local_vectors_have_their_ghosts_as_halo(comm, seed):
    dmda = random_dmda(comm, seed)
    data = data_of(dmda)
    vec = vector(dmda, dmda.getGhostRanges(), data)
    u = to_array(dmda, vec, comm)
    assert everywhere(comm, holds(u, data) and np.shares_memory(u.local, vec.memory))
    expected = vec.memory.copy()
    ghosts = np.ones(u.padded.shape, dtype=bool)
    inside = [
        slice(lo, lo + n) for (lo, _), n in zip(u.halo_room, u.pencil.local_shape, strict=True)
    ]
    ghosts[(Ellipsis, *inside)] = False
    u.padded[ghosts & (u.padded != -1)] = 0
    if any(map(any, u.halo)):
        u.exchange_halo()
    assert everywhere(comm, np.array_equal(vec.memory, expected))


def test_fields_of_the_pencil_lie_in_memory_as_those_of_petsc(comm):
    dmda = random_dmda(comm, 2)
    pencil = to_pencil(dmda, comm)
    flat = pencils.ones(pencil).local.reshape(-1, order="A")
    assert pencil.order == (2, 1, 0)
    u = to_array(dmda, StandInVec(flat.size), comm)
    u += pencils.ones(pencil)
    assert u.local.strides == pencils.ones(pencil).local.strides
    assert u.sum() == u.size


def test_memory_lives_as_long_as_the_field(comm):
    dmda = random_dmda(comm, 0)
    data = data_of(dmda)
    u = to_array(dmda, vector(dmda, dmda.getRanges(), data), comm)
    assert everywhere(comm, holds(u, data))


def test_parts_of_the_world(comm):
    half = MPI.Intracomm(comm.Split(comm.rank % 2, comm.rank))
    dmda = StandIn(half, [[3] * half.size, [4]], boundary=[NONE, NONE])
    assert to_pencil(dmda, half).shape == (3 * half.size, 4)
    if comm.size > 1:
        all_raise(comm, ArgumentError, "processes", to_pencil, dmda, comm)
    half.Free()


def check_bad(comm, kind, call, good, *bad, text=""):
    """Check that a bad argument on one rank raises on all, and names the rank."""
    for value in bad:
        one_is_wrong(comm, kind, text, call=call, bad=value, good=good)


def test_a_mistake_on_one_rank_raises_everywhere(comm):
    dmda = StandIn(comm, [[3] * comm.size, [4]], boundary=[NONE, PERIODIC], width=1)
    vec, long = StandInVec(12), StandInVec(13)
    check_bad(comm, TypeError, lambda one: to_pencil(one, comm), dmda, None, 3, vec)
    check_bad(comm, TypeError, lambda one: to_array(one, vec, comm), dmda, None, 3, vec)
    check_bad(comm, TypeError, lambda one: to_array(dmda, one, comm), vec, None, 3, dmda)
    check_bad(comm, ArgumentError, lambda one: to_array(dmda, one, comm), vec, long, text="13")
    assert to_array(dmda, vec, comm).sum() == 0


def test_different_arguments_raise_everywhere(comm):
    if comm.size == 1:
        return
    good = StandIn(comm, [[3] * comm.size, [4]], boundary=[NONE, PERIODIC])
    other = StandIn(comm, [[3] * comm.size, [4]], boundary=[NONE, NONE])
    mine = other if comm.rank == 0 else good
    all_raise(comm, RankDisagreementError, "periodic", to_pencil, mine, comm)
    twice = StandIn(comm, [[3] * comm.size, [4]], boundary=[NONE, PERIODIC], dof=2)
    one, vec = (twice, StandInVec(24)) if comm.rank == 0 else (good, StandInVec(12))
    all_raise(comm, RankDisagreementError, "dof", to_array, one, vec, comm)


def test_processes_in_an_order_that_is_not_that_of_petsc(comm):
    if comm.size < 4:
        return
    dmda = StandIn(comm, [[2, 2], [3] * (comm.size // 2)], boundary=[NONE, NONE])
    dmda.ranges = [(2 * (comm.rank >= comm.size // 2),) * 2, (0, 3)]
    all_raise(comm, ArgumentError, "ownership ranges", to_pencil, dmda, comm)


def test_ghosts_that_are_no_halo(comm):
    dmda = StandIn(comm, [[3] * comm.size, [4]], boundary=[NONE, PERIODIC], width=1)
    vec = vector(dmda, dmda.getGhostRanges(), data_of(dmda))
    dmda.getStencilWidth = lambda: 2
    all_raise(comm, ArgumentError, "ghost points", to_array, dmda, vec, comm)


@its_own_warning
@pytest.mark.parametrize("dof", [1, 3])
@pytest.mark.parametrize("sizes", [(17,), (13, 12), (13, 12, 14)], ids=str)
def test_petsc_itself(comm, sizes, dof):
    petsc = pytest.importorskip("petsc4py.PETSc")
    boundary = ("none", "periodic", "ghosted")[: len(sizes)]
    dmda = petsc.DMDA().create(
        sizes=sizes, dof=dof, boundary_type=boundary, stencil_width=1, comm=comm
    )
    data = numbered((*sizes, dof) if dof > 1 else sizes).astype(petsc.ScalarType)
    vec, ghosted = dmda.createGlobalVec(), dmda.createLocalVec()
    key = tuple(slice(start, stop) for start, stop in dmda.getRanges())
    with dmda.getVecArray(vec) as array:
        array[key] = data[key]
    logical = np.moveaxis(data, -1, 0) if dof > 1 else data
    assert everywhere(comm, holds(to_array(dmda, vec, comm), logical))
    dmda.globalToLocal(vec, ghosted)
    u = to_array(dmda, ghosted, comm)
    assert everywhere(comm, holds(u, logical))
    before = u.padded.copy()
    u.exchange_halo()
    assert everywhere(comm, np.array_equal(u.padded, before))


def random_fitting(comm, seed):
    """Draw a pencil with the order of PETSc, in memory and of ranks, and no empty block."""
    rng = np.random.default_rng(100 + seed)
    ndim = 1 + seed % 3
    grid = random_grid(rng, comm.size, ndim)
    counts = [rng.integers(1, 5, parts) for parts in grid]
    slowest_first = tuple(reversed(range(ndim)))
    return Pencil(
        [int(along.sum()) for along in counts],
        comm,
        decomp=slowest_first,
        grid=grid[::-1],
        periodic=rng.integers(0, 2, ndim).astype(bool).tolist(),
        order=slowest_first,
        splits=[[0, *along.cumsum().tolist()] for along in counts],
    )


def fitting_field(pencil, components, dtype):
    """Make a field in the memory order of PETSc, and the global data that it holds."""
    data = numbered((*components, *pencil.shape), dtype)
    values = np.empty((*pencil.local_shape[::-1], *components), dtype)
    u = PencilArray(pencil, values.T)
    u.local[...] = data[u.local_slices]
    return u, data


def as_petsc(comm, pencil, dof):
    """Describe the DMDA of a pencil independently of the library."""
    counts = [np.diff(split.table).tolist() for split in pencil.layout.splits]
    return StandIn(comm, counts, boundary=[NONE] * pencil.ndim, dof=dof)


@pytest.mark.usefixtures("petsc")
@pytest.mark.parametrize("seed", range(9))
def test_a_dmda_has_the_blocks_of_a_pencil(comm, seed):
    pencil = random_fitting(comm, seed)
    dmda = from_pencil(pencil, dof=1 + seed // 3)
    assert (dmda.getDof(), dmda.getStencilWidth()) == (1 + seed // 3, 0)
    back = to_pencil(dmda, comm)
    assert back == pencil
    assert back.periodic == pencil.periodic


@pytest.mark.parametrize("seed", range(9))
def test_fields_are_vectors(comm, petsc, seed):
    pencil = random_fitting(comm, seed)
    dof = 1 + seed // 3
    u, data = fitting_field(pencil, (dof,) if dof > 1 else (), petsc.ScalarType)
    vec = from_array(u)
    assert everywhere(comm, np.shares_memory(vec.getArray(), u.local))
    twin = as_petsc(comm, pencil, dof)
    expected = vector(twin, twin.getRanges(), data).memory
    assert everywhere(comm, np.array_equal(vec.getArray(), expected))
    again = to_array(from_pencil(pencil, dof), vec, comm)
    assert everywhere(comm, holds(again, data) and np.shares_memory(again.local, u.local))
    u += 1
    assert everywhere(comm, np.array_equal(vec.getArray(), expected + 1))
    vec.getArray()[:] = 2
    assert u.sum() == 2 * u.size


def test_fields_made_on_a_pencil_that_fits_are_vectors(comm, petsc):
    pencil = Pencil((5, 6, 7), comm, decomp=2, order=(2, 1, 0))
    u = pencils.ones(pencil, dtype=petsc.ScalarType)
    assert everywhere(comm, np.shares_memory(from_array(u).getArray(), u.local))
    one = pencils.ones(pencil, components=1, dtype=petsc.ScalarType)
    assert everywhere(comm, np.shares_memory(from_array(one).getArray(), one.local))


def test_a_vector_keeps_the_memory_of_a_field(comm, petsc):
    pencil = random_fitting(comm, 2)
    vec = from_array(pencils.full(pencil, 3, dtype=petsc.ScalarType))
    gc.collect()
    assert everywhere(comm, (vec.getArray() == 3).all())


@pytest.mark.usefixtures("petsc")
def test_stencils(comm):
    points = 3 * comm.size
    pencil = Pencil((points, 4), comm, decomp=0, order=(1, 0), periodic=(True, False))
    assert from_pencil(pencil, stencil_width=3).getStencilWidth() == 3
    all_raise(comm, ArgumentError, "wider", from_pencil, pencil, stencil_width=4)
    open_ended = pencil.with_(periodic=False)
    if comm.size == 1:
        assert from_pencil(open_ended, stencil_width=2).getStencilWidth() == 2


def test_pencils_that_petsc_does_not_have(comm, petsc):
    shape = (6, 6, 7)
    for bad, text in [
        (Pencil(shape, comm), "fastest"),
        (Pencil(shape, comm, decomp=2, order=(0, 2, 1)), "fastest"),
        (Pencil((6, 6, 2, 2), comm, order=(3, 2, 1, 0)), "dimensions"),
        (Pencil((0, 6), comm, decomp=1, order=(1, 0)), "empty"),
    ]:
        all_raise(comm, ArgumentError, text, from_pencil, bad)
        u = pencils.ones(bad, dtype=petsc.ScalarType)
        all_raise(comm, ArgumentError, text, from_array, u)
    if comm.size > 1:
        few = Pencil((comm.size - 1,), comm)
        all_raise(comm, ArgumentError, "empty", from_pencil, few)
    if comm.size in (4, 6):
        turned = Pencil(shape, comm, decomp=(0, 1), grid=(comm.size // 2, 2), order=(2, 1, 0))
        all_raise(comm, ArgumentError, "order of ranks", from_pencil, turned)
        straight = turned.with_(decomp=(1, 0), grid=(2, comm.size // 2))
        back = to_pencil(from_pencil(straight), comm)
        assert everywhere(comm, back.local_slices == straight.local_slices)


def test_more_values_than_petsc_counts(comm, petsc):
    if petsc.IntType(0).itemsize > 4:
        pytest.skip("this PETSc counts with 64 bits")
    huge = Pencil((2**11, 2**10, 2**10), comm, decomp=2, order=(2, 1, 0))
    all_raise(comm, ArgumentError, "built to count", from_pencil, huge)
    small = huge.with_(shape=(6, 6, 7))
    all_raise(comm, ArgumentError, "count", from_pencil, small, dof=2**31 // 252 + 1)


def test_fields_that_petsc_does_not_have(comm, petsc):
    pencil = Pencil((5, 6, 7), comm, decomp=2, order=(2, 1, 0))
    scalar = petsc.ScalarType
    readonly = pencils.ones(pencil, dtype=scalar)
    readonly.local.flags.writeable = False
    for bad, text in [
        (pencils.ones(pencil, dtype=scalar, halo=1), "without halo"),
        (pencils.ones(pencil, dtype=scalar, components=2), "fastest"),
        (fitting_field(pencil, (2, 2), scalar)[0], "degrees of freedom"),
        (pencils.ones(pencil, dtype=scalar, components=0), "degrees of freedom"),
        (pencils.ones(pencil, dtype=scalar, dims=(1, 2)), "extent 1"),
        (readonly, "read-only"),
    ]:
        all_raise(comm, ArgumentError, text, from_array, bad)
    for dtype in ("f4", ">f8", "i4"):
        u = pencils.ones(pencil, dtype=dtype)
        all_raise(comm, TypeError, "PETSc is built for", from_array, u)


def test_a_bad_field_on_one_rank_raises_everywhere(comm, petsc):
    pencil = Pencil((5, 6, 7), comm, decomp=2, order=(2, 1, 0))
    u = pencils.ones(pencil, dtype=petsc.ScalarType)
    check_bad(comm, TypeError, from_array, u, None, 3, pencil)
    check_bad(comm, TypeError, from_pencil, pencil, None, 3, u)
    check_bad(comm, ArgumentError, lambda dof: from_pencil(pencil, dof), 1, 0, -1)
    check_bad(comm, TypeError, lambda dof: from_pencil(pencil, dof), 1, 1.5, "x", None)
    assert everywhere(comm, from_array(u).getArray().size == u.local.size)


def test_different_pencils_and_fields_raise_everywhere(comm, petsc):
    if comm.size == 1:
        return
    pencil = Pencil((5, 6, 7), comm, decomp=2, order=(2, 1, 0))
    periodic, fewer = pencil.with_(periodic=True), pencil.with_(shape=(4, 6, 7))
    mine = pencil if comm.rank else periodic
    all_raise(comm, RankDisagreementError, "periodic", from_pencil, mine)
    all_raise(comm, RankDisagreementError, "dof", from_pencil, pencil, 2 if comm.rank else 1)
    u = pencils.ones(pencil if comm.rank else fewer, dtype=petsc.ScalarType)
    all_raise(comm, RankDisagreementError, "pencil", from_array, u)


@its_own_warning
def test_petsc_works_on_a_field(comm):
    petsc = pytest.importorskip("petsc4py.PETSc")
    pencil = random_fitting(comm, 2)
    u, data = fitting_field(pencil, (3,), petsc.ScalarType)
    dmda = from_pencil(pencil, dof=3)
    vec = from_array(u)
    assert vec.getSizes() == (u.local.size, u.size)
    assert vec.getBlockSize() == 3
    assert np.isclose(vec.sum(), data.sum())
    assert np.isclose(vec.norm(), u.norm())
    key = tuple(slice(start, stop) for start, stop in dmda.getRanges())
    with dmda.getVecArray(vec) as array:
        assert everywhere(comm, np.array_equal(array[key], np.moveaxis(data, 0, -1)[key]))
    vec.scale(2)
    assert everywhere(comm, holds(u, 2 * data))
    ghosted = dmda.createLocalVec()
    dmda.globalToLocal(vec, ghosted)
    assert everywhere(comm, holds(to_array(dmda, ghosted, comm), 2 * data))
