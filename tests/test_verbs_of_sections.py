"""Sections go everywhere a field goes: each verb with a view of some points, against NumPy."""

import h5py
import numpy as np
import pytest
from mpi_helpers import NODES, all_raise, everywhere, on_nodes, same, spread

import pencils
from pencils import dap, graph
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError
from pencils.fft import PencilFFT

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)
# Some cut where processes meet, some leave ranks without points, some have steps.
KEYS = [
    *(np.s_[1:-1], np.s_[3], np.s_[::2], np.s_[1::3, 2:], np.s_[:, 4, ::-1], np.s_[..., 1:3]),
    *(np.s_[2:2], np.s_[-1:, -1:, -1:], np.s_[1:-1, 1:-1, 1:-1], np.s_[:]),
]
every_key = pytest.mark.parametrize("key", KEYS, ids=str)


def slices(key):
    """Return the key of NumPy that keeps all dimensions."""
    return tuple(
        slice(one, one + 1 or None) if isinstance(one, int) else one
        for one in (key if isinstance(key, tuple) else (key,))
    )


@pytest.fixture(params=[{"decomp": (0, 1), "periodic": True}, {"decomp": 1, "order": (2, 0, 1)}])
def pencil(request, comm):
    return pencils.Pencil(SHAPE, comm, **request.param)


def data_of(shape=SHAPE, dtype=float):
    return np.arange(1.0, 1 + np.prod(shape)).reshape(shape).astype(dtype)


def held(u, data):
    """Whether a field holds global data."""
    return u.shape == data.shape and u.dtype == data.dtype and same(u.local, data[u.local_slices])


@every_key
@pytest.mark.parametrize("shared", [False, True], ids=["private", "shared"])
def test_transposes(pencil, key, shared):
    data = data_of((2, *SHAPE))
    base = pencils.empty(pencil, components=2, halo=1, shared=shared)
    base.local = data[base.local_slices]
    part = data[:, *slices(key)]
    u = base[:, *slices(key)]
    comm = pencil.comm
    for target in (
        u.pencil.with_(decomp=2),
        pencils.Pencil(u.shape[1:], comm, decomp=(2, 0), order=(1, 2, 0)),
        u.pencil,
    ):
        for _ in range(2):
            there = pencils.transpose(u, target)
            assert everywhere(comm, held(there, part))
            back = pencils.zeros(pencil, components=2, shared=shared)
            pencils.transpose(there, u.pencil, out=back[:, *slices(key)])
            expected = np.zeros_like(data)
            expected[:, *slices(key)] = part
            assert everywhere(comm, held(back, expected))
    with pencils.Transposition(u.pencil, target, components=2) as plan:
        assert everywhere(comm, held(plan(u), part))


@every_key
def test_reductions(pencil, key):
    data = data_of()
    u, part = spread(pencil, data, halo=1)[key], data[slices(key)]
    comm = pencil.comm
    for axis in (None, 0, 1, (0, 2), (0, 1, 2)):
        keep = {"keepdims": axis is not None}
        for _ in range(2):
            assert everywhere(comm, close(u.sum(axis=axis), part.sum(axis=axis, **keep)))
        if part.size:
            assert everywhere(comm, close(u.mean(axis=axis), part.mean(axis=axis, **keep)))
            assert everywhere(comm, close(u.max(axis=axis), part.max(axis=axis, **keep)))
            assert everywhere(comm, close(u.std(axis=axis), part.std(axis=axis, **keep)))
    if part.size:
        assert u.argmax() == part.argmax()
    assert np.vdot(u, u) == np.vdot(part, part)
    assert u.norm() == pytest.approx(np.linalg.norm(part.ravel()))
    mask = data % 3 == 0
    where = spread(pencil, mask)[key]
    assert u.sum(where=where) == part.sum(where=mask[slices(key)])
    assert u.sum(where=mask[slices(key)]) == part.sum(where=mask[slices(key)])
    if u.pencil is not pencil and part.size:
        with pytest.raises(PencilMismatchError):
            u.sum(where=spread(pencil, mask))


