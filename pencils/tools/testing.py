"""Assertions for tests of programs: fields are equal, or close, on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, plain_array
from pencils.array.base import Field
from pencils.array.operands import common_pencil, everywhere, local_part, signature, topology_among
from pencils.comm.agree import agreed
from pencils.comm.reduce import combine
from pencils.errors import PencilMismatchError
from pencils.layout import Extent


def assert_allclose(
    actual: Any,
    desired: Any,
    rtol: float = 1e-7,
    atol: float = 0,
    equal_nan: bool = True,
    err_msg: str = "",
) -> None:
    """Check that two fields agree within tolerances, as `numpy.testing.assert_allclose`.

    *Collective*. If they do not, all ranks raise the same error.

    Parameters
    ----------
    actual, desired : PencilArray, array_like or scalar
        Fields of the same blocks and shape; one of them may be a NumPy array of the global shape
        that all ranks have, or a scalar.
    rtol, atol : float, optional
        Elements may differ by ``atol + rtol * abs(desired)``.
    equal_nan : bool, optional
        Whether NaN equals NaN.
    err_msg : str, optional
        Text to add to the error.

    Raises
    ------
    AssertionError
        On every rank, with the same text, if any elements differ, or shapes or pencils. It gives
        the global index, the rank and the values of the worst one.
    TypeError, RankDisagreementError
        On every rank, if there is no field, or ranks pass different arguments.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil((4, 6)), lambda i, j: i + 0.1 * j)
    >>> pencils.testing.assert_allclose(u, u * (1 + 1e-9))
    >>> v = u.copy()
    >>> v[2, 5] += 0.5
    >>> pencils.testing.assert_allclose(v, u)
    Traceback (most recent call last):
        ...
    AssertionError: 1 of 24 elements differ by more than rtol=1e-07, atol=0
    worst at global index (2, 5) on rank 0: actual 3.0, desired 2.5
    greatest absolute difference 0.5, greatest relative difference 0.2
    """

    def differ(left: Array, right: Array) -> Array:
        return ~np.isclose(left, right, rtol=rtol, atol=atol, equal_nan=equal_nan)

    def limits() -> dict[str, object]:
        return {"rtol": float(rtol), "atol": float(atol), "equal_nan": bool(equal_nan)}

    said = "differ by more than rtol={rtol:g}, atol={atol:g}"
    _check("assert_allclose", (actual, desired), differ, limits, said, err_msg)


def assert_equal(actual: Any, desired: Any, err_msg: str = "") -> None:
    """Check that two fields have equal elements, as `numpy.testing.assert_equal`. *Collective*.

    NaN equals NaN, and NaT equals NaT. Elements of any type can be compared.

    Parameters
    ----------
    actual, desired, err_msg
        As in `assert_allclose`.

    Raises
    ------
    AssertionError, TypeError, RankDisagreementError
        As in `assert_allclose`.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.from_function(pencils.Pencil(4), lambda i: i)
    >>> pencils.testing.assert_equal(u, np.arange(4))
    """
    _check("assert_equal", (actual, desired), _unequal, dict, "differ", err_msg)


def _unequal(left: Array, right: Array) -> Array:
    unequal = np.asarray(left != right)
    if left.dtype.kind in _WITH_NAN and right.dtype.kind in _WITH_NAN:
        unequal &= ~(_is_nan(left) & _is_nan(right))
    return unequal


_WITH_NAN = "fcmM"


def _is_nan(values: Array) -> Array:
    if values.dtype.kind not in _WITH_NAN:
        return np.zeros(values.shape, bool)
    return np.asarray(np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values))


class _Found(NamedTuple):
    """What is wrong on one rank, or on several."""

    differing: int
    compared: int
    only_one_nan: int
    absolute: Any  # greatest differences; None where there is none
    relative: Any
    worst: tuple[Any, ...]  # weight, index, values, rank, text of the user


def _check(
    name: str,
    operands: tuple[Any, Any],
    differ: Callable[[Array, Array], Array],
    limits: Callable[[], Mapping[str, object]],
    said: str,
    err_msg: str,
) -> None:
    comm = topology_among(*operands).comm
    with agreed(comm, name) as agree:
        fields = [one for one in operands if isinstance(one, Field)]
        if not fields:
            raise TypeError(f"{name}: actual or desired must be a PencilArray")
        known = limits()
        agree(actual=_facts(operands[0]), desired=_facts(operands[1]), **known)
        left, right, extent = _blocks(name, operands, fields)
        unequal = differ(left, right)
        if not extent.layout.is_first_replica(fields[0].pencil.rank):
            unequal = unequal[..., :0]
        agree.flag(up=bool(unequal.any()))
    if not agree.flagged:
        return
    with agreed(comm, name):  # memory may be short
        mine = _describe(left, right, unequal, extent, (fields[0].pencil.rank, str(err_msg)))
    raise AssertionError(_text(combine(comm, mine, _join), said.format(**known)))


def _facts(operand: Any) -> object:
    """Return what all ranks must agree on about an operand, values excluded."""
    return signature(operand) if isinstance(operand, Field) else np.shape(operand)


def _blocks(
    name: str, operands: tuple[Any, Any], fields: list[Field]
) -> tuple[Array, Array, Extent]:
    """Own parts of both operands, and the extent of the field that compares them."""
    shapes = [np.shape(one) for one in operands]
    if shapes[0] != shapes[1] and all(shapes):
        raise AssertionError(
            f"{name}: shapes differ: actual {shapes[0]}, desired {shapes[1]}; arrays must have "
            "the global shape"
        )
    try:
        pencil = common_pencil(fields)
    except PencilMismatchError as error:
        raise AssertionError(f"{name}: {error}") from None  # it has the same text
    parts, singletons = [], everywhere(pencil.ndim)
    for one in operands:
        part, along = local_part(one if isinstance(one, Field) else plain_array(one), pencil)
        parts.append(np.asarray(part))
        singletons &= along
    if any(part.dtype.hasobject for part in parts):
        raise TypeError(f"{name}: actual and desired must not hold Python objects")
    left, right = np.broadcast_arrays(*parts)
    return left, right, pencil.extent(singletons)


def _describe(
    left: Array, right: Array, unequal: Array, extent: Extent, here: tuple[int, str]
) -> _Found:
    """Describe what is wrong in the own block."""
    if not unequal.any():
        return _Found(0, unequal.size, 0, None, None, ())
    at = np.nonzero(unequal)
    one, other = left[at], right[at]
    nan = _is_nan(one) != _is_nan(other)
    absolute, relative = _differences(one, other)
    weight = np.zeros(one.size) if absolute is None else absolute.astype(float)
    weight[nan | np.isnan(weight)] = np.inf
    first = int(weight.argmax())
    start = (0,) * (left.ndim - len(extent.box.start)) + extent.box.start
    index = tuple(int(i[first]) + lo for i, lo in zip(at, start, strict=True))
    worst = float(weight[first]), index, _shown(one[first]), _shown(other[first]), *here
    return _Found(
        one.size, unequal.size, int(nan.sum()), _greatest(absolute), _greatest(relative), worst
    )


def _differences(one: Array, other: Array) -> tuple[Array | None, Array | None]:
    """Absolute and relative differences of elements; None where they have none."""
    kinds = one.dtype.kind + other.dtype.kind
    if not set(kinds) <= set("biufc"):
        times = set(kinds) in ({"m"}, {"M"})
        return (np.abs(one - other), None) if times else (None, None)
    common = np.result_type(one, other, np.uint8)
    one, other = one.astype(common), other.astype(common)
    with np.errstate(all="ignore"):
        if common.kind in "iu":  # differences of integers have one bit more
            absolute = np.where(one > other, one - other, other - one)
            absolute = absolute.view(f"u{absolute.itemsize}")
        else:
            absolute = np.abs(one - other)
        return absolute, absolute[other != 0] / np.abs(other[other != 0])


def _greatest(values: Array | None) -> Any:
    if values is None:
        return None
    known = values[~_is_nan(values)]
    return known.max() if known.size else None


def _shown(value: Any) -> str:
    return repr(value.item()) if value.dtype.kind in "SUV" else str(value)


def _join(one: _Found, other: _Found) -> _Found:
    """Join what two ranks have found; among equal points, the first one is the worst."""
    known = [found.worst for found in (one, other) if found.worst]
    return _Found(
        one.differing + other.differing,
        one.compared + other.compared,
        one.only_one_nan + other.only_one_nan,
        _larger(one.absolute, other.absolute),
        _larger(one.relative, other.relative),
        min(known, key=lambda worst: (-worst[0], worst[1]), default=()),
    )


def _larger(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _text(found: _Found, said: str) -> str:
    _, index, actual, desired, rank, err_msg = found.worst
    lines = [
        f"{found.differing} of {found.compared} elements {said}",
        f"worst at global index {index} on rank {rank}: actual {actual}, desired {desired}",
    ]
    differences = (("absolute", found.absolute), ("relative", found.relative))
    known = [
        f"greatest {kind} difference {value}" for kind, value in differences if value is not None
    ]
    lines += [", ".join(known)] if known else []
    if found.only_one_nan:
        lines.append(f"{found.only_one_nan} elements are NaN in one of them only")
    return "\n".join([err_msg, *lines] if err_msg else lines)
