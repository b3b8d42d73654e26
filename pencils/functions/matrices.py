"""Linear algebra of matrices that are components: one matrix at each point.

NumPy has matrices in the last two axes, which are space for fields. So here the first two component
axes are the rows and columns of a matrix, the only component axis that of a vector; further
component axes and space count points. NumPy arrays of up to two axes are the same at all points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from string import ascii_uppercase
from typing import Any

import numpy as np

from pencils.array import reductions
from pencils.array.allocation import plain_array
from pencils.array.base import Field
from pencils.array.elementwise import as_field
from pencils.array.operands import (
    common_pencil,
    fields_among,
    local_parts,
    signature,
    topology_among,
)
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError
from pencils.functions.arguments import check_no_out
from pencils.functions.components import component_axis, einsum, norm, with_space
from pencils.functions.refused import MATRICES
from pencils.layout.integers import as_dims
from pencils.pencil import Pencil

_MOST = 2  # axes of arrays that are the same at all points

# Products: local.


def matmul(x1: Any, x2: Any, /, out: Any = None, *, axes: Any = None, **options: Any) -> Any:
    """Multiply matrices or vectors of components, as `numpy.matmul`; never communicates.

    Parameters
    ----------
    x1, x2 : PencilArray or array_like
        Fields with matrices in their first two component axes, or with vectors in the only one, and
        NumPy arrays that all ranks have: constant ones of up to two axes, or with axes of space.
    out : PencilArray, optional
        Field to fill; it may be an operand.
    axes : sequence of three tuples of int, optional
        Component axes of the matrices of `x1`, of `x2` and of the result, as in NumPy; an axis or
        ``()`` where there are vectors.
    **options
        `dtype`, `casting` and `order`, as in `numpy.einsum`.

    Returns
    -------
    PencilArray
        Rows and columns are its first component axes; the product of two vectors has none.

    Examples
    --------
    >>> import pencils
    >>> velocity = pencils.ones(pencils.Pencil((4, 6)), components=2)
    >>> turned = [[0, -1], [1, 0]] @ velocity
    >>> turned.local[:, 0, 0]
    array([-1.,  1.])
    """
    first, second = _places_of("matmul", (x1, x2), (1, 1))
    one, other = "ij"[-first:], "jk"[:second]
    terms = one, other, one[:-1] + other[1:]
    return _product("matmul", terms, (x1, x2), out, axes, options)


def matvec(x1: Any, x2: Any, /, out: Any = None, *, axes: Any = None, **options: Any) -> Any:
    """Multiply matrices and vectors of components, as `numpy.matvec`; never communicates."""
    _places_of("matvec", (x1, x2), (2, 1))
    return _product("matvec", ("ij", "j", "i"), (x1, x2), out, axes, options)


def vecmat(x1: Any, x2: Any, /, out: Any = None, *, axes: Any = None, **options: Any) -> Any:
    """Multiply conjugate vectors and matrices, as `numpy.vecmat`; never communicates."""
    _places_of("vecmat", (x1, x2), (1, 2))
    return _product("vecmat", ("i", "ij", "j"), (np.conj(x1), x2), out, axes, options)


def _places_of(name: str, operands: Sequence[Any], least: Sequence[int]) -> tuple[int, ...]:
    """Return how many axes of each operand are of a matrix or a vector: 2 or 1."""
    pencil = common_pencil(fields_among(*operands))
    ranks = [_rank(operand, pencil) for operand in operands]
    if any(map(int.__lt__, ranks, least)):
        shapes = " and ".join(str(np.shape(operand)) for operand in operands)
        raise TypeError(
            f"numpy.{name} does not take a PencilArray here, only over component axes; shapes "
            f"{shapes} have {ranks} of them: {MATRICES}"
        )
    return tuple([min(rank, _MOST) for rank in ranks])


def _rank(operand: Any, pencil: Pencil) -> int:
    """Return the number of component axes of a field or an array."""
    if isinstance(operand, Field):
        return len(operand.components)
    ndim = plain_array(operand).ndim
    return ndim if ndim <= _MOST else max(0, ndim - pencil.ndim)


def _product(
    name: str, terms: Sequence[str], operands: Sequence[Any], out: Any, axes: Any, options: Any
) -> Any:
    """Sum products along the axes that terms name; further component axes broadcast."""
    pencil = common_pencil(fields_among(*operands))
    extra = [
        _rank(each, pencil) - len(term) for each, term in zip(operands, terms[:-1], strict=True)
    ]
    extra.append(max(extra))
    given = [None] * len(terms) if axes is None else list(axes)
    if len(given) != len(terms):
        raise ValueError(f"numpy.{name}: axes={axes!r} must have an entry for each operand")
    named = []
    for term, more, where in zip(terms, extra, given, strict=True):
        places = range(len(term)) if where is None else as_dims("axes", where, len(term) + more)
        if len(places) != len(term):
            raise ValueError(f"numpy.{name}: axes={axes!r} must name {len(term)} axes, not {where}")
        further = iter(ascii_uppercase[extra[-1] - more : extra[-1]])
        where_of = dict(zip(places, term, strict=True))
        named.append("".join(where_of.get(i) or next(further) for i in range(len(term) + more)))
    extents: dict[str, int] = {}
    for letters, each in zip(named, operands, strict=False):
        for letter, extent in zip(letters, np.shape(each), strict=False):
            broadcasts = extent == 1 and letter.isupper()
            if not broadcasts and extents.setdefault(letter, extent) != extent:
                shapes = " and ".join(str(np.shape(operand)) for operand in operands)
                raise ArgumentError(
                    f"numpy.{name} of shapes {shapes}: component axes must have equal extents "
                    f"where letters are equal, {','.join(named[:-1])}->{named[-1]}"
                )
    spread = [
        "..." if np.ndim(each) > _MOST or isinstance(each, Field) else "" for each in operands
    ]
    text = ",".join(map(str.__add__, named, spread))
    found = einsum(f"{text}->{named[-1]}...", *operands, **options)
    target = out[0] if isinstance(out, tuple) else out
    if target is None:
        return found
    np.copyto(target, found)  # afterwards: it may be an operand
    return target


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Compute the norm of a field, or of its vectors, as `numpy.linalg.vector_norm`. *Collective*.

    Parameters as in `numpy.linalg.norm`; `axis` is one component axis.
    """
    if axis is None and not keepdims:
        return reductions.norm(x, ord)
    if np.size(axis) > 1:
        with agreed(topology_among(x).comm, "numpy.linalg.norm"):
            raise TypeError("numpy.linalg.vector_norm of a PencilArray takes one component axis")
    return norm(x, ord, axis, keepdims)


