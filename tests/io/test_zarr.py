"""Zarr folders: zarr-python, xarray, dask and tensorstore are the judges, on any pencil."""

import errno
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from damage import FULL_DISK, failing
from mpi4py import MPI
from mpi_helpers import everywhere, numbered, random_pencil, same, spread

import pencils
from pencils.errors import ArgumentError, CheckpointError, MissingLibraryError
from pencils.io import commit, zarr_read, zarr_write

zarr = pytest.importorskip("zarr")
xarray = pytest.importorskip("xarray")

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

ONE_PROCESS = pytest.mark.mpiexec("patches what threads of one process call")
# Shape, chunks, shards, type, compression: chunks fit neither blocks nor shapes.
CASES = [
    ((11,), (3,), None, "f8", None),
    ((9, 7), (4, 2), (8, 4), "f4", "zstd"),
    ((1, 13), (1, 20), None, "i2", "gzip"),
    ((7, 5, 8), (3, 5, 2), (6, 5, 2), "c16", 3),
    ((6, 5), None, None, "?", {"compression": "blosc", "compression_opts": 2}),
    ((6, 5), None, (3, 5), "f2", zarr.codecs.ZstdCodec(level=2)),
    ((5, 3, 4, 6), (2, 2, 3, 4), None, "u8", None),
]


@pytest.fixture
def path(mpi_tmp_path):
    return mpi_tmp_path / "a.zarr"


def names(folder):
    return sorted(one.name for one in folder.iterdir())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_other_readers_and_other_ranks(path, comm, lab, case):
    shape, chunks, shards, dtype, compression = case
    rng = np.random.default_rng(3)
    for lead in ((), (2,)):
        data = lab.numbers((*lead, *shape), dtype)
        u = spread(random_pencil(rng, comm, shape), data)
        pencils.save(path, {"u": u}, chunks=chunks, shards=shards, compression=compression)
        array = lab.on_root(lambda: zarr.open_array(path / "u", mode="r")[...])
        assert same(array, data)
        made = lab.on_root(zarr.open_array, path / "u")
        kept = made.chunks, made.shards
        ones = (1,) * len(lead)
        assert chunks is None or kept[0] == (*ones, *chunks)
        assert kept[1] == (shards and (*ones, *shards))
        other = random_pencil(rng, comm, shape)
        assert lab.holds(pencils.load(path, other)["u"], data)
        assert pencils.verify(path) == ["u"]
        alone = pencils.Pencil(shape, MPI.COMM_SELF)
        assert everywhere(comm, same(pencils.load(path, alone)["u"].local, data))


LEVEL = {"name": "zstd", "configuration": {"level": 9, "checksum": True}}


@pytest.mark.parametrize("dtype", ["f4", "i2", "?", "c16"])
@pytest.mark.parametrize("codecs", [(True, None), (False, None), (True, "zstd"), (False, LEVEL)])
def test_objects_are_those_of_zarr_python(path, comm, lab, dtype, codecs):
    """Chunks, edges included, of one save and of a series."""
    (checksums, compression), shape, copy = codecs, (7, 5), path.with_name("copy.zarr")
    data = lab.numbers((2, *shape), dtype)
    u = spread(random_pencil(np.random.default_rng(8), comm, shape), data)

    def written_again():
        shutil.copytree(path, copy)
        for one in (copy / "u/c").rglob("*"):
            one.unlink() if one.is_file() else None
        made = zarr.open_array(path / "u", mode="r")
        with zarr.config.set({"array.write_empty_chunks": True}):
            zarr.open_array(copy / "u", mode="r+")[...] = made[...]
        found = [
            {one.relative_to(top): one.read_bytes() for one in top.rglob("*") if one.is_file()}
            for top in (path, copy)
        ]
        shutil.rmtree(path)
        shutil.rmtree(copy)
        return found[0] == found[1]

    pencils.save(path, {"u": u}, chunks=(3, 2), checksum=checksums, compression=compression)
    assert lab.on_root(written_again)
    if checksums and not compression:
        with pencils.TimeSeries(path, "w", comm=comm) as series:
            for time in (1.0, 2.0):
                series.append(time, {"u": u})
        assert lab.on_root(written_again)


