"""Vectors of a DMDA of PETSc as fields: PETSc owns the memory, nothing is copied.

Dimensions are in the order of PETSc, x first. In memory x is fastest, hence pencils from here have
the memory order ``(2, 1, 0)``, and so have fields that are made on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

from pencils.array import PencilArray
from pencils.comm.agree import agreed, read_comm
from pencils.comm.topology import congruent, topology_of
from pencils.errors import ArgumentError
from pencils.layout import ProcessGrid, margins
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from mpi4py import MPI
    from petsc4py import PETSc

    from pencils.storage import Widths


def to_pencil(dmda: PETSc.DMDA, comm: MPI.Intracomm | None = None) -> Pencil:
    """Return the pencil that gives every rank the block that a DMDA gives it. *Collective*.

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
    user = read_comm(comm, call)
    with agreed(topology_of(user).comm, call) as same:
        _check(dmda, user)
        shape, grid = tuple(dmda.getSizes()), tuple(dmda.getProcSizes())
        counts = [map(int, along) for along in dmda.getOwnershipRanges()]
        bounds = [tuple(accumulate(along, initial=0)) for along in counts]
        _check_ranges(dmda, bounds, grid, user.rank)
        periodic = [kind == dmda.BoundaryType.PERIODIC for kind in dmda.getBoundaryType()]
        same(shape=shape, grid=grid, bounds=bounds, periodic=periodic)
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

    What is written to one is seen in the other. The ghost points of a local vector are the halo of
    the field; along dimensions where the DMDA has none beyond the ends of the domain, the field is
    ``trimmed``. Degrees of freedom become one axis of components, if there are several.

    Parameters
    ----------
    dmda : petsc4py.PETSc.DMDA
        Where the vector lives.
    vec : petsc4py.PETSc.Vec
        A global vector of `dmda`, or a local one. The field keeps its memory in use; after writing
        to it, ``vec.stateIncrease()`` tells PETSc to forget the norms that it remembers.
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
    with agreed(pencil.topology.comm, "interop.petsc.to_array") as same:
        if not hasattr(vec, "getArray"):
            msg = f"vec must be a Vec of petsc4py, not {type(vec)}"
            raise TypeError(msg)
        flat, dof = vec.getArray(), int(dmda.getDof())
        shape, ghosts = pencil.local_shape, None
        if flat.size != prod(shape) * dof:
            shape, ghosts = _padded_shape(dmda), _read_ghosts(dmda, pencil)
        if flat.size != prod(shape) * dof:
            msg = (
                f"vec has {flat.size} values here, required are "
                f"{prod(pencil.local_shape) * dof} as of a global vector of the DMDA, or "
                f"{prod(shape) * dof} as of a local one"
            )
            raise ArgumentError(msg)
        same(dof=dof, dtype=flat.dtype, ghosts=ghosts)
    components = (dof,) if dof > 1 else ()
    block = flat.reshape((*shape[::-1], *components)).transpose()
    halo, trimmed = ghosts or (None, frozenset())
    return PencilArray.from_block(pencil, block, halo=halo, trimmed=trimmed)


def _check(dmda: PETSc.DMDA, comm: MPI.Intracomm) -> None:
    if not hasattr(dmda, "getOwnershipRanges"):
        msg = f"dmda must be a DMDA of petsc4py, not {type(dmda)}"
        raise TypeError(msg)
    if not congruent(comm, dmda.getComm().tompi4py()):
        msg = "comm must have the processes of the DMDA in their order; pass what the DMDA lies on"
        raise ArgumentError(msg)


def _check_ranges(
    dmda: PETSc.DMDA, bounds: Sequence[tuple[int, ...]], grid: tuple[int, ...], rank: int
) -> None:
    """Check that ranks count through the processes of a DMDA as expected, along x first."""
    coords = ProcessGrid(grid[::-1]).coords(rank)[::-1]
    expected = tuple(along[here : here + 2] for along, here in zip(bounds, coords, strict=True))
    found = tuple(map(tuple, dmda.getRanges()))
    if found != expected:
        msg = f"the DMDA owns {found} here, by its ownership ranges {expected} is expected"
        raise ArgumentError(msg)


def _padded_shape(dmda: PETSc.DMDA) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in dmda.getGhostRanges())


def _read_ghosts(dmda: PETSc.DMDA, pencil: Pencil) -> tuple[Widths, frozenset[int]]:
    """Find the halo of local vectors, and along which dimensions it ends with the domain."""
    width = dmda.getStencilWidth()
    ends = {d for d, kind in enumerate(dmda.getBoundaryType()) if kind == dmda.BoundaryType.NONE}
    alone = {dim for dim in ends if pencil.process_shape[dim] == 1}
    halo = tuple((0, 0) if dim in alone else (width, width) for dim in range(pencil.ndim))
    trimmed = frozenset(ends - alone)
    found = tuple(
        (start - below, above - stop)
        for (start, stop), (below, above) in zip(
            dmda.getRanges(), dmda.getGhostRanges(), strict=True
        )
    )
    if found != margins(pencil.box(), pencil.shape, halo, trimmed):
        msg = f"the DMDA has {found} ghost points around its block, not a halo of width {width}"
        raise ArgumentError(msg)
    return halo, trimmed
