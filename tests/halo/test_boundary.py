"""Boundary points equal those of `numpy.pad` of the global array, and nothing else changes.

Ghosts are set by hand from the global array; all other halo points hold garbage at first.
"""

from functools import partial
from itertools import product

import numpy as np
import pytest
from mpi_helpers import (
    DTYPES,
    all_raise,
    count_calls,
    everywhere,
    numbered,
    random_pencil,
    same,
)

import pencils
from pencils.errors import ArgumentError
from pencils.halo.boundary import fill_boundary

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

MODES = [
    ("constant", {}),
    ("constant", {"value": 3}),
    ("edge", {}),
    ("linear_ramp", {"value": -70}),
    ("linear_ramp", {"value": 300.5}),
    ("reflect", {}),
    ("reflect", {"reflect_type": "odd"}),
    ("symmetric", {}),
    ("symmetric", {"reflect_type": "odd"}),
]


def garbage(dtype):
    """Give a value that is in no data and makes arithmetic warn where that is possible."""
    if dtype.kind in "fc":
        return np.finfo(dtype).max
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.zeros((), dtype)[()]


def ranges(u):
    """Global indices of the padded block along every space dimension."""
    box = u.extent.box.grow(u.halo)
    return [np.arange(lo, hi) for lo, hi in zip(box.start, box.stop, strict=True)]


def beyond(u, dim, side="both"):
    """Mask, along one dimension of the padded block, of the points outside the domain."""
    at = ranges(u)[dim]
    if u.pencil.periodic[dim]:
        return np.zeros(at.shape, bool)
    below, above = at < 0, at >= u.extent.shape[dim]
    return {"lo": below, "hi": above, "both": below | above}[side]


def mask_of(u, axis, side="both"):
    """Mask of the padded block, components left out: where `fill_boundary` writes."""
    mask = np.zeros([at.size for at in ranges(u)], bool)
    for dim in axis if u.extent.box.volume else ():
        along = [-1 if d == dim else 1 for d in range(u.pencil.ndim)]
        mask |= beyond(u, dim, side).reshape(along)
    return mask


def exchanged(pencil, a, *, halo, dims=None):
    """Make a field whose own points and ghosts are up to date, and nothing else."""
    components = a.shape[: a.ndim - pencil.ndim]
    u = pencils.empty(pencil, dtype=a.dtype, components=components, halo=halo, dims=dims)
    u.padded[...] = garbage(a.dtype)
    if a.dtype.kind in "fc":
        u.padded[..., ::2] = np.inf
    known = [np.flatnonzero(~beyond(u, dim)) for dim in range(pencil.ndim)]
    source = [at[k] % n for at, k, n in zip(ranges(u), known, u.extent.shape, strict=True)]
    whole = [np.arange(n) for n in components]
    u.padded[np.ix_(*whole, *known)] = a[np.ix_(*whole, *source)]
    return u


def numpy_pad(u, a, mode, *, axis=None, **options):
    """Pad the global array and cut the padded block; periodic dimensions wrap around."""
    lead = len(u.components)
    if "value" in options:
        name = {"constant": "constant_values", "linear_ramp": "end_values"}[mode]
        options[name] = options.pop("value")
    axis = range(u.pencil.ndim) if axis is None else axis
    wrap, own = [[(0, 0)] * a.ndim for _ in range(2)]
    for dim, width in enumerate(u.halo):
        if u.pencil.periodic[dim]:
            wrap[lead + dim] = width
        elif dim in axis:
            own[lead + dim] = width
    padded = np.pad(np.pad(a, wrap, "wrap"), own, mode, **options)
    shifted = [
        at + (w if dim in axis or u.pencil.periodic[dim] else 0)
        for dim, (at, (w, _)) in enumerate(zip(ranges(u), u.halo, strict=True))
    ]
    return padded[np.ix_(*(np.arange(n) for n in u.components), *shifted)]