@ONE_PROCESS
def test_each_object_has_one_writer(path, comm, monkeypatch):
    mine = []
    monkeypatch.setattr(zarr_write.WrittenObjects, "note", lambda _, key: mine.append(key))
    u = spread(random_pencil(np.random.default_rng(5), comm, (9, 8)), numbered((9, 8)))
    pencils.save(path, {"u": u}, chunks=(2, 3))
    found = [key for keys in comm.allgather(mine) for key in keys if key.startswith("u/c")]
    assert sorted(found) == sorted(set(found))
    assert len(found) == 15


def test_all_that_hdf5_has(path, comm, lab):
    pencil = pencils.Pencil((6, 5), comm, periodic=(True, False))
    grid = pencils.localgrid(pencil, [np.linspace(0, 1, 6), np.arange(5.0)])
    u, v = pencils.ones(pencil, halo=1), pencils.full(pencil, 2.0, components=3)
    u.fill_boundary("edge")
    fields = {"u": u, "fluid/v": v, "line": pencils.ones(pencil, dims=1)}
    fields |= {"none": pencils.zeros(pencil, components=0), "n": 3, "name": "häh", "ok": True}
    fields |= {"rng": np.random.default_rng(1), "list": np.arange(3, dtype="i2"), "z": 1 + 2j}
    # Of which zarr would store no chunk, and which have none.
    fields |= {"zero": 0, "no": False, "empty": "", "zeros": np.zeros(2), "nothing": np.zeros(0)}
    attrs = {
        "a": np.float32(2),
        "b": [1, 2],
        "c": "x",
        "u": {"units": "m s-1"},
        "x": {"units": "m"},
    }
    found = []
    for name in (path, path.with_name("a.h5")):
        pencils.save(name, fields, grid=grid, attrs=attrs, step=4, time=0.5, halo=True)
        state = pencils.load(name, pencil, halo=1)
        found.append(state)
        assert pencils.verify(name) == pencils.verify(path)
        with pencils.open(name) as file:
            part = file["u"].read(pencils.Pencil((3,), comm), (slice(None, None, 2), 3))
            assert part.sum() == 3
    ours, theirs = found
    assert repr(ours) == repr(theirs).replace("a.h5", "a.zarr")
    assert {k: type(one) for k, one in ours.items()} == {k: type(one) for k, one in theirs.items()}
    same_fields = (
        np.array_equal(ours[k].padded, theirs[k].padded) for k in ("u", "fluid/v", "line")
    )
    assert everywhere(comm, all(same_fields))
    assert (ours["name"], ours["z"], ours.step, ours.time) == ("häh", 1 + 2j, 4, 0.5)
    assert ours["rng"].random() == theirs["rng"].random()

    def look():
        with xarray.open_zarr(path) as data:
            assert data["u"].dims == ("x", "y_7")
            assert data["line"].dims == ("x_1", "y")
            assert (data["u"].units, data["x"].units, data.Conventions) == ("m s-1", "m", "CF-1.11")
            assert np.array_equal(data["x"], np.linspace(0, 1, 6))
            assert float(data["u"].sum()) == 42
        assert sorted(zarr.open_group(path)) == sorted({*fields, "x", "y", "fluid"} - {"fluid/v"})

    lab.on_root(look)


def test_lazy_readers(path, comm, lab):
    dask, tensorstore = pytest.importorskip("dask.array"), pytest.importorskip("tensorstore")
    data = numbered((8, 6))
    pencils.save(
        path, {"u": spread(pencils.Pencil((8, 6), comm), data)}, chunks=(2, 3), shards=(4, 6)
    )

    def look():
        store = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path / "u")}}
        assert np.array_equal(tensorstore.open(store).result().read().result(), data)
        lazy = dask.from_zarr(path / "u")
        assert np.array_equal(lazy.compute(scheduler="synchronous"), data)

    lab.on_root(look)


