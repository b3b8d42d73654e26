"""Run a transform: serial transforms and transposes in turn, with work memory in between.

1. `choose_backend` chooses the library of each serial transform.
2. `make_directions` lists the steps of both directions.
3. `Direction.bind` prepares the steps for the fields of one call. They use the same work memory in
   turn: `find_work`.
4. A `BlockTransform` calls a kernel (`pencils.fft.kernels`) for each piece of its block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from pencils.array.allocation import Array, allocate_bytes, arrange, memory_axes
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.machine import time_in_turn
from pencils.comm.memory import same_view
from pencils.comm.pack import no_op
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Attribute
from pencils.errors import ArgumentError
from pencils.fft.kernels import FFTWKernel, Job, ScipyKernel, suits_fftw, why_no_fftw
from pencils.fft.options import Wanted
from pencils.fft.stages import SerialTransform, Space, job_of
from pencils.pencil import Pencil
from pencils.plan import fastest_methods
from pencils.transposition.plan import Transposition

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
# For each step what allocates its memory, and what runs it.
PreparedStep: TypeAlias = tuple[Callable[[], object], Callable[[], object]]
PreparedSteps: TypeAlias = list[PreparedStep]


def check_backend(backend: str) -> str:
    """Check the name of a backend, and that its library works here."""
    if backend not in list(BACKENDS):
        raise ArgumentError(f"backend={backend!r} is unknown; choose from {', '.join(BACKENDS)}")
    if backend == FFTW and why_no_fftw():
        raise ArgumentError(
            f"backend='fftw' needs mpi4py-fft; use 'scipy' or 'auto': {why_no_fftw()}"
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
        elif wanted.backend == FFTW:
            known[key] = FFTW
        else:
            names = (SCIPY, FFTW)
            with agreed(topology.comm, "PencilFFT"):  # one rank may have no memory
                calls = [_trial(jobs, name) for name in names]
            times = time_in_turn(topology.comm, calls, SAMPLES)
            known[key] = names[times.index(min(times))]
    return str(known[key])


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
    """Serial transforms of whole blocks, whose space dimensions have the memory order `order`."""

    def __init__(self, job: Job, order: Sequence[int], make: Callable[[Job], Kernel]) -> None:
        self._axes = memory_axes(order, len(job.before) - len(order))
        self._piece, self._keys = pieces_of(job)
        self._make = make
        self._kernel: Kernel | None = None

    def prepare(self) -> None:
        """Make the kernel; local."""
        self._kernel = None if self._piece is None else self._make(self._piece)

    @property
    def nbytes(self) -> int:
        """Bytes that are kept between calls."""
        return 0 if self._kernel is None else self._kernel.nbytes

    def bind(self, source: Array, target: Array) -> PreparedStep:
        """Prepare to transform one own block into another, which may share memory; local."""
        if self._kernel is None:
            return no_op, no_op
        if same_view(source, target):
            source = target
        elif np.may_share_memory(source, target):
            return self._bind_overlapping(source, target)
        return no_op, partial(self._transform, source, target)

    def _bind_overlapping(self, source: Array, target: Array) -> PreparedStep:
        room: list[Array] = []

        def reserve() -> None:
            room[:] = [np.empty_like(source)]

        def run() -> None:
            copy = room.pop()
            copy[...] = source
            self._transform(copy, target)

        return reserve, run

    def _transform(self, source: Array, target: Array) -> None:
        assert self._kernel is not None
        here, there = source.transpose(self._axes), target.transpose(self._axes)
        for key in self._keys:
            piece = here[key]
            self._kernel(piece, piece if source is target else there[key])


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


Step: TypeAlias = Transposition | BlockTransform


def make_directions(
    wanted: Wanted,
    serials: Sequence[SerialTransform],
    ends: tuple[Space, Space],
    backends: Sequence[str],
) -> tuple[Direction, Direction]:
    """Make the steps of both directions. *Collective*.

    `serials` with their `backends` are in forward order; `ends` are physical and spectral space.
    """
    scales = [line.scales(wanted.normalize) for line in wanted.lines]
    buffers = Buffers()
    directions = []
    for forward in (True, False):
        # The last serial transform multiplies by all factors.
        factor = prod(scale[not forward] for scale in scales)
        in_order = list(zip(serials, backends, strict=True))[:: 1 if forward else -1]
        last = [serial for serial, _ in in_order if serial.lines][-1:]
        direction = Direction(ends[not forward], buffers)
        for serial, backend in in_order:
            job = job_of(serial, wanted, forward=forward, factor=factor if [serial] == last else 1)
            start, end = (serial.start, serial.end) if forward else (serial.end, serial.start)
            direction.add_transpose(start)
            if serial.lines:
                step = BlockTransform(job, start.pencil.order, KERNELS[backend])
                direction.add(step, end, in_place=start == end)
        direction.add_transpose(ends[forward])
        directions.append(direction)
    with agreed(wanted.pencil.topology.comm, "PencilFFT"):  # may lack memory on one rank only
        for direction in directions:
            direction.finish()
    there, back = directions
    return there, back


class Direction:
    """The steps from fields of the space `start` to fields of another one."""

    def __init__(self, start: Space, buffers: Buffers) -> None:
        self._spaces = [start]  # before the first step, and after each
        self._steps: list[Step | None] = []  # None copies
        self._in_place: list[bool] = []
        self.buffers = buffers  # of all transposes
        self._slots: list[int] = []
        self._fields: list[PencilArray | None] = []

    def add_transpose(self, space: Space) -> None:
        """Add a transpose, unless the values are in `space`. *Collective*."""
        here = self._spaces[-1]
        if here != space:
            move = Transposition.for_spec(
                here.pencil, space.pencil, space.spec, AUTO, buffers=self.buffers
            )
            self.add(move, space, in_place=False)

    def add(self, step: Step | None, space: Space, *, in_place: bool) -> None:
        """Add a step that leads to `space`, in the same memory if `in_place`."""
        self._steps.append(step)
        self._in_place.append(in_place)
        self._spaces.append(space)

    def finish(self) -> None:
        """Make the kernels, and number the work memory after each step; local."""
        if not self._steps:
            self.add(None, self._spaces[0], in_place=True)
        for step in self._steps:
            if isinstance(step, BlockTransform):
                step.prepare()
        # -1 is the field of the user that is filled in the end.
        self._slots = [-1]
        for in_place in reversed(self._in_place[1:]):
            after = self._slots[0]
            self._slots.insert(0, after if in_place else int(after == 0))

    @property
    def sizes(self) -> list[int]:
        """Bytes of work memory that this rank needs."""
        sizes = [0, 0]
        for space, slot in zip(self._spaces[1:], self._slots, strict=True):
            if slot >= 0:
                sizes[slot] = max(sizes[slot], space.dtype.itemsize * prod(space.shape))
        return sizes

    @property
    def kept(self) -> int:
        """Bytes that the serial transforms keep between calls."""
        return sum(step.nbytes for step in self._steps if isinstance(step, BlockTransform))

    def use(self, works: Sequence[Array]) -> None:
        """Make the fields between the steps in work memory."""
        self._fields = [
            None
            if slot < 0
            else PencilArray.from_block(
                space.pencil, arrange(works[slot], space.pencil, space.dtype, space.shape)
            )
            for space, slot in zip(self._spaces[1:], self._slots, strict=True)
        ]

    def bind(self, u: PencilArray, out: PencilArray) -> PreparedSteps:
        """Prepare all steps from `u`, which is kept unless `out` shares its memory; local."""
        prepared: PreparedSteps = []
        here = u
        for step, field in zip(self._steps, self._fields, strict=True):
            there = out if field is None else field
            if isinstance(step, Transposition):
                exchange, _ = step.prepared([here], [there])
                prepared.append((exchange.reserve, exchange.run))
            elif isinstance(step, BlockTransform):
                prepared.append(step.bind(here.local, there.local))
            elif here is not there:
                prepared.append((no_op, partial(np.copyto, there.local, here.local)))
            here = there
        return prepared

    def free(self) -> None:
        """Release memory and MPI objects."""
        for step in self._steps:
            if isinstance(step, Transposition):
                step.free()
        self._steps = []
        self._fields = []


work_memory = Attribute(WeakValueDictionary[int, Array])


def find_work(pencil: Pencil, sizes: Sequence[int]) -> list[Array]:
    """Find work memory of at least these sizes in bytes, or allocate it. *Collective*.

    Only one plan of a communicator runs at a time, so all plans use the same memory, which is
    released with the last of them.
    """
    topology = pencil.topology
    known = work_memory(topology)
    works = [known.get(slot, np.empty(0, np.uint8)) for slot in range(len(sizes))]
    short = [work.nbytes < nbytes for work, nbytes in zip(works, sizes, strict=True)]
    for slot, new in enumerate(topology.any_of(short)):
        if new:
            works[slot] = known[slot] = allocate_bytes(pencil, sizes[slot], shared=True)
    return works
