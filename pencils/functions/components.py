"""NumPy functions along component axes: local, since each rank has all components of its points."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from string import ascii_letters
from typing import Any, cast

import numpy as np

from pencils.array import reductions
from pencils.array.allocation import Array, frame_of, plain_array
from pencils.array.base import Field
from pencils.array.elementwise import as_field, elementwise
from pencils.array.operands import common_pencil, fields_among, local_parts, signature
from pencils.array.picks import Picks, all_components
from pencils.comm.agree import agreed
from pencils.comm.progress import poll, under_way
from pencils.comm.reduce import native
from pencils.errors import ArgumentError
from pencils.functions.arguments import check_first, check_given, check_no_out
from pencils.functions.refused import MATRICES
from pencils.layout.integers import as_dim, as_dims, as_int, as_ints
from pencils.pencil import Pencil

_CACHED = 2**18  # bytes of a component, so that nine of them stay in the second-level cache


def stack(arrays: Sequence[Any], axis: int = 0, out: None = None, **options: Any) -> Field:
    """Join fields along a new axis, as `numpy.stack`; never communicates.

    Among the axes of space, the new one is a dimension that is not decomposed: the result lies on a
    pencil with one dimension more, see `Pencil.inserted`.

    Parameters
    ----------
    arrays : sequence of PencilArray or array_like
        Fields with the same components, and replicated NumPy arrays.
    axis : int, optional
        Number of the new axis: a component axis up to the first axis of space.
    out : None
        Not supported.
    dtype, casting
        As in `numpy.stack`.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.ones(pencils.Pencil((4, 6)))
    >>> np.stack([u, 2 * u]).shape
    (2, 4, 6)
    """
    pencil, blocks, make = _aligned("stack", arrays, out)
    singletons: frozenset[int] = make.keywords["singletons"]
    blocks = list(np.broadcast_arrays(*blocks))
    lead = blocks[0].ndim - pencil.ndim
    number = 0 if axis == 0 else as_dim("axis", axis, blocks[0].ndim + 1)
    block = np.stack(blocks, number, **options)
    if number <= lead:
        return make(block)
    new = number - lead
    singletons = frozenset(dim + (dim >= new) for dim in singletons)
    return make(block, pencil=pencil.inserted(new, len(blocks)), singletons=singletons)


def concatenate(arrays: Sequence[Any], axis: int, out: None = None, **options: Any) -> Field:
    """Join fields along a component axis; never communicates."""
    _, blocks, make = _aligned("concatenate", arrays, out)
    ndim = blocks[0].ndim
    if any(block.ndim != ndim for block in blocks):
        shapes = ", ".join(str(np.shape(array)) for array in arrays)
        raise ArgumentError(
            f"numpy.concatenate of shapes {shapes}: all must have as many axes; "
            "numpy.stack makes a component axis"
        )
    lead = len(fields_among(*arrays)[0].components)
    space = np.broadcast_shapes(*(block.shape[lead:] for block in blocks))
    whole = [np.broadcast_to(x, (*x.shape[:lead], *space)) for x in blocks]
    return make(np.concatenate(whole, as_dim("axis", axis, ndim), **options))


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Field, ...]:
    """List the fields along a component axis, as `numpy.unstack`; never communicates."""
    number = component_axis("unstack", x, axis)
    lead = (slice(None),) * number
    return tuple(x.map_block(itemgetter((*lead, i))) for i in range(x.shape[number]))


def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Field:
    """Copy some components, as `numpy.take`; never communicates.

    Parameters
    ----------
    a : PencilArray
        The field.
    indices : array_like of int
        Positions along the axis.
    axis : int
        A component axis.
    out : PencilArray, optional
        Field to fill.
    mode : {"raise", "wrap", "clip"}, optional
        What happens to positions that do not exist, as in NumPy.

    Examples
    --------
    >>> import pencils
    >>> velocity = pencils.ones(pencils.Pencil((4, 6)), components=3)
    >>> np.take(velocity, [0, 2], axis=0).shape
    (2, 4, 6)
    """
    check_given("numpy.take", a, out)
    number = a.ndim if axis is None else as_dim("axis", axis, a.ndim)
    if number >= len(a.components):
        raise TypeError(
            "numpy.take of fields takes components, by axis=0 or another axis of components; write "
            "u.take_points(index) for points of any rank, u[1:-1] for ranges"
        )
    chosen = np.take(all_components(a), indices, number, mode=mode)
    found: Field = Picks(chosen, ()).load(a)
    if out is None:
        return found
    out[...] = found
    return cast("Field", out)


def _aligned(
    name: str, arrays: Sequence[Any], out: object
) -> tuple[Pencil, list[Array], partial[Field]]:
    """Return the pencil and the local parts of operands, and what makes a field of a block."""
    check_no_out(name, out)
    fields = fields_among(*arrays)
    pencil = common_pencil(fields)
    parts, singletons = local_parts(arrays, pencil)
    make = partial(as_field, out=None, pencil=pencil, singletons=singletons, like=fields[0])
    return pencil, [np.asarray(part) for part in parts], make


def component_axis(name: str, u: Any, axis: object) -> int:
    """Return the number of a component axis of a field, or raise."""
    check_first(name, u)
    number = as_dim("axis", axis, u.ndim)
    if number >= len(u.components):
        raise TypeError(
            f"numpy.{name} takes a component axis, not axis {axis} of space; the field of shape "
            f"{u.shape} has {len(u.components)} component axes, which come first"
        )
    return number


# Products of components.


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Field:
    """Compute the cross product of vectors of components, as `numpy.cross`; never communicates.

    Parameters
    ----------
    a, b : PencilArray or array_like
        Fields, replicated NumPy arrays, or constant vectors like ``[0, 0, 1]``.
    axisa, axisb, axisc : int, optional
        Component axes of the vectors of `a`, of `b` and of the result. The defaults of NumPy are
        axes of space for fields: give `axis`, or all of them.
    axis : int, optional
        All three.

    Examples
    --------
    >>> import pencils
    >>> velocity = pencils.ones(pencils.Pencil((4, 6)), components=3)
    >>> np.cross([0, 0, 1], velocity, axis=0).sum(axis=(1, 2)).local[:, 0, 0]
    array([-24.,  24.,   0.])
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    pencil = common_pencil(fields_among(a, b))
    one, first = _vectors("cross", a, axisa, pencil)
    other, second = _vectors("cross", b, axisb, pencil)
    extents = np.shape(one)[first], np.shape(other)[second]
    flat = extents == (2, 2)  # no vectors result
    lead = max(np.ndim(one), np.ndim(other)) - pencil.ndim
    last = 0 if flat else as_dim("axisc", axisc, lead + pencil.ndim)
    if not flat and last >= lead:
        raise TypeError(
            f"numpy.cross: axisc={axisc} is an axis of space; give axis=, a component axis of all"
        )
    if extents == (3, 3):
        return _cross_of_three(pencil, (one, first), (other, second), last)

    def product(left: Array, right: Array) -> Array:
        return np.asarray(np.cross(left, right, axisa=first, axisb=second, axisc=last))

    return elementwise(product, (one, other), {})  # type: ignore[no-any-return]


