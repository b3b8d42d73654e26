"""Serial FFTs of fields along dimensions that are not decomposed.

A distributed FFT is a sequence of these with transposes in between.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy import fft as scipy_fft

from pencils.array.allocation import memory_axes
from pencils.array.operands import check_type
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout.integers import as_dim
from pencils.pencil import Pencil


def fft(u: PencilArray, axis: int, *, overwrite: bool = False) -> PencilArray:
    """Transform complex data along dimension `axis`, as `scipy.fft.fft`.

    Parameters
    ----------
    u : PencilArray
        The field.
    axis : int
        A space dimension that is not decomposed, counted without component axes.
    overwrite : bool, optional
        Whether the memory of `u` may be used for the result; otherwise `u` is not changed.

    Returns
    -------
    PencilArray
        Field of the same pencil.

    Raises
    ------
    ArgumentError, TypeError
        If the dimension is decomposed or a singleton; `transpose` first.

    Examples
    --------
    >>> import numpy as np, pencils, pencils.fft
    >>> u = pencils.random.uniform(pencils.Pencil((4, 8)), rng=1)
    >>> np.allclose(pencils.fft.ifft(pencils.fft.fft(u, 1), 1), u)
    True
    """
    dim = _read_axis(u, axis)
    return _transform(partial(scipy_fft.fft, overwrite_x=overwrite), u, dim, u.pencil)


def ifft(u: PencilArray, axis: int, *, overwrite: bool = False) -> PencilArray:
    """Invert `fft`, with the same parameters."""
    dim = _read_axis(u, axis)
    return _transform(partial(scipy_fft.ifft, overwrite_x=overwrite), u, dim, u.pencil)


def rfft(u: PencilArray, axis: int, spectral: Pencil) -> PencilArray:
    """Transform real data along dimension `axis`, as `scipy.fft.rfft`.

    Parameters
    ----------
    u : PencilArray
        A real field.
    axis : int
        As in `fft`.
    spectral : Pencil
        Pencil of the result: ``u.pencil.with_(shape=...)`` with ``n // 2 + 1`` points along `axis`.

    Returns
    -------
    PencilArray
        Field of `spectral`.

    Raises
    ------
    ArgumentError, TypeError
        As `fft`.
    PencilMismatchError
        If the pencils differ in more than the extent along `axis`.
    """
    check_type("spectral", spectral, Pencil)
    dim = _read_axis(u, axis, spectral)
    return _transform(scipy_fft.rfft, u, dim, spectral)


def irfft(u: PencilArray, axis: int, physical: Pencil) -> PencilArray:
    """Invert `rfft`.

    Parameters
    ----------
    u : PencilArray
        Half of a spectrum along `axis`.
    axis : int
        As in `fft`.
    physical : Pencil
        Pencil of the result, with ``n`` points along `axis`.

    Returns
    -------
    PencilArray
        Real field of `physical`.

    Raises
    ------
    ArgumentError, TypeError
        As `fft`.
    PencilMismatchError
        If the pencils differ in more than the extent along `axis`.
    """
    check_type("physical", physical, Pencil)
    dim = _read_axis(u, axis, physical)
    n, waves = physical.shape[dim], u.pencil.shape[dim]
    if n // 2 + 1 != waves:
        raise ArgumentError(
            f"pencil physical has {n} points along dimension {dim}, which need {n // 2 + 1} "
            f"waves; u has {waves}"
        )
    return _transform(partial(scipy_fft.irfft, n=n), u, dim, physical)


def _read_axis(u: PencilArray, axis: int, target: Pencil | None = None) -> int:
    """Read the dimension of a transform, and check that it can lead to a target."""
    check_type("u", u, PencilArray)
    dim = as_dim("axis", axis, u.pencil.ndim)
    if u.singletons:
        raise ArgumentError(
            f"the field must vary along all dimensions; {sorted(u.singletons)} are singletons"
        )
    if u.pencil.process_shape[dim] > 1:
        raise ArgumentError(
            f"dimension {dim} is decomposed, but a serial transform needs whole lines; "
            f"transpose() to a pencil that does not decompose it:\n{u.pencil!r}"
        )

    def rest(pencil: Pencil) -> tuple[object, ...]:
        """Return what must be alike, for every rank to have the same block but for `dim`."""
        splits = [split for d, split in enumerate(pencil.layout.splits) if d != dim]
        return pencil.ndim, pencil.layout.strides, splits

    if target is not None and not (u.pencil.same_ranks(target) and rest(u.pencil) == rest(target)):
        raise PencilMismatchError(
            f"pencils of a transform along dimension {dim} may differ along it only; create the "
            f"other one with with_(shape=...):\n{u.pencil!r}\n{target!r}"
        )
    return dim


def _transform(
    transform: Callable[..., Any], u: PencilArray, dim: int, target: Pencil
) -> PencilArray:
    axes = memory_axes(target.order, len(u.components))
    along = axes.index(len(u.components) + dim)
    block = transform(u.local.transpose(axes), axis=along).transpose(np.argsort(axes))
    if block.shape[len(u.components) :] != target.local_shape:
        raise ArgumentError(
            f"a transform of shape {block.shape} does not fit the block of {target!r}"
        )
    return PencilArray.from_block(target, block)