def test_chunks_are_joined_to_shards_where_there_would_be_too_many():
    from pencils.io.contents import sharded
    from pencils.io.file_info import DatasetInfo

    for shape in ((10_000, 10_000, 10_000), (3, 10**13), (40, 40)):
        entry = DatasetInfo("u", shape, np.dtype(float), components=0)
        made = sharded(entry, (), (), 8192)
        counts = [-(-n // unit) for n, unit in zip(shape, made.chunks, strict=True)]
        assert np.prod(counts, dtype=object) <= 8192
        assert 2**20 <= np.prod(made.inner or made.chunks) * 8 <= 2**24 or shape == (40, 40)
        assert all(
            unit % extent == 0
            for unit, extent in zip(made.chunks, made.inner or made.chunks, strict=True)
        )


DAMAGE = {
    "a chunk": ("u/c/1/0", 11, "'u' cannot be read at c/1/0"),
    "a value": ("n/c", 2, "'n' cannot be read"),
    "no chunk": ("u/c/0/1", None, "'u' cannot be read at c/0/1"),
    "the root": ("zarr.json", 400, ""),
    "metadata": ("u/zarr.json", 40, ""),
    "metadata of a group": ("g/zarr.json", 40, ""),
}


@pytest.mark.parametrize("case", DAMAGE)
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_damage_is_found_and_named(path, comm, lab, case, compression):
    key, byte, text = DAMAGE[case]
    u = spread(pencils.Pencil((8, 6), comm), numbered((8, 6)))
    pencils.save(path, {"u": u, "n": 7, "g/n": 7}, chunks=(4, 3), compression=compression)

    def damage():
        data = bytearray((path / key).read_bytes())
        if byte is None:
            (path / key).unlink()
        else:
            data[byte] ^= 4
            (path / key).write_bytes(data)

    lab.on_root(damage)
    lab.refuses(CheckpointError, text, pencils.verify, path)
    if not case.startswith("metadata"):  # which are in the root, too
        lab.refuses(CheckpointError, text, pencils.load, path, u.pencil)


@ONE_PROCESS
@pytest.mark.parametrize(
    "case",
    [
        ("os.pwritev", -1, False),
        ("os.pwritev", -1, True),
        ("os.fsync", -1, False),
        ("pencils.io.zarr_write.ZarrWriter._note_made", 0, False),
    ],
)
def test_one_rank_that_cannot_write(path, comm, lab, monkeypatch, case):
    what, rank, background = case
    u = spread(pencils.Pencil((8, 6), comm), numbered((8, 6)))
    pencils.save(path, {"u": u}, chunks=(1, 6))
    with monkeypatch.context() as patch:
        if comm.rank == rank % comm.size:
            patch.setattr(what, failing(FULL_DISK))

        def save():
            saving = pencils.save(path, {"u": 2 * u}, chunks=(1, 6), wait=not background)
            if background:
                saving.wait()

        kind, text = lab.raised(save)
    assert kind is OSError
    assert os.strerror(errno.ENOSPC) in text
    assert lab.on_root(names, path.parent) == ["a.zarr"]
    assert pencils.load(path, u.pencil)["u"].sum() == u.sum()


def test_a_folder_takes_its_name_when_it_is_whole(path, comm, lab, monkeypatch):
    u = pencils.ones(pencils.Pencil((8, 6), comm))
    pencils.save(path, {"u": u})
    pencils.save(path, {"v": u})  # replaces all
    assert pencils.verify(path) == ["v"]
    exchange = commit._exchange

    def exchange_then_fail(*names):
        done = exchange(*names)
        monkeypatch.setattr(Path, "rglob", failing(FULL_DISK))
        return done

    with monkeypatch.context() as patch:  # the disk fails after the new folder has the name
        patch.setattr(commit, "_exchange", exchange_then_fail)
        pencils.save(path, {"v": 2 * u})
    monkeypatch.undo()
    assert pencils.load(path, u.pencil)["v"].max() == 2
    monkeypatch.setattr(commit, "_exchange", lambda *_: False)  # as on other systems
    pencils.save(path, {"w": u})
    assert pencils.verify(path) == ["w"]
    assert lab.on_root(names, path.parent) == ["a.zarr"]
    # A process was killed between both renames.
    lab.on_root(lambda: path.rename(commit._aside(path)))
    assert pencils.verify(path) == ["w"]
    pencils.save(path, {"x": u})
    assert lab.on_root(names, path.parent) == ["a.zarr"]
    # Or before it removed the old one.
    lab.on_root(lambda: (commit._aside(path).mkdir(), (commit._aside(path) / "u").touch()))
    pencils.save(path, {"y": u})
    assert pencils.verify(path) == ["y"]
    assert lab.on_root(names, path.parent) == ["a.zarr"]


def test_a_long_name(path, comm):
    u = pencils.ones(pencils.Pencil((8, 6), comm))
    long = path.with_name("n" * 250 + ".zarr")
    for value in (1.0, 2.0):
        pencils.save(long, {"u": value * u})
        assert pencils.load(long, u.pencil)["u"].max() == value


def test_what_is_refused(path, comm, lab):
    u = pencils.ones(pencils.Pencil((8, 6), comm))
    h5, other = path.with_name("a.h5"), path.with_name("other.zarr")
    lab.on_root(lambda: (other.mkdir(), (other / "thesis").touch()))
    refused = [
        (ArgumentError, "shards are for Zarr", h5, {"shards": (2, 2)}),
        (ArgumentError, "align is for HDF5", path, {"align": 4096}),
        (
            ArgumentError,
            "do not consist of whole chunks",
            path,
            {"chunks": (2, 2), "shards": (3, 2)},
        ),
        (ArgumentError, "dimensions", path, {"chunks": (2,)}),
        (ArgumentError, "shards has an entry for 'w'", path, {"shards": {"w": (2, 2)}}),
        (ArgumentError, "is not for Zarr", path, {"compression": "lzf"}),
        (ArgumentError, "is not for Zarr", path, {"compression": np.ones(2)}),
        (TypeError, "cannot be stored", path, {"attrs": {"u": {"a": object}}}),
        (ArgumentError, "cannot be stored with", path, {"compression": {"name": "no such"}}),
        (IsADirectoryError, "is not a Zarr folder", other, {}),
        (ArgumentError, "end it with '.zarr'", "memory://run.h5", {}),
        (ArgumentError, "names no store", "nowhere://run.zarr", {}),
    ]
    for kind, text, name, options in refused:
        lab.refuses(kind, text, pencils.save, name, {"u": u}, **options)
    for name in ("a\\b", "g/zarr.json"):
        for value in (u, 2, "text"):
            lab.refuses(
                ArgumentError, "a name in a Zarr", pencils.save, path, {name: value, "u": u}
            )
    for dtype in (">f8", "f8,i2", "S3", "g"):
        field = pencils.zeros(u.pencil, dtype=dtype)
        lab.refuses(TypeError, "which Zarr cannot store", pencils.save, path, {"u": field})
    assert not lab.on_root(path.exists)
    lab.refuses(FileNotFoundError, "No such file", pencils.load, path)
    lab.refuses(CheckpointError, "no Zarr folder", pencils.load, other)
    file = path.with_name("file.zarr")
    lab.on_root(file.touch)
    lab.refuses(CheckpointError, "is a file", pencils.load, file)
    pencils.save(path, {"u": u})
    lab.refuses(CheckpointError, "no array named 'w'", pencils.load, path, u.pencil, "w")

    def edit(**attrs):
        root = json.loads((path / "zarr.json").read_text())
        root["attributes"] |= attrs
        (path / "zarr.json").write_text(json.dumps(root))

    lab.on_root(lambda: edit(title="flow"))
    lab.refuses(CheckpointError, "another program changed it", pencils.load, path, u.pencil)
    assert pencils.load(path, u.pencil, edited=True).attrs == {"title": "flow"}
    lab.on_root(lambda: edit(pencils_complete=0))
    lab.refuses(CheckpointError, "its writer died", pencils.load, path, u.pencil)


def test_folders_of_other_programs(path, comm, lab):
    def write(number):
        group = zarr.open_group(path.with_name(f"{number}.zarr"), mode="w", zarr_format=number)
        group.create_array("u", shape=(8, 6), dtype="f8", chunks=(3, 4))[...] = numbered((8, 6))
        group.attrs["title"] = "flow"

    for number in (2, 3):
        lab.on_root(write, number)
        state = pencils.load(path.with_name(f"{number}.zarr"), pencils.Pencil((8, 6), comm))
        assert lab.holds(state["u"], numbered((8, 6)))
        assert state.attrs == {"title": "flow"}


def test_stores_without_rename(path, comm, lab, monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    lab.refuses(MissingLibraryError, "pip install s3fs", pencils.load, "s3://box/a.zarr")
    lab.refuses(FileNotFoundError, "No such file", pencils.load, f"file://{path}")
    lab.refuses(ArgumentError, "without locks", pencils.open, f"file://{path}", "r+")
    u = spread(pencils.Pencil((8, 6), comm), numbered((8, 6)))
    shared = MPI.COMM_WORLD.size == 1  # one process
    for url in (f"file://{path}", *["memory://box/a.zarr"] * shared):
        for _ in range(2):
            pencils.save(url, {"u": u, "n": 2}, chunks=(3, 2))
            assert lab.holds(pencils.load(url, u.pencil.with_(decomp=1))["u"], numbered((8, 6)))
            assert pencils.verify(url) == ["n", "u"]
            lab.refuses(FileExistsError, "something already", pencils.save, url, {"u": u})

            def abandon(url=url):
                store = zarr_read.store_at(url, write=True)
                zarr.open_group(store, mode="r+").attrs["pencils_complete"] = 0

            lab.on_root(abandon)
            lab.refuses(CheckpointError, "its writer died", pencils.load, url, u.pencil)
    if not shared and comm.size > 1:
        for chunks in ((3, 2), (8, 6)):  # on one rank or all
            at = f"memory://box/{chunks[0]}.zarr"
            lab.refuses(FileNotFoundError, "not seen", pencils.save, at, {"u": u}, chunks=chunks)


# Of u with two components: whole chunks, parts of them, steps that pass over chunks, one by one.
PARTS = [
    np.s_[...],
    np.s_[:, 2],
    np.s_[..., ::2],
    np.s_[:, ::3, 1::2, 4],
    np.s_[1, 5:1:-2],
    np.s_[:, ::-1, ::-1, ::-4],
    np.s_[1:, 2:6, 1:5, 1:2],
    np.s_[0, 0, 0],
    np.s_[:, 3:3],
]


@pytest.mark.parametrize("options", [{}, {"shards": (4, 4, 3), "compression": "zstd"}], ids=str)
def test_parts_are_written_in_place(path, comm, lab, options):
    shape, chunks = (7, 6, 5), (2, 4, 3)
    data = lab.numbers((2, *shape))
    first = data.copy()
    u = spread(pencils.Pencil(shape, comm), first)
    pencils.save(path, {"u": u, "n": 3}, chunks=chunks, **options)
    for seed, key in enumerate(PARTS):
        part = data[key]
        data[key] = np.random.default_rng(seed).normal(size=part.shape)
        ndim = 1 + seed % min(part.ndim, 3)
        for pencil in lab.some_pencils(part.shape[part.ndim - ndim :], 1, seed=seed):
            with pencils.open(path, "r+") as file:
                file["u"].write(pencils.partition(pencil, data[key] + ndim), key)
                with pytest.raises(BlockingIOError):
                    pencils.save(path, {"u": u})
        data[key] += ndim
        assert pencils.verify(path) == ["n", "u"]
        assert same(lab.on_root(lambda: zarr.open_array(path / "u", mode="r")[...]), data)
    with pencils.open(path, "r+") as file:
        file["u"].write(u[0], 0)
        file["u"].write(2 * u[0], 0)
        lab.refuses(CheckpointError, "checksum of 'u'", pencils.verify, path)
        assert lab.holds(file["u"].read(u.pencil, 0), 2 * first[0])
    assert pencils.verify(path) == ["n", "u"]
    left = lab.on_root(lambda: [*path.rglob("*.new"), *path.rglob("*.partial")])
    assert not left


def test_a_part_that_cannot_be_written(path, comm, lab, monkeypatch):
    u = spread(pencils.Pencil((8, 6), comm), numbered((8, 6)))
    pencils.save(path, {"u": u, "v": u}, chunks=(2, 3))
    file = pencils.open(path, "r+")
    with monkeypatch.context() as patch:
        comm.barrier()
        patch.setattr(zarr_read, "sync", failing(FULL_DISK))
        lab.refuses(OSError, "No space left", file["u"].write, 2 * u)
        comm.barrier()
    lab.refuses(OSError, "No space left", file["v"].write, u)
    file.close()  # no object has been replaced
    assert lab.holds(pencils.load(path, u.pencil)["u"], numbered((8, 6)))
    lab.on_root((path / "v/c/0/0").unlink)
    with pencils.open(path, "r+") as file:
        lab.refuses(CheckpointError, "cannot be read at c/0/0", file["v"].write, u[:1], np.s_[:1])
    with pencils.TimeSeries(path, "w", comm=comm) as series:
        series.append(0.0, {"u": u})
    lab.refuses(CheckpointError, "is a series", pencils.open, path, "r+")
    # In folders of other programs there are no checksums, and chunks that are not there are zero.
    lab.on_root(shutil.rmtree, path)
    options = {"shape": (8, 6), "chunks": (3, 4), "dtype": "f8"}
    lab.on_root(lambda: zarr.open_group(path, mode="a").create_array("u", **options) and None)
    with pencils.open(path, "r+") as file:
        file["u"].write(u[::2], np.s_[::2])
    assert pencils.load(path, u.pencil)["u"].sum() == u[::2].sum()
