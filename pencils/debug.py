"""Find mistakes in programs: ghosts that were not exchanged, copies that differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import add

import numpy as np

from pencils.array.allocation import Array
from pencils.array.base import checks
from pencils.array.operands import check_type, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.reduce import combine
from pencils.errors import ReplicaError


@contextmanager
def ghosts() -> Iterator[None]:
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
    >>> with pencils.debug.ghosts():
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


def verify_replicas(u: PencilArray) -> None:
    """Check that all copies of a field with singleton dimensions are equal, bit by bit.

    *Collective*. Replicas drift apart when code treats ranks differently, for instance by writing
    to ``u.local`` on some of them only.

    Parameters
    ----------
    u : PencilArray
        The field; without singleton dimensions there are no copies to compare.

    Raises
    ------
    ReplicaError
        On every rank, naming the ranks whose copies differ from that of the first one.
    TypeError
        If `u` is not a PencilArray.
    """
    topology = topology_among(u)
    with agreed(topology.comm, "verify_replicas") as agree:
        check_type("u", u, PencilArray)
        agree(**signature(u))
        mine = np.ascontiguousarray(u.local)
        first = mine.copy()
    layout = u.extent.layout
    group = topology.along(layout.grid, layout.replicated_axes)
    group.Bcast(first.reshape(-1).view(np.uint8), 0)
    with agreed(topology.comm, "verify_replicas"):
        strayed = [] if _same_bits(first, mine) else [u.pencil.rank]
    everyone = combine(topology.comm, strayed, add)
    ranks = sorted(everyone)
    if ranks:
        raise ReplicaError(
            f"copies of the singleton dimensions {sorted(u.singletons)} on ranks {ranks} differ "
            "from the first copy; compute the same values on all ranks, or call partition() again"
        )


def _same_bits(one: Array, other: Array) -> bool:
    if one.dtype.char in "gG":  # long doubles have bits without meaning
        return np.array_equal(one, other, equal_nan=True)
    if one.dtype.fields:  # and records may have gaps
        return all(_same_bits(one[name].copy(), other[name].copy()) for name in one.dtype.fields)
    return one.tobytes() == other.tobytes()
