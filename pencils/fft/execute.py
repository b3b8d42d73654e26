"""Run a transform: serial transforms and transposes in turn, with work memory in between.

1. `choose_library` names the library of each serial transform, by measurement if asked for.
2. `make_directions` lists the steps of both directions.
3. `Direction.bind` prepares the steps for the fields of one call; `PreparedTransform` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from pencils.array.allocation import Array, allocate_bytes, arrange
from pencils.array.operands import FieldSpec
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import PreparedExchange
from pencils.comm.machine import time_in_turn
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import Attribute, Topology
from pencils.errors import ArgumentError
from pencils.fft.fftw_kernel import FFTWKernel, suits_fftw, why_no_fftw
from pencils.fft.kernels import BlockTransform, Job, Kernel, trial
from pencils.fft.options import Wanted
from pencils.fft.scipy_kernel import ScipyKernel
from pencils.fft.stages import Place, SerialTransform, job_of
from pencils.pencil import Pencil
from pencils.plan import fastest_methods
from pencils.transposition.plan import Transposition

AUTO = "auto"
SCIPY, FFTW = "scipy", "fftw"
BACKENDS = (AUTO, SCIPY, FFTW)
# How often pieces are transformed to find out what is faster.
SAMPLES = 5


def check_backend(backend: str) -> str:
    """Check the name of a backend, and that its library works here.

    Raises
    ------
    ArgumentError
        If it is unknown, or the library is missing or broken.
    """
    if backend not in list(BACKENDS):
        msg = f"backend={backend!r} is unknown; choose from {', '.join(BACKENDS)}"
        raise ArgumentError(msg)
    if backend == FFTW and why_no_fftw():
        msg = f"backend='fftw' needs mpi4py-fft; use 'scipy' or 'auto': {why_no_fftw()}"
        raise ArgumentError(msg)
    return backend


def kernel_of(backend: str) -> Callable[[Job], Kernel]:
    """Return the class of the kernels of a library."""
    return FFTWKernel if backend == FFTW else ScipyKernel


def choose_backend(backend: str, key: object, jobs: tuple[Job, Job], topology: Topology) -> str:
    """Return the library for the jobs of both directions. *Collective*.

    SciPy does what FFTW cannot do on some rank; else `AUTO` measures which is faster.

    Parameters
    ----------
    backend : str
        As given by the user.
    key : object
        Names the jobs, alike on all ranks; what was measured for it is remembered.
    jobs : (Job, Job)
        On the block of this rank.
    topology : Topology
        The ranks that take part.
    """
    if backend == SCIPY:
        return SCIPY
    key = "fft", backend, key
    known = fastest_methods(topology)
    if key not in known:
        known[key] = _suitable(backend, jobs, topology)
    found: str = known[key]
    return found


def _suitable(backend: str, jobs: tuple[Job, Job], topology: Topology) -> str:
    unsuitable = not all(map(suits_fftw, jobs))
    if topology.any_of([unsuitable])[0]:
        return SCIPY
    return FFTW if backend == FFTW else _faster(jobs, topology)


def _faster(jobs: tuple[Job, Job], topology: Topology) -> str:
    """Time one piece of every job. *Collective*."""
    names = (SCIPY, FFTW)
    calls = [partial(_run_all, [trial(job, kernel_of(name)) for job in jobs]) for name in names]
    times = time_in_turn(topology.comm, calls, SAMPLES)
    return names[times.index(min(times))]


def _run_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def choose_library(serial: SerialTransform, wanted: Wanted) -> str:
    """Choose the library for a serial transform. *Collective*."""
    if not serial.lines:
        return wanted.backend
    jobs = (
        job_of(serial, wanted, forward=True, factor=1),
        job_of(serial, wanted, forward=False, factor=1),
    )
    key = repr((serial.before, serial.lines, serial.dtype, wanted.components, wanted.normalize))
    return choose_backend(wanted.backend, key, jobs, wanted.pencil.topology)


def make_directions(
    wanted: Wanted,
    serials: Sequence[SerialTransform],
    ends: tuple[Place, Place],
    backends: Sequence[str],
) -> tuple[Direction, Direction]:
    """Make the steps of both directions. *Collective*.

    Parameters
    ----------
    wanted : Wanted
        The transform.
    serials : sequence of SerialTransform
        The serial transforms between transposes, in forward order.
    ends : (Place, Place)
        Of fields in physical space, and of waves.
    backends : sequence of str
        The library of each serial transform.
    """
    scales = [line.scales(wanted.normalize) for line in wanted.lines]
    buffers = Buffers()
    directions = []
    for forward in (True, False):
        # The last serial transform multiplies by all factors.
        factor = prod(scale[not forward] for scale in scales)
        in_order = list(zip(serials, backends, strict=True))[:: 1 if forward else -1]
        last = [serial for serial, _ in in_order if serial.lines][-1:]
        direction = Direction(ends[not forward], wanted.components, buffers)
        for serial, backend in in_order:
            job = job_of(serial, wanted, forward=forward, factor=factor if [serial] == last else 1)
            start, end = (serial.start, serial.end) if forward else (serial.end, serial.start)
            direction.add_transpose(start)
            if serial.lines:
                step = BlockTransform(job, serial.before.order, kernel_of(backend))
                direction.add(step, end, in_place=start == end)
        direction.add_transpose(ends[forward])
        directions.append(direction)
    with agreed(wanted.pencil.topology.comm, "PencilFFT"):  # may lack memory on one rank only
        for direction in directions:
            direction.finish()
    there, back = directions
    return there, back


class Step(NamedTuple):
    """What leads from one field to the next; the next may be the same if `in_place`."""

    run: Transposition | BlockTransform | None  # None copies
    in_place: bool


class Direction:
    """The steps from a field of the user to another one.

    Parameters
    ----------
    start : Place
        Of the field that is transformed.
    components : tuple of int
        Shape of the component axes.
    buffers : Buffers
        Memory of all transposes.
    """

    def __init__(self, start: Place, components: tuple[int, ...], buffers: Buffers) -> None:
        self._places = [start]  # before the first step, and after each
        self._steps: list[Step] = []
        self._components = components
        self._buffers = buffers
        self._slots: list[int] = []
        self._fields: list[PencilArray | None] = []

    def add_transpose(self, place: Place) -> None:
        """Add a transpose, unless the values are at `place`. *Collective*."""
        here = self._places[-1]
        if here == place:
            return
        spec = FieldSpec(place.dtype, self._components, frozenset())
        move = Transposition.for_spec(here.pencil, place.pencil, spec, AUTO, buffers=self._buffers)
        self.add(move, place, in_place=False)

    def add(
        self, run: Transposition | BlockTransform | None, place: Place, *, in_place: bool
    ) -> None:
        """Add a step that leads to `place`."""
        self._steps.append(Step(run, in_place))
        self._places.append(place)

    def finish(self) -> None:
        """Make the kernels, and number the work memory after each step; local."""
        if not self._steps:
            self.add(None, self._places[0], in_place=True)
        for step in self._steps:
            if isinstance(step.run, BlockTransform):
                step.run.prepare()
        # -1 is the field of the user that is filled in the end.
        self._slots = [-1]
        for step in reversed(self._steps[1:]):
            after = self._slots[0]
            self._slots.insert(0, after if step.in_place else int(after == 0))

    @property
    def sizes(self) -> list[int]:
        """Bytes of work memory that this rank needs."""
        sizes = [0, 0]
        for place, slot in zip(self._places[1:], self._slots, strict=True):
            if slot >= 0:
                sizes[slot] = max(sizes[slot], place.dtype.itemsize * prod(self._shape(place)))
        return sizes

    @property
    def packing(self) -> int:
        """Bytes of this rank that are kept for packing, for both directions."""
        return self._buffers.nbytes

    @property
    def kept(self) -> int:
        """Bytes that the serial transforms keep between calls."""
        runs = [step.run for step in self._steps]
        return sum(run.nbytes for run in runs if isinstance(run, BlockTransform))

    def use(self, works: Sequence[Array]) -> None:
        """Make the fields between the steps in work memory."""
        self._fields = [
            None if slot < 0 else self._field(place, works[slot])
            for place, slot in zip(self._places[1:], self._slots, strict=True)
        ]

    def bind(self, u: PencilArray, out: PencilArray) -> PreparedTransform:
        """Prepare all steps from `u`, which is kept unless `out` shares its memory; local."""
        prepared = PreparedTransform([], [])
        here = u
        for step, field in zip(self._steps, self._fields, strict=True):
            there = out if field is None else field
            if isinstance(step.run, Transposition):
                bound, _ = step.run.prepared([here], [there])
                prepared.moves.append(bound)
                prepared.calls.append(bound.run)
            elif isinstance(step.run, BlockTransform):
                prepared.calls.append(step.run.bind(here.local, there.local))
            elif here is not there:
                prepared.calls.append(partial(np.copyto, there.local, here.local))
            here = there
        return prepared

    def free(self) -> None:
        """Release memory and MPI objects."""
        for step in self._steps:
            if isinstance(step.run, Transposition):
                step.run.free()
        self._steps = []
        self._fields = []

    def _shape(self, place: Place) -> tuple[int, ...]:
        return (*self._components, *place.pencil.local_shape)

    def _field(self, place: Place, memory: Array) -> PencilArray:
        block = arrange(memory, place.pencil, place.dtype, self._shape(place))
        return PencilArray.from_block(place.pencil, block)


class PreparedTransform(NamedTuple):
    """The steps of one direction for given fields."""

    calls: list[Callable[[], object]]
    moves: list[PreparedExchange]

    def reserve(self) -> None:
        """Allocate what the transposes need; local."""
        for move in self.moves:
            move.reserve()

    def run(self) -> None:
        """Run all steps. *Collective*."""
        for call in self.calls:
            call()


work_memory = Attribute(WeakValueDictionary[int, Array])


def find_work(pencil: Pencil, sizes: Sequence[int]) -> list[Array]:
    """Find work memory of at least these sizes in bytes, or allocate it. *Collective*.

    Only one plan of a communicator runs at a time, so all plans use the same memory, which is
    released with the last of them.
    """
    topology = pencil.topology
    known = [work_memory(topology).get(slot) for slot in range(len(sizes))]
    held = [0 if work is None else work.nbytes for work in known]
    short = topology.any_of([have < want for have, want in zip(held, sizes, strict=True)])
    works = []
    for slot, (work, nbytes, new) in enumerate(zip(known, sizes, short, strict=True)):
        if new:
            works.append(allocate_bytes(pencil, nbytes, shared=True))
            work_memory(topology)[slot] = works[-1]
        else:
            works.append(np.empty(0, np.uint8) if work is None else work)
    return works
