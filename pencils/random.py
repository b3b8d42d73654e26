"""Random fields that are the same on every process grid.

Every row of the global array (its points along the last axis) has its own range of the counter of
NumPy's Philox generator, so that each rank draws its own block only. The argument `rng` follows
SPEC 7 of Scientific Python, except that there is no default: ranks would draw from different ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.random import BitGenerator, Generator, Philox, SeedSequence
from numpy.typing import DTypeLike, NDArray

from pencils.array.allocation import HaloLike
from pencils.array.creation import empty
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError
from pencils.layout.integers import to_int
from pencils.pencil import Pencil

# What seeds a field.
RandomLike: TypeAlias = int | SeedSequence | BitGenerator | Generator

# Philox yields this many 64-bit words per step of its counter.
_WORDS = 4


def uniform(
    pencil: Pencil,
    rng: RandomLike,
    low: float = 0.0,
    high: float = 1.0,
    *,
    dtype: DTypeLike = float,
    components: int | Sequence[int] = (),
    halo: HaloLike = 0,
) -> PencilArray:
    """Draw values uniformly from ``[low, high)``.

    Parameters
    ----------
    pencil : Pencil
        The decomposed grid.
    rng : int, SeedSequence, BitGenerator or Generator
        Seed, at least 0, or a source of one; the same on all ranks. The same seed gives the same
        global field on any number of processes. Each call draws a new seed from a generator, of
        which all ranks must have equal copies, like ``numpy.random.default_rng(7)``.
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
        If `rng` is none of these, or a negative number, or the dtype is not a floating type.

    Examples
    --------
    >>> import pencils
    >>> u = uniform(pencils.Pencil((100, 100)), rng=7)
    >>> bool(abs(u.mean() - 0.5) < 0.01)
    True
    """
    field = _prepare(pencil, dtype, components, halo)
    if not -np.inf < low <= high < np.inf:
        raise ArgumentError(f"low={low} and high={high} must be finite, and low at most high")
    seed = _as_seed(rng)
    for stream, part in enumerate(_parts(field)):
        part[...] = low + (high - low) * _draw(field, seed, stream)
        if low < high:  # the conversion to a shorter type may have rounded up
            np.minimum(part, np.nextafter(part.dtype.type(high), part.dtype.type(low)), out=part)
    return field


def normal(
    pencil: Pencil,
    rng: RandomLike,
    loc: float = 0.0,
    scale: float = 1.0,
    *,
    dtype: DTypeLike = float,
    components: int | Sequence[int] = (),
    halo: HaloLike = 0,
) -> PencilArray:
    """Draw values from the normal distribution (by the Box-Muller transform).

    Parameters
    ----------
    loc, scale : float, optional
        Mean and standard deviation, for real and imaginary parts alike.
    pencil, rng, dtype, components, halo
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
    >>> u = normal(pencils.Pencil((100, 100)), rng=7)
    >>> bool(abs(u.std() - 1) < 0.02)
    True
    """
    field = _prepare(pencil, dtype, components, halo)
    seed = _as_seed(rng)
    for stream, part in enumerate(_parts(field)):
        radius = np.sqrt(-2 * np.log1p(-_draw(field, seed, 2 * stream)))
        part[...] = loc + scale * radius * np.cos(2 * np.pi * _draw(field, seed, 2 * stream + 1))
    return field


def _prepare(
    pencil: Pencil, dtype: DTypeLike, components: int | Sequence[int], halo: HaloLike
) -> PencilArray:
    if np.dtype(dtype).kind not in "fc":
        raise TypeError(f"dtype {np.dtype(dtype)} is not a floating type")
    return empty(pencil, dtype=dtype, components=components, halo=halo)


def _as_seed(rng: RandomLike) -> SeedSequence:
    """Return a seed; a generator is advanced."""
    if isinstance(rng, SeedSequence):
        return rng
    if isinstance(rng, (BitGenerator, Generator)):
        return SeedSequence(int.from_bytes(np.random.default_rng(rng).bytes(16), "little"))
    number = to_int(rng)
    if number is None:
        raise TypeError(
            f"rng={rng!r} must be one integer, at least 0, or a SeedSequence, BitGenerator or "
            "Generator of numpy.random, the same on all ranks"
        )
    if number < 0:
        raise ArgumentError(f"rng={rng} must not be negative")
    return SeedSequence(number)


def _parts(field: PencilArray) -> list[NDArray[np.floating]]:
    if field.dtype.kind == "c":
        return [field.local.real, field.local.imag]
    return [field.local]


def _draw(field: PencilArray, seed: SeedSequence, stream: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) for the own block, from one of the streams of a seed."""
    words = np.empty(field.local_shape, np.uint64)
    if words.size:
        own = SeedSequence(
            seed.entropy, spawn_key=(*seed.spawn_key, stream), pool_size=seed.pool_size
        )
        generator = Philox(key=own.generate_state(2, np.uint64), counter=0)
        counter = 0
        steps = -(-field.shape[-1] // _WORDS)  # of the counter along one row
        count = words.shape[-2] if words.ndim > 1 else 1
        planes = words.reshape(-1, count, words.shape[-1])
        for plane, number in zip(planes, _first_rows(field), strict=True):
            generator.advance(number * steps - counter)
            rows = generator.random_raw(count * steps * _WORDS).reshape(count, -1)
            plane[...] = rows[:, field.local_slices[-1]]
            counter = (number + count) * steps
    unit = np.empty(words.shape)
    np.multiply(words >> np.uint64(11), 2.0**-53, out=unit)
    return unit


def _first_rows(field: PencilArray) -> list[int]:
    """First row of each plane of the own block, numbered among all rows of the global array."""
    if field.ndim == 1:
        return [0]
    *planes, (row, _), _ = ((part.start, part.stop) for part in field.local_slices)
    indices = np.ix_(*(np.arange(*plane) for plane in planes), [row])
    rows: list[int] = np.ravel_multi_index(indices, field.shape[:-1]).ravel().tolist()
    return rows