def mirrors_fit(u, mode):
    """Whether every block with boundary points has all that they mirror: rank by rank."""
    layout = u.extent.layout
    for rank, dim in product(range(layout.size), range(u.pencil.ndim)):
        box, (lo, hi), n = layout.box(rank), u.halo[dim], layout.shape[dim]
        if u.pencil.periodic[dim] or box.volume == 0 or lo + hi == 0:
            continue
        start, stop = box.start[dim], box.stop[dim]
        sources = np.pad(np.arange(n), (lo, hi), mode)[start : stop + lo + hi]
        if sources.min() < start - lo or sources.max() >= stop + hi:
            return False
    return True


def equal(u, expected, mask=None, mode=None):
    """Whether the padded block is as expected, where the mask says; ramps up to rounding."""
    if u.extent.box.volume == 0:
        return True
    mask = np.ones(u.padded.shape[len(u.components) :], bool) if mask is None else mask
    here, there = u.padded[..., mask], expected[..., mask]
    if mode == "linear_ramp" and here.dtype.kind in "fc":
        few = 8 * np.finfo(here.dtype).eps
        scale = np.abs(there).max(initial=1)
        return here.dtype == there.dtype and np.allclose(here, there, rtol=few, atol=few * scale)
    if here.dtype.char in "gG":  # of whose bytes some mean nothing
        return same(here, there)
    return here.dtype == there.dtype and here.tobytes() == there.tobytes()


def draw(rng, comm, dtypes=("f8", "f4", "c16", "i4", "u1", ">i2", "f2", "?")):
    """Draw a pencil with periodic dimensions, halo widths, and global data for a field of it.

    Along some dimension there are boundary points.
    """
    ndim = int(rng.integers(1, 4))
    open_dim = rng.integers(ndim)
    pencil = random_pencil(rng, comm, rng.integers(1, 8, ndim).tolist())
    periodic = rng.random(ndim) < 0.3
    periodic[open_dim] = False
    pencil = pencil.with_(periodic=periodic.tolist())
    most = int(rng.choice([1, 3, 9, 20]))
    halo = rng.integers(0, most + 1, (ndim, 2))
    halo[open_dim, 0] = max(halo[open_dim, 0], 1)
    if rng.random() < 0.7:
        halo[:, 1] = halo[:, 0]
    components = [(), (), (2,), (1, 3)][rng.integers(4)]
    dtype = np.dtype(str(rng.choice(dtypes)))
    a = rng.integers(0, 40, (*components, *pencil.shape)).astype(dtype)
    if dtype.kind in "fc":  # with fractions, but so that odd mirrors far out stay exact in f2
        a += rng.integers(0, 4, a.shape).astype(dtype) / dtype.type(4)
    return pencil, halo.tolist(), a


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("mode", "options"), MODES)
def test_equals_numpy_pad(comm, seed, mode, options):
    pencil, halo, a = draw(np.random.default_rng([seed, len(mode), len(options)]), comm)
    if mode == "linear_ramp" and a.dtype == bool:
        a = a.astype("i2")
    if options.get("value") == -70 and a.dtype.kind == "u":
        a = a.astype("i4")  # to cast negative floats to unsigned integers is undefined
    u = exchanged(pencil, a, halo=halo)
    if mode in ("reflect", "symmetric") and not mirrors_fit(u, mode):
        before = u.padded.tobytes()
        all_raise(
            comm,
            ArgumentError,
            (f"mode='{mode}' needs the points", "wide on both sides", "fewer processes"),
            u.fill_boundary,
            mode,
            **options,
        )
        assert everywhere(comm, u.padded.tobytes() == before)
        return
    u.fill_boundary(mode, **options)
    assert everywhere(comm, equal(u, numpy_pad(u, a, mode, **options), mode=mode))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("mode", "options"), MODES)