def close(found, expected):
    if isinstance(found, pencils.PencilArray):
        return found.shape == expected.shape and np.allclose(
            found.local, expected[found.local_slices], rtol=1e-12
        )
    return np.allclose(found, expected, rtol=1e-12)


@every_key
def test_gather_and_partition(pencil, key):
    data, comm = data_of(), pencil.comm
    u, part = spread(pencil, data, halo=1)[key], data[slices(key)]
    for root in (None, comm.size - 1):
        found = pencils.gather(u, root=root)
        assert everywhere(
            comm, found is None if root not in (None, comm.rank) else same(found, part)
        )
        found = pencils.gather(u, root=root, key=np.s_[..., ::-2])
        mine = root in (None, comm.rank)
        assert everywhere(comm, same(found, part[..., ::-2]) if mine else found is None)
    assert everywhere(comm, held(pencils.partition(u.pencil, part), part))
    given = part if comm.rank == 0 else None
    assert everywhere(comm, held(pencils.partition(u.pencil, given, root=0, halo=2), part))


def test_halos_along_dimensions_that_are_whole(comm):
    pencil = pencils.Pencil(SHAPE, comm, decomp=(0, 1), periodic=True)
    data = data_of((2, *SHAPE))
    for cut, width in ((0, (1, 2)), (1, (2, 1)), (2, 1)):
        halo = [width if dim != cut else 1 for dim in range(3)]
        u = spread(pencil, data, halo=halo)
        key = (slice(None),) * (1 + cut) + (slice(1, -1),)
        for corners in (True, False):
            part = u[key]
            part.exchange_halo(corners=corners)
            for dim in {0, 1, 2} - {cut}:
                for step in (-1, 1):
                    offset = [0, 0, 0]
                    offset[dim] = step
                    expected = np.roll(data, -step, dim + 1)[key]
                    assert everywhere(comm, held(part.shift(offset), expected))
        with pytest.raises(ArgumentError, match="shift"):
            part.shift([int(dim == cut) for dim in range(3)])


WRITES = [
    lambda u: u[1:-1].__iadd__(1),
    lambda u: u.__setitem__(slice(1, -1), 2.0),
    lambda u: np.add(u[2:][1:], 1, out=u[2:][1:]),
    lambda u: u[:, 1:].__setitem__(3, -u[:, 1:][3]),
    lambda u: u.__setitem__(0, np.zeros(SHAPE[1:])),
    lambda u: u.__setitem__(u > 0, 0.0),
]


@pytest.mark.parametrize("write", WRITES, ids=range(len(WRITES)))
def test_a_write_to_a_section_makes_ghosts_of_the_field_old(comm, write):
    pencil = pencils.Pencil(SHAPE, comm, periodic=True)
    u, both = (spread(pencil, data, halo=1) for data in (data_of(), data_of((2, *SHAPE))))
    with pencils.debug.ghosts():
        for field in (u, both.component(1)):
            field.exchange_halo()
            write(field)
            assert everywhere(
                comm, np.isnan(field.padded).sum() == field.padded.size - field.local.size
            )
        both.exchange_halo()
        both[1, 1:-1] += 1
        assert everywhere(comm, not np.isnan(both.component(0).padded).any())
        assert everywhere(comm, np.isnan(both.component(1).padded).any())


PARTS = [
    lambda part: part.component(1),
    lambda part: part.unstack()[1],
    lambda part: part[1],
    lambda part: part[1:][...][0],
    lambda part: part[:, 1:2].component(1).imag,
    lambda part: part.real[1],
]


