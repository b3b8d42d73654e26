"""Fields as the ranks have them that write or read files: in slabs, in chunks, with boundaries.

A slab is cut along its slowest dimension only, so that each rank's part of a component is one run
of the file: one long write instead of many, or of strided views of MPI, which are slow. Chunks are
filtered as a whole, so each is on one rank. `FilePlan` is the one plan from fields to both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import isqrt, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.allocation import Array, Widths, padded_slices
from pencils.array.operands import FieldSpec
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO
from pencils.comm.pack import no_op
from pencils.io.direct import DIRECT_BYTES
from pencils.layout import Box, Extent, Layout, Split
from pencils.pencil import Pencil
from pencils.plans import Freeable, kept_plan, kept_plans, plan_buffers
from pencils.transposition.plan import Transposition

if TYPE_CHECKING:
    from pencils.transposition.plan import Move

Extents = tuple[int, ...]

# Of a chunk by default: HDF5 finds, and filters, each as a whole.
GOOD_BYTES = 2**20
# Memory for packing, besides the field and the slab.
STAGING_BYTES = 2**26
# A rank has less than so many times its share, or the largest block, so that fewer points move.
_UNEVEN = 2
# Runs that several nodes write side by side: as long as the stripes of parallel file systems.
_STRIPE_BYTES = 2**22


def count_chunks(shape: Sequence[int], chunk: Sequence[int]) -> Extents:
    """Count chunks along each axis; the last one may be partly outside."""
    return tuple(-(-n // extent) for n, extent in zip(shape, chunk, strict=True))


def chunk_box(index: Sequence[int], chunk: Sequence[int], shape: Sequence[int]) -> Box:
    """Find the points of an array that are in one chunk."""
    start = tuple(i * extent for i, extent in zip(index, chunk, strict=True))
    return Box(start, tuple(map(sum, zip(start, chunk, strict=True)))) & Box.of_shape(shape)


def own_chunks(
    block: PencilArray, tiles: Pencil, chunk: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Box, Array]]:
    """Yield the index, the points and the values of each chunk that this rank writes.

    `block` is the field where chunks are whole, `tiles` the pencil whose points are the chunks.
    """
    lead = (0,) * len(block.components)
    origin, first = (lead + box.start for box in (block.extent.box, tiles.box()))
    for inside in np.ndindex(*block.components, *tiles.local_shape):
        index = tuple(map(sum, zip(first, inside, strict=True)))
        box = chunk_box(index, chunk, block.shape)
        yield index, box, block.local[box.slices(origin)]


def choose_chunk(shape: Sequence[int], itemsize: int, most: int = GOOD_BYTES) -> Extents:
    """Choose extents of at most so many bytes, as near to cubes as halving of dimensions gives."""
    chunk, parts = list(shape), [1] * len(shape)
    while prod(chunk) * itemsize > most and max(chunk) > 1:
        dim = chunk.index(max(chunk))
        parts[dim] *= 2
        chunk[dim] = -(-shape[dim] // parts[dim])
    return tuple(chunk)


def enlarge(chunk: Sequence[int], shape: Sequence[int], most: int) -> Extents:
    """Join chunks, along the last axes first, to blocks of at most `most` points."""
    block = list(chunk)
    for axis in reversed(range(len(block))):
        block[axis] = min(block[axis] * max(1, most // prod(block)), shape[axis])
    return tuple(block)


def cut_points(split: Split, chunk: int, points: int) -> tuple[int, ...]:
    """Cut the points of a dimension as its chunks are."""
    starts = (split.bounds(part)[0] for part in range(split.parts))
    return (*(min(start * chunk, points) for start in starts), points)


def chunk_in_order(shape: Sequence[int], itemsize: int, limit: int) -> Extents:
    """Cut an array into chunks of at most `limit` bytes, which follow each other in C order.

    Along the first axis the last one may reach beyond the array; along others that leaves gaps.
    """
    for axis, n in enumerate(shape):
        inner = prod(shape[axis + 1 :]) * itemsize
        if inner <= limit:
            points = max(1, n)
            most = min(points, limit // max(1, inner))
            rows = -(-points // -(-points // most))
            if prod(shape[:axis]) > 1:
                small = [d for d in range(1, isqrt(points) + 1) if points % d == 0]
                rows = max(d for one in small for d in (one, points // one) if d <= most)
            return (*(1 for _ in shape[:axis]), rows, *(max(1, m) for m in shape[axis + 1 :]))
    return tuple(1 for _ in shape)


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


def tile(u: PencilArray, extents: Extents) -> Pencil:
    """Make the pencil whose points are the chunks of a field. *Collective*.

    Each chunk is where most of its points are. If ranks are replicas of others, or one of them
    would have much more than its share, as many ranks as possible have some.
    """
    pencil, layout = u.pencil, u.extent.layout
    dims, shape = range(pencil.ndim), count_chunks(u.extent.shape, extents)
    whole: dict[str, Any] = {"shape": shape, "periodic": False, "order": dims}
    cuts = [split.chunk_cuts(chunk) for split, chunk in zip(layout.splits, extents, strict=True)]
    largest = prod(max(hi - lo for lo, hi in pairwise(cut)) for cut in cuts)
    chunk, block = prod(extents), prod(split.longest for split in layout.splits)
    fair = max(block, -(-prod(shape) // layout.size) * chunk)
    if largest * chunk < _UNEVEN * fair and not layout.replicated_axes:
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
        # Calls do not check: the caller agrees on the memory, together with that for blocks.
        self.plan = Transposition.for_spec(
            *((self.there, pencil) if back else (pencil, self.there)),
            FieldSpec.of(u),
            AUTO,
            buffers=plan_buffers(pencil.topology),
            max_buffer_bytes=STAGING_BYTES,
        )

    def free(self) -> None:
        """Free the plan."""
        self.plan.free()


def find_plan(u: PencilArray, extents: Extents = (), *, back: bool = False) -> FilePlan:
    """Find the plan that was used before, or make it. *Collective*."""
    key = _key(u, extents, back=back)
    found: FilePlan = kept_plan(u.pencil.topology, key, lambda: FilePlan(u, extents, back=back))
    return found


def _key(u: PencilArray, extents: Extents, *, back: bool = False) -> object:
    return "file", u.pencil, FieldSpec.of(u), extents, back


class FileMoves:
    """Brings fields to slabs or chunks, and back. All but `prepare` and `close` is *Collective*.

    The block is kept for the next field, if that has the same type: of a checkpoint, one field at a
    time exists twice. With `direct`, fields stay if ranks have long runs of the file; with `copies`
    each field gets a block of its own, which keeps the values.
    """

    def __init__(self, *, direct: bool = False, copies: bool = False) -> None:
        self._direct, self._copies = direct, copies
        self._block: PencilArray | None = None
        self._agree: agreed | None = None
        self._ready: dict[int, tuple[FilePlan, Move]] = {}  # by identity of the field
        self._filled: PencilArray | None = None  # by `fill_first`

    def prepare(
        self, agree: agreed, fields: Iterable[tuple[PencilArray, Extents]], *, back: bool = False
    ) -> None:
        """Allocate memory within an agreement about fields that `of` will get in this order; local.

        With `back`, it is `fill` that will get them.

        The first ones that move by one plan are then ready: a call that finds the plan, because an
        earlier one has made it, needs no agreement of its own about the memory for these fields.
        The agreement is deferred if the plan is missing: no field is ready then.
        """
        self._agree, first = agree, None
        for u, extents in fields:
            if self._stays(u, extents, local=True):
                continue
            key = _key(u, extents, back=back)
            found: FilePlan | None = kept_plans(u.pencil.topology).get(key)
            if first is None:
                agree.defer(up=found is None)
                first = found
            if found is None or found is not first:
                break
            block = self._allocate(found.there, u)
            ends = (block, u) if back else (u, block)
            self._ready[id(u)] = found, found.plan.prepared_one(*ends)

    def of(
        self, u: PencilArray, extents: Extents = (), check: Callable[[], object] = no_op
    ) -> PencilArray:
        """Return `u` in slabs, or in chunks of these extents: itself if it may stay.

        All ranks agree once on a field that moves and is not ready, when they have memory for it;
        what `check` raises on one rank then, all raise. After such a field no other one is ready.
        """
        comm = u.pencil.topology.comm
        if self._stays(u, extents):
            if not self._copies:
                return u
            with agreed(comm, "FileMoves"):  # one rank may have no memory for it
                copy = u.local.copy()
            return PencilArray.from_block(u.pencil, copy, u.singletons)
        found, block = find_plan(u, extents), self._block
        plan, move = self._ready.get(id(u), (None, None))
        is_ready = plan is found and self._agree is not None and not self._agree.deferred
        if move is None or block is None or not is_ready:
            self._ready.clear()
            with agreed(comm, "FileMoves"):
                check()
                block = self._allocate(found.there, u)
                move = found.plan.prepared_one(u, block)
        move.run()
        if self._copies:
            self.close()  # the next field gets another one
        return block

    def fill_first(self, u: PencilArray, read: Callable[[PencilArray], object]) -> None:
        """Let `read` fill the slab of the first field, if `prepare` has made it ready; local."""
        if id(u) in self._ready and self._block is not None:
            read(self._block)
            self._filled = u

    def fill(
        self,
        u: PencilArray,
        read: Callable[[PencilArray], object],
        keep: Callable[[Callable[[], object]], object],
    ) -> bool:
        """Let `read` fill a slab, unless `fill_first` has, and move it to `u`; return whether.

        `read` may fail on one rank: all ranks agree then, or, if the field is ready, `keep` calls
        it and keeps the error.
        """
        comm = u.pencil.topology.comm
        if is_slab(u.extent.layout):  # of short runs, which each rank reads itself
            with agreed(comm, "FileMoves"):
                read(u)
            return True
        found, block, is_new = find_plan(u, back=True), self._block, u is not self._filled
        plan, move = self._ready.pop(id(u), (None, None))
        is_ready = plan is found and self._agree is not None and not self._agree.deferred
        if move is None or block is None or not is_ready:
            is_new = True
            with agreed(comm, "FileMoves"):
                slab = self._allocate(found.there, u)
                read(slab)
                move = found.plan.prepared_one(slab, u)
        elif is_new:
            keep(partial(read, block))
        move.run()
        return is_new

    def close(self) -> None:
        """Give back the block."""
        self._block = None
        self._ready.clear()

    def _stays(self, u: PencilArray, extents: Extents = (), *, local: bool = False) -> bool:
        """Whether ranks write their own points: each has one run, or long ones, or whole chunks.

        Several nodes that write into each other's pages or stripes wait for each other, so that
        their runs must be longer. *Collective*, unless `local`, and the same on all ranks.
        """
        layout, topology = u.extent.layout, u.pencil.topology
        if extents:
            found = kept_plans(topology).get(_key(u, extents)) if local else find_plan(u, extents)
            return found is not None and bool(found.there == u.pencil)
        if is_slab(layout):
            return True
        if not self._direct:
            return False
        nodes = topology.known_nodes if local else topology.nodes
        least = DIRECT_BYTES if nodes == 1 else _STRIPE_BYTES
        return nodes is not None and run_bytes(layout, u.dtype.itemsize) >= least

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
    """Make a pencil that has boundary points, too, on the first and last ranks. *Collective*."""
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
