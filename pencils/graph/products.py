"""What products of arrays give."""

from __future__ import annotations

import numpy as np

from pencils.errors import ArgumentError
from pencils.graph.node import Shape
from pencils.graph.operation import (
    Arguments,
    Function,
    Operation,
    Options,
    arguments_of,
    array,
    check_equal,
    check_options,
    read_axes,
    type_of,
)


def matmul(func: Function, args: Arguments, options: Options) -> Operation:
    """Tell what a product of stacks of matrices gives."""
    check_options(func, options)
    one, other = map(array, args)
    if not one.ndim or not other.ndim:
        msg = "numpy.matmul takes arrays of at least one dimension; * multiplies by a number"
        raise ArgumentError(msg)
    left = one.shape if one.ndim > 1 else (1, *one.shape)
    right = other.shape if other.ndim > 1 else (*other.shape, 1)
    check_equal(
        "numpy.matmul", f"inner extents of {one.shape}, {other.shape}", [left[-1], right[-2]]
    )
    shape = np.broadcast_shapes(left[:-2], right[:-2])
    shape += left[-2:-1] * (one.ndim > 1) + right[-1:] * (other.ndim > 1)
    return Operation(func, (one, other), options, shape, type_of(func, (one, other), options))


def tensordot(func: Function, args: Arguments, options: Options) -> Operation:
    """Tell what a sum over axes of two arrays gives."""
    given = arguments_of(func, args, options)
    one, other, axes = array(given["a"]), array(given["b"]), given.get("axes", 2)
    if isinstance(axes, int):
        axes = range(one.ndim - axes, one.ndim), range(axes)
    here, there = read_axes(axes[0], one.ndim), read_axes(axes[1], other.ndim)
    extents = [tuple(one.shape[d] for d in here), tuple(other.shape[d] for d in there)]
    check_equal("numpy.tensordot", "extents that are summed over", extents)
    shape = tuple(n for d, n in enumerate(one.shape) if d not in here)
    shape += tuple(n for d, n in enumerate(other.shape) if d not in there)
    dtype = np.result_type(one.dtype, other.dtype)
    return Operation(func, (one, other), {"axes": (here, there)}, shape, dtype)


def einsum(func: Function, args: Arguments, options: Options) -> Operation:
    """Tell what sums of products, written with letters for axes, give."""
    check_options(func, options)
    subscripts, *rest = args
    operands = tuple(map(array, rest))
    if not isinstance(subscripts, str):
        msg = "numpy.einsum in a graph takes its subscripts as a text, like 'ij,jk->ik'"
        raise TypeError(msg)
    terms, result = _terms(subscripts.replace(" ", ""), len(operands))
    extents: dict[str, list[int]] = {}
    leading: list[Shape] = [()]
    for term, x in zip(terms, operands, strict=True):
        before, dots, after = term.partition("...")
        named = len(before) + len(after)
        if named > x.ndim or (named < x.ndim and not dots):
            msg = f"numpy.einsum: {term!r} does not name the axes of an array of shape {x.shape}"
            raise ArgumentError(msg)
        leading.append(x.shape[len(before) : x.ndim - len(after)])
        letters = zip(
            before + after, x.shape[: len(before)] + x.shape[x.ndim - len(after) :], strict=True
        )
        for letter, extent in letters:
            extents.setdefault(letter, []).append(extent)
    sizes = {}
    for letter, found in extents.items():
        varied = [n for n in found if n != 1] or [1]
        check_equal("numpy.einsum", f"extents of {letter!r}", varied)
        sizes[letter] = varied[0]
    before, dots, after = result.partition("...")
    shape = tuple(sizes[letter] for letter in before)
    shape += np.broadcast_shapes(*leading) if dots else ()
    shape += tuple(sizes[letter] for letter in after)
    dtype = np.result_type(*(x.dtype for x in operands))
    return Operation(
        func, (subscripts, *operands), options, shape, np.dtype(options.get("dtype", dtype))
    )


def _terms(subscripts: str, operands: int) -> tuple[list[str], str]:
    inputs, arrow, result = subscripts.partition("->")
    terms = inputs.split(",")
    if len(terms) != operands:
        msg = f"numpy.einsum: {subscripts!r} has {len(terms)} terms for {operands} arrays"
        raise ArgumentError(msg)
    letters = inputs.replace(",", "").replace(".", "")
    if not arrow:  # NumPy's rule: what appears once, in the order of the alphabet
        result = "..." * ("..." in inputs) + "".join(
            x for x in sorted(letters) if letters.count(x) == 1
        )
    unknown = set(result.replace(".", "")) - set(letters)
    if unknown:
        msg = f"numpy.einsum: {subscripts!r} asks for {sorted(unknown)}, which no array has"
        raise ArgumentError(msg)
    return terms, result
