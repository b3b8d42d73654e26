"""Copies between strided blocks of memory: compiled, or by NumPy where nothing was compiled.

The compiled copies write large targets past the cache, in whole lines, and change the memory order
in tiles; which vector instructions they use is found out at import. The environment variable
``PENCILS_KERNELS`` names another implementation, one of `available`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from pencils.comm import pack_numpy
from pencils.errors import ArgumentError

Array = NDArray[Any]

VARIABLE = "PENCILS_KERNELS"

_kernels: Any
try:
    _kernels = import_module("pencils.comm._kernels")
except ImportError:  # there was no compiler when pencils was installed
    _kernels = None


class _Chosen:
    """The implementation in use."""

    __slots__ = ("copies", "copy", "name")

    name: str
    copy: Callable[[Array, Array], None]
    copies: Callable[[Sequence[tuple[Array, Array]]], Any]


_chosen = _Chosen()


def copy(target: Array, source: Array) -> None:
    """Copy `source` into `target`.

    Parameters
    ----------
    target, source : numpy.ndarray
        Arrays of the same shape and dtype, with any strides and alignment. They must neither
        overlap nor hold Python objects; this is not checked.

    Raises
    ------
    ValueError
        If the shapes or the item sizes differ, or `target` is read-only.
    """
    _chosen.copy(target, source)


class Copies:
    """Prepared copies, executed in turn by a call. What is made is the implementation's own object.

    Parameters
    ----------
    pairs : sequence of (numpy.ndarray, numpy.ndarray)
        Targets and sources, as for `copy`. They are held on to.

    Raises
    ------
    ValueError
        If the shapes or the item sizes of a pair differ, or a target is read-only.
    """

    __slots__ = ()

    def __new__(cls, pairs: Sequence[tuple[Array, Array]]) -> Self:
        """Have the implementation in use prepare the copies."""
        return cast("Self", _chosen.copies(pairs))

    def __init__(self, pairs: Sequence[tuple[Array, Array]]) -> None: ...

    def __call__(self) -> None:
        """Copy every source, as it is now, into its target."""
        raise NotImplementedError


class Additions:
    """Prepared additions of numbers, executed in turn by a call.

    Parameters
    ----------
    pairs : sequence of (numpy.ndarray, numpy.ndarray)
        Targets and sources of the same shapes. No target may overlap any source.
    """

    def __init__(self, pairs: Sequence[tuple[Array, Array]]) -> None:
        self._pairs = pairs

    def __call__(self) -> None:
        """Add every source, as it is now, to its target."""
        for target, source in self._pairs:
            np.add(target, source, out=target)


def kernels() -> str:
    """Name the implementation in use: ``avx512``, ``avx2``, ``portable`` or ``numpy``."""
    return _chosen.name


def available() -> tuple[str, ...]:
    """Name the implementations that work here, best first."""
    return (*(_kernels.available() if _kernels else ()), "numpy")


def compiled() -> Any:
    """Return the module of the compiled kernels, or None if NumPy is in use."""
    return None if _chosen.name == "numpy" else _kernels


@contextmanager
def using(name: str) -> Iterator[None]:
    """Copy by another implementation for a while; prepared copies keep the one they were made by.

    Parameters
    ----------
    name : str
        One of `available`.

    Raises
    ------
    ArgumentError
        If it is not.
    """
    before = _chosen.name
    _choose(name)
    try:
        yield
    finally:
        _choose(before)


def _choose(name: str) -> None:
    if name not in available():
        msg = f"copies by {name!r} are not available; here are {', '.join(available())}"
        raise ArgumentError(msg)
    implementation = pack_numpy
    if name != "numpy":
        _kernels.use(name)
        implementation = _kernels
    _chosen.name = name
    _chosen.copy = implementation.copy
    _chosen.copies = implementation.Copies


def _cache_share(cache: Path = Path("/sys/devices/system/cpu/cpu0/cache/index3")) -> int:
    """Bytes of the last cache that are left for one process if all processors are at work."""
    try:
        size = int((cache / "size").read_text().strip().removesuffix("K")) * 1024
        ranges = (cache / "shared_cpu_list").read_text().strip().split(",")
        bounds = [(part.split("-")[0], part.split("-")[-1]) for part in ranges]
        return size // sum(int(last) - int(first) + 1 for first, last in bounds)
    except (OSError, ValueError):  # not Linux, or not told by a virtual machine
        return 4 << 20


if _kernels:
    _kernels.stream_from(_cache_share() * 3 // 8)  # measured; the source wants its part, too
_choose(os.environ.get(VARIABLE) or available()[0])
