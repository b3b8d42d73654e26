"""What a file holds: descriptions that rank 0 sends to all ranks, and values besides the fields.

Independent of the file format. Values are numbers, text, small arrays and random generators. All
ranks have the same ones, so the file has each once: as an array, with a word that names its type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, Widths, as_dtype, is_masked_array
from pencils.array.pencil_array import PencilArray
from pencils.errors import CheckpointError

# Attributes whose names begin with this belong to pencils, not to the user.
RESERVED = "pencils_"
# Attributes by which HDF5 and netCDF attach coordinates to datasets.
OF_SCALES = frozenset({"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid"})
# The group that shows fields and coordinates to VTK: see `pencils.io.vtkhdf`.
VIEW = "VTKHDF"
# How deep groups may be nested in a file; names of fields have at most as many parts.
MOST_GROUPS = 100
# The dataset of times in a series, and the dimension along which everything grows.
TIME = "time"
# How attributes of files with coordinates are meant.
CONVENTIONS = "CF-1.11"
# Marks a file whose user has named the same ones, so that they are attributes of the user.
GIVEN_CONVENTIONS = RESERVED + "given_conventions"
# Format of files; increased when older versions cannot read it.
FORMAT = 1
# `Stored.kind` of coordinates, which `save` adds by itself.
COORDINATE = "coordinate"
# What to do about a damaged file.
GO_BACK = "go back to an older checkpoint, or read the rest with load(..., verify=False)"
_ARRAY = "numpy"
_PLAIN = {kind.__name__: kind for kind in (bool, int, float, complex)}
_NUMBERS = bool | int | float | complex | np.number | np.bool_
_GENERATOR = "Generator"
_BITS = "BitGenerator"
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """One dataset of a file, as rank 0 describes it to all ranks."""

    name: str  # path in the file, like "u" or "fluid/u"
    shape: tuple[int, ...]  # global, components first
    dtype: np.dtype[Any]  # byte order included
    # Where the elements start in the file, in C order; None if they are no plain bytes there:
    # chunked, compressed, virtual.
    offset: int | None = None
    components: int | None = None  # number of component axes; None if unknown
    singletons: tuple[bool, ...] = ()  # by dimension; empty if unknown, like the next
    periodic: tuple[bool, ...] = ()
    boundary: Widths = ()  # numbers of boundary points by dimension; empty for none
    kind: str = ""  # empty for a field; else the kind of a value, as of `Stored`
    checksum: int | None = None  # of the elements; None if unknown
    chunks: tuple[int, ...] = ()  # extents of a chunk, or a shard of Zarr; empty without chunks
    inner: tuple[int, ...] = ()  # extents of a chunk inside of a shard
    tolerance: float | None = None  # bound on the error, of a new file; None without one

    @classmethod
    def of(cls, name: str, u: PencilArray, boundary: Widths = ()) -> DatasetInfo:
        """Describe a field to store."""
        return cls(
            name,
            u.shape,
            u.dtype,
            components=len(u.components),
            singletons=tuple(dim in u.singletons for dim in range(u.pencil.ndim)),
            periodic=u.pencil.periodic,
            boundary=boundary if any(map(any, boundary)) else (),
        )

    @classmethod
    def stored(
        cls, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], attrs: Mapping[str, Any]
    ) -> DatasetInfo:
        """Describe a dataset by its attributes, as `attrs` and others have made them."""
        components, total = (attrs.get(RESERVED + key) for key in ("components", "checksum"))
        widths = map(int, attrs.get(RESERVED + "boundary", ()))
        return cls(
            name,
            shape,
            dtype,
            components=None if components is None else int(components),
            singletons=tuple(map(bool, attrs.get(RESERVED + "singleton", ()))),
            periodic=tuple(map(bool, attrs.get(RESERVED + "periodic", ()))),
            boundary=tuple(zip(widths, widths, strict=True)),
            kind=attrs.get(RESERVED + "value", "" if shape else _ARRAY),
            checksum=None if total is None else int(total),
        )

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the dataset of a field."""
        found: dict[str, Any] = {"components": self.components}
        found["singleton"] = np.array(self.singletons, np.int8)
        found["periodic"] = np.array(self.periodic, np.int8)
        if self.boundary:  # netCDF has no attributes of 2-D
            found["boundary"] = np.ravel(self.boundary)
        if self.tolerance is not None:  # the error is not known yet
            found |= {"tolerance": np.float64(self.tolerance), "largest_error": np.float64(0)}
        return {RESERVED + name: value for name, value in found.items()}

    @property
    def points(self) -> tuple[int, ...]:
        """Shape without boundary points."""
        lead = len(self.shape) - len(self.boundary)
        inner = zip(self.shape[lead:], self.boundary, strict=True)
        return self.shape[:lead] + tuple(n - lo - hi for n, (lo, hi) in inner)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return prod(self.shape) * self.dtype.itemsize


