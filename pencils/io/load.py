"""Read fields from a file that rank 0 describes; compare data with their checksums."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import HaloLike, as_dtype
from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.comm.topology import as_comm, topology_of
from pencils.distribute.partition import ArrayLike
from pencils.errors import ArgumentError, CheckpointError
from pencils.io.commit import check_seen, describe_seen, seen_alike
from pencils.io.describe import describer_of, reader_of
from pencils.io.direct import checksum, checksum_box
from pencils.io.file_access import on_root, open_regular
from pencils.io.file_info import Access, DatasetInfo, FileInfo
from pencils.io.formats import is_url
from pencils.io.options import as_names, as_path
from pencils.io.reading import as_targets, compare, default_targets, read_contents, sum_together
from pencils.io.slabs import chunk_box, count_chunks, enlarge
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI
    from pencils.comm.topology import Topology

# Bytes that a rank reads at once in `verify`.
_PIECE_BYTES = 2**24


@dataclass(frozen=True, eq=False, repr=False)
class Checkpoint(Mapping[str, Any]):
    """Fields and values of a file by name, its step, time and attributes.

    Parameters
    ----------
    path : str
        The file that was read.
    contents : mapping of str to object
        Fields, and values, which are the same on all ranks.
    attrs : dict of str to object
        Attributes of the file: scalars, strings and small arrays, the same on every rank.
    step : int, optional
        Number of the time step; None if the file has none.
    time : float, optional
        Time of the run; None if the file has none.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.ones(pencils.Pencil((4, 6)))
    >>> Checkpoint("run.h5", {"u": u, "dt": 0.1}, {"flow": "box"}, step=3)
    <Checkpoint of 1 field from run.h5, step 3
      u: (4, 6) float64
      dt: 0.1
      attrs: flow='box'>
    """

    path: str
    contents: Mapping[str, Any]
    attrs: dict[str, Any]
    step: int | None = field(default=None, kw_only=True)
    time: float | None = field(default=None, kw_only=True)

    def __getitem__(self, name: str) -> Any:
        if name not in self.contents:
            raise KeyError(
                f"{name!r} was not loaded; there is {', '.join(self.contents) or 'nothing'}"
            )
        return self.contents[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.contents)

    def __len__(self) -> int:
        return len(self.contents)

    def __repr__(self) -> str:
        fields = sum(isinstance(thing, PencilArray) for thing in self.values())
        plural = "" if fields == 1 else "s"
        when = "" if self.step is None else f", step {self.step}"
        when += "" if self.time is None else f", time {self.time}"
        lines = [f"<Checkpoint of {fields} field{plural} from {self.path}{when}"]
        lines += [f"  {name}: {_describe(thing)}" for name, thing in self.items()]
        if self.attrs:
            attrs = (f"{name}={_describe(value)}" for name, value in self.attrs.items())
            lines.append(f"  attrs: {', '.join(attrs)}")
        return "\n".join(lines) + ">"


def load(
    path: str | os.PathLike[str],
    template: Pencil | Mapping[str, Any] | None = None,
    names: str | Iterable[str] | None = None,
    *,
    halo: HaloLike | None = None,
    dtype: DTypeLike | None = None,
    into: PencilArray | Mapping[str, PencilArray] | None = None,
    verify: bool = True,
    edited: bool = False,
    external: bool = False,
    comm: MPI.Intracomm | None = None,
) -> Checkpoint:
    """Read fields and values from an HDF5 file or a Zarr folder. *Collective*.

    The file may come from `save`, on any number of processes and any decomposition, or from other
    tools. Leading axes beyond the dimensions of the pencil become components; axes of extent 1
    where the pencil has more points become singleton dimensions.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0.
    template : Pencil or mapping of str to PencilArray or Pencil, optional
        Where the points go. Fields by name are also templates: components, singletons, dtype,
        periodicity and shape must be the same, and halo widths are by default. Values in the
        mapping are ignored: the argument of `save` can be passed. Default, unless there is `into`:
        pencils with the shape and periodicity of each field in the file, decomposed by default;
        singletons are on the pencil of the fields that have all their other dimensions.
    names : str or iterable of str, optional
        Names of fields and values, like ``"u"`` or ``"fluid/u"``, or of coordinates, which are
        values. Default: all values, and all fields that `template` and `into` name; without both,
        all fields.
    halo : int, sequence of int, or sequence of (int, int), optional
        Halo widths of new fields, along the dimensions that are not singletons. Stored boundary
        points are read; other halo points are zero.
    dtype : dtype, optional
        Element type of all fields, converted where necessary, but not from real to integer or
        from complex to real. Default: as in the file.
    into : PencilArray or mapping of str to PencilArray, optional
        Fields to fill in place; a single one needs a single name. Ghosts keep their values.
        After an error the values are undefined.
    verify : bool, optional
        Whether to compare the file with its list of contents, before HDF5 reads it, and with its
        checksums, if it has them.
    edited : bool, optional
        Whether to read a file of pencils that another program has changed, and which has lost its
        list of contents. Checksums are still compared.
    external : bool, optional
        Whether to read data in other files: external links, external storage, virtual datasets.
    comm : mpi4py.MPI.Intracomm, optional
        The processes that share the fields, without `template` and `into`. Default: all.

    Returns
    -------
    Checkpoint
        Fields and values by name, and ``.step``, ``.time``, ``.attrs``.

    Raises
    ------
    CheckpointError
        On every rank, if the file is not complete or not a regular file, was changed by another
        program, has data in other files, lacks a name, or a field does not fit `template` or
        `into`.
    OSError
        On every rank, if the file cannot be read; ``FileNotFoundError`` if there is none.
    ArgumentError, PencilMismatchError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks.

    Examples
    --------
    >>> import tempfile, pencils
    >>> pencil = pencils.Pencil((4, 6))
    >>> v = pencils.zeros(pencil)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pencils.save(f"{folder}/run.h5", {"u": pencils.ones(pencil), "dt": 0.1}, time=0.5)
    ...     state = pencils.load(f"{folder}/run.h5", pencil.with_(decomp=1))
    ...     _ = pencils.load(f"{folder}/run.h5", names="u", into=v)
    >>> state["u"].sum(), state["dt"], state.time, v.sum()
    (np.float64(24.0), 0.1, 0.5, np.float64(24.0))
    """
    known = [*_pencils(template), *_pencils(into)]
    is_given = comm is not None and not known
    topology = topology_of(as_comm(comm, "load")) if is_given else topology_among(*known)
    private = topology.comm
    with agreed(private, "load") as agree:
        given, wanted = as_path(path), as_names(names)
        new_dtype = None if dtype is None else as_dtype(dtype)
        access = Access(bool(verify), bool(edited), bool(external))
        agree(path=given, names=wanted, dtype=new_dtype, **access._asdict())
        targets = None
        if template is not None or into is not None:
            targets = as_targets(template, into, wanted, halo, private.size)
            if comm is not None:
                raise ArgumentError("leave out comm: template and into have their own processes")
        agree(template=repr(targets), halo=halo if targets is None else None)
    # Fields that have a target; None if all have.
    among = None if targets is None or None in targets else [*filter(None, targets)]
    file = describe_seen(
        topology, given, lambda real: describer_of(real).describe(real, wanted, among, access)
    )
    if targets is None:
        targets = default_targets(file, halo, comm)
    with seen_alike(topology, file):
        contents = read_contents(topology, file, targets, new_dtype)
    return Checkpoint(given, contents, file.attrs, step=file.step, time=file.time)


def verify(
    path: str | os.PathLike[str],
    comm: MPI.Intracomm | None = None,
    *,
    edited: bool = False,
    external: bool = False,
) -> list[str]:
    """Check that a file is complete and its data match their checksums. *Collective*.

    Every rank reads its share of the bytes, piece by piece, and allocates no fields.

    Parameters
    ----------
    path : str or path-like
        The file; a relative path starts at the working directory of rank 0.
    comm : mpi4py.MPI.Intracomm, optional
        The processes that share the work. Default: all.
    edited, external : bool, optional
        As in `load`.

    Returns
    -------
    list of str
        Names of the fields, values and coordinates whose checksums match; empty if the list of
        contents matches and there are no data.

    Raises
    ------
    CheckpointError
        On every rank, if the file is not complete, differs from its list of contents, or data do
        not match their checksum; the text names them. Also if the file has no checksums, or `load`
        would refuse it.
    OSError
        On every rank, if the file cannot be read.
    ArgumentError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks.

    Examples
    --------
    >>> import tempfile, pencils
    >>> u = pencils.ones(pencils.Pencil((4, 6)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pencils.save(f"{folder}/run.h5", {"u": u, "dt": 0.1})
    ...     pencils.verify(f"{folder}/run.h5")
    ['dt', 'u']
    """
    found = find_matches(path, comm, edited=edited, external=external)
    if found is None:
        raise CheckpointError(
            f"{path} has no checksums to verify; write it by save(..., checksum=True), the default"
        )
    return found


def find_matches(
    path: str | os.PathLike[str],
    comm: MPI.Intracomm | None = None,
    *,
    edited: bool = False,
    external: bool = False,
) -> list[str] | None:
    """Do what `verify` does, but return None if the file has no checksums. *Collective*."""
    topology = topology_of(as_comm(comm, "verify"))
    with agreed(topology.comm, "verify") as agree:
        given = as_path(path)
        access = Access(edited=bool(edited), external=bool(external))
        agree(path=given, edited=access.edited, external=access.external)
    file = describe_seen(
        topology, given, lambda real: describer_of(real).describe_summed(real, access)
    )
    with seen_alike(topology, file):
        share = partial(_sum_shares, topology, file)
        sums = sum_together(topology.comm, "verify", file, share)
        compare(topology.comm, "verify", file, sums)
    return [dataset.name for dataset in file.datasets] if file.is_covered else None


def _pencils(where: object) -> list[object]:
    found = [where]
    if isinstance(where, Mapping):
        found = [where[name] for name in sorted(where, key=str)]  # each rank may have its own order
    return [thing for thing in found if isinstance(thing, PencilArray | Pencil)]


def _sum_shares(topology: Topology, file: FileInfo, _: object) -> dict[str, int]:
    """Compute this rank's part of every checksum. Local."""
    sums, comm = {}, topology.comm
    check_seen(topology, file.path, file.identity.size)
    with closing(SharedFile("" if is_url(file.path) else file.path)) as shared:
        shared.raise_error()
        for number, one in enumerate(file.datasets):
            if one.offset is not None:
                total = _sum_bytes(shared, one, one.offset, comm.rank, comm.size)
            else:
                turn = (comm.rank + number) % comm.size
                total = _sum_boxes(file.path, one, turn, comm.size) if one.nbytes else 0
            sums[one.name] = total % 2**64
        shared.raise_error()
    return sums


def _sum_bytes(file: SharedFile, one: DatasetInfo, offset: int, part: int, parts: int) -> int:
    """Sum up a part of a dataset that is plain bytes, piece by piece."""
    most, total = max(1, _PIECE_BYTES // one.dtype.itemsize), 0
    first, last = (prod(one.shape) * (part + n) // parts for n in (0, 1))
    for at in range(first, last, most):
        piece = np.empty(min(most, last - at), one.dtype)
        file.read(offset + at * one.dtype.itemsize, piece)
        total += checksum(piece, at)
    return total


def _sum_boxes(path: str, one: DatasetInfo, part: int, parts: int) -> int:
    """Sum up a part of a dataset that h5py or zarr has to read, some chunks at a time."""
    most, total = max(1, _PIECE_BYTES // one.dtype.itemsize), 0
    extents = enlarge(one.chunks or (1,) * len(one.shape), one.shape, most)
    counts = count_chunks(one.shape, extents)
    first, last = (prod(counts) * (part + n) // parts for n in (0, 1))
    reader = reader_of(path)
    with reader.opened(path) as opened:
        for index in islice(np.ndindex(*counts), first, last):
            box = chunk_box(index, extents, one.shape)
            data = reader.read_box(opened, one.name, (*box.slices(), ...), summed=True)
            total += checksum_box(data, box.start, one.shape)
    return total


def open_on_root(path: str, name: str) -> tuple[ArrayLike | None, tuple[int, ...], np.dtype[Any]]:
    """Open an array on rank 0, for `partition`; return it, its shape and dtype. *Collective*.

    The file is an .npy file, or an HDF5 file with one dataset or the dataset `name`. The array is
    None on other ranks. CheckpointError or OSError are raised on every rank.
    """
    opened: list[ArrayLike] = []

    def work() -> tuple[tuple[int, ...], np.dtype[Any]]:
        if path.endswith(".npy"):
            os.close(open_regular(path))
            try:
                opened.append(np.lib.format.open_memmap(path, mode="r"))
            except ValueError as error:
                raise CheckpointError(f"cannot read {path}: {error}") from None
        else:
            from pencils.io import hdf5  # most ranks never need h5py

            opened.append(hdf5.open_dataset(path, name))
        return opened[0].shape, opened[0].dtype

    shape, dtype = on_root(Pencil(1).comm, "open_on_root", work)
    return (opened[0] if opened else None), shape, dtype


def _describe(thing: object) -> str:
    if isinstance(thing, PencilArray) or (isinstance(thing, np.ndarray) and thing.ndim):
        return f"{thing.shape} {thing.dtype}"
    if isinstance(thing, str):
        return f"{thing!r:.60}"
    return f"{thing!s:.60}"
