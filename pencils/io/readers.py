"""Read datasets of a file onto pencils: the format of the file, where fields go, their bytes.

1. `format_of` finds the `Format`, whose functions describe the file on rank 0.
2. `read_targets` makes targets of the arguments of `load`; `Target.make` checks that a dataset
   fits, and allocates its field.
3. `pencils.io.reading` reads the points of this rank.

`Format` is the place for other file formats: `load`, `open` and `verify` read files by its
functions only. Today `pencils.io.hdf5` is the one module that has them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from pencils.array.allocation import Array, HaloLike, Widths, as_halo
from pencils.array.pencil_array import PencilArray
from pencils.distribute.partition import ArrayLike
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError
from pencils.io.file_access import on_root, open_regular
from pencils.io.file_info import Access, DatasetInfo, FileInfo, encode
from pencils.io.options import read_name
from pencils.io.slabs import boundary_widths
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

_Grid = tuple[tuple[int, ...], tuple[bool, ...]]  # shape and periodicity

_NUMBERS = "biufc"  # `kind` of dtypes that can be converted into each other


class Format(Protocol):
    """Functions of a module that reads files of one format. No function communicates.

    Paths are real paths. All functions raise CheckpointError if the file is damaged or of another
    format, OSError if the system cannot read it.
    """

    def describe(
        self, path: str, names: list[str] | None, among: list[str] | None, access: Access
    ) -> FileInfo:
        """Describe named datasets; None means all values, and the fields in `among` (None: all)."""

    def describe_fields(self, path: str, access: Access) -> FileInfo:
        """Describe all fields and values that pencils can read."""

    def describe_summed(self, path: str, access: Access) -> FileInfo:
        """Describe all datasets that have a checksum; read no values."""

    def opened(self, path: str) -> AbstractContextManager[Any]:
        """Open a file in a ``with`` block, for `read_box`."""

    def read_box(self, file: Any, name: str, key: tuple[Any, ...], *, summed: bool) -> Array:
        """Read a box of a dataset that has no plain bytes: chunked, compressed, virtual.

        `summed` is whether its checksum will be compared.
        """

    def open_dataset(self, path: str, name: str) -> ArrayLike:
        """Open a dataset, to be read piece by piece."""


def format_of(_path: str) -> Format:
    """Return the module that reads a file."""
    from pencils.io import hdf5  # most ranks never need h5py

    return hdf5


@dataclass(frozen=True, slots=True)
class Target:
    """Where one field goes."""

    pencil: Pencil
    halo: Widths  # of a new field
    like: PencilArray | None = None  # a field whose components, dtype and so on it must have
    filled: bool = False  # whether to fill `like` instead of a new field

    def make(self, dataset: DatasetInfo, dtype: np.dtype[Any] | None, path: str) -> PencilArray:
        """Return the field that a dataset is read into. Local.

        Raises CheckpointError if the dataset does not fit.
        """
        singletons = _match(self.pencil, dataset, path)
        dtype = dataset.dtype if dtype is None else _converted(dataset, dtype, path)
        components = dataset.shape[: len(dataset.shape) - self.pencil.ndim]
        if self.like is not None:
            periodic = dataset.periodic or self.pencil.periodic
            found = components, sorted(singletons), dtype, periodic
            _compare(self.like, found, dataset, path)
            if self.filled:
                return self.like
        widths = enumerate(self.halo)
        halo = tuple((0, 0) if dim in singletons else width for dim, width in widths)
        return PencilArray.allocated(
            self.pencil, dtype, components, singletons, halo, zero=any(map(any, halo))
        )

    def canonical_form(self) -> object:
        """Return what must be the same on all ranks: of `like` shape and dtype, not data."""
        return repr(self)

    def __repr__(self) -> str:
        text = f"{self.pencil!r} halo={self.halo}"
        if self.like is None:
            return text
        kind = f"{self.like.dtype}{self.like.shape} {sorted(self.like.singletons)}"
        return f"{text} like {kind} {boundary_widths(self.like)} into={self.filled}"


class Targets(NamedTuple):
    """Targets by name, sorted, and one for all other fields, or None."""

    named: Mapping[str, Target]
    default: Target | None

    @property
    def names(self) -> list[str] | None:
        """Fields that have a target; None if all have."""
        return None if self.default else list(self.named)

    @property
    def filled(self) -> bool:
        """Whether fields of the user are filled in place."""
        return any(target.filled for target in self.named.values())

    def find(self, name: str) -> Target:
        """Return the target of a field; raise ArgumentError if it has none."""
        target = self.named.get(name, self.default)
        if target is None:
            raise ArgumentError(
                f"there is no place for {name!r}: it is neither in template nor in into; add it"
            )
        return target


def read_targets(
    template: object, into: object, names: list[str] | None, halo: HaloLike | None, size: int
) -> Targets:
    """Make targets of arguments of `load`, on `size` processes; raise an error for wrong ones."""
    named = _read_template(template, halo, given=into is not None)
    for name, u in _read_into(into, names).items():
        named[name] = Target(u.pencil, u.halo, u, filled=True)
    default = None
    pencils = [target.pencil for target in named.values()]
    if isinstance(template, Pencil):
        default = Target(template, as_halo(0 if halo is None else halo, template.ndim))
        pencils.append(template)
    for pencil in pencils:
        if pencil.size != size or not pencil.same_ranks(pencils[0]):
            raise PencilMismatchError(
                f"template and into are on different processes:\n{pencil!r}\n{pencils[0]!r}\n"
                "load them in calls of their own"
            )
    return Targets(dict(sorted(named.items())), default)


def default_targets(file: FileInfo, halo: HaloLike | None, comm: MPI.Intracomm | None) -> Targets:
    """Make targets for all fields of a file: pencils of the stored shapes. *Collective*."""
    grids = {one.name: (one.points[one.components or 0 :], one.periodic) for one in file.datasets}
    whole = {grids[one.name] for one in file.datasets if not any(one.singletons)}
    pencils: dict[object, Pencil] = {}
    named = {}
    for one in file.datasets:
        shape, periodic = grids[one.name]
        if any(one.singletons):
            fits = {grid for grid in whole if _is_on(grid, grids[one.name], one.singletons)}
            shape = fits.pop()[0] if len(fits) == 1 else shape
        if (shape, periodic) not in pencils:
            pencils[shape, periodic] = Pencil(shape, comm, periodic=periodic or False)
        pencil = pencils[shape, periodic]
        widths = as_halo(one.boundary or 0 if halo is None else halo, pencil.ndim)
        named[one.name] = Target(pencil, widths)
    return Targets(named, None)


def _read_template(template: object, halo: HaloLike | None, *, given: bool) -> dict[str, Target]:
    if isinstance(template, Pencil) or (template is None and given):
        return {}
    if not isinstance(template, Mapping):
        raise TypeError(
            "template must be a Pencil, or a mapping like {'u': u} of fields like those to load, "
            f"not {type(template).__name__}"
        )
    targets = {}
    for name, thing in template.items():
        read_name(name)
        if isinstance(thing, Pencil):
            targets[name] = Target(thing, as_halo(0 if halo is None else halo, thing.ndim))
        elif isinstance(thing, PencilArray):
            widths = thing.halo if halo is None else as_halo(halo, thing.pencil.ndim)
            targets[name] = Target(thing.pencil, widths, thing)
        else:
            encode(thing)  # raises TypeError unless it is a value, which needs no target
    return targets


def _is_on(grid: _Grid, own: _Grid, singletons: Sequence[bool]) -> bool:
    """Whether a grid has all dimensions of a field that are not singletons."""
    (shape, periodic), (points, own_periodic) = grid, own
    same = [n == m or one for n, m, one in zip(shape, points, singletons, strict=False)]
    return len(shape) == len(points) and periodic == own_periodic and all(same)


def _read_into(into: object, names: list[str] | None) -> dict[str, PencilArray]:
    if into is None:
        return {}
    if isinstance(into, PencilArray):
        if names is None or len(names) != 1:
            raise ArgumentError("to load into one field, name it: load(path, names='u', into=u)")
        into = {names[0]: into}
    fields = into.values() if isinstance(into, Mapping) else [into]
    if not isinstance(into, Mapping) or not all(isinstance(u, PencilArray) for u in fields):
        raise TypeError(
            f"into must be a PencilArray or a mapping like {{'u': u}}, not {into!r:.80}"
        )
    for name, u in into.items():
        read_name(name)
        if not u.local.flags.writeable:
            raise ArgumentError(f"into[{name!r}] is read-only, like the data it views; pass a copy")
    return dict(into)


def _match(pencil: Pencil, dataset: DatasetInfo, path: str) -> frozenset[int]:
    """Return the singleton dimensions of a dataset; raise CheckpointError if it does not fit."""
    points = dataset.points
    lead = len(points) - pencil.ndim
    if lead < 0 or lead != (dataset.components if dataset.components is not None else lead):
        axes = len(points) - (dataset.components or 0)
        how = f"load it onto one with {axes} dimensions"
        if not axes:  # numbers, perhaps one at each time
            reader = f"pencils.open(path)[{dataset.name!r}].read(pencil)"
            how = f"{reader} takes one of shape {points}" if points else "read it by h5py"
        raise CheckpointError(
            f"{dataset.name!r} in {path} has shape {points}, {axes} dimensions without "
            f"components; the pencil has {pencil.ndim}: {how}"
        )
    flags = dataset.singletons or (False,) * pencil.ndim
    singletons = set()
    for dim, (extent, wanted) in enumerate(zip(points[lead:], pencil.shape, strict=True)):
        if extent == 1 and (wanted != 1 or flags[dim]):
            singletons.add(dim)
        elif extent != wanted:
            raise CheckpointError(
                f"{dataset.name!r} in {path} has shape {points}; on a pencil of shape "
                f"{pencil.shape} dimension {dim} must have extent {wanted}, or 1 for a singleton"
            )
    return frozenset(singletons)


def _converted(dataset: DatasetInfo, dtype: np.dtype[Any], path: str) -> np.dtype[Any]:
    numbers = dataset.dtype.kind in _NUMBERS and dtype.kind in _NUMBERS
    if dataset.dtype != dtype and not (numbers and np.can_cast(dataset.dtype, dtype, "same_kind")):
        raise CheckpointError(
            f"{dataset.name!r} in {path} has dtype {dataset.dtype}, which {dtype} cannot hold; "
            "leave out dtype, or pass a wider one"
        )
    return dtype


def _compare(u: PencilArray, found: tuple[object, ...], dataset: DatasetInfo, path: str) -> None:
    """Raise CheckpointError if what was found of a dataset differs from a field."""
    names = "components", "singleton dimensions", "dtype", "periodic dimensions"
    wanted = u.components, sorted(u.singletons), u.dtype, u.pencil.periodic
    for name, have, want in zip(names, found, wanted, strict=True):
        if have != want:
            hint = f"; dtype={str(want)!r} would convert it" if name == "dtype" else ""
            msg = f"{dataset.name!r} in {path} has {name} {have}, the field to be like has {want}"
            raise CheckpointError(msg + hint)


def open_on_root(
    path: str, name: str
) -> tuple[ArrayLike | None, tuple[int, ...], np.dtype[np.generic]]:
    """Open an array on rank 0, for `partition`; return it, its shape and dtype. *Collective*.

    The file is an .npy file, or an HDF5 file with one dataset or the dataset `name`. The array is
    None on other ranks. CheckpointError or OSError are raised on every rank.
    """
    comm = Pencil(1).comm
    opened: list[ArrayLike] = []

    def work() -> tuple[tuple[int, ...], np.dtype[np.generic]]:
        data: Any = _open_npy(path) if path.endswith(".npy") else None
        opened.append(format_of(path).open_dataset(path, name) if data is None else data)
        return opened[0].shape, opened[0].dtype

    shape, dtype = on_root(comm, "open_on_root", work)
    return (opened[0] if opened else None), shape, dtype


def _open_npy(path: str) -> ArrayLike:
    os.close(open_regular(path))
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        raise CheckpointError(f"cannot read {path}: {error}") from None
