"""Chunked and compressed fields: plain h5py is the judge, on any pencil, with any filter."""

import h5py
import numpy as np
import pytest
from damage import failing
from mpi_helpers import numbered, random_pencil, same, spread

import pencils
from pencils.errors import ArgumentError, CheckpointError
from pencils.io.slabs import tile

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

PIPELINES = {
    "none": {},
    "gzip": {"compression": "gzip", "compression_opts": 1},
    "lzf": {"compression": "lzf"},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "shuffle": {"shuffle": True},
    "scaleoffset": {"scaleoffset": 0},
}
LZF = 32000
ONE_PROCESS = pytest.mark.mpiexec("patches what threads of one process call")

# Shapes and chunks that fit neither each other nor any number of ranks.
GRIDS = [
    ((11,), (3,)),
    ((9, 7), (4, 2)),
    ((1, 13), (1, 5)),
    ((7, 5, 8), (3, 5, 2)),
    ((5, 3, 4, 6), (2, 2, 3, 4)),
]
DTYPES = ["f4", ">i4", "c8", "?", "S3", "f8,i2", "g"]


def datasets(lab, path, *facts):
    """Read datasets, and what they say about themselves, by plain h5py on rank 0, for all."""

    def read(file):
        found = {}
        file.visititems(lambda name, thing: found.update({name: thing}))
        return {
            name: (thing[...], *(getattr(thing, fact) for fact in facts))
            for name, thing in found.items()
            if isinstance(thing, h5py.Dataset) and "VTKHDF" not in name
        }

    return lab.look(path, read)


def chunks_of(lab, path, fact):
    def read(file):
        dataset = file["u"].id
        infos = (dataset.get_chunk_info(n) for n in range(dataset.get_num_chunks()))
        return [getattr(info, fact) for info in infos]

    return lab.look(path, read)


CASES = [(grid, name) for i, grid in enumerate(GRIDS) for name in list(PIPELINES)[i % 3 :: 3]]


@pytest.mark.parametrize(("grid", "name"), CASES, ids=str)
def test_any_pencil_and_filter(path, lab, grid, name):
    shape, chunk = grid
    rng = np.random.default_rng(len(shape))
    kind = "i4" if name == "scaleoffset" else "f8"
    arrays = {"g/u": numbered((2, *shape), kind), "p": numbered(shape, kind)}
    fields = {
        name: spread(random_pencil(rng, lab.comm, shape), array, halo=1)
        for name, array in arrays.items()
    }
    pencils.save(path, fields, compression=PIPELINES[name], chunks=chunk)
    facts = "chunks", "compression", "shuffle", "fletcher32", "scaleoffset"
    for field, (found, *told) in datasets(lab, path, *facts).items():
        assert same(found, arrays[field])
        asked = {"chunks": (1,) * (field == "g/u") + chunk, **PIPELINES[name]}
        defaults = [None, None, False, False, None]
        assert told == [asked.get(*pair) for pair in zip(facts, defaults, strict=True)]
    assert lab.holds_all(pencils.load(path, random_pencil(rng, lab.comm, shape)), arrays)
    assert pencils.verify(path, lab.comm) == ["g/u", "p"]


@pytest.mark.parametrize("chunks", [{"a": (4, 4, 4), "b": (12, 5, 3)}, {"b": (4, 4, 4)}])
@pytest.mark.parametrize("names", ["ab", "ba"])
def test_one_field_in_different_chunks(path, lab, names, chunks):
    array = lab.numbers((12, 10, 8))
    u = spread(pencils.Pencil(array.shape, lab.comm, decomp=(1, 2)), array)
    for _ in range(2):  # the second time it finds the plans
        pencils.save(path, dict.fromkeys(names, u), chunks=chunks)
        for (found,) in datasets(lab, path).values():
            assert same(found, array)


def test_any_element_type(path, lab):
    pencil = pencils.Pencil((7, 6), lab.comm, order=(1, 0))
    arrays = {dtype: numbered((7, 6), dtype) for dtype in DTYPES}
    fields = {dtype: spread(pencil, array) for dtype, array in arrays.items()}
    pencils.save(path, fields, compression=PIPELINES["all"], chunks=(4, 4))
    for dtype, (found,) in datasets(lab, path).items():
        assert found.dtype == arrays[dtype].dtype
        assert found.tobytes() == arrays[dtype].tobytes()
    state = pencils.load(path, pencils.Pencil((7, 6), lab.comm, decomp=1))
    assert lab.holds_all(state, arrays)


