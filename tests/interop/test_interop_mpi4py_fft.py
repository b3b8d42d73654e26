"""Fields and pencils of mpi4py-fft on our memory, and ours on theirs."""

import gc

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import all_raise, everywhere, holds, numbered, spread

import pencils
from pencils import Pencil, PencilArray, gather, transpose
from pencils.errors import ArgumentError
from pencils.interop.mpi4py_fft import from_array, from_pencil, subcomm, to_array, to_pencil

theirs = pytest.importorskip("mpi4py_fft")

pytestmark = [
    pytest.mark.parallel([1, 2, 3, 4, 6]),
    pytest.mark.skipif(MPI.COMM_WORLD.size > 6, reason="the other library has no empty blocks"),
]

SHAPE = (9, 8, 7)
DTYPES = [np.dtype(kind) for kind in ("f8", "f4", "c16", "i4", "?")]
GRIDS = [[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]


@pytest.fixture(params=GRIDS, ids=str)
def their_pencil(request, comm):
    """Make every slab and pencil grid of three dimensions."""
    made = theirs.pencil.Subcomm(comm, request.param)
    yield theirs.pencil.Pencil(made, SHAPE, request.param.index(1))
    made.destroy()


def fill(array, data):
    array[...] = data[array.local_slice()]


def same_blocks(pencil, other):
    slices = tuple(slice(lo, lo + n) for lo, n in zip(other.substart, other.subshape, strict=True))
    return (pencil.shape, pencil.local_slices) == (other.shape, slices)


def test_pencils_have_the_same_blocks(comm, their_pencil):
    pencil = to_pencil(their_pencil, comm)
    assert pencil.comm is comm
    assert everywhere(comm, same_blocks(pencil, their_pencil))
    back = from_pencil(pencil, their_pencil.axis)
    assert everywhere(comm, same_blocks(pencil, back))
    assert (back.axis, len(back.subcomm)) == (their_pencil.axis, 3)
    assert to_pencil(back, comm) == pencil


@pytest.mark.parametrize("axis", range(3))
def test_aligned_pencils_of_a_pencil(comm, their_pencil, axis):
    """Their process grid then runs through the dimensions in another order."""
    pencil = to_pencil(their_pencil.pencil(axis), comm)
    assert pencil.comm is comm
    assert everywhere(comm, same_blocks(pencil, their_pencil.pencil(axis)))
    u = spread(pencil, numbered(SHAPE))
    assert everywhere(comm, holds(transpose(u, to_pencil(their_pencil, comm)), numbered(SHAPE)))


@pytest.mark.parametrize("seed", range(6))
def test_random_arrays_both_ways(comm, seed):
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(2, 5))
    shape = tuple(map(int, rng.integers(comm.size, 2 * comm.size + 4, ndim)))
    dims = rng.integers(0, 2, ndim)
    alignment = int(rng.integers(ndim))
    dims[alignment] = 1
    dims[alignment - 1] = 0
    components = tuple(map(int, rng.integers(1, 4, rng.integers(0, 3))))
    dtype = DTYPES[seed % len(DTYPES)]
    data = numbered(components + shape, dtype)
    rank = len(components)
    made = theirs.pencil.Subcomm(comm, dims.tolist())
    array = theirs.DistArray(
        components + shape, subcomm=made, dtype=dtype, alignment=alignment, rank=rank
    )
    fill(array, data)

    u = to_array(array, comm)
    assert everywhere(comm, holds(u, data) and np.shares_memory(u.local, array))
    again = from_array(u, alignment)
    assert everywhere(comm, np.shares_memory(again, array))
    assert (again.rank, again.alignment, again.dtype) == (rank, alignment, dtype)
    assert everywhere(comm, again.local_slice() == array.local_slice())
    assert again.global_shape == array.global_shape == u.shape
    made.destroy()


def test_both_see_what_one_writes(comm, their_pencil):
    array = theirs.DistArray(SHAPE, subcomm=their_pencil.subcomm, val=1.0)
    u = to_array(array, comm)
    u *= 2
    assert everywhere(comm, (array == 2).all())
    array[...] = 3
    assert u.sum() == 3 * u.size
    back = from_array(u)
    back *= 2
    u += 1
    assert everywhere(comm, (array == 7).all())


