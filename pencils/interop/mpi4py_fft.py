"""Pencils and fields as those of mpi4py-fft, and the other way, on the same memory.

Needs mpi4py-fft. It divides dimensions as ``splits="first"`` does, but no block is empty, there
are two dimensions or more, and at least one of them is not decomposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.allocation import as_dtype
from pencils.array.operands import check_type, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.topology import as_comm, topology_of
from pencils.errors import ArgumentError
from pencils.errors.missing import needs
from pencils.layout import ProcessGrid, Split
from pencils.layout.integers import as_dim
from pencils.pencil import Pencil

if TYPE_CHECKING:
    import mpi4py_fft

    from pencils.comm.mpi import MPI

_MOST_COMPONENTS = 2  # axes of them that mpi4py-fft redistributes

Coords = Sequence[tuple[int, ...]]  # by rank, of its process along every dimension


def to_pencil(theirs: mpi4py_fft.pencil.Pencil, comm: MPI.Intracomm | None = None) -> Pencil:
    """Return the pencil with the same blocks as one of mpi4py-fft. *Collective*.

    All dimensions but that of alignment are in its `decomp`, also those with one process. It is
    on `comm` if ranks count through the processes of `theirs` in C order, with the dimensions in
    any order; else on a communicator of the library that has the same ranks in another order.

    Parameters
    ----------
    theirs : mpi4py_fft.pencil.Pencil
        As ``u.pencil`` of a `DistArray`, or ``plan.pencil[0]`` of a `PFFT`.
    comm : mpi4py.MPI.Intracomm, optional
        All processes of `theirs`. Default: the world.

    Returns
    -------
    Pencil
        Nothing is periodic there; use ``with_(periodic=True)`` for halos that wrap around.

    Raises
    ------
    ArgumentError, TypeError, RankDisagreementError
        On every rank, if `comm` does not have as many processes, or `theirs` is something else.
    ImportError
        If mpi4py-fft is not installed.

    Examples
    --------
    >>> import mpi4py_fft  # doctest: +SKIP
    >>> to_pencil(mpi4py_fft.DistArray((8, 6, 4)).pencil)  # doctest: +SKIP
    Pencil((8, 6, 4), decomp=(0, 1), grid=(1, 1))
    """
    call = "interop.mpi4py_fft.to_pencil"
    user = as_comm(comm, call)
    topology = topology_of(user)
    with agreed(topology.comm, call) as agree:
        _check("theirs", theirs, _library().pencil.Pencil)
        parts, here = _processes(theirs, user.size)
        agree(shape=theirs.shape, processes=parts)
    coords = topology.comm.allgather(here)  # few numbers, and every rank can go on by itself
    decomp = _counting(theirs.axis, parts, coords)
    grid = ProcessGrid(tuple(parts[dim] for dim in decomp))
    places = tuple(grid.rank([where[dim] for dim in decomp]) for where in coords)
    if sorted(places) != list(range(user.size)):
        raise ArgumentError(
            "communicators of theirs do not form a grid of processes; make them with Subcomm"
        )
    if places != tuple(range(user.size)):
        user = topology.in_order(places, places[user.rank])
    return Pencil(theirs.shape, user, decomp=decomp, grid=grid.shape)


def to_array(theirs: mpi4py_fft.DistArray, comm: MPI.Intracomm | None = None) -> PencilArray:
    """View an array of mpi4py-fft as a field. *Collective*.

    Nothing is copied; the memory lives as long as any of them. On a pencil with the same blocks
    that is there already, ``PencilArray(pencil, theirs)`` views an array without communication, and
    as periodic as that pencil is.

    Parameters
    ----------
    theirs : mpi4py_fft.DistArray
        An array of two dimensions or more. Indices of tensors become components.
    comm : mpi4py.MPI.Intracomm, optional
        All processes of `theirs`. Default: the world.

    Returns
    -------
    PencilArray
        A field on `to_pencil` of its pencil.

    Raises
    ------
    ArgumentError, TypeError, RankDisagreementError, ImportError
        As `to_pencil`; also if the array is only a part of its pencil.

    Examples
    --------
    >>> import mpi4py_fft  # doctest: +SKIP
    >>> theirs = mpi4py_fft.DistArray((8, 6, 4), val=1.0)  # doctest: +SKIP
    >>> u = to_array(theirs)  # doctest: +SKIP
    >>> u *= 2  # doctest: +SKIP
    >>> u.sum(), theirs[0, 0, 0]  # doctest: +SKIP
    (np.float64(384.0), np.float64(2.0))
    """
    call = "interop.mpi4py_fft.to_array"
    with agreed(topology_of(as_comm(comm, call)).comm, call) as agree:
        _check("theirs", theirs, _library().DistArray)
        if theirs.pencil is None:
            raise ArgumentError(
                f"theirs, of shape {theirs.shape}, is not distributed; two dimensions are needed"
            )
        if theirs.shape[theirs.rank :] != theirs.pencil.subshape:
            raise ArgumentError(
                f"theirs has shape {theirs.shape} here, required is {theirs.pencil.subshape} after "
                f"the indices of a tensor of rank {theirs.rank}; pass the whole array"
            )
        agree(components=theirs.shape[: theirs.rank], dtype=as_dtype(theirs.dtype))
    return PencilArray.from_block(to_pencil(theirs.pencil, comm), np.asarray(theirs))


def from_pencil(pencil: Pencil, axis: int | None = None) -> mpi4py_fft.pencil.Pencil:
    """Return the pencil of mpi4py-fft with the same blocks as a pencil. *Collective*.

    Pencils that come from one communicator with the same process grid share their communicators,
    and mpi4py-fft can redistribute between them.

    Parameters
    ----------
    pencil : Pencil
        Of two dimensions or more, of which at least one is not decomposed.
    axis : int, optional
        The dimension of alignment, which must not be decomposed. Default: the last such one.

    Returns
    -------
    mpi4py_fft.pencil.Pencil
        On communicators as in `subcomm`.

    Raises
    ------
    ArgumentError, TypeError, RankDisagreementError
        On every rank, if mpi4py-fft has no such pencil; the text lists what is required.
    ImportError
        If mpi4py-fft is not installed.

    Examples
    --------
    >>> from_pencil(Pencil((8, 6, 4))).subshape  # doctest: +SKIP
    (8, 6, 4)
    """
    with agreed(topology_among(pencil).comm, "interop.mpi4py_fft.from_pencil") as agree:
        library = _library()
        check_type("pencil", pencil, Pencil)
        aligned = _as_axis(axis, pencil)
        agree(pencil=pencil, axis=aligned)
    return library.pencil.Pencil(_communicators(pencil), pencil.shape, aligned)


def subcomm(pencil: Pencil) -> mpi4py_fft.pencil.Subcomm:
    """Return the communicators along every dimension, for mpi4py-fft. *Collective*.

    For ``PFFT(subcomm(pencil), pencil.shape)``.

    Parameters
    ----------
    pencil : Pencil
        As for `from_pencil`.

    Returns
    -------
    mpi4py_fft.pencil.Subcomm
        Freed together with ``pencil.comm``. The same process grid gives the same communicators:
        `destroy` frees them for all. Later calls make new ones.

    Raises
    ------
    ArgumentError, TypeError, RankDisagreementError, ImportError
        As `from_pencil`.

    Examples
    --------
    >>> [comm.size for comm in subcomm(Pencil((8, 6, 4)))]  # doctest: +SKIP
    [1, 1, 1]
    """
    with agreed(topology_among(pencil).comm, "interop.mpi4py_fft.subcomm") as agree:
        library = _library()
        check_type("pencil", pencil, Pencil)
        _as_axis(None, pencil)
        agree(pencil=pencil)
    # By itself it would split a communicator again.
    return tuple.__new__(library.pencil.Subcomm, _communicators(pencil))


def from_array(u: PencilArray, axis: int | None = None) -> mpi4py_fft.DistArray:
    """View a field as an array of mpi4py-fft. *Collective*.

    Nothing is copied; the memory lives as long as any of them.

    Parameters
    ----------
    u : PencilArray
        A field in C order in memory, without gaps: with the memory order of dimensions
        that is the default, without halo. Up to two axes of components become indices of a tensor.
    axis : int, optional
        The dimension of alignment, as in `from_pencil`.

    Returns
    -------
    mpi4py_fft.DistArray
        On `from_pencil` of the pencil of `u`.

    Raises
    ------
    ArgumentError, TypeError, RankDisagreementError, ImportError
        As `from_pencil`; also if the field has another memory layout, or has singletons.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.zeros(Pencil((8, 6, 4)), components=3)
    >>> theirs = from_array(u)  # doctest: +SKIP
    >>> theirs[0] = 1.0  # doctest: +SKIP
    >>> theirs.rank, u.sum()  # doctest: +SKIP
    (1, np.float64(192.0))
    """
    with agreed(topology_among(u).comm, "interop.mpi4py_fft.from_array") as agree:
        library = _library()
        check_type("u", u, PencilArray)
        if u.singletons:
            raise ArgumentError(
                f"u has extent 1 along {sorted(u.singletons)}, which mpi4py-fft does not support; "
                "pass u + pencils.zeros(pencil)"
            )
        if len(u.components) > _MOST_COMPONENTS:
            raise ArgumentError(
                f"components {u.components}: tensors of mpi4py-fft have two indices at most"
            )
        if not u.local.flags.c_contiguous:
            raise ArgumentError(
                "u.local must be in memory in C order without gaps; transpose() u to a pencil with "
                f"order={tuple(range(u.pencil.ndim))}, into a field without halo:\n{u.pencil!r}"
            )
        aligned = _as_axis(axis, u.pencil)
        agree(**signature(u), axis=aligned)
    return library.DistArray(
        u.shape,
        subcomm=_communicators(u.pencil),
        dtype=u.dtype,
        buffer=u.local,
        alignment=aligned,
        rank=len(u.components),
    )


def _library() -> Any:
    with needs("mpi4py-fft"):
        import mpi4py_fft
    return mpi4py_fft


def _check(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__} of mpi4py-fft, not {type(value)}")


def _processes(
    theirs: mpi4py_fft.pencil.Pencil, size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the number of processes along every dimension, and the coordinates of this one."""
    parts = tuple(comm.size for comm in theirs.subcomm)
    here = tuple(comm.rank for comm in theirs.subcomm)
    if prod(parts) != size:
        raise ArgumentError(
            f"theirs has {prod(parts)} processes, comm has {size}; pass theirs as comm="
        )
    along = zip(theirs.shape, theirs.substart, theirs.subshape, strict=True)
    for dim, (points, start, count) in enumerate(along):
        lo, hi = Split(points, parts[dim]).bounds(here[dim])
        if (start, start + count) != (lo, hi):
            raise ArgumentError(
                f"theirs has {start}:{start + count} along dimension {dim}, expected is {lo}:{hi}"
            )
    return parts, here


