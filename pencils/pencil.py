"""Pencil: a layout and the communicator of its ranks, immutable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

from pencils.comm.agree import agreed
from pencils.comm.canonical import encoded
from pencils.comm.topology import Topology, as_comm, congruent, topology_of
from pencils.errors import ArgumentError, NotLocalError
from pencils.errors.missing import PENCILS, explain_words
from pencils.layout import Box, Extent, Layout, Selection, build_layout
from pencils.layout.build import SplitSpec, change_layout
from pencils.layout.drawing import Blocks, card, svg
from pencils.layout.integers import as_dims, as_int, as_ints, as_rank
from pencils.layout.levels import LEAST, coarse_layout, read_levels
from pencils.layout.whole import is_whole, whole_layout

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

# Values that are kept of one kind.
_MOST_KEPT = 64


class Bounded(dict[Any, Any]):
    """Values that later calls find again; one too many, and all before it are dropped."""

    def add(self, key: object, value: object) -> None:
        """Keep a value, or another one for a key that is there."""
        if len(self) >= _MOST_KEPT and key not in self:
            self.clear()
        self[key] = value


class Kept(dict[str, Bounded]):
    """Values that later calls find again, by kind, usually a verb, and key.

    Of each kind there are at most 64: all of them are dropped for one more. ``print`` shows how
    many there are.

    Examples
    --------
    >>> pen = Pencil((8, 6))
    >>> part = pen.section(slice(2, 4))
    >>> print(pen.kept)
    kept for later calls: 1 section
    """

    def __missing__(self, kind: str) -> Bounded:
        found = self[kind] = Bounded()
        return found

    def __str__(self) -> str:
        texts = [f"{len(values)} {kind}" for kind, values in sorted(self.items()) if values]
        return f"kept for later calls: {', '.join(texts) or 'nothing'}"


class Pencil:
    """A global grid, cut into blocks over the processes of a communicator.

    A pencil is frozen and holds no field data. Two pencils are equal if they distribute the same
    shape in the same way over the same processes. *Collective*: all ranks of `comm` construct it
    with the same arguments; its methods do not communicate unless they are marked *Collective*.

    Parameters
    ----------
    shape : sequence of int
        Global number of points along each dimension.
    comm : mpi4py.MPI.Intracomm, optional
        Default: all processes (``MPI.COMM_WORLD``). The library works on a private duplicate.
    decomp : int or sequence of int, optional
        The decomposed dimensions; entry ``i`` lies on axis ``i`` of the process grid. Default:
        all but the last, or dimension 0 of a 1-D grid.
    grid : int or sequence of int, optional
        Processes along each entry of `decomp`; 0 leaves the choice to the library, which looks
        at the shape. The product must be ``comm.size``.
    periodic : bool or sequence of bool, optional
        Whether dimensions wrap around, for all or for each.
    order : sequence of int, optional
        Memory order of the dimensions, slowest first. Default: C order.
    splits : str, sequence of int, or one of these per dimension, optional
        How points are distributed over processes: "first" (the default: the first ``N % P`` get one
        more), "last", "floor", "ceil", or explicit bounds ``(0, ..., N)``.
    placement : {"rank", "node"}, optional
        Which processes follow each other in the process grid, along its last axis first: those of
        consecutive ranks in `comm` (the default), or those of one node and then of the next. For
        "node" the processes get other ranks, unless MPI has numbered them so: `Pencil.comm` is
        then another communicator, which roots of verbs refer to.

    Attributes
    ----------
    kept : Kept
        The preparations of verbs for later calls with fields on this pencil, a bounded number, and
        its sections. ``print`` shows how many there are, and ``clear()`` drops them.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if an argument does not fit; the message names the allowed values.
    RankDisagreementError
        On every rank, if ranks passed different arguments.

    Examples
    --------
    >>> pen = Pencil((64, 48, 32))
    >>> pen.local_shape, pen.decomp, pen.grid
    ((64, 48, 32), (0, 1), (1, 1))
    """

    def __init__(
        self,
        shape: Sequence[int] | int,
        comm: MPI.Intracomm | None = None,
        *,
        decomp: Sequence[int] | int | None = None,
        grid: Sequence[int] | int | None = None,
        periodic: bool | Sequence[bool] = False,
        order: Sequence[int] | None = None,
        splits: SplitSpec | Sequence[SplitSpec] | None = None,
        placement: str = "rank",
    ) -> None:
        user = as_comm(comm, "Pencil")
        topology = topology_of(user)
        with agreed(topology.comm, "Pencil") as agree:
            layout = build_layout(
                as_ints("shape", shape),
                topology.comm.size,
                decomp=decomp,
                grid=grid,
                periodic=periodic,
                order=order,
                splits=splits,
            )
            agree(**layout.signature, placement=_check_placement(placement))
        reordered = topology.by_node if placement == "node" else None
        if reordered is not None:
            user, topology = reordered, topology_of(reordered)
        self._set(user, topology, layout)

    def _set(
        self, comm: MPI.Intracomm, topology: Topology, layout: Layout, whole: Layout | None = None
    ) -> None:
        self._comm = comm
        self._topology = topology
        self._layout = layout
        self._whole = whole  # the layout of which this one is a section
        self._shape = layout.shape
        self._box = layout.box(topology.comm.rank)
        self._hash = hash(layout)
        # What verbs have prepared for fields on this pencil, and pencils and extents made of it.
        self.kept = Kept()
        self.frames: dict[Any, Any] = {}  # what `pencils.array.allocation` knows of this pencil
        self._text = f"Pencil({layout})"  # the last one: from now on the pencil is frozen

    def with_(
        self,
        *,
        shape: Sequence[int] | int | None = None,
        decomp: Sequence[int] | int | None = None,
        grid: Sequence[int] | int | None = None,
        periodic: bool | Sequence[bool] | None = None,
        order: Sequence[int] | None = None,
        splits: SplitSpec | Sequence[SplitSpec] | None = None,
    ) -> Pencil:
        """Return a pencil that differs in the given arguments, on the same communicator.

        *Collective*. Arguments that are not given keep their values: `periodic`, `order` and split
        rules always, `grid` unless the number of decomposed dimensions changes, explicit bounds
        unless shape, decomposition or grid change.

        Parameters
        ----------
        shape, decomp, grid, periodic, order, splits
            As in the constructor; None keeps the value of this pencil.

        Returns
        -------
        Pencil
            The new pencil.

        Raises
        ------
        ArgumentError, TypeError, RankDisagreementError
            As the constructor.

        Examples
        --------
        >>> Pencil((8, 8, 8)).with_(decomp=(0, 2)).decomp
        (0, 2)
        """
        with agreed(self._topology.comm, "Pencil.with_") as agree:
            layout = change_layout(
                self._layout,
                shape=shape,
                decomp=decomp,
                grid=grid,
                periodic=periodic,
                order=order,
                splits=splits,
            )
            agree(**layout.signature)
        return self.sibling(layout)

    def resized(self, shape: Sequence[int] | int) -> Pencil:
        """Return the pencil on which functions of fields put results of another shape.

        It is ``with_(shape=shape)``: same decomposed dimensions, process grid, memory order,
        periodicity and split rules; explicit bounds and those of sections give way to the default
        rule. Nothing is communicated.

        Parameters
        ----------
        shape : int or sequence of int
            Global shape, the same on all ranks.

        Returns
        -------
        Pencil
            The pencil: this one if it has the shape, else the same object at every call.

        Raises
        ------
        ArgumentError, TypeError
            As the constructor.

        Examples
        --------
        >>> pen = Pencil((8, 6), periodic=True)
        >>> pen.resized((10, 6)) == pen.with_(shape=(10, 6)), pen.resized([8, 6]) is pen
        (True, True)
        """
        shape = as_ints("shape", shape)
        if shape == self.shape:
            return self
        make = partial(change_layout, self._layout, shape=shape)
        return self._kept_sibling("resized", shape, make)

    def inserted(self, axis: int, points: int) -> Pencil:
        """Return the pencil with a further dimension, which is not decomposed.

        In memory its place is before that of the dimension whose number it takes. Nothing is
        communicated.

        Parameters
        ----------
        axis : int
            Number of the new dimension, in ``[0, ndim]``.
        points : int
            Its extent.

        Returns
        -------
        Pencil
            The pencil: the same object at every call.

        Examples
        --------
        >>> pen = Pencil((8, 6)).inserted(0, 3)
        >>> pen.shape, pen.decomp
        ((3, 8, 6), (1,))
        """
        key = axis, points
        return self._kept_sibling("inserted", key, partial(self._layout.inserted, *key))

    def staggered(self, axis: Sequence[int] | int) -> Pencil:
        """Return the pencil of the faces between the points along one axis or several.

        Face ``i`` is on the low side of point ``i``, and the last one on the high side of the last
        point: there is one face more than points. Blocks begin at the same index on every rank, and
        the last block that is not empty has the additional face. Therefore ``u.shift(...,
        onto=...)`` moves from points to faces and back without communication. Along a periodic axis
        the last face is the first one, hence there are as many as points and nothing changes.
        *Collective*.

        Parameters
        ----------
        axis : int or sequence of int
            Dimensions along which the new points are between the old ones.

        Returns
        -------
        Pencil
            The pencil of the faces, on the same communicator.

        Raises
        ------
        ArgumentError, TypeError, RankDisagreementError
            On every rank, if there is no such dimension, or ranks pass different ones.

        Examples
        --------
        >>> pen = Pencil((8, 6), periodic=(False, True))
        >>> pen.staggered(0).shape, pen.staggered((0, 1)).shape
        ((9, 6), (9, 6))
        """
        with agreed(self._topology.comm, "Pencil.staggered") as agree:
            dims = as_dims("axis", axis, self.ndim)
            layout = self._layout.staggered(dims)
            agree(axis=sorted(dims), **layout.signature)
        return self.sibling(layout)

    def coarsen(
        self,
        factor: Sequence[int] | int = 2,
        *,
        centred: Sequence[str] | str = "cell",
        least: int | None = None,
    ) -> Pencil:
        """Return the pencil of a coarser grid, whose blocks follow those of this one. *Collective*.

        The coarse point ``i`` is on the process of the fine point ``factor * i``, therefore
        `pencils.solvers.restrict` and `pencils.solvers.prolong` move data between neighbours only.

        Parameters
        ----------
        factor : int or sequence of int, optional
            Points for each coarse point, for all dimensions or for each; 1 keeps a dimension.
        centred : {"cell", "vertex"} or sequence of these, optional
            With "cell", the coarse cell ``i`` consists of the fine cells from ``factor * i`` to
            ``factor * i + factor - 1``; extents are multiples of `factor`. With "vertex" it is the
            fine point ``factor * i``, and there are points on both ends, so that extents are
            multiples of `factor` plus 1, but multiples if the dimension is periodic. For
            ``pen.staggered(0)`` pass ``("vertex", "cell", "cell")``.
        least : int, optional
            Points of a block that remains where it is. While blocks have fewer on average, each
            second process along the dimension that is cut most gives its points to the one before
            it, until one process has all. 0: blocks always remain. Default: a number for which
            multigrid cycles were fastest.

        Returns
        -------
        Pencil
            The coarse pencil, on the same communicator, the same object at every call. Processes
            without points take part in collective calls. Its `coarsened` tells `factor` and
            `centred`.

        Raises
        ------
        ArgumentError, TypeError, RankDisagreementError
            On every rank, if an extent does not fit, an argument is not allowed, or ranks pass
            different ones.

        Examples
        --------
        >>> pen = Pencil((64, 32, 8))
        >>> pen.coarsen().shape, pen.coarsen((2, 2, 1)).shape
        ((32, 16, 4), (32, 16, 8))
        >>> pen.staggered(0).coarsen(centred=("vertex", "cell", "cell")).shape
        (33, 16, 4)
        """
        with agreed(self._topology.comm, "Pencil.coarsen") as agree:
            factors, kinds = read_levels(self.ndim, factor, centred)
            points = LEAST if least is None else as_int("least", least, least=0)
            agree(pencil=self, factor=factors, centred=kinds, least=points)
            return self.level(factors, kinds, points)

    def level(self, factors: Sequence[int], centred: Sequence[str], least: int = 0) -> Pencil:
        """Return the pencil of `coarsen` for arguments that are normalized; local."""
        make = partial(coarse_layout, self._layout, factors, centred, least)
        return self._kept_sibling("level", (*factors, *centred, least), make)

    @property
    def coarsened(self) -> tuple[tuple[int, str], ...]:
        """Factor and centring along each dimension, if `coarsen` has made it; else empty."""
        return self._layout.coarsened

    def section(self, key: object) -> Pencil:
        """Return the pencil of some of the points, each of which stays on its process.

        It is that of the field ``u[key]``. Dimensions that the key cuts are not periodic in it.
        Nothing is communicated.

        Parameters
        ----------
        key : int, slice, Ellipsis, or tuple of these
            Global indices of the points. Dimensions with an integer keep one point. Negative steps
            are for dimensions that are not decomposed.

        Returns
        -------
        Pencil
            The pencil of these points: this one if they are all. Fields on sections of different
            points do not combine.

        Raises
        ------
        IndexError, TypeError
            If an index is out of range, or neither an integer, a slice nor Ellipsis.
        ArgumentError
            If a step along a decomposed dimension is negative.

        Examples
        --------
        >>> pen = Pencil((8, 6), periodic=True)
        >>> pen.section((slice(1, -1), 2)).shape, pen.section(slice(1, -1)).periodic
        ((6, 1), (False, True))
        """
        return self.part(Selection.from_key(key, self.shape).ranges)

    def part(self, ranges: tuple[range, ...]) -> Pencil:
        """Return the pencil of the points in these ranges, one for each dimension; local."""
        if all(kept == range(n) for kept, n in zip(ranges, self._shape, strict=True)):
            return self
        for dim in self.decomp:
            if ranges[dim].step < 0 and len(ranges[dim]) > 1:
                raise ArgumentError(
                    f"step {ranges[dim].step} along dimension {dim} is negative, but the "
                    f"dimension is decomposed; write np.flip(u, {dim}), which moves the points"
                )
        whole = self._whole or self._layout
        make = partial(self._layout.section, ranges)
        return self._kept_sibling("section", ranges, make, whole)

    def along(self, dims: frozenset[int], other: Pencil) -> Pencil | None:
        """Return the pencil that is `other` along `dims`, and this one along the rest; local.

        None if their processes are not along the same dimensions.
        """
        mine, theirs = self._layout, other._layout
        if (mine.grid, mine.decomp) != (theirs.grid, theirs.decomp) or not self.same_ranks(other):
            return None
        whole = None
        if self._whole or other._whole:
            whole = (self._whole or mine).along(dims, other._whole or theirs)
        return self.sibling(mine.along(dims, theirs), whole)

    def uncut(self, dims: frozenset[int]) -> Pencil:
        """Return the pencil that has all points of the whole along `dims`; local."""
        whole = self._whole
        if whole is None or not dims:
            return self
        make = partial(self._layout.along, dims, whole)
        return self._kept_sibling("uncut", dims, make, whole)

    def whole(self, axis: int | Sequence[int]) -> Pencil:
        """Return the pencil on which lines along an axis are whole: on one process each.

        The processes along `axis` cut another dimension instead: only these exchange data in a
        transpose. If there are several dimensions to choose from, those are preferred that leave no
        process without points, blocks of equal size, and long runs in memory. If all dimensions are
        decomposed, another one is cut by more processes; if there is no other, the first process
        has all points. Periodicity, memory order and split rules are kept. Several axes are whole
        together, planes for instance; then all others are decomposed.

        A dimension is whole if it is not decomposed, or if explicit bounds give all its points to
        one process. This does not depend on the number of processes. Nothing is communicated.

        Parameters
        ----------
        axis : int or sequence of int
            Dimension of the grid, in ``[-ndim, ndim)``, or several.

        Returns
        -------
        Pencil
            The pencil: this one if lines are whole on it, else the same object at every call. That
            of a section is cut anew, and knows the points of the section.

        Raises
        ------
        ArgumentError, TypeError
            If there is no such dimension.

        Examples
        --------
        >>> pen = Pencil((64, 48, 32))
        >>> pen.decomp, pen.whole(0).decomp, pen.whole(1).decomp, pen.whole(2) is pen
        ((0, 1), (2, 1), (0, 2), True)
        """
        dims, layout = as_dims("axis", axis, self.ndim), self._layout
        if all(is_whole(layout, dim) for dim in dims):
            return self
        return self._kept_sibling("whole lines", dims, partial(whole_layout, layout, *dims))

    def _kept_sibling(
        self, kind: str, key: object, make: Callable[[], Layout], whole: Layout | None = None
    ) -> Pencil:
        """Return the pencil that is kept for a key, or make it."""
        found: Pencil | None = self.kept[kind].get(key)
        if found is None:
            found = self.sibling(make(), whole)
            self.kept[kind].add(key, found)
        return found

    def sibling(self, layout: Layout, whole: Layout | None = None) -> Pencil:
        """Make a pencil of a layout on which all ranks agree, on this communicator; local.

        `whole`: the layout of which it is a section.
        """
        pencil = object.__new__(Pencil)
        pencil._set(self._comm, self._topology, layout, whole)
        return pencil

    @property
    def shape(self) -> tuple[int, ...]:
        """Global number of points along each dimension."""
        return self._shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    @property
    def comm(self) -> MPI.Intracomm:
        """The communicator given by the user, or its processes in the order of their nodes."""
        return self._comm

    @property
    def topology(self) -> Topology:
        """The private communicators of this pencil."""
        return self._topology

    @property
    def layout(self) -> Layout:
        """The layout: the arithmetic of this pencil for any rank, without communicator."""
        return self._layout

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return self._topology.rank

    @property
    def size(self) -> int:
        """Number of processes."""
        return self._layout.size

    @property
    def decomp(self) -> tuple[int, ...]:
        """Decomposed dimensions, by axis of the process grid."""
        return self._layout.decomp

    @property
    def grid(self) -> tuple[int, ...]:
        """Processes along each entry of `decomp`."""
        return self._layout.grid.shape

    @property
    def coords(self) -> tuple[int, ...]:
        """Coordinates of this process in the process grid."""
        return self._layout.grid.coords(self.rank)

    @property
    def process_shape(self) -> tuple[int, ...]:
        """Processes along each dimension; 1 where it is not decomposed."""
        return self._layout.process_shape

    @property
    def order(self) -> tuple[int, ...]:
        """Memory order of the dimensions, slowest first."""
        return self._layout.order

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether each dimension wraps around."""
        return self._layout.periodic

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of the own block, in logical order; extents may be 0."""
        return self._box.shape

    @property
    def local_slices(self) -> tuple[slice, ...]:
        """Where the own block lies: ``global_array[pen.local_slices]``."""
        return self._box.slices()

    def box(self, rank: int | None = None) -> Box:
        """Return the own block of a rank (default: this one), in global indices.

        Raises
        ------
        ArgumentError, TypeError
            If there is no such rank.
        """
        return self._box if rank is None else self._layout.box(as_rank("rank", rank, self.size))

    def owner(self, index: Sequence[int]) -> int:
        """Return the rank that owns the point with global `index`, each entry in ``[0, shape)``.

        Raises
        ------
        IndexError
            If the index lies outside the global shape.
        """
        return self._layout.owner(as_ints("index", index))

    def to_local(self, index: Sequence[int]) -> tuple[int, ...]:
        """Convert a global index to a position in the own block.

        Raises
        ------
        NotLocalError
            If this rank does not own it; the message names the owner.
        """
        here = as_ints("index", index)
        if (owner := self.owner(here)) != self.rank:
            raise NotLocalError(f"index {here} is owned by rank {owner}, not by rank {self.rank}")
        return tuple(i - lo for i, lo in zip(here, self._box.start, strict=True))

    def to_global(self, index: Sequence[int]) -> tuple[int, ...]:
        """Convert a position in the own block, within ``[0, local_shape)``, to a global index.

        Raises
        ------
        IndexError
            If the position lies outside the own block.
        """
        here = as_ints("index", index)
        if len(here) != self.ndim or here not in Box.of_shape(self.local_shape):
            raise IndexError(
                f"local index {here} is outside the own block of shape {self.local_shape}"
            )
        return tuple(i + lo for i, lo in zip(here, self._box.start, strict=True))

    def neighbor(self, offset: Sequence[int]) -> int | None:
        """Return the rank whose block lies `offset` blocks away along each dimension.

        Diagonals are allowed; periodic dimensions wrap. None beyond any other edge.

        Raises
        ------
        ArgumentError
            If `offset` does not have one entry per dimension.
        """
        steps = as_ints("offset", offset)
        if len(steps) != self.ndim:
            raise ArgumentError(
                f"offset={steps} must have one entry for each of {self.ndim} dimensions"
            )
        return self._layout.neighbor(self.rank, steps)

    def extent(self, singletons: frozenset[int]) -> Extent:
        """Return layout and own block of fields with the given singleton dimensions."""
        found: Extent | None = self.kept["extent"].get(singletons)
        if found is None:
            found = self._layout.with_singletons(singletons).extent(self.rank)
            self.kept["extent"].add(singletons, found)
        return found

    def same_blocks(self, other: Pencil) -> bool:
        """Whether both give every rank the same block.

        They may differ in memory order, in what is periodic, and in axes of the process grid that
        have one process.
        """
        return self is other or (self._layout.same_blocks(other._layout) and self.same_ranks(other))

    def shares_blocks(self, other: Pencil) -> bool:
        """Whether blocks of both begin at the same points, as those of `staggered` pencils do."""
        return self._layout.shares_blocks(other._layout) and self.same_ranks(other)

    def same_ranks(self, other: Pencil) -> bool:
        """Whether both use the same processes in the same order."""
        mine, others = self._topology, other._topology
        return mine is others or congruent(mine.comm, others.comm)

    def canonical_form(self) -> object:
        """Return the encoded layout, the same for equal layouts on any communicator."""
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        return encoded(self._layout)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Pencil):
            return NotImplemented
        return self._layout == other._layout and self.same_ranks(other)

    def __hash__(self) -> int:
        return self._hash

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, "_text"):
            raise AttributeError(f"a Pencil is frozen; make another one with pen.with_({name}=...)")
        super().__setattr__(name, value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Pencil cannot be pickled: its communicator exists in this process only")

    def __copy__(self) -> Pencil:
        return self

    def __deepcopy__(self, memo: object) -> Pencil:
        return self

    def __repr__(self) -> str:
        return self._text

    def __str__(self) -> str:
        return self._layout.describe(self.rank)

    def _repr_html_(self) -> str:
        """Return a table and a picture for notebooks; local."""
        blocks = Blocks(self.extent(frozenset()))
        wrapped = ", ".join(str(dim) for dim, wraps in enumerate(self.periodic) if wraps)
        rows = [
            ("", "all ranks", f"rank {self.rank} of {self.size}"),
            ("shape", *blocks.shapes),
            ("points", f"{prod(self.shape):,}", f"{blocks.extent.box.volume:,}"),
            ("indices", "", blocks.indices),
            ("process grid", blocks.grid),
            ("periodic", f"along {wrapped}" if wrapped else "nowhere"),
            ("in memory", f"dimensions {self.order}, slowest first"),
        ]
        return card("Pencil", rows, svg(self._layout, self.rank))


explain_words(Pencil, PENCILS)


def _check_placement(placement: str) -> str:
    if placement not in ["rank", "node"]:  # a list also accepts values that cannot be hashed
        raise ArgumentError(f"placement must be 'rank' or 'node', not {placement!r}")
    return placement
