"""Every function of NumPy is in the tables of docs/numpy.md, and those that work are called.

``python tests/functions/test_every_function.py`` writes the tables.
"""

import operator
import re
from pathlib import Path

import numpy as np
import pytest
from fields import draw, lay, spread
from mpi_helpers import everywhere
from numpy.testing.overrides import get_overridable_numpy_array_functions

import pencils
from pencils.array import numpy_api
from pencils.functions import FUNCTIONS, refused

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

PAGE = Path(__file__).parents[2] / "docs" / "numpy.md"
HEADING = "## Every function\n"
ARRAYS = get_overridable_numpy_array_functions()
KNOWN = numpy_api.ELEMENTWISE.keys() | numpy_api.REDUCTIONS.keys() | FUNCTIONS.keys()
KNOWN |= numpy_api._FUNCTIONS.keys()
# What is refused, but has a meaning; all others have none.
MEANING = set(
    """block convolve corrcoef correlate cov diag diagonal geomspace insert kron fill_diagonal
outer pad partition argpartition put put_along_axis real_if_close repeat rot90 take take_along_axis
tile unique_all unique_inverse unwrap linalg.lstsq linalg.multi_dot linalg.outer
linalg.tensorsolve""".split()  # noqa: SIM905
)


def names():
    """List the public functions of NumPy that take arrays, and whether they work."""
    for prefix, module in (("", np), ("linalg.", np.linalg)):
        for name in sorted({*module.__all__} - {"row_stack", "in1d", "trapz"}):
            function = getattr(module, name)
            if isinstance(function, np.ufunc):
                yield prefix + name, function.signature is None or function in KNOWN
            elif callable(function) and function in ARRAYS:
                yield prefix + name, function in KNOWN


def rows():
    """List pairs of names and what is said about them, in three tables."""
    works, meaning, none = {}, {}, {}
    for name, good in names():
        function = operator.attrgetter(name)(np)
        if good:
            kind = getattr(function, "__module__", None) or ""
            if isinstance(function, np.ufunc) and function.signature is None:
                kind = "elementwise ufuncs"
            elif function in FUNCTIONS:
                replacement = getattr(FUNCTIONS[function], "func", FUNCTIONS[function])
                kind = replacement.__module__.rpartition(".")[2].replace("_", " ")
            else:
                kind = "reductions" if function in numpy_api.REDUCTIONS else "elementwise, facts"
            works.setdefault(kind, []).append(name)
        else:
            text = refused.explain_function(f"numpy.{name}").partition(": ")[2]
            (meaning if name in MEANING else none).setdefault(text, []).append(name)
    return works, meaning, none


def page():
    """Write the section of the page."""
    works, meaning, none = rows()
    count = [sum(map(len, table.values())) for table in (works, meaning, none)]
    total = (
        f"Of {sum(count)} public functions of `numpy` and `numpy.linalg` that take arrays, fields "
        f"have {count[0]}; {count[1]} others have a meaning for fields, but are written otherwise; "
        f"{count[2]} mean nothing for a field. For `linalg` and products, the first two component "
        "axes are those of a matrix at each point, the only one that of a vector; all of `linalg` "
        "but products and norms is collective, since ranks agree whether it raises."
    )
    parts = [
        HEADING.strip(),
        total,
        "These work:",
        table("kind", works),
        "These have a meaning, and raise an error that says what to write:",
        table("write instead", meaning),
        "These mean nothing for a field, or make arrays of something else:",
        table("write instead", none),
    ]
    return "\n\n".join(parts) + "\n"


def table(title, content):
    lines = [f"| {text} | `{' '.join(listed)}` |" for text, listed in content.items()]
    return "\n".join([f"| {title} | functions |", "| --- | --- |", *lines])


def listed(text):
    """Return the names in each of the three tables, those that the installed NumPy has."""
    known = {name for name, _ in names()}
    for part in re.split(r"\| -+ \| -+ \|", text.partition(HEADING)[2])[1:]:
        cells = re.findall(r"`([^`]*)` +\|$", part, re.MULTILINE)
        yield known.intersection(*[" ".join(cells).split()])


