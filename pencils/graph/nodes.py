"""Inputs, constants and outputs of graphs, and nodes of any function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import as_dtype
from pencils.array.operands import check_type
from pencils.errors import ArgumentError
from pencils.graph.array import NO_TAGS, Array, Call, DataWrapper, Placeholder, Tags, filled
from pencils.graph.rules import DType, Shape, is_node, name_of
from pencils.layout.integers import as_ints


class DictOfNamedArrays(dict[str, Array]):
    """The outputs of a graph, by name, in the order of the mapping."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        check_type("arrays", arrays, Mapping)
        for name, array in arrays.items():
            check_type("an output's name", name, str)
            check_type(f"output {name!r}", array, Array)
        super().__init__(arrays)


def make_placeholder(
    name: str, shape: Any, dtype: DTypeLike = float, *, tags: Tags = NO_TAGS
) -> Placeholder:
    """Make an input of the graph.

    Parameters
    ----------
    name : str
        Name of the value in ``input_args`` of `execute_distributed_partition`.
    shape : int or sequence of int
        Shape of the value on this rank.
    dtype : dtype, optional
        Element type of the value.
    tags : frozenset of Tag, optional
        Marks for the user's own purposes.

    Examples
    --------
    >>> x = make_placeholder("x", (3, 4))
    >>> (x + 1j).sum(axis=0)
    <Call sum (4,) complex128>
    """
    check_type("name", name, str)
    return Placeholder(name, read_shape(shape), as_dtype(dtype), frozenset(tags))


def make_data_wrapper(data: Any, *, tags: Tags = NO_TAGS) -> DataWrapper:
    """Make a node of an array; its values are read when the graph is executed.

    Parameters
    ----------
    data : array_like
        The values.
    tags : frozenset of Tag, optional
        Marks for the user's own purposes.
    """
    array = np.asarray(data)  # raises for nodes
    as_dtype(array.dtype)
    return DataWrapper(array, array.shape, array.dtype, frozenset(tags))


def make_dict_of_named_arrays(arrays: Mapping[str, Array]) -> DictOfNamedArrays:
    """Name the outputs of a graph."""
    return DictOfNamedArrays(arrays)


def full(shape: Any, value: object, dtype: DTypeLike | None = None) -> DataWrapper:
    """Make a node whose elements are all equal; it needs no memory."""
    element = np.asarray(value, dtype)
    as_dtype(element.dtype)
    return filled(read_shape(shape), element)


def zeros(shape: Any, dtype: DTypeLike = float) -> DataWrapper:
    """Make a node of zeros; it needs no memory."""
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: DTypeLike = float) -> DataWrapper:
    """Make a node of ones; it needs no memory."""
    return full(shape, 1, dtype)


def call(
    func: Callable[..., Any], *arrays: Any, shape: Any = None, dtype: DTypeLike | None = None
) -> Array:
    """Make a node of any function, such as an FFT or a compiled kernel.

    Parameters
    ----------
    func : callable
        Called with the values of `arrays` when the graph is executed. It returns a new array, or
        a view of an argument, and leaves its arguments as they are.
    *arrays : Array
        Nodes; anything else is passed to `func` unchanged.
    shape : int or sequence of int, optional
        Shape of the result of `func`; default: that of the first node.
    dtype : dtype, optional
        Its element type; default: that of the first node.

    Examples
    --------
    >>> x = make_placeholder("x", (8,))
    >>> call(np.fft.rfft, x, shape=5, dtype=complex)
    <Call rfft (5,) complex128>
    """
    first = next(filter(is_node, arrays), None)
    if first is None:
        raise ArgumentError(
            "call() needs a node among its arrays; make_data_wrapper(array) makes one"
        )
    extents = first.shape if shape is None else read_shape(shape)
    kind = first.dtype if dtype is None else as_dtype(dtype)
    options = {"func": func, "shape": extents, "dtype": kind}
    return Call(_checked, arrays, options, extents, kind)


def _checked(*args: Any, func: Callable[..., Any], shape: Shape, dtype: DType) -> Any:
    """Call a function whose result must have a known shape and type: receivers allocate for it."""
    result = np.asarray(func(*args))
    if (result.shape, result.dtype) != (shape, dtype):
        raise ArgumentError(
            f"call({name_of(func)}) returned shape {result.shape} and dtype {result.dtype}, "
            f"expected shape={shape}, dtype={dtype}; correct one of both"
        )
    return result


def read_shape(shape: Any) -> Shape:
    """Normalize the shape of an array; its extents must be integers, not negative."""
    extents = as_ints("shape", shape)
    if any(n < 0 for n in extents):
        raise ArgumentError(f"shape {extents} must not have negative extents")
    return extents
