"""Read fields from an HDF5 file onto any pencil, all ranks together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import HaloLike, as_dtype
from pencils.array.base import checks
from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.file import SharedFile
from pencils.comm.reduce import allreduce
from pencils.io.checksum import checksum, checksum_box
from pencils.io.file_access import OnProgress, on_root, shown
from pencils.io.file_info import Access, DatasetInfo, FileInfo, damaged, decode
from pencils.io.options import read_names, read_path
from pencils.io.root_io import format_of
from pencils.io.slabs import PIECE_BYTES, Slabs, copy_common, has_room, runs, widened, with_boundary
from pencils.io.targets import read_targets
from pencils.layout import Box
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class Checkpoint(Mapping[str, Any]):
    """Fields and values of a file by name, its step, time and attributes.

    Parameters
    ----------
    path : str
        The file.
    contents : mapping of str to object
        Fields, and values, which are the same on all ranks.
    attrs : mapping of str to object
        The attributes of the file.
    step : int, optional
        Number of the time step.
    time : float, optional
        Time of the run.

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

    __slots__ = ("_attrs", "_contents", "_path", "_step", "_time")

    def __init__(
        self,
        path: str,
        contents: Mapping[str, Any],
        attrs: Mapping[str, Any],
        *,
        step: int | None = None,
        time: float | None = None,
    ) -> None:
        self._path = path
        self._contents = dict(contents)
        self._attrs = dict(attrs)
        self._step = step
        self._time = time

    @property
    def step(self) -> int | None:
        """Number of the time step; None if the file has none."""
        return self._step

    @property
    def time(self) -> float | None:
        """Time of the run; None if the file has none."""
        return self._time

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the file: scalars, strings and small arrays, the same on every rank."""
        return self._attrs

    @property
    def path(self) -> str:
        """The file that was read."""
        return self._path

    def __getitem__(self, name: str) -> Any:
        if name not in self._contents:
            msg = f"{name!r} was not loaded; there is {', '.join(self._contents) or 'nothing'}"
            raise KeyError(msg)
        return self._contents[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents)

    def __len__(self) -> int:
        return len(self._contents)

    def __contains__(self, name: object) -> bool:
        return name in self._contents

    def __repr__(self) -> str:
        fields = sum(isinstance(thing, PencilArray) for thing in self.values())
        plural = "" if fields == 1 else "s"
        when = "" if self._step is None else f", step {self._step}"
        when += "" if self._time is None else f", time {self._time}"
        lines = [f"<Checkpoint of {fields} field{plural} from {self._path}{when}"]
        lines += [f"  {name}: {_describe(thing)}" for name, thing in self.items()]
        if self._attrs:
            attrs = (f"{name}={_describe(value)}" for name, value in self._attrs.items())
            lines.append(f"  attrs: {', '.join(attrs)}")
        return "\n".join(lines) + ">"


class ReadTarget(NamedTuple):
    """Where one field is read to: `raw` has the points and dtype of the file, `field` the user's.

    Both are the same array, unless points or elements have to be converted.
    """

    dataset: DatasetInfo
    raw: PencilArray
    field: PencilArray

    @property
    def is_summed(self) -> bool:
        """Whether the part that this rank reads counts in the checksum."""
        layout = self.raw.extent.layout
        return self.dataset.checksum is not None and layout.is_first_replica(self.raw.pencil.rank)


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
) -> Checkpoint:
    """Read fields and values from an HDF5 file. *Collective*.

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
        mapping are ignored, so that the argument of `save` can be passed.
    names : str or iterable of str, optional
        Names of fields and values, like ``"u"`` or ``"fluid/u"``. Default: all values, and all
        fields that `template` and `into` name.
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
        Whether to read a file of pencils that another program has changed or rewritten, so that
        its list of contents is lost. Checksums are still compared.
    external : bool, optional
        Whether to read data in other files: external links, external storage, virtual datasets.
        The index of a `TimeSeries` always refers to the snapshots in its folder.

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
    >>> pen = pencils.Pencil((4, 6))
    >>> v = pencils.zeros(pen)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pencils.save(f"{folder}/run.h5", {"u": pencils.ones(pen), "dt": 0.1}, time=0.5)
    ...     state = pencils.load(f"{folder}/run.h5", pen.with_(decomp=1))
    ...     _ = pencils.load(f"{folder}/run.h5", names="u", into=v)
    >>> state["u"].sum(), state["dt"], state.time, v.sum()
    (np.float64(24.0), 0.1, 0.5, np.float64(24.0))
    """
    comm = topology_among(*_pencils(template), *_pencils(into)).comm
    with agreed(comm, "load") as same:
        given, wanted = read_path(path), read_names(names)
        kind = None if dtype is None else as_dtype(dtype)
        access = Access(bool(verify), bool(edited), bool(external))
        same(path=given, names=wanted, dtype=kind, **access._asdict())
        targets = read_targets(template, into, wanted, halo, comm.size)
        same(template=targets)
    file = on_root(
        comm,
        "load",
        lambda: format_of(given).describe(os.path.realpath(given), wanted, targets.names, access),
    )
    with agreed(comm, "load"):
        fields = [targets.find(one.name).make(one, kind, file.path) for one in file.datasets]
        values = {name: decode(value) for name, value in file.values.items()}
    reads = [_prepare(*pair) for pair in zip(file.datasets, fields, strict=True)]
    sums = _read_bytes(comm, file, [one for one in reads if one.dataset.offset is not None])
    with agreed(comm, "load"):
        try:
            sums |= _read_boxes(file.path, [one for one in reads if one.dataset.offset is None])
        finally:  # a replaced file can be the reason of an error, too
            if comm.rank == 0:
                file.identity.check_unchanged(file.path)
    _check_sums(comm, file, sums)
    for one in reads:
        _finish(one)
    contents = {one.dataset.name: one.field for one in reads} | values
    return Checkpoint(given, contents, file.attrs, step=file.step, time=file.time)


def _pencils(where: object) -> list[object]:
    found = [where]
    if isinstance(where, Mapping):
        found = [where[name] for name in sorted(where, key=str)]  # each rank may have its own order
    return [thing for thing in found if isinstance(thing, PencilArray | Pencil)]


def _prepare(dataset: DatasetInfo, field: PencilArray) -> ReadTarget:
    """Allocate memory for a field, unless its bytes need no conversion. *Collective*."""
    pencil = field.pencil
    if dataset.boundary:
        pencil = widened(pencil, dataset.boundary)
        if dataset.dtype == field.dtype and has_room(field, dataset.boundary):
            return ReadTarget(dataset, with_boundary(field, pencil, dataset.boundary), field)
    elif dataset.dtype == field.dtype:
        return ReadTarget(dataset, field, field)
    with agreed(pencil.topology.comm, "load"):  # one rank may have no memory for it
        raw = PencilArray.allocated(pencil, dataset.dtype, field.components, field.singletons)
    return ReadTarget(dataset, raw, field)


def _finish(target: ReadTarget) -> None:
    """Convert points and elements, if they were not read into place."""
    dataset, raw, field = target
    if raw is not field and not np.may_share_memory(raw.local, field.padded):
        if dataset.boundary:
            copy_common(raw, field, dataset.boundary)
        else:
            np.copyto(field.local, raw.local, casting="same_kind")
    if checks.on:
        field.mark_written()


def _read_bytes(
    comm: MPI.Intracomm, file: FileInfo, targets: Sequence[ReadTarget]
) -> dict[str, int]:
    """Read fields that are plain bytes, as slabs, and exchange. *Collective*. Return checksums."""
    sums: dict[str, int] = {}
    if not targets:
        return sums
    share = sum(target.dataset.nbytes for target in targets) // comm.size
    with (
        shown("load", file.path, share, rank=comm.rank) as moved,
        closing(Slabs()) as slabs,
        SharedFile(comm, file.path) as shared,
    ):
        file.check_in_place(comm, "load")
        for target in targets:
            slab = slabs.into(target.raw)
            part = target._replace(raw=slab)
            with agreed(comm, "load"):  # one rank may have no memory for it
                sums[target.dataset.name] = _read_slab(shared, part, moved)
                shared.complain()
            slabs.spread(slab, target.raw)
    return sums


def _read_slab(file: SharedFile, target: ReadTarget, moved: OnProgress) -> int:
    """Read what this rank has of a slab, piece by piece; return its part of the checksum."""
    dataset, summed = target.dataset, target.is_summed
    total, most = 0, max(1, PIECE_BYTES // dataset.dtype.itemsize)
    for run in runs(target.raw):
        offset = run.offset
        for box in Box.of_shape(run.block.shape).pieces(most):
            index: tuple[Any, ...] = (*box.slices(), ...)  # an array even of a single element
            part = run.block[index]
            piece = part if part.flags.c_contiguous else np.empty(part.shape, part.dtype)
            file.read((dataset.offset or 0) + offset, piece)
            if summed:
                total += checksum(piece, offset // piece.dtype.itemsize)
            if piece is not part:
                np.copyto(part, piece)
            moved(piece.nbytes)
            offset += piece.nbytes
    return total % 2**64


def _read_boxes(path: str, targets: Sequence[ReadTarget]) -> dict[str, int]:
    """Read this rank's boxes of fields that are no plain bytes. Return checksums."""
    sums: dict[str, int] = {}
    if not any(target.dataset.nbytes for target in targets):
        return sums
    reader = format_of(path)
    with reader.opened(path) as file:
        for target in targets:
            name, raw = target.dataset.name, target.raw
            if raw.local.size:
                raw.local[...] = reader.read_box(file, name, raw.local_slices)
            if target.is_summed:
                start = [part.start for part in raw.local_slices]
                sums[name] = checksum_box(raw.local, start, target.dataset.shape)
    return sums


def _check_sums(comm: MPI.Intracomm, file: FileInfo, sums: Mapping[str, int]) -> None:
    """Compare checksums with those in the file. *Collective*."""
    datasets = [one for one in file.datasets if one.checksum is not None]
    if not datasets:
        return
    mine = np.array([sums.get(one.name, 0) for one in datasets], np.uint64)
    pairs = zip(datasets, allreduce(comm, mine, np.add), strict=True)
    bad = [one.name for one, total in pairs if one.checksum != total]
    if bad:
        raise damaged(file.path, bad)


def _describe(thing: object) -> str:
    if isinstance(thing, PencilArray) or (isinstance(thing, np.ndarray) and thing.ndim):
        return f"{thing.shape} {thing.dtype}"
    if isinstance(thing, str):
        return f"{thing!r:.60}"
    return f"{thing!s:.60}"