def test_memory_lives_as_long_as_any_view(comm):
    data = numbered(SHAPE)
    array = theirs.DistArray(SHAPE)
    fill(array, data)
    u = to_array(array, comm)
    del array
    gc.collect()
    assert everywhere(comm, holds(u, data))
    back = from_array(u)
    del u
    gc.collect()
    assert everywhere(comm, np.array_equal(back.v, data[back.local_slice()]))


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("axis", range(2))
def test_redistribution_equals_a_transpose(comm, axis, rank):
    """Theirs of a view of our field; aligned along the last dimension it is before."""
    shape = (2, 3)[:rank] + SHAPE
    data = numbered(shape)
    pencil = Pencil(SHAPE, comm)
    u = spread(pencil, data)
    moved = from_array(u).redistribute(axis)
    target = to_pencil(moved.pencil, comm)
    v = transpose(u, target)
    assert everywhere(comm, np.array_equal(v.local, moved))
    assert everywhere(comm, holds(to_array(moved, comm), data))


def test_redistribution_into_another_view(comm):
    """Pencils of one process grid share communicators, which mpi4py-fft insists on."""
    pencil = Pencil(SHAPE, comm, decomp=(0, 1))
    target = pencil.with_(decomp=(0, 2), grid=pencil.grid)
    u, v = spread(pencil, numbered(SHAPE)), pencils.zeros(target)
    if pencil.grid[1] > 1:
        from_array(u).redistribute(out=from_array(v))
        assert everywhere(comm, holds(v, numbered(SHAPE)))
    one, other = from_pencil(pencil), from_pencil(target)
    assert one.subcomm[0] is other.subcomm[0]
    assert one.subcomm[1] is other.subcomm[2]


@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("decomp", [(0,), (0, 1), (1, 0)])
def test_their_transform_of_our_field(comm, decomp, dtype):
    data = numbered(SHAPE, dtype)
    pencil = Pencil(SHAPE, comm, decomp=decomp)
    u = spread(pencil, data)
    transform = np.fft.fftn if np.dtype(dtype).kind == "c" else np.fft.rfftn
    expected = transform(data)
    plan = theirs.PFFT(comm, darray=from_array(u))
    spectrum = to_array(plan.forward(from_array(u), theirs.newDistArray(plan)), comm)
    assert everywhere(
        comm, np.allclose(spectrum.local * data.size, expected[spectrum.local_slices])
    )
    back = pencils.zeros(pencil, dtype=dtype)
    plan.backward(from_array(spectrum, plan.pencil[1].axis), from_array(back))
    assert everywhere(comm, np.allclose(back.local, u.local))
    plan.destroy()


def test_their_plan_on_our_communicators(comm):
    own = comm.Dup()
    pencil = Pencil(SHAPE, own)
    made = subcomm(pencil)
    assert isinstance(made, theirs.pencil.Subcomm)
    plan = theirs.PFFT(made, SHAPE)
    u = spread(to_pencil(plan.pencil[0], own), numbered(SHAPE))
    assert u.pencil.same_blocks(pencil)
    spectrum = plan.forward(u.local)
    expected = np.fft.rfftn(numbered(SHAPE))[plan.local_slice()]
    assert everywhere(comm, np.allclose(spectrum * u.size, expected))

    plan.destroy()  # and with it the communicators, so that there are new ones
    assert all(each == MPI.COMM_NULL for each in made)
    again = subcomm(pencil)
    assert [each.size for each in again] == list(pencil.process_shape)
    own.Free()
    assert all(each == MPI.COMM_NULL for each in again)


def test_communicators_are_made_once(comm):
    pencil = Pencil(SHAPE, comm)
    one = from_pencil(pencil)
    before = pencil.topology.communicators
    for _ in range(20):
        other = from_pencil(pencil.with_(periodic=True))
        to_array(from_array(pencils.zeros(pencil)), comm)
    assert other.subcomm == one.subcomm
    assert pencil.topology.communicators == before


@pytest.mark.parametrize("dims", GRIDS, ids=str)
def test_processes_in_another_order_than_ranks(comm, dims):
    """Their grid lies on the ranks backwards: no order of dimensions makes that C order."""
    backwards = MPI.Intracomm(comm.Split(0, -comm.rank))
    array = theirs.DistArray(SHAPE, subcomm=theirs.pencil.Subcomm(backwards, dims))
    fill(array, numbered(SHAPE))
    u = to_array(array, comm)
    assert everywhere(comm, holds(u, numbered(SHAPE)) and np.shares_memory(u.local, array))
    assert everywhere(comm, np.array_equal(gather(u, root=None), numbered(SHAPE)))
    before = u.pencil.topology, Pencil(SHAPE, comm).topology.communicators
    assert to_array(array, comm).pencil.topology is before[0]
    assert Pencil(SHAPE, comm).topology.communicators == before[1]
    backwards.Free()


