"""Matrices of restriction and prolongation: few listed terms stand for those of all rows."""

from itertools import combinations_with_replacement, product

import pytest

from pencils.layout.levels import BETWEEN, CELL, PLACES, VERTEX
from pencils.solvers.weights import prolongation, restriction

ENDS = ["edge", "odd", "extrapolate"]


def transfers(centred, factor, intervals, *, wraps):
    """Return all matrices between a grid and its level, and how many rows each has."""
    more = 0 if wraps else PLACES[centred][0]
    fine, coarse = factor * intervals + more, intervals + more
    cells = centred == CELL
    if coarse > 0:
        for method in [*["average"] * cells, "injection", "full"]:
            yield restriction(fine, factor, centred, method, wraps=wraps), coarse
        for method in [*["constant"] * cells, "linear", "cubic"]:
            for end in ENDS:
                yield prolongation(coarse, factor, centred, method, end, wraps=wraps), fine


@pytest.mark.parametrize("factor", [2, 3, 5])
@pytest.mark.parametrize(
    ("centred", "wraps"),
    [*product([CELL, VERTEX], [False, True]), *product(BETWEEN.values(), [False])],
)
def test_rows_are_those_that_are_listed(centred, wraps, factor):
    """Of all rows, and of some, in arrays of the points that these need."""
    for intervals in (1, 2, 7):
        for weights, number in transfers(centred, factor, intervals, wraps=wraps):
            for low, high in combinations_with_replacement(range(0, number + 1, 2), 2):
                rows = range(low, high)
                points = weights.needed(rows)
                every = [point for each in points for point in each]
                used = {point for row in rows for point, _ in weights.terms(row)}
                assert used <= set(every)
                assert every == sorted(set(every))
                assert all(used & {*range(at, at + weights.down)} for at in every)
                matrix = weights.among(points, rows)
                assert matrix.points == len(rows)
                for row in rows:
                    found = matrix.terms(row - low)
                    assert [(every[at], weight) for at, weight in found] == [*weights.terms(row)]


def test_long_lines_list_few_terms():
    count = 10**12
    for weights, number in transfers(CELL, 2, count, wraps=False):
        rows = range(number)
        assert len(weights.needed(rows)) == 1
        matrix = weights.among([range(weights.points)], rows)
        assert len(matrix.listed) < 20
        assert matrix.points == number
        for row in (0, 1, 5, number // 2, number // 2 + 1, number - 3, number - 1):
            assert [*matrix.terms(row)] == [*weights.terms(row)]
