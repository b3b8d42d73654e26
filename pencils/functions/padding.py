"""Fields with more points at the ends of axes, by the modes of `numpy.pad`. *Collective*."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pencils.array.base import Field
from pencils.errors import ArgumentError
from pencils.functions.shapes import Indices, facts_of_numbers, resize
from pencils.layout.integers import as_dim
from pencils.plans import Agreement

_STATISTICS = "maximum", "mean", "median", "minimum"
# What each mode takes.
_MODES = {
    **dict.fromkeys(("edge", "empty", "wrap"), ""),
    **dict.fromkeys(_STATISTICS, "stat_length"),
    **dict.fromkeys(("reflect", "symmetric"), "reflect_type"),
    "constant": "constant_values",
    "linear_ramp": "end_values",
}


def pad(array: Field, pad_width: Any, mode: Any = "constant", **options: Any) -> Field:
    """Add points at the ends of axes, as `numpy.pad`. *Collective*.

    One message to each rank that has new places of own points.

    Parameters
    ----------
    array : PencilArray
        The field; its halo is not read.
    pad_width : int, sequence or dict
        Points before and after each axis, as in `numpy.pad`. One number is for all axes,
        components included.
    mode : {"constant", "edge", "empty", "linear_ramp", "reflect", "symmetric", "wrap", \
            "maximum", "mean", "median", "minimum"}, optional
        Values of the new points; ramps, means, and reflections of the type "odd" may differ from
        those of NumPy in the last bits. The last four reduce the field along each axis.
    **options : dict, optional
        One of `constant_values`, `end_values`, `stat_length` and `reflect_type`, as in `numpy.pad`,
        for the modes that take it.

    Returns
    -------
    PencilArray
        A new field without halo, on ``array.pencil.resized(shape)``.

    Raises
    ------
    ArgumentError, TypeError, ValueError
        On every rank, if an argument is not allowed.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((2, 3)), lambda i, j: 3 * i + j)
    >>> np.pad(u, ((0, 0), (1, 2)), "reflect").local
    array([[1, 0, 1, 2, 1, 0],
           [4, 3, 4, 5, 4, 3]])
    """
    key = _MODES.get(mode, "") if isinstance(mode, str) else ""
    value = options.get(key, {"reflect_type": "even", "stat_length": None}.get(key, 0))

    def read(agree: Agreement) -> Indices:
        if not isinstance(mode, str) or mode not in _MODES:
            raise ArgumentError(
                f"mode={mode!r}: numpy.pad of a PencilArray takes {', '.join(_MODES)}"
            )
        if set(options) - {key} or (key == "reflect_type" and value not in ("even", "odd")):
            raise ArgumentError(
                f"numpy.pad of a PencilArray with mode={mode!r} does not take "
                f"{options}; it takes {key or 'nothing else'}"
            )
        widths, ends = _widths(array, pad_width), _ends(array, mode, value)
        agree(mode=mode, widths=widths, values=ends)
        nowhere = mode in {"constant", "empty", *_STATISTICS}
        known = (
            {"constant_values": -1} if nowhere else {"mode": mode.replace("linear_ramp", "edge")}
        )
        indices = {}
        for axis, width in enumerate(widths):
            if any(width):
                points = np.arange(array.shape[axis])
                if mode in _STATISTICS:
                    np.pad(points, width, "edge")  # it raises if there are none
                indices[axis] = np.pad(points, width, **known)
        return indices

    facts = facts_of_numbers(pad_width, mode, value, *options)
    result = resize("pad", array, facts, read)
    if key and value != "even" and result.size:
        fill = _reflect if value == "odd" else _fill
        fill(result, array, mode, _widths(array, pad_width), _ends(array, mode, value))
    return result


def _ends(u: Field, mode: str, value: Any) -> Any:
    """Return the option of a mode for both ends of each axis, as `numpy.pad` reads it."""
    if mode in {"constant", "linear_ramp"}:
        pairs = np.broadcast_to(np.asarray(value), (u.ndim, 2))
        if pairs.dtype.kind == "c" and u.dtype.kind != "c":
            raise TypeError(
                f"{_MODES[mode]}={value} is complex, and the field of {u.dtype}; pass "
                "u.astype(complex), or the real part"
            )
        np.empty(pairs.shape, u.dtype)[...] = pairs  # it raises if NumPy does not convert
        return pairs.tolist()
    if mode not in _STATISTICS:
        return value
    most = np.repeat(u.shape, 2).reshape(-1, 2)
    lengths = most if value is None else np.round(np.broadcast_to(value, most.shape)).astype(int)
    if lengths.min() < (least := int(mode in {"maximum", "minimum"})):
        raise ValueError(f"stat_length={value} of numpy.pad must be at least {least}")
    return np.minimum(lengths, most).tolist()


def _widths(u: Field, given: Any) -> list[list[int]]:
    """Return the points before and after each axis, as `numpy.pad` reads them."""
    if isinstance(given, dict):
        every = np.zeros((u.ndim, 2), int)
        for axis, width in given.items():
            every[as_dim("axis", axis, u.ndim)] = width
        given = every
    pairs = np.broadcast_to(np.asarray(given), (u.ndim, 2))
    if pairs.dtype.kind not in "iu":
        raise TypeError(f"pad_width={given} must be of integers")
    if np.any(pairs < 0):
        raise ArgumentError(f"pad_width={given} must not be negative")
    return pairs.tolist()  # type: ignore[no-any-return]


def _fill(result: Any, u: Field, mode: str, widths: Sequence[Sequence[int]], ends: Any) -> None:
    """Fill points at the ends of axes, one axis after another. *Collective* but for numbers."""
    for axis, (low, high) in enumerate(widths):
        n, found = u.shape[axis], dict[Any, Any]()
        part = result
        if mode != "linear_ramp":  # points at the ends of later axes have no values yet
            later = [slice(at, at + m) for (at, _), m in zip(widths, u.shape, strict=True)]
            part = result[(slice(None),) * (axis + 1) + tuple(later[axis + 1 :])]
        for side, (start, width) in enumerate(((0, low), (low + n, high))):
            new, end = _along(part, axis, start, width), ends[axis][side]
            if mode == "constant":
                new[...] = end
            elif mode == "linear_ramp":
                block, rows = np.moveaxis(new.local, axis, 0), new.local_slices[axis]
                if block.size:
                    ramp = np.linspace(end, block[0], width, endpoint=False, dtype=u.dtype)
                    block[...] = (ramp if side == 0 else ramp[::-1])[rows]
            elif width:
                first = low if side == 0 else low + n - end
                if (first, end) not in found:
                    points = _along(part, axis, first, end)
                    value = getattr(np, mode.removesuffix("imum"))(points, axis=axis, keepdims=True)
                    found[first, end] = np.round(value) if u.dtype.kind in "iu" else value
                new[...] = found[first, end]


def _along(u: Any, axis: int, start: int, count: int) -> Any:
    """Return a section of points along an axis."""
    return u[(*(slice(None),) * axis, slice(start, start + count))]


def _reflect(u: Any, old: Field, mode: str, widths: Sequence[Sequence[int]], _: object) -> None:
    """Turn mirrored points at the ends of axes into those of odd functions. *Collective*.

    After each extent of the field they are mirrored again, at the value there.
    """
    for axis, (low, high) in enumerate(widths):
        n = old.shape[axis]
        if n == 1 or not (low or high):
            continue
        planes, step = (
            [_along(u, axis, at, 1) for at in (low, low + n - 1)],
            n - (mode == "reflect"),
        )
        if axis >= len(u.components):
            planes = [plane.replicate() for plane in planes]
        for side, width in enumerate((low, high)):
            offset: Any = 0
            for turn, start in enumerate(range(0, width, step)):
                count = min(step, width - start)
                at = low + n + start if side else low - start - count
                part, twice = _along(u, axis, at, count), 2 * planes[(side + turn) % 2]
                offset = offset - twice if turn % 2 else offset + twice
                part[...] = offset + part if turn % 2 else offset - part
