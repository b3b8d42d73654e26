"""Functions of elements in fused functions: results and warnings of the same plain lines."""

import copy
import warnings

import numpy as np
import pytest
from mpi_helpers import all_raise, everywhere

import pencils
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

TYPES = ["f", "d", "e", "F", "D", "i8", "u1", "?"]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 2.5, 0.5, -0.5]
EDGES = np.array([-1.0, 0, 0.5, 2])
LINES = [
    *("np.clip(u, -0.5, k)", "u.clip(0, 2)", "np.clip(u, v, 2)", "np.clip(u, min=k)"),
    *("np.clip(u, None, v)", "np.clip(u, max=1)", "np.clip(u, np.nan, 1.0)", "np.clip(u)"),
    *("np.clip(u, -300, 10**30)", "np.clip(u, -0.0, 0.0)", "np.clip(1.5, u, v)"),
    *("np.clip(u, v, k, out=v)", "np.clip(u, 1, 2, out=v)"),
    *("np.round(u)", "u.round(1)", "np.around(u, decimals=-1)", "np.round(u * k, 2)"),
    *("np.round(u, 0)", "np.round(u, 2, out=v)", "u.round(12)", "np.fix(u)", "np.fix(u, out=v)"),
    *("np.modf(u)", "np.frexp(u)", "divmod(u, v)", "divmod(u, k)", "divmod(k, u)"),
    *("np.select([u < 0, v > k], [v, 2 * u], k)", "np.where(u > 0, np.select([u > k], [u]), v)"),
    "np.piecewise(u, [u < 0, u > 1], [-1, lambda values: values * 2, 0])",
    *("np.polyval([1, 2, 3.0], u * k)", "np.isin(np.round(u), [1, 2])"),
    *("np.digitize(u, EDGES) + v", "np.searchsorted(EDGES, u)"),
    *("np.interp(u, EDGES, [1, 2, 3, 4.0]) * k", "np.ones_like(u) + u"),
    *("np.full_like(u, 3) + np.full_like(v, k)", "(u.fill(2), u * k)[1]", "(u.fill(k), u * v)[1]"),
    *("np.nan_to_num(u)", "np.nan_to_num(u * v, posinf=k)", "np.angle(u)", "np.sinc(u)"),
    *("np.isclose(u, v, rtol=0.1)", "np.i0(u)", "np.isreal(u)", "np.isposinf(u)"),
    *(
        "(np.copyto(u, v), u)[1]",
        "(np.copyto(u, 3, where=v > k), u)[1]",
        "(np.copyto(u, 2j), u)[1]",
    ),
    *("u ** 2.0", "u ** 2", "u ** 0.5", "u ** -1", "u ** -1.0", "u ** 0", "u ** 1.0", "u ** 3"),
    *("u ** np.float64(2)", "u ** np.int64(2)", "u ** 2j", "u ** k", "u ** v", "k ** u", "2 ** u"),
    *("np.power(u, 2.0)", "np.power(u, k)", "u.__ipow__(2.0)", "u.__ipow__(2)", "u.__ipow__(k)"),
]


def fields(comm, dtype):
    """Make a field of all kinds of values, and another one of the same values."""
    pen = pencils.Pencil((9, 11), comm=comm)
    values = 3 * np.random.default_rng(1).standard_normal((9, 11))
    if np.dtype(dtype).kind == "f":
        values.flat[::3] = np.resize(SPECIAL, 33)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * values[::-1]
    if dtype in ("u1", "?"):
        values = abs(values) > 1 if dtype == "?" else abs(values)
    u = pencils.zeros(pen, dtype=dtype, halo=1)
    u[...] = values.astype(dtype)
    v = u.copy()
    v[...] = np.roll(values.astype(dtype), 5, 1)
    return u, v


def observed(function, u, v, k):
    """Return bytes of results and arguments, and different warnings; or the type of the error."""
    u, v = u.copy(), v.copy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = function(u, v, k)
        except Exception as error:  # noqa: BLE001 - whatever plain lines raise
            return issubclass(type(error), TypeError)
    found = found if isinstance(found, tuple) else (found,)
    blocks = [(one.dtype, one.local.tobytes()) for one in found]
    return blocks, u.padded.tobytes(), {str(warning.message) for warning in caught}


@pytest.mark.parametrize("line", LINES)
def test_functions_are_those_of_plain_fields(comm, line):
    def function(u, v, k):
        return eval(line, {"np": np, "EDGES": EDGES, "u": u, "v": v, "k": k})

    fused = pencils.fused(function)
    for dtype in TYPES:
        u, v = fields(comm, dtype)
        for k in (0.7, 0.7, 2.0):
            expected, found = observed(function, u, v, k), observed(fused, u, v, k)
            assert everywhere(comm, found == expected), dtype


@pytest.mark.parametrize("line", ["np.clip(2 * u, -0.5, k)", "np.round(u) + u", "u.round(2)"])
def test_clipping_and_rounding_are_part_of_a_pass(comm, line):
    u, v = fields(comm, float)
    fused = pencils.fused(lambda u, v, k: eval(line, {"np": np, "u": u, "v": v, "k": k}))
    fused(u, v, 0.5)
    assert everywhere(comm, "NumPy" not in fused.explain() or u.local.size == 0)


def test_booleans_are_not_written_with_strides(comm):
    """NumPy writes wrong values to some booleans that lie apart."""
    u, _ = fields(comm, float)
    flags = pencils.zeros(u.pencil, dtype=bool, components=3, halo=2)

    def function(u, flags, test):
        test(u, out=flags.component(1))
        flags.component(2)[...] = test(u)
        flags.component(0)[:, ::1] = False

    for test in (np.isnan, np.isinf, np.isfinite, np.signbit):
        expected = test(u.local.copy())
        for one in (function, pencils.fused(function)):
            flags.fill(1)
            one(u, flags, test)
            block = flags.local
            assert everywhere(comm, not block[0].any() and (block[1:] == expected).all())


