"""Buffers of messages: every form in which mpi4py takes them, packed and unpacked as bytes."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, final

import numpy as np

from simmpi.exceptions import ERR_TRUNCATE, ERR_TYPE, MPIError
from simmpi.types.datatypes import BYTE, Datatype, by_code
from simmpi.types.kinds import Kind, checked_count, checked_integers
from simmpi.types.memory import Bytes, contiguous_bytes, location, view
from simmpi.types.typemaps import Signature, Typemap

_POISON: Final = 0xFF
FOREIGN_ORDER: Final = ">" if sys.byteorder == "little" else "<"


@final
class _Constant:
    """An address with a meaning of its own."""

    def __init__(self, name: str, address: int) -> None:
        self.name = name
        self.address = address

    def __int__(self) -> int:
        return self.address

    __index__ = __int__

    def __bool__(self) -> bool:
        return self.address != 0

    def __hash__(self) -> int:
        return hash(self.address)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int) and self.address == other)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name


BOTTOM = _Constant("BOTTOM", 0)
IN_PLACE = _Constant("IN_PLACE", -1)

# The constants here that replace those of another MPI module, by the id of these.
foreign: dict[int, Any] = {}


def local(value: Any) -> Any:
    """Replace a constant of another MPI module by the one here."""
    return foreign.get(id(value), value)


def is_in_place(spec: Any) -> bool:
    """Whether a buffer is the one of the result."""
    return spec is None or local(spec) is IN_PLACE


def is_bottom(source: Any) -> bool:
    """Whether displacements of datatypes are addresses."""
    return source is None or local(source) is BOTTOM


@dataclass(eq=False)
class Buffer:
    """`count` elements of a datatype, from an address on."""

    address: int
    count: int
    datatype: Datatype
    kind: Kind | None = None  # of the datatype, which can be freed before the buffer is used
    owner: Any = None  # keeps the memory allocated

    @cached_property
    def typemap(self) -> Typemap:
        """Typemap of all elements."""
        one = (self.kind or self.datatype.kind).typemap
        return one.repeated(self.count, one.extent)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of data."""
        return self.count * (self.kind or self.datatype.kind).typemap.size if self.count else 0

    @cached_property
    def run(self) -> int | None:
        """Address of the data if they are one run of bytes."""
        one = (self.kind or self.datatype.kind).typemap
        if one.is_plain or (self.count == 1 and one.is_run):
            return self.address + one.pieces[0].start
        return None

    @property
    def signature(self) -> Signature:
        """Codes of the basic types in order, equal ones in sequence counted."""
        if not self.count:
            return ()
        one = (self.kind or self.datatype.kind).typemap.signature
        return ((one[0][0], one[0][1] * self.count),) if len(one) == 1 else self.typemap.signature

    def pack(self) -> Bytes:
        """Copy the data."""
        if not self.nbytes:
            return np.empty(0, np.uint8)
        if self.run is not None:
            return view(self.run, self.nbytes, readonly=True).copy()
        packed = np.empty(self.nbytes, np.uint8)
        self.typemap.copy(self.address, packed, unpack=False)
        return packed

    def unpack(self, data: Bytes) -> None:
        """Replace the first elements, as many as there are data for."""
        if not data.size:
            return
        if data.size > self.nbytes:
            raise MPIError(
                ERR_TRUNCATE, f"{data.size} bytes were given to a buffer of {self.nbytes}"
            )
        if self.run is not None:
            view(self.run, data.size)[:] = data
        elif data.size == self.nbytes:
            self.typemap.copy(self.address, data, unpack=True)
        else:
            self.typemap.copy_first(self.address, data)

    def poison(self) -> None:
        """Fill the data with the byte 0xFF, which makes not-a-numbers of floating-point numbers."""
        self.unpack(np.full(self.nbytes, _POISON, np.uint8))

    def is_poisoned(self) -> bool:
        """Whether all data are as `poison` fills them."""
        return bool((self.pack() == _POISON).all())


EMPTY = Buffer(0, 0, BYTE)


def as_buffer(spec: Any, *, writes: bool = False) -> Buffer:
    """Take a buffer of one message in any form."""
    if type(spec) is np.ndarray:  # the common form
        address, nbytes, datatype, owner = _basic(spec, None, writes=writes)
        count = _inferred_count(nbytes, datatype, 1)
        return _checked(Buffer(address, count, datatype, None, owner))
    return _simple(spec, 1, writes=writes)


def as_parts(spec: Any, size: int, *, writes: bool = False) -> list[Buffer]:
    """Take a buffer of messages of equal length, one for each of `size` ranks."""
    if size == 0:
        return []
    whole = _simple(spec, size, writes=writes)
    step = whole.count * whole.datatype.extent if whole.count else 0
    return [
        Buffer(whole.address + step * i, whole.count, whole.datatype, whole.kind, whole.owner)
        for i in range(size)
    ]


def as_whole(spec: Any, size: int, *, writes: bool = False) -> Buffer:
    """Take the buffer of `as_parts` as one; a count that is given is that of one part."""
    part = _simple(spec, size, writes=writes)
    return Buffer(part.address, part.count * size, part.datatype, part.kind, part.owner)


