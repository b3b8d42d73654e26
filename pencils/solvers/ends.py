"""The dimensions of a grid between walls: transforms that suit them, and differences along them.

A dimension of equal spacing has a transform, of which the waves are eigenvectors of the second
difference, and of the second derivative. One with other spacing has a tridiagonal matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from pencils.array.allocation import Array, as_dtype
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError
from pencils.layout.integers import each_dim
from pencils.layout.levels import BETWEEN, CELL, VERTEX

# For each dimension: the distance of points, coordinates of edges, or of edges and centres.
Spacing: TypeAlias = "float | Sequence[float | ArrayLike | tuple[ArrayLike, ArrayLike]]"
# For each dimension: what is given at both ends, or at the low and the high one.
Boundary: TypeAlias = "str | Sequence[str | tuple[str, str]]"

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
    cells, if they are not in the middle. Without them the points have equal distances. `spacing` is
    the mean distance.
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

    @property
    def centred(self) -> str:
        """Where points are, as levels of pencils name it."""
        if self.where == CELL or self.low == PERIODIC:
            return self.where
        return BETWEEN[self.low == DIRICHLET, self.high == DIRICHLET]

    def halved(self) -> Ends:
        """Return what half of the intervals have."""
        intervals = self.intervals // 2
        points = intervals + self.points - self.intervals
        edges = None if self.edges is None else self.edges[::2]
        return self._replace(points=points, spacing=2 * self.spacing, edges=edges, centres=None)

    def volumes(self) -> Array:
        """Return the length that belongs to each point."""
        if self.where == CELL and self.edges is not None:
            return np.diff(self.edges)
        gaps = np.full(self.points + 1, self.spacing) if self.where == CELL else self._gaps()
        return (gaps[1:] + gaps[:-1]) / 2

    def fluxes(self) -> Array:
        """Return one over the distance of each point to the one before, or the wall, and behind.

        At walls of given slopes it is 0.
        """
        gaps = self._gaps()
        flux = np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps > 0)
        flux[[0, -1]] *= [self.low != NEUMANN, self.high != NEUMANN]
        return flux

    def shares(self) -> Array:
        """Return the parts of these distances that belong to the point behind."""
        shares = np.full(self.points + 1, 0.5)
        if self.where == CELL and self.edges is not None:
            shares[:-1] = (self._centres() - self.edges[:-1]) / self._gaps()[:-1]
            shares[-1] = shares[0]
        if self.low != PERIODIC:
            shares[[0, -1]] = 1, 0
        return shares

    def diagonals(self) -> tuple[Array, Array, Array]:
        """Return the finite-volume matrix of the second difference, aligned with rows."""
        flux, volumes = self.fluxes(), self.volumes()
        lower, upper = flux[:-1] / volumes, flux[1:] / volumes
        return lower, -(lower + upper), upper

    def _gaps(self) -> Array:
        """Return the distances of points to those before them, and of the last to what follows.

        Beyond the ends are the walls, or the points of the next period.
        """
        if self.edges is None:  # exact multiples of the spacing
            count = np.arange(self.intervals + 1.0)
            return self.spacing * self._replace(edges=count)._gaps()  # noqa: SLF001
        x = self.edges
        if self.where == VERTEX:
            gaps = np.diff(x)
            before = {NEUMANN: [0.0], PERIODIC: gaps[-1:]}.get(self.low, [])
            return np.concatenate([before, gaps, [0.0] * (self.high == NEUMANN)])
        gaps = np.diff(np.concatenate([x[:1], self._centres(), x[-1:]]))
        if self.low == PERIODIC:
            gaps[[0, -1]] = gaps[0] + gaps[-1]
        return gaps

    def _centres(self) -> Array:
        assert self.edges is not None
        return (self.edges[1:] + self.edges[:-1]) / 2 if self.centres is None else self.centres


def as_ends(shape: Sequence[int], spacing: Any, boundary: Any, centred: Any) -> list[Ends]:
    """Check what is given for each dimension."""
    ndim = len(shape)
    spacings = each_dim("spacing", spacing, ndim, "a positive number, or coordinates")
    boundaries = each_dim("boundary", boundary, ndim, f"one of {', '.join(BOUNDARIES)}, or a pair")
    places = each_dim("centred", centred, ndim, f"{CELL!r} or {VERTEX!r}")
    given = zip(shape, spacings, boundaries, places, strict=True)
    return [_read(dim, *each) for dim, each in enumerate(given)]


def _read(dim: int, points: int, spacing: Any, boundary: Any, where: Any) -> Ends:
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
    if not np.iterable(spacing):
        step = float(_numbers(dim, spacing))
        if step <= 0:
            raise ArgumentError(f"spacing of dimension {dim} is {step}; it must be positive")
        return plain._replace(spacing=step)
    is_pair = isinstance(spacing, tuple) and len(spacing) == 2 and np.iterable(spacing[0])  # noqa: PLR2004
    first, second = spacing if is_pair else (spacing, None)
    edges = _coordinates(plain, first)
    mean = float(edges[-1] - edges[0]) / plain.intervals
    if not is_pair:
        is_even = (abs(np.diff(edges) - mean) <= _EVEN * mean).all()
        return plain._replace(spacing=mean, edges=None if is_even else edges)
    centres = _numbers(dim, second)
    between = where == CELL and centres.shape == (points,)
    if not between or (np.diff(np.stack([edges[:-1], centres, edges[1:]]), axis=0) <= 0).any():
        raise ArgumentError(
            f"spacing of dimension {dim} is a pair: the second one must be {points} centres of "
            f"cells, each between its faces, for centred={CELL!r}"
        )
    return plain._replace(spacing=mean, edges=edges, centres=centres)


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
    try:
        numbers = np.asarray(given, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"spacing of dimension {dim} must be real numbers, not {given!r}"
        ) from error
    if not np.isfinite(numbers).all():
        raise ArgumentError(f"spacing of dimension {dim} has numbers that are not finite")
    return numbers


def as_type(given: DTypeLike) -> np.dtype[Any]:
    """Check the element type of fields."""
    dtype = as_dtype(given)
    if dtype.char not in "fdFD":
        raise TypeError(f"dtype must be float32, float64, complex64 or complex128, not {dtype}")
    return dtype