def _counting(axis: int, parts: Sequence[int], coords: Coords) -> tuple[int, ...]:
    """All dimensions but that of alignment, in the order in which ranks count through them."""
    others = tuple(dim for dim in range(len(parts)) if dim != axis)
    cut = [dim for dim in others if parts[dim] > 1]
    steps = {}  # difference in rank to the next process along a dimension
    for dim in cut:
        unit = tuple(int(other == dim) for other in range(len(parts)))
        steps[dim] = coords.index(unit) if unit in coords else 0
    slowest_first = sorted(cut, key=steps.__getitem__, reverse=True)
    if cut == slowest_first:
        return others
    return (*slowest_first, *(dim for dim in others if parts[dim] == 1))


def _as_axis(axis: int | None, pencil: Pencil) -> int:
    """Check that mpi4py-fft has such a pencil; find the dimension that it is aligned with."""
    whole = [dim for dim, parts in enumerate(pencil.process_shape) if parts == 1]
    if pencil.ndim == 1 or not whole:
        raise ArgumentError(
            f"mpi4py-fft needs two dimensions or more, one of them not decomposed:\n{pencil!r}\n"
            "use other decomp= or grid="
        )
    for dim, split in enumerate(pencil.layout.splits):
        if split != Split(split.points, split.parts) or split.points < split.parts:
            raise ArgumentError(
                f"mpi4py-fft cuts dimension {dim} otherwise, or has no empty blocks:\n{pencil!r}\n"
                'transpose() to a pencil with splits="first" and fewer processes than points'
            )
    if axis is None:
        return whole[-1]
    dim = as_dim("axis", axis, pencil.ndim)
    if dim not in whole:
        raise ArgumentError(
            f"axis={axis} is decomposed; mpi4py-fft aligns with one of {whole}:\n{pencil!r}"
        )
    return dim


def _communicators(pencil: Pencil) -> list[MPI.Intracomm]:
    """Communicators along every dimension; of this rank alone, where it is not decomposed."""
    *along, alone = pencil.topology.lent(pencil.layout.grid)
    axes = dict(zip(pencil.decomp, along, strict=True))
    return [axes.get(dim, alone) for dim in range(pencil.ndim)]
