"""PencilArray: a field that is global in meaning and local in storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, cast

import numpy as np

from pencils.array import (
    indexing,
    methods,
    numpy_api,
    pairs,
    provided,
    reductions,
    signatures,
    single,
    stencils,
    verbs,
)
from pencils.array.allocation import (
    Array,
    HaloLike,
    Key,
    as_dtype,
    as_halo,
    as_singletons,
    padded_shape,
    plain_array,
)
from pencils.array.direct import compute
from pencils.array.frame import frame_of
from pencils.array.operands import check_type, topology_among
from pencils.array.operators import Operators
from pencils.array.signatures import Element
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError
from pencils.pencil import Pencil

# Attributes for other parts of the library.
_INTERNAL = {"kept", "lent", "shifts"}


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
        self._set(pencil, frame_of(pencil, singletons, widths), data)

    shift = stencils.shift
    interior = cast("signatures.Reading[Key]", property(stencils.interior))
    shells = cast("signatures.Reading[list[Key]]", property(stencils.shells))

    # Methods of NumPy arrays.

    nbytes = cast("signatures.Reading[int]", property(methods.nbytes))
    itemsize = cast("signatures.Reading[int]", property(methods.itemsize))
    conj = conjugate = methods.conj
    clip = methods.clip
    round = methods.round
    sort = methods.sort
    argsort = methods.argsort
    cumsum = methods.cumsum
    cumprod = methods.cumprod

    if not TYPE_CHECKING:  # a checker rejects what has no such attribute
        __dlpack__ = __dlpack_device__ = methods.dlpack

    # Global indices.

    __getitem__ = indexing.get_section
    __setitem__ = indexing.set_section
    item = single.item
    replicate = single.replicate

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

        __float__ = __int__ = __complex__ = single.refuse_number

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
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
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

        The array must have the blocks of the pencil; the result mixes with other fields of the pencil.
        Periodicity is that of the pencil. Leading dimensions beyond those of the pencil become
        components, dimensions of extent 1 singletons. `pencils.dap.import_array` makes a pencil that
        fits.

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
            "the truth value of a field is ambiguous; use u.any(), u.all() or, for a field of one "
            "point, u.item(): they are collective"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PencilArray cannot be pickled: save() it, or send u.local")

    def __copy__(self) -> PencilArray:
        return self.copy()

    def __deepcopy__(self, memo: object) -> PencilArray:
        return self.copy()

    # Reductions: collective, and global.

    sum = cast("signatures.Total[PencilArray]", reductions.sum)
    prod = cast("signatures.Total[PencilArray]", reductions.prod)
    min = cast("signatures.Extreme[PencilArray]", reductions.min)
    max = cast("signatures.Extreme[PencilArray]", reductions.max)
    mean = cast("signatures.Mean[PencilArray]", reductions.mean)
    var = cast("signatures.Spread[PencilArray]", reductions.var)
    std = cast("signatures.Spread[PencilArray]", reductions.std)
    ptp = cast("signatures.Range[PencilArray]", reductions.ptp)
    any = cast("signatures.Truth[PencilArray]", reductions.any)
    all = cast("signatures.Truth[PencilArray]", reductions.all)
    argmin = cast("signatures.Position[PencilArray]", reductions.argmin)
    argmax = cast("signatures.Position[PencilArray]", reductions.argmax)
    norm = reductions.norm
    vdot = pairs.vdot

    # Halos: ghosts by communication, boundary points without.

    exchange_halo = verbs.exchange_halo
    start_halo_exchange = verbs.start_halo_exchange
    accumulate_halo = verbs.accumulate_halo
    fill_boundary = verbs.fill_boundary


# With `__getattr__`, Python would find all attributes more slowly.
for _name in set(dir(np.ndarray)) - set(dir(PencilArray)):
    if not _name.startswith("_"):
        setattr(PencilArray, _name, methods.Missing(_name))