class Stored(NamedTuple):
    """A value as it is stored in a file."""

    kind: str  # type of the value: "int", "str", "numpy", "Generator", and so on
    data: Array  # its elements; text is one element, in UTF-8

    def __repr__(self) -> str:
        """Text that is the same for equal values only, for ranks to compare."""
        if self.data.size == 1 and self.kind not in (_GENERATOR, _BITS):
            text = f"{self.kind} {self.data.item()!r:.80} of {self.data.dtype}"
        else:
            text = f"{self.kind} of {self.data.dtype} {self.data.shape}"
        return f"{text} [{blake2b(self.data.tobytes(), digest_size=6).hexdigest()}]"


class Access(NamedTuple):
    """What the user allows when a file is read: the arguments of `load` of the same names."""

    verify: bool = True
    edited: bool = False
    external: bool = False


class Identity(NamedTuple):
    """Numbers that differ between files, and before and after a change; valid on one rank."""

    device: int
    inode: int
    modified: int
    size: int

    @classmethod
    def of(cls, path: str) -> Identity:
        """Identify the file that has a name now; zeros if there is none."""
        try:
            found = Path(path).stat()
        except OSError:  # opening it raises a better error
            return cls(0, 0, 0, 0)
        return cls(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)

    def check_unchanged(self, path: str) -> None:
        """Raise CheckpointError if another file has the name, or this one was written to."""
        if Identity.of(path) != self:
            raise _replaced(path)

    def check_in_place(self, path: str) -> None:
        """Raise CheckpointError if another file has the name; this one may have changed."""
        now = Identity.of(path)
        if (now.device, now.inode) != (self.device, self.inode):
            raise _replaced(path)


class FileInfo(NamedTuple):
    """Contents of a file: descriptions of its datasets, its values and attributes."""

    path: str
    identity: Identity  # before anything was read, on rank 0
    datasets: list[DatasetInfo]  # the fields; for `verify`, all datasets that have a checksum
    values: dict[str, Stored]
    attrs: dict[str, Any]  # of the user
    step: int | None
    time: float | None
    is_covered: bool = True  # for `verify`: whether checksums, or the list of contents, cover data


