"""Chunks through HDF5's filters in memory, and places for them in files, in one process."""

from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from pencils.errors import ArgumentError, CheckpointError
from pencils.io.create import Packer, check_filters, lay_out, place_chunks
from pencils.io.file_info import DatasetInfo
from pencils.io.objects import read_part
from pencils.pencil import Bounded

FILTERS = [{}, {"compression": "gzip", "shuffle": True}, {"fletcher32": True}, {"scaleoffset": 1}]


def entry(dtype="f8", chunks=(4, 3)):
    return DatasetInfo("g/u", (10, 7), np.dtype(dtype), components=0, chunks=chunks)


def contents(filters, **options):
    """Describe a file that holds one field."""
    given = {
        "values": {},
        "scales": {},
        "attrs": {},
        "dataset_attrs": {},
        "grid": None,
        "step_and_time": {},
        "align": 1,
        "summed": False,
    }
    return SimpleNamespace(
        entries=[entry()], fields=["g/u"], compression=filters, **(given | options)
    )


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_file_put_together_from_packed_chunks(tmp_path, filters):
    array = np.random.default_rng(1).normal(size=(10, 7))
    path = tmp_path / "a.h5"
    path.touch()
    lay_out(str(path), contents(filters, summed=True), Bounded())
    with Packer(entry(), filters) as packer:
        packed, seen = {}, np.empty_like(array)
        for i, j in np.ndindex(3, 3):
            part = np.s_[4 * i : 4 * i + 4, 3 * j : 3 * j + 3]
            packed[i, j] = packer.pack(array[part])
            rows, columns = array[part].shape
            seen[part] = packer.unpack()[:rows, :columns]
    table = np.array([(len(data), mask) for data, mask in packed.values()])
    places = place_chunks(str(path), entry(), table.T.reshape(2, 3, 3), align=1)
    with path.open("r+b") as file:
        for index, (data, _) in packed.items():
            file.seek(places[index])
            file.write(data)
    with h5py.File(path) as file:
        assert np.array_equal(file["g/u"], seen)
        assert file["g/u"].id.get_num_chunks() == 9
    if "scaleoffset" in filters:
        assert 0 < np.abs(seen - array).max() <= 0.1
    else:
        assert np.array_equal(seen, array)


