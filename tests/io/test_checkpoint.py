"""save and load: the bytes of NumPy in a file that h5py reads, onto any pencil and back."""

from pathlib import Path

import numpy as np
import pytest

import pencils
from pencils.comm import file as comm_file
from pencils.errors import ArgumentError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

DTYPES = [
    *("?", "i1", "u1", "i2", "i4", "i8", "u8", "f2", "f4", "f8", "g", "c8", "c16"),
    *(">f8", ">c16", ">i4", "S5", "V3"),
    np.dtype([("a", "f8"), ("b", "i1"), ("c", "?")]),
    np.dtype([("a", "i1"), ("b", ">f8", (2,))], align=True),
]
SHAPES = [(7,), (1,), (0,), (3, 5), (1, 5), (5, 1), (0, 4), (4, 0, 3), (1, 1, 1), (1, 1, 6)]
KEYS = "components", "singleton", "periodic"
SHAPES += [(2, 3, 4), (13, 2, 3), (3, 1, 2, 5), (2, 1, 3, 1, 2)]


def test_every_dtype_keeps_its_bytes(path, lab):
    arrays = {str(n): lab.numbers((5, 4, 6), dtype) for n, dtype in enumerate(DTYPES)}
    one, other = lab.some_pencils((5, 4, 6), 2, seed=3)
    pencils.save(path, {name: pencils.partition(one, array) for name, array in arrays.items()})
    found, loaded = lab.stored(path), pencils.load(path, other)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
        assert lab.holds(loaded[name], array)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_from_and_onto_every_pencil(path, shape, lab):
    fields, arrays = {}, {}
    for number, (field, array) in enumerate(lab.cases(shape, 6, seed=len(shape))):
        fields[f"f{number}"], arrays[f"f{number}"] = field, array
    pencils.save(path, fields)
    found = lab.stored(path)
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())
    for halo, pencil in enumerate(lab.some_pencils(shape, 3, seed=9)):
        loaded = pencils.load(path, pencil, halo=halo)
        assert sorted(loaded) == sorted(arrays)
        assert lab.holds_all(loaded, arrays)
        for name, field in fields.items():
            assert loaded[name].singletons == field.singletons
            assert loaded[name].components == field.components


@pytest.mark.parametrize(("run", "most"), [(0, 4), (2**16, 0)])
def test_what_is_read_in_another_way(path, monkeypatch, lab, run, most):
    monkeypatch.setattr("pencils.io.direct.DIRECT_BYTES", run)  # runs one by one
    monkeypatch.setattr("pencils.io.direct._MOST_READ", most)  # or slabs, which are exchanged
    cases = {str(number): case for number, case in enumerate(lab.cases((3, 1, 5, 4), 6, seed=2))}
    pencils.save(path, {name: field for name, (field, _) in cases.items()})
    for pencil in lab.some_pencils((3, 1, 5, 4), 4, seed=1):
        loaded = pencils.load(path, pencil, halo=1)
        assert lab.holds_all(loaded, {name: array for name, (_, array) in cases.items()})


def test_halos_are_left_out_and_come_back_as_zeros(comm, mpi_tmp_path, lab):
    pencil = pencils.Pencil((6, 5), comm, decomp=(0, 1))
    array = lab.numbers((6, 5))
    field = pencils.full(pencil, np.nan, halo=2)
    field.local[...] = array[field.local_slices]
    pencils.save(mpi_tmp_path / "a.h5", {"u": field})
    loaded = pencils.load(mpi_tmp_path / "a.h5", pencil, halo=((1, 0), (0, 2)))["u"]
    assert loaded.halo == ((1, 0), (0, 2))
    assert lab.holds(loaded, array)
    assert lab.everywhere(np.count_nonzero(loaded.padded) == loaded.local.size)


@pytest.fixture
def written(monkeypatch):
    """Keep what this rank writes."""
    kept, write = [], comm_file.SharedFile.write

    def spy(self, offset, data):
        kept.append(data)
        write(self, offset, data)

    monkeypatch.setattr(comm_file.SharedFile, "write", spy)
    return kept


def test_slabs_are_written_without_a_copy(comm, mpi_tmp_path, written, lab):
    field = pencils.ones(pencils.Pencil((12, 5), comm, decomp=0), components=2)
    pencils.save(mpi_tmp_path / "a.h5", {"u": field})
    assert lab.everywhere(all(np.shares_memory(data, field.local) for data in written))
    assert len(written) == min(2, comm.size) * bool(field.local.size)


def test_replicas_are_written_once(comm, mpi_tmp_path, written):
    pencil = pencils.Pencil((8, 9, 10), comm)
    line, point = pencils.ones(pencil, dims=2), pencils.ones(pencil, dims=())
    pencils.save(mpi_tmp_path / "a.h5", {"z": line, "mean": point})
    assert comm.allreduce(sum(data.nbytes for data in written)) == line.size * 8 + 8


