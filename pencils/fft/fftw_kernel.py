"""Serial transforms by FFTW, as mpi4py-fft offers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from pencils.array.allocation import Array
from pencils.fft.kernels import Job, drop, pad, truncate
from pencils.fft.options import COSINES, FOURIER, THREE_HALVES, TWO_THIRDS, AxisTransform

Lines = Sequence[tuple[int, AxisTransform]]

# Seconds that FFTW may take to find out how to do one transform best: more gains little, and for
# long lines it would take minutes.
PLANNING = 0.1
UNLIMITED = -1.0


@cache
def why_no_fftw() -> str:
    """Say why mpi4py-fft cannot be used here; nothing if it can."""
    try:
        import mpi4py_fft.fftw  # noqa: F401
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, SciPy can do the work
        return str(error) or type(error).__name__
    return ""


def suits_fftw(job: Job) -> bool:
    """Whether FFTW is there for a job: it knows no orthogonal cosine and sine transforms."""
    if why_no_fftw():
        return False
    from mpi4py_fft import fftw

    if fftw.fftlib.get(job.dtype.char.upper()) is None:  # built without this precision
        return False
    return not (job.orthogonal and any(line.keeps_type for _, line in job.lines))


class FFTWKernel:
    """Transforms of pieces, as `Kernel`, in memory where FFTW has planned them.

    Parameters
    ----------
    job : Job
        Of one piece.
    """

    def __init__(self, job: Job) -> None:
        from mpi4py_fft import fftw

        self._fftw = fftw
        self._forward = job.forward
        self.nbytes = 0
        self._steps: list[Callable[[], object]] = []
        self._source = here = self._memory(job.before, job.dtype)
        for lines in _together(job):
            here = self._add(lines, here)
        self._target = here
        self._factor = job.factor
        self._source[...] = 0  # planning leaves anything there

    def __call__(self, piece: Array, out: Array) -> None:
        """Transform `piece` into `out`, which may be the same array; else `piece` is kept."""
        source, target = self._source, self._target
        if piece.shape != source.shape:
            source = source[tuple(map(slice, piece.shape))]
            target = target[tuple(map(slice, out.shape))]
        source[...] = piece
        for step in self._steps:
            step()
        if self._factor != 1:
            np.multiply(target, self._factor, out=out)
        else:
            out[...] = target

    def _add(self, lines: Lines, here: Array) -> Array:
        """Plan transforms that FFTW does at once, with what comes before or after."""
        place, line = lines[0]
        padded = line.dealias == THREE_HALVES
        if padded and not self._forward:
            here = self._changed(pad, place, line, here, line.modes)
        there = self._planned(lines, here)
        if padded and self._forward:
            return self._changed(truncate, place, line, there, line.waves)
        for place, line in lines:
            if line.dealias == TWO_THIRDS and self._forward:
                self._steps.append(partial(drop, there, place, line))
        return there

    def _planned(self, lines: Lines, here: Array) -> Array:
        """Plan transforms; of Fourier ones the last may halve its axis, or double it."""
        place, line = lines[-1]
        if line.transform == "r2c":
            there = self._partner(here, place, line)
            kind = self._fftw.R2C if self._forward else self._fftw.C2R
        else:
            there = self._memory(here.shape, here.dtype)
            kind = self._fftw.C2C_FORWARD if self._forward else self._fftw.C2C_BACKWARD
        pair = here, there
        if line.keeps_type:
            pair = _as_real(here), _as_real(there)
            kind = self._kinds(line)[line.type]
        axes = tuple(axis for axis, _ in lines)
        self._fftw.set_timelimit(PLANNING)
        try:
            self._steps.append(self._fftw.get_planned_FFT(*pair, axes, kind))
        finally:
            self._fftw.set_timelimit(UNLIMITED)  # plans of others are not bounded
        return there

    def _kinds(self, line: AxisTransform) -> dict[int, int]:
        fftw = self._fftw
        cosines, sines = (
            (fftw.dct_type, fftw.dst_type) if self._forward else (fftw.idct_type, fftw.idst_type)
        )
        found: dict[int, int] = cosines if line.transform in COSINES else sines
        return found

    def _partner(self, here: Array, place: int, line: AxisTransform) -> Array:
        """Make room for the waves of real values, or for real values of waves."""
        shape = list(here.shape)
        shape[place] = line.modes if self._forward else line.points
        char = here.dtype.char
        return self._memory(shape, np.dtype(char.upper() if self._forward else char.lower()))

    def _changed(
        self,
        change: Callable[[Array, int, AxisTransform, Array], None],
        place: int,
        line: AxisTransform,
        here: Array,
        extent: int,
    ) -> Array:
        shape = list(here.shape)
        shape[place] = extent
        there = self._memory(shape, here.dtype)
        self._steps.append(partial(change, here, place, line, there))
        return there

    def _memory(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        memory: Array = self._fftw.aligned(shape, dtype=dtype)
        self.nbytes += memory.nbytes
        return memory


def _together(job: Job) -> list[Lines]:
    """Put Fourier transforms together that FFTW can do at once; the halved axis comes last."""
    if all(line.transform in FOURIER and line.dealias != THREE_HALVES for _, line in job.lines):
        return [job.lines[::-1]]
    return [[entry] for entry in (job.lines if job.forward else job.lines[::-1])]


def _as_real(array: Array) -> Array:
    """View complex numbers as pairs of real ones along another axis."""
    if array.dtype.kind != "c":
        return array
    pairs: Array = array.view(array.real.dtype).reshape(*array.shape, 2)
    return pairs
