"""Code in the texts of errors is executed, and does what the text says, compared with NumPy."""

import ast
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from fields import draw, spread
from mpi_helpers import everywhere

import pencils
from pencils.errors import PencilsError

PENCILS = Path(pencils.__file__).parent
# Folders whose texts are about programs, ranks and command lines.
OTHERS = {"__main__", "command_line", "demo", "mypy_plugin", "planning", "plot", "run"}
# Where code begins.
START = re.compile(
    r"""(?<![\w.'"/-])(?=\(*(CheckpointSeries|PencilArray|TimeSeries|a|b|block|edges|fft|gather|load|"""
    r"mask|np|numpy|partition|pencils|plan|repr|transpose|u|v|value|values|velocity|w|zeros)"
    r"(\b(?! )| = | [-+*/] ))"
)
END = re.compile(r"[\w)\]](?![\w(\[])")
LONGEST = 100


def code_in(text):
    """List the expressions and assignments in a text: the longest ones, from the left."""
    found, end = [], 0
    for start in (match.start() for match in START.finditer(text)):
        line = text[start : start + LONGEST].partition("\n")[0]
        parts = [line[: match.end()] for match in END.finditer(line) if start >= end]
        best = next(filter(is_code, reversed(parts)), "")
        if best:
            found.append(best)
            end = start + len(best)
    return found


