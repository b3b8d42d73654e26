"""Serial transforms of one piece of a block, which fits the cache of a core: by SciPy, by FFTW.

Dealiasing drops short waves after a forward transform, or adds zeros before a backward one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.memory import same_view
from pencils.comm.mpi import PerProcess
from pencils.errors.missing import needs
from pencils.fft.options import COSINES, FOURIER, SINES, THREE_HALVES, TWO_THIRDS, AxisTransform

with needs("SciPy"):
    from scipy import fft

Lines: TypeAlias = Sequence[tuple[int, AxisTransform]]
Change: TypeAlias = Callable[[Array, int, AxisTransform, Array], None]

# Seconds that FFTW may take to find the fastest way to do one transform. If they are over, it
# guesses one, which may take ten times as long. Pieces that fit the cache of a core need less than
# a second, long lines would take minutes.
PLANNING = 5.0
UNLIMITED = -1.0
# Transforms for which that time was too short: what is guessed is the same at once.
guessed = PerProcess(set[Any])


class Job(NamedTuple):
    """What is to be done with a block: the same for all of its pieces.

    Axes, components included, are in memory order; `lines` are pairs of an axis and its transform,
    in the order of the forward direction; the result is multiplied by `factor`.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    dtype: np.dtype[Any]
    dtype_after: np.dtype[Any]
    lines: tuple[tuple[int, AxisTransform], ...]
    forward: bool
    orthogonal: bool
    factor: np.floating[Any]

    @property
    def whole(self) -> frozenset[int]:
        """Axes that are transformed."""
        return frozenset(axis for axis, _ in self.lines)

    @property
    def in_order(self) -> tuple[tuple[int, AxisTransform], ...]:
        """Pairs of an axis and its transform, in the order of this direction."""
        return self.lines if self.forward else self.lines[::-1]

    def of_piece(self, size: Sequence[int]) -> Job:
        """Return the job of a piece of this size along axes that are not transformed."""
        before, after = (
            tuple(n if axis in self.whole else size[axis] for axis, n in enumerate(shape))
            for shape in (self.before, self.after)
        )
        return self._replace(before=before, after=after)


def changes(job: Job, groups: Sequence[Lines]) -> Iterator[tuple[Change | None, Lines, int]]:
    """List transforms, and before and after each what dealiasing does, with the new extent.

    Transforms are None; those of a group are done at once, and change the extent of its last axis.
    """
    for lines in groups:
        _, line = lines[-1]
        padded = line.dealias == THREE_HALVES
        if padded and not job.forward:
            yield pad, lines, line.modes
        yield None, lines, line.modes if job.forward else line.points
        if padded and job.forward:
            yield truncate, lines, line.waves
        for each in lines if job.forward else ():
            if each[1].dealias == TWO_THIRDS:
                yield drop, [each], line.waves


class ScipyKernel:
    """Transforms pieces of the shape that its job has, or smaller ones, by SciPy.

    Memory for dealiasing is kept between calls: it is `nbytes`.
    """

    def __init__(self, job: Job) -> None:
        self._steps: list[Callable[..., Array]] = []
        self._factor = job.factor
        self.nbytes, shape = 0, job.before
        for change, lines, extent in changes(job, [[each] for each in job.in_order]):
            axis, line = lines[-1]
            shape = _with_extent(shape, axis, extent)
            if change is None:
                self._steps.append(_scipy_transform(axis, line, job))
                continue
            # Nothing is moved to drop waves.
            room = np.empty(0 if change is drop else shape, np.result_type(job.dtype, np.complex64))
            self._steps.append(partial(_changed, change, axis, line, room))
            self.nbytes += room.nbytes

    def __call__(self, piece: Array, out: Array) -> None:
        """Transform `piece` into `out`, which may be the same array; else `piece` is kept."""
        result = piece
        for number, step in enumerate(self._steps):
            result = step(result, overwrite_x=number > 0 or piece is out)
        if self._factor != 1:
            np.multiply(result, self._factor, out=out)
        elif not same_view(result, out):  # SciPy may have worked in place
            out[...] = result


def _changed(
    change: Change, axis: int, line: AxisTransform, room: Array, x: Array, **_: object
) -> Array:
    """Dealias a piece: in `room`, or where it is if waves are only dropped."""
    result = x
    if room.size:
        result = room[tuple(map(slice, _with_extent(x.shape, axis, room.shape[axis])))]
    change(x, axis, line, result)
    return result


def _scipy_transform(axis: int, line: AxisTransform, job: Job) -> Callable[..., Array]:
    """Return one transform; it has no factor unless it is orthogonal."""
    fixed: dict[str, Any] = {"axis": axis, "norm": "backward" if job.forward else "forward"}
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
    return partial(function, **fixed)


@cache
def why_no_fftw() -> str:
    """Return why mpi4py-fft cannot be used here; empty if it can."""
    try:
        with needs("mpi4py-fft"):
            import mpi4py_fft.fftw  # noqa: F401
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, SciPy can do the work
        return str(error) or type(error).__name__
    return ""


def suits_fftw(job: Job) -> bool:
    """Whether FFTW can do a job: it has no orthogonal cosine and sine transforms."""
    if why_no_fftw():
        return False
    from mpi4py_fft import fftw

    if fftw.fftlib.get(job.dtype.char.upper()) is None:  # built without this precision
        return False
    return not (job.orthogonal and any(line.keeps_type for _, line in job.lines))


