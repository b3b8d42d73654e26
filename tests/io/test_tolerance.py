"""Compression with a bound on the error: h5py and hdf5plugin alone read what is stored."""

import numpy as np
import pytest
from mpi_helpers import numbered, random_pencil, same, spread

import pencils
from pencils.errors import ArgumentError
from pencils.io.show import describe_file
from pencils.io.tolerance import largest_error, rounded

pytest.importorskip("hdf5plugin")
pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (13, 10, 9)
CHUNKS = (8, 8, 5)
BOUNDS = [1e-1, 3e-4, 1e-8, 1e-14, 1e-20, 5e-324, 1e300]
RNG = np.random.default_rng(43)
NOISE, AXES = RNG.normal(size=SHAPE), np.ogrid[:13, :10, :9]


def put(values, **points):
    """Copy an array, with other numbers at random places."""
    array = values.copy()
    for number in points.values():
        array.flat[RNG.integers(array.size, size=3)] = number
    return array


ARRAYS = {
    "noise": NOISE,
    "smooth": np.sin(AXES[0] / 5) * np.cos(AXES[1] / 7) + AXES[2] / 9,
    "constant": np.full(SHAPE, 1 / 3),
    "zeros": np.zeros(SHAPE),
    "nan": put(NOISE, a=np.nan, b=np.inf, c=-np.inf),
    "nothing but nan": np.full(SHAPE, np.nan),
    "huge": put(NOISE, a=1e300, b=-1.7e308),
    "denormal": NOISE * 1e-310,
    "wide": NOISE * 10.0 ** RNG.integers(-300, 300, SHAPE),
    "single": NOISE.astype("f4"),
    "single nan": put(NOISE.astype("f4"), a=np.nan, b=3e38, c=1e-40),
    "half": NOISE.astype("f2"),
    "big-endian": NOISE.astype(">f8"),
    "long": NOISE.astype("g"),
    "complex": put(NOISE + 1j * NOISE[::-1], a=complex(np.nan, 1), b=1e300),
    "complex single": (NOISE + 1j * NOISE[::-1]).astype("c8"),
    "vector": RNG.normal(size=(2, *SHAPE)),
    "plane": NOISE[:1],
    "none": np.empty((0, *SHAPE)),
}
EXACT = {
    dtype: numbered(SHAPE, dtype).astype(dtype) for dtype in ["i4", ">u2", "i8", "?", "S3", "f8,i2"]
}


def spread_all(comm, arrays, **options):
    pencil = random_pencil(np.random.default_rng(3), comm, SHAPE)
    plane = pencil.with_(shape=(1, *SHAPE[1:]))
    return {
        name: spread(plane if array.shape[-3] == 1 else pencil, array, **options)
        for name, array in arrays.items()
    }


def errors_of(stored, array):
    """Return absolute errors in more digits; zero where bytes are the same, as of NaN."""
    wide = np.promote_types(array.dtype, np.float64)
    with np.errstate(all="ignore"):
        errors = np.abs(stored.astype(wide) - array.astype(wide))
    raw = [np.ascontiguousarray(one).view(f"V{one.dtype.itemsize}") for one in (stored, array)]
    return np.where(raw[0] == raw[1], 0, errors)


@pytest.mark.parametrize("bound", BOUNDS)
def test_every_error_is_within_the_bound_and_the_largest_is_stored(path, lab, bound):
    fields = spread_all(lab.comm, ARRAYS, halo=1)
    chunks = {name: (1, *CHUNKS[1:]) if name == "plane" else CHUNKS for name in fields}
    pencils.save(path, fields, tolerance=bound, chunks=chunks)

    def look(file):
        found = {}
        for name, array in ARRAYS.items():
            stored, attrs = file[name][...], file[name].attrs
            assert stored.dtype == array.dtype
            finite = np.isfinite(array)
            assert stored[~finite].tobytes() == array[~finite].tobytes()
            largest = float(errors_of(stored, array).max(initial=0))
            assert largest <= bound
            assert (attrs["pencils_tolerance"], attrs["pencils_largest_error"]) == (bound, largest)
            found[name] = largest
        return found

    found = lab.look(path, look)
    assert (found["smooth"] > 0) == (bound > 1e-20)
    assert sorted(pencils.verify(path, lab.comm)) == sorted(ARRAYS)
    state = pencils.load(path, {name: fields[name] for name in ("vector", "complex single")})
    stored = lab.look(path, lambda file: {name: file[name][...] for name in state})
    assert lab.holds_all(state, stored)


