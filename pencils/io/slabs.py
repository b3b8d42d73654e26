"""Fields as slabs: cut along their slowest dimension only, so that every rank has one run of bytes.

Files hold fields in C order. In a slab layout each rank's part of a component is contiguous there:
one long write instead of many short ones, or of strided file views of MPI, which are slow and, in
some MPIs, wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pencils.array import PencilArray
from pencils.comm.agree import agreed
from pencils.creation import empty
from pencils.io.sieving import is_read_by_rows
from pencils.layout import Layout
from pencils.storage import Array
from pencils.transposition import Transposition

# What is written, summed up and reported at once: the disk has it while the next one is copied.
PIECE_BYTES = 2**23
# Memory for packing, besides the field and the slab.
STAGING_BYTES = 2**26


class Run(NamedTuple):
    """Points that this rank holds and that are consecutive in the C order of the global array.

    `offset` counts bytes from the start of the field.
    """

    offset: int
    block: Array


def slab_dimension(shape: tuple[int, ...]) -> int:
    """First dimension with more than one point: the one along which a slab is cut."""
    return next((dim for dim, points in enumerate(shape) if points > 1), 0)


def is_slab(layout: Layout) -> bool:
    """Whether the block of every rank is one run of the global array in C order.

    Examples
    --------
    >>> from pencils.layout import make_layout
    >>> is_slab(make_layout((8, 8), 2, decomp=0)), is_slab(make_layout((8, 8), 2, decomp=1))
    (True, False)
    """
    along = slab_dimension(layout.shape)
    return all(
        dim == along or split.parts == 1 or split.points == 1
        for dim, split in enumerate(layout.splits)
    )


def runs(slab: PencilArray) -> Iterator[Run]:
    """Yield the runs of this rank, which holds a part of a slab: one for each component."""
    box, shape, itemsize = slab.extent.box, slab.extent.shape, slab.dtype.itemsize
    if slab.local.size == 0:
        return
    start = sum(lo * prod(shape[dim + 1 :]) for dim, lo in enumerate(box.start))
    for number, component in enumerate(np.ndindex(*slab.components)):
        yield Run((number * prod(shape) + start) * itemsize, slab.local[component])


def pieces(run: Run) -> Iterator[Run]:
    """Cut a run whose block is contiguous into views of bounded size."""
    flat = run.block.reshape(-1)
    most = max(1, PIECE_BYTES // flat.dtype.itemsize)
    for at in range(0, flat.size, most):
        yield Run(run.offset + at * flat.dtype.itemsize, flat[at : at + most])


class Slabs:
    """Brings fields to slabs and back, one after the other. Everything is *Collective*.

    The plan and the slab are kept while fields of the same kind follow each other, and given back
    when another kind comes: of a checkpoint, one field at a time exists twice.
    """

    def __init__(self) -> None:
        self._kind: object = None
        self._slab: PencilArray | None = None
        self._plan: Transposition | None = None

    def of(self, field: PencilArray) -> PencilArray:
        """Return a field that lies in slabs, with the values of `field`; itself if it does."""
        if is_slab(field.extent.layout):
            return field
        slab, plan = self._find(field, back=False)
        return plan(field, slab)

    def into(self, field: PencilArray) -> PencilArray:
        """Return a slab to be filled with what `field` shall hold.

        If reading what it holds beats an exchange, it is `field` itself.
        """
        layout = field.extent.layout
        if is_slab(layout) or is_read_by_rows(layout, field.dtype.itemsize):
            return field
        return self._find(field, back=True)[0]

    def spread(self, slab: PencilArray, field: PencilArray) -> None:
        """Move a slab that came from `into` to its field."""
        if slab is not field:
            self._find(field, back=True)[1](slab, field)

    def close(self) -> None:
        """Give back the plan and the slab."""
        if self._plan is not None:
            self._plan.free()
        self._kind = self._slab = self._plan = None

    def _find(self, field: PencilArray, *, back: bool) -> tuple[PencilArray, Transposition]:
        kind = (field.pencil, field.dtype, field.components, field.singletons, back)
        if self._slab is None or self._plan is None or kind != self._kind:
            self.close()
            self._slab, self._plan = _make(field, back=back)
            self._kind = kind
        return self._slab, self._plan


class Copies(Slabs):
    """Brings fields to slabs that are nobody else's: they keep the values. *Collective*."""

    def of(self, field: PencilArray) -> PencilArray:
        """Return a new field that lies in slabs, with the values of `field`."""
        slab = super().of(field)
        with agreed(field.pencil.topology.comm, "Slabs"):  # one rank may have no memory for it
            block = slab.local.copy()
        return PencilArray.from_block(slab.pencil, block, slab.singletons)


def _make(field: PencilArray, *, back: bool) -> tuple[PencilArray, Transposition]:
    pencil = field.pencil
    along = slab_dimension(field.extent.shape)
    flat = pencil.with_(decomp=along, order=range(pencil.ndim))
    kind: dict[str, Any] = {
        "dtype": field.dtype,
        "components": field.components,
        "dims": [dim for dim in range(pencil.ndim) if dim not in field.singletons],
    }
    with agreed(pencil.topology.comm, "Slabs"):  # one rank may have no memory for it
        slab = empty(flat, **kind)
    ends = (flat, pencil) if back else (pencil, flat)
    return slab, Transposition(*ends, **kind, staging=STAGING_BYTES, check=False)
