"""Exports of fields: legal on all ranks, the memory of the field, and together the whole array."""

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import (
    DTYPES,
    all_raise,
    everywhere,
    exported_array,
    numbered,
    random_pencil,
    same,
    spread,
)

import pencils
from pencils import Pencil, PencilArray, dap
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

versions = pytest.mark.parametrize("version", dap.VERSIONS)


def random_case(seed, comm, ndim=None):
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 4)) if ndim is None else ndim
    pencil = random_pencil(rng, comm, rng.integers(1, 9, ndim).tolist())
    return rng, pencil.with_(periodic=(rng.random(ndim) < 0.5).tolist())


def together(field, exported, version):
    assert exported["__version__"] == version
    return exported_array(field, exported)


@versions
@pytest.mark.parametrize("seed", range(12))
def test_exports_make_up_the_array(comm, version, seed):
    rng, pencil = random_case(seed, comm)
    components = [(), (2,), (1, 3)][rng.integers(3)]
    dims = [dim for dim in range(pencil.ndim) if rng.random() < 0.8]
    shape = [n if dim in dims else 1 for dim, n in enumerate(pencil.shape)]
    data = numbered((*components, *shape), "i4")
    u = spread(pencil, data, dims=dims, halo=[int(dim in dims) for dim in range(pencil.ndim)])
    exported = dap.export(u, version)
    assert everywhere(comm, list(exported) == ["__version__", "buffer", "dim_data"])
    assert everywhere(comm, np.array_equal(together(u, exported, version), data))
    exported["buffer"][...] = 7
    assert everywhere(comm, (u.local == 7).all())


@versions
@pytest.mark.parametrize("seed", range(16))
def test_ghosts_are_communication_padding(comm, version, seed):
    """Where the protocol allows the halo at all, exports with ghosts are legal."""
    rng, pencil = random_case(seed, comm)
    data = numbered(pencil.shape)
    u = spread(pencil, data, halo=int(rng.integers(1, 3)))
    u.exchange_halo()
    width = u.halo[0][0]
    for dim, split in enumerate(pencil.layout.splits):
        points = [hi - lo for lo, hi in map(split.bounds, range(split.parts))]
        padded = split.parts > 1 or (version == "0.9.0" and pencil.periodic[dim])
        if padded and min(points) < width:
            with pytest.raises(dap.UnsupportedError, match="expected at most") as caught:
                dap.export(u, version, halo="comm")
            assert caught.value.code == "G7"
            return
    exported = dap.export(u, version, halo="comm")
    assert everywhere(comm, np.array_equal(together(u, exported, version), data))
    for dim, here in enumerate(dap.validate(exported).dims):
        at = here.local_to_global(np.arange(here.extent), ghosts=True)
        data = np.take(data, at % pencil.shape[dim], axis=dim)
    assert everywhere(comm, np.array_equal(data, exported["buffer"]))


@pytest.mark.parametrize("periodic", [False, True])
@versions
def test_the_whole_halo_counts_as_points_where_it_is_no_communication_padding(
    comm, version, periodic
):
    """Version 0.10 has no such padding beyond the ends: wrapped ghosts are boundary points."""
    pencil = Pencil(4 * comm.size, comm, periodic=periodic)
    u = spread(pencil, numbered((4 * comm.size,)), halo=2)
    u.exchange_halo()
    u.fill_boundary("constant", value=-1.0) if not periodic else None
    exported = dap.export(u, version, halo="all")
    expected = numbered((4 * comm.size,))
    if not periodic:
        expected = np.pad(expected, 2, constant_values=-1.0)
    elif version == "0.10.0":
        expected = np.pad(expected, 2, mode="wrap")
        again = dap.import_array(exported, comm, halo="wrap")
        assert everywhere(comm, again.pencil == pencil and again.halo == u.halo)
        assert everywhere(comm, same(again.padded, u.padded) and not again.trimmed)
    assert everywhere(comm, np.array_equal(together(u, exported, version), expected))
    assert everywhere(comm, exported["buffer"].shape == u.padded.shape)
    assert np.shares_memory(exported["buffer"], u.padded)


def test_the_communicator_has_processes_in_the_order_of_the_dimensions(comm):
    pencil = Pencil((6, 7), comm, decomp=(1, 0))
    u = spread(pencil, numbered((6, 7)))
    ordered = dap.comm(u)
    assert dap.comm(u) is ordered
    assert ordered is not comm
    place = np.ravel_multi_index(pencil.coords[::-1], pencil.grid[::-1])
    assert everywhere(comm, ordered.rank == place)
    assert dap.comm(spread(pencil.with_(decomp=(0, 1)), numbered((6, 7)))) is comm