@pytest.mark.parametrize("take", PARTS, ids=range(len(PARTS)))
def test_a_write_to_a_part_of_a_section_makes_ghosts_of_the_field_old(comm, take):
    pencil = pencils.Pencil(SHAPE, comm, periodic=True)
    u = spread(pencil, data_of((2, *SHAPE)).astype(complex), halo=1)
    u.exchange_halo()
    with pencils.debug.ghosts():
        take(u[:, 1:-1])[...] = 1.0
    unset = np.isnan(u.padded[1])
    assert everywhere(comm, unset.sum() == unset.size - u.local[1].size)
    assert everywhere(comm, not np.isnan(u.padded[0]).any())


@every_key
def test_points(pencil, key):
    data, comm = data_of(), pencil.comm
    base = spread(pencil, data)
    u, part = base[key], data[slices(key)].copy()
    if not part.size:
        return
    rng = np.random.default_rng(comm.rank)
    coords = tuple(rng.integers(0, n, 20) for n in part.shape)
    for _ in range(2):
        assert everywhere(comm, same(u.take_points(coords), part[coords]))
    here = tuple(np.full(1, n - 1) for n in part.shape)
    u.put_points(here, 7.0)
    data[slices(key)][here] = 7.0
    assert everywhere(comm, held(base, data))
    with pencils.indexer.PointIndexer(u.pencil, coords) as plan:
        assert everywhere(comm, same(plan.take(u), data[slices(key)][coords]))


def test_interpolation(comm):
    pencil = pencils.Pencil(SHAPE, comm, decomp=(0, 1))
    u = pencils.from_function(pencil, lambda i, j, k: 2.0 * i - j + 0.5 * k)[1:-1, ::2]
    at = np.array([0.5, 3.25]), np.array([1.5, 0.0]), np.array([0.0, 3.5])
    expected = 2 * (at[0] + 1) - 2 * at[1] + 0.5 * at[2]
    assert everywhere(comm, np.allclose(pencils.indexer.interpolate(u, at), expected))


@every_key
def test_files(pencil, key, mpi_tmp_path):
    data, comm = data_of(), pencil.comm
    u, part = spread(pencil, data, halo=1)[key], data[slices(key)]
    path = mpi_tmp_path / "sections.h5"
    pencils.save(path, {"u": u, "whole": u.pencil.size * u}, attrs={"n": 1})
    for target in (u.pencil, pencils.Pencil(part.shape, comm, decomp=2)):
        assert everywhere(comm, held(pencils.load(path, target)["u"], part))
    base = pencils.zeros(pencil)
    pencils.load(path, names="u", into=base[key])
    expected = np.zeros(SHAPE)
    expected[slices(key)] = part
    assert everywhere(comm, held(base, expected))


def test_planes_are_written_where_they_are(pencil, mpi_tmp_path):
    data, comm = data_of((2, *SHAPE)), pencil.comm
    u = spread(pencil, data)
    pencils.save(mpi_tmp_path / "u.h5", {"u": u})
    with pencils.open(mpi_tmp_path / "u.h5", "r+", comm=comm) as file:
        for key in (np.s_[:, 3], np.s_[:, :, -1, 2:], np.s_[:, 4, 5, 4]):
            file["u"].write(-u[key], key)
            data[key] = -abs(data[key])
        with pytest.raises(ArgumentError, match="but the selection of"):
            file["u"].write(u[:, 3], np.s_[:, :, 3])
    assert everywhere(comm, held(pencils.load(mpi_tmp_path / "u.h5", pencil)["u"], data))


