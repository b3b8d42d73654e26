"""Files of other tools load, by raw bytes where that is right and by HDF5 where it is not."""

import zlib

import h5py
import numpy as np
import pytest
from damage import failing

import pencils
from pencils.comm.file import SharedFile
from pencils.errors import CheckpointError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

PLAIN = {
    "contiguous": ({}, "f8"),
    "big-endian": ({}, ">f8"),
    "complex": ({}, "c8"),
    "bool": ({}, "?"),
}
STORAGE = {
    "chunked": ({"chunks": (2, 3, 2)}, "f8"),
    "gzip": ({"chunks": (3, 2, 5), "compression": "gzip", "shuffle": True}, "i4"),
    "growing": ({"maxshape": (None, None, None)}, "f4"),
    "big-endian-gzip": ({"compression": "gzip"}, ">c16"),
}


@pytest.fixture
def write(mpi_tmp_path, lab):
    """Let rank 0 write a file with h5py: ``write(function of the open file)``."""

    def call(function, name="foreign.h5", **options):
        def run():
            with h5py.File(mpi_tmp_path / name, "w", **options) as file:
                function(file)

        lab.on_root(run)
        return mpi_tmp_path / name

    return call


@pytest.mark.parametrize("case", [*PLAIN, *STORAGE])
def test_any_storage(write, monkeypatch, case, lab):
    options, dtype = {**PLAIN, **STORAGE}[case]
    array = lab.numbers((2, 7, 4, 6), dtype) if case in PLAIN else lab.numbers((7, 4, 6), dtype)
    path = write(lambda file: file.create_dataset("a/u", data=array, **options))
    raw = []
    read = SharedFile.read
    monkeypatch.setattr(
        SharedFile, "read", lambda self, *args: (raw.append(args), read(self, *args))[0]
    )
    for pencil in lab.some_pencils((7, 4, 6), 4, seed=1):
        loaded = pencils.load(path, pencil, "a/u", halo=1)
        assert lab.holds(loaded["a/u"], array)
        assert loaded.attrs == {}
    assert any(lab.comm.allgather(bool(raw))) == (case in PLAIN)


def test_user_block_and_alignment(write, lab):
    array = lab.numbers((7, 4))
    path = write(
        lambda file: file.create_dataset("u", data=array),
        userblock_size=4096,
        libver="latest",
        alignment_threshold=1,
        alignment_interval=4096,
    )
    for pencil in lab.some_pencils((7, 4), 3):
        assert lab.holds(pencils.load(path, pencil)["u"], array)


def test_data_that_lie_in_other_files(write, lab):
    array = lab.numbers((8, 4))
    source = write(lambda file: file.create_dataset("u", data=array), "source.h5")

    def link(file):
        file["link"] = h5py.ExternalLink("source.h5", "u")
        layout = h5py.VirtualLayout((8, 4), array.dtype)
        layout[...] = h5py.VirtualSource(source, "u", (8, 4))
        file.create_virtual_dataset("virtual", layout)
        place = [(str(source.parent / "raw.bin"), 0, array.nbytes)]
        file.create_dataset("external", (8, 4), array.dtype, external=place)[...] = array
        file["soft"] = h5py.SoftLink("/virtual")

    path = write(link)
    names = ["link", "virtual", "external", "soft"]
    for pencil in lab.some_pencils((8, 4), 2):
        loaded = pencils.load(path, pencil, names, external=True)
        assert list(loaded) == names
        assert all([lab.holds(field, array) for field in loaded.values()])  # noqa: C419 - collective


def test_data_never_written(write, comm):
    path = write(lambda file: file.create_dataset("u", (4, 3), "f8", fillvalue=2.5))
    assert pencils.load(path, pencils.Pencil((4, 3), comm))["u"].sum() == 30


def test_types_that_memory_has_otherwise(write, comm):
    """Integers of 24 bits and an enum: only HDF5 can convert the former."""

    def make(file):
        kind = h5py.h5t.NATIVE_INT32.copy()
        kind.set_precision(24)
        space = h5py.h5s.create_simple((4, 3))
        odd = h5py.Dataset(h5py.h5d.create(file.id, b"odd", kind, space))
        odd[...] = np.arange(12).reshape(4, 3)
        names = h5py.enum_dtype({"air": 0, "water": 1}, basetype="u1")
        file.create_dataset("enum", data=np.ones((4, 3), "u1"), dtype=names)

    loaded = pencils.load(write(make), pencils.Pencil((4, 3), comm, decomp=1))
    assert loaded["odd"].sum() == 66
    assert loaded["enum"].dtype == np.uint8
    assert loaded["enum"].sum() == 12


def test_attributes_of_every_kind(write, comm):
    def make(file):
        file.create_dataset("u", data=np.ones((4, 3)))
        file.attrs.update({"scalar": 1.5, "text": "ä", "bytes": np.bytes_("b"), "list": [1, 2]})
        file.attrs["reference"] = file["u"].ref
        file.attrs["region"] = file["u"].regionref[:2]
        file.attrs.create("references", [file["u"].ref], dtype=h5py.ref_dtype)
        pair = np.zeros(1, [("x", "f8"), ("to", h5py.ref_dtype)])
        pair["to"][0] = file["u"].ref
        file.attrs["pair"] = pair

    attrs = pencils.load(write(make), pencils.Pencil((4, 3), comm)).attrs
    assert sorted(attrs) == ["bytes", "list", "scalar", "text"]
    assert attrs["text"] == "ä"