@pytest.mark.parametrize("periodic", [False, True])
def test_a_method_of_fields_exports_them_with_their_ghosts(comm, periodic):
    n = 3 * comm.size
    data = numbered((n, 7))
    u = spread(Pencil((n, 7), comm, decomp=0, periodic=periodic), data, halo=1)
    u.exchange_halo()
    exported = u.__distarray__()
    assert exported["__version__"] == "0.10.0"
    assert everywhere(comm, np.array_equal(together(u, exported, "0.10.0"), data))
    inside = data[max(0, 3 * comm.rank - 1) : 3 * comm.rank + 4]
    assert everywhere(comm, same(np.asarray(exported["buffer"]), inside))
    assert np.shares_memory(exported["buffer"], u.padded)
    widths = int(comm.rank > 0), int(comm.rank < comm.size - 1)
    assert everywhere(comm, exported["dim_data"][0].get("padding", (0, 0)) == widths)
    assert all(entry.get("periodic", False) is periodic for entry in exported["dim_data"])
    assert all(
        type(value) in (int, str, tuple, bool)
        for entry in exported["dim_data"]
        for value in entry.values()
    )


@pytest.mark.parametrize("halo", [(1, 2), (0, 1), (40, 40)])
def test_a_method_of_fields_shows_no_halo_that_the_protocol_cannot_represent(comm, halo):
    data = numbered((3 * comm.size, 5))
    u = spread(Pencil(data.shape, comm, decomp=0), data, halo=[halo, (0, 0)])
    exported = u.__distarray__()
    assert everywhere(comm, np.array_equal(together(u, exported, "0.10.0"), data))
    assert everywhere(comm, same(np.asarray(exported["buffer"]), u.local))
    assert not any("padding" in entry for entry in exported["dim_data"])


def test_ghosts_of_processes_without_points_do_not_exist_in_0_9(comm):
    """There, such a process has an empty buffer."""
    bounds = [0, *range(2, 2 * comm.size, 2), 2 * comm.size - 2] if comm.size > 1 else [0, 2]
    u = pencils.zeros(Pencil(bounds[-1], comm, splits=bounds), halo=[(1, 0)])
    if comm.size > 1:
        all_raise(
            comm, dap.UnsupportedError, ("no points", "B6"), dap.export, u, "0.9.0", halo="comm"
        )
    else:
        dap.validate_on(comm, dap.export(u, "0.9.0", halo="comm"))


def test_a_dimension_on_one_process_by_either_name(comm):
    u = spread(Pencil((6, 4), comm, decomp=0), numbered((6, 4)))
    assert dap.export(u, "0.9.0")["dim_data"][1] == {"dist_type": "n", "size": 4}
    assert dap.export(u, "0.9.0", undistributed="b")["dim_data"][1]["dist_type"] == "b"
    assert dap.export(u)["dim_data"][1]["proc_grid_size"] == 1


@versions
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_element_types(comm, version, dtype):
    u = spread(Pencil((5, 4), comm), numbered((5, 4), dtype))
    if dtype.kind == "M":
        all_raise(comm, dap.UnsupportedError, "no buffer", dap.export, u, version)
        return
    exported = dap.export(u, version)
    assert memoryview(exported["buffer"]).itemsize == dtype.itemsize
    assert everywhere(comm, same(together(u, exported, version), numbered((5, 4), dtype)))


def test_what_the_protocol_cannot_say_raises_on_all_ranks(comm):
    thin = pencils.zeros(Pencil(comm.size, comm), halo=2)
    lopsided = pencils.zeros(Pencil(4 * comm.size, comm), halo=[(1, 2)])
    if comm.size > 1:
        for u, code in ((thin, "G7"), (lopsided, "G6")):
            all_raise(comm, dap.UnsupportedError, code, dap.export, u, halo="comm")
        assert dap.validate_on(comm, dap.export(lopsided, "0.9.0", halo="comm"))
    for wrong, kind, text in (
        ({"version": "0.10"}, dap.VersionError, "E2"),
        ({"halo": "some"}, ArgumentError, "'comm'"),
        ({"undistributed": "x"}, ArgumentError, "'n' or 'b'"),
        ({"u": None}, TypeError, "PencilArray"),
    ):
        all_raise(comm, kind, text, dap.export, **{"u": thin, **wrong})


def test_what_is_wrong_on_one_rank_is_told_on_all(comm):
    u = spread(Pencil(3 * comm.size, comm), numbered((3 * comm.size,)))
    exported = u.__distarray__()
    last = comm.size - 1
    if comm.rank == last:
        exported["dim_data"][0]["stop"] += 1
    all_raise(comm, dap.SemanticError, (f"rank {last}", "B2"), dap.validate_on, comm, exported)
    all_raise(comm, TypeError, "comm", dap.validate_on, 3, exported)


def test_communicators_go_with_that_of_the_pencil(comm):
    own = comm.Dup()
    u = pencils.zeros(Pencil((6, 7), own, decomp=(1, 0)))
    before = u.pencil.topology.communicators
    ordered = dap.comm(u)
    assert u.pencil.topology.communicators == before + 1
    own.Free()
    assert ordered == MPI.COMM_NULL


def test_exports_do_not_keep_anything_else_than_the_memory(comm):
    pencil = Pencil((6, 7), comm)
    exported = PencilArray(pencil, np.ones(pencil.local_shape)).__distarray__()
    assert everywhere(comm, (exported["buffer"] == 1).all())