def _cross_of_three(
    pencil: Pencil, one: tuple[Any, int], other: tuple[Any, int], last: int
) -> Field:
    """Do what `numpy.cross` does for vectors of three, component by component and in one pass.

    Operands come with the axes of their vectors, and `last` is that of the result.
    """
    (left, right), singletons = local_parts((one[0], other[0]), pencil)
    a, b = [*np.moveaxis(left, one[1], 0)], [*np.moveaxis(right, other[1], 0)]
    shape = np.broadcast_shapes(a[0].shape, b[0].shape)
    for vector in (a, b):
        if vector[0].shape != shape:
            vector[:] = [np.broadcast_to(each, shape) for each in vector]
    frame = frame_of(pencil, singletons)
    kind = native(np.promote_types(left.dtype, right.dtype))
    block = frame.make((*shape[:last], 3, *shape[last:]), kind)
    c = np.moveaxis(block, last, 0)
    axis = int(np.argmax(c[0].strides))
    rows = max(1, _CACHED * shape[axis] // max(1, c[0].nbytes))
    for start in range(0, max(1, shape[axis]), rows):
        key = (*(slice(None),) * axis, slice(start, start + rows))
        part = None
        for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
            found = np.multiply(a[j][key], b[k][key], out=c[i][key])
            part = np.multiply(a[k][key], b[j][key], out=part)
            np.subtract(found, part, out=found)
        if under_way.on:
            poll()
    field: Field = one[0] if isinstance(one[0], Field) else other[0]
    return field.in_frame(pencil, frame, block)


def linalg_cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Field:
    """Compute the cross product of vectors with three components, as `numpy.linalg.cross`."""
    for x in (x1, x2):
        extent = np.shape(x)[as_dim("axis", axis, np.ndim(x))]
        if extent != 3:  # noqa: PLR2004 - of space
            raise ArgumentError(
                f"numpy.linalg.cross: axis {axis} of shape {np.shape(x)} must have 3 components"
            )
    return cross(x1, x2, axis=axis)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Compute the norm of a field, or of its vectors, as `numpy.linalg.norm`. *Collective*.

    Parameters
    ----------
    x : PencilArray
        The field.
    ord : float or str, optional
        Order, as in `numpy.linalg.norm`. Without `axis` that of a vector: see `PencilArray.norm`.
    axis : int or tuple of int, optional
        Component axis of the vectors, or two of matrices; default: the field is one long vector.
    keepdims : bool, optional
        Whether component axes stay with extent 1.

    Returns
    -------
    scalar or PencilArray
        The same number on every rank, or a field of one norm for each point.

    Examples
    --------
    >>> import pencils
    >>> velocity = pencils.ones(pencils.Pencil((4, 6)), components=2)
    >>> np.linalg.norm(velocity, axis=0).max()
    np.float64(1.4142135623730951)
    """
    if axis is None and ord is None and keepdims is False:
        given = {"axis": None, "keepdims": False}
        return reductions.norm_of("numpy.linalg.norm", x, None, given)
    with agreed(x.pencil.topology.comm, "numpy.linalg.norm") as agree:
        agree(**signature(x), axis=axis, keepdims=bool(keepdims))
        if axis is None and (keepdims or (ord is not None and x.ndim > 1)):
            raise TypeError(
                "numpy.linalg.norm with ord= or keepdims= is a norm of matrices; write "
                "u.norm(ord) for all points as one vector, or pass axis= only for vectors of "
                "components"
            )
        if axis is not None:
            agree(ord=ord)
            axes = tuple(component_axis("linalg.norm", x, each) for each in as_ints("axis", axis))
            block = np.linalg.norm(x.local, ord, axes, keepdims)
    if axis is None:
        return reductions.norm(x, ord)
    return as_field(block, None, x.pencil, x.singletons, x)


def vecdot(x1: Any, x2: Any, /, out: Any = None, *, axis: int = -1, **options: Any) -> Any:
    """Compute the scalar product of vectors, as `numpy.vecdot`; never communicates."""
    pencil = common_pencil(fields_among(x1, x2))
    one, first = _vectors("vecdot", x1, axis, pencil)
    other, second = _vectors("vecdot", x2, axis, pencil)
    axes: Any = [(first,), (second,), ()]

    def product(left: Array, right: Array, **further: Any) -> Any:
        return np.vecdot(left, right, axes=axes, **further)

    return elementwise(product, (one, other), {"out": out, **options})


def _vectors(name: str, operand: Any, axis: object, pencil: Pencil) -> tuple[Any, int]:
    """Return an operand, with as many axes as a field, and the axis of its vectors."""
    if isinstance(operand, Field):
        return operand, component_axis(name, operand, axis)
    array = plain_array(operand)
    array = np.moveaxis(array, as_dim("axis", axis, array.ndim), 0)
    return with_space(array, 1, pencil), 0


def with_space(array: Array, lead: int, pencil: Pencil) -> Array:
    """Insert axes of extent 1 after the first `lead` axes, if the array lacks axes of space."""
    missing = max(0, lead + pencil.ndim - array.ndim)
    return array.reshape(*array.shape[:lead], *(1,) * missing, *array.shape[lead:])


def einsum(subscripts: Any, *operands: Any, **options: Any) -> Any:
    """Sum products along component axes, as `numpy.einsum`; never communicates.

    Parameters
    ----------
    subscripts : str
        Terms for all operands, and for the result after ``->``. Letters name component axes;
        ``...`` at the end means space.
    *operands : PencilArray or array_like
        Fields, and NumPy arrays that all ranks have. The term of an array without ``...`` names
        all of its axes: it is the same at all points.
    **options
        As in `numpy.einsum`; `out` is a field.

    Examples
    --------
    >>> import pencils
    >>> velocity = pencils.ones(pencils.Pencil((4, 6)), components=2)
    >>> turned = np.einsum("ij,j...->i...", [[0, -1], [1, 0]], velocity)
    >>> turned.shape, turned.local[:, 0, 0]
    ((2, 4, 6), array([-1.,  1.]))
    """
    text = subscripts.replace(" ", "") if isinstance(subscripts, str) else ""
    head, arrow, result = text.partition("->")
    terms = head.split(",")
    if not arrow or not result.endswith("...") or len(terms) != len(operands):
        raise ArgumentError(
            f"numpy.einsum({subscripts!r}): give one term for each operand. Letters name "
            "component axes; ... for space ends each field and the result, as in "
            "'i...,i...->...' or 'ij,j...->i...'"
        )
    pencil = common_pencil(fields_among(*operands))
    pairs = [_term(subscripts, *pair, pencil) for pair in zip(terms, operands, strict=True)]
    spread = [place for place, term in enumerate(terms) if term.endswith("...")]

    def contract(*parts: Any, **further: Any) -> Any:
        given = list(pairs)
        for place, part in zip(spread, parts, strict=True):
            given[place] = part
        return np.einsum(subscripts, *given, **further)

    return elementwise(contract, [pairs[place] for place in spread], options)


def _term(subscripts: str, term: str, operand: Any, pencil: Pencil) -> Any:
    """Return an operand of `einsum` if its term is right: space is not summed over one block."""
    letters = len(term.removesuffix("..."))
    if isinstance(operand, Field):
        if not term.endswith("...") or letters != len(operand.components):
            raise ArgumentError(
                f"numpy.einsum({subscripts!r}): term {term!r} must name the component axes "
                f"{operand.components} of its field, one letter for each, and end with ... for "
                "space"
            )
        return operand
    array = plain_array(operand)
    if term.endswith("...") and letters <= array.ndim <= letters + pencil.ndim:
        return with_space(array, letters, pencil)
    if letters != array.ndim:
        raise ArgumentError(
            f"numpy.einsum({subscripts!r}): term {term!r} does not fit an array of shape "
            f"{array.shape}"
        )
    return array


_REFUSED = (
    "numpy.{} does not take a PencilArray here, only beside a constant tensor and over component "
    f"axes: {MATRICES}"
)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Field:
    """Sum products of a constant tensor and a field, as `numpy.tensordot`; never communicates.

    Parameters
    ----------
    a, b : array_like and PencilArray
        A NumPy array that all ranks have, and a field, whose summed axes are component axes. If the
        field comes first, all axes of the array are summed.
    axes : int, or two sequences of int, optional
        The summed axes of `a` and of `b`; a number `n` for the last `n` of `a` and the first `n` of
        `b`.

    Returns
    -------
    PencilArray
        Its components are the other axes of both.

    Raises
    ------
    TypeError
        If space is summed over, or would not be last.

    Examples
    --------
    >>> import pencils
    >>> velocity = pencils.ones(pencils.Pencil((4, 6)), components=2)
    >>> np.tensordot([[0, -1], [1, 0], [1, 1]], velocity, axes=1).shape
    (3, 4, 6)
    """
    if isinstance(a, Field) and isinstance(b, Field):
        raise TypeError(_REFUSED.format("tensordot"))
    one, other = (x if isinstance(x, Field) else plain_array(x) for x in (a, b))
    first, second = _summed(axes, one.ndim, other.ndim)
    for operand, along in ((one, first), (other, second)):
        if isinstance(operand, Field):
            for axis in along:
                component_axis("tensordot", operand, axis)
        elif operand is other and len(along) < operand.ndim:
            raise TypeError(_REFUSED.format("tensordot"))
    left = list(ascii_letters[: one.ndim])
    right = list(ascii_letters[one.ndim : one.ndim + other.ndim])
    for axis, mine in zip(second, first, strict=True):
        right[axis] = left[mine]
    for operand, letters in ((one, left), (other, right)):
        if isinstance(operand, Field):
            letters[len(operand.components) :] = ["..."]
    both = [letter for letter in left + right if letter != "..."]
    free = "".join(letter for letter in both if both.count(letter) == 1)
    found: Field = einsum(f"{''.join(left)},{''.join(right)}->{free}...", one, other)
    return found


def _summed(axes: Any, ndim: int, other: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the summed axes of both operands."""
    try:
        first, second = axes
    except TypeError:
        count = as_int("axes", axes, least=0)
        first, second = range(ndim - count, ndim), range(count)
    pair = as_dims("axes", first, ndim), as_dims("axes", second, other)
    if len(pair[0]) != len(pair[1]):
        raise ArgumentError(
            f"numpy.tensordot: axes={axes!r} must name as many axes of both operands"
        )
    return pair
