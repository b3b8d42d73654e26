"""The class of datatypes, with the interface of ``mpi4py.MPI.Datatype``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np

from simmpi.constants import ORDER_C, ORDER_FORTRAN
from simmpi.exceptions import ERR_ARG, ERR_TYPE, MPIError
from simmpi.process import PerProcess
from simmpi.types import typemaps
from simmpi.types.kinds import (
    Kind,
    checked_count,
    checked_counts,
    checked_end,
    checked_integers,
)
from simmpi.types.memory import buffer
from simmpi.types.typemaps import Ints, Signature, Typemap

COMBINERS: Final = [
    "NAMED",
    "DUP",
    "CONTIGUOUS",
    "VECTOR",
    "HVECTOR",
    "INDEXED",
    "HINDEXED",
    "INDEXED_BLOCK",
    "HINDEXED_BLOCK",
    "STRUCT",
    "SUBARRAY",
    "DARRAY",
    "RESIZED",
    "VALUE_INDEX",
    "F90_INTEGER",
    "F90_REAL",
    "F90_COMPLEX",
]

# Datatypes that this rank created and has not freed: the number of each, and how it was created.
live: PerProcess[dict[int, str]] = PerProcess(dict)

# Predefined datatypes by their name in mpi4py, and by their code in NumPy.
by_name: dict[str, Datatype] = {}
by_code: dict[str, Datatype] = {}


class Datatype:
    """A handle of a datatype.

    Parameters
    ----------
    datatype
        Another handle of the same datatype; without it the handle is null.
    """

    __slots__ = ("_kind",)

    def __init__(self, datatype: Datatype | None = None) -> None:
        self._kind: Kind | None = None if datatype is None else datatype._kind

    @classmethod
    def of(cls, kind: Kind) -> Self:
        """Make a handle."""
        new = cls()
        new._kind = kind
        return new

    @classmethod
    def _derived(cls, typemap: Typemap, combiner: str, **arguments: Any) -> Self:
        kind = Kind(typemap, combiner, **arguments)
        live()[kind.number] = combiner.lower()
        return cls.of(kind)

    def __repr__(self) -> str:
        if self._kind is None:
            return "MPI.DATATYPE_NULL"
        return f"<MPI.Datatype {self.name or self._kind.combiner.lower()}>"

    def __reduce__(self) -> Any:
        if self._kind is None or self._kind.is_predefined:
            return named, (self._kind.constant if self._kind else "DATATYPE_NULL",)
        return create, self.decode()

    @property
    def handle(self) -> int:
        """Number of the datatype; 0 if it is null."""
        return 0 if self._kind is None else self._kind.number

    def free(self) -> None:
        """Free the datatype, unless it is null or predefined."""
        if self._kind is not None and not self._kind.is_predefined:
            self.Free()

    # Size and bounds

    @property
    def kind(self) -> Kind:
        """What the handles of the datatype share; null handles have nothing."""
        if self._kind is None:
            raise MPIError(ERR_TYPE, "the null datatype was given; pass another one")
        return self._kind

    @property
    def typemap(self) -> Typemap:
        """Where the bytes of an element are."""
        return self.kind.typemap

    @property
    def is_committed(self) -> bool:
        """Whether the datatype can be used for communication."""
        return self.kind.is_committed

    @property
    def runs(self) -> tuple[Ints, Ints]:
        """Offsets and lengths of runs of bytes in the order of the typemap."""
        return self.typemap.runs

    @property
    def signature(self) -> Signature:
        """Codes of the basic types in order, equal ones in sequence counted."""
        return self.typemap.signature

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Datatype):
            return NotImplemented
        return self._kind is other._kind

    def __hash__(self) -> int:
        return hash(self._kind)

    def __bool__(self) -> bool:
        return self._kind is not None

    def Get_size(self) -> int:
        """Bytes of data in an element."""
        return self.typemap.size

    def Get_extent(self) -> tuple[int, int]:
        """Lower bound and extent."""
        return self.typemap.lb, self.typemap.extent

    def Get_true_extent(self) -> tuple[int, int]:
        """Lower bound and extent of the bytes of data."""
        low, high = self.typemap.bounds
        return low, high - low

    @property
    def size(self) -> int:
        """Bytes of data in an element."""
        return self.typemap.size

    @property
    def extent(self) -> int:
        """Distance between elements that follow each other."""
        return self.typemap.extent

    @property
    def lb(self) -> int:
        """Lower bound."""
        return self.typemap.lb

    @property
    def ub(self) -> int:
        """Upper bound."""
        return self.typemap.ub

    @property
    def true_extent(self) -> int:
        """Extent of the bytes of data."""
        return self.Get_true_extent()[1]

    @property
    def true_lb(self) -> int:
        """Offset of the lowest byte of data."""
        return self.typemap.bounds[0]

    @property
    def true_ub(self) -> int:
        """Offset after the highest byte of data."""
        return self.typemap.bounds[1]

    # Constructors

    def Dup(self) -> Self:
        """Duplicate the datatype; the copy is committed if this one is."""
        new = self._derived(self.typemap, "DUP", datatype=self.kind)
        new.kind.is_committed = self.is_committed
        return new

    Create_dup = Dup

    def Create_contiguous(self, count: int) -> Self:
        """Elements that follow each other."""
        number, kind = checked_count(count), self.typemap
        typemap = kind.repeated(number, kind.extent)
        return self._derived(typemap, "CONTIGUOUS", datatype=self.kind, count=number)

    def Create_vector(self, count: int, blocklength: int, stride: int) -> Self:
        """Blocks at equal distances, counted in extents."""
        return self._vector("VECTOR", count, blocklength, stride)

    def Create_hvector(self, count: int, blocklength: int, stride: int) -> Self:
        """Blocks at equal distances, counted in bytes."""
        return self._vector("HVECTOR", count, blocklength, stride)

    def Create_indexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Self:
        """Blocks at displacements counted in extents."""
        return self._indexed("INDEXED", displacements, blocklengths=checked_counts(blocklengths))

    def Create_hindexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Self:
        """Blocks at displacements counted in bytes."""
        return self._indexed("HINDEXED", displacements, blocklengths=checked_counts(blocklengths))

    def Create_indexed_block(self, blocklength: int, displacements: Sequence[int]) -> Self:
        """Blocks of one length at displacements counted in extents."""
        length = checked_count(blocklength)
        return self._indexed("INDEXED_BLOCK", displacements, blocklength=length)

    def Create_hindexed_block(self, blocklength: int, displacements: Sequence[int]) -> Self:
        """Blocks of one length at displacements counted in bytes."""
        length = checked_count(blocklength)
        return self._indexed("HINDEXED_BLOCK", displacements, blocklength=length)

    def _unit(self, combiner: str) -> int:
        """Bytes in which a constructor counts distances."""
        return 1 if combiner.startswith("H") else self.extent

    def _vector(self, combiner: str, count: int, blocklength: int, stride: int) -> Self:
        step = operator.index(stride) * self._unit(combiner)
        number, length, one = checked_count(count), checked_count(blocklength), self.typemap
        typemap = typemaps.EMPTY
        if length:
            typemap = one.repeated(length, one.extent).repeated(number, step)
        arguments = {"count": count, "blocklength": blocklength, "stride": stride}
        return self._derived(typemap, combiner, datatype=self.kind, **arguments)

    def _indexed(self, combiner: str, displacements: Sequence[int], **lengths: Any) -> Self:
        """Make blocks at displacements; `lengths` are those of all, or the one that they have."""
        counts = lengths.get("blocklengths")
        displs = checked_integers(displacements, None if counts is None else len(counts))
        if counts is None:
            counts = [lengths["blocklength"]] * len(displs)
        starts = [displ * self._unit(combiner) for displ in displs]
        typemap = typemaps.indexed(self.typemap, counts, starts)
        arguments = {**lengths, "displacements": displs}
        return self._derived(typemap, combiner, datatype=self.kind, **arguments)

    @classmethod
    def Create_struct(
        cls,
        blocklengths: Sequence[int],
        displacements: Sequence[int],
        datatypes: Sequence[Datatype],
    ) -> Self:
        """Blocks of different types at displacements counted in bytes."""
        counts, displs = (
            checked_counts(blocklengths),
            checked_integers(displacements, len(blocklengths)),
        )
        if len(datatypes) != len(counts):
            raise ValueError(
                f"{len(datatypes)} datatypes were given for {len(counts)} blocks; pass as many"
            )
        types = [_datatype(kind) for kind in datatypes]
        if types and all(kind == types[0] for kind in types):  # the extent is not rounded up
            typemap = typemaps.indexed(types[0].typemap, counts, displs)
        else:
            typemap = typemaps.struct(counts, displs, [kind.typemap for kind in types])
        arguments = {
            "blocklengths": counts,
            "displacements": displs,
            "datatypes": [kind.kind for kind in types],
        }
        return cls._derived(typemap, "STRUCT", **arguments)

    def Create_subarray(
        self,
        sizes: Sequence[int],
        subsizes: Sequence[int],
        starts: Sequence[int],
        order: int = ORDER_C,
    ) -> Self:
        """Elements of a box in an array."""
        shape = checked_counts(sizes)
        box, first = checked_integers(subsizes, len(shape)), checked_integers(starts, len(shape))
        if order not in {ORDER_C, ORDER_FORTRAN}:
            raise MPIError(ERR_ARG, f"order {order} was given; pass ORDER_C or ORDER_FORTRAN")
        for n, length, start in zip(shape, box, first, strict=True):
            if length < 0 or not 0 <= start <= start + length <= n:
                raise MPIError(
                    ERR_ARG,
                    f"{length} elements from {start} on were given along an axis of {n}; the "
                    "box has to lie within the array",
                )
        typemap = typemaps.subarray(self.typemap, shape, box, first, c_order=order == ORDER_C)
        arguments = {"sizes": shape, "subsizes": box, "starts": first, "order": order}
        return self._derived(typemap, "SUBARRAY", datatype=self.kind, **arguments)

    def Create_resized(self, lb: int, extent: int) -> Self:
        """Describe the same data with another lower bound and extent."""
        typemap = self.typemap.resized(operator.index(lb), operator.index(extent))
        return self._derived(typemap, "RESIZED", datatype=self.kind, lb=lb, extent=extent)

    Resized = Create_resized

    def Commit(self) -> Self:
        """Allow the datatype for communication."""
        self.kind.is_committed = True
        return self

    def Free(self) -> None:
        """Free the datatype; the handle is null afterwards."""
        if self.kind.is_predefined:
            raise MPIError(ERR_TYPE, f"{self.name} is predefined; free only created datatypes")
        live().pop(self.kind.number, None)
        self._kind = None

    # Description

    def Get_name(self) -> str:
        """Name of the datatype."""
        return "MPI_DATATYPE_NULL" if self._kind is None else self._kind.name

    def Set_name(self, name: str) -> None:
        """Name the datatype."""
        self.kind.name = name

    name = property(Get_name, Set_name)

    @property
    def is_predefined(self) -> bool:
        """Whether the datatype is null or predefined."""
        return self._kind is None or self._kind.is_predefined

    @property
    def is_named(self) -> bool:
        """Whether the datatype is predefined."""
        return self.kind.is_predefined

    @property
    def combiner(self) -> int:
        """Number of the constructor."""
        return COMBINERS.index(self.kind.combiner) + 1

    def decode(self) -> tuple[Datatype, str, dict[str, Any]]:
        """Datatype from which this one was created, name of the constructor, its arguments."""
        kind = self.kind
        if kind.is_predefined:
            return self, "NAMED", {}
        arguments = dict(kind.arguments)
        base = Datatype()
        if "datatype" in arguments:
            base = Datatype.of(arguments.pop("datatype"))
        if "datatypes" in arguments:
            arguments["datatypes"] = [Datatype.of(part) for part in arguments["datatypes"]]
        return base, kind.combiner, arguments

    @property
    def typechar(self) -> str:
        """Code of NumPy of one character; V if there is none."""
        return "" if self._kind is None else self._kind.original().char or "V"

    @property
    def typestr(self) -> str:
        """Code of NumPy with the size; V and the extent if there is none."""
        if self._kind is None:
            return ""
        char = self._kind.original().char
        if not char:
            return f"V{max(self.extent, 0)}"
        return {"c": "S1", "U": "U1"}.get(char) or np.dtype(char).str[1:]

    def tocode(self) -> str:
        """Code of NumPy."""
        code = "" if self._kind is None else self._kind.original().code
        if not code:
            raise ValueError(f"{self!r} was given; only basic datatypes have a code of NumPy")
        return code

    @classmethod
    def fromcode(cls, code: str) -> Datatype:
        """Predefined datatype of a code of NumPy."""
        if code not in by_code:
            raise ValueError(f"the code {code!r} was given; no MPI datatype has it")
        return by_code[code]

    # Packing

    def Pack(self, inbuf: Any, outbuf: Any, position: int, comm: Any = None) -> int:
        """Copy the elements in a buffer into packed bytes; return the position after them."""
        del comm
        source, target = buffer.frombuffer(inbuf, readonly=True), buffer.frombuffer(outbuf)
        typemap = self._many(source.nbytes)
        end = checked_end(position, typemap.size, target.nbytes)
        typemap.copy(source.address, np.asarray(target)[position:end], unpack=False)
        return end

    def Unpack(self, inbuf: Any, position: int, outbuf: Any, comm: Any = None) -> int:
        """Copy packed bytes into the elements in a buffer; return the position after them."""
        del comm
        source, target = buffer.frombuffer(inbuf, readonly=True), buffer.frombuffer(outbuf)
        typemap = self._many(target.nbytes)
        end = checked_end(position, typemap.size, source.nbytes)
        typemap.copy(target.address, np.asarray(source)[position:end], unpack=True)
        return end

    def Pack_size(self, count: int, comm: Any = None) -> int:
        """Bytes that some elements need when they are packed."""
        del comm
        return checked_count(count) * self.size

    def _many(self, nbytes: int) -> Typemap:
        """Typemap of as many elements as a buffer has space for."""
        return self.typemap.repeated(nbytes // self.extent, self.extent)


def named(name: str) -> Datatype:
    """Predefined datatype of a name; pickled datatypes call it."""
    return by_name[name]


def create(base: Datatype, combiner: str, arguments: dict[str, Any]) -> Datatype:
    """Create a datatype from what `Datatype.decode` returns; pickled datatypes call it."""
    maker = getattr(base, f"Create_{combiner.lower()}")
    return _datatype(maker(**arguments)).Commit()


def _datatype(given: Any) -> Datatype:
    if not isinstance(given, Datatype):
        raise TypeError(f"{given!r} was given; an MPI datatype is needed")
    return given
