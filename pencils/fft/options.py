"""The arguments of `PencilFFT`, checked; for each axis its transform, an `AxisTransform`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pencils.array.allocation import as_components, as_dtype, real_type
from pencils.array.operands import check_type
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout.integers import as_dim, as_dims, as_int, to_int
from pencils.pencil import Pencil

COSINES = ("dct1", "dct2", "dct3", "dct4")
SINES = ("dst1", "dst2", "dst3", "dst4")
FOURIER = ("c2c", "r2c")
# "fft" is one of the Fourier transforms, "none" leaves an axis alone.
NAMES = ("fft", *FOURIER, *COSINES, *SINES, "none")

NORMS = ("backward", "ortho", "forward")
TWO_THIRDS, THREE_HALVES = "2/3", "3/2"
DEALIAS = (TWO_THIRDS, THREE_HALVES)
# In the longest precision that fields may have.
PI = np.longdouble("3.14159265358979323846264338327950288")


class AxisTransform(NamedTuple):
    """The transform along one axis."""

    axis: int
    transform: str  # one of `FOURIER`, `COSINES` and `SINES`
    resolution: int  # points of the pencil along the axis
    dealias: str | None = None

    @property
    def points(self) -> int:
        """Points in physical space."""
        return self.resolution * 3 // 2 if self.dealias == THREE_HALVES else self.resolution

    @property
    def modes(self) -> int:
        """Waves that the serial transform gives."""
        return self._waves_of(self.points)

    @property
    def waves(self) -> int:
        """Waves that are kept."""
        return self._waves_of(self.resolution)

    @property
    def keeps_type(self) -> bool:
        """Whether real values stay real."""
        return self.transform not in FOURIER

    @property
    def type(self) -> int:
        """Which of the four cosine or sine transforms."""
        return int(self.transform[-1])

    @property
    def dropped(self) -> slice:
        """Waves that the 2/3 rule zeroes: products of the others do not alias to any of these."""
        first = -(-self.resolution // 3)
        last = self.resolution - first if self.transform == "c2c" else self.waves - 1
        return slice(first, max(first, last + 1)) if self.dealias == TWO_THIRDS else slice(0, 0)

    @property
    def nyquist(self) -> slice:
        """The wave that is two waves of opposite sign, if there is one."""
        n = self.resolution
        return slice(n // 2, n // 2 + (self.transform in FOURIER and n % 2 == 0))

    def scales(self, norm: str) -> tuple[np.longdouble, np.longdouble]:
        """Factors of both directions, so that waves do not depend on padding.

        Orthogonal cosine and sine transforms have none: they treat their ends in another way.
        """
        one = np.longdouble(1)
        if norm == "ortho" and self.keeps_type:
            return one, one
        here, there = (self._period(n) * one for n in (self.resolution, self.points))
        weight = {"backward": here, "ortho": np.sqrt(here), "forward": one}[norm]
        return weight / there, one / weight

    def wavenumbers(self, length: np.longdouble) -> NDArray[np.longdouble]:
        """Wave numbers of the waves on a line of this length."""
        counted = np.arange(self.waves)
        if self.keeps_type:
            first = 0.5 if self.type > 2 else float(self.transform in SINES)  # noqa: PLR2004
            return PI / length * (counted + first)
        if self.transform == "c2c":
            counted[(self.waves + 1) // 2 :] -= self.waves
        return 2 * PI / length * counted

    def _waves_of(self, points: int) -> int:
        return points // 2 + 1 if self.transform == "r2c" else points

    def _period(self, points: int) -> int:
        """Length after which the waves repeat: what a transform and its inverse multiply by."""
        if self.transform in FOURIER:
            return points
        ends = {"dct1": -1, "dst1": 1}.get(self.transform, 0)
        return 2 * (points + ends)


Axes = Sequence[int] | int | None
Choice = str | None | Sequence[str | None] | Mapping[int, str | None]


class Wanted(NamedTuple):
    """A distributed transform, in one form; `lines` in the order in which they are wanted."""

    pencil: Pencil
    dtype: np.dtype[Any]
    lines: tuple[AxisTransform, ...]
    components: tuple[int, ...]
    normalize: str
    backend: str
    output: Pencil | None
    check: bool
    workers: int
    whole: int | None

    @property
    def first(self) -> int | None:
        """The axis along which real values become waves, before all complex transforms."""
        return next((line.axis for line in self.lines if line.transform == "r2c"), None)

    @property
    def real(self) -> np.dtype[Any]:
        """The real element type of the same precision."""
        return real_type(self.dtype)

    @property
    def points(self) -> tuple[int, ...]:
        """Shape of physical space."""
        changed = {line.axis: line.points for line in self.lines}
        return tuple(changed.get(dim, n) for dim, n in enumerate(self.pencil.shape))

    @property
    def waves(self) -> tuple[int, ...]:
        """Shape of the space of waves."""
        changed = {line.axis: line.waves for line in self.lines}
        return tuple(changed.get(dim, n) for dim, n in enumerate(self.pencil.shape))

    @property
    def signature(self) -> dict[str, object]:
        """What all ranks must agree on, by name."""
        return self._asdict() | {
            "lines": None,
            "axes": [line.axis for line in self.lines],
            "transforms": [line.transform for line in self.lines],
            "dealias": [line.dealias for line in self.lines],
        }


def as_wanted(  # noqa: PLR0917 - the arguments of `PencilFFT`
    pencil: Pencil,
    dtype: DTypeLike,
    axes: Axes,
    transforms: Choice,
    components: int | Sequence[int],
    normalize: str,
    dealias: Choice,
    backend: str,
    output: Pencil | None,
    check: object,
    workers: object,
    whole: object,
) -> Wanted:
    """Check all arguments of `PencilFFT`; local."""
    check_type("pencil", pencil, Pencil)
    element = as_dtype(dtype)
    if element.char not in "fdgFDG" or not element.isnative:
        raise ArgumentError(
            f"dtype {element} cannot be transformed; use a real or complex type such as float32"
        )
    dims = tuple(range(pencil.ndim)) if axes is None else as_dims("axes", axes, pencil.ndim)
    names = _as_names(dims, transforms, pencil.ndim, real=element.kind == "f")
    ways = _as_each("dealias", dims, dealias, pencil.ndim, (None, *DEALIAS))
    lines = tuple(
        AxisTransform(dim, names[dim], pencil.shape[dim], _way(dim, names[dim], ways, dealias))
        for dim in reversed(dims)
        if names[dim] != "none"
    )
    for line in lines:
        least = 2 if line.transform == "dct1" else 1
        if line.resolution < least:
            raise ArgumentError(
                f"{line.transform} along axis {line.axis} needs at least {least} points, "
                f"not {line.resolution}"
            )
    if normalize not in NORMS:
        raise ArgumentError(f"normalize={normalize!r} must be one of {', '.join(NORMS)}")
    lead = as_components(components)
    threads = as_int("workers", workers, least=1)
    last = None if whole is None else as_dim("whole", whole, pencil.ndim)
    if last is not None and (output is not None or any(line.axis == last for line in lines)):
        raise ArgumentError(
            f"whole={whole!r} must be a dimension that is not among axes={dims}, without output="
        )
    wanted = Wanted(
        pencil, element, lines, lead, normalize, backend, output, bool(check), threads, last
    )
    if output is None:
        return wanted
    check_type("output", output, Pencil)
    if output.shape != wanted.waves or not output.same_ranks(pencil):
        raise PencilMismatchError(
            f"output must have the shape {wanted.waves} of the waves, over the processes of "
            f"pencil:\n{output!r}\n{pencil!r}"
        )
    return wanted


def _as_names(
    dims: tuple[int, ...], transforms: Choice, ndim: int, *, real: bool
) -> dict[int, str]:
    """Name the transform of every axis; Fourier ones as the type of the data demands."""
    given = _as_each("transforms", dims, transforms, ndim, NAMES)
    names = {dim: name or "fft" for dim, name in given.items()}
    halved = [dim for dim in dims if names[dim] == "r2c"]
    open_ones = [dim for dim in dims if names[dim] == "fft"]
    if real and not halved and open_ones:
        names[open_ones[-1]] = "r2c"
        halved = open_ones[-1:]
    names = {dim: "c2c" if name == "fft" else name for dim, name in names.items()}
    if len(halved) > real:
        what = "real data once" if real else "no complex data"
        raise ArgumentError(
            f"transforms={tuple(names.values())} along {dims}: r2c must transform {what}"
        )
    if real and not halved and "c2c" in names.values():
        raise ArgumentError(
            f"transforms={tuple(names.values())} along {dims}: real data need r2c along one axis "
            "before c2c along others; 'fft' chooses between them"
        )
    return names


def _as_each(
    what: str, dims: tuple[int, ...], given: Choice, ndim: int, allowed: Iterable[str | None]
) -> dict[int, str | None]:
    """Read one choice for all axes, or one for each."""
    names = list(allowed)
    wanted = ", ".join(map(repr, names))
    chosen: dict[int, str | None]
    if given is None or isinstance(given, str):
        chosen = dict.fromkeys(dims, given)
    elif isinstance(given, Mapping):
        known = as_dims(what, [axis for axis in given if to_int(axis) is not None], ndim)
        if len(known) != len(given) or not set(known) <= set(dims):
            raise ArgumentError(f"{what}={given!r} names axes that are not among axes={dims}")
        chosen = dict.fromkeys(dims)
        chosen.update(zip(known, given.values(), strict=True))
    else:
        each: object = given
        if not isinstance(each, Sequence) or len(each) != len(dims):
            raise ArgumentError(
                f"{what}={given!r} must be one of {wanted}, or one for each of axes={dims}"
            )
        chosen = dict(zip(dims, each, strict=True))
    for dim, name in chosen.items():
        if name is not None and name not in names:
            raise ArgumentError(
                f"{what}={given!r} has {name!r} for axis {dim}; choose from {wanted}"
            )
    return chosen


def _way(dim: int, name: str, ways: dict[int, str | None], dealias: Choice) -> str | None:
    """Dealias Fourier axes only; to name another one is a mistake."""
    if name in FOURIER or ways[dim] is None:
        return ways[dim]
    if not isinstance(dealias, str):
        raise ArgumentError(
            f"dealias={dealias!r}: axis {dim} has {name!r}; only Fourier axes are dealiased"
        )
    return None
