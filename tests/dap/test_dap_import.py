"""Imports of blocks: fields on the memory of the exporter that work with everything."""

import ctypes
import gc
import warnings
import weakref
from functools import partial

import numpy as np
import pytest
from dap_cases import block, even, lent
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI
from mpi_helpers import (
    DTYPES,
    all_raise,
    everywhere,
    holds,
    named,
    numbered,
    one_is_wrong,
    random_grid,
    random_pencil,
    ranks_at_fault,
    same,
    spread,
)
from tiers import examples

import pencils
from pencils import Pencil, PencilArray, dap
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

versions = pytest.mark.parametrize("version", dap.VERSIONS)


def random_cuts(rng, size, ndim, least=0):
    """Draw a process grid, and how blocks are cut, the same on all ranks."""
    grid = random_grid(rng, size, ndim)
    return grid, [
        np.concatenate([[0], np.cumsum(rng.integers(least, 6, n))]).tolist() for n in grid
    ]


def even_cuts(comm, points):
    """Cut one dimension into blocks of so many points."""
    return [[points * part for part in range(comm.size + 1)]]


def refused(comm, kind, *texts, obj, **how):
    all_raise(comm, kind, texts, dap.import_array, obj, comm, **how)


def blocks_of(comm, data, cuts, grid, version, *, padding=None, periodic=None):
    """Export a part of global data like a foreign program: only NumPy and the protocol.

    Ghosts are as wide as `padding` says for each dimension, inside the array only.
    """
    coords = np.unravel_index(comm.rank, grid)
    dims, view = [], data
    for dim, (bounds, count, coord) in enumerate(zip(cuts, grid, coords, strict=True)):
        lo = padding[dim] if padding and coord > 0 else 0
        hi = padding[dim] if padding and coord < count - 1 else 0
        start, stop = bounds[coord : coord + 2]
        view = view[(slice(None),) * dim + (slice(start - lo, stop + hi),)]
        inside = version == "0.10.0"
        said = block(int(coord), start - lo * inside, stop + hi * inside)
        said |= {"size": bounds[-1], "proc_grid_size": count}
        if padding and (lo or hi or not inside):
            said["padding"] = (lo, hi)
        if periodic and periodic[dim]:
            said["periodic"] = True
        dims.append(said)
    return lent(view.copy(), *dims, version=version)


@versions
@pytest.mark.parametrize("seed", range(10))
def test_foreign_blocks_become_a_field_on_their_memory(comm, seed, version):
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 4))
    grid, cuts = random_cuts(rng, comm.size, ndim)
    data = numbered([bounds[-1] for bounds in cuts])
    exported = blocks_of(comm, data, cuts, grid, version)
    u = dap.import_array(exported, comm)
    assert everywhere(comm, type(u) is PencilArray and holds(u, data))
    assert everywhere(comm, u.local.size == 0 or np.shares_memory(u.local, exported["buffer"]))
    u += 1.0
    assert everywhere(comm, same(exported["buffer"], data[u.local_slices] + 1.0))
    assert np.isclose(u.sum(), (data + 1.0).sum())
    v = pencils.transpose(u, u.pencil.with_(decomp=ndim - 1, order=tuple(reversed(range(ndim)))))
    assert everywhere(comm, holds(v, data + 1.0))
    assert everywhere(comm, same(pencils.gather(u, root=None), data + 1.0))


