"""Run a transform: serial transforms and transposes in turn, with work memory in between.

1. `make_directions` lists the steps of both directions, and finds work memory, which all plans of
   a communicator use in turn.
2. `Direction.bind` prepares the steps for the fields of one call; those between two fields in work
   memory are prepared once.
3. `Direction.run` runs them. Transposes read the work memory of other ranks in place. No barrier
   follows one: before a rank writes there again it has met the others at the beginning of the next
   call, or by a barrier that was started when it had read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from math import prod
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from pencils.array.allocation import Array, allocate_bytes
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.failure import wait_all
from pencils.comm.memory import round_up
from pencils.comm.mpi import MPI
from pencils.comm.pack import no_op
from pencils.comm.pool import empty_bytes
from pencils.comm.recording import timed
from pencils.comm.shared_memory import Buffers
from pencils.comm.topology import attribute
from pencils.fft.execute import AUTO, KERNELS, BlockTransform, SerialTransform, Space, job_of
from pencils.fft.options import Wanted
from pencils.pencil import Pencil
from pencils.transposition.plan import Transposition

# For each step what allocates its memory, and what runs it and returns the ranks that may still
# read the field before the step.
PreparedStep: TypeAlias = tuple[Callable[[], object], "Callable[[], MPI.Intracomm | None]"]
PreparedSteps: TypeAlias = list[PreparedStep]
SLOTS = 2  # fields between steps lie in one of these by turns
OUT, PRIVATE = -1, SLOTS  # or in the field of the user, or where no other rank reads
# Fields of this many bytes, on average on a rank, lie in the result if they can. Preparing for each
# new result takes 50 us.
LARGE = 2**21


class TransformStep(NamedTuple):
    """A step of a transform; without a function the values are copied."""

    function: Transposition | BlockTransform | None
    space: Space  # of the field after it
    in_place: bool  # whether this field may be in the memory of that before


class WorkMemory:
    """Memory for fields between steps, which is released with the last plan of a communicator.

    Only one plan of a communicator runs at a time, so all plans use the same memory.
    """

    def __init__(self) -> None:
        self._slots: WeakValueDictionary[int, Array] = WeakValueDictionary()
        self.read = False  # whether other ranks may still read that of this rank

    def short(self, sizes: Sequence[int]) -> list[bool]:
        """Whether each slot has fewer bytes than wanted; local."""
        return [self._slot(slot).nbytes < nbytes for slot, nbytes in enumerate(sizes)]

    def find(self, pencil: Pencil, sizes: Sequence[int], new: Sequence[bool]) -> list[Array]:
        """Return the slots; those that are `new` are allocated first. *Collective* if any is."""
        works = [self._slot(slot) for slot in range(SLOTS)]
        if any(new):
            wanted = [size if up else 0 for size, up in zip(sizes, new, strict=True)]
            starts = list(accumulate(map(round_up, wanted), initial=0))
            whole = allocate_bytes(pencil, starts[-1], shared=True)
            for slot, up in enumerate(new):
                if up:
                    start = starts[slot]
                    works[slot] = self._slots[slot] = whole[start : start + sizes[slot]]
        return works

    def find_private(self, nbytes: int) -> Array:
        """Return memory that no other rank reads; local."""
        found = self._slot(PRIVATE)
        if found.nbytes < nbytes:
            found = self._slots[PRIVATE] = empty_bytes(nbytes)
        return found

    def clear(self) -> None:
        """Forget the memory; the arrays live on in plans."""
        self._slots.clear()

    def _slot(self, slot: int) -> Array:
        return self._slots.get(slot, np.empty(0, np.uint8))


work_memory = attribute(WorkMemory)


class Direction:
    """The steps from fields of one space to fields of another one. Making it is local."""

    def __init__(
        self, start: Space, steps: Sequence[TransformStep], buffers: Buffers, memory: WorkMemory
    ) -> None:
        self.buffers = buffers  # of all transposes
        self._memory, self._comm = memory, start.pencil.topology.comm
        self._steps = steps
        for step in steps:
            if isinstance(step.function, BlockTransform):
                step.function.prepare()
        large = max(step.space.total_bytes for step in steps) >= LARGE * self._comm.size
        in_place = [step.in_place for step in steps]
        if not large and any(isinstance(step.function, Transposition) for step in steps[-2:-1]):
            in_place[-1] = False  # so that the transpose needs no other preparation
        self._slots = [OUT]  # of the field after each step
        for step, same in list(zip(steps, in_place, strict=True))[:0:-1]:
            after = self._slots[0]
            other = int(after == 0)
            if large and step is steps[-1] and isinstance(step.function, BlockTransform):
                other = PRIVATE if step.function.shrinks else other
            self._slots.insert(0, after if same else other)
        pairs = list(zip(steps, self._slots, strict=True))
        self._private_bytes = max(
            (step.space.nbytes for step, slot in pairs if slot == PRIVATE), default=0
        )
        self.private = np.empty(0, np.uint8)  # for fields to fill
        self._fields: list[PencilArray | None] = []
        self._fixed: dict[int, PreparedStep] = {}  # steps between two fields in work memory

    @property
    def sizes(self) -> list[int]:
        """Bytes of work memory that this rank needs."""
        sizes = [0] * SLOTS
        for (_, space, _), slot in zip(self._steps, self._slots, strict=True):
            if 0 <= slot < SLOTS:
                sizes[slot] = max(sizes[slot], space.nbytes)
        return sizes

    @property
    def kept(self) -> int:
        """Bytes that the serial transforms keep between calls."""
        functions = [step.function for step in self._steps]
        return sum(each.nbytes for each in functions if isinstance(each, BlockTransform))

    def use(self, works: Sequence[Array]) -> None:
        """Make the fields between the steps in work memory."""
        self._fields = [
            space.view(works[slot]) if 0 <= slot < SLOTS else None
            for (_, space, _), slot in zip(self._steps, self._slots, strict=True)
        ]

    def bind(self, u: PencilArray, out: PencilArray | None) -> tuple[PreparedSteps, PencilArray]:
        """Prepare all steps from `u`, which is kept unless `out` shares its memory; local.

        Without `out`, make it, with room for the field before the last step.
        """
        room = self.private
        if out is None:
            end = self._steps[-1].space
            if self._private_bytes:
                room = empty_bytes(max(self._private_bytes, end.nbytes))
                out = end.view(room)
            else:
                out = PencilArray.allocated(end.pencil, *end.spec)
        elif self._private_bytes:
            room = self.private = self._memory.find_private(self._private_bytes)
        prepared: PreparedSteps = []
        here = u
        for number, (field, slot) in enumerate(zip(self._fields, self._slots, strict=True)):
            there = field
            if there is None:
                there = out if slot == OUT else self._steps[number].space.view(room)
            bound = self._fixed.get(number)
            if bound is None:
                bound = self._bind_step(number, here, there)
                before = self._fields[number - 1] if number else None
                if field is not None and before is not None:
                    self._fixed[number] = bound
            prepared.append(bound)
            here = there
        return prepared, out

    def _bind_step(self, number: int, here: PencilArray, there: PencilArray) -> PreparedStep:
        function = self._steps[number].function
        if isinstance(function, Transposition):
            exchange = function.prepared_one(here, there)
            return exchange.reserve, exchange.run_open
        if isinstance(function, BlockTransform):
            return function.bind(here.local, there.local)
        return no_op, no_op if here is there else partial(np.copyto, there.local, here.local)

    def run(self, prepared: PreparedSteps, *, met: bool) -> Exception | None:
        """Run all steps. *Collective*.

        `met`: all ranks have met since the last call. Returns the first error of a serial transform
        on this rank, which may lack memory. Transposes go on after it, because the other ranks wait
        for this one.
        """
        if self._memory.read and not met:
            timed("wait", self._comm.Barrier)
        self._memory.read = True
        read, error = False, None
        waiting: list[tuple[int, MPI.Request]] = []  # for readers of a slot that is written later
        before = -1
        for number, ((_, run), slot) in enumerate(zip(prepared, self._slots, strict=True)):
            for readers in [each for each in waiting if each[0] == slot]:
                waiting.remove(readers)
                wait_all([readers[1]])
            try:
                comm = run()
            except Exception as mine:
                if isinstance(self._steps[number].function, Transposition):
                    raise
                comm, error = None, error or mine
            if comm is not None:
                if before < 0:
                    timed("wait", comm.Barrier)  # the field belongs to the user
                elif before in self._slots[number:]:
                    waiting.append((before, comm.Ibarrier()))
                else:
                    read = True
            before = slot
        self._memory.read = read
        return error

    def free(self) -> None:
        """Release memory and MPI objects."""
        for step in self._steps:
            if isinstance(step.function, Transposition):
                step.function.free()
        self._steps = []
        self._fields = []
        self._fixed.clear()
        self.private = np.empty(0, np.uint8)
        self.buffers = Buffers()  # a freed plan that is still referenced keeps no memory


def make_directions(
    wanted: Wanted,
    serials: Sequence[SerialTransform],
    ends: tuple[Space, Space],
    backends: Sequence[str],
) -> tuple[Direction, Direction, list[Array]]:
    """Make the steps of both directions, and find their work memory. *Collective*.

    `serials` with their `backends` are in forward order; `ends` are physical and spectral space.
    """
    topology = wanted.pencil.topology
    memory, buffers = work_memory(topology), Buffers()
    libraries = list(zip(serials, backends, strict=True))
    pool = ThreadPoolExecutor(wanted.workers - 1, "PencilFFT") if wanted.workers > 1 else None
    forward = _list_steps(wanted, libraries, ends, buffers, pool, forward=True)
    backward = _list_steps(wanted, libraries[::-1], ends[::-1], buffers, pool, forward=False)
    with agreed(topology.comm, "PencilFFT") as agree:  # may lack memory on one rank only
        there = Direction(ends[0], forward, buffers, memory)
        back = Direction(ends[1], backward, buffers, memory)
        sizes = list(map(max, there.sizes, back.sizes))
        one, other = memory.short(sizes)
        agree.flag(up=one)
        agree.defer(up=other)
    works = memory.find(wanted.pencil, sizes, (agree.flagged, agree.deferred))
    there.use(works)
    back.use(works)
    return there, back, works


def _list_steps(
    wanted: Wanted,
    libraries: Sequence[tuple[SerialTransform, str]],
    ends: tuple[Space, Space],
    buffers: Buffers,
    pool: Executor | None,
    *,
    forward: bool,
) -> list[TransformStep]:
    """List the serial transforms, and the transposes between them. *Collective*.

    The last serial transform multiplies by all factors.
    """
    here, last = ends
    steps: list[TransformStep] = []

    def transpose(space: Space) -> None:
        if here != space:
            move = Transposition.for_spec(
                here.pencil, space.pencil, space.spec, AUTO, buffers=buffers
            )
            steps.append(TransformStep(move, space, in_place=False))

    factor = prod(line.scales(wanted.normalize)[not forward] for line in wanted.lines)
    scaled = [serial for serial, _ in libraries if serial.lines][-1:]
    for serial, backend in libraries:
        start, end = (serial.start, serial.end) if forward else (serial.end, serial.start)
        transpose(start)
        here = end
        if serial.lines:
            job = job_of(
                serial, wanted, forward=forward, factor=factor if [serial] == scaled else 1
            )
            block = BlockTransform(job, start.pencil.order, KERNELS[backend], wanted.workers, pool)
            steps.append(TransformStep(block, end, in_place=start == end))
    transpose(last)
    return steps or [TransformStep(None, here, in_place=True)]
