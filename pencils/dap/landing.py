"""One dimension of an imported array: blocks like those of a pencil, and padding as a halo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from pencils.dap.global_maps import GlobalDimMap
from pencils.dap.maps import BlockMap, UnstructuredMap, Widths

Halo = Literal["keep", "drop", "wrap"]
HALOS: tuple[str, ...] = get_args(Halo)


@dataclass(frozen=True, slots=True)
class Landing:
    """What becomes of one dimension of an array.

    Parameters
    ----------
    bounds : tuple of int
        Grid rank r owns the points ``bounds[r] .. bounds[r + 1] - 1``.
    periodic : bool
        Whether the dimension wraps around.
    singleton : bool
        Whether all processes hold the same single point.
    width : tuple of int
        Width of the halo that all processes have.
    trimmed : bool
        Whether the first and the last process have no halo at the ends of the array.
    below : tuple of int
        Points of the buffer of each grid rank below the own ones.
    """

    bounds: tuple[int, ...]
    periodic: bool
    singleton: bool = False
    width: Widths = (0, 0)
    trimmed: bool = False
    below: tuple[int, ...] = (0,)

    @property
    def nprocs(self) -> int:
        """Number of processes along the dimension."""
        return len(self.bounds) - 1

    def margins(self, part: int) -> Widths:
        """Width of the halo on one grid rank."""
        lo, hi = self.width
        first, last = self.trimmed and part == 0, self.trimmed and part == self.nprocs - 1
        return 0 if first else lo, 0 if last else hi

    def inside(self, part: int) -> slice:
        """Where in its buffer one grid rank has its own points and their halo."""
        lo, hi = self.margins(part)
        start, stop = self.bounds[part : part + 2]
        own = self.below[part]
        return slice(own - lo, own + stop - start + hi)


def land(whole: GlobalDimMap, halo: Halo) -> Landing | None:
    """Read the blocks of a dimension; None if it does not consist of blocks.

    Parameters
    ----------
    whole : GlobalDimMap
        The map of every grid rank.
    halo : {"keep", "drop", "wrap"}
        What becomes of padding: as in `import_array`.

    Examples
    --------
    >>> from pencils.dap import make_global
    >>> inner = {"size": 9, "nprocs": 2}
    >>> whole = make_global(
    ...     [
    ...         BlockMap(**inner, rank=0, start=0, stop=4, ghosts=(0, 2)),
    ...         BlockMap(**inner, rank=1, start=4, stop=9, ghosts=(2, 0)),
    ...     ]
    ... )
    >>> found = land(whole, "keep")
    >>> found.bounds, found.width, found.trimmed, found.inside(1)
    ((0, 4, 9), (2, 2), True, slice(0, 7, None))
    """
    if _is_replicated(whole):
        one_each = tuple(range(whole.nprocs + 1))
        return Landing(one_each, periodic=False, singleton=True, below=(0,) * whole.nprocs)
    blocks = [part for part in whole.parts if isinstance(part, BlockMap)]
    if not blocks:
        return None
    if halo == "wrap" and whole.periodic:
        blocks = _wrapped(blocks)
    room = tuple(block.ghosts for block in blocks)
    width, trimmed = ((0, 0), False) if halo == "drop" else _common_width(room)
    return Landing(
        bounds=(*(block.start for block in blocks), blocks[-1].stop),
        periodic=whole.periodic,
        width=width,
        trimmed=trimmed,
        below=tuple(below for below, _ in room),
    )


def _is_replicated(whole: GlobalDimMap) -> bool:
    """Whether this is how a singleton dimension is exported: several processes own point 0."""
    return (
        whole.nprocs > 1
        and whole.size == 1
        and all(
            isinstance(part, UnstructuredMap)
            and not part.one_to_one
            and part.indices.tolist() == [0]
            for part in whole.parts
        )
    )


def _common_width(room: Sequence[Widths]) -> tuple[Widths, bool]:
    """Widest halo that all processes have, and whether the ends of the array have none."""
    full = min(lo for lo, _ in room), min(hi for _, hi in room)
    if any(full) or len(room) == 1:
        return full, False
    inside = min(lo for lo, _ in room[1:]), min(hi for _, hi in room[:-1])
    return inside, any(inside)


def _wrapped(blocks: Sequence[BlockMap]) -> list[BlockMap]:
    """Take the boundary points at both ends of the array for ghosts of the other end."""
    lo, hi = blocks[0].boundary[0], blocks[-1].boundary[1]
    size, last = blocks[0].size - lo - hi, len(blocks) - 1
    return [
        replace(
            block,
            size=size,
            start=max(block.start - lo, 0),
            stop=min(block.stop - lo, size),
            ghosts=(
                lo if block.rank == 0 else block.ghosts[0],
                hi if block.rank == last else block.ghosts[1],
            ),
            boundary=(0, 0),
        )
        for block in blocks
    ]
