"""Nodes of an expression graph that send and receive, and the identifier of a message."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import as_dtype
from pencils.array.operands import check_type
from pencils.errors import ArgumentError
from pencils.graph.array import NO_TAGS, Array, Call, DataWrapper, Placeholder, Tags, filled
from pencils.graph.rules import DType, Shape, is_node, name_of
from pencils.layout.integers import as_ints, to_int

CommTagType = Hashable  # of messages; tags must be picklable, too
ShapeType = Shape
AxesT = tuple[Any, ...]  # anything about the axes of an array


class CommunicationOpIdentifier(NamedTuple):
    """Identifies a message: equal for a send and its receive, unique otherwise."""

    src_rank: int
    dest_rank: int
    comm_tag: CommTagType

    def __str__(self) -> str:
        return f"{self.comm_tag!r} from rank {self.src_rank} to rank {self.dest_rank}"


# For each message, those that must have arrived before it is sent.
CommunicationDepGraph = Mapping[CommunicationOpIdentifier, AbstractSet[CommunicationOpIdentifier]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DistributedSend:
    """A send to another rank. It is not an array, and has no value.

    `DistributedSendRefHolder` makes it part of a graph.

    Parameters
    ----------
    data : Array
        The values to send.
    dest_rank : int
        Rank that receives.
    comm_tag : hashable
        Only a `DistributedRecv` with an equal tag receives the values. The tag must be picklable.
    tags : frozenset of Tag, optional
        Marks for the user's own purposes.
    """

    data: Array
    dest_rank: int
    comm_tag: CommTagType
    tags: Tags = field(default=NO_TAGS, kw_only=True)

    def identifier(self, rank: int) -> CommunicationOpIdentifier:
        """Identify the message, given the rank that sends it."""
        return CommunicationOpIdentifier(rank, self.dest_rank, self.comm_tag)

    def __repr__(self) -> str:
        return f"<DistributedSend {self.comm_tag!r} to rank {self.dest_rank} of {self.data!r}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DistributedSendRefHolder(Array):
    """An array with the values of `passthrough_data`, which makes `send` part of the graph.

    Parameters
    ----------
    send : DistributedSend
        A send that is executed if this array is needed. It starts once its own data are computed.
    passthrough_data : Array
        The value of this node.
    tags, non_equality_tags : frozenset of Tag, optional
        Marks for the user's own purposes.
    """

    send: DistributedSend
    passthrough_data: Array
    tags: Tags = NO_TAGS
    non_equality_tags: Tags = NO_TAGS
    shape: Shape = field(init=False)
    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", self.passthrough_data.shape)
        object.__setattr__(self, "dtype", self.passthrough_data.dtype)

    @property
    def inputs(self) -> tuple[Array, ...]:
        """Nodes that are part of a graph if this one is."""
        return self.send.data, self.passthrough_data


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DistributedRecv(Array):
    """An array received from another rank.

    Nodes that are equal in everything but `non_equality_tags` are one receive. Otherwise there may
    be only one for each message.

    Parameters
    ----------
    shape : tuple of int
        Shape of the array.
    dtype : numpy.dtype
        Its element type.
    src_rank : int
        Rank that sends.
    comm_tag : hashable
        Tag of the `DistributedSend`.
    axes : tuple, optional
        Anything about the axes, for the user's own purposes.
    tags, non_equality_tags : frozenset of Tag, optional
        Marks for the user's own purposes.
    """

    shape: Shape
    dtype: DType
    src_rank: int
    comm_tag: CommTagType
    axes: AxesT = field(default=(), kw_only=True)
    tags: Tags = field(default=NO_TAGS, kw_only=True)
    non_equality_tags: Tags = field(default=NO_TAGS, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", read_shape(self.shape))
        object.__setattr__(self, "dtype", as_dtype(self.dtype))

    def identifier(self, rank: int) -> CommunicationOpIdentifier:
        """Identify the message, given the rank that receives it."""
        return CommunicationOpIdentifier(self.src_rank, rank, self.comm_tag)

    def equals(self, other: DistributedRecv) -> bool:
        """Whether two receives on one rank are the same; ``==`` compares nodes by identity."""
        return all(
            getattr(self, name) == getattr(other, name)
            for name in ("src_rank", "comm_tag", "shape", "dtype", "axes", "tags")
        )

    def _what(self) -> str:
        return f"DistributedRecv {self.comm_tag!r} from rank {self.src_rank}"


def make_distributed_send(
    sent_data: Array, dest_rank: int, comm_tag: CommTagType, send_tags: Tags = NO_TAGS
) -> DistributedSend:
    """Make a `DistributedSend`; it has no effect unless a `DistributedSendRefHolder` holds it.

    Raises
    ------
    TypeError, ArgumentError
        If `sent_data` is no node, the rank is negative or no integer, or the tag is not hashable.
    """
    check_type("sent_data", sent_data, Array)
    rank, tag = _address("dest_rank", dest_rank, comm_tag)
    return DistributedSend(sent_data, rank, tag, tags=frozenset(send_tags))


def make_distributed_send_ref_holder(
    send: DistributedSend,
    passthrough_data: Array,
    tags: Tags = NO_TAGS,
    non_equality_tags: Tags = NO_TAGS,
) -> DistributedSendRefHolder:
    """Make a `DistributedSendRefHolder`.

    Raises
    ------
    TypeError
        If `send` is no send, or `passthrough_data` no node.
    """
    check_type("send", send, DistributedSend)
    check_type("passthrough_data", passthrough_data, Array)
    return DistributedSendRefHolder(
        send, passthrough_data, frozenset(tags), frozenset(non_equality_tags)
    )


def staple_distributed_send(
    sent_data: Array,
    dest_rank: int,
    comm_tag: CommTagType,
    stapled_to: Array,
    *,
    send_tags: Tags = NO_TAGS,
    ref_holder_tags: Tags = NO_TAGS,
) -> DistributedSendRefHolder:
    """Make a `DistributedSend` that is executed if the result of this function is needed.

    Parameters
    ----------
    sent_data : Array
        The values to send.
    dest_rank : int
        Rank that receives.
    comm_tag : hashable
        Identifies the message, together with both ranks.
    stapled_to : Array
        The value of the result.
    send_tags, ref_holder_tags : frozenset of Tag, optional
        Marks of the two nodes.

    Raises
    ------
    TypeError, ArgumentError
        As `make_distributed_send`.

    Examples
    --------
    >>> from pencils.graph import make_placeholder
    >>> x = make_placeholder("x", (3,))
    >>> halved = staple_distributed_send(x, 0, "to myself", x / 2)
    >>> halved + make_distributed_recv(0, "to myself", (3,), float)
    <Call add (3,) float64>
    """
    send = make_distributed_send(sent_data, dest_rank, comm_tag, send_tags)
    return make_distributed_send_ref_holder(send, stapled_to, ref_holder_tags)


def make_distributed_recv(  # noqa: PLR0917
    src_rank: int,
    comm_tag: CommTagType,
    shape: Any,
    dtype: DTypeLike,
    axes: Any = None,
    tags: Tags = NO_TAGS,
) -> DistributedRecv:
    """Make a node whose values another rank sends; equal nodes are one receive.

    Parameters
    ----------
    src_rank : int
        Rank that sends.
    comm_tag : hashable
        Tag of the `DistributedSend`.
    shape : int or sequence of int
        Shape of the values.
    dtype : dtype
        Their element type.
    axes : sequence, optional
        Anything about the axes, for the user's own purposes.
    tags : frozenset of Tag, optional
        Marks for the user's own purposes.

    Raises
    ------
    TypeError, ArgumentError
        If the rank is negative or no integer, the tag is not hashable, or shape or type is invalid.
    """
    rank, tag = _address("src_rank", src_rank, comm_tag)
    kind = as_dtype(dtype)
    return DistributedRecv(shape, kind, rank, tag, axes=tuple(axes or ()), tags=frozenset(tags))


def _address(name: str, rank: object, tag: Hashable) -> tuple[int, Hashable]:
    number = to_int(rank)
    if number is None:
        raise TypeError(f"{name} must be an integer, not {rank!r}")
    if number < 0:
        raise ArgumentError(f"{name}={number} must be a rank, 0 or more")
    try:
        hash(tag)
    except TypeError as error:
        raise TypeError(
            f"comm_tag {tag!r} must be hashable, like a text, a number or a tuple of such"
        ) from error
    return number, tag


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
            f"but was announced with shape={shape}, dtype={dtype}: change one of them"
        )
    return result


def read_shape(shape: Any) -> Shape:
    """Normalize the shape of an array; its extents must be integers, not negative."""
    extents = as_ints("shape", shape)
    if any(n < 0 for n in extents):
        raise ArgumentError(f"shape {extents} must not have negative extents")
    return extents