def test_extent_one_becomes_a_singleton(write, comm, lab):
    array = lab.numbers((2, 4, 1, 3))
    path = write(lambda file: file.create_dataset("u", data=array, chunks=(1, 2, 1, 2)))
    loaded = pencils.load(path, pencils.Pencil((4, 5, 3), comm), halo=1)["u"]
    assert loaded.singletons == {1}
    assert loaded.halo == ((1, 1), (0, 0), (1, 1))
    assert lab.holds(loaded, array)


def test_what_no_field_can_hold(write, comm, lab):
    def make(file):
        file["words"] = ["a", "b"]
        file["rows"] = np.zeros(2, np.dtype(("f8", (3,)))).view()
        file.create_dataset("arrays", (2,), np.dtype(("f8", (3,))))
        file["empty"] = h5py.Empty("f8")
        file.create_group("group")

    path, pencil = write(make), pencils.Pencil((2,), comm)
    for name, text in {
        "words": "elements that no field can hold",
        "arrays": "elements that no field can hold",
        "empty": "neither shape nor points",
        "group": "a group, not a dataset",
        "rows": "must have extent 2",
    }.items():
        lab.refuses(CheckpointError, [text, name], pencils.load, path, pencil, name)


def test_a_file_that_one_rank_cannot_read(comm, write, monkeypatch, lab):
    shape = (max(12, comm.size), 3)
    path = write(lambda file: file.create_dataset("u", data=np.ones(shape), chunks=True))
    pencil = pencils.Pencil(shape, comm, decomp=0)
    if comm.rank == comm.size - 1:
        monkeypatch.setattr("pencils.io.hdf5.read_box", failing(OSError("stale file handle")))
    lab.refuses(OSError, "stale file handle", pencils.load, path, pencil)


def test_fields_are_told_from_what_stands_beside_them(comm, path, lab):
    pencil = pencils.Pencil((4, 3), comm)
    pencils.save(path, {"u": pencils.ones(pencil)})
    lab.look(path, lambda file: file.update({"x": np.arange(4)}), "r+")
    assert list(pencils.load(path, pencil, edited=True)) == ["u"]


@pytest.mark.parametrize("locking", [None, False])
def test_a_file_that_this_process_has_open(write, comm, locking):
    path = write(lambda file: file.create_dataset("u", data=np.ones((4, 3))))
    with h5py.File(path, locking=locking):
        assert list(pencils.load(path, pencils.Pencil((4, 3), comm))) == ["u"]
        comm.barrier()


def test_a_chunk_that_unpacks_to_fewer_bytes(write, comm, lab):
    """The rest of its points was whatever is in memory."""
    array = lab.numbers((8, 6))

    def make(file):
        file["v"] = array
        made = file.create_dataset("g/u", data=array, chunks=(4, 3), compression="gzip")
        made.id.write_direct_chunk((4, 0), zlib.compress(array[4:7, :3].tobytes()))

    path, pencil = write(make), pencils.Pencil((8, 6), comm)
    with pencils.open(path, comm=comm) as file:
        assert lab.holds(file["g/u"].read(pencils.Pencil((4, 6), comm), slice(4)), array[:4])
        for call in (
            lambda: pencils.load(path, pencil),
            lambda: pencils.load(path, pencil.with_(decomp=1), "g/u"),
            lambda: file["g/u"].read(pencils.Pencil((6,), comm), 7),
        ):
            lab.refuses(
                CheckpointError,
                f"{path} is damaged: 'g/u' has a chunk at (4, 0) that does not unpack",
                call,
            )
    assert lab.holds(pencils.load(path, pencil, "v")["v"], array)


def test_many_groups(write, comm, lab):
    """One in the other; and objects with several names, which are listed by the first."""
    array = lab.numbers((4, 3))

    def make(file):
        file["b/u"] = file["z"] = array
        file["a/again"] = file["b"]
        file["a/root"] = file["/"]
        file["soft"] = h5py.SoftLink("/z")
        for number in range(20):
            file[f"twice{number + 1}/left"] = file.require_group(f"twice{number}")
            file[f"twice{number + 1}/right"] = file[f"twice{number}"]
        file["/".join("g" * 99 + "w")] = array

    pencil, deep = pencils.Pencil((4, 3), comm), "/".join("g" * 99 + "w")
    loaded = pencils.load(write(make), pencil)
    assert list(loaded) == ["a/again/u", deep, "z"]
    assert all([lab.holds(field, array) for field in loaded.values()])  # noqa: C419 - collective


def test_groups_without_end(write, comm, lab):
    def make(file):
        file["u"] = np.ones((4, 3))
        group = file
        for _ in range(3000):
            group = group.create_group("g")

    path, pencil = write(make), pencils.Pencil((4, 3), comm)
    for call in (
        lambda: pencils.load(path, pencil),
        lambda: pencils.load(path, pencil, "none"),
        lambda: pencils.verify(path, comm),
        lambda: pencils.open(path, comm=comm),
    ):
        lab.refuses(CheckpointError, ["nested more than 100 deep", str(path)], call)
    assert pencils.load(path, pencil, "u")["u"].sum() == 12


def test_names_in_an_order_of_each_rank(write, comm):
    def make(file):
        for name in "uvw":
            file[name] = np.ones((4, 3))

    path, pencil = write(make), pencils.Pencil((4, 3), comm)
    other = pencils.Pencil((4, 3), comm, decomp=1)
    assert list(pencils.load(path, pencil, {"w", "u", "v"})) == ["u", "v", "w"]
    places = [("u", pencil), ("v", other), ("w", pencil)]
    turned = dict(places if comm.rank % 2 else reversed(places))
    assert list(pencils.load(path, turned)) == ["u", "v", "w"]
    into = {name: pencils.zeros(place) for name, place in turned.items()}
    assert list(pencils.load(path, into=into)) == ["u", "v", "w"]
