"""PencilArray: a field that is global in meaning and local in storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
from numpy.typing import DTypeLike

from pencils import numpy_api, reductions, stencil
from pencils.checking import checks, mark_written
from pencils.errors import ArgumentError
from pencils.halo import boundary, verbs
from pencils.indexing import get_selection, set_selection
from pencils.layout import Box, interior
from pencils.layout.make import read_ints
from pencils.operands import Field, check_type
from pencils.operators import Operators
from pencils.pencil import Extent, Pencil
from pencils.reductions import pairs
from pencils.storage import (
    Array,
    HaloSpec,
    Key,
    Widths,
    allocate,
    padded_shape,
    read_dtype,
    read_halo,
    read_singletons,
    read_value,
)

if TYPE_CHECKING:
    from pencils.indexer import PointIndexer, ReduceOp

_SHOWN = 4  # values in the repr


class PencilArray(Field, Operators):
    """A field on the grid of a pencil, of which this rank stores its own block.

    ``u.shape`` is the global shape; ``u.local`` is the own block, a NumPy array. NumPy ufuncs work
    elementwise and never communicate; reductions such as ``u.sum()`` are global. Replicated NumPy
    arrays take part by their global shape: ``u * np.hanning(nz)``.

    Parameters
    ----------
    pencil : Pencil
        Where the points live.
    local_data : array_like
        The block of this rank, of shape ``components + own block + halo`` in logical order, of any
        strides. It is adopted, not copied.
    halo : int, sequence of int, or sequence of (int, int), optional
        Widths of the halo that `local_data` includes.
    dims : int or sequence of int, optional
        Dimensions along which the field varies; along the others it is a singleton: it has global
        extent 1 and every process along them holds the same values. Default: all.

    Raises
    ------
    ArgumentError, TypeError
        If the data do not have the shape of the block, or hold Python objects.

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((4, 6))
    >>> u = PencilArray(pen, np.ones(pen.local_shape))
    >>> (2 * u + 1).sum() / u.size
    np.float64(3.0)
    """

    __slots__ = (
        "__weakref__",
        "_extent",
        "_halo",
        "_local",
        "_padded",
        "_pencil",
        "_singletons",
    )
    _extent: Extent
    _halo: Widths
    _local: Array
    _padded: Array
    _pencil: Pencil
    _singletons: frozenset[int]

    def __init__(
        self,
        pencil: Pencil,
        local_data: object,
        *,
        halo: HaloSpec = 0,
        dims: Sequence[int] | int | None = None,
    ) -> None:
        check_type("pencil", pencil, Pencil)
        data = np.asarray(local_data)
        read_dtype(data.dtype)
        singletons = read_singletons(pencil.ndim, dims)
        widths = read_halo(halo, pencil.ndim, singletons)
        components = data.shape[: max(0, data.ndim - pencil.ndim)]
        expected = padded_shape(pencil, components, singletons, widths)
        if data.shape != expected:
            msg = (
                f"local data of shape {data.shape} do not fit rank {pencil.rank}, whose block with "
                f"halo has shape {expected[len(components) :]}; use partition() for global data"
            )
            raise ArgumentError(msg)
        self._set(pencil, data, singletons, widths)

    @classmethod
    def from_block(
        cls,
        pencil: Pencil,
        padded: Array,
        singletons: frozenset[int] = frozenset(),
        halo: Widths | None = None,
    ) -> PencilArray:
        """Wrap a block that is known to fit, without the checks of the constructor."""
        array = object.__new__(cls)
        array._set(pencil, padded, singletons, halo)
        return array

    @classmethod
    def allocated(
        cls,
        pencil: Pencil,
        dtype: np.dtype[Any],
        components: tuple[int, ...] = (),
        singletons: frozenset[int] = frozenset(),
        halo: Widths | None = None,
        **memory: bool,
    ) -> PencilArray:
        """Make a field from arguments that are normalised; `memory` as in `storage.allocate`."""
        widths = halo or ((0, 0),) * pencil.ndim
        block = allocate(pencil, dtype, components, singletons, widths, **memory)
        return cls.from_block(pencil, block, singletons, widths)

    def _set(
        self, pencil: Pencil, padded: Array, singletons: frozenset[int], halo: Widths | None
    ) -> None:
        self._pencil = pencil
        self._padded = padded
        self._singletons = singletons
        self._extent = pencil.extent(singletons)
        self._halo = halo or ((0, 0),) * pencil.ndim
        if halo is None or not any(map(any, halo)):
            self._local = padded
        else:
            inside: list[Any] = [
                slice(lo, lo + n) for (lo, _), n in zip(halo, self._extent.local_shape, strict=True)
            ]
            self._local = padded[(Ellipsis, *inside)]

    # What it is. Nothing below this line communicates, up to the reductions.

    @property
    def pencil(self) -> Pencil:
        """Where the points live."""
        return self._pencil

    @property
    def extent(self) -> Extent:
        """Layout and own block of this field, its singleton dimensions included."""
        return self._extent

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape: components first, singleton dimensions as 1."""
        return self.components + self._extent.shape

    @property
    def ndim(self) -> int:
        """Number of axes, components included."""
        return self._padded.ndim

    @property
    def size(self) -> int:
        """Global number of elements, each replica counted once."""
        return prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self._padded.dtype

    @property
    def components(self) -> tuple[int, ...]:
        """Shape of the leading axes that are not space."""
        return self._padded.shape[: self._padded.ndim - self._pencil.ndim]

    @property
    def singletons(self) -> frozenset[int]:
        """Space dimensions along which the field has extent 1 and is replicated."""
        return self._singletons

    @property
    def halo(self) -> Widths:
        """Halo widths ``(lo, hi)`` of every space dimension."""
        return self._halo

    @property
    def local(self) -> Array:
        """The own block, without halo: a NumPy view in logical order."""
        return self._local

    @local.setter
    def local(self, values: object) -> None:
        if values is not self._local:  # after ``u.local += 1`` it is
            self._local[...] = values
        if checks.on:
            mark_written(self)

    @property
    def padded(self) -> Array:
        """The own block with its halo: a NumPy view in logical order."""
        return self._padded

    @padded.setter
    def padded(self, values: object) -> None:
        if values is not self._padded:
            self._padded[...] = values

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of `local`."""
        return self._local.shape

    @property
    def local_slices(self) -> tuple[slice, ...]:
        """Where the own block lies: ``global_array[u.local_slices]`` equals ``u.local``."""
        return (*(slice(0, n) for n in self.components), *self._extent.box.slices())

    @property
    def real(self) -> PencilArray:
        """Real part, a view."""
        return self._map_block(lambda block: block.real)

    @property
    def imag(self) -> PencilArray:
        """Imaginary part, a view."""
        return self._map_block(lambda block: block.imag)

    def component(self, *index: int) -> PencilArray:
        """One component as a field of its own, a view with the same halo.

        Parameters
        ----------
        *index : int
            Index along each component axis, or along the first few.

        Raises
        ------
        IndexError
            If there are fewer component axes, or the index is out of range.
        """
        key = read_ints("component", index)
        if len(key) > len(self.components):
            msg = f"component {key} of a field with component axes {self.components}"
            raise IndexError(msg)
        return self._map_block(lambda block: block[key])

    def unstack(self) -> list[PencilArray]:
        """List the fields along the first component axis, as views: ``ux, uy, uz = u.unstack()``.

        Raises
        ------
        IndexError
            If there is no component axis.
        """
        if not self.components:
            msg = "a field without component axes cannot be unstacked"
            raise IndexError(msg)
        return [self.component(i) for i in range(self.components[0])]

    shift = stencil.shift

    @property
    def interior(self) -> Key:
        """Index of `local` for the points whose stencil stays in the own block.

        The stencil is as wide as the halo. These points need no ghosts, so that they can be
        computed while an exchange is under way; `shells` are the rest. The interior is empty
        where the block is too thin.

        Examples
        --------
        >>> import pencils
        >>> u = pencils.zeros(pencils.Pencil((6, 8)), halo=[1, (0, 2)])
        >>> u.interior
        (Ellipsis, slice(1, 5, None), slice(0, 6, None))
        >>> new = np.empty(u.local_shape)
        >>> for part in (u.interior, *u.shells):
        ...     new[part] = u.shift((1, 0)).local[part]
        """
        return (Ellipsis, *interior(self._extent.local_shape, self._halo).slices())

    @property
    def shells(self) -> list[Key]:
        """Indices of `local` for the points outside the `interior`: each once, none empty."""
        shape = self._extent.local_shape
        outside = Box.of_shape(shape).without(interior(shape, self._halo))
        return [(Ellipsis, *box.slices()) for box in outside]

    def copy(self) -> PencilArray:
        """Copy of the field, halo included."""
        new = self.blank()
        np.copyto(new.padded, self._padded)
        return new

    def astype(self, dtype: DTypeLike) -> PencilArray:
        """Copy converted to another element type, halo included."""
        new = self.blank(dtype)
        np.copyto(new.local, self._local, casting="unsafe")
        if self._padded is not self._local:
            with np.errstate(invalid="ignore", over="ignore"):  # ghosts may not be set yet
                np.copyto(new.padded, self._padded, casting="unsafe")
        return new

    def fill(self, value: object) -> None:
        """Set every own point and every halo point to one `value`."""
        self._padded[...] = read_value("value", value, self.dtype)

    def conj(self) -> PencilArray:
        """Complex conjugate."""
        return cast("PencilArray", np.conjugate(self))

    def blank(self, dtype: DTypeLike | None = None) -> PencilArray:
        """Make a field like this one, of another type if given, whose values are not set."""
        kind = self.dtype if dtype is None else read_dtype(dtype)
        return PencilArray.allocated(
            self._pencil, kind, self.components, self._singletons, self._halo
        )

    def _map_block(self, view: Callable[[Array], Array]) -> PencilArray:
        return PencilArray.from_block(
            self._pencil, view(self._padded), self._singletons, self._halo
        )

    # Global indices.

    def __getitem__(self, key: object) -> Any:
        """Local part of a global basic selection: see `pencils.indexing.get_selection`."""
        if key is Ellipsis:
            return self._local
        return get_selection(self, key)

    def __setitem__(self, key: object, value: object) -> None:
        """Assign where this rank owns it: see `pencils.indexing.set_selection`."""
        set_selection(self, key, value)
        if checks.on:
            mark_written(self)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> NoReturn:
        msg = (
            "a PencilArray is not iterable: its planes live on different ranks. Loop over "
            "u.unstack() for components, over u.local for the own block"
        )
        raise TypeError(msg)

    def take(self, coords: Sequence[Any], out: Any = None) -> Array:
        """Read any points, wherever they live: ``global_array[..., i, j, k]``. *Collective*.

        A plan for the same points again and again is made by `Pencil.indexer`.

        Parameters
        ----------
        coords : sequence of array_like of int
            Global coordinates along each space dimension, in ``[0, shape)``, which broadcast to
            each other. Other ones on every process, perhaps none; points may come twice.
        out : numpy.ndarray, optional
            Contiguous array to fill, of shape ``u.components`` + that of the coordinates.

        Returns
        -------
        numpy.ndarray
            `out`, or a new array.

        Raises
        ------
        IndexError, ArgumentError, TypeError
            On every rank, if an argument does not fit on any.

        Examples
        --------
        >>> import pencils
        >>> u = pencils.from_function(pencils.Pencil((4, 6)), lambda i, j: 10 * i + j)
        >>> u.take(([3, 0], [1, 5]))
        array([31,  5])
        """
        with self._indexer(coords) as plan:
            return plan.take(self, out)

    def put(self, coords: Sequence[Any], values: Any, *, reduce: ReduceOp | None = None) -> None:
        """Write to any points, wherever they live. *Collective*.

        Parameters
        ----------
        coords : sequence of array_like of int
            Global coordinates, as for `take`.
        values : array_like
            What broadcasts to ``u.components`` + the shape of the coordinates.
        reduce : ReduceOp, optional
            How values for one point, and the one that is there, are combined. Default: the last
            one stays, in the order of ranks and, on each of them, of coordinates.

        Raises
        ------
        IndexError, ArgumentError, TypeError
            On every rank, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> import pencils
        >>> u = pencils.zeros(pencils.Pencil(4))
        >>> u.put([[2, 0, 2]], [1.0, 3.0, 5.0], reduce=pencils.ReduceOp.SUM)
        >>> u.local
        array([3., 0., 6., 0.])
        """
        with self._indexer(coords) as plan:
            plan.put(self, values, reduce=reduce)

    def _indexer(self, coords: Sequence[Any]) -> PointIndexer:
        dims = [dim for dim in range(self._pencil.ndim) if dim not in self._singletons]
        return self._pencil.indexer(coords, dims=dims)

    # NumPy.

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        msg = (
            "a PencilArray does not turn into a NumPy array by itself: take u.local for the own "
            "block, or gather(u) for the global array"
        )
        raise TypeError(msg)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return numpy_api.apply_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        return numpy_api.apply_function(func, args, kwargs)

    def __distarray__(self) -> dict[str, Any]:
        """Export by the Distributed Array Protocol 0.10: see `pencils.dap.export`."""
        from pencils.dap import export  # which stands on this module

        return export(self)

    def __bool__(self) -> NoReturn:
        msg = (
            "the truth value of a field is ambiguous; use u.any() or u.all(), which are collective"
        )
        raise ValueError(msg)

    def __reduce__(self) -> NoReturn:
        msg = "a PencilArray cannot be pickled: save() it, or send u.local"
        raise TypeError(msg)

    def __copy__(self) -> PencilArray:
        return self.copy()

    def __deepcopy__(self, memo: object) -> PencilArray:
        return self.copy()

    def __repr__(self) -> str:
        pencil, box = self._pencil, self._extent.box
        owned = ", ".join(f"{lo}:{hi}" for lo, hi in zip(box.start, box.stop, strict=True))
        extras = [f"components {self.components}"] if self.components else []
        extras += [f"singleton dimensions {sorted(self._singletons)}"] if self._singletons else []
        extras += [f"halo {self._halo}"] if any(map(any, self._halo)) else []
        first = list(map(str, self._local.flat[:_SHOWN]))
        more = ["..."] if self._local.size > _SHOWN else []
        lines = (
            f"<PencilArray {self.shape} {self.dtype}{''.join(', ' + extra for extra in extras)}>",
            f"  on {pencil!r}",
            f"  rank {pencil.rank} of {pencil.size} owns [{owned}], local shape {self.local_shape}",
            " ".join(("  local values", *first, *more)),
        )
        return "\n".join(lines)

    # Reductions: collective, and global.

    sum = reductions.sum
    prod = reductions.prod
    min = reductions.min
    max = reductions.max
    mean = reductions.mean
    var = reductions.var
    std = reductions.std
    any = reductions.any
    all = reductions.all
    argmin = reductions.argmin
    argmax = reductions.argmax
    norm = reductions.norm
    vdot = pairs.vdot

    # Halos: ghosts by communication, boundary points without.

    exchange_halo = verbs.exchange_halo
    start_halo_exchange = verbs.start_halo_exchange
    accumulate_halo = verbs.accumulate_halo
    fill_boundary = boundary.fill_boundary