def as_vector(spec: Any, size: int, *, writes: bool = False) -> list[Buffer]:
    """Take a buffer of messages of different lengths, one for each of `size` ranks."""
    source, counts, displs, kind = _parts_of(spec, lists=False)
    address, nbytes, datatype, owner = _basic(source, kind, writes=writes)
    number = _counts_by_rank(counts, size, nbytes, datatype)
    if displs is None:
        places = list(accumulate(number, initial=0))[:-1]
    elif _is_integral(displs):
        places = [operator.index(displs) * i for i in range(size)]
    else:
        places = checked_integers(displs, size)
    checked_count(min(number, default=0))
    nothing = Buffer(address, 0, datatype, None, owner)
    shared = _checked_kind(datatype) if any(number) else None
    extent = datatype.extent if shared else 0
    return [
        Buffer(address + place * extent, count, datatype, shared, owner) if count else nothing
        for place, count in zip(places, number, strict=True)
    ]


def as_wide(spec: Sequence[Any], size: int, *, writes: bool = False) -> list[Buffer]:
    """Take a buffer of messages of different types, at displacements in bytes."""
    counts: Any
    displs: Any
    if len(spec) == 2:  # noqa: PLR2004
        source, types = spec
        counts = displs = None
    elif len(spec) == 3:  # noqa: PLR2004
        source, (counts, displs), types = spec
    elif len(spec) == 4:  # noqa: PLR2004
        source, counts, displs, types = spec
    else:
        raise _wrong_length(spec)
    address, owner = 0, None
    if not is_bottom(source):
        address, _, owner = _export(source, writes=writes, typed=True)
    elif counts is None or displs is None:
        raise ValueError("BOTTOM was given without counts and displacements; pass both")
    if counts is None and displs is None:
        number, places = [1] * size, [0] * size
    else:
        number, places = checked_integers(counts, size), checked_integers(displs, size)
    if len(types) != size:
        raise ValueError(f"{len(types)} datatypes were given for {size} ranks; pass one for each")
    kinds = [local(kind) for kind in types]
    for kind in kinds:
        if not isinstance(kind, Datatype):
            raise TypeError(f"{kind!r} was given; an MPI datatype is needed")
    checked_count(min(number, default=0))
    nothing = Buffer(address, 0, BYTE, None, owner)
    return [
        Buffer(address + place, count, kind, _checked_kind(kind), owner) if count else nothing
        for place, count, kind in zip(places, number, kinds, strict=True)
    ]


def _checked(buffer: Buffer) -> Buffer:
    """Check what an MPI library checks at the call."""
    if checked_count(buffer.count):
        buffer.kind = _checked_kind(buffer.datatype)
    return buffer


def _checked_kind(datatype: Datatype) -> Kind:
    """Datatype of elements, which has to be committed."""
    kind = datatype.kind
    if not kind.is_committed:
        raise MPIError(ERR_TYPE, "a datatype was used before Commit; call it first")
    return kind


def _simple(spec: Any, blocks: int, *, writes: bool) -> Buffer:
    """Take a buffer of which the whole memory, or a number of blocks, is given."""
    source, count, displ, kind = _parts_of(spec, lists=True)
    address, nbytes, datatype, owner = _basic(source, kind, writes=writes)
    if displ is not None:
        offset = _offset_of(operator.index(displ), nbytes, datatype)
        address, nbytes = address + offset, nbytes - offset
    if count is None:
        number = _inferred_count(nbytes, datatype, blocks)
    else:
        number = operator.index(count)
        if number < 0:
            raise ValueError(f"the count {number} was given; it is 0 or more")
        if number and source is None:
            raise ValueError(f"no buffer was given for {number} elements; pass one, or count 0")
    return _checked(Buffer(address, number, datatype, None, owner))


def _parts_of(spec: Any, *, lists: bool) -> tuple[Any, Any, Any, Any]:
    """Split a buffer into its memory, count, displacement and datatype; None what is missing."""
    if not isinstance(spec, list | tuple):
        if not _exports(spec):
            given = "None" if spec is None else f"an object of type {type(spec).__name__}"
            raise TypeError(
                f"{given} was given for a buffer; pass a NumPy array, another object that exports "
                "its memory, or a list of it and of a count, a displacement and a datatype. "
                "Methods with lowercase names take any object"
            )
        return spec, None, None, None
    count: Any = None
    displ: Any = None
    kind: Any = None
    if len(spec) == 2:  # noqa: PLR2004
        source, count = spec
        if isinstance(local(count), Datatype | str):
            count, kind = None, count
        elif isinstance(count, tuple) or (lists and isinstance(count, list)):
            count, displ = count
    elif len(spec) == 3:  # noqa: PLR2004
        source, count, kind = spec
        if isinstance(count, tuple) or (lists and isinstance(count, list)):
            count, displ = count
    elif len(spec) == 4:  # noqa: PLR2004
        source, count, displ, kind = spec
    else:
        raise _wrong_length(spec)
    return source, count, displ, kind


