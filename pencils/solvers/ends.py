"""The dimensions of a grid between walls: transforms that suit them, and differences along them.

A dimension of equal spacing has a transform, of which the waves are eigenvectors of the second
difference, and of the second derivative. One with other spacing has a tridiagonal matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError
from pencils.layout.levels import CELL, VERTEX

PERIODIC, DIRICHLET, NEUMANN = "periodic", "dirichlet", "neumann"
BOUNDARIES = (PERIODIC, DIRICHLET, NEUMANN)
# By where the points are, and what is given at both ends. The ends of each transform are those of
# G. Strang, SIAM Review 41 (1999) 135-147, table 1.
_TRANSFORMS = {
    (CELL, DIRICHLET, DIRICHLET): "dst2",
    (CELL, NEUMANN, NEUMANN): "dct2",
    (CELL, DIRICHLET, NEUMANN): "dst4",
    (CELL, NEUMANN, DIRICHLET): "dct4",
    (VERTEX, DIRICHLET, DIRICHLET): "dst1",
    (VERTEX, NEUMANN, NEUMANN): "dct1",
    (VERTEX, DIRICHLET, NEUMANN): "dst3",
    (VERTEX, NEUMANN, DIRICHLET): "dct3",
}
_EVEN = 1e-9  # coordinates whose distances differ less, relative to the mean, are equally spaced


class Ends(NamedTuple):
    """A dimension of `points` points: what is given at its ends, and the distances along it.

    `edges` are coordinates: faces of cells, or vertices with those on walls; `centres` those of
    cells, if they are not in the middle. Without them the points have equal distances `spacing`.
    """

    dim: int
    points: int
    where: str
    low: str
    high: str
    spacing: float
    edges: Array | None = None
    centres: Array | None = None

    @property
    def is_free(self) -> bool:
        """Whether solutions are determined up to a constant, as far as this dimension goes."""
        return DIRICHLET not in {self.low, self.high}

    @property
    def intervals(self) -> int:
        """Number of distances from one end of the dimension to the other."""
        if self.where == CELL or self.low == PERIODIC:
            return self.points
        return self.points - 1 + (self.low == DIRICHLET) + (self.high == DIRICHLET)

    @property
    def length(self) -> float:
        """Length of the dimension, if its points have equal distances."""
        return self.intervals * self.spacing

    @property
    def transform(self) -> str:
        """Name of the transform along the dimension; any Fourier transform is "fft"."""
        if self.low == PERIODIC:
            return "fft"
        return _TRANSFORMS[self.where, self.low, self.high]

    def eigenvalues(self, wavenumbers: PencilArray, *, exact: bool) -> PencilArray:
        """Return those of the second difference; of the second derivative, if `exact`."""
        if exact:
            return -(wavenumbers**2)
        h = self.spacing
        halves: PencilArray = np.sin(wavenumbers * (h / 2))
        return -((2 / h * halves) ** 2)

    def volumes(self) -> Array:
        """Return the length that belongs to each point, where coordinates are given."""
        assert self.edges is not None
        if self.where == CELL:
            return np.diff(self.edges)
        gaps = self._gaps()
        return (gaps[1:] + gaps[:-1]) / 2

    def diagonals(self) -> tuple[Array, Array, Array]:
        """Return the finite-volume matrix of the second difference, aligned with rows."""
        gaps, volumes = self._gaps(), self.volumes()
        flux = np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps > 0)
        if self.low == NEUMANN:
            flux[0] = 0
        if self.high == NEUMANN:
            flux[-1] = 0
        lower, upper = flux[:-1] / volumes, flux[1:] / volumes
        return lower, -(lower + upper), upper

    def _gaps(self) -> Array:
        """Return the distances of points to those before them, and of the last to what follows.

        Beyond the ends are the walls, or the points of the next period.
        """
        assert self.edges is not None
        x = self.edges
        if self.where == VERTEX:
            gaps = np.diff(x)
            before = {NEUMANN: [0.0], PERIODIC: gaps[-1:]}.get(self.low, [])
            return np.concatenate([before, gaps, [0.0] * (self.high == NEUMANN)])
        centres = (x[1:] + x[:-1]) / 2 if self.centres is None else self.centres
        gaps = np.diff(np.concatenate([x[:1], centres, x[-1:]]))
        if self.low == PERIODIC:
            gaps[[0, -1]] = gaps[0] + gaps[-1]
        return gaps


def as_ends(shape: Sequence[int], spacing: Any, boundary: Any, centred: Any) -> list[Ends]:
    """Check what is given for each dimension."""
    ndim = len(shape)
    spacings = _each("spacing", spacing, ndim, "a positive number, or coordinates")
    boundaries = _each("boundary", boundary, ndim, f"one of {', '.join(BOUNDARIES)}, or a pair")
    places = _each("centred", centred, ndim, f"{CELL!r} or {VERTEX!r}")
    given = zip(shape, spacings, boundaries, places, strict=True)
    ends = [_read(dim, *each) for dim, each in enumerate(given)]
    stretched = [each.dim for each in ends if each.edges is not None]
    if len(stretched) > 1:
        raise ArgumentError(
            f"the coordinates along dimensions {stretched} have unequal distances; at most one "
            "dimension may have them, as the others are transformed"
        )
    return ends


def _each(name: str, given: Any, ndim: int, allowed: str) -> list[Any]:
    """Read one value for all dimensions, or a sequence of one for each."""
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        return [given] * ndim
    if len(given) != ndim:
        raise ArgumentError(
            f"{name} has {len(given)} entries; it must be {allowed}, or a sequence of one for each "
            f"of {ndim} dimensions"
        )
    return list(given)


def _read(dim: int, points: int, spacing: Any, boundary: Any, where: Any) -> Ends:
    """Check what is given for a dimension."""
    pair = (boundary, boundary) if isinstance(boundary, str) else boundary
    if (
        not isinstance(pair, Sequence)
        or len(pair) != 2  # noqa: PLR2004
        or any(each not in BOUNDARIES for each in pair)
        or (PERIODIC in pair and pair[0] != pair[1])
    ):
        raise ArgumentError(
            f"boundary of dimension {dim} is {boundary!r}; it must be one of "
            f"{', '.join(map(repr, BOUNDARIES))}, or a pair of the last two: (low, high)"
        )
    if where not in [CELL, VERTEX]:  # or unhashable
        raise ArgumentError(f"centred of dimension {dim} is {where!r}, not {CELL!r} or {VERTEX!r}")
    low, high = pair
    plain = Ends(dim, points, where, low, high, spacing=1.0)
    if plain.intervals < 1 or points < 1:
        raise ArgumentError(
            f"dimension {dim} has {points} points; with centred={where!r} and boundary "
            f"{boundary!r} it must have at least {1 + (points > 0)}"
        )
    if isinstance(spacing, tuple) and len(spacing) == 2 and np.iterable(spacing[0]):  # noqa: PLR2004
        edges, centres = _coordinates(plain, spacing[0]), _numbers(dim, spacing[1])
        between = where == CELL and centres.shape == (points,)
        if not between or (np.diff(np.stack([edges[:-1], centres, edges[1:]]), axis=0) <= 0).any():
            raise ArgumentError(
                f"spacing of dimension {dim} is a pair: the second one must be {points} centres of "
                f"cells, each between its faces, for centred={CELL!r}"
            )
        return plain._replace(edges=edges, centres=centres)
    if np.iterable(spacing):
        edges = _coordinates(plain, spacing)
        distances, mean = np.diff(edges), (edges[-1] - edges[0]) / plain.intervals
        if (abs(distances - mean) > _EVEN * mean).any():
            return plain._replace(edges=edges)
        return plain._replace(spacing=float(mean))
    step = float(_numbers(dim, spacing))
    if step <= 0:
        raise ArgumentError(f"spacing of dimension {dim} is {step}; it must be positive")
    return plain._replace(spacing=step)


def _coordinates(plain: Ends, given: Any) -> Array:
    """Check coordinates of faces or vertices from one end to the other."""
    edges, wanted = _numbers(plain.dim, given), plain.intervals + 1
    what = "faces of cells"
    if plain.where == VERTEX:
        what = "points, with those on walls of value zero"
    if plain.low == PERIODIC:
        what += ", with the first one of the next period"
    if edges.shape != (wanted,):
        raise ArgumentError(
            f"spacing of dimension {plain.dim} has shape {edges.shape}; it must be a number, or "
            f"the coordinates of {wanted} {what}"
        )
    if (np.diff(edges) <= 0).any():
        number = int(np.argmax(np.diff(edges) <= 0))
        raise ArgumentError(
            f"coordinates of dimension {plain.dim} must increase, but number {number} is "
            f"{edges[number]} and number {number + 1} is {edges[number + 1]}"
        )
    return edges


def _numbers(dim: int, given: Any) -> Array:
    """Read finite numbers."""
    try:
        numbers = np.asarray(given, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"spacing of dimension {dim} must be real numbers, not {given!r}"
        ) from error
    if not np.isfinite(numbers).all():
        raise ArgumentError(f"spacing of dimension {dim} has numbers that are not finite")
    return numbers
