"""Random fields that are the same on every process grid.

Every row of the global array (its points along the last axis) has its own stretch of the counter
of NumPy's Philox generator, so any rank can draw any part of it without drawing the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pencils.array import PencilArray
from pencils.creation import empty
from pencils.errors import ArgumentError
from pencils.layout.make import read_ints
from pencils.pencil import Pencil
from pencils.storage import HaloSpec

# Philox yields this many 64-bit words per step of its counter.
_WORDS = 4


def uniform(
    pencil: Pencil,
    seed: int,
    low: float = 0.0,
    high: float = 1.0,
    *,
    dtype: DTypeLike = float,
    components: int | Sequence[int] = (),
    halo: HaloSpec = 0,
) -> PencilArray:
    """Draw values uniformly from ``[low, high)``.

    Parameters
    ----------
    pencil : Pencil
        Where the points live.
    seed : int
        Key of the generator, at least 0; the same seed gives the same global field on any number
        of processes.
    low, high : float, optional
        Limits of the interval.
    dtype : dtype, optional
        A real or complex floating type; real and imaginary parts are drawn independently.
    components, halo
        As in `pencils.empty`; halo points are not set.

    Returns
    -------
    PencilArray
        The field.

    Raises
    ------
    ArgumentError, TypeError
        If the seed is negative or the dtype is not a floating type.

    Examples
    --------
    >>> import pencils
    >>> u = uniform(pencils.Pencil((100, 100)), seed=7)
    >>> bool(abs(u.mean() - 0.5) < 0.01)
    True
    """
    field = _prepare(pencil, seed, dtype, components, halo)
    for stream, part in enumerate(_parts(field)):
        part[...] = low + (high - low) * _draw(field, seed, stream)
    return field


def normal(
    pencil: Pencil,
    seed: int,
    loc: float = 0.0,
    scale: float = 1.0,
    *,
    dtype: DTypeLike = float,
    components: int | Sequence[int] = (),
    halo: HaloSpec = 0,
) -> PencilArray:
    """Draw values from the normal distribution (by the Box-Muller transform).

    Parameters
    ----------
    loc, scale : float, optional
        Mean and standard deviation, for real and imaginary parts alike.
    pencil, seed, dtype, components, halo
        As in `uniform`.

    Returns
    -------
    PencilArray
        The field.

    Raises
    ------
    ArgumentError, TypeError
        As `uniform`.

    Examples
    --------
    >>> import pencils
    >>> u = normal(pencils.Pencil((100, 100)), seed=7)
    >>> bool(abs(u.std() - 1) < 0.02)
    True
    """
    field = _prepare(pencil, seed, dtype, components, halo)
    for stream, part in enumerate(_parts(field)):
        radius = np.sqrt(-2 * np.log1p(-_draw(field, seed, 2 * stream)))
        part[...] = loc + scale * radius * np.cos(2 * np.pi * _draw(field, seed, 2 * stream + 1))
    return field


def _prepare(
    pencil: Pencil,
    seed: int,
    dtype: DTypeLike,
    components: int | Sequence[int],
    halo: HaloSpec,
) -> PencilArray:
    (key,) = read_ints("seed", seed)
    if key < 0:
        msg = f"seed={seed} must not be negative"
        raise ArgumentError(msg)
    if np.dtype(dtype).kind not in "fc":
        msg = f"dtype {np.dtype(dtype)} is not a floating type"
        raise TypeError(msg)
    return empty(pencil, dtype=dtype, components=components, halo=halo)


def _parts(field: PencilArray) -> list[NDArray[np.floating]]:
    if field.dtype.kind == "c":
        return [field.local.real, field.local.imag]
    return [field.local]


def _draw(field: PencilArray, seed: int, stream: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) for the own block, from one of the streams of a seed."""
    key = np.random.SeedSequence([seed, stream]).generate_state(2, np.uint64)
    low, high = (edge[-1] for edge in (field.pencil.box().start, field.pencil.box().stop))
    first = low // _WORDS
    steps = -(-high // _WORDS) - first
    words = np.empty(field.local_shape, np.uint64)
    if words.size:
        steps_per_row = -(-field.shape[-1] // _WORDS)
        for row in np.ndindex(field.local_shape[:-1]):
            counter = _global_row(field, row) * steps_per_row + first
            drawn = np.random.Philox(key=key, counter=counter).random_raw(steps * _WORDS)
            words[row] = drawn[low - first * _WORDS : high - first * _WORDS]
    return (words >> np.uint64(11)) * 2.0**-53


def _global_row(field: PencilArray, row: tuple[int, ...]) -> int:
    """Number of a local row among all rows of the global array, in C order."""
    number = 0
    start = (0,) * len(field.components) + field.pencil.box().start[:-1]
    for extent, here, offset in zip(field.shape, row, start, strict=False):
        number = number * extent + here + offset
    return number
