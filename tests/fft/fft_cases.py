"""Transforms of global arrays, by NumPy and SciPy alone, and random plans to compare with them."""

from functools import cache

import numpy as np
from mpi_helpers import random_pencil
from scipy import fft as serial

import pencils

KINDS = ("dct1", "dct2", "dct3", "dct4", "dst1", "dst2", "dst3", "dst4")


def draw(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def close(field, expected):
    """Whether a field is a global array, or another field, but for what rounding makes of it.

    A transform spreads errors of the largest values over all of them. *Collective*.
    """
    if isinstance(expected, pencils.PencilArray):
        expected = pencils.gather(expected, root=None)
    if (field.dtype, field.shape) != (expected.dtype, expected.shape):
        return False
    error = abs(field.local - expected[field.local_slices]).max(initial=0)
    return error <= 10 * np.finfo(field.dtype).eps * abs(expected).max(initial=0)


def forward(a, names, norm="backward"):
    """Transform along axes by name; `names` maps axes of the array to transforms."""
    for axis, name in sorted(names.items(), key=lambda item: item[1] != "r2c"):
        if name == "r2c":
            a = serial.rfft(a, axis=axis, norm=norm)
        elif name == "c2c":
            a = serial.fft(a, axis=axis, norm=norm)
        elif name != "none":
            a = getattr(serial, name[:3])(a, type=int(name[3]), axis=axis, norm=norm)
    return a


def random_names(rng, ndim, dtype, *, cosines=True):
    """Draw axes and their transforms, those of Fourier being chosen as the data need it."""
    axes = rng.permutation(ndim)[: rng.integers(1, ndim + 1)].tolist()
    names = {axis: str(rng.choice(["fft", "fft", *KINDS[: 8 * cosines], "none"])) for axis in axes}
    full = dict(names)
    fourier = [axis for axis in axes if names[axis] == "fft"]
    for axis in fourier:
        full[axis] = "c2c"
    if np.dtype(dtype).kind == "f" and fourier:
        full[fourier[-1]] = "r2c"
    return axes, names, full


@cache
def random_shape(seed, ndim):
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(2, [0, 30, 12, 9, 6, 5][ndim], ndim).tolist())


__all__ = ["close", "draw", "forward", "random_names", "random_pencil", "random_shape"]
