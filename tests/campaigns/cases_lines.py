"""Cases: equations, derivatives and functions along lines."""

from functools import partial

import numpy as np
from cases import case, each
from mpi4py import MPI

import pencils
from pencils import Pencil
from pencils.comm.pack import using
from pencils.lines import LineSolver

LINES = {
    "local": {"axis": 2},
    "shared": {"shared": True},
    "reduced": {"method": "reduced"},
    "near": {"method": "reduced", "main": 9},
    "transposed": {"method": "transposed"},
    "fields": {"method": "transposed", "main": "field"},
}


def _solver(w, *, axis=0, main=4, method="auto", shared=False):
    """Return what makes a solver, a right-hand side, and the solution."""
    pen = w.pen.with_(decomp=0)
    if method == "reduced" and w.shape[0] < 3 * w.size:  # blocks are too short for it
        method = "auto"
    n, number = w.shape[axis], 4 if main == "field" else main
    diagonal = pencils.full(pen, 4.0) if main == "field" else main
    matrix = number * np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1)
    expected = np.moveaxis(np.tensordot(np.linalg.inv(matrix), w.data, (1, axis)), 0, axis)
    make = partial(LineSolver, pen, axis=axis, diagonals=(1, diagonal, 1), method=method)
    return make, w.field(pen, shared=shared), expected


@each(LINES)
def line_solver(w, value):
    make, b, expected = _solver(w, **value)
    plan, out = make(), w.zeros(b.pencil)

    def call():
        out.fill(0)
        w.holds_about(plan(b, out), expected)
        w.holds_about(plan(b), expected)

    return call


@each(LINES)
def make_line_solver(w, value):
    make, b, expected = _solver(w, **value)

    def call():
        with make() as plan:
            w.holds_about(plan(b), expected)

    return call


@each(LINES)
def line_solver_start_twice(w, value):
    make, b, expected = _solver(w, **value)
    plan, begun = make(), []

    def call():
        while begun:  # what a failure left behind
            begun.pop().wait()
        begun.extend(plan.start(b) for _ in range(2))
        while begun:
            w.holds_about(begun.pop().wait(), expected)

    return call


@each({"reduced": {"method": "reduced"}, "transposed": {"method": "transposed"}})
def line_solver_of_numpy(w, value):
    make, b, expected = _solver(w, **value)
    with using("numpy"):
        plan = make()

    def call():
        with using("numpy"):
            w.holds_about(plan(b), expected)

    return call


@each({"reduced": False, "shared": True})
def solve_banded(w, value):
    _, b, expected = _solver(w, shared=value)
    ab = np.ones((3, w.shape[0])) * [[1], [4], [1]]
    return lambda: w.holds_about(pencils.lines.solve_banded((1, 1), ab, b, axis=0), expected)


@each(
    {
        "derivative": lambda u: pencils.derivative(u, axis=0),
        "second derivative": lambda u: pencils.derivative(u, axis=0, derivative=2),
        "derivative of whole lines": lambda u: pencils.derivative(u, axis=2),
        "midpoints between walls": lambda u: pencils.lines.midpoints(u, 0),
        "midpoints on a ring": lambda u: pencils.lines.midpoints(u, 0, periodic=True, wind=1),
        "whole": lambda u: pencils.functions.along(np.flip, u, 2),
        "cut": lambda u: pencils.functions.along(np.flip, u, 0),
    }
)
def along_lines(w, value):
    """On all ranks the same as on one."""
    u = w.field(w.pen.with_(decomp=0))
    alone = pencils.zeros(Pencil(w.shape, MPI.COMM_SELF))
    w.refill(alone)
    expected = value(alone).local
    return lambda: w.holds_about(value(u), expected)


@each(
    {
        "cumsum": lambda u: np.cumsum(u, 0),
        "nancumprod": lambda u: np.nancumprod(1 + u / 1e6, 0),
        "roll": lambda u: np.roll(u, (1, 2), (0, 2)),
        "flip": lambda u: np.flip(u, 0),
        "gradient": lambda u: np.gradient(u, axis=0),
        "gradient of coordinates": lambda u: np.gradient(u, np.arange(len(u)) ** 2, axis=0),
        "diff": lambda u: np.diff(u, axis=0),
        "second diff": lambda u: np.diff(u, 2, 0),
    }
)
def along_axis(w, value):
    u, expected = w.field(), value(w.data)
    return lambda: w.holds_about(value(u), expected)


@case
def trapezoid(w):
    u, expected = w.field(), np.trapezoid(w.data, axis=0)[None]
    return lambda: w.holds_about(np.trapezoid(u, axis=0), expected)
