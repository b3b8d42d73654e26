"""Checks of ghosts: while they are on, every write to a field sets its ghosts to NaN.

After ``u[...] = v`` the ghosts of `u` are copies of older values. A stencil before the next
exchange reads values that are only slightly wrong; with checks on it reads NaN. ``PENCILS_CHECK=1``
in the environment turns checks on for a whole program, `pencils.debug.ghosts` for a part.
"""

from __future__ import annotations

import os

from pencils.array.allocation import Array, Key, Widths
from pencils.layout import ghost_box
from pencils.pencil import Extent

VARIABLE = "PENCILS_CHECK"
# The value of unset ghosts, by kind of element type; both parts of complex numbers have views.
_UNSET = {"f": "nan", "c": complex("nan+nanj"), "M": "NaT", "m": "NaT"}


class _Checks:
    """Whether checks are on in this process."""

    __slots__ = ("on",)

    def __init__(self) -> None:
        self.on = os.environ.get(VARIABLE, "0") not in {"", "0"}


checks = _Checks()


def unset_ghosts(padded: Array, extent: Extent, room: Widths) -> None:
    """Set the ghosts of a padded block, with `room` around its own points, to NaN or NaT."""
    unset = _UNSET.get(padded.dtype.kind)
    if unset is None:
        return
    origin = extent.box.grow(room).start
    known = ghost_box(extent.box, extent.shape, extent.layout.periodic, room)
    for box in known.without(extent.box):
        key: Key = (Ellipsis, *box.slices(origin))
        padded[key] = unset