def test_element_types(comm, dtype, mode, options):
    pencil = pencils.Pencil((5, 4), comm, decomp=(1, 0), order=(1, 0), periodic=(False, True))
    a = numbered((2, 5, 4), dtype)
    u = exchanged(pencil, a, halo=(3, 1))
    arithmetic = mode == "linear_ramp" or "reflect_type" in options
    if arithmetic and dtype.kind not in "biufc":
        all_raise(comm, TypeError, ("needs numbers", str(dtype)), u.fill_boundary, mode, **options)
        return
    if mode == "linear_ramp" and dtype.kind in "biu":
        options = {"value": 0.5}
    if mode == "constant" and dtype.kind == "V":
        options = {"value": a[0, 0, 0]}
        u.fill_boundary(mode, **options)
        expected = exchanged(pencil, a, halo=(3, 1)).padded
        expected[:, mask_of(u, [0])] = a[0, 0, 0]
        assert everywhere(comm, equal(u, expected))
        return
    u.fill_boundary(mode, **options)
    options = options or ({"value": 0} if mode == "constant" else {})
    assert everywhere(comm, equal(u, numpy_pad(u, a, mode, **options), mode=mode))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "linear_ramp"])
@pytest.mark.parametrize("side", ["lo", "hi", "both"])
def test_sides_and_axes_leave_the_rest_alone(comm, seed, mode, side):
    rng = np.random.default_rng([seed, len(mode), len(side)])
    pencil, halo, a = draw(rng, comm, dtypes=("f8", "i4"))
    halo = [max(pair) for pair in halo]
    free = [dim for dim in range(pencil.ndim) if not pencil.periodic[dim] and halo[dim]]
    axis = rng.permutation(free)[: rng.integers(len(free) + 1)].tolist()
    u = exchanged(pencil, a, halo=halo)
    before = u.padded.copy()
    u.fill_boundary(mode, axis=[dim - pencil.ndim if seed % 2 else dim for dim in axis], side=side)
    written = mask_of(u, axis, side)
    assert everywhere(comm, equal(u, before, ~written))
    # Where other dimensions are outside as well, garbage was continued, which nobody promises.
    others = [dim for dim in free if dim not in axis]
    other_side = {"lo": "hi", "hi": "lo", "both": None}[side]
    sure = written & ~mask_of(u, others)
    if other_side:
        sure &= ~mask_of(u, axis, other_side)
    assert everywhere(comm, equal(u, numpy_pad(u, a, mode), sure, mode))


@pytest.mark.parametrize("seed", range(20))
def test_functions_of_global_indices(comm, seed):
    pencil, halo, a = draw(np.random.default_rng(seed), comm, dtypes=("f8",))
    u = exchanged(pencil, a, halo=halo)
    before = u.padded.copy()
    calls = []

    def formula(*indices):
        return sum(10**dim * (i + 0.5) for dim, i in enumerate(indices))

    def function(*indices):
        calls.append(indices)
        return formula(*indices)

    u.fill_boundary(function)
    free = [dim for dim in range(pencil.ndim) if not pencil.periodic[dim]]
    written = mask_of(u, free)
    expected = np.broadcast_to(formula(*np.ix_(*ranges(u))), before.shape)
    assert everywhere(comm, equal(u, expected, written))
    assert everywhere(comm, equal(u, before, ~written))
    here = [
        (dim, side)
        for dim, side in product(free, ("lo", "hi"))
        if u.extent.box.volume and beyond(u, dim, side).any()
    ]
    assert everywhere(comm, len(calls) == len(here))
    for (dim, side), indices in zip(here, calls, strict=True):
        at = ranges(u)
        at[dim] = at[dim][beyond(u, dim, side)]
        wanted = np.ix_(*at)
        assert all(np.array_equal(i, w) for i, w in zip(indices, wanted, strict=True))
        assert all(i.dtype.kind == "i" for i in indices)


