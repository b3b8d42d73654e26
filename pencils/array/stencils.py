"""Stencils: fields shifted by a few points, sums of them, and the points that need no ghosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from pencils.array.allocation import Array, Key, frame_of
from pencils.array.base import Field, checks
from pencils.array.operands import FieldSpec, check_field, check_out, check_type, key_of
from pencils.comm.line_program import weighted_sum
from pencils.comm.mpi import PerProcess
from pencils.comm.progress import slabs, under_way
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout import Box
from pencils.layout import interior as inner_box
from pencils.layout.integers import as_ints
from pencils.pencil import Pencil

F = TypeVar("F", bound=Field)

Number: TypeAlias = "complex | np.number[Any]"

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
    pencil = u.pencil if onto is None else onto
    index = u.frame.shifted.get(steps) if onto is None else None
    if index is None:
        index = _find_shift(u, steps, pencil)
        if onto is None:
            u.frame.shifted[steps] = index
    view = u.from_block(pencil, u.padded[index], u.singletons)
    if not hasattr(u, "shifts"):
        u.shifts = {}
    u.shifts[key] = view
    return view


def _find_shift(u: Field, steps: tuple[int, ...], onto: Pencil) -> Key:
    """Index of the shifted own block in the padded one."""
    pencil, halo = u.pencil, u.halo
    if len(steps) != len(halo):
        raise ArgumentError(
            f"offsets={steps} must have one entry for each of {len(halo)} dimensions"
        )
    extent, surplus = u.extent, (0,) * len(halo)
    if onto is not pencil:
        check_type("onto", onto, Pencil)
        extent = onto.extent(u.singletons)
        surplus = _surplus()(pencil, onto, u.singletons)
    for dim in u.trimmed:
        if steps[dim] or surplus[dim]:
            reason = (
                "the padded blocks, which end with the domain there: the field is trimmed; "
                "shift u.copy(), which has room for its whole halo"
            )
            raise ArgumentError(_refused(dim, steps[dim], surplus[dim], reason))
    key: list[Any] = [Ellipsis]
    along = zip(steps, halo, u.halo_room, extent.local_shape, surplus, strict=True)
    for step, (lo, hi), (start, _), n, more in along:
        if not -lo <= step <= hi - more:
            text = _too_far(len(key) - 1, step, (lo, hi), more)
            if hasattr(u, "base") and not (lo or hi):
                text += "; a section has none where it is cut: shift first, "
                text += f"u.shift({steps}){key_of(u)}"
            raise ArgumentError(text)
        key.append(slice(start + step, start + step + n))
    return tuple(key)


def _find_surplus(pencil: Pencil, onto: Pencil, singletons: frozenset[int]) -> tuple[int, ...]:
    """How many points a field has more on `onto`, along each dimension.

    It compares global shapes, so that all ranks get the same result.
    """
    if not pencil.shares_blocks(onto):
        raise PencilMismatchError(
            "a field can be shifted onto pencils that share its blocks only, like those that "
            f"staggered() makes; transpose() it to others:\n{pencil!r}\n{onto!r}"
        )
    shapes = pencil.extent(singletons).shape, onto.extent(singletons).shape
    return tuple(max(0, many - few) for few, many in zip(*shapes, strict=True))


_surplus = PerProcess(lambda: lru_cache(_KEPT)(_find_surplus))  # keeps pencils alive


def _refused(dim: int, step: int, more: int, reason: str) -> str:
    """Explain why a field cannot be shifted along a dimension."""
    onto = f" onto {more} more {'point' if more == 1 else 'points'}" if more else ""
    return f"shift by {step} along dimension {dim}{onto} leaves {reason}"


def _too_far(dim: int, step: int, width: tuple[int, int], more: int) -> str:
    first, last = -width[0], width[1] - more
    allowed = f"use steps {first}..{last}, or " if first <= last else ""
    reason = f"the halo, which is {width} wide there; {allowed}create the array with a wider halo"
    return _refused(dim, step, more, reason)


def stencil(
    u: F,
    weights: Mapping[tuple[int, ...], Number],
    *,
    onto: Pencil | None = None,
    out: F | None = None,
) -> F:
    """Add up a field at points around each point, with weights; never communicates.

    It is the sum of ``weight * u.shift(offsets)``, computed in one pass: each value is read from
    memory and written once, where sums of shifted fields read and write all intermediate results.

    Parameters
    ----------
    u : PencilArray
        The field. Its halo reaches as far as the offsets, and its ghosts must be up to date.
    weights : dict of number
        By offsets: one for each space dimension, as for `PencilArray.shift`.
    onto : Pencil, optional
        Pencil of the result, one that shares its blocks with that of `u`, as for `shift`.
    out : PencilArray, optional
        Field to fill, with the components and singletons of `u`, which shares no memory with it.
        Its type is one to which NumPy casts results by the rule "same_kind". Default: a new field
        without halo.

    Returns
    -------
    PencilArray
        `out`. Boundary points, outside the domain, count as what the halo holds.

    Raises
    ------
    ArgumentError
        If the halo is too narrow, or `out` shares memory with `u`.
    PencilMismatchError, TypeError
        If an argument does not fit.

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((8, 6), periodic=True)
    >>> u = pencils.from_function(pen, lambda i, j: 1.0 * i * i + j, halo=1)
    >>> u.exchange_halo()
    >>> star = {(0, 0): -4, (1, 0): 1, (-1, 0): 1, (0, 1): 1, (0, -1): 1}
    >>> pencils.stencil(u, star)[1:-1, 1:-1].max()
    np.float64(2.0)
    """
    check_field("u", u)
    factors = _as_weights(weights)
    views = [shift(u, offsets, onto) for offsets in weights]
    pencil = u.pencil if onto is None else onto
    if out is None:
        is_sum, kind = _is_sum(u.dtype, factors), u.dtype
        if not is_sum:
            with np.errstate(all="ignore"):
                kind = _plain_sum([np.zeros(1, u.dtype)] * len(factors), factors).dtype
        frame = frame_of(pencil, u.singletons)
        out = u.in_frame(pencil, frame, frame.make(frame.shape_of(u.components, kind), kind))
    else:
        check_field("out", out)
        check_out(out, pencil, FieldSpec(out.dtype, u.components, u.singletons))
        if np.may_share_memory(out.local, u.padded):
            raise ArgumentError(
                "out shares memory with u, whose points are still read when others are written; "
                "pass another field as out"
            )
        is_sum = out.dtype == u.dtype and _is_sum(u.dtype, factors)
    axes = out.frame.axes(len(out.components))[0]
    target, *sources = (each.local.transpose(axes) for each in (out, *views))
    if is_sum:
        if not under_way.on:
            weighted_sum(target, sources, factors)
        else:
            for key in slabs(target):
                weighted_sum(target[key], [source[key] for source in sources], factors)
    else:
        np.copyto(target, _plain_sum(sources, factors), casting="same_kind")
    if checks.on:
        out.mark_written()
    return out


def _as_weights(weights: Any) -> list[Any]:
    """Check weights, and return them without their offsets."""
    if not isinstance(weights, Mapping) or not weights:
        raise TypeError(
            f"weights must be a dict of numbers by offsets, like {{(0, 1): 0.5, (0, -1): -0.5}}, "
            f"not {weights!r}"
        )
    for offsets, weight in weights.items():
        if not _is_number(weight):
            raise TypeError(
                f"the weight of {offsets!r} must be a number, not {type(weight).__name__}; for "
                "weights that vary, multiply fields: u.shift(offsets) * weight"
            )
    return list(weights.values())


def _is_number(weight: Any) -> bool:
    if type(weight) in {int, float, complex}:
        return True
    if isinstance(weight, Field):
        return False
    array = np.asarray(weight)
    return array.ndim == 0 and array.dtype.kind in "biufc"


def _is_sum(dtype: np.dtype[Any], factors: Sequence[Any]) -> bool:
    """Whether `weighted_sum` adds up such elements: it keeps their type."""
    return dtype.char in "fdFD" and dtype.isnative and np.result_type(dtype, *factors) == dtype


def _plain_sum(sources: Sequence[Array], factors: Sequence[Any]) -> Array:
    """Add up arrays of any type by NumPy."""
    total: Array = sources[0] * factors[0]
    for source, factor in zip(sources[1:], factors[1:], strict=True):
        total = total + source * factor
    return total


def interior(u: Field) -> Key:
    """Index of `local` for the points whose stencil stays in the own block.

    The stencil is as wide as the halo. These points need no ghosts, so that they can be computed
    during an exchange; `shells` are the rest. The interior is empty where the block is
    too thin.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> u = pencils.zeros(pencils.Pencil((6, 8)), halo=[1, (0, 2)])
    >>> u.interior
    (Ellipsis, slice(1, 5, None), slice(0, 6, None))
    >>> new = np.empty(u.local_shape)
    >>> for part in (u.interior, *u.shells):
    ...     new[part] = u.shift((1, 0)).local[part]
    """
    return (Ellipsis, *inner_box(u.extent.local_shape, u.halo).slices())


def shells(u: Field) -> list[Key]:
    """List indices of `local` for the points outside the `interior`: each once, none empty."""
    shape = u.extent.local_shape
    outside = Box.of_shape(shape).without(inner_box(shape, u.halo))
    return [(Ellipsis, *box.slices()) for box in outside]
