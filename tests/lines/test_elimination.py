"""Elimination and reduction of banded systems, compared with dense systems; without MPI."""

from itertools import pairwise

import numpy as np
import pytest
from dense import diagonals_of, matrix_of
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from pencils.lines.reduction import ReducedSystem
from pencils.lines.system import (
    SingularError,
    System,
    WholeLines,
    eliminate,
    interchanged,
    plain_right,
    solve_directly,
)

kinds = st.sampled_from([float, complex])


def rows_of(matrix):
    """Return the rows of a dense matrix as dictionaries."""
    return [{int(j): row[j].item() for j in np.flatnonzero(row)} for row in matrix]


def plain(matrix):
    return System(rows_of(matrix), plain_right(len(matrix)))


def random_matrix(seed, points, width, *, periodic, dominant, kind):
    rng = np.random.default_rng(seed)
    diagonals = diagonals_of(rng, points, width, dominant=dominant, kind=kind)
    return rng, matrix_of(diagonals, points, periodic=periodic)


@given(st.integers(0, 99), st.integers(1, 40), st.integers(0, 3), st.booleans(), kinds)
@examples(200)
def test_any_band_is_solved_by_interchanging_rows(seed, points, width, periodic, kind):
    rng, matrix = random_matrix(seed, points, width, periodic=periodic, dominant=0, kind=kind)
    b = rng.standard_normal((points, 3)).astype(kind)
    try:
        x = solve_directly(plain(matrix), b)
    except SingularError:
        assert np.linalg.cond(matrix) > 1e10
        return
    size = np.abs(matrix).max() * np.abs(x).max(0) + np.abs(b).max(0)
    assert (np.abs(matrix @ x - b) <= 1e-12 * size * points).all()


@given(st.integers(0, 99), st.integers(1, 30), st.integers(0, 2), st.booleans(), kinds)
@examples(100)
def test_lines_may_have_matrices_of_their_own(seed, points, width, periodic, kind):
    rng = np.random.default_rng(seed)
    lines = 4
    systems = [diagonals_of(rng, points, width, dominant=4, kind=kind) for _ in range(lines)]
    matrices = [matrix_of(each, points, periodic=periodic) for each in systems]
    stacked = np.stack(matrices, -1)
    matrix = [
        {j: row[j] for j in range(points) if stacked[i, j].any()} for i, row in enumerate(stacked)
    ]
    b = rng.standard_normal((points, lines)).astype(kind)
    x = solve_directly(System(matrix, plain_right(points)), b)
    expected = np.stack([np.linalg.solve(m, b[:, k]) for k, m in enumerate(matrices)], -1)
    assert np.allclose(x, expected, rtol=1e-11, atol=1e-12)


def test_rows_are_not_interchanged_without_need():
    walls = matrix_of([1e6, -2e6, 1e6], 9)
    walls[0], walls[-1] = np.eye(9)[[0, -1]]
    assert not interchanged(eliminate(rows_of(walls)))
    assert interchanged(eliminate(rows_of(np.array([[1e-3, 1.0], [1.0, 1.0]]))))


@pytest.mark.parametrize(("row", "column"), [(0, 0), (3, 3), (8, 8)])
def test_a_pivot_that_vanishes_is_named(row, column):
    matrix = np.diag(np.full(9, 2.0))
    matrix[row, column] = 0
    with pytest.raises(SingularError) as caught:
        eliminate(rows_of(matrix))
    assert (caught.value.row, caught.value.line) == (row, None)


def test_a_line_whose_pivot_vanishes_is_named():
    rows = [{0: np.array([1.0, 2.0, 0.0])}]
    with pytest.raises(SingularError) as caught:
        eliminate(rows)
    assert (caught.value.row, caught.value.line) == (0, 2)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("points", [3, 17, 1000])
def test_the_last_point_is_pinned_where_only_a_constant_is_free(points, periodic):
    matrix = matrix_of([1.0, -2.0, 1.0], points, periodic=periodic)
    if not periodic:
        matrix[0, 0] = matrix[-1, -1] = -1
    with pytest.raises(SingularError):
        eliminate(rows_of(matrix))
    solver = WholeLines(plain(matrix), np.dtype(float), pin=True)
    assert solver.left_out == points - 1
    known = np.random.default_rng(1).standard_normal((points, 2))
    x = np.empty_like(known)
    solver.prepare([matrix @ known], [x], 0)()
    assert np.allclose(x, known - known[-1], rtol=0, atol=1e-9)
    assert WholeLines(plain(np.eye(points)), np.dtype(float), pin=True).left_out is None