@pytest.mark.parametrize("bound", [1e-2, 5e-324])
def test_zarr_folders_keep_the_bound(mpi_tmp_path, lab, bound):
    zarr = pytest.importorskip("zarr")
    names = ("noise", "smooth", "nan", "huge", "single nan", "half", "complex", "vector", "none")
    arrays = {name: ARRAYS[name] for name in names} | {"i4": EXACT["i4"], "?": EXACT["?"]}
    fields = spread_all(lab.comm, arrays, halo=1)
    path = mpi_tmp_path / "run.zarr"
    pencils.save(path, fields, tolerance=bound)

    def look():
        group = zarr.open_group(path, mode="r")
        for name, array in arrays.items():
            stored, attrs = group[name][...], group[name].attrs
            finite = np.isfinite(array)
            assert stored[~finite].tobytes() == array[~finite].tobytes()
            largest = float(errors_of(stored, array).max(initial=0)) if array.size else 0.0
            assert largest == attrs["pencils_largest_error"] <= attrs["pencils_tolerance"] == bound
        return group["smooth"][...], group["smooth"].nbytes_stored()

    smooth, size = lab.on_root(look)
    assert lab.holds(pencils.load(path, fields["smooth"].pencil)["smooth"], smooth)
    shown = lab.on_root(lambda: describe_file(str(path)))
    assert shown.count(f", tolerance {bound:.3g}") == len(arrays)
    assert size < ARRAYS["smooth"].nbytes or bound < 1e-9
    both = {"tolerance": bound, "compression": "zstd"}
    lab.refuses(ArgumentError, "one of them", pencils.save, path, fields, **both)


def test_what_is_no_real_number_is_exact(path, lab):
    fields = spread_all(lab.comm, EXACT) | {"dt": 0.1, "modes": np.arange(3.0)}
    pencils.save(path, fields, tolerance=1e-1)

    def look(file):
        attrs = [file[name].attrs["pencils_largest_error"] for name in EXACT]
        return {name: file[name][...] for name in EXACT}, attrs, file["dt"][()]

    stored, errors, dt = lab.look(path, look)
    assert all(same(stored[name], EXACT[name]) for name in EXACT)
    assert (errors, dt) == ([0] * len(EXACT), 0.1)


@pytest.mark.parametrize("wait", [True, False])
def test_bounds_by_name(path, lab, wait):
    array = np.cumsum(RNG.normal(size=(40, 24, 16)), axis=0)
    array = lab.comm.bcast(array)
    u = spread(pencils.Pencil(array.shape, lab.comm), array)
    fields = {name: u.copy() for name in ("a", "g/b", "zero", "without")}
    made = pencils.save(path, fields, tolerance={"a": 1e-1, "g/b": 1e-6, "zero": 0}, wait=wait)
    if made:
        for field in fields.values():
            field.fill(0)
        made.wait()

    def look(file):
        for name, bound in {"a": 1e-1, "g/b": 1e-6, "zero": 0.0}.items():
            largest = np.abs(file[name][...] - array).max()
            assert largest == file[name].attrs["pencils_largest_error"] <= bound
        assert same(file["without"][...], array)
        assert "pencils_tolerance" not in file["without"].attrs
        assert file["without"].chunks is None
        return [file[name].id.get_storage_size() for name in ("a", "g/b", "zero", "without")]

    coarse, fine, lossless, whole = lab.look(path, look)
    assert coarse < fine < lossless < whole == array.nbytes
    assert 4 * coarse < lossless
    shown = lab.on_root(lambda: describe_file(str(path)).splitlines())
    lines = {line.split()[0]: line for line in shown[1:]}
    assert "tolerance 1e-06" in lines["g/b"]
    assert "largest error 0, tolerance 0" in lines["zero"]
    assert "tolerance" not in lines["without"]


def test_the_same_file_from_any_pencil(path, lab):
    arrays = {name: ARRAYS[name] for name in ("noise", "nan", "vector")}
    seen = set()
    for seed in range(3):
        pencil = random_pencil(np.random.default_rng(seed), lab.comm, SHAPE)
        fields = {name: spread(pencil, array) for name, array in arrays.items()}
        pencils.save(path, fields, tolerance=1e-3)
        seen.add(lab.on_root(path.read_bytes))
    assert len(seen) == 1


