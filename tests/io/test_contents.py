"""What save stores beside fields, and how load checks and converts."""

import numpy as np
import pytest

import pencils
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError

# Records with bytes that belong to no member, and are not zero.
GAPS = np.frombuffer(bytes(range(32)), np.dtype([("a", "f8"), ("b", "i1")], align=True))

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (6, 5, 4)


@pytest.fixture
def pencil(comm):
    return pencils.Pencil(SHAPE, comm, periodic=(False, True, False))


def test_values_of_all_kinds(path, pencil, lab):
    rng = np.random.default_rng(5)
    values = {
        "dt": 0.1,
        "n": 3,
        "on": True,
        "name": "Taylor–Green",
        "flow/modes": np.arange(6).reshape(2, 3),
        "scale": np.float32(2),
        "empty": np.zeros((0, 3)),
        "rng": rng,
        "bits": np.random.Philox(4),
    }
    pencils.save(path, {**values, "u": pencils.ones(pencil)})
    state = pencils.load(path, pencil)
    assert list(state) == ["u", *sorted(values)]
    for name in ("dt", "n", "on", "name", "scale"):
        assert type(state[name]) is type(values[name])
        assert state[name] == values[name]
    for name in ("flow/modes", "empty"):
        assert np.array_equal(state[name], values[name])
    assert state["rng"].bit_generator.state == rng.bit_generator.state
    assert state["bits"].random_raw() == values["bits"].random_raw()
    assert lab.look(path, lambda file: float(file["dt"][()])) == 0.1
    only = pencils.load(path, pencil, ["dt"])
    assert list(only) == ["dt"]
    values["dt"] = 0.2  # nothing but values, from all processes
    pencils.save(path, {"dt": 0.2})
    assert dict(pencils.load(path, pencil)) == {"dt": 0.2}


def test_step_time_and_attributes(path, pencil):
    fields = {"u": pencils.ones(pencil)}
    pencils.save(path, fields, step=np.int64(4), time=np.float32(0.5), attrs={"step": 9})
    state = pencils.load(path, pencil)
    assert (state.step, state.time, dict(state.attrs)) == (4, 0.5, {"step": 9})
    assert repr(state).startswith(f"<Checkpoint of 1 field from {path}, step 4, time 0.5\n")
    pencils.save(path, fields)
    state = pencils.load(path, pencil)
    assert (state.step, state.time, state.attrs) == (None, None, {})


def test_coordinates_are_dimension_scales(path, pencil, lab):
    axes = [np.linspace(0, 1, 6), np.arange(5), np.arange(4.0) ** 2]
    grid = pencils.localgrid(pencil, axes)
    fields = {
        "u": pencils.ones(pencil, components=(3, 3)),
        "flow/p": pencils.ones(pencil),
        "line": pencils.ones(pencil, dims=1),
        "face": pencils.ones(pencil.staggered(0)),
        "modes": np.arange(7),
        "dt": 0.1,
    }
    pencils.save(path, fields, grid=grid)
    found = lab.look(path, lambda file: [file[name][...] for name in "xyz"])
    assert all(map(np.array_equal, found, axes))
    for name, labels in {
        "u": ["component0_3", "component1_3", "x", "y", "z"],
        "flow/p": ["x", "y", "z"],
        "line": ["x_1", "y", "z_1"],
        "face": ["x_7", "y", "z"],
        "modes": ["dim0_7"],
    }.items():
        named = lab.look(path, lambda file, name=name: [d[0].name[1:] for d in file[name].dims])
        assert named == labels
    state = pencils.load(path, {"u": pencil, "face": pencil.staggered(0)})
    assert sorted(state) == ["dt", "face", "modes", "u"]
    assert np.array_equal(pencils.load(path, pencil, "z")["z"], axes[2])
    for name in ("x", "x/u", "component0_3", "x_1"):
        clash = {**fields, name: pencils.ones(pencil)}
        lab.refuses(ArgumentError, "rename", pencils.save, path, clash, grid=grid)


def fill_ghosts(field):
    if any(map(any, field.halo)):
        field.exchange_halo()