cut_systems = (st.integers(0, 99), st.integers(2, 5), st.integers(1, 2), st.integers(0, 2))


def solve_by_blocks(system, cuts, width, reach, b):
    """Play all ranks: arrays of shape ``(lines, points)``."""
    reduction = ReducedSystem.of(system, cuts, width, reach)
    if reduction is None:
        return None
    points, blocks = system.points, len(cuts) - 1
    given_points, tips = [], []
    for part, (start, stop) in enumerate(pairwise(cuts)):
        mine = [b[:, start:stop].copy()]
        if reach:
            mine.append(b[:, np.arange(start - reach, start) % points])
            mine.append(b[:, np.arange(stop, stop + reach) % points])
        given_points.append(mine)
        tips.append(np.full((len(b), 2 * width), np.nan, b.dtype))
        reduction.prepare_tips(part)(mine, tips[part], 1)()
    for part, mine in enumerate(given_points):
        if reduction.near:
            ends = [tips[part - 1][:, width:], tips[(part + 1) % blocks][:, :width]]
            beside = [tips[part], *map(np.ascontiguousarray, ends)]
        else:
            beside = [np.concatenate(tips, 1) @ reduction.weights[part].T]
        reduction.prepare_solution(part)([*mine, *beside], mine[0], 1)()
    return np.concatenate([mine[0] for mine in given_points], 1)


@given(*cut_systems, st.booleans(), st.sampled_from([0.5, 2.0, 8.0]), kinds)
@examples(200)
def test_blocks_solve_what_whole_lines_do(  # noqa: PLR0917
    seed, blocks, width, reach, periodic, dominant, kind
):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(max(2 * width, 2 * reach - 1) + 1, 40, blocks)
    cuts = [0, *np.cumsum(lengths).tolist()]
    points = cuts[-1]
    options = {"periodic": periodic, "kind": kind}
    rng, matrix = random_matrix(seed, points, width, dominant=dominant, **options)
    right = np.eye(points)
    if reach:
        right = matrix_of(diagonals_of(rng, points, reach), points, periodic=periodic)
    system = System(rows_of(matrix), [list(row.items()) for row in rows_of(right)])
    b = rng.standard_normal((3, points)).astype(kind)
    x = solve_by_blocks(system, cuts, width, reach, b)
    if x is None:
        assert np.linalg.cond(matrix) > 10 or dominant < 8
        return
    expected = np.linalg.solve(matrix, right @ b.T).T
    tolerance = 1e-13 * np.linalg.cond(matrix) * points
    assert np.allclose(x, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def test_blocks_with_the_same_matrix_are_eliminated_once():
    matrix = matrix_of([1, 4, 1], 30)
    first, second, third = ReducedSystem.of(plain(matrix), [0, 10, 20, 30], 1, 0).blocks
    assert first.pivots is second.pivots is third.pivots
    assert first.outside != second.outside
    matrix[15, 15] = 5
    first, second, third = ReducedSystem.of(plain(matrix), [0, 10, 20, 30], 1, 0).blocks
    assert first.pivots is third.pivots is not second.pivots


def test_weights_that_decay_are_left_out():
    points, cuts = 512, [0, 128, 256, 384, 512]
    decays = ReducedSystem.of(plain(matrix_of([1, 4, 1], points)), cuts, 1, 0)
    spreads = ReducedSystem.of(plain(matrix_of([1, -2, 1], points)), cuts, 1, 0)
    assert decays.near
    assert not spreads.near
    assert np.count_nonzero(decays.blocks[1].tips) < 80
    assert np.count_nonzero(spreads.blocks[1].tips) == 256


@pytest.mark.parametrize(
    ("diagonals", "cuts"),
    [
        ([1, 4, 1], [0, 2, 30]),  # a block is too short
        ([1, 4, 1], [0, 0, 30]),
        ([1, 0, 1], [0, 9, 30]),  # a block of an odd number of points is singular
    ],
)
def test_blocks_that_do_not_suit_are_refused(diagonals, cuts):
    assert ReducedSystem.of(plain(matrix_of(diagonals, cuts[-1])), cuts, 1, 0) is None
