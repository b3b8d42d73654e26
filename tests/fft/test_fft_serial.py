"""Serial transforms of fields: equal to NumPy's on the global array, or refused."""

import numpy as np
import pytest

import pencils
from pencils import fft
from pencils.errors import ArgumentError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (7, 6, 5)


def draw(shape, dtype):
    rng = np.random.default_rng(0)
    a = rng.random(shape)
    return a + 1j * rng.random(shape) if np.dtype(dtype).kind == "c" else a


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("components", [(), (2,)])
def test_complex_transforms(comm, axis, order, components):
    """Forward and backward, along any dimension that is whole, in any memory order."""
    dims = [dim for dim in range(3) if dim != axis % 3]
    pen = pencils.Pencil(SHAPE, comm, decomp=dims, order=order)
    a = draw((*components, *SHAPE), complex)
    u = pencils.partition(pen, a)
    along = axis % 3 + len(components)
    u_hat = fft.fft(u, axis)
    assert np.allclose(u_hat, np.fft.fft(a, axis=along))
    assert np.allclose(fft.ifft(u_hat, axis), u)
    assert np.array_equal(u, a)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_real_transforms(comm, axis):
    """The spectral pencil has n // 2 + 1 points along the axis, for odd and even n."""
    pen = pencils.Pencil(SHAPE, comm, decomp=[dim for dim in range(3) if dim != axis])
    half = [n // 2 + 1 if dim == axis else n for dim, n in enumerate(SHAPE)]
    spectral = pen.with_(shape=half)
    a = draw(SHAPE, float)
    u_hat = fft.rfft(pencils.partition(pen, a), axis, spectral)
    assert np.allclose(u_hat, np.fft.rfft(a, axis=axis))
    assert np.allclose(fft.irfft(u_hat, axis, pen), a)
    for order in ((2, 1, 0), (1, 2, 0)):  # of the result, not of what is read
        turned = fft.rfft(pencils.partition(pen, a), axis, spectral.with_(order=order))
        assert np.allclose(turned, u_hat)
        assert turned.local.transpose(order).flags.c_contiguous


def test_pencils_that_do_not_fit_are_refused(comm):
    """Equal local shapes are not enough: every point must stay on its rank."""
    pen = pencils.Pencil((8, 8, 6), comm, decomp=(0, 1))
    u = pencils.ones(pen)
    bounds = (*[0] * pen.grid[0], 8)
    for target in (
        pencils.Pencil((8, 8, 4), comm, decomp=(1, 0)),
        pencils.Pencil((8, 9, 4), comm, decomp=(0, 1)),
        pencils.Pencil((8, 8, 4), comm, decomp=(0, 1), splits=(bounds, "first", "first")),
    ):
        if target.layout.splits[:2] != pen.layout.splits[:2]:
            with pytest.raises((PencilMismatchError, ArgumentError)):
                fft.rfft(u, 2, target)
    with pytest.raises(ArgumentError, match="does not fit"):
        fft.rfft(u, 2, pen.with_(shape=(8, 8, 5)))
    with pytest.raises(ArgumentError, match="singletons"):
        fft.fft(u.mean(axis=0), 2)
    for axis in (5, (0, 1), ()):
        with pytest.raises(ArgumentError, match="axis"):
            fft.fft(u, axis)
    with pytest.raises(ArgumentError, match="need 51 waves; u has 6"):
        fft.irfft(u, 2, pen.with_(shape=(8, 8, 100)))
    with pytest.raises(PencilMismatchError):
        fft.irfft(u, 2, pencils.Pencil((8, 8), comm))
    for call in (
        lambda: fft.fft(u.local, 2),
        lambda: fft.rfft(u, 2, None),
        lambda: fft.irfft(u, 2, (8, 8, 10)),
        lambda: fft.irfft(None, 2, pen),
    ):
        with pytest.raises(TypeError, match="must be a Pencil"):
            call()
    if comm.size > 1:
        whole = pencils.Pencil((8, 8, 6), comm, decomp=2)
        with pytest.raises(ArgumentError, match="needs whole lines"):
            fft.fft(pencils.ones(whole), 2)