def test_the_page_lists_every_function():
    expected = [{name for each in content.values() for name in each} for content in rows()]
    assert list(listed(PAGE.read_text())) == expected
    works, meaning, _ = expected
    assert len(works) >= 0.9 * (len(works) + len(meaning))
    assert meaning | works >= MEANING


def each(words, code):
    return dict.fromkeys(words.split(), code)


# Calls that differ from ``np.name(u)`` or, of two operands, ``np.name(u, v)``: letters are fields,
# and arrays for NumPy. `u`, `v` are floats, `i`, `j` small integers, `b` booleans, `t`
# times, `w` vectors, `m` matrices, `s` a field on a line, `o` zeros.
CALLS = {
    **each("arccosh acosh", "np.{}(1 + np.abs(u))"),
    **each("sqrt log log2 log10 log1p", "np.{}(np.abs(u))"),
    **each("arcsin arccos arctanh asin acos atanh", "np.{}(np.sin(u))"),
    **each("invert bitwise_invert bitwise_not bitwise_count", "np.{}(i)"),
    **each("gcd lcm", "np.{}(i, j)"),
    **each("bitwise_and bitwise_or bitwise_xor", "np.{}(i, j)"),
    **each("left_shift right_shift bitwise_left_shift bitwise_right_shift", "np.{}(i, j)"),
    **each("float_power pow power", "np.{}(np.abs(u), v)"),
    "ldexp": "np.ldexp(u, i)",
    "isnat": "np.isnat(t)",
    "matmul": "np.matmul(m, m, axes=[(0, 1)] * 3)",
    "linalg.matmul": "np.linalg.matmul(m, m)",
    "atleast_3d": "np.atleast_3d(m)",
    "dot": "np.dot(s, s)",
    "inner": "np.inner(s, s)",
    "ediff1d": "np.ediff1d(s)",
    "broadcast_arrays": "np.broadcast_arrays(u, w)",
    "broadcast_to": "np.broadcast_to(u, (3, *u.shape))",
    "linspace": "np.linspace(u, v, 3)",
    "geomspace": "np.geomspace(1 + np.abs(u), 2 + np.abs(v), 3)",
    **each("partition argpartition", "np.{}(w, 1, 0)"),
    "take_along_axis": "np.take_along_axis(w, np.argsort(w, 0), 0)",
    "block": "np.block([[u[None] if isinstance(u, np.ndarray) else np.expand_dims(u, 0)], [w]])"
    " if u.ndim < 2 else np.block([[u, v], [v, u]])",
    "real_if_close": "np.real_if_close(u + 0j)",
    "logspace": "np.logspace(u, v, 3)",
    "delete": "np.delete(x, 1, 0)",
    "putmask": "(np.putmask(o, b, v), o)[1]",
    "place": "(np.place(o, b, [3.0]), o)[1]",
    "can_cast": "np.can_cast(u if hasattr(u, 'pencil') else u.dtype, 'f4')",
    "min_scalar_type": "np.min_scalar_type(u)",
    "unravel_index": "np.unravel_index(i, (2, 3))",
    "ravel_multi_index": "np.ravel_multi_index((i, j), (4, 5))",
    "is_busday": "np.is_busday(y)",
    "busday_count": "np.busday_count(y, y + 3)",
    "busday_offset": "np.busday_offset(y, 1, roll='forward')",
    "matvec": "np.matvec(m, w, axes=[(0, 1), 0, 0])",
    "vecmat": "np.vecmat(w, m, axes=[0, (0, 1), 0])",
    "vecdot": "np.vecdot(w, w, axis=0)",
    "linalg.vecdot": "np.linalg.vecdot(w, w, axis=0)",
    "cross": "np.cross(x, x + 1, axis=0)",
    "linalg.cross": "np.linalg.cross(x, x + 1, axis=0)",
    "linalg.norm": "np.linalg.norm(w, axis=0)",
    "linalg.vector_norm": "np.linalg.vector_norm(w, axis=0, ord=1)",
    "linalg.tensordot": "np.linalg.tensordot([[0, 1], [2, 3]], w, axes=1)",
    "tensordot": "np.tensordot([[0, 1], [2, 3]], w, axes=1)",
    "einsum": "np.einsum('ij...,j...->i...', m, w)",
    "linalg.solve": "np.linalg.solve(p, p + 1)",
    "linalg.multi_dot": "m @ p @ m if isinstance(m, np.ndarray) else "
    "np.linalg.multi_dot([m, p, m])",
    "linalg.outer": "np.einsum('i...,j...->ij...', w, x) if isinstance(w, np.ndarray) else "
    "np.linalg.outer(w, x)",
    "linalg.matrix_power": "np.linalg.matrix_power(p, 3)",
    "linalg.cholesky": "np.linalg.cholesky(p)",
    "trace": "np.trace(m)",
    **each("concat concatenate", "np.{}([w, w])"),
    **each("vstack stack", "np.{}([w, w])"),
    **each("hstack column_stack", "np.{}([m, m])"),
    "dstack": "np.dstack([q, q])",
    "append": "np.append(w, w, 0)",
    "unstack": "np.unstack(w)",
    **each("split array_split vsplit", "np.{}(w, 2)"),
    "hsplit": "np.hsplit(m, [1])",
    "dsplit": "np.dsplit(u if u.ndim > 2 else m, [1])",
    **each("transpose permute_dims", "np.{}(m, (1, 0, *range(2, m.ndim)))"),
    "swapaxes": "np.swapaxes(m, 0, 1)",
    "moveaxis": "np.moveaxis(m, 0, 1)",
    "rollaxis": "np.rollaxis(m, 1)",
    "expand_dims": "np.expand_dims(w, (0, 2))",
    "squeeze": "np.squeeze(w[:1], 0)",
    "apply_over_axes": "np.apply_over_axes(np.sum, w, (0, 1))",
    "apply_along_axis": "np.apply_along_axis(np.cumsum, 0, w)",
    **each("sort argsort", "np.{}(w, 0)"),
    "average": "np.average(u, weights=np.abs(v))",
    "bincount": "np.bincount(s)",
    "choose": "np.choose(i, [u, v, 3.0, u])",
    "clip": "np.clip(u, -1, v)",
    "copyto": "(np.copyto(o, u), o)[1]",
    "where": "np.where(b, u, v)",
    "select": "np.select([b, u > 1], [u, v])",
    "piecewise": "np.piecewise(u, [b], [1.0, 2.0])",
    "polyval": "np.polyval([1.0, 2.0], u)",
    "interp": "np.interp(u, [-1.0, 0.0, 2.0], [3.0, 1.0, 4.0])",
    "searchsorted": "np.searchsorted([-1.0, 0.5], u)",
    "digitize": "np.digitize(u, [-1.0, 0.5])",
    "isin": "np.isin(i, [1, 2])",
    "astype": "np.astype(u, complex)",
    "full_like": "np.full_like(u, 3)",
    "empty_like": "np.empty_like(u).shape",
    "result_type": "np.result_type(u, i)",
    **each("cumsum cumprod nancumsum nancumprod", "np.{}(u, 0)"),
    **each("cumulative_sum cumulative_prod", "np.{}(u, axis=0)"),
    **each("diff trapezoid", "np.{}(u, axis=0)"),
    **each("quantile nanquantile percentile nanpercentile", "np.{}(u, 0.3)"),
    **each("fliplr tril triu", "np.{}(u if u.ndim > 1 else w)"),
    "roll": "np.roll(u, 2, 0)",
    **each("histogram2d", "np.{}(s, s * s)"),
    "histogramdd": "np.histogramdd([s, s * s], 3)",
    **each("union1d intersect1d setdiff1d setxor1d", "np.{}(i, j + 1)"),
    "pad": "np.pad(u, 1)",
    "tile": "np.tile(u, 2)",
    "repeat": "np.repeat(u, 2, 0)",
    "take": "np.take(w, [1, 0], 0)",
    "unwrap": "np.unwrap(w, axis=0)",
}
NORMAL = {"allclose", "array_equal", "array_equiv", "isclose", "vdot"}