def test_coordinates_are_those_of_the_points(comm, mpi_tmp_path):
    """As many points of another part have other coordinates."""
    pencil = pencils.Pencil(SHAPE, comm, decomp=0)
    u = spread(pencil, data_of())
    low, high = u[:-1], u[1:]
    x = np.linspace(0, 1, 7)
    axes = (x[1:], np.arange(6.0), np.arange(5.0))
    grid = pencils.localgrid(high.pencil, axes, names=("x", "y", "z"))
    pencils.save(mpi_tmp_path / "u.h5", {"low": low, "high": high, "thin": high[0]}, grid=grid)
    with pencils.TimeSeries(mpi_tmp_path / "s.h5", "w", grid=grid) as series:
        series.append(0.0, {"low": low, "high": high})
    for name, lead in (("u.h5", 0), ("s.h5", 1)):
        with h5py.File(mpi_tmp_path / name) as file:
            found = {key: list(file[key].dims[lead].keys()) for key in ("low", "high")}
            assert everywhere(comm, found["high"] == ["x"])
            assert everywhere(comm, found["low"] != ["x"])
            assert everywhere(comm, list(file["low"].dims[lead + 1].keys()) == ["y"])
        comm.barrier()


def test_series_of_sections(comm, mpi_tmp_path):
    pencil = pencils.Pencil(SHAPE, comm, decomp=(0, 1))
    data = data_of()
    u = spread(pencil, data, halo=1)
    path = mpi_tmp_path / "series.h5"
    with pencils.TimeSeries(path, "w", comm=comm) as series:
        series.append(0.0, {"inner": u[1:-1], "plane": (u, np.s_[3]), "kept": u[3]})
    for name, part in (("inner", data[1:-1]), ("plane", data[3]), ("kept", data[3:4])):
        target = pencils.Pencil(part.shape, comm)
        with pencils.open(path, comm=comm) as file:
            assert file[name].shape == (1, *part.shape)
        if part.ndim == 3:
            with pencils.open(path, comm=comm) as file:
                found = file[name].read(target, 0)
            assert everywhere(comm, held(found, part))


@every_key
def test_the_distributed_array_protocol(pencil, key):
    data, comm = data_of(), pencil.comm
    u, part = spread(pencil, data)[key], data[slices(key)]
    if not part.size:
        return
    for version in ("0.10.0", "0.9.0"):
        exported = dap.export(u, version=version)
        dap.validate(exported)
        back = pencils.PencilArray.from_distarray(u.pencil, exported)
        assert everywhere(comm, held(back, part))


def test_transforms_of_sections(comm):
    pencil = pencils.Pencil((9, 8, 6), comm, decomp=(0, 1))
    data = np.random.default_rng(1).normal(size=(9, 8, 6))
    u = spread(pencil, data)[1:]
    with PencilFFT(u.pencil) as fft:
        hat = fft.forward(u)
        expected = np.fft.rfftn(data[1:])
        assert everywhere(comm, np.allclose(hat.local, expected[hat.local_slices]))
        back = fft.backward(hat)
        assert everywhere(comm, np.allclose(back.local, u.local))
        assert back.pencil.same_blocks(u.pencil)
        assert (back - u).shape == u.shape


def test_graphs_of_sections(comm):
    pencil = pencils.Pencil(SHAPE, comm, decomp=0, periodic=True)
    data = data_of()
    u = spread(pencil, data)[1:-1]
    x = graph.make_placeholder("x", u.local_shape)
    outputs = {
        "wrapped": graph.halo_exchange(x, u.pencil, (0, 1, 0)),
        "points": graph.take(x, u.pencil, ([0, 4], [1, 2], 3)),
        "turned": graph.transpose(x, u.pencil, u.pencil.with_(decomp=1)),
    }
    partition = graph.find_distributed_partition(comm, outputs)
    given = {"x": np.ascontiguousarray(u.local)}
    found = graph.execute_distributed_partition(partition, None, None, comm, input_args=given)
    wrapped = np.pad(data[1:-1], ((0, 0), (1, 1), (0, 0)), mode="wrap")
    assert everywhere(comm, same(found["wrapped"], wrapped[u.local_slices[0]]))
    assert everywhere(comm, same(found["points"], data[[1, 5], [1, 2], 3]))
    turned = u.pencil.with_(decomp=1)
    assert everywhere(comm, same(found["turned"], data[1:-1][turned.local_slices]))


