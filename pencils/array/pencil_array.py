"""PencilArray: a field that is global in meaning and local in storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, SupportsIndex, cast

import numpy as np
from numpy.typing import DTypeLike

from pencils.array import indexing, numpy_api, provided, reductions, shifts, signatures, verbs
from pencils.array.allocation import (
    Array,
    HaloLike,
    Key,
    as_dtype,
    as_halo,
    as_singletons,
    frame_of,
    padded_shape,
    plain_array,
)
from pencils.array.elementwise import Operators, compute
from pencils.array.operands import check_type, topology_among
from pencils.array.signatures import Axes, Element
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError
from pencils.errors.missing import FIELDS, Missing, explain_words
from pencils.layout import Box, interior
from pencils.pencil import Pencil

# Attributes for other parts of the library.
_INTERNAL = {"kept", "lent", "look", "shifts"}

# What type checkers know of functions of NumPy is about arrays.
_np: Any = np


class PencilArray(Operators, Generic[Element]):
    """A field on the grid of a pencil, of which this rank stores its own block.

    ``u.shape`` is the global shape; ``u.local`` is the own block, a NumPy array. NumPy ufuncs work
    elementwise and never communicate; reductions such as ``u.sum()`` are global. Replicated NumPy
    arrays take part by their global shape: ``u * np.hanning(nz)``.

    Making one of local data is *Collective*: all ranks agree that each block fits, with the same
    components, halo and element type.

    Parameters
    ----------
    pencil : Pencil
        The decomposed grid.
    local_data : array_like
        The block of this rank, of shape ``components + own block + halo`` in logical order, of any
        strides. It is used without a copy.
    halo : int, sequence of int, or sequence of (int, int), optional
        Widths of the halo that `local_data` includes; those along singletons are ignored.
    dims : int or sequence of int, optional
        Dimensions along which the field varies; along the others it is a singleton: it has global
        extent 1 and every process along them holds the same values. Default: all.

    Raises
    ------
    ArgumentError, RankDisagreementError, TypeError
        On every rank, if the data of any do not have the shape of the block, or hold Python
        objects, or arguments or element types differ between ranks.

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((4, 6))
    >>> u = PencilArray(pen, np.ones(pen.local_shape))
    >>> (2 * u + 1).sum() / u.size
    np.float64(3.0)
    """

    __slots__ = ()

    def __init__(
        self,
        pencil: Pencil,
        local_data: object,
        *,
        halo: HaloLike = 0,
        dims: Sequence[int] | int | None = None,
    ) -> None:
        with agreed(topology_among(pencil).comm, "PencilArray") as agree:
            check_type("pencil", pencil, Pencil)
            agree(pencil=pencil)
            data = plain_array(local_data)
            singletons = as_singletons(pencil.ndim, dims)
            widths = as_halo(halo, pencil.ndim, singletons)
            components = data.shape[: max(0, data.ndim - pencil.ndim)]
            expected = padded_shape(pencil, components, singletons, widths)
            if data.shape != expected:
                raise ArgumentError(
                    f"local data of shape {data.shape} do not fit rank {pencil.rank}, whose block "
                    f"with halo has shape {expected[len(components) :]}; use partition() for "
                    "global data"
                )
            agree(components=components, halo=widths, singletons=sorted(singletons))
            agree.dtype(as_dtype(data.dtype))
        frame = frame_of(pencil, singletons, widths)
        self._pencil, self._frame, self._kind, self._padded = pencil, frame, None, data
        self._local = data if frame.inside is None else data[frame.inside]

    shift = shifts.shift

    @property
    def interior(self) -> Key:
        """Index of `local` for the points whose stencil stays in the own block.

        The stencil is as wide as the halo. These points need no ghosts and can be computed during
        an exchange; `shells` are the rest. The interior is empty where the block is too thin.

        Examples
        --------
        >>> import numpy as np, pencils
        >>> u = pencils.zeros(pencils.Pencil((6, 8)), halo=[1, (0, 2)])
        >>> u.interior
        (Ellipsis, slice(1, 5, None), slice(0, 6, None))
        >>> new = np.empty(u.local_shape)
        >>> for part in (u.interior, *u.shells):
        ...     new[part] = u.shift((1, 0)).local[part]
        """
        return (Ellipsis, *interior(self.extent.local_shape, self.halo).slices())

    @property
    def shells(self) -> list[Key]:
        """Indices of `local` for the points outside the `interior`: each once, none empty."""
        shape = self.extent.local_shape
        outside = Box.of_shape(shape).without(interior(shape, self.halo))
        return [(Ellipsis, *box.slices()) for box in outside]

    # Methods of NumPy arrays.

    @property
    def nbytes(self) -> int:
        """Global number of bytes of all elements, each replica counted once."""
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def conj(self) -> Self:
        """Return the complex conjugate."""
        return cast("Self", _np.conjugate(self))

    conjugate = conj

    def clip(
        self, min: Any = None, max: Any = None, out: Self | None = None, **options: Any
    ) -> Self:
        """Limit values to an interval, as `numpy.clip`; never communicates.

        Parameters
        ----------
        min, max : array_like or PencilArray, optional
            Ends of the interval; None for no end.
        out : PencilArray, optional
            Field to fill.
        **options
            Further arguments of `numpy.clip`.

        Examples
        --------
        >>> import pencils
        >>> u = pencils.from_function(pencils.Pencil(4), lambda i: i)
        >>> u.clip(1, 2).local
        array([1, 1, 2, 2])
        """
        return cast("Self", _np.clip(self, min, max, out=out, **options))

    def round(self, decimals: int = 0, out: Self | None = None) -> Self:
        """Round values to some decimals, as `numpy.round`; never communicates."""
        return cast("Self", _np.round(self, decimals, out))

    def sort(
        self,
        axis: int = -1,
        kind: Any = None,
        order: str | Sequence[str] | None = None,
        *,
        stable: bool | None = None,
    ) -> None:
        """Sort in place along an axis. *Collective* along decomposed dimensions.

        Along these by two transposes, as `numpy.sort`; else nothing is communicated.

        Parameters
        ----------
        axis : int, optional
            Axis of the global shape, default the last one.
        kind, order, stable
            As in `numpy.sort`.

        Examples
        --------
        >>> import pencils
        >>> u = pencils.from_function(pencils.Pencil((2, 3)), lambda i, j: i - j)
        >>> u.sort(axis=1)
        >>> u.local
        array([[-2, -1,  0],
               [-1,  0,  1]])
        """
        _np.copyto(self, _np.sort(self, axis, kind, order, stable=stable))

    def argsort(
        self,
        axis: int = -1,
        kind: Any = None,
        order: str | Sequence[str] | None = None,
        *,
        stable: bool | None = None,
    ) -> Self:
        """Return positions that sort along an axis, as `numpy.argsort`. *Collective* as `sort`."""
        return cast("Self", _np.argsort(self, axis, kind, order, stable=stable))

    def cumsum(
        self, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
    ) -> Self:
        """Sum the elements up to each one along an axis, as `numpy.cumsum`. *Collective*."""
        return cast("Self", _np.cumsum(self, axis, dtype, out))

    def cumprod(
        self, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
    ) -> Self:
        """Multiply the elements up to each one along an axis, as `numpy.cumprod`. *Collective*."""
        return cast("Self", _np.cumprod(self, axis, dtype, out))

    if not TYPE_CHECKING:  # a checker rejects what has no such attribute

        def __dlpack__(self, **_options: Any) -> NoReturn:
            """Raise a BufferError: other libraries take the own block."""
            raise BufferError(
                "a PencilArray is not exported by DLPack: its blocks are on different ranks; pass "
                "u.local"
            )

        __dlpack_device__ = __dlpack__

    # Global indices.

    __getitem__ = indexing.get_section
    __setitem__ = indexing.set_section
    item = indexing.item
    replicate = indexing.replicate

    def __dir__(self) -> list[str]:
        return [name for name in {*super().__dir__()} - _INTERNAL if hasattr(self, name)]

    def __len__(self) -> int:
        return self.shape[0]

    if not TYPE_CHECKING:  # a checker rejects what has no such method

        def __iter__(self) -> NoReturn:
            raise TypeError(
                "a PencilArray is not iterable: its planes are on different ranks. Loop over "
                "u.unstack() for components, over u.local for the own block"
            )

        def __contains__(self, value: object) -> NoReturn:
            raise TypeError(
                "whether a value is in a PencilArray depends on all ranks; write (u == value).any()"
                ", which is collective"
            )

        def __hash__(self) -> NoReturn:
            raise TypeError(
                "unhashable type: 'PencilArray', whose values change; write id(u) as a key for the "
                "object, u.pencil for its grid"
            )

        def __buffer__(self, flags: int, /) -> NoReturn:  # that Python asks since 3.12
            raise BufferError(
                "a PencilArray has no buffer: its blocks are on different ranks; write "
                "memoryview(u.local), or pass u.local"
            )

        __float__ = __int__ = __complex__ = indexing.refuse_number

        def __format__(self, how: str) -> str:
            return indexing.refuse_number(self) if how else str(self)

    whole = verbs.whole
    take_points = verbs.take_points
    put_points = verbs.put_points

    # NumPy.

    def __array__(self, dtype: object = None, copy: object = None) -> Array:  # as NumPy's stubs ask
        raise TypeError(
            "a PencilArray is not converted to a NumPy array implicitly: write u.local for the own "
            "block, pencils.gather(u) for the global array, numpy.stack([u, v]) for components, "
            "pencils.testing.assert_allclose(u, v) to compare in tests"
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__":
            found = compute(self, ufunc, inputs, kwargs)
            if found is not None:
                return found
        return numpy_api.apply_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return numpy_api.apply_function(func, args, kwargs)

    # The Distributed Array Protocol: see `pencils.dap`.

    __distarray__ = verbs.to_distarray

    @classmethod
    def from_distarray(
        cls,
        pencil: Pencil,
        obj: object,
        *,
        halo: Literal["keep", "drop", "wrap"] = "keep",
        lenient: bool = False,
    ) -> PencilArray:
        """Import an array by the Distributed Array Protocol onto a pencil. *Collective*.

        The array must have the blocks of the pencil; the result mixes with other fields of the
        pencil. Periodicity is that of the pencil. Leading dimensions beyond those of the pencil
        become components, dimensions of extent 1 singletons. `pencils.dap.import_array` makes a
        pencil that fits.

        Parameters
        ----------
        pencil : Pencil
            The decomposed grid.
        obj, halo, lenient
            As in `pencils.dap.import_array`. The exports of all processes are ordered by their
            coordinates, row-major: see `pencils.dap.comm`.

        Returns
        -------
        PencilArray
            A field on the memory of the exporter.

        Raises
        ------
        PencilMismatchError
            On every rank, if the array has other blocks.
        DAPError, RankDisagreementError, ArgumentError, TypeError
            As `pencils.dap.import_array`.

        Examples
        --------
        >>> import pencils
        >>> pen = pencils.Pencil((4, 6))
        >>> u = pencils.ones(pen)
        >>> v = pencils.PencilArray.from_distarray(pen, u.__distarray__())
        >>> (u + v).sum()
        np.float64(48.0)
        """
        field: PencilArray = provided("import_onto")(pencil, obj, halo=halo, lenient=lenient)
        return field

    def __bool__(self) -> NoReturn:
        raise ValueError(
            "the truth value of a field is ambiguous; call u.any(), u.all(), or u.item() for a "
            "field of one point. All are collective"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PencilArray cannot be pickled: save() it, or send u.local")

    def __copy__(self) -> PencilArray:
        return self.copy()

    def __deepcopy__(self, memo: object) -> PencilArray:
        return self.copy()

    # Reductions: collective, and global.

    sum = cast("signatures.Reducing[Any, PencilArray, Axes]", reductions.sum)
    prod = cast("signatures.Reducing[Any, PencilArray, Axes]", reductions.prod)
    min = cast("signatures.Reducing[Any, PencilArray, Axes]", reductions.min)
    max = cast("signatures.Reducing[Any, PencilArray, Axes]", reductions.max)
    mean = cast("signatures.Reducing[Any, PencilArray, Axes]", reductions.mean)
    var = cast("signatures.Reducing[Any, PencilArray, Axes]", reductions.var)
    std = cast("signatures.Reducing[Any, PencilArray, Axes]", reductions.std)
    ptp = cast("signatures.Reducing[Any, PencilArray, Axes]", reductions.ptp)
    any = cast("signatures.Reducing[np.bool, PencilArray, Axes]", reductions.any)
    all = cast("signatures.Reducing[np.bool, PencilArray, Axes]", reductions.all)
    argmin = cast("signatures.Reducing[np.intp, PencilArray, SupportsIndex]", reductions.argmin)
    argmax = cast("signatures.Reducing[np.intp, PencilArray, SupportsIndex]", reductions.argmax)
    norm = reductions.norm
    vdot = numpy_api.vdot

    # Halos: ghosts by communication, boundary points without.

    exchange_halo = verbs.exchange_halo
    start_halo_exchange = verbs.start_halo_exchange
    accumulate_halo = verbs.accumulate_halo
    fill_boundary = verbs.fill_boundary


def _explain(name: str) -> str:
    """Return what to write instead of an attribute of NumPy arrays."""
    text: str = provided("explain_attribute")(name)
    return text


for _name in set(dir(np.ndarray)) - set(dir(PencilArray)):
    if not _name.startswith("_"):
        setattr(PencilArray, _name, Missing(_name, _explain))
explain_words(PencilArray, FIELDS)