def call_of(name):
    """Return the code that calls a function."""
    function = operator.attrgetter(name)(np)
    two = name in NORMAL or getattr(function, "nin", 1) == 2
    if name.startswith("linalg."):
        return CALLS.get(name, "np.{}(m)").format(name)
    return CALLS.get(name, "np.{}(u, v)" if two else "np.{}(u)").format(name)


def data_of(shape):
    """Make the arrays of all operands."""
    square = draw((2, 2, *shape), seed=3)
    given = {"u": draw(shape), "v": draw(shape, seed=1), "b": draw(shape, bool)}
    given |= {"i": draw(shape, int) % 4, "j": draw(shape, int, seed=2) % 5, "o": np.zeros(shape)}
    given |= {"t": draw(shape, int).astype("M8[s]"), "w": draw((2, *shape)), "m": square}
    given |= {"p": np.einsum("ij...,kj...->ik...", square, square)}
    given |= {
        "y": given["t"].astype("M8[D]") + given["i"],
        "x": draw((3, *shape)),
        "q": draw((2, 2, 2, *shape)),
    }
    given["p"] = given["p"] + 3 * np.eye(2).reshape(2, 2, *[1] * len(shape))
    return given


def turned(a):
    return np.moveaxis(a, (0, 1), (-2, -1)) if a.ndim > 1 else a


