"""Loops in C: each function of each type against NumPy, bit by bit, warnings included."""

import shutil
import warnings
from functools import partial

import numpy as np
import pytest

from pencils.comm import pack
from pencils.comm.c_loops import FUNCTIONS, with_loops
from pencils.comm.row_builder import RowBuilder, loop_of
from pencils.comm.row_program import RowProgram

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or pack.compiled() is None, reason="needs a C compiler and kernels"
)
TYPES = "?bBhHiIlLqQfdFD"


def numbers(dtype, seed, shape=(7, 131)):
    """Return random numbers, and those at which functions are special."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "c":
        parts = [numbers(f"f{dtype.itemsize // 2}", seed + 10 * i, shape) for i in range(2)]
        return np.stack(parts, -1).view(dtype)[..., 0]
    if dtype.kind == "f":
        info, found = np.finfo(dtype), rng.standard_normal(shape).astype(dtype) * 10
        special = [0, 0.5, 1, 1.5, 2.5, np.inf, info.max, info.tiny, info.smallest_subnormal]
        special += [np.nan] * (seed % 2)  # of two, any may be returned
    else:
        found = rng.integers(0, 2 if dtype.kind == "b" else 200, shape).astype(dtype)
        special = [0, 1] if dtype.kind == "b" else [0, 1, np.iinfo(dtype).min, np.iinfo(dtype).max]
    special = np.array(special, dtype)
    chosen = rng.choice(
        special if dtype.kind in {"b", "u"} else np.append(special, -special), shape
    )
    return np.where(rng.random(shape) < 0.5, chosen, found)


def observed(function):
    """Return the bytes of results, and warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [each.tobytes() for each in function()]
    return found, {str(each.message) for each in caught}


def compiled(shape, views, make):
    """Return a program that stores what is made of views, one pass in C, and its results."""
    rows = RowBuilder(shape)
    values = [rows.leaf(rows.array(view), view) for view in views]
    outs = []
    for value in make(rows, values):
        outs.append(np.zeros(shape, rows.dtypes[value]))
        rows.store(value, rows.leaf(rows.array(outs[-1]), outs[-1]))
    return RowProgram(rows, partial(with_loops, compiler="cc")), outs


def applied(rows, ufunc, values):
    """Add a ufunc to a program."""
    *_, dtype = (kinds := loop_of(ufunc, tuple(rows.dtypes[value] for value in values)))[0]
    return rows.apply(ufunc, kinds[1], dtype, values)


# Rows without gaps of each type; with gaps, and of one element, of one or two types of each kind.
PARTS = [(np.s_[:, :], TYPES), (np.s_[:, ::2], "?bHiQfD"), (np.s_[:, :1], "?BhldF")]


@pytest.mark.parametrize(
    ("dtype", "part"), [(dtype, part) for part, types in PARTS for dtype in types]
)
def test_functions_are_those_of_numpy(dtype, part):
    x, y = (numbers(dtype, seed)[part] for seed in (1, 2))
    chosen = numbers("?", 3)[: x.shape[0], : x.shape[1]]
    kind = np.dtype(dtype).kind
    functions = [function for function, of in FUNCTIONS if of == kind]
    kinds = [k for k in TYPES if np.can_cast(dtype, k)] + ["?", *"fF" * (kind in "fc")]
    kinds = [k for k in kinds if kind != "c" or k in "?FD"]
    shape = x.shape

    def make(rows, values):
        one, other, mask = values
        found = [applied(rows, each, [one, other][: each.nin]) for each in functions]
        found += [rows.cast(found[0], np.dtype(k)) for k in kinds]
        return [*found, rows.where(mask, one, other), rows.where(mask, found[0], found[0])]

    program, outs = compiled(shape, [x, y, chosen], make)
    assert program.loops == 2 if kind in "fc" else program.loops == 1

    def by_numpy():
        found = [each(*[x, y][: each.nin]) for each in functions]
        found += [found[0].astype(k) for k in kinds]
        return [*found, np.where(chosen, x, y), found[0]]

    def by_program():
        program.run((x, y, chosen, *outs))
        return outs

    assert observed(by_program) == observed(by_numpy)


def test_many_operands_need_several_loops():
    views = [numbers("d", 2 * seed) for seed in range(80)]

    def make(rows, values):
        total = values[0]
        for one in values[1:]:
            total = applied(rows, np.add, [total, applied(rows, np.square, [one])])
        return [total, applied(rows, np.negative, [total])]

    program, outs = compiled(views[0].shape, views, make)
    assert program.loops > 1
    assert "compiled loops" in str(program)
    expected = views[0]
    with np.errstate(all="ignore"):
        for one in views[1:]:
            expected = expected + one * one
        program.run((*views, *outs))
    np.testing.assert_array_equal(outs[0], expected)
    np.testing.assert_array_equal(outs[1], -expected)


def test_loops_take_values_of_rows_and_views_in_other_orders():
    u, row, column = numbers("d", 2, (9, 12)), numbers("d", 4, (12,)), numbers("d", 6, (9, 1))
    views = [u, np.broadcast_to(row, u.shape), np.broadcast_to(column, u.shape), u[::-1, ::-1]]

    def make(rows, values):
        one, other = (applied(rows, np.add, values[i : i + 2]) for i in (0, 2))
        return [applied(rows, np.subtract, [one, other])]

    program, (out,) = compiled(u.shape, views, make)
    assert program.loops == 1
    with np.errstate(all="ignore"):
        program.run((*views, out))
        np.testing.assert_array_equal(out, u + row - (column + u[::-1, ::-1]))