def test_functions_of_components_and_axes(comm):
    u = exchanged(pencils.Pencil((4, 5), comm), numbered((2, 4, 5)), halo=1)
    u.fill_boundary(lambda i, j: np.stack([i + 0 * j, 2 * j + 0 * i]), axis=0)
    i, j = np.broadcast_arrays(*np.ix_(*ranges(u)))
    assert everywhere(comm, equal(u, np.stack([i, 2.0 * j]), mask_of(u, [0])))
    # Functions that do not fit.
    shape = (4, comm.size)
    u = exchanged(pencils.Pencil(shape, comm, decomp=1), numbered(shape), halo=(1, 0))
    texts = "(3, 2, 5)", "dimension 0"
    all_raise(comm, ArgumentError, texts, u.fill_boundary, lambda *_: np.zeros((3, 2, 5)))
    all_raise(comm, TypeError, "u must be a PencilArray", fill_boundary, [1], "edge")
    # Antisymmetric mirrors once.
    u = pencils.ones(pencils.Pencil(3, comm), halo=4)
    all_raise(comm, ArgumentError, "narrower halo", u.fill_boundary, "antisymmetric")
    # Axes in rising order whatever is asked.
    pencil = pencils.Pencil((3, 4), comm, decomp=(0, 1))
    u = exchanged(pencil, numbered((3, 4)), halo=2)
    u.fill_boundary(lambda i, j: 0.5 if np.all((i < 0) | (i >= 3)) else i + 9 * j, axis=(1, 0))
    i, j = np.ix_(*ranges(u))
    expected = np.where((j < 0) | (j >= 4), i + 9.0 * j, 0.5)
    assert everywhere(comm, equal(u, expected, mask_of(u, [0, 1])))


@pytest.mark.parametrize("seed", range(12))
def test_antisymmetric_is_twice_the_value_less_the_mirrored_one(comm, seed):
    """Axis after axis, as corners show: mirrored twice they are what they were."""
    rng = np.random.default_rng(seed)
    pencil, halo, a = draw(rng, comm, ("f8", "c16", "i4"))
    halo = [(min(max(w), n),) * 2 for w, n in zip(halo, pencil.shape, strict=True)]
    u = exchanged(pencil, a, halo=halo)
    expected = numpy_pad(u, a, "symmetric")
    odd = np.zeros(expected.shape[len(u.components) :], bool)
    for dim in range(pencil.ndim):
        odd ^= beyond(u, dim).reshape([-1 if d == dim else 1 for d in range(pencil.ndim)])
    u.fill_boundary("antisymmetric", value=3)
    assert everywhere(comm, equal(u, np.where(odd, 6 - expected, expected).astype(a.dtype)))


def test_values_of_components(comm):
    pencil = pencils.Pencil((4, 3), comm)
    a = numbered((2, 3, 4, 3))
    value = np.array([[0.5], [-8.0]])
    for mode, given in product(("constant", "linear_ramp"), (value, [1, 2, 3.5])):
        u = exchanged(pencil, a, halo=(2, 1))
        u.fill_boundary(mode, value=given)
        ends = np.broadcast_to(given, (2, 3))
        for at in np.ndindex(2, 3):
            component = u.component(*at)
            wanted = numpy_pad(component, a[at], mode, value=ends[at])
            assert everywhere(comm, equal(component, wanted, mode=mode))
    u.component(1).fill_boundary("edge")
    assert everywhere(comm, equal(u.component(1), numpy_pad(u.component(1), a[1], "edge")))
    wanted = numpy_pad(u, a, "linear_ramp", value=3.5)[0, 2]
    assert everywhere(comm, equal(u.component(0, 2), wanted, mode="linear_ramp"))


