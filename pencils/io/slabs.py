"""Fields as files hold them: as slabs, in which every rank has one run of bytes; with boundaries.

Files hold fields in C order. A slab is cut along its slowest dimension only, so that each rank's
part of a component is contiguous there: one long write instead of many short ones, or of strided
file views of MPI, which are slow and, in some MPIs, wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple, cast

from pencils.array.allocation import Array, Widths, padded_slices
from pencils.array.operands import FieldSpec
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO
from pencils.comm.pack import no_op
from pencils.layout import Extent, Layout, Split
from pencils.pencil import Pencil
from pencils.plans import kept_plan, kept_plans, plan_buffers
from pencils.transposition.plan import Transposition

if TYPE_CHECKING:
    from pencils.transposition.sides import Move


class ReadyMoves:
    """The first fields of a call that move by one plan, one after the other, to one block.

    A call that finds the plan, because an earlier one has made it, needs no agreement of its own
    about the memory for these fields.
    """

    def __init__(self) -> None:
        self._agree: agreed | None = None
        self._plan: Transposition | None = None
        self._block: PencilArray | None = None
        self._moves: dict[int, Move] = {}  # by identity of the field

    @classmethod
    def within(
        cls, agree: agreed, moving: Iterable[tuple[PencilArray, Transposition | None]]
    ) -> ReadyMoves:
        """Allocate memory within an agreement about the fields that move, in this order; local.

        Each has its plan, if there is one. The agreement is deferred if the first plan is missing
        on a rank: no field is ready then.
        """
        ready, pairs = cls(), list(moving)
        first = pairs[0][1] if pairs else None
        ready._agree = agree
        agree.defer(up=bool(pairs) and first is None)
        if first is None or first.target is None:
            return ready
        ready._plan = first
        ready._block = PencilArray.allocated(first.target, *FieldSpec.of(pairs[0][0]))
        for u, plan in pairs:
            if plan is not first:
                break
            ready._moves[id(u)] = first.prepared_one(u, ready._block)
        return ready

    def move(self, u: PencilArray, plan: Transposition) -> PencilArray | None:
        """Return the block, with the values of a field; None if that is not ready. *Collective*.

        It is ready for one plan: the same field may also be stored in other chunks. After a field
        that is not ready, no other one is: the memory is released.
        """
        is_ready = plan is self._plan and id(u) in self._moves
        if self._agree is None or self._agree.deferred or not is_ready:
            self.close()
            return None
        self._moves[id(u)].run()
        return self._block

    def close(self) -> None:
        """Release the memory."""
        self._block = None
        self._moves.clear()


# Memory for packing, besides the field and the slab.
STAGING_BYTES = 2**26


class FileBlocks(NamedTuple):
    """Where a field is in a file: blocks of `nbytes` bytes, in C order, begin at `starts`."""

    starts: tuple[int, ...]
    nbytes: int

    def pieces(self, at: int, data: Array) -> Iterator[tuple[int, Array]]:
        """Cut bytes that begin at position `at` of the field at the ends of blocks.

        Yields the position in the file of each piece, and the piece.
        """
        while data.size:
            number, rest = divmod(at, self.nbytes)
            count = min(data.size, self.nbytes - rest)
            yield self.starts[number] + rest, data[:count]
            at, data = at + count, data[count:]


def slab_dimension(shape: tuple[int, ...]) -> int:
    """First dimension with more than one point: the one along which a slab is cut."""
    return next((dim for dim, points in enumerate(shape) if points > 1), 0)


def is_slab(layout: Layout) -> bool:
    """Whether the block of every rank is one run of the global array in C order."""
    along = slab_dimension(layout.shape)
    return all(
        dim == along or split.parts == 1 or split.points == 1
        for dim, split in enumerate(layout.splits)
    )


def run_bytes(layout: Layout, itemsize: int) -> int:
    """Bytes that a rank's block has in one piece of the global array; about, for all ranks."""
    cut = [dim for dim, split in enumerate(layout.splits) if split.parts > 1 and split.points > 1]
    first = cut[-1] if cut else 0
    return prod(layout.shape[first:]) * itemsize // layout.process_shape[first]


