"""Dense systems, solved by LAPACK one line after the other, and fields to compare with them."""

import numpy as np
from mpi_helpers import all_raise, everywhere, holds, random_pencil

from pencils import zeros
from pencils.errors import ArgumentError
from pencils.lines import LineSolver


def matrix_of(diagonals, points, *, periodic=False):
    """Build the dense matrix of diagonals that are aligned with rows, the lowest first."""
    width = len(diagonals) // 2
    kind = np.result_type(float, *(np.asarray(each).dtype for each in diagonals))
    matrix = np.zeros((points, points), kind)
    for offset, diagonal in zip(range(-width, width + 1), diagonals, strict=True):
        values = np.broadcast_to(diagonal, (points,))
        for row in range(points):
            column = row + offset
            if periodic:
                matrix[row, column % points] += values[row]
            elif 0 <= column < points:
                matrix[row, column] += values[row]
    return matrix


def solved(diagonals, b, axis, *, periodic=False):
    """Solve along an axis of a global array; diagonals are numbers, 1-D, or arrays like `b`."""
    points = b.shape[axis]
    lines = np.moveaxis(b, axis, 0).reshape(points, -1)
    full = []
    for each in diagonals:
        array = np.asarray(each)
        if array.ndim == 1 and b.ndim > 1:
            array = array.reshape([-1 if n == axis else 1 for n in range(b.ndim)])
        full.append(np.moveaxis(np.broadcast_to(array, b.shape), axis, 0).reshape(points, -1))
    kind = np.result_type(b, *(np.asarray(each).dtype for each in diagonals))
    x = np.empty(lines.shape, kind)
    for line in range(lines.shape[1]):
        matrix = matrix_of([each[:, line] for each in full], points, periodic=periodic)
        x[:, line] = np.linalg.solve(matrix, lines[:, line])
    others = b.shape[:axis] + b.shape[axis + 1 :]
    return np.moveaxis(x.reshape(points, *others), 0, axis)


def diagonals_of(rng, points, width, *, dominant=3.0, kind=float):
    """Draw well conditioned diagonals."""
    found = [rng.uniform(-1, 1, points).astype(kind) for _ in range(2 * width + 1)]
    if kind is complex:
        found = [each + 1j * rng.uniform(-1, 1, points) for each in found]
    found[width] += dominant * width
    return found


def shared_field(pencil, data, *, shared=True, **options):
    """Make a field of global data, in shared memory or not."""
    lead = data.shape[: data.ndim - pencil.ndim]
    u = zeros(pencil, dtype=data.dtype, components=lead, shared=shared, **options)
    u[...] = data
    return u


def random_lines(rng, comm, ndims, repeats, points):
    """Draw pencils, and an axis of each that has a number of points in this range."""
    for ndim in ndims:
        for _ in range(repeats):
            shape = rng.integers(1, 8, ndim).tolist()
            axis = int(rng.integers(ndim))
            shape[axis] = int(rng.integers(*points))
            yield random_pencil(rng, comm, shape), axis


def random_data(rng, shape, dtype=float):
    data = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        data = data + 1j * rng.standard_normal(shape)
    return data.astype(dtype)


def near(field, expected, tolerance=1e-12):
    """Whether a field has these global values, on all ranks."""
    assert field.shape == expected.shape
    error = np.abs(field.local - expected[field.local_slices]).max(initial=0)
    return everywhere(field.pencil.comm, error <= tolerance * np.abs(expected).max(initial=1))


def check_calls(solve, b, data, expected, *, shared, refused):
    """Check calls of a plan for a field with this global data, with `out` and in place.

    A plan by shared memory refuses fields that are elsewhere, with the text `refused`.
    """
    if solve.method == "shared" and not shared:
        all_raise(b.pencil.comm, ArgumentError, refused, solve, b)
        return
    out = zeros(b.pencil, shared=shared)
    assert solve(b, out) is out
    assert near(out, expected)
    assert holds(b, data)
    assert solve.start(b, out=b).wait() is b
    assert near(b, expected)


def make(pencil, axis, *diagonals, method, plan=LineSolver, **options):
    """Make a plan by a method, or by another one where that is not possible."""
    try:
        return plan(pencil, axis, *diagonals, method=method, **options)
    except ArgumentError as error:
        assert "use method='auto'" in str(error)  # noqa: PT017 - the same on all ranks
        return plan(pencil, axis, *diagonals, **options)