def is_code(text):
    try:
        (statement,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        statement = None
    match statement:
        case ast.Assign(targets=[ast.Name() | ast.Subscript()], value=value):
            return not isinstance(value, ast.BoolOp | ast.Compare)  # or, in: words of the text
        case ast.Expr(ast.Attribute(ast.Name(owner))):
            return owner in {"u", "v", "value", "values"}
        case ast.Expr(ast.Call(ast.Name(), args, keywords)):
            return bool(args or keywords)  # transpose() is a name
        case ast.Expr(ast.Call() | ast.Subscript() | ast.BinOp()):
            return True
    return False


def test_code_is_found_in_texts():
    text = "write (u.shift((1, 0)) - u)[:-1] or u.local, w[:n] = u; transpose() and gather(u) too"
    assert code_in(text) == ["(u.shift((1, 0)) - u)[:-1]", "u.local", "w[:n] = u", "gather(u)"]
    assert code_in("a read-only field, and a field: pass out of float64") == []


# What code stands for, for NumPy: names in capitals are the global arrays of fields. After each
# line of a table every field must still equal its array. A pair completes a text that has `...`.
SPACE = {
    "numpy.choose(u, values)": (
        "numpy.choose(u > 0, [1.5, 2.5])",
        "numpy.choose(U > 0, [1.5, 2.5])",
    ),
    "a.filled(value)": "numpy.where(M, value, U)",
    "b.astype(complex)": "U.astype(complex)",
    "block = block.copy()": "None",
    "gather(u)": "U if rank == 0 else None",
    "np.add(u, v, out=u, where=mask)": "numpy.add(U, V, out=U, where=M)",
    "np.copyto(u, values, where=mask)": "numpy.copyto(U, values, where=M)",
    "np.stack([u])": "U[numpy.newaxis]",
    "numpy.abs(u)": "numpy.abs(U)",
    "numpy.add(u, value, out=u, where=mask)": "numpy.add(U, value, out=U, where=M)",
    "numpy.apply_along_axis(f, axis, u)": "numpy.ptp(U, axis, keepdims=True)",
    "numpy.argsort(u, axis)": "numpy.argsort(U, axis)",
    "numpy.array([3, 1])": "numpy.array([3, 1])",
    "numpy.concatenate([u, v], axis)": "numpy.concatenate([U, V], axis)",
    "numpy.copyto(u, values, where=mask)": "numpy.copyto(U, values, where=M)",
    "numpy.count_nonzero(mask)": "numpy.count_nonzero(M)",
    "numpy.cumprod(u, axis)": "numpy.cumprod(U, axis)",
    "numpy.cumsum(u, axis)": "numpy.cumsum(U, axis)",
    "numpy.diff(u, axis=axis)": "numpy.diff(U, axis=axis)",
    "numpy.empty(u.shape[-2:])": ("numpy.empty(u.shape[-2:]).shape", "U.shape[-2:]"),
    "numpy.flip(u, axis)": "numpy.flip(U, axis)",
    "numpy.gradient(u)": "tuple(numpy.gradient(U))",
    "numpy.histogram(u, bins, weights=weights)": "numpy.histogram(U, bins, weights=V)",
    "numpy.isin(u, values)": "numpy.isin(U, values)",
    "numpy.nonzero(u.local == value)": "numpy.nonzero(U[own] == value)",
    "numpy.partition(u, kth, axis)": "numpy.partition(U, kth, axis)",
    "numpy.polyval(p, u)": "numpy.polyval(p, U)",
    "numpy.quantile(u, q)": "numpy.quantile(U, q)",
    "numpy.repeat(u, n, axis)": "numpy.repeat(U, n, axis)",
    "numpy.roll(u, shift, axis)": "numpy.roll(U, shift, axis)",
    "numpy.searchsorted(edges, u)": "numpy.searchsorted(edges, U)",
    "numpy.sort(u, axis)": "numpy.sort(U, axis)",
    "numpy.sqrt(u.astype(complex))": "numpy.sqrt(U.astype(complex))",
    "numpy.stack([u, v])": "numpy.stack([U, V])",
    "numpy.trapezoid(u, axis=axis)": "numpy.trapezoid(U, axis=axis)[..., numpy.newaxis]",
    "numpy.unique(u)": "numpy.unique(U)",
    "numpy.unique(u, return_counts=True)": "tuple(numpy.unique(U, return_counts=True))",
    "numpy.vdot(u - u.mean(), v - v.mean()) / u.size": "((U - U.mean()) * (V - V.mean())).mean()",
    "numpy.vdot(u, v)": "numpy.vdot(U, V)",
    "numpy.where(mask, x, y)": "numpy.where(M, V, U)",
    "numpy.zeros_like(u)": "numpy.zeros_like(U)",
    "partition(..., copy=True)": ("partition(pencil, U, copy=True)", "U"),
    "PencilArray(u.pencil, u.local.view(dtype))": "numpy.ascontiguousarray(U).view(dtype)",
    "pencils.Pencil(shape)": ("pencils.Pencil(u.shape).shape", "U.shape"),
    "pencils.fft.PencilFFT(pencil)": ("pencils.fft.PencilFFT(pencil).free()", "None"),
    "pencils.fft.PencilFFT(pencil, dealias='3/2')": (
        "pencils.fft.PencilFFT(pencil, dealias='3/2').input_pencil.shape",
        "tuple(3 * n // 2 for n in U.shape)",
    ),
    "pencils.fft.PencilFFT(u.pencil)": ("pencils.fft.PencilFFT(u.pencil).free()", "None"),
    "pencils.full(pencil, value)": "numpy.full(U.shape, value)",
    "pencils.gather(u)": "U if rank == 0 else None",
    "pencils.gather(u, root=None)": "U",
    "pencils.gather(u, root=None).tolist()": "U.tolist()",
    "pencils.localgrid(pencil, axes)": (
        "list(pencils.localgrid(pencil, axes))",
        "numpy.ix_(*axes)",
    ),
    "pencils.functions.own_points(mask)": "own_points(M)",
    "pencils.functions.own_points(numpy.isin(u, values))": "own_points(numpy.isin(U, values))",
    "pencils.partition(pencil, data)": "V",
    "pencils.partition(u.pencil, data)": ("pencils.partition(u.pencil, V)", "V"),
    "pencils.progress()": "None",
    "pencils.testing.assert_allclose(u, v)": (
        "pencils.testing.assert_allclose(u, u.copy())",
        "None",
    ),
    "pencils.transpose(u, pencil)": ("pencils.transpose(u, pencil.with_(decomp=2))", "U"),
    "pencils.zeros(pencil)": "numpy.zeros(U.shape)",
    "pencils.zeros(u.pencil)": "numpy.zeros(U.shape)",
    "plan = pencils.fft.PencilFFT(pencil)": ("pencils.fft.PencilFFT(pencil).free()", "None"),
    "repr(u)": ("'PencilArray' in repr(u)", "True"),
    "u * v": "U * V",
    "u + pencils.zeros(pencil)": "U",
    "u = u * v": "U = U * V",
    "u.all()": "U.all()",
    "u.any()": "U.any()",
    "u.astype(complex)": "U.astype(complex)",
    "u.astype(dtype)": "U.astype(dtype)",
    "u.astype(float)": "U",
    "u.copy()": "U",
    "u.dtype": "U.dtype",
    "u.exchange_halo()": "None",
    "u.imag": "U.imag",
    "u.item()": ("u[2, 3, 1].item()", "U[2, 3, 1]"),
    "u.local": "U[own]",
    "u.local_slices": "own",
    "u.local.tobytes()": "numpy.ascontiguousarray(U[own]).tobytes()",
    "u.local.tolist()": "U[own].tolist()",
    "u.local[mask.local]": "U[own][M[own]]",
    "u.norm(ord)": "numpy.linalg.norm(U.ravel(), ord)",
    "u.padded": ("u.padded[1:-1, 1:-1, 1:-1]", "U[own]"),
    "u.put_points(index, values)": "U[index] = values",
    "u.put_points(index, values, reduce=pencils.indexer.ReduceOp.SUM)": (
        "numpy.add.at(U, index, size * values)"
    ),
    "u.real": "U.real",
    "u.shape": "U.shape",
    "u.sum(where=mask)": "U.sum(where=M)",
    "u.take_points(index)": "U[index]",
    "u.whole(axis)": "U",
    "u[...]": "U",
    "u[...] = values": "U[...] = values",
    "u[1:-1] = values": "U[1:-1] = values",
    "u[1:-1]": "U[1:-1]",
    "u[:n].sum(axis=0)": "U[:n].sum(axis=0, keepdims=True)",
    "u[mask] = 0": "U[M] = 0",
    "u[mask] = value": "U[M] = value",
    "u[n:].sum(axis=0)": "U[n:].sum(axis=0, keepdims=True)",
    "u[v > 0] = value": "U[V > 0] = value",
    "v[...] = u": "V[...] = U",
    "value.real": "value",
    "zeros(pencil, halo=1)": "numpy.zeros(U.shape)",
    "zeros(pencil, shared=True)": "numpy.zeros(U.shape)",
}
VECTORS = {
    "numpy.einsum('i...,i...->...', u, v)": "(U * V).sum(0)",
    "numpy.stack([u[0], u[2]])": "U[[0, 2]]",
    "u.unstack()": "list(U)",
    "u[[0, 2], ...]": "U[[0, 2]]",
    "velocity.unstack()": "list(U)",
}
TENSORS = {
    "numpy.swapaxes(u, 0, 1)": "numpy.swapaxes(U, 0, 1)",
    "numpy.squeeze(u, 0)": ("numpy.squeeze(u[:1], 0)", "numpy.squeeze(U[:1], 0)"),
    "numpy.trace(u)": "numpy.trace(U)",
    "numpy.linalg.solve(u, v)": (
        "numpy.einsum('ij...,jk...->ik...', u, numpy.linalg.solve(u, v))",
        "V",
    ),
    "numpy.linalg.pinv(u) @ v": (
        "numpy.einsum('ij...,jk...->ik...', u, numpy.linalg.pinv(u) @ v)",
        "V",
    ),
    "numpy.einsum('ii...->i...', u)": "numpy.einsum('ii...->i...', U)",
    "numpy.einsum('ij...,j...->i...', a, u)": (
        "numpy.einsum('ij...,j...->i...', u, w)",
        "numpy.einsum('ij...,j...->i...', U, W)",
    ),
    "numpy.moveaxis(u.local, (0, 1), (-2, -1))": "numpy.moveaxis(U[own], (0, 1), (-2, -1))",
}
LINES = {
    "numpy.sort(pencils.gather(a, root=None))": "numpy.sort(U)",
    "pencils.gather(bins, root=None)": "U",
    "pencils.gather(p, root=None)": "U",
}
PLANES = {
    "u.shift((1, 0)) - u": (
        "(u.exchange_halo(), u.shift((1, 0)) - u)[1]",
        "numpy.roll(U, -1, 0) - U",
    ),
    "u.take_points((i, i))": "numpy.diagonal(U)",
}
RECORDS = {"u.local[name][...] = values": "U[name][...] = values"}
FILES = {
    'pencils.save("u.h5", {"u": u})': ('pencils.save("u.h5", {"u": u}) or read("u.h5")', "U"),
    "pencils.open(path, 'r+')": ("pencils.open(path, 'r+').close()", "None"),
    "load(path, names='u', into=u)": ("load(path, names='u', into=u)['u']", "U"),
    "load(..., verify=False)": ("load(path, pencil, verify=False)['u']", "U"),
    "TimeSeries(path, mode='w')": (
        "TimeSeries(path, mode='w').append(0.0, {'u': u}) or len(TimeSeries(path))",
        "1",
    ),
    "CheckpointSeries(directory, mode='w')": ("CheckpointSeries(directory, mode='w').steps", "[]"),
}
# Code that is not to be executed here.
ELSEWHERE = {
    "pencils.recovery.recover(program)": "tests/recovery",
    "pencils.simulate()": "a name",
    "u.shift()": "a name",
    "u.astype()": "a name, in a text about PETSc",
    "PencilArray(pencil, values.T)": "needs PETSc",
    "pencils.derivative(u, axis)": "tests/lines",
    "pencils.plot.plot_slice(u)": "tests/plot",
    "plan.backward(waves)": "tests/fft",
    "plan.forward(u)": "tests/fft",
    "plan.free()": "tests/fft",
    "plan.output_pencil.whole(axis)": "tests/fft",
    "plan.wavenumbers()": "tests/fft",
    "u.accumulate_halo()": "tests/halo",
    "np.number[Any]": "a type",
    "numpy.take(x, indices, axis)": "tests/graph",
    "u.pencil": "part of a longer text",
    "pencils[0]": "an argument that is given",
    "numpy.where(mask, values, others)": "tests/graph/test_fused.py",
    "v = u.copy()": "tests/graph/test_fused.py",
    "v[...]": "tests/graph/test_fused.py",
    "u[...] = 0 * u + data": "tests/graph/test_fused.py",
}
TABLES = {
    "space": SPACE,
    "vectors": VECTORS,
    "tensors": TENSORS,
    "lines": LINES,
    "planes": PLANES,
    "records": RECORDS,
    "files": FILES,
}
SHAPES = {"lines": (9,), "planes": (7, 7)}
COMPONENTS = {"vectors": (3,), "tensors": (3, 3)}


def names_of(table, comm):
    """Make the fields and arrays of a table, and other names that texts use."""
    pencil = pencils.Pencil(SHAPES.get(table, (6, 5, 4)), comm, periodic=True)
    shape = COMPONENTS.get(table, ()) + pencil.shape
    kind = np.dtype([("mass", "f8"), ("id", "i4")]) if table == "records" else float
    given = draw(shape).round(1).astype(kind), draw(shape, seed=1).astype(kind)
    fields = [spread(pencil, each, halo=1) for each in given]
    names = {name: getattr(pencils, name) for name in pencils.__all__}
    names |= {"numpy": np, "np": np, "pencils": pencils, "pencil": pencil}
    names |= dict(zip("uv", fields, strict=True)) | dict(zip("UV", given, strict=True))
    names |= {"rank": comm.rank, "size": comm.size, "own": fields[0].local_slices}
    u, v, whole = *fields, given[0]
    wide = pencils.Pencil((9, *pencil.shape[1:]), comm) if table == "space" else pencil
    inner = shape[1:] if table == "tensors" else wide.shape
    names |= {"w": spread(wide, draw(inner, seed=2)), "W": draw(inner, seed=2)}
    names |= {"a": u, "b": u, "x": v, "y": u, "bins": u, "p": u, "velocity": u, "data": given[1]}
    if table == "space":
        u.exchange_halo()
        names |= {"mask": u > 0, "M": whole > 0, "weights": v, "block": u.local, "f": np.ptp}
        names |= {"a": np.ma.array(whole, mask=whole > 0), "p": [1.0, 2.0, 3.0], "bins": 5}
        names["own_points"] = lambda mask: own_points(mask, u.local_slices)
        names |= {"axes": [np.arange(float(n)) for n in pencil.shape], "edges": [-1.0, 0.5, 2.0]}
        names["index"] = ([0, 1, 5, 2], [4, 3, 0, 1], [0, 0, 3, 2])
        names["values"] = draw((4,), seed=3)
    names |= {"axis": 2, "n": 6, "q": 0.3, "kth": 1, "ord": 1, "shift": 1, "mode": "edge"}
    names |= {"offsets": (1, 0, 0), "weight": 3.0, "dtype": np.dtype("i8"), "value": 2.5}
    names |= {"i": np.arange(7), "name": "mass"} | ({"values": 3.0} if table == "records" else {})
    return names


def own_points(mask, slices):
    """Global indices of the own points of a mask."""
    own = np.zeros_like(mask)
    own[slices] = mask[slices]
    return np.argwhere(own)


def run(code, names):
    """Execute lines; return the value of an expression."""
    if [type(line) for line in ast.parse(code).body] == [ast.Expr]:
        return eval(code, names)
    return exec(code, names)


def equal(found, expected):
    """Whether a result is that of NumPy; blocks of fields are parts of global arrays."""
    if isinstance(found, pencils.PencilArray):
        return found.shape == np.shape(expected) and equal(
            found.local, np.asarray(expected)[found.local_slices]
        )
    if isinstance(found, list | tuple) and not isinstance(expected, np.ndarray):
        return len(found) == len(expected) and all(map(equal, found, expected))
    if isinstance(found, float | np.ndarray | np.generic) and np.asarray(found).dtype.names is None:
        return np.shape(found) == np.shape(expected) and np.allclose(found, expected, rtol=1e-12)
    return np.array_equal(found, expected)


def check(code, expected, names, comm):
    """Execute a line and what it stands for, and compare the results, and all fields."""
    code, expected = expected if isinstance(expected, tuple) else (code, expected)
    found, wanted = run(code, names), run(expected, names)
    alike = wanted is None or found is None or equal(found, wanted)
    fields = all(equal(names[low], names[low.upper()]) for low in "uvw")
    assert everywhere(comm, alike and fields), (code, found, wanted)


@pytest.mark.parallel([1, 2, 3, 4, 6])
@pytest.mark.parametrize("table", TABLES)
def test_code_in_texts_does_what_it_stands_for(table, comm, mpi_tmp_path, monkeypatch):
    monkeypatch.chdir(mpi_tmp_path)
    every = names_of(table, comm) | {"path": "u.h5", "directory": "steps", "read": read}
    for code, expected in TABLES[table].items():
        check(code, expected, every | {name: every[name].copy() for name in "uvwUVW"}, comm)


def read(path):
    with h5py.File(path) as file:
        return file["u"][...]


# Errors whose texts are computed from the case, by table: what raises, and what code stands for,
# that of the text and further one.
CASES = {
    "planes": {
        "u[:, 1:] - u[:, :-1]": {
            "(u.shift((0, 1)) - u)[:, :-1]": "U[:, 1:] - U[:, :-1]",
            "pencils.transpose(u[:, :-1], u[:, 1:].pencil)": "U[:, :-1]",
        },
        "u[3] - u[2]": {"u[2].replicate()": "U[2:3]"},
        "u - u[:, 3]": {
            "u[:, 3].replicate()": "U[:, 3:4]",
            "u - u[:, 3].replicate()": "U - U[:, 3:4]",
        },
        "u[1:] - u": {"u[1:]": "U[1:]"},
        "u - v[:, 2:5]": {"u[:, 2:-2]": "U[:, 2:5]"},
        "u % v": {"pencils.transpose(v, u.pencil)": "V"},
        "u + v": {"v.shift((0, 0), onto=u.pencil)": "V[:6]"},
        "u.item()": {"u[0, 0].item()": "U[0, 0]"},
        "float(u)": {"u.item(0, 0)": "U[0, 0]"},
        "u[:, 1:-1].shift((0, 1))": {"u.shift((0, 1))[:, 1:-1]": "numpy.roll(U, -1, 1)[:, 1:-1]"},
        "u[::-1]": {"np.flip(u, 0)": "U[::-1]"},
        "pencils.exchange_halo(u)": {"u.exchange_halo()": "None"},
    },
    "space": {
        "u[:-1, 3] * u[1:, 3]": {
            "(u.shift((-1, 0, 0)) - u)[1:, 3]": "U[:-1, 3:4] - U[1:, 3:4]",
            "pencils.transpose(u[1:, 3], u[:-1, 3].pencil)": "U[1:, 3:4]",
        },
        "u * v": {"fft.backward(v)": "U"},
        "u[...] = values": {"values.T": "values.T", "u[...] = values.T": "U = U"},
        "u * values": {
            "values[:, numpy.newaxis, numpy.newaxis]": "values.reshape(6, 1, 1)",
            "u * values[:, numpy.newaxis, numpy.newaxis]": "U * U[:, :1, :1]",
        },
        "u[0] = value": {
            "value.real": "1.0",
            "u[0] = value.real": "U[0] = 1.0",
            "u.astype(complex)": "U.astype(complex)",
        },
    },
    "vectors": {
        "u[:, 1::2, 2:] / v[:, :-1:2, 1:-1]": {
            "(u.shift((1, 1, 0)) - v)[..., ::2, 1:-1, :]": "U[:, 1::2, 2:] - V[:, :-1:2, 1:-1]",
            "pencils.transpose(v[..., ::2, 1:-1, :], u[..., 1::2, 2:, :].pencil)": (
                "V[:, :-1:2, 1:-1]"
            ),
        },
    },
}
# What is done before.
BEFORE = {
    "u[1::2, 1::2] = v": "V = numpy.ones((3, 3)); v = spread(pencils.Pencil((3, 3), comm), V)",
    "u % v": "v = spread(pencil.with_(decomp=1), V)",
    "u + v": "U = V[:6]; u = spread(open_plane, U); v = spread(open_plane.staggered(0), V)",
    "u[:, 1:-1].shift((0, 1))": "u.exchange_halo()",
    "u * v": "U, u, fft = transformed(); v = fft.forward(u); V = numpy.fft.rfftn(U)",
    "u[...] = values": "values = U.T.copy()",
    "u * values": "values = U[:, 0, 0].copy()",
    "u[0] = value": "value = 1 + 2j",
}
ON_SEVERAL = {
    "u % v",
}


def transformed(comm):
    """Return global data, a field of them, and a plan for its transform."""
    pencil, data = pencils.Pencil((4, 5, 8), comm), draw((4, 5, 8))
    return data, spread(pencil, data), pencils.fft.PencilFFT(pencil)


@pytest.mark.parallel([1, 2, 3, 4, 6])
@pytest.mark.parametrize("table", CASES)
def test_code_is_computed_from_the_case(table, comm):
    for wrong, code in CASES[table].items():
        before = BEFORE.get(wrong, "")
        if wrong in ON_SEVERAL and comm.size == 1:
            continue
        names = names_of(table, comm) | {"spread": spread, "comm": comm}
        names |= {
            "open_plane": pencils.Pencil((6, 7), comm),
            "transformed": lambda: transformed(comm),
        }
        run(before, names)
        with pytest.raises((PencilsError, TypeError, AttributeError)) as caught:
            run(wrong, names)
        told = code_in(str(caught.value).partition("\n")[0])
        assert everywhere(comm, {"u.exchange_halo()", *code} >= set(told) and bool(told)), told
        if "u.exchange_halo()" in told:
            names["u"].exchange_halo()
        for line, expected in code.items():
            check(line, expected, names, comm)


def texts():
    """Yield the texts in the library, with a sign where values are inserted."""
    for path in PENCILS.rglob("*.py"):
        if not OTHERS & {part.removesuffix(".py") for part in path.relative_to(PENCILS).parts}:
            yield from texts_of(ast.parse(path.read_text()))


def texts_of(node):
    """Yield the texts below a node, without docstrings."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [each.value if isinstance(each, ast.Constant) else "\u2026" for each in node.values]
        yield "".join(parts)
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        for each in ast.iter_child_nodes(node):
            yield from texts_of(each)


def test_all_code_in_texts_is_executed():
    found = {code for text in texts() if " " in text for code in code_in(text)}
    known = {code for table in TABLES.values() for code in table} | ELSEWHERE.keys()
    known |= {code for cases in CASES.values() for codes in cases.values() for code in codes}
    assert len(found) > 100
    assert found - known == set()
    assert {code for table in TABLES.values() for code in table} - found == set()
