"""Arguments of solvers and derivatives that are wrong, on all ranks or on one."""

import numpy as np
import pytest
from dense import near
from mpi_helpers import all_raise

from pencils import Pencil, derivative, ones, zeros
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.lines import CompactDerivative, LineSolver, midpoints, solve_banded

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (24, 9, 40, 5)  # the second dimension is periodic, the last one short
PIVOT = "pivot of row 0 vanishes"
AB = np.array([[1.0], [4], [1]]) * np.ones(24)


def good_arguments(call, pencil):
    """Return arguments that fit."""
    if call in {LineSolver, CompactDerivative}:
        return {"pencil": pencil, "axis": 0} | (
            {"diagonals": (1, 4, 1)} if call is LineSolver else {}
        )
    if call is solve_banded:
        return {"l_and_u": (1, 1), "ab": AB, "b": ones(pencil), "axis": 0}
    return {"u": zeros(pencil, components=2), "axis": 1}


def same(name):
    """Stand for the argument of this name."""
    return lambda good: good[name]


def field(shape=None, **options):
    """Stand for a field on the pencil of the arguments, or on one of another shape."""

    def make(good):
        pencil = good["b" if "b" in good else "u"].pencil
        return zeros(pencil if shape is None else Pencil(shape, pencil.comm), **options)

    return make


BAD = {
    LineSolver: [
        ({"diagonals": (1, 2)}, ArgumentError, "odd number"),
        ({"diagonals": 3}, TypeError, "sequence like (lower, main, upper)"),
        ({"diagonals": (1, np.ones(7), 1)}, ArgumentError, "diagonals[1] has shape (7,)"),
        ({"diagonals": (1, "x", 1)}, TypeError, "diagonals[1]"),
        ({"diagonals": (1, 2j, 1)}, TypeError, "diagonals[1] is complex"),
        ({"axis": 4}, ArgumentError, "axis"),
        ({"dtype": "i8"}, TypeError, "float64"),
        ({"method": "magic"}, ArgumentError, "'magic' is none of auto"),
        ({"singular": "hope"}, ArgumentError, "'raise' or 'pin'"),
        ({"shift": np.ones(4)}, ArgumentError, "shift has shape (4,)"),
        ({"dims": (1, 2)}, ArgumentError, "do not vary along axis 0"),
        ({"diagonals": (0, 0, 0)}, ArgumentError, PIVOT),
        ({"pencil": 3}, TypeError, "pencil must be a Pencil"),
    ],
    CompactDerivative: [({"method": "magic"}, ArgumentError, "'magic' is none of auto")],
    solve_banded: [
        ({"l_and_u": 3}, TypeError, "must be a pair"),
        ({"l_and_u": (1, 1, 1)}, TypeError, "must be a pair"),
        ({"l_and_u": (-1, 1)}, ArgumentError, "l_and_u[0]"),
        ({"l_and_u": (2, 1)}, ArgumentError, "shape (3, 24)", "(4, 24)"),
        ({"axis": 1}, ArgumentError, "(3, 9)"),
        ({"axis": 4}, ArgumentError, "axis"),
        ({"ab": AB[:, 2:]}, ArgumentError, "shape (3, 22)"),
        ({"ab": same("b")}, TypeError, "PencilArray"),
        ({"ab": [["a"] * 24] * 3}, TypeError, "numbers"),
        ({"ab": AB * 1j}, TypeError, "b.astype(complex)"),
        ({"ab": AB * np.inf}, ArgumentError, "finite"),
        ({"ab": AB * (np.arange(24) < 7)}, ArgumentError, "singular", "row 7"),
        ({"b": field(dtype=int)}, TypeError, "astype(float)"),
        ({"b": np.ones(4)}, TypeError, "PencilArray"),
        ({"out": field((8, 9, 4, 5))}, PencilMismatchError, "out"),
        ({"out": field(dtype="f4")}, ArgumentError, "out"),
    ],
    derivative: [
        ({"u": np.zeros(4)}, TypeError, "u must be a PencilArray"),
        ({"u": field(dtype=int, components=2)}, TypeError, "u.astype(float)"),
        ({"axis": 5}, ArgumentError, "axis"),
        ({"axis": 0}, ArgumentError, "axes of space are 1 to 4"),
        ({"order": 5}, ArgumentError, "order 4 or 6"),
        ({"derivative": 3}, ArgumentError, "derivative must be 1 or 2"),
        ({"spacing": 0.0}, ArgumentError, "not 0"),
        ({"spacing": np.nan}, ArgumentError, "finite"),
        ({"spacing": "x"}, TypeError, "a number, or the global", "24 points"),
        ({"spacing": np.arange(7)}, ArgumentError, "spacing of shape (7,)"),
        ({"spacing": np.arange(24) % 20}, ArgumentError, "rise or fall"),
        ({"axis": 2, "spacing": np.arange(9)}, ArgumentError, "of a periodic line"),
        ({"axis": 4, "derivative": 2}, ArgumentError, "has 5 points", "at least 6"),
        (
            {"axis": 3, "u": field((8, 9, 4, 5), components=2), "periodic": True},
            ArgumentError,
            "at least 5",
        ),
        ({"out": 3}, TypeError, "out must be a PencilArray"),
        ({"out": field(dtype="f4", components=2)}, ArgumentError, "out has dtype float32"),
    ],
    midpoints: [
        ({"u": field(dtype=int, components=2)}, TypeError, "u.astype(float)"),
        ({"order": 5}, ArgumentError, "order must be 4 or 6, or 3 or 5 with a wind"),
        ({"order": 6, "wind": 1}, ArgumentError, "order=6 with wind=1"),
        ({"wind": 2}, ArgumentError, "wind=2 must be -1, 0 or 1"),
        ({"coordinates": np.arange(7)}, ArgumentError, "coordinates of shape (7,)"),
        ({"coordinates": 0.5}, ArgumentError, "coordinates of the 24 points"),
        ({"axis": 2, "coordinates": np.arange(9)}, ArgumentError, "of a periodic line"),
        ({"axis": 4}, ArgumentError, "has 5 points", "at least 6 between walls"),
        ({"out": same("u")}, PencilMismatchError, "out lies on"),
    ],
}
CASES = [(call, number) for call, cases in BAD.items() for number in range(len(cases))]


@pytest.mark.parametrize(("call", "number"), CASES)
def test_bad_arguments_raise_on_all_ranks(comm, call, number):
    changed, kind, *texts = BAD[call][number]
    good = good_arguments(call, Pencil(SHAPE, comm, periodic=(False, True, False, False)))
    bad = good | {
        name: value(good) if callable(value) else value for name, value in changed.items()
    }
    # Otherwise ranks disagree, or use another communicator.
    alone = not {"u", "b", "pencil"} & changed.keys() and texts[-1] not in {"row 7", PIVOT}
    for mine in (bad, bad if comm.rank == comm.size - 1 else good)[: 1 + alone]:
        all_raise(comm, kind, texts, call, **mine)
    if call is derivative:
        assert near(derivative(**good), np.zeros((2, *SHAPE)))


@pytest.mark.parallel([2, 3, 4, 6])
def test_an_output_on_another_pencil(comm):
    pencil = Pencil(SHAPE, comm, decomp=0)
    u, across = (zeros(each, components=2) for each in (pencil, pencil.with_(decomp=1)))
    all_raise(comm, PencilMismatchError, "out lies on", derivative, u, 1, out=across)