def test_boundary_points_come_back(mpi_tmp_path, lab):
    for number, (field, _) in enumerate(lab.cases((5, 1, 4), 10, seed=3)):
        if any(map(any, field.halo)):
            field.fill_boundary("edge")
        fill_ghosts(field)
        path = mpi_tmp_path / f"{number}.h5"
        pencils.save(path, {"u": field}, halo=True)
        same = pencils.load(path, {"u": field})["u"]
        fill_ghosts(same)
        assert lab.everywhere(np.array_equal(same.padded, field.padded))
        for other in lab.some_pencils((5, 1, 4), 2, seed=number):
            pencil = other.with_(periodic=field.pencil.periodic)
            assert np.array_equal(
                pencils.transpose(pencils.load(path, pencil)["u"], field.pencil), field
            )
            wider = pencils.load(path, pencil, halo=2)["u"]
            pencils.save(path, {"u": wider}, halo=True)
            same = pencils.load(path, {"u": field})["u"]
            fill_ghosts(same)
            assert lab.everywhere(np.array_equal(same.padded, field.padded))


def test_boundary_points_lie_around_the_others_in_the_file(comm, path, lab):
    pencil = pencils.Pencil((6, 4), comm, decomp=(0, 1), periodic=(False, True))
    field = pencils.from_function(pencil, lambda i, j: 10.0 * i + j, halo=((2, 1), (1, 1)))
    field.exchange_halo()
    field.fill_boundary("constant", value=-1.0)
    pencils.save(path, {"u": field}, halo=True)
    whole = np.add.outer(10.0 * np.arange(6), np.arange(4))
    stored = lab.stored(path)["u"]
    assert np.array_equal(stored[2:-1], whole)
    assert np.all(stored[[0, 1, -1]] == -1)
    narrow = pencils.load(path, pencil, halo=((1, 1), (0, 0)))["u"]
    narrow.exchange_halo()
    if pencil.box().volume:
        row = narrow.padded[0] if pencil.box().start[0] == 0 else np.array([-1.0])
        assert np.all(row == -1)
    assert lab.everywhere(np.array_equal(narrow.local, whole[narrow.local_slices]))


def test_fields_like_those_to_load(path, pencil, lab):
    u = pencils.random.normal(pencil, 1, components=3, halo=2)
    line = pencils.ones(pencil, dims=1, dtype="f4")
    pencils.save(path, {"u": u, "line": line, "dt": 0.1, "v": pencils.ones(pencil)})
    turned = pencil.with_(decomp=2, order=(2, 1, 0))
    like = {"u": pencils.zeros(turned, components=3, halo=1), "line": line, "dt": 0.0}
    state = pencils.load(path, like)
    assert list(state) == ["line", "u", "dt"]
    assert (state["u"].halo, state["u"].pencil) == (((1, 1),) * 3, turned)
    assert np.array_equal(pencils.transpose(state["u"], pencil).local, u.local)
    assert pencils.load(path, like, halo=0)["u"].halo == ((0, 0),) * 3
    other = pencil.with_(periodic=False)
    for name, bad, text in [
        ("u", pencils.zeros(pencil), "components (3,), but the field to load has ()"),
        ("u", pencils.zeros(pencil, components=3, dtype=complex), "dtype='complex128' would conv"),
        ("u", pencils.zeros(other, components=3), "periodic dimensions"),
        ("line", pencils.zeros(pencil, dims=0), "singleton dimensions [0, 2], but the field"),
        ("line", pencils.zeros(pencil, dims=(0, 1), dtype="f4"), "has [2]"),
        ("w", line, "no dataset named 'w'; it holds dt, line, u, v"),
        ("dt", line, "no field but a value of kind 'float'"),
    ]:
        lab.refuses(CheckpointError, [repr(name), text], pencils.load, path, {name: bad})
    lab.refuses(ArgumentError, "no place for 'v'", pencils.load, path, {"u": u}, ["v"])