def expected_of(name, code, arrays):
    """Call NumPy on global arrays: its own matrices are in the last axes."""
    points = arrays["u"].ndim
    per_point = name.startswith("linalg.") and re.search(r"\((m|p)\b", code) and "axes" not in code
    if not per_point:
        return eval(code, arrays | {"np": np})
    last = {each: turned(arrays[each]) for each in "mp"}
    found = eval(code, arrays | last | {"np": np})
    parts = found if isinstance(found, tuple) else (found,)
    back = [np.moveaxis(a, range(points, a.ndim), range(a.ndim - points)) for a in parts]
    return tuple(back) if isinstance(found, tuple) else back[0]


def alike(found, expected):
    if isinstance(found, list | tuple):
        return len(found) == len(expected) and all(map(alike, found, expected))
    if isinstance(found, pencils.PencilArray):
        expected = np.asarray(expected)
        if found.dtype != expected.dtype:
            return False
        found, expected = found.local, expected.reshape(found.shape)[found.local_slices]
    if np.asarray(found).dtype.kind in "fc":
        return np.allclose(found, expected, rtol=1e-10, atol=1e-12, equal_nan=True)
    return np.array_equal(found, expected)


@pytest.mark.parametrize("layout", ["line", "plane", "blocks"])
def test_every_function_that_works_does_what_numpy_does(comm, layout):
    pencil, line = lay(comm, layout), lay(comm, "line")
    arrays = data_of(pencil.shape)
    fields = {name: spread(pencil, array) for name, array in arrays.items()}
    ints = np.array([3, 0, 1, 1, 2, 5, 3])
    arrays["s"], fields["s"] = ints, spread(line, ints)
    wrong = []
    for name, good in names():
        if good:
            code = call_of(name)
            with np.errstate(all="ignore"):
                expected = expected_of(name, code, dict(arrays))
                try:
                    found = eval(code, fields | {"np": np})
                except Exception as error:
                    error.add_note(f"in {code}")
                    raise
            if not alike(found, expected):
                wrong.append(code)
    assert everywhere(comm, not wrong), wrong


if __name__ == "__main__":
    before = PAGE.read_text().partition(HEADING)[0].rstrip()
    PAGE.write_text(f"{before}\n\n{page()}")