@versions
@pytest.mark.parametrize("seed", range(10))
def test_ghosts_become_a_halo_that_can_be_exchanged(comm, seed, version):
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 4))
    grid, cuts = random_cuts(rng, comm.size, ndim, least=2)
    padding = [int(rng.integers(0, 3)) if count > 1 else 0 for count in grid]
    data = numbered([bounds[-1] for bounds in cuts])
    exported = blocks_of(comm, data, cuts, grid, version, padding=padding)
    expected = exported["buffer"].copy()
    u = dap.import_array(exported, comm)
    assert everywhere(comm, u.halo == tuple((width, width) for width in padding))
    assert everywhere(comm, u.trimmed == {d for d, width in enumerate(padding) if width})
    assert everywhere(comm, u.padded.shape == expected.shape and holds(u, data))
    u.padded[...] = -1.0
    u.local[...] = data[u.local_slices]
    if any(padding):
        u.exchange_halo()
    assert everywhere(comm, same(exported["buffer"], expected))
    assert everywhere(comm, dap.import_array(exported, comm, halo="drop").halo == ((0, 0),) * ndim)
    again = dap.export(u, version, halo="comm")
    assert everywhere(comm, same(again["buffer"], expected))
    assert everywhere(comm, again["dim_data"] == exported["dim_data"] or version == "0.9.0")


@versions
@pytest.mark.parametrize("halo", ["none", "comm"])
@examples(25)
@given(seed=st.integers(0, 2**32 - 1))
def test_fields_make_the_round_trip(comm, seed, halo, version):
    """Any field, exported and imported onto its pencil, is the same field on the same memory."""
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 4))
    pencil = random_pencil(rng, comm, rng.integers(1, 12, ndim).tolist())
    pencil = pencil.with_(periodic=(rng.random(ndim) < 0.5).tolist())
    components = [(), (2,), (1, 3)][rng.integers(3)]
    dims = [dim for dim in range(ndim) if rng.random() < 0.8]
    shape = [n if dim in dims else 1 for dim, n in enumerate(pencil.shape)]
    data = numbered((*components, *shape), DTYPES[rng.integers(len(DTYPES))])
    if data.dtype.kind == "M":
        data = data.view("i8")
    width = int(rng.integers(0, 2))
    u = spread(pencil, data, dims=dims, halo=[width * (dim in dims) for dim in range(ndim)])
    try:
        exported = dap.export(u, version, halo=halo)
    except dap.UnsupportedError:  # blocks thinner than the halo
        return
    v = PencilArray.from_distarray(pencil, exported)
    assert everywhere(comm, v.pencil is pencil and v.singletons <= u.singletons | set(dims))
    assert everywhere(comm, holds(v, data))
    assert everywhere(comm, v.local.size == 0 or np.shares_memory(v.local, u.local))
    if halo == "comm" and version == "0.9.0":
        reached = [
            w if pencil.process_shape[d] > 1 or pencil.periodic[d] else (0, 0)
            for d, w in enumerate(u.halo)
        ]
        assert everywhere(comm, v.halo == tuple(reached))
    w = dap.import_array(exported, dap.comm(u))
    assert everywhere(comm, w.shape == data.shape)
    assert everywhere(comm, same(np.ascontiguousarray(w.local), np.ascontiguousarray(u.local)))
    assert everywhere(comm, same(pencils.gather(w, root=None), data))


def test_a_singleton_comes_back_as_a_singleton(comm):
    pencil = Pencil((6, 2 * comm.size), comm, decomp=1)
    u = spread(pencil, numbered((6, 1)), dims=0)
    v = dap.import_array(u, comm)
    assert everywhere(comm, v.shape == (6, 1))
    assert everywhere(comm, v.singletons == ({1} if comm.size > 1 else set()))
    assert v.sum() == numbered((6, 1)).sum()
    w = PencilArray.from_distarray(pencil, u)
    assert everywhere(comm, w.singletons == {1} and holds(w, numbered((6, 1))))
    assert (w + spread(pencil, numbered(pencil.shape))).shape == pencil.shape


def test_an_array_without_dimensions_lies_on_one_process(comm):
    value = np.array(2.5)
    alone = lent(value) | {"dim_data": ()}
    u = dap.import_array(alone, MPI.COMM_SELF)
    u *= 2.0
    assert (u.shape, u.sum(), value[()]) == ((1,), 5.0, 5.0)
    if comm.size > 1:
        refused(comm, dap.CollectiveError, "G2", obj=alone)