def test_ramps_and_one_axis_after_the_other(comm):
    """`numpy.linspace` computes all lines in another order if one is level."""
    pencil = pencils.Pencil((3, 6), comm, decomp=1)
    a = np.random.default_rng(0).normal(size=(3, 6))
    u = exchanged(pencil, a, halo=(7, 0))
    u.fill_boundary("linear_ramp", value=1.5)
    a[:, 3] = 1.5
    v = exchanged(pencil, a, halo=(7, 0))
    v.fill_boundary("linear_ramp", value=1.5)
    others = np.arange(6)[u.local_slices[1]] != 3
    assert everywhere(comm, np.array_equal(u.padded[:, others], v.padded[:, others]))
    assert everywhere(comm, np.all(v.padded[:, ~others] == 1.5))
    np.testing.assert_allclose(v.padded, numpy_pad(v, a, "linear_ramp", value=1.5), rtol=1e-14)
    # One axis after the other.
    pencil = pencils.Pencil((5, 4, 3), comm, decomp=(0, 2))
    a = numbered((5, 4, 3))
    u = exchanged(pencil, a, halo=2)
    u.fill_boundary("reflect", axis=0)
    u.fill_boundary("constant", value=7, axis=1, side="lo")
    u.fill_boundary("edge", axis=1, side="hi")
    u.fill_boundary("linear_ramp", value=-1, axis=-1)
    expected = np.pad(a, ((2, 2), (0, 0), (0, 0)), "reflect")
    expected = np.pad(expected, ((0, 0), (2, 0), (0, 0)), constant_values=7)
    expected = np.pad(expected, ((0, 0), (0, 2), (0, 0)), "edge")
    expected = np.pad(expected, ((0, 0), (0, 0), (2, 2)), "linear_ramp", end_values=-1)
    expected = expected[np.ix_(*(at + 2 for at in ranges(u)))]
    assert everywhere(comm, equal(u, expected, mode="linear_ramp"))


def test_singletons_and_dimensions_without_halo(comm):
    pencil = pencils.Pencil((4, 5, 3), comm, decomp=(0, 1))
    a = numbered((4, 1, 3))
    u = exchanged(pencil, a, halo=(2, 0, 0), dims=(0, 2))
    u.fill_boundary("edge")
    assert everywhere(comm, equal(u, numpy_pad(u, a, "edge")))
    before = u.padded.tobytes()
    u.fill_boundary("constant", axis=())
    assert everywhere(comm, u.padded.tobytes() == before)
    for axis in (1, (0, -2)):
        all_raise(
            comm, ArgumentError, ("dimension 1", "singleton"), u.fill_boundary, "edge", axis=axis
        )
    # Dimensions without points.
    pencil = pencils.Pencil((3, 0), comm, decomp=(1, 0))
    u = pencils.zeros(pencil, halo=2)
    u.fill_boundary("constant", value=1)
    u.fill_boundary(lambda i, j: i + j)
    u.fill_boundary("reflect", axis=0)
    assert everywhere(comm, not u.padded.any())
    for mode in ("edge", "linear_ramp", "reflect", "symmetric"):
        all_raise(
            comm,
            ArgumentError,
            ("dimension 1 has no points", "use 'constant'"),
            u.fill_boundary,
            mode,
        )
    pencils.zeros(pencil, halo=(2, 0)).fill_boundary("edge")


WRONG = [
    (("wrap",), {}, ArgumentError, ("periodic=",)),
    (("mean",), {}, ArgumentError, ("'mean'", "constant, edge, linear_ramp, reflect, symmetric")),
    (("empty",), {}, ArgumentError, ("'empty'", "a function of global indices")),
    ((None,), {}, ArgumentError, ("mode=None",)),
    ((3,), {}, ArgumentError, ("mode=3",)),
    (("edge",), {"value": 0}, ArgumentError, ("value=0", "'edge'", "constant")),
    ((max,), {"value": 0}, ArgumentError, ("value=0", "constant")),
    (("constant",), {"value": [1, 2]}, ArgumentError, ("value=[1, 2]", "components (3,)")),
    (("linear_ramp",), {"value": "high"}, ArgumentError, ("value='high'", "float64")),
    (("constant",), {"value": 1j}, ArgumentError, ("value=1j", "float64")),
    (("reflect",), {"reflect_type": "none"}, ArgumentError, ("'none'", "'even' or 'odd'")),
    (("edge",), {"reflect_type": "odd"}, ArgumentError, ("'edge'", "reflect")),
    (("edge",), {"side": "left"}, ArgumentError, ("'left'", "'lo', 'hi', 'both'")),
    (("edge",), {"axis": 1}, ArgumentError, ("dimension 1", "periodic", "exchange_halo")),
    (("edge",), {"axis": (0, -2)}, ArgumentError, ("dimension 1", "periodic")),
    (("edge",), {"axis": 3}, ArgumentError, ("axis=(3,)", "0..2")),
    (("edge",), {"axis": (0, 0)}, ArgumentError, ("twice",)),
    (("edge",), {"axis": "x"}, TypeError, ("axis",)),
]