def test_processes_in_fortran_order(comm):
    """The first dimension is the fastest one then, which our `decomp` can say."""
    rows = 2 if comm.size % 2 == 0 else 1
    x, y = comm.rank % rows, comm.rank // rows
    made = [MPI.Intracomm(comm.Split(color, comm.rank)) for color in (y, x, comm.rank)]
    array = theirs.DistArray(SHAPE, subcomm=made)
    fill(array, numbered(SHAPE))
    u = to_array(array, comm)
    assert u.pencil.comm is comm
    assert everywhere(comm, holds(u, numbered(SHAPE)))
    for each in made:
        each.Free()


def test_parts_of_the_world(comm):
    half = MPI.Intracomm(comm.Split(comm.rank % 2, comm.rank))
    array = theirs.DistArray(SHAPE, subcomm=theirs.pencil.Subcomm(half, [0, 0, 1]), val=2)
    assert to_array(array, half).sum() == 2 * np.prod(SHAPE)
    if comm.size > 1:
        all_raise(comm, ArgumentError, "comm=", to_array, array, comm)
    half.Free()


def test_a_component_is_an_array(comm):
    array = theirs.DistArray((3, *SHAPE), rank=1)
    fill(array, numbered((3, *SHAPE)))
    u = to_array(array[1], comm)
    assert everywhere(comm, holds(u, numbered((3, *SHAPE))[1]))
    assert everywhere(comm, np.shares_memory(u.local, array))
    v = PencilArray(u.pencil, array)
    assert everywhere(comm, holds(v, numbered((3, *SHAPE))) and np.shares_memory(v.local, array))


def test_what_mpi4py_fft_does_not_have(comm):
    def check(*texts, call):
        all_raise(comm, ArgumentError, texts, call)

    check("two dimensions", call=lambda: from_pencil(Pencil(8, comm)))
    if comm.size > 3:
        grid = (2, comm.size // 2)
        everywhere_cut = Pencil((12, 12), comm, decomp=(0, 1), grid=grid)
        check("not decomposed", call=lambda: from_pencil(everywhere_cut))
    check("otherwise", call=lambda: from_pencil(Pencil((0, 5), comm, decomp=0)))
    if comm.size > 1:
        few = Pencil((comm.size - 1, 5), comm, decomp=0)
        check("empty", 'splits="first"', call=lambda: from_pencil(few))
        last = Pencil((2 * comm.size + 1, 5), comm, decomp=0, splits="last")
        check("otherwise", call=lambda: subcomm(last))
        slab = Pencil(SHAPE, comm, decomp=0)
        check("axis=0", "[1, 2]", call=lambda: from_pencil(slab, 0))
    for axis in (7, (1, 2), ()):
        check("axis=", call=lambda axis=axis: from_pencil(Pencil(SHAPE, comm), axis))
    pencil = Pencil(SHAPE, comm)
    turned = pencils.zeros(pencil.with_(order=(2, 1, 0)))
    check("order=(0, 1, 2)", call=lambda: from_array(turned))
    check("halo", call=lambda: from_array(pencils.zeros(pencil, halo=1)))
    check("[0]", call=lambda: from_array(pencils.zeros(pencil, dims=(1, 2))))
    check("components", call=lambda: from_array(pencils.zeros(pencil, components=(1, 1, 1))))
    check("not distributed", call=lambda: to_array(theirs.DistArray((8,)), comm))
    part = theirs.DistArray(SHAPE, val=1.0).sum(axis=2)
    check("whole array", call=lambda: to_array(part, comm))


def test_a_field_of_other_memory_becomes_one_that_can_be_seen(comm):
    """As the error says: transposed to C order, without halo."""
    data = numbered(SHAPE)
    pencil = Pencil(SHAPE, comm, order=(2, 1, 0))
    u = transpose(spread(pencil, data, halo=1), pencil.with_(order=(0, 1, 2)))
    array = from_array(u)
    assert everywhere(comm, np.array_equal(array.v, data[array.local_slice()]))
