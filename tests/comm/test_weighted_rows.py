"""Weighted sums of neighbours in rows: what was compiled against sums of products by NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_line_program import DTYPES, random_numbers

from pencils.comm import pack
from pencils.comm.line_program import Column, prepare_weighted_rows


def assert_same_parts(found, expected):
    np.testing.assert_allclose(found.real, expected.real, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.imag, expected.imag, rtol=1e-5, atol=1e-5)


compiled = pytest.mark.parametrize("name", [each for each in pack.available() if each != "numpy"])


@compiled
@given(data=st.data(), seed=st.integers(0, 999))
def test_neighbours_in_rows_are_added(name, data, seed):
    """Elements whose neighbours are beyond the row, and some others, have sums of their own."""
    draw, rng = data.draw, np.random.default_rng(seed)
    dtype, factor = draw(st.sampled_from(DTYPES)), draw(st.sampled_from([1.0, 0.3]))
    points = draw(st.sampled_from([1, 2, 3, 5, 16, 127, 300, 3000]))
    rows = draw(st.sampled_from([(), (1,), (0,), (3, 2), (41,)]))
    source = random_numbers(rng, (*rows, points), dtype)
    target = np.full_like(source, 7)
    offset = st.integers(max(-2, 1 - points), min(2, points - 1))
    terms = [
        (draw(offset), rng.uniform(-1, 1)) for _ in range(draw(st.integers(1, 1 + points % 8)))
    ]
    beside = {number for number in (0, 1, points - 2, points - 1) if 0 <= number < points}
    expected = np.zeros(source.shape, "c16")
    for by, weight in terms:
        expected += weight * np.roll(source.astype("c16"), -by, -1)
    columns = []
    for number in sorted(beside):
        ends = random_numbers(rng, (*rows, 3), dtype)  # with gaps
        other = draw(st.integers(0, points - 1))
        columns.append(Column(number, [(ends[..., 1], 0.5), (source[..., other], -2.0)]))
        expected[..., number] = 0.5 * ends[..., 1] - 2.0 * source[..., other]
    with pack.using(name):
        before = pack.compiled().stream_from(draw(st.sampled_from([0, 8 << 20])))
        prepare_weighted_rows(target, source, terms, columns, factor)()
        pack.compiled().stream_from(before)
    tolerance = 1e-4 if dtype in ("f4", "c8") else 1e-12
    np.testing.assert_allclose(target, factor * expected, atol=tolerance, rtol=0)


@compiled
def test_differences_of_equal_neighbours_vanish(name):
    u, target = np.full((5, 30), 0.1), np.ones((5, 30))
    ends = [Column(0, [(u[:, 0], 0.0)]), Column(29, [(u[:, 29], 3.0), (u[:, 28], -3.0)])]
    with pack.using(name):
        prepare_weighted_rows(target, u, [(1, 1.0), (-1, -1.0)], ends, 1 / 0.3)()
    assert (target == 0).all()


@compiled
@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.filterwarnings("ignore:(invalid value|overflow):RuntimeWarning")
def test_a_complex_factor_makes_products_of_complex_numbers(name, dtype):
    u = random_numbers(np.random.default_rng(0), (5, 41), dtype)
    u[range(5), [0, 7, 20, 38, 40]] = [np.inf + 1j, 1j * np.nan, -np.inf, 1 + 1j * np.inf, np.nan]
    u[:, 30] = 1 + 0.6j * float(np.finfo(dtype).max)  # times 3 it overflows
    expected = np.roll(u, -1, 1) - u
    ends = [Column(40, [(u[:, 40], 1.0), (u[:, 39], -1.0)])]
    expected[:, 40] = u[:, 40] - u[:, 39]
    for factor in (3.0, 3.0 + 0j):
        target = np.empty_like(u)
        with pack.using(name):
            prepare_weighted_rows(target, u, [(1, 1.0), (0, -1.0)], ends, factor)()
        numbers = expected if isinstance(factor, complex) else expected.view(expected.real.dtype)
        assert_same_parts(target, (numbers * factor).view(dtype))


def test_rows_that_are_not_contiguous_are_left_to_others():
    u, out = np.ones((4, 8)), np.ones((4, 8))
    assert prepare_weighted_rows(out[:, ::2], u[:, ::2], [(0, 1.0)], []) is None
    assert prepare_weighted_rows(out.T, u.T, [(0, 1.0)], []) is None
    assert prepare_weighted_rows(out, u, [(0, 1.0)] * 9, []) is None
    assert prepare_weighted_rows(out, u, [(-8, 1.0)], []) is None
    assert prepare_weighted_rows(out, u, [(0, 1.0)], [Column(0, [])] * 9) is None
    four = np.ones((2, 4, 8)), np.empty((2, 4, 8))
    apart = [Column(0, [(np.ones((2, 9))[:, ::2][:, :4], 1.0)])]  # reshaping would copy it
    assert prepare_weighted_rows(*reversed(four), [(0, 1.0)], apart) is None
    with pack.using("numpy"):
        assert prepare_weighted_rows(out, u, [(0, 1.0)], []) is None


@compiled
def test_rows_that_do_not_fit_are_refused(name):
    u, out, column = np.ones((4, 8)), np.ones((4, 8)), np.ones(4)
    terms = (1.0, 0, 1.0)
    constant = np.ones((4, 8))
    constant.flags.writeable = False
    with pack.using(name):
        rows = pack.compiled().weighted_rows
        for arguments in (
            (out, np.ones((4, 7)), terms, ()),
            (out, np.ones((4, 8), "f4"), terms, ()),
            (np.ones((4, 8), int), np.ones((4, 8), int), terms, ()),
            (out, np.ones(32), terms, ()),
            (out, u, (), ()),
            (out, u, (1.0,), ()),
            (out, u, (1.0, 0), ()),
            (out, u, 3, ()),
            (out, u, (1.0, *(0, 1.0) * 9), ()),
            (out, u, (1.0, 8, 1.0), ()),
            (out, u, (1.0, -8, 1.0), ()),
            (out, u, terms, 3),
            (out, u, terms, ((0, column, 1.0),) * 9),
            (out, u, terms, (3,)),
            (out, u, terms, ((0,),)),
            (out, u, terms, ((8, column, 1.0),)),
            (out, u, terms, ((-1, column, 1.0),)),
            (out, u, terms, ((0, np.ones(3), 1.0),)),
            (out, u, terms, ((0, np.ones((4, 1)), 1.0),)),
            (out, u, terms, ((0, np.ones(4, "f4"), 1.0),)),
        ):
            with pytest.raises(ValueError, match=r"rows|terms|offset|column|element"):
                rows(*arguments)
        for arguments in (
            (out, u, ("x", 0, 1.0), ()),
            (out, u, (1.0, "x", 1.0), ()),
            (out, u, (1.0, 0, "x"), ()),
            (out, u, terms, (("x", column, 1.0),)),
            (out, u, terms, ((0, column, "x"),)),
            (out, u, terms, ((0, 3, 1.0),)),
            (out, u, terms),
        ):
            with pytest.raises(TypeError):
                rows(*arguments)
        for arguments in ((constant, u, terms, ()), (out.T, u.T, terms, ())):
            with pytest.raises((ValueError, BufferError)):
                rows(*arguments)
    assert (out == 1).all()
