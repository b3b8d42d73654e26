"""Between which values in order a quantile lies, by the methods of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array


class Places(NamedTuple):
    """Positions of the values on both sides of each quantile, and how far it is between them.

    The distance is None for methods that choose a value.
    """

    lower: Array
    upper: Array
    distance: Array | None


# Two constants of the continuous methods.
_CONTINUOUS: dict[str, tuple[float, float]] = {
    "interpolated_inverted_cdf": (0, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "median_unbiased": (1 / 3.0, 1 / 3.0),
    "normal_unbiased": (3 / 8.0, 3 / 8.0),
}


def _inverted_cdf(n: int, q: Array) -> Array:
    index = n * q - 1
    below = np.floor(index)
    return np.asarray(np.where(index == below, below, below + 1))


def _closest_observation(n: int, q: Array) -> Array:
    index = n * q - 1 - 0.5
    below = np.floor(index)
    return np.asarray(np.where((index == below) & (below % 2 == 1), below, below + 1))


_DISCRETE: dict[str, Callable[[int, Array], Array]] = {
    "inverted_cdf": _inverted_cdf,
    "closest_observation": _closest_observation,
    "lower": lambda n, q: np.floor((n - 1) * q),
    "higher": lambda n, q: np.ceil((n - 1) * q),
    "nearest": lambda n, q: np.asarray(np.around((n - 1) * q)),
}


def places(method: str, n: int, q: Array) -> Places:
    """Find the places of quantiles among `n` values, in floating point as NumPy does.

    NumPy has checked the method and the quantiles.
    """
    if method in _DISCRETE:
        chosen = np.maximum(_DISCRETE[method](n, q), 0).astype(np.intp)
        return Places(chosen, chosen, None)
    index = np.asarray(_index(method, n, q))
    if method == "linear" and index.dtype.kind in "iu":
        return Places(index, index, None)
    lower = np.floor(index)
    distance = np.asarray(index - lower)
    if method == "averaged_inverted_cdf":
        distance = np.where(distance == 0, 0.5, 1.0).astype(index.dtype)
    elif method == "midpoint":
        distance = np.where(distance == 0, 0.0, 0.5).astype(index.dtype)
    # Beyond the first or the last value it is this one.
    distance = np.where((index < 0) | (index >= n - 1), 0, distance).astype(index.dtype)
    upper = np.clip(np.where(index < 0, 0, lower + 1), 0, n - 1).astype(np.intp)
    lower = np.clip(np.where(index >= n - 1, n - 1, lower), 0, n - 1).astype(np.intp)
    return Places(lower, upper, distance)


def _index(method: str, n: int, q: Array) -> Any:
    match method:
        case "linear":
            return (n - 1) * q
        case "averaged_inverted_cdf":
            return n * q - 1
        case "midpoint":
            return 0.5 * (np.floor((n - 1) * q) + np.ceil((n - 1) * q))
        case _:
            alpha, beta = _CONTINUOUS[method]
            return n * q + (alpha + q * (1 - alpha - beta)) - 1
