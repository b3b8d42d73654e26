"""The oracle of compact differences: dense matrices, from the numbers in the paper of Lele."""

import numpy as np

# Weights of neighbouring derivatives; weights of values by offset. J. Comput. Phys. 103 (1992).
INNER = {
    (1, 4): (1 / 4, {1: 3 / 4, -1: -3 / 4}),  # (2.1.7)
    (1, 6): (1 / 3, {1: 7 / 9, -1: -7 / 9, 2: 1 / 36, -2: -1 / 36}),  # (2.1.8)
    (2, 4): (1 / 10, {1: 6 / 5, -1: 6 / 5, 0: -12 / 5}),  # (2.2.6)
    (2, 6): (2 / 11, {1: 12 / 11, -1: 12 / 11, 2: 3 / 44, -2: 3 / 44, 0: -51 / 22}),  # (2.2.7)
}
# At the first point: (4.1.2) for slopes; explicit differences of fourth order for curvatures.
WALL = {
    1: (2, {0: -5 / 2, 1: 2, 2: 1 / 2}),
    2: (0, {0: 15 / 4, 1: -77 / 6, 2: 107 / 6, 3: -13, 4: 61 / 12, 5: -5 / 6}),
}


def matrix_of(points, derivative, order, *, spacing=1.0, periodic=False):
    """Build the dense matrix of a derivative."""
    left, right = np.eye(points), np.zeros((points, points))
    sign = -1 if derivative == 1 else 1
    for point in range(points):
        beside = min(point, points - 1 - point)
        if periodic or beside >= (2 if order == 6 else 1):
            alpha, weights = INNER[derivative, order]
        else:
            alpha, weights = WALL[derivative] if beside == 0 else INNER[derivative, 4]
        last = not periodic and beside == 0 and point > 0
        for offset in (-1, 1) if periodic or beside else (1,):
            left[point, (point + (-offset if last else offset)) % points] += alpha
        for offset, weight in weights.items():
            at = (point - offset if last else point + offset) % points
            right[point, at] += sign * weight if last else weight
    return np.linalg.solve(left, right) / spacing**derivative


def differentiated(data, axis, derivative, order, **options):
    """Differentiate global data along an axis."""
    matrix = matrix_of(data.shape[axis], derivative, order, **options)
    return np.moveaxis(np.tensordot(matrix, data, (1, axis)), 0, axis)