def test_periodic_padding_of_the_old_version_is_a_whole_halo(comm):
    pencil = Pencil(3 * comm.size, comm, periodic=True)
    u = spread(pencil, numbered((3 * comm.size,)), halo=2)
    v = dap.import_array(dap.export(u, "0.9.0", halo="comm"), comm)
    assert everywhere(comm, v.halo == ((2, 2),) and not v.trimmed)
    v.exchange_halo()
    whole = np.pad(numbered((3 * comm.size,)), 2, mode="wrap")
    start = 3 * comm.rank
    assert everywhere(comm, same(u.padded, whole[start : start + 7]))


def test_periodic_boundary_points_are_owned_or_wrapped(comm):
    """Version 0.10 counts padding at the ends in size, even where it repeats the other end."""
    points = np.arange(3.0 * comm.size)
    whole = np.concatenate([points[-1:], points, points[:2]])
    lo, hi = int(comm.rank == 0), 2 * int(comm.rank == comm.size - 1)
    start, stop = 1 + 3 * comm.rank, 4 + 3 * comm.rank
    inner_lo, inner_hi = int(comm.rank > 0), int(comm.rank < comm.size - 1)
    begin, end = start - lo - inner_lo, stop + hi + inner_hi
    said = {"size": len(whole), "start": begin, "stop": end, "periodic": True}
    said = even(comm, 3, padding=(lo + inner_lo, hi + inner_hi)) | said
    exported = lent(whole[begin:end].copy(), said)
    u = dap.import_array(exported, comm)
    assert everywhere(comm, u.shape == (len(whole),) and holds(u, whole))
    assert everywhere(comm, u.pencil.periodic == (True,))
    v = dap.import_array(exported, comm, halo="wrap")
    assert everywhere(comm, v.shape == points.shape and holds(v, points))
    assert everywhere(comm, v.halo == ((1, 2 if comm.size == 1 else 1),) and not v.trimmed)
    v *= 2.0
    v.exchange_halo()
    first = v.pencil.box().start[0]
    width = v.padded.size
    expected = 2.0 * np.take(points, np.arange(first - 1, first - 1 + width), mode="wrap")
    assert everywhere(comm, same(v.padded, expected))
    shifted = (v.shift((1,)) - v.shift((-1,))).local
    assert everywhere(comm, shifted.shape == v.local_shape)


def test_unequal_ghosts_of_the_old_version_are_as_wide_as_all_have_them(comm):
    """Rank r has r + 1 ghosts below, at most 8, and 2 above; inner blocks share 2 and 2."""
    size, rank = 8 * comm.size, comm.rank
    lo, hi = min(rank + 1, 8) * (rank > 0), 2 * (rank < comm.size - 1)
    start, stop = 8 * rank, 8 * rank + 8
    data, said = numbered((size,)), even(comm, 8, padding=(lo, hi))
    exported = lent(data[start - lo : stop + hi].copy(), said, version="0.9.0")
    u = dap.import_array(exported, comm)
    assert everywhere(comm, u.halo == (((2, 2) if comm.size > 1 else (0, 0)),))
    assert everywhere(comm, holds(u, data))
    if comm.size > 1:
        u.exchange_halo()
    assert everywhere(comm, same(exported["buffer"], data[start - lo : stop + hi]))


def test_exporters_live_as_long_as_what_was_imported(comm):
    class Producer:
        """Lends memory which is gone when it is."""

        def __init__(self):
            self.memory = (ctypes.c_double * 4)(1.0, 2.0, 3.0, 4.0)

        def __distarray__(self):
            return lent(np.frombuffer(self.memory), even(comm, 4))

    producer = Producer()
    gone = weakref.ref(producer)
    u = dap.import_array(producer, comm)
    part = u.shift((0,))
    del producer, u
    gc.collect()
    assert everywhere(comm, gone() is not None and part.local.sum() == 10.0)
    del part
    gc.collect()
    assert everywhere(comm, gone() is None)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind != "M"], ids=str)
