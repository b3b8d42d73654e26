"""Chunks through HDF5's filters in memory, and places for them in files, in one process."""

from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from pencils.errors import ArgumentError
from pencils.io.chunked import Packer, check_filters
from pencils.io.create import lay_out, place_chunks
from pencils.io.file_info import DatasetInfo

FILTERS = [{}, {"compression": "gzip", "shuffle": True}, {"fletcher32": True}, {"scaleoffset": 1}]


def entry(dtype="f8", chunks=(4, 3)):
    return DatasetInfo("g/u", (10, 7), np.dtype(dtype), components=0, chunks=chunks)


def contents(filters, **options):
    """Describe a file that holds one field."""
    chunking = SimpleNamespace(compression=filters)
    given = {
        "values": {},
        "scales": {},
        "attrs": {},
        "notes": {},
        "grid": None,
        "run": {},
        "align": 1,
        "summed": False,
    }
    return SimpleNamespace(
        entries=[entry()], fields=["g/u"], chunking=chunking, **(given | options)
    )


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_file_put_together_from_packed_chunks(tmp_path, filters):
    array = np.random.default_rng(1).normal(size=(10, 7))
    path = tmp_path / "a.h5"
    path.touch()
    lay_out(str(path), contents(filters, summed=True))
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
    lay_out(str(path), contents({}, align=256))
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
