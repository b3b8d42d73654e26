"""Vectors of a DMDA of PETSc as fields, and fields as such vectors, on the same memory.

Dimensions are in the order of PETSc, x first. In memory x is fastest, hence pencils from here have
the memory order ``(2, 1, 0)``, and so have fields that are made on them. Ranks count along x first,
as those of pencils with ``decomp=(2, 1, 0)`` do.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pencils.array.allocation import Widths
from pencils.array.operands import check_type, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.topology import as_comm, congruent, topology_of
from pencils.errors import ArgumentError
from pencils.errors.missing import needs
from pencils.layout import ProcessGrid, halo_room
from pencils.layout.integers import as_int
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from petsc4py import PETSc

    from pencils.comm.mpi import MPI

_MOST_DIMS = 3  # that a DMDA has


def to_pencil(dmda: PETSc.DMDA, comm: MPI.Intracomm | None = None) -> Pencil:
    """Return the pencil with the same blocks as a DMDA. *Collective*.

    Its bounds are those of the DMDA, by whatever rule they were found.

    Parameters
    ----------
    dmda : petsc4py.PETSc.DMDA
        Of one to three dimensions, set up.
    comm : mpi4py.MPI.Intracomm, optional
        The processes of `dmda`, in the same order. Default: the world. Fields mix with others on
        the same communicator, and their plans live as long as it does.

    Returns
    -------
    Pencil
        Periodic where the DMDA is.

    Raises
    ------
    ArgumentError, TypeError, RankDisagreementError
        On every rank, if `comm` has other processes, or `dmda` is something else.

    Examples
    --------
    >>> from petsc4py import PETSc  # doctest: +SKIP
    >>> dmda = PETSc.DMDA().create([8, 6, 4])  # doctest: +SKIP
    >>> to_pencil(dmda).order  # doctest: +SKIP
    (2, 1, 0)
    """
    call = "interop.petsc.to_pencil"
    user = as_comm(comm, call)
    with agreed(topology_of(user).comm, call) as agree:
        if not hasattr(dmda, "getOwnershipRanges"):
            raise TypeError(f"dmda must be a DMDA of petsc4py, not {type(dmda)}")
        if not congruent(user, dmda.getComm().tompi4py()):
            raise ArgumentError(
                "comm must have the processes of the DMDA in their order; pass its communicator"
            )
        shape, grid = tuple(dmda.getSizes()), tuple(dmda.getProcSizes())
        counts = [map(int, along) for along in dmda.getOwnershipRanges()]
        bounds = [tuple(accumulate(along, initial=0)) for along in counts]
        coords = ProcessGrid(grid[::-1]).coords(user.rank)[::-1]  # ranks count along x first
        expected = tuple(one[here : here + 2] for one, here in zip(bounds, coords, strict=True))
        found = tuple(map(tuple, dmda.getRanges()))
        if found != expected:
            raise ArgumentError(
                f"the DMDA owns {found} here, by its ownership ranges {expected} is expected"
            )
        periodic = [kind == dmda.BoundaryType.PERIODIC for kind in dmda.getBoundaryType()]
        agree(shape=shape, grid=grid, bounds=bounds, periodic=periodic)
    slowest_first = tuple(reversed(range(len(shape))))  # as PETSc counts its processes, too
    return Pencil(
        shape,
        user,
        decomp=slowest_first,
        grid=grid[::-1],
        periodic=periodic,
        order=slowest_first,
        splits=bounds,
    )


def to_array(dmda: PETSc.DMDA, vec: PETSc.Vec, comm: MPI.Intracomm | None = None) -> PencilArray:
    """View a vector of a DMDA as a field. *Collective*.

    Both show the same values. The ghost points of a local vector are the halo of the field; along
    dimensions where the DMDA has none beyond the ends of the domain, the field is ``trimmed``.
    Degrees of freedom become one axis of components, if there are several.

    Parameters
    ----------
    dmda : petsc4py.PETSc.DMDA
        Where the vector lives.
    vec : petsc4py.PETSc.Vec
        A global vector of `dmda`, or a local one. The field keeps its memory in use; after writing
        to it, call ``vec.stateIncrease()``, and PETSc computes norms again.
    comm : mpi4py.MPI.Intracomm, optional
        As in `to_pencil`.

    Returns
    -------
    PencilArray
        A field on `to_pencil` of `dmda`.

    Raises
    ------
    ArgumentError, TypeError, RankDisagreementError
        As `to_pencil`; also if the length of the vector is neither that of global vectors nor that
        of local ones.

    Examples
    --------
    >>> from petsc4py import PETSc  # doctest: +SKIP
    >>> dmda = PETSc.DMDA().create([8, 6], dof=2, stencil_width=1)  # doctest: +SKIP
    >>> u = to_array(dmda, dmda.createGlobalVec())  # doctest: +SKIP
    >>> u.shape, u.components, u.halo  # doctest: +SKIP
    ((2, 8, 6), (2,), ((0, 0), (0, 0)))
    """
    pencil = to_pencil(dmda, comm)
    with agreed(pencil.topology.comm, "interop.petsc.to_array") as agree:
        if not hasattr(vec, "getArray"):
            raise TypeError(f"vec must be a Vec of petsc4py, not {type(vec)}")
        flat, dof = vec.getArray(), int(dmda.getDof())
        shape, ghosts = pencil.local_shape, None
        if flat.size != prod(shape) * dof:
            shape = tuple(stop - start for start, stop in dmda.getGhostRanges())
            ghosts = _read_ghosts(dmda, pencil)
        if flat.size != prod(shape) * dof:
            raise ArgumentError(
                f"vec has {flat.size} values here, required are "
                f"{prod(pencil.local_shape) * dof} as of a global vector of the DMDA, or "
                f"{prod(shape) * dof} as of a local one"
            )
        agree(dof=dof, dtype=flat.dtype, ghosts=ghosts)
    components = (dof,) if dof > 1 else ()
    block = flat.reshape((*shape[::-1], *components)).transpose()
    halo, trimmed = ghosts or (None, frozenset())
    return PencilArray.from_block(pencil, block, halo=halo, trimmed=trimmed)


def from_pencil(pencil: Pencil, dof: int = 1, stencil_width: int = 0) -> PETSc.DMDA:
    """Return the DMDA with the same blocks as a pencil. *Collective*.

    Parameters
    ----------
    pencil : Pencil
        Of one to three dimensions, with the memory order and the rank order of PETSc, and without
        empty blocks.
    dof : int, optional
        Degrees of freedom of each point.
    stencil_width : int, optional
        Ghost points that local vectors have around their block.

    Returns
    -------
    petsc4py.PETSc.DMDA
        On ``pencil.comm``, set up; periodic where the pencil is.

    Raises
    ------
    ArgumentError, TypeError, RankDisagreementError
        On every rank, if PETSc has no such DMDA; the text lists what is required.
    ImportError
        If petsc4py is not installed.

    Examples
    --------
    >>> pencil = Pencil((8, 6, 4), decomp=(2, 1, 0), order=(2, 1, 0))
    >>> from_pencil(pencil).getSizes()  # doctest: +SKIP
    (8, 6, 4)
    """
    with agreed(topology_among(pencil).comm, "interop.petsc.from_pencil") as agree:
        library = _library()
        check_type("pencil", pencil, Pencil)
        values = as_int("dof", dof, least=1)
        width = as_int("stencil_width", stencil_width, least=0)
        _check_pencil(pencil, prod(pencil.shape) * values, library, width)
        agree(pencil=pencil, dof=values, stencil_width=width)
    ends = library.DM.BoundaryType
    dmda: PETSc.DMDA = library.DMDA().create(
        dim=pencil.ndim,
        dof=values,
        sizes=pencil.shape,
        proc_sizes=pencil.process_shape,
        boundary_type=[ends.PERIODIC if wraps else ends.NONE for wraps in pencil.periodic],
        stencil_width=width,
        ownership_ranges=[np.array(along, library.IntType) for along in _counts(pencil)],
        comm=pencil.comm,
    )
    return dmda


def from_array(u: PencilArray) -> PETSc.Vec:
    """View a field as a global vector of its DMDA. *Collective*.

    Nothing is copied; the memory lives as long as any of them. After writing to the field, call
    ``vec.stateIncrease()``, and PETSc computes norms again.

    Parameters
    ----------
    u : PencilArray
        A field without halo, of the element type of PETSc, on a pencil as in `from_pencil`. It has
        no components, or one axis of them that is fastest in memory, as fields from `to_array`
        and those made by ``PencilArray(pencil, values.T)`` of C-ordered values have.

    Returns
    -------
    petsc4py.PETSc.Vec
        On ``u.pencil.comm``, with the order of values that vectors of
        ``from_pencil(u.pencil, dof)`` have, `dof` being the number of components.

    Raises
    ------
    ArgumentError, TypeError, RankDisagreementError, ImportError
        As `from_pencil`; also if the field has another memory layout, or has singletons.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.ones(Pencil((8, 6, 4), decomp=(2, 1, 0), order=(2, 1, 0)))
    >>> from_array(u).sum()  # doctest: +SKIP
    192.0
    """
    with agreed(topology_among(u).comm, "interop.petsc.from_array") as agree:
        library = _library()
        check_type("u", u, PencilArray)
        _check_pencil(u.pencil, u.size, library)
        _check_memory(u, np.dtype(library.ScalarType))
        agree(**signature(u))
    block = u.local.transpose().reshape(-1)
    vec: PETSc.Vec = library.Vec().createWithArray(
        block, size=(block.size, u.size), bsize=prod(u.components), comm=u.pencil.comm
    )
    return vec


def _library() -> Any:
    with needs("petsc4py"):
        from petsc4py import PETSc
    return PETSc


def _read_ghosts(dmda: PETSc.DMDA, pencil: Pencil) -> tuple[Widths, frozenset[int]]:
    """Find the halo of local vectors, and along which dimensions it ends with the domain."""
    width = dmda.getStencilWidth()
    ends = {d for d, kind in enumerate(dmda.getBoundaryType()) if kind == dmda.BoundaryType.NONE}
    alone = {dim for dim in ends if pencil.process_shape[dim] == 1}
    halo = tuple((0, 0) if dim in alone else (width, width) for dim in range(pencil.ndim))
    trimmed = frozenset(ends - alone)
    ranges = zip(dmda.getRanges(), dmda.getGhostRanges(), strict=True)
    found = tuple((start - lo, hi - stop) for (start, stop), (lo, hi) in ranges)
    if found != halo_room(pencil.box(), pencil.shape, halo, trimmed):
        raise ArgumentError(
            f"the DMDA has {found} ghost points around its block, not a halo of width {width}"
        )
    return halo, trimmed


def _counts(pencil: Pencil) -> list[list[int]]:
    """Count the points of every block along each dimension."""
    bounds = [[split.bounds(part) for part in range(split.parts)] for split in pencil.layout.splits]
    return [[stop - start for start, stop in along] for along in bounds]


def _check_pencil(pencil: Pencil, values: int, library: Any, width: int = 0) -> None:
    """Check that some DMDA has these blocks, on the same ranks and in the same memory order.

    Widths of ghosts are checked as PETSc does, which raises on some ranks alone.
    """
    if pencil.ndim > _MOST_DIMS:
        raise ArgumentError(f"a DMDA has one to three dimensions, not {pencil.ndim}:\n{pencil!r}")
    fitting = tuple(reversed(range(pencil.ndim)))
    cut = [dim for dim in pencil.decomp if pencil.process_shape[dim] > 1]
    if pencil.order != fitting or cut != sorted(cut, reverse=True):
        raise ArgumentError(
            "in PETSc dimension 0 is the fastest one, in memory and for the order of ranks; "
            f"transpose() to a pencil as of decomp={fitting}, order={fitting}:\n{pencil!r}"
        )
    counts = _counts(pencil)
    if not all(map(all, counts)):
        raise ArgumentError(
            "a DMDA must not have empty blocks; use other splits=, and no more processes along any "
            f"dimension than there are points:\n{pencil!r}"
        )
    for dim, along in enumerate(counts):
        if width > min(along) and (len(along) > 1 or pencil.periodic[dim]):
            raise ArgumentError(
                f"stencil_width={width} is wider than a block of {min(along)} points along "
                f"dimension {dim}; use fewer processes there:\n{pencil!r}"
            )
    most = np.iinfo(library.IntType).max
    if values > most:
        raise ArgumentError(
            f"{values} values are more than the {most} that PETSc is built to count"
        )


def _check_memory(u: PencilArray, dtype: np.dtype[Any]) -> None:
    if u.singletons:
        raise ArgumentError(
            f"u has extent 1 along {sorted(u.singletons)}, which PETSc does not support; pass u + "
            "pencils.zeros(pencil)"
        )
    if u.dtype != dtype:
        raise TypeError(
            f"u has dtype {u.dtype}, PETSc is built for {dtype}; u.astype() makes a copy"
        )
    if len(u.components) > 1 or 0 in u.components:
        raise ArgumentError(
            f"components {u.components}: PETSc has one number of degrees of freedom, at least 1"
        )
    if not u.local.transpose().flags.c_contiguous:
        raise ArgumentError(
            "u.local must have no gaps in memory, with components, then dimension 0, fastest; "
            "copy u into a field without halo, and components into PencilArray(pencil, values.T) "
            f"of C-ordered values:\n{u.pencil!r}"
        )
    if not u.local.flags.behaved:
        raise ArgumentError(
            "u is read-only, or not aligned to its elements; PETSc needs to write, so copy u"
        )