def test_every_type_of_element(comm, dtype):
    pencil = Pencil((5, 4), comm)
    data = numbered((5, 4), dtype)
    u = dap.import_array(spread(pencil, data), comm)
    assert everywhere(comm, u.dtype == dtype and holds(u, data))


def test_strided_buffers(comm):
    whole = numbered((6, 4 * comm.size, 3))
    part = np.asfortranarray(whole[::2, 4 * comm.rank : 4 * comm.rank + 4, ::-1])
    whole_dim = block(0, 0, 3, size=3, proc_grid_size=1)
    exported = lent(part, whole_dim, even(comm, 4), whole_dim)
    assert everywhere(comm, holds(dap.import_array(exported, comm), whole[::2, :, ::-1]))


def test_ranks_in_another_order(comm):
    turned = comm.Split(0, -comm.rank)
    data = numbered((3 * comm.size,))
    exported = blocks_of(turned, data, even_cuts(comm, 3), [comm.size], "0.10.0")
    assert everywhere(comm, holds(dap.import_array(exported, turned), data))
    if comm.size > 1:
        refused(comm, dap.CollectiveError, "G3", obj=exported)
    turned.Free()


@pytest.mark.parametrize("ndim", [1, 2])
def test_whatever_is_wrong_on_one_rank_raises_on_all(comm, ndim):
    data = numbered((2 * comm.size, 3)[:ndim])
    cuts, grid = [*even_cuts(comm, 2), [0, 3]][:ndim], [comm.size, 1][:ndim]
    good = blocks_of(comm, data, cuts, grid, "0.10.0")

    class Raises:
        def __distarray__(self):
            msg = "out of order"
            raise OSError(msg)

    short = {**good, "buffer": good["buffer"].astype("f4")}
    for rank in ranks_at_fault(comm):
        bad = comm.rank == rank
        for wrong, kind, text in (
            (Raises(), OSError, "out of order"),
            ({**good, "buffer": good["buffer"][:-1]}, dap.SemanticError, "B3"),
            ({**good, "more": 1}, dap.StructureError, "E1"),
            (None, dap.StructureError, "E1"),
        ):
            refused(comm, kind, text, obj=wrong if bad else good)
        if comm.size > 1:
            older = {**good, "__version__": "0.9.1"}
            refused(comm, dap.CollectiveError, obj=older if bad else good)
            with pytest.warns(dap.DAPWarning, match="G1"):
                refused(comm, RankDisagreementError, "dtype", obj=short if bad else good)
            halo = "drop" if bad else "keep"
            refused(comm, RankDisagreementError, "halo", obj=good, halo=halo)
        texts, halo = (named(comm, rank), "'keep', 'drop', 'wrap'"), "all" if bad else "keep"
        refused(comm, ArgumentError, *texts, obj=good, halo=halo)
    assert everywhere(comm, holds(dap.import_array(good, comm), data))


def test_a_pencil_with_other_blocks_is_refused(comm):
    pencil = Pencil((6, 2 * comm.size), comm, decomp=1)
    u = spread(pencil, numbered(pencil.shape))
    others = [pencil.with_(shape=(7, 2 * comm.size)), Pencil((6, 2 * comm.size, 3), comm, decomp=1)]
    if comm.size > 1:
        others += [
            pencil.with_(decomp=0),
            pencil.with_(splits=["first", [0] * comm.size + [2 * comm.size]]),
        ]
    for other in others:
        call, text = partial(PencilArray.from_distarray, other, u), "does not have the blocks"
        all_raise(comm, PencilMismatchError, text, call)
    make = partial(PencilArray.from_distarray, obj=u)
    one_is_wrong(comm, TypeError, "must be a Pencil", call=make, bad=3, good=pencil)


