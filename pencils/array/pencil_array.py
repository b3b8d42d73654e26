"""PencilArray: a field that is global in meaning and local in storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import DTypeLike

from pencils.array import display, distarray, numpy_api, pointwise, reductions, stencil
from pencils.array.allocation import (
    Array,
    HaloSpec,
    Widths,
    allocate,
    around,
    padded_shape,
    read_dtype,
    read_halo,
    read_singletons,
    read_value,
)
from pencils.array.debug import checks, mark_written
from pencils.array.indexing import get_selection, set_selection
from pencils.array.operands import Field, check_type
from pencils.array.operators import Operators
from pencils.array.reductions import pairs
from pencils.errors import ArgumentError
from pencils.halo import boundary, verbs
from pencils.layout import margins
from pencils.layout.make import read_ints
from pencils.pencil import Extent, Pencil


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
        "_margins",
        "_padded",
        "_pencil",
        "_singletons",
        "_trimmed",
    )
    _extent: Extent
    _halo: Widths
    _local: Array
    _margins: Widths
    _padded: Array
    _pencil: Pencil
    _singletons: frozenset[int]
    _trimmed: frozenset[int]

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
        trimmed: frozenset[int] = frozenset(),
    ) -> PencilArray:
        """Wrap a block that is known to fit, without the checks of the constructor."""
        array = object.__new__(cls)
        array._set(pencil, padded, singletons, halo, trimmed)
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
        self,
        pencil: Pencil,
        padded: Array,
        singletons: frozenset[int],
        halo: Widths | None,
        trimmed: frozenset[int] = frozenset(),
    ) -> None:
        self._pencil = pencil
        self._padded = padded
        self._singletons = singletons
        self._extent = extent = pencil.extent(singletons)
        self._halo = room = halo or ((0, 0),) * pencil.ndim
        if trimmed:
            room = margins(extent.box, extent.shape, room, trimmed)
        self._margins = room
        self._trimmed = trimmed
        if halo is None or not any(map(any, halo)):
            self._local = padded
        else:
            inside: list[Any] = [
                slice(lo, lo + n) for (lo, _), n in zip(room, extent.local_shape, strict=True)
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
        """Halo widths ``(lo, hi)`` of every space dimension, the same on all ranks."""
        return self._halo

    @property
    def trimmed(self) -> frozenset[int]:
        """Space dimensions along which padded blocks end where the domain ends.

        Fields that were imported have no room there for boundary points and wrapped ghosts; what
        pencils makes itself, ``u.copy()`` too, is trimmed nowhere.
        """
        return self._trimmed

    @property
    def margins(self) -> Widths:
        """Room of `padded` around the own block: `halo`, if not cut off because of `trimmed`."""
        return self._margins

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
    interior = property(stencil.interior)
    shells = property(stencil.shells)

    def copy(self) -> PencilArray:
        """Copy of the field, halo included; where this is trimmed, the copy has unset points."""
        new = self.blank()
        np.copyto(self._room_in(new), self._padded)
        return new

    def astype(self, dtype: DTypeLike) -> PencilArray:
        """Copy converted to another element type, halo included."""
        new = self.blank(dtype)
        np.copyto(new.local, self._local, casting="unsafe")
        if self._padded is not self._local:
            with np.errstate(invalid="ignore", over="ignore"):  # ghosts may not be set yet
                np.copyto(self._room_in(new), self._padded, casting="unsafe")
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
            self._pencil, view(self._padded), self._singletons, self._halo, self._trimmed
        )

    def _room_in(self, blank: PencilArray) -> Array:
        """View that part of a field like this one, trimmed nowhere, for which this has room."""
        return blank.padded[around(self._extent.local_shape, self._halo, self._margins)]

    # Global indices.

    def __getitem__(self, key: object) -> Any:
        """Local part of a global basic selection: see `pencils.array.indexing.get_selection`."""
        if key is Ellipsis:
            return self._local
        return get_selection(self, key)

    def __setitem__(self, key: object, value: object) -> None:
        """Assign where this rank owns it: see `pencils.array.indexing.set_selection`."""
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

    take = pointwise.take
    put = pointwise.put

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

    from_distarray = classmethod(distarray.from_distarray)
    __distarray__ = distarray.export

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

    __repr__ = display.describe

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