def test_mapping_by_index(comm):
    pencil = pencils.Pencil(SHAPE, comm, decomp=(1, 0), periodic=True)
    part = pencil.section(np.s_[1:-1, ::2])
    found = pencils.from_function(part, lambda i, j, k: 100 * i + 10 * j + k)
    i, j, k = np.ogrid[:5, :3, :5]
    assert everywhere(comm, held(found, 100 * i + 10 * j + k))
    grid = pencils.localgrid(part, tuple(np.linspace(0, 1, n) for n in part.shape))
    assert grid.x.shape == (5, 1, 1)
    assert (found * grid.x).pencil == part
    assert pencils.random.normal(part, 3).shape == part.shape


@pytest.mark.parametrize("nodes", NODES)
def test_several_nodes(nodes):
    comm = on_nodes(nodes)
    pencil = pencils.Pencil(SHAPE, comm, decomp=(0, 1))
    data = data_of()
    for shared in (False, True):
        base = pencils.empty(pencil, shared=shared)
        base.local = data[base.local_slices]
        for key in KEYS[:5]:
            u, part = base[key], data[slices(key)]
            for _ in range(2):
                assert everywhere(comm, held(pencils.transpose(u, u.pencil.with_(decomp=2)), part))
                assert everywhere(comm, same(pencils.gather(u, root=None), part))
            plane = u[:1]
            assert everywhere(comm, held(plane.replicate(), part[:1]))


# One point, and planes for all ranks.


def test_items(pencil):
    data, comm = data_of((2, *SHAPE)), pencil.comm
    u = spread(pencil, data, halo=1)
    rng = np.random.default_rng(2)
    for _ in range(10):
        index = tuple(int(rng.integers(-n, n)) for n in data.shape)
        found = u.item(*index)
        assert everywhere(
            comm, found == data.item(*[i % n for i, n in zip(index, data.shape, strict=True)])
        )
        assert type(found) is float
        assert everywhere(comm, u[index].item() == found)
        assert u.item(index) == found
    assert u.item(100) == data.item(100)
    assert u.item(-1) == data[-1, -1, -1, -1]
    thin = spread(pencil, data[:, :, :1], dims=(0, 2))
    assert thin.item(1, 3, 0, 4) == data[1, 3, 0, 4]
    for dtype in ("?", "i1", "c8", "M8[s]", "S3", [("a", "f4"), ("b", "i2")], "g", ">f8"):
        values = np.zeros(SHAPE, dtype)
        values[4, 3, 2] = (1, 2) if isinstance(dtype, list) else 1
        assert everywhere(comm, spread(pencil, values).item(4, 3, 2) == values.item(4, 3, 2))


def test_wrong_items(comm):
    pencil = pencils.Pencil(SHAPE, comm)
    u = spread(pencil, data_of())
    for index in ((7, 0, 0), (0, 0, -6), (210,), (-211,)):
        all_raise(comm, IndexError, "out of bounds", u.item, *index)
    for index in ((), (1, 2), (1, 2, 3, 4)):
        all_raise(comm, ArgumentError, "index", u.item, *index)
    all_raise(comm, TypeError, "index", u.item, 1.5, 0, 0)
    if comm.size > 1:
        with pytest.raises(RankDisagreementError):
            u.item(comm.rank % 2, 0, 0)
        with pytest.raises(RankDisagreementError):
            u[comm.rank % 2].sum()
        with pytest.raises(RankDisagreementError):
            pencils.transpose(u[: 3 + comm.rank % 2], pencil)
    assert u.item(1, 1, 1) == data_of()[1, 1, 1]


