"""Stale ghosts made visible: as long as checks are on, every write to a field unsets its ghosts.

After ``u[...] = v`` the ghosts of `u` are copies of what neighbours had before. A stencil that
forgets to exchange them reads values which are only slightly wrong; with checks on it reads NaN.
``PENCILS_CHECK=1`` in the environment turns them on for a whole program, `debug_ghosts` for a part.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pencils.array.allocation import Array, Key, Widths
from pencils.layout import ghost_box
from pencils.pencil import Extent

VARIABLE = "PENCILS_CHECK"
# What marks a ghost, by kind of element type; complex ones in both parts, which have views.
_UNSET = {"f": "nan", "c": complex("nan+nanj"), "M": "NaT", "m": "NaT"}


class _Checks:
    """Whether checks are on in this process."""

    __slots__ = ("on",)

    def __init__(self) -> None:
        self.on = os.environ.get(VARIABLE, "0") not in {"", "0"}


checks = _Checks()


@contextmanager
def debug_ghosts() -> Iterator[None]:
    """Show forgotten exchanges: inside the ``with`` block, writing to a field makes its ghosts NaN.

    Writes are ``u[...] = v`` and any other key, ``u.local = v``, ``u.local += v``, ``u += v`` and
    whatever else has ``out=u``, transposes included, and `numpy.copyto`, also to views such as
    ``u.component(0)``. What
    is written through ``u.local[...]`` cannot be seen. ``u.padded = v``, ``u.fill(v)`` and the
    functions that make fields set the halo on purpose, and leave it. Boundary points, outside the
    domain along a dimension that is not periodic, are left alone: nobody exchanges them. Times
    become NaT; integers, booleans, text and records have no such value, and are not checked.

    Local; turn it on for all ranks alike. ``PENCILS_CHECK=1`` in the environment turns it on for
    the whole program. Blocks may be nested.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.zeros(pencils.Pencil(4, periodic=True), halo=1)
    >>> with pencils.debug_ghosts():
    ...     u[...] = 1.0
    >>> (u.shift((1,)) - u.shift((-1,))).local  # without an exchange of ghosts
    array([nan,  0.,  0., nan])
    """
    before = checks.on
    checks.on = True
    try:
        yield
    finally:
        checks.on = before


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