def test_what_is_periodic_is_a_matter_of_the_pencil(comm):
    pencil = Pencil(3 * comm.size, comm, periodic=True)
    data = numbered((3 * comm.size,))
    exported = blocks_of(comm, data, even_cuts(comm, 3), [comm.size], "0.10.0", padding=[1])
    u = PencilArray.from_distarray(pencil, exported)
    assert everywhere(comm, u.pencil is pencil and holds(u, data))
    assert everywhere(comm, u.trimmed == ({0} if comm.size > 1 else set()))


def test_rows_that_end_differently_cannot_be_wrapped(comm):
    """Boundary points may be fewer in some rows; then nobody knows which of them are ghosts."""
    mine = comm.rank % 2
    row = block(0, 0, 6, size=6, proc_grid_size=1, periodic=True, padding=(mine, 0))
    exported = lent(np.ones((6, 2)), row, even(comm, 2))
    assert dap.import_array(exported, comm).sum() == 12 * comm.size
    if comm.size > 1:
        refused(comm, dap.UnsupportedError, "rank 1: ", "rule K3", obj=exported, halo="wrap")


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("a", "i1"), ("b", "f8")], align=True),
        np.dtype(
            {"names": ["a", "b"], "formats": ["i2", ">f4"], "offsets": [4, 8], "itemsize": 16}
        ),
    ],
    ids=["aligned", "with gaps"],
)
def test_records_with_gaps_keep_their_type(comm, dtype):
    pencil = Pencil((5, 4), comm)
    u = pencils.zeros(pencil, dtype=dtype)
    v = PencilArray.from_distarray(pencil, u)
    assert everywhere(comm, v.dtype == dtype)
    pencils.transpose(v, pencil.with_(order=(1, 0)), out=u)


def test_whatever_a_foreign_buffer_does_is_told_to_all(comm):
    class Odd(dict):
        def get(self, *_):
            msg = "odd"
            raise OSError(msg)

    class Packed(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("a", ctypes.c_char), ("f", ctypes.CFUNCTYPE(None)))

    good = lent(np.ones(3))
    for call in (partial(dap.import_array, comm=comm), partial(dap.validate_on, comm)):
        one_is_wrong(comm, OSError, "odd", call=call, bad=Odd(good), good=good)
    memory = (Packed * 3)()
    with pytest.warns(dap.DAPWarning, match="NumPy has no type for the elements.*unknown-type"):
        u = dap.import_array({**good, "buffer": memory}, MPI.COMM_SELF)
    assert everywhere(comm, np.shares_memory(u.local, np.frombuffer(memory, "u1")))


FIELDS = ("number", ctypes.c_int), ("mass", ctypes.c_double)


def structure(name, base=ctypes.Structure, fields=FIELDS, **layout):
    return type(base)(name, (base,), {**layout, "_fields_": fields})


Particle = structure("Particle")  # with a gap, which the format leaves out
STRUCTURES = [
    Particle,
    structure("PackedParticle", _pack_=1),  # without it; the format says bytes
    structure("Other", ctypes.BigEndianStructure),
    structure("Either", ctypes.Union),
    structure("Pair", fields=(("at", ctypes.c_short * 3), ("one", Particle))),
]