def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None
) -> Field:
    """Sum the diagonal of component axes, as `numpy.trace`; never communicates."""
    check_no_out("trace", out)
    first, second = (component_axis("trace", a, axis) for axis in (axis1, axis2))
    block = np.trace(a.local, offset, first, second, dtype)
    total: Field = as_field(block, None, a.pencil, a.singletons, a)
    return total


# Functions of NumPy that raise for some values: collective.


def _per_point(
    name: str, operands: Sequence[Any], least: Sequence[int], *args: Any, **options: Any
) -> Any:
    """Apply a function of `numpy.linalg` to matrices or vectors of components. *Collective*.

    `least` is 2 for each operand that must be a matrix, 1 for one that may be a vector.
    """
    function: Callable[..., Any] = getattr(np.linalg, name)
    with agreed(topology_among(*operands).comm, f"numpy.linalg.{name}") as agree:
        cores = _places_of(f"linalg.{name}", operands, least)
        fields = fields_among(*operands)
        facts = [_facts(x) if isinstance(x, Field) else np.shape(x) for x in operands]
        more = [*args, *options.values()]  # a tolerance may be a field
        agree(operands=facts, more=[*map(_facts, more)], options=[*options])
        tolerances = fields_among(*more)
        pencil = common_pencil([*fields, *tolerances])
        spread = [
            x
            if isinstance(x, Field) or np.ndim(x) > _MOST
            else with_space(plain_array(x), np.ndim(x), pencil)
            for x in operands
        ]
        parts, singletons = local_parts([*spread, *tolerances], pencil)
        local = iter(parts[len(spread) :])
        given = [next(local) if isinstance(x, Field) else x for x in more]
        turned = [
            np.ascontiguousarray(np.moveaxis(part, range(core), range(-core, 0)))
            for part, core in zip(parts, cores, strict=False)
        ]
        points = np.broadcast_shapes(
            *(part.shape[: part.ndim - core] for part, core in zip(turned, cores, strict=True))
        )
        if cores[-1] == 1:  # NumPy takes stacks of matrices only
            turned[-1] = turned[-1][..., np.newaxis]
        keywords = dict(zip(options, given[len(args) :], strict=True))
        found = function(*turned, *given[: len(args)], **keywords)
        results = [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]
        is_complex = [each.dtype.kind == "c" for each in results]
        agree.flag(up=any(is_complex) and all(part.dtype.kind != "c" for part in turned))
    made: list[Any] = []
    for each in results:
        block = each[..., 0] if cores[-1] == 1 else each
        if agree.flagged and block.dtype.kind != "c":  # on some rank, eigenvalues are complex
            block = block.astype(np.result_type(block, np.complex64))
        core = range(len(points), block.ndim)
        block = np.moveaxis(block, core, range(len(core)))
        made.append(as_field(block, None, pencil, singletons, fields[0]))
    if not isinstance(found, tuple):
        return made[0]
    return tuple(made) if type(found) is tuple else type(found)(*made)


