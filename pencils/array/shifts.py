"""Fields moved by a few points: views for stencils."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from pencils.array.allocation import Key
from pencils.array.base import Field
from pencils.array.operands import check_type, key_of
from pencils.comm.mpi import PerProcess
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout.integers import as_ints
from pencils.pencil import Pencil

F = TypeVar("F", bound=Field)

_INT = {int}
_KEPT = 64  # pairs of pencils: those of one program that fields are shifted between


def shift(u: F, offsets: Sequence[int], onto: Pencil | None = None) -> F:
    """View the field moved by `offsets`: point ``i`` of the result is point ``i + offsets``.

    Parameters
    ----------
    offsets : sequence of int
        Steps along each space dimension, at most as far as the halo reaches.
    onto : Pencil, optional
        Pencil of the result, one that shares its blocks with that of the field, like
        ``pen.staggered(0)`` with ``pen``. Default: the pencil of the field. Where it has `m` more
        points along a dimension, the last ones are read from the halo: a step there is at most
        its width less `m`.

    Returns
    -------
    PencilArray
        A view without halo; no data are copied, so ghosts must be up to date. A view made
        before a loop shows later values, too. It may be written, ghosts included: see
        `accumulate_halo`.

    Raises
    ------
    ArgumentError
        If the halo is too narrow, or the field is trimmed along a dimension that is stepped along;
        on every rank alike, and on any number of ranks.
    PencilMismatchError
        If `onto` does not share its blocks with the pencil of the field.

    Examples
    --------
    The difference quotient of a field on the points is a field on the faces between them; at both
    ends it uses boundary points:

    >>> import numpy as np, pencils
    >>> pen = pencils.Pencil(4)
    >>> faces = pen.staggered(0)
    >>> p = pencils.ones(pen, halo=1)
    >>> p[...] = np.array([1.0, 4.0, 9.0, 16.0])
    >>> gradient = p.shift((0,), onto=faces) - p.shift((-1,), onto=faces)
    >>> gradient.local
    array([  0.,   3.,   5.,   7., -15.])
    """
    plain = type(offsets) is tuple and set(map(type, offsets)) == _INT
    steps = cast("tuple[int, ...]", offsets) if plain else as_ints("offsets", offsets)
    key = steps if onto is None else (steps, onto)
    try:
        return cast("F", u.shifts[key])
    except (AttributeError, KeyError, TypeError):  # none yet, another one, or no pencil
        pass
    index = u.frame.shifted.get(steps) if onto is None else None
    if index is None:
        index = _find_shift(u, steps, onto)
        if onto is None:
            u.frame.shifted[steps] = index
    view = u.from_block(onto or u.pencil, u.padded[index], u.singletons)
    if not hasattr(u, "shifts"):
        u.shifts = {}
    u.shifts[key] = view
    return view


def _find_shift(u: Field, steps: tuple[int, ...], onto: Pencil | None) -> Key:
    """Index of the shifted own block in the padded one."""
    halo, extent, surplus = u.halo, u.extent, (0,) * len(u.halo)
    if len(steps) != len(halo):
        raise ArgumentError(
            f"offsets={steps} must have one entry for each of {len(halo)} dimensions"
        )
    if onto is not None:
        check_type("onto", onto, Pencil)
        extent = onto.extent(u.singletons)
        surplus = _surplus()(u.pencil, onto, u.singletons)
    key: list[Any] = [Ellipsis]
    along = zip(steps, halo, u.halo_room, extent.local_shape, surplus, strict=True)
    for dim, (step, (lo, hi), (start, _), n, more) in enumerate(along):
        reason = ""
        if dim in u.trimmed and (step or more):
            reason = (
                "the padded blocks: the halo of this field is trimmed at the ends of the domain; "
                "shift u.copy(), whose halo is whole"
            )
        elif not -lo <= step <= hi - more:
            allowed = f"use steps {-lo}..{hi - more}, or " if -lo <= hi - more else ""
            reason = f"the halo, which is {(lo, hi)} wide there; {allowed}create the array with a "
            reason += "wider halo"
            if hasattr(u, "base") and not (lo or hi):
                reason += "; a sliced field has no halo along the sliced dimension; shift before "
                reason += f"slicing: u.shift({steps}){key_of(u)}"
        if reason:
            far = f" onto {more} more point{'s' * (more != 1)}" if more else ""
            raise ArgumentError(f"shift by {step} along dimension {dim}{far} leaves {reason}")
        key.append(slice(start + step, start + step + n))
    return tuple(key)


def _find_surplus(pencil: Pencil, onto: Pencil, singletons: frozenset[int]) -> tuple[int, ...]:
    """How many points a field has more on `onto`, along each dimension.

    It compares global shapes, so that all ranks get the same result.
    """
    if not pencil.shares_blocks(onto):
        raise PencilMismatchError(
            "onto= must be a pencil with the same blocks, such as one of staggered(); "
            f"transpose() moves a field to other blocks:\n{pencil!r}\n{onto!r}"
        )
    shapes = pencil.extent(singletons).shape, onto.extent(singletons).shape
    return tuple(max(0, many - few) for few, many in zip(*shapes, strict=True))


_surplus = PerProcess(lambda: lru_cache(_KEPT)(_find_surplus))  # keeps pencils alive