def consecutive(
    ranges: Sequence[range], shape: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Cut a box of an array, which may have strides, into runs that are consecutive in C order.

    Yields the position of the first element of each run in the array, and its index in the box.
    """
    if not all(map(len, ranges)):
        return
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    inner = len(ranges)
    while inner and (ranges[inner - 1].step == 1 or len(ranges[inner - 1]) == 1):
        inner -= 1
        if len(ranges[inner]) < shape[inner]:
            break
    start = sum(kept[0] * s for kept, s in zip(ranges[inner:], strides[inner:], strict=True))
    for index in product(*(range(len(kept)) for kept in ranges[:inner])):
        lead = zip(ranges, index, strides, strict=False)
        yield start + sum(kept[i] * stride for kept, i, stride in lead), index


class Slabs:
    """Brings fields to slabs and back, one after the other. All but `close` is *Collective*.

    A slab is kept for the next field, if that has the same type: of a checkpoint, one field at a
    time exists twice. Plans are kept for later calls, and pack in memory that all transposes share.
    All ranks agree once on each field that moves and is not ready, when they have memory for it.

    Parameters
    ----------
    check : callable, optional
        Called before a field moves that is not ready; what it raises on one rank, all raise.
    stays : callable, optional
        Whether `of` leaves a field as it is. Default: if it is in slabs.
    ready : ReadyMoves, optional
        Fields that are prepared to move to slabs, by plans of `kept_plan_of`, or to chunks.
    """

    def __init__(
        self,
        check: Callable[[], object] = no_op,
        stays: Callable[[PencilArray], bool] = lambda u: is_slab(u.extent.layout),
        ready: ReadyMoves | None = None,
    ) -> None:
        self._check = check
        self._stays = stays
        self.ready = ready or ReadyMoves()
        self._spec: object = None
        self._slab: PencilArray | None = None

    def of(self, u: PencilArray) -> PencilArray:
        """Return `u` in slabs: itself if it stays."""
        if self._stays(u):
            return u
        plan = _find_plan(u, back=False)
        block = self.ready.move(u, plan)
        if block is not None:
            return block
        with agreed(u.pencil.topology.comm, "Slabs"):  # one rank may have no memory for it
            self._check()
            slab = self._find_slab(plan.target, u)
            move = plan.prepared_one(u, slab)
        move.run()
        return slab

    def fill(self, u: PencilArray, read: Callable[[PencilArray], object]) -> None:
        """Let `read` fill a slab, which may fail on one rank, and move it to `u`."""
        plan = None if is_slab(u.extent.layout) else _find_plan(u, back=True)
        with agreed(u.pencil.topology.comm, "Slabs"):
            self._check()
            slab = u if plan is None else self._find_slab(plan.source, u)
            read(slab)
            move = None if plan is None else plan.prepared_one(slab, u)
        if move is not None:
            move.run()

    def close(self) -> None:
        """Give back the slab."""
        self._spec = self._slab = None
        self.ready.close()

    def _find_slab(self, end: Pencil | None, u: PencilArray) -> PencilArray:
        pencil = cast("Pencil", end)  # no rank is left out
        spec = FieldSpec.of(u)
        if self._slab is None or self._spec != (pencil, spec):
            self.close()
            self._slab = PencilArray.allocated(pencil, *spec)
            self._spec = pencil, spec
        return self._slab


class SlabCopies(Slabs):
    """Copies fields to slabs of their own, which keep the values. *Collective*."""

    def of(self, u: PencilArray) -> PencilArray:
        """Return a new field in slabs, with the values of `u`."""
        slab = super().of(u)
        if slab is not u:
            self.close()  # the next field gets another one
            return slab
        with agreed(u.pencil.topology.comm, "Slabs"):  # one rank may have no memory for it
            block = u.local.copy()
        return PencilArray.from_block(u.pencil, block, u.singletons)


def _find_plan(u: PencilArray, *, back: bool) -> Transposition:
    """Find the plan from a field to slabs, or ``back``; later saves find it again."""

    def make() -> Transposition:
        along = slab_dimension(u.extent.shape)
        flat = u.pencil.with_(decomp=along, order=range(u.pencil.ndim))
        return file_plan(*((flat, u.pencil) if back else (u.pencil, flat)), FieldSpec.of(u))

    plan: Transposition = kept_plan(u.pencil.topology, _key(u, back=back), make)
    return plan


def kept_plan_of(u: PencilArray) -> Transposition | None:
    """Return the plan by which `Slabs.of` moves a field, if it is there; local."""
    found: Transposition | None = kept_plans(u.pencil.topology).get(_key(u, back=False))
    return found


def moving(fields: Iterable[PencilArray]) -> Iterator[tuple[PencilArray, Transposition | None]]:
    """Yield the fields that are not in slabs, and the plans that move them, if they are there."""
    return ((u, kept_plan_of(u)) for u in fields if not is_slab(u.extent.layout))


def _key(u: PencilArray, *, back: bool) -> object:
    return "slabs", u.pencil, FieldSpec.of(u), back


def file_plan(source: Pencil, target: Pencil, spec: FieldSpec) -> Transposition:
    """Make a plan that moves fields from or to the ranks that write or read them. *Collective*.

    Its calls are prepared by the caller, together with what else needs memory.
    """
    buffers = plan_buffers(source.topology)
    return Transposition.for_spec(
        source, target, spec, AUTO, buffers=buffers, max_buffer_bytes=STAGING_BYTES
    )


def boundary_widths(u: PencilArray) -> Widths:
    """Numbers of boundary points of a field: halo points beyond non-periodic dimensions."""
    along = enumerate(zip(u.halo, u.extent.shape, strict=True))
    periodic, none = u.pencil.periodic, u.singletons | u.trimmed
    return tuple(
        (0, 0) if periodic[dim] or points == 0 or dim in none else halo
        for dim, (halo, points) in along
    )


def widened(pencil: Pencil, widths: Widths) -> Pencil:
    """Make a pencil that has these boundary points, too. *Collective*.

    They belong to the ranks with the first and the last points.
    """
    layout = pencil.layout
    specs = layout.split_specs
    points = [n + lo + hi for n, (lo, hi) in zip(pencil.shape, widths, strict=True)]
    for dim, (lo, hi) in enumerate(widths):
        if lo or hi:
            specs[dim] = _widened_bounds(layout.splits[dim], lo, points[dim])
    return pencil.with_(shape=points, splits=specs)


def _widened_bounds(split: Split, lo: int, points: int) -> tuple[int, ...]:
    bounds = [split.bounds(part)[0] for part in range(split.parts)] + [split.points]
    outer = {0: 0, split.points: points}
    return tuple(outer.get(bound, bound + lo) for bound in bounds)


def with_boundary(u: PencilArray, pencil: Pencil, widths: Widths) -> PencilArray:
    """View a field, which has room for them, together with its boundary points."""
    here = _here(u.extent, widths)
    block = u.padded[padded_slices(u.extent.local_shape, u.halo_room, here)]
    return PencilArray.from_block(pencil, block, u.singletons)


def has_room(u: PencilArray, widths: Widths) -> bool:
    """Whether a field can hold that many boundary points."""
    pairs = zip(boundary_widths(u), widths, strict=True)
    return all(have[0] >= lo and have[1] >= hi for have, (lo, hi) in pairs)


def copy_common(wide: PencilArray, u: PencilArray, widths: Widths) -> None:
    """Fill a field from one that also has boundary points, as far as it has room for these."""
    pairs = zip(boundary_widths(u), widths, strict=True)
    common = tuple((min(a, lo), min(b, hi)) for (a, b), (lo, hi) in pairs)
    there, here = _here(u.extent, widths), _here(u.extent, common)
    local = u.extent.local_shape
    target = u.padded[padded_slices(local, u.halo_room, here)]
    target[...] = wide.local[padded_slices(local, there, here)]


def _here(extent: Extent, widths: Widths) -> Widths:
    """Boundary points that this rank has: all before the first point, all after the last."""
    along = zip(extent.box.start, extent.box.stop, extent.shape, widths, strict=True)
    return tuple(
        (lo if start == 0 else 0, hi if stop == n else 0) if start < stop else (0, 0)
        for start, stop, n, (lo, hi) in along
    )
