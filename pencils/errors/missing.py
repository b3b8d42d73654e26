"""Texts about what is missing: libraries, and words of other libraries that have ours instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pencils.errors import MissingAttributeError, MissingLibraryError

# How to install each library: as an extra of pencils, or by name.
INSTALL = {
    "Matplotlib": 'pip install "pencils[plot]"',
    "SciPy": "pip install scipy",
    "hdf5plugin": 'pip install "pencils[zfp]"',
    "mpi4py-fft": 'pip install "pencils[fftw]", with a compiler and the headers of FFTW',
    "petsc4py": "pip install petsc petsc4py, with compilers",
    "Zarr": 'pip install "pencils[zarr]"',
}

_HALO = "write u.exchange_halo() to fill ghosts, of a field made with halo="
_MOVE = "write pencils.transpose(u, pencil) for other blocks, u.whole(axis) for whole lines"
_GATHER = (
    "write pencils.gather(u) for the global array on one rank, pencils.gather(u, root=None) on all"
)
_WAVES = (
    "create plan = pencils.fft.PencilFFT(pencil); then call plan.forward(u), plan.backward(waves)"
)
_FINER = (
    "write pencils.fft.PencilFFT(pencil, dealias='3/2'), whose input_pencil has 3/2 as many points"
)
_HAS_VALUES = "fields are never lazy; write u.local for the own block, pencils.gather(u) for all"
_MAKE = "write pencils.zeros(pencil), with halo=1 for ghosts"
_SLOPE = (
    "write pencils.derivative(u, axis), numpy.gradient(u), or u.shift((1, 0)) - u of a field with "
    "a halo"
)
_SAVE = 'write pencils.save("u.h5", {"u": u}), which all ranks call'
_BLOCK = "write pencil.local_slices for the global indices of the own block"

# What to write instead of words of mpi4py-fft, Dedalus, PETSc, DOLFINx, PencilArrays.jl, Dask and
# xarray: attributes of fields, of pencils and of transforms, and names of the module.
FIELDS: Mapping[str, str] = {
    "redistribute rechunk alignment towards_coeff_space towards_grid_space": _MOVE,
    "get gather gather_data allgather_data to_numpy": f"{_GATHER}, key= for a part of it",
    "plot imshow pcolormesh": "write pencils.plot.plot_slice(u), which all ranks call",
    "v array values numpy": "write u.local for the own block, an array of NumPy",
    "scatter_forward globalToLocal ghostUpdate update_ghost_values update_halo": _HALO,
    "scatter_reverse localToGlobal": (
        "write u.accumulate_halo() to add ghost values to the points that they copy"
    ),
    "global_shape size_global": "write u.shape, which is the global shape",
    "local_slice substart range_local": "write u.local_slices for global indices of the own block",
    "subcomm": "write u.pencil.comm for all ranks",
    "forward backward require_coeff_space require_grid_space": _WAVES,
    "change_scales set_scales require_scales": _FINER,
    "compute load persist": _HAS_VALUES,
    "duplicate": "write u.copy()",
    "isel sel": "write u[1:-1] for ranges, u.take_points(index) for points",
    "to_netcdf to_zarr to_hdf5 write_hdf5": _SAVE,
    "grad gradient laplacian differentiate": _SLOPE,
}
PENCILS: Mapping[str, str] = {
    "createGlobalVec createGlobalVector createLocalVec createLocalVector createNaturalVec": _MAKE,
    "getRanges getCorners local_slice range_local": _BLOCK,
    "globalToLocal": _HALO,
    "redistribute pencil": _MOVE,
    "forward backward": _WAVES,
    "get_dealiased get_dealiased_space": _FINER,
    "subcomm": "write pencil.comm for all ranks",
}
PLANS: Mapping[str, str] = {
    "local_slice": "write plan.input_pencil.local_slices, and those of plan.output_pencil",
    "global_shape": "write plan.input_pencil.shape, and that of plan.output_pencil",
    "local_wavenumbers": "write plan.wavenumbers()",
    "get_dealiased get_dealiased_space": _FINER,
    "fft ifft": "write plan.forward(u), plan.backward(waves)",
    "destroy": "write plan.free(), or use the plan in a with block",
}
MODULE: Mapping[str, str] = {
    "PFFT FFT PencilFFT PencilFFTPlan": "write pencils.fft.PencilFFT(pencil)",
    "LineSolver CompactDerivative solve_banded": "it is in pencils.lines",
    "plot_slice plot_decomposition": "it is in pencils.plot",
    "newDistArray DistArray Field Function": _MAKE,
    "Subcomm Distributor DMDA DMDACreate MPITopology DeviceMesh": (
        "write pencils.Pencil(shape), with grid= for the process grid and decomp= for decomposed "
        "dimensions"
    ),
    "redistribute": _MOVE,
    "scatter from_array": "write pencils.partition(pencil, data), with root= for data of one rank",
    "update_halo scatter_forward globalToLocal": _HALO,
    "range_local local_slice": _BLOCK,
    "grad gradient laplacian div curl": _SLOPE,
    "rank size": "write pencil.rank, pencil.size",
}


@contextmanager
def needs(library: str) -> Iterator[None]:
    """Import a library in a ``with`` block; if this fails, the error names what installs it.

    Examples
    --------
    >>> with needs("SciPy"):
    ...     import scipy.fft
    """
    try:
        yield
    except ImportError as error:
        raise MissingLibraryError(
            f"{library} is not installed: {INSTALL[library]} ({error})"
        ) from error


def by_word(table: Mapping[str, str]) -> dict[str, str]:
    """Return the text for each of the words."""
    return {word: text for words, text in table.items() for word in words.split()}


class Missing:
    """An attribute that objects of others have: the error names what to write here."""

    __slots__ = ("_explain", "_name")

    def __init__(self, name: str, explain: Callable[[str], str]) -> None:
        self._name, self._explain = name, explain

    def __get__(self, owner: object, kind: type | None = None) -> Missing:
        if owner is None:
            return self
        name = self._name
        text = f"a {type(owner).__name__} has no attribute {name!r}: {self._explain(name)}"
        raise MissingAttributeError(text, name=name, obj=owner)


def explain_words(kind: type, table: Mapping[str, str]) -> None:
    """Let objects of a class explain words that it does not have.

    With `__getattr__`, Python would find all attributes more slowly.
    """
    texts = by_word(table)
    for word in texts.keys() - set(dir(kind)):
        setattr(kind, word, Missing(word, texts.__getitem__))

    def known(owner: object) -> list[str]:
        names = object.__dir__(owner)
        return [name for name in names if not isinstance(getattr(kind, name, None), Missing)]

    if "__dir__" not in vars(kind):
        setattr(kind, "__dir__", known)  # noqa: B010 - checkers know only methods of an object