@pytest.mark.parametrize("kind", STRUCTURES, ids=[kind.__name__ for kind in STRUCTURES])
def test_structures_of_ctypes_keep_their_type(comm, kind):
    """By the type itself, for formats that ctypes writes leave out gaps, packing and unions."""
    memory = ((kind * 3) * 2)()
    seen = np.frombuffer(memory, np.dtype(kind)).reshape(2, 3)
    seen.view("u1")[...] = np.arange(seen.nbytes).reshape(2, -1) % 251 + comm.rank
    export = lent(memory, even(comm, 2), {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        u = dap.import_array(export, comm)
    assert everywhere(comm, u.dtype == np.dtype(kind) and u.local.tobytes() == bytes(memory))
    assert everywhere(comm, np.shares_memory(u.local, seen))
    moved = pencils.transpose(u, u.pencil.with_(decomp=1))
    back = pencils.transpose(moved, u.pencil)
    assert everywhere(comm, back.local.tobytes() == bytes(memory))


def test_buffers_of_one_process(comm):
    def alone(buffer, dim=None, version="0.10.0"):
        return dap.import_array(lent(buffer, dim or {}, version=version), MPI.COMM_SELF)

    assert alone(np.arange(3.0)).sum() == 3.0
    assert alone(np.arange(3.0), {"dist_type": "n", "size": 3}, "0.9.0").sum() == 3.0
    data = np.arange(4.0)
    data.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        alone(data)[...] = 1.0
    u = alone(memoryview((Particle * 2)()).cast("B"))
    assert everywhere(comm, (u.dtype, u.shape) == (np.dtype("u1"), (32,)))
    with pytest.raises(TypeError, match="distributed"):
        alone(np.array([object()] * 2))
    with pytest.raises(dap.StructureError, match="E3"):
        alone(np.ma.masked_array([1.0, 2.0], [True, False]))


def test_bits_of_structures_are_not_taken_for_numbers(comm):
    """The size of this one is that of two integers and a float, which its format says it is."""

    class Bits(ctypes.Structure):
        _fields_ = (("low", ctypes.c_int, 3), ("high", ctypes.c_int, 5), ("mass", ctypes.c_double))

    export = lent((Bits * 3)())
    with pytest.warns(dap.DAPWarning, match="unknown-type"):
        u = dap.import_array(export, MPI.COMM_SELF)
    assert everywhere(comm, u.dtype == np.dtype("V16"))


def test_warnings_point_to_the_call_and_cost_nothing(comm):
    """What is only odd does not make all processes tell everything to all."""
    data = numbered((2 * comm.size,))
    exported = blocks_of(comm, data, even_cuts(comm, 2), [comm.size], "0.10.0")
    exported["dim_data"][0]["color"] = "blue"
    with pytest.warns(dap.DAPWarning, match="color") as caught:
        dap.import_array(exported, comm)
    assert everywhere(comm, [warning.filename for warning in caught] == [__file__])


def test_a_label_of_the_other_version_is_told_or_read(comm):
    data = numbered((4 * comm.size,))
    exported = blocks_of(comm, data, even_cuts(comm, 4), [comm.size], "0.9.0", padding=[1])
    exported["__version__"] = "0.10.0"
    if comm.size == 1:
        return
    refused(comm, dap.SemanticError, "B3", "0.9", obj=exported)
    with pytest.warns(dap.DAPWarning, match="K6"):
        u = dap.import_array(exported, comm, lenient=True)
    assert everywhere(comm, holds(u, data) and u.halo == ((1, 1),))


def test_imported_fields_are_saved_and_loaded(comm, mpi_tmp_path):
    path = mpi_tmp_path / "field.h5"
    data = numbered((3 * comm.size + 1, 5))
    rng = np.random.default_rng(3)
    grid = random_grid(rng, comm.size, 2)
    cuts = [
        [n * part // count for part in range(count + 1)]
        for n, count in zip(data.shape, grid, strict=True)
    ]
    u = dap.import_array(blocks_of(comm, data, cuts, grid, "0.10.0"), comm)
    pencils.save(path, {"u": u})
    v = pencils.load(path, u.pencil)["u"]
    assert everywhere(comm, holds(v, data))


@pytest.mark.parallel([1, 2, 3, 4])
@pytest.mark.parametrize("halo", ["keep", "wrap"])
def test_ghosts_of_0_9_wrap_already(comm, halo):
    points = np.arange(10.0, 22.0)
    u = pencils.partition(Pencil(12, comm, decomp=0, periodic=True), points, halo=1)
    u.exchange_halo()
    v = dap.import_array(dap.export(u, "0.9.0", halo="comm"), comm, halo=halo)
    assert everywhere(comm, holds(v, points) and same(v.padded, u.padded))