class FFTWKernel:
    """Transforms pieces as `ScipyKernel` does, by FFTW, in memory of its own."""

    def __init__(self, job: Job) -> None:
        from mpi4py_fft import fftw

        self._fftw = fftw
        self._forward = job.forward
        self.nbytes = 0
        self._steps: list[Callable[[], object]] = []
        self._source = here = self._memory(job.before, job.dtype)
        # Fourier transforms are done at once where nothing comes between; the halved axis is last.
        plain = all(
            line.transform in FOURIER and line.dealias != THREE_HALVES for _, line in job.lines
        )
        groups = [job.lines[::-1]] if plain else [[each] for each in job.in_order]
        for change, lines, extent in changes(job, groups):
            axis, line = lines[-1]
            there, dtype = here, here.dtype
            if change is None and line.transform == "r2c":
                dtype = np.dtype(dtype.char.upper() if job.forward else dtype.char.lower())
            if change is not drop:
                there = self._memory(_with_extent(here.shape, axis, extent), dtype)
            if change is None:
                self._plan(lines, here, there)
            else:
                self._steps.append(partial(change, here, axis, line, there))
            here = there
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

    def _plan(self, lines: Lines, here: Array, there: Array) -> None:
        """Plan transforms that FFTW does at once."""
        fftw, (_, line) = self._fftw, lines[-1]
        if line.transform == "r2c":
            kind = fftw.R2C if self._forward else fftw.C2R
        else:
            kind = fftw.C2C_FORWARD if self._forward else fftw.C2C_BACKWARD
        pair = here, there
        if line.keeps_type:
            pair = _as_real(here), _as_real(there)
            tables = (fftw.dct_type, fftw.dst_type, fftw.idct_type, fftw.idst_type)
            kind = tables[(line.transform in SINES) + 2 * (not self._forward)][line.type]
        axes = tuple(axis for axis, _ in lines)
        problem = pair[0].shape, pair[0].dtype.char, axes, kind
        fftw.set_timelimit(0.0 if problem in guessed() else PLANNING)
        begun = monotonic()
        try:
            self._steps.append(fftw.get_planned_FFT(*pair, axes, kind))
        finally:
            fftw.set_timelimit(UNLIMITED)  # plans of others are not bounded
        if monotonic() - begun >= PLANNING:
            guessed().add(problem)

    def _memory(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        memory: Array = self._fftw.aligned(shape, dtype=dtype)
        self.nbytes += memory.nbytes
        return memory


def export_plans(dtype: np.dtype[Any]) -> bytes:
    """Return what FFTW has found out about transforms of a precision; empty if it cannot tell."""
    from mpi4py_fft import fftw

    with suppress(OSError), TemporaryDirectory() as folder:
        path = Path(folder, "wisdom")
        if fftw.fftlib[dtype.char.upper()].export_wisdom(bytes(path)):
            return path.read_bytes()
    return b""


def import_plans(dtype: np.dtype[Any], plans: bytes) -> None:
    """Let FFTW do transforms as in another process, if it can."""
    from mpi4py_fft import fftw

    with suppress(OSError), TemporaryDirectory() as folder:
        path = Path(folder, "wisdom")
        path.write_bytes(plans)
        fftw.fftlib[dtype.char.upper()].import_wisdom(bytes(path))


def _as_real(array: Array) -> Array:
    """View complex numbers as pairs of real ones along another axis."""
    if array.dtype.kind != "c":
        return array
    pairs: Array = array.view(array.real.dtype).reshape(*array.shape, 2)
    return pairs


def _with_extent(shape: Sequence[int], axis: int, extent: int) -> tuple[int, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def truncate(spectrum: Array, axis: int, line: AxisTransform, out: Array) -> None:
    """Keep the waves of the resolution.

    The waves n/2 and -n/2 of an even number of points are one: what both hold is added.
    """
    n = line.resolution
    middle = _at(axis, n // 2)
    if line.transform == "r2c":
        out[...] = spectrum[_at(axis, slice(0, line.waves))]
        if n % 2 == 0:
            out[middle] += out[middle].conj()
        return
    rising = (n + 1) // 2
    out[_at(axis, slice(0, rising))] = spectrum[_at(axis, slice(0, rising))]
    out[_at(axis, slice(rising, n))] = spectrum[_at(axis, slice(line.modes - n // 2, None))]
    if n % 2 == 0:
        out[middle] += spectrum[middle]


def pad(waves: Array, axis: int, line: AxisTransform, out: Array) -> None:
    """Undo `truncate`: half of a wave n/2 goes to n/2, half to -n/2, and the rest is zero."""
    n = line.resolution
    middle = _at(axis, n // 2)
    if line.transform == "r2c":
        out[_at(axis, slice(0, line.waves))] = waves
        out[_at(axis, slice(line.waves, None))] = 0
        if n % 2 == 0:  # it stands for both halves: their imaginary parts cancel
            out[middle] = 0.5 * out[middle].real
        return
    rising, falling = (n + 1) // 2, line.modes - n // 2
    out[_at(axis, slice(0, rising))] = waves[_at(axis, slice(0, rising))]
    out[_at(axis, slice(rising, falling))] = 0
    out[_at(axis, slice(falling, None))] = waves[_at(axis, slice(rising, n))]
    if n % 2 == 0:
        out[_at(axis, falling)] *= 0.5
        out[middle] = out[_at(axis, falling)]


def drop(_: Array, axis: int, line: AxisTransform, spectrum: Array) -> None:
    """Zero the waves that the 2/3 rule drops, in place."""
    spectrum[_at(axis, line.dropped)] = 0


def _at(axis: int, where: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, where)
