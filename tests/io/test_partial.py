"""Parts of stored fields, read and written where they lie, as NumPy indexes them."""

import h5py
import numpy as np
import pytest

import pencils
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)
KEYS = [
    np.s_[...],
    np.s_[:, 2],
    np.s_[..., ::2],
    np.s_[:, ::3, 1::2, 4],
    np.s_[1, 5:1:-2],
    np.s_[0, 3:4],
    np.s_[:, ::-1, ::-1, ::-1],
    np.s_[1:, 2:6, 1:5, 1:2],
    np.s_[0, 0, 0],
    np.s_[:, 3:3],
]


@pytest.fixture
def stored(comm, mpi_tmp_path, lab):
    """Save a field of two components; the file and the global array."""
    array = lab.numbers((2, *SHAPE))
    path = mpi_tmp_path / "a.h5"
    pencil = pencils.Pencil(SHAPE, comm)
    fields = {"u": pencils.partition(pencil, array), "v": pencils.ones(pencil, dtype="f4")}
    pencils.save(path, fields, step=3, time=0.5, attrs={"run": "a"})
    return path, array


def test_what_an_open_file_says(stored):
    path, _ = stored
    with pencils.open(path) as file:
        assert list(file) == ["u", "v"]
        assert (file["u"].shape, file["v"].dtype) == ((2, *SHAPE), np.float32)
        assert (file.step, file.time, file.attrs) == (3, 0.5, {"run": "a"})
        assert repr(file) == f"<OpenFile {path}\n  u: (2, 7, 6, 5) float64\n  v: (7, 6, 5) float32>"
        with pytest.raises(KeyError, match="no field 'w'; it has u, v"):
            file["w"]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_reading_a_selection(stored, key, lab):
    path, array = stored
    wanted = array[key]
    with pencils.open(path) as file:
        for ndim in range(1, min(wanted.ndim, 3) + 1):
            shape = wanted.shape[wanted.ndim - ndim :]
            for pencil in lab.some_pencils(shape, 2, seed=ndim):
                found = file["u"].read(pencil, key, halo=1)
                assert lab.holds(found, wanted)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_writing_a_selection(stored, key, lab):
    path, array = stored
    seed = 0
    for ndim in range(1, min(array[key].ndim, 3) + 1):
        for pencil in lab.some_pencils(array[key].shape[array[key].ndim - ndim :], 2, seed=ndim):
            seed += 1
            new = np.random.default_rng(seed).normal(size=array[key].shape)
            array[key] = new
            with pencils.open(path, "r+") as file:
                file["u"].write(pencils.partition(pencil, new), key)
            assert np.array_equal(lab.stored(path)["u"], array)
            assert pencils.verify(path) == ["u", "v"]


def test_several_writes_before_the_file_is_closed(stored, comm, lab):
    path, array = stored
    pencil = pencils.Pencil(SHAPE, comm, decomp=(1, 2))
    with pencils.open(path, "r+") as file:
        file["u"].write(pencils.ones(pencil), 0)
        file["u"].write(pencils.zeros(pencil.with_(shape=(7, 6, 2))), np.s_[0, :, :, :2])
        assert file["u"].read(pencil, 0).sum() == 7 * 6 * 3
        assert lab.raised(pencils.verify, path)[0] is CheckpointError
    array[0], array[0, :, :, :2] = 1, 0
    assert np.array_equal(lab.stored(path)["u"], array)
    assert pencils.verify(path) == ["u", "v"]


def test_without_checksums(comm, mpi_tmp_path):
    path, pencil = mpi_tmp_path / "a.h5", pencils.Pencil(SHAPE, comm)
    pencils.save(path, {"u": pencils.ones(pencil)}, checksum=False)
    with pencils.open(path, "r+") as file:
        file["u"].write(pencils.zeros(pencil))
    assert pencils.load(path, pencil)["u"].sum() == 0


def test_fields_of_other_tools(comm, mpi_tmp_path, lab):
    array, path = lab.numbers((8, 9)), mpi_tmp_path / "a.h5"

    def make():
        with h5py.File(path, "w") as file:
            file.create_dataset("z", data=array, chunks=(3, 4), compression="gzip")

    lab.on_root(make)
    pencil = pencils.Pencil((4, 3), comm, decomp=1)
    with pencils.open(path, "r+") as file:
        assert lab.holds(file["z"].read(pencil, np.s_[::2, ::3]), array[::2, ::3])
        kind, text = lab.raised(file["z"].write, pencils.ones(pencil), np.s_[::2, ::3])
        assert kind is CheckpointError
        assert "chunked or compressed" in text


def test_mistakes(stored, comm, lab):
    path, _ = stored
    pencil = pencils.Pencil(SHAPE, comm)
    u = pencils.ones(pencil, components=2)
    rank = comm.size - 1

    def wrong(good, bad):
        return bad if comm.rank == rank else good

    with pencils.open(path, "r+") as file:
        raised = lab.raised
        write, read = file["u"].write, file["u"].read
        assert raised(write, wrong(u, None))[0] is TypeError
        assert raised(write, wrong(u, u.astype("f4")))[0] is TypeError
        assert raised(write, wrong(u, pencils.ones(pencil)))[0] is ArgumentError
        assert raised(write, u, wrong(..., 99))[0] is IndexError
        assert raised(read, wrong(pencil, None))[0] is TypeError
        assert raised(read, pencil, wrong(..., 99))[0] is IndexError
        assert raised(read, pencil, np.s_[:, ::2])[0] is CheckpointError
        if comm.size > 1:
            assert raised(read, pencil, wrong(0, 1))[0] is pencils.errors.RankDisagreementError
            alone = pencils.ones(pencils.Pencil(SHAPE, comm.Split(comm.rank)), components=2)
            assert raised(write, alone)[0] is PencilMismatchError
    assert pencils.verify(path) == ["u", "v"]
    with pencils.open(path) as file:
        assert "not open for writing" in lab.raised(file["u"].write, u)[1]
    for bad in ("w", None, 3):
        assert lab.raised(pencils.open, path, wrong("r", bad))[0] is ArgumentError
    assert lab.raised(pencils.open, path.with_name("none.h5"))[0] is FileNotFoundError