def test_the_same_file_from_any_pencil(path, lab):
    rng = np.random.default_rng(3)
    array = lab.numbers((2, 17, 12, 9)).round(2)
    seen = set()
    for _ in range(3):
        pencil = random_pencil(rng, lab.comm, (17, 12, 9))
        fields = {"u": spread(pencil, array), "w": spread(pencil, array[0])}
        pencils.save(path, fields, compression="gzip", chunks={"u": (5, 5, 5)})
        seen.add(lab.on_root(path.read_bytes))
    assert len(seen) == 1


def test_components_singletons_and_halos(path, lab):
    for field, array in lab.cases((6, 5, 4), 4, seed=5):
        pencils.save(path, {"u": field}, compression="gzip", chunks=(4, 2, 3))
        found, chunks = datasets(lab, path, "chunks")["u"]
        assert np.array_equal(found, array)
        lead = array.ndim - 3
        cut = (1,) * lead + tuple(map(min, (4, 2, 3), array.shape[lead:]))
        assert chunks == (cut if array.size else None)
        assert lab.holds(pencils.load(path, {"u": field})["u"], array)
        assert pencils.verify(path, lab.comm) == ["u"]


def test_chunks_stay_where_they_are_whole_and_use_all_ranks_elsewhere(lab):
    size = lab.comm.size
    pencil = pencils.Pencil((4 * size, 6), lab.comm, decomp=0)
    tiles = tile(pencils.zeros(pencil), (2, 6))
    assert (tiles.shape, tiles.decomp, tiles.local_shape) == ((2 * size, 1), (0,), (2, 1))
    assert tiles.box().start == (2 * lab.comm.rank, 0)
    for extents in ((3, 1), (4 * size, 1)):
        tiles = tile(pencils.zeros(pencil), extents)
        busy = sum(lab.comm.allgather(tiles.box().volume > 0))
        assert busy == min(size, int(np.prod(tiles.shape)))
    tiles = tile(pencils.zeros(pencil, dims=1), (1, 1))  # of which every rank has a replica
    assert lab.everywhere(tiles.box().volume == 6 // size or 6 % size)


def test_boundary_points(path, lab):
    pencil = pencils.Pencil((6, 5), lab.comm, periodic=(False, True))
    field = pencils.ones(pencil, halo=2)
    field.fill_boundary("edge")
    pencils.save(path, {"u": field}, halo=True, compression="gzip")
    pencils.save(path.with_name("plain.h5"), {"u": field}, halo=True)
    wanted = lab.stored(path.with_name("plain.h5"))["u"]
    assert wanted.shape == (10, 5)
    assert np.array_equal(lab.stored(path)["u"], wanted)


def test_extents_are_chosen_and_cut(path, lab):
    pencil = pencils.Pencil((300, 700), lab.comm)
    fields = {"u": pencils.ones(pencil), "short": pencils.ones(pencil, dtype="i1")}
    fields["line"] = pencils.ones(pencil, dims=1)
    fields["none"] = pencils.ones(pencil, components=0)

    def chunks(**options):
        pencils.save(path, fields, **options)
        return {name: told for name, (_, told) in datasets(lab, path, "chunks").items()}

    chosen = {"u": (300, 350), "short": (300, 700), "line": (1, 700), "none": None}
    assert chunks(compression="lzf") == chosen
    assert chunks(compression="lzf", chunks={"u": (10, 999)}) == chosen | {"u": (10, 700)}
    assert chunks(chunks={"u": (10, 10)}) == dict.fromkeys(fields) | {"u": (10, 10)}
    assert chunks(compression={}) == dict.fromkeys(fields)


def test_values_and_coordinates_are_as_always(path, lab):
    pencil = pencils.Pencil((6, 5), lab.comm)
    grid = pencils.localgrid(pencil, [np.arange(6.0), np.arange(5.0)])
    fields = {"u": pencils.ones(pencil), "modes": np.arange(7), "dt": 0.1, "name": "Green"}
    pencils.save(path, fields, grid=grid, step=3, compression=9)
    told = {name: found[1] for name, found in datasets(lab, path, "compression").items()}
    assert told.pop("u") == "gzip"
    assert set(told.values()) == {None}
    state = pencils.load(path, pencil)
    assert (state["dt"], state["name"], state.step) == (0.1, "Green", 3)
    labels = lab.look(path, lambda file: [dim[0].name for dim in file["u"].dims])
    assert labels == ["/x", "/y"]


def test_filters_that_leave_chunks_alone(path, lab):
    noise = lab.rng.integers(0, 256, (40, 72), np.uint8)
    noise[:20] = 0
    field = spread(pencils.Pencil(noise.shape, lab.comm), noise)
    pencils.save(path, {"u": field}, compression="lzf", chunks=(10, 72))
    assert chunks_of(lab, path, "filter_mask") == [0, 0, 1, 1]
    assert np.array_equal(lab.stored(path)["u"], noise)


def test_checksums_are_of_what_is_left_by_lossy_filters(path, lab):
    array = lab.numbers((7, 8, 5))
    field = spread(pencils.Pencil(array.shape, lab.comm), array)
    pencils.save(path, {"u": field}, compression={"scaleoffset": 2}, chunks=(3, 3, 3))
    found = lab.stored(path)["u"]
    assert 0 < np.abs(found - array).max() < 0.01
    assert pencils.verify(path, lab.comm) == ["u"]
    assert lab.holds(pencils.load(path, field.pencil.with_(decomp=2))["u"], found)


@pytest.mark.parametrize("name", ["Zstd", "Blosc2", "Bitshuffle", "Zfp", "SZ3"])
def test_filters_of_others(path, lab, name):
    hdf5plugin = pytest.importorskip("hdf5plugin")
    made = getattr(hdf5plugin, name)(
        **{"Zfp": {"accuracy": 0.01}, "SZ3": {"absolute": 0.01}}.get(name, {})
    )
    array = np.cumsum(lab.numbers((9, 12, 10)), axis=0)
    field = spread(pencils.Pencil(array.shape, lab.comm), array)
    compression = made if name == "Zstd" else {"compression": made, "fletcher32": True}
    pencils.save(path, {"u": field}, compression=compression, chunks=(4, 6, 5))
    found = lab.stored(path)["u"]
    assert np.allclose(found, array, rtol=0, atol=0.01 if name in ("Zfp", "SZ3") else 0)
    assert pencils.verify(path, lab.comm) == ["u"]


def test_aligned_chunks(path, lab):
    noise = lab.numbers((64, 64))
    field = spread(pencils.Pencil(noise.shape, lab.comm), noise)
    pencils.save(path, {"u": field}, align=512, compression="gzip", chunks=(16, 16))
    assert all(begin % 512 == 0 for begin in chunks_of(lab, path, "byte_offset"))
    assert np.array_equal(lab.stored(path)["u"], noise)


BAD = {
    "unknown name": ({"compression": "nonsense"}, ArgumentError, "nonsense"),
    "unknown number": ({"compression": 31999}, ArgumentError, "31999"),
    "wrong level": ({"compression": 77}, ArgumentError, "77"),
    "wrong keyword": ({"compression": {"level": 3}}, ArgumentError, "'level'"),
    "wrong type": ({"compression": 1.5}, TypeError, "1.5"),
    "bool": ({"compression": True}, TypeError, "True"),
    "wrong element type": ({"compression": {"scaleoffset": 2}}, TypeError, "'c'"),
    "dimensions": ({"chunks": (3,)}, ArgumentError, "2 dimensions"),
    "zero": ({"chunks": (3, 0)}, ArgumentError, "(3, 0)"),
    "no integer": ({"chunks": 1.5}, TypeError, "1.5"),
    "records with gaps": ({"compression": "gzip"}, TypeError, "gaps"),
    "no field": ({"chunks": {"w": (1, 1)}}, ArgumentError, "'w'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_raise_everywhere_and_nothing_happens(path, lab, case):
    options, kind, text = BAD[case]
    pencil = pencils.Pencil((6, 5), lab.comm)
    fields = {"u": pencils.ones(pencil), "c": pencils.ones(pencil, dtype="c16")}
    if case == "records with gaps":
        kinds = np.dtype([("a", "i1"), ("b", "f8")], align=True)
        fields["r"] = pencils.zeros(pencil, dtype=kinds)
    lab.refuses(kind, text, pencils.save, path, fields, **options)
    assert lab.on_root(lambda: list(path.parent.iterdir())) == []


def test_a_filter_that_one_rank_does_not_have(path, lab, monkeypatch):
    field = pencils.ones(pencils.Pencil((6, 5), lab.comm))
    pencils.save(path, {"u": field})
    before = lab.on_root(path.read_bytes)
    if lab.comm.rank == lab.comm.size - 1:
        monkeypatch.setattr(h5py.h5z, "filter_avail", lambda _: False)
    lab.refuses(ArgumentError, str(LZF), pencils.save, path, {"u": field}, compression=LZF)
    assert lab.on_root(path.read_bytes) == before
    monkeypatch.undo()
    pencils.save(path, {"u": field}, compression=LZF)
    assert lab.on_root(lambda: h5py.File(path)["u"].compression) == "lzf"


@pytest.mark.parametrize(
    "where",
    [
        *(
            ("create.Packer.pack", -1),
            ("create.Packer.unpack", -1),
            ("writers.HDF5Part._sizes", -1),
        ),
        *(("writers.HDF5Writer.place_chunks", 0), ("writers.HDF5Part._write", -1)),
    ],
)
@pytest.mark.parametrize("wait", [True, pytest.param(False, marks=ONE_PROCESS)])
def test_a_step_that_fails_on_one_rank(path, lab, monkeypatch, where, wait):
    (step, rank), field = where, pencils.ones(pencils.Pencil((60, 5), lab.comm))
    pencils.save(path, {"u": field})
    before = lab.on_root(path.read_bytes)

    if lab.comm.rank == rank % lab.comm.size:
        monkeypatch.setattr(f"pencils.io.{step}", failing(MemoryError("no memory for the filter")))
    options = {"compression": "gzip", "chunks": (2, 5), "wait": wait}
    save = lambda: pencils.save(path, {"u": field}, **options).wait()  # noqa: E731
    lab.refuses(MemoryError, "no memory for the filter", save)
    assert lab.on_root(path.read_bytes) == before
    assert lab.on_root(lambda: list(path.parent.iterdir())) == [path]


def test_chunked_fields_can_be_read_in_part_but_not_be_written(path, lab):
    array = lab.numbers((9, 8))
    field = spread(pencils.Pencil(array.shape, lab.comm), array)
    pencils.save(path, {"u": field}, compression="gzip", chunks=(4, 4))
    with pencils.open(path, "r+", lab.comm) as file:
        coarse = file["u"].read(pencils.Pencil((3, 4), lab.comm), np.s_[::3, ::2])
        assert lab.holds(coarse, array[::3, ::2])
        lab.refuses(CheckpointError, "compressed", file["u"].write, field)


def test_part_of_all_ranks(path, lab):
    comm = lab.comm.Split(lab.comm.rank % 2)
    array = numbered((7, 8))
    mine = path.with_name(f"{lab.comm.rank % 2}.h5")
    pencils.save(mine, {"u": spread(pencils.Pencil((7, 8), comm), array)}, compression="gzip")
    with h5py.File(mine) as file:
        right = np.array_equal(file["u"], array)
    assert lab.everywhere(right)
    lab.comm.barrier()
    comm.Free()


def test_in_the_background(path, lab):
    pencil = pencils.Pencil((9, 8), lab.comm)
    arrays = {name: lab.numbers((9, 8)) for name in ("a", "b", "whole")}
    fields = {name: spread(pencil, array) for name, array in arrays.items()}
    chunks = {"a": (4, 3), "b": (9, 8)}
    saving = pencils.save(path, fields, chunks=chunks, align=64, wait=False)
    for field in fields.values():
        field.fill(0.0)
    saving.wait()
    found = datasets(lab, path, "chunks")
    for name, array in arrays.items():
        assert np.array_equal(found[name][0], array)
        assert found[name][1] == chunks.get(name)
    assert lab.holds_all(pencils.load(path, pencil.with_(decomp=1)), arrays)
