"""Products with constant tensors along component axes, against NumPy."""

import numpy as np
import pytest
from fields import assert_holds, draw, spread

import pencils
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i4", "?"])
def test_tensordot(pencil, dtype):
    a = draw((3, 2, *pencil.shape), dtype)
    u = spread(pencil, a, halo=1)
    matrix, tensor = draw((4, 3)), draw((2, 5, 3), "f4", 1)
    for constant, axes in (
        (matrix, 1),
        (matrix, ([1], [0])),
        (matrix[:2], ([0], [1])),
        (tensor, ([2, 0], [0, 1])),
        (tensor[:, 0], ([0, 1], [1, 0])),
        (matrix[0], 1),
        (matrix, ([-1], 0)),
        (np.float32(2), 0),
    ):
        assert_holds(np.tensordot(constant, u, axes), np.tensordot(constant, a, axes), rtol=1e-5)
    row, part = matrix[0], a[:, :, 1:]
    assert_holds(np.tensordot(u, row, (0, 0)), np.tensordot(a, row, (0, 0)), rtol=1e-5)
    assert_holds(np.tensordot(matrix, u[:, :, 1:], 1), np.tensordot(matrix, part, 1), rtol=1e-5)


def test_matmul(comm):
    pencil = pencils.Pencil(7, comm)
    a, matrix = draw((3, 7)), draw((2, 3))
    u = spread(pencil, a)
    assert_holds(matrix @ u, matrix @ a, rtol=1e-13)
    assert_holds(np.matmul(matrix[0], u), matrix[0] @ a, rtol=1e-13)
    for call in (lambda: u @ matrix, lambda: u @ u, lambda: np.matmul(matrix, u, axis=0)):
        with pytest.raises(TypeError, match=r"numpy\.einsum"):
            call()


def test_what_space_does_not_permit(pencil):
    u = pencils.ones(pencil, components=2)
    matrix = np.ones((2, 2))
    for call in (
        lambda: np.tensordot(u, u, (0, 0)),
        lambda: np.tensordot(u, matrix, (0, 0)),
        lambda: np.tensordot(u, matrix, 1),
        lambda: np.tensordot(np.ones(pencil.shape[0]), u, (0, 1)),
        lambda: matrix @ pencils.ones(pencils.Pencil((4, 4), pencil.comm)),
    ):
        with pytest.raises(TypeError, match=r"numpy\.einsum|component axis"):
            call()
    with pytest.raises(ArgumentError, match="as many axes of both"):
        np.tensordot(matrix, u, ([0, 1], [0]))
    with pytest.raises(ValueError, match=r"dimension|size|broadcast"):
        np.tensordot(np.ones((2, 3)), u, 1)