def _wrong_length(spec: Any) -> ValueError:
    return ValueError(
        f"a list of {len(spec)} items was given for a buffer; it has 2 to 4 items: the memory, "
        "then a count, a displacement, a datatype"
    )


def _exports(value: Any) -> bool:
    """Whether an object exports its memory."""
    if isinstance(value, np.ndarray) or isinstance(local(value), _Constant):
        return True
    try:
        memoryview(value)
    except TypeError:
        return hasattr(value, "__dlpack__")
    except (BufferError, ValueError):
        return True
    return True


def _basic(source: Any, kind: Any, *, writes: bool) -> tuple[int, int, Datatype, Any]:
    """Address, number of bytes, datatype of an element, and owner of memory."""
    if is_bottom(source):
        return 0, 0, as_datatype(kind), None
    address, exported, owner = _export(source, writes=writes, typed=kind is not None)
    datatype = _automatic(exported.format) if kind is None else as_datatype(kind)
    return address, exported.nbytes, datatype, owner


def _export(source: Any, *, writes: bool, typed: bool) -> tuple[int, memoryview, Any]:
    """Address of memory, a description of it, and its owner."""
    if local(source) is IN_PLACE:
        return IN_PLACE.address, memoryview(b""), None
    try:
        exported = contiguous_bytes(source)
    except TypeError:
        if not hasattr(source, "__dlpack__"):
            raise TypeError(
                f"{source!r:.60} was given for the memory of a buffer; pass a NumPy array. Methods "
                "with lowercase names take any object"
            ) from None
        source = np.from_dlpack(source)
        exported = contiguous_bytes(source)
    except ValueError as error:
        if not typed:
            raise BufferError(f"{error}; pass a datatype with the buffer") from None
        source = source.view(f"V{source.itemsize}")
        exported = contiguous_bytes(source)
    if writes and exported.readonly:
        raise BufferError(
            "memory that is read-only was given for a buffer that receives; pass one that can be "
            "written"
        )
    return location(source, exported), exported, source


def as_datatype(kind: Any) -> Datatype:
    """Take a datatype, or the name of one in NumPy."""
    kind = local(kind)
    if isinstance(kind, Datatype):
        return kind
    try:
        return by_code[kind]
    except (KeyError, TypeError):
        raise KeyError(f"{kind!r} has no MPI datatype; pass a datatype with the buffer") from None


def _automatic(code: str) -> Datatype:
    """Datatype of the elements of exported memory."""
    if code[0] == FOREIGN_ORDER:
        raise BufferError(
            f"elements of format {code!r} were given; their byte order is not that of this "
            "machine: convert them first"
        )
    return as_datatype(code[1:] if code[0] in "@<>" else code)


# ---- counts and displacements, given or computed from the length of the memory ----


def _offset_of(displ: int, nbytes: int, datatype: Datatype) -> int:
    """Bytes before a displacement, which lies within the memory."""
    if displ < 0:
        raise ValueError(f"the displacement {displ} was given; it is 0 or more")
    if displ == 0:
        return 0
    extent = _positive_extent(datatype)
    if displ * extent > nbytes:
        raise ValueError(
            f"the displacement {displ} was given; the memory has {nbytes // extent} elements of "
            "the datatype"
        )
    return displ * extent


def _positive_extent(datatype: Datatype) -> int:
    """Extent by which displacements and counts are computed."""
    if not datatype:
        raise ValueError(
            "the null datatype determines no count and no displacement; pass another datatype"
        )
    if datatype.extent <= 0:
        raise ValueError(
            f"a datatype of extent {datatype.extent} determines no count and no displacement; "
            "pass the count, and no displacement"
        )
    return datatype.extent


def _inferred_count(nbytes: int, datatype: Datatype, blocks: int) -> int:
    """Count the elements in each of some blocks of memory."""
    if nbytes <= 0:
        return 0
    extent = _positive_extent(datatype)
    number, rest = divmod(nbytes, extent)
    if rest:
        raise ValueError(
            f"a buffer of {nbytes} bytes has no multiple of the extent of the datatype, {extent} "
            "bytes; pass the count"
        )
    if blocks > 1 and number % blocks:
        raise ValueError(
            f"a buffer of {number} elements does not divide into {blocks} blocks, one for each "
            "rank; pass the count"
        )
    return number // max(blocks, 1)


def _counts_by_rank(counts: Any, size: int, nbytes: int, datatype: Datatype) -> list[int]:
    """Numbers of elements for each rank."""
    if counts is None:
        number = _inferred_count(nbytes, datatype, 1)
        return [number // size + (number % size > i) for i in range(size)]
    if _is_integral(counts):
        return [operator.index(counts)] * size
    return checked_integers(counts, size)


def _is_integral(value: Any) -> bool:
    """Whether a value is one integer, and no array of them."""
    if not hasattr(value, "__index__"):
        return False
    return not hasattr(value, "__len__") or (isinstance(value, np.ndarray) and value.ndim == 0)