def test_short_chunks_are_filled_up_with_zeros():
    with Packer(entry("i2"), {"compression": "lzf"}) as packer:
        packer.pack(np.full((4, 3), 7, "i2"))
        packer.pack(np.full((2, 1), 9, "i2"))
        assert packer.unpack().tolist() == [[9, 0, 0], [9, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_places_are_aligned(tmp_path):
    path = tmp_path / "a.h5"
    path.touch()
    lay_out(str(path), contents({}, align=256), Bounded())
    sizes = np.arange(220, 310, 10).reshape(3, 3)
    places = place_chunks(str(path), entry(), np.array([sizes, 0 * sizes]), align=256)
    assert ((places % 256 == 0) | (sizes < 256)).all()
    begins, ends = np.sort(places.ravel()), np.sort((places + sizes).ravel())
    assert (begins[1:] >= ends[:-1]).all()


@pytest.mark.parametrize(
    ("filters", "dtype", "kind"),
    [
        ({"compression": "nonsense"}, "f8", ArgumentError),
        ({"compression": "gzip", "compression_opts": 10}, "f8", ArgumentError),
        ({"compression": 31999}, "f8", ArgumentError),
        ({"scaleoffset": 3}, "c16", TypeError),
        ({"compression": "gzip"}, "M8[s]", TypeError),
    ],
)
def test_what_hdf5_cannot_do(filters, dtype, kind):
    with pytest.raises(kind, match="'g/u'"):
        check_filters([entry(dtype)], filters)
    check_filters([entry(dtype, chunks=())], filters)  # what has no chunks has no filters


SHAPE, CHUNKS = (10, 7), (4, 3)
# Pipelines of h5py, and where a chunk that is too short or too long comes from.
PIPELINES = {
    "gzip": {"compression": "gzip"},
    "several": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf"},
    "scale": {"scaleoffset": 3, "compression": "gzip"},
    "fletcher": {"fletcher32": True},
}
KEYS = [np.s_[...], np.s_[1:9:3, 2], np.s_[5], np.s_[3:3], np.s_[-1, 4:]]


def write_chunks(path, filters, dtype="f8", extents=CHUNKS, rows=SHAPE[0]):
    """Make a file with numbers in chunks."""
    numbers = np.random.default_rng(1).normal(scale=100, size=(rows, SHAPE[1])).astype(dtype)
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=numbers, chunks=extents, **filters)
    return numbers


@pytest.mark.parametrize("dtype", ["f8", ">c8", "i2", "?", [("a", "u1"), ("b", "f8")]])
@pytest.mark.parametrize("filters", PIPELINES.values(), ids=PIPELINES)
def test_parts_of_filtered_datasets(tmp_path, filters, dtype):
    path = tmp_path / "a.h5"
    try:
        write_chunks(path, filters, dtype)
    except TypeError:
        pytest.skip("HDF5 does not filter such elements so")
    with h5py.File(path) as file:
        for key in KEYS:
            found, expected = read_part(file["u"], key), file["u"][key]
            assert found.dtype == expected.dtype
            assert np.array_equal(found, expected)


def test_chunks_that_are_not_there_or_not_filtered(tmp_path):
    """Not written, left alone by a filter, or at the end of the dataset."""
    path, rng = tmp_path / "a.h5", np.random.default_rng(1)
    options = {"chunks": CHUNKS, "compression": "gzip", "shuffle": True, "fillvalue": 2.5}
    with h5py.File(path, "w") as file:
        file["committed"] = np.dtype("f8")
        file.create_dataset("none", SHAPE, float, **options)
        some = file.create_dataset("some", SHAPE, file["committed"], **options)
        some[:3] = rng.normal(size=(3, 7))
        numbers = rng.normal(size=CHUNKS)
        some.id.write_direct_chunk((4, 0), numbers.tobytes(), 3)
        some.id.write_direct_chunk((8, 3), numbers.tobytes(), 0)
    with h5py.File(path) as file:
        assert (read_part(file["none"], ...) == 2.5).all()
        found = read_part(file["some"], ...)
        assert np.array_equal(found[:8], file["some"][:8])
        assert np.array_equal(found[4:8, :3], numbers)
        assert np.array_equal(found[8:, 3:6], numbers[:2])


def packed(path, filters, extents):
    """Filter a chunk of other extents as those of a file."""
    write_chunks(path, filters, "i4", extents)
    with h5py.File(path) as file:
        return file["u"].id.read_direct_chunk((0, 0))


@pytest.mark.parametrize("extents", [(3, 3), (4, 2), (5, 3), (1, 1)])
@pytest.mark.parametrize("filters", PIPELINES.values(), ids=PIPELINES)
def test_a_chunk_of_another_size(tmp_path, filters, extents):
    path = tmp_path / "a.h5"
    if "scaleoffset" in filters:
        pytest.skip("parameters of the filter have the size")
    mask, data = packed(tmp_path / "b.h5", filters, extents)
    numbers = write_chunks(path, filters, "i4")
    with h5py.File(path, "r+") as file:
        file["u"].id.write_direct_chunk((4, 3), data, mask)
    with h5py.File(path) as file:
        assert np.array_equal(read_part(file["u"], np.s_[:4]), numbers[:4])
        with pytest.raises(CheckpointError, match=r"'u' has a chunk at \(4, 3\) that does not"):
            read_part(file["u"], np.s_[:, 5])


def test_forged_parameters(tmp_path):
    """As of a scaleoffset that returns fewer elements: HDF5 itself computes them by the chunk."""
    path = tmp_path / "a.h5"
    write_chunks(path, {"scaleoffset": 3}, "i4")
    with h5py.File(path) as file:
        values = file["u"].id.get_create_plist().get_filter(0)[2]
    # Some versions of HDF5 write whatever was in memory as the last values.
    old, new = (np.array((*values[:2], n, *values[3:8]), "<u4").tobytes() for n in (12, 3))
    whole = path.read_bytes()
    assert whole.count(old) == 1
    path.write_bytes(whole.replace(old, new))
    with h5py.File(path) as file, pytest.raises(CheckpointError, match="'u' has a filter that"):
        read_part(file["u"], ...)