def test_groups_and_attributes(comm, path, lab):
    pencil = pencils.Pencil((4, 5), comm)
    fields = {"fluid/u": pencils.ones(pencil), "fluid/p/old": pencils.zeros(pencil)}
    attrs = {
        "step": 3,
        "time": 0.1,
        "name": "Taylor–Green",
        "done": True,
        "wave": 1 + 2j,
        "axis": np.linspace(0, 1, 5),
        "letters": np.array(["x", "yy"]),
        "words": ["a", "b"],
        "none": [],
        "exact": np.float32(0.1),
        "text": np.str_("t"),
    }
    pencils.save(path, fields, attrs=attrs)
    loaded = pencils.load(path, pencil)
    assert list(loaded) == ["fluid/p/old", "fluid/u"]
    assert loaded.attrs.keys() == attrs.keys()
    for name, value in attrs.items():
        assert np.array_equal(loaded.attrs[name], value), name
    assert loaded.attrs["exact"].dtype == np.float32

    def look(file):
        assert file.attrs["pencils_format"] == 1
        assert file.attrs["pencils_version"]
        assert file["fluid/u"].chunks is None
        own = file["fluid/u"].attrs
        return [np.ravel(own[f"pencils_{key}"]).tolist() for key in KEYS]

    assert lab.look(path, look) == [[0], [0, 0], [0, 0]]


def test_one_name_several_names_all_names(comm, path):
    pencil = pencils.Pencil((4, 5), comm)
    pencils.save(path, {name: pencils.ones(pencil) for name in "vwu"})
    assert list(pencils.load(path, pencil)) == ["u", "v", "w"]
    assert list(pencils.load(path, pencil, "w")) == ["w"]
    assert list(pencils.load(path, pencil, ("w", "u", "w"))) == ["w", "u"]
    assert list(pencils.load(path, pencil, [])) == []


def test_a_checkpoint_prints_what_it_holds(comm, path):
    pencil = pencils.Pencil((4, 5), comm)
    pencils.save(path, {"u": pencils.ones(pencil, components=3)}, attrs={"step": 4})
    loaded = pencils.load(path, pencil)
    text = f"<Checkpoint of 1 field from {path}\n  u: (3, 4, 5) float64\n  attrs: step=4>"
    assert repr(loaded) == text
    with pytest.raises(KeyError, match="'v' was not loaded; there is u"):
        loaded["v"]


def test_many_small_pieces_as_one_large_one(path, monkeypatch, lab):
    monkeypatch.setattr(comm_file, "PIECE_BYTES", 40)  # the limit of 32-bit counts, at our size
    for field, array in lab.cases((5, 4, 3), 4, seed=5):
        pencils.save(path, {"u": field})
        assert np.array_equal(lab.stored(path)["u"], array)
        (pencil,) = lab.some_pencils((5, 4, 3), 1, seed=6)
        assert lab.holds(pencils.load(path, pencil)["u"], array)


@pytest.mark.parametrize("fewer", [True, False])
def test_restart_on_another_number_of_processes(comm, path, fewer, lab):
    """From all ranks to every smaller number of them, or the other way."""
    array = lab.numbers((2, 7, 6, 5), "c16")
    for count in range(1, comm.size + 1):
        part = comm.Split(int(comm.rank >= count), -comm.rank)  # and in another order
        mine = part if comm.rank < count else None
        for saver, loader in [(comm, mine), (mine, comm)] if fewer else [(mine, comm)]:
            if saver is not None:
                old = pencils.Pencil((7, 6, 5), saver, decomp=(2, 0), order=(1, 2, 0))
                pencils.save(path, {"u": pencils.partition(old, array)})
            comm.barrier()
            if loader is not None:
                new = pencils.Pencil((7, 6, 5), loader, decomp=(0, 1, 2), splits="ceil")
                loaded = pencils.load(path, new)["u"]
                assert np.array_equal(loaded.local, array[loaded.local_slices])
            comm.barrier()
        part.Free()


def test_a_relative_path_and_a_link(comm, mpi_tmp_path, monkeypatch, lab):
    pencil = pencils.Pencil((4, 5), comm)
    monkeypatch.chdir(mpi_tmp_path)
    pencils.save("a.h5", {"u": pencils.ones(pencil)})
    lab.on_root(Path("latest: one.h5").symlink_to, "a.h5")
    pencils.save("latest: one.h5", {"v": pencils.ones(pencil)})
    assert list(pencils.load("a.h5", pencil)) == ["v"]
    assert lab.on_root(Path("latest: one.h5").is_symlink)


def test_names_and_places_of_any_kind(comm, mpi_tmp_path, lab):
    pencil = pencils.Pencil((4,), comm)
    folder = mpi_tmp_path / "run 12:30 µ"
    lab.on_root(folder.mkdir)
    path = folder / ("é" * 100 + ".h5")
    pencils.save(path, {"größe µ": pencils.ones(pencil)})
    assert pencils.load(str(path), pencil)["größe µ"].sum() == 4


