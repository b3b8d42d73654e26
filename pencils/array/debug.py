"""Checks of ghosts: while they are on, every write to a field sets its ghosts to NaN.

After ``u[...] = v`` the ghosts of `u` are copies of older values. A stencil before the next
exchange reads values that are only slightly wrong; with checks on it reads NaN. ``PENCILS_CHECK=1``
in the environment turns checks on for a whole program, `debug_ghosts` for a part.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def debug_ghosts() -> Iterator[None]:
    """Show missing exchanges: inside the ``with`` block, writing to a field sets its ghosts to NaN.

    Writes are ``u[...] = v`` and any other key, ``u.local = v``, ``u.local += v``, ``u += v``,
    calls with ``out=u``, transposes included, and `numpy.copyto`, also to views such as
    ``u.component(0)``. Writes through ``u.local[...]`` are not noticed. ``u.padded = v``,
    ``u.fill(v)`` and functions that make fields set the halo as well, and do not count as writes.
    Boundary points, outside the domain along a dimension that is not periodic, keep their values,
    because no exchange fills them. Times become NaT; integers, booleans, text and records have no
    such value and are not checked.

    Nothing is communicated; use it on all ranks alike. ``PENCILS_CHECK=1`` in the environment turns
    it on for the whole program. Blocks may be nested.

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