def _facts(x: Any) -> object:
    return signature(x) if isinstance(x, Field) else x


def multi_dot(arrays: Sequence[Any], *, out: None = None) -> Any:
    """Multiply matrices of components one after another, as `numpy.linalg.multi_dot`."""
    check_no_out("linalg.multi_dot", out)
    return reduce(np.matmul, arrays)


def outer(x1: Any, x2: Any, /) -> Any:
    """Multiply each component by each, as `numpy.linalg.outer`; never communicates."""
    _places_of("linalg.outer", (x1, x2), (1, 1))
    return _product("linalg.outer", ("i", "j", "ij"), (x1, x2), None, None, {})


def solve(a: Any, b: Any) -> Field:
    """Solve linear equations at each point, as `numpy.linalg.solve`. *Collective*.

    Ranks agree whether a matrix is singular; nothing else is communicated.

    Parameters
    ----------
    a : PencilArray or array_like
        Matrices in the first two component axes, or a constant matrix.
    b : PencilArray or array_like
        Right sides: vectors if there is one component axis, else matrices.

    Raises
    ------
    numpy.linalg.LinAlgError
        On every rank, if a matrix of any is singular.

    Examples
    --------
    >>> import pencils
    >>> velocity = pencils.ones(pencils.Pencil((4, 6)), components=2)
    >>> np.linalg.solve([[2, 0], [0, 4]], velocity).local[:, 0, 0]
    array([0.5 , 0.25])
    """
    return _per_point("solve", (a, b), (2, 1))  # type: ignore[no-any-return]


def _of_matrices(name: str, a: Any, *args: Any, **options: Any) -> Any:
    return _per_point(name, (a,), (2,), *args, **options)


_NAMES = (
    "cholesky cond det diagonal eig eigh eigvals eigvalsh inv matrix_norm matrix_power matrix_rank "
    "matrix_transpose pinv qr slogdet svd svdvals trace"
)
# What replaces functions of `numpy.linalg` that take matrices.
OF_MATRICES: dict[Callable[..., Any], Callable[..., Any]] = {
    getattr(np.linalg, name): partial(_of_matrices, name) for name in _NAMES.split()
}