def check_head(path: str, attrs: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a newer pencils has written a file, or its writer has not ended."""
    if (newest := attrs.get(RESERVED + "format", FORMAT)) > FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {newest}, written by pencils "
            f"{attrs.get(RESERVED + 'version')}; this version reads up to format {FORMAT}. "
            "Install a newer pencils"
        )
    if not attrs.get(RESERVED + "complete", 1):
        raise CheckpointError(
            f"{path} is being written, or its writer died; load a file that save() has finished"
        )


def damaged(path: str, names: Iterable[str]) -> CheckpointError:
    """Make the error for datasets whose checksum does not match."""
    msg = (
        f"{path} is damaged: the checksum of {', '.join(map(repr, names))} does not match; "
        f"{GO_BACK}"
    )
    return CheckpointError(msg)


def _replaced(path: str) -> CheckpointError:
    return CheckpointError(f"{path} was replaced or changed while it was in use; read it again")


def encode(value: object) -> Stored:
    """Make an array of a value; raise TypeError if it cannot be stored."""
    if isinstance(value, np.random.Generator):
        return Stored(_GENERATOR, _describe(value.bit_generator))
    if isinstance(value, np.random.BitGenerator):
        return Stored(_BITS, _describe(value))
    if isinstance(value, str):
        if "\0" in value:
            raise TypeError(f"{value!r:.80} holds a NUL character, which cannot be stored in text")
        try:
            return Stored("str", np.asarray(value.encode() or b"\0"))
        except UnicodeEncodeError as error:
            raise TypeError(f"{value!r:.80} cannot be stored as UTF-8: {error}") from None
    if is_masked_array(value):
        raise TypeError(
            "the mask of an array cannot be stored; store its data and its mask as two arrays"
        )
    if isinstance(value, np.ndarray | np.generic):
        as_dtype(value.dtype)
        return Stored(_ARRAY, np.asarray(value))
    kind = type(value).__name__
    if _PLAIN.get(kind) is type(value):
        data = np.asarray(value)
        if data.dtype.hasobject:
            raise TypeError(f"the integer {value} has more than 64 bits; store it as text")
        return Stored(kind, data)
    raise TypeError(
        f"{kind} cannot be stored; a checkpoint takes PencilArrays, numbers, strings, NumPy arrays "
        "and NumPy's random generators"
    )


def _describe(bits: np.random.BitGenerator) -> Array:
    name = type(bits).__name__
    if name not in _BIT_GENERATORS or type(bits) is not getattr(np.random, name):
        raise TypeError(
            f"random numbers of {type(bits)} cannot be stored; use one of {_BIT_GENERATORS}"
        )
    sequence = bits.seed_seq  # from which generators are spawned
    seed = sequence.state if isinstance(sequence, np.random.SeedSequence) else None
    text = json.dumps({"state": bits.state, "seed": seed}, default=lambda data: data.tolist())
    return np.asarray(text.encode())


def decode(stored: Stored) -> Any:
    """Make a value of its stored form; an array if this version does not have its type."""
    kind, data = stored
    if kind in _PLAIN:
        return _PLAIN[kind](data.item())
    if kind == "str":
        return data.item().decode()
    if kind not in (_GENERATOR, _BITS):
        return data if data.ndim else data[()]
    found = json.loads(data.item())
    name = found["state"]["bit_generator"]
    if name not in _BIT_GENERATORS:
        raise ValueError(f"there is no bit generator {name!r} in NumPy")
    seed = found["seed"] and np.random.SeedSequence(**found["seed"])
    bits: np.random.BitGenerator = getattr(np.random, name)(seed)
    bits.state = found["state"]
    return np.random.Generator(bits) if kind == _GENERATOR else bits


def is_kept(dtype: np.dtype[Any]) -> bool:
    """Whether elements are numbers that h5py returns as it gets them, on every machine."""
    return dtype.kind in "biufc" and dtype.char not in "gG"


def encode_attribute(value: object) -> tuple[str, tuple[int, ...], str] | None:
    """Return type, shape and contents as text; None if h5py may return another attribute."""
    if isinstance(value, str):
        return "", (), value
    if isinstance(value, list | tuple) and not all(isinstance(one, _NUMBERS) for one in value):
        return None
    if not isinstance(value, _NUMBERS | np.ndarray | list | tuple):
        return None
    data = np.asarray(value)
    if not is_kept(data.dtype) or not data.size:
        return None
    return data.dtype.str, data.shape, data.tobytes().hex()


def decode_attribute(kind: str, shape: Sequence[int], contents: str) -> Any:
    """Make an attribute of what `encode_attribute` has returned."""
    if not kind:
        return contents
    data = np.frombuffer(bytearray.fromhex(contents), kind).reshape(shape)
    return data if shape else data[()]
