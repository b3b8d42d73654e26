"""Serial transforms of whole blocks, piece by piece, and the choice of their library."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextvars import copy_context
from functools import partial
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from pencils.array.allocation import Array, arrange, memory_axes
from pencils.array.operands import FieldSpec
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.memory import address, same_view
from pencils.comm.pack import no_op
from pencils.comm.progress import poll, under_way
from pencils.comm.topology import time_in_turn
from pencils.errors import ArgumentError
from pencils.fft.kernels import (
    FFTWKernel,
    Job,
    ScipyKernel,
    export_plans,
    guessed,
    import_plans,
    suits_fftw,
    why_no_fftw,
)
from pencils.fft.options import AxisTransform, Wanted
from pencils.layout.stages import changed_shape, plan_stages, staged
from pencils.pencil import Pencil
from pencils.plans import fastest_methods

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


Kernel: TypeAlias = ScipyKernel | FFTWKernel

AUTO = "auto"
SCIPY, FFTW = "scipy", "fftw"
BACKENDS = (AUTO, SCIPY, FFTW)
KERNELS: dict[str, Callable[[Job], Kernel]] = {SCIPY: ScipyKernel, FFTW: FFTWKernel}
# How often pieces are transformed to find out what is faster.
SAMPLES = 5
# Bytes of a piece: what is read, and what is written, shall stay in the cache of a core.
PIECE = 2**18

Key: TypeAlias = tuple[slice, ...]
# What allocates the memory of a call, and what runs it.
PreparedBlock: TypeAlias = tuple[Callable[[], object], Callable[[], None]]


def check_backend(backend: str) -> str:
    """Check the name of a backend, and that its library works here."""
    if backend not in list(BACKENDS):
        raise ArgumentError(f"backend={backend!r} is unknown; choose from {', '.join(BACKENDS)}")
    if backend == FFTW and why_no_fftw():
        raise ArgumentError(
            f"backend='fftw' cannot be used, 'scipy' and 'auto' can: {why_no_fftw()}"
        )
    return backend


def choose_backend(serial: SerialTransform, wanted: Wanted) -> str:
    """Choose the library of a serial transform; "auto" measures. *Collective*.

    SciPy does what FFTW cannot do on some rank. Ranks keep what was measured.
    """
    if wanted.backend == SCIPY or not serial.lines:
        return wanted.backend
    topology, (pencil, dtype, _) = wanted.pencil.topology, serial.start
    what = repr((pencil, serial.lines, dtype, wanted.components, wanted.normalize))
    key = "fft", wanted.backend, what
    known = fastest_methods(topology)
    if key not in known:
        jobs = [job_of(serial, wanted, forward=way, factor=1) for way in (True, False)]
        if topology.any_of([not all(map(suits_fftw, jobs))])[0]:
            known[key] = SCIPY
            return SCIPY
        _plan_alike(topology.comm, jobs)
        if wanted.backend == FFTW:
            known[key] = FFTW
        else:
            names = (SCIPY, FFTW)
            with agreed(topology.comm, "PencilFFT"):  # one rank may have no memory
                calls = [_trial(jobs, name) for name in names]
            times = time_in_turn(topology.comm, calls, SAMPLES)
            known[key] = names[times.index(min(times))]
    return str(known[key])


def _plan_alike(comm: MPI.Intracomm, jobs: Sequence[Job]) -> None:
    """Let FFTW plan each transform on one rank, and use this plan on all. *Collective*."""
    dtype = jobs[0].dtype
    with agreed(comm, "PencilFFT"):  # here and below one rank may have no memory
        pieces = {repr(piece): piece for piece, _ in map(pieces_of, jobs) if piece is not None}
    planners: dict[str, int] = {}
    for rank, names in enumerate(comm.allgather(list(pieces))):
        for name in names:
            planners.setdefault(name, rank)
    plans = b""
    with agreed(comm, "PencilFFT"):
        mine = [piece for name, piece in pieces.items() if planners[name] == comm.rank]
        for piece in mine:
            FFTWKernel(piece)
        if mine and comm.size > 1:
            plans = export_plans(dtype)
    if comm.size == 1:
        return
    made = {rank: comm.bcast((plans, guessed()), rank) for rank in sorted({*planners.values()})}
    with agreed(comm, "PencilFFT"):
        made.pop(comm.rank, None)
        for found, late in made.values():
            import_plans(dtype, found)
            guessed().update(late)


def _trial(jobs: Sequence[Job], backend: str) -> Callable[[], None]:
    """Return a call that transforms one piece, of zeros, for each job."""
    calls: list[Callable[[], None]] = []
    for job in jobs:
        piece, _ = pieces_of(job)
        if piece is not None:
            zeros, out = np.zeros(piece.before, job.dtype), np.empty(piece.after, job.dtype_after)
            calls.append(partial(KERNELS[backend](piece), zeros, out))

    def run() -> None:
        for call in calls:
            call()

    return run


class BlockTransform:
    """Serial transforms of whole blocks, whose space dimensions have the memory order `order`.

    There is a kernel for each worker: this thread and those of `pool`, if there is one.
    """

    def __init__(
        self,
        job: Job,
        order: Sequence[int],
        make: Callable[[Job], Kernel],
        workers: int,
        pool: Executor | None,
    ) -> None:
        self._axes = memory_axes(order, len(job.before) - len(order))
        self._piece, self._keys = pieces_of(job)
        first = len(job.before) - len(job.whole)
        before, after = prod(job.before[first:]), prod(job.after[first:])
        before, after = before * job.dtype.itemsize, after * job.dtype_after.itemsize
        # Whether a result may begin where its source does: pieces follow each other in memory and
        # in time, and shrink. What is left over is a small part.
        self.shrinks = (
            pool is None and min(job.whole) == first and after <= before <= after * 9 // 8
        )
        self._make, self._pool = make, pool
        self._workers = min(workers, len(self._keys))
        self._kernels: list[Kernel] = []

    def prepare(self) -> None:
        """Make the kernels; local."""
        if self._piece is not None:
            self._kernels = [self._make(self._piece) for _ in range(self._workers)]

    @property
    def nbytes(self) -> int:
        """Bytes that are kept between calls."""
        return sum(kernel.nbytes for kernel in self._kernels)

    def bind(self, source: Array, target: Array) -> PreparedBlock:
        """Prepare to transform one own block into another, which may share memory; local."""
        if not self._kernels:
            return no_op, no_op
        if same_view(source, target):
            source = target
        elif np.may_share_memory(source, target) and not self._follows(source, target):
            return self._bind_overlapping(source, target)
        return no_op, partial(self._transform, source, target)

    def _follows(self, source: Array, target: Array) -> bool:
        """Whether each piece is read before its memory is written."""
        blocks = [block.transpose(self._axes) for block in (source, target)]
        contiguous = all(block.flags.c_contiguous for block in blocks)
        return self.shrinks and contiguous and address(source) == address(target)

    def _bind_overlapping(self, source: Array, target: Array) -> PreparedBlock:
        room: list[Array] = []

        def reserve() -> None:
            room[:] = [np.empty_like(source)]

        def run() -> None:
            copy = room.pop()
            copy[...] = source
            self._transform(copy, target)

        return reserve, run

    def _transform(self, source: Array, target: Array) -> None:
        if self._pool is None:
            self._share(0, source, target)
            return
        others: list[Future[None]] = []
        try:
            for number in range(1, self._workers):
                run = copy_context().run  # NumPy treats floating-point errors as here
                others.append(self._pool.submit(run, self._share, number, source, target))
            self._share(0, source, target)
        finally:
            wait(others)
        for other in others:
            other.result()

    def _share(self, number: int, source: Array, target: Array) -> None:
        """Transform every piece of one worker."""
        kernel = self._kernels[number]
        here, there = source.transpose(self._axes), target.transpose(self._axes)
        for key in self._keys[number :: self._workers]:
            if under_way.on and number == 0:  # MPI expects the thread that began
                poll()
            piece = here[key]
            kernel(piece, piece if source is target else there[key])


def pieces_of(job: Job) -> tuple[Job | None, list[Key]]:
    """Cut a block into pieces: the job of the largest, if there is any, and where they are."""
    itemsize = max(job.dtype.itemsize, job.dtype_after.itemsize)
    size = chunk_shape(tuple(map(max, job.before, job.after)), job.whole, PIECE // itemsize)
    if not prod(job.before):
        return None, []
    return job.of_piece(size), list(chunk_keys(job.before, size, job.whole))


def chunk_shape(shape: Sequence[int], whole: Collection[int], most: int) -> tuple[int, ...]:
    """Choose pieces of at most `most` elements, unless one line along the axes `whole` has more.

    `shape` is that of the block, slowest axis first. The last pieces along an axis may be smaller.

    Examples
    --------
    >>> chunk_shape((10, 9, 8), {2}, 40)
    (1, 5, 8)
    """
    chosen = [n if axis in whole else 1 for axis, n in enumerate(shape)]
    for axis in reversed(range(len(shape))):
        room = most // max(1, prod(chosen))
        if axis in whole or shape[axis] == 0:
            continue
        if room < shape[axis]:
            pieces = -(-shape[axis] // max(1, room))
            chosen[axis] = -(-shape[axis] // pieces)
            break
        chosen[axis] = shape[axis]
    return tuple(chosen)


def chunk_keys(shape: Sequence[int], chunk: Sequence[int], whole: Collection[int]) -> Iterator[Key]:
    """Yield slices of every piece; those along `whole` take everything there is.

    Examples
    --------
    >>> list(chunk_keys((3, 8), (2, 8), {1}))
    [(slice(0, 2, None), slice(None, None, None)), (slice(2, 3, None), slice(None, None, None))]
    """
    along = [
        [slice(None)] if axis in whole else [slice(i, min(n, i + size)) for i in range(0, n, size)]
        for axis, (n, size) in enumerate(zip(shape, chunk, strict=True))
    ]
    yield from product(*along)


# Bytes: transforms along several axes are done at once if a core has cache for what they need.
TOGETHER = 2**20


class Space(NamedTuple):
    """The pencil, element type and components of fields between two steps."""

    pencil: Pencil
    dtype: np.dtype[Any]
    components: tuple[int, ...]

    @property
    def spec(self) -> FieldSpec:
        """The spec of its fields."""
        return FieldSpec(self.dtype, self.components, frozenset())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the own block."""
        return (*self.components, *self.pencil.local_shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the own block."""
        return self.dtype.itemsize * prod(self.shape)

    @property
    def total_bytes(self) -> int:
        """Bytes of the blocks of all ranks."""
        return self.dtype.itemsize * prod((*self.components, *self.pencil.shape))

    def view(self, memory: Array) -> PencilArray:
        """Return the field at the beginning of some memory."""
        return PencilArray.from_block(
            self.pencil, arrange(memory, self.pencil, self.dtype, self.shape)
        )


class SerialTransform(NamedTuple):
    """One serial transform, along `lines` at once, from one space to another."""

    start: Space
    end: Space
    lines: tuple[AxisTransform, ...]


def plan_route(wanted: Wanted) -> list[SerialTransform]:
    """List the serial transforms between transposes, in forward order; local."""
    pencil = wanted.pencil
    if wanted.points != pencil.shape:
        pencil = pencil.sibling(changed_shape(pencil.layout, wanted.points))
    lines = {line.axis: line for line in wanted.lines}
    stages = plan_stages(
        wanted.waves,
        pencil.decomp,
        pencil.grid,
        (*lines, *([] if wanted.whole is None else [wanted.whole])),
        first=wanted.first,
        free=[axis for axis, line in lines.items() if line.keeps_type],
        last=wanted.whole,
    )
    serials: list[SerialTransform] = []
    here = Space(pencil, wanted.dtype, wanted.components)
    for number, stage in enumerate(stages):
        if number:  # without communication: all ranks make the same pencil
            here = here._replace(pencil=here.pencil.sibling(staged(here.pencil.layout, stage)))
        for together in _groups([lines[axis] for axis in stage.axes if axis in lines], here.dtype):
            serials.append(_serial_transform(here, together))
            here = serials[-1].end
    return serials


def _groups(lines: Sequence[AxisTransform], dtype: np.dtype[Any]) -> list[list[AxisTransform]]:
    """Divide the lines of a stage into those that are transformed at once."""
    groups: list[list[AxisTransform]] = [[]]
    for line in lines:
        nbytes = dtype.itemsize * prod(each.points for each in (*groups[-1], line))
        if groups[-1] and nbytes > TOGETHER:
            groups.append([])
        groups[-1].append(line)
    return groups


def job_of(
    serial: SerialTransform, wanted: Wanted, *, forward: bool, factor: np.longdouble | int
) -> Job:
    """Describe the work on the block of this rank."""
    start, end = (serial.start, serial.end) if forward else (serial.end, serial.start)
    lead = len(wanted.components)
    axes = memory_axes(start.pencil.order, lead)
    before, after = (tuple(space.shape[axis] for axis in axes) for space in (start, end))
    lines = tuple((axes.index(lead + line.axis), line) for line in serial.lines)
    orthogonal = wanted.normalize == "ortho"
    scale = wanted.real.type(factor)
    return Job(before, after, start.dtype, end.dtype, lines, forward, orthogonal, scale)


def _serial_transform(start: Space, lines: Sequence[AxisTransform]) -> SerialTransform:
    before = after = start.pencil
    waves = {line.axis: line.waves for line in lines}
    shape = tuple(waves.get(dim, n) for dim, n in enumerate(before.shape))
    if shape != before.shape:
        after = before.sibling(changed_shape(before.layout, shape, waves))
    halved = any(line.transform == "r2c" for line in lines)
    dtype = np.result_type(start.dtype, "F") if halved else start.dtype
    return SerialTransform(start, Space(after, dtype, start.components), tuple(lines))