def test_checkpoints_are_exact_unless_asked(mpi_tmp_path, lab):
    fields = {"u": spread(pencils.Pencil(SHAPE, lab.comm), NOISE)}
    with pencils.CheckpointSeries(mpi_tmp_path / "run", signals=(), comm=lab.comm) as series:
        for step, options in enumerate([{}, {"tolerance": 0.5}]):
            series.save(step, fields, **options)
            found = series.resume(fields)["u"]
            assert bool(abs(found - fields["u"]).max() == 0) == (not options)


MISTAKES = {
    "negative": (-1e-6, ArgumentError, "-1e-06"),
    "nan": (np.nan, ArgumentError, "nan"),
    "infinite": (np.inf, ArgumentError, "inf"),
    "too large": (10**400, ArgumentError, "finite"),
    "text": ("1e-6", TypeError, "'1e-6'"),
    "bool": (True, TypeError, "True"),
    "sequence": ([1e-6], TypeError, "[1e-06]"),
    "negative by name": ({"u": -1.0}, ArgumentError, "tolerance['u']=-1.0"),
    "none by name": ({"u": None}, TypeError, "tolerance['u']=None"),
    "unknown": ({"u": 1.0, "v": 1.0}, ArgumentError, "'v'"),
    "of a value": ({"dt": 1.0}, ArgumentError, "'dt'"),
    "no name": ({3: 1.0, "v": 1.0}, ArgumentError, "3"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_raise_everywhere_and_nothing_happens(path, lab, case):
    given, kind, text = MISTAKES[case]
    fields = {"u": pencils.ones(pencils.Pencil((6, 5), lab.comm)), "dt": 0.1}
    lab.refuses(kind, text, pencils.save, path, fields, tolerance=given)
    both = {"tolerance": 1e-3, "compression": "gzip"}
    lab.refuses(ArgumentError, "one of them", pencils.save, path, fields, **both)
    assert lab.on_root(lambda: list(path.parent.iterdir())) == []


def test_any_number_of_dimensions(path, lab):
    """ZFP takes up to four: more are rounded."""
    fields, arrays = {}, {}
    for shape in [(50,), (9, 8), (5, 6, 4, 7), (3, 4, 5, 2, 6), (1, 7, 1)]:
        name = "x".join(map(str, shape))
        arrays[name] = numbered(shape, "f8") / 7
        fields[name] = spread(pencils.Pencil(shape, lab.comm), arrays[name])
    pencils.save(path, fields, tolerance=1e-2)
    stored = lab.look(path, lambda file: {name: file[name][...] for name in arrays})
    assert all(0 < np.abs(stored[name] - arrays[name]).max() <= 1e-2 for name in arrays)


def test_a_part_is_read(path, lab):
    array = ARRAYS["smooth"]
    pencil = pencils.Pencil(SHAPE, lab.comm)
    pencils.save(path, {"u": spread(pencil, array)}, tolerance=1e-3, checksum=False)
    with pencils.open(path, comm=lab.comm) as file:
        part = file["u"].read(pencils.Pencil((7, 10), lab.comm), np.s_[::2, :, 3])
    stored = lab.look(path, lambda file: file["u"][...])
    assert lab.holds(part, stored[::2, :, 3])


@pytest.mark.parametrize("bound", [0.0, 5e-324, 1e-300, 1e-3, 7.0, 1e300, 1.7e308])
def test_rounding(bound):
    for name, array in (ARRAYS | EXACT).items():
        found = rounded(array, bound)
        assert found.shape == array.shape
        if name in EXACT or bound == 0:
            assert found.tobytes() == array.tobytes()
        else:
            largest = errors_of(found.astype(array.dtype), array).max(initial=0)
            assert largest == largest_error(array, found) <= bound


def test_errors_that_are_not_finite():
    one = np.ones(3)
    for other in ([np.nan, 1, 1], [np.inf, 1, 1]):
        assert not largest_error(one, np.array(other)) <= 1e308
        assert not largest_error(np.array(other), one) <= 1e308
    assert largest_error(np.array([1.7e308]), np.array([-1.7e308])) == np.inf