def test_loading_in_place(path, pencil, comm, lab):
    u = pencils.random.normal(pencil, 1, components=3)
    pencils.save(path, {"u": u, "v": pencils.ones(pencil), "dt": 0.1})
    target = pencils.full(pencil.with_(decomp=2, order=(1, 2, 0)), 7.0, components=3, halo=1)
    memory = target.padded
    state = pencils.load(path, names="u", into=target)
    assert state["u"] is target
    assert target.padded is memory
    assert np.array_equal(pencils.transpose(target, pencil).local, u.local)
    ghosts = memory.size - target.local.size
    assert np.count_nonzero(memory == 7) >= ghosts
    both = pencils.load(path, pencil, into={"u": target})
    assert list(both) == ["u", "v", "dt"]
    assert both["u"] is target
    assert both["v"].sum() == 120
    assert list(pencils.load(path, into={"u": target})) == ["u", "dt"]
    assert lab.raised(pencils.load, path, into=target)[0] is ArgumentError
    alone = pencils.zeros(pencils.Pencil(SHAPE, comm.Split(comm.rank)), components=3)
    if comm.size > 1:
        lab.refuses(
            PencilMismatchError,
            "different processes",
            pencils.load,
            path,
            {"u": u},
            into={"v": alone},
        )


def test_other_element_types_only_on_request(path, pencil, lab):
    u = pencils.random.normal(pencil, 1)
    pencils.save(path, {"u": u, "big": u.astype(">f8"), "z": u.astype(complex)})
    target = pencils.zeros(pencil, dtype="f4")
    lab.refuses(
        CheckpointError,
        "dtype float64, but the field to load has float32; dtype='float32' would",
        pencils.load,
        path,
        names="u",
        into=target,
    )
    pencils.load(path, names="u", into=target, dtype="f4")
    assert np.array_equal(target.local, u.local.astype("f4"))
    native = pencils.load(path, pencil, ["big", "u"], dtype=float, halo=1)
    assert native["big"].dtype == np.dtype(float)
    assert np.array_equal(native["big"].local, u.local)
    assert pencils.load(path, pencil, "u", dtype=complex)["u"].dtype == complex
    for name, dtype in (("u", int), ("z", float), ("u", "S3")):
        lab.refuses(CheckpointError, "cannot hold", pencils.load, path, pencil, name, dtype=dtype)


def test_large_datasets_begin_where_they_shall(path, pencil, lab):
    fields = {name: pencils.ones(pencil, components=10) for name in "uvw"}
    for align in (4096, 65536, 1000):
        pencils.save(path, {**fields, "dt": 0.1}, align=align)
        found = lab.look(path, lambda file: [file[name].id.get_offset() for name in "uvw"])
        assert all(offset % align == 0 for offset in found) or align > 9600
        assert all(field.sum() == 1200 for field in [*pencils.load(path, pencil).values()][:3])


@pytest.mark.parametrize(
    "value",
    [np.longdouble(1) / 3, np.array(1, "g"), np.clongdouble(1 + 2j), np.full(2, 0.1, "g"), GAPS[0]],
    ids=repr,
)
def test_values_whose_bytes_have_gaps_are_as_written(path, comm, value):
    u = pencils.ones(pencils.Pencil((5, 3), comm))
    pencils.save(path, {"u": u, "value": value})
    assert pencils.verify(path, comm) == ["u", "value"]
    found = pencils.load(path, u.pencil)["value"]
    assert np.asarray(found).dtype == value.dtype
    assert np.array_equal(found, value)


def test_records_with_gaps_in_a_series(path, comm):
    u = pencils.empty(pencils.Pencil((9, 2), comm), dtype=GAPS.dtype)
    u.local.view(np.uint8)[...] = np.arange(u.local.nbytes).reshape(*u.local.shape[:-1], -1) % 120
    with pencils.TimeSeries(path, "w", comm=comm) as series:
        series.append(0.0, {"u": u})
    assert pencils.verify(path, comm) == ["u"]
    found = pencils.load(path, u.pencil, "u")["u"]
    assert all(comm.allgather(np.array_equal(found.local[0], u.local)))


def test_the_error_for_data_without_axes_of_space_names_what_reads_it(path, comm):
    u = pencils.ones(pencils.Pencil((4, 3), comm))
    with pencils.TimeSeries(path, "w", comm=comm) as series:
        for time in range(5):
            series.append(time, {"probe": (u, np.s_[1, 2])})
    times = pencils.Pencil(5, comm)
    reader = r"pencils\.open\(path\)\['probe'\]\.read\(pencil\) takes one of shape \(5,\)"
    with pytest.raises(CheckpointError, match=reader):
        pencils.load(path, times, "probe")
    with pencils.open(path, comm=comm) as file:
        assert file["probe"].read(times).sum() == 5