def test_what_is_no_function_of_elements_is_refused(comm):
    u, v = fields(comm, float)
    all_raise(comm, TypeError, "modf", pencils.fused(lambda u, v: np.modf(u, out=(u, v))), u, v)
    for function in (np.sort, np.cumsum, np.diff, np.gradient, np.flip, np.histogram, np.unique):
        name = f"numpy.{function.__name__} cannot be fused"
        all_raise(comm, TypeError, name, pencils.fused(lambda u, f=function: f(u)), u)


def test_attributes_are_those_of_plain_fields(comm):
    def function(u, k):
        u.local = 2 * u.local
        u.local += k
        return u * len(u) + pencils.ones_like(u) * pencils.full_like(u, 3), copy.copy(u)

    fused = pencils.fused(function)
    one, other = (fields(comm, float)[0] for _ in range(2))
    for k in (1.5, 2.0):
        pairs = zip((*function(one, k), one), (*fused(other, k), other), strict=True)
        assert everywhere(comm, all(a.local.tobytes() == b.local.tobytes() for a, b in pairs))


def test_copies_have_ghosts_while_checks_are_on(comm):
    pen = pencils.Pencil((9, 11), periodic=True, comm=comm)
    u = pencils.from_function(pen, lambda i, j: i + 2.0 * j, halo=1)
    u.exchange_halo()

    def function(u):
        v, early = u.copy(), u.shift((0, 1)).sum()
        u[...] = 1
        return early, v.shift((1, 0)) + v.shift((0, -1)), u

    with pencils.debug.ghosts():
        found, expected = pencils.fused(function)(u.copy()), function(u.copy())
    pairs = zip(found[1:], expected[1:], strict=True)
    assert everywhere(comm, found[0] == expected[0])
    assert everywhere(comm, all(a.padded.tobytes() == b.padded.tobytes() for a, b in pairs))


PEN, TURNED = "u.pencil", "pencils.Pencil(u.shape, decomp=(1,), comm=u.pencil.topology.comm)"
REFUSED = {
    "pencils.gather(u)": "gather cannot be fused",
    "pencils.partition(u, u.pencil)": "partition cannot be fused",
    f"pencils.transpose(u, {TURNED})": "transpose cannot be fused",
    f"pencils.alias(u, {TURNED})": "alias cannot be fused",
    f"pencils.Transposition({PEN}, {TURNED})(u)": "Transposition.__call__ cannot be fused",
    "pencils.derivative(u, 0)": "derivative cannot be fused",
    "pencils.save('nowhere', {'u': u})": "save cannot be fused",
    "pencils.load('nowhere', u)": "load cannot be fused",
    "pencils.HaloExchange([u])": "HaloExchange cannot be fused",
    "pencils.localgrid(u, [range(9), range(11)])": "localgrid cannot be fused",
    "pencils.profile(u)": "profile cannot be fused",
    "pencils.testing.assert_allclose(u, u)": "assert_allclose cannot be fused",
    "pencils.functions.along(np.sort, u, 0)": "along cannot be fused",
    "pencils.functions.own_points(u > 0)": "own_points cannot be fused",
    "pencils.PencilArray(u.pencil, u)": "PencilArray cannot be fused",
    "pencils.PencilArray.from_distarray(u.pencil, u)": "from_distarray cannot be fused",
    **{
        f"u.{name}": f"{name.partition('(')[0]} of a field cannot be fused"
        for name in (
            *("item(0, 0)", "replicate()", "take_points(([0], [0]))", "interior", "shells", "T"),
            *("start_halo_exchange()", "accumulate_halo()", "sort()", "cumsum(0)", "whole(0)"),
        )
    },
    "w.__setitem__(..., u)": "pass it as an argument",
    "w.__setitem__(u > 0, 1)": "pass it as an argument",
    "w.sum(where=u > 0)": "pass it as an argument",
    "w.vdot(u)": "pass it as an argument",
    "w.__iadd__(u)": "pass it as an argument",
    "np.add(u, u, out=w)": "must be a field that is an argument",
    "np.copyto(w, u)": "cannot be fused",
    "u @ u": "numpy.matmul cannot be fused",
    "np.asarray(u.local)": "write u instead of u.local",
    "u.local.__setitem__(..., 1)": "write u[...] = values",
    "setattr(u, 'local', u.pencil)": "",
    "u.sum() + 1": "has no value until the function returns",
    "np.vdot(u, np.ones(u.shape)) if u.max() else u": "has no value until the function returns",
    "float(u)": "does not convert to a number",
    "max(u, u)": "choose with numpy.where",
}


@pytest.mark.parametrize("line", REFUSED)
def test_library_functions_of_traced_fields_are_refused(comm, line):
    u, w = fields(comm, float)
    before = w.padded.copy()

    def function(u):
        return eval(line, {"np": np, "pencils": pencils, "u": u, "w": w})

    all_raise(comm, TypeError, REFUSED[line], pencils.fused(function), u)
    assert everywhere(comm, w.padded.tobytes() == before.tobytes())


def test_public_functions_are_refused_or_recorded(comm):
    """No public name lets a traced field through to something unclear."""
    u, _ = fields(comm, float)
    texts = []
    for name in pencils.__all__:
        public = getattr(pencils, name)
        if not callable(public) or name in {"fused", "simulate", "Pencil", "tune", "plan"}:
            continue
        try:
            pencils.fused(lambda u, call=public: call(u) and None)(u)
        except (TypeError, ArgumentError) as error:
            texts.append(str(error))
    assert len(texts) > 10
    assert not any("object has no attribute" in text for text in texts)
