"""What is done along one axis: which transform, of how many points, to how many waves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pencils.errors import ArgumentError

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


@dataclass(frozen=True, slots=True)
class Line:
    """The transform along one axis.

    Parameters
    ----------
    axis : int
        The dimension.
    transform : str
        One of `FOURIER`, `COSINES` and `SINES`.
    resolution : int
        Points of the pencil along the axis.
    dealias : str or None
        One of `DEALIAS`: short waves are zeroed, or there are half as many points more.
    """

    axis: int
    transform: str
    resolution: int
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


def check_line(line: Line) -> Line:
    """Check that there are points enough, and return the line.

    Raises
    ------
    ArgumentError
        If there are not.
    """
    least = 2 if line.transform == "dct1" else 1
    if line.resolution < least:
        msg = (
            f"{line.transform} along axis {line.axis} needs at least {least} points, "
            f"not {line.resolution}"
        )
        raise ArgumentError(msg)
    return line