@pytest.mark.parametrize(("args", "options", "kind", "texts"), WRONG)
def test_wrong_arguments_raise_on_all_ranks(comm, args, options, kind, texts):
    u = pencils.zeros(
        pencils.Pencil((2, 4, 3), comm, periodic=(False, True, False)), components=3, halo=1
    )
    all_raise(comm, kind, texts, u.fill_boundary, *args, **options)
    assert everywhere(comm, not u.padded.any())


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_a_call_like_one_before_makes_copies_only(comm, mode):
    """Two for each edge, at most, and few calls besides."""
    u = pencils.ones(pencils.Pencil((6 * comm.size, 7, 8), comm, decomp=0), halo=2)
    u.fill_boundary(mode)
    assert everywhere(comm, count_calls(partial(u.fill_boundary, mode)) < 30)


def test_what_differs_from_a_call_before(comm):
    """Arguments that are equal, but not allowed, values, and a field that is read-only now."""
    pencil = pencils.Pencil(5 * comm.size, comm)
    u = pencils.zeros(pencil, halo=2)
    u.local[...] = np.arange(5 * comm.size)[u.local_slices]
    first, last = comm.rank == 0, comm.rank == comm.size - 1
    for value in (1, 2.5, None, [3], 1):
        components = pencils.zeros(pencil, halo=2, components=1)
        for field in (u, components) if value is not None else (u,):
            if field is u and isinstance(value, list):
                continue
            field.fill_boundary("constant", value=value)
            wanted = 0 if value is None else np.ravel(value)[0]
            assert everywhere(comm, not first or (field.padded[..., :2] == wanted).all())
            assert everywhere(comm, not last or (field.padded[..., -2:] == wanted).all())
    u.fill_boundary("edge", axis=0)
    u.fill_boundary("edge", axis=(0,))
    for options, kind in (({"value": 1}, ArgumentError), ({"axis": (True,)}, TypeError)):
        all_raise(comm, kind, "", u.fill_boundary, "edge", **options)
    all_raise(comm, ArgumentError, "value", u.fill_boundary, "constant", value="x")
    u.padded.flags.writeable = False
    all_raise(comm, ArgumentError, ("read-only", "u.copy()"), u.fill_boundary, "edge")


def test_lopsided_halos(comm):
    """Thin blocks see too little towards the inside, unless the halo is wide there, too."""
    points = comm.size + 9
    pencil = pencils.Pencil((points,), comm, splits=[0, *range(1, comm.size), points])
    a = numbered((points,))
    wide = exchanged(pencil, a, halo=3)
    wide.fill_boundary("reflect")
    assert everywhere(comm, equal(wide, numpy_pad(wide, a, "reflect")))
    u = exchanged(pencil, a, halo=[(3, 0)])
    u.fill_boundary("edge")
    assert everywhere(comm, equal(u, numpy_pad(u, a, "edge")))
    before = u.padded.copy()
    if comm.size > 1:
        all_raise(
            comm,
            ArgumentError,
            (
                "0:4 of dimension 0",
                "at the edge with its halo (3, 0) has 0:1",
                "halo 3 wide on both",
            ),
            u.fill_boundary,
            "reflect",
        )
    all_raise(comm, ArgumentError, "has halo (3, 0)", u.fill_boundary, "reflect", side="hi")
    assert everywhere(comm, equal(u, before))
    few = exchanged(pencil, a, halo=[(1, 1)])
    few.fill_boundary("reflect")
    assert everywhere(comm, equal(few, numpy_pad(few, a, "reflect")))
