"""Fields as the ranks have them that write or read files: in slabs, in chunks, with boundaries.

Files hold fields in C order. A slab is cut along its slowest dimension only, so that each rank's
part of a component is contiguous there: one long write instead of many short ones, or of strided
file views of MPI, which are slow and, in some MPIs, wrong. Chunks are filtered as a whole, so each
is on one rank. `FilePlan` is the one plan from fields to both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from pencils.array.allocation import Widths, padded_slices
from pencils.array.operands import FieldSpec
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO
from pencils.comm.pack import no_op
from pencils.io.chunks import Extents, count_chunks, cut_points, whole_chunks
from pencils.io.direct import DIRECT_BYTES
from pencils.layout import Extent, Layout
from pencils.pencil import Pencil
from pencils.plans import Freeable, kept_plan, kept_plans, plan_buffers
from pencils.transposition.plan import Transposition

if TYPE_CHECKING:
    from pencils.transposition.moves import Move

# Memory for packing, besides the field and the slab.
STAGING_BYTES = 2**26
# Runs that several nodes write side by side: as long as the stripes of parallel file systems.
_STRIPE_BYTES = 2**22


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


def is_written_directly(u: PencilArray, nodes: int) -> bool:
    """Whether ranks write their own points: each has one run, or long ones.

    Several nodes that write into each other's pages or stripes wait for each other, so that their
    runs must be longer. No node: each must have one run. The answer is the same on all ranks.
    """
    layout = u.extent.layout
    least = DIRECT_BYTES if nodes == 1 else _STRIPE_BYTES
    return is_slab(layout) or (nodes > 0 and run_bytes(layout, u.dtype.itemsize) >= least)


def tile(u: PencilArray, extents: Extents) -> Pencil:
    """Make the pencil whose points are the chunks of a field. *Collective*.

    Chunks stay where they are if no rank has a part of one and no rank is a mere replica of
    others; else they are distributed so that as many ranks as possible have some.
    """
    pencil, layout = u.pencil, u.extent.layout
    dims, shape = range(pencil.ndim), count_chunks(u.extent.shape, extents)
    whole: dict[str, Any] = {"shape": shape, "periodic": False, "order": dims}
    found = [whole_chunks(*pair) for pair in zip(layout.splits, extents, strict=True)]
    cuts = [cut for cut in found if cut is not None]
    if len(cuts) == len(found) and not layout.replicated_axes:
        return pencil.with_(**whole, decomp=pencil.decomp, grid=pencil.grid, splits=cuts)
    return pencil.with_(**whole, decomp=dims, grid=[0] * pencil.ndim, splits="first")


class FilePlan(Freeable):
    """Moves fields like `u` to the ranks that write them, or `back`. Making it is *Collective*.

    They are in slabs there, or with `extents` in whole chunks, which are the points of `tiles`.
    """

    def __init__(self, u: PencilArray, extents: Extents, *, back: bool) -> None:
        pencil, order = u.pencil, range(u.pencil.ndim)
        self.tiles = pencil
        if extents:
            self.tiles = tiles = tile(u, extents)
            along = enumerate(zip(tiles.layout.splits, extents, pencil.shape, strict=True))
            cuts = ["first" if dim in u.singletons else cut_points(*cut) for dim, cut in along]
            options: dict[str, Any] = {"grid": tiles.grid, "splits": cuts}
            self.there = pencil.with_(decomp=tiles.decomp, order=order, **options)
        else:
            self.there = pencil.with_(decomp=slab_dimension(u.extent.shape), order=order)
        self.plan = Transposition.for_spec(
            *((self.there, pencil) if back else (pencil, self.there)),
            FieldSpec.of(u),
            AUTO,  # prepared by the caller, together with what else needs memory
            buffers=plan_buffers(pencil.topology),
            max_buffer_bytes=STAGING_BYTES,
        )

    def free(self) -> None:
        """Free the plan."""
        self.plan.free()


def _key(u: PencilArray, extents: Extents, *, back: bool = False) -> object:
    return "file", u.pencil, FieldSpec.of(u), extents, back


def find_plan(u: PencilArray, extents: Extents = (), *, back: bool = False) -> FilePlan:
    """Find the plan that was used before, or make it. *Collective*."""
    key, topology = _key(u, extents, back=back), u.pencil.topology
    found: FilePlan = kept_plan(topology, key, lambda: FilePlan(u, extents, back=back))
    return found


Moving = Iterable[tuple[PencilArray, FilePlan | None]]


def known_plan(u: PencilArray, extents: Extents = ()) -> FilePlan | None:
    """Return the plan by which `Slabs.of` moves a field, if it is there; local."""
    found: FilePlan | None = kept_plans(u.pencil.topology).get(_key(u, extents))
    return found


def moving(fields: Iterable[PencilArray]) -> Iterator[tuple[PencilArray, FilePlan | None]]:
    """Yield the fields that are not in slabs, and the plans that move them, if they are there."""
    return ((u, known_plan(u)) for u in fields if not is_slab(u.extent.layout))


class ReadyMoves(NamedTuple):
    """The first fields of a call that move by one plan, one after the other, to one block.

    A call that finds the plan, because an earlier one has made it, needs no agreement of its own
    about the memory for these fields. After a field that is not ready, no other one is.
    """

    agree: agreed | None = None
    plan: FilePlan | None = None
    block: PencilArray | None = None
    moves: dict[int, Move] | None = None  # by identity of the field

    @classmethod
    def within(cls, agree: agreed, moving: Moving) -> ReadyMoves:
        """Allocate memory within an agreement about the fields that move, in this order; local.

        Each has its plan, if there is one. The agreement is deferred if the first plan is missing
        on a rank: no field is ready then.
        """
        pairs = list(moving)
        first = pairs[0][1] if pairs else None
        agree.defer(up=bool(pairs) and first is None)
        if first is None:
            return cls(agree)
        block, moves = PencilArray.allocated(first.there, *FieldSpec.of(pairs[0][0])), {}
        for u, plan in pairs:
            if plan is not first:
                break
            moves[id(u)] = first.plan.prepared_one(u, block)
        return cls(agree, first, block, moves)


class Slabs:
    """Brings fields to slabs or chunks, and back. All but `close` is *Collective*.

    The block is kept for the next field, if that has the same type: of a checkpoint, one field at a
    time exists twice. Plans are kept for later calls, and pack in memory that all transposes share.
    All ranks agree once on each field that moves and is not ready, when they have memory for it.

    Parameters
    ----------
    check : callable, optional
        Called before a field moves that is not ready; what it raises on one rank, all raise.
    ready : ReadyMoves, optional
        Fields that are prepared to move.
    nodes : int, optional
        Number of nodes that write: then fields stay of which ranks have long runs.
    copies : bool, optional
        Whether each field gets a block of its own, which keeps the values.
    """

    def __init__(
        self,
        check: Callable[[], object] = no_op,
        ready: ReadyMoves | None = None,
        *,
        nodes: int = 0,
        copies: bool = False,
    ) -> None:
        self._check, self._ready = check, ready or ReadyMoves()
        self._nodes, self._copies = nodes, copies
        self._block = self._ready.block

    def of(self, u: PencilArray, extents: Extents = ()) -> PencilArray:
        """Return `u` in slabs, or chunks of these extents: itself if it may stay."""
        comm = u.pencil.topology.comm
        if not extents and is_written_directly(u, self._nodes):
            if not self._copies:
                return u
            with agreed(comm, "Slabs"):  # one rank may have no memory for it
                copy = u.local.copy()
            return PencilArray.from_block(u.pencil, copy, u.singletons)
        found, ready = find_plan(u, extents), self._ready
        move, block = None, self._block
        if ready.agree is not None and not ready.agree.deferred and found is ready.plan:
            move = (ready.moves or {}).get(id(u))
        if move is None or block is None:
            self._ready = ReadyMoves()
            with agreed(comm, "Slabs"):
                self._check()
                block = self._allocate(found.there, u)
                move = found.plan.prepared_one(u, block)
        move.run()
        if self._copies:
            self.close()  # the next field gets another one
        return block

    def fill(self, u: PencilArray, read: Callable[[PencilArray], object]) -> None:
        """Let `read` fill a slab, which may fail on one rank, and move it to `u`."""
        found = find_plan(u, back=True)
        with agreed(u.pencil.topology.comm, "Slabs"):
            self._check()
            slab = self._allocate(found.there, u)
            read(slab)
            move = found.plan.prepared_one(slab, u)
        move.run()

    def close(self) -> None:
        """Give back the block."""
        self._block, self._ready = None, ReadyMoves()

    def _allocate(self, pencil: Pencil, u: PencilArray) -> PencilArray:
        spec, block = FieldSpec.of(u), self._block
        if block is None or block.pencil != pencil or FieldSpec.of(block) != spec:
            self._block = block = None  # first: there is memory for one
            self._block = block = PencilArray.allocated(pencil, *spec)
        return block


def boundary_widths(u: PencilArray) -> Widths:
    """Numbers of boundary points of a field: halo points beyond non-periodic dimensions."""
    none = u.singletons | u.trimmed | {dim for dim, one in enumerate(u.pencil.periodic) if one}
    along = enumerate(zip(u.halo, u.extent.shape, strict=True))
    return tuple((0, 0) if points == 0 or dim in none else halo for dim, (halo, points) in along)


def widened(pencil: Pencil, widths: Widths) -> Pencil:
    """Make a pencil that has these boundary points, too. *Collective*.

    They belong to the ranks with the first and the last points.
    """
    specs = pencil.layout.split_specs
    points = [n + lo + hi for n, (lo, hi) in zip(pencil.shape, widths, strict=True)]
    for dim, (lo, hi) in enumerate(widths):
        if lo or hi:
            split = pencil.layout.splits[dim]
            bounds = [split.bounds(part)[0] for part in range(split.parts)] + [split.points]
            outer = {0: 0, split.points: points[dim]}
            specs[dim] = tuple(outer.get(bound, bound + lo) for bound in bounds)
    return pencil.with_(shape=points, splits=specs)


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
    local = u.extent.local_shape
    target = u.padded[padded_slices(local, u.halo_room, _here(u.extent, common))]
    target[...] = wide.local[padded_slices(local, _here(u.extent, widths), _here(u.extent, common))]


def _here(extent: Extent, widths: Widths) -> Widths:
    """Boundary points that this rank has: all before the first point, all after the last."""
    along = zip(extent.box.start, extent.box.stop, extent.shape, widths, strict=True)
    return tuple(
        (lo if start == 0 else 0, hi if stop == n else 0) if start < stop else (0, 0)
        for start, stop, n, (lo, hi) in along
    )