def test_planes_for_all_ranks(pencil):
    data, comm = data_of((2, *SHAPE)), pencil.comm
    u = spread(pencil, data, halo=1)
    for key in (np.s_[:, 3], np.s_[:, :, -1], np.s_[..., 0], np.s_[:, 3, :, 2], np.s_[:, 6, 5, 4]):
        part = data[slices(key)]
        plane = u[key].replicate()
        assert everywhere(comm, held(plane, part))
        assert plane.singletons == {dim for dim, n in enumerate(part.shape[1:]) if n == 1}
        assert everywhere(comm, held(u - plane, data - part))
        assert plane.pencil.same_blocks(pencil)
    u[:, 0] = u[:, -1].replicate()
    data[:, 0] = data[:, -1]
    assert everywhere(comm, held(u, data))
    assert everywhere(comm, held((2 * u[:, 3]).replicate(), 2 * data[:, 3:4]))
    assert everywhere(comm, held(u.replicate(), data))


def test_planes_of_products_have_all_points_of_each_factor(comm):
    long, wide = (pencils.Pencil(shape, comm) for shape in ((7, 5), (7, 9)))
    x, y = pencils.ones(long, dims=0), pencils.ones(wide, dims=1)
    for product in (x[2:] * y[:, 1:], y[:, 1:] * x[2:], x[2:] * y, x * y[:, 1:]):
        plane = product[:, 3].replicate()
        assert plane.pencil.shape == (product.shape[0], 9)
        assert product[0].replicate().pencil.shape == (7, product.shape[1])


# Keys that differ between ranks.

VERBS = {
    "sum": lambda u, _: u.sum(),
    "mean": lambda u, _: u.mean(axis=0),
    "norm": lambda u, _: u.norm(),
    "allclose": lambda u, _: np.allclose(u, u),
    "item": lambda u, _: u.item(0, 0, 0),
    "replicate": lambda u, _: u[:1].replicate(),
    "transpose": lambda u, _: pencils.transpose(u, u.pencil.with_(decomp=1)),
    "transpose_onto": pencils.transpose,
    "exchange_halo": lambda u, _: u.exchange_halo(),
    "take_points": lambda u, _: u.take_points(([1], [1], [1])),
    "put_points": lambda u, _: u.put_points(([1], [1], [1]), 0.5),
    "gather": lambda u, _: pencils.gather(u),
    "gather_everywhere": lambda u, _: pencils.gather(u, root=None),
    "partition": lambda u, _: pencils.partition(
        u.pencil, np.zeros(u.shape) if u.pencil.rank == 0 else None, root=0
    ),
    "cumsum": lambda u, _: np.cumsum(u, axis=0),
    "flip": lambda u, _: np.flip(u, 0),
    "diff": lambda u, _: np.diff(u, axis=0),
    "median": lambda u, _: np.median(u),
}


@pytest.mark.parametrize("name", VERBS)
def test_keys_that_differ_are_found_by_the_next_collective(comm, name):
    """Also where the same call was made before, with either key."""
    pencil = pencils.Pencil(SHAPE, comm, decomp=0, periodic=True)
    u, call = spread(pencil, data_of(), halo=1), VERBS[name]
    low, high = u[:-2], u[2:]
    across = low.pencil.with_(decomp=1)
    for known in (False, True):
        if comm.size > 1:
            wrong = high if comm.rank == comm.size - 1 else low
            with pytest.raises(RankDisagreementError):
                call(wrong, across)
        if not known:
            for part in (low, high, low, high):
                call(part, across)
    call(low, across)


def test_plans_of_other_sections_are_told_apart(comm):
    early, late = (
        pencils.Pencil(
            SHAPE, comm, decomp=0, splits=[(0, *[cut] * (comm.size - 1), 7), "first", "first"]
        ).section(np.s_[1:6])
        for cut in (2, 5)
    )
    with (
        pencils.Transposition(early, early.with_(decomp=1)) as one,
        pencils.Transposition(late, late.with_(decomp=1)) as other,
    ):
        if comm.size > 1:
            mine, part = (one, early) if comm.rank == 0 else (other, late)
            with pytest.raises(RankDisagreementError):
                mine(pencils.ones(part))
        one(pencils.ones(early))
        other(pencils.ones(late))