def test_in_a_loop_nothing_piles_up(comm, mpi_tmp_path):
    pencil = pencils.Pencil((6, 5, 4), comm)
    fields = {name: pencils.ones(pencil) for name in "uvw"}
    before = pencil.topology.communicators
    for step in range(30):
        pencils.save(mpi_tmp_path / "a.h5", fields, attrs={"step": step})
    state = pencils.load(mpi_tmp_path / "a.h5", pencil)
    assert state.attrs["step"] == 29
    assert pencil.topology.communicators == before


def test_who_may_read_a_file_stays_as_it_is(comm, path, lab):
    u = pencils.ones(pencils.Pencil((4, 3), comm))
    pencils.save(path, {"u": u})
    lab.on_root(path.chmod, 0o640)
    pencils.save(path, {"u": u})
    assert lab.on_root(lambda: path.stat().st_mode & 0o777) == 0o640


def test_without_a_template(comm, path, lab):
    """Fields on pencils as they were, singletons with the field that they belong to."""
    pencil = pencils.Pencil((6, 5, 4), comm, decomp=(0, 2), periodic=(True, False, False))
    grid = pencils.localgrid(pencil, [np.linspace(0, 1, n) for n in pencil.shape])
    plane = pencils.Pencil((6, 5), comm, order=(1, 0))
    arrays = {
        "g/u": lab.numbers((3, 6, 5, 4)),
        "line": lab.numbers((1, 5, 1)),
        "plane": lab.numbers((6, 5), "c8"),
    }
    fields = {
        "g/u": pencils.partition(pencil, arrays["g/u"], halo=1),
        "line": pencils.partition(pencil, arrays["line"]),
        "plane": pencils.partition(plane, arrays["plane"]),
    }
    pencils.save(path, fields | {"n": 3, "text": "a"}, grid=grid, attrs={"run": "b"}, step=7)
    found = pencils.load(path)
    assert list(found) == ["g/u", "line", "plane", "n", "text"]
    assert lab.holds_all(found, arrays)
    assert (found["n"], found["text"], found.attrs["run"], found.step) == (3, "a", "b", 7)
    u, line = found["g/u"], found["line"]
    assert u.pencil == pencils.Pencil((6, 5, 4), comm, periodic=(True, False, False))
    assert line.pencil == u.pencil
    assert line.singletons == {0, 2}
    assert lab.holds(u - line, arrays["g/u"] - arrays["line"])
    assert found["plane"].pencil == pencils.Pencil((6, 5), comm)

    found = pencils.load(path, names=["line", "y"], dtype="f4", halo=1)
    assert found["line"].pencil.shape == (1, 5, 1)
    assert found["line"].dtype == np.float32
    assert found["line"].halo == ((0, 0), (1, 1), (0, 0))
    assert np.array_equal(found["y"], np.linspace(0, 1, 5))


def test_without_a_template_boundary_points_are_read(comm, mpi_tmp_path, lab):
    pencil = pencils.Pencil((6, 5), comm, periodic=(True, False))
    u = pencils.from_function(pencil, lambda i, j: 10.0 * i + j, halo=2)
    u.fill_boundary("constant", value=7)
    pencils.save(mpi_tmp_path / "a.h5", {"u": u}, halo=True)
    found = pencils.load(mpi_tmp_path / "a.h5")["u"]
    assert found.halo == ((0, 0), (2, 2))
    assert lab.everywhere(np.array_equal(found.local, u.local) or u.pencil.size > 1)
    assert pencils.load(mpi_tmp_path / "a.h5", halo=0)["u"].halo == ((0, 0), (0, 0))


def test_without_a_template_on_other_processes(comm, mpi_tmp_path, lab):
    datasets = {"u": np.ones((6, 1, 4)), "x": np.arange(6), "dt": 0.5, "empty": np.ones((0, 3))}
    lab.look(mpi_tmp_path / "a.h5", lambda file: file.update(datasets), "w")
    found = pencils.load(mpi_tmp_path / "a.h5", comm=comm)
    assert {name: one.shape for name, one in found.items() if name != "dt"} == {
        "u": (6, 1, 4),
        "x": (6,),
        "empty": (0, 3),
    }
    assert found["dt"] == 0.5
    half = comm.Split(comm.rank % 2)
    alone = pencils.load(mpi_tmp_path / "a.h5", names="u", comm=half)["u"]
    assert alone.pencil.size == half.size
    assert alone.sum() == 24
    assert not alone.singletons
    half.Free()
    pencil = pencils.Pencil((6, 1, 4), comm)
    for options in ({"template": pencil}, {"into": {"u": pencils.ones(pencil)}}):
        lab.refuses(
            ArgumentError,
            "leave out comm",
            pencils.load,
            mpi_tmp_path / "a.h5",
            comm=comm,
            **options,
        )
    assert lab.raised(pencils.load, mpi_tmp_path / "a.h5", halo=(1, 1))[0] is ArgumentError
    assert lab.raised(pencils.load, mpi_tmp_path / "a.h5", halo="wide")[0] is TypeError
    if comm.size > 1:
        lab.refuses(
            RankDisagreementError, "halo", pencils.load, mpi_tmp_path / "a.h5", halo=comm.rank
        )
