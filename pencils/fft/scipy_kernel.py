"""Serial transforms by SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import fft

from pencils.array.allocation import Array
from pencils.comm.memory import same_view
from pencils.fft.kernels import Job, drop, pad, truncate
from pencils.fft.options import COSINES, THREE_HALVES, AxisTransform


class ScipyKernel:
    """Transforms of pieces, as `Kernel`.

    Parameters
    ----------
    job : Job
        Of one piece.
    """

    nbytes = 0

    def __init__(self, job: Job) -> None:
        lines = job.lines if job.forward else job.lines[::-1]
        self._first, *self._rest = [_step(place, line, job) for place, line in lines]
        self._factor = job.factor

    def __call__(self, piece: Array, out: Array) -> None:
        """Transform `piece` into `out`, which may be the same array; else `piece` is kept."""
        result = self._first(piece, overwrite=piece is out)
        for step in self._rest:
            result = step(result, overwrite=True)
        if self._factor != 1:
            np.multiply(result, self._factor, out=out)
        elif not same_view(result, out):  # SciPy may have worked in place
            out[...] = result


def _step(place: int, line: AxisTransform, job: Job) -> Callable[..., Array]:
    return (_forward if job.forward else _backward)(place, line, job)


def _forward(place: int, line: AxisTransform, job: Job) -> Callable[..., Array]:
    transform = _serial(place, line, job)
    if line.dealias is None:
        return transform

    def run(x: Array, *, overwrite: bool) -> Array:
        spectrum = transform(x, overwrite=overwrite)
        if line.dealias == THREE_HALVES:
            return _changed(truncate, spectrum, place, line, line.waves)
        drop(spectrum, place, line)
        return spectrum

    return run


def _backward(place: int, line: AxisTransform, job: Job) -> Callable[..., Array]:
    transform = _serial(place, line, job)
    if line.dealias != THREE_HALVES:
        return transform
    return lambda x, overwrite: transform(  # noqa: ARG005
        _changed(pad, x, place, line, line.modes), overwrite=True
    )


def _changed(
    change: Callable[[Array, int, AxisTransform, Array], None],
    x: Array,
    place: int,
    line: AxisTransform,
    extent: int,
) -> Array:
    shape = list(x.shape)
    shape[place] = extent
    changed = np.empty(shape, x.dtype)
    change(x, place, line, changed)
    return changed


def _serial(place: int, line: AxisTransform, job: Job) -> Callable[..., Array]:
    """One transform, without any factor unless it is orthogonal."""
    fixed: dict[str, Any] = {"axis": place, "norm": "backward" if job.forward else "forward"}
    if line.transform == "c2c":
        function = fft.fft if job.forward else fft.ifft
    elif line.transform == "r2c":
        function = fft.rfft if job.forward else fft.irfft
        fixed["n"] = line.points
    else:
        one, other = (fft.dct, fft.idct) if line.transform in COSINES else (fft.dst, fft.idst)
        function = one if job.forward else other
        fixed["type"] = line.type
        if job.orthogonal:
            fixed["norm"] = "ortho"

    def run(x: Array, *, overwrite: bool) -> Array:
        result: Array = function(x, overwrite_x=overwrite, **fixed)
        return result

    return run
